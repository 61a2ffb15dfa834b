"""Under which names a gateway may be asked for, and by which web pages.

A page can make its own name point to this machine, and its requests then come from the owner's own browser. It has no
credentials, so a foreign `Host` only matters where none are asked for; a foreign `Origin` is refused anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable
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


def hosts_of(url: str) -> frozenset[str]:
    """What the Host header of a request to `url` may be: with its port, and without where the scheme implies it."""
    place = urlsplit(url)
    name = place.netloc.rpartition("@")[2].lower()
    default = {"http": 80, "https": 443}.get(place.scheme)
    if place.port is None:
        return frozenset({name, f"{name}:{default}"})
    return frozenset({name, name.rpartition(":")[0]}) if place.port == default else frozenset({name})
