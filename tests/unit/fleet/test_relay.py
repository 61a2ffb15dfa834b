"""The relay of one machine, step by step: what it stores, says, asks and refuses."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any, TypeVar

import msgspec
import pytest

from synapse.core.caller import GATEWAY_SCOPE
from synapse.core.message import TextPart
from synapse.fleet.asks import SendBody, decode_send_body, encode_send_body, part_bodies
from synapse.fleet.incoming import LEAST_WEIGHT, MOST_IN_WORK
from synapse.fleet.relay import Relay
from synapse.fleet.relay_io import (
    DEFAULT_LIMITS,
    Acknowledge,
    Announce,
    Answer,
    Arrived,
    AskHost,
    Connected,
    Disconnected,
    Effect,
    EndedTask,
    Event,
    FindTask,
    HandledRow,
    HostAbsent,
    HostAccepted,
    HostAnswered,
    HostOutcome,
    HostRefused,
    HostTold,
    HostUnknown,
    HostVoided,
    Identity,
    KeepMail,
    LinkRows,
    MailKept,
    OpenTask,
    OutboxLimits,
    OutboxRow,
    OutboxState,
    Outdated,
    PeerAnswered,
    PeerRow,
    PeerSeen,
    Postpone,
    Recalled,
    Report,
    RequestPeer,
    Store,
    Stored,
    StoreMark,
    Submitted,
    Tailed,
    TailRow,
    TellEnd,
    Tick,
    WakeAt,
    Way,
)
from synapse.fleet.wire import (
    NO_INCARNATION,
    End,
    FindMessage,
    Found,
    Incarnation,
    MessageKind,
    Outcome,
    Problem,
    Receipt,
    RelayedMessage,
    decode_relay,
    encode_relay,
)

US = Incarnation(1, "us")
THEM = Incarnation(4, "them")
DAY = 24 * 3600.0
E = TypeVar("E")


class Shell:
    """Commits every Store at once, and remembers the other effects and all writes."""

    def __init__(
        self,
        rows: LinkRows | None = None,
        mark: StoreMark | None = None,
        limits: OutboxLimits = DEFAULT_LIMITS,
    ) -> None:
        nonces = count()
        self.now = 100.0
        self.writes: list[Any] = []
        self.effects: list[Effect] = []
        rows = rows or LinkRows(
            identity=Identity(incarnation=US, store_id="s"), peers=(PeerRow(machine="box2", incarnation=THEM),)
        )
        mark = mark or StoreMark(store_id="s", last_seq=9, mark="")
        self.relay, effects = Relay.load(self.now, "laptop", rows, mark, lambda: f"nonce{next(nonces)}", limits)
        self._carry_out(effects)

    def give(self, event: Event) -> None:
        self._carry_out(self.relay.step(self.now, event))

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Store):
                self.writes += effect.writes
                self.give(Stored(token=effect.token))
            else:
                self.effects.append(effect)

    def take(self, kind: type[E]) -> E:
        """Returns the one effect of a kind, and forgets it."""
        (found,) = [effect for effect in self.effects if isinstance(effect, kind)]
        self.effects = [effect for effect in self.effects if effect is not found]
        return found

    def has(self, kind: type[Effect]) -> bool:
        return any(isinstance(effect, kind) for effect in self.effects)

    def row(self, message_id: str) -> OutboxRow:
        return [write for write in self.writes if isinstance(write, OutboxRow) and write.message_id == message_id][-1]

    def submit(
        self,
        *,
        queue: bool = False,
        message_id: str = "m",
        target: str = "codex",
        to: str = "box2",
        body: bytes = b"{}",
        expires_in: float = DAY,
    ) -> None:
        event = Submitted(
            token=1,
            to=to,
            message_id=message_id,
            target=target,
            task_id="t",
            body=body,
            queue=queue,
            expires_in=expires_in,
        )
        self.give(event)

    def requested(self) -> dict[str, RelayedMessage]:
        """Returns the copies that were sent by direct requests, by their message ids, and forgets them."""
        sent = [decode_relay(effect.body) for effect in self.effects if isinstance(effect, RequestPeer)]
        self.effects = [effect for effect in self.effects if not isinstance(effect, RequestPeer)]
        return {one.message_id: one for one in sent if isinstance(one, RelayedMessage)}

    def receive(self, message: RelayedMessage, way: Way = Way.RELAY, machine: str = "box2") -> None:
        self.give(Arrived(token=50, way=way, machine=machine, body=encode_relay(message)))

    def host(self, outcome: HostOutcome) -> None:
        self.give(HostAnswered(token=self.take(AskHost).token, outcome=outcome))

    def answer(self) -> Receipt:
        receipt = decode_relay(self.take(Answer).body)
        assert isinstance(receipt, Receipt)
        return receipt


def connected() -> Shell:
    shell = Shell()
    shell.give(Connected())
    return shell


def connected_with(limits: OutboxLimits) -> Shell:
    shell = Shell(limits=limits)
    shell.give(Connected())
    return shell


def message(n: int = 1, **fields: Any) -> RelayedMessage:
    told: dict[str, Any] = {
        "kind": MessageKind.SEND,
        "message_id": f"theirs-{n}",
        "peer": US,
        "target": "claude",
        "task_id": f"t{n}",
    }
    return RelayedMessage(incarnation=THEM, n=n, **(told | fields))


def receipt_for(request: RequestPeer, outcome: Outcome, **fields: Any) -> bytes:
    sent = decode_relay(request.body)
    assert isinstance(sent, RelayedMessage)
    told: dict[str, Any] = {
        "incarnation": sent.incarnation,
        "n": sent.n,
        "message_id": sent.message_id,
        "peer": sent.peer,
        "by": THEM,
    }
    return encode_relay(Receipt(**(told | fields), outcome=outcome))


# Sending


def test_a_message_leaves_the_machine_only_after_its_row_is_committed() -> None:
    shell = connected()

    effects = shell.relay.step(100.0, Submitted(token=1, to="box2", message_id="m", target="x", task_id="t", body=b""))

    (store,) = [effect for effect in effects if isinstance(effect, Store)]
    assert not any(isinstance(effect, RequestPeer) for effect in effects)
    assert any(isinstance(effect, RequestPeer) for effect in shell.relay.step(100.0, Stored(token=store.token)))


def test_an_accepted_message_is_reported_and_settled_by_its_end() -> None:
    shell = connected()
    shell.submit()

    request = shell.take(RequestPeer)
    shell.give(PeerAnswered(token=request.token, reply=receipt_for(request, Outcome.ACCEPTED, task_id="t")))
    reported = shell.take(Report).row
    assert reported is not None
    assert reported.state is OutboxState.ACCEPTED

    shell.receive(message(kind=MessageKind.ENDED, message_id="ended-t", ends="m", end=End(state="completed")))
    assert shell.answer().outcome is Outcome.DONE
    assert shell.row("m").state is OutboxState.SETTLED

    shell.host(HostTold())
    assert shell.row("m").is_finished


def test_a_name_waits_for_all_agents_it_may_mean_also_behind_a_message_that_may_end_here() -> None:
    shell = connected()
    shell.submit(message_id="m1", target="codex@/one")
    shell.submit(message_id="m2", target="codex@/two", queue=True)
    shell.submit(message_id="m3", target="codex")
    shell.submit(message_id="m4", target="codex@/two", queue=True)

    shell.submit(message_id="m5", target="codex", queue=True)

    # It could name m4 alone, and m4 would be done when m3 is refused here, though m1 is still open.
    assert shell.requested().keys() == {"m1", "m2", "m4"}


def test_large_messages_to_one_machine_go_one_after_another() -> None:
    shell = connected()
    for number in range(3):
        shell.submit(message_id=f"m{number}", target=f"agent{number}", body=b"x" * 700_000)
    shell.submit(message_id="other", to="box3", body=b"x" * 700_000)

    to_box2, to_box3 = [effect for effect in shell.effects if isinstance(effect, RequestPeer)]
    assert (to_box2.machine, to_box3.machine) == ("box2", "box3")
    shell.requested()
    shell.now += 1.0
    shell.give(Tick())
    assert shell.requested() == {}

    shell.give(PeerAnswered(token=to_box2.token, reply=receipt_for(to_box2, Outcome.ACCEPTED, task_id="t")))
    shell.now += 1.0
    shell.give(Tick())

    assert shell.requested().keys() == {"m1"}


def test_large_answers_to_one_machine_go_one_after_another() -> None:
    shell = connected()
    end = End(state="completed", answer=b"x" * 400_000)
    ended = tuple(EndedTask(task_id=f"t{n}", machine="box2", message_id=f"theirs-{n}", end=end) for n in range(4))
    shell.give(Tailed(seq=1, mark="", ended=ended))

    first, _ = [effect for effect in shell.effects if isinstance(effect, RequestPeer)]
    assert shell.requested().keys() == {"ended-t0.theirs-0", "ended-t1.theirs-1"}

    shell.give(PeerAnswered(token=first.token, reply=receipt_for(first, Outcome.DONE)))
    shell.now += 1.0
    shell.give(Tick())

    assert shell.requested().keys() == {"ended-t2.theirs-2"}


def test_a_plain_message_to_a_machine_that_is_away_is_refused() -> None:
    shell = connected()
    shell.submit()

    shell.give(PeerAnswered(token=shell.take(RequestPeer).token, nobody=True))

    row = shell.take(Report).row
    assert row is not None
    assert row.state is OutboxState.REFUSED
    assert msgspec.json.decode(row.error)["code"] == "machine_away"


def test_a_plain_message_without_a_connection_is_refused_and_nobody_is_called_away() -> None:
    shell = connected()
    shell.give(Disconnected())

    shell.submit()

    row = shell.take(Report).row
    assert row is not None
    assert row.state is OutboxState.REFUSED
    assert msgspec.json.decode(row.error)["code"] == "link_down"
    assert not shell.has(RequestPeer)


def test_a_plain_message_is_not_refused_once_a_copy_may_have_arrived() -> None:
    shell = connected()
    shell.submit()
    shell.give(PeerAnswered(token=shell.take(RequestPeer).token))
    assert shell.has(Report)

    shell.now += 40
    shell.give(Tick())
    shell.give(PeerAnswered(token=shell.take(RequestPeer).token, nobody=True))

    assert shell.row("m").state is OutboxState.OPEN


def test_a_plain_message_is_not_refused_once_its_sender_was_told_that_it_is_kept() -> None:
    shell = connected()
    shell.submit()
    slow = shell.take(RequestPeer)
    shell.now += 5
    shell.give(Tick())
    told = shell.take(Report).row
    assert told is not None
    assert told.state is OutboxState.OPEN

    shell.give(PeerAnswered(token=slow.token, nobody=True))

    assert shell.row("m").state is OutboxState.OPEN
    shell.now += 1
    shell.give(Tick())
    assert shell.requested().keys() == {"m"}


def test_a_plain_message_that_has_waited_behind_a_large_one_is_not_refused() -> None:
    shell = connected()
    shell.submit(message_id="large", target="codex", body=b"x" * 700_000)
    large = shell.take(RequestPeer)
    shell.submit(message_id="m", target="claude")
    shell.now += 5
    shell.give(Tick())
    assert [effect.row and effect.row.state for effect in shell.effects if isinstance(effect, Report)] == ["open"] * 2
    shell.give(PeerAnswered(token=large.token, nobody=True))
    shell.now += 0.25
    shell.give(Tick())

    shell.give(PeerAnswered(token=shell.take(RequestPeer).token, nobody=True))

    assert [shell.row(one).state for one in ("large", "m")] == [OutboxState.OPEN] * 2


def test_a_caller_that_repeats_its_message_is_told_what_the_first_one_is_told() -> None:
    shell = connected()
    shell.submit()
    shell.submit()
    request = shell.take(RequestPeer)
    assert not shell.has(Report)

    shell.give(PeerAnswered(token=request.token, nobody=True))

    reports = [effect.row for effect in shell.effects if isinstance(effect, Report)]
    assert [row and row.state for row in reports] == [OutboxState.REFUSED] * 2


def test_a_message_to_be_kept_goes_by_mail_and_the_engine_closes_nothing() -> None:
    shell = connected()
    shell.submit(queue=True)

    shell.give(PeerAnswered(token=shell.take(RequestPeer).token, nobody=True))
    shell.give(MailKept(token=shell.take(KeepMail).token, kept=True))

    assert shell.row("m").state is OutboxState.OPEN


def test_a_message_in_the_mail_goes_away_when_it_expires() -> None:
    shell = connected()
    shell.submit(queue=True, expires_in=50.0)
    shell.now += 20

    shell.give(PeerAnswered(token=shell.take(RequestPeer).token, nobody=True))

    assert shell.take(KeepMail).ttl == 30.0


def test_a_cancel_in_the_mail_does_not_expire() -> None:
    shell = connected()
    shell.submit(queue=True, expires_in=50.0)
    shell.give(PeerAnswered(token=shell.take(RequestPeer).token, nobody=True))
    shell.take(KeepMail)

    shell.give(Recalled(token=90, message_id="m"))
    shell.give(PeerAnswered(token=shell.take(RequestPeer).token, nobody=True))

    assert shell.take(KeepMail).ttl is None


def test_the_cancel_of_a_message_that_was_not_to_be_kept_goes_by_mail_and_the_message_does_not() -> None:
    shell = connected()
    shell.submit()
    shell.give(PeerAnswered(token=shell.take(RequestPeer).token))
    shell.now += 40
    shell.give(Tick())
    shell.give(PeerAnswered(token=shell.take(RequestPeer).token, nobody=True))
    assert not shell.has(KeepMail)

    shell.give(Recalled(token=2, message_id="m"))
    shell.give(PeerAnswered(token=shell.take(RequestPeer).token, nobody=True))

    kept = decode_relay(shell.take(KeepMail).body)
    assert isinstance(kept, RelayedMessage)
    assert kept.kind == MessageKind.VOID


def test_copies_in_the_mail_have_different_ids() -> None:
    shell = connected()
    shell.submit(queue=True)
    ids: list[str] = []
    for _ in range(2):
        shell.give(PeerAnswered(token=shell.take(RequestPeer).token, nobody=True))
        mail = shell.take(KeepMail)
        ids.append(mail.once)
        shell.give(MailKept(token=mail.token, kept=False))
        shell.now += 40
        shell.give(Tick())

    assert len(set(ids)) == 2


def test_without_a_connection_a_plain_message_is_refused_and_one_to_be_kept_stays() -> None:
    shell = Shell()

    shell.submit(message_id="plain")
    plain = shell.take(Report).row
    shell.submit(message_id="kept", queue=True)
    kept = shell.take(Report).row

    assert plain is not None
    assert plain.state is OutboxState.REFUSED
    assert kept is not None
    assert kept.state is OutboxState.OPEN


def reported(shell: Shell, message_id: str, **fields: Any) -> tuple[OutboxState, str]:
    """Returns what a message to be kept is told: its state, and the code of its refusal."""
    shell.submit(message_id=message_id, queue=True, **fields)
    row = shell.take(Report).row
    assert row is not None
    return row.state, msgspec.json.decode(row.error)["code"] if row.error else ""


def test_a_machine_for_which_enough_messages_wait_gets_no_more_and_others_do() -> None:
    shell = Shell(limits=OutboxLimits(messages=2))
    assert [reported(shell, one) for one in ("m1", "m2")] == [(OutboxState.OPEN, "")] * 2
    written = len(shell.writes)

    refused = reported(shell, "m3")

    assert refused == (OutboxState.REFUSED, "queue_full")
    assert len(shell.writes) == written
    assert reported(shell, "m1") == (OutboxState.OPEN, "")
    assert reported(shell, "m4", to="box3") == (OutboxState.OPEN, "")
    load = shell.relay.outbox_load
    assert (load.most, load.machine, load.held_bytes) == (2, "box2", 6)


def test_a_message_taken_back_counts_until_the_other_machine_confirms_it() -> None:
    shell = connected_with(OutboxLimits(messages=1))
    shell.submit(queue=True)
    shell.give(PeerAnswered(token=shell.take(RequestPeer).token))
    shell.take(Report)
    shell.give(Recalled(token=2, message_id="m"))
    shell.take(Report)
    assert reported(shell, "m2") == (OutboxState.REFUSED, "queue_full")

    request = shell.take(RequestPeer)
    end = End(state="canceled")
    shell.give(PeerAnswered(token=request.token, reply=receipt_for(request, Outcome.VOID, end=end)))

    shell.submit(message_id="m2", queue=True)
    assert shell.row("m2").state is OutboxState.OPEN


def test_ends_of_tasks_have_room_in_a_full_outbox_and_take_none_from_messages() -> None:
    shell = Shell(limits=OutboxLimits(messages=1))
    ends = tuple(
        EndedTask(task_id=f"t{n}", machine="box2", message_id=f"theirs-{n}", end=End(state="completed")) for n in (1, 2)
    )
    shell.give(Tailed(seq=1, mark="", ended=ends))

    assert reported(shell, "m1") == (OutboxState.OPEN, "")
    assert reported(shell, "m2") == (OutboxState.REFUSED, "queue_full")
    shell.give(Tailed(seq=2, mark="", ended=(replace(ends[0], task_id="t3"),)))
    assert shell.row("ended-t3.theirs-1").state is OutboxState.OPEN


def test_each_message_of_a_task_that_has_ended_is_told_its_end() -> None:
    shell = connected()
    end = EndedTask(task_id="t", machine="box2", message_id="theirs-1", end=End(state="completed"))

    for _ in range(2):
        shell.give(Tailed(seq=1, mark="", ended=(end, replace(end, message_id="theirs-2"))))

    assert sorted(one.ends for one in shell.requested().values()) == ["theirs-1", "theirs-2"]


def test_the_end_of_a_task_names_who_waits_for_it() -> None:
    shell = connected()
    end = EndedTask(task_id="t", machine="box2", message_id="theirs-1", end=End(state="completed"), waiter=b"me")

    shell.give(Tailed(seq=1, mark="", ended=(end,)))

    [sent] = shell.requested().values()
    assert sent.body == end.waiter


def test_the_end_of_a_task_takes_no_bytes_from_messages() -> None:
    shell = Shell(limits=OutboxLimits(total_bytes=100))
    end = EndedTask(task_id="t", machine="box2", message_id="theirs-1", end=End(state="completed"), waiter=b"x" * 99)

    shell.give(Tailed(seq=1, mark="", ended=(end,)))

    assert reported(shell, "m1") == (OutboxState.OPEN, "")


def test_a_message_tells_how_long_it_has_until_it_expires() -> None:
    shell = connected()
    shell.submit(queue=True, expires_in=60.0)
    request = shell.take(RequestPeer)
    shell.give(PeerAnswered(token=request.token, nobody=True))
    shell.now += 55.0

    shell.give(PeerSeen(machine="box2", incarnation=THEM))

    [sent] = shell.requested().values()
    assert sent.expires_in == 5.0


def test_messages_whose_tasks_have_not_ended_hold_no_more_bytes_than_they_may() -> None:
    shell = connected_with(OutboxLimits(total_bytes=100))
    shell.submit(body=b"x" * 60)
    request = shell.take(RequestPeer)
    shell.give(PeerAnswered(token=request.token, reply=receipt_for(request, Outcome.ACCEPTED, task_id="t")))
    shell.take(Report)

    assert reported(shell, "m2", body=b"y" * 41, to="box3") == (OutboxState.REFUSED, "quota_exceeded")

    shell.receive(message(kind=MessageKind.ENDED, message_id="ended-t", ends="m", end=End(state="completed")))
    shell.answer()
    shell.host(HostTold())
    assert shell.relay.outbox_load.held_bytes == 0
    shell.submit(message_id="m2", queue=True, body=b"y" * 41)
    assert shell.row("m2").state is OutboxState.OPEN


def test_a_restart_counts_the_messages_in_the_file() -> None:
    first = Shell()
    first.submit(message_id="m1", queue=True)
    identity = Identity(incarnation=US, store_id="s")
    rows = LinkRows(identity=identity, outbox=(first.row("m1"),), peers=(PeerRow(machine="box2", next_n=2),))

    again = Shell(rows, limits=OutboxLimits(messages=1))

    assert again.relay.outbox_load.held_bytes == 2
    assert reported(again, "m1") == (OutboxState.OPEN, "")
    assert reported(again, "m2") == (OutboxState.REFUSED, "queue_full")


def test_without_a_quota_any_number_of_bytes_has_room() -> None:
    shell = Shell(limits=OutboxLimits(total_bytes=0))

    assert reported(shell, "m1", body=b"x" * 10_000) == (OutboxState.OPEN, "")


def test_a_message_id_that_is_in_the_outbox_is_not_sent_twice() -> None:
    shell = connected()
    shell.submit()
    shell.give(PeerAnswered(token=shell.take(RequestPeer).token))
    shell.take(Report)

    shell.submit()

    assert not shell.has(RequestPeer)
    assert shell.has(Report)


def test_a_second_message_to_the_same_agent_names_the_first_as_its_predecessor() -> None:
    shell = connected()
    shell.submit(message_id="first")
    shell.take(RequestPeer)

    shell.submit(message_id="second")

    sent = decode_relay(shell.take(RequestPeer).body)
    assert isinstance(sent, RelayedMessage)
    assert (sent.n, sent.prev, sent.floor) == (2, 1, 1)


def test_agents_of_one_profile_in_two_folders_do_not_wait_for_each_other() -> None:
    shell = connected()
    for message_id, target in (("a", "codex@/a"), ("b", "codex@/b"), ("any", "codex"), ("a2", "codex@/a")):
        shell.submit(message_id=message_id, target=target)

    sent = shell.requested()

    assert {one: sent[one].prev for one in sent} == {"a": 0, "b": 0, "a2": 3}


@pytest.mark.parametrize(("first", "prev"), [("a", 2), ("b", 1)])
def test_a_name_without_a_folder_goes_when_it_follows_the_messages_of_one_agent(first: str, prev: int) -> None:
    shell = connected()
    shell.submit(message_id="a", target="codex@/a")
    shell.submit(message_id="b", target="codex@/b")
    shell.submit(message_id="any", target="codex")
    shell.submit(message_id="any2", target="codex")
    requests = [effect for effect in shell.effects if isinstance(effect, RequestPeer)]
    assert {one: sent.prev for one, sent in shell.requested().items()} == {"a": 0, "b": 0}

    request = requests["ab".index(first)]
    shell.give(PeerAnswered(token=request.token, reply=receipt_for(request, Outcome.ACCEPTED, task_id="t")))

    (request,) = [effect for effect in shell.effects if isinstance(effect, RequestPeer)]
    assert {one: sent.prev for one, sent in shell.requested().items()} == {"any": prev}
    shell.give(PeerAnswered(token=request.token, reply=receipt_for(request, Outcome.ACCEPTED, task_id="t")))

    assert {one: sent.prev for one, sent in shell.requested().items()} == {"any2": prev}


def test_a_name_without_a_folder_goes_by_mail_when_it_follows_the_messages_of_one_agent() -> None:
    shell = connected()
    shell.submit(message_id="a", target="codex@/a", queue=True)
    shell.submit(message_id="b", target="codex@/b", queue=True)
    shell.submit(message_id="any", target="codex", queue=True)
    shell.give(Recalled(token=2, message_id="any"))
    requests = [effect for effect in shell.effects if isinstance(effect, RequestPeer)]
    assert list(shell.requested()) == ["a", "b"]

    receipt = receipt_for(requests[0], Outcome.ACCEPTED, task_id="t")
    shell.give(Arrived(token=7, way=Way.MAIL, machine="box2", body=receipt))

    request = shell.take(RequestPeer)
    sent = decode_relay(request.body)
    assert isinstance(sent, RelayedMessage)
    assert (sent.kind, sent.prev) == (MessageKind.VOID, 2)
    shell.give(PeerAnswered(token=request.token, nobody=True))
    assert shell.has(KeepMail)


def test_the_next_message_to_each_agent_goes_when_the_one_they_waited_for_is_accepted() -> None:
    shell = connected()
    shell.submit(message_id="any", target="codex")
    first = shell.take(RequestPeer)
    later = [("a", "codex@/a"), ("x", "claude@/a"), ("b", "codex@/b"), ("a2", "codex@/a")]
    for message_id, target in later:
        shell.submit(message_id=message_id, target=target)
        request = shell.take(RequestPeer)
        shell.give(PeerAnswered(token=request.token, reply=receipt_for(request, Outcome.LATER)))

    shell.give(PeerAnswered(token=first.token, reply=receipt_for(first, Outcome.ACCEPTED, task_id="t")))
    shell.give(Tick())

    assert {one: sent.prev for one, sent in shell.requested().items()} == {"a": 0, "b": 0}


def test_a_recalled_message_becomes_a_cancel_with_the_same_number() -> None:
    shell = connected()
    shell.submit()
    shell.take(RequestPeer)

    shell.give(Recalled(token=2, message_id="m"))

    sent = decode_relay(shell.take(RequestPeer).body)
    assert isinstance(sent, RelayedMessage)
    assert (sent.kind, sent.n, sent.message_id) == (MessageKind.VOID, 1, "m")


def test_the_cancel_of_a_message_says_who_sent_it_and_none_of_its_text() -> None:
    body = SendBody(
        parts=part_bodies((TextPart(text="a secret"),)),
        sender="key.k4",
        context_id="c-1",
        message_metadata={"a": "secret"},
        metadata={GATEWAY_SCOPE: "key:4", "b": "secret"},
    )
    shell = connected()
    shell.submit(body=encode_send_body(body))
    shell.take(RequestPeer)

    shell.give(Recalled(token=2, message_id="m"))

    sent = decode_relay(shell.take(RequestPeer).body)
    assert isinstance(sent, RelayedMessage)
    assert decode_send_body(sent.body) == SendBody(
        parts=(), sender="key.k4", context_id="c-1", metadata={GATEWAY_SCOPE: "key:4"}
    )
    assert b"secret" in shell.row("m").body


def test_a_message_that_nobody_accepts_expires_by_the_clock_of_its_sender() -> None:
    shell = connected()
    shell.submit()
    shell.give(PeerAnswered(token=shell.take(RequestPeer).token))

    shell.now += DAY + 1
    shell.give(Tick())

    assert shell.row("m").kind == MessageKind.VOID
    assert shell.row("m").why == "expired"


def test_a_cancel_that_nobody_confirms_is_uncertain_after_eight_days() -> None:
    shell = connected()
    shell.submit()
    shell.give(Recalled(token=2, message_id="m"))

    shell.now += 9 * DAY
    shell.give(Tick())

    assert shell.row("m").state is OutboxState.UNCERTAIN


@pytest.mark.parametrize("outcome", [Outcome.FORK, Outcome.BELOW, Outcome.STALE])
def test_a_receipt_that_proves_a_backup_numbers_open_messages_anew(outcome: Outcome) -> None:
    shell = connected()
    shell.submit()
    request = shell.take(RequestPeer)

    shell.give(PeerAnswered(token=request.token, reply=receipt_for(request, outcome, counter=6)))

    assert shell.take(Announce).incarnation.counter == 7
    sent = decode_relay(shell.take(RequestPeer).body)
    assert isinstance(sent, RelayedMessage)
    assert (sent.incarnation.counter, sent.message_id) == (7, "m")


def contradict(shell: Shell, outcome: Outcome = Outcome.FORK) -> Incarnation:
    """Lets the machine of the one copy that is on its way say that our file is a backup; returns our incarnation."""
    request = shell.take(RequestPeer)
    shell.give(PeerAnswered(token=request.token, reply=receipt_for(request, outcome)))
    return shell.relay.incarnation


def test_a_machine_that_goes_on_to_contradict_us_causes_one_incarnation_in_five_minutes() -> None:
    shell = connected()
    shell.submit()
    assert contradict(shell).counter == 2

    assert contradict(shell).counter == 2
    shell.now += 60
    shell.give(Tick())
    assert contradict(shell).counter == 2
    shell.now += 240
    shell.give(Tick())

    assert contradict(shell).counter == 3


def test_a_machine_that_goes_on_to_contradict_us_does_not_silence_another() -> None:
    shell = connected()
    shell.submit()
    contradict(shell)
    shell.requested()

    shell.submit(to="box3", message_id="m3")

    assert contradict(shell).counter == 3


def outdated(shell: Shell, counter: int) -> Incarnation:
    shell.give(Outdated(why="a replica says so", counter=counter))
    return shell.relay.incarnation


def test_what_is_said_of_the_log_causes_one_incarnation_in_five_minutes_and_is_not_forgotten() -> None:
    shell = connected()
    assert outdated(shell, 1).counter == 2

    shell.now += 1
    assert outdated(shell, 7).counter == 2
    assert outdated(shell, 3).counter == 2
    wakes = [effect.at for effect in shell.effects if isinstance(effect, WakeAt)]
    shell.now = wakes[-1]
    shell.give(Tick())

    assert (shell.now, shell.relay.incarnation.counter) == (400.0, 8)


def test_what_is_said_of_the_log_of_an_earlier_incarnation_causes_none() -> None:
    shell = connected()
    outdated(shell, 1)

    shell.now += 600

    assert outdated(shell, 1).counter == 2


@pytest.mark.parametrize("counter", [2**61, 2**62 - 1])
def test_an_incarnation_that_nobody_can_have_reached_is_not_believed(counter: int) -> None:
    shell = connected()

    shell.give(PeerSeen(machine="laptop", incarnation=Incarnation(counter, "x")))

    assert outdated(shell, counter) == US
    assert outdated(shell, 1).counter == 2


def test_the_first_copy_to_an_incarnation_that_is_gone_is_sent_again() -> None:
    shell = connected()
    shell.submit()
    request = shell.take(RequestPeer)

    shell.give(PeerAnswered(token=request.token, reply=receipt_for(request, Outcome.MOVED, by=Incarnation(5, "new"))))

    sent = decode_relay(shell.take(RequestPeer).body)
    assert isinstance(sent, RelayedMessage)
    assert sent.peer == Incarnation(5, "new")


def test_a_later_copy_to_an_incarnation_that_is_gone_is_uncertain() -> None:
    shell = connected()
    shell.submit()
    shell.give(PeerAnswered(token=shell.take(RequestPeer).token))
    shell.now += 40
    shell.give(Tick())
    request = shell.take(RequestPeer)

    shell.give(PeerAnswered(token=request.token, reply=receipt_for(request, Outcome.MOVED, by=Incarnation(5, "new"))))

    assert shell.row("m").state is OutboxState.UNCERTAIN


def test_a_receipt_of_another_machine_changes_nothing() -> None:
    shell = connected()
    shell.submit()
    receipt = receipt_for(shell.take(RequestPeer), Outcome.REFUSED)

    shell.give(Arrived(token=9, way=Way.MAIL, machine="box3", body=receipt))

    assert shell.row("m").state is OutboxState.OPEN


def test_the_end_of_a_message_is_not_taken_from_another_machine() -> None:
    shell = connected()
    shell.submit()
    end = message(kind=MessageKind.ENDED, message_id="ended-t", ends="m", end=End(state="completed"))

    shell.receive(end, machine="box3")

    assert shell.answer().outcome is Outcome.REFUSED
    assert shell.row("m").state is OutboxState.OPEN


@pytest.mark.parametrize(
    ("found", "state"),
    [
        (Found(message_id="m", by=THEM), OutboxState.UNCERTAIN),
        (Found(message_id="m", by=THEM, task_id="t", end=End(state="failed")), OutboxState.SETTLED),
        (Found(message_id="m", by=Incarnation(5, "new"), task_id="t"), OutboxState.ACCEPTED),
    ],
)
def test_an_accepted_message_is_asked_for_when_its_machine_has_a_new_incarnation(
    found: Found, state: OutboxState
) -> None:
    shell = accepted()

    shell.give(PeerSeen(machine="box2", incarnation=Incarnation(5, "new")))
    question = shell.take(RequestPeer)
    assert decode_relay(question.body) == FindMessage(message_id="m")
    shell.give(PeerAnswered(token=question.token, reply=encode_relay(found)))

    assert shell.row("m").state is state


def accepted() -> Shell:
    shell = connected()
    shell.submit()
    request = shell.take(RequestPeer)
    shell.give(PeerAnswered(token=request.token, reply=receipt_for(request, Outcome.ACCEPTED, task_id="t")))
    return shell


def ask_for_it(shell: Shell, seconds: float, found: Found | None = None) -> None:
    """Asks for the accepted message when so much time has passed; without `found` its machine is away."""
    shell.now += seconds
    shell.give(Tick())
    token = shell.take(RequestPeer).token
    shell.give(PeerAnswered(token=token, reply=encode_relay(found) if found else None, nobody=found is None))


def test_an_accepted_message_is_uncertain_when_its_machine_has_been_away_for_thirty_days() -> None:
    shell = accepted()
    ask_for_it(shell, DAY)
    ask_for_it(shell, 29 * DAY - 1)
    assert shell.row("m").state is OutboxState.ACCEPTED

    ask_for_it(shell, 600)

    assert (shell.row("m").state, shell.row("m").why) == (
        OutboxState.UNCERTAIN,
        "the other machine has not been there for thirty days",
    )
    shell.host(HostTold())
    assert shell.row("m").is_finished
    shell.now += DAY
    shell.give(Tick())
    assert not shell.has(RequestPeer)


def test_the_thirty_days_count_from_the_last_answer_of_the_machine() -> None:
    shell = accepted()
    ask_for_it(shell, 20 * DAY, Found(message_id="m", by=THEM, task_id="t"))

    ask_for_it(shell, 20 * DAY)
    ask_for_it(shell, 3600)

    assert shell.row("m").state is OutboxState.ACCEPTED


def test_a_fleet_that_was_switched_off_for_long_has_time_to_come_back() -> None:
    shell = accepted()

    ask_for_it(shell, 40 * DAY)
    ask_for_it(shell, 600, Found(message_id="m", by=THEM, task_id="t"))
    ask_for_it(shell, 600)

    assert shell.row("m").state is OutboxState.ACCEPTED


def test_a_clock_that_is_set_back_does_not_stop_the_retries() -> None:
    shell = connected()
    shell.submit()
    shell.give(PeerAnswered(token=shell.take(RequestPeer).token))

    shell.now -= 50
    shell.give(Tick())

    assert shell.has(RequestPeer)


# Receiving


def test_a_message_is_answered_only_after_it_is_committed_as_handled() -> None:
    shell = connected()
    shell.receive(message(expires_in=5.0))
    call = shell.take(AskHost)
    assert call.call == OpenTask(
        machine="box2", message_id="theirs-1", target="claude", task_id="t1", queue=False, body=b"", expires_in=5.0
    )

    effects = shell.relay.step(100.0, HostAnswered(token=call.token, outcome=HostAccepted(task_id="t1")))

    (store,) = [effect for effect in effects if isinstance(effect, Store)]
    assert any(isinstance(write, HandledRow) for write in store.writes)
    assert not any(isinstance(effect, Answer) for effect in effects)
    assert any(isinstance(effect, Answer) for effect in shell.relay.step(100.0, Stored(token=store.token)))


def test_a_second_copy_gets_the_same_receipt_without_the_host() -> None:
    shell = connected()
    shell.receive(message())
    shell.host(HostAccepted(task_id="t1"))
    first = shell.answer()

    shell.receive(message())

    assert shell.answer() == first


def test_a_number_with_another_message_id_is_a_fork() -> None:
    shell = connected()
    shell.receive(message())
    shell.host(HostAccepted(task_id="t1"))
    shell.answer()

    shell.receive(message(message_id="other"))

    assert shell.answer().outcome is Outcome.FORK


def test_a_number_below_the_floor_is_refused_as_below() -> None:
    shell = connected()
    shell.receive(message(n=5, floor=5))
    shell.host(HostAccepted(task_id="t5"))
    shell.answer()

    shell.receive(message(n=4))

    assert shell.answer().outcome is Outcome.BELOW


def outcomes(shell: Shell) -> list[Outcome]:
    """Returns the outcomes of the receipts that were given, and forgets them."""
    found = [decode_relay(effect.body) for effect in shell.effects if isinstance(effect, Answer)]
    shell.effects = [effect for effect in shell.effects if not isinstance(effect, Answer)]
    return [one.outcome for one in found if isinstance(one, Receipt)]


@pytest.mark.parametrize("size", [1, 1024 * 1024])
@pytest.mark.parametrize("kind", ["others", "copies", "followers"])
def test_a_machine_that_sends_on_and_on_is_asked_to_come_later_and_others_are_served(kind: str, size: int) -> None:
    shell = connected()
    taken = MOST_IN_WORK // max(size, LEAST_WEIGHT)
    body = b"x" * size
    for number in range(1, taken + 101):
        n = 1 if kind == "copies" else number
        prev = 1 if kind == "followers" and number > 1 else 0
        shell.receive(message(n=n, prev=prev, body=body))

    assert 100 <= len(outcomes(shell)) <= 110
    shell.receive(message(), machine="box3")
    calls = [effect for effect in shell.effects if isinstance(effect, AskHost)]
    shell.effects.clear()
    for call in calls:
        shell.give(HostAnswered(token=call.token, outcome=HostAccepted(task_id="t")))
    while follower := next((effect for effect in shell.effects if isinstance(effect, AskHost)), None):
        shell.effects.remove(follower)
        shell.give(HostAnswered(token=follower.token, outcome=HostAccepted(task_id="t")))
    assert set(outcomes(shell)) == {Outcome.ACCEPTED}

    shell.receive(message(n=10_000))
    shell.host(HostAccepted(task_id="t"))
    assert shell.answer().outcome is Outcome.ACCEPTED


def test_a_message_waits_until_its_predecessor_has_come() -> None:
    shell = connected()

    shell.receive(message(n=2, prev=1))

    assert shell.answer().outcome is Outcome.LATER


def test_a_message_whose_predecessor_is_being_handled_follows_it() -> None:
    shell = connected()
    shell.receive(message(n=1))

    shell.receive(message(n=2, prev=1))
    assert not shell.has(Answer)
    shell.host(HostAccepted(task_id="t1"))

    assert shell.take(AskHost).call == OpenTask(
        machine="box2", message_id="theirs-2", target="claude", task_id="t2", queue=False, body=b""
    )


def test_a_message_is_opened_only_after_it_is_durable_that_its_predecessor_was_refused() -> None:
    shell = connected()
    shell.receive(message(n=1))
    shell.receive(message(n=2, prev=1))
    asked = HostAnswered(token=shell.take(AskHost).token, outcome=HostRefused(error=b"{}"))

    effects = shell.relay.step(100.0, asked)

    (store,) = [effect for effect in effects if isinstance(effect, Store)]
    assert not any(isinstance(effect, AskHost) for effect in effects)
    assert any(isinstance(effect, AskHost) for effect in shell.relay.step(100.0, Stored(token=store.token)))


def test_an_older_incarnation_of_the_sender_is_stale() -> None:
    shell = connected()
    old = RelayedMessage(incarnation=Incarnation(3, "old"), n=1, kind=MessageKind.SEND, message_id="m", peer=US)

    shell.receive(old)

    answer = shell.answer()
    assert (answer.outcome, answer.counter) == (Outcome.STALE, 4)


def test_a_message_for_an_earlier_incarnation_of_ours_opens_nothing() -> None:
    shell = connected()

    shell.receive(message(peer=Incarnation(0, "before")))
    shell.host(HostAbsent())

    assert shell.answer().outcome is Outcome.MOVED


def with_restored_store(outcome: Outcome, end: End | None = None, kind: MessageKind = MessageKind.SEND) -> Shell:
    """Returns a machine that has given a receipt, and whose store was then restored."""
    given = Receipt(incarnation=THEM, n=1, message_id="theirs-1", outcome=outcome, by=US, end=end)
    row = HandledRow(
        machine="box2", incarnation=THEM, n=1, message_id="theirs-1", kind=kind, receipt=encode_relay(given)
    )
    rows = LinkRows(
        identity=Identity(incarnation=US, store_id="s"),
        tail=TailRow(seq=9, mark="row"),
        handled=(row,),
        peers=(PeerRow(machine="box2", incarnation=THEM),),
    )
    shell = Shell(rows, StoreMark(store_id="s", last_seq=4, mark=""))
    shell.give(Connected())
    assert shell.relay.incarnation.counter == 2
    return shell


@pytest.mark.parametrize("named", [NO_INCARNATION, US, None])
def test_a_task_that_a_restored_store_lost_is_lost_whatever_incarnation_a_copy_names(named: Incarnation | None) -> None:
    shell = with_restored_store(Outcome.ACCEPTED)

    shell.receive(message(peer=named or shell.relay.incarnation))
    question = shell.take(AskHost)
    assert question.call == FindTask(machine="box2", message_id="theirs-1")
    shell.give(HostAnswered(token=question.token, outcome=HostAbsent()))

    assert shell.answer().outcome is Outcome.LOST


def test_a_task_that_a_restored_store_still_has_is_accepted() -> None:
    shell = with_restored_store(Outcome.ACCEPTED)

    shell.receive(message(peer=NO_INCARNATION))
    shell.host(HostAccepted(task_id="t1"))

    answer = shell.answer()
    assert (answer.outcome, answer.by) == (Outcome.ACCEPTED, shell.relay.incarnation)


@pytest.mark.parametrize("state", ["completed", "canceled"])
def test_a_cancel_is_repeated_on_a_restored_store(state: str) -> None:
    shell = with_restored_store(Outcome.VOID, End(state=state), MessageKind.VOID)

    shell.receive(message(kind=MessageKind.VOID, peer=NO_INCARNATION))
    shell.host(HostVoided(task_id="t1", end=End(state="canceled"), known=False))

    assert shell.answer().outcome is (Outcome.VOID if state == "canceled" else Outcome.LOST)


def test_a_message_whose_task_is_lost_cannot_be_canceled_for_sure() -> None:
    shell = with_restored_store(Outcome.LOST)

    shell.receive(message(kind=MessageKind.VOID, peer=NO_INCARNATION))
    shell.host(HostVoided(task_id="t1", end=End(state="canceled"), known=False))

    assert shell.answer().outcome is Outcome.LOST


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [(Outcome.REFUSED, MessageKind.SEND), (Outcome.LOST, MessageKind.SEND), (Outcome.VOID, MessageKind.VOID)],
)
def test_a_message_that_was_refused_lost_or_canceled_is_not_opened_by_a_restored_store(
    outcome: Outcome, kind: MessageKind
) -> None:
    shell = with_restored_store(outcome, End(state="canceled"), kind)

    shell.receive(message(peer=shell.relay.incarnation))

    assert shell.answer().outcome is outcome


def test_an_end_is_told_again_to_a_restored_store() -> None:
    shell = with_restored_store(Outcome.DONE, kind=MessageKind.ENDED)

    shell.receive(message(kind=MessageKind.ENDED, ends="m", end=End(state="completed")))

    assert isinstance(shell.take(AskHost).call, TellEnd)


def test_an_end_whose_message_the_outbox_has_lost_goes_to_the_waiter_that_it_names() -> None:
    shell = connected()

    shell.receive(message(kind=MessageKind.ENDED, ends="m", end=End(state="completed"), body=b"who waits"))

    call = shell.take(AskHost).call
    assert isinstance(call, TellEnd)
    assert (call.row.body, call.row.to, call.row.target) == (b"who waits", "box2", "")


def test_a_kind_of_a_newer_version_is_refused_with_a_sentence() -> None:
    shell = connected()

    shell.receive(message(kind="poem"))

    answer = shell.answer()
    assert answer.outcome is Outcome.REFUSED
    assert "poem" in msgspec.json.decode(answer.error)["message"]


def test_a_body_that_cannot_be_read_is_answered_as_a_problem() -> None:
    shell = connected()

    shell.give(Arrived(token=3, way=Way.RELAY, machine="box2", body=b"\xc1"))

    assert isinstance(decode_relay(shell.take(Answer).body), Problem)


def test_a_mail_that_cannot_be_read_is_removed() -> None:
    shell = connected()

    shell.give(Arrived(token=3, way=Way.MAIL, machine="box2", body=b"\xc1"))

    assert shell.take(Acknowledge).token == 3


def test_a_mail_is_removed_only_after_the_engine_has_its_receipt() -> None:
    shell = connected()
    shell.receive(message(), Way.MAIL)
    shell.host(HostAccepted(task_id="t1"))
    assert not shell.has(Acknowledge)

    shell.give(MailKept(token=shell.take(KeepMail).token, kept=True))

    assert shell.take(Acknowledge).token == 50


def test_a_mail_whose_host_gives_no_answer_comes_again() -> None:
    shell = connected()
    shell.receive(message(), Way.MAIL)

    shell.host(HostUnknown())

    assert shell.take(Postpone).token == 50


# Identity


def test_the_first_start_takes_an_incarnation() -> None:
    shell = Shell(LinkRows())

    assert shell.take(Announce).incarnation.counter == 1


@pytest.mark.parametrize(
    "mark",
    [
        StoreMark(store_id="other", last_seq=9, mark="row"),
        StoreMark(store_id="s", last_seq=4, mark=""),
        StoreMark(store_id="s", last_seq=9, mark="another row"),
    ],
)
def test_a_store_that_is_not_the_one_of_before_takes_a_new_incarnation(mark: StoreMark) -> None:
    rows = LinkRows(identity=Identity(incarnation=US, store_id="s"), tail=TailRow(seq=5, mark="row"))

    shell = Shell(rows, mark)

    assert shell.take(Announce).incarnation.counter == 2
    assert TailRow() in shell.writes


def test_a_store_whose_last_row_was_pruned_keeps_the_incarnation() -> None:
    rows = LinkRows(identity=Identity(incarnation=US, store_id="s"), tail=TailRow(seq=5, mark="row"))

    shell = Shell(rows, StoreMark(store_id="s", last_seq=9, mark=""))

    assert shell.relay.incarnation == US


def test_a_later_incarnation_under_our_own_name_means_that_our_file_is_a_backup() -> None:
    shell = Shell()

    shell.give(PeerSeen(machine="laptop", incarnation=Incarnation(7, "later")))

    assert shell.take(Announce).incarnation.counter == 8


def test_a_waiter_is_told_after_a_restart_that_came_before_it() -> None:
    shell = connected()
    shell.submit()
    request = shell.take(RequestPeer)
    shell.give(PeerAnswered(token=request.token, reply=receipt_for(request, Outcome.REFUSED, error=b"{}")))
    rows = LinkRows(identity=Identity(incarnation=US, store_id="s"), outbox=(shell.row("m"),))

    again = Shell(rows)

    call = again.take(AskHost).call
    assert isinstance(call, TellEnd)
    assert call.row.state is OutboxState.REFUSED
