"""What can be asked of a gateway: its agents, and whatever each of them can be asked. `handle` is the one way in.

may the caller ask this at all?  ─►  of one agent, or of the gateway?  ─►  tasks, agents, registration
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from synapse.core.caller import Caller
from synapse.core.capability import check_capable
from synapse.core.errors import AgentNotFound, NotFound, QuotaExceeded, UnsupportedOperation
from synapse.core.extension import check_named
from synapse.core.figures import Figures
from synapse.core.listed_agent import ListedAgent
from synapse.core.message import Message
from synapse.core.requests import (
    GetAgent,
    GetFigures,
    GetMessage,
    IssueTicket,
    ListAgents,
    RegisterAgent,
    RemoveAgent,
    Request,
    ToAgent,
)
from synapse.core.status import ExternalAgent
from synapse.service.access import check_access, may_use
from synapse.service.discretion import discreet
from synapse.service.gateway_directory import GatewayAgent, GatewayDirectory
from synapse.service.gateway_tasks import GatewayTasks
from synapse.service.quota import KeyQuotas, message_in
from synapse.service.tickets import Ticket

Describe = Callable[[GatewayAgent, str], ListedAgent]
"""Says what an agent in a state is, as lists show it."""


NewTicket = Callable[[Caller], Ticket]
"""Makes a ticket for a caller; raises RateLimited."""


TakeFigures = Callable[[Caller], Awaitable[Figures]]
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
        with discreet():
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
        if isinstance(request, ToAgent):
            if request.extensions is not None:
                check_named(self._directory.extensions_of(request.agent), request.extensions)
            check_capable(self._directory.lacks_of(request.agent), request.request)
            return await self._tasks.handle(request.agent, request.request, caller)
        method = self._methods.get(type(request))
        if method is None:
            return await self._tasks.handle("", request, caller)
        return await method(request, caller)

    def look_again(self) -> None:
        """Find what no event tells: streams and waits that have lost their reason. Called every few seconds."""
        self._tasks.look_again()

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
        return await self._get_agent(GetAgent(registered.alias), caller)

    async def _remove(self, request: RemoveAgent, _caller: Caller) -> ExternalAgent:
        return await self._registration.remove(request.agent)

    async def _issue_ticket(self, _request: IssueTicket, caller: Caller) -> Ticket:
        if self._new_ticket is None:
            raise UnsupportedOperation("this gateway has no tickets")
        return self._new_ticket(caller)

    async def _get_figures(self, _request: GetFigures, caller: Caller) -> Figures:
        if self._take_figures is None:
            raise UnsupportedOperation("nothing is counted here")
        return await self._take_figures(caller)

    async def _listed(self, agent: GatewayAgent) -> ListedAgent:
        return self._describe(agent, await agent.state())
