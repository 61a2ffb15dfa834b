"""The table of the supervisor dialect. Its paths are those below an agent's address, which whoever mounts it puts in
front; that address says which agent is meant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from synapse.core.errors import InvalidRequest
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
from synapse.dialects.dialect import Call, CallRoute, Dialect, StreamCall, WireRequest
from synapse.dialects.supervisor import projection, shapes
from synapse.dialects.supervisor.decoding import list_request, send_request, set_push_request
from synapse.dialects.supervisor.errors import encode_error
from synapse.dialects.supervisor.ids import global_id, plain_id
from synapse.dialects.supervisor.paths import AGENT, NAME, OPERATIONS
from synapse.dialects.supervisor.updates import encode_update, last_event

Ask = Callable[[WireRequest], Call | StreamCall]


def supervisor_dialect() -> Dialect:
    """The dialect as a gateway speaks it below each agent's address."""
    routes = tuple(
        CallRoute(method=method, path=path, ask=_ASKS[operation]) for operation, (method, path) in OPERATIONS.items()
    )
    return Dialect(name=NAME, routes=routes, encode_error=encode_error)


def _send(wire: WireRequest) -> Call:
    shape = shapes.SEND.read(_body(wire))
    agent, configuration = wire.params[AGENT], shape.configuration
    send = send_request(shape, agent)
    encode = partial(projection.encode_task, agent=agent, history_length=configuration.history_length)
    return Call(SendAndWait(send) if configuration.blocking else send, encode)


def _stream(wire: WireRequest) -> StreamCall:
    shape = shapes.SEND.read(_body(wire))
    agent = wire.params[AGENT]
    encode = partial(
        encode_update, agent=agent, history_length=shape.configuration.history_length, ends_when_asked=True
    )
    return StreamCall(SendAndFollow(send_request(shape, agent)), encode)


def _get(wire: WireRequest) -> Call:
    shape = shapes.GET.read_query(wire.query())
    encode = partial(projection.encode_task, agent=wire.params[AGENT], history_length=shape.history_length)
    return Call(GetTask(_task_id(wire), exact=True), encode)


def _list(wire: WireRequest) -> Call:
    query = wire.query()
    shape = shapes.LIST.read_query(query)
    encode = partial(
        projection.encode_page,
        agent=wire.params[AGENT],
        page_size=shape.page_size,
        history_length=shape.history_length,
        artifacts=shape.include_artifacts,
    )
    return Call(list_request(shape, query), encode)


def _cancel(wire: WireRequest) -> Call:
    return Call(CancelTask(_task_id(wire), exact=True), partial(projection.encode_task, agent=wire.params[AGENT]))


def _subscribe(wire: WireRequest) -> StreamCall:
    follow = SubscribeTask(task_id=_task_id(wire), after=last_event(wire))
    return StreamCall(follow, partial(encode_update, agent=wire.params[AGENT]))


def _set_push(wire: WireRequest) -> Call:
    shape = shapes.SET_PUSH.read(_body(wire))
    request = set_push_request(shape, _task_id(wire), wire.params[AGENT])
    return Call(request, partial(projection.encode_push_config, task_id=_global_id(wire)))


def _get_push(wire: WireRequest) -> Call:
    request = GetPushConfig(task_id=_task_id(wire), config_id=wire.params["configId"])
    return Call(request, partial(projection.encode_push_config, task_id=_global_id(wire)))


def _list_push(wire: WireRequest) -> Call:
    encode = partial(projection.encode_push_configs, task_id=_global_id(wire))
    return Call(ListPushConfigs(task_id=_task_id(wire)), encode)


def _delete_push(wire: WireRequest) -> Call:
    request = DeletePushConfig(task_id=_task_id(wire), config_id=wire.params["configId"])
    return Call(request, projection.encode_nothing)


_ASKS: Final[Mapping[str, Ask]] = {
    "send": _send,
    "stream": _stream,
    "list": _list,
    "get": _get,
    "cancel": _cancel,
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
