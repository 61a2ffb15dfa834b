"""Several machines on one computer: what a send over machines costs, how soon all goes on after a crash, how it grows.

Real: two state folders with their own links, the server that `synapse fleet create` runs or three in a cluster, hosts
that play a script. All of it is on loopback, so a round trip of a real network comes on top; in one row a proxy delays.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median, quantiles
from threading import Thread
from typing import Any, Final

from benchmarks.a2a import ECHO_SCRIPT
from benchmarks.hosts import Home, Host, free_port, temporary_home
from benchmarks.processes import SYNAPSE, memory, private_memory, processor_seconds, running, wait_until
from benchmarks.rounds import interleave
from benchmarks.rows import QUICK, TIMES, Effort, Figure, Row, within
from benchmarks.windows import ROOT
from synapse.attach.frames import Hello, Role, decode_to_viewer, encode
from synapse.client.link import ask_link, find_remote, running_link
from synapse.config.fleet import REPLICA_FILE, FleetConfig, fleet_folder, load_fleet, save_fleet
from synapse.config.process import SystemClock
from synapse.core.agent import AgentEntry
from synapse.core.errors import AccessDenied
from synapse.core.registry import Channel
from synapse.core.waiting import pause
from synapse.fleet.bus import NobodyThere
from synapse.link.nats_bus import NatsBus, access_of
from synapse.net.hosts import UnixHostClient, open_host_client
from synapse.registry.files import FileRegistry
from synapse.registry.local import open_local_registry
from tests.fleet.cluster import Cluster, three_servers
from tests.fleet.tcp_proxy import tcp_proxy

TITLE = "Several machines"
_MOST_ADDED_MS: Final = 10.0
_MOST_ADDED_P99_MS: Final = 30.0
_LINE_MS: Final = 50.0
"""What the slow line takes there and back."""
_MOST_SECONDS_DOWN: Final = 5.0
_MOST_LINK_MB: Final = 40.0
_MOST_IDLE_PERCENT: Final = 1.0
_LINK_LIBRARIES: Final = (
    "argparse, asyncio, dataclasses, httptools, msgspec, nats, nkeys, sqlite3, tomllib, uvicorn, uvloop"
)
"""What a link cannot do without; loading it is most of a link's memory."""
_EVENTS: Final = 10_000
_SETTLE_SECONDS: Final = 3.0
_MACHINES, _AGENTS, _MESSAGES = 50, 20, 100_000
_FEW_MACHINES, _FEW_AGENTS, _FEW_MESSAGES = 10, 5, 2_000
_MOST_FLEET_SECONDS: Final = 300.0
_PATIENCE_SECONDS: Final = 60.0


def run(effort: Effort) -> list[Row]:
    with two_machines() as (hub, box2):
        rows = _sending(hub, box2, effort)
        rows.append(_sending_far(hub, box2, effort))
        rows.append(_typing(hub, box2, effort))
        rows += _footprint(hub, effort)
        rows += _crashes(hub, box2, effort)
        catch_up = _catch_up(hub, box2, effort)
    return [*rows, _killed_leader(effort), catch_up, *_simulated(effort)]


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine of the fleet, and its folder."""

    name: str
    home: Home

    @property
    def state(self) -> Path:
        return Path(self.home.env["SYNAPSE_HOME"])

    @property
    def link_pid(self) -> int:
        return running_link(str(self.state)).pid

    @property
    def config(self) -> FleetConfig:
        config = load_fleet(self.state)
        if config is None:
            raise RuntimeError("the machine is in no fleet")
        return config

    def restart_with(self, config: FleetConfig) -> None:
        """Starts its link anew with another configuration."""
        self.fleet("stop")
        save_fleet(self.state, config)
        self.fleet("start")

    def fleet(self, *words: str) -> str:
        """Runs `synapse fleet` there; returns what it prints."""
        done = subprocess.run(
            [SYNAPSE, "fleet", *words], env=self.home.env, capture_output=True, text=True, timeout=60, check=False
        )
        if done.returncode:
            raise RuntimeError(f"synapse fleet {words[0]}: {done.stderr}")
        return done.stdout

    def proxy_of(self, name: str, machine: str) -> Host:
        """Returns what stands here for an agent of another machine."""
        entry = find_remote(f"{name}@{machine}", FileRegistry(self.state / "registry"))
        return Host(self.link_pid, entry.agent_id, entry.socket)

    def status(self) -> dict[str, Any]:
        return ask_link(str(self.state), "GET", "/fleet/status")


@contextlib.contextmanager
def two_machines() -> Generator[tuple[Machine, Machine]]:
    """The machine with the server and a replica, and another one. All their processes end afterwards."""
    with temporary_home() as one, temporary_home() as two:
        hub, box2 = Machine("hub", one), Machine("box2", two)
        try:
            hub.fleet("create", "--name", "hub", "--listen", f"127.0.0.1:{free_port()}")
            box2.fleet("join", json.loads(hub.fleet("invite", "box2", "--json"))["invitation"])
            yield hub, box2
        finally:
            for machine in (box2, hub):
                with contextlib.suppress(RuntimeError, subprocess.TimeoutExpired):
                    machine.fleet("stop")


@contextlib.contextmanager
def two_machines_of(servers: str) -> Generator[tuple[Machine, Machine]]:
    """Two machines that have joined a fleet on servers that others run. Their links end afterwards."""
    with temporary_home() as one, temporary_home() as two:
        machines = Machine("laptop", one), Machine("box2", two)
        try:
            for machine in machines:
                machine.fleet("join", servers, "--as", machine.name)
            yield machines
        finally:
            for machine in machines:
                with contextlib.suppress(RuntimeError, subprocess.TimeoutExpired):
                    machine.fleet("stop")


@dataclass(frozen=True, slots=True)
class _Sends:
    """Seconds of sends to an agent here and to one on another machine, and of round trips between the machines."""

    local: list[float]
    remote: list[float]
    trip: list[float]

    @property
    def limit(self) -> float:
        return median(self.local) + median(self.trip)

    def row(self, what: str) -> Row:
        return Row(
            what=what,
            measured=Figure("", self.remote, "ms", 1000).shown,
            beside=f"to an agent here {_ms(median(self.local))}, round trip {_ms(median(self.trip))}",
            ratio=median(self.remote) / self.limit,
            target=f"≤ here + round trip + {_MOST_ADDED_MS:g} ms",
            reached=median(self.remote) - self.limit <= _MOST_ADDED_MS / 1000,
        )


def _sending(hub: Machine, box2: Machine, effort: Effort) -> list[Row]:
    """A message to an agent on the other machine, beside one to an agent here."""
    sends = _send_in_turns(hub, box2, effort.messages * 3)
    slow, slow_limit = _p99(sends.remote), _p99(sends.local) + _p99(sends.trip)
    return [
        sends.row("durable send to an agent on another machine: accepted"),
        Row(
            what=f"the same, slowest of a hundred (of {len(sends.remote)})",
            measured=_ms(slow),
            beside=f"to an agent here {_ms(_p99(sends.local))}, round trip {_ms(_p99(sends.trip))}",
            ratio=slow / slow_limit,
            target=f"≤ here + round trip + {_MOST_ADDED_P99_MS:g} ms",
            reached=slow - slow_limit <= _MOST_ADDED_P99_MS / 1000,
        ),
    ]


def _sending_far(hub: Machine, box2: Machine, effort: Effort) -> Row:
    """The same, when the other machine is far from the server."""
    near = box2.config
    scheme, _, address = near.servers[0].partition("://")
    with tcp_proxy(int(address.rpartition(":")[2]), delay=_LINE_MS / 2000) as line:
        box2.restart_with(replace(near, servers=(f"{scheme}://127.0.0.1:{line.port}",)))
        try:
            return _send_in_turns(hub, box2, effort.messages).row(
                f"durable send over a line of {_LINE_MS:g} ms: accepted"
            )
        finally:
            box2.restart_with(near)


def _send_in_turns(hub: Machine, box2: Machine, count: int) -> _Sends:
    with hub.home.scripted(ECHO_SCRIPT) as here, box2.home.scripted(ECHO_SCRIPT) as there:
        proxy = _found(lambda: hub.proxy_of(there.name, "box2"))
        contenders = {"remote": lambda: _seconds_of(proxy), "local": lambda: _seconds_of(here)}
        interleave(5, contenders)
        found = interleave(count, contenders)
        trips = zip(*(asyncio.run(_trips_to_server(one, min(count, 100))) for one in (hub, box2)), strict=True)
    return _Sends(found["local"], found["remote"], [sum(trip) for trip in trips])


def _seconds_of(host: Host) -> float:
    begun = time.perf_counter()
    host.send("hello")
    return time.perf_counter() - begun


async def _trips_to_server(machine: Machine, count: int) -> list[float]:
    """Returns how long the way to the server and back takes. That of both machines is a request and its answer."""
    trips: list[float] = []
    async with NatsBus(access_of(machine.state, machine.config)) as bus:
        await bus.wait_connected(_PATIENCE_SECONDS)
        for _ in range(count):
            begun = time.perf_counter()
            with contextlib.suppress(NobodyThere):
                await bus.request(f"synapse.v1.ask.nobody.{machine.name}", b"", _PATIENCE_SECONDS)
            trips.append(time.perf_counter() - begun)
    return trips


def _typing(hub: Machine, box2: Machine, effort: Effort) -> Row:
    """A key into a terminal of the other machine until its echo is back, beside the same at the host itself."""
    box2.fleet("allow", "hub", "attach")
    with box2.home.host() as there:
        there.wait_ready()
        proxy = _found(lambda: hub.proxy_of(there.name, "box2"))
        keys = asyncio.run(_type_in_turns(proxy, there, effort.keys))
    remote, local = (Figure(name, keys[name], "ms", 1000) for name in ("remote", "local"))
    return Row(
        what="a key in an attached terminal of another machine → its echo",
        measured=remote.shown,
        beside=f"attached on the machine itself {local.shown}",
        ratio=remote.value / local.value,
    )


async def _type_in_turns(proxy: Host, there: Host, keys: int) -> dict[str, list[float]]:
    clock = SystemClock()
    registry = open_local_registry(Path(there.socket).parent, clock.monotonic)
    hosts = open_host_client(registry, clock, registry.recheck)
    found: dict[str, list[float]] = {"remote": [], "local": []}
    for name, host in (("remote", proxy), ("local", there)):
        channel = await _attached(hosts, host)
        for _ in range(keys):
            begun = time.perf_counter()
            await channel.send(b"k")
            while b"k" not in (await _output(channel)):
                pass
            found[name].append(time.perf_counter() - begun)
        await channel.close()
    return found


async def _attached(hosts: UnixHostClient, host: Host) -> Channel:
    """Attaches, and waits for the keyboard; a link needs a moment until it knows that this machine may."""
    async with asyncio.timeout(_PATIENCE_SECONDS):
        while True:
            try:
                channel = await hosts.open_terminal(AgentEntry(host.agent_id, "dummy", socket=host.socket))
                break
            except AccessDenied:
                await pause(0.1)
        await channel.send(encode(Hello(80, 24, take=True)))
        while decode_to_viewer(str(await channel.receive())) != Role(types=True):
            pass
    return channel


async def _output(channel: Channel) -> bytes:
    async with asyncio.timeout(_PATIENCE_SECONDS):
        frame = await channel.receive()
    if frame is None:
        raise RuntimeError("the terminal was closed")
    return frame if isinstance(frame, bytes) else b""


def _footprint(hub: Machine, effort: Effort) -> list[Row]:
    """The link of the machine with the replica, which has more to do than others."""
    pid = hub.link_pid
    size, private = memory(pid), private_memory(pid)
    time.sleep(_SETTLE_SECONDS)
    before = processor_seconds(pid)
    time.sleep(effort.idle_seconds)
    share = (processor_seconds(pid) - before) / effort.idle_seconds * 100
    return [
        within(
            _MOST_LINK_MB,
            Figure("memory of the link, which also keeps a replica", [size], "MB"),
            Figure("its libraries alone, only loaded", [_memory_of_libraries()], "MB"),
        ),
        Row(what="of it not shared with other processes", measured=Figure("", [private], "MB").shown),
        within(_MOST_IDLE_PERCENT, Figure(f"its processor while idle, over {effort.idle_seconds:g} s", [share], "%")),
    ]


def _memory_of_libraries() -> float:
    """Returns the megabytes of a Python that has loaded the libraries of a link, and does nothing with them."""
    code = f"import os, {_LINK_LIBRARIES}; from benchmarks.processes import memory; print(memory(os.getpid()))"
    return float(subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True).stdout)


def _crashes(hub: Machine, box2: Machine, effort: Effort) -> list[Row]:
    """What is killed is started again at once, as systemd or the link does it."""
    with box2.home.scripted(ECHO_SCRIPT) as there:
        proxy = _found(lambda: hub.proxy_of(there.name, "box2"))
        rounds = 1 if effort is QUICK else 3

        def kill_server() -> float:
            return _seconds_until_sent(_server_pid(hub), proxy)

        def kill_link() -> float:
            return _seconds_until_sent(box2.link_pid, proxy, lambda: box2.fleet("start"))

        found = interleave(rounds, {"server": kill_server, "link": kill_link})
    return [
        within(_MOST_SECONDS_DOWN, Figure("the server is killed → a message arrives again", found["server"], "s")),
        within(
            _MOST_SECONDS_DOWN,
            Figure("the receiver's link is killed, and started again → a message arrives again", found["link"], "s"),
        ),
    ]


def _seconds_until_sent(pid: int, proxy: Host, start_again: Callable[[], object] = lambda: None) -> float:
    begun = time.perf_counter()
    os.kill(pid, signal.SIGKILL)
    start_again()
    wait_until(lambda: _is_accepted(proxy), "a message arrives", _PATIENCE_SECONDS)
    return time.perf_counter() - begun


def _killed_leader(effort: Effort) -> Row:
    """A cluster of three servers whose leader is killed while both machines are connected."""
    with (
        temporary_home() as place,
        three_servers(place.folder) as cluster,
        two_machines_of(cluster.url) as (laptop, box2),
        box2.home.scripted(ECHO_SCRIPT) as there,
    ):
        proxy = _found(lambda: laptop.proxy_of(there.name, "box2"))
        rounds = [_kill_leader(cluster, proxy) for _ in range(2 if effort is QUICK else 6)]
    what = "the leader of three servers is killed → longest wait of a message, until the next one leads"
    row = within(_MOST_SECONDS_DOWN, Figure(what, [max(longest for longest, _ in rounds)], "s"))
    connected = sum(is_connected for _, is_connected in rounds)
    return replace(row, beside=f"a machine was connected to it in {connected} of {len(rounds)} rounds")


def _kill_leader(cluster: Cluster, proxy: Host) -> tuple[float, bool]:
    """Kills the leader, and sends messages until there is another one.

    Returns the longest time until a message arrived, and whether a machine was connected to the leader.
    """
    wait_until(lambda: bool(cluster.leader) and _is_accepted(proxy), "all is well", _PATIENCE_SECONDS)
    killed = cluster.leader
    is_connected = cluster.clients(killed) > 0
    waits: list[float] = []
    cluster.servers[killed].kill()
    while not waits or cluster.leader in ("", killed):
        begun = time.perf_counter()
        wait_until(lambda: _is_accepted(proxy), "a message arrives", _PATIENCE_SECONDS)
        waits.append(time.perf_counter() - begun)
    cluster.servers[killed].start_again()
    cluster.wait_formed()
    return max(waits), is_connected


def _is_accepted(proxy: Host) -> bool:
    """Sends a message; returns whether the other machine has taken it, and not only this one's outbox."""
    try:
        task_id = proxy.send("hello")
        task = proxy.get(f"/tasks/{task_id}")
    except (RuntimeError, OSError):
        return False
    return bool(task["metadata"].get("outbox") != "open")


def _server_pid(hub: Machine) -> int:
    told = json.loads((fleet_folder(hub.state) / "server" / "process.json").read_bytes())
    return int(told["pid"])


def _catch_up(hub: Machine, box2: Machine, effort: Effort) -> Row:
    """The gateway's link is away while the other machine's log grows; then it starts, and its replica catches up."""
    wanted = _EVENTS if effort is not QUICK else _EVENTS // 10
    hub.fleet("stop")
    with box2.home.scripted(ECHO_SCRIPT) as there:
        first = _last_seq(box2)
        while _last_seq(box2) - first < wanted:
            for _ in range(50):
                there.send("hello")
        wait_until(lambda: not there.get("/status")["queue_depth"], "all is answered", _PATIENCE_SECONDS)
        last = _last_seq(box2)
        starting = Thread(target=hub.fleet, args=("start",))
        starting.start()
        begun = _wait_for_rows(hub, first)
        wait_until(lambda: _replicated(hub) >= last, "the replica has all", _PATIENCE_SECONDS)
        seconds = time.perf_counter() - begun
        starting.join()
    return Row(
        what=f"catch-up of a replica by {last - first:,} events",
        measured=f"{seconds:.2f} s",
        target=f"{_EVENTS:,} events in 1 s",
        reached=seconds / (last - first) * _EVENTS <= 1,
    )


def _wait_for_rows(hub: Machine, first: int) -> float:
    """Waits until the replica has rows after `first`; returns the time of the last look at which it had none."""
    looked = time.perf_counter()

    def has_begun() -> bool:
        nonlocal looked
        now = time.perf_counter()
        if _replicated(hub) > first:
            return True
        looked = now
        return False

    wait_until(has_begun, "the replica begins", _PATIENCE_SECONDS)
    return looked


def _last_seq(machine: Machine) -> int:
    with contextlib.closing(sqlite3.connect(f"file:{machine.state / 'store.db'}?mode=ro", uri=True)) as store:
        (seq,) = store.execute("SELECT max(seq) FROM appends").fetchone()
    return int(seq or 0)


def _replicated(hub: Machine) -> int:
    path = fleet_folder(hub.state) / REPLICA_FILE
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as replica:
        (seq,) = replica.execute("SELECT max(seq) FROM appends").fetchone()
    return int(seq or 0)


def _simulated(effort: Effort) -> list[Row]:
    """Many machines in two processes, with one real server; `benchmarks.fleet_machines` says what is real."""
    whole = (_MACHINES, _AGENTS, _MESSAGES)
    machines, agents, messages = (_FEW_MACHINES, _FEW_AGENTS, _FEW_MESSAGES) if effort is QUICK else whole
    processes = min(os.cpu_count() or 1, 2)
    with temporary_home() as home, _server(home) as (url, server_pid), contextlib.ExitStack() as stack:
        workers = [
            stack.enter_context(_worker(home, url, range(first, last), (machines, agents, messages // machines)))
            for first, last in _shares(machines, processes)
        ]
        _all_say(workers, "ready")
        begun = time.perf_counter()
        _tell(workers)
        _all_say(workers, "settled")
        seconds = time.perf_counter() - begun
        _tell(workers)
        counted = [json.loads(_line(worker)) for worker in workers]
        sizes = [one["memory"] for one in counted], memory(server_pid)
    delivered = {key: times for one in counted for key, times in one["delivered"].items()}
    # A key is the message's id, which ends with the number of its machine, its agent, and the machine that got it.
    wrong = sum(key.split()[0].rpartition(".")[2] != key.split()[2] for key in delivered)
    faults = abs(messages - len(delivered)) + sum(times - 1 for times in delivered.values()) + wrong
    what = f"{machines} machines {TIMES} {agents} agents simulated, {messages:,} messages sent, answered and settled"
    return [
        Row(
            what=what,
            measured=f"{seconds:.0f} s, {messages / seconds:,.0f} /s",
            target=f"≤ {_MOST_FLEET_SECONDS:g} s",
            reached=seconds <= _MOST_FLEET_SECONDS,
        ),
        within(0, Figure("of them lost, delivered twice, at the wrong machine", [faults], "")),
        Row(
            what=f"memory of {machines} links in {processes} processes; of the server",
            measured=f"{sum(sizes[0]):.0f} MB; {sizes[1]:.0f} MB",
        ),
    ]


@contextlib.contextmanager
def _server(home: Home) -> Generator[tuple[str, int]]:
    """A server as `fleet create` configures it, without users."""
    port = free_port()
    config = home.folder / "nats.conf"
    jetstream = {"store_dir": str(home.folder / "jetstream"), "sync_interval": "always"}
    config.write_text(json.dumps({"host": "127.0.0.1", "port": port, "jetstream": jetstream}), encoding="utf-8")
    with running([str(Path(sys.executable).with_name("nats-server")), "-c", str(config)], home.env, home.folder) as one:
        yield f"nats://127.0.0.1:{port}", one.pid


@contextlib.contextmanager
def _worker(home: Home, url: str, numbers: range, fleet: tuple[int, int, int]) -> Generator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "benchmarks.fleet_machines", url, str(home.folder), str(numbers.start)]
    with subprocess.Popen(
        [*command, str(numbers.stop), *map(str, fleet)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _shares(machines: int, processes: int) -> list[tuple[int, int]]:
    bounds = [machines * part // processes for part in range(processes + 1)]
    return list(pairwise(bounds))


def _tell(workers: Sequence[subprocess.Popen[str]]) -> None:
    for worker in workers:
        if worker.stdin is not None:
            worker.stdin.write("\n")
            worker.stdin.flush()


def _all_say(workers: Sequence[subprocess.Popen[str]], word: str) -> None:
    for worker in workers:
        if (said := _line(worker)) != word:
            raise RuntimeError(f"a worker said {said!r} instead of {word!r}")


def _line(worker: subprocess.Popen[str]) -> str:
    return worker.stdout.readline().strip() if worker.stdout is not None else ""


def _found(find: Callable[[], Host]) -> Host:
    """Asks until the other machine has told of its agent."""
    found: list[Host] = []

    def is_found() -> bool:
        with contextlib.suppress(Exception):
            found.append(find())
        return bool(found)

    wait_until(is_found, "the other machine's agent", _PATIENCE_SECONDS)
    return found[0]


def _p99(seconds: Sequence[float]) -> float:
    return quantiles(seconds, n=100)[98]


def _ms(seconds: float) -> str:
    return Figure("", [seconds], "ms", 1000).shown
