"""`synapse approvals`: what all agents wait for a person to decide, and what to type about it."""

from __future__ import annotations

import threading
from datetime import datetime
from typing import Any

from synapse.cli.answering import LOOK_SECONDS, READ_SECONDS
from synapse.cli.hosts import open_registry
from synapse.cli.question_view import next_step, question_in, question_lines, target_of
from synapse.cli.render import painted, plain
from synapse.cli.speech import give, give_json, say
from synapse.cli.survey import Asked, ask_all, warn_of_silent
from synapse.cli.task_view import FINISHED, status_of
from synapse.cli.verb_parser import VerbParser
from synapse.core.address import short_name
from synapse.core.agent import WAITING
from synapse.core.json_text import object_in
from synapse.runtime.system_clock import SystemClock

EXAMPLES = """
synapse approvals
synapse approvals --json | jq -r '.[].task_id'
synapse approve 54241e7e                         allow it, this once
"""
UNKNOWN = "dialog"
"""The kind of what is open on a screen without being understood."""


def run(arguments: list[str]) -> int:
    """List what is asked and return the exit code."""
    options = VerbParser("approvals", examples=EXAMPLES).parse_args(arguments)
    asked = _once_read(ask_all(open_registry().entries(), "GET", "/status"))
    warn_of_silent(asked)
    waiting = [one for one in asked if question_in(one.body) or one.body.get("state") == WAITING]
    if options.json:
        give_json([as_fields(one) for one in waiting])
        return 0
    if not waiting:
        say("no agent waits for a person")
    now = SystemClock().now()
    for one in waiting:
        give("\n".join(_block(one, now)))
    return 0


def _once_read(asked: list[Asked]) -> list[Asked]:
    """The same, once a dialog that has only just opened is read; one that is long open and not read will not be."""
    clock, never = SystemClock(), threading.Event()
    end = clock.monotonic() + READ_SECONDS
    while clock.monotonic() < end:
        unread = [index for index, one in enumerate(asked) if _is_just_open(one, clock.now())]
        if not unread:
            break
        never.wait(LOOK_SECONDS)
        again = ask_all([asked[index].entry for index in unread], "GET", "/status")
        for index, one in zip(unread, again, strict=True):
            asked[index] = one
    return asked


def _is_just_open(one: Asked, now: datetime) -> bool:
    if one.error is not None or question_in(one.body) or one.body.get("state") != WAITING:
        return False
    seconds = _seconds_since(one.body.get("since"), now)
    return seconds is not None and seconds < READ_SECONDS


def as_fields(one: Asked) -> dict[str, Any]:
    """What one agent waits for, for a machine."""
    question = question_in(one.body)
    name = short_name(one.entry)
    target = target_of(question, name)
    return {
        "agent_id": one.entry.agent_id,
        "name": name,
        "task_id": (question.get("task_id") if question else _running_task(one)) or None,
        "kind": question.get("kind", UNKNOWN),
        "title": question.get("title") or one.body.get("why", ""),
        "asked_at": question.get("asked_at") or one.body.get("since"),
        "next": next_step(question, target, name),
        "question": question or None,
    }


def _running_task(one: Asked) -> str:
    """The task in whose turn a dialog is open that is not understood."""
    task = object_in(one.body, "current_task")
    return str(task.get("id", "")) if task and status_of(task) not in FINISHED else ""


def _block(one: Asked, now: datetime) -> list[str]:
    fields = as_fields(one)
    question = question_in(one.body)
    task = f"task {str(fields['task_id'])[:8]}" if fields["task_id"] else "no task"
    head = (
        f"{painted(fields['name'], WAITING)}  {task}  {plain(str(fields['kind']))}  {how_long(fields['asked_at'], now)}"
    )
    lines = question_lines(question) if question else [plain(str(fields["title"]))]
    return [head, *(f"  {line}" for line in lines), f"  → {fields['next']}"]


def how_long(since: object, now: datetime) -> str:
    """`for 3m`: seconds, minutes or hours, whichever says it shortest."""
    elapsed = _seconds_since(since, now)
    if elapsed is None:
        return ""
    seconds = max(0, int(elapsed))
    if seconds < 60:
        return f"for {seconds}s"
    return f"for {seconds // 60}m" if seconds < 3600 else f"for {seconds // 3600}h"


def _seconds_since(moment: object, now: datetime) -> float | None:
    """How long ago that was; None if it is no time."""
    try:
        return (now - datetime.fromisoformat(str(moment))).total_seconds()
    except (ValueError, TypeError):
        return None
