"""The routes of the hub dialect, which a gateway serves at its root for all of its agents."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from synapse.core.caller import AuthMethods
from synapse.core.errors import InvalidRequest
from synapse.core.requests import (
    DeleteTask,
    ForAgent,
    GetAgent,
    GetMessage,
    GetTask,
    IssueTicket,
    ListAgents,
    SendAndFollow,
    SubscribeTask,
)
from synapse.core.store import TaskPage
from synapse.core.task import Task
from synapse.dialects.dialect import NO_STORE, AnyCall, Call, CallRoute, Dialect, StreamCall, WireRequest
from synapse.dialects.hub import parts
from synapse.dialects.hub.decode import about_task, change_request, list_request, send_request
from synapse.dialects.hub.encode import (
    AgentName,
    encode_agent,
    encode_agents,
    encode_error,
    encode_message,
    encode_nothing,
    encode_page,
    encode_sent,
    encode_task,
    encode_ticket,
)
from synapse.dialects.hub.stream import GrowingText, last_position
from synapse.dialects.paths import HUB, HUB_OPERATIONS

Ask = Callable[[WireRequest], AnyCall]


def hub_dialect(agent_name: AgentName, methods: AuthMethods) -> Dialect:
    """Returns the dialect of one gateway, with its names of agents and the credentials that it accepts."""
    asks: dict[str, Ask] = {
        "list_agents": lambda _: Call(ListAgents(), partial(encode_agents, methods=methods), headers=NO_STORE),
        "get_agent": lambda wire: Call(
            GetAgent(wire.params["agentId"]), partial(encode_agent, methods=methods), headers=NO_STORE
        ),
        "send": _send,
        "get_message": partial(_get_message, agent_name),
        "list_tasks": partial(_list_tasks, agent_name),
        "get_task": partial(_get_task, agent_name),
        "change_task": partial(_change_task, agent_name),
        "delete_task": _delete_task,
        "issue_ticket": lambda _: Call(IssueTicket(), encode_ticket, status=201, headers=NO_STORE),
    }
    routes = tuple(
        CallRoute(method=method, path=path, ask=asks[operation]) for operation, (method, path) in HUB_OPERATIONS.items()
    )
    return Dialect(name=HUB, routes=routes, encode_error=encode_error)


def _send(wire: WireRequest) -> AnyCall:
    shape = parts.MESSAGE.read(_body(wire))
    agent = wire.params["agentId"]
    send = send_request(shape)
    if not shape.stream:
        return Call(ForAgent(agent, send), partial(encode_sent, message_id=shape.message_id), status=202)
    position = last_position(wire)
    if position is not None and position.task_id:
        # A caller repeats its request after a broken stream: the message was accepted, so only the rest is sent.
        follow = SubscribeTask(task_id=position.task_id, after=position.seq)
        return StreamCall(ForAgent(agent, follow), GrowingText(position.sent))
    return StreamCall(ForAgent(agent, SendAndFollow(send)), GrowingText(ends_when_asked=True))


def _get_message(agent_name: AgentName, wire: WireRequest) -> Call[Task]:
    message_id = wire.params["messageId"]
    encode = partial(encode_message, message_id=message_id, agent_name=agent_name)
    return Call(GetMessage(message_id), encode)


def _list_tasks(agent_name: AgentName, wire: WireRequest) -> Call[TaskPage]:
    shape = parts.LIST.read_query(wire.query())
    return Call(list_request(shape), partial(encode_page, agent_name=agent_name))


def _get_task(agent_name: AgentName, wire: WireRequest) -> AnyCall:
    """Returns the task, or its stream for a reader of events: browsers resume only with a GET."""
    task_id = wire.params["taskId"]
    if "text/event-stream" not in wire.header(b"accept"):
        request = about_task(task_id, lambda plain: GetTask(plain, exact=True))
        return Call(request, partial(encode_task, agent_name=agent_name))
    position = last_position(wire)
    if position is None:
        return StreamCall(about_task(task_id, lambda plain: SubscribeTask(task_id=plain)), GrowingText())
    after = position.seq
    resume = about_task(task_id, lambda plain: SubscribeTask(task_id=plain, after=after))
    return StreamCall(resume, GrowingText(position.sent))


def _change_task(agent_name: AgentName, wire: WireRequest) -> Call[Task]:
    request = change_request(parts.CHANGE.read(_body(wire)), wire.params["taskId"])
    return Call(request, partial(encode_task, agent_name=agent_name))


def _delete_task(wire: WireRequest) -> Call[Task]:
    request = about_task(wire.params["taskId"], lambda plain: DeleteTask(task_id=plain))
    return Call(request, encode_nothing, status=204)


def _body(wire: WireRequest) -> bytes:
    if not wire.body:
        raise InvalidRequest("the body is empty", hint='send {"message": [{"type": "text", "content": "Hello!"}]}')
    return wire.body
