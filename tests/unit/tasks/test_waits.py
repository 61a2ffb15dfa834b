"""Cycles of agents that wait for each other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import replace

import pytest

from synapse.core.agent import AgentEntry
from synapse.core.caller import Caller
from synapse.core.errors import StoreFailed, WaitCycle
from synapse.core.events import AttentionChanged, MetadataChanged, TaskEvent, TaskOpened
from synapse.core.message import Sender
from synapse.core.override import override
from synapse.core.requests import CreateTask, SendMessage, SubscribeTask
from synapse.core.store import Lease, TaskPage, TaskQuery
from synapse.core.task import Task, TaskState
from synapse.tasks.waits import Party, find_cycle
from tests.fakes.harness import CLAUDE, ME, AgentHarness, claude, say, working
from tests.fakes.leases import ANY_LEASE
from tests.fakes.memory_store import MemoryStore


def found(waits: list[tuple[str, str]], new: tuple[str, str]) -> tuple[str, ...]:
    return tuple(party.agent_id for party in find_cycle([_wait(one) for one in waits], _wait(new)))


def _wait(names: tuple[str, str]) -> tuple[Party, Party]:
    waiter, target = names
    return Party.of(waiter), Party.of(target)


def test_two_agents_that_would_wait_for_each_other_are_named() -> None:
    assert found([("claude", "codex")], ("codex", "claude")) == ("codex", "claude", "codex")


def test_a_longer_cycle_is_found() -> None:
    waits = [("a", "b"), ("b", "c"), ("x", "y")]

    assert found(waits, ("c", "a")) == ("c", "a", "b", "c")


def test_an_agent_that_asks_itself_waits_for_itself() -> None:
    assert found([], ("a", "a")) == ("a", "a")


def test_a_chain_without_a_cycle_is_fine() -> None:
    assert found([("a", "b"), ("b", "c")], ("c", "d")) == ()


def test_a_cycle_elsewhere_does_not_concern_a_newcomer() -> None:
    assert found([("a", "b"), ("b", "a")], ("c", "a")) == ()


async def codex_waits_for_claude(
    harness: AgentHarness, asked: AgentEntry = CLAUDE, waits_for: dict[str, str] | None = None
) -> Task:
    """Codex, whose host this harness is, has asked Claude and waits; Claude's host has the same store."""
    waiting = CreateTask(message=say("review this"), dialect="synapse", metadata=waits_for or {})
    mine: Task = await harness.service.handle(waiting, Caller())
    claudes = harness.neighbour(asked)
    await claudes.service.handle(
        SendMessage(
            message=say("review this"),
            dialect="synapse",
            sender=Sender(sender_id=ME.agent_id),
            response_expected=True,
            sender_task_id=mine.id,
        ),
        Caller(),
    )
    return mine


def asked_back() -> SendMessage:
    """Claude asks codex, while codex waits for claude. The message has an id, as `synapse send` gives it."""
    return SendMessage(
        message=say("and you?", "m-7"),
        dialect="synapse",
        sender=claude(),
        response_expected=True,
        sender_task_id="t-claude",
    )


async def test_an_agent_that_waits_for_me_while_i_wait_for_it_is_told_the_cycle_and_so_am_i() -> None:
    harness = AgentHarness()
    mine = await codex_waits_for_claude(harness)

    with pytest.raises(WaitCycle) as told:
        await harness.service.handle(asked_back(), Caller())
    again = await harness.service.handle(asked_back(), Caller())
    assert (again.state, again.reason) == (TaskState.FAILED, "wait_cycle")
    assert told.value.agents == ("claude-8100", "codex-8120", "claude-8100")
    assert "waits for" in (await harness.task(mine.id)).attention


async def test_a_line_that_a_person_typed_at_claudes_prompt_is_no_wait_of_claude() -> None:
    harness = AgentHarness()
    await codex_waits_for_claude(harness)

    task = await harness.service.handle(replace(asked_back(), sender_task_id=""), Caller())

    assert task.state is TaskState.SUBMITTED


class SlowStore(MemoryStore):
    """A store that lists tasks when two requests for answers are in it."""

    def __init__(self) -> None:
        super().__init__()
        self._requests = 0
        self._has_both = asyncio.Event()

    @override
    def append(
        self, task: Task, events: Sequence[TaskEvent], *, lease: Lease = ANY_LEASE, digest: str = ""
    ) -> asyncio.Future[int]:
        self._requests += isinstance(events[0], TaskOpened) and task.reply_to is not None
        if self._requests > 1:
            self._has_both.set()
        return super().append(task, events, lease=lease, digest=digest)

    @override
    async def list(self, query: TaskQuery) -> TaskPage:
        await self._has_both.wait()
        return await super().list(query)


async def test_of_two_requests_that_cross_only_the_later_one_is_refused() -> None:
    codex = AgentHarness(store=SlowStore())
    claudes = codex.neighbour(CLAUDE)
    asked = list[Awaitable[Task]]()
    for here, there, me in ((codex, claudes, ME), (claudes, codex, CLAUDE)):
        waiting = await here.service.handle(CreateTask(message=say("wait"), dialect="synapse"), Caller())
        request = replace(asked_back(), sender=Sender(sender_id=me.agent_id), sender_task_id=waiting.id)
        asked.append(there.service.handle(replace(request, message=say("and you?")), Caller()))

    first, second = await asyncio.gather(*asked, return_exceptions=True)

    assert isinstance(first, Task), first
    assert first.state is TaskState.SUBMITTED
    assert isinstance(second, WaitCycle), second


class BlindStore(MemoryStore):
    """A store that cannot list tasks."""

    @override
    async def list(self, query: TaskQuery) -> TaskPage:
        raise StoreFailed


async def test_a_durable_message_is_delivered_although_its_cycle_cannot_be_checked() -> None:
    async with working(AgentHarness(store=BlindStore())) as harness:
        task = await harness.service.handle(asked_back(), Caller())

        assert (await harness.finished(task)).state is TaskState.COMPLETED


class NotelessStore(MemoryStore):
    """A store that fails to append notes for a person."""

    @override
    def append(
        self, task: Task, events: Sequence[TaskEvent], *, lease: Lease = ANY_LEASE, digest: str = ""
    ) -> asyncio.Future[int]:
        if not isinstance(events[0], AttentionChanged):
            return super().append(task, events, lease=lease, digest=digest)
        failed: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        failed.set_exception(StoreFailed())
        return failed


async def test_a_sender_is_told_the_cycle_although_the_waiting_task_gets_no_note() -> None:
    harness = AgentHarness(store=NotelessStore())
    await codex_waits_for_claude(harness)

    with pytest.raises(WaitCycle):
        await harness.service.handle(asked_back(), Caller())


async def test_agents_in_a_cycle_are_named_as_people_named_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CLAUDE, "name", "reviewer")

    harness = AgentHarness()
    await codex_waits_for_claude(harness)

    with pytest.raises(WaitCycle, match="reviewer waits for codex-8120 waits for reviewer"):
        await harness.service.handle(asked_back(), Caller())


BEFORE = AgentEntry("synapse-claude-8109", "claude", port=8109, inbox=CLAUDE.inbox)
"""Claude as it was before it was started again at another port."""


@pytest.mark.parametrize(
    "waits_for",
    [{"waits_for": BEFORE.agent_id, "waits_for_inbox": BEFORE.inbox}, {"waits_for": CLAUDE.agent_id}, {}],
    ids=["its inbox", "its id", "nobody"],
)
async def test_a_cycle_is_seen_when_one_in_it_was_started_again_at_another_port(waits_for: dict[str, str]) -> None:
    harness = AgentHarness()
    mine = await codex_waits_for_claude(harness, BEFORE, waits_for)

    with pytest.raises(WaitCycle) as told:
        await harness.service.handle(asked_back(), Caller())
    assert told.value.agents == ("claude-8100", "codex-8120", "claude-8100")
    assert "waits for" in (await harness.task(mine.id)).attention


async def test_another_agent_that_has_the_port_now_closes_no_cycle() -> None:
    harness = AgentHarness()
    await codex_waits_for_claude(harness, AgentEntry(CLAUDE.agent_id, "claude", inbox="claude@/elsewhere"))

    assert (await harness.service.handle(asked_back(), Caller())).state is TaskState.SUBMITTED


async def test_a_wait_that_was_recorded_without_an_inbox_closes_a_cycle_too() -> None:
    harness = AgentHarness()
    await codex_waits_for_claude(harness)
    (asked,) = (await harness.store.list(TaskQuery(inbox=CLAUDE.inbox))).tasks
    forgotten = MetadataChanged(task_id=asked.id, at=harness.clock.now(), metadata={"sender_inbox": None})
    await harness.neighbour(CLAUDE).journal.record(forgotten)

    with pytest.raises(WaitCycle):
        await harness.service.handle(asked_back(), Caller())


async def test_a_waiter_that_has_left_closes_no_cycle() -> None:
    harness = AgentHarness()
    mine = await codex_waits_for_claude(harness)
    follower = await harness.service.handle(SubscribeTask(task_id=mine.id), Caller())
    await anext(follower)
    await follower.aclose()

    task = await harness.send("and you?", sender=claude(), response_expected=True, sender_task_id="t-claude")
    assert task.state is TaskState.SUBMITTED
