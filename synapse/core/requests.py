"""What can be asked of an agent host, already parsed: a dialect makes these, the service does them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from synapse.core.message import Json, Message
from synapse.core.task import DEFAULT_PRIORITY, TaskState


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """Who a message says it is from; the service checks it against the caller."""

    sender_id: str
    sender_type: str = ""
    sender_endpoint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendMessage:
    """Queue a message for the agent; opens a task, or goes on with `task_id`."""

    message: Message
    dialect: str
    priority: int = DEFAULT_PRIORITY
    sender: Sender | None = None
    response_expected: bool = False
    sender_task_id: str = ""
    in_reply_to: str = ""
    context_id: str = ""
    task_id: str = ""
    exact: bool = False
    """The task's id is meant whole; otherwise a beginning of it will do."""
    deadline: datetime | None = None
    metadata: Json = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class SendAndWait:
    """Queue a message; the answer is a future, done when the task has ended or waits for somebody."""

    send: SendMessage


@dataclass(frozen=True, slots=True)
class SendAndFollow:
    """Queue a message and follow its task from the beginning, until it has ended or waits for somebody."""

    send: SendMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTask:
    """Open a task that only waits for a reply; nothing is typed."""

    message: Message
    dialect: str
    sender: Sender | None = None
    context_id: str = ""
    metadata: Json = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """Answer a request that this agent got: the last one, or the one named by `task_id` (short form allowed)."""

    message: Message
    task_id: str = ""
    failed: bool = False


@dataclass(frozen=True, slots=True)
class GetTask:
    """Read a task by its id, or a prefix of it unless the id is `exact`."""

    task_id: str
    exact: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ListTasks:
    """Read tasks, newest change first."""

    states: frozenset[TaskState] = frozenset()
    context_id: str = ""
    parent_id: str = ""
    updated_after: datetime | None = None
    limit: int = 50
    cursor: str = ""


@dataclass(frozen=True, slots=True)
class CancelTask:
    """Stop a task that is not finished."""

    task_id: str
    exact: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolveTask:
    """A person decides about a task in doubt: it was `delivered`, shall `retry`, or is to `fail`."""

    task_id: str
    verdict: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribeTask:
    """Follow one task: its state now, then each event; `after` resumes after a seq."""

    task_id: str
    after: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowTask:
    """The same for a task that has not ended, named by its whole id; one that has can only be resumed."""

    task_id: str
    after: int | None = None


@dataclass(frozen=True, slots=True)
class GetStatus:
    """Ask what the agent is doing, and how that is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddExternal:
    """Discover an agent elsewhere by its card and remember it under an alias (from the card when empty)."""

    url: str
    alias: str = ""


@dataclass(frozen=True, slots=True)
class ListExternals:
    """Read the known external agents."""


@dataclass(frozen=True, slots=True)
class RemoveExternal:
    """Forget an external agent."""

    alias: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SendExternal:
    """Send a message to an external agent and return its answer as far as it has one."""

    alias: str
    message: Message


SECRET_HEADER: Final = "X-Synapse-Secret"  # noqa: S105  # the name, not the secret
"""Where a hook that reports over HTTP has the secret of its launch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSignal:
    """A hook of the agent's own CLI tells what happens there; `secret` proves that it belongs to this launch."""

    payload: Json
    secret: str = ""


Request = (
    SendMessage
    | SendAndWait
    | SendAndFollow
    | CreateTask
    | Reply
    | GetTask
    | ListTasks
    | CancelTask
    | ResolveTask
    | SubscribeTask
    | FollowTask
    | GetStatus
    | AddExternal
    | ListExternals
    | RemoveExternal
    | SendExternal
    | ReportSignal
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replied:
    """What came of a Reply: the task that it answered, and who got it."""

    task_id: str
    to: str
