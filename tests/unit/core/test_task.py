"""Changed copies of a task."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields, replace
from datetime import UTC, datetime
from typing import Any

import pytest

from synapse.core.message import Message, MessageId, Role, TextPart
from synapse.core.task import Task, TaskId, TaskState, changed

AT = datetime(2026, 1, 1, tzinfo=UTC)
TASK = Task(
    id=TaskId("1"),
    agent_id="synapse-codex-8120",
    inbox="codex@/proj",
    context_id="c",
    scope="local",
    dialect="synapse",
    state=TaskState.SUBMITTED,
    history=(Message(message_id=MessageId("m"), role=Role.USER, parts=(TextPart(text="hello"),)),),
    created_at=AT,
    updated_at=AT,
    version=1,
    metadata={"sender": "user"},
)


def test_a_changed_task_equals_the_result_of_replace() -> None:
    changes: dict[str, Any] = {"state": TaskState.WORKING, "version": 2, "note": "on it"}

    assert changed(TASK, changes) == replace(TASK, **changes)
    assert TASK.version == 1


@pytest.mark.parametrize("field", [field.name for field in fields(Task)])
def test_each_field_can_be_changed_alone(field: str) -> None:
    new = changed(TASK, {field: "other"})

    assert getattr(new, field) == "other"
    assert changed(new, {field: getattr(TASK, field)}) == TASK


def test_a_changed_task_is_frozen() -> None:
    task = changed(TASK, {"version": 2})

    with pytest.raises(FrozenInstanceError):
        task.version = 3  # type: ignore[misc]  # that it is refused is the point
