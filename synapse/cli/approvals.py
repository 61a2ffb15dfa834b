"""`synapse approvals`: what all agents need a person for, and what to type about it."""

from __future__ import annotations

import threading
from datetime import datetime
from typing import Any

from synapse.cli.answering import LOOK_SECONDS, READ_SECONDS
from synapse.cli.hold_view import DIALOG, IN_DOUBT, how_long, messages_in, overdue_in, way_out
from synapse.cli.hosts import open_registry
from synapse.cli.list_agents import what_decides
from synapse.cli.question_view import next_step, question_in, question_lines, target_of
from synapse.cli.render import painted, plain
from synapse.cli.speech import give, give_json, say
from synapse.cli.survey import Asked, ask_all, warn_of_silent
from synapse.cli.task_view import FINISHED, status_of
from synapse.cli.verb_parser import VerbParser
from synapse.core.address import short_name
from synapse.core.agent import WAITING
from synapse.core.json_text import object_in, objects_in
from synapse.runtime.system_clock import SystemClock

EXAMPLES = """
synapse approvals
synapse approvals --json | jq -r '.[].task_id'
synapse approve 54241e7e                         allow it, this once
"""
HELD = "held"
"""The kind of messages that wait for longer than they should."""
UNKNOWN = "dialog"
"""The kind of what is open on a screen without being understood."""


def run(arguments: list[str]) -> int:
    """List what is asked, and what is held or in doubt, and return the exit code."""
    options = VerbParser("approvals", examples=EXAMPLES).parse_args(arguments)
    asked = _once_read(ask_all(open_registry().entries(), "GET", "/status"))
    warn_of_silent(asked)
    items = [item for one in asked for item in needs_of(one)]
    if options.json:
        give_json(items)
        return 0
    if not items:
        say("no agent waits for a person")
    now = SystemClock().now()
    for item in items:
        give("\n".join(_block(item, now)))
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


def needs_of(one: Asked) -> list[dict[str, Any]]:
    """All that one agent needs a person for, for a machine: its question, messages in doubt, messages that are held."""
    asks = question_in(one.body) or one.body.get("state") == WAITING
    items = [_question_fields(one)] if asks else []
    items += [_task_fields(one, item) for item in objects_in(one.body, "attention") if _is_of_a_task(item)]
    held = overdue_in(one.body)
    if held and held.get("reason") != IN_DOUBT and not (asks and held.get("reason") == DIALOG):
        items.append(_held_fields(one, held))
    return items


def _is_of_a_task(item: dict[str, Any]) -> bool:
    """Whether it is about one task: a question, and messages that are held, are told for themselves."""
    return not item.get("question_id") and not item.get("held")


def _question_fields(one: Asked) -> dict[str, Any]:
    question = question_in(one.body)
    name = short_name(one.entry)
    return {
        "agent_id": one.entry.agent_id,
        "name": name,
        "task_id": (question.get("task_id") if question else _running_task(one)) or None,
        "kind": question.get("kind", UNKNOWN),
        "title": question.get("title") or one.body.get("why", ""),
        "asked_at": question.get("asked_at") or one.body.get("since"),
        "next": next_step(question, target_of(question, name), name),
        "question": question or None,
    }


def _running_task(one: Asked) -> str:
    """The task in whose turn a dialog is open that is not understood."""
    task = object_in(one.body, "current_task")
    return str(task.get("id", "")) if task and status_of(task) not in FINISHED else ""


def _task_fields(one: Asked, item: dict[str, Any]) -> dict[str, Any]:
    name, receipt = short_name(one.entry), str(item.get("receipt", "typed"))
    task_id = str(item.get("task_id", ""))
    return {
        "agent_id": one.entry.agent_id,
        "name": name,
        "task_id": task_id or None,
        "kind": IN_DOUBT if receipt == "typed" else HELD,
        "title": item.get("text", ""),
        "asked_at": None,
        "next": what_decides(task_id[:8], receipt) or f"synapse status {task_id[:8]}",
        "question": None,
    }


def _held_fields(one: Asked, held: dict[str, Any]) -> dict[str, Any]:
    name = short_name(one.entry)
    return {
        "agent_id": one.entry.agent_id,
        "name": name,
        "task_id": held.get("task_id") or None,
        "kind": HELD,
        "title": f"{messages_in(held)} held: {held.get('why', '')}",
        "asked_at": held.get("since"),
        "next": way_out(held, name),
        "question": None,
    }


def _block(item: dict[str, Any], now: datetime) -> list[str]:
    question: dict[str, Any] = item["question"] or {}
    task = f"task {plain(str(item['task_id'])[:8])}" if item["task_id"] else "no task"
    lasting = how_long(item["asked_at"], now)
    head = f"{painted(item['name'], WAITING)}  {task}  {plain(str(item['kind']))}  {lasting}".rstrip()
    lines = question_lines(question) if question else [plain(str(item["title"]))]
    return [head, *(f"  {line}" for line in lines), f"  → {plain(str(item['next']))}"]


def _seconds_since(moment: object, now: datetime) -> float | None:
    """How long ago that was; None if it is no time."""
    try:
        return (now - datetime.fromisoformat(str(moment))).total_seconds()
    except (ValueError, TypeError):
        return None
