"""The keys of a task's metadata that Synapse writes become fields of the task."""

from __future__ import annotations

from typing import Any

import pytest

from synapse.core.caller import GATEWAY_MACHINE, GATEWAY_SCOPE
from synapse.core.lifecycle import apply, replay
from synapse.core.message import A_PERSON, Sender
from synapse.core.question import Question, QuestionKind, question_fields
from synapse.core.task import ReplyTo, Task, TaskState, WaitTarget
from synapse.core.task_metadata import (
    answer_noted,
    asked_for,
    opening_metadata,
    question_noted,
    question_removed,
    reply_noted,
    sender_name_in,
    sent_by,
    shown_metadata,
    unverified,
    waiter_noted,
)
from tests.fakes.facts import TASK, after, moved, noted, opened

QUESTION = Question(id="q-1", kind=QuestionKind.PERMISSION, title="Run it?")
CLAUDE = Sender(
    sender_id="synapse-claude-8100",
    sender_type="claude",
    sender_endpoint="http://localhost:8100",
    inbox="claude@/proj",
)


def task_with(metadata: dict[str, Any]) -> Task:
    return replay([opened(metadata=metadata)])


def test_clients_see_no_key_that_links_and_gateways_write_for_each_other() -> None:
    own = {"ttl": 60, "queue": "mine"}

    assert shown_metadata({**own, GATEWAY_SCOPE: "key:ci", GATEWAY_MACHINE: "hub"}) == own


def test_a_task_without_metadata_is_from_a_person_that_is_not_proven() -> None:
    task = task_with({})

    assert (task.sender, task.sender_verified, task.user) == (A_PERSON, False, "")
    assert (task.reply_to, task.replied, task.waits_for, task.waiter_left, task.question) == (
        None,
        "",
        None,
        False,
        None,
    )


def test_what_is_written_of_a_sender_is_read_again() -> None:
    task = task_with(opening_metadata({}, CLAUDE, verified=True, user="ci", reply_to=ReplyTo(task_id="t-1")))

    assert (task.sender, task.sender_verified, task.user) == (CLAUDE, True, "ci")
    assert task.reply_to == ReplyTo(task_id="t-1")


def test_the_inbox_of_a_sender_is_written_only_when_it_waits_for_a_reply() -> None:
    assert "sender_inbox" not in opening_metadata({}, CLAUDE, verified=True)


def test_our_keys_keep_the_places_that_the_sender_gave_them() -> None:
    claims = {"a": 1, "sender": {"sender_id": "claimed"}, "b": 2, "sender_task_id": "t-1", "question": {}, "c": 3}

    metadata = opening_metadata(claims, CLAUDE, verified=True, reply_to=ReplyTo(task_id="t-1"))

    ours = ["sender_verified", "response_expected", "sender_inbox"]
    assert list(metadata) == ["a", "sender", "b", "sender_task_id", "c", *ours]
    assert metadata["sender"]["sender_id"] == CLAUDE.sender_id


@pytest.mark.parametrize(
    "metadata",
    [
        {"sender": "claude"},
        {"sender": {"sender_id": ""}},
        {"sender_verified": "yes"},
        {"user": 7},
        {"response_expected": 1},
        {"replied": True},
        {"waits_for": ""},
        {"waits_for_inbox": "gemini@/proj"},
        {"waiter_left": "yes"},
    ],
)
def test_a_value_of_a_wrong_type_is_shown_but_means_nothing(metadata: dict[str, Any]) -> None:
    task = task_with(metadata)

    assert {**vars(task), "metadata": {}} == vars(task_with({}))
    assert task.metadata == metadata


def test_a_wait_names_the_agent_and_its_inbox() -> None:
    assert task_with({"waits_for": "a", "waits_for_inbox": "b"}).waits_for == WaitTarget(agent_id="a", inbox="b")
    assert task_with({"waits_for": "a"}).waits_for == WaitTarget(agent_id="a")


def test_a_wait_for_what_is_no_agent_id_stays_a_wait_that_no_agent_ends() -> None:
    assert task_with({"waits_for": ["a"]}).waits_for == WaitTarget(agent_id="['a']")


def test_events_set_and_remove_the_fields() -> None:
    task = task_with({})

    assert apply(task, reply_noted(task, after(1), "explicit")).replied == "explicit"
    left = apply(task, waiter_noted(task, after(1), left=True))
    assert left.waiter_left
    back = apply(left, waiter_noted(task, after(2), left=False))
    assert not back.waiter_left
    assert back.metadata == {}


def test_a_question_is_open_only_while_the_state_says_so() -> None:
    task = apply(task_with({}), moved(TaskState.WORKING))
    asked = apply(task, question_noted(task, after(2), QUESTION))
    assert asked.question is None

    waiting = apply(asked, moved(TaskState.INPUT_REQUIRED, at=3, reason="waiting_for_person"))
    assert waiting.question == QUESTION
    assert waiting.metadata["question"] == {**question_fields(QUESTION), "asked_at": "2026-01-15T10:30:02.000Z"}

    assert apply(waiting, question_removed(task, after(4))).question is None
    assert apply(waiting, moved(TaskState.WORKING, at=4)).question is None


def test_a_change_of_other_keys_leaves_the_fields_as_they_are() -> None:
    task = task_with(opening_metadata({}, CLAUDE, verified=True, reply_to=ReplyTo(task_id="t-1")))

    changed = apply(task, noted({"own": 1}), answer_noted(task, after(2), {"by": "user"}))

    assert changed.sender is task.sender
    assert changed.reply_to is task.reply_to
    assert changed.metadata == {**task.metadata, "own": 1, "answered": {"by": "user"}}


@pytest.mark.parametrize("metadata", [{}, {"user": "ci"}, opening_metadata({}, CLAUDE, verified=True)])
def test_an_event_and_its_task_name_the_sender_alike(metadata: dict[str, Any]) -> None:
    assert sender_name_in(metadata) == task_with(metadata).sender_name


def test_a_claim_that_no_host_verifies_is_not_proven() -> None:
    assert not task_with(unverified({"sender": {"sender_id": "user"}, "sender_verified": True})).sender_verified


def test_tasks_are_found_by_the_keys_that_are_stored() -> None:
    assert sent_by("ci") == {"user": "ci"}
    assert asked_for(task_with({})) == {"sender_task_id": TASK}
