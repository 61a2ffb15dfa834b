"""The table of A2A 0.3: its operations as REST paths and as JSON-RPC methods.

How A2A 0.3 says that something is wrong: a JSON-RPC code, or in REST a status and the error's name.
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
from synapse.dialects.a2a_v0_3.encode import (
    encode_proto_sent,
    encode_proto_task,
    encode_proto_update,
    encode_sent,
    encode_task,
    encode_update,
)
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
    error_headers,
)
from synapse.dialects.paths import A2A_V0_3, A2A_V0_3_OPERATIONS, A2A_V0_3_PREFIXES
from synapse.dialects.proto_json import to_json

Ask = Callable[[WireRequest], AnyCall]
AskRpc = Callable[[Params, WireRequest], AnyCall]
EncodeUpdate = Callable[[Update], bytes | None]


def a2a_v0_3_dialect() -> Dialect:
    """The dialect as one agent host speaks it."""
    routes = tuple(
        CallRoute(method=method, path=prefix + path, ask=_REST[operation])
        for prefix in A2A_V0_3_PREFIXES
        for operation, places in A2A_V0_3_OPERATIONS.items()
        for method, path in places
    )
    # The SDKs of 0.3 look at the type of the answer first, and tell of an error only what a stream brings.
    streams = frozenset({"message/stream", "tasks/resubscribe"})
    rpc = RpcTable(methods=_RPC, encode_fault=encode_fault, faults_as_events=streams)
    return Dialect(name=A2A_V0_3, routes=routes, encode_error=encode_error, rpc=rpc)


def _send(wire: WireRequest) -> Call[Task]:
    shape = decode.PROTO_SEND.read(_body(wire))
    send, configuration = proto_send_request(shape), shape.configuration
    if configuration is None:
        return Call(SendAndWait(send), encode_proto_sent)
    encode = partial(encode_proto_sent, history_length=configuration.history_length)
    # Protobuf leaves a false out, so a configuration that does not say blocking means that it is not.
    return Call(SendAndWait(send) if configuration.blocking else send, encode)


def _stream(wire: WireRequest) -> StreamCall:
    send = proto_send_request(decode.PROTO_SEND.read(_body(wire)))
    return StreamCall(SendAndFollow(send), _events(partial(encode_proto_update, ends_when_asked=True)))


def _get(wire: WireRequest) -> Call[Task]:
    shape = decode.GET.read_query(wire.query(), id=wire.params["id"])
    encode = partial(encode_proto_task, history_length=shape.history_length)
    return Call(GetTask(shape.id, exact=True), encode)


def _cancel(wire: WireRequest) -> Call[Task]:
    return Call(CancelTask(wire.params["id"], exact=True), encode_proto_task)


def _subscribe(wire: WireRequest) -> StreamCall:
    follow = FollowTask(task_id=wire.params["id"], after=_last_event(wire))
    return StreamCall(follow, _events(encode_proto_update))


def _extended_card(_wire: WireRequest) -> NoReturn:
    raise ExtendedCardMissing


def _only_in_1_0(wire: WireRequest) -> NoReturn:
    raise RouteNotFound(f"A2A 0.3 has nothing at {wire.path}", hint="say `A2A-Version: 1.0` if you mean that")


_REST: Final[Mapping[str, Ask]] = {
    "send": _send,
    "stream": _stream,
    "get": _get,
    "cancel": _cancel,
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
        return Call(SendAndWait(send), encode_sent)
    encode = partial(encode_sent, history_length=configuration.history_length)
    return Call(send if configuration.blocking is False else SendAndWait(send), encode)


def _rpc_stream(params: Params, _wire: WireRequest) -> StreamCall:
    send = send_request(decode.SEND.read(params))
    return StreamCall(SendAndFollow(send), _events(partial(encode_update, ends_when_asked=True)))


def _rpc_get(params: Params, _wire: WireRequest) -> Call[Task]:
    shape = decode.GET.read(params)
    encode = partial(encode_task, history_length=shape.history_length)
    return Call(GetTask(shape.id, exact=True), encode)


def _rpc_cancel(params: Params, _wire: WireRequest) -> Call[Task]:
    return Call(CancelTask(decode.TASK.read(params).id, exact=True), encode_task)


def _rpc_resubscribe(params: Params, wire: WireRequest) -> StreamCall:
    follow = FollowTask(task_id=decode.TASK.read(params).id, after=_last_event(wire))
    return StreamCall(follow, _events(encode_update))


_RPC: Final[Mapping[str, AskRpc]] = {
    "message/send": _rpc_send,
    "message/stream": _rpc_stream,
    "tasks/get": _rpc_get,
    "tasks/cancel": _rpc_cancel,
    "tasks/resubscribe": _rpc_resubscribe,
    "tasks/pushNotificationConfig/set": push.rpc_set,
    "tasks/pushNotificationConfig/get": push.rpc_get,
    "tasks/pushNotificationConfig/list": push.rpc_list,
    "tasks/pushNotificationConfig/delete": push.rpc_delete,
    "agent/getAuthenticatedExtendedCard": lambda _, wire: _extended_card(wire),
}


def _events(encode: EncodeUpdate) -> Callable[[Update], WireEvent | None]:
    def event(update: Update) -> WireEvent | None:
        told = encode(update)
        return None if told is None else WireEvent(str(update.seq), "", told)

    return event


def _body(wire: WireRequest) -> bytes:
    if not wire.body:
        raise InvalidRequest("the body is empty")
    return wire.body


def _last_event(wire: WireRequest) -> int | None:
    """The event after which a stream is resumed: our own addition, in the header that event streams have for it."""
    given = wire.header(b"last-event-id")
    if not given:
        return None
    if not (given.isascii() and given.isdigit() and len(given) <= 18):
        raise InvalidField("Last-Event-ID", "must be the id of an event of an earlier stream")
    return int(given)


class ErrorShape(NamedTuple):
    """One row: the JSON-RPC code, the HTTP status, and the name that REST clients know the error by."""

    code: int
    http: int
    name: str


# -32000 is JSON-RPC's code for what a server refuses by rules of its own; A2A 0.3 has no code and no name for these.
FAULTS: Final[Mapping[type[SynapseError], ErrorShape]] = {
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


def fault_of(kind: type[SynapseError]) -> ErrorShape:
    """The row of the nearest class that has one."""
    return next(FAULTS[ancestor] for ancestor in kind.__mro__ if ancestor in FAULTS)


def encode_error(error: SynapseError) -> WireAnswer:
    """The REST answer that tells `error`."""
    fault = fault_of(type(error))
    return WireAnswer(fault.http, to_json({"type": fault.name, "message": str(error)}), error_headers(error))


def encode_fault(error: SynapseError) -> bytes:
    """The error object of JSON-RPC that tells `error`."""
    told: dict[str, Any] = {"code": fault_of(type(error)).code, "message": str(error)}
    data = {"hint": error.hint} if error.hint else {}
    if isinstance(error, InvalidField):
        data["field"] = error.field
    return to_json({**told, "data": data} if data else told)
