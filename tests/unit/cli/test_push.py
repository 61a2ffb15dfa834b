"""`synapse push list`: the delivery of notifications, without secrets."""

from __future__ import annotations

import asyncio
from pathlib import Path

from synapse.core.push import Delivery, DeliveryState, PushConfig
from tests.fakes.facts import START, after, numbered
from tests.fakes.leased_store import LeasedStore
from tests.unit.cli.conftest import Cli

SECRET = "s3cret-" * 4
CONFIG = PushConfig(
    id="c", url=f"https://example.com/{SECRET}/hook?key={SECRET}", token=SECRET, scheme="bearer", credentials=SECRET
)


def fill(home: Path) -> None:
    async def save() -> None:
        store = await LeasedStore.open(home / "store.db")
        told = await store.pushes.save(numbered(1), "codex", CONFIG, 0)
        await store.pushes.save(numbered(2), "codex", CONFIG, 0)
        number = told.number
        await store.pushes.record(
            Delivery(number=number, seq=2, state=DeliveryState.DELIVERED, attempts=1, at=START, status=200)
        )
        waits = Delivery(
            number=number,
            seq=5,
            state=DeliveryState.PENDING,
            attempts=3,
            at=after(5),
            error="no answer in time",
            next_try=after(9),
        )
        await store.pushes.record(waits)
        await store.close()

    asyncio.run(save())


def test_without_a_store_there_is_nothing_to_show(synapse: Cli) -> None:
    shown = synapse("push", "list")

    assert (shown.code, shown.out) == (0, "")
    assert "There are no push notifications." in shown.err
    assert synapse("push", "list", "--json").json == []


def test_deliveries_are_shown_latest_first(synapse: Cli, home: Path) -> None:
    fill(home)
    shown = synapse("push", "list")

    titles, *rows = shown.out.splitlines()
    assert titles.split()[:3] == ["TASK", "EVENT", "STATE"]
    assert [row.split()[0] for row in rows] == ["00000002", "00000001", "00000001"]
    assert "waiting" in rows[0]
    assert "pending" in rows[1]
    assert "no answer in time" in rows[1]
    assert "https://example.com/…/hook?…" in rows[2]
    assert SECRET not in shown.out


def test_pushes_as_json(synapse: Cli, home: Path) -> None:
    fill(home)
    shown = synapse("push", "list", "--json", "--limit", "2")

    waiting, pending = shown.json
    assert (waiting["task"], waiting["state"], waiting["attempts"]) == (numbered(2), "waiting", 0)
    assert (pending["event"], pending["state"], pending["attempts"], pending["status"]) == (5, "pending", 3, None)
    assert pending["next_try"] == after(9).isoformat()
    assert SECRET not in shown.out


def test_without_an_action_the_usage_is_printed(synapse: Cli) -> None:
    assert synapse("push").code == 2
