"""A dialect that is loaded when it is first spoken: most hosts never hear one of A2A, and loading takes its time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache

from synapse.core.errors import SynapseError
from synapse.dialects.dialect import Call, CallRoute, Dialect, StreamCall, WireAnswer, WireRequest

Ask = Callable[[WireRequest], Call | StreamCall | WireAnswer]


def late_dialect(
    name: str,
    paths: Iterable[tuple[str, str]],
    load: Callable[[], Dialect],
    media_type: bytes = b"application/json",
) -> Dialect:
    """A dialect that listens at these methods and paths; `load` is called once, by the first request."""

    @cache
    def asks() -> dict[tuple[str, str], Ask]:
        return {(route.method, route.path): route.ask for route in loaded().routes if isinstance(route, CallRoute)}

    def late(place: tuple[str, str]) -> Ask:
        def ask(wire: WireRequest) -> Call | StreamCall | WireAnswer:
            return asks()[place](wire)

        return ask

    def encode_error(error: SynapseError) -> WireAnswer:
        return loaded().encode_error(error)

    loaded = cache(load)
    routes = tuple(CallRoute(method=place[0], path=place[1], ask=late(place), media_type=media_type) for place in paths)
    return Dialect(name=name, routes=routes, encode_error=encode_error)
