"""Finding the card of an external agent: where cards lie, and what is done when something else lies there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import urljoin, urlsplit

from synapse.core.errors import ExternalAgentFailed, ExternalAgentUnreachable, InvalidRequest
from synapse.core.message import Json
from synapse.transports.errand import Answer, Call, Errand
from synapse.transports.external_card import card_addresses, checked_address, choose_interface, is_card
from synapse.transports.external_report import json_object, result_of

_REDIRECTS: Final = 3
_WANTS_CREDENTIALS: Final = (401, 403)


def find_card(errand: Errand, url: str, credentials: Mapping[str, str]) -> tuple[Json, str]:
    """Return the card of the agent at `url`, and the protocol that we speak with it.

    Raises ExternalAgentFailed or TimeoutError.
    """
    whys: list[str] = []
    for address in card_addresses(url):
        try:
            card = _card(_fetch(errand, address, credentials))
        except _NoCard as why:
            whys.append(f"{urlsplit(address).path} {why}")
        except ExternalAgentUnreachable as error:
            tried = f"{error} (asked for {urlsplit(address).path})"
            raise ExternalAgentUnreachable(tried, hint=error.hint) from error
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


def _fetch(errand: Errand, address: str, credentials: Mapping[str, str]) -> Answer:
    """Get what lies at `address`, also after it has moved on the same host."""
    for _ in range(_REDIRECTS + 1):
        answer = errand.ask(Call(address, headers=credentials))
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
