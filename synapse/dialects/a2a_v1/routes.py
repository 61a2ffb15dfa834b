"""The routes of A2A 1.0: its operations as REST paths and JSON-RPC methods, and its errors.

Errors follow the table of 1.0.1, with ErrorInfo, in JSON-RPC and REST. gRPC uses the operations and the table too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, NoReturn

from synapse.core import errors
from synapse.core.errors import InvalidField, InvalidRequest, RouteNotFound, SynapseError, UnsupportedOperation
from synapse.core.events import Update
from synapse.core.requests import CancelTask, FollowTask, GetTask, SendAndFollow, SendAndWait
from synapse.core.store import TaskPage
from synapse.core.task import Task
from synapse.dialects.a2a_v1 import decode, push
from synapse.dialects.a2a_v1.decode import GetShape, ListShape, SendShape, TaskShape, list_request, send_request
from synapse.dialects.a2a_v1.encode import encode_page, encode_sent, encode_task, encode_update
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
from synapse.dialects.paths import A2A_V1, MEDIA_TYPE, ONLY_IN_0_3, a2a_v1_operations
from synapse.dialects.proto_json import to_json

Ask = Callable[[WireRequest], AnyCall]
AskRpc = Callable[[Params, WireRequest], AnyCall]

DOMAIN: Final = "a2a-protocol.org"

_ERROR_INFO: Final = "type.googleapis.com/google.rpc.ErrorInfo"
_BAD_REQUEST: Final = "type.googleapis.com/google.rpc.BadRequest"


class ErrorShape(NamedTuple):
    """An error on the wire: its JSON-RPC code, its gRPC status, which REST bodies have too, its HTTP status, and
    ErrorInfo's reason."""

    code: int
    status: str
    http: int
    reason: str


# -32000 is JSON-RPC's code for errors that a server defines itself: A2A has no code for these.
ERROR_SHAPES: Final[Mapping[type[SynapseError], ErrorShape]] = {
    errors.SynapseError: ErrorShape(-32603, "INTERNAL", 500, "INTERNAL_ERROR"),
    errors.InvalidRequest: ErrorShape(-32602, "INVALID_ARGUMENT", 400, "INVALID_PARAMS"),
    errors.BodyTooLarge: ErrorShape(-32600, "INVALID_ARGUMENT", 413, "INVALID_REQUEST"),
    errors.BodyTooSlow: ErrorShape(-32600, "DEADLINE_EXCEEDED", 408, "INVALID_REQUEST"),
    errors.UnsupportedMediaType: ErrorShape(-32005, "INVALID_ARGUMENT", 400, "CONTENT_TYPE_NOT_SUPPORTED"),
    errors.MethodNotAllowed: ErrorShape(-32601, "UNIMPLEMENTED", 405, "METHOD_NOT_FOUND"),
    errors.UnsupportedOperation: ErrorShape(-32004, "FAILED_PRECONDITION", 400, "UNSUPPORTED_OPERATION"),
    errors.MalformedJson: ErrorShape(-32700, "INVALID_ARGUMENT", 400, "INVALID_REQUEST"),
    errors.MalformedCall: ErrorShape(-32600, "INVALID_ARGUMENT", 400, "INVALID_REQUEST"),
    errors.PushNotSupported: ErrorShape(-32003, "FAILED_PRECONDITION", 400, "PUSH_NOTIFICATION_NOT_SUPPORTED"),
    errors.ExtendedCardMissing: ErrorShape(-32007, "FAILED_PRECONDITION", 400, "EXTENDED_AGENT_CARD_NOT_CONFIGURED"),
    errors.ExtensionRequired: ErrorShape(-32008, "FAILED_PRECONDITION", 400, "EXTENSION_SUPPORT_REQUIRED"),
    errors.VersionNotSupported: ErrorShape(-32009, "FAILED_PRECONDITION", 400, "VERSION_NOT_SUPPORTED"),
    errors.NotFound: ErrorShape(-32602, "NOT_FOUND", 404, "NOT_FOUND"),
    errors.TaskNotFound: ErrorShape(-32001, "NOT_FOUND", 404, "TASK_NOT_FOUND"),
    errors.RouteNotFound: ErrorShape(-32601, "NOT_FOUND", 404, "METHOD_NOT_FOUND"),
    # A message to a finished task, or to one that did not ask for input (1.0 §3.1.1).
    errors.Conflict: ErrorShape(-32004, "FAILED_PRECONDITION", 400, "UNSUPPORTED_OPERATION"),
    errors.TaskNotCancelable: ErrorShape(-32002, "FAILED_PRECONDITION", 400, "TASK_NOT_CANCELABLE"),
    errors.MessageIdReused: ErrorShape(-32602, "INVALID_ARGUMENT", 400, "INVALID_PARAMS"),
    errors.VersionConflict: ErrorShape(-32000, "ABORTED", 409, "VERSION_CONFLICT"),
    errors.QueueFull: ErrorShape(-32000, "RESOURCE_EXHAUSTED", 429, "QUEUE_FULL"),
    errors.QuotaExceeded: ErrorShape(-32000, "RESOURCE_EXHAUSTED", 429, "QUOTA_EXCEEDED"),
    errors.FeedLagged: ErrorShape(-32000, "ABORTED", 409, "FEED_LAGGED"),
    errors.RateLimited: ErrorShape(-32000, "RESOURCE_EXHAUSTED", 429, "RATE_LIMITED"),
    errors.AccessDenied: ErrorShape(-32000, "PERMISSION_DENIED", 403, "PERMISSION_DENIED"),
    errors.Unauthenticated: ErrorShape(-32000, "UNAUTHENTICATED", 401, "UNAUTHENTICATED"),
    errors.AgentFailed: ErrorShape(-32000, "UNAVAILABLE", 503, "AGENT_UNAVAILABLE"),
    errors.OutcomeUnknown: ErrorShape(-32000, "UNAVAILABLE", 503, "OUTCOME_UNKNOWN"),
    errors.ExternalAgentFailed: ErrorShape(-32006, "INTERNAL", 500, "INVALID_AGENT_RESPONSE"),
    errors.WaitTimedOut: ErrorShape(-32000, "DEADLINE_EXCEEDED", 504, "TIMEOUT"),
    errors.WaitingForPerson: ErrorShape(-32000, "FAILED_PRECONDITION", 409, "WAITING_FOR_PERSON"),
    errors.StoreFailed: ErrorShape(-32603, "UNAVAILABLE", 503, "STORE_FAILED"),
}


def a2a_v1_dialect() -> Dialect:
    """Returns the dialect as the host of one agent serves it."""
    routes = tuple(
        CallRoute(method=method, path=path, ask=_REST[operation], media_type=MEDIA_TYPE)
        for method, path, operation in a2a_v1_operations()
    )
    rpc = RpcTable(methods=_RPC, encode_fault=encode_fault)
    return Dialect(name=A2A_V1, routes=routes, encode_error=encode_error, rpc=rpc)


def send_message(shape: SendShape) -> Call[Task]:
    """Waits until the task ends or asks for input, unless the caller wants an answer at once (1.0 §3.2.2)."""
    send = send_request(shape)
    encode = partial(encode_sent, history_length=_history_length(shape))
    if shape.configuration is not None and shape.configuration.return_immediately:
        return Call(send, encode)
    return Call(SendAndWait(send), encode)


def send_streaming_message(shape: SendShape) -> StreamCall:
    return StreamCall(SendAndFollow(send_request(shape)), partial(_event, history_length=_history_length(shape)))


def get_task(shape: GetShape) -> Call[Task]:
    encode = partial(encode_task, history_length=shape.history_length)
    return Call(GetTask(shape.id, exact=True), encode)


def list_tasks(shape: ListShape) -> Call[TaskPage]:
    encode = partial(
        encode_page,
        page_size=shape.page_size,
        history_length=shape.history_length,
        artifacts=shape.include_artifacts,
    )
    return Call(list_request(shape), encode)


def cancel_task(shape: TaskShape) -> Call[Task]:
    return Call(CancelTask(shape.id, exact=True), encode_task)


def subscribe_to_task(shape: TaskShape, after: int | None = None) -> StreamCall:
    """Follows a task. `after` is the id of the last event that the caller got from an earlier stream."""
    return StreamCall(FollowTask(task_id=shape.id, after=after), _event)


def _event(update: Update, history_length: int | None = None) -> WireEvent | None:
    data = encode_update(update, history_length)
    return None if data is None else WireEvent(str(update.seq), "", data)


def _history_length(shape: SendShape) -> int | None:
    return shape.configuration.history_length if shape.configuration is not None else None


def _extended_card(_wire: WireRequest) -> NoReturn:
    # 1.0 §3.1.11: an agent that does not declare the capability does not support the operation.
    raise UnsupportedOperation("this agent has no extended card")


def _only_in_0_3(wire: WireRequest) -> NoReturn:
    raise RouteNotFound(f"A2A 1.0 has nothing at {wire.path}", hint="its extended card is at /extendedAgentCard")


_REST: Final[Mapping[str, Ask]] = {
    "send": lambda wire: send_message(decode.SEND.read(_body(wire))),
    "stream": lambda wire: send_streaming_message(decode.SEND.read(_body(wire))),
    "list": lambda wire: list_tasks(decode.LIST.read_query(wire.query())),
    "get": lambda wire: get_task(decode.GET.read_query(wire.query(), id=wire.params["id"])),
    "cancel": lambda wire: cancel_task(TaskShape(wire.params["id"])),
    "subscribe": lambda wire: subscribe_to_task(TaskShape(wire.params["id"]), _last_event(wire)),
    "push_set": push.create,
    "push_list": push.list_all,
    "push_get": push.get,
    "push_delete": push.delete,
    "extended_card": _extended_card,
    ONLY_IN_0_3: _only_in_0_3,
}

_RPC: Final[Mapping[str, AskRpc]] = {
    "SendMessage": lambda params, _: send_message(decode.SEND.read(params)),
    "SendStreamingMessage": lambda params, _: send_streaming_message(decode.SEND.read(params)),
    "GetTask": lambda params, _: get_task(decode.GET.read(params)),
    "ListTasks": lambda params, _: list_tasks(decode.LIST.read(params)),
    "CancelTask": lambda params, _: cancel_task(decode.TASK.read(params)),
    "SubscribeToTask": lambda params, wire: subscribe_to_task(decode.TASK.read(params), _last_event(wire)),
    "CreateTaskPushNotificationConfig": push.rpc_create,
    "GetTaskPushNotificationConfig": push.rpc_get,
    "ListTaskPushNotificationConfigs": push.rpc_list,
    "DeleteTaskPushNotificationConfig": push.rpc_delete,
    "GetExtendedAgentCard": lambda _, wire: _extended_card(wire),
}


def _body(wire: WireRequest) -> bytes:
    if not wire.body:
        raise InvalidRequest("the body is empty")
    return wire.body


def _last_event(wire: WireRequest) -> int | None:
    """Returns the event after which to resume a stream. A2A has no such option; event streams have this header."""
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
    body = {"code": shape.http, "status": shape.status, "message": str(error), "details": _details(error, shape)}
    return WireAnswer(shape.http, to_json({"error": body}), error_headers(error), MEDIA_TYPE)


def encode_fault(error: SynapseError) -> bytes:
    """Returns the JSON-RPC error object for `error`."""
    shape = error_shape(type(error))
    return to_json({"code": shape.code, "message": str(error), "data": _details(error, shape)})


def _details(error: SynapseError, shape: ErrorShape) -> list[dict[str, Any]]:
    info: dict[str, Any] = {"@type": _ERROR_INFO, "reason": shape.reason, "domain": DOMAIN}
    if error.hint:
        info["metadata"] = {"hint": error.hint}
    if not isinstance(error, InvalidField):
        return [info]
    violation = {"field": error.field, "description": error.why}
    return [info, {"@type": _BAD_REQUEST, "fieldViolations": [violation]}]
