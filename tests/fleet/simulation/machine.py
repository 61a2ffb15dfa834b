"""A machine of a simulated fleet: its files, and the link process that runs on it now and then."""

from __future__ import annotations

from collections import deque
from random import Random

from synapse.fleet.log import Replica, Shipper, StoreChain
from synapse.fleet.relay import Relay
from synapse.fleet.relay_io import Store
from tests.fleet.simulation.files import Files, HostStore, LinkDb, ReplicaDb

TARGETS = (("x",), ("x", "y"), ("x", "x@1", "x@2"))
"""The names of agents that a run uses. With a folder a name always means the same agent, without one it may change."""


class SimLink:
    """A running link process of a machine: gone after a crash, with everything in it."""

    def __init__(self, machine: Machine, relay: Relay, shipper: Shipper, replica: Replica) -> None:
        self.machine = machine
        self.relay = relay
        self.shipper = shipper
        self.replica = replica
        self.alive = True
        self.connected = False
        self.stores: deque[Store] = deque()
        self.chains: deque[StoreChain] = deque()
        self.wake = float("inf")
        self.token = 0
        self.requests: dict[int, float] = {}
        """The requests that wait for an answer, and until when."""
        self.arrivals: dict[int, tuple[SimLink | None, int]] = {}
        """What a token of ours stands for: the link and token of a request, or the number of a mail."""
        self.tail = machine.files.link.tail.seq
        self.log_length = 0
        self.connections = 0

    def new_token(self) -> int:
        self.token += 1
        return self.token


class Machine:
    """A computer with its files and, sometimes, a running link."""

    def __init__(self, name: str, random: Random) -> None:
        self.name = name
        self.files = Files(LinkDb(), HostStore(f"store-{name}"), ReplicaDb())
        self.saved: list[Files] = []
        self.link: SimLink | None = None
        self.is_cut_off = False
        self.skew = random.choice((0.0, 0.0, 7200.0, -86400.0))
        self.inboxes = {"x": "x-1", "y": "y-1", "x@1": "x-1", "x@2": "x-2"}
        self.away: set[str] = set()
        """The names of agents that are not running."""
