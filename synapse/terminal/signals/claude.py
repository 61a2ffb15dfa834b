"""Claude Code (2.1.325): four hooks, and its transcript for the one thing that no hook tells, an interrupt.

A permission dialog is told by PermissionRequest. That it was answered is told by nothing that is cheap (PostToolUse
carries the tool's whole output), but the title and OSC 7501 say that it works again.
"""

from __future__ import annotations

from typing import Any, Final, cast

from synapse.terminal.evidence import Source
from synapse.terminal.signals.report import (
    API_ERROR,
    INTERRUPTED,
    RATE_LIMITED,
    Record,
    Report,
    Told,
    failed,
    items,
    part,
    shortened,
    word,
)

HOOKS: Final = ("UserPromptSubmit", "PermissionRequest", "Stop", "StopFailure")
_INTERRUPTION: Final = "[Request interrupted by user"
_SETTINGS_FLAG: Final = "--settings"


def read_hook(payload: Record) -> Report | None:
    """Return what a hook's payload says; None for a hook that says nothing about the turn."""
    turn = word(payload, "prompt_id")
    match word(payload, "hook_event_name"):
        case "UserPromptSubmit":
            return _report(Told.SUBMITTED, "its hook has the prompt", word(payload, "prompt"), turn)
        case "PermissionRequest":
            asked = _asked(payload)
            return _report(Told.WAITING, f"its hook says what it asks: {shortened(asked)}", asked, turn)
        case "Stop":
            answer = word(payload, "last_assistant_message")
            return _report(Told.ANSWERED, "its hook says that it is done", answer, turn)
        case "StopFailure":
            return _failure(payload, turn)
        case _:
            return None


def read_record(record: Record) -> Report | None:
    """Return what a line of the transcript says beyond the hooks: that a person interrupted the turn."""
    if record.get("type") != "user" or record.get("isSidechain") is True:
        return None
    for block in items(part(record, "message"), "content"):
        if word(block, "text").startswith(_INTERRUPTION):
            return failed(
                Source.TRANSCRIPT,
                INTERRUPTED,
                "it was interrupted in its terminal",
                heard="its transcript says that it was interrupted",
                turn=word(record, "promptId"),
            )
    return None


def hook_settings(url: str, header: str, secret: str) -> dict[str, Any]:
    """Settings that make it report to `url`; HTTP hooks start no process."""
    hook = {"type": "http", "url": url, "headers": {header: secret}, "timeout": 5}
    return {"hooks": {name: [{"hooks": [hook]}] for name in HOOKS}}


def merged(theirs: Record, ours: Record) -> dict[str, Any]:
    """The person's settings with our hooks behind theirs."""
    hooks: dict[str, Any] = dict(part(theirs, "hooks"))
    for name, groups in part(ours, "hooks").items():
        known = hooks.get(name)
        hooks[name] = [*(cast("list[object]", known) if isinstance(known, list) else []), *groups]
    return {**theirs, "hooks": hooks}


def settings_argument(arguments: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Take the person's own `--settings` (the last one counts) out of the arguments; empty when there is none."""
    theirs, rest, coming = "", list[str](), iter(arguments)
    for argument in coming:
        if argument == "--":
            rest += [argument, *coming]
        elif argument == _SETTINGS_FLAG:
            theirs = next(coming, "")
        elif argument.startswith(_SETTINGS_FLAG + "="):
            theirs = argument.partition("=")[2]
        else:
            rest.append(argument)
    return theirs, tuple(rest)


def _report(told: Told, heard: str, text: str, turn: str) -> Report:
    return Report(told=told, source=Source.SIGNAL, detail=heard, text=text, turn=turn)


def _failure(payload: Record, turn: str) -> Report:
    note = word(payload, "last_assistant_message") or word(payload, "error_details") or word(payload, "error")
    reason = RATE_LIMITED if word(payload, "error") == "rate_limit" else API_ERROR
    return failed(Source.SIGNAL, reason, note, heard=f"its hook says that it failed: {shortened(note)}", turn=turn)


def _asked(payload: Record) -> str:
    """What a permission request is about: the tool, and its most telling input."""
    tool, given = word(payload, "tool_name") or "a tool", part(payload, "tool_input")
    questions = [word(question, "question") for question in items(given, "questions")]
    if any(questions):
        return " ".join(filter(None, questions))
    telling = next((value for key in _TELLING if (value := word(given, key))), "")
    return f"{tool}: {telling}" if telling else tool


_TELLING: Final = ("command", "file_path", "url", "path", "pattern", "query", "plan", "prompt", "description")
