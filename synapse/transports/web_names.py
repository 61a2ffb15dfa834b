"""Under which names a server may be asked for, by which web pages, and what it calls itself in its answers.

A page can make its own name point to this machine, and its requests then come from the owner's own browser. It has no
credentials, so a foreign `Host` only matters where none are asked for; a foreign `Origin` is refused anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

from synapse.core.errors import ForeignOrigin
from synapse.dialects.dialect import Headers


class WebNames:
    """The names. Without `hosts` a gateway answers to any name; `origins` are the pages of others that may ask."""

    def __init__(self, hosts: Iterable[str] | None, *, origins: Iterable[str] = ()) -> None:
        self._hosts = None if hosts is None else frozenset(host.lower().encode("ascii") for host in hosts)
        own = [scheme + host for host in self._hosts or () for scheme in (b"http://", b"https://")]
        self._origins = frozenset([*own, *(origin.lower().encode("ascii") for origin in origins)])

    def check_origin(self, headers: Headers) -> None:
        """Raises ForeignOrigin when a page asks that may not."""
        host = b""
        origin: bytes | None = None
        for name, value in headers:
            if name == b"origin":
                origin = value.lower()
            elif name == b"host":
                host = value.lower()
        if origin is None or origin in self._origins:
            return
        if self._hosts is None and origin in (b"http://" + host, b"https://" + host):
            return
        raise ForeignOrigin(
            "requests from this web page are not taken", hint="its origin must be named in [cors] of the gateway"
        )

    def check_host(self, headers: Headers) -> None:
        """Raises ForeignOrigin when the request was sent to a name that is not ours."""
        if self._hosts is None:
            return
        named = [value.lower() for name, value in headers if name == b"host"]
        if len(named) != 1 or named[0] not in self._hosts:
            ours = " or ".join(sorted(host.decode("ascii") for host in self._hosts))
            raise ForeignOrigin("the Host header does not name this gateway", hint=f"send it to {ours}")


class Addresses:
    """What a server calls itself in its cards: the address that a request was sent to, if that is one of its own.

    Some clients take a card only when its addresses have the origin that it was read from. A name that is not ours is
    never repeated: `url` counts then. `behind_proxy` says that a proxy is in front, which tells the address that it was
    asked for in X-Forwarded-Host and X-Forwarded-Proto; what `Host` says is then only how the proxy reaches us.
    """

    def __init__(self, url: str, hosts: Iterable[str] = (), *, behind_proxy: bool = False) -> None:
        self.url = url
        self._scheme = urlsplit(url).scheme
        self._hosts = frozenset(host.lower() for host in hosts)
        self._behind_proxy = behind_proxy

    def of(self, headers: Headers) -> str:
        """Return the address under which whoever sent these headers reaches the server."""
        if self._behind_proxy:
            # The last value is what our own proxy said; those before it came from further away.
            host = _last(headers, b"x-forwarded-host")
            scheme = _last(headers, b"x-forwarded-proto")
            return f"{scheme if scheme in _SCHEMES else self._scheme}://{host}" if _is_authority(host) else self.url
        named = [value.decode("latin-1").lower() for name, value in headers if name == b"host"]
        return f"{self._scheme}://{named[0]}" if len(named) == 1 and named[0] in self._hosts else self.url


_SCHEMES: Final = ("http", "https")
_AUTHORITY: Final = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9]([a-z0-9.-]*[a-z0-9])?)(:[0-9]{1,5})?")


def _last(headers: Headers, wanted: bytes) -> str:
    values = [value for name, value in headers if name == wanted]
    return values[-1].rpartition(b",")[2].strip().decode("latin-1").lower() if values else ""


def _is_authority(text: str) -> bool:
    return len(text) <= _LONGEST_AUTHORITY and _AUTHORITY.fullmatch(text) is not None


_LONGEST_AUTHORITY: Final = 255


def hosts_of(url: str) -> frozenset[str]:
    """What the Host header of a request to `url` may be: with its port, and without where the scheme implies it."""
    place = urlsplit(url)
    name = place.netloc.rpartition("@")[2].lower()
    default = {"http": 80, "https": 443}.get(place.scheme)
    if place.port is None:
        return frozenset({name, f"{name}:{default}"})
    return frozenset({name, name.rpartition(":")[0]}) if place.port == default else frozenset({name})
