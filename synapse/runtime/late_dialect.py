"""A dialect that is loaded when it is first spoken: most hosts never hear one of A2A, and loading takes its time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache

from synapse.core.errors import SynapseError
from synapse.dialects.dialect import Call, CallRoute, Dialect, StreamCall, WireAnswer, WireRequest


def late_dialect(
    name: str,
    paths: Iterable[tuple[str, str]],
    load: Callable[[], Dialect],
    media_type: bytes = b"application/json",
) -> Dialect:
    """A dialect that listens at these methods and paths; `load` is called once, by the first request."""

    @cache
    def routes() -> dict[tuple[str, str], CallRoute]:
        return {(route.method, route.path): route for route in loaded().routes if isinstance(route, CallRoute)}

    def late(place: tuple[str, str]) -> CallRoute:
        def ask(wire: WireRequest) -> Call | StreamCall | WireAnswer:
            return routes()[place].ask(wire)

        def refuse(wire: WireRequest, error: SynapseError) -> WireAnswer:
            told = routes()[place].refuse
            return told(wire, error) if told is not None else encode_error(error)

        return CallRoute(method=place[0], path=place[1], ask=ask, media_type=media_type, refuse=refuse)

    def encode_error(error: SynapseError) -> WireAnswer:
        return loaded().encode_error(error)

    loaded = cache(load)
    return Dialect(name=name, routes=tuple(late(place) for place in paths), encode_error=encode_error)
