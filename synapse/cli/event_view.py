"""One event of a task as a line for people."""

from __future__ import annotations

from typing import assert_never

from synapse.cli.render import plain
from synapse.core.envelope import typed_sender
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
from synapse.core.question import open_question
from synapse.core.task import Task
from synapse.dialects.synapse.projection import STATE_NAMES
from synapse.service.gateway_directory import left_name

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
