"""A task: one request to an agent and all that came of it. It changes only by events (see `lifecycle`).

The receipt: how far a message has come on its way to an answer, with evidence for each step.

    queued → typed → submitted → turn_started → answered
                                              ↘ failed | canceled | expired   (from any step)

`typed` is the intent: it is durable before the first byte is written. `submitted` needs proof.
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
"""Why a task has failed whose time was over."""


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

    # As that of its text, which is what it is equal to; an enumeration's own is not made in C.
    __hash__ = str.__hash__

    @property
    def is_terminal(self) -> bool:
        return self in _TERMINAL

    @property
    def is_interrupted(self) -> bool:
        """The agent waits for somebody before it goes on."""
        return self in _INTERRUPTED


_TERMINAL = frozenset({TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED, TaskState.REJECTED})
_INTERRUPTED = frozenset({TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED})


@dataclass(frozen=True, kw_only=True)
class Task:
    """What is known of one request. `history[0]` is the message that opened it.

    Without slots: every event makes a new task, and a dictionary is copied in a fifth of the time (see `changed`).

    `inbox` names whose queue it stands in: an agent's given name, or its profile and working folder. It outlives the
    agent id, which holds a port.
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
    """False for a task that only waits for a reply (made by CreateTask); it is never typed."""
    reason: str = ""
    """Why the task is in its state, as a stable word (`expired`, `interrupted`, `agent_exited`) or empty."""
    note: str = ""
    """The same, as a sentence for a person."""
    deadline: Deadline | None = None
    artifacts: tuple[Artifact, ...] = ()
    receipts: tuple[Receipt, ...] = ()
    attention: str = ""
    """What a person has to decide about this task, or empty."""
    metadata: Json = field(default_factory=dict[str, Any])
    parent_id: str = ""
    hidden: bool = False

    def is_overdue(self, clock: Clock) -> bool:
        """Whether its deadline has passed; most tasks end before theirs, and only what was not taken ends by it."""
        return self.deadline is not None and self.deadline.has_passed(clock)

    @property
    def short_id(self) -> str:
        """The form for people and prompts."""
        return self.id[:SHORT_ID_LENGTH]

    @property
    def message(self) -> Message:
        """The message that opened the task."""
        return self.history[0]

    @property
    def receipt(self) -> Receipt | None:
        """The last step of the current message's way."""
        return self.receipts[-1] if self.receipts else None


def changed(task: Task, changes: dict[str, Any]) -> Task:
    """What `dataclasses.replace` returns, in a tenth of its time."""
    made = object.__new__(Task)
    # A frozen class refuses its fields by name, not the dictionary that holds them.
    object.__setattr__(made, "__dict__", task.__dict__ | changes)
    return made


def changed_by(
    task: Task, causes: Iterable[T], changes: Callable[[Task, T], Mapping[str, Any]], more: dict[str, Any]
) -> Task:
    """The same with `more`, then for one cause after the other; `changes` is asked with the task as it is by then."""
    made = changed(task, more)
    fields = made.__dict__
    for cause in causes:
        fields.update(changes(made, cause))
    return made


class ReceiptStep(StrEnum):
    """One step of a message's way.

    Two things lead back, from typed to queued: an intent that came to nothing, and a person's decision.
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
    """A step that was reached: when, what was seen, and by which source (`screen`, `hook`, `journal`, …)."""

    step: ReceiptStep
    at: datetime
    source: str
    evidence: str = ""
