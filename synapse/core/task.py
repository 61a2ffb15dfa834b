"""A task: one request to an agent, with its messages, results and receipts. Only events change it (see `lifecycle`).

A receipt records how far a message has come on its way to an answer, with evidence for each step:

    queued → typed → submitted → turn_started → answered
                                              ↘ failed | canceled | expired   (from any step)

`typed` records the intent: it is durable before the first byte is written. `submitted` requires proof.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, NewType, TypeVar

from synapse.core.message import Artifact, Json, Message
from synapse.core.types import Clock, Deadline, frozen

TaskId = NewType("TaskId", str)
T = TypeVar("T")

SHORT_ID_LENGTH: Final = 8
DEFAULT_PRIORITY: Final = 3
INTERRUPT_PRIORITY: Final = 5
EXPIRED: Final = "expired"
"""The reason of a task that failed because its deadline passed."""


class TaskState(StrEnum):
    """The states of A2A 1.0."""

    SUBMITTED = "submitted"
    WORKING = "working"
    INPUT_REQUIRED = "input_required"
    AUTH_REQUIRED = "auth_required"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"
    REJECTED = "rejected"

    # Equal to the hash of its string, as the states are; Enum's own __hash__ is slower because it is not written in C.
    __hash__ = str.__hash__

    @property
    def is_terminal(self) -> bool:
        return self in _TERMINAL

    @property
    def is_interrupted(self) -> bool:
        """The agent waits for input or authorization."""
        return self in _INTERRUPTED


_TERMINAL = frozenset({TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED, TaskState.REJECTED})
_INTERRUPTED = frozenset({TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED})


@dataclass(frozen=True, kw_only=True)
class Task:
    """One request to an agent. `history[0]` is the message that opened it.

    The class has no slots: every event makes a new task, and copying a dictionary takes a fifth of the time (see
    `changed`).

    `inbox` names the queue that the task is in: an agent's given name, or its profile and working folder. It stays
    valid when the agent id changes, which contains a port.
    """

    id: TaskId
    agent_id: str
    inbox: str
    context_id: str
    scope: str
    dialect: str
    state: TaskState
    history: tuple[Message, ...]
    created_at: datetime
    updated_at: datetime
    version: int
    priority: int = DEFAULT_PRIORITY
    queued: bool = True
    """False for a task that only waits for a reply (see CreateTask); it is never typed."""
    reason: str = ""
    """A stable word for why the task is in its state (`expired`, `interrupted`, `agent_exited`), or empty."""
    note: str = ""
    """A sentence for people about why the task is in its state."""
    deadline: Deadline | None = None
    artifacts: tuple[Artifact, ...] = ()
    receipts: tuple[Receipt, ...] = ()
    attention: str = ""
    """What a person has to decide about this task, or empty."""
    metadata: Json = field(default_factory=dict[str, Any])
    parent_id: str = ""
    hidden: bool = False

    def is_overdue(self, clock: Clock) -> bool:
        """Decides whether the deadline has passed. It ends only tasks whose message the agent has not taken."""
        return self.deadline is not None and self.deadline.has_passed(clock)

    @property
    def short_id(self) -> str:
        """The beginning of the id, for people and prompts."""
        return self.id[:SHORT_ID_LENGTH]

    @property
    def message(self) -> Message:
        """The message that opened the task."""
        return self.history[0]

    @property
    def receipt(self) -> Receipt | None:
        """The last step that the current message has reached."""
        return self.receipts[-1] if self.receipts else None


def changed(task: Task, changes: dict[str, Any]) -> Task:
    """Returns what `dataclasses.replace` would return, in a tenth of its time."""
    made = object.__new__(Task)
    # A frozen dataclass protects its fields, not its __dict__.
    object.__setattr__(made, "__dict__", task.__dict__ | changes)
    return made


def changed_by(
    task: Task, causes: Iterable[T], changes: Callable[[Task, T], Mapping[str, Any]], more: dict[str, Any]
) -> Task:
    """Returns the task with the fields of `more`, then with those that `changes` returns for each cause in turn.

    `changes` gets the task as the earlier causes have left it.
    """
    made = changed(task, more)
    fields = made.__dict__
    for cause in causes:
        fields.update(changes(made, cause))
    return made


class ReceiptStep(StrEnum):
    """One step of a message's delivery.

    A message returns from typed to queued in two cases: nothing was written after the intent was recorded, or a person
    decided to retry.
    """

    QUEUED = "queued"
    TYPED = "typed"
    SUBMITTED = "submitted"
    TURN_STARTED = "turn_started"
    ANSWERED = "answered"
    FAILED = "failed"
    CANCELED = "canceled"
    EXPIRED = "expired"

    __hash__ = str.__hash__  # see TaskState

    @property
    def is_final(self) -> bool:
        return self in _FINAL


_FINAL = frozenset({ReceiptStep.ANSWERED, ReceiptStep.FAILED, ReceiptStep.CANCELED, ReceiptStep.EXPIRED})


@frozen
class Receipt:
    """A step that a message has reached: when, the evidence, and its source (`screen`, `hook`, `journal`, …)."""

    step: ReceiptStep
    at: datetime
    source: str
    evidence: str = ""
