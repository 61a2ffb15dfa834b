"""A task as the contract's example has it, to be changed where a test needs it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from synapse.core.message import Message, Part
from synapse.core.task import Task
from tests.samples import tasks

CREATED = datetime(2024, 1, 15, 10, 30, 0, tzinfo=UTC)
UPDATED = datetime(2024, 1, 15, 10, 30, 5, tzinfo=UTC)
SENDER = {
    "sender_id": "synapse-claude-8100",
    "sender_type": "claude",
    "sender_endpoint": "http://localhost:8100",
}


def a_message(*parts: Part, text: str = "この設計をレビューして") -> Message:
    return tasks.a_message(*parts, text=text)


def a_task(**changes: Any) -> Task:
    ours = {
        "context_id": "conversation-123",
        "dialect": "synapse",
        "history": (a_message(),),
        "created_at": CREATED,
        "updated_at": UPDATED,
        "version": 1,
        "metadata": {"sender": SENDER},
    }
    return tasks.a_task(**ours | changes)
