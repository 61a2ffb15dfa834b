"""One event of a task as a line for people."""

from __future__ import annotations

from typing import assert_never

from synapse.cli.render import plain
from synapse.core.envelope import typed_sender
from synapse.core.errors import WaitCycle
from synapse.core.events import (
    ArtifactAdded,
    AttentionChanged,
    MessageAdded,
    MetadataChanged,
    ReceiptChanged,
    StateChanged,
    TaskEvent,
    TaskHidden,
    TaskOpened,
    Update,
)
from synapse.core.message import Message, TextPart
from synapse.core.question import open_question
from synapse.core.task import Task, TaskState
from synapse.dialects.synapse.projection import STATE_NAMES
from synapse.service.gateway_directory import left_name
from synapse.service.outcomes import AGENT_EXITED, EXPIRED, INTERRUPTED, PARTIAL

_AGENT_COLUMNS = 13
_WORD_COLUMNS = 14


def line_of(update: Update) -> str:
    """When, whose, which task, what; empty for what concerns no person."""
    told = _told(update.event, update.task)
    if told is None:
        return ""
    word, detail = told
    at = update.event.at if update.event is not None else update.task.updated_at
    task = update.task
    agent = left_name(task).removeprefix("synapse-")
    begin = f"{at.astimezone():%H:%M:%S}  {agent:{_AGENT_COLUMNS}}  {task.short_id}  {word:{_WORD_COLUMNS}}"
    return f"{begin}  {plain(detail)}".rstrip()


def logged(event: TaskEvent) -> tuple[str, str] | None:  # noqa: PLR0911 - one case per event
    """Return a word and a detail for a log, which never has the text of a message; None for what a log leaves out.

    A receipt's last step is left out, because the change of state that comes with it says why.
    """
    match event:
        case TaskOpened():
            return "message", f"from {typed_sender(event.metadata)}, {_size(event.message)}, priority {event.priority}"
        case MessageAdded():
            return "message", f"from the {event.message.role.value}, {_size(event.message)}"
        case StateChanged():
            return _logged_state(event)
        case ArtifactAdded() if event.last_chunk and not event.artifact.metadata.get(PARTIAL):
            source = event.artifact.metadata.get("source", "")
            size = f"{len(event.artifact.text)} characters"
            return "answer", f"{size}, source: {source}" if source else size
        case ReceiptChanged() if not event.step.is_final:
            return event.step.value, f"{event.source}: {event.evidence}" if event.evidence else event.source
        case AttentionChanged() if event.attention:
            return "needs a person", event.attention
        case TaskHidden():
            return "deleted", ""
        case _:
            return None


def _logged_state(event: StateChanged) -> tuple[str, str] | None:
    if event.state in (TaskState.SUBMITTED, TaskState.WORKING):
        return None
    if event.state.is_interrupted:
        return STATE_NAMES[event.state], "synapse approvals shows the question"
    is_own_note = event.reason in _OWN_REASONS
    return STATE_NAMES[event.state], ": ".join(filter(None, (event.reason, event.note if is_own_note else "")))


_OWN_REASONS = frozenset({AGENT_EXITED, EXPIRED, INTERRUPTED, WaitCycle.code})
"""Reasons whose note is a sentence of ours; with others, it may be what the agent or its script said."""


def _size(message: Message) -> str:
    files = sum(not isinstance(part, TextPart) for part in message.parts)
    return f"{len(message.text)} characters" + (f" and {files} files or data" if files else "")


def _told(event: TaskEvent | None, task: Task) -> tuple[str, str] | None:  # noqa: PLR0911 - one case per event
    match event:
        case None:
            return STATE_NAMES[task.state], task.note or task.message.text
        case TaskOpened():
            return "opened", f"{typed_sender(task.metadata)}: {event.message.text}"
        case StateChanged():
            return STATE_NAMES[event.state], event.note or event.reason
        case MessageAdded():
            return "message", f"{event.message.role.value}: {event.message.text}"
        case ArtifactAdded():
            is_whole = not event.append and event.last_chunk
            return "answer" if is_whole else "says", event.artifact.text or event.artifact.name
        case ReceiptChanged():
            return event.step.value, f"{event.source}: {event.evidence}" if event.evidence else event.source
        case _:
            return _told_rest(event, task)


def _told_rest(event: MetadataChanged | AttentionChanged | TaskHidden, task: Task) -> tuple[str, str] | None:
    match event:
        case MetadataChanged():
            asked = open_question(task)
            return ("asks", asked.title) if asked is not None and "question" in event.metadata else None
        case AttentionChanged():
            return ("needs a person", event.attention) if event.attention else None
        case TaskHidden():
            return "deleted", ""
        case _:
            assert_never(event)
