"""Whatever fails, and whenever the process dies: a webhook is told all events of its task, in their order.

A repeat is allowed only of the one that was on its way when the process died.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from itertools import groupby

from hypothesis import given, settings
from hypothesis import strategies as st

from synapse.core.events import Update
from synapse.core.push import ID_HEADER, DeliveryState, PushConfig
from synapse.core.task import TaskId, TaskState
from synapse.push.outbox import Headers, Notification, PostResult, PushOutbox, RetrySchedule
from synapse.tasks.journal import Journal
from tests.fakes.clock import FakeClock
from tests.fakes.facts import handed, moved, numbered, opened
from tests.fakes.leases import ANY_LEASE
from tests.fakes.memory_store import MemoryStore
from tests.fakes.stores import settle

INBOX = "codex@/proj"
ANSWERS = (
    PostResult(status=200),
    PostResult(status=204),
    PostResult(status=500),
    PostResult(status=429, retry_after=3.0),
    PostResult(error="no answer in time"),
)
REFUSED = PostResult(status=400)
ACTS = st.lists(st.sampled_from(["event 0", "event 1", "rest", "crash", "look"]), max_size=25)


class Receiver:
    """Takes or refuses notifications as drawn, and takes its time: the process may die before and after."""

    def __init__(self, answers: Iterator[PostResult]) -> None:
        self._answers = answers
        self.taken: dict[str, list[str]] = {}

    async def post(self, url: str, headers: Headers, body: bytes) -> PostResult:
        await settle()
        answer = next(self._answers, ANSWERS[0])
        if answer.status in (200, 204):
            self.taken.setdefault(url, []).append(body.decode())
        assert dict(headers)[ID_HEADER].endswith(f".{body.decode().partition(' ')[0]}")
        await settle()
        return answer


class World:
    """Two tasks and three webhooks, in a process that dies now and then."""

    def __init__(self, receiver: Receiver) -> None:
        self.store = MemoryStore()
        self.clock = FakeClock()
        self.receiver = receiver
        self.events: dict[TaskId, list[str]] = {}
        self._start()

    def _start(self) -> None:
        self.journal = Journal(self.store, ANY_LEASE)
        self.outbox = PushOutbox(
            INBOX,
            store=self.store,
            pushes=self.store.pushes,
            journal=self.journal,
            webhooks=self.receiver,
            encoder_for=lambda _dialect: _word,
            clock=self.clock,
            jitter=lambda: 0.5,
            schedule=RetrySchedule(attempts=50),
            pause=self._pause,
            is_key_valid=_is_valid,
        )
        self.running = asyncio.ensure_future(self.outbox.run())

    async def crash(self) -> None:
        await self.stop()
        self._start()

    async def stop(self) -> None:
        self.running.cancel()
        with suppress(asyncio.CancelledError):
            await self.running

    async def open(self, number: int, *urls: str) -> None:
        await self.journal.record(opened(numbered(number)))
        for url in urls:
            push = await self.store.pushes.save(numbered(number), INBOX, PushConfig(id=url, url=url), 0)
            self.outbox.add(push)

    async def add(self, number: int) -> None:
        await self.journal.record(handed("more", numbered(number), append=True))

    async def told(self, number: int) -> list[str]:
        """What the webhooks of a task have to hear."""
        return [
            f"{one.seq} {type(one.event).__name__}" for one in await self.store.read_after(0, task_id=numbered(number))
        ]

    async def finish(self) -> None:
        for number in (0, 1):
            await self.journal.record(moved(TaskState.COMPLETED, numbered(number)))
        for _ in range(2000):
            if not await self.store.pushes.open_after(INBOX, 0):
                return
            await settle()
        raise AssertionError("it never finished")

    async def _pause(self, seconds: float) -> None:
        await settle()
        self.clock.advance(seconds)


async def _is_valid(_key_id: str) -> bool:
    return True


def _word(update: Update) -> Notification:
    return Notification(body=f"{update.seq} {type(update.event).__name__}".encode(), media_type="text/plain")


@settings(max_examples=60, deadline=None)
@given(acts=ACTS, drawn=st.lists(st.sampled_from(ANSWERS), max_size=40))
async def test_every_event_is_told_in_order_and_none_is_lost(acts: list[str], drawn: list[PostResult]) -> None:
    async with asyncio.timeout(30):
        world = World(Receiver(iter(drawn)))
        await world.open(0, "https://a", "https://b")
        await world.open(1, "https://c")
        crashes = 0
        for act in acts:
            match act:
                case "crash":
                    crashes += 1
                    await world.crash()
                case "look":
                    await world.outbox.find_new()
                case "rest":
                    await settle()
                case _:
                    await world.add(int(act[-1]))
        await world.finish()
        await world.stop()

        for number, url in ((0, "https://a"), (0, "https://b"), (1, "https://c")):
            taken = world.receiver.taken[url]
            assert [body for body, _ in groupby(taken)] == await world.told(number)
            assert len(taken) - len(set(taken)) <= crashes


@settings(max_examples=30, deadline=None)
@given(drawn=st.lists(st.sampled_from([*ANSWERS, REFUSED]), max_size=30))
async def test_what_is_not_taken_is_given_up_and_the_order_of_the_rest_is_kept(drawn: list[PostResult]) -> None:
    async with asyncio.timeout(30):
        world = World(Receiver(iter(drawn)))
        await world.open(0, "https://a")
        await world.open(1)
        for _ in range(5):
            await world.add(0)
        await world.finish()
        await world.stop()

        deliveries = [one for _, one in await world.store.pushes.deliveries(100) if one is not None]
        delivered = {one.seq for one in deliveries if one.state is DeliveryState.DELIVERED}
        assert {one.state for one in deliveries} <= {DeliveryState.DELIVERED, DeliveryState.GIVEN_UP}
        expected = [body for body in await world.told(0) if int(body.partition(" ")[0]) in delivered]
        assert world.receiver.taken.get("https://a", []) == expected
        assert len(deliveries) == len(await world.told(0))
