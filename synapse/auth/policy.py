"""Who may do what at a gateway: pure decisions over a caller and a request. What is not allowed to be seen is missing.

read      tasks, agents, push configurations
send      messages; what is kept about a task, and who is told of it
cancel    ends of tasks
approve   answers to what an agent's program asks
register  agents from elsewhere

What callers from elsewhere are told of a store that fails: that it does, and nothing of this machine's files.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Final

from synapse.core import requests
from synapse.core.caller import APPROVE, CANCEL, READ, REGISTER, SEND, Caller
from synapse.core.errors import AgentNotFound, Forbidden, StoreFailed
from synapse.core.requests import ChangeTask, ForAgent, GetAgent, RegisterAgent, RemoveAgent, Request

NOT_HERE: Final = ""
"""Stands for the action of what belongs to an agent or to the person at its machine: no caller of a gateway may."""

ACTION_OF: Final[Mapping[type[Request[object]], str]] = {
    requests.SendMessage: SEND,
    requests.SendAndWait: SEND,
    requests.SendAndFollow: SEND,
    requests.CreateTask: SEND,
    requests.Reply: NOT_HERE,
    requests.GetTask: READ,
    requests.GetMessage: READ,
    requests.ListTasks: READ,
    requests.CancelTask: CANCEL,
    requests.ResolveTask: NOT_HERE,
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
    requests.AddExternal: REGISTER,
    requests.ListExternals: READ,
    requests.RemoveExternal: REGISTER,
    requests.SendExternal: SEND,
    requests.ReportSignal: NOT_HERE,
    requests.ListAgents: READ,
    requests.GetAgent: READ,
    requests.RegisterAgent: REGISTER,
    requests.RemoveAgent: REGISTER,
    # What comes over the socket that it opens is judged like everything else.
    requests.IssueTicket: READ,
    requests.GetMetrics: READ,
    requests.OnBehalfOf: NOT_HERE,
}


def check_access(request: Request[object], caller: Caller) -> None:
    """Return when the caller may ask this.

    Whether it sees the task that the request is about is decided where the task is loaded, by `caller.sees`.

    Raises:
        AgentNotFound: the agent is not one of the caller's; the same as when there is none.
        Forbidden: the caller may not do this.
    """
    inner = request
    while isinstance(inner, ForAgent):
        _check_agent(inner.agent, caller)
        inner = inner.request
    if isinstance(inner, GetAgent | RemoveAgent):
        _check_agent(inner.agent, caller)
    _check_action(ACTION_OF[type(inner)], caller)
    if isinstance(inner, ChangeTask) and inner.state is not None:
        # Moving a task to another state ends it, or takes it from the agent that works on it.
        _check_action(CANCEL, caller)
    if isinstance(inner, RegisterAgent) and caller.agents is not None:
        # Behind a name that it may use, it would reach whatever the gateway's machine reaches.
        raise Forbidden(
            "these credentials are for some agents only, and add none", hint="ask the gateway's owner to add the agent"
        )


def may_use(caller: Caller, agent: str) -> bool:
    """Whether the agent, by its name at the gateway, exists for this caller."""
    return caller.agents is None or agent in caller.agents


def _check_agent(agent: str, caller: Caller) -> None:
    if not may_use(caller, agent):
        raise AgentNotFound(agent)


def _check_action(action: str, caller: Caller) -> None:
    if action == NOT_HERE:
        raise Forbidden(
            "that is not done through a gateway", hint="it belongs to the agent, or to a person at the agent's machine"
        )
    if caller.actions is not None and action not in caller.actions:
        allowed = ", ".join(sorted(caller.actions)) or "nothing"
        raise Forbidden(
            f"these credentials do not allow to {action}",
            hint=f"they allow {allowed}; ask the gateway's owner for one that allows {action}",
        )


log = logging.getLogger(__name__)


@contextmanager
def hide_store_details() -> Generator[None]:
    """Log what a StoreFailed says, and say it without the paths and commands that are in it."""
    try:
        yield
    except StoreFailed as error:
        log.error("store_failed", extra={"error": str(error), "code": error.code})  # noqa: TRY400 - the sentence says it all
        raise StoreFailed("the gateway's store cannot do it now", hint="try again in a while") from error
