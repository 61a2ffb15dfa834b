"""The outbox delivers in order, each event once if nothing crashes, and webhooks do not wait for each other."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from synapse.core.errors import StoreFailed
from synapse.core.events import Recorded
from synapse.core.override import override
from synapse.core.push import ID_HEADER, TOKEN_HEADER, DeliveryState
from synapse.core.task import TaskId, TaskState
from synapse.push.outbox import PostResult, may_succeed
from tests.fakes.facts import TASK, handed, moved, noted, numbered, opened
from tests.fakes.memory_store import MemoryStore
from tests.fakes.webhooks import OK, Call
from tests.unit.push.outbox_world import INBOX, URL, World, config


async def test_each_event_that_can_be_encoded_is_delivered_in_order() -> None:
    async with asyncio.timeout(20):
        world = World()
        await world.journal.record(opened())
        await world.journal.record(moved(TaskState.WORKING), noted({"x": 1}), handed("a"))
        await world.watched()
        await world.journal.record(moved(TaskState.COMPLETED))
        await world.quiet()

        assert world.posted() == ["1 TaskOpened", "2 StateChanged", "4 ArtifactAdded", "5 StateChanged"]
        call = world.hooks.calls[0]
        assert call.headers[TOKEN_HEADER] == "tok"
        assert call.headers["Content-Type"] == "text/plain"
        assert len({one.headers[ID_HEADER] for one in world.hooks.calls}) == 4


async def test_a_webhook_gets_only_events_after_its_position() -> None:
    async with asyncio.timeout(20):
        world = World()
        await world.journal.record(opened(), moved(TaskState.WORKING))
        await world.journal.record(handed("a"))
        await world.watched(told=2)
        await world.quiet()

        assert world.posted() == ["3 ArtifactAdded"]


async def test_a_failed_delivery_is_repeated_with_its_id_and_the_next_waits_for_it() -> None:
    async with asyncio.timeout(20):
        answers = [PostResult(status=500), PostResult(error="refused"), PostResult(status=429, retry_after=7.0), OK]
        world = World(lambda _call: answers.pop(0) if answers else OK)
        await world.journal.record(opened(), moved(TaskState.COMPLETED))
        await world.watched()
        await world.quiet()

        assert world.posted() == ["1 TaskOpened"] * 4 + ["2 StateChanged"]
        assert len({call.headers[ID_HEADER] for call in world.hooks.calls[:4]}) == 1
        assert world.pauses == [1.0, 2.0, 7.0]
        assert [(one.state, one.attempts) for one in await world.deliveries()] == [
            (DeliveryState.DELIVERED, 4),
            (DeliveryState.DELIVERED, 1),
        ]


async def test_a_notification_that_always_fails_is_given_up_and_the_next_is_delivered() -> None:
    async with asyncio.timeout(20):
        world = World(lambda call: PostResult(status=503) if b"Opened" in call.body else OK)
        await world.journal.record(opened(), moved(TaskState.COMPLETED))
        await world.watched()
        await world.quiet()

        assert world.posted() == ["1 TaskOpened"] * 4 + ["2 StateChanged"]
        given_up, delivered = await world.deliveries()
        assert (given_up.state, given_up.attempts, given_up.status) == (DeliveryState.GIVEN_UP, 4, 503)
        assert delivered.state is DeliveryState.DELIVERED


async def test_a_refusal_is_given_up_at_once() -> None:
    async with asyncio.timeout(20):
        world = World(lambda call: PostResult(status=404) if b"Opened" in call.body else OK)
        await world.journal.record(opened(), moved(TaskState.COMPLETED))
        await world.watched()
        await world.quiet()

        assert world.posted() == ["1 TaskOpened", "2 StateChanged"]
        assert world.pauses == []


@pytest.mark.parametrize(
    ("posted", "again"),
    [
        (PostResult(status=500), True),
        (PostResult(status=503), True),
        (PostResult(error="no answer in time"), True),
        (PostResult(status=408), True),
        (PostResult(status=425), True),
        (PostResult(status=429), True),
        (PostResult(status=400), False),
        (PostResult(status=401), False),
        (PostResult(status=404), False),
        (PostResult(status=410), False),
        (PostResult(status=301), False),
        (PostResult(status=307), False),
        (PostResult(error="a private address", is_final=True), False),
    ],
)
def test_only_failures_that_may_pass_are_retried(posted: PostResult, again: bool) -> None:
    assert may_succeed(posted) is again


async def test_a_webhook_that_hangs_does_not_delay_others() -> None:
    async with asyncio.timeout(20):
        world = World()
        world.hooks.held = {"https://slow.example"}
        for number, url in ((1, "https://slow.example"), (2, URL)):
            await world.journal.record(opened(numbered(number)), moved(TaskState.COMPLETED, numbered(number)))
            await world.watched(url, numbered(number))
        await world.quiet()

        assert world.posted("https://slow.example") == ["1 TaskOpened"]
        assert world.posted() == ["1 TaskOpened", "2 StateChanged"]

        world.hooks.let_go()
        await world.quiet()
        assert world.posted("https://slow.example") == ["1 TaskOpened", "2 StateChanged"]


async def test_a_deleted_webhook_gets_nothing_more() -> None:
    async with asyncio.timeout(20):
        world = World()
        await world.journal.record(opened())
        await world.watched()
        await world.quiet()
        await world.store.pushes.delete(TASK, "c")
        await world.journal.record(moved(TaskState.WORKING))
        await world.quiet()

        assert world.posted() == ["1 TaskOpened"]


async def test_a_webhook_that_is_deleted_between_two_attempts_is_not_tried_again() -> None:
    async with asyncio.timeout(20):
        world = World(lambda _: PostResult(status=500))

        async def delete_and_pause(_seconds: float) -> None:
            await world.store.pushes.delete(TASK, "c")

        world.while_waiting = delete_and_pause
        await world.journal.record(opened())
        await world.watched()
        await world.quiet()

        assert world.posted() == ["1 TaskOpened"]


async def test_a_webhook_that_is_deleted_during_a_delivery_gets_nothing_more() -> None:
    async with asyncio.timeout(20):
        world = World()
        world.hooks.held = {URL}
        await world.journal.record(opened(), moved(TaskState.COMPLETED))
        await world.watched()
        await world.quiet()
        await world.store.pushes.delete(TASK, "c")
        world.hooks.let_go()
        await world.quiet()

        assert world.posted() == ["1 TaskOpened"]
        assert await world.deliveries() == []


async def test_a_long_log_is_delivered_page_by_page() -> None:
    async with asyncio.timeout(20):
        world = World()
        await world.journal.record(opened(), *(handed(str(number), append=True) for number in range(250)))
        await world.watched()
        await world.quiet()

        assert len(world.posted()) == 251
        assert world.posted()[-1] == "251 ArtifactAdded"


async def test_a_changed_address_counts_from_the_next_attempt() -> None:
    async with asyncio.timeout(20):
        world = World(lambda call: PostResult(status=500) if call.url == URL else OK)

        async def change_and_pause(_seconds: float) -> None:
            await world.store.pushes.save(TASK, INBOX, config("https://new.example"), 0)

        world.while_waiting = change_and_pause
        await world.journal.record(opened())
        await world.watched()
        await world.quiet()

        assert world.posted() == ["1 TaskOpened"]
        assert world.posted("https://new.example") == ["1 TaskOpened"]


class TroubledStore(MemoryStore):
    """A store that fails to read the log a number of times."""

    def __init__(self) -> None:
        super().__init__()
        self.troubles = 0

    @override
    async def read_after(self, seq: int, *, task_id: TaskId | None = None, limit: int = 500) -> Sequence[Recorded]:
        if self.troubles:
            self.troubles -= 1
            raise StoreFailed("the disk is away")
        return await super().read_after(seq, task_id=task_id, limit=limit)


async def test_a_store_that_fails_for_a_while_only_delays() -> None:
    async with asyncio.timeout(20):
        store = TroubledStore()
        world = World(store=store)
        await world.journal.record(opened(), moved(TaskState.COMPLETED))
        store.troubles = 2
        await world.watched()
        await world.quiet()

        assert world.posted() == ["1 TaskOpened", "2 StateChanged"]
        assert world.pauses == [5.0, 5.0]


async def test_a_defect_in_one_lane_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    def answer(call: Call) -> PostResult:
        if call.url == "https://odd.example":
            raise LookupError("a defect")
        return OK

    async with asyncio.timeout(20):
        world = World(answer)
        for number, url in ((1, "https://odd.example"), (2, URL)):
            await world.journal.record(opened(numbered(number)))
            await world.watched(url, numbered(number))
        await world.quiet()

        assert world.posted() == ["1 TaskOpened"]
    assert [record.message for record in caplog.records] == ["push_lane_failed"]


async def test_logs_hold_no_secret_and_no_address(caplog: pytest.LogCaptureFixture) -> None:
    world = World(lambda _: PostResult(status=404, error="it answered 404"))
    with caplog.at_level("DEBUG"):
        async with asyncio.timeout(20):
            await world.journal.record(opened())
            await world.watched("https://example.com/secret-path")
            await world.quiet()
    told = [record for record in caplog.records if record.message == "push_given_up"]
    assert len(told) == 1
    assert "secret" not in str(vars(told[0]))
    assert "tok" not in str(vars(told[0]).values())
