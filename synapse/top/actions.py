"""What a person does about an agent, as requests to its host. Blocking: the app calls it in threads.

Hosts decide who may: an agent that runs `synapse top` gets their refusals.
"""

from __future__ import annotations

import os
from typing import Any, Final

from synapse.client.hosts import ask, post_message, sender_fields
from synapse.client.overview import Need
from synapse.client.views import short_id, status_of
from synapse.core.agent import AgentEntry
from synapse.core.json_text import object_in
from synapse.registry.files import FileRegistry

ANSWER_SECONDS: Final = 30.0
"""An answer is confirmed when the program has taken it."""
USUAL_PRIORITY: Final = 3


def answer(entry: AgentEntry, need: Need, choice: dict[str, str]) -> str:
    """Answers a question: `choice` has a `verdict`, an `option` or a `text`. Returns what became of it, in words.

    Raises QuestionGone, InvalidChoice or PersonRequired, by their codes, or AgentNotResponding.
    """
    path = f"/tasks/{need['task_id']}/answer" if need["task_id"] else "/answer"
    # With the question's id: if it was answered meanwhile, this answer must not go to the next question.
    body = {**choice, "question_id": need["question_id"]}
    return _said(object_in(ask(entry, "POST", path, body, timeout=ANSWER_SECONDS), "task"))


def resolve(entry: AgentEntry, need: Need, verdict: str) -> str:
    """Decides about a message in doubt: `delivered`, `retry` or `fail`. Raises SynapseError."""
    # With the time of the doubt: if the message was typed again meanwhile, this decision is not about that try.
    body = {"verdict": verdict, "asked_at": need["asked_at"]}
    return _said(object_in(ask(entry, "POST", f"/tasks/{need['task_id']}/resolve", body), "task"))


def cancel(entry: AgentEntry, task_id: str) -> str:
    """Cancels a task. Raises SynapseError."""
    return _said(object_in(ask(entry, "POST", f"/tasks/{task_id}/cancel", {}), "task"))


def send(entry: AgentEntry, text: str, priority: int, registry: FileRegistry) -> str:
    """Sends a message. Returns what became of it, in words. Raises SynapseError."""
    message = {"role": "user", "parts": [{"type": "text", "text": text}], "message_id": os.urandom(16).hex()}
    body: dict[str, Any] = {"message": message, "metadata": {"sender": sender_fields(registry)}}
    wanted = "" if priority == USUAL_PRIORITY else str(priority)
    task = post_message(entry, body, registry, warn=lambda _warning: None, priority=wanted)
    return f"sent as task {short_id(task)}"


def _said(task: dict[str, Any]) -> str:
    return f"task {short_id(task)} is {status_of(task).replace('_', ' ')}" if task else ""
