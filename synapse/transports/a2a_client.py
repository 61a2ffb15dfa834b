"""Speaks to external agents: finds their cards, sends messages, waits for answers.

A2A 1.0 and 0.3 (JSON-RPC, REST) and the synapse dialect; each errand runs in a thread of its own pool, so a
slow stranger delays nobody else. Credentials go to the agent that they are for, and never unprotected where it was
added by a protected address.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from typing import Final, TypeVar

from synapse.core.clock import Clock
from synapse.core.errors import ExternalAgentFailed, ExternalAgentUnreachable, WaitTimedOut
from synapse.core.external_errors import ExternalAddressRefused
from synapse.core.message import Message
from synapse.core.status import ExternalAgent, ExternalAnswer
from synapse.core.wire_errors import InvalidField
from synapse.service.externals import Found
from synapse.transports.errand import Errand
from synapse.transports.external_card import SYNAPSE, checked_address, choose_interface, shown_text
from synapse.transports.external_dialing import Dial, GuardedDial, dial_anywhere
from synapse.transports.external_discovery import find_card
from synapse.transports.external_report import Report
from synapse.transports.external_way import Said, Way, shown_at
from synapse.transports.external_words import Thread

DISCOVER_SECONDS: Final = 10.0
MOST_ERRANDS: Final = 16
_GRACE_SECONDS: Final = 1.0
"""An errand keeps its own deadline; a server that sends byte by byte is cut off this much later."""

Result = TypeVar("Result")


class Unanswered(Exception):
    """A message was sent, and the connection ended before anything was said: it may have been taken or not."""


def no_credentials(_alias: str) -> Mapping[str, str]:
    return {}


class A2AClient:
    """Implements `service.externals.ExternalClient`, and what a driver of an external agent needs.

    `credentials` gives the headers that an agent is shown, by its alias; `guarded` connects to agents that somebody
    with a key has registered.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        credentials: Callable[[str], Mapping[str, str]] = no_credentials,
        guarded: Dial | None = None,
        discover_seconds: float = DISCOVER_SECONDS,
    ) -> None:
        self._clock = clock
        self._guarded = guarded or GuardedDial(allow_private=False)
        self._credentials = credentials
        self._discover_seconds = discover_seconds
        self._pool = ThreadPoolExecutor(MOST_ERRANDS, thread_name_prefix="external")

    async def discover(self, url: str, credentials: Mapping[str, str] | None = None, *, guarded: bool = False) -> Found:
        """Read the card of the agent at `url`, which may be the card's own address.

        Raises InvalidRequest, also for a `guarded` address that is not called, or ExternalAgentFailed.
        """
        address = checked_address(url)
        shown = credentials or {}
        try:
            card, protocol = await self._run(
                self._discover_seconds, lambda errand: find_card(errand, address, shown), guarded=guarded
            )
        except TimeoutError as error:
            why = f"no agent was found at {address}: no answer within {self._discover_seconds:g} seconds"
            raise ExternalAgentUnreachable(why) from error
        except ExternalAddressRefused as error:
            raise InvalidField("url", str(error), hint=error.hint) from error
        except ExternalAgentFailed as error:
            raise type(error)(f"no agent was found at {address}: {error}", hint=error.hint) from error
        return Found(
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
        thread = Thread(task_id=task_id)
        try:
            return await self._run(
                seconds,
                lambda errand: _send(errand, self._way(agent), agent, message, thread),
                guarded=agent.guarded,
            )
        except TimeoutError as error:
            raise _too_late(agent, seconds) from error
        except ExternalAgentFailed as error:
            raise type(error)(f"'{agent.alias}': {error}", hint=error.hint) from error

    async def stream(
        self, agent: ExternalAgent, message: Message, seconds: float, *, task_id: str = ""
    ) -> AsyncGenerator[ExternalAnswer, None]:
        """The same as `send`; yields the answer as far as it is, whenever there is more of it. Raises as `send` does.

        An agent without streams has one answer, at the end.
        """
        interface, report = choose_interface(agent.card, agent.url), Report()
        if not interface.streaming:
            yield await self.send(agent, message, seconds, task_id=task_id)
            return
        telling = self.tell(agent, message, Thread(task_id=task_id), seconds)
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
            raise type(error)(f"'{agent.alias}': {error}", hint=error.hint) from error

    def tell(
        self, agent: ExternalAgent, message: Message, thread: Thread, seconds: float
    ) -> AsyncGenerator[Said, None]:
        """Send a message; yields what is said, as it comes, until the agent has no more to say here and now.

        Raises ExternalAgentFailed (it did not take it), Unanswered, or TimeoutError after `seconds`.
        """
        return self._followed(
            seconds, lambda errand: _tell(errand, self._way(agent), message, thread), guarded=agent.guarded
        )

    def follow(self, agent: ExternalAgent, task_id: str, seconds: float) -> AsyncGenerator[Said, None]:
        """Follow a task. Raises ExternalAgentFailed, or TimeoutError after `seconds`."""
        return self._followed(seconds, lambda errand: self._way(agent).follow(errand, task_id), guarded=agent.guarded)

    async def look(self, agent: ExternalAgent, task_id: str, seconds: float) -> Said:
        """Read a task. Raises ExternalAgentFailed or TimeoutError."""
        return await self._run(seconds, lambda errand: self._way(agent).look(errand, task_id), guarded=agent.guarded)

    async def cancel(self, agent: ExternalAgent, task_id: str, seconds: float) -> ExternalAnswer:
        """Stop a task. Raises ExternalAgentFailed, also when it does not want to, or TimeoutError."""
        report = Report()
        said = await self._run(seconds, lambda errand: self._way(agent).cancel(errand, task_id), guarded=agent.guarded)
        report.receive(said)
        return report.answer(agent.alias)

    def has_streams(self, agent: ExternalAgent) -> bool:
        """Whether a task can be followed. Raises ExternalAgentFailed."""
        return choose_interface(agent.card, agent.url).streaming

    def _way(self, agent: ExternalAgent) -> Way:
        interface = choose_interface(agent.card, agent.url)
        return Way(interface, shown_at(self._credentials(agent.alias), agent.url, interface.url))

    def _errand(self, seconds: float, *, guarded: bool) -> Errand:
        return Errand(self._clock.monotonic, seconds, self._guarded if guarded else dial_anywhere)

    async def _followed(
        self, seconds: float, work: Callable[[Errand], Generator[Said, None, None]], *, guarded: bool
    ) -> AsyncGenerator[Said, None]:
        """Run an errand in a thread and yield what it brings; it is called off when nobody wants more of it."""
        errand = self._errand(seconds, guarded=guarded)
        loop = asyncio.get_running_loop()
        brought: asyncio.Queue[Said | Exception | None] = asyncio.Queue()

        def bring(item: Said | Exception | None) -> None:
            with suppress(RuntimeError):  # the loop has ended meanwhile
                # Not bounded by itself: an errand brings no more than the largest answer.
                loop.call_soon_threadsafe(brought.put_nowait, item)

        def run() -> None:
            try:
                with errand:
                    for said in work(errand):
                        bring(said)
            except Exception as error:  # noqa: BLE001 - it belongs to whoever waits, whatever it is
                bring(error)
            else:
                bring(None)

        self._pool.submit(run)
        try:
            while (item := await brought.get()) is not None:
                if isinstance(item, Exception):
                    raise item
                yield item
        finally:
            errand.call_off()

    async def _run(self, seconds: float, work: Callable[[Errand], Result], *, guarded: bool) -> Result:
        """Run an errand in a thread, and call it off when the caller is cancelled or its time is over."""
        errand = self._errand(seconds, guarded=guarded)

        def run() -> Result:
            with errand:
                return work(errand)

        try:
            async with asyncio.timeout(seconds + _GRACE_SECONDS):
                return await asyncio.get_running_loop().run_in_executor(self._pool, run)
        finally:
            errand.call_off()


def _too_late(agent: ExternalAgent, seconds: float) -> WaitTimedOut:
    return WaitTimedOut(
        f"'{agent.alias}' has not answered within {seconds:g} seconds",
        hint="it may be at work on it all the same; a longer --timeout waits longer",
    )


def _send(errand: Errand, way: Way, agent: ExternalAgent, message: Message, thread: Thread) -> ExternalAnswer:
    report = Report()
    if way.interface.protocol == SYNAPSE:
        report.receive(way.send(errand, message, thread))
        if report.task_id and not report.is_settled:
            _watch(way.follow(errand, report.task_id), report)
    elif way.interface.streaming:
        _watch(way.converse(errand, message, thread), report)
    else:
        report.receive(way.send(errand, message, thread))
    return report.answer(agent.alias)


def _watch(coming: Generator[Said, None, None], report: Report) -> None:
    """Follow a stream until it is settled.

    Once the task's id is known, an end of the time or of the stream is no error: the report says how far it came.
    """
    try:
        for said in coming:
            report.receive(said)
            if report.is_settled:
                return
    except (TimeoutError, ExternalAgentFailed):
        if not report.task_id:
            raise


def _tell(errand: Errand, way: Way, message: Message, thread: Thread) -> Generator[Said, None, None]:
    """Send a message; without a stream, the answer is waited for only when the task is known already.

    Raises Unanswered as well as what an errand raises.
    """
    heard = False
    try:
        if way.interface.streaming and way.interface.protocol != SYNAPSE:
            for said in way.converse(errand, message, thread):
                heard = True
                yield said
        else:
            # A task that is gone on with would be shown as it was, still waiting for us.
            yield way.send(errand, message, thread, waits=bool(thread.task_id))
    except (TimeoutError, ExternalAgentUnreachable) as error:
        if errand.spoke and not heard:
            raise Unanswered(str(error) or "nothing was said in time") from error
        raise
