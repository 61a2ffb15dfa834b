"""`synapse approvals`: what all agents need a person for, and what to type about it.

`synapse approve`: allow what an agent asks for.

`synapse deny`: turn down what an agent asks for.

`synapse answer`: answer what an agent wants to know.

What `approve`, `deny` and `answer` share: finding what is asked, and telling the host the answer.
"""

from __future__ import annotations

import threading
from datetime import datetime
from typing import Any, Final

from synapse.cli.agents import what_decides
from synapse.cli.attention import (
    DIALOG,
    IN_DOUBT,
    WAITING_FOR_PERSON,
    how_long,
    messages_in,
    next_step,
    option_called,
    overdue_in,
    question_in,
    question_lines,
    question_of,
    target_of,
    title_of,
    way_out,
)
from synapse.cli.output import give_json, print_notice, print_result, warn_of_silent
from synapse.cli.parser import VerbParser
from synapse.cli.tables import painted, plain
from synapse.cli.task_lookup import find_task, is_task_id
from synapse.cli.views import FINISHED, reason_of, short_id, status_of
from synapse.client.fan_out import HostReply, ask_all
from synapse.client.hosts import ask, find_agent, open_registry
from synapse.config.process import SystemClock
from synapse.core.address import short_name
from synapse.core.agent import WAITING, AgentEntry
from synapse.core.errors import AgentNotFound, NothingAsked, TaskNotFound
from synapse.core.json_text import object_in, objects_in
from synapse.registry.files import FileRegistry

APPROVALS_EXAMPLES = """
synapse approvals
synapse approvals --json | jq -r '.[].task_id'
synapse approve 54241e7e                         allow it, this once
"""
HELD = "held"
"""The kind of messages that wait for longer than they should."""
UNKNOWN = "dialog"
"""The kind of what is open on a screen without being understood."""


def run_approvals(arguments: list[str]) -> int:
    """List what is asked, and what is held or in doubt, and return the exit code."""
    options = VerbParser("approvals", examples=APPROVALS_EXAMPLES).parse_args(arguments)
    asked = _once_read(ask_all(open_registry().entries(), "GET", "/status"))
    warn_of_silent(asked)
    items = [item for one in asked for item in needs_of(one)]
    if options.json:
        give_json(items)
        return 0
    if not items:
        print_notice("no agent waits for a person")
    now = SystemClock().now()
    for item in items:
        print_result("\n".join(_block(item, now)))
    return 0


def _once_read(asked: list[HostReply]) -> list[HostReply]:
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


def _is_just_open(one: HostReply, now: datetime) -> bool:
    if one.error is not None or question_in(one.body) or one.body.get("state") != WAITING:
        return False
    seconds = _seconds_since(one.body.get("since"), now)
    return seconds is not None and seconds < READ_SECONDS


def needs_of(one: HostReply) -> list[dict[str, Any]]:
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


def _question_fields(one: HostReply) -> dict[str, Any]:
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


def _running_task(one: HostReply) -> str:
    """The task in whose turn a dialog is open that is not understood."""
    task = object_in(one.body, "current_task")
    return str(task.get("id", "")) if task and status_of(task) not in FINISHED else ""


def _task_fields(one: HostReply, item: dict[str, Any]) -> dict[str, Any]:
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


def _held_fields(one: HostReply, held: dict[str, Any]) -> dict[str, Any]:
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


APPROVE_EXAMPLES = """
synapse approvals                 what all agents wait for
synapse approve 54241e7e          allow it, this once
synapse approve 54241e7e 2        choose an option by its number, or by its words
synapse approve codex             whatever codex asks now, also at its start
"""


def run_approve(arguments: list[str]) -> int:
    """Allow it and return the exit code."""
    parser = VerbParser("approve", examples=APPROVE_EXAMPLES)
    parser.add_argument("target", metavar="TASK|AGENT")
    parser.add_argument("option", nargs="?", metavar="OPTION", help="one of the options, instead of a plain yes")
    options = parser.parse_args(arguments)
    answer = {"verdict": "allow"} if options.option is None else {"option": options.option}
    return find_asking(options.target).answer("approved", answer, as_json=options.json)


DENY_EXAMPLES = """
synapse approvals                 what all agents wait for
synapse deny 54241e7e
synapse deny codex                whatever codex asks now
"""


def run_deny(arguments: list[str]) -> int:
    """Deny it and return the exit code."""
    parser = VerbParser("deny", examples=DENY_EXAMPLES)
    parser.add_argument("target", metavar="TASK|AGENT")
    options = parser.parse_args(arguments)
    return find_asking(options.target).answer("denied", {"verdict": "deny"}, as_json=options.json)


ANSWER_EXAMPLES = """
synapse approvals                            what all agents wait for
synapse answer 54241e7e 2                    an option, by its number
synapse answer 54241e7e "main, of course"    an option by its words, or words of your own
"""


def run_answer(arguments: list[str]) -> int:
    """Answer it and return the exit code."""
    parser = VerbParser("answer", examples=ANSWER_EXAMPLES)
    parser.add_argument("target", metavar="TASK|AGENT")
    parser.add_argument("text", nargs="+", metavar="TEXT")
    options = parser.parse_args(arguments)
    asking = find_asking(options.target)
    text = " ".join(options.text)
    option = option_called(asking.question, text)
    return asking.answer("answered", {"option": option} if option else {"text": text}, as_json=options.json)


TAKEN_SECONDS: Final = 30.0
"""How long a host may take: it answers once the program is seen to go on."""
READ_SECONDS: Final = 1.5
"""How long it may take until an open dialog is known to ask something."""
LOOK_SECONDS: Final = 0.1
WANTS_MESSAGE: Final = ("input_required", "auth_required")


class Asking:
    """One agent, and what it asks: in a task, or without one."""

    def __init__(self, entry: AgentEntry, question: dict[str, Any], task_id: str) -> None:
        self.entry = entry
        self.question = question
        self.task_id = task_id

    def answer(self, done: str, answer: dict[str, str], *, as_json: bool) -> int:
        """Tell the host the answer, say that it was `done`, and return the exit code.

        Raises QuestionGone, InvalidChoice or PersonRequired, by their codes.
        """
        path = f"/tasks/{self.task_id}/answer" if self.task_id else "/answer"
        # By its id: what somebody else has answered meanwhile must not be the next question's answer.
        body = {**answer, "question_id": str(self.question.get("id", ""))}
        task = object_in(ask(self.entry, "POST", path, body, timeout=TAKEN_SECONDS), "task")
        if as_json:
            give_json({"task": task or None, "question": self.question})
            return 0
        goes_on = f"  (task {short_id(task)} is {status_of(task)})" if task else ""
        print_notice(f"[{short_name(self.entry)}] {done}: {title_of(self.question)}{goes_on}")
        return 0


def find_asking(target: str) -> Asking:
    """Return what the agent or the task that `target` names asks.

    Raises:
        AgentNotFound, TaskNotFound, AmbiguousTarget, AmbiguousTask: it names none, or several.
        NothingAsked: it asks nothing now.
    """
    registry = open_registry()
    try:
        entry = find_agent(target, registry)
    except AgentNotFound as error:
        try:
            return _asking_task(target, registry)
        except TaskNotFound as missing:
            raise (missing if is_task_id(target) else error) from None
    status = _status_once_read(entry)
    question = question_in(status)
    if not question and status.get("state") == WAITING:
        why = plain(str(status.get("why") or "a dialog is open"))
        raise NothingAsked(
            f"{short_name(entry)} waits for a person, and cannot be answered from here: {why}",
            hint=f"answer it there: `synapse attach {short_name(entry)}`",
        )
    if not question:
        raise NothingAsked(f"{short_name(entry)} asks nothing now")
    return Asking(entry, question, str(question.get("task_id") or ""))


def _status_once_read(entry: AgentEntry) -> dict[str, Any]:
    """What its host says; a dialog that has only just opened may not have been read yet."""
    clock, never = SystemClock(), threading.Event()
    end = clock.monotonic() + READ_SECONDS
    while True:
        status = ask(entry, "GET", "/status")
        if question_in(status) or status.get("state") != WAITING or clock.monotonic() >= end:
            return status
        never.wait(LOOK_SECONDS)


def _asking_task(target: str, registry: FileRegistry) -> Asking:
    entry, task = find_task(target, registry)
    question = question_of(task)
    if not question and entry.pid and status_of(task) not in FINISHED:
        # What is asked may just be on its way into the task.
        seen = question_in(_status_once_read(entry))
        question = seen if seen.get("task_id") == task["id"] else {}
    if entry.pid and status_of(task) in WANTS_MESSAGE and not question and reason_of(task) != WAITING_FOR_PERSON:
        raise NothingAsked(
            f"task {short_id(task)} waits for a message, not for a decision",
            hint=f'synapse send {short_name(entry)} "…" --task {short_id(task)}',
        )
    if not entry.pid or not question:
        raise NothingAsked(f"task {short_id(task)} is {status_of(task)} and asks nothing now")
    return Asking(entry, question, str(task["id"]))
