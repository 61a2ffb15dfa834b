"""Finds the card of an external agent, and chooses the protocol and the URL to speak to it.

supportedInterfaces 1.x with JSONRPC or HTTP+JSON                          → a2a-1.0
supportedInterfaces 0.x, or preferredTransport, with JSONRPC or HTTP+JSON  → a2a-0.3
any other card (`extensions.synapse`, or only a `url`)                     → synapse
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, cast
from urllib.parse import urljoin, urlsplit, urlunsplit

from synapse.core.errors import ExternalAgentFailed, ExternalAgentUnreachable, InvalidRequest
from synapse.core.message import Json
from synapse.core.text import sanitise
from synapse.external.decode import fields_of, json_object, list_of, result_of, text_of
from synapse.external.requests import Call, RemoteRequests
from synapse.net.http_types import HttpAnswer

SYNAPSE: Final = "synapse"
A2A_0_3: Final = "a2a-0.3"
A2A_1_0: Final = "a2a-1.0"
JSONRPC: Final = "JSONRPC"
REST: Final = "HTTP+JSON"

WELL_KNOWN: Final = ("/.well-known/agent-card.json", "/.well-known/agent.json")
"""The paths of cards: the second is the older one, and Synapse's own."""

_CARD_FIELDS: Final = {"url", "supportedInterfaces", "capabilities", "skills", "extensions"}
_MODE: Final = re.compile(r"[\w!#$&^.+*/-]{1,127}(?:; ?[\w=.-]{1,80})?", re.ASCII)
"""Also `text` and `image`, which are not media types but stand in many cards."""
_MOST_MODES: Final = 100
_SPOKEN: Final = {(A2A_1_0, JSONRPC), (A2A_1_0, REST), (A2A_0_3, JSONRPC), (A2A_0_3, REST)}
_MOST_REDIRECTS: Final = 3
_WANTS_CREDENTIALS: Final = (401, 403)


@dataclass(frozen=True, slots=True, kw_only=True)
class Interface:
    """A protocol and a URL to speak to an agent."""

    protocol: str
    url: str
    binding: str = ""
    tenant: str = ""
    streaming: bool = False


def checked_address(url: str) -> str:
    """Returns an agent's address in the form that is stored.

    Raises InvalidRequest when it cannot be the address of an agent.
    """
    hint = "write it as http://host:port or https://host"
    try:
        place = urlsplit(url.strip())
        port_is_a_number = place.port is None or place.port > 0
    except ValueError as error:
        raise InvalidRequest(f"{url!r} is not an address: {error}", hint=hint) from error
    if place.scheme not in ("http", "https") or not place.hostname or not port_is_a_number:
        raise InvalidRequest(f"{url!r} is not the address of an agent", hint=hint)
    if place.username is not None or place.password is not None:
        raise InvalidRequest("an address must not hold a password: lists show it", hint=hint)
    if not place.netloc.isprintable() or " " in place.netloc:
        raise InvalidRequest(f"{url!r} is not the address of an agent", hint=hint)
    return urlunsplit((place.scheme, place.netloc, place.path.rstrip("/"), place.query, ""))


def card_addresses(url: str) -> tuple[str, ...]:
    """Returns the URLs where the card of the agent at `url` may be; `url` may already be a card's."""
    place = urlsplit(url)
    if place.path.endswith(".json"):
        return (url,)
    base = place.path.rstrip("/")
    return tuple(urlunsplit((place.scheme, place.netloc, base + path, "", "")) for path in WELL_KNOWN)


def base_address(url: str) -> str:
    """Returns the agent's address, also when `url` is its card's."""
    place = urlsplit(url)
    for path in WELL_KNOWN:
        if place.path.endswith(path):
            return urlunsplit((place.scheme, place.netloc, place.path.removesuffix(path), "", ""))
    return url


def is_card(value: object) -> bool:
    """Whether a JSON value is an agent card."""
    if not isinstance(value, dict):
        return False
    card = cast("dict[str, Any]", value)
    name = card.get("name")
    return isinstance(name, str) and bool(name.strip()) and not _CARD_FIELDS.isdisjoint(card)


def shown_text(card: Json, key: str, longest: int) -> str:
    """Returns a text of the card for people: one line, without control characters."""
    value = card.get(key)
    return " ".join(sanitise(value).split())[:longest] if isinstance(value, str) else ""


def modes_in(card: Json, direction: Literal["Input", "Output"]) -> tuple[str, ...]:
    """Returns the media types of a card: first those of all skills, then those of single ones."""
    named = [card.get(f"default{direction}Modes")]
    named += [fields_of(skill).get(f"{direction.lower()}Modes") for skill in list_of(card.get("skills"))]
    modes = [mode for modes in named for mode in list_of(modes) if isinstance(mode, str) and _MODE.fullmatch(mode)]
    return tuple(dict.fromkeys(modes))[:_MOST_MODES]


def choose_interface(card: Json, found_at: str) -> Interface:
    """Returns the best interface of the agent whose card was found at `found_at`.

    Raises ExternalAgentFailed when the card offers none that Synapse speaks.
    """
    streaming = fields_of(card.get("capabilities")).get("streaming") is True
    offered = 0
    for protocol, binding, url, tenant in _offers(card):
        offered += 1
        if (protocol, binding) in _SPOKEN:
            place = _reachable(url, found_at)
            return Interface(protocol=protocol, url=place, binding=binding, tenant=tenant, streaming=streaming)
    if offered and "synapse" not in fields_of(card.get("extensions")):
        raise ExternalAgentFailed(
            "its card offers no interface that Synapse speaks", hint="Synapse speaks JSON-RPC and REST"
        )
    return Interface(protocol=SYNAPSE, url=base_address(found_at), streaming=True)


def _offers(card: Json) -> Iterator[tuple[str, str, str, str]]:
    """Yields (protocol, binding, url, tenant) of each interface, the preferred ones first: 1.0 before 0.3."""
    interfaces = [fields_of(item) for item in list_of(card.get("supportedInterfaces"))]
    for version, protocol in (("1.", A2A_1_0), ("0.", A2A_0_3)):
        for interface in interfaces:
            if text_of(interface, "protocolVersion").startswith(version):
                binding, tenant = text_of(interface, "protocolBinding"), text_of(interface, "tenant")
                yield protocol, binding, text_of(interface, "url"), tenant
    if "preferredTransport" in card or text_of(card, "protocolVersion").startswith("0."):
        # 0.3 §5.6: without a preferred transport the url speaks JSON-RPC.
        yield A2A_0_3, text_of(card, "preferredTransport") or JSONRPC, text_of(card, "url"), ""
    for item in list_of(card.get("additionalInterfaces")):
        interface = fields_of(item)
        yield A2A_0_3, text_of(interface, "transport"), text_of(interface, "url"), ""


def _reachable(url: str, found_at: str) -> str:
    """Returns the URL of an interface as seen from here.

    `localhost` or 0.0.0.0 in a card means the machine where the card was found, not ours: otherwise a stranger's card
    could make us call our own services.
    """
    try:
        place = urlsplit(urljoin(found_at, url))
        host, port = place.hostname or "", place.port
    except ValueError as error:
        raise ExternalAgentFailed(f"its card gives the address {url!r}, which is not valid") from error
    if place.scheme not in ("http", "https") or not host or place.username is not None:
        raise ExternalAgentFailed(f"its card gives the address {url!r}, which Synapse cannot call")
    if _is_local(host):
        there = urlsplit(found_at).hostname or host
        host = f"[{there}]" if ":" in there else there
        place = place._replace(netloc=host if port is None else f"{host}:{port}")
    return urlunsplit(place._replace(fragment=""))


def _is_local(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


async def find_card(requests: RemoteRequests, url: str, credentials: Mapping[str, str]) -> tuple[Json, str]:
    """Returns the card of the agent at `url`, and the protocol to speak to it.

    Raises ExternalAgentFailed or TimeoutError.
    """
    reasons: list[str] = []
    for address in card_addresses(url):
        try:
            card = _card(await _fetch(requests, address, credentials))
        except _NoCard as why:
            reasons.append(f"{urlsplit(address).path} {why}")
        except ExternalAgentUnreachable as error:
            tried = f"{error} (asked for {urlsplit(address).path})"
            raise ExternalAgentUnreachable(tried, hint=error.hint) from error
        else:
            return card, choose_interface(card, url).protocol
    raise ExternalAgentFailed("; ".join(reasons), hint="an A2A agent serves its card at /.well-known/agent-card.json")


class _NoCard(Exception):
    """There is no card at this URL; it may be at another."""


def _card(answer: HttpAnswer) -> Json:
    """Returns the card in an answer. Raises ExternalAgentFailed or _NoCard."""
    if answer.status in _WANTS_CREDENTIALS:
        return result_of(answer)  # raises the error that says so
    if answer.status != 200:
        raise _NoCard(f"answered {answer.status}")
    try:
        card = json_object(answer.body)
    except ExternalAgentFailed as error:
        raise _NoCard("is not JSON") from error
    if not is_card(card):
        raise _NoCard("is not an agent card")
    return card


async def _fetch(requests: RemoteRequests, address: str, credentials: Mapping[str, str]) -> HttpAnswer:
    """Gets the document at `address`; follows redirects on its host."""
    for _ in range(_MOST_REDIRECTS + 1):
        answer = await requests.ask(Call(address, headers=credentials))
        if not answer.location:
            return answer
        address = _redirected(address, answer.location)
    raise ExternalAgentFailed("it redirects too often")


def _redirected(address: str, location: str) -> str:
    """Returns the target of a redirect. Raises ExternalAgentFailed unless it is on the host of `address`."""
    try:
        there = checked_address(urljoin(address, location))
    except (ValueError, InvalidRequest) as error:
        raise ExternalAgentFailed("it redirects to something that is not an address") from error
    here = urlsplit(address)
    # A redirect to any host would let a stranger choose which server we call.
    if urlsplit(there).hostname != here.hostname or (here.scheme == "https" and not there.startswith("https:")):
        raise ExternalAgentFailed(f"it redirects to {there}", hint="add the agent by that address if you trust it")
    return there
