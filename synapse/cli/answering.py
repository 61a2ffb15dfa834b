"""What `approve`, `deny` and `answer` share: finding what is asked, and telling the host the answer."""

from __future__ import annotations

import threading
from typing import Any, Final

from synapse.cli.hosts import ask, find_agent, open_registry
from synapse.cli.question_view import WAITING_FOR_PERSON, question_in, question_of, title_of
from synapse.cli.render import plain
from synapse.cli.speech import give_json, say
from synapse.cli.survey import find_task, is_task_id
from synapse.cli.task_view import FINISHED, reason_of, short_id, status_of
from synapse.core.address import short_name
from synapse.core.agent import WAITING, AgentEntry
from synapse.core.errors import AgentNotFound, TaskNotFound
from synapse.core.json_text import object_in
from synapse.core.question_errors import NothingAsked
from synapse.registries.files import FileRegistry
from synapse.runtime.system_clock import SystemClock

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
        say(f"[{short_name(self.entry)}] {done}: {title_of(self.question)}{goes_on}")
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
