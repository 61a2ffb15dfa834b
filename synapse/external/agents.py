"""Adds, lists, removes and calls external agents: found by their card, stored under an alias."""

from __future__ import annotations

import asyncio
import re
import threading
import unicodedata
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from synapse.core.errors import Conflict, ExternalAgentFailed, ExternalAgentNotFound, InvalidRequest, WaitTimedOut
from synapse.core.message import Json, Message, MessageId
from synapse.core.requests import AddExternal, ExternalAgent, ExternalAnswer, RemoveExternal, SendExternal
from synapse.core.types import Clock

ANSWER_SECONDS: Final = 60.0
"""How long a message waits for its answer; the task goes on after that."""
CANCEL_SECONDS: Final = 15.0
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_ALIAS: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveredAgent:
    """An agent as its card describes it, and the protocol to speak to it."""

    url: str
    name: str
    description: str
    protocol: str
    card: Json = field(default_factory=dict[str, Any])


class ExternalStore(Protocol):
    """Stores external agents. Every method may block, and may raise StoreFailed."""

    def agents(self) -> Sequence[ExternalAgent]:
        """Returns all agents, by alias."""
        ...

    def find(self, alias: str) -> ExternalAgent | None: ...

    def write(self, agent: ExternalAgent) -> None: ...

    def remove(self, alias: str) -> ExternalAgent | None:
        """Removes an agent, also one whose entry is broken, and returns it."""
        ...


class CredentialStore(Protocol):
    """Stores the credentials for external agents, as headers. Every method may block, and may raise StoreFailed."""

    def find(self, alias: str) -> Mapping[str, str]: ...

    def write(self, alias: str, headers: Mapping[str, str]) -> None: ...

    def remove(self, alias: str) -> None: ...


class ExternalClient(Protocol):
    """Calls external agents."""

    async def discover(self, url: str, credentials: Mapping[str, str], *, address_checked: bool) -> DiscoveredAgent:
        """Reads the card of the agent at `url`; see `ExternalAgent.address_checked`.

        Raises InvalidRequest or ExternalAgentFailed.
        """
        ...

    async def send(self, agent: ExternalAgent, message: Message, seconds: float, *, task_id: str) -> ExternalAnswer:
        """Sends a message and waits at most `seconds` for the answer. Raises ExternalAgentFailed or WaitTimedOut."""
        ...

    def stream(
        self, agent: ExternalAgent, message: Message, seconds: float, *, task_id: str
    ) -> AsyncGenerator[ExternalAnswer, None]:
        """Sends a message and yields the answer so far, whenever it grows. Raises what `send` raises."""
        ...

    async def cancel(self, agent: ExternalAgent, task_id: str, seconds: float, /) -> ExternalAnswer:
        """Cancels a task. Raises ExternalAgentFailed or TimeoutError."""
        ...


class Externals:
    """The external agents of this user. Threads read and write what is stored of them."""

    def __init__(
        self,
        store: ExternalStore,
        client: ExternalClient,
        clock: Clock,
        new_id: Callable[[], str],
        credentials: CredentialStore,
    ) -> None:
        self._store = store
        self._credentials = credentials
        self._client = client
        self._clock = clock
        self._new_id = new_id
        # Nothing is stored between the check of an alias and the write.
        self._changing = threading.Lock()

    async def add(self, request: AddExternal) -> ExternalAgent:
        """Finds an agent by its card and stores it. Adding an address again refreshes its entry.

        Raises:
            InvalidRequest: the address, the alias or a header is not valid.
            Conflict: the alias means another agent.
            ExternalAgentFailed: no card was found.
        """
        if request.alias and _ALIAS.fullmatch(request.alias) is None:
            raise InvalidRequest(
                f"{request.alias!r} cannot be an alias",
                hint="use letters, digits, - and _; begin with a letter or a digit",
            )
        _check_headers(request.credentials)
        before, credentials = await asyncio.to_thread(self._find, request)
        # An agent that this user added stays unchecked when a caller with a key adds it again.
        address_checked = request.address_checked and (before is None or before.address_checked)
        found = await self._client.discover(request.url, credentials, address_checked=address_checked)
        return await asyncio.to_thread(self._write, request, found)

    async def list(self) -> tuple[ExternalAgent, ...]:
        """Returns the external agents, by alias."""
        return tuple(await asyncio.to_thread(self._store.agents))

    async def remove(self, request: RemoveExternal) -> ExternalAgent:
        """Removes an agent. Raises ExternalAgentNotFound."""
        removed = await asyncio.to_thread(self._remove, request.alias)
        if removed is None:
            raise ExternalAgentNotFound(request.alias)
        return removed

    async def send(self, request: SendExternal, *, seconds: float = ANSWER_SECONDS) -> ExternalAnswer:
        """Sends a message and waits at most `seconds` for the answer; an unfinished answer has the state `working`.

        Raises:
            ExternalAgentNotFound: no agent has this alias.
            ExternalAgentFailed: the agent cannot be reached, refuses, or answers nonsense.
            WaitTimedOut: the agent sent nothing in time, not even the id of its task.
        """
        agent, message = await self._addressed(request)
        return await self._client.send(agent, message, seconds, task_id=request.task_id)

    async def stream(
        self, request: SendExternal, *, seconds: float = ANSWER_SECONDS
    ) -> AsyncGenerator[ExternalAnswer, None]:
        """Sends a message and yields the answer so far, whenever it grows. Raises what `send` raises."""
        agent, message = await self._addressed(request)
        async with aclosing(self._client.stream(agent, message, seconds, task_id=request.task_id)) as answers:
            async for answer in answers:
                yield answer

    async def cancel(self, alias: str, task_id: str, *, seconds: float = CANCEL_SECONDS) -> ExternalAnswer:
        """Cancels a task of an agent.

        Raises ExternalAgentNotFound, ExternalAgentFailed (also when the agent refuses) or WaitTimedOut.
        """
        agent = await self._known(alias)
        try:
            return await self._client.cancel(agent, task_id, seconds)
        except TimeoutError as error:
            raise WaitTimedOut(f"'{alias}' has not answered within {seconds:g} seconds") from error
        except ExternalAgentFailed as error:
            raise error.reworded(f"'{alias}': {error}") from error

    async def _addressed(self, request: SendExternal) -> tuple[ExternalAgent, Message]:
        agent, message = await self._known(request.alias), request.message
        if not message.message_id:
            message = replace(message, message_id=MessageId(self._new_id()))
        return agent, message

    async def _known(self, alias: str) -> ExternalAgent:
        agent = await asyncio.to_thread(self._store.find, alias)
        if agent is None:
            raise ExternalAgentNotFound(alias)
        return agent

    def _find(self, request: AddExternal) -> tuple[ExternalAgent | None, Mapping[str, str]]:
        """Returns the agent that has the alias, if any, and the credentials to find it with. Raises Conflict."""
        known = self._refuse_taken(request.alias, request.url)
        # New credentials replace a broken file, so that is not read then.
        return known, request.credentials or (self._credentials.find(request.alias) if known else {})

    def _write(self, request: AddExternal, found: DiscoveredAgent) -> ExternalAgent:
        alias = request.alias or default_alias(found.name, found.url)
        with self._changing:
            known = self._refuse_taken(alias, found.url)
            agent = ExternalAgent(
                alias=alias,
                url=found.url,
                name=found.name,
                description=found.description,
                protocol=found.protocol,
                added_at=known.added_at if known else f"{self._clock.now():%Y-%m-%dT%H:%M:%SZ}",
                card=found.card,
                address_checked=request.address_checked and (known is None or known.address_checked),
            )
            if request.credentials:
                self._credentials.write(alias, request.credentials)
            self._store.write(agent)
        return agent

    def _remove(self, alias: str) -> ExternalAgent | None:
        with self._changing:
            removed = self._store.remove(alias)
            if removed is not None:
                self._credentials.remove(alias)
        return removed

    def _refuse_taken(self, alias: str, url: str) -> ExternalAgent | None:
        """Returns the agent that the alias means already. Raises Conflict if that is another agent than `url`."""
        known = self._store.find(alias) if alias else None
        if known is not None and known.url.rstrip("/") != url.strip().rstrip("/"):
            raise Conflict(
                f"the alias '{alias}' already means {known.url}",
                hint=f"choose another with --alias, or run `synapse external remove {alias}` first",
            )
        return known


def default_alias(name: str, url: str) -> str:
    """Returns the alias of an agent for which none was chosen: from its name, else from its address."""
    return _slug(name) or _slug(urlsplit(url).netloc) or "external"


def _slug(text: str) -> str:
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain)[:64].strip("-")


def _check_headers(headers: Mapping[str, str]) -> None:
    """Raises InvalidRequest for an invalid header. The error never quotes the value, which is a secret."""
    for name, value in headers.items():
        if _HEADER.fullmatch(name) is None:
            raise InvalidRequest(f"{name!r} cannot be the name of a header", hint="such as X-API-Key")
        if not value or not value.isascii() or not value.isprintable():
            raise InvalidRequest(
                f"the value of the header {name} is empty, or has a character that a header cannot hold",
                hint="use one line of plain ASCII",
            )
