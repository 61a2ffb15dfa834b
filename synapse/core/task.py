"""A task: one request to an agent, with its messages, results and receipts. Only events change it (see `lifecycle`).

A receipt records how far a message has come on its way to an answer, with evidence for each step:

    queued → typed → submitted → turn_started → answered
                                              ↘ failed | canceled | expired   (from any step)

`typed` records the intent: it is durable before the first byte is written. `submitted` requires proof.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, NewType, TypeVar

from synapse.core.address import split_inbox
from synapse.core.message import A_PERSON, Artifact, Json, Message, Sender
from synapse.core.question import WAITING_FOR_PERSON, Question
from synapse.core.text import sender_name
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


@frozen
class ReplyTo:
    """What the sender of a task waits for."""

    task_id: str
    """The task on the sender's own host that the reply completes; empty when the sender follows ours."""


@frozen
class WaitTarget:
    """The agent whose reply completes a task."""

    agent_id: str
    inbox: str = ""
    """Stays when the agent restarts on another port, which its id contains."""

    @property
    def machine(self) -> str:
        """The machine of the agent; empty for one here."""
        return split_inbox(self.inbox)[1]


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
    sender: Sender = A_PERSON
    sender_verified: bool = False
    """The process that sent the message proves the sender."""
    user: str = ""
    """The name of the caller that sent it, at a gateway, where callers have names."""
    reply_to: ReplyTo | None = None
    """Set while the sender waits for a reply, and afterwards."""
    replied: str = ""
    """How the sender was answered: `explicit` or `inferred`; empty before."""
    waits_for: WaitTarget | None = None
    """The agent that was asked, for a task that waits for a reply."""
    asks_person: bool = False
    """The task is a question of the agent's own to a person; see AskPerson."""
    asked_in: str = ""
    """The task in whose turn the agent asked, for a task that waits for a reply to this agent itself."""
    waiter_left: bool = False
    """The process that waits for the task has left, so nothing blocks on it. Of a task that has ended: nobody read the
    answer here, see `delivered_as`."""
    waiter_released: bool = False
    """The waiter has left for good (see LeaveTask): a reader of the task no longer counts as its waiter. Of a task that
    had ended, the waiter took the answer with it."""
    delivered_as: str = ""
    """The task that delivers the answer to the agent as a message of its own, because its waiter had left."""
    delivers: str = ""
    """The task that waited for the answer which this task delivers."""
    last_question: Question | None = None
    """The question as recorded; see `question`."""
    metadata: Json = field(default_factory=dict[str, Any])
    """The sender's keys and ours, as stored and shown; see `core.task_metadata`, which makes the fields above of it."""
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
    def sender_name(self) -> str:
        """The sender's name for headers and lists, which shows whether it is proven."""
        return sender_name(self.sender.sender_id, verified=self.sender_verified, user=self.user)

    @property
    def question(self) -> Question | None:
        """The open question, or None. The state opens it, so a question that a caller put there does not count."""
        is_open = self.state is TaskState.INPUT_REQUIRED and self.reason == WAITING_FOR_PERSON
        return self.last_question if is_open else None

    @property
    def receipt(self) -> Receipt | None:
        """The last step that the current message has reached."""
        return self.receipts[-1] if self.receipts else None


def new_task(fields: dict[str, Any]) -> Task:
    """Returns a task with these fields and the defaults of all others, in a third of the constructor's time."""
    return changed(_BLANK, fields)


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


_BLANK: Final = Task(
    id=TaskId(""),
    agent_id="",
    inbox="",
    context_id="",
    scope="",
    dialect="",
    state=TaskState.SUBMITTED,
    history=(),
    created_at=datetime.min.replace(tzinfo=UTC),
    updated_at=datetime.min.replace(tzinfo=UTC),
    version=1,
)


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
