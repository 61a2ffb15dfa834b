"""Encodes tasks, streams, the host's status and errors for the synapse dialect.

A host has three streams: the updates of a task, with a `snapshot` first, the states of the agent, and its whole status.
An error is `{"error": {"code", "message", "hint"}}` with an HTTP status.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from synapse.core.agent import EXITED, READY, STARTING, WAITING, WORKING
from synapse.core.driver import AgentStatus, HoldReason
from synapse.core.errors import SynapseError, UnsupportedOperation, describe
from synapse.core.events import Update
from synapse.core.message import Json
from synapse.core.overview import StyledScreen
from synapse.core.question import question_fields
from synapse.core.requests import ExternalAgent, ExternalAnswer, HostStatus, Replied, ToolsStatus
from synapse.core.store import TaskPage
from synapse.core.task import Task
from synapse.core.task_metadata import recorded_question
from synapse.core.usage import AgentUsage, usage_object
from synapse.dialects.dialect import WireAnswer, WireEvent, error_headers
from synapse.dialects.proto_json import instant, to_json
from synapse.dialects.task_json import Wire, event_fields, http_status, task_object

_LONGEST_TEXT: Final = 300
"""How much of a message is shown where only its beginning is needed."""

BUSY_WORDS: Final[Mapping[str, str]] = {
    STARTING: "BUSY",
    READY: "IDLE",
    WORKING: "BUSY",
    WAITING: "BUSY",
    EXITED: "BUSY",
}

_REVALIDATED: Final = ((b"cache-control", b"private, no-cache"),)


def encode_task(task: Task) -> bytes:
    return to_json(task_object(task))


def encode_task_answer(task: Task) -> bytes:
    return to_json({"task": task_object(task)})


def encode_answered(task: Task | None) -> bytes:
    """Returns the task of an answered question, or null: a question that an agent asks at its start has none."""
    return to_json({"task": None if task is None else task_object(task)})


def encode_left(task: Task) -> bytes:
    """Returns a task that its waiter left; with `left`, its answer comes, or came, as a message of its own."""
    return to_json({"task": task_object(task), "left": task.waiter_left})


def encode_page(page: TaskPage) -> bytes:
    return to_json({"tasks": [task_object(task) for task in page.tasks], "next_cursor": page.next_cursor})


def encode_queue(status: HostStatus) -> bytes:
    return to_json({"tasks": [task_object(task) for task in status.queue]})


def encode_replied(replied: Replied) -> bytes:
    return to_json({"replied": {"task_id": replied.task_id, "to": replied.to}})


def encode_signal_answer(answer: Json | None) -> bytes:
    """Returns the answer to a hook. An empty object tells it to go on."""
    return to_json(answer or {})


def encode_nothing(_result: None) -> bytes:
    return b"{}"


def encode_status(status: HostStatus) -> bytes:
    return to_json(status_object(status))


def encode_watched_status(status: HostStatus) -> WireEvent:
    """Returns the event of a stream for the whole status."""
    return WireEvent("", "status", encode_status(status))


def encode_screen(screen: StyledScreen | None) -> bytes:
    if screen is None:
        return b""
    return to_json(
        {
            "version": screen.version,
            "columns": screen.columns,
            "rows": screen.rows,
            "cursor": screen.cursor,
            "alternate": screen.alternate,
            "title": screen.title,
            "lines": [
                [[run.text, dict(run.style)] if run.style else [run.text] for run in line] for line in screen.lines
            ],
        }
    )


def answer_screen(screen: StyledScreen | None) -> WireAnswer:
    """Returns the screen with its version as the ETag; 304 if the reader has that version."""
    if screen is None:
        return WireAnswer(304, b"", _REVALIDATED)
    return WireAnswer(200, encode_screen(screen), (*_REVALIDATED, (b"etag", f'"{screen.version}"'.encode("ascii"))))


def encode_screen_error(error: SynapseError) -> WireAnswer:
    """Returns the answer for `error`. An agent without a terminal has no such document."""
    answer = encode_error(error)
    return answer._replace(status=404) if isinstance(error, UnsupportedOperation) else answer


def encode_external(agent: ExternalAgent) -> bytes:
    return to_json({"agent": _external(agent)})


def encode_externals(agents: tuple[ExternalAgent, ...]) -> bytes:
    return to_json({"agents": [_external(agent) for agent in agents]})


def encode_external_answer(answer: ExternalAnswer) -> bytes:
    return to_json(
        {
            "answer": {
                "alias": answer.alias,
                "task_id": answer.task_id,
                "state": answer.state,
                "text": answer.text,
                "raw": answer.raw,
            }
        }
    )


def encode_update(update: Update) -> WireEvent:
    """Returns the event of a stream for `update`."""
    task = task_object(update.task)
    if update.event is None:
        return WireEvent(str(update.seq), "snapshot", to_json({"task": task}))
    name, fields = event_fields(update.event)
    event: Wire = {"type": name, "at": instant(update.event.at), **fields}
    return WireEvent(str(update.seq), name, to_json({"event": event, "task": task}))


def encode_agent_status(status: AgentStatus) -> WireEvent:
    """Returns the event of a stream for the agent's status, with fields of `GET /status`."""
    return WireEvent("", "status", to_json(status_fields(status)))


def status_fields(status: AgentStatus) -> Wire:
    """Returns the fields of `GET /status` that are known of an agent whose host has ended, too."""
    return {"state": status.state, "why": status.why, "source": status.source, "since": instant(status.since)}


def encode_error(error: SynapseError) -> WireAnswer:
    """Returns the answer for `error`."""
    return WireAnswer(http_status(type(error)), to_json({"error": describe(error)}), error_headers(error))


def status_object(status: HostStatus) -> Wire:
    """Returns what `GET /status` answers."""
    entry, view, question = status.entry, status.view, _question(status)
    wire: Wire = {
        "status": BUSY_WORDS[view.state],
        "state": view.state,
        "why": view.why,
        "source": view.source,
        "since": instant(view.since),
        "gate": view.gate,
        "agent_id": entry.agent_id,
        "agent_type": entry.agent_type,
        "name": entry.name,
        "port": entry.port,
        "pid": entry.pid,
        "socket": entry.socket,
        "endpoint": entry.endpoint,
        "working_dir": entry.working_dir,
        "started_at": entry.started_at,
        "current_task": None if status.current is None else task_object(status.current),
        "queue_depth": len(status.queue),
        "held": _held(status),
        "attention": _attention(status, question),
        "question": question,
        "questions": [{**recorded_question(task), "task_id": task.id} for task in status.questions],
        "owes": [
            {"task_id": task.id, "to": task.sender_name, "text": task.message.text[:_LONGEST_TEXT]}
            for task in status.owes
        ],
        "store_fault": status.store_fault,
        "tools": _tools(status.tools),
        "usage": None if status.usage is None else _usage(status.usage),
        "conversation": _conversation(status),
        "sightings": [
            {"source": one.source, "state": one.state, "detail": one.detail, "at": instant(one.at)}
            for one in view.observations
        ],
    }
    if status.finished is not None:
        wire["finished"] = [task_object(task) for task in status.finished]
    return wire


def _usage(usage: AgentUsage) -> Wire:
    return {"today": usage_object(usage.today), "total": usage_object(usage.overall)}


def _conversation(status: HostStatus) -> Wire | None:
    """Returns whether the agent's CLI goes on with its last conversation, and why not if it was to."""
    told = status.conversation
    return None if told is None else {"resumed": told.resumed, "why": told.why}


def _held(status: HostStatus) -> Wire | None:
    """Returns why messages wait, since when, and whether the wait is overdue."""
    held = status.held
    if held is None:
        return None
    return {
        "reason": held.reason.value,
        "why": held.why,
        "hint": held.hint,
        "since": instant(held.since),
        "messages": held.messages,
        "task_id": held.task_id,
        "overdue": held.is_overdue,
    }


def _tools(tools: ToolsStatus) -> Wire:
    """Returns which way the agent's model has to other agents, and why it has no better one."""
    return {
        "way": tools.way.value,
        "mcp": tools.mcp.value,
        "client": tools.client,
        "protocol": tools.protocol,
        "since": None if tools.since is None else instant(tools.since),
        "why": tools.why,
    }


def _question(status: HostStatus) -> Wire | None:
    """Returns the agent's open question, its task (empty without one), and since when it is open."""
    task, asked = status.asking, status.view.question
    task_id = "" if task is None else task.id
    if task is not None and task.question:
        return {**recorded_question(task), "task_id": task_id}
    if asked is None:
        return None
    return {**question_fields(asked), "asked_at": instant(status.view.since), "task_id": task_id}


def _attention(status: HostStatus, asked: Wire | None) -> list[Wire]:
    """Returns what a person has to decide: the agent's question, tasks that need attention, messages held too long.

    The receipt shows how far a message got, and so what can be done.
    """
    items: list[Wire] = []
    if asked is not None:
        about = {"task_id": asked["task_id"], "text": asked["title"]}
        items.append({**about, "receipt": "", "question_id": asked["id"]})
    for task in status.questions:
        title, question_id = (recorded_question(task)[key] for key in ("title", "id"))
        items.append({"task_id": task.id, "text": title, "receipt": "", "question_id": question_id})
    for task in status.attention:
        receipt = task.receipt.step.value if task.receipt else ""
        items.append(
            {
                "task_id": task.id,
                "text": task.attention,
                "receipt": receipt,
                "since": instant(task.updated_at),
                "from": task.sender_name,
                "message": task.message.text[:_LONGEST_TEXT],
            }
        )
    held = status.held
    # Another item reports the question or the task in doubt that messages wait for.
    if held is not None and held.is_overdue and held.reason not in (HoldReason.DIALOG, HoldReason.IN_DOUBT):
        items.append({"task_id": held.task_id, "text": held.why, "receipt": "queued", "held": held.reason.value})
    return items


def _external(agent: ExternalAgent) -> Wire:
    return {
        "alias": agent.alias,
        "url": agent.url,
        "name": agent.name,
        "description": agent.description,
        "protocol": agent.protocol,
        "added_at": agent.added_at,
    }
