"""What `approve`, `deny` and `answer` share: finding what is asked, and telling the host the answer."""

from __future__ import annotations

from typing import Any, Final

from synapse.cli.hosts import ask, find_agent, open_registry
from synapse.cli.question_view import question_in, question_of, title_of
from synapse.cli.speech import give_json, say
from synapse.cli.survey import find_task
from synapse.cli.task_view import short_id, status_of
from synapse.core.address import short_name
from synapse.core.agent import AgentEntry
from synapse.core.errors import AgentNotFound, TaskNotFound
from synapse.core.json_text import object_in
from synapse.core.question_errors import NothingAsked
from synapse.registries.files import FileRegistry

TAKEN_SECONDS: Final = 30.0
"""How long a host may take: it answers once the program is seen to go on."""


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
        AgentNotFound, AmbiguousTarget, AmbiguousTask: it names none, or several.
        NothingAsked: it asks nothing now.
    """
    registry = open_registry()
    try:
        entry = find_agent(target, registry)
    except AgentNotFound as error:
        try:
            return _asking_task(target, registry)
        except TaskNotFound:
            raise error from None
    question = question_in(ask(entry, "GET", "/status"))
    if not question:
        raise NothingAsked(f"{short_name(entry)} asks nothing now")
    return Asking(entry, question, str(question.get("task_id") or ""))


def _asking_task(target: str, registry: FileRegistry) -> Asking:
    entry, task = find_task(target, registry)
    question = question_of(task)
    if not entry.pid or not question:
        raise NothingAsked(f"task {short_id(task)} is {status_of(task)} and asks nothing now")
    return Asking(entry, question, str(task["id"]))
