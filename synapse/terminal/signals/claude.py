"""Claude Code (2.1.325): four hooks, and its transcript for what no hook tells: an interrupt, and the answer untrimmed.

A permission dialog is told by PermissionRequest (see `claude_permission`). That it was answered in the terminal is told
by nothing that is cheap (PostToolUse carries the tool's whole output), but the dialog is seen to be gone.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final, cast

from synapse.terminal.evidence import Source
from synapse.terminal.signals.claude_permission import asked_in, question_in
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

_DAY: Final = 24 * 60 * 60
HOOKS: Final = {"UserPromptSubmit": 5, "PermissionRequest": _DAY, "Stop": 5, "StopFailure": 5}
"""Which hooks, and for how many seconds each may wait: the dialog is shown meanwhile, and the first answer counts."""
_INTERRUPTION: Final = "[Request interrupted by user"
_SETTINGS_FLAG: Final = "--settings"
_END_OF_TIME: Final = 1 << 37


def read_hook(payload: Record, question_id: str = "") -> Report | None:
    """Return what a hook's payload says; None for a hook that says nothing about the turn.

    What is asked gets the id that is given: it has none of its own.
    """
    turn = word(payload, "prompt_id")
    match word(payload, "hook_event_name"):
        case "UserPromptSubmit":
            return _report(Told.SUBMITTED, "its hook has the prompt", word(payload, "prompt"), turn)
        case "PermissionRequest":
            asked = asked_in(payload)
            heard = f"its hook says what it asks: {shortened(asked)}"
            return replace(_report(Told.WAITING, heard, asked, turn), question=question_in(payload, question_id))
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


class LastWords:
    """What its assistant said last in a conversation, as the lines of the transcript have it."""

    def __init__(self) -> None:
        self._message = ""
        self._texts: list[str] = []
        self._lines: set[str] = set()

    def read(self, record: Record) -> None:
        """Take one line, once; a message has one for each of its blocks."""
        line = word(record, "uuid")
        if record.get("type") != "assistant" or record.get("isSidechain") is True or line in self._lines:
            return
        self._lines.add(line)
        message = part(record, "message")
        if word(message, "id") != self._message:
            self._message, self._texts = word(message, "id"), []
        self._texts += [word(block, "text") for block in items(message, "content") if word(block, "type") == "text"]

    def exact(self, answer: str) -> str | None:
        """The answer that a hook told, with the blanks around it that hooks leave out; None if this is another."""
        whole = ("".join(self._texts), "\n".join(self._texts), "\n\n".join(self._texts))
        return next((text for text in whole if text.strip() == answer.strip()), None)


def hook_settings(url: str, header: str, secret: str, prompt_command: str = "") -> dict[str, Any]:
    """Settings that make it report to `url`; HTTP hooks start no process.

    But it waits for each of them, and so would every prompt; only a command can run beside it.
    """
    reporting: dict[str, Any] = {"type": "http", "url": url, "headers": {header: secret}}
    hooks = {name: {**reporting, "timeout": seconds} for name, seconds in HOOKS.items()}
    if prompt_command:
        beside = {"type": "command", "command": prompt_command, "async": True}
        hooks["UserPromptSubmit"] = {**beside, "timeout": HOOKS["UserPromptSubmit"]}
    return {"hooks": {name: [{"hooks": [hook]}] for name, hook in hooks.items()}}


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
    note = _with_time(note)
    return failed(Source.SIGNAL, reason, note, heard=f"its hook says that it failed: {shortened(note)}", turn=turn)


def _with_time(note: str) -> str:
    """A usage limit ends at a time that is told in seconds since the epoch, behind a bar."""
    text, _, moment = note.rpartition("|")
    if not text or not moment.isascii() or not moment.isdigit() or not 0 < int(moment) < _END_OF_TIME:
        return note
    return f"{text}; try again after {datetime.fromtimestamp(int(moment), UTC):%Y-%m-%d %H:%M:%S} UTC"
