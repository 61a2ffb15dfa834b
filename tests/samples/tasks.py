"""A message and a task that tests change where they need it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from synapse.core.message import Message, MessageId, Part, Role, TextPart
from synapse.core.task import Task, TaskId, TaskState

TASK_ID = "550e8400-e29b-41d4-a716-446655440000"
CREATED = datetime(2026, 1, 15, 10, 30, 0, tzinfo=UTC)
UPDATED = datetime(2026, 1, 15, 10, 30, 5, 123456, tzinfo=UTC)


def a_message(
    *parts: Part,
    text: str = "hello",
    message_id: str = "m-1",
    role: Role = Role.USER,
    metadata: Mapping[str, Any] | None = None,
) -> Message:
    said = parts or (TextPart(text=text),)
    return Message(message_id=MessageId(message_id), role=role, parts=said, metadata=metadata or {})


def a_task(**changes: Any) -> Task:
    task = Task(
        id=TaskId(TASK_ID),
        agent_id="synapse-codex-8120",
        inbox="codex@/proj",
        context_id="c-1",
        scope="local",
        dialect="a2a_v1",
        state=TaskState.WORKING,
        history=(a_message(),),
        created_at=CREATED,
        updated_at=UPDATED,
        version=4,
    )
    return replace(task, **changes)


def a_question(state: TaskState = TaskState.INPUT_REQUIRED, **changes: Any) -> Task:
    """A task whose agent asks for something."""
    question = a_message(text="which one?", message_id="m-2", role=Role.AGENT)
    return a_task(state=state, history=(a_message(), question), note="which one?", **changes)
