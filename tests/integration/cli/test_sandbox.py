"""Commands in a sandbox that forbids connections and hides pids: they take no agent for dead."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.fakes.sandbox import can_hide_pids, with_own_pids, without_connections
from tests.integration.cli.session import COMMAND, Session, session
from tests.samples.commands import Ran

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(sys.platform != "linux", reason="seccomp is Linux's"),
]

PATIENCE = 20.0
Wrap = Callable[[Sequence[str]], list[str]]


def hidden_and_forbidden(command: Sequence[str]) -> list[str]:
    return with_own_pids(without_connections(command))


HIDES = pytest.mark.skipif(not can_hide_pids(), reason="this user may not make namespaces")
SANDBOXES = [
    pytest.param(without_connections, id="connections"),
    pytest.param(hidden_and_forbidden, id="connections and pids", marks=HIDES),
]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with session(tmp_path_factory.mktemp("h")) as opened:
        opened.start("ada")
        yield opened


def boxed(here: Session, wrap: Wrap, *arguments: str, **environ: str) -> Ran:
    done = subprocess.run(
        wrap([*COMMAND, *arguments]),
        cwd=here.folder,
        env=here.environ | environ,
        capture_output=True,
        encoding="utf-8",
        timeout=PATIENCE,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def entry_files(here: Session) -> list[Path]:
    return sorted((here.home / "registry").glob("*.json"))


@pytest.mark.parametrize("wrap", SANDBOXES)
def test_list_shows_the_state_as_unknown_and_removes_no_entry(here: Session, wrap: Wrap) -> None:
    before = entry_files(here)

    shown = boxed(here, wrap, "list")
    (fields,) = boxed(here, wrap, "list", "--json").json

    assert "removed" not in shown.err
    assert "may not open connections" in shown.err
    assert "ask to run the command outside of the sandbox" in shown.err
    assert (fields["name"], fields["status"]) == ("ada", "unknown")
    assert "may not open connections" in fields["why"]
    assert entry_files(here) == before
    assert before


@pytest.mark.parametrize("wrap", SANDBOXES)
@pytest.mark.parametrize("more", [(), ("--queue",), ("--response",)], ids=str)
def test_a_message_that_cannot_be_sent_says_why(here: Session, wrap: Wrap, more: tuple[str, ...]) -> None:
    ran = boxed(here, wrap, "send", "ada", "hello", *more)

    assert ran.code == 8
    assert "may well be running" in ran.err
    assert "outside" in ran.err
    assert "restart the agent" not in ran.err
    assert here.run("queue", "--json").json == []


@pytest.mark.parametrize("wrap", SANDBOXES)
@pytest.mark.parametrize(
    "variables", [{}, {"SYNAPSE_AGENT_ID": "AGENT"}, {"SYNAPSE_AGENT_ID": "AGENT", "SYNAPSE_MCP_WAIT": "50"}]
)
@pytest.mark.parametrize("words", [("send", "ada", "hello"), ("reply", "hello"), ("list",)], ids=str)
def test_a_model_is_told_what_works_in_its_sandbox(
    here: Session, wrap: Wrap, variables: dict[str, str], words: tuple[str, ...]
) -> None:
    (entry,) = entry_files(here)
    environ = {name: value.replace("AGENT", entry.stem) for name, value in variables.items()}
    if words[0] == "reply" and not variables:
        pytest.skip("a person replies to nothing")

    ran = boxed(here, wrap, *words, **environ)

    assert "this sandbox may not connect: " in ran.err
    assert "ask to run the command outside of the sandbox" in ran.err
    assert ("use the tools of the MCP server `synapse` instead (send, reply" in ran.err) is (
        "SYNAPSE_MCP_WAIT" in variables
    )


@pytest.mark.parametrize("wrap", SANDBOXES)
@pytest.mark.parametrize("verb", ["status", "attach", "stop", "restart"])
def test_other_verbs_fail_and_change_nothing(here: Session, wrap: Wrap, verb: str) -> None:
    if verb in ("stop", "restart") and wrap is without_connections:
        pytest.skip("the pid is seen, so it can be ended")

    ran = boxed(here, wrap, verb, "ada")

    assert ran.code in (7, 8)
    assert "outside" in ran.err
    assert here.run("status", "ada").code == 0


@pytest.mark.parametrize(
    "arguments", [("tasks",), ("queue",), ("logs", "ada"), ("status", "TASK"), ("send", "later", "hello", "--queue")]
)
def test_the_store_is_read_and_written_where_connections_are_forbidden(
    here: Session, arguments: tuple[str, ...]
) -> None:
    sent = here.run("send", "ada", "hello", "--response", "--json", "--timeout", "20")
    task_id = sent.json["task"]["id"]

    ran = boxed(here, without_connections, *(task_id if word == "TASK" else word for word in arguments))

    assert ran.code == 0, ran
    here.run("cancel", "--queue", "later")


@pytest.mark.parametrize("wrap", SANDBOXES)
def test_doctor_reports_forbidden_connections(here: Session, wrap: Wrap) -> None:
    ran = boxed(here, wrap, "doctor")

    assert ran.code == 1
    assert "this process may not open connections" in ran.out
    assert "0 running, 1 unknown" in ran.out
    assert "--force" not in ran.out


def test_the_task_of_an_agent_that_has_another_port_now_is_still_its_own(here: Session) -> None:
    before = here.start("carl")
    sent = here.run("send", "carl", "hello", "--response", "--json", "--timeout", "20")
    assert here.run("stop", "carl").code == 0
    here.start("dora", port=before["port"])
    here.start("carl")

    ran = boxed(here, without_connections, "status", sent.json["task"]["id"])

    assert here.run("stop", "carl", "dora").code == 0
    assert ran.code == 0
    assert "  completed  at carl, from user" in ran.out


@HIDES
def test_an_agent_whose_pid_is_hidden_keeps_its_inbox(here: Session) -> None:
    # Only one agent can have the inbox of a name, and the first is alive.
    ran = boxed(here, with_own_pids, "start", "dummy", "--name", "ada", "--no-instructions")

    assert "ada" in ran.err
    assert ran.code == 7, ran
    assert here.run("send", "ada", "hello", "--response", "--timeout", "20").code == 0


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
def test_a_folder_of_sockets_that_may_not_be_entered_says_nothing_about_its_hosts() -> None:
    """EACCES instead of EPERM: as user nobody, with a folder that has no x for it, and a pid that is hidden."""
    code = """
import os, sys
os.setgid(65534); os.setuid(65534)
from synapse.core.agent import AgentEntry
from synapse.registry.files import FileRegistry
registry = FileRegistry(sys.argv[1] + "/state/registry")
registry.write(AgentEntry("synapse-x-1", "x", pid=2**22 + 1, pid_started=1, socket=sys.argv[1] + "/shut/x.sock"))
registry.write(AgentEntry("synapse-y-1", "y", pid=2**22 + 1, pid_started=1, socket=sys.argv[1] + "/open/y.sock"))
print([entry.agent_id for entry in registry.entries()])
"""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        (Path(name) / "shut").mkdir(mode=0o700)
        (Path(name) / "open").mkdir(mode=0o755)
        # Imported before the user changes: `nobody` may not read this Python.
        early = "import json, pathlib, synapse.registry.files, synapse.config.private_files"
        command = [sys.executable, "-c", f"{early}\n{code}", name]
        done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=PATIENCE, check=True)

    assert done.stdout.strip() == "['synapse-x-1']"


def test_a_host_that_was_forgotten_is_listed_again(here: Session) -> None:
    (file,) = entry_files(here)
    told = file.read_bytes()
    file.unlink()

    deadline = time.monotonic() + PATIENCE
    while not file.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)

    assert file.read_bytes() == told
    assert here.run("send", "ada", "hello", "--response", "--timeout", "20").code == 0


def test_a_host_that_ends_is_not_listed_again(here: Session) -> None:
    here.start("bob")

    assert here.run("stop", "bob").code == 0
    assert [one["name"] for one in here.run("list", "--json").json] == ["ada"]
