"""Events with everything filled in that a test does not care about."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from synapse.core.events import (
    ArtifactAdded,
    AttentionChanged,
    MessageAdded,
    MetadataChanged,
    ReceiptChanged,
    StateChanged,
    TaskHidden,
    TaskOpened,
)
from synapse.core.message import Artifact, Message, MessageId, Role, TextPart
from synapse.core.task import ReceiptStep, TaskId, TaskState

START = datetime(2026, 1, 15, 10, 30, tzinfo=UTC)
TASK = TaskId("11111111-0000-4000-8000-000000000000")


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def numbered(number: int) -> TaskId:
    """A task id that begins with the number."""
    return TaskId(f"{number:08d}-0000-4000-8000-000000000000")


def message(text: str = "hello", message_id: str = "m-1", role: Role = Role.USER) -> Message:
    return Message(message_id=MessageId(message_id), role=role, parts=(TextPart(text=text),))


def opened(task_id: str = TASK, at: float = 0, **fields: Any) -> TaskOpened:
    defaults: dict[str, Any] = {
        "agent_id": "synapse-codex-8120",
        "inbox": "codex@/proj",
        "context_id": f"context of {task_id}",
        "scope": "local",
        "dialect": "synapse",
        "message": message(message_id=f"message of {task_id}"),
    }
    return TaskOpened(task_id=TaskId(task_id), at=after(at), **defaults | fields)


def moved(state: TaskState, task_id: str = TASK, at: float = 1, **fields: Any) -> StateChanged:
    return StateChanged(task_id=TaskId(task_id), at=after(at), state=state, **fields)


def said(text: str, task_id: str = TASK, at: float = 1, role: Role = Role.USER) -> MessageAdded:
    return MessageAdded(task_id=TaskId(task_id), at=after(at), message=message(text, f"m-{text}", role))


def handed(text: str, task_id: str = TASK, at: float = 1, *, append: bool = False) -> ArtifactAdded:
    artifact = Artifact(artifact_id="answer", parts=(TextPart(text=text),))
    return ArtifactAdded(task_id=TaskId(task_id), at=after(at), artifact=artifact, append=append)


def stepped(step: ReceiptStep, task_id: str = TASK, at: float = 1) -> ReceiptChanged:
    return ReceiptChanged(task_id=TaskId(task_id), at=after(at), step=step, source="screen", evidence="seen")


def noted(metadata: dict[str, Any], task_id: str = TASK, at: float = 1) -> MetadataChanged:
    return MetadataChanged(task_id=TaskId(task_id), at=after(at), metadata=metadata)


def raised(attention: str, task_id: str = TASK, at: float = 1) -> AttentionChanged:
    return AttentionChanged(task_id=TaskId(task_id), at=after(at), attention=attention)


def hidden(task_id: str = TASK, at: float = 1) -> TaskHidden:
    return TaskHidden(task_id=TaskId(task_id), at=after(at))
