"""A fleet in one process, without a clock or a network: machines, hosts, links, replicas, an engine, and accidents.

Everything that waits to happen lies in one list, and each step takes any of it: so messages are reordered, and a link
can die between any two effects. The seed decides all. `Witness` (invariants.py) sees what happens and judges.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from synapse.core.message import TextPart
from synapse.core.store import RELAYED_DAYS
from synapse.fleet.asks import SendBody, encode_send_body, part_bodies
from synapse.fleet.log import (
    EngineLost,
    IncarnationTaken,
    LogGrew,
    Replica,
    Shipper,
)
from synapse.fleet.relay import Relay
from synapse.fleet.relay_io import (
    LONGEST_EXPIRY,
    Acknowledge,
    Announce,
    Answer,
    Arrived,
    AskHost,
    Connected,
    Disconnected,
    Effect,
    Event,
    HostAnswered,
    HostOutcome,
    HostUnknown,
    KeepMail,
    MailKept,
    Notify,
    PeerAnswered,
    PeerSeen,
    Postpone,
    Recalled,
    Report,
    RequestPeer,
    Store,
    Stored,
    Submitted,
    Tailed,
    Tick,
    WakeAt,
    Way,
)
from tests.fleet.simulation.accidents import Accidents
from tests.fleet.simulation.engine import Engine, Mail
from tests.fleet.simulation.hosts import Hosts
from tests.fleet.simulation.invariants import Broken, Witness
from tests.fleet.simulation.machine import TARGETS, Machine, SimLink
from tests.fleet.simulation.shipping import Shipping

NAMES: tuple[str, ...] = ("a", "b", "c")
DAY = 24 * 3600.0
KEEP_CLAIMS = RELAYED_DAYS * DAY
KEEP_MAIL = 7 * DAY
CHAOS_STEPS = 450
DRAIN_STEPS = 12_000
TURNS = 20
SCENE_EVERY = 20
"""Each scene begins one run in so many."""


class World:
    """One run. `run` raises Broken if an invariant does not hold."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.witness = Witness()
        self.now = 1_000_000.0
        self.engine = Engine()
        self.scene = seed % SCENE_EVERY
        self.chaos_steps = CHAOS_STEPS
        self.names = NAMES[: self.random.choice((2, 2, 3))]
        self.targets = self.random.choice(TARGETS)
        self.machines = {name: Machine(name, self.random) for name in self.names}
        self.pending: list[tuple[SimLink | None, Callable[..., None], tuple[Any, ...]]] = []
        self.is_calm = False
        self.salt = 0
        self.wire: list[tuple[str, str, bytes]] = []
        """What was sent of late: by whom, to whom, and what."""
        self.counts = {"crashes": 0, "lost": 0, "restores": 0, "messages": 0, "wipes": 0}
        self.with_long_pauses = self.random.random() < 0.1
        self.is_mail_slow = self.random.random() < 0.4
        self.beats = self.random.choice((0.1, 0.7))
        self.batch_rows = self.random.choice((1, 1, 3))
        self.ships_log = self.random.random() < 0.6
        self.replicas = self.names[1:]
        self.hosts = Hosts(self)
        self.shipping = Shipping(self)
        self.accidents = Accidents(self)
        self.acts: dict[type[Any], Callable[..., None]] = {
            RequestPeer: self._request,
            KeepMail: self._keep_mail,
            Acknowledge: self._acknowledge,
            Postpone: self._postpone,
            Answer: self._answer,
            Report: self._report,
            AskHost: self._ask_host,
            Announce: self._announce,
        }

    def run(self) -> None:
        for machine in self.machines.values():
            self.start(machine)
            self.connect(machine)
            self.accidents.save(machine)
        scenes = (
            self._disk_comes_back,
            self._canceled_message_comes_back,
            self._name_means_one_of_two_agents,
            self._canceled_message_comes_back_alone,
            self._message_in_between_is_refused,
            self._task_is_opened_unheard,
        )
        if self.scene < len(scenes):  # not by chance: each must happen often among any seeds
            scenes[self.scene]()
        for _ in range(self.chaos_steps):
            self._chaos_step()
        if self.random.random() < 0.2:
            self._take_turns()
        self._drain()
        self.witness.judge_end(self)

    # Scenes that chance seldom makes. Accidents follow all but one of them.

    def _disk_comes_back(self) -> None:
        """A machine, and the engine's files on it, come from a backup; rows take the numbers of those that are lost."""
        self.is_calm = self.ships_log = True
        self.batch_rows = 1
        for machine in self.machines.values():  # so that all ship their logs
            self.stop(machine)
            self.start(machine)
            self.connect(machine)
        machine = self.machines["a"]
        self._write(machine, 6)
        self.accidents.save(machine)
        self._write(machine, 6)
        for other in self.machines.values():
            self.stop(other)
        self.accidents.restore_disk(machine)
        self.start(machine)
        self.connect(machine)
        self._write(machine, 3)
        for other in self.machines.values():
            if other.link is None:
                self.start(other)
            self.connect(other)
        self._write(machine, 3)
        self.is_calm = False

    def _write(self, machine: Machine, rows: int) -> None:
        """Writes rows as no other history has them, and one at the end as each has it."""
        for _ in range(rows - 1):
            machine.files.store.append(f"note {self.new_salt()}", self.new_salt())
            self.settle_down()
        machine.files.store.append("beat", self.new_salt())
        for _ in range(2):
            self.settle_down()

    def _canceled_message_comes_back(self) -> None:
        """A message was canceled, later ones were delivered, and then the sender's file is a backup with it."""
        self.is_calm = True
        sender, receiver = self.machines["a"], self.machines["b"]
        for machine in self.machines.values():
            if machine.link is not None:
                self.show(machine.link)
        self.settle_down()
        self.accidents.cut_off(receiver)
        self.submit(sender, "b", queue=True)
        self.settle_down()
        self.accidents.save(sender)
        self.empty_pending()  # no copy of the message is under way
        assert sender.link is not None
        self.give(sender.link, Recalled(token=sender.link.new_token(), message_id="m0"))
        self.empty_pending()
        self.accidents.heal(receiver)
        for _ in range(3):
            self.settle_down()
        for _ in range(2):
            self.submit(sender, "b", queue=True)
            self.settle_down()
            self.settle_down()
        self.stop(sender)
        self.witness.link_restored(sender)
        sender.files.link = sender.saved[-1].link.copy()
        self.start(sender)
        self.connect(sender)
        for _ in range(3):
            self.settle_down()
        self.is_calm = False

    def _canceled_message_comes_back_alone(self) -> None:
        """Nothing else shows that the sender's file is a backup: neither its log nor a later message."""
        self.ships_log = False
        self.chaos_steps = 0
        self._canceled_message_comes_back()

    def _name_means_one_of_two_agents(self) -> None:
        """Messages to two agents, then one to a name that may mean either. What it must not overtake was lost."""
        self.is_calm = True
        self.targets = TARGETS[-1]
        sender, receiver = self.machines["a"], self.machines["b"]
        self.accidents.cut_off(receiver)
        self.submit(sender, "b", "x@1", queue=True)
        self.empty_pending()
        self.engine.wipe()  # with the mail
        self.accidents.heal(receiver)
        self.submit(sender, "b", "x@2", queue=True)
        self.submit(sender, "b", "x", queue=True)
        self.empty_pending()
        self.settle_down()
        self.is_calm = False

    def _message_in_between_is_refused(self) -> None:
        """Messages to a name that may mean either of two agents; one of them ends here, for its machine is away.

        What follows it must not arrive before what it has waited for.
        """
        self.is_calm = True
        self.targets = TARGETS[-1]
        sender, receiver = self.machines["a"], self.machines["b"]
        assert receiver.link is not None
        self.show(receiver.link)
        self.empty_pending()
        self.submit(sender, "b", "x@1", queue=False, lasts=DAY)
        self._lose_requests()
        self.now += 4.0  # until nobody waits for its receipt any more
        self.time_passes()
        self.accidents.cut_off(receiver)
        self.submit(sender, "b", "x@2", queue=True, lasts=DAY)
        self.empty_pending()
        self.engine.wipe()  # with the mail
        for target, queue in (("x", False), ("x@2", True), ("x", True)):
            self.submit(sender, "b", target, queue=queue, lasts=DAY)
        self.empty_pending()
        self.accidents.heal(receiver)
        while self.pending and not any(act == self._reply for _, act, _ in self.pending):
            self._take_but_lose_requests(b"m1")
        self.accidents.cut_off(receiver)
        for _ in range(3):
            self.empty_pending()
            self.now += 61.0  # until mail is sent again
            self.time_passes()
        self.empty_pending()
        self.accidents.heal(receiver)
        for _ in range(3):
            self._lose_requests()
            self.deliver_mail(receiver.link)
            self.now += 11.0  # until mail comes again
        self.settle_down()
        self.is_calm = False

    def _task_is_opened_unheard(self) -> None:
        """A plain message has a task, but the link over there does not hear so from the host; then its machine is away.

        All that happens while the sender waits for an answer.
        """
        self.is_calm = True
        receiver = self.machines["b"]
        assert receiver.link is not None
        self.show(receiver.link)
        self.empty_pending()
        self.submit(self.machines["a"], "b", queue=False, lasts=DAY)
        while not any(act == self._ask_host for _, act, _ in self.pending):
            self.take_pending()
        (asked,) = (item for item in self.pending if item[1] == self._ask_host)
        self.pending.remove(asked)
        link, effect = asked[2]
        self.hosts.answer(receiver, effect.call)
        self.give(link, HostAnswered(token=effect.token, outcome=HostUnknown()))
        self.empty_pending()
        self.accidents.cut_off(receiver)
        for _ in range(3):
            self.time_passes(longest=0.3)  # until it is sent again
            self.empty_pending()
        self.accidents.heal(receiver)
        self.is_calm = False

    def _lose_requests(self) -> None:
        while self.pending:
            self._take_but_lose_requests(b"none")

    def _take_but_lose_requests(self, kept: bytes) -> None:
        """Does what is pending last, unless it is the arrival of another direct request than those with `kept`."""
        link, act, arguments = self.pending.pop()
        if (link is None or link.alive) and (act != self._deliver or kept in arguments[3]):
            act(*arguments)

    # Steps

    def _chaos_step(self) -> None:
        self.now += 0.01
        choice = self.random.random()
        if self.pending and choice < 0.72:
            self.take_pending()
        elif choice < 0.79:
            self.person_acts()
        elif choice < 0.86:
            machine = self.any_machine()
            self.hosts.work(machine)
            if machine.link is not None and self.random.random() < 0.6:
                self.read_tail(machine.link)
        elif choice < 0.90:
            self.time_passes()
        elif choice < 0.945:
            self.link_works(self.any_machine())
        else:
            self.accidents.cause()

    def take_pending(self) -> None:
        at = self.random.randrange(len(self.pending))
        self.pending[at], self.pending[-1] = self.pending[-1], self.pending[at]
        link, act, arguments = self.pending.pop()
        if link is None or link.alive:
            act(*arguments)

    def any_machine(self) -> Machine:
        return self.machines[self.random.choice(self.names)]

    def happens(self, chance: float) -> bool:
        return not self.is_calm and self.random.random() < chance

    def person_acts(self) -> None:
        machine = self.any_machine()
        link = machine.link
        if link is None:
            return
        if self.random.random() < 0.3 and self.witness.sent:
            sent = self.random.choice(list(self.witness.sent.values())[-8:])
            if sent.sender == machine.name:
                self.give(link, Recalled(token=link.new_token(), message_id=sent.message_id))
            return
        to = self.random.choice([name for name in self.names if name != machine.name])
        targets: Sequence[str] = [self.random.choice(self.targets)]
        if self.random.random() < 0.2:  # what is said to all agents belongs together
            targets = self.random.sample(self.targets, len(self.targets))
        for target in targets:
            self.submit(machine, to, target, queue=self.random.random() < 0.5)
        if self.random.random() < 0.2:  # a backup of a file with open messages
            self.pending.append((None, self.accidents.save, (machine,)))

    def submit(self, machine: Machine, to: str, target: str = "", *, queue: bool, lasts: float = 0.0) -> None:
        link = machine.link
        assert link is not None
        number = len(self.witness.sent)
        self.counts["messages"] += 1
        event = Submitted(
            token=link.new_token(),
            to=to,
            message_id=f"m{number}",
            target=target or self.random.choice(self.targets),
            task_id=f"t{number}",
            body=encode_send_body(SendBody(parts=part_bodies((TextPart(text="hello"),)), sender=f"key.{number}")),
            queue=queue,
            expires_in=lasts or self.random.choice((DAY, DAY, 5.0, LONGEST_EXPIRY)),
        )
        self.witness.submitted(machine.name, event, number)
        self.give(link, event)

    def new_salt(self) -> str:
        self.salt += 1
        return str(self.salt)

    def time_passes(self, longest: float = 3600.0) -> None:
        if self.with_long_pauses and self.happens(0.1):
            self._days_pass()
        wakes = [
            link.wake - link.machine.skew
            for link in self.links()
            if link.wake - link.machine.skew > self.now or link.wake != float("inf")
        ]
        soon = min(wakes, default=self.now + 1)
        self.now = max(self.now + 0.01, min(soon, self.now + longest))
        self._old_things_go()
        for link in self.links():
            for token in [token for token, until in link.requests.items() if until <= self.now]:
                del link.requests[token]
                self.give(link, PeerAnswered(token=token))
            if link.wake - link.machine.skew <= self.now:
                link.wake = float("inf")
                self.give(link, Tick())

    def _days_pass(self) -> None:
        self.empty_pending()  # no request, no question to a host and no commit takes days
        self.pending = [item for item in self.pending if item[1] != self._deliver]
        self.now += self.random.choice((1, 6, 16)) * DAY

    def _old_things_go(self) -> None:
        for number in [number for number, mail in self.engine.mails.items() if mail.until < self.now]:
            del self.engine.mails[number]
        for machine in self.machines.values():
            if self.happens(0.2):
                self.witness.pruned(machine.files.store.prune(self.now + machine.skew - KEEP_CLAIMS))

    def links(self) -> list[SimLink]:
        return [machine.link for machine in self.machines.values() if machine.link is not None]

    def link_works(self, machine: Machine) -> None:
        link = machine.link
        if link is None:
            return
        match self.random.randrange(4):
            case 0:
                self.read_tail(link)
            case 1:
                self.deliver_mail(link)
            case 2 if machine.name in self.replicas:
                self.shipping.ask_range(link)
            case _:
                self.deliver_mail(link)

    def _take_turns(self) -> None:
        """Ends all accidents, but lets no two machines be there at once: messages to be kept must arrive by mail."""
        self.is_calm = True
        begun = self.now
        for machine in self.machines.values():
            machine.away.clear()
            if machine.link is None:
                self.start(machine)
            self.accidents.cut_off(machine)
        for _ in range(TURNS):
            for machine in self.machines.values():
                machine.is_cut_off = False
                self.connect(machine)
                for _ in range(12):
                    self.settle_down()
                    self.deliver_mail(machine.link or self.links()[0])
                self.accidents.cut_off(machine)
                self.settle_down()
                self.now += 3600.0
        self.witness.judge_mail(self, begun)

    def settle_down(self) -> None:
        self.empty_pending()
        self._hosts_finish()
        self.time_passes(longest=30.0)

    def empty_pending(self) -> None:
        for _ in range(500):
            if not self.pending:
                break
            self.take_pending()

    def _hosts_finish(self) -> None:
        for machine in self.machines.values():
            while any(task.end is None for task in machine.files.store.tasks.values()):
                self.hosts.work(machine)
            if machine.link is not None:
                self.read_tail(machine.link)

    def _drain(self) -> None:
        """Ends all accidents; then everything must settle, and replicas must be equal, in a bounded number of steps."""
        self._bring_all_back()
        left, rechecked = DRAIN_STEPS, False
        while left > 0:
            while self.pending and left > 0:
                self.take_pending()
                left -= 1
            if self.witness.is_settled(self):
                if rechecked:
                    return
                # As links do every few minutes: what seems complete may be another history's.
                rechecked = True
                for link in self.links():
                    self.shipping.ask_all(link)
                continue
            self._hosts_finish()
            for link in self.links():
                self.deliver_mail(link)
                if link.machine.name in self.replicas:
                    self.shipping.ask_range(link)
            self.time_passes()
            left -= 20
        raise Broken(9, f"nothing settles: {self.witness.unsettled(self)}")

    def _bring_all_back(self) -> None:
        self.is_calm = True
        for machine in self.machines.values():
            machine.is_cut_off = False
            machine.away.clear()
            if machine.link is None:
                self.start(machine)
            self.connect(machine)

    # Links

    def start(self, machine: Machine) -> None:
        files = machine.files
        rows = files.link.rows()
        mark = files.store.look(rows.tail)
        relay, effects = Relay.load(self.now + machine.skew, machine.name, rows, mark, self.new_nonce)
        self.witness.started(machine.name, relay.incarnation, rows, mark)
        shipper = Shipper(machine.name, relay.incarnation, 1, files.link.chain)
        link = SimLink(machine, relay, shipper, Replica(files.replica.heads.values()))
        machine.link = link
        self.carry_out(link, effects)
        while link.stores:  # before anything else
            self._commit(link)
        link.tail = files.link.tail.seq
        self.shipping.step(link, LogGrew(seq=link.tail))

    def new_nonce(self) -> str:
        return f"{self.random.getrandbits(64):016x}"

    def stop(self, machine: Machine) -> None:
        if machine.link is not None:
            machine.link.alive = False
            machine.link = None

    def connect(self, machine: Machine) -> None:
        link = machine.link
        if link is None or link.connected or machine.is_cut_off:
            return
        link.connected = True
        for name, incarnation in self.engine.incarnations.items():
            self.give(link, PeerSeen(machine=name, incarnation=incarnation))
        self.shipping.read_engine(link)
        self.give(link, Connected())
        self.show(link)
        self.witness.connected(machine.name, link.relay.incarnation)

    def show(self, link: SimLink) -> None:
        """Puts the machine's incarnation where others see it."""
        identity = link.machine.files.link.identity
        if identity is None or not link.connected:
            return
        name, incarnation = link.machine.name, identity.incarnation
        known = self.engine.incarnations.get(name)
        if known is None or known.counter < incarnation.counter:
            self.engine.incarnations[name] = incarnation
        for other in self.links():
            if other is not link and other.connected and not self.happens(0.2):
                self.pending.append((other, self.give, (other, PeerSeen(machine=name, incarnation=incarnation))))

    def disconnect(self, machine: Machine) -> None:
        link = machine.link
        if link is not None and link.connected:
            link.connected = False
            link.connections += 1
            self.give(link, Disconnected())
            self.shipping.step(link, EngineLost())

    def give(self, link: SimLink, event: Event) -> None:
        self.carry_out(link, link.relay.step(self.now + link.machine.skew, event))

    def carry_out(self, link: SimLink, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Store):
                link.stores.append(effect)
                self.pending.append((link, self._commit, (link,)))
            elif isinstance(effect, WakeAt):
                link.wake = effect.at
            elif not isinstance(effect, Notify):
                self.pending.append((link, self.acts[type(effect)], (link, effect)))

    def _commit(self, link: SimLink) -> None:
        if not link.stores:
            return
        store = link.stores.popleft()
        link.machine.files.link.commit(store.writes)
        self.witness.committed(self, link.machine, store.writes)
        self.give(link, Stored(token=store.token))

    # Effects

    def _request(self, link: SimLink, effect: RequestPeer) -> None:
        link.requests[effect.token] = self.now + 3.0
        if not link.connected or self.happens(0.07):
            return
        self.wire = [*self.wire[-20:], (link.machine.name, effect.machine, effect.body)]
        other = self.machines[effect.machine].link if effect.machine in self.machines else None
        if other is None or not other.connected:
            if not self.happens(0.1):
                del link.requests[effect.token]
                self.pending.append((link, self.give, (link, PeerAnswered(token=effect.token, nobody=True))))
            return
        for _ in range(2 if self.happens(0.05) else 1):
            self.pending.append((other, self._deliver, (other, link, effect.token, effect.body)))

    def _deliver(self, link: SimLink, sender: SimLink, token: int, body: bytes) -> None:
        if not link.connected:
            return
        own = link.new_token()
        link.arrivals[own] = (sender, token)
        self.give(link, Arrived(token=own, way=Way.RELAY, machine=sender.machine.name, body=body))

    def _answer(self, link: SimLink, effect: Answer) -> None:
        sender, token = link.arrivals.pop(effect.token)
        if sender is None or not (link.connected and sender.connected) or self.happens(0.07):
            return
        self.pending.append((sender, self._reply, (sender, token, effect.body)))

    def _reply(self, link: SimLink, token: int, body: bytes) -> None:
        if link.requests.pop(token, None) is not None:
            self.give(link, PeerAnswered(token=token, reply=body))

    def _keep_mail(self, link: SimLink, effect: KeepMail) -> None:
        kept = link.connected and not self.happens(0.06)
        if link.connected and (kept or self.happens(0.5)):
            lasts = KEEP_MAIL if effect.ttl is None else max(1.0, effect.ttl)
            mail = Mail(effect.machine, link.machine.name, effect.body, self.now + lasts)
            self.engine.keep(mail, effect.once)
        self.pending.append((link, self.give, (link, MailKept(token=effect.token, kept=kept))))

    def deliver_mail(self, link: SimLink) -> None:
        if not link.connected or (self.is_mail_slow and self.happens(0.8)):
            return
        ready = [
            number
            for number, mail in self.engine.mails.items()
            if mail.to == link.machine.name and mail.not_before <= self.now
        ]
        if not ready:
            return
        for number in ready if self.is_calm else [self.random.choice(ready)]:
            mail = self.engine.mails[number]
            if not self.happens(0.1):
                mail.not_before = self.now + 10.0  # until then its acknowledgement may come
            own = link.new_token()
            link.arrivals[own] = (None, number)
            self.give(link, Arrived(token=own, way=Way.MAIL, machine=mail.sender, body=mail.body))

    def _acknowledge(self, link: SimLink, effect: Acknowledge) -> None:
        _, number = link.arrivals.pop(effect.token)
        if link.connected and not self.happens(0.1):
            self.engine.mails.pop(number, None)

    def _postpone(self, link: SimLink, effect: Postpone) -> None:
        _, number = link.arrivals.pop(effect.token)
        if number in self.engine.mails:
            self.engine.mails[number].not_before = self.now + effect.seconds

    def _report(self, link: SimLink, effect: Report) -> None:
        if effect.row is not None:
            self.witness.reported(link.machine.name, effect.row)

    def _announce(self, link: SimLink, effect: Announce) -> None:
        self.witness.renewed(link.machine.name, effect.why)
        self.shipping.step(link, IncarnationTaken(incarnation=effect.incarnation))
        self.show(link)

    # Hosts

    def _ask_host(self, link: SimLink, effect: AskHost) -> None:
        outcome: HostOutcome = HostUnknown()
        if not self.happens(0.03):
            outcome = self.hosts.answer(link.machine, effect.call)
        if self.happens(0.06):
            outcome = HostUnknown()
        self.pending.append((link, self.give, (link, HostAnswered(token=effect.token, outcome=outcome))))

    def read_tail(self, link: SimLink) -> None:
        files = link.machine.files
        if link.tail >= files.store.last_seq:
            return
        up_to = self.random.randint(link.tail + 1, files.store.last_seq) if not self.is_calm else files.store.last_seq
        ended = files.store.ended(link.tail, up_to)
        link.tail = up_to
        # The commit of the position is what the shipper waits for.
        effects = link.relay.step(
            self.now + link.machine.skew, Tailed(seq=up_to, mark=files.store.mark(up_to), ended=ended)
        )
        self.carry_out(link, effects)
        self.pending.append((link, self._tail_committed, (link, up_to)))

    def _tail_committed(self, link: SimLink, seq: int) -> None:
        if link.machine.files.link.tail.seq < seq:
            self.pending.append((link, self._tail_committed, (link, seq)))
        else:
            self.shipping.step(link, LogGrew(seq=seq))
