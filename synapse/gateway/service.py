"""The gateway's Handler: checks access and quotas, then serves the request.

    access and quota checked ─► a request for the gateway itself, or for the tasks of one agent ─► its method

StreamLimit bounds how many streams a caller has open at once, because each holds a connection and reads the log for as
long as it lasts:

    request ─► a slot is acquired, or the request refused before it has any effect ─► stream ─► slot released
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Generic, Protocol, Self, TypeVar, cast

from synapse.auth.policy import check_access, hide_store_details, may_use
from synapse.core.caller import LOCAL_SCOPE, Caller
from synapse.core.errors import AgentNotFound, NotFound, QuotaExceeded, TooManyStreams, UnsupportedOperation
from synapse.core.extension import check_named
from synapse.core.message import Json, Message
from synapse.core.overview import AgentOverview, Overview, OverviewUpdate, Timeline
from synapse.core.requests import (
    ExternalAgent,
    FollowTask,
    ForAgent,
    GetAgent,
    GetAgentOverview,
    GetAgentScreen,
    GetFigures,
    GetMessage,
    GetMetrics,
    GetOverview,
    GetTimeline,
    IssueTicket,
    ListAgents,
    ListedAgent,
    MarkSeen,
    MetricsSnapshot,
    RegisterAgent,
    RemoveAgent,
    Request,
    SendAndFollow,
    Stream,
    SubscribeTask,
    Ticket,
    WatchOverview,
    check_capable,
)
from synapse.core.service import Handler, method_for
from synapse.gateway.directory import GatewayAgent, GatewayDirectory
from synapse.gateway.overview import Overviews
from synapse.gateway.tasks import GatewayTasks
from synapse.tasks.quota import KeyQuotas, message_in
from synapse.tasks.rules import unsupported

R = TypeVar("R")
T = TypeVar("T")

Describe = Callable[[GatewayAgent, str], ListedAgent]
"""Describes an agent in a given state, as lists and cards show it."""
NewTicket = Callable[[Caller], Ticket]
"""Issues a ticket for a caller; raises RateLimited."""
CollectMetrics = Callable[[Caller], Awaitable[MetricsSnapshot]]
"""Returns the current metrics; raises Forbidden."""
CollectFigures = Callable[[GetFigures, Caller], Awaitable[Json]]
"""Returns the figures of the agents that the caller may see; raises InvalidField."""


class Registration(Protocol):
    """Adds external agents to the gateway and removes them."""

    async def register(self, request: RegisterAgent, caller: Caller) -> ExternalAgent:
        """Raises InvalidRequest, also when no agent answers at the URL, or Conflict."""
        ...

    async def remove(self, agent: str) -> ExternalAgent:
        """Raises AgentNotFound, also for an agent of this machine."""
        ...


class GatewayService:
    """Handler for all agents behind one address, and for the requests about the gateway itself."""

    def __init__(  # noqa: PLR0913 - the collaborators of a gateway, four of them optional
        self,
        directory: GatewayDirectory,
        tasks: GatewayTasks,
        registration: Registration,
        describe: Describe,
        *,
        new_ticket: NewTicket | None = None,
        collect_metrics: CollectMetrics | None = None,
        collect_figures: CollectFigures | None = None,
        quotas: KeyQuotas | None = None,
        overviews: Overviews | None = None,
    ) -> None:
        self._directory = directory
        self._tasks = tasks
        self._registration = registration
        self._describe = describe
        self._new_ticket = new_ticket
        self._collect_metrics = collect_metrics
        self._collect_figures = collect_figures
        self._quotas = quotas
        self._overviews = overviews

    async def handle(self, request: Request[R], caller: Caller) -> R:
        """Runs `request` on behalf of `caller`. Raises a SynapseError."""
        request = self._directory.with_own_name(request)
        caller = limited_to_own(caller, self._directory.machine)
        check_access(request, caller)
        with hide_store_details():
            await self._directory.refresh()
            await self._charge_quota(request, caller)
            method = method_for(self, request) or method_for(self._tasks, request)
            if method is None:
                raise unsupported("a gateway", request)
            return await method(request, caller)

    def for_agent(self, request: ForAgent[R], caller: Caller) -> Awaitable[R]:
        """Runs a request about the tasks of one agent. May raise at once or when awaited."""
        asked = request.request
        if request.extensions is not None:
            check_named(self._directory.extensions_of(request.agent), request.extensions)
        check_capable(self._directory.lacks_of(request.agent), asked)
        method = method_for(self._tasks.of(request.agent, queue=request.queue), asked)
        if method is None:
            raise unsupported("a gateway", asked)
        return method(asked, caller)

    async def recheck(self) -> None:
        """Ends streams and waits that no event would end. Called every few seconds."""
        await self._directory.refresh()
        self._tasks.recheck()

    async def list_agents(self, _request: ListAgents, caller: Caller) -> tuple[ListedAgent, ...]:
        agents = [agent for agent in self._directory.agents() if may_use(caller, agent.name)]
        return tuple(await asyncio.gather(*(self._listed(agent) for agent in agents)))

    async def get_agent(self, request: GetAgent, _caller: Caller) -> ListedAgent:
        agent = self._directory.find(request.agent)
        if agent is None:
            raise AgentNotFound(request.agent)
        return await self._listed(agent)

    async def register_agent(self, request: RegisterAgent, caller: Caller) -> ListedAgent:
        registered = await self._registration.register(request, caller)
        await self._directory.refresh()
        return await self.get_agent(GetAgent(registered.alias), caller)

    async def remove_agent(self, request: RemoveAgent, _caller: Caller) -> ExternalAgent:
        return await self._registration.remove(request.agent)

    async def issue_ticket(self, _request: IssueTicket, caller: Caller) -> Ticket:
        if self._new_ticket is None:
            raise UnsupportedOperation("this gateway issues no tickets")
        return self._new_ticket(caller)

    async def get_metrics(self, _request: GetMetrics, caller: Caller) -> MetricsSnapshot:
        if self._collect_metrics is None:
            raise UnsupportedOperation("this gateway collects no metrics")
        return await self._collect_metrics(caller)

    async def get_figures(self, request: GetFigures, caller: Caller) -> Json:
        if self._collect_figures is None:
            raise UnsupportedOperation("this gateway collects no figures")
        return await self._collect_figures(request, caller)

    async def get_overview(self, _request: GetOverview, caller: Caller) -> Overview:
        return await self._shown().get(caller)

    async def watch_overview(self, request: WatchOverview, caller: Caller) -> Stream[OverviewUpdate]:
        return self._shown().watch(request.after, caller)

    async def get_agent_overview(self, request: GetAgentOverview, caller: Caller) -> AgentOverview:
        return await self._shown().get_agent(request.agent, caller)

    async def get_agent_screen(self, request: GetAgentScreen, _caller: Caller) -> Json | None:
        agent = self._directory.find(request.agent)
        if agent is None:
            raise AgentNotFound(request.agent)
        return await agent.screen(lines=request.lines, known=request.known)

    async def mark_seen(self, request: MarkSeen, caller: Caller) -> None:
        await self._shown().mark_seen(request.agent, request.until, caller)

    async def get_timeline(self, request: GetTimeline, caller: Caller) -> Timeline:
        return await self._tasks.timeline(request, caller)

    def _shown(self) -> Overviews:
        if self._overviews is None:
            raise UnsupportedOperation("this gateway has no overview")
        return self._overviews

    async def _charge_quota(self, request: Request[object], caller: Caller) -> None:
        """Raises QuotaExceeded for a new message that does not fit; a repeated message is stored already."""
        if self._quotas is None:
            return
        try:
            await self._quotas.take(request, caller)
        except QuotaExceeded:
            if not await self._is_stored(message_in(request), caller):
                raise

    async def _is_stored(self, message: Message | None, caller: Caller) -> bool:
        if message is None or not message.message_id:
            return False
        try:
            await self._tasks.get_message(GetMessage(message.message_id), caller)
        except NotFound:
            return False
        return True

    async def _listed(self, agent: GatewayAgent) -> ListedAgent:
        return self._describe(agent, await agent.state())


def limited_to_own(caller: Caller, machine: str) -> Caller:
    """Returns the caller. One of the user's scope that is no person sees only own tasks on other machines.

    The users of those machines have the same scope in the replica. Processes that are not a person's get no more from
    the link of `machine`, the gateway's, either; an API key of that scope means the tasks of this machine's user.
    """
    is_users = caller.scope == LOCAL_SCOPE and not caller.sees_all
    return replace(caller, only_from=machine) if machine and is_users and not caller.may_decide else caller


class StreamLimit:
    """Allows each caller at most `most` open streams; 0 means no limit.

    Each API key counts as a caller of its own, and so does the user.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: Counter[str] = Counter()

    def acquire(self, caller: Caller) -> StreamSlot:
        """Returns a slot, which the caller releases when the stream is over. Raises TooManyStreams."""
        key = caller.limited_as
        if self._most and self._open[key] >= self._most:
            raise TooManyStreams(self._most)
        self._open[key] += 1
        return StreamSlot(self._open, key)


class StreamSlot:
    """A slot held by one open stream. `release` is idempotent."""

    __slots__ = ("_key", "_open")

    def __init__(self, open_streams: Counter[str], key: str) -> None:
        self._open = open_streams
        self._key = key

    def release(self) -> None:
        if not self._key:
            return
        self._open[self._key] -= 1
        if not self._open[self._key]:
            del self._open[self._key]
        self._key = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class LimitedStreams:
    """Handler that applies a StreamLimit to another handler. It refuses a stream before its message is sent."""

    def __init__(self, service: Handler, limit: StreamLimit) -> None:
        self._service = service
        self._limit = limit

    def handle(self, request: Request[R], caller: Caller) -> Awaitable[R]:
        """Raises what the service raises, and TooManyStreams."""
        asked = request.request if isinstance(request, ForAgent) else request
        if isinstance(asked, SubscribeTask | FollowTask | SendAndFollow | WatchOverview):
            # These requests result in a stream, which type checkers do not infer from the class of `asked`.
            stream = self._open(cast("Request[Stream[object]]", request), caller)
            return cast("Awaitable[R]", stream)
        return self._service.handle(request, caller)

    async def _open(self, request: Request[Stream[T]], caller: Caller) -> Stream[T]:
        slot = self._limit.acquire(caller)
        try:
            return _LimitedStream(await self._service.handle(request, caller), slot)
        except BaseException:
            slot.release()
            raise


class _LimitedStream(Generic[T]):
    """A stream that releases its slot when it is closed or has ended.

    It is not a generator, because a generator that was never started does not run its `finally`.
    """

    __slots__ = ("_slot", "_updates")

    def __init__(self, updates: Stream[T], slot: StreamSlot) -> None:
        self._updates = updates
        self._slot = slot

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        try:
            return await self._updates.__anext__()
        except BaseException:
            self._slot.release()
            raise

    async def aclose(self) -> None:
        try:
            await self._updates.aclose()
        finally:
            self._slot.release()
