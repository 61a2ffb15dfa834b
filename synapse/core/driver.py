"""The Driver port, through which a worker runs one agent: the events of a turn, and what is known of the agent."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, Protocol

from synapse.core.message import Artifact, Message, Part
from synapse.core.question import Choice, Question
from synapse.core.task import TaskId
from synapse.core.types import frozen

DEGRADED: Final = "degraded"
"""Prefix of the detail of an observation whose source should report but does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One message on its way to the agent. `text` is the envelope line for drivers that type."""

    task_id: TaskId
    message: Message
    text: str
    first: bool
    """True for the message that opened the task, False for a follow-up."""
    trace: tuple[tuple[str, str], ...] = ()
    """The headers of the W3C trace that the task belongs to, for external agents; see `core.trace`."""
    resumed: bool = False
    """The agent took the message before this process started: the driver follows the work and sends nothing."""

    @property
    def key(self) -> str:
        """Names the message to a CLI that reports such names; see `message_key`."""
        return message_key(self.task_id, self.message)


def message_key(task_id: TaskId, message: Message) -> str:
    """Returns the name of a task's message: the same in every host, and no other message has it."""
    return f"synapse:{task_id}:{message.message_id}"


class SendOutcome(StrEnum):
    """What became of a message that a host was sending by a CLI's API when it ended."""

    TAKEN = "taken"
    """The CLI has it."""
    WITHDRAWN = "withdrawn"
    """The CLI had it in a queue, and has given it back: it was not, and will not be, worked on."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Deferred:
    """The gate closed before anything was written. Ends the turn; the message stays queued."""

    why: str


@dataclass(frozen=True, slots=True)
class Typing:
    """The next step writes the first byte. The worker makes this intent durable before it asks for the next event."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """There is proof that the agent took the message."""

    source: str
    evidence: str


@dataclass(frozen=True, slots=True)
class TurnStarted:
    """The agent works on the message."""

    source: str
    evidence: str


@dataclass(frozen=True, slots=True)
class DeliveryUncertain:
    """Nothing proves that the agent took the message. A person decides; nothing is typed again. The turn goes on."""

    why: str


@dataclass(frozen=True, slots=True)
class Progress:
    """A note about the progress of the turn, for followers; not an answer."""

    text: str


@dataclass(frozen=True, slots=True)
class PartialAnswer:
    """The answer so far. The next PartialAnswer, or the final answer, replaces it.

    `source` says where the text was taken from, as in Answered.
    """

    text: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactProduced:
    """The agent produced an artifact, or a chunk of one."""

    artifact: Artifact
    append: bool = False
    last_chunk: bool = True


@dataclass(frozen=True, slots=True)
class QuestionRaised:
    """The program asks a person in the middle of the turn. The turn goes on with `Resumed`, or ends."""

    question: Question


@dataclass(frozen=True, slots=True)
class Resumed:
    """The question is closed; `by` says who answered, if known: `person`, `keys`, `signal`."""

    by: str


@dataclass(frozen=True, slots=True)
class InputRequested:
    """The agent needs an answer or an authorization to continue. Ends the turn."""

    parts: tuple[Part, ...]
    authorization: bool = False


@frozen
class Answered:
    """The agent answered. `source` says where the text was taken from: `signal`, `transcript`, `screen`, `script`."""

    parts: tuple[Part, ...]
    source: str
    direct: bool = False
    """Answer with a plain message instead of a task, where the caller's protocol allows that."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The agent refuses the request. Ends the turn."""

    note: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The agent failed. Ends the turn. `reason` is a stable word, `note` a sentence."""

    reason: str
    note: str


TurnEvent = (
    Deferred
    | Typing
    | Submitted
    | TurnStarted
    | DeliveryUncertain
    | Progress
    | PartialAnswer
    | ArtifactProduced
    | QuestionRaised
    | Resumed
    | InputRequested
    | Answered
    | Refused
    | Failed
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What one source reports about the agent's state."""

    source: str
    state: str
    detail: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentStatus:
    """The state of an agent, the reason and source of that conclusion, and its start."""

    state: str
    """One of AGENT_STATES in `core.agent`."""
    why: str
    source: str
    since: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentView:
    """All that a driver knows about its agent now: its state (see `core.agent`), why, since when, the observations."""

    state: str
    why: str
    source: str
    since: datetime
    gate: str = ""
    """Why nothing can be typed right now, or empty."""
    gate_reason: HoldReason | None = None
    """The reason in `gate`, as a value."""
    restless_since: datetime | None = None
    """The time since which the program keeps printing although its prompt is visible; None if it does not."""
    observations: tuple[Observation, ...] = ()
    question: Question | None = None
    """The question that the program asks a person now, in a turn or before the first one."""

    @property
    def status(self) -> AgentStatus:
        """The part that status streams report."""
        return AgentStatus(state=self.state, why=self.why, source=self.source, since=self.since)


class HoldReason(StrEnum):
    """Why the next message is not delivered."""

    STARTING = "starting"
    """The program has not been ready yet."""
    WORKING = "working"
    """The program works on something that is not from this queue. That may take any time, so no person is alerted."""
    DIALOG = "dialog"
    """The program shows a dialog."""
    PERSON = "person"
    """A person is typing, or has left text in the prompt."""
    NO_PROMPT = "no_prompt"
    """The prompt is not visible, and no source says that the program works."""
    NEVER_RESTS = "never_rests"
    """The program keeps printing, so it never counts as done."""
    UNSEEN = "screen_unknown"
    """Nothing is known about the screen."""
    STORE = "store"
    """The store cannot be written (a full disk, for example), and nothing is typed before its intent is durable."""
    IN_DOUBT = "in_doubt"
    """An earlier message was typed, and nothing proves that the agent took it."""
    TOOLS = "tools"
    """The program has not loaded the tools of Synapse yet. That takes a few seconds at most."""
    UNREACHABLE = "unreachable"
    """The external agent does not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Why messages wait for an agent that is not working on one of them."""

    reason: HoldReason
    why: str
    """The reason as a sentence."""
    since: datetime
    messages: int
    """How many messages wait, including one whose turn has begun but that is not typed yet."""
    task_id: str = ""
    """The next task, or the task that blocks the queue."""
    hint: str = ""
    """The next step for a person, where the reason alone does not tell it."""
    is_overdue: bool = False
    """The hold lasts longer than expected, so a person should look."""


StatusListener = Callable[[AgentStatus], None]


class StatusListeners:
    """The listeners of one driver."""

    def __init__(self) -> None:
        self._listeners: list[StatusListener] = []

    def add(self, listener: StatusListener) -> Callable[[], None]:
        """Adds a listener and returns the function that removes it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    @property
    def has_any(self) -> bool:
        return bool(self._listeners)

    def tell(self, status: Callable[[], AgentStatus]) -> None:
        """Calls every listener with the result of `status`, which is not called if there are no listeners."""
        for listener in tuple(self._listeners):
            listener(status())


class Driver(Protocol):
    """Runs one agent, one turn at a time; the worker serialises the turns."""

    def view(self) -> AgentView: ...

    def watch(self, listener: StatusListener) -> Callable[[], None]:
        """Calls `listener` at each change of the agent's state, and perhaps when it asks another question.

        Returns the function that ends this.
        """
        ...

    async def wait_ready(self) -> None:
        """Returns when the agent can take a message.

        Raises AgentExited.
        """
        ...

    def take_turn(self, turn: Turn) -> AsyncGenerator[TurnEvent, None]:
        """Delivers one message and yields events, ending with Deferred, InputRequested, Answered, Refused or Failed.

        After `drop` the stream may end without one of these.

        Raises AgentExited or AgentUnresponsive.
        """
        ...

    async def interrupt(self) -> bool:
        """Interrupts the current turn; returns False, without doing so, if the agent is idle or a dialog is open."""
        ...

    def drop(self) -> bool:
        """Gives up the message that is being typed, because it was canceled.

        Returns True if the message will not be submitted; False if none is being typed, or the agent may have it.
        """
        ...

    async def answer(self, question_id: str, choice: Choice) -> str:
        """Answers the program's question; returns how (`signal`, `keys`) once the program has visibly taken the answer.

        Raises QuestionGone if the question was answered before or has left the screen, or InvalidChoice.
        """
        ...

    def confirm(self) -> None:
        """Continues the turn of a message in doubt as if there were proof: a person saw that the agent took it."""
        ...
