"""From core facts to the words of the supervisor dialect: plain functions, field by field.

`messages` is what the agent said: its questions, its answer, and in the end why there is none. `history` is what both
sides said before its last words. `artifacts` is what the agent handed over beside its answer.

When things were said. Messages have no time of their own in the core; the receipts of a task tell their turns.

history    user      agent      user      agent      (answer)
receipts   queued … answered    queued … answered

The words of the supervisor dialect for states and roles, as tables.

The supervisor's card of an agent, and its list of agents. Standard clients ignore these fields of a common card.

Updates of the feed as the events of a stream: `taskUpdate` with the whole task each time, and `done` at the end.

What a webhook is told that was configured in this dialect: the same task as in a stream, without the frame.

Task ids that are unique across agents: `agentId:taskId` goes out, both that and the plain id come in.
"""

from __future__ import annotations

import base64
import re
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
from synapse.dialects.dialect import WireEvent, WireRequest
from synapse.dialects.proto_json import instant, parse_instant, to_json

Wire = dict[str, Any]

_ANSWER: Final = frozenset({"", "answer"})
"""What a text is called that is the agent's answer and nothing else."""


def encode_task(task: Task, *, agent: str, history_length: int | None = None) -> bytes:
    return to_json(task_object(task, agent=agent, history_length=history_length))


def encode_page(page: TaskPage, *, agent: str, page_size: int, history_length: int, artifacts: bool) -> bytes:
    tasks = [task_object(task, agent=agent, history_length=history_length, artifacts=artifacts) for task in page.tasks]
    return to_json({"tasks": tasks, "totalSize": page.total, "pageSize": page_size, "nextPageToken": page.next_cursor})


def encode_push_config(config: PushConfig, *, task_id: str) -> bytes:
    return to_json(push_config_object(config, task_id))


def encode_push_configs(configs: Iterable[PushConfig], *, task_id: str) -> bytes:
    return to_json([push_config_object(config, task_id) for config in configs])


def encode_nothing(_nothing: object) -> bytes:
    """The document: "Status code: 200, no response body"."""
    return b""


def task_object(task: Task, *, agent: str, history_length: int | None = None, artifacts: bool = True) -> Wire:
    """`history_length` None gives all messages, 0 none."""
    history = _history(task)
    if history_length is not None:
        history = history[-history_length:] if history_length else []
    return {
        "id": global_id(task.id, agent),
        "status": state_name(task),
        "messages": list(_said_by_agent(task)),
        "artifacts": [wire for artifact in task.artifacts for wire in _artifacts(artifact)] if artifacts else [],
        "history": history,
        "createdAt": instant(task.created_at),
        "modifiedAt": instant(task.updated_at),
    }


def push_config_object(config: PushConfig, task_id: str) -> Wire:
    wire: Wire = {"id": config.id, "url": config.url}
    if config.token:
        wire["token"] = config.token
    if config.scheme:
        wire["authentication"] = {"schemes": [config.scheme], "credentials": config.credentials}
    return {"taskId": task_id, "pushNotificationConfig": wire}


def _said_by_agent(task: Task) -> Iterator[Wire]:
    for message, at in zip(task.history, said_at(task), strict=True):
        if message.role is Role.AGENT:
            yield {
                "content": _content(message.parts),
                "role": role_name(message),
                "id": message.message_id,
                "timestamp": _timestamp(message, at),
            }
    answered = instant(answered_at(task))
    for artifact in task.artifacts:
        if _is_text(artifact):
            yield _message(artifact.text, ROLE_NAMES[Role.AGENT], artifact.artifact_id, answered)
    if task.note and (_ended_badly(task) or _waits_unasked(task)):
        yield _message(task.note, SYSTEM, f"{task.id}.{task.state.value}", instant(task.updated_at))


def _ended_badly(task: Task) -> bool:
    return task.state.is_terminal and task.state is not TaskState.COMPLETED


def _waits_unasked(task: Task) -> bool:
    """It waits for something that the agent has not put into a message: a dialog of its program."""
    return task.state.is_interrupted and task.history[-1].role is not Role.AGENT


def _message(content: str, role: str, message_id: str, at: str) -> Wire:
    return {"content": content, "role": role, "id": message_id, "timestamp": at}


def _history(task: Task) -> list[Wire]:
    """What was said before the agent's last words, which are in `messages`."""
    last = max((index for index, message in enumerate(task.history) if message.role is Role.USER), default=-1)
    return [
        {
            "id": message.message_id,
            "timestamp": _timestamp(message, at),
            "message": {"content": _content(message.parts), "role": role_name(message)},
        }
        for message, at in list(zip(task.history, said_at(task), strict=True))[: last + 1]
    ]


def _timestamp(message: Message, at: datetime) -> str:
    """The time that the sender gave it, else when it was said here."""
    given = message.metadata.get(TIMESTAMP)
    if isinstance(given, str):
        # Metadata is the sender's own in other dialects, where nobody has looked at it.
        with suppress(InvalidField):
            return instant(parse_instant(TIMESTAMP, given))
    return instant(at)


def _content(parts: tuple[Part, ...]) -> str:
    """What a person would read: in this dialect a message is one text."""
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
    """An artifact has one content here: one of several parts becomes several. The answer is a message already."""
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
    """The document has `uri` only: what has no address of its own is the address, as a `data:` URL (RFC 2397).

    Texts and data are there to be read, too, in a field of our own.
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


def said_at(task: Task) -> list[datetime]:
    """The time of each message in the history, as near as it is known."""
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


def answered_at(task: Task) -> datetime:
    """When the last turn ended, or the last change as long as it has not."""
    ends = [receipt.at for receipt in task.receipts if receipt.step is ReceiptStep.ANSWERED]
    return ends[-1] if ends and task.state.is_terminal else task.updated_at


def _turns(task: Task) -> Iterator[tuple[datetime, datetime]]:
    """Begin and end of each turn; one that has not ended lasts until now."""
    begun: datetime | None = None
    for receipt in task.receipts:
        begun = begun or receipt.at
        if receipt.step is ReceiptStep.ANSWERED:
            yield begun, receipt.at
            begun = None
    if begun is not None:
        yield begun, task.updated_at


EXPIRED: Final = "expired"
"""The reason of a task that ended by its deadline, and the state that it has here."""
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
"""Where a message's metadata keeps a role that the core has no word for."""
TIMESTAMP: Final = "timestamp"
"""Where a message's metadata keeps the time that its sender gave it."""


def state_name(task: Task) -> str:
    """The state, for which the reason counts, too."""
    if task.state is TaskState.FAILED and task.reason == EXPIRED:
        return EXPIRED
    return STATE_NAMES[task.state]


def role_name(message: Message) -> str:
    if message.metadata.get(ROLE) == SYSTEM:
        return SYSTEM
    return ROLE_NAMES[message.role]


OUTPUT_MODES: Final = ("text", "json")


@dataclass(frozen=True, slots=True, kw_only=True)
class CardFacts:
    """What the card is made of. `url` is the agent's address at the gateway, up to and with `/v1`."""

    agent: ListedAgent
    url: str
    extended: bool = True
    """There is a card with more in it for callers who are known."""


def agent_card(facts: CardFacts) -> Wire:
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
    """The directory, `/agents/list.json`."""
    return {
        "agents": [
            {
                "id": agent.id,
                "name": agent.name,
                "description": agent.description,
                "cardUrl": f"/agents/{agent.id}/v1/card",
                "endpoint": f"/agents/{agent.id}/v1",
                "status": "inactive" if agent.state == EXITED else "active",
            }
            for agent in agents
        ]
    }


_EVENT_ID: Final = re.compile(r"(?:event-)?([0-9]{1,18})")


def encode_update(
    update: Update, *, agent: str, history_length: int | None = None, ends_when_asked: bool = False
) -> WireEvent | None:
    """The event that tells `update`; None for what changes nothing that is shown: receipts, attention, metadata.

    `ends_when_asked` is said of a stream that ends also when the agent waits for somebody.
    """
    if not isinstance(update.event, TaskOpened | StateChanged | MessageAdded | ArtifactAdded | None):
        return None
    state = update.task.state
    final = state.is_terminal or (ends_when_asked and state.is_interrupted)
    task = task_object(update.task, agent=agent, history_length=history_length)
    done = WireEvent(_event_id(update.seq + 1), "done", b"{}") if final else None
    return WireEvent(_event_id(update.seq), "taskUpdate", to_json({**task, "final": final}), done)


def last_event(wire: WireRequest) -> int | None:
    """The seq after which a stream is resumed, from the header that event streams have for it.

    Raises InvalidField.
    """
    given = wire.header(b"last-event-id")
    if not given:
        return None
    known = _EVENT_ID.fullmatch(given)
    if known is None:
        raise InvalidField("Last-Event-ID", "must be the id of an event of an earlier stream", hint="event-1")
    return int(known[1])


def _event_id(seq: int) -> str:
    return f"event-{seq}"


def encode_notification(update: Update, agent: str) -> bytes | None:
    """The body of the notification that tells `update`; None when there is nothing to tell."""
    event = encode_update(update, agent=agent)
    return None if event is None else event.data


def global_id(task_id: str, agent: str) -> str:
    return f"{agent}:{task_id}"


def plain_id(given: str, agent: str) -> str:
    """The id that the agent itself knows. One of another agent stays whole, and so is no task of this one."""
    return given.removeprefix(f"{agent}:")
