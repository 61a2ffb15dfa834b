"""Encodes rows, tasks, streams, files and errors for the dashboard.

A task is written as a host writes it, but its files are not in it: each has a `number`, under which its bytes are
served, and its `size`. A row of a task (`task_row`) has what a list or a picture shows of it, in bounded length.

All texts are as agents and senders wrote them. The page must show them as text, and never as markup.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping
from typing import Any, Final, cast
from urllib.parse import quote

from synapse.core.address import PERSON, SYSTEM
from synapse.core.errors import MachineAway, NotFound, QuestionGone, SynapseError, UnsupportedOperation, describe
from synapse.core.events import ArtifactAdded, MessageAdded, MetadataChanged, Recorded, TaskEvent, TaskOpened, Update
from synapse.core.message import FilePart, Json, Role, media_type_of
from synapse.core.overview import (
    AgentOverview,
    EventsMissed,
    Overview,
    OverviewUpdate,
    RowChanged,
    RowRemoved,
    StreamAlive,
    Timeline,
)
from synapse.core.store import TaskPage
from synapse.core.task import Task
from synapse.dialects.dialect import NO_STORE, WireAnswer, WireEvent, error_headers
from synapse.dialects.proto_json import instant, to_json
from synapse.dialects.task_json import STATE_NAMES, EncodeFile, Wire, event_fields, http_status, task_object

AgentName = Callable[[Task], str]
"""Returns the name that the gateway has for a task's agent."""

LONGEST_PREVIEW: Final = 300
LONGEST_TEXT: Final = 2000
"""How many characters of any other text a row, an event or a timeline shows."""
SHOWN_IMAGES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""The media types that a browser shows in place. All others are downloaded: SVG, for one, may hold scripts."""
# Bytes of an agent are served from the page's own origin, so nothing in them may run or be taken for something else.
_FILE_HEADERS: Final = (
    *NO_STORE,
    (b"content-security-policy", b"default-src 'none'; sandbox"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-content-type-options", b"nosniff"),
)
_REVALIDATED: Final = ((b"cache-control", b"private, no-cache"),)
_LONGEST_FILE_NAME: Final = 120


def encode_overview(overview: Overview) -> bytes:
    return to_json({**_overview(overview), "at": instant(overview.at)})


def encode_agent(agent: AgentOverview) -> bytes:
    return to_json({"agent": agent.row, "status": agent.status})


def encode_task_answer(task: Task | None) -> bytes:
    """Returns the task of a message or a decision; null for the answer to a question that has no task."""
    return to_json({"task": None if task is None else _task(task)})


def encode_task(task: Task, *, agent_name: AgentName) -> bytes:
    return to_json({"task": _task(task), "row": task_row(task, agent_name)})


def encode_page(page: TaskPage, *, agent_name: AgentName) -> bytes:
    rows = [task_row(task, agent_name) for task in page.tasks]
    total = page.total if page.is_counted else None
    return to_json({"tasks": rows, "next_cursor": page.next_cursor, "total": total})


def encode_timeline(timeline: Timeline) -> bytes:
    numbered = _numbered(timeline.task)
    events = [_timeline_event(recorded, numbered) for recorded in timeline.events]
    return to_json({"events": events, "next_after": timeline.next_after})


def encode_screen(screen: Json | None) -> WireAnswer:
    """Returns a screen with its version as the ETag; 304 if the page has that version."""
    if screen is None:
        return WireAnswer(304, b"", _REVALIDATED)
    version = f'"{screen.get("version", "")}"'.encode("ascii", "replace")
    return WireAnswer(200, to_json(screen), (*_REVALIDATED, (b"etag", version)))


def encode_screen_error(error: SynapseError) -> WireAnswer:
    """Returns the answer for `error`. An agent without a terminal has no such document."""
    answer = encode_error(error)
    return answer._replace(status=404) if isinstance(error, UnsupportedOperation) else answer


def encode_json(fields: Json | None) -> bytes:
    return to_json(fields)


def encode_nothing(_nothing: None) -> bytes:
    return b"{}"


def encode_file(task: Task, *, number: int) -> WireAnswer:
    """Returns the bytes of a file of the task: an image to be shown, anything else to be downloaded.

    Raises NotFound, also for a file whose bytes are at an address elsewhere.
    """
    files = _files(task)
    content = files[number - 1].content if 0 < number <= len(files) else None
    if content is None:
        raise NotFound(f"task {task.short_id} has no file {number} here", hint="the task lists its files")
    part = files[number - 1]
    media_type = media_type_of(part)
    is_shown = media_type in SHOWN_IMAGES
    place = "inline" if is_shown else "attachment"
    disposition = (b"content-disposition", f"{place}; {_file_name(part.name or f'file-{number}')}".encode("ascii"))
    kind = media_type.encode("ascii") if is_shown else b"application/octet-stream"
    return WireAnswer(200, content, (*_FILE_HEADERS, disposition), media_type=kind)


def encode_task_update(update: Update) -> WireEvent:
    """Returns the event of a task's stream for `update`."""
    numbered = _numbered(update.task)
    task = task_object(update.task, numbered)
    if update.event is None:
        return WireEvent(str(update.seq), "snapshot", to_json({"task": task}))
    name, fields = event_fields(update.event, numbered)
    event: Wire = {"type": name, "at": instant(update.event.at), **fields}
    return WireEvent(str(update.seq), name, to_json({"event": event, "task": task}))


def encode_overview_update(update: OverviewUpdate, *, agent_name: AgentName) -> WireEvent | None:  # noqa: PLR0911 - one case per item
    """Returns the event of the overview's stream. A reader resumes after the last id that it got."""
    match update:
        case Overview():
            return WireEvent(str(update.cursor), "overview", to_json(_overview(update)))
        case RowChanged():
            return WireEvent("", "agent", to_json({"agent": update.row}))
        case RowRemoved():
            return WireEvent("", "gone", to_json({"id": update.agent}))
        case EventsMissed():
            return WireEvent(str(update.cursor), "resync", b"{}")
        case StreamAlive():
            return WireEvent(str(update.cursor), "ping", to_json({"at": instant(update.at)}))
        case Update():
            if update.event is None:
                return None
            event = {**_brief(update.event), "at": instant(update.event.at)}
            wire = {"seq": update.seq, "event": event, "task": task_row(update.task, agent_name)}
            return WireEvent(str(update.cursor), "task", to_json(wire))


def encode_error(error: SynapseError) -> WireAnswer:
    """Returns the answer for `error`; `answered_by` says who was first, if that is why."""
    fields: Wire = {**describe(error)}
    if isinstance(error, MachineAway):
        # The dashboard has no option that keeps a message, and a person at a browser sets no header.
        fields["hint"] = MachineAway.later_hint
    if isinstance(error, QuestionGone):
        fields["answered_by"] = error.answered_by
    headers = (*error_headers(error), *NO_STORE)
    return WireAnswer(http_status(type(error)), to_json({"error": fields}), headers)


def task_row(task: Task, agent_name: AgentName) -> Wire:
    """Returns what a list shows of a task."""
    return {
        "id": task.id,
        "agent": agent_name(task),
        "agent_id": task.agent_id,
        "from": task.sender_name,
        "from_agent": _sending_agent(task),
        "text": task.message.text[:LONGEST_PREVIEW],
        "answer": _answer(task)[:LONGEST_PREVIEW],
        "state": STATE_NAMES[task.state],
        "receipt": task.receipt.step.value if task.receipt is not None else "",
        "receipts": [{"step": one.step.value, "at": instant(one.at), "source": one.source} for one in task.receipts],
        "priority": task.priority,
        "created_at": instant(task.created_at),
        "updated_at": instant(task.updated_at),
        "reply_expected": task.reply_to is not None,
        "waits_for": task.waits_for.agent_id if task.waits_for is not None and not task.queued else "",
        "parent_id": task.parent_id,
        "context_id": task.context_id,
        "asks": task.question is not None,
        "reason": task.reason,
        "note": task.note[:LONGEST_TEXT],
        "attention": task.attention[:LONGEST_TEXT],
        "files": len(_files(task)),
    }


def _overview(overview: Overview) -> Wire:
    return {"agents": overview.rows, "cursor": overview.cursor}


def _task(task: Task) -> Wire:
    return task_object(task, _numbered(task))


def _sending_agent(task: Task) -> str:
    """Returns the id of the agent that provably sent the task, or an empty string."""
    sender = task.sender.sender_id
    return sender if task.sender_verified and sender not in (PERSON, SYSTEM) else ""


def _answer(task: Task) -> str:
    """Returns the text of the artifacts, else of the agent's last message, else an empty string."""
    texts = [text for artifact in task.artifacts if (text := artifact.text)]
    if texts:
        return "\n".join(texts)
    spoken = [message.text for message in task.history if message.role is Role.AGENT]
    return spoken[-1] if spoken else ""


def _files(task: Task) -> list[FilePart]:
    """Returns the files of the task in the order of their numbers: those of its messages, then of its artifacts."""
    parts = [part for message in task.history for part in message.parts]
    parts += [part for artifact in task.artifacts for part in artifact.parts]
    return [part for part in parts if isinstance(part, FilePart)]


def _numbered(task: Task) -> EncodeFile:
    """Returns an encoder for the files of this task: a number and a size in place of the bytes."""
    numbers = {id(part): number for number, part in enumerate(_files(task), 1)}

    def encode(part: FilePart) -> Wire:
        wire: Wire = {"number": numbers[id(part)]} if id(part) in numbers else {}
        return {**wire, "uri": part.url} if part.content is None else {**wire, "size": len(part.content)}

    return encode


def _timeline_event(recorded: Recorded, numbered: EncodeFile) -> Wire:
    name, fields = event_fields(recorded.event, numbered)
    cut = cast("Wire", _cut(fields))
    return {"seq": recorded.seq, "at": instant(recorded.event.at), "type": name, **cut}


def _brief(event: TaskEvent) -> Wire:
    """Returns the event without what is in the row of its task, or may be long."""
    name, fields = event_fields(event, lambda _: {})
    match event:
        case TaskOpened():
            fields = {}
        case MessageAdded():
            fields = {"role": event.message.role.value}
        case ArtifactAdded():
            fields = {"artifact_id": event.artifact.artifact_id, "append": event.append, "last_chunk": event.last_chunk}
        case MetadataChanged():
            fields = {"keys": sorted(event.metadata)}
        case _:
            pass
    return {"type": name, **cast("Wire", _cut(fields))}


def _cut(value: object) -> object:
    """Returns the JSON with every text cut to LONGEST_TEXT characters."""
    if isinstance(value, str):
        return value if len(value) <= LONGEST_TEXT else f"{value[: LONGEST_TEXT - 1]}…"
    if isinstance(value, Mapping):
        return {key: _cut(inner) for key, inner in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_cut(inner) for inner in cast("list[object]", value)]
    return value


def _file_name(name: str) -> str:
    """Returns the name as a header's parameters: in ASCII, and whole for browsers (RFC 6266, RFC 8187).

    Without folders, and without characters that control a terminal or the reading direction.
    """
    last = name.replace("\\", "/").rpartition("/")[2]
    kept = "".join(char for char in last if not unicodedata.category(char).startswith("C")).strip(" .")
    kept = kept[-_LONGEST_FILE_NAME:] or "file"
    plain = "".join(char if char.isascii() and (char.isalnum() or char in "._- ") else "_" for char in kept)
    return f"filename=\"{plain}\"; filename*=UTF-8''{quote(kept, safe='')}"
