"""The routes of A2A 0.3: its operations as REST paths and JSON-RPC methods, and its errors.

An error is a code in JSON-RPC; in REST it is an HTTP status and a name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, NoReturn

from synapse.core import errors
from synapse.core.errors import ExtendedCardMissing, InvalidField, InvalidRequest, RouteNotFound, SynapseError
from synapse.core.events import Update
from synapse.core.requests import CancelTask, FollowTask, GetTask, SendAndFollow, SendAndWait
from synapse.core.task import Task
from synapse.dialects.a2a_v0_3 import decode, push
from synapse.dialects.a2a_v0_3.decode import proto_send_request, send_request
from synapse.dialects.a2a_v0_3.encode import JSON_RPC, PROTO_JSON
from synapse.dialects.dialect import (
    AnyCall,
    Call,
    CallRoute,
    Dialect,
    Params,
    RpcTable,
    StreamCall,
    WireAnswer,
    WireEvent,
    WireRequest,
    entry_for,
    error_headers,
)
from synapse.dialects.paths import A2A_V0_3, A2A_V0_3_OPERATIONS, A2A_V0_3_PREFIXES
from synapse.dialects.proto_json import to_json

Ask = Callable[[WireRequest], AnyCall]
AskRpc = Callable[[Params, WireRequest], AnyCall]
EncodeUpdate = Callable[[Update], bytes | None]


class ErrorShape(NamedTuple):
    """An error on the wire: its JSON-RPC code, and the HTTP status and name that REST clients get."""

    code: int
    http: int
    name: str


# -32000 is JSON-RPC's code for errors that a server defines itself: A2A 0.3 has neither a code nor a name for these.
ERROR_SHAPES: Final[Mapping[type[SynapseError], ErrorShape]] = {
    errors.SynapseError: ErrorShape(-32603, 500, "InternalError"),
    errors.InvalidRequest: ErrorShape(-32602, 400, "InvalidParamsError"),
    errors.BodyTooLarge: ErrorShape(-32600, 413, "InvalidRequestError"),
    errors.BodyTooSlow: ErrorShape(-32600, 408, "InvalidRequestError"),
    errors.UnsupportedMediaType: ErrorShape(-32005, 415, "ContentTypeNotSupportedError"),
    errors.MethodNotAllowed: ErrorShape(-32601, 405, "MethodNotFoundError"),
    errors.UnsupportedOperation: ErrorShape(-32004, 400, "UnsupportedOperationError"),
    errors.MalformedJson: ErrorShape(-32700, 400, "JSONParseError"),
    errors.MalformedCall: ErrorShape(-32600, 400, "InvalidRequestError"),
    errors.PushNotSupported: ErrorShape(-32003, 400, "PushNotificationNotSupportedError"),
    errors.ExtendedCardMissing: ErrorShape(-32007, 404, "AuthenticatedExtendedCardNotConfiguredError"),
    errors.NotFound: ErrorShape(-32602, 404, "InvalidParamsError"),
    errors.TaskNotFound: ErrorShape(-32001, 404, "TaskNotFoundError"),
    errors.RouteNotFound: ErrorShape(-32601, 404, "MethodNotFoundError"),
    errors.Conflict: ErrorShape(-32004, 409, "UnsupportedOperationError"),
    errors.TaskNotCancelable: ErrorShape(-32002, 409, "TaskNotCancelableError"),
    errors.MessageIdReused: ErrorShape(-32602, 409, "InvalidParamsError"),
    errors.QueueFull: ErrorShape(-32000, 429, "QueueFullError"),
    errors.RateLimited: ErrorShape(-32000, 429, "RateLimitedError"),
    errors.AccessDenied: ErrorShape(-32000, 403, "PermissionDeniedError"),
    errors.Unauthenticated: ErrorShape(-32000, 401, "UnauthenticatedError"),
    errors.AgentFailed: ErrorShape(-32000, 503, "AgentUnavailableError"),
    errors.OutcomeUnknown: ErrorShape(-32000, 503, "OutcomeUnknownError"),
    errors.ExternalAgentFailed: ErrorShape(-32006, 502, "InvalidAgentResponseError"),
    errors.WaitTimedOut: ErrorShape(-32000, 504, "TimeoutError"),
    errors.WaitingForPerson: ErrorShape(-32000, 409, "WaitingForPersonError"),
    errors.StoreFailed: ErrorShape(-32603, 503, "InternalError"),
}


def a2a_v0_3_dialect() -> Dialect:
    """Returns the dialect as the host of one agent serves it."""
    routes = tuple(
        CallRoute(method=method, path=prefix + path, ask=_REST[operation])
        for prefix in A2A_V0_3_PREFIXES
        for operation, places in A2A_V0_3_OPERATIONS.items()
        for method, path in places
    )
    # The SDKs of 0.3 check the answer's media type first, and report only errors that arrive in a stream.
    streams = frozenset({"message/stream", "tasks/resubscribe"})
    rpc = RpcTable(methods=_RPC, encode_fault=encode_fault, faults_as_events=streams)
    return Dialect(name=A2A_V0_3, routes=routes, encode_error=encode_error, rpc=rpc)


def _send(wire: WireRequest) -> Call[Task]:
    shape = decode.PROTO_SEND.read(_body(wire))
    send, configuration = proto_send_request(shape), shape.configuration
    if configuration is None:
        return Call(SendAndWait(send), PROTO_JSON.encode_sent)
    encode = partial(PROTO_JSON.encode_sent, history_length=configuration.history_length)
    # Protobuf leaves out false, so a configuration without `blocking` means not blocking.
    return Call(SendAndWait(send) if configuration.blocking else send, encode)


def _stream(wire: WireRequest) -> StreamCall:
    send = proto_send_request(decode.PROTO_SEND.read(_body(wire)))
    return StreamCall(SendAndFollow(send), _events(partial(PROTO_JSON.encode_update, ends_when_asked=True)))


def _get(wire: WireRequest) -> Call[Task]:
    shape = decode.GET.read_query(wire.query(), id=wire.params["id"])
    encode = partial(PROTO_JSON.encode_task, history_length=shape.history_length)
    return Call(GetTask(shape.id, exact=True), encode)


def _subscribe(wire: WireRequest) -> StreamCall:
    follow = FollowTask(task_id=wire.params["id"], after=_last_event(wire))
    return StreamCall(follow, _events(PROTO_JSON.encode_update))


def _extended_card(_wire: WireRequest) -> NoReturn:
    raise ExtendedCardMissing


def _only_in_1_0(wire: WireRequest) -> NoReturn:
    raise RouteNotFound(f"A2A 0.3 has nothing at {wire.path}", hint="send `A2A-Version: 1.0` to use A2A 1.0")


_REST: Final[Mapping[str, Ask]] = {
    "send": _send,
    "stream": _stream,
    "get": _get,
    "cancel": lambda wire: Call(CancelTask(wire.params["id"], exact=True), PROTO_JSON.encode_task),
    "subscribe": _subscribe,
    "push_set": push.set_config,
    "push_list": push.list_all,
    "push_get": push.get,
    "push_delete": push.delete,
    "extended_card": _extended_card,
    "only_in_1_0": _only_in_1_0,
}


def _rpc_send(params: Params, _wire: WireRequest) -> Call[Task]:
    shape = decode.SEND.read(params)
    send, configuration = send_request(shape), shape.configuration
    if configuration is None:
        return Call(SendAndWait(send), JSON_RPC.encode_sent)
    encode = partial(JSON_RPC.encode_sent, history_length=configuration.history_length)
    return Call(send if configuration.blocking is False else SendAndWait(send), encode)


def _rpc_stream(params: Params, _wire: WireRequest) -> StreamCall:
    send = send_request(decode.SEND.read(params))
    return StreamCall(SendAndFollow(send), _events(partial(JSON_RPC.encode_update, ends_when_asked=True)))


def _rpc_get(params: Params, _wire: WireRequest) -> Call[Task]:
    shape = decode.GET.read(params)
    encode = partial(JSON_RPC.encode_task, history_length=shape.history_length)
    return Call(GetTask(shape.id, exact=True), encode)


def _rpc_resubscribe(params: Params, wire: WireRequest) -> StreamCall:
    follow = FollowTask(task_id=decode.TASK.read(params).id, after=_last_event(wire))
    return StreamCall(follow, _events(JSON_RPC.encode_update))


_RPC: Final[Mapping[str, AskRpc]] = {
    "message/send": _rpc_send,
    "message/stream": _rpc_stream,
    "tasks/get": _rpc_get,
    "tasks/cancel": lambda params, _: Call(CancelTask(decode.TASK.read(params).id, exact=True), JSON_RPC.encode_task),
    "tasks/resubscribe": _rpc_resubscribe,
    "tasks/pushNotificationConfig/set": push.rpc_set,
    "tasks/pushNotificationConfig/get": push.rpc_get,
    "tasks/pushNotificationConfig/list": push.rpc_list,
    "tasks/pushNotificationConfig/delete": push.rpc_delete,
    "agent/getAuthenticatedExtendedCard": lambda _, wire: _extended_card(wire),
}


def _events(encode: EncodeUpdate) -> Callable[[Update], WireEvent | None]:
    def event(update: Update) -> WireEvent | None:
        data = encode(update)
        return None if data is None else WireEvent(str(update.seq), "", data)

    return event


def _body(wire: WireRequest) -> bytes:
    if not wire.body:
        raise InvalidRequest("the body is empty")
    return wire.body


def _last_event(wire: WireRequest) -> int | None:
    """Returns the event after which to resume a stream. A2A 0.3 has no such option; event streams have this header."""
    given = wire.header(b"last-event-id")
    if not given:
        return None
    if not (given.isascii() and given.isdigit() and len(given) <= 18):
        raise InvalidField("Last-Event-ID", "must be the id of an event of an earlier stream")
    return int(given)


def error_shape(kind: type[SynapseError]) -> ErrorShape:
    """Returns the shape of the error class, or of its nearest ancestor that has one."""
    return entry_for(kind, ERROR_SHAPES)


def encode_error(error: SynapseError) -> WireAnswer:
    """Returns the REST answer for `error`."""
    shape = error_shape(type(error))
    return WireAnswer(shape.http, to_json({"type": shape.name, "message": str(error)}), error_headers(error))


def encode_fault(error: SynapseError) -> bytes:
    """Returns the JSON-RPC error object for `error`."""
    wire: dict[str, Any] = {"code": error_shape(type(error)).code, "message": str(error)}
    data = {"hint": error.hint} if error.hint else {}
    if isinstance(error, InvalidField):
        data["field"] = error.field
    return to_json({**wire, "data": data} if data else wire)
