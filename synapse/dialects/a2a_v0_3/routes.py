"""The table of A2A 0.3: its operations as REST paths and as JSON-RPC methods."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from synapse.core.errors import InvalidRequest, RouteNotFound
from synapse.core.events import Update
from synapse.core.requests import CancelTask, FollowTask, GetTask, SendAndFollow, SendAndWait
from synapse.core.wire_errors import ExtendedCardMissing, InvalidField
from synapse.dialects.a2a_v0_3 import projection, proto_projection, push, shapes
from synapse.dialects.a2a_v0_3.decoding import proto_send_request, send_request
from synapse.dialects.a2a_v0_3.errors import encode_error, encode_fault
from synapse.dialects.a2a_v0_3.paths import NAME, OPERATIONS, PREFIXES
from synapse.dialects.dialect import Call, CallRoute, Dialect, Params, RpcTable, StreamCall, WireEvent, WireRequest

Ask = Callable[[WireRequest], Call | StreamCall]
AskRpc = Callable[[Params, WireRequest], Call | StreamCall]
EncodeUpdate = Callable[[Update], bytes | None]


def a2a_v0_3_dialect() -> Dialect:
    """The dialect as one agent host speaks it."""
    routes = tuple(
        CallRoute(method=method, path=prefix + path, ask=_REST[operation])
        for prefix in PREFIXES
        for operation, places in OPERATIONS.items()
        for method, path in places
    )
    # The SDKs of 0.3 look at the type of the answer first, and tell of an error only what a stream brings.
    streams = frozenset({"message/stream", "tasks/resubscribe"})
    rpc = RpcTable(methods=_RPC, encode_fault=encode_fault, faults_as_events=streams)
    return Dialect(name=NAME, routes=routes, encode_error=encode_error, rpc=rpc)


def _send(wire: WireRequest) -> Call:
    shape = shapes.PROTO_SEND.read(_body(wire))
    send, configuration = proto_send_request(shape), shape.configuration
    if configuration is None:
        return Call(SendAndWait(send), proto_projection.encode_sent)
    encode = partial(proto_projection.encode_sent, history_length=configuration.history_length)
    # Protobuf leaves a false out, so a configuration that does not say blocking means that it is not.
    return Call(SendAndWait(send) if configuration.blocking else send, encode)


def _stream(wire: WireRequest) -> StreamCall:
    send = proto_send_request(shapes.PROTO_SEND.read(_body(wire)))
    return StreamCall(SendAndFollow(send), _events(partial(proto_projection.encode_update, ends_when_asked=True)))


def _get(wire: WireRequest) -> Call:
    shape = shapes.GET.read_query(wire.query(), id=wire.params["id"])
    encode = partial(proto_projection.encode_task, history_length=shape.history_length)
    return Call(GetTask(shape.id, exact=True), encode)


def _cancel(wire: WireRequest) -> Call:
    return Call(CancelTask(wire.params["id"], exact=True), proto_projection.encode_task)


def _subscribe(wire: WireRequest) -> StreamCall:
    follow = FollowTask(task_id=wire.params["id"], after=_last_event(wire))
    return StreamCall(follow, _events(proto_projection.encode_update))


def _extended_card(_wire: WireRequest) -> Call:
    raise ExtendedCardMissing


def _only_in_1_0(wire: WireRequest) -> Call:
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


def _rpc_send(params: Params, _wire: WireRequest) -> Call:
    shape = shapes.SEND.read(params)
    send, configuration = send_request(shape), shape.configuration
    if configuration is None:
        return Call(SendAndWait(send), projection.encode_sent)
    encode = partial(projection.encode_sent, history_length=configuration.history_length)
    return Call(send if configuration.blocking is False else SendAndWait(send), encode)


def _rpc_stream(params: Params, _wire: WireRequest) -> StreamCall:
    send = send_request(shapes.SEND.read(params))
    return StreamCall(SendAndFollow(send), _events(partial(projection.encode_update, ends_when_asked=True)))


def _rpc_get(params: Params, _wire: WireRequest) -> Call:
    shape = shapes.GET.read(params)
    encode = partial(projection.encode_task, history_length=shape.history_length)
    return Call(GetTask(shape.id, exact=True), encode)


def _rpc_cancel(params: Params, _wire: WireRequest) -> Call:
    return Call(CancelTask(shapes.TASK.read(params).id, exact=True), projection.encode_task)


def _rpc_resubscribe(params: Params, wire: WireRequest) -> StreamCall:
    follow = FollowTask(task_id=shapes.TASK.read(params).id, after=_last_event(wire))
    return StreamCall(follow, _events(projection.encode_update))


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
