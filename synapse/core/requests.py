"""Requests to an agent or a gateway, parsed: a dialect makes them, a service answers them.

Each class names the type of its result: `GetTask(Request[Task])`. `core.service` maps it to the method that does it.

What a host says of itself and of the agents it knows elsewhere.

An agent as a gateway shows it to callers: what its entries in lists and its cards are made of.

What can be counted at a gateway at one instant. Who writes it down, and in which format, is not decided here.

What A2A lets an agent do without: streams and push notifications. One that lacks them says so in its card, and what
would need them is refused.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Generic, Protocol, TypeVar

from synapse.core.agent import AgentEntry
from synapse.core.caller import Caller
from synapse.core.driver import AgentStatus, AgentView, Hold
from synapse.core.errors import PushNotSupported, UnsupportedOperation
from synapse.core.events import Update
from synapse.core.extension import Extensions
from synapse.core.message import Json, Message, empty_object
from synapse.core.push import DeliveryState, PushConfig
from synapse.core.store import TaskPage
from synapse.core.task import DEFAULT_PRIORITY, Task, TaskState
from synapse.core.types import frozen


@dataclass(frozen=True, slots=True, kw_only=True)
class HostStatus:
    """The answer to GetStatus."""

    entry: AgentEntry
    view: AgentView
    current: Task | None
    queue: tuple[Task, ...]
    attention: tuple[Task, ...]
    held: Hold | None = None
    """Why messages wait, if they do and the agent is not at work on one."""
    asking: Task | None = None
    """The task in whose turn the agent asks a person; it may ask without one too (see `view.question`)."""
    store_fault: str = ""
    """Why nothing can be stored now, so that every message is refused; empty while it can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalAgent:
    """An agent elsewhere that was discovered by its card."""

    alias: str
    url: str
    name: str
    description: str = ""
    protocol: str = "synapse"
    """How it is spoken to: `synapse`, `a2a-0.3` or `a2a-1.0`."""
    added_at: str = ""
    card: Json = field(default_factory=dict[str, Any])
    guarded: bool = False
    """Registered by somebody with a key: it is never called at an address that only this machine or network reaches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalAnswer:
    """What an external agent gave back: its task's id and state, and the text if it has answered."""

    alias: str
    task_id: str
    state: str
    """In our words; in the agent's own where we have none."""
    text: str
    raw: Json = field(default_factory=dict[str, Any])


STREAMING: Final = "streaming"
PUSH: Final = "pushNotifications"
CAPABILITIES: Final = (STREAMING, PUSH)
"""What an agent can do beyond answering, in the words of A2A's cards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedAgent:
    """The answer to GetAgent; ListAgents answers with a tuple of them."""

    id: str
    """Its name at the gateway: the given name, else the agent id."""
    name: str
    """Its name for people, such as `Synapse Claude`."""
    description: str
    version: str
    agent_type: str
    """Its profile, or `a2a` for an agent from elsewhere."""
    state: str
    """One of AGENT_STATES in `core.agent`."""
    capabilities: tuple[str, ...] = CAPABILITIES
    """What it can do beyond answering, in the words of A2A's cards."""
    input_modes: tuple[str, ...] = ()
    """The media types of what it takes; empty takes all."""
    output_modes: tuple[str, ...] = ()
    """The media types of what it gives, if they are known."""
    extensions: Extensions = ()
    """The extensions of A2A that it declares."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """A message that has come one step further: how long after it was queued."""

    agent: str
    step: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSnapshot:
    """The metrics of one instant; `delivered` holds the steps recorded since the previous snapshot."""

    agents: Mapping[str, int]
    """How many agents are in each state."""
    waiting: Mapping[str, int]
    """How many messages wait for each agent, by its name at the gateway."""
    working: Mapping[str, int]
    """How many tasks each agent works on."""
    notifications: Mapping[DeliveryState, int]
    """How many notifications for webhooks are in each state."""
    delivered: tuple[Delivered, ...] = ()


R_co = TypeVar("R_co", covariant=True)
T_co = TypeVar("T_co", covariant=True)


class Request(Generic[R_co]):
    """Base of all requests; `R_co` is the type of the result."""

    __slots__ = ()


class TaskStream(Protocol):
    """The updates of one task, in order. Whoever asked for them closes them."""

    def __aiter__(self) -> AsyncIterator[Update]: ...

    def __anext__(self) -> Awaitable[Update]:
        """Raises StopAsyncIteration at the end, FeedLagged for a reader that is too slow, or a SynapseError."""
        ...

    def aclose(self) -> Awaitable[None]: ...


class Pending(Generic[T_co]):
    """A result that may take as long as an agent takes to answer."""

    __slots__ = ("_final", "now")

    def __init__(self, now: T_co, final: Awaitable[T_co] | None = None) -> None:
        """`now` is the result so far. Without a `final` one to wait for, it is final."""
        self.now = now
        self._final = final

    @property
    def is_settled(self) -> bool:
        """Whether `now` is the result, so that there is nothing to wait for."""
        return self._final is None

    def settled(self) -> Awaitable[T_co]:
        """Return the final result, or raise why there is none. Cancelling the wait cancels nothing else."""
        return self._final if self._final is not None else _known(self.now)


async def _known(result: T_co) -> T_co:  # type: ignore[misc]  # it is only passed through
    return result


class PendingTask(Pending[Task]):
    """The task of a message that was just sent: settled, or with a way to wait until it is.

    A task has settled when it has ended or waits for somebody.
    """

    __slots__ = ()

    @property
    def task(self) -> Task:
        """The task as it was when the message was accepted."""
        return self.now


@dataclass(frozen=True, slots=True, kw_only=True)
class Replied:
    """The result of Reply: the task that was answered, and who got the answer."""

    task_id: str
    to: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """The result of IssueTicket: a text that admits its holder to one WebSocket."""

    text: str = field(repr=False)
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """The result of OnBehalfOf. A task is only named: it is durable, and the gateway reads it from the store."""

    task_id: str = ""
    version: int = 0
    """The version of the task that the agent answered with."""
    direct: bool = False
    """The agent answers this message with a plain message, and shows no task."""
    result: PushConfig | tuple[PushConfig, ...] | None = None
    """A result that is no task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """Who a message says it is from; the service checks it against the caller."""

    sender_id: str
    sender_type: str = ""
    sender_endpoint: str = ""
    inbox: str = ""
    """Where a reply finds it, also at another port: the registry's word, never the message's."""


@frozen
class SendMessage(Request[Task]):
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
    metadata: Json = field(default_factory=empty_object)
    parent_id: str = ""
    """The task that the new one is a part of."""
    push: PushConfig | None = None
    """A webhook that is told about the task from its beginning."""


@dataclass(frozen=True, slots=True)
class SendAndWait(Request[PendingTask]):
    """Queue a message, and wait until its task has ended or waits for somebody."""

    send: SendMessage


@dataclass(frozen=True, slots=True)
class SendAndFollow(Request[TaskStream]):
    """Queue a message and follow its task from the beginning, until it has ended or waits for somebody."""

    send: SendMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTask(Request[Task]):
    """Open a task that only waits for a reply; nothing is typed."""

    message: Message
    dialect: str
    sender: Sender | None = None
    context_id: str = ""
    metadata: Json = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply(Request[Replied]):
    """Answer a request that this agent got: the last one, or the one named by `task_id` (short form allowed)."""

    message: Message
    task_id: str = ""
    failed: bool = False


@dataclass(frozen=True, slots=True)
class GetTask(Request[Task]):
    """Read a task by its id, or a prefix of it unless the id is `exact`."""

    task_id: str
    exact: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ListTasks(Request[TaskPage]):
    """Read tasks, newest change first."""

    states: frozenset[TaskState] = frozenset()
    context_id: str = ""
    parent_id: str = ""
    updated_after: datetime | None = None
    metadata: Json = field(default_factory=dict[str, Any])
    """Only tasks whose metadata has all of these values."""
    agent: str = ""
    """At a gateway that is asked about all agents: only this one's."""
    user: str = ""
    """Only tasks of this caller, by its name."""
    expired: bool | None = None
    """Only tasks that ended by their deadline, or only others."""
    limit: int = 50
    cursor: str = ""


@dataclass(frozen=True, slots=True)
class CancelTask(Request[Task]):
    """Stop a task that is not finished."""

    task_id: str
    exact: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolveTask(Request[Task]):
    """A person decides about a task in doubt: it was `delivered`, shall `retry`, or is to `fail`."""

    task_id: str
    verdict: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerQuestion(Request[Task | None]):
    """Answer what a task's program asks: `allow`, `deny`, the key of an option, or free words.

    `task_id` may be empty: what the agent asks without a task, at its start.
    """

    task_id: str = ""
    verdict: str = ""
    """`allow` or `deny`, or empty when an option or words are given."""
    option: str = ""
    text: str = ""
    question_id: str = ""
    """The question that is meant; another one is not answered by mistake."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeTask(Request[Task]):
    """Give keys of a task's metadata new values, or move it to another state where the lifecycle allows that."""

    task_id: str
    metadata: Json = field(default_factory=dict[str, Any])
    state: TaskState | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTask(Request[Task]):
    """Cancel a task if it runs, and take it out of all views; the log keeps it."""

    task_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPushConfig(Request[PushConfig]):
    """Tell a webhook about a task from now on; the result is the configuration as it is kept, with its id."""

    task_id: str
    config: PushConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class GetPushConfig(Request[PushConfig]):
    """Read one push configuration of a task; without an id, the only one."""

    task_id: str
    config_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPushConfigs(Request[tuple[PushConfig, ...]]):
    """Read all push configurations of a task."""

    task_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletePushConfig(Request[None]):
    """Stop telling a webhook about a task. Idempotent."""

    task_id: str
    config_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribeTask(Request[TaskStream]):
    """Follow one task: its state now, then each event; `after` resumes after a seq."""

    task_id: str
    after: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowTask(Request[TaskStream]):
    """Follow one task, named by its whole id, that has not ended; one that has can only be resumed with `after`."""

    task_id: str
    after: int | None = None


@dataclass(frozen=True, slots=True)
class GetStatus(Request[HostStatus]):
    """Ask what the agent is doing, and how that is known."""


@dataclass(frozen=True, slots=True)
class FollowStatus(Request[AsyncGenerator[AgentStatus, None]]):
    """Follow what the agent does: its AgentStatus now, then each change of its state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddExternal(Request[ExternalAgent]):
    """Discover an agent elsewhere by its card and remember it under an alias (from the card when empty)."""

    url: str
    alias: str = ""
    credentials: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """The headers that it is shown with each request; without any, those that are remembered."""
    guarded: bool = False
    """Somebody with a key chose the address: see `ExternalAgent.guarded`."""


@dataclass(frozen=True, slots=True)
class ListExternals(Request[tuple[ExternalAgent, ...]]):
    """Read the known external agents."""


@dataclass(frozen=True, slots=True)
class RemoveExternal(Request[ExternalAgent]):
    """Forget an external agent."""

    alias: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SendExternal(Request[ExternalAnswer]):
    """Send a message to an external agent; the result is its answer as far as it has one."""

    alias: str
    message: Message
    task_id: str = ""
    """Its task that the message goes on with."""


@dataclass(frozen=True, slots=True)
class ListAgents(Request[tuple[ListedAgent, ...]]):
    """Read which agents a gateway shows."""


@dataclass(frozen=True, slots=True)
class GetMessage(Request[Task]):
    """Find a message by its id; the result is the task that has it in its history."""

    message_id: str


@dataclass(frozen=True, slots=True)
class GetAgent(Request[ListedAgent]):
    """Read one agent of a gateway."""

    agent: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterAgent(Request[ListedAgent]):
    """Show an A2A agent from elsewhere at the gateway, under `agent` or a name from its card."""

    url: str
    agent: str = ""


@dataclass(frozen=True, slots=True)
class RemoveAgent(Request[ExternalAgent]):
    """Take a registered agent away from the gateway."""

    agent: str


@dataclass(frozen=True, slots=True)
class IssueTicket(Request[Ticket]):
    """Make a ticket that admits the caller to one WebSocket of a gateway, for browsers; see `service.tickets`."""


@dataclass(frozen=True, slots=True)
class GetMetrics(Request[MetricsSnapshot]):
    """Return the current metrics of a gateway."""


@dataclass(frozen=True, slots=True)
class ForAgent(Request[R_co]):
    """A request for one agent of a gateway, by the name that the agent has there."""

    agent: str
    request: Request[R_co]
    extensions: frozenset[str] | None = None
    """The extensions of A2A that the caller names; None in dialects that know of none, where none is required."""


@dataclass(frozen=True, slots=True)
class OnBehalfOf(Request[CommandResult]):
    """A gateway asks a host for a caller that it has admitted. Taken on the Unix socket only, never from an agent."""

    caller: Caller
    request: Request[object]
    """One of HostCommand."""


HostCommand = (
    SendMessage
    | CancelTask
    | AnswerQuestion
    | ChangeTask
    | DeleteTask
    | SetPushConfig
    | GetPushConfig
    | ListPushConfigs
    | DeletePushConfig
)
"""The requests that a gateway passes on to an agent's host; it answers all others from the store, or not at all."""


SECRET_HEADER: Final = "X-Synapse-Secret"  # noqa: S105  # the name, not the secret
"""Where a hook that reports over HTTP has the secret of its launch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSignal(Request[Pending[Json | None]]):
    """A hook of the agent's own CLI reports what happens there; `secret` proves that it belongs to this launch.

    The result is the hook's answer, if it waits for one.
    """

    payload: Json
    secret: str = ""


_STREAMS: Final = (SendAndFollow, FollowTask, SubscribeTask)
_PUSHES: Final = (SetPushConfig, GetPushConfig, ListPushConfigs, DeletePushConfig)


def lacking(*, streaming: bool, push_notifications: bool) -> tuple[str, ...]:
    """Return what an agent with these switches lacks."""
    switches = ((STREAMING, streaming), (PUSH, push_notifications))
    return tuple(capability for capability, is_on in switches if not is_on)


def check_capable(lacks: Collection[str], request: Request[object]) -> None:
    """Raise UnsupportedOperation or PushNotSupported when an agent that lacks these cannot do what is asked."""
    if not lacks:
        return
    if STREAMING in lacks and isinstance(request, _STREAMS):
        raise UnsupportedOperation("this agent does not stream", hint="send the message, and read its task")
    if PUSH in lacks and (isinstance(request, _PUSHES) or _names_webhook(request)):
        raise PushNotSupported(hint="follow the task, or read it from time to time")


def _names_webhook(request: Request[object]) -> bool:
    send = request.send if isinstance(request, SendAndWait | SendAndFollow) else request
    return isinstance(send, SendMessage) and send.push is not None
