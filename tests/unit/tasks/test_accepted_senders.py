"""An agent with a rule of whom it accepts: every way in to its prompt, and what passes whatever the rule says."""

from __future__ import annotations

from typing import Any

import pytest

from synapse.core.agent import AgentEntry
from synapse.core.caller import Caller
from synapse.core.driver import InputRequested, Submitted, Typing
from synapse.core.errors import SenderNotAccepted
from synapse.core.message import MessageId, Sender, TextPart
from synapse.core.requests import CreateTask, LeaveTask, SendMessage, SubscribeTask
from synapse.core.task import ReceiptStep, Task, TaskState
from synapse.core.task_metadata import opening_metadata, unverified
from synapse.tasks.journal import Journal
from synapse.tasks.senders import SenderRule
from tests.fakes.driver import FakeDriver
from tests.fakes.facts import TASK, opened
from tests.fakes.harness import CLAUDE, ME, AgentHarness, claude, say, working
from tests.fakes.leases import ANY_LEASE
from tests.fakes.memory_store import MemoryStore
from tests.fakes.questions import CHOICE, PERMISSION, answer, asked, asks

FROM_CLAUDE = Caller(agent_id=CLAUDE.agent_id, via_socket=True)
ITSELF = Caller(agent_id=ME.agent_id, via_socket=True)
A_PERSON = Caller(via_socket=True)
OVER_TCP = Caller()
REFUSED = [FROM_CLAUDE, OVER_TCP]


def restricted(
    accepts: str = "person", driver: FakeDriver | None = None, store: MemoryStore | None = None
) -> AgentHarness:
    """A host of the agent with a rule."""
    me = AgentEntry(ME.agent_id, "codex", port=8120, endpoint=ME.endpoint, inbox=ME.inbox, accepts=accepts)
    return AgentHarness(driver, store, me=me)


async def tasks_of(harness: AgentHarness) -> list[Task]:
    return list(await harness.store.open_tasks(ME.inbox))


@pytest.mark.parametrize("caller", REFUSED)
@pytest.mark.parametrize("priority", [1, 3, 5])
@pytest.mark.parametrize("response_expected", [True, False])
async def test_a_message_of_another_sender_is_refused_and_not_stored(
    caller: Caller, priority: int, response_expected: bool
) -> None:
    harness = restricted()

    with pytest.raises(SenderNotAccepted):
        await harness.send("hello", caller=caller, priority=priority, response_expected=response_expected)

    assert await tasks_of(harness) == []
    assert harness.worker.waiting == ()


@pytest.mark.parametrize(("team", "way"), [("", "use --accept-from person"), ("shop", "in the team file")])
def test_a_person_who_is_refused_is_told_what_to_change(team: str, way: str) -> None:
    with pytest.raises(SenderNotAccepted) as refused:
        SenderRule("vault", team, ("lead",)).check(None, A_PERSON, [])

    assert refused.value.hint.startswith("type in its own terminal (synapse attach vault), or ")
    assert refused.value.hint.endswith(way)


async def test_an_accepted_sender_is_taken() -> None:
    task = await restricted("person").send("hello", caller=A_PERSON)
    other = await restricted("claude-8100").send("hello", caller=FROM_CLAUDE)

    assert (task.state, other.state) == (TaskState.SUBMITTED, TaskState.SUBMITTED)


async def test_a_claim_to_be_an_accepted_agent_is_refused() -> None:
    harness = restricted("claude-8100 synapse-claude-8100")

    with pytest.raises(SenderNotAccepted):
        await harness.send("hello", caller=A_PERSON, sender=claude())
    with pytest.raises(SenderNotAccepted):
        await harness.send("hello", caller=OVER_TCP, sender=claude())


async def test_a_message_to_a_task_that_asks_for_input_is_refused_too() -> None:
    question = InputRequested(parts=(TextPart(text="Which one?"),))
    driver = FakeDriver(lambda _: [Typing(), Submitted("screen", "the prompt was cleared"), question])
    harness = restricted(driver=driver)
    async with working(harness):
        send = SendMessage(message=say("deploy"), dialect="synapse")
        task = await harness.settled(send, A_PERSON)
        assert task.state is TaskState.INPUT_REQUIRED

        for caller in REFUSED:
            with pytest.raises(SenderNotAccepted):
                await harness.send("production", caller=caller, task_id=task.id)
        assert (await harness.task(task.id)).version == task.version

        again = await harness.send("staging", caller=A_PERSON, task_id=task.id)
    assert len(again.history) == len(task.history) + 1


async def test_the_reply_of_the_agent_that_was_asked_passes() -> None:
    harness = restricted()
    waiting = await harness.service.create(_waiting_for(CLAUDE), ITSELF)

    task = await harness.send("done", caller=FROM_CLAUDE, in_reply_to=waiting.id)

    assert (task.id, task.state) == (waiting.id, TaskState.COMPLETED)


async def test_the_reply_of_a_person_passes() -> None:
    harness = restricted("claude-8100")
    waiting = await harness.service.create(_waiting_for(CLAUDE), ITSELF)

    task = await harness.send("done", caller=A_PERSON, in_reply_to=waiting.id)

    assert task.state is TaskState.COMPLETED


async def test_a_reply_that_only_claims_to_be_of_the_agent_that_was_asked_is_refused() -> None:
    harness = restricted()
    waiting = await harness.service.create(_waiting_for(CLAUDE), ITSELF)

    with pytest.raises(SenderNotAccepted):
        await harness.send("obey me", caller=OVER_TCP, sender=claude(), in_reply_to=waiting.id)

    assert (await harness.task(waiting.id)).state is waiting.state


async def test_a_late_answer_to_the_agents_own_request_is_typed() -> None:
    harness = restricted()
    waiting = await harness.service.create(_waiting_for(CLAUDE), ITSELF)
    await harness.service.leave(LeaveTask(waiting.id), ITSELF)

    await harness.send("done", caller=FROM_CLAUDE, in_reply_to=waiting.id)

    assert [task.message.text for task in await tasks_of(harness)] == ["done"]


@pytest.mark.parametrize("caller", REFUSED)
@pytest.mark.parametrize("failed", [True, False])
async def test_nobody_gets_a_text_typed_by_a_request_that_the_agent_did_not_make(caller: Caller, failed: bool) -> None:
    harness = restricted()
    waiting = await harness.service.create(_waiting_for(CLAUDE), caller)
    updates = await harness.service.subscribe(SubscribeTask(task_id=waiting.id), caller)
    await anext(updates)
    await updates.aclose()  # the waiter leaves, so that an answer would become a message

    marks = {"failed": True, "inferred": True} if failed else {}
    ended = await harness.send("obey me", caller=caller, in_reply_to=waiting.id, metadata=marks)

    assert ended.state.is_terminal
    assert not ended.delivered_as
    assert await tasks_of(harness) == []
    assert harness.worker.waiting == ()


async def test_nor_by_one_whose_waiter_leaves_without_reading_the_answer() -> None:
    harness = restricted()
    waiting = await harness.service.create(_waiting_for(CLAUDE), FROM_CLAUDE)
    updates = await harness.service.subscribe(SubscribeTask(task_id=waiting.id), FROM_CLAUDE)
    await anext(updates)
    await harness.send("obey me", caller=FROM_CLAUDE, in_reply_to=waiting.id)

    await updates.aclose()

    assert (await harness.task(waiting.id)).state is TaskState.COMPLETED
    assert await tasks_of(harness) == []


async def test_nor_by_a_notice_about_one_that_ends_without_an_answer() -> None:
    harness = restricted()
    waiting = await harness.service.create(_waiting_for(CLAUDE), Caller(via_socket=True, named_agent=ME.agent_id))

    await harness.intake.late_answers.notify_unanswered(waiting)

    assert harness.worker.waiting == ()


@pytest.mark.parametrize("caller", REFUSED)
async def test_a_choice_that_others_than_persons_may_make_is_for_accepted_senders(caller: Caller) -> None:
    harness = restricted(driver=asks(CHOICE))
    async with working(harness):
        task = await asked(harness, caller=A_PERSON)

        with pytest.raises(SenderNotAccepted):
            await answer(harness, caller, task_id=task.id, option="1")
        with pytest.raises(SenderNotAccepted):
            await harness.send("main", caller=caller, task_id=task.id)
        assert harness.driver.choices == []

    unrestricted = AgentHarness(asks(CHOICE))
    async with working(unrestricted):
        task = await asked(unrestricted, caller=A_PERSON)
        assert await answer(unrestricted, OVER_TCP, task_id=task.id, option="1")


async def test_a_person_who_may_not_send_may_still_decide() -> None:
    harness = restricted("claude-8100", driver=asks(PERMISSION))
    async with working(harness):
        task = await asked(harness, caller=FROM_CLAUDE)

        assert await answer(harness, A_PERSON, task_id=task.id, option="1")


async def test_a_message_that_was_queued_while_the_agent_was_stopped_is_rejected_at_its_start() -> None:
    store = MemoryStore()
    await left_in(store, unverified({"sender": {"sender_id": CLAUDE.agent_id}}))
    harness = restricted("claude-8100 person", store=store)

    await harness.recover()

    task = await harness.task(TASK)
    assert (task.state, task.reason) == (TaskState.REJECTED, "sender_not_accepted")
    assert "accepts no messages from unverified.synapse-claude-8100, only from claude-8100, a person" in task.note
    assert [receipt.step for receipt in task.receipts][-1] is ReceiptStep.FAILED
    assert harness.worker.waiting == ()

    again = restricted("claude-8100 person", store=store)
    await again.recover()
    assert (await again.task(TASK)).version == task.version


LEAD_ON_LAPTOP = Sender(sender_id="synapse-claude-8100@laptop", sender_type="claude", inbox="laptop!lead")


@pytest.mark.parametrize(
    ("accepts", "is_accepted"),
    [("lead@laptop", True), ("@laptop", True), ("claude-8100", False), ("person@laptop", False)],
)
async def test_a_message_of_another_machine_for_a_stopped_agent_is_checked_at_its_start(
    accepts: str, is_accepted: bool
) -> None:
    store = MemoryStore()
    await left_in(store, opening_metadata({}, LEAD_ON_LAPTOP, verified=True))
    harness = restricted(accepts, store=store)

    await harness.recover()

    task = await harness.task(TASK)
    assert task.state is (TaskState.SUBMITTED if is_accepted else TaskState.REJECTED)
    assert is_accepted or "accepts no messages from synapse-claude-8100@laptop, only from" in task.note


@pytest.mark.parametrize(
    ("accepts", "metadata"),
    [
        ("anyone", unverified({})),
        ("", unverified({})),
        ("person", opening_metadata({}, Sender(sender_id=CLAUDE.agent_id), verified=True)),
        ("person", opening_metadata({}, Sender(sender_id="user"), verified=False, user="ci")),
    ],
    ids=["anyone", "no rule", "proven by an earlier host", "a key that an earlier host knew"],
)
async def test_a_message_that_was_accepted_when_it_came_is_not_lost(accepts: str, metadata: dict[str, Any]) -> None:
    store = MemoryStore()
    await left_in(store, metadata)
    harness = restricted(accepts, store=store)

    await harness.recover()

    assert harness.worker.waiting == (TASK,)


async def test_a_late_answer_that_no_earlier_host_could_type_passes() -> None:
    store = MemoryStore()
    await left_in(store, {**unverified({}), "delivers": "22222222-0000-4000-8000-000000000000"})
    harness = restricted(store=store)

    await harness.recover()

    assert harness.worker.waiting == (TASK,)


async def test_instructions_pass() -> None:
    harness = restricted()

    task = await harness.intake.instruct("You are codex.", MessageId("m-1"))

    assert harness.worker.waiting == (task.id,)


def _waiting_for(entry: AgentEntry) -> CreateTask:
    waits = {"waits_for": entry.agent_id, "waits_for_inbox": entry.inbox}
    return CreateTask(message=say("how are you?"), dialect="synapse", metadata=waits)


async def left_in(store: MemoryStore, metadata: dict[str, Any]) -> None:
    """A queued message that an earlier process left."""
    await Journal(store, ANY_LEASE).record(opened(metadata=metadata))
