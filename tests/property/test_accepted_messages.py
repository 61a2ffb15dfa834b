"""Sends, cancels, crashes, exits, doubts and deadlines in any order: every accepted message ends exactly once.

A run plays a story on a whole host without sockets. A crash cancels everything at once, wherever it stands, and a new
host takes over the same store, as after kill -9: what was typed but not proven must then wait for a person.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from synapse.core.caller import Caller
from synapse.core.driver import Answered, Deferred, DeliveryUncertain, Submitted, Turn, TurnEvent, TurnStarted, Typing
from synapse.core.errors import AgentExited, Conflict, TaskNotFound
from synapse.core.message import TextPart
from synapse.core.override import override
from synapse.core.requests import CancelTask, ResolveTask
from synapse.core.task import ReceiptStep, Task, TaskState
from synapse.tasks.recovery import is_in_doubt
from tests.fakes.driver import FakeDriver
from tests.fakes.harness import AgentHarness
from tests.fakes.memory_store import MemoryStore

Mood = Literal["answers", "doubts", "shuts", "hangs"]
What = Literal["send", "cancel", "go on", "mood", "crash", "exit", "retry", "deadline"]
HOUR = 3600.0


@dataclass(frozen=True)
class Step:
    what: What
    number: int = 0
    mood: Mood = "answers"


steps = st.lists(
    st.builds(
        Step,
        what=st.sampled_from(
            ("send", "send", "send", "cancel", "go on", "go on", "mood", "crash", "exit", "retry", "deadline")
        ),
        number=st.integers(0, 7),
        mood=st.sampled_from(("answers", "doubts", "shuts", "hangs")),
    ),
    min_size=3,
    max_size=14,
)


class MoodyDriver(FakeDriver):
    """A program that behaves as it pleases. What is typed into it is remembered, over restarts too."""

    def __init__(self, typed: Counter[str]) -> None:
        super().__init__()
        self.received = typed
        self.mood: Mood = "answers"
        self.proof = asyncio.Event()

    @override
    async def take_turn(self, turn: Turn) -> AsyncGenerator[TurnEvent, None]:
        mood = self.mood
        if mood == "shuts":
            self.mood = "answers"
            yield Deferred("a dialog opened")
            return
        self._require_alive()
        yield Typing()
        self.received[turn.message.text] += 1
        if mood == "doubts":
            yield DeliveryUncertain("nothing was seen")
            await self._alive_until(self.proof)
        yield Submitted("screen", "seen")
        yield TurnStarted("screen", "seen")
        if mood == "hangs":
            await self._alive_until(self.go_on)
        self._require_alive()
        yield Answered(parts=(TextPart(text="done"),), source="screen")

    async def _alive_until(self, event: asyncio.Event) -> None:
        event.clear()
        await event.wait()
        self._require_alive()

    def _require_alive(self) -> None:
        if self.exited:
            raise AgentExited("the program ended")


class Story:
    """One run: the living host, what was accepted, and how often a person asked for a retry."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.typed: Counter[str] = Counter()
        self.retries: Counter[str] = Counter()
        self.accepted: list[Task] = []
        self.untyped_when_canceled: set[str] = set()

    async def begin(self) -> None:
        self.driver = MoodyDriver(self.typed)
        self.harness = AgentHarness(self.driver, self.store)
        await self.harness.recover()
        self.jobs = [
            asyncio.ensure_future(self.harness.worker.run()),
            asyncio.ensure_future(self.harness.replies.run()),
        ]

    async def end(self) -> None:
        """Everything stops where it stands."""
        for job in self.jobs:
            job.cancel()
        for job in self.jobs:
            with suppress(asyncio.CancelledError, AgentExited):
                await job

    async def play(self, step: Step) -> None:  # noqa: C901 - one case per kind of step
        match step.what:
            case "send":
                text = f"message {len(self.accepted)}"
                self.accepted.append(await self.harness.send(text, priority=step.number % 5 + 1))
            case "cancel" if self.accepted:
                await self._cancel(self.accepted[step.number % len(self.accepted)])
            case "go on":
                await self._turn_the_loop(step.number + 1)
            case "mood":
                self.driver.mood = step.mood
            case "crash":
                await self.end()
                await self.begin()
            case "exit":
                self._release(exited=True)
                await self._turn_the_loop(20)
                await self.end()
                await self.begin()
            case "retry":
                await self._resolve("retry")
            case "deadline":
                self.harness.clock.advance(2 * HOUR if step.number == 0 else 1.0)
                await self.harness.in_doubt.expire()
            case _:
                pass

    async def settle(self) -> None:
        """The program behaves from now on, and a person decides about every doubt."""
        self.driver.mood = "answers"
        for _ in range(len(self.accepted) + 2):
            self._release(exited=False)
            await self._turn_the_loop(60)
            await self._resolve("fail")

    async def _cancel(self, task: Task) -> None:
        with suppress(Conflict):
            canceled = await self.harness.service.handle(CancelTask(task.id), Caller())
            if ReceiptStep.TYPED not in [receipt.step for receipt in canceled.receipts]:
                self.untyped_when_canceled.add(canceled.message.text)

    async def _resolve(self, verdict: str) -> None:
        for known in self.accepted:
            task = await self.harness.task(known.id)
            if is_in_doubt(task) and not task.state.is_terminal:
                with suppress(Conflict, TaskNotFound):
                    await self.harness.service.handle(
                        ResolveTask(task_id=task.id, verdict=verdict), Caller(via_socket=True)
                    )
                    self.retries[task.message.text] += verdict == "retry"

    def _release(self, *, exited: bool) -> None:
        self.driver.exited = exited
        self.driver.go_on.set()
        self.driver.proof.set()

    async def _turn_the_loop(self, times: int) -> None:
        for _ in range(times):
            await asyncio.sleep(0)  # noqa: TID251 - the schedule is what is being tried


@pytest.mark.timeout(300)
@pytest.mark.parametrize("beginning", ["answers", "doubts", "hangs"])
@settings(max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(story=steps)
async def test_every_accepted_message_ends_exactly_once_and_is_typed_at_most_once(
    beginning: Mood, story: list[Step]
) -> None:
    told = Story()
    await told.begin()
    told.driver.mood = beginning
    for step in story:
        await told.play(step)
    await told.settle()
    for known in told.accepted:
        task = await told.harness.task(known.id)
        finals = [receipt for receipt in task.receipts if receipt.step.is_final]
        text = task.message.text
        assert task.state.is_terminal, (text, task.state, task.receipts)
        assert len(finals) == 1, (text, task.receipts)
        assert told.typed[text] <= 1 + told.retries[text], (text, task.receipts)
        if task.state is TaskState.COMPLETED:
            assert told.typed[text] >= 1
        if text in told.untyped_when_canceled:
            assert told.typed[text] == 0, (text, task.receipts)
    await told.end()
