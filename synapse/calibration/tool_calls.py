"""How a tool is called by the name and the parameters that the CLI offered it with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from synapse.calibration.acts import ASKED, COLOURS, CallTool, Use
from synapse.calibration.asked import Asked

_NAMES: Final[Mapping[Use, tuple[str, ...]]] = {
    Use.SHELL: ("Bash", "exec_command", "shell_command", "shell", "local_shell", "run_shell_command", "bash"),
    Use.ASK: ("AskUserQuestion", "ask_user", "question", "request_user_input"),
}
_TAKES_WORDS: Final = ("shell", "local_shell")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A tool's name and what it is called with."""

    name: str
    arguments: Mapping[str, Any]


def call_for(act: CallTool, asked: Asked) -> ToolCall | None:
    """The call of the CLI's own tool for this; None when it offers none."""
    name = next((name for name in _NAMES[act.use] if name in asked.tools), "")
    if not name:
        return None
    offered = asked.tools[name]
    match act.use:
        case Use.SHELL:
            return ToolCall(name=name, arguments=_shell(name, offered, act.command))
        case Use.ASK:
            return ToolCall(name=name, arguments=_question(name, offered))


def _shell(name: str, offered: frozenset[str], command: str) -> dict[str, Any]:
    key = "cmd" if "cmd" in offered else "command"
    arguments: dict[str, Any] = {key: ["bash", "-c", command] if name in _TAKES_WORDS else command}
    if "sandbox_permissions" in offered:
        # Codex asks a person only for what shall leave its sandbox.
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
