"""Agents elsewhere: found by their card, remembered under an alias, and sent messages."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from synapse.core.clock import Clock
from synapse.core.errors import Conflict, ExternalAgentNotFound, InvalidRequest
from synapse.core.message import Json, Message, MessageId
from synapse.core.requests import AddExternal, RemoveExternal, SendExternal
from synapse.core.status import ExternalAgent, ExternalAnswer

ANSWER_SECONDS: Final = 60.0
"""How long a message waits for its answer; then the task goes on without us."""
_ALIAS: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a card says of an agent, and how it is spoken to."""

    url: str
    name: str
    description: str
    protocol: str
    card: Json = field(default_factory=dict[str, Any])


class ExternalBook(Protocol):
    """Remembers external agents. Every method may raise StoreFailed."""

    def agents(self) -> Sequence[ExternalAgent]:
        """All, by alias."""
        ...

    def find(self, alias: str) -> ExternalAgent | None: ...

    def write(self, agent: ExternalAgent) -> None: ...

    def remove(self, alias: str) -> ExternalAgent | None:
        """Forget an agent, also one whose entry is broken; return what was known of it."""
        ...


class ExternalClient(Protocol):
    """Speaks to agents elsewhere."""

    async def discover(self, url: str) -> Found:
        """Read the card of the agent at `url`. Raises InvalidRequest or ExternalAgentFailed."""
        ...

    async def send(self, agent: ExternalAgent, message: Message, seconds: float) -> ExternalAnswer:
        """Send, and wait at most so long for the answer. Raises ExternalAgentFailed or WaitTimedOut."""
        ...


class Externals:
    """What can be asked about external agents."""

    def __init__(self, book: ExternalBook, client: ExternalClient, clock: Clock, new_id: Callable[[], str]) -> None:
        self._book = book
        self._client = client
        self._clock = clock
        self._new_id = new_id

    async def add(self, request: AddExternal) -> ExternalAgent:
        """Find an agent by its card and remember it. The same address again refreshes what is known.

        Raises:
            InvalidRequest: the address or the alias cannot be one.
            Conflict: the alias means another agent.
            ExternalAgentFailed: there is no card to be had.
        """
        _check_alias(request.alias)
        self._refuse_taken(request.alias, request.url)
        found = await self._client.discover(request.url)
        alias = request.alias or default_alias(found.name, found.url)
        known = self._refuse_taken(alias, found.url)
        agent = ExternalAgent(
            alias=alias,
            url=found.url,
            name=found.name,
            description=found.description,
            protocol=found.protocol,
            added_at=known.added_at if known else f"{self._clock.now():%Y-%m-%dT%H:%M:%SZ}",
            card=found.card,
        )
        self._book.write(agent)
        return agent

    async def list(self) -> tuple[ExternalAgent, ...]:
        """The known external agents, by alias."""
        return tuple(self._book.agents())

    async def remove(self, request: RemoveExternal) -> ExternalAgent:
        """Forget an agent. Raises ExternalAgentNotFound."""
        removed = self._book.remove(request.alias)
        if removed is None:
            raise ExternalAgentNotFound(request.alias)
        return removed

    async def send(self, request: SendExternal, *, seconds: float = ANSWER_SECONDS) -> ExternalAnswer:
        """Send a message and wait at most `seconds` for the answer; an answer that is not there yet says `working`.

        Raises:
            ExternalAgentNotFound: nobody has that alias.
            ExternalAgentFailed: it cannot be reached, refuses, or makes no sense.
            WaitTimedOut: it took the message, and said nothing in time, not even the id of its task.
        """
        agent = self._book.find(request.alias)
        if agent is None:
            raise ExternalAgentNotFound(request.alias)
        message = request.message
        if not message.message_id:
            message = replace(message, message_id=MessageId(self._new_id()))
        return await self._client.send(agent, message, seconds)

    def _refuse_taken(self, alias: str, url: str) -> ExternalAgent | None:
        known = self._book.find(alias) if alias else None
        if known is not None and not _is_same(known.url, url):
            raise Conflict(
                f"the alias '{alias}' already means {known.url}",
                hint=f"choose another with --alias, or `synapse external remove {alias}` first",
            )
        return known


def default_alias(name: str, url: str) -> str:
    """Return the alias that an agent gets when nobody chose one: from its name, else from its address."""
    return _slug(name) or _slug(urlsplit(url).netloc) or "external"


def _slug(text: str) -> str:
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain)[:64].strip("-")


def _check_alias(alias: str) -> None:
    if alias and _ALIAS.fullmatch(alias) is None:
        raise InvalidRequest(
            f"{alias!r} cannot be an alias", hint="use letters, digits, - and _, beginning with a letter or a digit"
        )


def _is_same(known: str, given: str) -> bool:
    return known.rstrip("/") == given.strip().rstrip("/")
