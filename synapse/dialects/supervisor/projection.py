"""From core facts to the words of the supervisor dialect: plain functions, field by field.

`messages` is what the agent said: its questions, its answer, and in the end why there is none. `history` is what both
sides said before its last words. `artifacts` is what the agent handed over beside its answer.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from typing import Any, Final, assert_never

from synapse.core.message import Artifact, DataPart, FilePart, Message, Part, Role, TextPart
from synapse.core.push import PushConfig
from synapse.core.store import TaskPage
from synapse.core.task import Task, TaskState
from synapse.core.wire_errors import InvalidField
from synapse.dialects.proto_json import instant, parse_instant, to_json
from synapse.dialects.supervisor.ids import global_id
from synapse.dialects.supervisor.timeline import answered_at, said_at
from synapse.dialects.supervisor.words import ROLE_NAMES, SYSTEM, TIMESTAMP, role_name, state_name

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
