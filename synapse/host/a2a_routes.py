"""The A2A dialects of an agent host. `host.routes` imports this module for the first request to one of them."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from synapse import __version__
from synapse.core.extension import from_text
from synapse.core.requests import CAPABILITIES
from synapse.dialects import proto_json
from synapse.dialects.a2a_v0_3 import encode as encode_0_3
from synapse.dialects.a2a_v0_3.routes import a2a_v0_3_dialect
from synapse.dialects.a2a_v1 import encode as encode_1_0
from synapse.dialects.a2a_v1.routes import a2a_v1_dialect, encode_error
from synapse.dialects.dialect import CachedDocument, CallRoute, Dialect, WireAnswer, WireRequest
from synapse.dialects.negotiation import asked_dialect, asked_version, with_extensions, without_capabilities
from synapse.dialects.paths import CARD_PATH
from synapse.server.jsonrpc import rpc_dialect
from synapse.server.middleware import Addresses
from synapse.tasks.admission import MODES, shown_modes

CARD_SECONDS: Final = 60
"""How long clients may cache a card: a host runs for hours, and another may get its port afterwards."""


@cache
def a2a_1_0(extensions: str = "", lacks: str = "") -> Dialect:
    """Returns the dialect for an agent; `extensions` and `lacks` are those of its registry entry."""
    return without_capabilities(with_extensions(a2a_v1_dialect(), from_text(extensions)), lacks.split())


@cache
def a2a_0_3(extensions: str = "", lacks: str = "") -> Dialect:
    """Returns the dialect for an agent; see `a2a_1_0`."""
    return without_capabilities(with_extensions(a2a_v0_3_dialect(), from_text(extensions)), lacks.split())


def json_rpc(extensions: str = "", lacks: str = "") -> Dialect:
    """Returns the dialect with the JSON-RPC methods of both versions."""
    return rpc_dialect((a2a_1_0(extensions, lacks), a2a_0_3(extensions, lacks)), asked_dialect)


def cards(  # noqa: PLR0913 - the fields of a card
    name: str,
    description: str,
    addresses: Addresses,
    *,
    takes: str = "",
    extensions: str = "",
    lacks: str = "",
    advertise_0_3: bool = True,
) -> Dialect:
    """Returns the dialect of the agent's card.

    A request that names a version gets the card of that version. Others get one for clients of both, or the current one
    alone without `advertise_0_3`. Its URLs begin with the address of the request. `takes`, `extensions` and `lacks` are
    those of the registry entry.
    """
    about: dict[str, Any] = {
        "name": name,
        "description": description,
        "version": __version__,
        "input_modes": shown_modes(takes.split()),
        "output_modes": MODES,
        "extensions": from_text(extensions),
        "capabilities": tuple(one for one in CAPABILITIES if one not in lacks.split()),
    }
    legacy = (encode_0_3.VERSION,) if advertise_0_3 else ()

    @cache
    def documents(url: str) -> dict[str, CachedDocument]:
        new = encode_1_0.agent_card(encode_1_0.CardFacts(**about, url=url, legacy_versions=legacy))
        old = encode_0_3.agent_card(encode_0_3.CardFacts(**about, url=url))
        return {"1.0": _cached(new), "0.3": _cached(old), "": _cached({**old, **new} if advertise_0_3 else new)}

    def answer(wire: WireRequest) -> WireAnswer:
        # Cards are not versioned: a request with an unknown version gets the current one.
        versions = documents(addresses.of(wire.headers))
        return versions.get(asked_version(wire)[:3], versions["1.0"]).answer(wire)

    route = CallRoute(method="GET", path=CARD_PATH, ask=answer)
    return Dialect(name="a2a_cards", routes=(route,), encode_error=encode_error)


def _cached(card: dict[str, Any]) -> CachedDocument:
    return CachedDocument(proto_json.to_json(card), max_age=CARD_SECONDS, vary="A2A-Version")
