"""The table of A2A 1.0: its operations as REST paths and as JSON-RPC methods."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from synapse.core.errors import InvalidRequest, RouteNotFound
from synapse.core.wire_errors import InvalidField
from synapse.dialects.a2a_v1 import operations, paths, push, shapes
from synapse.dialects.a2a_v1.errors import encode_error, encode_fault
from synapse.dialects.a2a_v1.paths import MEDIA_TYPE, NAME, ONLY_IN_0_3
from synapse.dialects.a2a_v1.shapes import TaskShape
from synapse.dialects.dialect import Call, CallRoute, Dialect, Params, RpcTable, StreamCall, WireRequest

Ask = Callable[[WireRequest], Call | StreamCall]
AskRpc = Callable[[Params, WireRequest], Call | StreamCall]


def a2a_v1_dialect() -> Dialect:
    """The dialect as one agent host speaks it."""
    routes = tuple(
        CallRoute(method=method, path=path, ask=_REST[operation], media_type=MEDIA_TYPE)
        for method, path, operation in paths.operations()
    )
    rpc = RpcTable(methods=_RPC, encode_fault=encode_fault)
    return Dialect(name=NAME, routes=routes, encode_error=encode_error, rpc=rpc)


def _send(wire: WireRequest) -> Call:
    return operations.send_message(shapes.SEND.read(_body(wire)))


def _stream(wire: WireRequest) -> StreamCall:
    return operations.send_streaming_message(shapes.SEND.read(_body(wire)))


def _get(wire: WireRequest) -> Call:
    return operations.get_task(shapes.GET.read_query(wire.query(), id=wire.params["id"]))


def _list(wire: WireRequest) -> Call:
    return operations.list_tasks(shapes.LIST.read_query(wire.query()))


def _cancel(wire: WireRequest) -> Call:
    return operations.cancel_task(TaskShape(wire.params["id"]))


def _subscribe(wire: WireRequest) -> StreamCall:
    return operations.subscribe_to_task(TaskShape(wire.params["id"]), _last_event(wire))


def _extended_card(_wire: WireRequest) -> Call:
    operations.refuse_extended_card()


def _only_in_0_3(wire: WireRequest) -> Call:
    raise RouteNotFound(f"A2A 1.0 has nothing at {wire.path}", hint="its extended card is at /extendedAgentCard")


_REST: Final[Mapping[str, Ask]] = {
    "send": _send,
    "stream": _stream,
    "list": _list,
    "get": _get,
    "cancel": _cancel,
    "subscribe": _subscribe,
    "push_set": push.create,
    "push_list": push.list_all,
    "push_get": push.get,
    "push_delete": push.delete,
    "extended_card": _extended_card,
    ONLY_IN_0_3: _only_in_0_3,
}

_RPC: Final[Mapping[str, AskRpc]] = {
    "SendMessage": lambda params, _: operations.send_message(shapes.SEND.read(params)),
    "SendStreamingMessage": lambda params, _: operations.send_streaming_message(shapes.SEND.read(params)),
    "GetTask": lambda params, _: operations.get_task(shapes.GET.read(params)),
    "ListTasks": lambda params, _: operations.list_tasks(shapes.LIST.read(params)),
    "CancelTask": lambda params, _: operations.cancel_task(shapes.TASK.read(params)),
    "SubscribeToTask": lambda params, wire: operations.subscribe_to_task(shapes.TASK.read(params), _last_event(wire)),
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
    """The event after which a stream is resumed: our own addition, in the header that event streams have for it."""
    given = wire.header(b"last-event-id")
    if not given:
        return None
    if not (given.isascii() and given.isdigit() and len(given) <= 18):
        raise InvalidField("Last-Event-ID", "must be the id of an event of an earlier stream")
    return int(given)
