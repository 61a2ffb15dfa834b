"""A fake link whose other machines are homes of this computer: their hosts are its proxies, and it ships their logs.

What is fake is only the way between the machines. The registry, the proxies' sockets and the replica are real.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

from synapse.config.fleet import FleetConfig, save_fleet
from synapse.config.process import SystemClock
from synapse.core.address import resolve
from synapse.core.agent import READY
from synapse.core.errors import MachineAway, MachineNotFound
from synapse.core.override import override
from synapse.fleet.log import START, LogRow, Mark, Replica, ReplicaHead, Taken, batches_after, chained
from synapse.fleet.wire import Incarnation
from synapse.registry.files import FileRegistry
from synapse.store.file import migrations
from synapse.store.log_rows import read_rows
from synapse.store.replica import ReplicaFile
from tests.fakes.link import FakeLink, shown
from tests.unit.cli.fake_host import Fields

_ALL = 1 << 30
_TICK = 0.02


class ReplicatingLink(FakeLink):
    """The link of a gateway's machine."""

    def __init__(self, home: Path, machine: str, **homes: Path) -> None:
        super().__init__(home)
        self.machine = machine
        self.homes = homes
        self.pauses = threading.Event()
        """While it is set, no log is shipped."""
        self._stopping = threading.Event()

    @contextmanager
    def running(self) -> Generator[ReplicatingLink]:
        with self.serving():
            save_fleet(
                self.home,
                FleetConfig(
                    fleet="home", machine=self.machine, servers=("tls://localhost:1",), is_gateway=True, replica=True
                ),
            )
            shipping = threading.Thread(target=self._ship)
            shipping.start()
            try:
                yield self
            finally:
                self._stopping.set()
                shipping.join()

    @override
    def machines(self) -> list[Fields]:
        return [
            {"name": name, "present": name not in self.away, "since": self.away.get(name, ""), "version": "1"}
            for name in self.homes
        ]

    @override
    def known_agents(self, machine: str) -> list[Fields]:
        return [
            {**entry.shown(), "machine": name, "state": READY, "why": "", "since": "2026-01-01T00:00:00Z"}
            for name, home in self.homes.items()
            if name not in self.away
            for entry in FileRegistry(home / "registry").entries()
        ]

    @override
    def proxy(self, target: str, *, keeps: bool) -> Fields:
        name, _, machine = target.rpartition("@")
        if machine not in self.homes:
            raise MachineNotFound(f"the fleet has no machine '{machine}'")
        if machine in self.away:
            raise MachineAway(machine, self.away[machine])
        return shown(resolve(name, FileRegistry(self.homes[machine] / "registry").entries()), machine)

    def _ship(self) -> None:
        with closing(ReplicaFile.open(self.home / "fleet" / "replica.db")) as file:
            replica = Replica(file.heads())
            while not self._stopping.wait(_TICK):
                for name, home in self.homes.items():
                    if not self.pauses.is_set() and name not in self.away and (home / "store.db").exists():
                        self._ship_one(name, home / "store.db", file, replica)

    def _ship_one(self, name: str, store: Path, file: ReplicaFile, replica: Replica) -> None:
        head = replica.head(name)
        incarnation = Incarnation(1, name)
        mark = head.mark if head.incarnation == incarnation else START
        with closing(sqlite3.connect(store)) as connection:
            rows: list[LogRow] = read_rows(connection, mark.seq, most_rows=200, most_bytes=_ALL)[0]
        if not rows:
            return
        last = Mark(rows[-1].seq, chained(mark.digest, rows))
        after = ReplicaHead(machine=name, incarnation=incarnation, mark=mark)
        for batch in batches_after(after, migrations()[-1][0], [last], rows, complete=True):
            taken = replica.take(batch)
            assert isinstance(taken, Taken)
            file.take(taken, SystemClock().now())
