"""Speaks to external agents: finds their cards, sends messages, waits for answers.

A2A 1.0 (JSON-RPC, REST), A2A 0.3 (JSON-RPC) and the synapse dialect; each errand runs in a thread of its own pool, so a
slow stranger delays nobody else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar
from urllib.parse import urljoin, urlsplit

from synapse.core.clock import Clock
from synapse.core.errors import ExternalAgentFailed, ExternalAgentUnreachable, InvalidRequest, WaitTimedOut
from synapse.core.message import Json, Message
from synapse.core.status import ExternalAgent, ExternalAnswer
from synapse.service.externals import Found
from synapse.transports.errand import Answer, Call, Errand
from synapse.transports.external_card import (
    SYNAPSE,
    card_addresses,
    checked_address,
    choose_interface,
    is_card,
    shown_text,
)
from synapse.transports.external_report import Report, json_object, result_of, rpc_result
from synapse.transports.external_words import send_call, subscribe_call

DISCOVER_SECONDS: Final = 10.0
MOST_ERRANDS: Final = 16
_REDIRECTS: Final = 3
_GRACE_SECONDS: Final = 1.0
"""An errand keeps its own deadline; a server that sends byte by byte is cut off this much later."""
_WANTS_CREDENTIALS: Final = (401, 403)

Result = TypeVar("Result")


class A2AClient:
    """Implements `service.externals.ExternalClient`."""

    def __init__(self, clock: Clock, *, discover_seconds: float = DISCOVER_SECONDS) -> None:
        self._clock = clock
        self._discover_seconds = discover_seconds
        self._pool = ThreadPoolExecutor(MOST_ERRANDS, thread_name_prefix="external")

    async def discover(self, url: str) -> Found:
        """Read the card of the agent at `url`, which may be the card's own address.

        Raises InvalidRequest or ExternalAgentFailed.
        """
        address = checked_address(url)
        try:
            card, protocol = await self._run(self._discover_seconds, lambda errand: _find(errand, address))
        except TimeoutError as error:
            why = f"no agent was found at {address}: no answer within {self._discover_seconds:g} seconds"
            raise ExternalAgentUnreachable(why) from error
        except ExternalAgentFailed as error:
            raise type(error)(f"no agent was found at {address}: {error}", hint=error.hint) from error
        return Found(
            url=address,
            name=shown_text(card, "name", 200),
            description=shown_text(card, "description", 1000),
            protocol=protocol,
            card=card,
        )

    async def send(self, agent: ExternalAgent, message: Message, seconds: float) -> ExternalAnswer:
        """Send a message and wait at most `seconds` for the answer.

        Raises:
            ExternalAgentFailed: it cannot be reached, refuses, or makes no sense.
            WaitTimedOut: it said nothing in time, not even the id of its task.
        """
        try:
            return await self._run(seconds, lambda errand: _send(errand, agent, message))
        except TimeoutError as error:
            raise WaitTimedOut(
                f"'{agent.alias}' has not answered within {seconds:g} seconds",
                hint="it may be at work on it all the same; a longer --timeout waits longer",
            ) from error
        except ExternalAgentFailed as error:
            raise type(error)(f"'{agent.alias}': {error}", hint=error.hint) from error

    async def _run(self, seconds: float, work: Callable[[Errand], Result]) -> Result:
        """Run an errand in a thread, and call it off when the caller is cancelled or its time is over."""
        errand = Errand(self._clock.monotonic, seconds)

        def run() -> Result:
            with errand:
                return work(errand)

        try:
            async with asyncio.timeout(seconds + _GRACE_SECONDS):
                return await asyncio.get_running_loop().run_in_executor(self._pool, run)
        finally:
            errand.call_off()


def _find(errand: Errand, url: str) -> tuple[Json, str]:
    """The card of the agent at `url`, and the protocol that we speak with it."""
    whys: list[str] = []
    for address in card_addresses(url):
        try:
            card = _card(_fetch(errand, address))
        except _NoCard as why:
            whys.append(f"{urlsplit(address).path} {why}")
        else:
            return card, choose_interface(card, url).protocol
    raise ExternalAgentFailed("; ".join(whys), hint="an A2A agent has its card at /.well-known/agent-card.json")


class _NoCard(Exception):
    """What lies there is not a card; another place may have it."""


def _card(answer: Answer) -> Json:
    if answer.status in _WANTS_CREDENTIALS:
        return result_of(answer)  # which says so
    if answer.status != 200:
        raise _NoCard(f"answered {answer.status}")
    try:
        card = json_object(answer.body)
    except ExternalAgentFailed as error:
        raise _NoCard("is not JSON") from error
    if not is_card(card):
        raise _NoCard("is not an agent card")
    return card


def _fetch(errand: Errand, address: str) -> Answer:
    """Get what lies at `address`, also after it has moved on the same host."""
    for _ in range(_REDIRECTS + 1):
        answer = errand.ask(Call(address))
        if not answer.location:
            return answer
        address = _moved(address, answer.location)
    raise ExternalAgentFailed("it sends us from one address to the next without end")


def _moved(address: str, location: str) -> str:
    try:
        there = checked_address(urljoin(address, location))
    except (ValueError, InvalidRequest) as error:
        raise ExternalAgentFailed("it sends us to something that is no address") from error
    here = urlsplit(address)
    # To follow a stranger to any other place would let it choose whom we speak to.
    if urlsplit(there).hostname != here.hostname or (here.scheme == "https" and not there.startswith("https:")):
        raise ExternalAgentFailed(f"it sends us to {there}", hint="add it by that address if you trust it")
    return there


def _send(errand: Errand, agent: ExternalAgent, message: Message) -> ExternalAnswer:
    interface = choose_interface(agent.card, agent.url)
    call, report = send_call(interface, message), Report()
    if interface.protocol == SYNAPSE:
        report.receive(result_of(errand.ask(call)))
        if report.task_id and not report.is_settled:
            _watch(errand, subscribe_call(interface, report.task_id), report)
    elif interface.streaming:
        _watch(errand, call, report)
    else:
        report.receive(result_of(errand.ask(call)))
    return report.answer(agent.alias)


def _watch(errand: Errand, call: Call, report: Report) -> None:
    """Follow a stream until it is settled.

    Once the task's id is known, an end of the time or of the stream is no error: the report says how far it came.
    """
    try:
        came = errand.follow(call)
        if isinstance(came, Answer):
            report.receive(result_of(came))
            return
        for event in came:
            report.receive(rpc_result(json_object(event.data)))
            if report.is_settled:
                return
    except (TimeoutError, ExternalAgentFailed):
        if not report.task_id:
            raise
