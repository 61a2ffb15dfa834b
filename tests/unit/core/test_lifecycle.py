"""The lifecycle: which events a task accepts, and how they change it."""

from __future__ import annotations

import pytest

from synapse.core.errors import IllegalTransition, TaskFinished
from synapse.core.events import TaskEvent
from synapse.core.lifecycle import NEXT_STATES, apply, opened, replay
from synapse.core.message import Role
from synapse.core.task import ReceiptStep, Task, TaskState
from synapse.core.types import BootTime, Deadline
from tests.fakes import facts
from tests.fakes.facts import after, handed, moved, noted, raised, said, stepped

TERMINAL = [state for state in TaskState if state.is_terminal]
OPEN = [state for state in TaskState if not state.is_terminal]


def task_in(state: TaskState) -> Task:
    new = opened(facts.opened())
    return new if state is TaskState.SUBMITTED else apply(new, moved(state))


def test_every_state_has_a_row_in_the_table() -> None:
    assert NEXT_STATES.keys() == set(TaskState)


@pytest.mark.parametrize("state", TERMINAL)
def test_a_terminal_state_has_no_way_out(state: TaskState) -> None:
    for following in TaskState:
        with pytest.raises(IllegalTransition):
            apply(task_in(state), moved(following, at=2))


@pytest.mark.parametrize("state", OPEN)
@pytest.mark.parametrize("end", TERMINAL)
def test_every_open_task_can_end_in_every_way(state: TaskState, end: TaskState) -> None:
    assert apply(task_in(state), moved(end, at=2)).state is end


@pytest.mark.parametrize("state", TERMINAL)
@pytest.mark.parametrize("event", [said("more"), handed("more"), raised("look")])
def test_a_finished_task_takes_nothing_more(state: TaskState, event: TaskEvent) -> None:
    with pytest.raises(TaskFinished):
        apply(task_in(state), event)


def test_a_finished_task_still_takes_notes_and_can_be_hidden() -> None:
    task = apply(task_in(TaskState.COMPLETED), noted({"seen": True}))
    task = apply(apply(task, raised("")), facts.hidden())

    assert task.metadata == {"seen": True}
    assert task.hidden
    assert task.state is TaskState.COMPLETED


def test_each_event_counts_one_version_and_sets_the_time() -> None:
    task = replay([facts.opened(), said("a", at=1), stepped(ReceiptStep.QUEUED, at=2), noted({}, at=3)])

    assert task.version == 4
    assert task.created_at == after(0)
    assert task.updated_at == after(3)


def test_a_task_starts_as_its_first_event_says() -> None:
    deadline = Deadline(after(60), BootTime("boot", 60.0))
    event = facts.opened(priority=5, queued=False, deadline=deadline, metadata={"a": 1}, parent_id="p")

    task = opened(event)

    assert (task.priority, task.queued, task.deadline, task.parent_id) == (5, False, deadline, "p")
    assert task.state is TaskState.SUBMITTED
    assert task.receipts == ()
    assert task.message == event.message
    assert task.metadata == {"a": 1}
    assert task.version == 1


def test_the_receipt_of_a_message_that_is_to_be_typed_begins_with_queued() -> None:
    assert [receipt.step for receipt in opened(facts.opened()).receipts] == [ReceiptStep.QUEUED]


def test_a_task_is_opened_once() -> None:
    with pytest.raises(IllegalTransition):
        apply(opened(facts.opened()), facts.opened())


@pytest.mark.parametrize("log", [[], [said("first")]])
def test_a_log_begins_with_task_opened(log: list[TaskEvent]) -> None:
    with pytest.raises(IllegalTransition):
        replay(log)


def test_messages_keep_their_order() -> None:
    task = replay([facts.opened(), said("a"), said("b", role=Role.AGENT)])

    assert [one.text for one in task.history] == ["hello", "a", "b"]


def test_a_chunk_is_added_to_the_artifact_of_the_same_id() -> None:
    task = replay([facts.opened(), handed("a"), handed("b", append=True)])

    assert len(task.artifacts) == 1
    assert task.artifacts[0].text == "ab"


def test_an_artifact_that_comes_again_replaces_the_first() -> None:
    task = replay([facts.opened(), handed("a"), handed("b")])

    assert [artifact.text for artifact in task.artifacts] == ["b"]


def test_none_removes_a_key_of_the_metadata() -> None:
    task = replay([facts.opened(metadata={"a": 1, "b": 2}), noted({"a": None, "c": 3})])

    assert task.metadata == {"b": 2, "c": 3}


def test_an_end_clears_the_attention_and_gives_the_reason() -> None:
    task = replay([facts.opened(), raised("decide"), moved(TaskState.FAILED, reason="expired", note="too late")])

    assert (task.attention, task.reason, task.note) == ("", "expired", "too late")


def test_attention_stays_while_the_task_goes_on() -> None:
    assert replay([facts.opened(), raised("decide"), moved(TaskState.WORKING)]).attention == "decide"


def test_the_receipt_is_the_last_step() -> None:
    task = replay([facts.opened(), stepped(ReceiptStep.TYPED, at=2)])

    assert task.receipt is not None
    assert (task.receipt.step, task.receipt.at) == (ReceiptStep.TYPED, after(2))
    assert [receipt.step for receipt in task.receipts] == ["queued", "typed"]


def test_a_canceled_message_is_never_typed() -> None:
    canceled = replay([facts.opened(), moved(TaskState.CANCELED)])

    with pytest.raises(TaskFinished):
        apply(canceled, stepped(ReceiptStep.TYPED))


def test_a_finished_task_takes_one_final_step() -> None:
    canceled = replay([facts.opened(), moved(TaskState.CANCELED)])

    settled = apply(canceled, stepped(ReceiptStep.CANCELED))

    with pytest.raises(TaskFinished):
        apply(settled, stepped(ReceiptStep.ANSWERED))


def test_a_follow_up_begins_a_new_receipt_after_an_answer() -> None:
    log: list[TaskEvent] = [facts.opened(), stepped(ReceiptStep.ANSWERED), moved(TaskState.INPUT_REQUIRED), said("yes")]

    task = replay([*log, stepped(ReceiptStep.QUEUED), moved(TaskState.SUBMITTED)])

    assert task.receipt is not None
    assert task.receipt.step is ReceiptStep.QUEUED
