"""The logs of simulated machines on their way to replicas: through the engine, or asked for from machine to machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from synapse.fleet.log import (
    START,
    AnswerRange,
    Batch,
    BatchKept,
    ChainStored,
    EngineRead,
    KeepBatch,
    LogEffect,
    LogEvent,
    LogRow,
    Missing,
    RangeAnswer,
    RangeAsked,
    RangeRequest,
    ReadEngine,
    ReadRows,
    ReplicaHead,
    ReportOutdated,
    RowsRead,
    StoreChain,
    Taken,
    batches_after,
    decode_batch,
    encode_batch,
)
from synapse.fleet.relay_io import Outdated
from tests.fleet.simulation.machine import SimLink

if TYPE_CHECKING:
    from tests.fleet.simulation.world import World


class Shipping:
    """Carries out what shippers and replicas want, if this run ships logs."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.random
        self._witness = world.witness

    def step(self, link: SimLink, event: LogEvent) -> None:
        if self._world.ships_log:
            self._carry_out(link, link.shipper.step(event))

    def _carry_out(self, link: SimLink, effects: list[LogEffect]) -> None:  # noqa: C901 - one case for each
        for effect in effects:
            match effect:
                case StoreChain():
                    link.chains.append(effect)
                    self._world.pending.append((link, self._commit_chain, (link,)))
                case ReadRows():
                    rows, complete = link.machine.files.store.rows(effect.after, effect.up_to, self._world.batch_rows)
                    event = RowsRead(token=effect.token, rows=rows, complete=complete)
                    self._world.pending.append((link, self.step, (link, event)))
                case ReportOutdated():
                    self._world.give(link, Outdated(why=effect.why, counter=effect.counter))
                case KeepBatch():
                    self._world.pending.append(
                        (link, self._keep_batch, (link, effect, link.connections, self._log_of(link)))
                    )
                case ReadEngine():
                    self._world.pending.append((link, self.read_engine, (link,)))
                case AnswerRange():
                    asker, _ = link.arrivals.pop(effect.token)
                    if asker is not None and not self._world.happens(0.1):
                        told = (asker, link.machine.name, effect.answer, self._log_of(link))
                        self._world.pending.append((asker, self._range_answered, told))

    def _commit_chain(self, link: SimLink) -> None:
        store = link.chains.popleft()
        link.machine.files.link.commit_chain(store.writes)
        self.step(link, ChainStored(token=store.token))

    def read_engine(self, link: SimLink) -> None:
        if link.connected:
            log = self._world.engine.logs.get(link.machine.name, [])
            link.log_length = len(log)
            self.step(link, EngineRead(last=log[-1] if log else None))

    def _log_of(self, link: SimLink) -> dict[int, bytes]:
        return {seq: row.data for seq, row in link.machine.files.store.log.items()}

    def _keep_batch(self, link: SimLink, effect: KeepBatch, connection: int, origin: dict[int, bytes]) -> None:
        if connection != link.connections:
            return
        log = self._world.engine.logs.setdefault(link.machine.name, [])
        fails = not link.connected or len(log) != link.log_length or self._world.happens(0.05)
        if link.connected and len(log) == link.log_length and (not fails or self._world.happens(0.5)):
            log.append(effect.body)
            link.log_length = len(log)
            for name in self._world.replicas:
                other = self._world.machines[name].link
                if other is not None and other.connected and name != link.machine.name and not self._world.happens(0.2):
                    self._world.pending.append((other, self._batch_arrived, (other, effect.body, origin)))
        self._world.pending.append((link, self.step, (link, BatchKept(token=effect.token, kept=not fails))))

    def _batch_arrived(self, link: SimLink, body: bytes, origin: dict[int, bytes]) -> None:
        self._take(link, decode_batch(body), origin)

    def _take(self, link: SimLink, batch: Batch, origin: dict[int, bytes]) -> bool:
        """Takes a batch; `origin` is the whole log of its maker when it made the batch."""
        taken = link.replica.take(batch)
        if isinstance(taken, Taken):
            link.machine.files.replica.commit(taken)
            if taken.rows:
                self._witness.taken(link.machine, batch, origin)
            return True
        self._world.pending.append((link, self._send_range, (link, taken.request, isinstance(taken, Missing))))
        return False

    def ask_all(self, link: SimLink) -> None:
        """Asks all machines for what is missing of their logs, if the machine of this link keeps replicas."""
        if not self._world.ships_log or link.machine.name not in self._world.replicas:
            return
        for name in self._world.names:
            if name != link.machine.name:
                self._send_range(link, link.replica.ask(name), True)

    def ask_range(self, link: SimLink) -> None:
        if not self._world.ships_log:
            return
        name = self._random.choice([name for name in self._world.names if name != link.machine.name])
        self._send_range(link, link.replica.ask(name), True)

    def _send_range(self, link: SimLink, request: RangeRequest, elsewhere: bool) -> None:
        if not link.connected or self._world.happens(0.1):
            return
        owner = self._world.machines[request.machine].link
        if owner is not None and owner.connected:
            own = owner.new_token()
            owner.arrivals[own] = (link, 0)
            self.step(owner, RangeAsked(token=own, request=request, end=owner.machine.files.store.last_seq))
            return
        for name in self._world.replicas:
            other = self._world.machines[name].link
            if elsewhere and other is not None and other is not link and other.connected and name != request.machine:
                answer = self._range_of_replica(other, request)
                origin = other.machine.files.replica.rows.get((request.machine, answer.incarnation), {})
                told = (link, request.machine, answer, dict(origin))
                self._world.pending.append((link, self._range_answered, told))

    def _range_of_replica(self, link: SimLink, request: RangeRequest) -> RangeAnswer:
        files = link.machine.files.replica
        head = link.replica.head(request.machine)
        key = (request.machine, head.incarnation)
        prev = ReplicaHead(machine=request.machine, incarnation=head.incarnation)
        if request.incarnation == head.incarnation and request.after != START:
            if request.after not in files.marks.get(key, []):
                return RangeAnswer()
            prev = ReplicaHead(machine=request.machine, incarnation=head.incarnation, mark=request.after)
        marks = [mark for mark in files.marks.get(key, []) if mark.seq > prev.mark.seq]
        rows = [LogRow(seq, data) for seq, data in files.rows.get(key, {}).items() if seq > prev.mark.seq]
        batches = batches_after(prev, 1, marks, rows, complete=True)
        return RangeAnswer(incarnation=head.incarnation, batches=tuple(encode_batch(batch) for batch in batches))

    def _range_answered(self, link: SimLink, machine: str, answer: RangeAnswer, origin: dict[int, bytes]) -> None:
        heard = link.replica.hear(machine, answer.incarnation)
        if heard is not None:
            link.machine.files.replica.commit(heard)
        if answer.restart:
            link.machine.files.replica.restart(link.replica.restart(machine))
            self._world.pending.append((link, self._send_range, (link, link.replica.ask(machine), True)))
        for body in answer.batches:
            if not self._take(link, decode_batch(body), origin):
                break
