"""A task as the contract's example has it, to be changed where a test needs it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from synapse.core.message import Message, MessageId, Part, Role, TextPart
from synapse.core.task import Task, TaskId, TaskState

CREATED = datetime(2024, 1, 15, 10, 30, 0, tzinfo=UTC)
UPDATED = datetime(2024, 1, 15, 10, 30, 5, tzinfo=UTC)
SENDER = {
    "sender_id": "synapse-claude-8100",
    "sender_type": "claude",
    "sender_endpoint": "http://localhost:8100",
}


def a_message(*parts: Part, text: str = "この設計をレビューして") -> Message:
    return Message(message_id=MessageId("m-1"), role=Role.USER, parts=parts or (TextPart(text=text),))


def a_task(**changes: Any) -> Task:
    task = Task(
        id=TaskId("550e8400-e29b-41d4-a716-446655440000"),
        agent_id="synapse-codex-8120",
        inbox="codex@/proj",
        context_id="conversation-123",
        scope="local",
        dialect="synapse",
        state=TaskState.WORKING,
        history=(a_message(),),
        created_at=CREATED,
        updated_at=UPDATED,
        version=1,
        metadata={"sender": SENDER},
    )
    return replace(task, **changes)
