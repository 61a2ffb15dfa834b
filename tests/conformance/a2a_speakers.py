"""The four ways to speak A2A over HTTP, by hand and without an SDK: what is said, and what the answers mean.

A speaker knows the words of one version and one binding. The rows know only tasks, messages, events and refusals.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPResponse
from typing import Any, Final
from urllib.parse import urlencode

from typing_extensions import override

from tests.conformance.wire_client import Reply, WireClient

JSON: Final = {"Content-Type": "application/json"}
WORDS: Final[dict[object, str]] = {
    -32001: "TaskNotFound",
    -32002: "TaskNotCancelable",
    -32003: "PushNotSupported",
    -32004: "UnsupportedOperation",
    -32007: "ExtendedCardMissing",
    -32602: "InvalidParams",
    "TASK_NOT_FOUND": "TaskNotFound",
    "TASK_NOT_CANCELABLE": "TaskNotCancelable",
    "PUSH_NOTIFICATION_NOT_SUPPORTED": "PushNotSupported",
    "UNSUPPORTED_OPERATION": "UnsupportedOperation",
    "INVALID_PARAMS": "InvalidParams",
    "TaskNotFoundError": "TaskNotFound",
    "TaskNotCancelableError": "TaskNotCancelable",
    "PushNotificationNotSupportedError": "PushNotSupported",
    "UnsupportedOperationError": "UnsupportedOperation",
    "AuthenticatedExtendedCardNotConfiguredError": "ExtendedCardMissing",
    "InvalidParamsError": "InvalidParams",
}
"""What each binding calls an error, and what we call it here."""


class Refused(Exception):
    """The answer is an error; its text is the error's word."""


@dataclass(frozen=True)
class Task:
    """A task as some binding told it."""

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
        """What the agent says with the status."""
        return texts(self.raw["status"].get("message", {}))

    @property
    def history(self) -> list[str]:
        return [texts(message) for message in self.raw.get("history", [])]

    @property
    def parts(self) -> list[dict[str, Any]]:
        """The parts of all artifacts, in the words of 1.0."""
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
    """What is to be said. Its id cues what the conformance agent does; it is made unique unless it is `exact`."""

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


class Speaker:
    """One version in one binding, at one address."""

    version = ""
    binding = ""

    def __init__(self, client: WireClient) -> None:
        self.client = client

    def send(self, message: Message, *, immediately: bool = False, history: int | None = None) -> Task | str:
        """The task, or the text of the message that the agent answered with. Raises Refused."""
        raise NotImplementedError

    def task(self, message: Message, *, immediately: bool = False, history: int | None = None) -> Task:
        """The same where only a task will do."""
        answer = self.send(message, immediately=immediately, history=history)
        assert isinstance(answer, Task), answer
        return answer

    def get(self, task_id: str, history: int | None = None) -> Task:
        raise NotImplementedError

    def cancel(self, task_id: str) -> Task:
        raise NotImplementedError

    def set_push(self, task_id: str) -> object:
        raise NotImplementedError

    def extended_card(self) -> object:
        raise NotImplementedError

    def stream(self, message: Message) -> AbstractStream:
        raise NotImplementedError

    def subscribe(self, task_id: str, after: str = "") -> AbstractStream:
        raise NotImplementedError

    def events(self, message: Message) -> list[Event]:
        """All events of a stream that ends by itself."""
        with self.stream(message) as events:
            return list(events)


AbstractStream = Any
"""A context manager that gives an iterator of Event; typed by its makers."""


class JsonRpc(Speaker):
    """JSON-RPC; the subclasses have the method names."""

    binding = "JSONRPC"
    methods: dict[str, str]

    def headers(self) -> dict[str, str]:
        return JSON

    def call(self, operation: str, params: dict[str, Any]) -> Any:
        reply = self.client.request("POST", "/", self._body(operation, params), self.headers())
        assert reply.status == 200, reply.body
        return self._result(reply.json)

    @contextmanager
    def follow(self, operation: str, params: dict[str, Any], after: str = "") -> Generator[Iterator[Event]]:
        headers = {**self.headers(), **({"Last-Event-ID": after} if after else {})}
        with closing(self.client.connection()) as connection:
            connection.request("POST", "/", json.dumps(self._body(operation, params)).encode(), headers)
            response = connection.getresponse()
            assert response.status == 200
            if response.getheader("content-type") == "application/json":
                self._result(json.loads(response.read()))
            yield (self.event(self._result(data), seq) for seq, data in sse(response))

    def event(self, result: dict[str, Any], seq: str) -> Event:
        raise NotImplementedError

    @override
    def get(self, task_id: str, history: int | None = None) -> Task:
        return Task(self.call("get", {"id": task_id, **optional("historyLength", history)}))

    @override
    def cancel(self, task_id: str) -> Task:
        return Task(self.call("cancel", {"id": task_id}))

    @override
    def subscribe(self, task_id: str, after: str = "") -> AbstractStream:
        return self.follow("subscribe", {"id": task_id}, after)

    @override
    def extended_card(self) -> object:
        return self.call("card", {})

    def _body(self, operation: str, params: dict[str, Any]) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": f"call-{operation}", "method": self.methods[operation], "params": params}

    def _result(self, answer: dict[str, Any]) -> Any:
        assert answer["jsonrpc"] == "2.0"
        assert str(answer["id"]).startswith("call-")
        if "error" in answer:
            code = answer["error"]["code"]
            raise Refused(WORDS.get(code, str(code)))
        return answer["result"]


class JsonRpc10(JsonRpc):
    version = "1.0"
    methods: dict[str, str] = {  # noqa: RUF012 - a table
        "send": "SendMessage",
        "stream": "SendStreamingMessage",
        "get": "GetTask",
        "list": "ListTasks",
        "cancel": "CancelTask",
        "subscribe": "SubscribeToTask",
        "push": "CreateTaskPushNotificationConfig",
        "card": "GetExtendedAgentCard",
    }

    @override
    def headers(self) -> dict[str, str]:
        return {**JSON, "A2A-Version": "1.0"}

    @override
    def send(self, message: Message, *, immediately: bool = False, history: int | None = None) -> Task | str:
        return payload_1_0(self.call("send", request_1_0(message, immediately, history)))

    @override
    def stream(self, message: Message) -> AbstractStream:
        return self.follow("stream", request_1_0(message))

    def list(self, **filters: Any) -> dict[str, Any]:
        answer: dict[str, Any] = self.call("list", filters)
        return answer

    @override
    def set_push(self, task_id: str) -> object:
        return self.call("push", {"taskId": task_id, "url": "https://example.com"})

    @override
    def event(self, result: dict[str, Any], seq: str) -> Event:
        return event_of(result, seq)


class JsonRpc03(JsonRpc):
    version = "0.3"
    methods: dict[str, str] = {  # noqa: RUF012 - a table
        "send": "message/send",
        "stream": "message/stream",
        "get": "tasks/get",
        "cancel": "tasks/cancel",
        "subscribe": "tasks/resubscribe",
        "push": "tasks/pushNotificationConfig/set",
        "card": "agent/getAuthenticatedExtendedCard",
    }

    @override
    def send(self, message: Message, *, immediately: bool = False, history: int | None = None) -> Task | str:
        configuration = {"blocking": not immediately, **optional("historyLength", history)}
        result = self.call("send", {"message": self._message(message), "configuration": configuration})
        return Task(result) if result["kind"] == "task" else texts(result)

    @override
    def stream(self, message: Message) -> AbstractStream:
        return self.follow("stream", {"message": self._message(message)})

    @override
    def set_push(self, task_id: str) -> object:
        config = {"url": "https://example.com"}
        return self.call("push", {"taskId": task_id, "pushNotificationConfig": config})

    @override
    def event(self, result: dict[str, Any], seq: str) -> Event:
        return Event(result["kind"].removesuffix("-update"), result, seq)

    def _message(self, message: Message) -> dict[str, Any]:
        parts = [schema_part(part) for part in message.parts] or [{"kind": "text", "text": message.text}]
        return {"kind": "message", "role": "user", "parts": parts, **message.fields()}


class Rest(Speaker):
    """REST; the subclasses have the prefix and the bodies."""

    binding = "REST"
    prefix = ""

    def headers(self) -> dict[str, str]:
        return JSON

    def ask(self, method: str, path: str, body: object = None) -> Any:
        reply = self.client.request(method, self.prefix + path, body, self.headers())
        self.check(reply)
        return reply.json

    def check(self, reply: Reply) -> None:
        raise NotImplementedError

    @contextmanager
    def follow(self, method: str, path: str, body: object = None, after: str = "") -> Generator[Iterator[Event]]:
        headers = {**self.headers(), **({"Last-Event-ID": after} if after else {})}
        with closing(self.client.connection()) as connection:
            connection.request(method, self.prefix + path, None if body is None else json.dumps(body).encode(), headers)
            response = connection.getresponse()
            if response.status != 200:
                self.check(Reply(response.status, {}, response.read()))
            yield (event_of(data, seq) for seq, data in sse(response))

    @override
    def get(self, task_id: str, history: int | None = None) -> Task:
        query = "" if history is None else f"?historyLength={history}"
        return Task(self.ask("GET", f"/tasks/{task_id}{query}"))

    @override
    def cancel(self, task_id: str) -> Task:
        return Task(self.ask("POST", f"/tasks/{task_id}:cancel"))

    @override
    def subscribe(self, task_id: str, after: str = "") -> AbstractStream:
        return self.follow("GET", f"/tasks/{task_id}:subscribe", after=after)

    @override
    def set_push(self, task_id: str) -> object:
        return self.ask("POST", f"/tasks/{task_id}/pushNotificationConfigs", {"url": "https://example.com"})


class Rest10(Rest):
    version = "1.0"

    @override
    def headers(self) -> dict[str, str]:
        return {**JSON, "A2A-Version": "1.0"}

    @override
    def check(self, reply: Reply) -> None:
        if reply.status != 200:
            reason = reply.json["error"]["details"][0]["reason"]
            raise Refused(WORDS.get(reason, reason))

    @override
    def send(self, message: Message, *, immediately: bool = False, history: int | None = None) -> Task | str:
        return payload_1_0(self.ask("POST", "/message:send", request_1_0(message, immediately, history)))

    @override
    def stream(self, message: Message) -> AbstractStream:
        return self.follow("POST", "/message:stream", request_1_0(message))

    def list(self, **filters: Any) -> dict[str, Any]:
        query = urlencode(
            {name: str(value).lower() if isinstance(value, bool) else value for name, value in filters.items()}
        )
        answer: dict[str, Any] = self.ask("GET", f"/tasks?{query}")
        return answer

    @override
    def extended_card(self) -> object:
        return self.ask("GET", "/extendedAgentCard")


class Rest03(Rest):
    version = "0.3"
    prefix = "/v1"

    @override
    def check(self, reply: Reply) -> None:
        if reply.status != 200:
            name = reply.json["type"]
            raise Refused(WORDS.get(name, name))

    @override
    def send(self, message: Message, *, immediately: bool = False, history: int | None = None) -> Task | str:
        configuration = {"blocking": not immediately, **optional("historyLength", history)}
        answer = self.ask("POST", "/message:send", {"message": self._message(message), "configuration": configuration})
        return Task(answer["task"]) if "task" in answer else texts(answer["message"])

    @override
    def stream(self, message: Message) -> AbstractStream:
        return self.follow("POST", "/message:stream", {"message": self._message(message)})

    @override
    def extended_card(self) -> object:
        return self.ask("GET", "/card")

    def _message(self, message: Message) -> dict[str, Any]:
        content = [proto_part(part) for part in message.parts] or [{"text": message.text}]
        return {"role": "ROLE_USER", "content": content, **message.fields()}


SPEAKERS: Final[tuple[type[Speaker], ...]] = (JsonRpc10, Rest10, JsonRpc03, Rest03)


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
    """A part of any version, in the words of 1.0."""
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
    """A part of 1.0 in the words of 0.3's JSON-RPC."""
    if "raw" in part or "url" in part:
        names = {"raw": "bytes", "url": "uri", "filename": "name", "mediaType": "mimeType"}
        return {"kind": "file", "file": {names[name]: value for name, value in part.items()}}
    return {"kind": "data" if "data" in part else "text", **part}


def proto_part(part: dict[str, Any]) -> dict[str, Any]:
    """A part of 1.0 in the words of 0.3's REST."""
    if "raw" in part or "url" in part:
        names = {"raw": "fileWithBytes", "url": "fileWithUri", "filename": "name", "mediaType": "mimeType"}
        return {"file": {names[name]: value for name, value in part.items()}}
    return {"data": {"data": part["data"]}} if "data" in part else part


def sse(response: HTTPResponse) -> Iterator[tuple[str, dict[str, Any]]]:
    """The id and the data of each event."""
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
