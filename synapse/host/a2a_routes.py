"""The dialects of A2A as an agent host speaks them. Importing this file loads them: the first request for one does."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from synapse import __version__
from synapse.core.extension import from_text
from synapse.core.requests import CAPABILITIES
from synapse.dialects import proto_json
from synapse.dialects.a2a_v0_3 import encode as card_0_3
from synapse.dialects.a2a_v0_3.routes import a2a_v0_3_dialect
from synapse.dialects.a2a_v1 import encode as card_1_0
from synapse.dialects.a2a_v1.routes import a2a_v1_dialect, encode_error
from synapse.dialects.dialect import CachedDocument, CallRoute, Dialect, WireAnswer, WireRequest
from synapse.dialects.negotiation import asked_dialect, asked_version, with_extensions, without_capabilities
from synapse.dialects.paths import CARD_PATH
from synapse.server.jsonrpc import rpc_dialect
from synapse.server.middleware import Addresses
from synapse.tasks.admission import MODES, shown_modes

CARD_SECONDS: Final = 60
"""How long a card may be kept: a host lives for hours, and another may have its port afterwards."""


@cache
def a2a_1_0(extensions: str = "", lacks: str = "") -> Dialect:
    """`extensions` and `lacks` are what the agent's entry says."""
    return without_capabilities(with_extensions(a2a_v1_dialect(), from_text(extensions)), lacks.split())


@cache
def a2a_0_3(extensions: str = "", lacks: str = "") -> Dialect:
    """The same for 0.3."""
    return without_capabilities(with_extensions(a2a_v0_3_dialect(), from_text(extensions)), lacks.split())


def json_rpc(extensions: str = "", lacks: str = "") -> Dialect:
    """The methods of both."""
    return rpc_dialect((a2a_1_0(extensions, lacks), a2a_0_3(extensions, lacks)), asked_dialect)


def cards(  # noqa: PLR0913 - what a card is made of
    name: str,
    description: str,
    addresses: Addresses,
    *,
    takes: str = "",
    extensions: str = "",
    lacks: str = "",
    advertise_0_3: bool = True,
) -> Dialect:
    """The card of a version when one is named, else one that clients of both can read, or only the current one.

    Its addresses are what the request was sent to. `takes`, `extensions` and `lacks` are what the agent's entry says.
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
    legacy = (card_0_3.VERSION,) if advertise_0_3 else ()

    @cache
    def kept(url: str) -> dict[str, CachedDocument]:
        new = card_1_0.agent_card(card_1_0.CardFacts(**about, url=url, legacy_versions=legacy))
        old = card_0_3.agent_card(card_0_3.CardFacts(**about, url=url))
        return {"1.0": _kept(new), "0.3": _kept(old), "": _kept({**old, **new} if advertise_0_3 else new)}

    def answer(wire: WireRequest) -> WireAnswer:
        # A card is not versioned: who names a version that we do not have gets the current one.
        versions = kept(addresses.of(wire.headers))
        return versions.get(asked_version(wire)[:3], versions["1.0"]).answer(wire)

    route = CallRoute(method="GET", path=CARD_PATH, ask=answer)
    return Dialect(name="a2a_cards", routes=(route,), encode_error=encode_error)


def _kept(card: dict[str, Any]) -> CachedDocument:
    return CachedDocument(proto_json.to_json(card), max_age=CARD_SECONDS, vary="A2A-Version")
