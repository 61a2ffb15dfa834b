"""The requests to an agent or a gateway, and their results. Dialects decode them, services answer them.

Each request names the type of its result: `GetTask(Request[Task])`. `core.service` maps it to the method for it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Generic, Protocol, TypeVar

from synapse.core.agent import AgentEntry
from synapse.core.caller import Caller
from synapse.core.driver import AgentStatus, AgentView, Hold
from synapse.core.errors import PushNotSupported, UnsupportedOperation
from synapse.core.events import Update
from synapse.core.extension import Extensions
from synapse.core.message import Json, Message, Sender, empty_object
from synapse.core.overview import AgentOverview, Overview, OverviewUpdate, StyledScreen, Timeline
from synapse.core.push import DeliveryState, PushConfig
from synapse.core.store import TaskPage
from synapse.core.task import DEFAULT_PRIORITY, Task, TaskState
from synapse.core.types import frozen
from synapse.core.usage import AgentUsage, UsageTotal

R_co = TypeVar("R_co", covariant=True)
T_co = TypeVar("T_co", covariant=True)

STREAMING: Final = "streaming"
PUSH: Final = "pushNotifications"
CAPABILITIES: Final = (STREAMING, PUSH)
"""The optional capabilities of an agent, as A2A cards name them. The card of an agent that lacks one says so."""
SECRET_HEADER: Final = "X-Synapse-Secret"  # noqa: S105  # the name, not the secret
"""The header in which a hook that reports over HTTP sends the secret of its launch."""


class McpState(StrEnum):
    """Whether an agent's CLI has the tools of the MCP server that its launch gave it."""

    OFF = "off"
    """The launch gave it none."""
    EXPECTED = "expected"
    """The CLI has not asked for them yet."""
    LISTED = "listed"
    """The CLI has asked for them, so its model has them."""
    MISSING = "missing"
    """The CLI has not asked for them in time."""


class ToolsWay(StrEnum):
    """How the model of an agent's CLI reaches other agents."""

    MCP = "mcp"
    SHELL = "shell"
    """By the command `synapse`, which its CLI may ask a person to allow."""
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsStatus:
    """The tools of an agent, and why it has no better ones."""

    way: ToolsWay
    mcp: McpState
    client: str = ""
    """The name and version of the CLI, as the MCP server heard them."""
    protocol: str = ""
    """The version of MCP that they speak."""
    since: datetime | None = None
    """When `mcp` became what it is."""
    why: str = ""


NO_TOOLS: Final = ToolsStatus(way=ToolsWay.NONE, mcp=McpState.OFF, why="it runs no model of a CLI here")
"""For scripts and external agents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationStatus:
    """Whether an agent's CLI goes on with the conversation of the agent's last run."""

    resumed: bool = False
    why: str = ""
    """Why it began anew although it was to go on; empty otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostStatus:
    """The result of GetStatus: what an agent's host says about itself."""

    entry: AgentEntry
    view: AgentView
    current: Task | None
    queue: tuple[Task, ...]
    attention: tuple[Task, ...]
    questions: tuple[Task, ...] = ()
    """The open questions that the agent itself asks people; its program shows no dialog for them."""
    held: Hold | None = None
    """Why messages wait, if they do while the agent works on none of them."""
    asking: Task | None = None
    """The task in whose turn the agent asks a person; it may also ask without a task (see `view.question`)."""
    store_fault: str = ""
    """Why the store cannot write, so that every message is refused; empty while it can."""
    tools: ToolsStatus = NO_TOOLS
    conversation: ConversationStatus | None = None
    """None for an agent without a CLI whose conversations are known."""
    owes: tuple[Task, ...] = ()
    """The requests that stay open although their turn is over: the agent waits for another's answer to answer them."""
    finished: tuple[Task, ...] | None = None
    """The tasks that ended last, in brief, newest first; None if the request asked for none."""
    usage: AgentUsage | None = None
    """What its requests to a model cost; None while nothing tells it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalAgent:
    """An external agent, discovered by its card."""

    alias: str
    url: str
    name: str
    description: str = ""
    protocol: str = "synapse"
    """The protocol that it speaks: `synapse`, `a2a-0.3` or `a2a-1.0`."""
    added_at: str = ""
    card: Json = field(default_factory=dict[str, Any])
    address_checked: bool = False
    """Registered with a gateway key: it is never called at an address that only this machine or its network reaches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalAnswer:
    """The answer of an external agent: its task's id and state, and the text if there is one."""

    alias: str
    task_id: str
    state: str
    """A name of TaskState; the agent's own name for a state that TaskState does not have."""
    text: str
    raw: Json = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedAgent:
    """An agent as a gateway shows it in lists and cards: the result of GetAgent."""

    id: str
    """Its name at the gateway: the given name, else the agent id."""
    name: str
    """Its name for people, such as `Synapse Claude`."""
    description: str
    version: str
    agent_type: str
    """Its profile, or `a2a` for an external agent."""
    state: str
    """One of AGENT_STATES in `core.agent`."""
    away_since: datetime | None = None
    """Since when its machine is away, and cannot be reached; `state` is the one that it told last. None if it can."""
    capabilities: tuple[str, ...] = CAPABILITIES
    """The optional capabilities that it has."""
    input_modes: tuple[str, ...] = ()
    """The media types that it accepts; empty accepts all."""
    output_modes: tuple[str, ...] = ()
    """The media types that it produces, if known."""
    extensions: Extensions = ()
    """The A2A extensions that it declares."""
    role: str = ""
    """What a person said that it is for; its description has it too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """A message that reached a step: how many seconds after it was queued."""

    agent: str
    step: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSnapshot:
    """The metrics of a gateway at one instant; `delivered` has the steps since the previous snapshot."""

    agents: Mapping[str, int]
    """How many agents are in each state."""
    waiting: Mapping[str, int]
    """How many messages wait for each agent, by its name at the gateway."""
    working: Mapping[str, int]
    """How many tasks each agent works on."""
    notifications: Mapping[DeliveryState, int]
    """How many notifications for webhooks are in each state."""
    delivered: tuple[Delivered, ...] = ()
    usage: Mapping[str, UsageTotal] = field(default_factory=dict[str, UsageTotal])
    """What the requests of each agent to its model cost, by its name at the gateway."""
    link: bytes = b""
    """The metrics of this machine's link to its fleet, as text; empty without one."""


class Request(Generic[R_co]):
    """Base of all requests; `R_co` is the type of the result."""

    __slots__ = ()


class Stream(Protocol[T_co]):
    """Items in order, as they come. The reader closes it."""

    def __aiter__(self) -> AsyncIterator[T_co]: ...

    def __anext__(self) -> Awaitable[T_co]:
        """Raises StopAsyncIteration at the end, FeedLagged for a reader that is too slow, or a SynapseError."""
        ...

    def aclose(self) -> Awaitable[None]: ...


TaskStream = Stream[Update]
"""The updates of one task."""


class Pending(Generic[T_co]):
    """A result that may take as long as an agent takes to answer."""

    __slots__ = ("_final", "now")

    def __init__(self, now: T_co, final: Awaitable[T_co] | None = None) -> None:
        """`now` is the result so far; without `final`, it is the final result."""
        self.now = now
        self._final = final

    @property
    def is_settled(self) -> bool:
        """Whether `now` is the final result."""
        return self._final is None

    def settled(self) -> Awaitable[T_co]:
        """Returns the final result, or raises its error.

        All waits share `final`: cancelling one cancels them all, and lets the producer of the result know that its
        caller has left. A task of an agent continues.
        """
        return self._final if self._final is not None else _known(self.now)


async def _known(result: T_co) -> T_co:  # type: ignore[misc]  # covariant, but only passed through
    return result


class PendingTask(Pending[Task]):
    """The task of a message that was just sent, and a way to wait until it settles.

    A task has settled when it has ended or waits for input.
    """

    __slots__ = ()

    @property
    def task(self) -> Task:
        """The task as it was when the message was accepted."""
        return self.now


@dataclass(frozen=True, slots=True, kw_only=True)
class Replied:
    """The result of Reply: the task that was answered, and the agent that got the answer."""

    task_id: str
    to: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """The result of IssueTicket: a token that admits its holder to one WebSocket."""

    text: str = field(repr=False)
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """The result of OnBehalfOf. It names a task only by id, because the gateway reads the task from the store."""

    task_id: str = ""
    version: int = 0
    """The version of the task after the command."""
    state: str = ""
    """The state of the task then, a name of TaskState; empty from hosts of earlier versions."""
    direct: bool = False
    """The agent answers with a plain message instead of a task."""
    result: PushConfig | tuple[PushConfig, ...] | None = None
    """The result of a command about push configurations."""


@frozen
class SendMessage(Request[Task]):
    """Queues a message for the agent: opens a task, or continues `task_id`."""

    message: Message
    dialect: str
    priority: int = DEFAULT_PRIORITY
    sender: Sender | None = None
    response_expected: bool = False
    sender_task_id: str = ""
    in_reply_to: str = ""
    """The task of this agent that waits for this reply, and ends with it; a prefix of its id is enough.

    The link ends a wait for an agent of another machine in this way, whatever became of the relayed message. It sends
    the request for a caller with that `machine` and with the id of the agent there as `remote_sender`, and:

        answered               the parts of the answer; metadata `inferred` unless the agent replied explicitly
        the agent failed       its words as text, metadata `failed`, and `inferred` unless it replied explicitly
        refused, expired, …    why, as text, metadata `failed` and `inferred`: the waiter is told by Synapse; with
                               `end_reason`, that word is the task's reason

    The message id makes it idempotent: a copy returns the task. TaskNotFound means that the task no longer waits, and
    there is nothing left to do. If the waiter has left, the reply is delivered to the agent as a message.
    """
    context_id: str = ""
    task_id: str = ""
    exact: bool = False
    """`task_id` is a complete id; otherwise it may be a prefix."""
    deadline: datetime | None = None
    metadata: Json = field(default_factory=empty_object)
    parent_id: str = ""
    """The parent of the new task."""
    push: PushConfig | None = None
    """A webhook that is notified of all events of the task."""
    opens: str = ""
    """The id of the task to open, a UUID that the sender's link has chosen. Refused unless the caller is on another
    machine."""
    waiting: tuple[str, ...] = ()
    """The inboxes that wait for the sender, if it waits and is on another machine: see `tasks.waits.waiting_behind`."""


@dataclass(frozen=True, slots=True)
class SendAndWait(Request[PendingTask]):
    """Queues a message, and waits until its task has ended or waits for input."""

    send: SendMessage


@dataclass(frozen=True, slots=True)
class SendAndFollow(Request[TaskStream]):
    """Queues a message and follows its task from the beginning, until it has ended or waits for input."""

    send: SendMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTask(Request[Task]):
    """Opens a task that only waits for a reply; nothing is typed."""

    message: Message
    dialect: str
    sender: Sender | None = None
    context_id: str = ""
    metadata: Json = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class AskPerson(Request[Task]):
    """Asks a person a question of the agent's own; the answer completes the task that it opens."""

    message: Message
    dialect: str
    options: tuple[str, ...] = ()
    """Answers to choose from; a text of the person's own is always accepted too."""


@dataclass(frozen=True, slots=True)
class LeaveTask(Request[Task]):
    """Ends the wait for a task that waits for a reply: from now on the answer is delivered to the agent as a message.

    If the task has ended, nothing changes: the waiter has the answer, unless it was delivered as a message before (see
    `Task.waiter_left`).
    """

    task_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply(Request[Replied]):
    """Answers a request to this agent: the last one, or the one with `task_id` (a prefix is enough)."""

    message: Message
    task_id: str = ""
    failed: bool = False


@dataclass(frozen=True, slots=True)
class GetTask(Request[Task]):
    """Reads a task by its id, or by a prefix of it unless `exact`."""

    task_id: str
    exact: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ListTasks(Request[TaskPage]):
    """Reads tasks, newest change first."""

    states: frozenset[TaskState] = frozenset()
    context_id: str = ""
    parent_id: str = ""
    updated_after: datetime | None = None
    metadata: Json = field(default_factory=dict[str, Any])
    """Only tasks whose metadata has all of these values."""
    agent: str = ""
    """Only tasks of this agent, in a request to a gateway about all agents."""
    user: str = ""
    """Only tasks of the caller with this name."""
    sender: str = ""
    """Only tasks from this sender, as `Task.sender_name` names it; in a request to a gateway."""
    expired: bool | None = None
    """True: only tasks that ended by their deadline. False: only others."""
    text: str = ""
    """Only tasks in whose messages or answers these words occur. Words in quotes are a phrase, and the last word may be
    the beginning of one."""
    limit: int = 50
    cursor: str = ""


@dataclass(frozen=True, slots=True)
class CancelTask(Request[Task]):
    """Cancels a task that is not finished."""

    task_id: str
    exact: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class VoidMessage(Request[Task]):
    """Takes back a message that the link of another machine sends, whether it has arrived or not.

    Ends the task that the message opened, unless that has ended. If the message has not arrived, records a canceled
    task that claims its id, so that a late copy opens nothing. It may be repeated. The result is the task, which has
    ended.
    """

    message_id: str
    opens: str
    """The id of the task that the message opens, as in SendMessage."""
    expired: bool = False
    """The message expired before the sender knew that it had arrived; otherwise the sender canceled it."""
    sender: Sender | None = None
    """The sender, context and gateway's caller of the message, for the task that claims its id."""
    context_id: str = ""
    gateway_scope: str = ""
    """As GATEWAY_SCOPE in the metadata of the message; empty without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolveTask(Request[Task]):
    """Records a person's decision about a task in doubt: `delivered`, `retry` or `fail`."""

    task_id: str
    verdict: str
    asked_at: datetime | None = None
    """Since when the person was asked, if it is known: a doubt about a later try is not the one they decided about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerQuestion(Request[Task | None]):
    """Answers the open question of a task: with `allow`, `deny`, the key of an option, or free text.

    An empty `task_id` means a question that the agent asks without a task, at its start.
    """

    task_id: str = ""
    verdict: str = ""
    """`allow` or `deny`; empty with an option or text."""
    option: str = ""
    text: str = ""
    question_id: str = ""
    """The question to answer, so that another one is not answered by mistake."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeTask(Request[Task]):
    """Changes keys of a task's metadata, or moves the task to another state that the lifecycle allows."""

    task_id: str
    metadata: Json = field(default_factory=dict[str, Any])
    state: TaskState | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTask(Request[Task]):
    """Cancels a task if it runs, and removes it from all views; the log keeps it."""

    task_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPushConfig(Request[PushConfig]):
    """Notifies a webhook of all later events of a task; returns the stored configuration with its id."""

    task_id: str
    config: PushConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class GetPushConfig(Request[PushConfig]):
    """Reads one push configuration of a task; without an id, the only one."""

    task_id: str
    config_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPushConfigs(Request[tuple[PushConfig, ...]]):
    """Reads all push configurations of a task."""

    task_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletePushConfig(Request[None]):
    """Stops the notifications of a webhook. Idempotent."""

    task_id: str
    config_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribeTask(Request[TaskStream]):
    """Follows one task: its state now, then each event; `after` resumes after a seq."""

    task_id: str
    after: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowTask(Request[TaskStream]):
    """Follows an unfinished task by its complete id; a finished one can only be resumed with `after`."""

    task_id: str
    after: int | None = None


MOST_FINISHED: Final = 20
"""How many of the tasks that ended last a status has at most."""


@dataclass(frozen=True, slots=True)
class GetStatus(Request[HostStatus]):
    """Reads what the agent is doing, and the evidence for it; with `finished`, so many of the tasks that ended last."""

    finished: int = 0


@dataclass(frozen=True, slots=True)
class WatchStatus(Request[AsyncGenerator[HostStatus, None]]):
    """Follows what GetStatus reads: as it is now, then whenever it has changed."""

    finished: int = 0


@dataclass(frozen=True, slots=True)
class FollowStatus(Request[AsyncGenerator[AgentStatus, None]]):
    """Follows the agent's status: the current one, then each change of its state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GetScreen(Request[StyledScreen | None]):
    """Reads what the agent's terminal shows; the result is None if that is still the version `known`."""

    lines: int = 0
    """How many lines of scrollback to read, too."""
    known: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddExternal(Request[ExternalAgent]):
    """Discovers an external agent by its card and stores it under an alias (from the card when empty)."""

    url: str
    alias: str = ""
    credentials: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """The headers to send with each request; if empty, the stored ones."""
    address_checked: bool = False
    """The caller chose the address with a key of the gateway: see `ExternalAgent.address_checked`."""


@dataclass(frozen=True, slots=True)
class ListExternals(Request[tuple[ExternalAgent, ...]]):
    """Reads the known external agents."""


@dataclass(frozen=True, slots=True)
class RemoveExternal(Request[ExternalAgent]):
    """Removes an external agent."""

    alias: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SendExternal(Request[ExternalAnswer]):
    """Sends a message to an external agent; returns the answer so far."""

    alias: str
    message: Message
    task_id: str = ""
    """The agent's task that the message continues."""


@dataclass(frozen=True, slots=True)
class ListAgents(Request[tuple[ListedAgent, ...]]):
    """Reads the agents of a gateway."""


@dataclass(frozen=True, slots=True)
class GetMessage(Request[Task]):
    """Finds a message by its id; returns the task that has it in its history."""

    message_id: str


@dataclass(frozen=True, slots=True)
class GetAgent(Request[ListedAgent]):
    """Reads one agent of a gateway."""

    agent: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterAgent(Request[ListedAgent]):
    """Adds an external A2A agent to the gateway, as `agent` or by a name from its card."""

    url: str
    agent: str = ""


@dataclass(frozen=True, slots=True)
class RemoveAgent(Request[ExternalAgent]):
    """Removes a registered agent from the gateway."""

    agent: str


@dataclass(frozen=True, slots=True)
class IssueTicket(Request[Ticket]):
    """Issues a ticket that admits a browser to one WebSocket of a gateway; see `auth.authenticators`."""


@dataclass(frozen=True, slots=True)
class GetMetrics(Request[MetricsSnapshot]):
    """Reads the metrics of a gateway."""


@dataclass(frozen=True, slots=True)
class GetFigures(Request[Json]):
    """Reads how many messages the agents got in the last hour or day, and how long they took; see `tasks.figures`."""

    hours: int = 1
    """1 or 24."""


@dataclass(frozen=True, slots=True)
class GetOverview(Request[Overview]):
    """Reads all agents of a gateway as people see them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOverview(Request[Stream[OverviewUpdate]]):
    """Follows all agents of a gateway and all events of their tasks: first the whole overview, then each change.

    `after` resumes after a seq.
    """

    after: int | None = None


@dataclass(frozen=True, slots=True)
class GetAgentOverview(Request[AgentOverview]):
    """Reads the row and the whole status of one agent of a gateway."""

    agent: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetAgentScreen(Request[Json | None]):
    """Reads what the terminal of one agent of a gateway shows, as GetScreen does."""

    agent: str
    lines: int = 0
    known: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkSeen(Request[None]):
    """Records that a person has seen the answers of an agent until a time, so that they no longer need anybody."""

    agent: str
    until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class GetTimeline(Request[Timeline]):
    """Reads the events of a task, oldest first."""

    task_id: str
    after: int = 0
    limit: int = 500


@dataclass(frozen=True, slots=True)
class ForAgent(Request[R_co]):
    """Passes a request to one agent of a gateway, by the agent's name there."""

    agent: str
    request: Request[R_co]
    extensions: frozenset[str] | None = None
    """The A2A extensions that the caller names; None in dialects without extensions, where none is required."""
    queue: bool = False
    """Whether to keep the message for an agent whose machine is away: the header `Synapse-Queue: true`."""


@dataclass(frozen=True, slots=True)
class OnBehalfOf(Request[CommandResult]):
    """A gateway's request for a caller that it has admitted. Accepted only on the Unix socket, never from agents."""

    caller: Caller
    request: Request[object]
    """One of HostCommand."""


HostCommand = (
    SendMessage
    | VoidMessage
    | CancelTask
    | ResolveTask
    | AnswerQuestion
    | ChangeTask
    | DeleteTask
    | SetPushConfig
    | GetPushConfig
    | ListPushConfigs
    | DeletePushConfig
)
"""The requests that a gateway or a link forwards to an agent's host; a gateway answers all others from the store, or
refuses them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSignal(Request[Pending[Json | None]]):
    """Reports an event of a hook of the agent's CLI; `secret` proves that the hook belongs to this launch.

    The result is the answer for a hook that waits for one.
    """

    payload: Json
    secret: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportTools(Request[None]):
    """Reports that the agent's CLI has asked its MCP server for the tools. Only the agent itself may report it."""

    client: str = ""
    protocol: str = ""


_STREAMS: Final = (SendAndFollow, FollowTask, SubscribeTask)
_PUSHES: Final = (SetPushConfig, GetPushConfig, ListPushConfigs, DeletePushConfig)


def lacking(*, streaming: bool, push_notifications: bool) -> tuple[str, ...]:
    """Returns the capabilities that are switched off."""
    switches = ((STREAMING, streaming), (PUSH, push_notifications))
    return tuple(capability for capability, is_on in switches if not is_on)


def check_capable(lacks: Collection[str], request: Request[object]) -> None:
    """Raises UnsupportedOperation or PushNotSupported if `request` needs a capability that the agent lacks."""
    if not lacks:
        return
    if STREAMING in lacks and isinstance(request, _STREAMS):
        raise UnsupportedOperation("this agent does not stream", hint="send the message, and read its task")
    send = request.send if isinstance(request, SendAndWait | SendAndFollow) else request
    has_webhook = isinstance(send, SendMessage) and send.push is not None
    if PUSH in lacks and (has_webhook or isinstance(request, _PUSHES)):
        raise PushNotSupported(hint="follow the task, or read it from time to time")
