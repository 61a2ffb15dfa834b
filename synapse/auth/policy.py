"""Decides which requests a caller of a gateway may make, and hides details of this machine from errors. Pure.

read      tasks, agents, push configurations
send      messages; change a task's metadata, set its push configurations
cancel    end tasks, delete them; interrupt the agent's turn with a message
approve   answer the questions of agents, decide about messages in doubt
attach    see and type into the terminals of agents
register  external agents

An agent that the caller may not use looks like a missing one.

Who may approve what an agent asks its person for is decided where the agent runs: see `tasks.questions`.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Final

from synapse.core import requests
from synapse.core.caller import APPROVE, ATTACH, CANCEL, READ, REGISTER, SEND, Caller
from synapse.core.errors import AgentNotFound, Forbidden, StoreFailed
from synapse.core.requests import (
    ChangeTask,
    ForAgent,
    GetAgent,
    GetAgentOverview,
    GetAgentScreen,
    MarkSeen,
    RegisterAgent,
    RemoveAgent,
    Request,
    SendAndFollow,
    SendAndWait,
    SendMessage,
)
from synapse.core.task import INTERRUPT_PRIORITY

log = logging.getLogger(__name__)

NOT_HERE: Final = ""
"""The action of requests that only an agent, or a person at its machine, may make: no caller of a gateway may."""

ACTION_OF: Final[Mapping[type[Request[object]], str]] = {
    requests.SendMessage: SEND,
    requests.SendAndWait: SEND,
    requests.SendAndFollow: SEND,
    requests.CreateTask: SEND,
    requests.LeaveTask: NOT_HERE,
    requests.AskPerson: NOT_HERE,
    requests.Reply: NOT_HERE,
    requests.GetTask: READ,
    requests.GetMessage: READ,
    requests.ListTasks: READ,
    requests.CancelTask: CANCEL,
    requests.ResolveTask: APPROVE,
    requests.AnswerQuestion: APPROVE,
    requests.ChangeTask: SEND,
    requests.DeleteTask: CANCEL,
    requests.SetPushConfig: SEND,
    requests.GetPushConfig: READ,
    requests.ListPushConfigs: READ,
    requests.DeletePushConfig: SEND,
    requests.SubscribeTask: READ,
    requests.FollowTask: READ,
    requests.GetStatus: READ,
    requests.FollowStatus: READ,
    requests.WatchStatus: READ,
    requests.GetScreen: ATTACH,
    requests.AddExternal: REGISTER,
    requests.ListExternals: READ,
    requests.RemoveExternal: REGISTER,
    requests.SendExternal: SEND,
    requests.ReportSignal: NOT_HERE,
    requests.ReportTools: NOT_HERE,
    requests.ListAgents: READ,
    requests.GetAgent: READ,
    requests.RegisterAgent: REGISTER,
    requests.RemoveAgent: REGISTER,
    # Requests over the WebSocket that the ticket opens are checked like all others.
    requests.IssueTicket: READ,
    requests.GetMetrics: READ,
    requests.GetFigures: READ,
    requests.GetOverview: READ,
    requests.WatchOverview: READ,
    requests.GetAgentOverview: READ,
    requests.GetAgentScreen: ATTACH,
    requests.MarkSeen: READ,
    requests.GetTimeline: READ,
    requests.OnBehalfOf: NOT_HERE,
    requests.VoidMessage: NOT_HERE,
}


def check_access(request: Request[object], caller: Caller) -> None:
    """Raises unless the caller may make the request.

    Whether the caller may see the task of the request is decided where the task is loaded, by `tasks.rules.may_see`.

    Raises:
        AgentNotFound: the caller may not use the agent, or there is no such agent.
        Forbidden: the caller may not do this.
    """
    inner = request
    while isinstance(inner, ForAgent):
        _check_agent(inner.agent, caller)
        inner = inner.request
    if isinstance(inner, GetAgent | RemoveAgent | GetAgentOverview | GetAgentScreen | MarkSeen):
        _check_agent(inner.agent, caller)
    check_action(ACTION_OF[type(inner)], caller)
    if isinstance(inner, ChangeTask) and inner.state is not None:
        # A change of state ends a task, or takes it from the agent that works on it.
        check_action(CANCEL, caller)
    send = inner.send if isinstance(inner, SendAndWait | SendAndFollow) else inner
    if isinstance(send, SendMessage) and send.priority >= INTERRUPT_PRIORITY:
        # It ends the turn that the agent is in, which may be another caller's.
        check_action(CANCEL, caller)
    if isinstance(inner, RegisterAgent) and caller.agents is not None:
        # Under a name that it may use, the caller could register any address that the gateway's machine reaches.
        raise Forbidden(
            "these credentials are limited to some agents and cannot register new ones",
            hint="ask the gateway's owner to add the agent",
        )


def check_action(action: str, caller: Caller) -> None:
    """Raises Forbidden unless the caller may do the action, for example open a WebSocket to terminals."""
    if action == NOT_HERE:
        raise Forbidden(
            "this cannot be done through a gateway",
            hint="only the agent itself, or a person at its machine, can do it",
        )
    if caller.actions is not None and action not in caller.actions:
        allowed = ", ".join(sorted(caller.actions)) or "nothing"
        raise Forbidden(
            f"these credentials do not allow '{action}'",
            hint=f"they allow {allowed}; ask the gateway's owner for credentials that allow {action}",
        )
    if action == ATTACH and not (caller.may_decide or caller.is_granted(ATTACH)):
        # A terminal is a shell of the user, and any process of the user is the owner of a gateway without credentials.
        raise Forbidden(
            "terminals are open to people only, and nothing proves that a person asks",
            hint="`synapse dashboard` opens the terminals in a browser, `synapse attach AGENT` in your own terminal",
        )


def may_use(caller: Caller, agent: str) -> bool:
    """Whether the caller may see and use the agent of this name."""
    return caller.agents is None or agent in caller.agents


def _check_agent(agent: str, caller: Caller) -> None:
    if not may_use(caller, agent):
        raise AgentNotFound(agent)


@contextmanager
def hide_store_details() -> Generator[None]:
    """Logs a StoreFailed and raises it again without paths and commands of this machine."""
    try:
        yield
    except StoreFailed as error:
        log.error("store_failed", extra={"error": str(error), "code": error.code})  # noqa: TRY400 - no traceback needed
        raise StoreFailed("the gateway's store failed", hint="try again later") from error
