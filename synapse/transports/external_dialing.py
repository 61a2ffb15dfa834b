"""How a connection to an external agent is opened: anywhere, or only where a stranger may send us.

    url ─► parsed ─► resolved once ─► every address checked ─► connected to a checked one

The name is not resolved a second time, so a name that changes its mind between the check and the call gains nothing;
and since every connection is opened here, what a card or a redirect names is checked like what was registered.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from synapse.core.external_errors import ExternalAddressRefused
from synapse.core.wire_errors import InvalidField
from synapse.transports.address_guard import AGENTS, Address, Target, parse_target, refuse

Dial = Callable[[str, float], socket.socket]
"""Connects to where a url leads, within so many seconds; raises OSError or ExternalAddressRefused."""
Resolve = Callable[[str, int], Sequence[Address]]

_PORTS: Final = {"http": 80, "https": 443}
_MOST_TRIED: Final = 4


def dial_anywhere(url: str, seconds: float) -> socket.socket:
    """For addresses that this user has chosen. Raises OSError."""
    place = urlsplit(url)
    return socket.create_connection((place.hostname or "", place.port or _PORTS[place.scheme]), seconds)


def resolve(host: str, port: int) -> Sequence[Address]:
    """Every address that a name has. Raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    # A link-local address comes with its zone.
    return [ip_address(str(place[4][0]).partition("%")[0]) for place in found]


class GuardedDial:
    """A Dial for addresses that somebody with a key has chosen."""

    def __init__(self, *, allow_private: bool, resolve: Resolve = resolve) -> None:
        self._allow_private = allow_private
        self._resolve = resolve

    def __call__(self, url: str, seconds: float) -> socket.socket:
        try:
            target = parse_target(url)
            addresses = self._checked(target)
        except InvalidField as refused:
            raise ExternalAddressRefused(refused.why, hint=refused.hint) from refused
        failure: OSError = socket.gaierror("the name has no address")
        # However many addresses a name has, those that do not answer hold us no longer than one.
        tried = addresses[:_MOST_TRIED]
        for address in tried:
            try:
                return socket.create_connection((str(address), target.port), seconds / len(tried))
            except OSError as error:
                failure = error
        raise failure

    def _checked(self, target: Target) -> Sequence[Address]:
        """Every address of the target, all of them allowed: one that is not makes the others suspect."""
        literal = target.literal
        found = [literal] if literal is not None else self._resolve(target.host, target.port)
        for address in found:
            refuse(target, address, allow_private=self._allow_private, switch=AGENTS)
        return found
