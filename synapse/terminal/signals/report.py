"""What a CLI itself says of its turn, whatever way it came: the value that all readers of signals make.

The options of a question as a CLI's own signal tells them: people choose by number.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, cast

from synapse.core.agent import READY, WAITING, WORKING
from synapse.core.question import Option, OptionEffect, Question
from synapse.core.text import safe_line
from synapse.terminal.evidence import Source

INTERRUPTED: Final = "interrupted"
API_ERROR: Final = "api_error"
RATE_LIMITED: Final = "rate_limited"
"""Why a turn ended without an answer."""

_LONGEST_DETAIL: Final = 300

Record = Mapping[str, Any]
"""A hook's payload, or one line of a transcript."""


class SignalKind(StrEnum):
    """What is said."""

    SUBMITTED = "submitted"
    WORKING = "working"
    WAITING = "waiting"
    ANSWERED = "answered"
    FAILED = "failed"


_STATES: Final = {
    SignalKind.SUBMITTED: WORKING,
    SignalKind.WORKING: WORKING,
    SignalKind.WAITING: WAITING,
    SignalKind.ANSWERED: READY,
    SignalKind.FAILED: READY,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalReport:
    """One thing that a CLI said. `turn` is its own name of the turn, where it has one."""

    told: SignalKind
    source: Source
    detail: str
    """For `--explain`: what was heard."""
    text: str = ""
    """The prompt that was taken, what is asked, the answer, or why there is none."""
    reason: str = ""
    """The stable word for a turn that failed."""
    turn: str = ""
    question: Question | None = None
    """What is asked, with WAITING, where the CLI tells it."""

    @property
    def state(self) -> str:
        """The agent's state from now on."""
        return _STATES[self.told]

    def is_about(self, typed: str) -> bool:
        """True if the prompt that was taken is the text that was typed; CLIs change line breaks and blanks."""
        return not self.text or _squeezed(typed) in _squeezed(self.text)


@dataclass(frozen=True, slots=True)
class Saying:
    """What a CLI has said so far in a turn, whole: the beginning of its answer, unless it says something else later."""

    turn: str
    text: str


def failed(source: Source, reason: str, note: str, *, heard: str, turn: str = "") -> SignalReport:
    """A turn that ended without an answer."""
    return SignalReport(told=SignalKind.FAILED, source=source, detail=heard, text=note, reason=reason, turn=turn)


def word(record: Record, *path: str) -> str:
    """The text at a path of keys, or an empty one: a CLI of another version may have something else there."""
    value = part(record, *path[:-1]).get(path[-1])
    return value if isinstance(value, str) else ""


def part(record: Record, *path: str) -> Record:
    """The table at a path of keys, or an empty one."""
    for key in path:
        record = _table(record.get(key))
    return record


def items(record: Record, key: str) -> list[Record]:
    """The tables of a list, or none."""
    value = record.get(key)
    if not isinstance(value, list):
        return []
    return [cast("Record", item) for item in cast("list[object]", value) if isinstance(item, Mapping)]


def shortened(text: str) -> str:
    """One line that fits into a status."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_DETAIL else f"{line[: _LONGEST_DETAIL - 1]}…"


def error_sentence(text: str) -> str:
    """The sentence in an error of the model's server, which often is JSON."""
    try:
        value: object = json.loads(text)
    except ValueError:
        return text
    return word(_table(value), "error", "message") or text


def _table(value: object) -> Record:
    return cast("Record", value) if isinstance(value, Mapping) else {}


def _squeezed(text: str) -> str:
    return "".join(text.split())


_MOST_OPTIONS: Final = 50


def numbered(options: Iterable[tuple[str, OptionEffect]]) -> tuple[Option, ...]:
    """The options with numbers from 1 as their keys, in the order in which the CLI shows them, safe to print."""
    return tuple(
        Option(key=str(number), label=safe_line(label), leaning=leaning)
        for number, (label, leaning) in enumerate(list(options)[:_MOST_OPTIONS], 1)
    )


def position(key: str, count: int) -> int | None:
    """The place of the option that has this key among `count`; None if none has."""
    return int(key) - 1 if key.isascii() and key.isdigit() and 1 <= int(key) <= count else None
