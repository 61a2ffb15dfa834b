"""The A2A operations as gRPC methods: converts protobuf to the JSON of the dialects and back, for 1.0 and 0.3. Pure.

    bytes ──protobuf──► ProtoJSON ──dialect──► Call …  JSON of the answer ──protobuf──► bytes

A2A 1.0 over HTTP is ProtoJSON of this protobuf, and so is 0.3 over REST: the dialects' encoders serve gRPC too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple, cast
from urllib.parse import quote_plus

import msgspec
from a2a.compat.v0_3 import a2a_v0_3_pb2 as v0_3
from a2a.types import a2a_pb2 as v1
from google.protobuf import empty_pb2, json_format
from google.protobuf.message import DecodeError, Message

from synapse.core.errors import InvalidField, InvalidRequest, SynapseError
from synapse.dialects.a2a_v0_3.routes import error_shape
from synapse.dialects.dialect import AnyCall, CallRoute, Dialect, Params, WireRequest

SERVICE_1_0: Final = "lf.a2a.v1.A2AService"
SERVICE_0_3: Final = "a2a.v1.A2AService"
"""A2A 0.3 named its package v1."""

Ask = Callable[[Params, WireRequest], AnyCall]
Fields = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """One method: the message that it takes, the dialect's decoder of it, and the encoder of its answer."""

    request: type[Message]
    ask: Ask
    to_answer: Callable[[bytes], bytes]
    """Converts the dialect's JSON to the bytes of the answer."""
    streams: bool = False

    def read(self, given: bytes) -> tuple[Params, str]:
        """Returns the request as JSON, and the tenant that it names, or an empty string. Raises InvalidRequest."""
        request = self.request()
        try:
            request.ParseFromString(given)
            text = json_format.MessageToJson(request, indent=None)
        except (DecodeError, json_format.Error, RecursionError, ValueError) as error:
            raise InvalidRequest(f"this is no {self.request.DESCRIPTOR.name}") from error
        return text.encode("utf-8"), getattr(request, "tenant", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcService:
    """The methods of one A2A version, and the name of its gRPC service."""

    name: str
    dialect: Dialect
    methods: Mapping[str, Method] = field(repr=False)
    details: Callable[[SynapseError], str] = str
    """Returns the status text of an error."""


def current_service(dialect: Dialect) -> GrpcService:
    """Returns the service of A2A 1.0; its methods have the names and the parameters of JSON-RPC."""
    asks = _rpc_methods(dialect)
    methods = {
        name: Method(request=request, ask=asks[name], to_answer=partial(_to_bytes, answer), streams=name in _STREAMS)
        for name, (request, answer) in _METHODS_1_0.items()
    }
    return GrpcService(name=SERVICE_1_0, dialect=dialect, methods=methods)


def former_service(dialect: Dialect, prefix: str) -> GrpcService:
    """Returns the service of A2A 0.3; its methods are those of REST, whose paths begin with `prefix`."""
    asks = {
        (route.method, route.path.removeprefix(prefix)): route.ask
        for route in dialect.routes
        if isinstance(route, CallRoute)
    }
    methods = {
        name: Method(
            request=method.request,
            ask=_ask_route(cast("Callable[[WireRequest], AnyCall]", asks[method.route]), method.place),
            to_answer=partial(_to_bytes, method.answer),
            streams=name in _STREAMS,
        )
        for name, method in _METHODS_0_3.items()
    }
    methods["GetAgentCard"] = Method(
        request=v0_3.GetAgentCardRequest,
        ask=_rpc_methods(dialect)["agent/getAuthenticatedExtendedCard"],
        to_answer=_card_to_bytes,
    )
    return GrpcService(name=SERVICE_0_3, dialect=dialect, methods=methods, details=_details_0_3)


def _rpc_methods(dialect: Dialect) -> Mapping[str, Ask]:
    none: Mapping[str, Ask] = {}
    return dialect.rpc.methods if dialect.rpc is not None else none


def _details_0_3(error: SynapseError) -> str:
    """Returns the status text of an error; clients of 0.3 read the kind of the error in it."""
    return f"{error_shape(type(error)).name}: {error}"


_STREAMS: Final = frozenset({"SendStreamingMessage", "SubscribeToTask", "TaskSubscription"})

_METHODS_1_0: Final[Mapping[str, tuple[type[Message], type[Message]]]] = {
    "SendMessage": (v1.SendMessageRequest, v1.SendMessageResponse),
    "SendStreamingMessage": (v1.SendMessageRequest, v1.StreamResponse),
    "GetTask": (v1.GetTaskRequest, v1.Task),
    "ListTasks": (v1.ListTasksRequest, v1.ListTasksResponse),
    "CancelTask": (v1.CancelTaskRequest, v1.Task),
    "SubscribeToTask": (v1.SubscribeToTaskRequest, v1.StreamResponse),
    "CreateTaskPushNotificationConfig": (v1.TaskPushNotificationConfig, v1.TaskPushNotificationConfig),
    "GetTaskPushNotificationConfig": (v1.GetTaskPushNotificationConfigRequest, v1.TaskPushNotificationConfig),
    "ListTaskPushNotificationConfigs": (
        v1.ListTaskPushNotificationConfigsRequest,
        v1.ListTaskPushNotificationConfigsResponse,
    ),
    "DeleteTaskPushNotificationConfig": (v1.DeleteTaskPushNotificationConfigRequest, empty_pb2.Empty),
    "GetExtendedAgentCard": (v1.GetExtendedAgentCardRequest, v1.AgentCard),
}

PlaceFields = Callable[[Params, WireRequest], WireRequest]
"""Puts the fields of a request where REST has them: in the path, the query or the body."""


def _in_body(params: Params, wire: WireRequest) -> WireRequest:
    return wire._replace(body=params)


def _of_task(params: Params, wire: WireRequest) -> WireRequest:
    """Reads the task from `name`, which is `tasks/ID` in 0.3."""
    fields = _fields(params)
    query = f"historyLength={quote_plus(str(fields['historyLength']))}" if "historyLength" in fields else ""
    (task_id,) = _ids_in_name(fields, "name", ("tasks",))
    return wire._replace(params={**wire.params, "id": task_id}, query_string=query.encode("ascii"))


def _of_parent(params: Params, wire: WireRequest) -> WireRequest:
    (task_id,) = _ids_in_name(_fields(params), "parent", ("tasks",))
    return wire._replace(params={**wire.params, "id": task_id}, body=params)


def _of_config(params: Params, wire: WireRequest) -> WireRequest:
    task_id, config_id = _ids_in_name(_fields(params), "name", ("tasks", "pushNotificationConfigs"))
    return wire._replace(params={**wire.params, "id": task_id, "config": config_id})


class _RestMethod(NamedTuple):
    request: type[Message]
    answer: type[Message]
    route: tuple[str, str]
    place: PlaceFields


_CONFIGS: Final = "/tasks/{id}/pushNotificationConfigs"
_CONFIG: Final = f"{_CONFIGS}/{{config}}"
_METHODS_0_3: Final[Mapping[str, _RestMethod]] = {
    "SendMessage": _RestMethod(v0_3.SendMessageRequest, v0_3.SendMessageResponse, ("POST", "/message:send"), _in_body),
    "SendStreamingMessage": _RestMethod(
        v0_3.SendMessageRequest, v0_3.StreamResponse, ("POST", "/message:stream"), _in_body
    ),
    "GetTask": _RestMethod(v0_3.GetTaskRequest, v0_3.Task, ("GET", "/tasks/{id}"), _of_task),
    "CancelTask": _RestMethod(v0_3.CancelTaskRequest, v0_3.Task, ("POST", "/tasks/{id}:cancel"), _of_task),
    "TaskSubscription": _RestMethod(
        v0_3.TaskSubscriptionRequest, v0_3.StreamResponse, ("POST", "/tasks/{id}:subscribe"), _of_task
    ),
    "CreateTaskPushNotificationConfig": _RestMethod(
        v0_3.CreateTaskPushNotificationConfigRequest, v0_3.TaskPushNotificationConfig, ("POST", _CONFIGS), _of_parent
    ),
    "GetTaskPushNotificationConfig": _RestMethod(
        v0_3.GetTaskPushNotificationConfigRequest, v0_3.TaskPushNotificationConfig, ("GET", _CONFIG), _of_config
    ),
    "ListTaskPushNotificationConfig": _RestMethod(
        v0_3.ListTaskPushNotificationConfigRequest,
        v0_3.ListTaskPushNotificationConfigResponse,
        ("GET", _CONFIGS),
        _of_parent,
    ),
    "DeleteTaskPushNotificationConfig": _RestMethod(
        v0_3.DeleteTaskPushNotificationConfigRequest, empty_pb2.Empty, ("DELETE", _CONFIG), _of_config
    ),
}


def _ask_route(ask: Callable[[WireRequest], AnyCall], place: PlaceFields) -> Ask:
    return lambda params, wire: ask(place(params, wire))


def _fields(params: Params) -> Fields:
    return msgspec.json.decode(params, type=dict[str, Any])


def _ids_in_name(fields: Fields, key: str, folders: tuple[str, ...]) -> list[str]:
    """Returns the ids in a name such as `tasks/ID/pushNotificationConfigs/ID`. Raises InvalidField."""
    name: str = fields.get(key, "")
    segments = name.split("/")
    if tuple(segments[::2]) == folders and len(segments) == 2 * len(folders) and all(segments):
        return segments[1::2]
    raise InvalidField(key, "must be " + "/".join(f"{folder}/ID" for folder in folders))


DEEPEST: Final = 1000
"""Levels of protobuf in an answer: each level of JSON takes three, and those were limited when the JSON arrived."""


def _to_bytes(kind: type[Message], answer: bytes) -> bytes:
    try:
        return _parse(kind, answer).SerializeToString()
    except json_format.ParseError:
        return _parse(kind, msgspec.json.encode(_with_large_as_text(msgspec.json.decode(answer)))).SerializeToString()


def _parse(kind: type[Message], answer: bytes) -> Message:
    return json_format.Parse(answer, kind(), ignore_unknown_fields=True, max_recursion_depth=DEEPEST)


def _with_large_as_text(value: Any) -> Any:
    """Returns JSON with integers that are too large for protobuf, which has only doubles, as text."""
    if isinstance(value, dict):
        return {key: _with_large_as_text(inner) for key, inner in cast("Fields", value).items()}
    if isinstance(value, list):
        return [_with_large_as_text(inner) for inner in cast("list[object]", value)]
    return hex(value) if isinstance(value, int) and abs(value) > _LARGEST else value


_LARGEST: Final = 2**1023


def _card_to_bytes(card: bytes) -> bytes:
    """Converts the card of 0.3 by the SDK: its JSON over HTTP is not that of its protobuf."""
    from a2a.compat.v0_3 import proto_utils, types  # noqa: PLC0415 - loads pydantic, for this method alone

    return proto_utils.ToProto.agent_card(types.AgentCard.model_validate_json(card)).SerializeToString()
