"""Tasks, events, messages, parts and refusals, decoded from and encoded for every version of A2A."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.client import HTTPResponse
from typing import Any, Final

WORDS: Final[dict[object, str]] = {
    -32001: "TaskNotFound",
    -32002: "TaskNotCancelable",
    -32003: "PushNotSupported",
    -32004: "UnsupportedOperation",
    -32005: "ContentTypeNotSupported",
    -32007: "ExtendedCardMissing",
    -32008: "ExtensionRequired",
    -32602: "InvalidParams",
    "TASK_NOT_FOUND": "TaskNotFound",
    "TASK_NOT_CANCELABLE": "TaskNotCancelable",
    "PUSH_NOTIFICATION_NOT_SUPPORTED": "PushNotSupported",
    "UNSUPPORTED_OPERATION": "UnsupportedOperation",
    "CONTENT_TYPE_NOT_SUPPORTED": "ContentTypeNotSupported",
    "EXTENSION_SUPPORT_REQUIRED": "ExtensionRequired",
    "INVALID_PARAMS": "InvalidParams",
    "TaskNotFoundError": "TaskNotFound",
    "TaskNotCancelableError": "TaskNotCancelable",
    "PushNotificationNotSupportedError": "PushNotSupported",
    "UnsupportedOperationError": "UnsupportedOperation",
    "ContentTypeNotSupportedError": "ContentTypeNotSupported",
    "AuthenticatedExtendedCardNotConfiguredError": "ExtendedCardMissing",
    "InvalidParamsError": "InvalidParams",
}
"""What each binding calls an error, and what we call it here."""


class Refused(Exception):
    """The answer is an error; the text of the exception is the name of the error."""


@dataclass(frozen=True)
class Task:
    """A task, decoded from any binding."""

    raw: dict[str, Any]

    @property
    def id(self) -> str:
        return str(self.raw["id"])

    @property
    def context_id(self) -> str:
        return str(self.raw["contextId"])

    @property
    def state(self) -> str:
        return state_word(self.raw["status"]["state"])

    @property
    def said(self) -> str:
        """The text of the agent's message in the status."""
        return texts(self.raw["status"].get("message", {}))

    @property
    def history(self) -> list[str]:
        return [texts(message) for message in self.raw.get("history", [])]

    @property
    def parts(self) -> list[dict[str, Any]]:
        """The parts of all artifacts, as 1.0 encodes them."""
        return [plain_part(part) for artifact in self.raw.get("artifacts", []) for part in artifact["parts"]]


@dataclass(frozen=True)
class Event:
    """One event of a stream: a `task`, a `message`, a `status` or an `artifact`."""

    kind: str
    raw: dict[str, Any]
    id: str = ""

    @property
    def state(self) -> str:
        return state_word(self.raw["status"]["state"]) if "status" in self.raw else ""

    @property
    def task_id(self) -> str:
        return str(self.raw["id"] if self.kind == "task" else self.raw["taskId"])


@dataclass(frozen=True)
class Message:
    """A message to send. Its id decides what the conformance agent does; it is made unique unless it is `exact`."""

    cue: str = "plain"
    text: str = "hello"
    task_id: str = ""
    context_id: str = ""
    exact: bool = False
    parts: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """In the words of 1.0; the text alone if there are none."""

    def fields(self) -> dict[str, Any]:
        unique = self.cue if self.exact else f"{self.cue}-{uuid.uuid4()}"
        ids = {"taskId": self.task_id, "contextId": self.context_id}
        return {"messageId": unique, **{name: value for name, value in ids.items() if value}}


def request_1_0(message: Message, immediately: bool = False, history: int | None = None) -> dict[str, Any]:
    parts = message.parts or [{"text": message.text}]
    configuration = {"returnImmediately": immediately, **optional("historyLength", history)}
    return {"message": {"role": "ROLE_USER", "parts": parts, **message.fields()}, "configuration": configuration}


def payload_1_0(answer: dict[str, Any]) -> Task | str:
    assert len(answer) == 1
    return Task(answer["task"]) if "task" in answer else texts(answer["message"])


def event_of(payload: dict[str, Any], seq: str) -> Event:
    ((name, value),) = payload.items()
    return Event({"statusUpdate": "status", "artifactUpdate": "artifact"}.get(name, name), value, seq)


def optional(name: str, value: object) -> dict[str, Any]:
    return {} if value is None else {name: value}


def state_word(name: str) -> str:
    return name.removeprefix("TASK_STATE_").lower().replace("-", "_").replace("cancelled", "canceled")


def texts(message: dict[str, Any]) -> str:
    return "".join(part.get("text", "") for part in message.get("parts", message.get("content", [])))


def plain_part(part: dict[str, Any]) -> dict[str, Any]:
    """Returns a part of any version as 1.0 encodes it."""
    plain = {name: value for name, value in part.items() if name not in ("kind", "metadata")}
    if "file" in part:
        file = part["file"]
        names = {"bytes": "raw", "fileWithBytes": "raw", "uri": "url", "fileWithUri": "url"}
        names |= {"name": "filename", "mimeType": "mediaType"}
        return {names[name]: value for name, value in file.items()}
    if isinstance(part.get("data"), dict) and set(part["data"]) == {"data"} and "kind" not in part:
        return {"data": part["data"]["data"]}
    return plain


def schema_part(part: dict[str, Any]) -> dict[str, Any]:
    """Returns a part of 1.0 as JSON-RPC of 0.3 encodes it."""
    if "raw" in part or "url" in part:
        names = {"raw": "bytes", "url": "uri", "filename": "name", "mediaType": "mimeType"}
        return {"kind": "file", "file": {names[name]: value for name, value in part.items()}}
    return {"kind": "data" if "data" in part else "text", **part}


def proto_part(part: dict[str, Any]) -> dict[str, Any]:
    """Returns a part of 1.0 as REST of 0.3 encodes it."""
    if "raw" in part or "url" in part:
        names = {"raw": "fileWithBytes", "url": "fileWithUri", "filename": "name", "mediaType": "mimeType"}
        return {"file": {names[name]: value for name, value in part.items()}}
    return {"data": {"data": part["data"]}} if "data" in part else part


def sse(response: HTTPResponse) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the id and the data of each event."""
    assert response.getheader("content-type") == "text/event-stream", response.read()
    seq = ""
    while line := response.readline():
        name, _, value = line.decode().rstrip("\n").partition(": ")
        if name == "id":
            seq = value
        elif name == "data":
            yield seq, json.loads(value)


def encoded(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")
