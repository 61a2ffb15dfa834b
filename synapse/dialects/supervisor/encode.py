"""Encodes tasks, updates, notifications and agent cards for the supervisor dialect.

`messages` holds the agent's words: its questions, its answer, and at the end the reason if there is no answer.
`history` holds both sides' messages up to the user's last one. `artifacts` holds the agent's results beside its answer.

A stream has an event `taskUpdate` with the whole task for each update, and `done` at the end. A webhook gets the data
of `taskUpdate` alone.

Task ids are unique across agents: answers have `agentId:taskId`, and requests may have that or the plain id.

Messages have no time of their own in the core, so the receipts of a task give the times of its turns:

    history    user      agent      user      agent      (answer)
    receipts   queued … answered    queued … answered
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, assert_never

from synapse.core.agent import EXITED
from synapse.core.errors import InvalidField
from synapse.core.events import ArtifactAdded, MessageAdded, StateChanged, TaskOpened, Update
from synapse.core.message import Artifact, DataPart, FilePart, Message, Part, Role, TextPart
from synapse.core.push import PushConfig
from synapse.core.requests import ListedAgent
from synapse.core.store import TaskPage
from synapse.core.task import ReceiptStep, Task, TaskState
from synapse.dialects.dialect import WireEvent
from synapse.dialects.proto_json import instant, parse_instant, to_json

Wire = dict[str, Any]

EXPIRED: Final = "expired"
"""The reason of a task that passed its deadline, and its state in this dialect."""
FAILED: Final = "failed"

STATE_NAMES: Final[Mapping[TaskState, str]] = {
    TaskState.SUBMITTED: "created",
    TaskState.WORKING: "running",
    TaskState.INPUT_REQUIRED: "running",
    TaskState.AUTH_REQUIRED: "running",
    TaskState.COMPLETED: "succeeded",
    TaskState.FAILED: FAILED,
    TaskState.CANCELED: "cancelled",
    TaskState.REJECTED: FAILED,
}
STATE_WORDS: Final = ("created", "running", "succeeded", FAILED, "cancelled", EXPIRED)

ROLE_NAMES: Final[Mapping[Role, str]] = {Role.USER: "user", Role.AGENT: "assistant"}
ROLES: Final[Mapping[str, Role]] = {"user": Role.USER, "assistant": Role.AGENT, "system": Role.USER}
SYSTEM: Final = "system"
ROLE: Final = "role"
"""The key of a message's metadata that keeps a role which the core does not have."""
TIMESTAMP: Final = "timestamp"
"""The key of a message's metadata that keeps the time from its sender."""

OUTPUT_MODES: Final = ("text", "json")

_ANSWER: Final = frozenset({"", "answer"})
"""The names of an artifact that is only the agent's answer."""


def encode_task(task: Task, *, agent: str, history_length: int | None = None) -> bytes:
    return to_json(task_object(task, agent=agent, history_length=history_length))


def encode_page(page: TaskPage, *, agent: str, page_size: int, history_length: int, artifacts: bool) -> bytes:
    tasks = [task_object(task, agent=agent, history_length=history_length, artifacts=artifacts) for task in page.tasks]
    return to_json({"tasks": tasks, "totalSize": page.total, "pageSize": page_size, "nextPageToken": page.next_cursor})


def encode_update(
    update: Update, *, agent: str, history_length: int | None = None, ends_when_asked: bool = False
) -> WireEvent | None:
    """Returns the event for `update`, or None for updates that change nothing visible: receipts, attention, metadata.

    With `ends_when_asked` the stream ends also when the agent waits for input.
    """
    if not isinstance(update.event, TaskOpened | StateChanged | MessageAdded | ArtifactAdded | None):
        return None
    state = update.task.state
    final = state.is_terminal or (ends_when_asked and state.is_interrupted)
    task = task_object(update.task, agent=agent, history_length=history_length)
    done = WireEvent(f"event-{update.seq + 1}", "done", b"{}") if final else None
    return WireEvent(f"event-{update.seq}", "taskUpdate", to_json({**task, "final": final}), done)


def encode_notification(update: Update, agent: str) -> bytes | None:
    """Returns the body of the notification for `update`, or None when there is nothing to send."""
    event = encode_update(update, agent=agent)
    return None if event is None else event.data


def encode_push_config(config: PushConfig, *, task_id: str) -> bytes:
    return to_json(push_config_object(config, task_id))


def encode_push_configs(configs: Iterable[PushConfig], *, task_id: str) -> bytes:
    return to_json([push_config_object(config, task_id) for config in configs])


def encode_nothing(_nothing: object) -> bytes:
    """Returns an empty body, as the document requires: "Status code: 200, no response body"."""
    return b""


def task_object(task: Task, *, agent: str, history_length: int | None = None, artifacts: bool = True) -> Wire:
    """Returns a task. `history_length` None means all messages, 0 none."""
    history = _history(task)
    if history_length is not None:
        history = history[-history_length:] if history_length else []
    return {
        "id": global_id(task.id, agent),
        "status": state_name(task),
        "messages": list(_agent_messages(task)),
        "artifacts": [wire for artifact in task.artifacts for wire in _artifacts(artifact)] if artifacts else [],
        "history": history,
        "createdAt": instant(task.created_at),
        "modifiedAt": instant(task.updated_at),
    }


def global_id(task_id: str, agent: str) -> str:
    return f"{agent}:{task_id}"


def plain_id(given: str, agent: str) -> str:
    """Returns the agent's own id of the task. The id of another agent's task stays whole, so that it is not found."""
    return given.removeprefix(f"{agent}:")


def state_name(task: Task) -> str:
    """Returns the state, which depends on the task's reason too."""
    if task.state is TaskState.FAILED and task.reason == EXPIRED:
        return EXPIRED
    return STATE_NAMES[task.state]


def push_config_object(config: PushConfig, task_id: str) -> Wire:
    wire: Wire = {"id": config.id, "url": config.url}
    if config.token:
        wire["token"] = config.token
    if config.scheme:
        wire["authentication"] = {"schemes": [config.scheme], "credentials": config.credentials}
    return {"taskId": task_id, "pushNotificationConfig": wire}


@dataclass(frozen=True, slots=True, kw_only=True)
class CardFacts:
    """The values on a card. `url` is the agent's address at the gateway, including `/v1`."""

    agent: ListedAgent
    url: str
    extended: bool = True
    """Authenticated callers get a card with more in it."""


def agent_card(facts: CardFacts) -> Wire:
    """Returns the supervisor's fields of a card. Standard clients ignore these fields of a common card."""
    agent = facts.agent
    return {
        "id": agent.id,
        "name": agent.name,
        "description": agent.description,
        "version": agent.version,
        "protocols": {"a2a": {"supported": True, "version": "1.0"}},
        "capabilities": {
            "pushNotifications": "pushNotifications" in agent.capabilities,
            "streaming": "streaming" in agent.capabilities,
        },
        "endpoints": {"a2a": facts.url},
        "supportedOutputModes": list(OUTPUT_MODES),
        "supportsAuthenticatedExtendedCard": facts.extended,
        "metadata": {"agentType": agent.agent_type, "wrappedAgents": [agent.agent_type]},
    }


def agent_list(agents: Iterable[ListedAgent]) -> Wire:
    """Returns the directory, `/agents/list.json`."""
    return {
        "agents": [
            {
                "id": agent.id,
                "name": agent.name,
                "description": agent.description,
                "cardUrl": f"/agents/{agent.id}/v1/card",
                "endpoint": f"/agents/{agent.id}/v1",
                "status": "active" if agent.away_since is None and agent.state != EXITED else "inactive",
            }
            for agent in agents
        ]
    }


def _agent_messages(task: Task) -> Iterator[Wire]:
    for message, at in zip(task.history, _message_times(task), strict=True):
        if message.role is Role.AGENT:
            yield _message(_content(message.parts), _role_name(message), message.message_id, _timestamp(message, at))
    ends = [receipt.at for receipt in task.receipts if receipt.step is ReceiptStep.ANSWERED]
    answered = instant(ends[-1] if ends and task.state.is_terminal else task.updated_at)
    for artifact in task.artifacts:
        if _is_text(artifact):
            yield _message(artifact.text, ROLE_NAMES[Role.AGENT], artifact.artifact_id, answered)
    ended_badly = task.state.is_terminal and task.state is not TaskState.COMPLETED
    # The agent waits on something that it has not put into a message: a dialog of its program.
    waits_silently = task.state.is_interrupted and task.history[-1].role is not Role.AGENT
    if task.note and (ended_badly or waits_silently):
        yield _message(task.note, SYSTEM, f"{task.id}.{task.state.value}", instant(task.updated_at))


def _message(content: str, role: str, message_id: str, at: str) -> Wire:
    return {"content": content, "role": role, "id": message_id, "timestamp": at}


def _history(task: Task) -> list[Wire]:
    """Returns the messages up to the user's last one; `messages` has what the agent said after it."""
    last = max((index for index, message in enumerate(task.history) if message.role is Role.USER), default=-1)
    return [
        {
            "id": message.message_id,
            "timestamp": _timestamp(message, at),
            "message": {"content": _content(message.parts), "role": _role_name(message)},
        }
        for message, at in list(zip(task.history, _message_times(task), strict=True))[: last + 1]
    ]


def _timestamp(message: Message, at: datetime) -> str:
    """Returns the time from the sender, else the time when the message arrived."""
    given = message.metadata.get(TIMESTAMP)
    if isinstance(given, str):
        # Other dialects do not check the sender's metadata.
        with suppress(InvalidField):
            return instant(parse_instant(TIMESTAMP, given))
    return instant(at)


def _content(parts: tuple[Part, ...]) -> str:
    """Returns the parts as one text, which is all that a message has in this dialect."""
    return "\n".join([_readable(part) for part in parts])


def _readable(part: Part) -> str:
    match part:
        case TextPart():
            return part.text
        case DataPart():
            return to_json(part.data).decode("utf-8")
        case FilePart():
            return part.url or part.name or part.media_type
        case _:
            assert_never(part)


def _is_text(artifact: Artifact) -> bool:
    return all(isinstance(part, TextPart) for part in artifact.parts)


def _artifacts(artifact: Artifact) -> Iterator[Wire]:
    """Yields one artifact for each content, because this dialect has one content each. `messages` has the answer."""
    if _is_text(artifact) and artifact.name in _ANSWER:
        return
    contents: list[Part] = [TextPart(text=artifact.text)] if artifact.text else []
    contents += [part for part in artifact.parts if not isinstance(part, TextPart)]
    for number, part in enumerate(contents, start=1):
        yield {
            "id": artifact.artifact_id if number == 1 else f"{artifact.artifact_id}.{number}",
            "type": _type(artifact, part),
            "description": artifact.description or part.name or artifact.name,
            **_payload(part),
        }


def _type(artifact: Artifact, part: Part) -> str:
    given = part.metadata.get("type", artifact.metadata.get("type"))
    if isinstance(given, str):
        return given
    match part:
        case TextPart():
            return "text"
        case DataPart():
            return "data"
        case FilePart():
            return "image" if part.media_type.startswith("image/") else "file"
        case _:
            assert_never(part)


def _payload(part: Part) -> Wire:
    """Returns the `uri` of a part, as a `data:` URL (RFC 2397) when the part has no address.

    The document has no field for content; texts and data are also in `content`, which is our addition.
    """
    match part:
        case TextPart():
            return {"uri": _data_url("text/plain;charset=utf-8", part.text.encode("utf-8")), "content": part.text}
        case DataPart():
            return {"uri": _data_url("application/json", to_json(part.data)), "content": part.data}
        case FilePart(content=None):
            return {"uri": part.url}
        case FilePart(content=content):
            return {"uri": _data_url(part.media_type or "application/octet-stream", content or b"")}
        case _:
            assert_never(part)


def _data_url(media_type: str, content: bytes) -> str:
    return f"data:{media_type};base64,{base64.b64encode(content).decode('ascii')}"


def _message_times(task: Task) -> list[datetime]:
    """Returns the time of each message in the history, as exactly as the receipts show."""
    turns = list(_turns(task))
    times: list[datetime] = []
    turn = 0
    for message in task.history:
        begun, ended = turns[turn] if turn < len(turns) else (task.updated_at, task.updated_at)
        if message.role is Role.AGENT:
            times.append(ended)
            turn += 1
        else:
            times.append(begun if times else task.created_at)
    return times


def _turns(task: Task) -> Iterator[tuple[datetime, datetime]]:
    """Yields begin and end of each turn. A turn that has not ended lasts until the last change."""
    begun: datetime | None = None
    for receipt in task.receipts:
        begun = begun or receipt.at
        if receipt.step is ReceiptStep.ANSWERED:
            yield begun, receipt.at
            begun = None
    if begun is not None:
        yield begun, task.updated_at


def _role_name(message: Message) -> str:
    if message.metadata.get(ROLE) == SYSTEM:
        return SYSTEM
    return ROLE_NAMES[message.role]
