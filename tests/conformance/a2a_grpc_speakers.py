"""A2A over gRPC, by the generated stubs alone: the requests of JSON-RPC 1.0 and REST 0.3 as protobuf."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import grpc  # type: ignore[import-untyped]  # it has no types of its own
from a2a.compat.v0_3 import a2a_v0_3_pb2 as v0_3
from a2a.compat.v0_3 import a2a_v0_3_pb2_grpc as v0_3_grpc
from a2a.types import a2a_pb2 as v1
from a2a.types import a2a_pb2_grpc as v1_grpc
from google.protobuf.json_format import MessageToDict, ParseDict
from google.rpc import (  # type: ignore[import-untyped]  # pyright: ignore[reportMissingTypeStubs]  # untyped
    error_details_pb2,
    status_pb2,
)

from synapse.core.override import override
from tests.conformance.a2a_speakers import AbstractStream, JsonRpc10, Rest03, Speaker
from tests.conformance.a2a_words import WORDS, Event, Message, Refused, event_of
from tests.conformance.wire_client import WireClient

PATIENCE: Final = 10.0
_LISTS: Final = ("list", "list_push")
NEW_STUB_1_0: Final[Any] = v1_grpc.A2AServiceStub
NEW_STUB_0_3: Final[Any] = v0_3_grpc.A2AServiceStub


def target_of(client: WireClient, mount: str) -> str:
    """Returns the address of gRPC in the card."""
    card = client.request("GET", f"{mount}/.well-known/agent-card.json", headers={"A2A-Version": "1.0"}).json
    return next(str(one["url"]) for one in card["supportedInterfaces"] if one["protocolBinding"] == "GRPC")


class Grpc10(JsonRpc10):
    """The methods and the parameters of JSON-RPC; the agent is the tenant."""

    binding = "GRPC"

    def __init__(self, client: WireClient, mount: str) -> None:
        super().__init__(client, mount)
        self._target = target_of(client, mount)
        self._tenant = mount.split("/")[2]

    @override
    def call(self, operation: str, params: dict[str, Any]) -> Any:
        with grpc.insecure_channel(self._target) as channel:
            try:
                # Lists print empty fields too: the clauses about lists check them.
                told = self._start(channel, operation, params)
                return MessageToDict(told, always_print_fields_with_no_presence=operation in _LISTS)
            except grpc.RpcError as error:
                raise _refused(error) from error

    @override
    @contextmanager
    def follow(self, operation: str, params: dict[str, Any], after: str = "") -> Generator[Iterator[Event]]:
        with grpc.insecure_channel(self._target) as channel:
            events = self._start(channel, operation, params)
            try:
                yield _events(events)
            finally:
                events.cancel()

    def _start(self, channel: Any, operation: str, params: dict[str, Any]) -> Any:
        name = self.methods[operation]
        # The only request that is not named after its method.
        kind = "TaskPushNotificationConfig" if operation == "push" else f"{name.replace('Streaming', '')}Request"
        request = ParseDict({**params, "tenant": self._tenant}, getattr(v1, kind)())
        method = getattr(NEW_STUB_1_0(channel), name)
        return _told(self, method, request, ("a2a-version", "1.0"))


class Grpc03(Rest03):
    """The paths and bodies of REST, which are ProtoJSON of the same protobuf; the agent is named in the metadata."""

    binding = "GRPC"

    def __init__(self, client: WireClient, mount: str) -> None:
        super().__init__(client, mount)
        self._target = target_of(client, mount)
        self._agent = mount.split("/")[2]

    @override
    def ask(self, method: str, path: str, body: object = None) -> Any:
        with grpc.insecure_channel(self._target) as channel:
            try:
                told = self._start(channel, method, path, body)
                is_list = path.endswith("/pushNotificationConfigs")
                return MessageToDict(told, always_print_fields_with_no_presence=is_list)
            except grpc.RpcError as error:
                raise _refused(error) from error

    @override
    @contextmanager
    def follow(self, method: str, path: str, body: object = None, after: str = "") -> Generator[Iterator[Event]]:
        with grpc.insecure_channel(self._target) as channel:
            events = self._start(channel, "GET" if body is None else method, path, body)
            try:
                yield _events(events)
            finally:
                events.cancel()

    @override
    def stream(self, message: Message) -> AbstractStream:
        return self.follow("POST", "/message:stream", {"message": self._message(message)})

    def _start(self, channel: Any, method: str, path: str, body: object) -> Any:
        name, request = _former_request(method, path, body)
        method = getattr(NEW_STUB_0_3(channel), name)
        return _told(self, method, request, ("x-agent-id", self._agent))


def _told(speaker: Speaker, method: Any, request: Any, *metadata: tuple[str, str]) -> Any:
    """Calls a method and returns its result. If the speaker sends headers, reads those of the answer first."""
    if not speaker.naming:
        return method(request, timeout=PATIENCE, metadata=metadata)
    named = [(name.lower(), value) for name, value in speaker.naming.items()]
    # Only a method with one answer returns its call separately; a stream is its own call.
    begin = getattr(method, "with_call", None)
    given = {"timeout": PATIENCE, "metadata": [*metadata, *named]}
    if begin is not None:
        told, call = begin(request, **given)
    else:
        told = call = method(request, **given)
    heard: Any = call.initial_metadata()
    speaker.heard = {str(name): str(value) for name, value in heard}
    return told


_FORMER: Final = (
    ("POST", r"/message:send", "SendMessage", v0_3.SendMessageRequest, ""),
    ("POST", r"/message:stream", "SendStreamingMessage", v0_3.SendMessageRequest, ""),
    ("GET", r"/(tasks/[^/]+):subscribe", "TaskSubscription", v0_3.TaskSubscriptionRequest, "name"),
    ("POST", r"/(tasks/[^/]+):cancel", "CancelTask", v0_3.CancelTaskRequest, "name"),
    ("GET", r"/(tasks/[^/]+)", "GetTask", v0_3.GetTaskRequest, "name"),
    (
        "POST",
        r"/(tasks/[^/]+)/pushNotificationConfigs",
        "CreateTaskPushNotificationConfig",
        v0_3.CreateTaskPushNotificationConfigRequest,
        "parent",
    ),
    (
        "GET",
        r"/(tasks/[^/]+)/pushNotificationConfigs",
        "ListTaskPushNotificationConfig",
        v0_3.ListTaskPushNotificationConfigRequest,
        "parent",
    ),
    (
        "GET",
        r"/(tasks/[^/]+/pushNotificationConfigs/[^/]+)",
        "GetTaskPushNotificationConfig",
        v0_3.GetTaskPushNotificationConfigRequest,
        "name",
    ),
    (
        "DELETE",
        r"/(tasks/[^/]+/pushNotificationConfigs/[^/]+)",
        "DeleteTaskPushNotificationConfig",
        v0_3.DeleteTaskPushNotificationConfigRequest,
        "name",
    ),
    ("GET", r"/card", "GetAgentCard", v0_3.GetAgentCardRequest, ""),
)


def _former_request(method: str, path: str, body: Any) -> tuple[str, Any]:
    """Returns the method for a path of REST, and its request."""
    parts = urlsplit(path)
    for its_method, pattern, name, kind, named in _FORMER:
        found = re.fullmatch(pattern, parts.path)
        if method == its_method and found:
            fields: dict[str, Any] = {**(body or {}), **dict(parse_qsl(parts.query))}
            if named:
                fields[named] = found[1]
            if name == "CreateTaskPushNotificationConfig":
                fields["configId"] = fields["config"]["pushNotificationConfig"].get("id", "")
            return name, ParseDict(fields, kind())
    raise AssertionError(f"gRPC has no {method} {path}")


def _events(stream: Any) -> Iterator[Event]:
    try:
        for message in stream:
            told = MessageToDict(message)
            # 0.3 has another name for it.
            yield event_of({"message" if name == "msg" else name: value for name, value in told.items()}, "")
    except grpc.RpcError as error:
        raise _refused(error) from error


def _refused(error: Any) -> Refused:
    former = str(error.details()).partition(":")[0]
    if former in WORDS:
        return Refused(WORDS[former])
    trailers: dict[str, bytes] = dict(error.trailing_metadata() or ())
    status = status_pb2.Status.FromString(trailers["grpc-status-details-bin"])
    for detail in status.details:
        info = error_details_pb2.ErrorInfo()
        if detail.Unpack(info):
            return Refused(WORDS.get(info.reason, info.reason))
    return Refused(str(error.code()))


SPEAKERS: Final[tuple[type[Grpc10 | Grpc03], ...]] = (Grpc10, Grpc03)
