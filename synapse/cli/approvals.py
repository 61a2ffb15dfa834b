"""`synapse approvals`: what all agents wait for a person to decide, and what to type about it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from synapse.cli.hosts import open_registry
from synapse.cli.question_view import next_step, question_in, question_lines, target_of
from synapse.cli.render import painted, plain
from synapse.cli.speech import give, give_json, say
from synapse.cli.survey import Asked, ask_all, warn_of_silent
from synapse.cli.verb_parser import VerbParser
from synapse.core.address import short_name
from synapse.core.agent import WAITING
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
    asked = ask_all(open_registry().entries(), "GET", "/status")
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


def as_fields(one: Asked) -> dict[str, Any]:
    """What one agent waits for, for a machine."""
    question = question_in(one.body)
    name = short_name(one.entry)
    target = target_of(question, name)
    return {
        "agent_id": one.entry.agent_id,
        "name": name,
        "task_id": question.get("task_id") or None,
        "kind": question.get("kind", UNKNOWN),
        "title": question.get("title") or one.body.get("why", ""),
        "asked_at": question.get("asked_at") or one.body.get("since"),
        "next": next_step(question, target, name),
        "question": question or None,
    }


def _block(one: Asked, now: datetime) -> list[str]:
    fields = as_fields(one)
    question = question_in(one.body)
    task = f"task {plain(str(fields['task_id'])[:8])}" if fields["task_id"] else "no task"
    head = (
        f"{painted(fields['name'], WAITING)}  {task}  {plain(str(fields['kind']))}  {how_long(fields['asked_at'], now)}"
    )
    lines = question_lines(question) if question else [plain(str(fields["title"]))]
    return [head, *(f"  {line}" for line in lines), f"  → {fields['next']}"]


def how_long(since: object, now: datetime) -> str:
    """`for 3m`: seconds, minutes or hours, whichever says it shortest."""
    try:
        seconds = max(0, int((now - datetime.fromisoformat(str(since))).total_seconds()))
    except (ValueError, TypeError):
        return ""
    if seconds < 60:
        return f"for {seconds}s"
    return f"for {seconds // 60}m" if seconds < 3600 else f"for {seconds // 3600}h"
