"""What the scripted model does: a word in the prompt chooses the scene, the tool results so far choose the act."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

MARKER: Final = re.compile(r"calibrate:([a-z-]+):(\d+)")
COLOURS: Final = ("Blue", "Red")
ASKED: Final = "Which colour?"
MADE_BY_TOOL: Final = "made-by-calibrate.txt"


class Use(StrEnum):
    """What a tool is for; each CLI has its own name for the tool."""

    SHELL = "shell"
    ASK = "ask"


@dataclass(frozen=True, slots=True)
class Say:
    """Answer with a text, in these pieces."""

    pieces: tuple[str, ...]

    @property
    def text(self) -> str:
        return "".join(self.pieces)


@dataclass(frozen=True, slots=True)
class Hold:
    """Begin an answer and hold it until it is released or the CLI hangs up."""

    begin: tuple[str, ...]
    end: str


@dataclass(frozen=True, slots=True)
class CallTool:
    """Call one of the tools that the CLI offered."""

    use: Use
    command: str = ""


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer with an error. `retry_after` in seconds goes out as the header of that name."""

    status: int
    message: str
    retry_after: int = 0


Act = Say | Hold | CallTool | Refuse
Scene = tuple[Act, ...]
"""The acts of one turn: the first for the prompt, the next for each tool result; the last one stays."""


def act_for(scenes: Mapping[str, Scene], scene: str, results: int) -> Act:
    """The act of a scene after so many tool results; an unknown scene is a plain answer."""
    acts = scenes.get(scene, SCENES["one-line"])
    return acts[min(results, len(acts) - 1)]


def _in_pieces(text: str, size: int) -> tuple[str, ...]:
    return tuple(text[start : start + size] for start in range(0, len(text), size))


def _long_text() -> str:
    """Many kilobytes of everything that terminals and Markdown change: only a CLI's own words give it back exactly."""
    paragraph = (
        'Paragraph {n}: FAKE-ECHO[{n}] with **bold**, `code`, a | pipe, <tag attr="1">, \\backslash and ~tilde~; '
        "a line that is long enough to wrap on every screen: 日本語のテキスト, Ünïcödé, 🙂 and é.\n"
    )
    code = '```python\ndef f(x):\n    return {{"{n}": x}}  # [link](http://example.com/{n})\n```\n'
    listing = "- item {n}\n  - inner\n1. first\n2. second\n"
    blocks = [paragraph.format(n=n) + "\n" + code.format(n=n) + "\n" + listing.format(n=n) for n in range(60)]
    return "# A long answer\n\n" + "\n".join(blocks) + "\nLast line of the long answer."


def _lines(count: int) -> str:
    """So many short lines, each of its own."""
    return "\n".join(f"Line {number} of {count}." for number in range(1, count + 1))


SCENES: Final[Mapping[str, Scene]] = {
    "one-line": (Say(("The answer ", "to one line.")),),
    "multi-line": (Say(_in_pieces("Three lines:\n\n- one\n- two: FAKE-ECHO[34]\n\nand the *last* one.", 7)),),
    "long": (Say(_in_pieces(_long_text(), 211)),),
    "tall": (Say(_in_pieces(_lines(60), 97)),),
    "huge": (Say(_in_pieces(_lines(2000), 499)),),
    "after": (Say(("The answer ", "afterwards.")),),
    "approve": (CallTool(Use.SHELL, f"touch {MADE_BY_TOOL}"), Say(("The tool ", "has run."))),
    "deny": (CallTool(Use.SHELL, f"touch {MADE_BY_TOOL}"), Say(("It was ", "not allowed."))),
    "question": (CallTool(Use.ASK), Say(("A colour ", "was chosen."))),
    "queued": (Say(("It waited ", "for its turn.")),),
    "slow": (Hold(("A slow ", "answer ", "begins "), "and ends."),),
    "urgent": (Say(("The urgent ", "answer.")),),
    "api-error": (Refuse(400, "calibration refuses this request"),),
    "rate-limit": (Refuse(429, "calibration says: too many requests", retry_after=3600),),
}
