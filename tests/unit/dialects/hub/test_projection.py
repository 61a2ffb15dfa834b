"""How tasks, messages and lists look in the hub dialect."""

from __future__ import annotations

from typing import Any

import pytest

from synapse.core.errors import NotFound
from synapse.core.message import DataPart, FilePart, Role, TextPart
from synapse.core.store import TaskPage
from synapse.core.task import Task, TaskState
from synapse.dialects.hub.encode import ASKED_STATES, FAILURE_CODES, STATE_NAMES, failure_object
from tests.samples.calls import told
from tests.unit.dialects.hub.samples import AGENT, QUESTION, TASK_ID, a_message, a_task, an_artifact, ask, said


def shown(task: Task) -> Any:
    return told(ask("GET", "/tasks/{taskId}", taskId=TASK_ID), task)


def test_every_state_has_a_word_of_the_document() -> None:
    assert set(STATE_NAMES) == set(TaskState)
    assert set(STATE_NAMES.values()) == set(ASKED_STATES)
    for word, state in ASKED_STATES.items():
        assert STATE_NAMES[state] == word


def test_what_failed_has_a_code_and_nothing_else_has() -> None:
    assert set(FAILURE_CODES) == {state for state in TaskState if STATE_NAMES[state] == "failed"}


@pytest.mark.parametrize(
    ("state", "reason", "note", "error"),
    [
        (
            TaskState.FAILED,
            "agent_exited",
            "it has exited",
            {"code": "AGENT_EXECUTION_ERROR", "message": "it has exited", "details": {"reason": "agent_exited"}},
        ),
        (
            TaskState.REJECTED,
            "",
            "not for me",
            {"code": "AGENT_EXECUTION_ERROR", "message": "not for me"},
        ),
        (
            TaskState.CANCELED,
            "",
            "",
            {"code": "TASK_CANCELLED", "message": "the task was canceled"},
        ),
        (TaskState.COMPLETED, "", "", None),
        (TaskState.WORKING, "", "half way", None),
    ],
)
def test_why_a_task_failed(state: TaskState, reason: str, note: str, error: Any) -> None:
    task = a_task(state=state, reason=reason, note=note)

    assert failure_object(task) == error
    assert shown(task).get("error") == error


def test_optional_fields_are_there_when_they_say_something() -> None:
    task = shown(a_task(parent_id="p", metadata={"user": "alice", "request": {"k": 1}, "sender": {}}))

    assert list(task) == [
        "id", "agentId", "state", "createdAt", "updatedAt", "parentId", "userId", "artifacts", "metadata",
    ]  # fmt: skip
    assert (task["parentId"], task["userId"], task["metadata"]) == ("p", "alice", {"k": 1})


@pytest.mark.parametrize("metadata", [{"user": "", "request": {}}, {"user": {"id": 1}, "request": "words"}])
def test_metadata_of_other_dialects_is_not_taken_for_ours(metadata: Any) -> None:
    assert list(shown(a_task(metadata=metadata))) == ["id", "agentId", "state", "createdAt", "updatedAt", "artifacts"]


@pytest.mark.parametrize(
    ("artifact", "wire"),
    [
        (
            an_artifact(TextPart(text="sun")),
            {"type": "message", "content": [{"type": "text", "content": "sun"}]},
        ),
        (
            an_artifact(TextPart(text="su"), TextPart(text="n")),
            {"type": "message", "content": [{"type": "text", "content": "sun"}]},
        ),
        (
            an_artifact(TextPart(text="see"), FilePart(url="https://x")),
            {
                "type": "message",
                "content": [{"type": "text", "content": "see"}, {"type": "file", "content": {"url": "https://x"}}],
            },
        ),
        (
            an_artifact(FilePart(content=b"hi", name="a.txt"), name="a.txt", description="a file"),
            {
                "type": "file",
                "content": {"name": "a.txt", "data": "aGk="},
                "metadata": {"name": "a.txt", "description": "a file"},
            },
        ),
        (an_artifact(DataPart(data={"high": 72})), {"type": "result", "content": {"high": 72}}),
        (
            an_artifact(TextPart(text="sun"), metadata={"source": "screen", "inferred": True, "partial": True}),
            {
                "type": "message",
                "content": [{"type": "text", "content": "sun"}],
                "metadata": {"source": "screen", "inferred": True, "partial": True},
            },
        ),
        (
            an_artifact(TextPart(text="sun"), metadata={"source": "reply", "inferred": False}),
            {"type": "message", "content": [{"type": "text", "content": "sun"}]},
        ),
    ],
)
def test_artifacts_have_the_type_of_their_content(artifact: Any, wire: Any) -> None:
    assert shown(a_task(artifacts=(artifact,)))["artifacts"] == [wire]


def test_what_the_agent_asked_comes_before_what_it_answered() -> None:
    asked = a_message(TextPart(text="where?"), role=Role.AGENT)
    artifacts = shown(said("sun", history=(a_message(), asked)))["artifacts"]

    assert [artifact["content"][0]["content"] for artifact in artifacts] == ["where?", "sun"]


def test_pages_follow_each_other_by_cursor() -> None:
    call = ask("GET", "/tasks")

    assert told(call, TaskPage((a_task(),), "more", 2))["nextCursor"] == "more"
    assert told(call, TaskPage((), "", 0)) == {"tasks": [], "nextCursor": None}


def test_a_message_is_shown_with_its_task() -> None:
    call = ask("GET", "/messages/{messageId}", messageId="m-1")

    assert told(call, a_task()) == {
        "messageId": "m-1",
        "taskId": TASK_ID,
        "agentId": AGENT,
        "role": "user",
        "message": [QUESTION],
    }


def test_a_message_that_is_not_there_is_not_found() -> None:
    with pytest.raises(NotFound, match="m-9"):
        told(ask("GET", "/messages/{messageId}", messageId="m-9"), a_task())
