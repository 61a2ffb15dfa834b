"""What a card says about how its agent is spoken to. Pure.

supportedInterfaces with JSONRPC or HTTP+JSON, 1.x     → a2a-1.0
the same of 0.x; preferredTransport, …, with either    → a2a-0.3
anything else (`extensions.synapse`, or just a url)    → synapse

Finding the card of an external agent: where cards lie, and what is done when something else lies there.
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
from synapse.external.decode import json_object, result_of
from synapse.external.requests import Call, RemoteRequests
from synapse.net.http_types import HttpAnswer

SYNAPSE: Final = "synapse"
A2A_0_3: Final = "a2a-0.3"
A2A_1_0: Final = "a2a-1.0"
JSONRPC: Final = "JSONRPC"
REST: Final = "HTTP+JSON"

WELL_KNOWN: Final = ("/.well-known/agent-card.json", "/.well-known/agent.json")
"""Where cards lie: the second is the older place, and Synapse's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interface:
    """One way to speak to an agent."""

    protocol: str
    url: str
    binding: str = ""
    tenant: str = ""
    streaming: bool = False


def checked_address(url: str) -> str:
    """Return an address as it is remembered.

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
        raise InvalidRequest("an address holds no password: it is shown in lists", hint=hint)
    if not place.netloc.isprintable() or " " in place.netloc:
        raise InvalidRequest(f"{url!r} is not the address of an agent", hint=hint)
    return urlunsplit((place.scheme, place.netloc, place.path.rstrip("/"), place.query, ""))


def card_addresses(url: str) -> tuple[str, ...]:
    """Where the card of the agent at `url` may lie; `url` may already be a card's."""
    if urlsplit(url).path.endswith(".json"):
        return (url,)
    return tuple(_below(url, path) for path in WELL_KNOWN)


def base_address(url: str) -> str:
    """The agent's own address, when `url` may be its card's."""
    place = urlsplit(url)
    for path in WELL_KNOWN:
        if place.path.endswith(path):
            return urlunsplit((place.scheme, place.netloc, place.path.removesuffix(path), "", ""))
    return url


def is_card(value: object) -> bool:
    """Whether this JSON value describes an agent."""
    if not isinstance(value, dict):
        return False
    card = cast("dict[str, Any]", value)
    name = card.get("name")
    return isinstance(name, str) and bool(name.strip()) and not _CARD_FIELDS.isdisjoint(card)


_CARD_FIELDS: Final = {"url", "supportedInterfaces", "capabilities", "skills", "extensions"}


def shown_text(card: Json, key: str, longest: int) -> str:
    """A text of the card for people to read: one line, without anything that acts on a terminal."""
    value = card.get(key)
    return " ".join(sanitise(value).split())[:longest] if isinstance(value, str) else ""


def modes_in(card: Json, direction: Literal["Input", "Output"]) -> tuple[str, ...]:
    """The media types that an agent's card names for all of its skills, then those of single ones."""
    named = [card.get(f"default{direction}Modes")]
    named += [_object(skill).get(f"{direction.lower()}Modes") for skill in _list(card.get("skills"))]
    modes = [mode for modes in named for mode in _list(modes) if isinstance(mode, str) and _MODE.fullmatch(mode)]
    return tuple(dict.fromkeys(modes))[:_MOST_MODES]


_MODE: Final = re.compile(r"[\w!#$&^.+*/-]{1,127}(?:; ?[\w=.-]{1,80})?", re.ASCII)
"""Also `text` and `image`, which are no media types and stand in many cards."""
_MOST_MODES: Final = 100


def choose_interface(card: Json, found_at: str) -> Interface:
    """Return the best way to speak to the agent whose card was found at `found_at`.

    Raises ExternalAgentFailed when there is none that we know.
    """
    streaming = _object(card.get("capabilities")).get("streaming") is True
    offered = 0
    for protocol, binding, url, tenant in _offers(card):
        offered += 1
        if (protocol, binding) in _SPOKEN:
            place = _reachable(url, found_at)
            return Interface(protocol=protocol, url=place, binding=binding, tenant=tenant, streaming=streaming)
    if offered and "synapse" not in _object(card.get("extensions")):
        raise ExternalAgentFailed(
            "its card offers no way to speak to it that we know", hint="we speak JSON-RPC and REST"
        )
    return Interface(protocol=SYNAPSE, url=base_address(found_at), streaming=True)


_SPOKEN: Final = {(A2A_1_0, JSONRPC), (A2A_1_0, REST), (A2A_0_3, JSONRPC), (A2A_0_3, REST)}


def _offers(card: Json) -> Iterator[tuple[str, str, str, str]]:
    """(protocol, binding, url, tenant) of each interface, the preferred ones first: 1.0 before 0.3."""
    interfaces = [_object(item) for item in _list(card.get("supportedInterfaces"))]
    for version, protocol in (("1.", A2A_1_0), ("0.", A2A_0_3)):
        for interface in interfaces:
            if _text(interface, "protocolVersion").startswith(version):
                binding, tenant = _text(interface, "protocolBinding"), _text(interface, "tenant")
                yield protocol, binding, _text(interface, "url"), tenant
    if "preferredTransport" in card or _text(card, "protocolVersion").startswith("0."):
        # 0.3 §5.6: without a preferred transport the url speaks JSON-RPC.
        yield A2A_0_3, _text(card, "preferredTransport") or JSONRPC, _text(card, "url"), ""
    for item in _list(card.get("additionalInterfaces")):
        interface = _object(item)
        yield A2A_0_3, _text(interface, "transport"), _text(interface, "url"), ""


def _reachable(url: str, found_at: str) -> str:
    """The address of an interface as it is reached from here.

    A card that speaks of `localhost` or 0.0.0.0 means the machine that it was found on, not ours: otherwise a
    stranger's card could make us speak to our own services.
    """
    try:
        place = urlsplit(urljoin(found_at, url))
        host, port = place.hostname or "", place.port
    except ValueError as error:
        raise ExternalAgentFailed(f"its card gives the address {url!r}, which is none") from error
    if place.scheme not in ("http", "https") or not host or place.username is not None:
        raise ExternalAgentFailed(f"its card gives the address {url!r}, which we cannot call")
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


def _below(url: str, path: str) -> str:
    place = urlsplit(url)
    return urlunsplit((place.scheme, place.netloc, place.path.rstrip("/") + path, "", ""))


def _object(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []


def _text(fields: Json, key: str) -> str:
    value = fields.get(key)
    return value if isinstance(value, str) else ""


_REDIRECTS: Final = 3
_WANTS_CREDENTIALS: Final = (401, 403)


async def find_card(requests: RemoteRequests, url: str, credentials: Mapping[str, str]) -> tuple[Json, str]:
    """Return the card of the agent at `url`, and the protocol that we speak with it.

    Raises ExternalAgentFailed or TimeoutError.
    """
    whys: list[str] = []
    for address in card_addresses(url):
        try:
            card = _card(await _fetch(requests, address, credentials))
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


def _card(answer: HttpAnswer) -> Json:
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


async def _fetch(requests: RemoteRequests, address: str, credentials: Mapping[str, str]) -> HttpAnswer:
    """Get what lies at `address`, also after it has moved on the same host."""
    for _ in range(_REDIRECTS + 1):
        answer = await requests.ask(Call(address, headers=credentials))
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
