"""Why messages wait for an agent that is not at work on one of them: a reason, since when, and whether for too long."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


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
