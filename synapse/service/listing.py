"""Which tasks a caller's list shows: what was asked for, as far as the caller sees it."""

from __future__ import annotations

from synapse.core.caller import Caller
from synapse.core.requests import ListTasks
from synapse.core.store import TaskQuery
from synapse.service.origin import USER


def query_of(request: ListTasks, caller: Caller, inbox: str = "") -> TaskQuery:
    """The question for the store; without an inbox, about all agents."""
    return TaskQuery(
        inbox=inbox,
        scope="" if caller.sees_all else caller.scope,
        states=request.states,
        context_id=request.context_id,
        parent_id=request.parent_id,
        updated_after=request.updated_after,
        metadata={**request.metadata, **({USER: request.user} if request.user else {})},
        expired=request.expired,
        limit=request.limit,
        cursor=request.cursor,
    )
