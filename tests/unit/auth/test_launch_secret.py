"""The secret of a launch: how it is kept, and whom it proves to a host."""

from __future__ import annotations

import asyncio
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from synapse.auth.launch import LaunchSecret, agent_with, launch_key
from synapse.auth.local import LocalAdmission, LocalAuth, loopback_hosts
from synapse.core.agent import AgentEntry, entry_from
from synapse.core.caller import Caller
from synapse.core.errors import SenderMismatch, Unauthenticated
from synapse.server.asgi import Scope
from synapse.server.lineage import Lineage, Process
from synapse.server.peer import PEER, Peer

OUR_UID = 1000
TOKEN = "t0ken"
CODEX = AgentEntry("synapse-codex-8120", "codex", pid=20, cli_pid=21, launch_key=launch_key(b"of codex"))
CLAUDE = AgentEntry("synapse-claude-8100", "claude", pid=10, socket="/s/claude", launch_key=launch_key(b"of claude"))
SCRIPT = AgentEntry("synapse-scripted-8180", "scripted", pid=40)
HIDDEN = Lineage(doubt="it runs in another PID namespace")
A_PERSON = Lineage((Process(30, 130),))


def peer(lineage: Lineage = HIDDEN, *, uid: int = OUR_UID, via_socket: bool = True) -> Peer:
    return Peer(via_socket=via_socket, uid=uid, pid=30, lineage=lineage)


def shown(peer: Peer, *secrets: bytes) -> Scope:
    headers = [(b"host", b"localhost:8100"), *((b"x-synapse-launch", secret) for secret in secrets)]
    return {"state": {PEER: peer}, "headers": headers}


def keeper(*entries: AgentEntry, terminal_decides: bool = False) -> LocalAuth:
    known = entries or (CLAUDE, SCRIPT, CODEX)
    return LocalAuth(
        uid=OUR_UID,
        hosts=loopback_hosts(8100),
        entries=lambda: known,
        token=TOKEN,
        terminal_decides=terminal_decides,
    )


def named(agent: str) -> Lineage:
    return replace(HIDDEN, named_agent=agent)


@pytest.mark.parametrize(
    "lineage",
    [
        HIDDEN,
        A_PERSON,
        Lineage((Process(22, 122), Process(21, 121))),
        named("synapse-codex-8120"),
    ],
    ids=["hidden", "a person's", "its own", "of its environment"],
)
@pytest.mark.parametrize("terminal_decides", [False, True])
def test_the_secret_proves_its_agent_and_never_a_person(lineage: Lineage, terminal_decides: bool) -> None:
    caller = keeper(terminal_decides=terminal_decides).admit(shown(peer(lineage), b"of codex"))

    assert caller == Caller(agent_id="synapse-codex-8120", pid=30, via_socket=True)
    assert (caller.is_person, caller.may_decide) == (False, False)


def test_a_process_whose_environment_names_only_the_agents_socket_is_the_agents() -> None:
    assert keeper().admit(shown(peer(named("/s/claude")), b"of claude")).agent_id == "synapse-claude-8100"


@pytest.mark.parametrize(
    "lineage",
    [Lineage((Process(22, 122), Process(21, 121))), named("synapse-codex-8120"), named("/s/codex")],
    ids=["by its ancestors", "by its environment", "by the socket in it"],
)
def test_an_agent_with_the_secret_of_another_is_refused(lineage: Lineage) -> None:
    with pytest.raises(SenderMismatch) as caught:
        keeper().admit(shown(peer(lineage), b"of claude"))

    assert "synapse-claude-8100" in str(caught.value)
    assert "of claude" not in f"{caught.value} {caught.value.hint}"


@pytest.mark.parametrize(
    "given",
    [b"of nobody", b"", b"\xff\xfe", b"x" * 129, b"x" * 60_000, CODEX.launch_key.encode(), b"of codex "],
    ids=["unknown", "empty", "bytes", "long", "huge", "the key itself", "with a space"],
)
@pytest.mark.parametrize("lineage", [HIDDEN, A_PERSON, Lineage((Process(21, 121),))])
def test_a_secret_of_no_agent_is_refused(given: bytes, lineage: Lineage) -> None:
    with pytest.raises(Unauthenticated) as caught:
        keeper().admit(shown(peer(lineage), given))

    assert "belongs to no running agent" in str(caught.value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("second", [b"of codex", b"of claude", b""])
def test_a_secret_is_given_once(second: bytes) -> None:
    with pytest.raises(Unauthenticated, match="more than once"):
        keeper().admit(shown(peer(), b"of codex", second))


def test_an_agent_without_a_launch_has_no_secret() -> None:
    assert agent_with(b"", [SCRIPT]) is None
    assert agent_with(b"x" * 129, [replace_key(launch_key(b"x" * 129))]) is None


def test_a_key_that_is_no_key_recognises_nothing() -> None:
    assert agent_with(b"of codex", [replace_key("gr\u00fcn"), CODEX]) is CODEX


def replace_key(key: str) -> AgentEntry:
    return AgentEntry("synapse-x-1", "x", launch_key=key)


def test_over_tcp_a_secret_is_refused() -> None:
    with pytest.raises(Unauthenticated, match="Unix socket only"):
        keeper().admit(shown(peer(via_socket=False), b"of codex"))


def test_another_user_needs_the_token_all_the_same() -> None:
    scope = shown(peer(uid=1001), b"of codex")
    with pytest.raises(Unauthenticated, match="another user"):
        keeper().admit(scope)

    scope["headers"].append((b"authorization", f"Bearer {TOKEN}".encode()))
    assert keeper().admit(scope).agent_id == "synapse-codex-8120"


def test_a_secret_counts_for_one_request_of_a_connection() -> None:
    connection, auth = peer(A_PERSON), keeper()

    callers = [auth.admit(shown(connection, *given)) for given in ((), (b"of codex",), ())]

    assert [(caller.agent_id, caller.is_person) for caller in callers] == [
        ("", True),
        ("synapse-codex-8120", False),
        ("", True),
    ]


def test_an_agent_that_came_after_the_connection_is_known() -> None:
    known: list[AgentEntry] = []
    connection = peer(A_PERSON)
    auth = LocalAuth(uid=OUR_UID, hosts=(), entries=lambda: tuple(known))

    async def read() -> None:
        known.append(CODEX)

    async def admit(*secrets: bytes) -> Caller:
        admitted = LocalAdmission(auth, read)(shown(connection, *secrets))
        return admitted if isinstance(admitted, Caller) else await admitted

    auth.admit(shown(connection))

    assert asyncio.run(admit(b"of codex")).agent_id == "synapse-codex-8120"


def test_each_launch_has_a_new_secret_that_only_its_user_reads(tmp_path: Path) -> None:
    folder = tmp_path / "launches" / "synapse-codex-8120"
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    secret, file = LaunchSecret(folder), folder / "secret"

    keys: list[str] = []
    texts: list[str] = []
    for _ in range(2):
        keys.append(secret.write())
        texts.append(file.read_text(encoding="ascii"))

    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert {stat.S_IMODE(one.stat().st_mode) for one in (folder, folder.parent)} == {0o700}
    assert texts[0] != texts[1]
    assert [launch_key(text.strip().encode("ascii")) for text in texts] == keys
    assert len(texts[0].strip()) >= 43

    secret.remove()
    secret.remove()
    assert not file.exists()


def test_the_key_is_in_the_registry_and_nowhere_else() -> None:
    found = entry_from(CODEX.as_dict())

    assert found is not None
    assert found.launch_key == CODEX.launch_key
    assert CODEX.launch_key not in CODEX.shown().values()
    assert CODEX.shown().keys() | {"launch_key"} == CODEX.as_dict().keys()
