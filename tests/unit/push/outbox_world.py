"""A journal, an outbox and fake webhooks, for tests of the outbox."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from synapse.core.events import Update
from synapse.core.push import Delivery, Push, PushConfig
from synapse.core.task import TaskId
from synapse.push.outbox import Notification, PostResult, PushOutbox, RetrySchedule
from synapse.tasks.journal import Journal
from tests.fakes.clock import FakeClock
from tests.fakes.facts import TASK
from tests.fakes.leases import ANY_LEASE
from tests.fakes.memory_store import MemoryStore
from tests.fakes.stores import settle
from tests.fakes.webhooks import OK, Call, FakeWebhooks

INBOX = "codex@/proj"
URL = "https://example.com/h"


def config(url: str = URL, config_id: str = "c", set_by: str = "") -> PushConfig:
    return PushConfig(id=config_id, url=url, token="tok", dialect="test", set_by=set_by)


def encoder_for(_dialect: str) -> Callable[[Update], Notification | None]:
    """Returns an encoder that writes the event's kind, and nothing for metadata."""

    def encode(update: Update) -> Notification | None:
        kind = type(update.event).__name__
        if kind == "MetadataChanged":
            return None
        return Notification(body=f"{update.task.version} {kind}".encode(), media_type="text/plain")

    return encode


class World:
    """A journal, an outbox and the webhooks that it delivers to."""

    def __init__(self, answer: Callable[[Call], PostResult] = lambda _: OK, store: MemoryStore | None = None) -> None:
        self.store = store or MemoryStore()
        self.journal = Journal(self.store, ANY_LEASE)
        self.clock = FakeClock()
        self.hooks = FakeWebhooks(answer)
        self.pauses: list[float] = []
        self.keys = {"laptop"}
        """The valid API keys."""
        self.is_key_valid: Callable[[str], bool] = self.keys.__contains__
        self.while_waiting: Callable[[float], Awaitable[None]] = self.pause
        self.outbox = self.new_outbox()
        self._running: asyncio.Future[None] | None = None

    def new_outbox(self) -> PushOutbox:
        """Returns the outbox of a restarted process, on the same store."""
        return PushOutbox(
            INBOX,
            store=self.store,
            pushes=self.store.pushes,
            journal=self.journal,
            webhooks=self.hooks,
            encoder_for=encoder_for,
            clock=self.clock,
            jitter=lambda: 1.0,
            schedule=RetrySchedule(attempts=4),
            pause=self._wait,
            is_key_valid=self._is_key_valid,
        )

    async def _is_key_valid(self, key_id: str) -> bool:
        return self.is_key_valid(key_id)

    async def _wait(self, seconds: float) -> None:
        await self.while_waiting(seconds)

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.clock.advance(seconds)
        await settle()

    async def watched(self, url: str = URL, task_id: TaskId = TASK, told: int = 0, set_by: str = "") -> Push:
        push = await self.store.pushes.save(task_id, INBOX, config(url, set_by=set_by), told)
        self.outbox.add(push)
        return push

    def start(self) -> asyncio.Future[None]:
        self._running = asyncio.ensure_future(self.outbox.run())
        return self._running

    def posted(self, url: str = URL) -> list[str]:
        """Returns the bodies of all attempts, in order."""
        return [body.decode() for body in self.hooks.bodies(url)]

    async def quiet(self) -> None:
        """Waits until no more calls are made; the first call starts the outbox."""
        if self._running is None:
            self.start()
        for _ in range(200):
            before = len(self.hooks.calls)
            for _ in range(5):
                await settle()
            if len(self.hooks.calls) == before:
                return

    async def deliveries(self) -> list[Delivery]:
        return [one for _, one in reversed(await self.store.pushes.deliveries(100)) if one is not None]


@asynccontextmanager
async def running(world: World) -> AsyncGenerator[None]:
    """Runs the outbox until the end of the block."""
    job = world.start()
    try:
        yield
    finally:
        job.cancel()
        with suppress(asyncio.CancelledError):
            await job
