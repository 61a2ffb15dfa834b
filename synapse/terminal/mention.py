"""Finds `@agent text` that a person types at an empty prompt, and sends it to that agent instead of the program.

`@agent@machine text` means an agent on another machine.

    OUTSIDE ── `@` at an empty prompt ──> TRACKING ── Enter, the name is known ──> CHECKING
       ^                                     │                                        │ the screen shows the line
       ├── anything not understood ──────────┘                                        v
       ├── sent, or typed anew (`@@agent` means a literal `@agent`) <── empty ──── CLEARING
       └── the screen never showed it: Enter passes <── CHECKING

`MentionLine` keeps a model of the line. Every byte that the person types goes on to the program, in order; only an
Enter may be held, and the keys that follow it wait for the decision. If the model is wrong, the screen disagrees, and
Enter passes like any other key. Callers pass the time.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from synapse.terminal.keys import Key, KeyKind, KeyParser
from synapse.terminal.line_editor import EditedLine
from synapse.terminal.reading import compact

_CHECK_SECONDS: Final = 0.3
"""How long the screen may take to show the typed line before Enter passes."""
_CLEAR_SECONDS: Final = 0.3
_CLEAR_TRIES: Final = 3
_ESCAPE_SECONDS: Final = 0.05
"""The rest of a cut escape sequence comes within this time; otherwise it was the Escape key."""
_MOST_KEPT: Final = 65536

_NAME: Final = r"(?P<name>\w[\w.-]*(?:@[a-z0-9-]+)?)"
"""An agent, or one on another machine: `codex@box2`."""
_LINE: Final = re.compile(rf"@{_NAME}\s+(?P<text>\S.*?)\s*")
_LITERAL: Final = re.compile(rf"@(?P<rest>@{_NAME}(?:\s.*)?)")
# A text that ends like this opens a completion list, and Enter would pick from it; a space closes it.
_OPENS_LIST: Final = re.compile(r"(?:^|\s)[@/]\S*$")


@dataclass(frozen=True, slots=True)
class Forward:
    """Write this to the program."""

    data: bytes


@dataclass(frozen=True, slots=True)
class ClearLine:
    """Write this to the program, to empty its input."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Send:
    """Send the text to the agent `target`."""

    target: str
    text: str


@dataclass(frozen=True, slots=True)
class Notify:
    """Show this text to the person."""

    text: str


Action = Forward | ClearLine | Send | Notify

ReadPrompt = Callable[[], "str | None"]
"""Returns the text in the program's prompt; None if no prompt is visible."""
Resolve = Callable[[str], str]
"""Returns the agent of that name, or an empty string."""


class _Phase(Enum):
    OUTSIDE = auto()
    TRACKING = auto()
    CHECKING = auto()
    CLEARING = auto()
    RETYPING = auto()


@dataclass(slots=True)
class _Held:
    """An Enter whose decision is pending, and the keys that came after it."""

    enter: bytes
    target: str
    text: str
    literal: str
    """The text to type instead; empty if the line is a message."""
    deadline: float
    kept: bytearray = field(default_factory=bytearray)
    cleared: int = 0


class MentionLine:
    """Passes a person's keys on, and finds the lines that are meant for another agent."""

    def __init__(self, resolve: Resolve, clear_keys: bytes) -> None:
        self._resolve = resolve
        self._clear_keys = clear_keys
        self._parser = KeyParser()
        self._phase = _Phase.OUTSIDE
        self._line = EditedLine()
        self._passed = 0
        """How many of the parser's pending bytes the program already has."""
        self._last_typed = 0.0
        self._held: _Held | None = None

    @property
    def watches_screen(self) -> bool:
        """True while `look` should be called whenever the screen has changed."""
        return self._held is not None

    @property
    def deadline(self) -> float | None:
        """When to call `look` even if the screen does not change."""
        if self._held is not None:
            return self._held.deadline
        if self._phase is _Phase.TRACKING and self._parser.pending:
            return self._last_typed + _ESCAPE_SECONDS
        return None

    def typed(self, data: bytes, read_prompt: ReadPrompt, now: float) -> list[Action]:
        """Takes bytes that the person typed."""
        if self._held is not None:
            self._held.kept += data
            return self._give_up(self._held, None, now) if len(self._held.kept) > _MOST_KEPT else []
        keys: list[Key] = []
        if self._parser.pending and now - self._last_typed > _ESCAPE_SECONDS:
            keys += self._parser.flush()
        self._last_typed = now
        return self._take(keys + self._parser.feed(data), read_prompt, now)

    def look(self, prompt: str | None, now: float) -> list[Action]:
        """Takes the text that the prompt holds now, and the time."""
        if self._held is None:
            is_late = self.deadline is not None and now >= self.deadline
            return self._take(self._parser.flush(), lambda: prompt, now) if is_late else []
        return self._decide(self._held, prompt, now)

    def _take(self, keys: list[Key], read_prompt: ReadPrompt, now: float) -> list[Action]:
        passing = bytearray()
        while keys:
            key = keys.pop(0)
            held = self._hold(key, now) if self._phase is _Phase.TRACKING and key.kind is KeyKind.ENTER else None
            if held is not None:
                for later in keys:
                    held.kept += later.raw
                held.kept += self._parser.pending
                self._parser, self._held, self._phase = KeyParser(), held, _Phase.CHECKING
                return [*_forwarded(passing), *self._decide(held, read_prompt(), now)]
            self._follow(key, read_prompt)
            passing += key.raw[self._passed :]
            self._passed = max(self._passed - len(key.raw), 0)
        if self._phase is _Phase.OUTSIDE:
            passing += self._parser.pending[self._passed :]
            self._passed = len(self._parser.pending)
        return _forwarded(passing)

    def _follow(self, key: Key, read_prompt: ReadPrompt) -> None:
        """Updates the model of the line by one key that goes to the program."""
        if self._phase is _Phase.OUTSIDE:
            if not key.text.startswith("@") or key.kind not in (KeyKind.TEXT, KeyKind.PASTED) or read_prompt() != "":
                return
            self._phase, self._line = _Phase.TRACKING, EditedLine()
        self._line = self._line.edited(key) or EditedLine()
        if not self._line.text.startswith("@"):
            self._phase = _Phase.OUTSIDE

    def _hold(self, enter: Key, now: float) -> _Held | None:
        """Returns the decision that this Enter begins, or None for a plain Enter."""
        literal, message = _LITERAL.fullmatch(self._line.text), _LINE.fullmatch(self._line.text)
        found = literal or message
        target = self._resolve(found["name"]) if found else ""
        if not target:
            return None
        rest = literal["rest"] if literal else ""
        return _Held(
            enter=enter.raw,
            target=target,
            text=message["text"] if message else "",
            literal=rest + " " if _OPENS_LIST.search(rest) else rest,
            deadline=now + _CHECK_SECONDS,
        )

    def _decide(self, held: _Held, prompt: str | None, now: float) -> list[Action]:
        match self._phase:
            case _Phase.CHECKING if prompt is not None and _is_same(prompt, self._line.text):
                return self._clear(held, now)
            case _Phase.CLEARING if prompt == "":
                return self._send_or_retype(held, now)
            case _Phase.RETYPING if prompt is not None and _is_same(prompt, held.literal):
                return self._release(held, Forward(held.enter), prompt, now)
            case _:
                return self._give_up(held, prompt, now) if now >= held.deadline else []

    def _clear(self, held: _Held, now: float) -> list[Action]:
        self._phase = _Phase.CLEARING
        held.cleared += 1
        held.deadline = now + _CLEAR_SECONDS
        return [ClearLine(self._clear_keys)]

    def _send_or_retype(self, held: _Held, now: float) -> list[Action]:
        if not held.literal:
            return self._release(held, Send(held.target, held.text), "", now)
        self._phase = _Phase.RETYPING
        held.deadline = now + _CHECK_SECONDS
        return [Forward(held.literal.encode())]

    def _give_up(self, held: _Held, prompt: str | None, now: float) -> list[Action]:
        if self._phase is not _Phase.CLEARING:
            return self._release(held, Forward(held.enter), prompt, now)
        if held.cleared < _CLEAR_TRIES:
            return self._clear(held, now)
        # Neither press Enter nor send the message: either would be a duplicate once the person tries again.
        notice = Notify(f"not sent to {held.target}: the input line could not be cleared")
        return self._release(held, notice, prompt, now)

    def _release(self, held: _Held, action: Action, prompt: str | None, now: float) -> list[Action]:
        """Ends the decision with `action`, then passes on the keys that waited."""
        kept = bytes(held.kept)
        self._held, self._phase, self._passed = None, _Phase.OUTSIDE, 0
        if not kept:
            return [action]
        # Once Enter has passed, the text in the prompt is unknown.
        after = None if isinstance(action, Forward) else prompt
        return [action, *self.typed(kept, lambda: after, now)]


def _forwarded(data: bytearray) -> list[Action]:
    return [Forward(bytes(data))] if data else []


def _is_same(shown: str, line: str) -> bool:
    """Compares without the blanks that a screen does not show: trailing ones, and some where a prompt wraps a line."""
    if "\n" in shown:
        return compact(shown) == compact(line)
    return shown.strip() == line.strip()
