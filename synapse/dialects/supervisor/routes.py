"""The routes of the supervisor dialect and its errors.

The gateway mounts the paths below the address of each agent, which names the agent. An error is a JSON-RPC error object
with one of the document's HTTP statuses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from synapse.core import errors
from synapse.core.errors import InvalidRequest, SynapseError
from synapse.core.push import PushConfig
from synapse.core.requests import (
    CancelTask,
    DeletePushConfig,
    GetPushConfig,
    GetTask,
    ListPushConfigs,
    SendAndFollow,
    SendAndWait,
    SubscribeTask,
)
from synapse.core.store import TaskPage
from synapse.core.task import Task
from synapse.dialects.dialect import (
    AGENT,
    AnyCall,
    Call,
    CallRoute,
    Dialect,
    StreamCall,
    WireAnswer,
    WireRequest,
    entry_for,
    error_headers,
)
from synapse.dialects.paths import SUPERVISOR, SUPERVISOR_OPERATIONS
from synapse.dialects.proto_json import to_json
from synapse.dialects.supervisor import decode
from synapse.dialects.supervisor.decode import last_event, list_request, send_request, set_push_request
from synapse.dialects.supervisor.encode import (
    encode_nothing,
    encode_page,
    encode_push_config,
    encode_push_configs,
    encode_task,
    encode_update,
    global_id,
    plain_id,
)

Ask = Callable[[WireRequest], AnyCall]


# The names in the document's two tables, spelt as in its one example.
TITLES: Final[Mapping[int, str]] = {
    -32700: "Parse error",
    -32600: "Invalid Request",
    -32601: "Method not found",
    -32602: "Invalid params",
    -32603: "Internal error",
    -32001: "Task not found error",
    -32002: "Task not cancelable error",
    -32003: "Push notification not supported error",
    -32004: "Unsupported operation error",
    -32005: "Content type not supported error",
}


class ErrorShape(NamedTuple):
    """An error on the wire: a code of the document's tables, and the HTTP status."""

    code: int
    http: int


# The document has no codes for access control. A forbidden operation counts as not supported for this caller; a request
# without credentials, or over the rate limit, counts as not valid.
ERROR_SHAPES: Final[Mapping[type[SynapseError], ErrorShape]] = {
    errors.SynapseError: ErrorShape(-32603, 500),
    errors.InvalidRequest: ErrorShape(-32602, 400),
    errors.BodyTooLarge: ErrorShape(-32600, 400),
    errors.BodyTooSlow: ErrorShape(-32600, 400),
    errors.UnsupportedMediaType: ErrorShape(-32005, 400),
    errors.MethodNotAllowed: ErrorShape(-32601, 405),
    errors.UnsupportedOperation: ErrorShape(-32004, 400),
    errors.MalformedJson: ErrorShape(-32700, 400),
    errors.MalformedCall: ErrorShape(-32600, 400),
    errors.PushNotSupported: ErrorShape(-32003, 400),
    errors.NotFound: ErrorShape(-32602, 404),
    errors.TaskNotFound: ErrorShape(-32001, 404),
    errors.RouteNotFound: ErrorShape(-32601, 404),
    errors.Conflict: ErrorShape(-32004, 400),
    errors.TaskNotCancelable: ErrorShape(-32002, 400),
    errors.MessageIdReused: ErrorShape(-32602, 400),
    errors.QueueFull: ErrorShape(-32600, 429),
    errors.RateLimited: ErrorShape(-32600, 429),
    errors.AccessDenied: ErrorShape(-32004, 403),
    errors.Unauthenticated: ErrorShape(-32600, 401),
}


def supervisor_dialect() -> Dialect:
    """Returns the dialect, which a gateway mounts below each agent's address."""
    routes = tuple(
        CallRoute(method=method, path=path, ask=_ASKS[operation])
        for operation, (method, path) in SUPERVISOR_OPERATIONS.items()
    )
    return Dialect(name=SUPERVISOR, routes=routes, encode_error=encode_error)


def _send(wire: WireRequest) -> Call[Task]:
    shape = decode.SEND.read(_body(wire))
    agent, configuration = wire.params[AGENT], shape.configuration
    send = send_request(shape, agent)
    encode = partial(encode_task, agent=agent, history_length=configuration.history_length)
    return Call(SendAndWait(send) if configuration.blocking else send, encode)


def _stream(wire: WireRequest) -> StreamCall:
    shape = decode.SEND.read(_body(wire))
    agent = wire.params[AGENT]
    encode = partial(
        encode_update, agent=agent, history_length=shape.configuration.history_length, ends_when_asked=True
    )
    return StreamCall(SendAndFollow(send_request(shape, agent)), encode)


def _get(wire: WireRequest) -> Call[Task]:
    shape = decode.GET.read_query(wire.query())
    encode = partial(encode_task, agent=wire.params[AGENT], history_length=shape.history_length)
    return Call(GetTask(_task_id(wire), exact=True), encode)


def _list(wire: WireRequest) -> Call[TaskPage]:
    query = wire.query()
    shape = decode.LIST.read_query(query)
    encode = partial(
        encode_page,
        agent=wire.params[AGENT],
        page_size=shape.page_size,
        history_length=shape.history_length,
        artifacts=shape.include_artifacts,
    )
    return Call(list_request(shape, query), encode)


def _subscribe(wire: WireRequest) -> StreamCall:
    follow = SubscribeTask(task_id=_task_id(wire), after=last_event(wire))
    return StreamCall(follow, partial(encode_update, agent=wire.params[AGENT]))


def _set_push(wire: WireRequest) -> Call[PushConfig]:
    shape = decode.SET_PUSH.read(_body(wire))
    request = set_push_request(shape, _task_id(wire), wire.params[AGENT])
    return Call(request, partial(encode_push_config, task_id=_global_id(wire)))


def _get_push(wire: WireRequest) -> Call[PushConfig]:
    request = GetPushConfig(task_id=_task_id(wire), config_id=wire.params["configId"])
    return Call(request, partial(encode_push_config, task_id=_global_id(wire)))


def _list_push(wire: WireRequest) -> Call[tuple[PushConfig, ...]]:
    encode = partial(encode_push_configs, task_id=_global_id(wire))
    return Call(ListPushConfigs(task_id=_task_id(wire)), encode)


def _delete_push(wire: WireRequest) -> Call[None]:
    request = DeletePushConfig(task_id=_task_id(wire), config_id=wire.params["configId"])
    return Call(request, encode_nothing)


_ASKS: Final[Mapping[str, Ask]] = {
    "send": _send,
    "stream": _stream,
    "list": _list,
    "get": _get,
    "cancel": lambda wire: Call(CancelTask(_task_id(wire), exact=True), partial(encode_task, agent=wire.params[AGENT])),
    "subscribe": _subscribe,
    "set_push": _set_push,
    "list_push": _list_push,
    "get_push": _get_push,
    "delete_push": _delete_push,
}


def _task_id(wire: WireRequest) -> str:
    return plain_id(wire.params["id"], wire.params[AGENT])


def _global_id(wire: WireRequest) -> str:
    return global_id(_task_id(wire), wire.params[AGENT])


def _body(wire: WireRequest) -> bytes:
    if not wire.body:
        raise InvalidRequest("the body is empty", hint='send {"message": {"content": "Hello!", "role": "user"}}')
    return wire.body


def error_shape(kind: type[SynapseError]) -> ErrorShape:
    """Returns the shape of the error class, or of its nearest ancestor that has one."""
    return entry_for(kind, ERROR_SHAPES)


def encode_error(error: SynapseError) -> WireAnswer:
    """Returns the answer for `error`: the document's name of it, then the error's message and hint."""
    shape = error_shape(type(error))
    data = f"{error}; {error.hint}" if error.hint else str(error)
    body: dict[str, Any] = {"code": shape.code, "message": TITLES[shape.code], "data": data}
    return WireAnswer(shape.http, to_json({"error": body}), error_headers(error))
