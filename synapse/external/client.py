"""Speaks to external agents: finds their cards, sends messages, waits for answers.

A2A 1.0 and 0.3 (JSON-RPC, REST) and the synapse dialect. Credentials go to the agent that they are for, and never
unprotected where it was added by a protected address. Who is cancelled, or leaves a stream, closes the connection.

The way to an external agent: which interface it is spoken to by, and what it is shown there.

External agents, for hosts and for the command line, which adds, lists and calls them by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeVar, cast
from urllib.parse import urlsplit

from synapse.config.process import SystemClock, new_id
from synapse.core.errors import (
    ExternalAddressRefused,
    ExternalAgentFailed,
    ExternalAgentUnreachable,
    InvalidField,
    WaitTimedOut,
)
from synapse.core.message import Message
from synapse.core.requests import ExternalAgent, ExternalAnswer
from synapse.external.agents import DiscoveredAgent, ExternalClient, Externals
from synapse.external.card import (
    A2A_0_3,
    REST,
    SYNAPSE,
    Interface,
    checked_address,
    choose_interface,
    find_card,
    shown_text,
)
from synapse.external.decode import RemoteTaskState, json_object, respelt, result_of, rpc_result, sentence_of
from synapse.external.encode import RemoteTaskRef, cancel_call, get_call, send_call, subscribe_call
from synapse.external.files import FileCredentials, FileExternalBook
from synapse.external.requests import Call, RemoteRequests
from synapse.net.address_guard import AGENTS, AddressGuard
from synapse.net.http import HttpClient, deadline_in
from synapse.net.http_types import HttpAnswer

DISCOVER_SECONDS: Final = 10.0
MOST_AT_ONCE: Final = 16
"""Requests and streams of one client; others wait for their turn."""

Result = TypeVar("Result")


class Unanswered(Exception):
    """A message was sent, and the connection ended before anything was said: it may have been taken or not."""


def no_credentials(_alias: str) -> Mapping[str, str]:
    return {}


class A2AClient:
    """Implements `service.externals.ExternalClient`, and what a driver of an external agent needs.

    `credentials` gives the headers that an agent is shown, by its alias; `allow_private` lets agents that somebody
    with a key has registered be at private and loopback addresses.
    """

    def __init__(
        self,
        *,
        credentials: Callable[[str], Mapping[str, str]] = no_credentials,
        allow_private: bool = False,
        discover_seconds: float = DISCOVER_SECONDS,
    ) -> None:
        self._client = HttpClient()
        self._checking_client = HttpClient(AddressGuard(allow_private=allow_private, switch=AGENTS))
        self._credentials = credentials
        self._discover_seconds = discover_seconds
        self._slots = asyncio.Semaphore(MOST_AT_ONCE)

    async def discover(
        self, url: str, credentials: Mapping[str, str] | None = None, *, address_checked: bool = False
    ) -> DiscoveredAgent:
        """Read the card of the agent at `url`, which may be the card's own address.

        Raises InvalidRequest, also when `address_checked` is set and the address is not public, or ExternalAgentFailed.
        """
        address = checked_address(url)
        shown = credentials or {}
        try:
            card, protocol = await self._run(
                self._discover_seconds,
                lambda requests: find_card(requests, address, shown),
                address_checked=address_checked,
            )
        except TimeoutError as error:
            why = f"no agent was found at {address}: no answer within {self._discover_seconds:g} seconds"
            raise ExternalAgentUnreachable(why) from error
        except ExternalAddressRefused as error:
            raise InvalidField("url", str(error), hint=error.hint) from error
        except ExternalAgentFailed as error:
            raise error.reworded(f"no agent was found at {address}: {error}") from error
        return DiscoveredAgent(
            url=address,
            name=shown_text(card, "name", 200),
            description=shown_text(card, "description", 1000),
            protocol=protocol,
            card=card,
        )

    async def send(
        self, agent: ExternalAgent, message: Message, seconds: float, *, task_id: str = ""
    ) -> ExternalAnswer:
        """Send a message and wait at most `seconds` for the answer; `task_id` goes on with a task over there.

        Raises:
            ExternalAgentFailed: it cannot be reached, refuses, or makes no sense.
            WaitTimedOut: it said nothing in time, not even the id of its task.
        """
        thread = RemoteTaskRef(task_id=task_id)
        try:
            return await self._run(
                seconds,
                lambda requests: _send(requests, self._way(agent), agent, message, thread),
                address_checked=agent.address_checked,
            )
        except TimeoutError as error:
            raise _too_late(agent, seconds) from error
        except ExternalAgentFailed as error:
            raise error.reworded(f"'{agent.alias}': {error}") from error

    async def stream(
        self, agent: ExternalAgent, message: Message, seconds: float, *, task_id: str = ""
    ) -> AsyncGenerator[ExternalAnswer, None]:
        """The same as `send`; yields the answer as far as it is, whenever there is more of it. Raises as `send` does.

        An agent without streams has one answer, at the end.
        """
        interface, report = choose_interface(agent.card, agent.url), RemoteTaskState()
        if not interface.streaming:
            yield await self.send(agent, message, seconds, task_id=task_id)
            return
        telling = self.tell(agent, message, RemoteTaskRef(task_id=task_id), seconds)
        try:
            async with aclosing(telling) as said:
                async for one in said:
                    report.receive(one)
                    yield report.answer(agent.alias)
            if interface.protocol == SYNAPSE and not report.is_settled:
                async with aclosing(self.follow(agent, report.task_id, seconds)) as said:
                    async for one in said:
                        report.receive(one)
                        yield report.answer(agent.alias)
        except (TimeoutError, Unanswered) as error:
            if not report.task_id:
                raise _too_late(agent, seconds) from error
        except ExternalAgentFailed as error:
            raise error.reworded(f"'{agent.alias}': {error}") from error

    def tell(
        self, agent: ExternalAgent, message: Message, thread: RemoteTaskRef, seconds: float
    ) -> AsyncGenerator[Said, None]:
        """Send a message; yields what is said, as it comes, until the agent has no more to say here and now.

        Raises ExternalAgentFailed (it did not take it), Unanswered, or TimeoutError after `seconds`.
        """
        return self._followed(
            seconds,
            lambda requests: _tell(requests, self._way(agent), message, thread),
            address_checked=agent.address_checked,
        )

    def follow(self, agent: ExternalAgent, task_id: str, seconds: float) -> AsyncGenerator[Said, None]:
        """Follow a task. Raises ExternalAgentFailed, or TimeoutError after `seconds`."""
        return self._followed(
            seconds, lambda requests: self._way(agent).follow(requests, task_id), address_checked=agent.address_checked
        )

    async def look(self, agent: ExternalAgent, task_id: str, seconds: float) -> Said:
        """Read a task. Raises ExternalAgentFailed or TimeoutError."""
        return await self._run(
            seconds, lambda requests: self._way(agent).look(requests, task_id), address_checked=agent.address_checked
        )

    async def cancel(self, agent: ExternalAgent, task_id: str, seconds: float) -> ExternalAnswer:
        """Stop a task. Raises ExternalAgentFailed, also when it does not want to, or TimeoutError."""
        report = RemoteTaskState()
        said = await self._run(
            seconds, lambda requests: self._way(agent).cancel(requests, task_id), address_checked=agent.address_checked
        )
        report.receive(said)
        return report.answer(agent.alias)

    def has_streams(self, agent: ExternalAgent) -> bool:
        """Whether a task can be followed. Raises ExternalAgentFailed."""
        return choose_interface(agent.card, agent.url).streaming

    def _way(self, agent: ExternalAgent) -> RemoteInterface:
        interface = choose_interface(agent.card, agent.url)
        return RemoteInterface(interface, shown_at(self._credentials(agent.alias), agent.url, interface.url))

    async def _followed(
        self, seconds: float, work: Callable[[RemoteRequests], AsyncGenerator[Said, None]], *, address_checked: bool
    ) -> AsyncGenerator[Said, None]:
        async with (
            self._requests(seconds, address_checked=address_checked) as requests,
            aclosing(work(requests)) as coming,
        ):
            async for said in coming:
                yield said

    async def _run(
        self, seconds: float, work: Callable[[RemoteRequests], Awaitable[Result]], *, address_checked: bool
    ) -> Result:
        async with self._requests(seconds, address_checked=address_checked) as requests:
            return await work(requests)

    @asynccontextmanager
    async def _requests(self, seconds: float, *, address_checked: bool) -> AsyncGenerator[RemoteRequests, None]:
        """Raises TimeoutError when there is no slot in time."""
        deadline = deadline_in(seconds)
        async with asyncio.timeout_at(deadline):
            await self._slots.acquire()
        try:
            yield RemoteRequests(self._checking_client if address_checked else self._client, deadline)
        finally:
            self._slots.release()


def _too_late(agent: ExternalAgent, seconds: float) -> WaitTimedOut:
    return WaitTimedOut(
        f"'{agent.alias}' has not answered within {seconds:g} seconds",
        hint="it may be at work on it all the same; a longer --timeout waits longer",
    )


async def _send(
    requests: RemoteRequests, way: RemoteInterface, agent: ExternalAgent, message: Message, thread: RemoteTaskRef
) -> ExternalAnswer:
    report = RemoteTaskState()
    if way.interface.protocol == SYNAPSE:
        report.receive(await way.send(requests, message, thread))
        if report.task_id and not report.is_settled:
            await _watch(way.follow(requests, report.task_id), report)
    elif way.interface.streaming:
        await _watch(way.converse(requests, message, thread), report)
    else:
        report.receive(await way.send(requests, message, thread))
    return report.answer(agent.alias)


async def _watch(coming: AsyncGenerator[Said, None], report: RemoteTaskState) -> None:
    """Follow a stream until it is settled.

    Once the task's id is known, an end of the time or of the stream is no error: the report says how far it came.
    """
    try:
        async with aclosing(coming):
            async for said in coming:
                report.receive(said)
                if report.is_settled:
                    return
    except (TimeoutError, ExternalAgentFailed):
        if not report.task_id:
            raise


async def _tell(
    requests: RemoteRequests, way: RemoteInterface, message: Message, thread: RemoteTaskRef
) -> AsyncGenerator[Said, None]:
    """Send a message; without a stream, the answer is waited for only when the task is known already.

    Raises Unanswered as well as what `RemoteRequests` raises.
    """
    heard = False
    try:
        if way.interface.streaming and way.interface.protocol != SYNAPSE:
            async with aclosing(way.converse(requests, message, thread)) as coming:
                async for said in coming:
                    heard = True
                    yield said
        else:
            # A task that is gone on with would be shown as it was, still waiting for us.
            yield await way.send(requests, message, thread, waits=bool(thread.task_id))
    except (TimeoutError, ExternalAgentUnreachable) as error:
        if requests.has_sent and not heard:
            why = "nothing was said in time" if isinstance(error, TimeoutError) else str(error)
            raise Unanswered(why) from error
        raise


_ERROR_EVENT: Final = "error"

Said = dict[str, Any]
"""One thing that an agent said: a task, a message or an update."""


class RemoteInterface:
    """How an agent is spoken to, in requests and answers. What it says comes in words that a Report understands."""

    def __init__(self, interface: Interface, credentials: Mapping[str, str]) -> None:
        self.interface = interface
        self._credentials = credentials

    async def send(
        self, requests: RemoteRequests, message: Message, thread: RemoteTaskRef, *, waits: bool = True
    ) -> Said:
        """Send a message, and return what is answered."""
        return await self._asked(requests, send_call(self.interface, message, thread, waits=waits))

    def converse(self, requests: RemoteRequests, message: Message, thread: RemoteTaskRef) -> AsyncGenerator[Said, None]:
        """Send a message, and yield what is said, as it comes."""
        return self._watched(requests, send_call(self.interface, message, thread))

    def follow(self, requests: RemoteRequests, task_id: str) -> AsyncGenerator[Said, None]:
        return self._watched(requests, subscribe_call(self.interface, task_id))

    async def look(self, requests: RemoteRequests, task_id: str) -> Said:
        return await self._asked(requests, get_call(self.interface, task_id))

    async def cancel(self, requests: RemoteRequests, task_id: str) -> Said:
        return await self._asked(requests, cancel_call(self.interface, task_id))

    async def _asked(self, requests: RemoteRequests, call: Call) -> Said:
        return self._plainly(result_of(await requests.ask(self._with_credentials(call))))

    async def _watched(self, requests: RemoteRequests, call: Call) -> AsyncGenerator[Said, None]:
        """What a stream says, or the one answer that came in its place."""
        heard = False
        async with aclosing(requests.follow(self._with_credentials(call))) as came:
            async for one in came:
                if isinstance(one, HttpAnswer):
                    yield self._plainly(result_of(one))
                    return
                said = json_object(one.data)
                if heard and (one.name == _ERROR_EVENT or said.get("error")):
                    # Not the agent's answer but the end of its server: the task may go on, and can be looked at.
                    raise ExternalAgentUnreachable(f"its stream broke off{sentence_of(said)}")
                heard = True
                yield self._plainly(rpc_result(said))

    def _plainly(self, said: Said) -> Said:
        is_other = (self.interface.protocol, self.interface.binding) == (A2A_0_3, REST)
        return cast("Said", respelt(said)) if is_other else said

    def _with_credentials(self, call: Call) -> Call:
        return replace(call, headers={**call.headers, **self._credentials})


def shown_at(credentials: Mapping[str, str], added: str, used: str) -> Mapping[str, str]:
    """The credentials, if they may travel to `used`; they were given for the agent at `added`.

    Raises ExternalAgentFailed.
    """
    here, there = urlsplit(added), urlsplit(used)
    is_as_open = here.scheme == "http" and here.hostname == there.hostname
    if not credentials or there.scheme == "https" or is_as_open:
        return credentials
    raise ExternalAgentFailed(
        f"its card sends us to {used}, where its credentials would be seen by others", hint="it should offer https"
    )


FOLDER: Final = "external"
CREDENTIALS: Final = "credentials"


def open_externals(home: Path, *, allow_private: bool = False) -> Externals:
    """The external agents whose files lie under the state folder `home`.

    `allow_private` lets those that somebody with a key has registered be at private and loopback addresses.
    """
    clock = SystemClock()
    credentials = credentials_under(home)
    client = _LateClient(credentials, allow_private=allow_private)
    return Externals(book_under(home), client, clock, new_id, credentials)


def book_under(home: Path) -> FileExternalBook:
    """Who is known."""
    return FileExternalBook(home / FOLDER)


def credentials_under(home: Path) -> FileCredentials:
    """What external agents are shown."""
    return FileCredentials(home / FOLDER / CREDENTIALS)


class _LateClient:
    """Implements ExternalClient. The real one brings a dozen modules; few hosts ever need them."""

    def __init__(self, credentials: FileCredentials, *, allow_private: bool) -> None:
        self._credentials = credentials
        self._allow_private = allow_private

    async def discover(self, url: str, credentials: Mapping[str, str], *, address_checked: bool) -> DiscoveredAgent:
        return await self._client.discover(url, credentials, address_checked=address_checked)

    async def send(self, agent: ExternalAgent, message: Message, seconds: float, *, task_id: str) -> ExternalAnswer:
        return await self._client.send(agent, message, seconds, task_id=task_id)

    def stream(
        self, agent: ExternalAgent, message: Message, seconds: float, *, task_id: str
    ) -> AsyncGenerator[ExternalAnswer, None]:
        return self._client.stream(agent, message, seconds, task_id=task_id)

    async def cancel(self, agent: ExternalAgent, task_id: str, seconds: float) -> ExternalAnswer:
        return await self._client.cancel(agent, task_id, seconds)

    @cached_property
    def _client(self) -> ExternalClient:

        return A2AClient(credentials=self._credentials.find, allow_private=self._allow_private)
