"""What the relay tells people: a message that expires has expired on both machines, and a first join is no news."""

from __future__ import annotations

from synapse.fleet.relay import Relay
from synapse.fleet.relay_io import (
    AskHost,
    Connected,
    Effect,
    Event,
    LinkRows,
    Notify,
    OutboxRow,
    OutboxState,
    PeerAnswered,
    PeerSeen,
    Report,
    RequestPeer,
    Store,
    Stored,
    StoreMark,
    Submitted,
    TellEnd,
    Tick,
)
from synapse.fleet.wire import End, Incarnation, Outcome, Receipt, RelayedMessage, decode_relay, encode_relay

THERE = Incarnation(1, "there")


class Laptop:
    """A relay whose stores are committed at once."""

    def __init__(self) -> None:
        mark = StoreMark(store_id="s", last_seq=0, mark="")
        self.relay, effects = Relay.load(0.0, "laptop", LinkRows(), mark, lambda: "a" * 16)
        self.rows: dict[str, OutboxRow] = {}
        self._commit(effects)

    def step(self, now: float, event: Event) -> list[Effect]:
        return self._commit(self.relay.step(now, event), now)

    def _commit(self, effects: list[Effect], now: float = 0.0) -> list[Effect]:
        done: list[Effect] = [effect for effect in effects if not isinstance(effect, Store)]
        for store in [effect for effect in effects if isinstance(effect, Store)]:
            self.rows |= {row.message_id: row for row in store.writes if isinstance(row, OutboxRow)}
            done += self._commit(self.relay.step(now, Stored(token=store.token)), now)
        return done

    def sent(self, effects: list[Effect]) -> tuple[int, RelayedMessage]:
        request = next(effect for effect in effects if isinstance(effect, RequestPeer))
        message = decode_relay(request.body)
        assert isinstance(message, RelayedMessage)
        return request.token, message


def test_a_message_that_nobody_took_in_time_is_void_though_its_task_reads_failed() -> None:
    laptop = Laptop()
    laptop.step(0.0, Connected())
    submitted = Submitted(token=1, to="box2", message_id="m", target="bob", task_id="t", body=b"{}", expires_in=60.0)
    token, first = laptop.sent(laptop.step(0.0, submitted))
    effects = laptop.step(1.0, PeerAnswered(token=token))
    reported = [effect.row for effect in effects if isinstance(effect, Report) and effect.row is not None]
    assert [row.state for row in reported] == [OutboxState.OPEN]
    token, void = laptop.sent(laptop.step(60.0, Tick()))
    receipt = Receipt(
        incarnation=void.incarnation,
        n=void.n,
        message_id="m",
        outcome=Outcome.VOID,
        by=THERE,
        end=End(state="failed", reason="expired", note="its deadline passed before it was delivered"),
    )
    told = laptop.step(61.0, PeerAnswered(token=token, reply=encode_relay(receipt)))

    assert (first.kind, first.expired) == ("send", False)
    assert (void.kind, void.expired) == ("void", True)
    assert (laptop.rows["m"].state, laptop.rows["m"].why) == (OutboxState.VOID, "expired")
    assert [effect.call for effect in told if isinstance(effect, AskHost)] == [TellEnd(row=laptop.rows["m"])]


def test_a_machine_that_is_seen_for_the_first_time_is_no_news_but_its_new_incarnation_is() -> None:
    laptop = Laptop()
    notes = [
        [
            effect.text
            for effect in laptop.step(0.0, PeerSeen(machine="box2", incarnation=one))
            if isinstance(effect, Notify)
        ]
        for one in (THERE, THERE, Incarnation(2, "again"))
    ]

    assert notes == [[], [], ["box2 has a new incarnation"]]
