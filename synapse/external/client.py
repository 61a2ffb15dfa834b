"""A client of external agents: finds their cards, sends messages, follows tasks. For hosts, the gateway and the CLI.

It speaks A2A 1.0 and 0.3 (JSON-RPC, REST) and the synapse dialect. Credentials go only to the agent that they are for,
and never over plain HTTP if the agent was added by an https address. Cancelling a call, or leaving a stream, closes its
connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast
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
from synapse.external.agents import DiscoveredAgent, Externals
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
from synapse.external.decode import RemoteTaskState, error_text, json_object, result_of, rpc_result, to_1_0
from synapse.external.encode import RemoteTaskRef, cancel_call, get_call, send_call, subscribe_call
from synapse.external.files import FileCredentials, FileExternalStore
from synapse.external.requests import Call, RemoteRequests
from synapse.net.address_guard import AGENTS, AddressGuard
from synapse.net.http import HttpClient, deadline_in
from synapse.net.http_types import HttpAnswer

FOLDER: Final = "external"
CREDENTIALS: Final = "credentials"
DISCOVER_SECONDS: Final = 10.0
MOST_AT_ONCE: Final = 16
"""Open requests and streams of one client; others wait."""

RemoteUpdate = dict[str, Any]
"""One object that an agent sent: a task, a message or an update of a task."""


def open_externals(home: Path, *, allow_private: bool = False) -> Externals:
    """Returns the external agents whose files are in the state folder `home`.

    `allow_private` permits private and loopback addresses for agents that a caller with a key registered.
    """
    credentials = credentials_under(home)
    client = A2AClient(credentials=credentials.find, allow_private=allow_private)
    return Externals(store_under(home), client, SystemClock(), new_id, credentials)


def store_under(home: Path) -> FileExternalStore:
    """Returns the store of external agents in the state folder `home`."""
    return FileExternalStore(home / FOLDER)


def credentials_under(home: Path) -> FileCredentials:
    """Returns the credentials for external agents in the state folder `home`."""
    return FileCredentials(home / FOLDER / CREDENTIALS)


class Unanswered(Exception):
    """A message was sent, and the connection ended before any answer: the agent may have taken it or not."""


def no_credentials(_alias: str) -> Mapping[str, str]:
    return {}


class A2AClient:
    """Implements `agents.ExternalClient` and `conversation.RemoteClient`.

    `credentials` returns the headers for an agent, by its alias; it runs in a thread. `allow_private` permits private
    and loopback addresses for agents that a caller with a key registered.
    """

    def __init__(
        self,
        *,
        credentials: Callable[[str], Mapping[str, str]] = no_credentials,
        allow_private: bool = False,
        discover_seconds: float = DISCOVER_SECONDS,
    ) -> None:
        self._client = HttpClient()
        self._checked_client = HttpClient(AddressGuard(allow_private=allow_private, switch=AGENTS))
        self._credentials = credentials
        self._discover_seconds = discover_seconds
        self._slots = asyncio.Semaphore(MOST_AT_ONCE)

    async def discover(
        self, url: str, credentials: Mapping[str, str] | None = None, *, address_checked: bool = False
    ) -> DiscoveredAgent:
        """Reads the card of the agent at `url`, which may be the card's own URL.

        Raises ExternalAgentFailed, or InvalidRequest, also for a private address when `address_checked` is set.
        """
        address = checked_address(url)
        headers = credentials or {}
        try:
            async with self._requests(self._discover_seconds, address_checked=address_checked) as requests:
                card, protocol = await find_card(requests, address, headers)
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
        """Sends a message and waits at most `seconds` for the answer; `task_id` continues a task of the agent.

        Raises:
            ExternalAgentFailed: the agent cannot be reached, refuses, or answers nonsense.
            WaitTimedOut: the agent sent nothing in time, not even the id of its task.
        """
        ref = RemoteTaskRef(task_id=task_id)
        try:
            async with self._connected(agent, seconds) as (requests, remote):
                return await _send(requests, remote, agent, message, ref)
        except TimeoutError as error:
            raise _too_late(agent, seconds) from error
        except ExternalAgentFailed as error:
            raise error.reworded(f"'{agent.alias}': {error}") from error

    async def stream(
        self, agent: ExternalAgent, message: Message, seconds: float, *, task_id: str = ""
    ) -> AsyncGenerator[ExternalAnswer, None]:
        """Sends a message and yields the answer so far, whenever it grows. Raises what `send` raises.

        For an agent without streams it yields one answer, at the end.
        """
        interface, report = choose_interface(agent.card, agent.url), RemoteTaskState()
        if not interface.streaming:
            yield await self.send(agent, message, seconds, task_id=task_id)
            return
        sending = self.send_and_follow(agent, message, RemoteTaskRef(task_id=task_id), seconds)
        try:
            async with aclosing(sending) as updates:
                async for update in updates:
                    report.receive(update)
                    yield report.answer(agent.alias)
            if interface.protocol == SYNAPSE and not report.is_settled:
                async with aclosing(self.follow(agent, report.task_id, seconds)) as updates:
                    async for update in updates:
                        report.receive(update)
                        yield report.answer(agent.alias)
        except (TimeoutError, Unanswered) as error:
            if not report.task_id:
                raise _too_late(agent, seconds) from error
        except ExternalAgentFailed as error:
            raise error.reworded(f"'{agent.alias}': {error}") from error

    def send_and_follow(
        self, agent: ExternalAgent, message: Message, ref: RemoteTaskRef, seconds: float
    ) -> AsyncGenerator[RemoteUpdate, None]:
        """Sends a message and yields the updates until the agent ends its answer.

        Raises ExternalAgentFailed (the agent did not take it), Unanswered, or TimeoutError after `seconds`.
        """
        return self._stream(agent, seconds, lambda requests, remote: _send_and_follow(requests, remote, message, ref))

    def follow(self, agent: ExternalAgent, task_id: str, seconds: float) -> AsyncGenerator[RemoteUpdate, None]:
        """Follows a task. Raises ExternalAgentFailed, or TimeoutError after `seconds`."""
        return self._stream(agent, seconds, lambda requests, remote: remote.follow(requests, task_id))

    async def get_task(self, agent: ExternalAgent, task_id: str, seconds: float) -> RemoteUpdate:
        """Reads a task. Raises ExternalAgentFailed or TimeoutError."""
        async with self._connected(agent, seconds) as (requests, remote):
            return await remote.get_task(requests, task_id)

    async def cancel(self, agent: ExternalAgent, task_id: str, seconds: float) -> ExternalAnswer:
        """Cancels a task. Raises ExternalAgentFailed, also when the agent refuses, or TimeoutError."""
        report = RemoteTaskState()
        async with self._connected(agent, seconds) as (requests, remote):
            report.receive(await remote.cancel(requests, task_id))
        return report.answer(agent.alias)

    def has_streams(self, agent: ExternalAgent) -> bool:
        """Whether the agent's tasks can be followed. Raises ExternalAgentFailed."""
        return choose_interface(agent.card, agent.url).streaming

    async def _stream(
        self,
        agent: ExternalAgent,
        seconds: float,
        work: Callable[[RemoteRequests, RemoteInterface], AsyncGenerator[RemoteUpdate, None]],
    ) -> AsyncGenerator[RemoteUpdate, None]:
        async with (
            self._connected(agent, seconds) as (requests, remote),
            aclosing(work(requests, remote)) as updates,
        ):
            async for update in updates:
                yield update

    @asynccontextmanager
    async def _connected(
        self, agent: ExternalAgent, seconds: float
    ) -> AsyncGenerator[tuple[RemoteRequests, RemoteInterface], None]:
        """Yields what asks the agent, with the credentials that its file holds now."""
        async with self._requests(seconds, address_checked=agent.address_checked) as requests:
            interface = choose_interface(agent.card, agent.url)
            credentials = await asyncio.to_thread(self._credentials, agent.alias)
            yield requests, RemoteInterface(interface, credentials_for(credentials, agent.url, interface.url))

    @asynccontextmanager
    async def _requests(self, seconds: float, *, address_checked: bool) -> AsyncGenerator[RemoteRequests, None]:
        """Waits for one of MOST_AT_ONCE slots. Raises TimeoutError when none is free in time."""
        deadline = deadline_in(seconds)
        async with asyncio.timeout_at(deadline):
            await self._slots.acquire()
        try:
            yield RemoteRequests(self._checked_client if address_checked else self._client, deadline)
        finally:
            self._slots.release()


def _too_late(agent: ExternalAgent, seconds: float) -> WaitTimedOut:
    return WaitTimedOut(
        f"'{agent.alias}' has not answered within {seconds:g} seconds",
        hint="the agent may still work on it; a longer --timeout waits longer",
    )


async def _send(
    requests: RemoteRequests, remote: RemoteInterface, agent: ExternalAgent, message: Message, ref: RemoteTaskRef
) -> ExternalAnswer:
    report = RemoteTaskState()
    if remote.interface.protocol == SYNAPSE:
        report.receive(await remote.send(requests, message, ref))
        if report.task_id and not report.is_settled:
            await _watch(remote.follow(requests, report.task_id), report)
    elif remote.interface.streaming:
        await _watch(remote.send_streaming(requests, message, ref), report)
    else:
        report.receive(await remote.send(requests, message, ref))
    return report.answer(agent.alias)


async def _watch(updates: AsyncGenerator[RemoteUpdate, None], report: RemoteTaskState) -> None:
    """Follows a stream until the task is settled.

    Once the task's id is known, a timeout or a broken stream is not an error: `report` holds the state so far.
    """
    try:
        async with aclosing(updates):
            async for update in updates:
                report.receive(update)
                if report.is_settled:
                    return
    except (TimeoutError, ExternalAgentFailed):
        if not report.task_id:
            raise


async def _send_and_follow(
    requests: RemoteRequests, remote: RemoteInterface, message: Message, ref: RemoteTaskRef
) -> AsyncGenerator[RemoteUpdate, None]:
    """Sends a message and yields the updates. Without a stream, waits for the answer only to a task that is known.

    Raises Unanswered, and what `RemoteRequests` raises.
    """
    answered = False
    try:
        if remote.interface.streaming and remote.interface.protocol != SYNAPSE:
            async with aclosing(remote.send_streaming(requests, message, ref)) as updates:
                async for update in updates:
                    answered = True
                    yield update
        else:
            # Without waiting, a continued task would come back in its old state: waiting for input.
            yield await remote.send(requests, message, ref, waits=bool(ref.task_id))
    except (TimeoutError, ExternalAgentUnreachable) as error:
        if requests.has_sent and not answered:
            why = "no answer came in time" if isinstance(error, TimeoutError) else str(error)
            raise Unanswered(why) from error
        raise


class RemoteInterface:
    """Makes requests to one interface of an agent, with its credentials. Returns updates that RemoteTaskState reads."""

    def __init__(self, interface: Interface, credentials: Mapping[str, str]) -> None:
        self.interface = interface
        self._credentials = credentials

    async def send(
        self, requests: RemoteRequests, message: Message, ref: RemoteTaskRef, *, waits: bool = True
    ) -> RemoteUpdate:
        """Sends a message and returns the answer."""
        return await self._ask(requests, send_call(self.interface, message, ref, waits=waits))

    def send_streaming(
        self, requests: RemoteRequests, message: Message, ref: RemoteTaskRef
    ) -> AsyncGenerator[RemoteUpdate, None]:
        """Sends a message and yields the updates of its stream."""
        return self._follow(requests, send_call(self.interface, message, ref))

    def follow(self, requests: RemoteRequests, task_id: str) -> AsyncGenerator[RemoteUpdate, None]:
        return self._follow(requests, subscribe_call(self.interface, task_id))

    async def get_task(self, requests: RemoteRequests, task_id: str) -> RemoteUpdate:
        return await self._ask(requests, get_call(self.interface, task_id))

    async def cancel(self, requests: RemoteRequests, task_id: str) -> RemoteUpdate:
        return await self._ask(requests, cancel_call(self.interface, task_id))

    async def _ask(self, requests: RemoteRequests, call: Call) -> RemoteUpdate:
        return self._normalised(result_of(await requests.ask(self._with_credentials(call))))

    async def _follow(self, requests: RemoteRequests, call: Call) -> AsyncGenerator[RemoteUpdate, None]:
        """Yields the updates of a stream, or the one answer that came in its place."""
        begun = False
        async with aclosing(requests.follow(self._with_credentials(call))) as events:
            async for event in events:
                if isinstance(event, HttpAnswer):
                    yield self._normalised(result_of(event))
                    return
                fields = json_object(event.data)
                if begun and (event.name == "error" or fields.get("error")):
                    # The agent's server ends, not its task: the task may go on, and can be read later.
                    raise ExternalAgentUnreachable(f"its stream broke off{error_text(fields)}")
                begun = True
                yield self._normalised(rpc_result(fields))

    def _normalised(self, update: RemoteUpdate) -> RemoteUpdate:
        is_0_3_rest = (self.interface.protocol, self.interface.binding) == (A2A_0_3, REST)
        return cast("RemoteUpdate", to_1_0(update)) if is_0_3_rest else update

    def _with_credentials(self, call: Call) -> Call:
        return replace(call, headers={**call.headers, **self._credentials})


def credentials_for(credentials: Mapping[str, str], added: str, used: str) -> Mapping[str, str]:
    """Returns the credentials of the agent that was added as `added`, if they may be sent to `used`.

    Raises ExternalAgentFailed if they may not.
    """
    here, there = urlsplit(added), urlsplit(used)
    is_as_open = here.scheme == "http" and here.hostname == there.hostname
    if not credentials or there.scheme == "https" or is_as_open:
        return credentials
    raise ExternalAgentFailed(
        f"its card names {used}, where others could read its credentials", hint="the agent should offer https"
    )
