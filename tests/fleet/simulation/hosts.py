"""The hosts of a simulated machine: they work on their tasks, and answer what its link asks of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from synapse.fleet.relay_io import (
    FindTask,
    HostAbsent,
    HostAccepted,
    HostCall,
    HostOutcome,
    HostRefused,
    HostTold,
    HostVoided,
    OpenTask,
    TellEnd,
    VoidTask,
)
from synapse.fleet.wire import End
from tests.fleet.simulation.files import Key, SimTask
from tests.fleet.simulation.invariants import ROGUE
from tests.fleet.simulation.machine import Machine

if TYPE_CHECKING:
    from tests.fleet.simulation.world import World


class Hosts:
    """The hosts of all machines."""

    claims_ids = True
    """Whether a host notes the ids of messages that it has taken."""
    claims_voids = True
    """Whether a host notes that a message was canceled before it came."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.random
        self._witness = world.witness

    def work(self, machine: Machine) -> None:
        """Lets a host of the machine write one row: of a task that goes on, or one that means nothing."""
        store = machine.files.store
        waiting = [task for task in store.tasks.values() if task.end is None]
        if not waiting or self._random.random() < self._world.beats:
            # Rows that are alike in two histories: only a chain tells the histories apart.
            store.append("beat", self._world.new_salt())
            return
        typed = [task for task in waiting if task.state == "typed"]
        if typed and self._random.random() < 0.6:
            task = self._random.choice(typed)
            state = "completed" if self._random.random() < 0.8 else "failed"
            self._change(machine, task, state)
        else:
            first = {task.inbox: task for task in reversed(waiting) if task.state == "queued"}
            if first:
                task = self._random.choice(list(first.values()))
                self._witness.typed(machine.name, task.key)
                self._change(machine, task, "typed")

    def _change(self, machine: Machine, task: SimTask, state: str) -> SimTask:
        self._witness.reached(task.key, state)
        return machine.files.store.change(task, state, self._world.now + machine.skew, self._world.new_salt())

    def answer(self, machine: Machine, call: HostCall) -> HostOutcome:
        """Returns what the hosts of the machine answer its link."""
        match call:
            case OpenTask():
                return self._open_task(machine, call)
            case VoidTask():
                return self._void_task(machine, call)
            case FindTask():
                found = machine.files.store.find((call.machine, call.message_id))
                return HostAccepted(task_id=found.task_id, end=found.end) if found is not None else HostAbsent()
            case TellEnd():
                sent = self._witness.sent.get(call.row.message_id)
                if sent is not None and sent.to == call.row.to:  # the waiter waits for an agent of that machine
                    self._witness.told(machine.name, call.row)
                    machine.files.store.told.setdefault(call.row.message_id, call.row.state)
                return HostTold()

    def find_claim(self, machine: Machine, key: Key, target: str) -> SimTask | None:
        """Looks in all inboxes: the name may mean another by now."""
        return machine.files.store.find(key)

    def _open_task(self, machine: Machine, call: OpenTask) -> HostOutcome:
        key = (call.machine, call.message_id)
        found = self.find_claim(machine, key, call.target)
        if found is not None:
            return HostAccepted(task_id=found.task_id, end=found.end)
        if call.target in machine.away:
            self._witness.refused(machine.name, key)
            return HostRefused(error=b"{}")
        inbox = machine.inboxes[call.target]
        self._witness.opened(machine.name, key, inbox)
        task_id = call.task_id if call.machine != ROGUE else f"r{self._world.new_salt()}"
        task = SimTask(task_id, key, inbox, "queued")
        machine.files.store.open(task, self._world.new_salt(), claim=self.claims_ids)
        return HostAccepted(task_id=task_id)

    def _void_task(self, machine: Machine, call: VoidTask) -> HostOutcome:
        key = (call.machine, call.message_id)
        found = machine.files.store.find(key)
        if found is None:
            end = End(state="canceled")
            self._witness.claimed(machine.name, key, call.body)
            if self.claims_voids:
                task_id = call.task_id if call.machine != ROGUE else f"r{self._world.new_salt()}"
                task = SimTask(task_id, key, machine.inboxes[call.target], "queued", is_claim=True)
                machine.files.store.open(task, self._world.new_salt())
                self._change(machine, task, "canceled")
            self._witness.reached(key, "canceled")
            return HostVoided(task_id=call.task_id, end=end, known=False)
        if found.end is None:
            found = self._change(machine, found, "canceled")
        assert found.end is not None
        return HostVoided(task_id=found.task_id, end=found.end, known=not found.is_claim)
