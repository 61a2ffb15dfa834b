"""What a rule can do, step by step. A script's richer words (`stream`, `chunks`, `state`) are made of these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from synapse.core.message import Artifact
from synapse.core.question import Question


@dataclass(frozen=True, slots=True)
class Say:
    """A word on how it goes."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The end: done. Without a text the task has only the artifacts that it was handed."""

    text: str = ""
    direct: bool = False
    """A plain message instead of a task, for callers whose protocol has that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hand:
    """An artifact, or a chunk of one."""

    artifact: Artifact
    append: bool = False
    last: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """The end of this turn. What stands behind it is played when the follow-up comes."""

    text: str
    authorization: bool = False


@dataclass(frozen=True, slots=True)
class AskPerson:
    """A question in the middle of the turn, which goes on when it is answered."""

    question: Question


@dataclass(frozen=True, slots=True)
class Reject:
    """The end: the agent will not do it."""

    note: str


@dataclass(frozen=True, slots=True)
class Fail:
    """The end: the agent could not do it."""

    reason: str
    note: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing happens for so many seconds, unless somebody interrupts."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Exit:
    """The agent is gone, in the middle of a turn."""

    status: int


Step = Say | Answer | Hand | Ask | AskPerson | Reject | Fail | Wait | Exit


def ends_the_task(step: Step) -> bool:
    """True when nothing can be played after this step, not even on a follow-up."""
    match step:
        case Answer() | Reject() | Fail() | Exit():
            return True
        case Say() | Hand() | Ask() | AskPerson() | Wait():
            return False
        case _:
            assert_never(step)
