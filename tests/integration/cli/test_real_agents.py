"""The verbs with real hosts and the built-in agent."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from synapse.client.http import HostAddress, NoAnswer, request
from synapse.registry.files import start_time
from tests.integration.attach.seat import seated
from tests.integration.cli.session import COMMAND, PATIENCE, ROOT, Session, session

pytestmark = pytest.mark.integration


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Session]:
    with session(tmp_path) as opened:
        yield opened


def test_an_agent_is_started_listed_asked_restarted_and_stopped(here: Session) -> None:
    agent = here.start("ada")
    assert agent.keys() >= {"agent_id", "agent_type", "name", "port", "pid", "socket", "status", "working_dir"}

    assert [one["name"] for one in here.run("list", "--json").json] == ["ada"]
    asked = here.run("send", "ada", "hello", "--response", "--json", "--timeout", "20")
    assert asked.json["receipt"] == "answered"
    assert "echo: hello" in asked.json["reply"]
    assert f"task {asked.json['task']['id']}  completed" in here.run("status", asked.json["task"]["id"][:8]).out

    again = here.run("restart", "ada", "--json").json
    assert (again["agent_id"], again["working_dir"]) == (agent["agent_id"], agent["working_dir"])
    assert again["pid"] != agent["pid"]

    assert here.run("stop", "ada").code == 0
    assert start_time(again["pid"]) is None
    assert here.run("list", "--json").json == []
    assert here.run("logs", "dummy").code == 0


def test_an_agent_asks_another_and_gets_its_answer(here: Session) -> None:
    here.start("ada")
    here.start("bob")

    asked = here.run("send", "ada", "ask bob are you there?", "--response", "--timeout", "20")

    assert asked.code == 0
    assert "echo: are you there?" in asked.out
    # On a busy machine a task changed `1s ago`, which is two words, and not `now`.
    rows = [line.replace(" ago", "").split() for line in here.run("tasks").out.splitlines()[1:]]
    assert sorted((row[3], row[4]) for row in rows) == [("ada", "user"), ("bob", "ada")], rows


def test_logs_tell_of_starts_states_deliveries_and_refusals_but_no_texts(here: Session) -> None:
    agent = here.start("ada")
    here.run("send", "ada", "a secret text", "--response", "--timeout", "20")
    refused = Request(f"http://localhost:{agent['port']}/tasks/send", b"{}", {"Origin": "http://elsewhere"})
    with pytest.raises(HTTPError):
        urlopen(refused, timeout=PATIENCE)
    here.run("stop", "ada")

    lines = here.run("logs", "ada").out
    entries = here.run("logs", "ada", "--json").json["entries"]

    assert "secret" not in lines + json.dumps(entries)
    told = [entry["event"] for entry in entries]
    assert [told.count(event) for event in ("host_started", "request_refused", "host_stopping")] == [1, 1, 1]
    delivery = ["message", "typed", "submitted", "turn_started", "answer", "completed"]
    assert [event for event in told if event in delivery] == delivery
    # A quick program is ready before its state `starting` is recorded.
    assert "ready" in {entry.get("state") for entry in entries if entry["event"] == "agent_state"}
    assert "submitted       screen: " in lines
    assert here.run("logs", "ada", "--since", "1d").out == lines
    assert here.run("logs", "ada", "--since", "soon").code == 2


def test_logs_are_followed(here: Session) -> None:
    here.start("ada")
    following = here.begin("logs", "ada", "-f")
    try:
        assert following.stdout is not None
        here.run("send", "ada", "one", "--response", "--timeout", "20")
        seen = ""
        while "completed" not in seen:
            seen = following.stdout.readline()
            assert seen, "the log ended before the task did"
    finally:
        following.terminate()
        following.communicate(timeout=PATIENCE)


def test_ctrl_c_while_waiting_leaves_the_task_and_says_so(here: Session) -> None:
    here.start("ada")
    waiting = here.begin("send", "ada", "wait 20", "--response")
    assert waiting.stderr is not None
    told = waiting.stderr.readline()

    waiting.send_signal(signal.SIGINT)
    out, err = waiting.communicate(timeout=10)

    task_id = told.partition("(task ")[2][:8]
    assert (waiting.returncode, out) == (130, "")
    assert "Traceback" not in err
    assert f"synapse status {task_id}" in err
    assert here.run("status", task_id, "--json").json["task"]["status"] in ("submitted", "working")


def test_a_host_that_is_killed_during_a_wait_does_not_respond(here: Session) -> None:
    agent = here.start("ada")
    waiting = here.begin("send", "ada", "wait 20", "--response")
    assert waiting.stderr is not None
    waiting.stderr.readline()

    os.kill(agent["pid"], signal.SIGKILL)
    _, err = waiting.communicate(timeout=10)

    assert waiting.returncode == 8
    assert f"Error: Agent '{agent['agent_id']}' server on port {agent['port']} is not responding." in err
    assert here.run("send", "ada", "hi").code == 8
    assert here.run("send", "ada", "hi").code == 3


def test_a_message_that_is_repeated_to_a_suspended_host_is_typed_once(here: Session) -> None:
    agent = here.start("ada")
    body = {"message": {"role": "user", "parts": [{"type": "text", "text": "hi"}], "message_id": "m-1"}, "metadata": {}}
    os.kill(agent["pid"], signal.SIGSTOP)
    # It has arrived but was not read, and its answer is lost.
    with pytest.raises(NoAnswer):
        request(HostAddress(agent["socket"]), "POST", "/tasks/send", body, timeout=0.2)
    refused = here.run("send", "ada", "hi", "--message-id", "m-1")

    os.kill(agent["pid"], signal.SIGCONT)
    sent = here.run("send", "ada", "hi", "--message-id", "m-1", "--wait=answered", "--timeout", "20", "--json")

    assert (refused.code, sent.code) == (8, 0)
    assert f"kill -CONT {agent['pid']}" in refused.err
    with closing(sqlite3.connect(here.home / "store.db")) as store:
        assert store.execute("SELECT id FROM tasks").fetchall() == [(sent.json["task"]["id"],)]


def test_a_suspended_host_can_be_stopped(here: Session) -> None:
    agent = here.start("ada")
    os.kill(agent["pid"], signal.SIGSTOP)

    ended = here.run("stop", "ada")

    assert (ended.code, ended.err) == (0, "ada stopped\n")
    assert not Path(f"/proc/{agent['cli_pid']}").exists()


def wait_until_listed(here: Session, name: str) -> None:
    """Waits until the agent is listed: its program runs before its host answers."""
    for _ in range(100):
        if any(one["name"] == name for one in here.run("list", "--json").json):
            return
    raise AssertionError(f"{name} is not listed")


def test_queued_messages_are_printed_when_the_program_ends(here: Session) -> None:
    env = [f"{name}={value}" for name, value in here.environ.items()]
    agent = shlex.join(("env", *env, *COMMAND, "dummy", "--name", "ada", "--no-instructions"))
    with seated("sh", "-c", f"cd {shlex.quote(str(here.folder))} && {agent}") as seat:
        seat.sees("> ")
        wait_until_listed(here, "ada")
        # A person's half-typed line is never typed over: messages wait.
        seat.types("half a line")
        seat.sees("half a line")
        for number in range(7):
            here.run("send", "ada", f"message {number} " + "x" * 80)
        seat.types(b"\x15\x04")

        seat.sees("7 messages wait for ada, and will be delivered when it is started again  (synapse dummy --name ada)")
        told = seat.matches(r"([0-9a-f]{8}) from user: (message 0 x+…)\r\n[^$]*  and 2 more  \(synapse queue\)")

    assert len(told[2]) == 60
    assert here.run("queue", "ada", "--json").json[0]["task"]["id"].startswith(told[1])


def test_stop_prints_how_many_messages_are_queued(here: Session) -> None:
    here.start("ada")
    here.run("send", "ada", "wait 20", "--wait=submitted", "--timeout", "20")
    here.run("send", "ada", "later")

    ended = here.run("stop", "ada")

    assert ended.err == "ada stopped; 1 message queued for its next start  (synapse queue)\n"


def test_a_queued_message_is_delivered_at_the_start(here: Session) -> None:
    left = here.run("send", "ada", "hello from before", "--queue", "--json").json["task"]["id"]

    here.start("ada")
    here.run("send", "ada", "now", "--wait=answered", "--timeout", "20")

    task = here.run("status", left, "--json").json
    assert (task["receipt"], task["reply"].splitlines()[0]) == ("answered", "echo: hello from before")


def test_a_failed_start_says_why(here: Session) -> None:
    here.start("ada")

    taken = here.run("start", "dummy", "--name", "ada", "--json")
    missing = here.run("start", "codex", PATH="")

    assert (taken.code, taken.json["error"]["code"]) == (7, "name_taken")
    assert (missing.code, missing.err.splitlines()[0]) == (3, "Error: 'codex' is not installed, or not on the PATH")
    assert [one["name"] for one in here.run("list", "--json").json] == ["ada"]


def test_a_closed_pipe_is_not_an_error(here: Session) -> None:
    writing = here.begin("--help")
    assert writing.stdout is not None
    assert writing.stderr is not None
    writing.stdout.close()

    assert writing.wait(10) in (0, 141)
    assert writing.stderr.read() == ""
    writing.stderr.close()


def test_the_low_level_tool_works_from_the_root_of_the_checkout(here: Session) -> None:
    here.start("ada")
    tool = [sys.executable, "synapse/tools/a2a.py"]
    environ = {name: value for name, value in here.environ.items() if name != "PYTHONPATH"}

    listed = subprocess.run(
        [*tool, "list", "--json"], cwd=ROOT, env=environ, capture_output=True, encoding="utf-8", timeout=20, check=True
    )
    sent = subprocess.run(
        [*tool, "send", "--target", "ada", "--priority", "1", "Hello"],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        encoding="utf-8",
        timeout=20,
        check=True,
    )

    assert [agent["name"] for agent in json.loads(listed.stdout)] == ["ada"]
    assert sent.stderr.startswith("[→ ada] sent")


def test_the_demo_plays_to_its_end_and_leaves_nothing(here: Session) -> None:
    # Not in tmp_path: the path of a Unix socket has to be short.
    with tempfile.TemporaryDirectory(prefix="t") as temporary:
        ran = here.run("demo", TMPDIR=temporary)

        assert ran.code == 0, ran
        assert "echo: hello" in ran.out
        assert list(Path(temporary).iterdir()) == []


def test_the_command_runs_as_a_module_too(here: Session) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "synapse.cli.main", "--version"],
        env=here.environ,
        capture_output=True,
        encoding="utf-8",
        timeout=20,
        check=True,
    )

    assert done.stdout.startswith("synapse ")
    assert COMMAND[0] == sys.executable
