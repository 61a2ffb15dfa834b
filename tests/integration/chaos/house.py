"""A house of agents for one test: its own home, sockets and profiles, real hosts in it, and what their programs got."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from synapse.client.http import Answer, HostAddress, NoAnswer, request
from synapse.core.agent import AgentEntry
from synapse.registry.files import FileRegistry, is_running, start_time
from tests.integration.waiting import until
from tests.samples.commands import Ran
from tests.samples.ports import own_ports

ROOT: Final = Path(__file__).resolve().parents[3]
AGENTS: Final = ROOT / "tests" / "agents"
BOUND: Final = 20.0
"""No wait is longer unless it says so; a machine under load is slow."""
COMMAND_BOUND: Final = 50.0
"""No command takes longer: it may wait for an answer, or for other machines."""
TICK: Final = 0.01

_TIMES: Final = "quiet = 0.02\nsettle = 0.03\nperson = 0.3\necho = 0.5\nproof = 1.0"
LINE_RULES: Final = f"""
[interrupt]
signal = "SIGINT"
[times]
{_TIMES}
[prompt]
pattern = '^> (?P<text>.*)$'
at_cursor = true
[regions.bottom]
last = 1
[[dialogs]]
name = "permission"
region = "bottom"
every = ['^Do you want to proceed\\? \\[y/n\\]']
[answer]
echo = '^> '
"""
PAGE_RULES: Final = f"""
limit_bytes = 20000
[typing]
style = "paste"
paste_marks = ['\\[Pasted text #\\d+( \\+\\d+ lines)?\\]']
[interrupt]
keys = ["esc"]
[times]
{_TIMES}
unseen = 0.3
[regions.input]
between = '^─{{10,}}'
[regions.bottom]
last = 2
[prompt]
region = "input"
pattern = '^>\\s?(?P<text>.*)$'
holds_cursor = true
[[working]]
name = "working"
some = ['\\(esc to interrupt\\)']
[[dialogs]]
name = "permission"
region = "bottom"
every = ['Esc to cancel']
[answer]
echo = '^• '
drop = ['^─{{10,}}']
"""


@dataclass(frozen=True, slots=True)
class Received:
    """One thing that a program got: a `line`, a `paste`, a `key`, a `submit`, or something typed into its `dialog`."""

    kind: str
    data: bytes
    pid: int
    settings: str

    @property
    def text(self) -> str:
        return self.data.decode(errors="replace").rstrip("\n")


class House:
    """Starts hosts, asks them, and remembers all of them so that they can be ended."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.registry = FileRegistry(self.home / "registry")
        self.hosts: list[RunningHost] = []
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("SYNAPSE_")},
            "SYNAPSE_HOME": str(self.home),
            "SYNAPSE_UDS_DIR": str(folder / "uds"),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "PYTHONUTF8": "1",
        }
        (folder / "config" / "synapse" / "profiles").mkdir(parents=True)

    def add_profile(self, name: str, rules: str, program: str, *arguments: str) -> Path:
        """Write the profile of one of tests/agents; return where its log will be."""
        log = self.folder / f"{name}.received"
        command = [sys.executable, str(AGENTS / f"{program}.py"), str(log), *arguments]
        # An agent that is started again is to find its port free.
        ports = [own_ports()[0], own_ports()[-1]]
        text = f"title = {json.dumps(name)}\ncommand = {json.dumps(command)}\nports = {ports}\n{rules}"
        (self.folder / "config" / "synapse" / "profiles" / f"{name}.toml").write_text(text, encoding="utf-8")
        return log

    def start(
        self,
        profile: str,
        *,
        name: str = "",
        launcher: Sequence[str] = (),
        tracer: Sequence[str] = (),
        instructions: bool = False,
    ) -> RunningHost:
        """Start a host and return it once it accepts messages; `tracer` is a command that runs it."""
        python = [*tracer, sys.executable, "-P", *(launcher or ("-m", "synapse.cli.main"))]
        names = [*(["--name", name] if name else []), *([] if instructions else ["--no-instructions"])]
        with (self.folder / f"{name or profile}.out").open("ab") as output:
            process = subprocess.Popen(
                [*python, profile, "--headless", "--json", *names],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=self.folder,
                env=self.environment,
            )
        host = RunningHost(self, process, profile, name)
        self.hosts.append(host)
        host.wait_until_it_answers()
        return host

    def synapse(self, *arguments: str, given: str = "", **environment: str) -> Ran:
        """Run the command line as a person would; `given` is what its stdin holds."""
        done = subprocess.run(
            self.command(*arguments),
            cwd=self.folder,
            env=self.environment | environment,
            input=given,
            capture_output=True,
            encoding="utf-8",
            timeout=COMMAND_BOUND,
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-P", "-m", "synapse.cli.main", *arguments]

    def entry_of(self, pid: int) -> AgentEntry | None:
        return next((entry for entry in self.registry.written() if entry.pid == pid), None)

    def received(self, profile: str) -> list[Received]:
        """What the program of a profile has got so far, over all its lives."""
        try:
            lines = (self.folder / f"{profile}.received").read_bytes().splitlines(keepends=True)
        except FileNotFoundError:
            return []
        # A line that is being written now has no end yet.
        fields = [json.loads(line) for line in lines if line.endswith(b"\n")]
        return [Received(one["kind"], bytes.fromhex(one["bytes"]), one["pid"], one["settings"]) for one in fields]

    def close(self) -> None:
        for host in self.hosts:
            host.kill()


class RunningHost:
    """A host process of a house."""

    def __init__(self, house: House, process: subprocess.Popen[bytes], profile: str, name: str) -> None:
        self.house = house
        self.process = process
        self.profile = profile
        self.name = name
        self.entry = AgentEntry("", "")
        self._program_started = 0

    @property
    def target(self) -> str:
        return self.name or self.entry.agent_id

    def wait_until_it_answers(self) -> None:
        def answers() -> bool:
            assert self.process.poll() is None, f"{self.profile} ended at once: {self._said()}"
            entry = self.house.entry_of(self.process.pid)
            if entry is None:
                return False
            self.entry = entry
            with suppress(NoAnswer):
                return self.get("/status").status == 200
            return False

        until(answers, f"{self.profile} to answer")
        self._program_started = start_time(self.entry.cli_pid) or 0

    def get(self, path: str) -> Answer:
        return request(self._address(), "GET", path, timeout=BOUND)

    def post(self, path: str, body: dict[str, Any]) -> Answer:
        return request(self._address(), "POST", path, body, timeout=BOUND)

    def send(self, text: str, *, message_id: str = "", priority: int = 3, **metadata: object) -> Answer:
        """Leave a message, as `synapse send` does. Raises NoAnswer."""
        message: dict[str, Any] = {"role": "user", "parts": [{"type": "text", "text": text}]}
        if message_id:
            message["message_id"] = message_id
        body = {"message": message, "metadata": metadata}
        return self.post(f"/tasks/send-priority?priority={priority}", body)

    def accepted(self, text: str, **how: Any) -> str:
        """Leave a message and return its task's id."""
        answer = self.send(text, **how)
        assert answer.status < 300, answer.body
        return str(answer.body["task"]["id"])

    def task(self, task_id: str) -> dict[str, Any]:
        answer = self.get(f"/tasks/{task_id}")
        assert answer.status == 200, answer.body
        return answer.body

    def wait_for(self, task_id: str, condition: Callable[[dict[str, Any]], bool], what: str) -> dict[str, Any]:
        seen: list[dict[str, Any]] = []

        def holds() -> bool:
            seen.append(self.task(task_id))
            return condition(seen[-1])

        until(holds, what, lambda: seen[-1])
        return seen[-1]

    def finished(self, task_id: str) -> dict[str, Any]:
        return self.wait_for(task_id, lambda task: status_of(task) in FINISHED, f"the end of {task_id}")

    def kill(self) -> None:
        """End the host as the kernel would: at once. Its program loses its terminal, and is waited for too."""
        if self.process.poll() is None:
            self.process.kill()
        self.wait_until_gone()

    def kill_program(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.entry.cli_pid, signal.SIGKILL)

    def wait_until_gone(self) -> None:
        """Wait until the host and its program have ended."""
        until(lambda: self.process.poll() is not None, f"the end of {self.target}", self._doing)
        pid = self.entry.cli_pid
        if pid and self._program_started:
            until(lambda: not is_running(pid, self._program_started), f"the end of program {pid}")

    def stop(self) -> None:
        self.process.terminate()
        self.wait_until_gone()

    def _address(self) -> HostAddress:
        return HostAddress(self.entry.socket, port=self.entry.port)

    def _doing(self) -> object:
        with suppress(NoAnswer):
            return self.get("/status").body
        return "no answer"

    def _said(self) -> str:
        return (self.house.folder / f"{self.name or self.profile}.out").read_text(encoding="utf-8")[-2000:]


FINISHED: Final = ("completed", "failed", "canceled")


def status_of(task: dict[str, Any]) -> str:
    status: str | dict[str, str] = task["status"]
    return status["state"] if isinstance(status, dict) else status


def steps_of(task: dict[str, Any]) -> list[str]:
    return [receipt["step"] for receipt in task["metadata"].get("receipts", ())]


def nonces(text: str) -> list[str]:
    """The numbers of the messages that a text holds; each message of these tests has one."""
    return re.findall(r"<<([0-9a-f]{12})>>", text)


@contextmanager
def open_house() -> Generator[House]:
    """A house that is empty again afterwards."""
    # Not below pytest's folder: the path of a Unix socket has 107 bytes at most.
    with tempfile.TemporaryDirectory(prefix="synapse-house-") as folder:
        house = House(Path(folder))
        try:
            yield house
        finally:
            house.close()
