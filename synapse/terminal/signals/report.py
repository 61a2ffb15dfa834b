"""What a CLI reports about its turn, by hook, transcript or server: the value that all readers of signals return.

The helpers below read records of any shape, because a CLI of another version may send others.
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
from synapse.terminal.reading import compact

INTERRUPTED: Final = "interrupted"
API_ERROR: Final = "api_error"
RATE_LIMITED: Final = "rate_limited"
"""Why a turn ended without an answer."""

INTERRUPTED_IN_TERMINAL: Final = "it was interrupted in its terminal"
SEVERAL_QUESTIONS: Final = "it asks several things at once: answer them in its terminal"

_LONGEST_DETAIL: Final = 300
_MOST_OPTIONS: Final = 50

Record = Mapping[str, Any]
"""A hook's payload, one line of a transcript, or one event of a server."""


class SignalKind(StrEnum):
    """What a signal reports."""

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
    """One report of a CLI. `turn` is the CLI's own id of the turn, if it has one."""

    kind: SignalKind
    source: Source
    detail: str
    """The report as a sentence, for `--explain`."""
    text: str = ""
    """The submitted prompt, the question, the answer, or why there is none."""
    reason: str = ""
    """The stable code of a turn that failed."""
    turn: str = ""
    key: str = ""
    """The name that the sender of the submitted prompt gave it, if the CLI has such names."""
    question: Question | None = None
    """The question, with WAITING, if the CLI reports it."""

    @property
    def state(self) -> str:
        """The agent's state from now on."""
        return _STATES[self.kind]

    def is_about(self, typed: str, key: str = "") -> bool:
        """Returns whether the submitted prompt is the message with this key, or, without keys, the typed text.

        CLIs change line breaks and blanks.
        """
        if self.key and key:
            return self.key == key
        return not self.text or compact(typed) in compact(self.text)


@dataclass(frozen=True, slots=True)
class TextSoFar:
    """The whole text of a turn so far: the beginning of its answer, unless the CLI starts another message later."""

    turn: str
    text: str


def failed(source: Source, reason: str, note: str, *, detail: str, turn: str = "") -> SignalReport:
    """Returns the report of a turn that ended without an answer."""
    return SignalReport(kind=SignalKind.FAILED, source=source, detail=detail, text=note, reason=reason, turn=turn)


def text_at(record: Record, *path: str) -> str:
    """Returns the text at a path of keys, or an empty one."""
    value = table_at(record, *path[:-1]).get(path[-1])
    return value if isinstance(value, str) else ""


def table_at(record: Record, *path: str) -> Record:
    """Returns the table at a path of keys, or an empty one."""
    for key in path:
        record = _table(record.get(key))
    return record


def tables_at(record: Record, key: str) -> list[Record]:
    """Returns the tables of a list, or none."""
    value = record.get(key)
    if not isinstance(value, list):
        return []
    return [cast("Record", item) for item in cast("list[object]", value) if isinstance(item, Mapping)]


def shortened(text: str) -> str:
    """Returns the text as one line that fits into a status."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_DETAIL else f"{line[: _LONGEST_DETAIL - 1]}…"


def error_sentence(text: str) -> str:
    """Returns the sentence in an error of the model's server, which often is JSON."""
    try:
        value: object = json.loads(text)
    except ValueError:
        return text
    return text_at(_table(value), "error", "message") or text


def numbered(options: Iterable[tuple[str, OptionEffect]]) -> tuple[Option, ...]:
    """Returns options with the numbers from 1 as their keys, in the order of the CLI, safe to print."""
    return tuple(
        Option(key=str(number), label=safe_line(label), effect=effect)
        for number, (label, effect) in enumerate(list(options)[:_MOST_OPTIONS], 1)
    )


def position(key: str, count: int) -> int | None:
    """Returns the index of the option with this key among `count` numbered ones; None if there is none."""
    return int(key) - 1 if key.isascii() and key.isdigit() and 1 <= int(key) <= count else None


def _table(value: object) -> Record:
    return cast("Record", value) if isinstance(value, Mapping) else {}
