"""The routes of the dashboard's API, which a gateway serves below `/dashboard` for all of its agents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from synapse.core.requests import CancelTask, ForAgent, GetAgentOverview, GetOverview, GetTask
from synapse.core.store import TaskPage
from synapse.core.task import Task
from synapse.dialects.dashboard import decode, encode
from synapse.dialects.dashboard.decode import TASK
from synapse.dialects.dashboard.encode import AgentName
from synapse.dialects.dialect import (
    AGENT,
    NO_STORE,
    AnyCall,
    AnyRoute,
    Call,
    CallRoute,
    Dialect,
    StreamCall,
    StreamRoute,
    WireRequest,
)
from synapse.dialects.paths import DASHBOARD, DASHBOARD_OPERATIONS

Ask = Callable[[WireRequest], AnyCall]
EVENTS: Final = "events"


def dashboard_dialect(agent_name: AgentName) -> Dialect:
    """Returns the dialect of one gateway, with its names of agents."""
    named: dict[str, Ask] = {
        "tasks": partial(_tasks, agent_name),
        "task": partial(_task, agent_name),
    }
    asks = {**_ASKS, **named}
    routes: list[AnyRoute] = [
        CallRoute(method=method, path=path, ask=asks[operation])
        for operation, (method, path) in DASHBOARD_OPERATIONS.items()
        if operation != EVENTS
    ]
    method, path = DASHBOARD_OPERATIONS[EVENTS]
    encode_update = partial(encode.encode_overview_update, agent_name=agent_name)
    routes.append(StreamRoute(method=method, path=path, decode=decode.decode_events, encode=encode_update))
    return Dialect(name=DASHBOARD, routes=tuple(routes), encode_error=encode.encode_error)


def _send(wire: WireRequest) -> Call[Task]:
    request = ForAgent(wire.params[AGENT], decode.decode_send(wire))
    return Call(request, encode.encode_task_answer, status=202, headers=NO_STORE)


def _answer_agent(wire: WireRequest) -> Call[Task | None]:
    request = ForAgent(wire.params[AGENT], decode.decode_answer(wire))
    return Call(request, encode.encode_task_answer, headers=NO_STORE)


def _tasks(agent_name: AgentName, wire: WireRequest) -> Call[TaskPage]:
    return Call(decode.decode_tasks(wire), partial(encode.encode_page, agent_name=agent_name), headers=NO_STORE)


def _task(agent_name: AgentName, wire: WireRequest) -> Call[Task]:
    # A short id is enough: people type it into the address of the page.
    request = GetTask(wire.params[TASK])
    return Call(request, partial(encode.encode_task, agent_name=agent_name), headers=NO_STORE)


def _file(wire: WireRequest) -> Call[Task]:
    answer = partial(encode.encode_file, number=decode.file_number(wire))
    return Call(GetTask(wire.params[TASK], exact=True), encode.encode_task_answer, answer=answer)


_ASKS: Final[Mapping[str, Ask]] = {
    "overview": lambda _: Call(GetOverview(), encode.encode_overview, headers=NO_STORE),
    "agent": lambda wire: Call(GetAgentOverview(wire.params[AGENT]), encode.encode_agent, headers=NO_STORE),
    "screen": lambda wire: Call(
        decode.decode_screen(wire), encode.encode_json, encode.encode_screen_error, answer=encode.encode_screen
    ),
    "send": _send,
    "answer_agent": _answer_agent,
    "seen": lambda wire: Call(decode.decode_seen(wire), encode.encode_nothing, headers=NO_STORE),
    "timeline": lambda wire: Call(decode.decode_timeline(wire), encode.encode_timeline, headers=NO_STORE),
    "task_events": lambda wire: StreamCall(decode.decode_task_events(wire), encode.encode_task_update),
    "file": _file,
    "answer": lambda wire: Call(decode.decode_answer(wire), encode.encode_task_answer, headers=NO_STORE),
    "cancel": lambda wire: Call(CancelTask(wire.params[TASK], exact=True), encode.encode_task_answer, headers=NO_STORE),
    "resolve": lambda wire: Call(decode.decode_resolve(wire), encode.encode_task_answer, headers=NO_STORE),
    "figures": lambda wire: Call(decode.decode_figures(wire), encode.encode_json, headers=NO_STORE),
}
