"""The scripted model: a marker in the prompt chooses the scene, the number of tool results chooses the act.

A ModelRequest is a request in the form that all vendor APIs are read into; a ToolCall uses the tool name and parameters
that the CLI offered.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, cast

MARKER: Final = re.compile(r"calibrate:([a-z-]+):(\d+)")
COLOURS: Final = ("Blue", "Red")
ASKED: Final = "Which colour?"
MADE_BY_TOOL: Final = "made-by-calibrate.txt"
Body = Mapping[str, Any]
_TAKES_WORDS: Final = ("shell", "local_shell")


class Use(StrEnum):
    """The purpose of a tool; each CLI has its own name for it."""

    SHELL = "shell"
    ASK = "ask"


@dataclass(frozen=True, slots=True)
class SayText:
    """Answer with a text, in these pieces."""

    pieces: tuple[str, ...]

    @property
    def text(self) -> str:
        return "".join(self.pieces)


@dataclass(frozen=True, slots=True)
class HoldText:
    """Begin an answer and hold it until it is released or the CLI disconnects."""

    begin: tuple[str, ...]
    end: str


@dataclass(frozen=True, slots=True)
class CallTool:
    """Call one of the tools that the CLI offered."""

    use: Use
    command: str = ""


@dataclass(frozen=True, slots=True)
class CallMcpTool:
    """Call a tool of one of the CLI's MCP servers, under the name by which the CLI offers it."""

    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    server: str = "synapse"


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer with an error; `retry_after` (seconds) is sent as the header of that name."""

    status: int
    message: str
    retry_after: int = 0


Act = SayText | HoldText | CallTool | CallMcpTool | Refuse
Scene = tuple[Act, ...]
"""The acts of one turn: the first for the prompt, the next for each tool result; the last one repeats."""


def act_for(scenes: Mapping[str, Scene], scene: str, results: int) -> Act:
    """Returns the act of a scene after so many tool results; a plain answer for an unknown scene."""
    acts = scenes.get(scene, SCENES["one-line"])
    return acts[min(results, len(acts) - 1)]


def _in_pieces(text: str, size: int) -> tuple[str, ...]:
    return tuple(text[start : start + size] for start in range(0, len(text), size))


def _long_text() -> str:
    """Returns many kilobytes of what terminals and Markdown change: only a CLI's own transcript returns it exactly."""
    paragraph = (
        'Paragraph {n}: FAKE-ECHO[{n}] with **bold**, `code`, a | pipe, <tag attr="1">, \\backslash and ~tilde~; '
        "a line that is long enough to wrap on every screen: 日本語のテキスト, Ünïcödé, 🙂 and é.\n"
    )
    code = '```python\ndef f(x):\n    return {{"{n}": x}}  # [link](http://example.com/{n})\n```\n'
    listing = "- item {n}\n  - inner\n1. first\n2. second\n"
    blocks = [paragraph.format(n=n) + "\n" + code.format(n=n) + "\n" + listing.format(n=n) for n in range(60)]
    return "# A long answer\n\n" + "\n".join(blocks) + "\nLast line of the long answer."


def _lines(count: int) -> str:
    """Returns so many distinct short lines."""
    return "\n".join(f"Line {number} of {count}." for number in range(1, count + 1))


SCENES: Final[Mapping[str, Scene]] = {
    "one-line": (SayText(("The answer ", "to one line.")),),
    "multi-line": (SayText(_in_pieces("Three lines:\n\n- one\n- two: FAKE-ECHO[34]\n\nand the *last* one.", 7)),),
    "long": (SayText(_in_pieces(_long_text(), 211)),),
    "tall": (SayText(_in_pieces(_lines(60), 97)),),
    "huge": (SayText(_in_pieces(_lines(2000), 499)),),
    "after": (SayText(("The answer ", "afterwards.")),),
    "approve": (CallTool(Use.SHELL, f"touch {MADE_BY_TOOL}"), SayText(("The tool ", "has run."))),
    "deny": (CallTool(Use.SHELL, f"touch {MADE_BY_TOOL}"), SayText(("It was ", "not allowed."))),
    "question": (CallTool(Use.ASK), SayText(("A colour ", "was chosen."))),
    "remember": (SayText(("I remember ", "the number 4711.")),),
    "queued": (SayText(("It waited ", "for its turn.")),),
    "slow": (HoldText(("A slow ", "answer ", "begins "), "and ends."),),
    "urgent": (SayText(("The urgent ", "answer.")),),
    "api-error": (Refuse(400, "calibration refuses this request"),),
    "rate-limit": (Refuse(429, "calibration says: too many requests", retry_after=3600),),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """A request of the CLI to the model."""

    said: tuple[str, ...] = ()
    """The person's messages so far, newest last."""
    results: tuple[str, ...] = ()
    """The tool results since the newest message."""
    tools: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    """Each offered tool with the names of its parameters."""
    namespaces: Mapping[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    """Each tool that was offered in a namespace, with the name of that namespace and its own name there."""
    freeform: frozenset[str] = frozenset()
    """The tools that take a text instead of parameters."""
    structured: bool = False
    """Whether the answer must be JSON of a given shape: a title, a routing decision."""
    streams: bool = True
    model: str = "scripted"

    @property
    def prompt(self) -> str:
        """The newest message that the CLI did not insert itself: those are in tags."""
        own = [text for text in self.said if MARKER.search(text) or not text.lstrip().startswith("<")]
        return own[-1] if own else ""

    @property
    def marker(self) -> tuple[str, str]:
        """Scene and number of the turn; two empty strings for a side request (a title, a summary, a suggestion)."""
        found = None if self.structured or not self.tools else MARKER.search(self.prompt)
        return (found[1], found[2]) if found else ("", "")


def table(value: object) -> Body:
    """Returns `value` if it is an object, else an empty one: a CLI of another version may send something else."""
    return cast("Body", value) if isinstance(value, Mapping) else {}


def tables(value: object) -> list[Body]:
    """Returns the objects of a list."""
    return [table(item) for item in cast("list[object]", value)] if isinstance(value, list) else []


def parameters(schema: object) -> frozenset[str]:
    """Returns the names of the parameters in a tool's JSON schema."""
    return frozenset(table(table(schema).get("properties")))


def text_of(content: object) -> str:
    """Returns the text of a message's content: a string, or a list of parts of which some are text."""
    if isinstance(content, str):
        return content
    return "\n".join(texts_of(tables(content)))


def texts_of(parts: Iterable[Body]) -> list[str]:
    return [str(part["text"]) for part in parts if isinstance(part.get("text"), str)]


_NAMES: Final[Mapping[Use, tuple[str, ...]]] = {
    Use.SHELL: ("Bash", "exec_command", "shell_command", "shell", "local_shell", "run_shell_command", "bash"),
    Use.ASK: ("AskUserQuestion", "ask_user", "question", "request_user_input"),
}
_MCP_NAMES: Final = ("mcp__{server}__{tool}", "mcp_{server}_{tool}", "{server}_{tool}", "{server}-{tool}")
"""How CLIs name a tool of an MCP server to their model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A tool's name and the arguments of a call."""

    name: str
    arguments: Mapping[str, Any]


def call_for(act: CallTool | CallMcpTool, request: ModelRequest) -> ToolCall | None:
    """Returns the call of the CLI's tool for the act; None if it offers none."""
    if isinstance(act, CallMcpTool):
        offered_as = (form.format(server=act.server, tool=act.tool) for form in _MCP_NAMES)
        named = next((name for name in offered_as if name in request.tools), "")
        return ToolCall(name=named, arguments=act.arguments) if named else None
    name = next((name for name in _NAMES[act.use] if name in request.tools), "")
    if not name:
        return None
    offered = request.tools[name]
    match act.use:
        case Use.SHELL:
            return ToolCall(name=name, arguments=_shell(name, offered, act.command))
        case Use.ASK:
            return ToolCall(name=name, arguments=_question(name, offered))


def _shell(name: str, offered: frozenset[str], command: str) -> dict[str, Any]:
    key = "cmd" if "cmd" in offered else "command"
    arguments: dict[str, Any] = {key: ["bash", "-c", command] if name in _TAKES_WORDS else command}
    if "sandbox_permissions" in offered:
        # Codex asks a person only for commands that leave its sandbox.
        arguments |= {"sandbox_permissions": "require_escalated", "justification": "May the file be made?"}
    if "description" in offered:
        arguments["description"] = "Make a file"
    return arguments


def _question(name: str, offered: frozenset[str]) -> dict[str, Any]:
    if "message" in offered:
        colour = {"type": "string", "title": "Colour", "enum": list(COLOURS)}
        schema = {"type": "object", "properties": {"colour": colour}, "required": ["colour"]}
        return {"message": ASKED, "requestedSchema": schema}
    if "question" in offered:
        return {"question": ASKED, "choices": list(COLOURS), "allow_freeform": True}
    options = [{"label": colour, "description": f"The colour {colour.lower()}"} for colour in COLOURS]
    question: dict[str, Any] = {"question": ASKED, "header": "Colour", "options": options}
    if name == "AskUserQuestion":
        question["multiSelect"] = False
    elif name == "ask_user":
        question |= {"multiSelect": False, "type": "choice"}
    elif name == "request_user_input":
        question["id"] = "colour"
    return {"questions": [question]}
