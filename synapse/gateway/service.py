"""What can be asked of a gateway: its agents, and whatever each of them can be asked. `handle` is the one way in.

may the caller ask this at all?  ─►  of one agent, or of the gateway?  ─►  tasks, agents, registration

How many streams somebody may have open at once: each holds a connection, and reads the log for as long as it lasts.

asked for ─► a place is taken, or refused before anything is done ─► the stream ─► closed or ended: the place is free
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Protocol, Self

from synapse.auth.authenticators import Ticket
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
    check_capable,
)
from synapse.gateway.directory import GatewayAgent, GatewayDirectory
from synapse.gateway.tasks import GatewayTasks
from synapse.tasks.quota import KeyQuotas, message_in

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
    """Does what is asked of all agents behind one address."""

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
        self._methods: dict[type[Any], Callable[[Any, Caller], Awaitable[Any]]] = {
            ListAgents: self._list_agents,
            GetAgent: self._get_agent,
            RegisterAgent: self._register,
            RemoveAgent: self._remove,
            IssueTicket: self._issue_ticket,
            GetFigures: self._get_figures,
        }

    async def handle(self, request: Request, caller: Caller) -> Any:
        """Do `request` for `caller`; what comes back is listed in `docs/architecture.md`.

        Raises a SynapseError.
        """
        check_access(request, caller)
        with hide_store_details():
            await self._directory.refresh()
            await self._take_room(request, caller)
            return await self._handle(request, caller)

    async def _take_room(self, request: Request, caller: Caller) -> None:
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
            await self._tasks.handle("", GetMessage(message.message_id), caller)
        except NotFound:
            return False
        return True

    async def _handle(self, request: Request, caller: Caller) -> Any:
        if isinstance(request, ForAgent):
            if request.extensions is not None:
                check_named(self._directory.extensions_of(request.agent), request.extensions)
            check_capable(self._directory.lacks_of(request.agent), request.request)
            return await self._tasks.handle(request.agent, request.request, caller)
        method = self._methods.get(type(request))
        if method is None:
            return await self._tasks.handle("", request, caller)
        return await method(request, caller)

    async def recheck(self) -> None:
        """Find what no event tells: streams and waits that have lost their reason. Called every few seconds."""
        await self._directory.refresh()
        self._tasks.recheck()

    async def _list_agents(self, _request: ListAgents, caller: Caller) -> tuple[ListedAgent, ...]:
        agents = [agent for agent in self._directory.agents() if may_use(caller, agent.name)]
        return tuple(await asyncio.gather(*(self._listed(agent) for agent in agents)))

    async def _get_agent(self, request: GetAgent, _caller: Caller) -> ListedAgent:
        agent = self._directory.find(request.agent)
        if agent is None:
            raise AgentNotFound(request.agent)
        return await self._listed(agent)

    async def _register(self, request: RegisterAgent, caller: Caller) -> ListedAgent:
        registered = await self._registration.register(request, caller)
        await self._directory.refresh()
        return await self._get_agent(GetAgent(registered.alias), caller)

    async def _remove(self, request: RemoveAgent, _caller: Caller) -> ExternalAgent:
        return await self._registration.remove(request.agent)

    async def _issue_ticket(self, _request: IssueTicket, caller: Caller) -> Ticket:
        if self._new_ticket is None:
            raise UnsupportedOperation("this gateway has no tickets")
        return self._new_ticket(caller)

    async def _get_figures(self, _request: GetFigures, caller: Caller) -> MetricsSnapshot:
        if self._take_figures is None:
            raise UnsupportedOperation("nothing is counted here")
        return await self._take_figures(caller)

    async def _listed(self, agent: GatewayAgent) -> ListedAgent:
        return self._describe(agent, await agent.state())


class Asked(Protocol):
    """Does what is asked."""

    async def handle(self, request: Request, caller: Caller) -> Any:
        """Raises a SynapseError."""
        ...


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
    """A service whose streams are counted. One too many is refused before its message is sent."""

    def __init__(self, service: Asked, streams: StreamLimit) -> None:
        self._service = service
        self._streams = streams

    async def handle(self, request: Request, caller: Caller) -> Any:
        """Raises what the service raises, and TooManyStreams."""
        asked = request.request if isinstance(request, ForAgent) else request
        if not isinstance(asked, SubscribeTask | FollowTask | SendAndFollow):
            return await self._service.handle(request, caller)
        place = self._streams.take(caller)
        try:
            return _Counted(await self._service.handle(request, caller), place)
        except BaseException:
            place.give_back()
            raise


class _Counted:
    """The updates of a stream, until it is closed or has ended. No generator: one that never began has no `finally`."""

    __slots__ = ("_place", "_updates")

    def __init__(self, updates: AsyncGenerator[Update, None], place: StreamSlot) -> None:
        self._updates = updates
        self._place = place

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Update:
        try:
            return await anext(self._updates)
        except BaseException:
            self._place.give_back()
            raise

    async def aclose(self) -> None:
        try:
            await self._updates.aclose()
        finally:
            self._place.give_back()
