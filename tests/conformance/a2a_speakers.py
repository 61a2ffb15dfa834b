"""The four bindings of A2A over HTTP, written without an SDK: how requests are encoded and answers decoded.

A speaker knows the wire format of one version and one binding. The rows know only tasks, messages, events and refusals.
With a `mount` it speaks to one agent of a gateway.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from typing import Any, Final
from urllib.parse import urlencode

from synapse.core.override import override
from tests.conformance.a2a_words import (
    WORDS,
    Event,
    Message,
    Refused,
    Task,
    event_of,
    optional,
    payload_1_0,
    proto_part,
    request_1_0,
    schema_part,
    sse,
    texts,
)
from tests.conformance.wire_client import Reply, WireClient

JSON: Final = {"Content-Type": "application/json"}


class Speaker:
    """One version in one binding, at one address."""

    version = ""
    binding = ""

    def __init__(self, client: WireClient, mount: str = "") -> None:
        self.client = client
        self.mount = mount
        self.naming: dict[str, str] = {}
        """Additional headers of each request."""
        self.heard: dict[str, str] = {}
        """The headers of the last answer that was not an error, or did not begin as one."""

    def send(self, message: Message, *, immediately: bool = False, history: int | None = None) -> Task | str:
        """Returns the task, or the text of the message that the agent answered with. Raises Refused."""
        raise NotImplementedError

    def task(self, message: Message, *, immediately: bool = False, history: int | None = None) -> Task:
        """Sends a message that must be answered with a task; returns the task."""
        answer = self.send(message, immediately=immediately, history=history)
        assert isinstance(answer, Task), answer
        return answer

    def get(self, task_id: str, history: int | None = None) -> Task:
        raise NotImplementedError

    def cancel(self, task_id: str) -> Task:
        raise NotImplementedError

    def extended_card(self) -> object:
        raise NotImplementedError

    def stream(self, message: Message) -> AbstractStream:
        raise NotImplementedError

    def subscribe(self, task_id: str, after: str = "") -> AbstractStream:
        raise NotImplementedError

    def events(self, message: Message) -> list[Event]:
        """Returns all events of a stream that ends by itself."""
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
        headers = {**self.headers(), **self.naming}
        reply = self.client.request("POST", self.mount or "/", self._body(operation, params), headers)
        assert reply.status == 200, reply.body
        result = self._result(reply.json)
        self.heard = reply.headers
        return result

    @contextmanager
    def follow(self, operation: str, params: dict[str, Any], after: str = "") -> Generator[Iterator[Event]]:
        headers = {**self.headers(), **self.naming, **({"Last-Event-ID": after} if after else {})}
        with closing(self.client.connection()) as connection:
            connection.request("POST", self.mount or "/", json.dumps(self._body(operation, params)).encode(), headers)
            response = connection.getresponse()
            assert response.status == 200
            if response.getheader("content-type") == "application/json":
                self._result(json.loads(response.read()))
            self.heard = {name.lower(): value for name, value in response.getheaders()}
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
        "get_push": "GetTaskPushNotificationConfig",
        "list_push": "ListTaskPushNotificationConfigs",
        "delete_push": "DeleteTaskPushNotificationConfig",
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
        "get_push": "tasks/pushNotificationConfig/get",
        "list_push": "tasks/pushNotificationConfig/list",
        "delete_push": "tasks/pushNotificationConfig/delete",
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
    def event(self, result: dict[str, Any], seq: str) -> Event:
        return Event(result["kind"].removesuffix("-update"), result, seq)

    def _message(self, message: Message) -> dict[str, Any]:
        parts = [schema_part(part) for part in message.parts] or [{"kind": "text", "text": message.text}]
        return {"kind": "message", "role": "user", "parts": parts, **message.fields()}


class Rest(Speaker):
    """REST; the subclasses have the prefix and the bodies."""

    binding = "REST"
    prefix = ""
    """Where a host has the paths."""

    @property
    def place(self) -> str:
        return self.mount or self.prefix

    def headers(self) -> dict[str, str]:
        return JSON

    def ask(self, method: str, path: str, body: object = None) -> Any:
        reply = self.client.request(method, self.place + path, body, {**self.headers(), **self.naming})
        self.check(reply)
        self.heard = reply.headers
        return reply.json if reply.body else None

    def check(self, reply: Reply) -> None:
        raise NotImplementedError

    @contextmanager
    def follow(self, method: str, path: str, body: object = None, after: str = "") -> Generator[Iterator[Event]]:
        headers = {**self.headers(), **self.naming, **({"Last-Event-ID": after} if after else {})}
        with closing(self.client.connection()) as connection:
            connection.request(method, self.place + path, None if body is None else json.dumps(body).encode(), headers)
            response = connection.getresponse()
            if response.status != 200:
                self.check(Reply(response.status, {}, response.read()))
            self.heard = {name.lower(): value for name, value in response.getheaders()}
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
    """As clients of 0.3 speak: they name no version, unless they are told to."""

    version = "0.3"
    prefix = "/v1"
    names_version = False

    @override
    def headers(self) -> dict[str, str]:
        return {**JSON, "A2A-Version": "0.3"} if self.names_version else JSON

    @override
    def check(self, reply: Reply) -> None:
        if reply.status != 200:
            # A gateway is asked without a version here, as clients of 0.3 do, and may answer in the format of another
            # dialect of the path. Those clients read the status only.
            told = reply.json if "type" in reply.json else reply.json["error"]
            name = told["details"][0]["reason"] if "details" in told else told.get("type", told.get("code"))
            raise Refused(WORDS.get(name, str(name)))

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
