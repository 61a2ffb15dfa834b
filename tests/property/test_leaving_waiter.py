"""A reply and a waiter that leaves, in every order: the answer is read by the waiter or typed, exactly one of both."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from hypothesis import example, given, settings
from hypothesis import strategies as st

from synapse.core.caller import Caller
from synapse.core.errors import SynapseError
from synapse.core.requests import CreateTask, LeaveTask, SubscribeTask
from synapse.core.task import Task
from tests.fakes.harness import CLAUDE, ME, AgentHarness, claude, say
from tests.fakes.stores import SlowStore
from tests.property.test_feed_resume import turn_the_loop

CODEX = Caller(agent_id=ME.agent_id, via_socket=True)
WAITS = {"waits_for": CLAUDE.agent_id, "waits_for_inbox": CLAUDE.inbox}
MOVES = ("open", "break", "reply", "leave", "commit", "turn")


def is_ours(task: Task) -> bool:
    return task.state.is_terminal and not task.waiter_left


class Waiter:
    """Waits as `synapse send --response` does: reads a stream, opens it again when it breaks, and leaves at the end."""

    def __init__(self, harness: AgentHarness, task: Task) -> None:
        self._harness = harness
        self._task = task
        self._reading: asyncio.Future[None] | None = None
        self._leaving: asyncio.Future[Task] | None = None
        self.read = ""

    async def _read(self) -> None:
        stream = await self._harness.service.handle(SubscribeTask(task_id=self._task.id), CODEX)
        try:
            async for update in stream:
                # As the server does: what is written is read by the waiter, unless it has given up.
                if is_ours(update.task) and self._leaving is None:
                    self.read = update.task.artifacts[0].text
        finally:
            await stream.aclose()

    def open(self) -> None:
        if self._leaving is None and (self._reading is None or self._reading.done()):
            self._reading = asyncio.ensure_future(self._read())

    def breaks(self) -> None:
        if self._reading is not None:
            self._reading.cancel()

    def leave(self) -> None:
        if not self.read and self._leaving is None:
            self._leaving = asyncio.ensure_future(self._harness.service.handle(LeaveTask(self._task.id), CODEX))

    async def result(self) -> str:
        if self._leaving is not None and is_ours(left := await self._leaving):
            return left.artifacts[0].text
        return self.read

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait({self._reading})


async def play(moves: list[str]) -> tuple[str, list[str]]:  # noqa: C901 - a case for each move
    """Returns what the waiter read, and what is to be typed."""
    store = SlowStore()
    harness = AgentHarness(store=store)
    creating = asyncio.ensure_future(
        harness.service.handle(CreateTask(message=say("review"), dialect="synapse", metadata=WAITS), CODEX)
    )
    while not creating.done():
        store.commit()
        await turn_the_loop()
    task = creating.result()
    waiter = Waiter(harness, task)
    replying: list[asyncio.Future[Task]] = []
    for move in [*moves, "reply", "turn", "leave"]:
        match move:
            case "open":
                waiter.open()
            case "break":
                waiter.breaks()
            case "reply" if not replying:
                replying.append(asyncio.ensure_future(harness.send("yes", in_reply_to=task.id, sender=claude())))
            case "leave":
                waiter.leave()
            case "commit":
                store.commit()
            case _:
                await turn_the_loop()
    closing: asyncio.Future[None] | None = None
    for _ in range(12):
        store.commit()
        await turn_the_loop()
        closing = closing or asyncio.ensure_future(waiter.close())
    assert closing is not None
    await asyncio.wait_for(closing, 5)
    with suppress(SynapseError):
        await asyncio.wait_for(replying[0], 5)
    typed = [(await harness.task(one)).message.text for one in harness.worker.waiting]
    return await waiter.result(), typed


@settings(deadline=None, max_examples=400)
@given(st.lists(st.sampled_from(MOVES), max_size=24))
@example(["open", "turn", "reply", "leave"])
@example(["open", "turn", "leave", "reply"])
@example(["open", "turn", "leave", "turn", "reply", "commit"])
@example(["open", "turn", "reply", "turn", "break", "turn", "commit"])
@example(["open", "turn", "break", "turn", "open", "turn", "commit", "turn", "reply"])
def test_an_answer_is_read_by_its_waiter_or_typed_and_never_both(moves: list[str]) -> None:
    read, typed = asyncio.run(play(moves))

    assert (read, typed) in (("yes", []), ("", ["yes"]))
