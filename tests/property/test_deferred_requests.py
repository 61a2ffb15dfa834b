"""A request whose agent asks others ends once, whatever happens to its waits, and never stays open for nothing."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from hypothesis import example, given, settings
from hypothesis import strategies as st

from synapse.core.caller import Caller
from synapse.core.driver import Answered, Submitted, Turn, TurnEvent, Typing
from synapse.core.errors import SynapseError
from synapse.core.events import StateChanged, Update
from synapse.core.message import TextPart
from synapse.core.requests import AnswerQuestion, AskPerson, CancelTask, CreateTask, LeaveTask, Reply
from synapse.core.task import Task, TaskState
from tests.fakes.driver import FakeDriver
from tests.fakes.harness import CLAUDE, ME, AgentHarness, claude, say, working
from tests.property.test_feed_resume import turn_the_loop

CODEX = Caller(agent_id=ME.agent_id, via_socket=True)
PERSON = Caller(via_socket=True)
WAITS = {"waits_for": CLAUDE.agent_id, "waits_for_inbox": CLAUDE.inbox}
MOVES = ("ask", "ask person", "leave", "answer", "fail", "cancel wait", "withdraw", "turn ends", "reply", "cancel")


def answers(turn: Turn) -> list[TurnEvent]:
    answer = Answered(parts=(TextPart(text=turn.message.text),), source="screen")
    return [Typing(), Submitted("screen", "seen"), answer]


class Play:
    """An agent with one request, whose turns last until a move ends them."""

    def __init__(self) -> None:
        self.driver = FakeDriver(answers)
        self.harness = AgentHarness(self.driver)
        self.waits: list[Task] = []
        self.ends: dict[str, list[TaskState]] = {}
        self.harness.journal.listen(self._on_update)

    def _on_update(self, update: Update) -> None:
        if isinstance(update.event, StateChanged) and update.event.state.is_terminal:
            self.ends.setdefault(update.task.id, []).append(update.event.state)

    async def wait(self) -> Task | None:
        """The oldest wait that is open."""
        for task in self.waits:
            now = await self.harness.task(task.id)
            if not now.state.is_terminal:
                return now
        return None

    async def ask(self, request: CreateTask | AskPerson) -> None:
        self.waits.append(await self.harness.service.handle(request, CODEX))

    async def settle(self, wait: Task, *, failed: bool = False) -> None:
        if wait.asks_person:
            request = CancelTask(wait.id) if failed else AnswerQuestion(task_id=wait.id, text="yes")
            await self.harness.service.handle(request, PERSON)
        else:
            marks = {"failed": True, "inferred": True} if failed else {}
            await self.harness.send("yes", in_reply_to=wait.id, sender=claude(), metadata=marks)

    async def move(self, name: str, request: Task) -> None:  # noqa: C901 - a case for each move
        wait = await self.wait()
        handle = self.harness.service.handle
        match name:
            case "ask":
                await self.ask(CreateTask(message=say("?"), dialect="synapse", metadata=WAITS))
            case "ask person":
                await self.ask(AskPerson(message=say("?"), dialect="synapse"))
            case "leave" if wait:
                await handle(LeaveTask(wait.id), CODEX)
            case "answer" | "fail" if wait:
                await self.settle(wait, failed=name == "fail")
            case "cancel wait" | "withdraw" if wait:
                await handle(CancelTask(wait.id), CODEX if name == "withdraw" else PERSON)
            case "turn ends":
                self.driver.go_on.set()
                await turn_the_loop()
                self.driver.go_on.clear()
            case "reply":
                await handle(Reply(message=say("mine")), CODEX)
            case "cancel":
                await handle(CancelTask(request.id), PERSON)
            case _:
                pass
        await turn_the_loop()


async def play(moves: list[str]) -> None:
    game = Play()
    game.driver.go_on.clear()
    async with working(game.harness) as harness, asyncio.timeout(20):
        sent = await harness.send("work", sender=claude(), response_expected=True, sender_task_id="t-1")
        request = await harness.reached(sent, "submitted")
        for name in moves:
            with suppress(SynapseError):  # it is too late for this move
                await game.move(name, request)
        while (wait := await game.wait()) is not None:
            await game.settle(wait)
        game.driver.go_on.set()
        ended = await harness.finished(request)
        for _ in range(20):
            await turn_the_loop()

        left = [task.id for task in harness.journal.open_tasks()]
        assert (left, harness.worker.waiting, harness.deferred.deferred()) == ([], (), [])
        assert game.ends[request.id] == [ended.state]
        assert all(len(ends) == 1 for ends in game.ends.values())
        assert len(harness.host_client.delivered) == 1


@settings(deadline=None, max_examples=150)
@given(st.lists(st.sampled_from(MOVES), max_size=14))
@example(["ask", "leave", "turn ends", "answer", "ask", "leave", "turn ends", "answer", "turn ends"])
@example(["ask", "leave", "turn ends", "withdraw"])
@example(["ask", "leave", "answer", "turn ends", "cancel", "turn ends"])
@example(["ask person", "leave", "turn ends", "fail", "turn ends"])
@example(["ask", "ask", "leave", "turn ends", "answer", "leave", "turn ends", "reply"])
def test_a_request_ends_once_whatever_happens_to_its_waits(moves: list[str]) -> None:
    asyncio.run(play(moves))
