"""The events of tasks. Their names are in the past tense: an event has happened once it is recorded."""

from __future__ import annotations

from dataclasses import field
from datetime import datetime
from typing import NamedTuple

from synapse.core.message import Artifact, Json, Message, empty_object
from synapse.core.task import DEFAULT_PRIORITY, ReceiptStep, Task, TaskId, TaskState
from synapse.core.types import Deadline, frozen


@frozen
class TaskOpened:
    """A message opened a task. The event has every initial field of `Task`, so the log rebuilds the task exactly."""

    task_id: TaskId
    at: datetime
    agent_id: str
    inbox: str
    context_id: str
    scope: str
    dialect: str
    message: Message
    priority: int = DEFAULT_PRIORITY
    queued: bool = True
    deadline: Deadline | None = None
    metadata: Json = field(default_factory=empty_object)
    parent_id: str = ""


@frozen
class StateChanged:
    """The task moved to another state of the lifecycle."""

    task_id: TaskId
    at: datetime
    state: TaskState
    reason: str = ""
    note: str = ""


@frozen
class MessageAdded:
    """A caller or the agent added a message to the task."""

    task_id: TaskId
    at: datetime
    message: Message


@frozen
class ArtifactAdded:
    """The agent returned an artifact. `append` adds its parts to the artifact with the same id."""

    task_id: TaskId
    at: datetime
    artifact: Artifact
    append: bool = False
    last_chunk: bool = True


@frozen
class ReceiptChanged:
    """The message reached the next step of its delivery."""

    task_id: TaskId
    at: datetime
    step: ReceiptStep
    source: str
    evidence: str = ""


@frozen
class MetadataChanged:
    """Keys of the task's metadata got new values; None removes a key."""

    task_id: TaskId
    at: datetime
    metadata: Json


@frozen
class AttentionChanged:
    """A person has to decide something about the task (`attention` says what), or no longer has to (empty)."""

    task_id: TaskId
    at: datetime
    attention: str


@frozen
class TaskHidden:
    """The task was removed from all views; the log keeps it."""

    task_id: TaskId
    at: datetime


TaskEvent = (
    TaskOpened
    | StateChanged
    | MessageAdded
    | ArtifactAdded
    | ReceiptChanged
    | MetadataChanged
    | AttentionChanged
    | TaskHidden
)


class Recorded(NamedTuple):
    """An event that the store has made durable. Readers of its task resume from its `seq`."""

    seq: int
    event: TaskEvent
    position: int = 0
    """Its place in the log of a store over the logs of several machines; 0 where that is the seq."""

    @property
    def cursor(self) -> int:
        """From where readers of the whole log resume."""
        return self.position or self.seq


class Update(NamedTuple):
    """An event of a feed and the task right after it. A snapshot has no event."""

    seq: int
    event: TaskEvent | None
    task: Task
    position: int = 0
    """As `Recorded.position`."""

    @property
    def cursor(self) -> int:
        """From where readers of the whole log resume."""
        return self.position or self.seq
