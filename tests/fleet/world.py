"""A fleet for one test: machines with homes, hosts and links of their own, joined by a real server.

With network namespaces each machine has an address of its own, and links can be cut; without, all share the loopback,
and only a machine whose link goes through a proxy can be cut off.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from synapse.client.http import Answer, HostAddress, NoAnswer, request
from synapse.config.fleet import load_fleet, save_fleet
from synapse.core.agent import AgentEntry
from synapse.core.override import override
from synapse.registry.files import is_running, links
from tests.fleet.network import Network, can_make_namespaces, open_network
from tests.fleet.tcp_proxy import TcpProxy, tcp_proxy
from tests.fleet.waiting import until
from tests.integration.chaos.house import House, RunningHost
from tests.samples.ports import own_port

BOUND: Final = 30.0
PORT: Final = 4222


class Machine(House):
    """One machine of a fleet: a home, and the network namespace that its processes run in."""

    def __init__(self, name: str, folder: Path, network: Network | None) -> None:
        folder.mkdir()
        super().__init__(folder)
        self.name = name
        self.network = network
        self.line: TcpProxy | None = None
        """What its link reaches the server through; None for the server's own address."""

    @override
    def command(self, *arguments: str) -> list[str]:
        return self._here(super().command(*arguments))

    @override
    def start(
        self,
        profile: str,
        *,
        name: str = "",
        launcher: Sequence[str] = (),
        tracer: Sequence[str] = (),
        instructions: bool = False,
    ) -> RunningHost:
        return super().start(
            profile, name=name, launcher=launcher, tracer=self._here(tracer), instructions=instructions
        )

    def run(self, *arguments: str) -> str:
        """Runs a command that must succeed; returns what it printed."""
        done = self.synapse(*arguments)
        assert done.code == 0, (self.name, arguments, done)
        return done.out

    def read(self, *arguments: str) -> Any:
        """Runs a command with --json and returns what it printed."""
        return json.loads(self.run(*arguments, "--json"))

    def begin(self, *arguments: str) -> subprocess.Popen[str]:
        """Starts a command; the caller reads what it says, and waits for its end."""
        return subprocess.Popen(
            self.command(*arguments),
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )

    def start_dummy(self, name: str, *, port: int | None = None) -> None:
        """Starts the built-in agent in the background, on a port that nobody takes while it is stopped."""
        chosen = own_port() if port is None else port
        self.run("start", "dummy", "--name", name, "--port", str(chosen), "--no-instructions")

    @property
    def link(self) -> AgentEntry | None:
        """The entry of its link, if it runs."""
        entry = links(self.home).find("synapse-link")
        return entry if entry is not None and is_running(entry.pid, entry.pid_started) else None

    def request_link(self, method: str, path: str, body: dict[str, Any] | None = None) -> Answer:
        """Sends a request to its link's own API; raises NoAnswer."""
        entry = self.link
        if entry is None:
            raise NoAnswer("no link runs", sent=False)
        return request(HostAddress(entry.socket), method, path, body, timeout=BOUND)

    def ask_link(self, path: str) -> dict[str, Any]:
        """Returns the answer of its link's own API; raises NoAnswer."""
        answer = self.request_link("GET", path)
        assert answer.status == 200, answer.body
        return answer.body

    def status(self) -> dict[str, Any]:
        """Returns what its link says of itself; empty while it does not answer."""
        with suppress(NoAnswer, AssertionError):
            return self.ask_link("/fleet/status")
        return {}

    def is_connected(self) -> bool:
        return bool(self.status().get("connected"))

    def wait_connected(self, bound: float = BOUND) -> None:
        until(self.is_connected, f"the link of {self.name} to be connected", self.link_log, bound=bound)

    def start_link(self) -> None:
        self.run("fleet", "start")

    def stop_link(self) -> None:
        """Ends the link in order, and waits until it is gone. The server goes on."""
        self._end_link(signal.SIGTERM)

    def kill_link(self) -> None:
        """Kills the link as the kernel would, and waits until it is gone."""
        self._end_link(signal.SIGKILL)

    def _end_link(self, how: signal.Signals) -> None:
        entry = self.link
        if entry is not None:
            with suppress(ProcessLookupError):
                os.kill(entry.pid, how)
            until(lambda: not is_running(entry.pid, entry.pid_started), f"the end of the link of {self.name}")

    def move_link(self, line: TcpProxy) -> None:
        """Lets its link reach the fleet's server through a proxy from now on."""
        config = load_fleet(self.home)
        assert config is not None
        scheme = config.servers[0].partition("://")[0]
        save_fleet(self.home, replace(config, servers=(f"{scheme}://127.0.0.1:{line.port}",)))
        self.line = line
        self.stop_link()
        self.start_link()

    def cut_off(self) -> None:
        """Lets nothing pass between this machine and the server; connections stay half open."""
        if self.network is not None:
            self.network.cut(self.name)
        elif self.line is not None:
            self.line.cut()

    def mend(self) -> None:
        """Ends what `cut_off` began."""
        if self.network is not None:
            self.network.mend(self.name)
        elif self.line is not None:
            self.line.mend()

    def stop_fleet(self) -> None:
        """Ends the link, and the server if this machine runs it."""
        if (self.home / "fleet").exists():
            self.synapse("fleet", "stop")
        self.kill_link()

    @override
    def close(self) -> None:
        """Ends its link and its agents; a server that it runs goes on."""
        self.kill_link()
        super().close()
        # Agents that a command has started in the background are not among its hosts.
        if any(is_running(entry.pid, entry.pid_started) for entry in self.registry.written()):
            self.synapse("stop", "--all", "--force")

    def link_log(self) -> str:
        """Returns the last lines of its link's log."""
        log = self.home / "logs" / "synapse-link.log"
        return log.read_text(encoding="utf-8")[-3000:] if log.exists() else "no log of the link"

    def _here(self, command: Sequence[str]) -> list[str]:
        return list(command) if self.network is None else self.network.command(self.name, command)


class World:
    """All machines of a fleet; the first one, `hub`, runs the server."""

    def __init__(self, machines: dict[str, Machine], address: str, lines: dict[str, TcpProxy]) -> None:
        self.machines = machines
        self.address = address
        self.lines = lines
        """The proxies through which machines reach the server, by the machines' names."""

    def __getitem__(self, name: str) -> Machine:
        return self.machines[name]

    def __iter__(self) -> Iterator[Machine]:
        return iter(self.machines.values())

    @property
    def hub(self) -> Machine:
        return next(iter(self))

    def form(self, *, gateways: Sequence[str] = ()) -> None:
        """Makes the fleet: the hub creates it, the others join."""
        self.hub.run("fleet", "create", "--name", self.hub.name, "--listen", self.address)
        for machine in list(self)[1:]:
            as_gateway = ("--gateway",) if machine.name in gateways else ()
            invitation = self.hub.read("fleet", "invite", machine.name, *as_gateway)["invitation"]
            machine.run("fleet", "join", invitation)
            if machine.name in self.lines:
                machine.move_link(self.lines[machine.name])
        self.wait_connected()

    def join(self, servers: str) -> None:
        """Makes the fleet on servers that others run."""
        for machine in self:
            machine.run("fleet", "join", servers, "--as", machine.name)
        self.wait_connected()

    def wait_connected(self, bound: float = BOUND) -> None:
        for machine in self:
            machine.wait_connected(bound)

    def server_pid(self) -> int:
        """Returns the pid of the hub's nats-server; 0 if none runs."""
        config = str(self.hub.home / "fleet" / "server")
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                words = (process / "cmdline").read_bytes().split(b"\0")
                if b"nats-server" in words[0] and any(config.encode() in word for word in words):
                    return int(process.name)
        return 0

    def kill_server(self) -> None:
        """Kills the hub's nats-server as the kernel would, and waits until it is gone; a link starts it again."""
        if pid := self.server_pid():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            until(lambda: self.server_pid() != pid, "the end of the server")

    def close(self) -> None:
        for machine in self:
            machine.close()
        self.kill_server()


@contextmanager
def open_world(*names: str, namespaces: bool = True, delay: float | None = None) -> Generator[World]:
    """Makes the machines, with namespaces if this user may make them; ends all of their processes afterwards.

    With `delay`, or where namespaces are asked for and cannot be made, each machine but the first reaches the server
    through a proxy, which delays all by so many seconds each way.
    """
    # Not below pytest's folder: the path of a Unix socket has 107 bytes at most.
    with ExitStack() as ending:
        folder = Path(ending.enter_context(tempfile.TemporaryDirectory(prefix="syn-fleet-")))
        network = ending.enter_context(open_network(*names)) if namespaces and can_make_namespaces() else None
        machines = {name: Machine(name, folder / name, network) for name in names}
        port = PORT if network is not None else own_port()
        host = "127.0.0.1" if network is None else network.address(names[0])
        behind_lines = names[1:] if network is None and (namespaces or delay is not None) else ()
        lines = {name: ending.enter_context(tcp_proxy(port, delay=delay or 0.0)) for name in behind_lines}
        world = World(machines, f"{host}:{port}", lines)
        try:
            yield world
        finally:
            world.close()
