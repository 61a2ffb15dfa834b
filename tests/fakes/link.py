"""A fake link: serves `/fleet/…` on a real Unix socket, for machines that a test makes up.

The proxy of a remote agent is the fake host of that agent itself, which lives in a home of its own.
"""

from __future__ import annotations

import json
import socketserver
import subprocess
import threading
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

from synapse.config.fleet import FleetConfig, save_fleet
from synapse.core.address import on_machine, remote_inbox, resolve, short_name
from synapse.core.agent import AgentEntry
from synapse.core.errors import MachineAway, MachineNotFound, SynapseError, TaskNotFound, to_wire
from synapse.core.events import TaskEvent
from synapse.core.override import override
from synapse.registry.files import links, own_namespace, start_time
from synapse.store.codec import encode_events, encode_task
from synapse.tasks.journal import rebuild
from tests.unit.cli.fake_host import FakeHost, Fields


class OutboxHost(FakeHost):
    """The proxy of an agent whose machine is away, or that does not run: keeps what is sent to it."""

    @override
    def open(self, body: Fields, priority: int = 3) -> Fields:
        task = super().open(body, priority)
        task["metadata"]["outbox"] = "open"
        task["metadata"]["note"] = "waits in the outbox"
        return task


class FakeLink:
    """The link of the machine `laptop`, whose other machines `join` and go `away`."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.entry = AgentEntry(
            "synapse-link",
            "link",
            pid_namespace=own_namespace(),
            socket=str(home / "link.sock"),
        )
        self.agents: dict[str, list[FakeHost]] = {}
        self.away: dict[str, str] = {}
        """Since when a machine is away."""
        self.gateways: set[str] = set()
        """The machines that have the role of a gateway."""
        self.stopped: set[str] = set()
        """The inboxes of agents that do not run, though their machine is there."""
        self.questions: list[Fields] = []
        self.refusing: list[str] = []
        """The machines that do not let this one approve."""
        self.status: Fields = {}
        """Further fields of `GET /fleet/status`."""
        self.messages: list[Fields] = []
        """The rows of `GET /fleet/outbox`."""
        self.failed = 0
        """How many messages have failed in the last day."""
        self.log: dict[str, list[TaskEvent]] = {}
        """The events in the store of each machine; the seq of an event is its place, from 1."""
        self.requests: list[tuple[str, str, Fields]] = []
        self.on_proxy: Callable[[str], None] = lambda _target: None
        self._cleanup = ExitStack()

    @contextmanager
    def serving(self) -> Generator[FakeLink]:
        save_fleet(self.home, FleetConfig(fleet="home", machine="laptop", servers=("tls://localhost:4222",)))
        link = self

        class Handler(_Handler):
            fake = link

        with _Server(self.entry.socket, Handler) as server, _idle() as self._process, self._cleanup:
            self.entry.pid, self.entry.pid_started = self._process.pid, start_time(self._process.pid) or 0
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
            thread.start()
            links(self.home).write(self.entry)
            try:
                yield self
            finally:
                server.shutdown()
                thread.join()
                links(self.home).remove(self.entry.agent_id)

    def kill(self) -> None:
        """Leaves its entry and the sockets of its proxies as after `kill -9`: nobody listens there."""
        self._process.kill()
        self._process.wait()
        for host in (host for hosts in self.agents.values() for host in hosts):
            Path(host.entry.socket).rename(f"{host.entry.socket}.closed")
            Path(host.entry.socket).touch()

    def join(self, machine: str) -> None:
        self.agents.setdefault(machine, [])

    def start(self, machine: str, agent_type: str = "codex", port: int = 8120, name: str = "") -> FakeHost:
        """Starts an agent on another machine."""
        home = self.home / machine
        home.mkdir(exist_ok=True)
        host = self._cleanup.enter_context(FakeHost(home, agent_type, port, name).serving())
        self.agents.setdefault(machine, []).append(host)
        return host

    def outbox(self, machine: str, agent_type: str = "codex") -> OutboxHost:
        """Returns the host that keeps messages for an agent of that machine."""
        home = self.home / f"outbox-{machine}"
        home.mkdir(exist_ok=True)
        host = OutboxHost(home, agent_type, 1, agent_type)
        self._cleanup.enter_context(host.serving())
        self.agents.setdefault(f"outbox {machine}", []).append(host)
        return host

    def proxy(self, target: str, *, keeps: bool) -> Fields:
        """Raises SynapseError."""
        self.on_proxy(target)
        name, _, machine = target.rpartition("@")
        if machine not in self.agents:
            raise MachineNotFound(
                f"the fleet has no machine '{machine}'", hint="machines: box2  (synapse fleet status)"
            )
        kept = [host.entry for host in self.agents.get(f"outbox {machine}", [])]
        if machine in self.away:
            if keeps:
                return shown(kept[0], machine)
            raise MachineAway(machine, self.away[machine])
        try:
            entries = [host.entry for host in self.agents[machine]]
            by_inbox = [entry for entry in entries if entry.inbox == name]
            return shown(by_inbox[0] if by_inbox else resolve(name, entries), machine)
        except SynapseError:
            if not keeps:
                raise
            return shown(kept[0], machine)

    def find(self, prefix: str) -> Fields:
        """Raises TaskNotFound."""
        for machine, hosts in self.agents.items():
            for host in hosts:
                if (task := host.find(prefix)) is not None:
                    return {"agent": shown(host.entry, machine.removeprefix("outbox ")), "task": task}
        raise TaskNotFound(prefix)

    def stored_tasks(self, query: dict[str, str]) -> Fields:
        """Raises MachineAway."""
        events = self._log_of(query)
        tasks = [rebuild(None, _of_task(events, one)) for one in dict.fromkeys(event.task_id for event in events)]
        wanted = [task for task in reversed(tasks) if query.get("agent", "") in ("", task.inbox)]
        return {"tasks": [encode_task(task) for task in wanted], "next_cursor": ""}

    def next_events(self, query: dict[str, str]) -> Fields:
        """Raises MachineAway."""
        events, after = self._log_of(query), int(query.get("after", -1))
        if after < 0:
            return {"events": [], "seq": len(events)}
        found = [
            {
                "seq": seq,
                "task_id": event.task_id,
                "event": encode_events((event,)),
                "task": "" if "task" in query else encode_task(rebuild(None, _of_task(events[:seq], event.task_id))),
            }
            for seq, event in enumerate(events, 1)
            if seq > after and query.get("task", event.task_id) == event.task_id
        ]
        return {"events": found, "seq": len(events)}

    def _log_of(self, query: dict[str, str]) -> list[TaskEvent]:
        if query["machine"] in self.away:
            raise MachineAway(query["machine"], self.away[query["machine"]])
        return self.log.get(query["machine"], [])

    def machines(self) -> list[Fields]:
        return [
            {
                "name": name,
                "present": name not in self.away,
                "since": self.away.get(name, "2026-01-01T00:00:00Z"),
                "version": "1",
                "is_gateway": name in self.gateways and name not in self.away,
            }
            for name in sorted(self.agents)
            if not name.startswith("outbox ")
        ]

    def known_agents(self, machine: str) -> list[Fields]:
        return [
            {**shown(host.entry, name), **host.state, "machine": name}
            for name, hosts in self.agents.items()
            if name not in self.away and not name.startswith("outbox ") and machine in ("", name)
            for host in hosts
        ]


def _of_task(events: list[TaskEvent], task_id: str) -> list[TaskEvent]:
    return [event for event in events if event.task_id == task_id]


def shown(entry: AgentEntry, machine: str) -> Fields:
    """Returns the fields that a link tells of an agent of `machine`."""
    names = {"name": on_machine(short_name(entry), machine), "inbox": remote_inbox(entry.inbox, machine)}
    return {**entry.shown(), **names, "agent_id": on_machine(entry.agent_id, machine)}


@contextmanager
def _idle() -> Generator[subprocess.Popen[bytes]]:
    """Runs a process that does nothing: the link's, which a test may kill."""
    with subprocess.Popen(["/bin/sleep", "3600"]) as process:
        try:
            yield process
        finally:
            process.kill()


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True


class _Handler(BaseHTTPRequestHandler):
    fake: FakeLink

    @override
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as the parent has it
        """Prints nothing."""

    def do_GET(self) -> None:
        self._serve({})

    def do_POST(self) -> None:
        self._serve(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def _serve(self, body: Fields) -> None:
        self.fake.requests.append((self.command, self.path, body))
        try:
            status, answer = 200, self._answer_to(body)
        except SynapseError as error:
            status, answer = 404, {"error": to_wire(error)}
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _answer_to(self, body: Fields) -> Fields:  # noqa: C901, PLR0911, PLR0912 - one for each path
        fake, url = self.fake, urlsplit(self.path)
        match url.path.strip("/").split("/"):
            case ["fleet", "status"]:
                told = {"fleet": "home", "machine": "laptop", "connected": True, "machines": fake.machines()}
                return {**told, **fake.status}
            case ["fleet", "failures"]:
                return {"failed": fake.failed}
            case ["fleet", "outbox"]:
                return {"messages": fake.messages}
            case ["fleet", "outbox", "cancel"]:
                row = next(row for row in fake.messages if row["task_id"] == body["task_id"])
                return {"message": {**row, "state": "void" if row["state"] == "open" else row["state"]}}
            case ["fleet", "outbox", task_id]:
                raise TaskNotFound(task_id)
            case ["fleet", "agents"]:
                machine = parse_qs(url.query).get("machine", [""])[0]
                return {"agents": fake.known_agents(machine), "machines": fake.machines()}
            case ["fleet", "proxies"]:
                agent = fake.proxy(body["target"], keeps=body["queue"])
                return {"agent": agent, "stopped": agent["inbox"] in fake.stopped}
            case ["fleet", "tasks"]:
                return fake.stored_tasks(dict(parse_qsl(url.query)))
            case ["fleet", "events"]:
                return fake.next_events(dict(parse_qsl(url.query)))
            case ["fleet", "tasks", prefix]:
                return fake.find(prefix)
            case ["fleet", "approvals"]:
                away = [{"name": name, "since": since} for name, since in fake.away.items()]
                return {"questions": fake.questions, "refusing": fake.refusing, "away": away}
            case _:
                raise SynapseError(f"the fake link does not serve {self.path}")
