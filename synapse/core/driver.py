"""How an agent is run, as its worker sees it.

Why messages wait for an agent that is not at work on one of them: a reason, since when, and whether for too long.
"""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One message on its way to the agent. `text` is the envelope line for drivers that type."""

    task_id: TaskId
    message: Message
    text: str
    first: bool
    """True for the message that opened the task, False for a follow-up."""
    trace: tuple[tuple[str, str], ...] = ()
    """Headers that tell an agent elsewhere whose work this is part of; see `core.trace`."""
    resumed: bool = False
    """The agent took the message before this process started: the driver follows the work and sends nothing."""


@dataclass(frozen=True, slots=True)
class Deferred:
    """The gate closed again before anything was written. The turn ends; the message stays queued."""

    why: str


@dataclass(frozen=True, slots=True)
class Typing:
    """The next step writes the first byte. The worker makes the intent durable before it asks for the next event."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """There is proof that the agent took the message."""

    source: str
    evidence: str


@dataclass(frozen=True, slots=True)
class TurnStarted:
    """The agent works on it."""

    source: str
    evidence: str


@dataclass(frozen=True, slots=True)
class DeliveryUncertain:
    """It is not certain that the message was taken. Nothing is typed again; a person is asked. The turn goes on."""

    why: str


@dataclass(frozen=True, slots=True)
class Progress:
    """A word on how it goes, for followers; not an answer."""

    text: str


@dataclass(frozen=True, slots=True)
class PartialAnswer:
    """The text of the answer as far as it has come; the next one, and the answer at the end, take its place.

    `source` says where it was taken from, as for the answer.
    """

    text: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactProduced:
    """The agent handed over an artifact, or a chunk of one."""

    artifact: Artifact
    append: bool = False
    last_chunk: bool = True


@dataclass(frozen=True, slots=True)
class QuestionRaised:
    """The program waits for a person in the middle of the turn. The turn goes on: `Resumed` follows, or its end."""

    question: Question


@dataclass(frozen=True, slots=True)
class Resumed:
    """Nothing is asked any more; `by` says who answered, as far as that is known: `person`, `keys`, `signal`."""

    by: str


@dataclass(frozen=True, slots=True)
class InputRequested:
    """The agent needs an answer, or an authorization, before it goes on; ends the turn."""

    parts: tuple[Part, ...]
    authorization: bool = False


@frozen
class Answered:
    """The turn is over. `source` says where the text was taken from: `signal`, `transcript`, `screen`, `script`."""

    parts: tuple[Part, ...]
    source: str
    direct: bool = False
    """A plain message instead of a task, for callers whose protocol has that."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The agent will not do it; ends the turn."""

    note: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The agent could not do it; ends the turn. `reason` is a stable word, `note` a sentence."""

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


DEGRADED: Final = "degraded"
"""How the detail of a observation begins whose source should say something and does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What one source says of the agent."""

    source: str
    state: str
    detail: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentStatus:
    """What an agent does, why that is believed, and since when."""

    state: str
    """One of AGENT_STATES in `core.agent`."""
    why: str
    source: str
    since: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentView:
    """What is known of the agent now: its state (see `core.agent`), why, since when, and all that was seen."""

    state: str
    why: str
    source: str
    since: datetime
    gate: str = ""
    """Why nothing can be typed right now, or empty."""
    gate_reason: HoldReason | None = None
    """The same as a word."""
    restless_since: datetime | None = None
    """Since when the program prints again and again although its prompt is visible; None if it does not."""
    observations: tuple[Observation, ...] = ()
    question: Question | None = None
    """What its program asks a person now, in a turn or before the first one."""

    @property
    def status(self) -> AgentStatus:
        """The part of it that a stream of states tells."""
        return AgentStatus(state=self.state, why=self.why, source=self.source, since=self.since)


StatusListener = Callable[[AgentStatus], None]


class StatusListeners:
    """The listeners of one driver."""

    def __init__(self) -> None:
        self._listeners: list[StatusListener] = []

    def add(self, listener: StatusListener) -> Callable[[], None]:
        """Call `listener` whenever `tell` is called, until the returned function is called."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def tell(self, status: Callable[[], AgentStatus]) -> None:
        """Pass on what `status` returns; it is not called while nobody listens."""
        for listener in tuple(self._listeners):
            listener(status())


class Driver(Protocol):
    """Runs one agent. One turn at a time: the worker serialises."""

    def view(self) -> AgentView: ...

    def watch(self, listener: StatusListener) -> Callable[[], None]:
        """Call `listener` with each change of the agent's state, until the returned function is called."""
        ...

    async def wait_ready(self) -> None:
        """Return when a message can be taken.

        Raises AgentExited when that will never be.
        """
        ...

    def take_turn(self, turn: Turn) -> AsyncGenerator[TurnEvent, None]:
        """Deliver one message and yield what comes back; ends with Deferred, Asked, Answered, Refused or Failed.

        After `drop` it may end without any of these.

        Raises AgentExited or AgentUnresponsive.
        """
        ...

    async def interrupt(self) -> bool:
        """Ask the agent to drop the current turn; False when it was not asked: it is idle, or a dialog is open."""
        ...

    def drop(self) -> bool:
        """Forget the message that is being typed: it was canceled.

        True when it will not be submitted. False when none is being typed, or it is too late: the agent may have it.
        """
        ...

    async def answer(self, question_id: str, choice: Choice) -> str:
        """Answer what the program asks; returns how (`signal`, `keys`) once it is seen to have been taken.

        Raises QuestionGone (it was answered first, or is not on the screen any more) or InvalidChoice.
        """
        ...

    def confirm(self) -> None:
        """A person saw that the agent took the message in doubt: the turn goes on as if there were proof."""
        ...


class HoldReason(StrEnum):
    """What keeps the next message from being delivered."""

    STARTING = "starting"
    """The program was not seen ready yet."""
    WORKING = "working"
    """The program works on something that is not from this queue. That may take any time, so nobody is called."""
    DIALOG = "dialog"
    """The program asks a person."""
    PERSON = "person"
    """A person types, or has text in the prompt."""
    NO_PROMPT = "no_prompt"
    """The prompt is not visible, and nothing else says that the program works."""
    NEVER_RESTS = "never_rests"
    """The program prints again and again, so it is never seen to be done."""
    UNSEEN = "screen_unknown"
    """Nothing is known of the screen."""
    STORE = "store"
    """The store cannot be written, as on a full disk: nothing is typed whose intent is not durable."""
    IN_DOUBT = "in_doubt"
    """A message before it was typed, and nothing proves that the agent took it."""
    UNREACHABLE = "unreachable"
    """The agent is elsewhere and does not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Messages that wait."""

    reason: HoldReason
    why: str
    """The same as a sentence."""
    since: datetime
    messages: int
    """How many wait, the one included whose turn has begun and is not typed yet."""
    task_id: str = ""
    """The task that is next, or that is in the way."""
    hint: str = ""
    """What to do about it, where the reason alone does not tell."""
    is_overdue: bool = False
    """It lasts longer than it should, so a person should look."""
