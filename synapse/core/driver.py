"""How an agent is run, as its worker sees it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from synapse.core.hold import HoldReason
from synapse.core.message import Artifact, Message, Part
from synapse.core.question import Choice, Question
from synapse.core.task import TaskId
from synapse.core.value import value


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
class NotNow:
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
class Doubted:
    """It is not certain that the message was taken. Nothing is typed again; a person is asked. The turn goes on."""

    why: str


@dataclass(frozen=True, slots=True)
class Progress:
    """A word on how it goes, for followers; not an answer."""

    text: str


@dataclass(frozen=True, slots=True)
class Said:
    """The text of the answer as far as it has come; the next one, and the answer at the end, take its place.

    `source` says where it was taken from, as for the answer.
    """

    text: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Handed:
    """The agent handed over an artifact, or a chunk of one."""

    artifact: Artifact
    append: bool = False
    last_chunk: bool = True


@dataclass(frozen=True, slots=True)
class Questioned:
    """The program waits for a person in the middle of the turn. The turn goes on: `Resumed` follows, or its end."""

    question: Question


@dataclass(frozen=True, slots=True)
class Resumed:
    """Nothing is asked any more; `by` says who answered, as far as that is known: `person`, `keys`, `signal`."""

    by: str


@dataclass(frozen=True, slots=True)
class Asked:
    """The agent needs an answer, or an authorization, before it goes on; ends the turn."""

    parts: tuple[Part, ...]
    authorization: bool = False


@value
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
    NotNow
    | Typing
    | Submitted
    | TurnStarted
    | Doubted
    | Progress
    | Said
    | Handed
    | Questioned
    | Resumed
    | Asked
    | Answered
    | Refused
    | Failed
)


DEGRADED: Final = "degraded"
"""How the detail of a sighting begins whose source should say something and does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """What one source says of the agent."""

    source: str
    state: str
    detail: str
    at: datetime


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
    sightings: tuple[Sighting, ...] = ()
    question: Question | None = None
    """What its program asks a person now, in a turn or before the first one."""


class Driver(Protocol):
    """Runs one agent. One turn at a time: the worker serialises."""

    def view(self) -> AgentView: ...

    async def wait_ready(self) -> None:
        """Return when a message can be taken.

        Raises AgentExited when that will never be.
        """
        ...

    def take_turn(self, turn: Turn) -> AsyncGenerator[TurnEvent, None]:
        """Deliver one message and yield what comes back; ends with NotNow, Asked, Answered, Refused or Failed.

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
