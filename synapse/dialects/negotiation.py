"""Reads from a request which version of A2A and which extensions it uses, before its dialect decodes it.

    A2A-Version given                                    decides alone; an unsupported version is refused
    none, `content` is a text                            supervisor, which alone has such a field
    none, `content` is a list, or `kind`, or `user`      A2A 0.3
    none, `parts` with ROLE_…                            A2A 1.0; the specification says 0.3, which this cannot be
    none, no message in the body                         not decided here

A request names extensions as `A2A-Extensions: uri, uri`; the header is X-A2A-Extensions in 0.3, and gRPC has it as
metadata.

    a required extension is not named      ExtensionRequired
    a declared extension is named          the answer names it in the header: it is active
    any other extension is named           ignored

Reading a card requires no extension: clients learn from it which extensions and capabilities an agent has.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from synapse.core.errors import VersionNotSupported
from synapse.core.extension import Extensions, check_named
from synapse.core.requests import ForAgent, check_capable
from synapse.dialects.dialect import AGENT, AnyCall, ChangeCall, Dialect, Headers, WireRequest, with_calls
from synapse.dialects.paths import A2A_V0_3, A2A_V1, SUPERVISOR

DIALECTS: Final[Mapping[str, str]] = {"1.0": A2A_V1, "0.3": A2A_V0_3}
"""The dialect of each version, newest first."""

_VERSION: Final = b"a2a-version"
_EXTENSIONS: Final = b"a2a-extensions"
_EXTENSIONS_0_3: Final = b"x-a2a-extensions"

ExtensionsOf = Callable[[str], Extensions]
"""Returns the extensions that the agent of that name declares."""


class _PeekedMessage(msgspec.Struct):
    role: Any = None
    content: Any = None
    parts: Any = None


class _Peeked(msgspec.Struct):
    message: _PeekedMessage | None = None
    request: _PeekedMessage | None = None
    config: Any = None


_PEEK: Final = msgspec.json.Decoder(_Peeked)


def asked_dialect(wire: WireRequest) -> str:
    """Returns the dialect of the version that the request names, or an empty string when it names none.

    Raises VersionNotSupported.
    """
    version = asked_version(wire)
    if not version:
        return ""
    # 1.0 §3.6.1: major and minor count, a patch does not.
    dialect = DIALECTS.get(version) or DIALECTS.get(".".join(version.split(".")[:2]))
    if dialect is None:
        raise VersionNotSupported(version[:40], DIALECTS)
    return dialect


def asked_version(wire: WireRequest) -> str:
    """Returns the version in the header, else in the query; empty when there is none."""
    for name, value in wire.headers:
        if name == _VERSION:
            return value.strip().decode("latin-1")
    if wire.query_string and _VERSION in wire.query_string.lower():
        return next((value for name, value in wire.query().items() if name.lower() == _VERSION.decode()), "").strip()
    return ""


def spoken_dialect(body: bytes) -> str:
    """Returns the dialect of the message in the body, or an empty string when the body does not show it."""
    try:
        peeked = _PEEK.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    message = peeked.message or peeked.request
    if message is None:
        # Only REST of 0.3 configures a webhook this way, and its clients name no version.
        return A2A_V0_3 if isinstance(peeked.config, dict) else ""
    if isinstance(message.content, str):
        return SUPERVISOR
    if isinstance(message.content, list) or message.role in ("user", "agent"):
        return A2A_V0_3
    parts: list[Any] = message.parts if isinstance(message.parts, list) else []  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]  # any JSON
    if any(isinstance(part, dict) and "kind" in part for part in parts):
        return A2A_V0_3
    return A2A_V1 if parts else ""


class NamedExtensions(NamedTuple):
    """The extensions that a request names, and the header that names them."""

    header: bytes
    uris: frozenset[str]


def named_in(headers: Headers) -> NamedExtensions:
    """Returns the extensions that a request names; a header may occur more than once."""
    found = [(name, value) for name, value in headers if name in (_EXTENSIONS, _EXTENSIONS_0_3)]
    if not found:
        return NamedExtensions(_EXTENSIONS, frozenset())
    uris = (uri.strip() for _, value in found for uri in value.decode("latin-1").split(","))
    return NamedExtensions(found[0][0], frozenset(uri for uri in uris if uri))


def with_extensions(dialect: Dialect, extensions: Extensions) -> Dialect:
    """Returns the dialect for an agent that declares these extensions."""
    if not extensions:
        return dialect

    def check(call: AnyCall, wire: WireRequest) -> AnyCall:
        named = named_in(wire.headers)
        check_named(extensions, named.uris)
        return _activated(call, named, extensions)

    return with_calls(dialect, check)


def without_capabilities(dialect: Dialect, lacks: Collection[str]) -> Dialect:
    """Returns the dialect for an agent that lacks these capabilities. It refuses requests that need one of them."""
    if not lacks:
        return dialect

    def check(call: AnyCall, _wire: WireRequest) -> AnyCall:
        check_capable(lacks, call.request)
        return call

    return with_calls(dialect, check)


def address_with_extensions(extensions_of: ExtensionsOf) -> ChangeCall:
    """Returns how a dialect that is mounted for many agents addresses one of them.

    The gateway checks the extensions that the agent requires, once it knows that the caller may see the agent. The
    header of active extensions is sent only with the result of the request.
    """

    def address(call: AnyCall, wire: WireRequest) -> AnyCall:
        agent, named = wire.params[AGENT], named_in(wire.headers)
        request: ForAgent[Any] = ForAgent(agent, call.request, named.uris)
        addressed = call._replace(request=request)
        return _activated(addressed, named, extensions_of(agent)) if named.uris else addressed

    return address


def _activated(call: AnyCall, named: NamedExtensions, extensions: Extensions) -> AnyCall:
    activated = [one.uri for one in extensions if one.uri in named.uris]
    if not activated:
        return call
    return call._replace(headers=(*call.headers, (named.header, ", ".join(activated).encode("ascii"))))
