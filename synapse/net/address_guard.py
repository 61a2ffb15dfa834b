"""Decides which addresses a webhook, or an agent that a key registers, may have.

    url ─► parse_target ─► Target ─► AddressGuard.addresses ─► resolved once, every address checked

The caller chooses the address, so the guard refuses one that only this machine or its network can reach: otherwise a
stranger could talk to services that trust this machine (SSRF). An IPv6 address that embeds an IPv4 address is judged by
the IPv4 address.
The caller connects to one of the addresses that `AddressGuard` returns and resolves nothing again, so a name that
changes its address between the check and the connection (DNS rebinding) gains nothing.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final
from urllib.parse import urlsplit

from synapse.core.errors import InvalidField

Address = IPv4Address | IPv6Address
Resolve = Callable[[str, int], Awaitable[Sequence[Address]]]

WEBHOOKS: Final = "allow_private_webhooks"
AGENTS: Final = "allow_private_agents"
"""The settings that allow private and loopback addresses, for webhooks and for agents."""
MAX_URL_LENGTH: Final = 2048
PORTS: Final = {"http": 80, "https": 443}
_PLAIN: Final = re.compile(r"[\x21-\x7e]+")
_NAME: Final = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?\.?")
_NUMBER: Final = re.compile(r"[0-9]+|0[xX][0-9a-fA-F]*")

# Names of the special-purpose networks of the IANA registries (RFC 6890 and its successors). A setting allows the
# first three.
_LOOPBACK: Final = "a loopback address"
_PRIVATE: Final = "a private address"
_SHARED: Final = "an address shared by a provider's customers"
_ALLOWABLE: Final = frozenset({_LOOPBACK, _PRIVATE, _SHARED})
_LINK_LOCAL: Final = "a link-local address"
_RESERVED: Final = "a reserved address"
_SPECIAL: Final[tuple[tuple[str, str], ...]] = (
    ("0.0.0.0/8", "no address"),
    ("10.0.0.0/8", _PRIVATE),
    ("100.64.0.0/10", _SHARED),
    ("127.0.0.0/8", _LOOPBACK),
    ("169.254.0.0/16", _LINK_LOCAL),
    ("172.16.0.0/12", _PRIVATE),
    ("192.0.0.0/24", _RESERVED),
    ("192.0.2.0/24", "an address for documents"),
    ("192.88.99.0/24", _RESERVED),
    ("192.168.0.0/16", _PRIVATE),
    ("198.18.0.0/15", "an address for measurements"),
    ("198.51.100.0/24", "an address for documents"),
    ("203.0.113.0/24", "an address for documents"),
    ("224.0.0.0/4", "a multicast address"),
    ("240.0.0.0/4", _RESERVED),
    ("::/128", "no address"),
    ("::1/128", _LOOPBACK),
    ("64:ff9b:1::/48", _PRIVATE),  # local-use NAT64: only that network knows where the IPv4 address is
    ("2001::/23", _RESERVED),
    ("2001:db8::/32", "an address for documents"),
    ("3fff::/20", "an address for documents"),
    ("fc00::/7", _PRIVATE),
    ("fe80::/10", _LINK_LOCAL),
    ("fec0::/10", _PRIVATE),
    ("ff00::/8", "a multicast address"),
)
_NETWORKS: Final = tuple((ip_network(network), what) for network, what in _SPECIAL)
_GLOBAL_V6: Final = IPv6Network("2000::/3")
# Networks whose addresses embed an IPv4 address, and its shift: mapped, compatible, translated, NAT64, 6to4.
_EMBEDDING: Final[tuple[tuple[IPv6Network, int], ...]] = (
    (IPv6Network("::ffff:0:0/96"), 0),
    (IPv6Network("::/96"), 0),
    (IPv6Network("::ffff:0:0:0/96"), 0),
    (IPv6Network("64:ff9b::/96"), 0),
    (IPv6Network("2002::/16"), 80),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A parsed URL of a webhook or of another server."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        """The value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"


async def resolve(host: str, port: int) -> Sequence[Address]:
    """Returns every address of `host`. Raises OSError, and UnicodeError for a name that DNS cannot hold."""
    literal = _literal(host)
    if literal is not None:
        return [literal]
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [_with_zone(place[4]) for place in found]


class AddressGuard:
    """Resolves a host and returns its addresses only if every one of them is allowed.

    `allow_private` allows private and loopback addresses; `switch` is the setting that a refusal names.
    """

    def __init__(self, *, allow_private: bool, switch: str = WEBHOOKS, resolve: Resolve = resolve) -> None:
        self._allow_private = allow_private
        self._switch = switch
        self._resolve = resolve

    async def addresses(self, host: str, port: int) -> Sequence[Address]:
        """Returns every address of `host`.

        One refused address refuses them all: mixing one private address with public ones is how rebinding works.

        Raises:
            InvalidField: an address is refused.
            OSError: the name cannot be resolved.
        """
        literal = _literal(host)
        found = [literal] if literal is not None else await self._resolve(host, port)
        for address in found:
            refuse(host, address, allow_private=self._allow_private, switch=self._switch)
        return found


def parse_target(url: str) -> Target:
    """Parses a URL that a caller chose.

    Raises InvalidField unless it is an http or https URL in plain ASCII, without user or password.
    """
    if len(url) > MAX_URL_LENGTH or not _PLAIN.fullmatch(url):
        raise _wrong(
            "must be an http or https URL in plain ASCII",
            "escape other characters: %XX, or xn-- in a host name",
        )
    try:
        parts = urlsplit(url)
        scheme, host, port = parts.scheme.lower(), parts.hostname or "", parts.port
    except ValueError as error:
        raise _wrong("is not a valid URL") from error
    if scheme not in PORTS:
        raise _wrong(f"must begin with https:// or http://, not '{scheme}:'")
    if "@" in parts.netloc or "\\" in url:
        raise _wrong("must not contain a user name or password", "give credentials in `authentication`")
    if "[" in parts.netloc and ":" not in host:
        raise _wrong(f"'[{host}]' is not an IPv6 address")
    if port == 0:
        raise _wrong("must not have port 0")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(scheme=scheme, host=_checked_host(host), port=port or PORTS[scheme], path=path)


def refusal(address: Address, *, allow_private: bool) -> str:
    """Returns why `address` is refused, or "". `allow_private` allows private, shared and loopback addresses."""
    if isinstance(address, IPv6Address):
        embedded = _embedded(address)
        if embedded is not None:
            return refusal(embedded, allow_private=allow_private)
    what = next((what for network, what in _NETWORKS if address in network), "")
    if not what and isinstance(address, IPv6Address) and address not in _GLOBAL_V6:
        what = _RESERVED
    return "" if allow_private and what in _ALLOWABLE else what


def refuse(host: str, address: Address, *, allow_private: bool, switch: str = WEBHOOKS) -> None:
    """Raises InvalidField if `address` is refused; `switch` is the setting that would allow it."""
    what = refusal(address, allow_private=allow_private)
    if what:
        hint = f"`{switch}` in the settings allows it" if what in _ALLOWABLE else ""
        # The error does not show the address: a caller who knows only the name must not learn it.
        verb = "is" if _literal(host) is not None else "leads to"
        raise _wrong(f"'{host}' {verb} {what}", hint)


def _checked_host(host: str) -> str:
    if ":" in host and "%" not in host:  # a zone has a meaning on this machine only
        try:
            return str(IPv6Address(host))
        except ValueError as error:
            raise _wrong(f"'{host}' is not an IPv6 address") from error
    if _NUMBER.fullmatch(host.rstrip(".").rpartition(".")[2]):
        # Resolvers read 2130706433, 0x7f.1 and 0177.0.0.1 as addresses, and not all in the same way.
        try:
            return str(IPv4Address(host))
        except ValueError as error:
            raise _wrong(f"'{host}' is not an IPv4 address", "write it as four decimal numbers") from error
    if not _NAME.fullmatch(host) or len(host) > 253:
        raise _wrong("has no host" if not host else f"'{host}' is not a host name")
    return host.lower()


def _literal(host: str) -> Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _with_zone(place: tuple[object, ...]) -> Address:
    """Returns the address of a socket address; a link-local one is reachable only with its zone."""
    zone = place[3] if len(place) == 4 else 0
    host = str(place[0]).partition("%")[0]
    return ip_address(f"{host}%{zone}" if zone else host)


def _embedded(address: IPv6Address) -> IPv4Address | None:
    if address in (IPv6Address("::"), IPv6Address("::1")):
        return None
    for network, shift in _EMBEDDING:
        if address in network:
            return IPv4Address(int(address) >> shift & 0xFFFFFFFF)
    return None


def _wrong(why: str, hint: str = "") -> InvalidField:
    return InvalidField("url", why, hint=hint)
