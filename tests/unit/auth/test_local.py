"""LocalAuth admits callers, and names them."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from synapse.auth.local import LocalAdmission, LocalAuth, loopback_hosts
from synapse.core.agent import AgentEntry
from synapse.core.caller import Caller
from synapse.core.errors import ForeignOrigin, Unauthenticated
from synapse.server.asgi import Scope
from synapse.server.lineage import LONGEST, Lineage, Process, agent_of, read_lineage, standing_of, terminal_doubt
from synapse.server.peer import PEER, Peer, peer_of

OUR_UID = 1000
HOST = (b"host", b"localhost:8100")
CODEX = AgentEntry("synapse-codex-8120", "codex", pid=20, pid_started=120, cli_pid=21)
CLAUDE = AgentEntry("synapse-claude-8100", "claude", pid=10, pid_started=110, cli_pid=11)


def scope(peer: Peer | None, *headers: tuple[bytes, bytes]) -> Scope:
    return {"state": {} if peer is None else {PEER: peer}, "headers": list(headers)}


A_SHELL = Lineage((Process(30, 130),))


def over_socket(uid: int = OUR_UID, lineage: Lineage = A_SHELL) -> Peer:
    return Peer(via_socket=True, uid=uid, pid=30, lineage=lineage)


def over_tcp(uid: int | None = OUR_UID) -> Peer:
    return Peer(via_socket=False, uid=uid)


class Registry:
    """Codex was started from a shell inside Claude; `asked` counts the look-ups."""

    def __init__(self) -> None:
        self.asked = 0

    def entries(self) -> Sequence[AgentEntry]:
        self.asked += 1
        return (CLAUDE, CODEX)


def process(proc: Path, pid: int, parent: int, *, terminal: int = 0, environ: bytes | None = b"LANG=C\0") -> None:
    (proc / str(pid)).mkdir()
    rest = " ".join(["0"] * 14)
    stat = f"{pid} (a ) b) S {parent} 0 0 {terminal} {rest} {pid + 100} 0 0"
    (proc / str(pid) / "stat").write_text(stat, encoding="ascii")
    if environ is not None:
        (proc / str(pid) / "environ").write_bytes(environ)


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """init 1 ← claude host 10 ← claude 11 ← shell 12 ← codex host 20 ← codex 21 ← (sh) 22; and 30 beside them."""
    for pid, parent in ((10, 1), (11, 10), (12, 11), (20, 12), (21, 20), (22, 21), (30, 1)):
        process(tmp_path, pid, parent)
    return tmp_path


def auth(registry: Registry | None = None, token: str = "", *, terminal_decides: bool = False) -> LocalAuth:
    entries = (registry or Registry()).entries
    return LocalAuth(
        uid=OUR_UID, hosts=loopback_hosts(8100), entries=entries, token=token, terminal_decides=terminal_decides
    )


def test_the_same_user_may_act_over_the_socket() -> None:
    assert auth().admit(scope(over_socket())) == Caller(via_socket=True, pid=30)


def test_the_same_user_may_act_over_tcp_without_a_token() -> None:
    assert auth().admit(scope(over_tcp(), HOST)) == Caller(via_socket=False)


@pytest.mark.parametrize(
    ("pid", "agent_id"),
    [
        (11, "synapse-claude-8100"),
        (12, "synapse-claude-8100"),
        (10, "synapse-claude-8100"),
        (20, "synapse-codex-8120"),
        (22, "synapse-codex-8120"),
        (30, ""),
    ],
)
def test_the_nearest_agent_among_the_ancestors_is_the_caller(proc: Path, pid: int, agent_id: str) -> None:
    caller = auth().admit(scope(over_socket(lineage=read_lineage(pid, str(proc)))))

    assert (caller.agent_id, caller.is_person) == (agent_id, not agent_id)


@pytest.mark.parametrize(
    ("environment", "named"),
    [
        (b"LANG=C\0SYNAPSE_AGENT_ID=synapse-codex-8120\0", "synapse-codex-8120"),
        (b"SYNAPSE_AGENT_ID=gone", "gone"),
        (b"SYNAPSE_SOCKET=/s\0", "/s"),
        (b"A=\0SYNAPSE_LAUNCHED_BY=synapse-codex-8120\0", "synapse-codex-8120"),
        (b"LANG=C\0SYNAPSE_AGENT_ID=\0", ""),
        (b"NOT_SYNAPSE_AGENT_ID=x\0", ""),
        (b"A=SYNAPSE_AGENT_ID=x\0", ""),
        (b"", ""),
    ],
)
@pytest.mark.parametrize("pid", [40, 41], ids=["its own", "an ancestor's"])
def test_a_process_with_an_agents_environment_is_no_person(
    proc: Path, environment: bytes, named: str, pid: int
) -> None:
    process(proc, 40, 1, environ=environment)
    process(proc, 41, 40)

    caller = auth().admit(scope(over_socket(lineage=read_lineage(pid, str(proc)))))

    assert (caller.agent_id, caller.named_agent) == ("", named)
    assert (caller.is_person, caller.may_decide) == (not named, not named)
    assert named in caller.objection


def test_an_environment_that_cannot_be_read_counts_against_the_process_and_not_against_its_descendants(
    proc: Path,
) -> None:
    process(proc, 40, 1, environ=None)
    process(proc, 41, 40)

    assert "its environment cannot be read" in read_lineage(40, str(proc)).doubt
    assert read_lineage(41, str(proc)).doubt == ""


@pytest.mark.parametrize("pid", [40, 99])
def test_an_incomplete_ancestry_proves_no_person(proc: Path, pid: int) -> None:
    process(proc, 40, 39)

    caller = auth().admit(scope(over_socket(lineage=read_lineage(pid, str(proc)))))

    assert (caller.agent_id, caller.is_person, caller.may_decide) == ("", False, False)
    assert "cannot be read" in caller.objection


def test_a_parent_whose_first_thread_has_ended_is_still_the_parent(proc: Path) -> None:
    process(proc, 23, 22)
    process(proc, 31, 30)
    for pid in (22, 30):
        stat = proc / str(pid) / "stat"
        stat.write_text(stat.read_text(encoding="ascii").replace(" S ", " Z "), encoding="ascii")

    of_agent, of_person = (auth().admit(scope(over_socket(lineage=read_lineage(pid, str(proc))))) for pid in (23, 31))

    assert (of_agent.agent_id, of_agent.is_person) == ("synapse-codex-8120", False)
    assert (of_person.agent_id, of_person.is_person) == ("", True)
    assert "cannot be read" in read_lineage(30, str(proc)).doubt


def test_a_parent_that_started_after_its_child_is_another_process(proc: Path) -> None:
    process(proc, 40, 50)
    process(proc, 50, 1)

    assert "another one by now" in read_lineage(40, str(proc)).doubt


def test_an_agent_is_proven_even_if_its_ancestors_cannot_be_read(proc: Path) -> None:
    process(proc, 19, 18)
    entry = AgentEntry("a", "t", pid=19, pid_started=119)

    assert standing_of(read_lineage(19, str(proc)), [entry]) == ("a", "")


@pytest.mark.parametrize("pid", [40, 41], ids=["its own", "an ancestor's"])
def test_a_process_at_an_agents_terminal_is_no_person(proc: Path, pid: int) -> None:
    process(proc, 40, 1, terminal=34816)
    process(proc, 41, 40, terminal=34817)
    lineage = read_lineage(pid, str(proc))

    assert standing_of(lineage, [AgentEntry("a", "t", terminal=34816)]).doubt == "its terminal is that of the agent a"
    assert standing_of(lineage, [AgentEntry("a", "t", terminal=34818), AgentEntry("b", "t")]) == ("", "")


PTS = 34816
YOUNG_SHELL = Process(50, 250, PTS, session=50, name=b"bash")


@pytest.mark.parametrize(
    ("processes", "may_decide"),
    [
        ((Process(30, 130),), False),
        ((Process(30, 130), Process(29, 9, PTS, session=29)), False),
        ((Process(51, 251, PTS, session=50), YOUNG_SHELL), False),
        ((YOUNG_SHELL, Process(49, 249, name=b"script"), Process(1, 1)), False),
        ((YOUNG_SHELL, Process(1, 1)), False),
        ((YOUNG_SHELL, Process(49, 249, name=b"script"), Process(8, 8, name=b"systemd"), Process(1, 1)), False),
        ((Process(51, 251, PTS, session=77), YOUNG_SHELL, Process(9, 9, name=b"tmux: server")), False),
        ((YOUNG_SHELL, Process(9, 9, name=b"tmux: server"), Process(1, 1)), True),
        ((YOUNG_SHELL, Process(48, 248), Process(9, 9, name=b"sshd")), True),
        ((Process(51, 251, PTS, session=9), Process(9, 9, PTS, session=9, name=b"bash"), Process(1, 1)), True),
        ((Process(51, 251, PTS, session=1), Process(1, 1, PTS, session=1, name=b"bash")), True),
    ],
)
def test_a_demanded_terminal_must_be_one_that_no_agent_can_have_opened(
    processes: tuple[Process, ...], may_decide: bool
) -> None:
    caller = auth(terminal_decides=True).admit(scope(over_socket(lineage=Lineage(processes))))

    assert (caller.is_person, caller.may_decide) == (True, may_decide)
    assert ("terminal" in caller.objection) is not may_decide


def test_a_terminal_of_another_users_program_is_a_login(proc: Path) -> None:
    process(proc, 90, 1)
    (proc / "90" / "status").write_text(f"Name:\tsshd\nUid:\t{os.getuid() + 1}\t0\t0\t0\n", encoding="ascii")
    process(proc, 91, 90, terminal=PTS)
    process(proc, 92, 90, terminal=PTS)
    (proc / "92" / "status").write_text(f"Name:\tsh\nUid:\t{os.getuid()}\t0\t0\t0\n", encoding="ascii")
    agents = Registry().entries()

    for pid in (91, 92):
        lineage = read_lineage(pid, str(proc))
        leader = lineage.processes[0]._replace(session=pid)
        lineage = replace(lineage, processes=(leader, *lineage.processes[1:]))
        assert terminal_doubt(lineage, agents, str(proc)) == ""
    assert "younger" in terminal_doubt(lineage, agents, "/nowhere")


def test_a_process_that_entered_a_container_from_outside_is_at_no_agents_terminal(proc: Path) -> None:
    process(proc, 90, 0, terminal=PTS)

    assert terminal_doubt(read_lineage(90, str(proc)), Registry().entries()) == ""


def test_a_pid_that_was_given_to_another_process_proves_nothing() -> None:
    assert agent_of([Process(10, 999)], [CLAUDE]) == ""
    assert agent_of([Process(10, 110)], [CLAUDE]) == "synapse-claude-8100"
    assert agent_of([Process(10, 999)], [AgentEntry("a", "t", pid=10)]) == "a"


def test_a_gateway_is_none_of_the_agents_that_live_in_it() -> None:
    assert agent_of([Process(10, 110)], [AgentEntry("tck", "scripted", pid=10, pid_started=110, gateway="g")]) == ""


def test_an_entry_without_pids_proves_nothing() -> None:
    assert agent_of([Process(0, 0), Process(5, 1)], [AgentEntry("a", "t", pid=9)]) == ""


def test_an_ancestry_is_bounded_even_in_a_circle(proc: Path) -> None:
    process(proc, 40, 40)

    lineage = read_lineage(40, str(proc))

    assert len(lineage.processes) == LONGEST
    assert "more than" in lineage.doubt


def test_what_was_proven_holds_for_the_whole_connection(proc: Path) -> None:
    registry = Registry()
    keeper = auth(registry)
    peer = over_socket(lineage=read_lineage(22, str(proc)))

    callers = [keeper.admit(scope(peer)) for _ in range(3)]

    assert {caller.agent_id for caller in callers} == {"synapse-codex-8120"}
    assert registry.asked == 1


@pytest.mark.parametrize("peer", [over_socket(uid=1001), over_tcp(1001), over_tcp(None), None])
def test_another_user_or_an_unknown_one_is_refused(peer: Peer | None) -> None:
    with pytest.raises(Unauthenticated) as caught:
        auth(token="t0ken").admit(scope(peer, HOST))

    assert "Bearer" in caught.value.hint
    assert "t0ken" not in f"{caught.value} {caught.value.hint}"


@pytest.mark.parametrize("peer", [over_socket(uid=1001), over_tcp(1001), over_tcp(None), None])
def test_the_token_admits_anyone(peer: Peer | None) -> None:
    caller = auth(token="t0ken").admit(scope(peer, HOST, (b"authorization", b"bearer t0ken")))

    assert (caller.agent_id, caller.is_person) == ("", False)


@pytest.mark.parametrize(
    "given", [b"Bearer wrong", b"Bearer ", b"Bearer", b"t0ken", b"Basic t0ken", b"Bearer t\xffken"]
)
def test_a_wrong_token_is_refused(given: bytes) -> None:
    with pytest.raises(Unauthenticated):
        auth(token="t0ken").admit(scope(over_tcp(1001), HOST, (b"authorization", given)))


def test_where_no_token_is_set_the_empty_one_does_not_fit() -> None:
    with pytest.raises(Unauthenticated):
        auth().admit(scope(over_tcp(1001), HOST, (b"authorization", b"Bearer ")))


def test_a_token_is_shown_with_each_request() -> None:
    keeper, stranger = auth(token="t0ken"), over_tcp(1001)
    keeper.admit(scope(stranger, HOST, (b"authorization", b"Bearer t0ken")))

    with pytest.raises(Unauthenticated):
        keeper.admit(scope(stranger, HOST))


@pytest.mark.parametrize("host", [b"localhost:8100", b"127.0.0.1:8100", b"[::1]:8100", b"LocalHost:8100"])
def test_the_names_of_this_machine_with_our_port_are_ours(host: bytes) -> None:
    auth().admit(scope(over_tcp(), (b"host", host)))


@pytest.mark.parametrize(
    "headers",
    [
        [(b"host", b"evil.example:8100")],
        [(b"host", b"localhost")],
        [(b"host", b"localhost:8101")],
        [(b"host", b"")],
        [],
        [HOST, (b"host", b"evil.example:8100")],
        [HOST, HOST],
    ],
)
def test_another_host_is_refused_over_tcp(headers: list[tuple[bytes, bytes]]) -> None:
    with pytest.raises(ForeignOrigin) as caught:
        auth().admit(scope(over_tcp(), *headers))

    assert "localhost:8100" in caught.value.hint


def test_on_the_socket_the_host_does_not_matter() -> None:
    auth().admit(scope(over_socket(), (b"host", b"anything")))


@pytest.mark.parametrize("peer", [over_socket(), over_tcp()])
@pytest.mark.parametrize(
    "origin", [b"http://evil.example", b"null", b"https://localhost:8100", b"http://localhost", b""]
)
def test_web_pages_are_refused(peer: Peer, origin: bytes) -> None:
    with pytest.raises(ForeignOrigin):
        auth().admit(scope(peer, HOST, (b"origin", origin)))


def test_a_page_of_our_own_is_not_foreign() -> None:
    auth().admit(scope(over_tcp(), HOST, (b"origin", b"http://localhost:8100")))


@pytest.mark.parametrize("terminal_decides", [False, True])
async def test_a_process_is_judged_once_the_agents_are_read_and_other_callers_do_not_wait(
    proc: Path, *, terminal_decides: bool
) -> None:
    may_go_on = asyncio.Event()
    admission = LocalAdmission(auth(terminal_decides=terminal_decides), may_go_on.wait)
    peer = Peer(via_socket=True, uid=OUR_UID, pid=22, lineage=read_lineage(22, str(proc)))
    admitted = admission(scope(peer))
    assert not isinstance(admitted, Caller)
    waiting = asyncio.ensure_future(admitted)
    assert isinstance(admission(scope(over_tcp(), HOST)), Caller)

    assert not (await asyncio.wait({waiting}, timeout=0.01))[0]
    may_go_on.set()
    assert (await waiting).agent_id == "synapse-codex-8120"
    assert admission(scope(peer)) is peer.caller


def be_kernel(kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes system calls fail as older kernels let them fail."""

    def unknown(_pid: int) -> int:
        raise OSError(errno.ENOSYS, "Function not implemented")

    if kernel != "new":
        monkeypatch.setattr("synapse.server.lineage._SO_PEERPIDFD", 9999)
    if kernel == "before 5.3":
        monkeypatch.setattr(os, "pidfd_open", unknown)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell")
@pytest.mark.parametrize("kernel", ["new", "before 6.5", "before 5.3"])
async def test_the_kernel_tells_uid_and_pid_of_a_unix_socket_s_peer(
    monkeypatch: pytest.MonkeyPatch, kernel: str
) -> None:
    be_kernel(kernel, monkeypatch)
    left, right = socket.socketpair(socket.AF_UNIX)
    with closing(left), closing(right):
        peer = peer_of(left)

    assert (peer.via_socket, peer.uid, peer.pid) == (True, os.getuid(), os.getpid())
    assert (peer.lineage.processes[0].pid, peer.lineage.doubt) == (os.getpid(), "")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell")
@pytest.mark.parametrize("kernel", ["new", "before 6.5", "before 5.3"])
async def test_a_process_that_has_connected_and_exited_is_unverified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kernel: str
) -> None:
    be_kernel(kernel, monkeypatch)
    with closing(socket.socket(socket.AF_UNIX)) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        code = f"import socket; socket.socket(socket.AF_UNIX).connect({str(tmp_path / 's')!r})"
        subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True, timeout=20)
        accepted, _ = listener.accept()
        with closing(accepted):
            peer = peer_of(accepted)

    assert (peer.uid, peer.lineage.processes) == (os.getuid(), ())
    assert "has exited" in peer.lineage.doubt


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell")
def test_the_kernel_tells_the_uid_of_a_tcp_peer_unless_it_has_closed() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        with closing(socket.create_connection(listener.getsockname())):
            server, _ = listener.accept()
            with closing(server):
                peer = peer_of(server)
        with closing(socket.socket()) as unconnected:
            gone = peer_of(unconnected)

    assert (peer.via_socket, peer.uid, peer.pid) == (False, os.getuid(), 0)
    assert gone.uid is None
