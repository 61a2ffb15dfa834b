"""Who counts as a person: real agents, and real processes that would like to pass for one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cli.session import COMMAND, ROOT, Session, session
from tests.integration.cli.test_questions import RUNNER
from tests.samples.ports import own_port

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell whose process connects"),
]

EXAMPLE = str(ROOT / "docs" / "examples" / "questions.toml")
STRIPPED = "env -u SYNAPSE_AGENT_ID -u SYNAPSE_SOCKET SYNAPSE_AGENTS_MAY_APPROVE=1"
PATIENCE = 20.0
ASK = """
import json, socket, sys
path, method, target, body = sys.argv[1:5]
connection = socket.socket(socket.AF_UNIX)
connection.connect(path)
lines = [f"{method} {target} HTTP/1.1", "Host: x", "Content-Type: application/json", f"Content-Length: {len(body)}"]
connection.sendall("\\r\\n".join([*lines, "Connection: close", "", body]).encode())
told = b""
while piece := connection.recv(65536):
    told += piece
print(told.decode(), flush=True)
"""
# The process that connects exits; its child goes on with the connection, and writes what it is told into a file.
HAND_ON = """
import os, socket, sys
class Handed(socket.socket):
    def connect(self, path):
        super().connect(path)
        if os.fork():
            os._exit(0)
        sys.stdout = open("answer.part", "w")
    def recv(self, size):
        told = super().recv(size)
        sys.stdout.write(told.decode())
        sys.stdout.flush()
        os.rename("answer.part", "answer")
        return b""
socket.socket = Handed
"""

# A terminal of its own, which is the controlling one of what runs there.
AT_TERMINAL = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"


class House(Session):
    """A session with an agent that runs what it is told (`runner`), and one that asks for permission (`asker`)."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.environ["XDG_CONFIG_HOME"] = str(home / "config")
        profiles = home / "config" / "synapse" / "profiles"
        profiles.mkdir(parents=True)
        (profiles / "runner.toml").write_text(RUNNER, encoding="utf-8")
        # Everything by its full path, so that a stripped environment is enough for it.
        kept = {name: self.environ[name] for name in ("SYNAPSE_HOME", "SYNAPSE_UDS_DIR", "PYTHONPATH", "PATH")}
        setting = " ".join(f"{name}='{value}'" for name, value in kept.items())
        self._script("typed", f'exec {" ".join(COMMAND)} "$@" 2>&1')
        self._script("stripped", f'exec env -i {setting} {" ".join(COMMAND)} "$@" 2>&1')
        self._script(
            "noted", 'out=$1; shift; "$@" > "$out.part" 2>&1; echo "code=$?" >> "$out.part"; mv "$out.part" "$out"'
        )

    def _script(self, name: str, body: str) -> None:
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
        path.chmod(0o755)

    def begin_asker(self, **environ: str) -> None:
        ran = self.run("start", "scripted", EXAMPLE, "--name", "asker", "--port", str(own_port()), **environ)
        assert ran.code == 0, ran

    def entry(self, name: str) -> dict[str, Any]:
        return next(one for one in self.run("list", "--json").json if one["name"] == name)

    def ask_permission(self) -> str:
        """Let the asker ask for a permission; return the task."""
        ran = self.run("send", "asker", "build it", "--response", "--exit-on-wait", "--json")
        assert ran.code == 6, ran
        task_id: str = ran.json["task_id"]
        return task_id

    def inside(self, line: str) -> str:
        """What a command says that the runner runs."""
        ran = self.run("send", "runner", f"{line}; echo code=$?", "--response", "--timeout", str(PATIENCE))
        assert ran.code == 0, ran
        return ran.out

    def left_behind(self, line: str, out: str) -> str:
        """What a command says that the runner leaves behind with `line`, which has it write to the file `out`."""
        path = self.folder / out
        self.inside(line)
        return awaited(path)

    def without_terminal(self, *command: str, **environ: str) -> str:
        """What a command of nobody's terminal says, and its exit code."""
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.environ | environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            timeout=PATIENCE,
            check=False,
            start_new_session=True,
        )
        return f"{done.stdout}code={done.returncode}"

    def at_terminal(self, *command: str, **environ: str) -> str:
        """The same in a terminal of a person's, when no agent is there."""
        return self.without_terminal(sys.executable, "-c", AT_TERMINAL, *command, **environ)

    def is_asked(self) -> bool:
        return bool(self.run("approvals", "--json").json)


def awaited(path: Path) -> str:
    deadline = time.monotonic() + PATIENCE
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not come"
        time.sleep(0.02)
    return path.read_text(encoding="utf-8")


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    # A short path: a socket's has little room.
    with session(tmp_path / "h", House) as opened:
        assert isinstance(opened, House)
        assert opened.run("start", "runner", "--name", "runner", "--port", str(own_port())).code == 0
        yield opened


@pytest.mark.parametrize(
    "line",
    [
        "SYNAPSE_AGENTS_MAY_APPROVE=1 ./typed restart asker",
        "SYNAPSE_AGENTS_MAY_APPROVE=1 ./typed restart asker --force",
        f"{STRIPPED} ./typed restart asker --force",
        f"./typed stop asker; SYNAPSE_AGENTS_MAY_APPROVE=1 ./typed start scripted {EXAMPLE} --name asker",
        f"./typed stop asker; {STRIPPED} setsid ./typed scripted {EXAMPLE} --name asker >/dev/null 2>&1 & true",
    ],
    ids=["restart", "restart --force", "stripped restart", "stop and start", "a host of its own"],
)
def test_an_agent_that_starts_another_again_may_not_approve_for_it(house: House, line: str) -> None:
    house.begin_asker()

    assert "code=0" in house.inside(line)
    deadline = time.monotonic() + PATIENCE
    while house.run("status", "asker").code and time.monotonic() < deadline:
        time.sleep(0.05)
    house.ask_permission()

    assert "code=7" in house.inside("./typed approve asker")
    assert house.is_asked()


def test_an_agent_restarts_another_with_the_rights_that_its_person_gave_it(house: House) -> None:
    house.begin_asker(SYNAPSE_AGENTS_MAY_APPROVE="1")
    before = house.entry("asker")

    assert "code=0" in house.inside("SYNAPSE_AGENTS_MAY_APPROVE=0 ./typed restart asker")
    after = house.entry("asker")
    house.ask_permission()

    assert (after["agent_id"], after["pid"], after["working_dir"]) == (
        before["agent_id"],
        before["pid"],
        before["working_dir"],
    )
    assert after["started_at"] != before["started_at"]
    assert "code=0" in house.inside("./typed approve asker")


def test_an_agent_restarts_itself(house: House) -> None:
    before = house.entry("runner")
    house.run("send", "runner", "./typed restart runner")
    deadline = time.monotonic() + PATIENCE
    begun = {before["started_at"]}
    while begun <= {before["started_at"]}:
        assert time.monotonic() < deadline
        time.sleep(0.05)
        begun = {one["started_at"] for one in house.run("list", "--json").json if one["name"] == "runner"}

    assert "code=0" in house.inside("true")


def test_what_an_agent_may_not_set_is_said(house: House) -> None:
    said = house.inside(f"SYNAPSE_HOST=0.0.0.0 SYNAPSE_KEEP_DAYS=1 ./typed start scripted {EXAMPLE} --name other")

    assert "Ignored SYNAPSE_HOST, SYNAPSE_KEEP_DAYS" in " ".join(said.split())
    assert "code=0" in said


def test_what_its_own_host_demands_is_not_said_to_be_ignored(house: House) -> None:
    assert house.run("start", "runner", "--name", "strict", SYNAPSE_PERSON_PROOF="terminal").code == 0
    line = f"./typed start scripted {EXAMPLE} --name other; echo code=$?"

    ran = house.run("send", "strict", line, "--response", "--timeout", str(PATIENCE))

    assert "code=0" in ran.out, ran
    assert "ignored" not in ran.out


@pytest.mark.parametrize(
    "line",
    [
        "start gateway --port 0 --grpc-port 0",
        "gateway --port 0",
        "keys create mine",
        "dashboard --no-open --port 0",
        "dashboard --json",
        "dashboard revoke --all",
    ],
)
def test_an_agent_opens_no_gateway_and_makes_no_key(house: House, line: str) -> None:
    said = house.inside(f"SYNAPSE_AGENTS_MAY_APPROVE=1 ./typed {line}")

    assert "code=7" in said
    assert "only a person may" in " ".join(said.split())


def test_an_agent_gets_no_link_to_the_dashboard_and_nothing_from_its_port(house: House) -> None:
    assert house.run("start", "gateway", "--port", str(own_port()), "--grpc-port", "0").code == 0
    gateway = json.loads(next((house.home / "gateways").glob("[!.]*.json")).read_text(encoding="utf-8"))
    python = f"{sys.executable} ask.py {gateway['socket']}"
    (house.folder / "ask.py").write_text(ASK, encoding="utf-8")
    page = f"http://127.0.0.1:{gateway['port']}/dashboard/session"
    fetch = f"{sys.executable} -c \"import urllib.request; urllib.request.urlopen('{page}')\""

    try:
        said = house.run("dashboard", "--json")
        own = house.inside("./typed dashboard --json")
        stripped = house.inside("./stripped dashboard --json")
        asked = house.inside(f"{python} POST /dashboard/links '{{}}'")
        left = house.left_behind(f"setsid ./noted out {python} POST /dashboard/links '{{}}' & true", "out")
        fetched = house.inside(f"{fetch} 2>&1 | tail -1")
    finally:
        assert house.run("stop", "gateway").code == 0

    assert "#code=" in said.out
    assert "person_required" in own
    assert "person_required" in stripped
    assert "403 Forbidden" in asked
    assert "person_required" in asked
    assert "person_required" in left
    assert "401" in fetched
    assert "#code=" not in own + stripped + asked + left


@pytest.mark.parametrize(
    "line", ["keys create mine", "external add http://127.0.0.1:9 --alias mine", "gateway --port 0"]
)
def test_an_agent_gets_no_rights_from_a_settings_file_that_it_chooses(house: House, line: str) -> None:
    chosen = house.folder / "chosen" / "synapse"
    chosen.mkdir(parents=True)
    (chosen / "config.toml").write_text("agents_may_approve = true\n", encoding="utf-8")

    said = house.inside(f"XDG_CONFIG_HOME=$PWD/chosen ./typed {line}")

    assert "code=7" in said
    assert "only a person may" in " ".join(said.split())


def test_a_connector_that_has_exited_is_no_person(house: House) -> None:
    house.begin_asker()
    task_id = house.ask_permission()
    asker = house.entry("asker")
    answer = json.dumps({"verdict": "allow"})
    ask = [sys.executable, "-c", HAND_ON + ASK, asker["socket"], "POST", f"/tasks/{task_id}/answer", answer]

    # It stands still meanwhile, so that it accepts when the one that connected is gone.
    os.kill(asker["pid"], signal.SIGSTOP)
    try:
        subprocess.run(["./noted", "out", *ask], cwd=house.folder, check=True, timeout=PATIENCE)
    finally:
        os.kill(asker["pid"], signal.SIGCONT)

    assert "HTTP/1.1 403" in awaited(house.folder / "answer")
    assert house.is_asked()
    assert house.run("approve", "asker").code == 0


def test_a_message_of_a_process_that_an_agent_left_behind_is_no_verified_persons(house: House) -> None:
    house.begin_asker()
    body = json.dumps({"message": {"role": "user", "parts": [{"type": "text", "text": "hello"}]}})
    sock = house.entry("asker")["socket"]
    (house.folder / "ask.py").write_text(ASK, encoding="utf-8")

    told = house.left_behind(f"setsid -f ./noted out {sys.executable} ask.py {sock} POST /tasks/send '{body}'", "out")
    task = json.loads(told.partition("\n\n")[2].partition("\n")[0])["task"]

    assert task["metadata"]["sender_verified"] is False


def test_a_process_with_an_agents_environment_does_not_decide(house: House) -> None:
    house.begin_asker()
    house.ask_permission()

    said = house.left_behind("setsid -f ./noted out ./typed approve asker", "out")

    assert "code=7" in said
    assert "its environment is that of the agent" in " ".join(said.split())
    assert house.is_asked()


def test_a_stripped_process_at_an_agents_terminal_does_not_decide(house: House) -> None:
    house.begin_asker()
    house.ask_permission()

    said = house.left_behind("(env -i ./noted out ./stripped approve asker &)", "out")

    assert "code=7" in said
    assert "its terminal is that of the agent" in " ".join(said.split())
    assert house.is_asked()


def test_an_agent_that_forgets_its_registry_entry_is_still_no_person(house: House) -> None:
    house.begin_asker()
    house.ask_permission()

    (entry,) = (house.home / "registry").glob("synapse-runner-*.json")
    said = house.inside(f"rm {entry}; ./stripped approve asker")

    assert "code=7" in said
    assert house.is_asked()
    # Its host writes the entry again; without it, the end of the session would not find the agent.
    assert "runner" in awaited(entry)


def test_a_process_that_strips_itself_and_leaves_everything_passes_unless_a_terminal_is_demanded(house: House) -> None:
    """SECURITY.md says so."""
    house.begin_asker()
    house.ask_permission()
    passed = house.left_behind("env -i setsid -f ./noted first ./stripped approve asker", "first")
    assert house.run("stop", "asker").code == 0
    house.begin_asker(SYNAPSE_PERSON_PROOF="terminal")
    house.ask_permission()
    refused = house.left_behind("env -i setsid -f ./noted second ./stripped approve asker", "second")

    assert "code=0" in passed
    assert "code=7" in refused
    assert "it has no terminal" in " ".join(refused.split())
    assert house.is_asked()


@pytest.mark.skipif(shutil.which("script") is None, reason="script is not installed")
def test_a_terminal_that_an_agent_opens_for_itself_is_no_persons(house: House) -> None:
    house.begin_asker(SYNAPSE_PERSON_PROOF="terminal")
    house.ask_permission()

    # Not with the agent's terminal for its input: `script` would make that raw, and the agent's next prompt would stand
    # in the middle of a line.
    said = house.left_behind(
        "env -i setsid -f script -qc './noted out ./stripped approve asker' /dev/null </dev/null >/dev/null 2>&1", "out"
    )

    assert "code=7" in said
    assert "younger than the agent" in " ".join(said.split())
    assert house.is_asked()


def test_an_agent_does_not_start_another_that_demands_less_than_its_own_host(house: House) -> None:
    assert house.run("start", "runner", "--name", "strict", SYNAPSE_PERSON_PROOF="terminal").code == 0
    started = f"SYNAPSE_PERSON_PROOF=process HOME=/nowhere ./typed start scripted {EXAMPLE} --name asker"
    ran = house.run("send", "strict", f"{started}; echo code=$?", "--response", "--timeout", str(PATIENCE))
    assert "code=0" in ran.out, ran
    house.ask_permission()

    said = house.left_behind("env -i setsid -f ./noted out ./stripped approve asker", "out")

    assert "code=7" in said
    assert "it has no terminal" in " ".join(said.split())


@pytest.fixture
def strict(tmp_path: Path) -> Iterator[House]:
    """No agents, and a settings file that demands a terminal."""
    with session(tmp_path / "h", House) as opened:
        assert isinstance(opened, House)
        file = opened.home / "config" / "synapse" / "config.toml"
        file.write_text("person_proof = 'terminal'\n", encoding="utf-8")
        yield opened
        opened.run("stop", "gateway", "--force")


@pytest.mark.parametrize("words", [["start", "gateway"], ["gateway"], ["gateway", "--headless"]])
def test_a_gateway_is_opened_only_at_a_terminal_where_one_is_demanded(strict: House, words: list[str]) -> None:
    # Refused before that is looked at, so that none is left running.
    said = strict.without_terminal("./typed", *words, "--config", "no-such-file")

    assert "code=7" in said, said
    assert "only a person may start a gateway" in said
    assert "it has no terminal" in said


def test_a_gateways_socket_registers_agents_only_for_a_terminal_where_one_is_demanded(strict: House) -> None:
    said = strict.at_terminal("./typed", "start", "gateway", "--port", "0", "--grpc-port", "0", "--json")
    assert "code=0" in said, said
    sock = json.loads(said.partition("\n")[0])["socket"]
    ask = (sys.executable, "-c", ASK, sock, "POST", "/agents", json.dumps({"id": "mine", "url": "no address"}))

    assert "HTTP/1.1 403" in strict.without_terminal(*ask)
    assert "HTTP/1.1 400" in strict.at_terminal(*ask)


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_a_person_in_tmux_is_a_person_and_an_agent_in_its_own_tmux_is_none(house: House) -> None:
    house.begin_asker()
    house.ask_permission()
    tmux = f"tmux -f /dev/null -S {house.home}/%s new-session -d ./noted %s ./typed approve asker"

    said = house.left_behind(tmux % ("theirs", "agents"), "agents")
    subprocess.run(
        ["sh", "-c", tmux % ("mine", "persons")], cwd=house.folder, env=house.environ, check=True, timeout=20
    )

    assert "code=7" in said
    assert "code=0" in awaited(house.folder / "persons")


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_a_new_window_of_a_tmux_that_was_there_before_all_agents_is_a_persons_terminal(tmp_path: Path) -> None:
    with session(tmp_path / "h", House) as house:
        assert isinstance(house, House)
        tmux = ["tmux", "-f", "/dev/null", "-S", str(house.home / "mine")]
        run = partial(subprocess.run, cwd=house.folder, env=house.environ, check=True, timeout=PATIENCE)
        run([*tmux, "new-session", "-d", "sleep 600"])
        try:
            house.begin_asker(SYNAPSE_PERSON_PROOF="terminal")
            house.ask_permission()
            run([*tmux, "new-window", "./noted out ./typed approve asker"])

            assert "code=0" in awaited(house.folder / "out")
        finally:
            run([*tmux, "kill-server"])
