"""What a request says about itself before it is read: the version of A2A that it speaks.

A2A-Version given                                    it decides alone; one that is not spoken here is refused
none, `content` is a text                            supervisor, which alone has that
none, `content` is a list, or `kind`, or `user`      A2A 0.3
none, `parts` with ROLE_…                            A2A 1.0; by the letter it were 0.3, but it can mean nothing else
none, no message in the body                         not decided here
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from synapse.core.wire_errors import VersionNotSupported
from synapse.dialects.dialect import WireRequest

A2A_1_0: Final = "a2a_v1"
A2A_0_3: Final = "a2a_v0_3"
SUPERVISOR: Final = "supervisor"

DIALECTS: Final[Mapping[str, str]] = {"1.0": A2A_1_0, "0.3": A2A_0_3}
"""The dialect of each version, newest first."""

_VERSION: Final = b"a2a-version"


def asked_dialect(wire: WireRequest) -> str:
    """The dialect that the request demands by its version, or nothing when it names none.

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
    """The version in the header, else in the query; empty when there is none."""
    for name, value in wire.headers:
        if name == _VERSION:
            return value.strip().decode("latin-1")
    if wire.query_string and _VERSION in wire.query_string.lower():
        return next((value for name, value in wire.query().items() if name.lower() == _VERSION.decode()), "").strip()
    return ""


def spoken_dialect(body: bytes) -> str:
    """The dialect whose message this body holds, or nothing when it holds none that can be told."""
    try:
        peeked = _PEEK.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    message = peeked.message or peeked.request
    if message is None:
        # A webhook is configured so by REST of 0.3 alone, whose clients name no version.
        return A2A_0_3 if isinstance(peeked.config, dict) else ""
    if isinstance(message.content, str):
        return SUPERVISOR
    if isinstance(message.content, list) or message.role in ("user", "agent"):
        return A2A_0_3
    parts: list[Any] = message.parts if isinstance(message.parts, list) else []  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]  # any JSON
    if any(isinstance(part, dict) and "kind" in part for part in parts):
        return A2A_0_3
    return A2A_1_0 if parts else ""


class _PeekedMessage(msgspec.Struct):
    role: Any = None
    content: Any = None
    parts: Any = None


class _Peeked(msgspec.Struct):
    message: _PeekedMessage | None = None
    request: _PeekedMessage | None = None
    config: Any = None


_PEEK: Final = msgspec.json.Decoder(_Peeked)
