"""The gateway's Handler: checks access and quotas, then does what is asked of the gateway, its agents or their tasks.

may the caller ask this at all?  ─►  of one agent, or of the gateway?  ─►  tasks, agents, registration

How many streams somebody may have open at once: each holds a connection, and reads the log for as long as it lasts.

asked for ─► a place is taken, or refused before anything is done ─► the stream ─► closed or ended: the place is free
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Protocol, Self, TypeVar, cast

from synapse.auth.policy import check_access, hide_store_details, may_use
from synapse.core.caller import Caller
from synapse.core.errors import AgentNotFound, NotFound, QuotaExceeded, TooManyStreams, UnsupportedOperation
from synapse.core.events import Update
from synapse.core.extension import check_named
from synapse.core.message import Message
from synapse.core.requests import (
    ExternalAgent,
    FollowTask,
    ForAgent,
    GetAgent,
    GetFigures,
    GetMessage,
    IssueTicket,
    ListAgents,
    ListedAgent,
    MetricsSnapshot,
    RegisterAgent,
    RemoveAgent,
    Request,
    SendAndFollow,
    SubscribeTask,
    TaskStream,
    Ticket,
    check_capable,
)
from synapse.core.service import Handler, method_for
from synapse.gateway.directory import GatewayAgent, GatewayDirectory
from synapse.gateway.tasks import GatewayTasks
from synapse.tasks.quota import KeyQuotas, message_in
from synapse.tasks.rules import unsupported

R = TypeVar("R")

Describe = Callable[[GatewayAgent, str], ListedAgent]
"""Says what an agent in a state is, as lists show it."""


NewTicket = Callable[[Caller], Ticket]
"""Makes a ticket for a caller; raises RateLimited."""


TakeFigures = Callable[[Caller], Awaitable[MetricsSnapshot]]
"""Counts what can be counted; raises Forbidden."""


class Registration(Protocol):
    """Shows agents from elsewhere at the gateway."""

    async def register(self, request: RegisterAgent, caller: Caller) -> ExternalAgent:
        """Raises InvalidRequest, also when there is no agent, or Conflict."""
        ...

    async def remove(self, agent: str) -> ExternalAgent:
        """Raises AgentNotFound, also for an agent that runs here."""
        ...


class GatewayService:
    """Handler for all agents behind one address; it is also what does the requests that only a gateway does."""

    def __init__(  # noqa: PLR0913 - what a gateway has beside its tasks, each of it optional
        self,
        directory: GatewayDirectory,
        tasks: GatewayTasks,
        registration: Registration,
        describe: Describe,
        *,
        new_ticket: NewTicket | None = None,
        take_figures: TakeFigures | None = None,
        quotas: KeyQuotas | None = None,
    ) -> None:
        self._directory = directory
        self._tasks = tasks
        self._registration = registration
        self._describe = describe
        self._new_ticket = new_ticket
        self._take_figures = take_figures
        self._quotas = quotas

    async def handle(self, request: Request[R], caller: Caller) -> R:
        """Do `request` for `caller`. Raises a SynapseError."""
        check_access(request, caller)
        with hide_store_details():
            await self._directory.refresh()
            await self._take_room(request, caller)
            method = method_for(self, request) or method_for(self._tasks, request)
            if method is None:
                raise unsupported("a gateway", request)
            return await method(request, caller)

    async def _take_room(self, request: Request[object], caller: Caller) -> None:
        """Raise QuotaExceeded for what is new and does not fit; a message that is sent again is kept already."""
        if self._quotas is None:
            return
        try:
            await self._quotas.take(request, caller)
        except QuotaExceeded:
            if not await self._is_known(message_in(request), caller):
                raise

    async def _is_known(self, message: Message | None, caller: Caller) -> bool:
        if message is None or not message.message_id:
            return False
        try:
            await self._tasks.get_message(GetMessage(message.message_id), caller)
        except NotFound:
            return False
        return True

    def for_agent(self, request: ForAgent[R], caller: Caller) -> Awaitable[R]:
        """Do a request about the tasks of one agent. Raises what that does, at once or when it is awaited."""
        asked = request.request
        if request.extensions is not None:
            check_named(self._directory.extensions_of(request.agent), request.extensions)
        check_capable(self._directory.lacks_of(request.agent), asked)
        method = method_for(self._tasks.of(request.agent), asked)
        if method is None:
            raise unsupported("a gateway", asked)
        return method(asked, caller)

    async def recheck(self) -> None:
        """Find what no event tells: streams and waits that have lost their reason. Called every few seconds."""
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
            raise UnsupportedOperation("this gateway has no tickets")
        return self._new_ticket(caller)

    async def get_metrics(self, _request: GetFigures, caller: Caller) -> MetricsSnapshot:
        if self._take_figures is None:
            raise UnsupportedOperation("nothing is counted here")
        return await self._take_figures(caller)

    async def _listed(self, agent: GatewayAgent) -> ListedAgent:
        return self._describe(agent, await agent.state())


class StreamLimit:
    """The streams of each caller, `most` of them at a time; 0 limits nothing. A key is a caller, and so is the user."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: Counter[str] = Counter()

    def take(self, caller: Caller) -> StreamSlot:
        """Take a place, to be given back when the stream is over. Raises TooManyStreams."""
        key = f"{caller.scope} {caller.name}"
        if self._most and self._open[key] >= self._most:
            raise TooManyStreams(self._most)
        self._open[key] += 1
        return StreamSlot(self._open, key)


class StreamSlot:
    """One stream's place. Given back twice it is given back once."""

    __slots__ = ("_key", "_open")

    def __init__(self, places: Counter[str], key: str) -> None:
        self._open = places
        self._key = key

    def give_back(self) -> None:
        if not self._key:
            return
        self._open[self._key] -= 1
        if not self._open[self._key]:
            del self._open[self._key]
        self._key = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.give_back()


class CountedStreams:
    """Handler that counts the streams of another one. It refuses one too many before its message is sent."""

    def __init__(self, service: Handler, streams: StreamLimit) -> None:
        self._service = service
        self._streams = streams

    def handle(self, request: Request[R], caller: Caller) -> Awaitable[R]:
        """Raises what the service raises, and TooManyStreams."""
        asked = request.request if isinstance(request, ForAgent) else request
        if isinstance(asked, SubscribeTask | FollowTask | SendAndFollow):
            # Such a request has a stream for its result, which the checkers do not conclude from its class.
            counted = self._counted(cast("Request[TaskStream]", request), caller)
            return cast("Awaitable[R]", counted)
        return self._service.handle(request, caller)

    async def _counted(self, request: Request[TaskStream], caller: Caller) -> TaskStream:
        place = self._streams.take(caller)
        try:
            return _Counted(await self._service.handle(request, caller), place)
        except BaseException:
            place.give_back()
            raise


class _Counted:
    """A TaskStream that gives its place back when it is closed or has ended.

    No generator: one that never began has no `finally`.
    """

    __slots__ = ("_place", "_updates")

    def __init__(self, updates: TaskStream, place: StreamSlot) -> None:
        self._updates = updates
        self._place = place

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Update:
        try:
            return await self._updates.__anext__()
        except BaseException:
            self._place.give_back()
            raise

    async def aclose(self) -> None:
        try:
            await self._updates.aclose()
        finally:
            self._place.give_back()
