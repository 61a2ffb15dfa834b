"""What an agent host speaks, and how it finds out what a request speaks.

the version that the request names (A2A-Version)     decides alone
none, on a path of the synapse dialect               synapse
none, with a message in the body                     the dialect whose message it is
none, below /v1                                      A2A 0.3, which has its paths there
none, about a task                                   0.3 if the task was made in 0.3, else 1.0

A dialect that is loaded when it is first spoken: most hosts never hear one of A2A, and loading takes its time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, Final, cast

from synapse.auth.local import loopback_hosts
from synapse.core.agent import AgentEntry
from synapse.core.errors import SynapseError
from synapse.core.events import Update
from synapse.core.task import Task
from synapse.dialects import paths as paths_0_3
from synapse.dialects import paths as paths_1_0
from synapse.dialects.dialect import (
    AnyCall,
    Call,
    CallRoute,
    Dialect,
    DocumentRoute,
    StreamCall,
    WireAnswer,
    WireEvent,
    WireRequest,
)
from synapse.dialects.negotiation import A2A_0_3, A2A_1_0, asked_dialect, spoken_dialect
from synapse.dialects.synapse.routes import CardFacts, agent_card, synapse_dialect
from synapse.server.middleware import Addresses
from synapse.server.routing import Endpoint

_JSONRPC: Final = "jsonrpc"
"""What `transports.jsonrpc` calls its dialect; that module is loaded late."""
_PUSH_PATH: Final = "/pushNotificationConfigs"


def host_dialects(entry: AgentEntry, *, title: str, pty_wrapped: bool, advertise_0_3: bool = True) -> list[Dialect]:
    """Everything that a host speaks: its own dialect first, then those of A2A, loaded when they are first spoken.

    0.3 is spoken also when the card does not advertise it.
    """
    facts = CardFacts(
        agent_id=entry.agent_id,
        agent_type=entry.agent_type,
        title=title,
        url=entry.endpoint,
        name=entry.name,
        pty_wrapped=pty_wrapped,
    )
    said = (entry.extensions, entry.lacks)
    addresses = Addresses(entry.endpoint, loopback_hosts(entry.port))
    return [
        synapse_dialect(facts, addresses.of),
        late_dialect(A2A_1_0, paths_1_0.a2a_v1_paths(), lambda: _standard().a2a_1_0(*said), paths_1_0.MEDIA_TYPE),
        late_dialect(A2A_0_3, paths_0_3.a2a_v0_3_paths(), lambda: _standard().a2a_0_3(*said)),
        late_dialect(_JSONRPC, [("POST", "/")], lambda: _standard().json_rpc(*said)),
        late_dialect(
            "a2a_cards", [("GET", paths_1_0.CARD_PATH)], partial(_cards, facts, entry, addresses, advertise_0_3)
        ),
    ]


def _cards(facts: CardFacts, entry: AgentEntry, addresses: Addresses, advertise_0_3: bool) -> Dialect:
    own = agent_card(facts)
    shown = {"name": own["name"], "description": own["description"], "addresses": addresses}
    declared = {"takes": entry.takes, "extensions": entry.extensions, "lacks": entry.lacks}
    dialect: Dialect = _standard().cards(**shown, **declared, advertise_0_3=advertise_0_3)
    return dialect


def _standard() -> Any:
    from synapse.host import a2a_routes  # noqa: PLC0415 - this is what is loaded late

    return a2a_routes


class DialectChoice:
    """Chooses for each request among the dialects of its path."""

    def __init__(self, dialects: Sequence[Dialect]) -> None:
        self._standard = next(dialect for dialect in dialects if dialect.name == A2A_1_0)

    def __call__(self, wire: WireRequest, endpoints: Sequence[Endpoint]) -> Endpoint:
        """Return the endpoint that answers; one that was not asked properly says so."""
        if endpoints[0].dialect.name == _JSONRPC:
            return endpoints[0]  # the only one at its path, and it knows both versions
        try:
            demanded = asked_dialect(wire)
        except SynapseError as error:
            refusal = self._standard.encode_error(error)
            route = DocumentRoute(method=wire.method, path=endpoints[0].route.path, answer=lambda _: refusal)
            return Endpoint(self._standard, route)
        if not demanded and paths_1_0.TENANT in endpoints[0].names:
            demanded = A2A_1_0  # no other dialect has tenants
        if demanded:
            return _of(demanded, endpoints)
        if endpoints[0].dialect.name not in (A2A_1_0, A2A_0_3):
            return endpoints[0]
        spoken = spoken_dialect(wire.body) if wire.body else ""
        if not spoken and wire.path.startswith("/v1/"):
            spoken = A2A_0_3
        if not spoken and _PUSH_PATH in wire.path:
            # Only 0.3 has the configuration in a field of its own.
            spoken = A2A_0_3 if b'"pushNotificationConfig"' in wire.body else A2A_1_0
        return _of(spoken, endpoints) if spoken else _as_made(endpoints)


def _of(name: str, endpoints: Sequence[Endpoint]) -> Endpoint:
    return next((endpoint for endpoint in endpoints if endpoint.dialect.name == name), endpoints[0])


def _as_made(endpoints: Sequence[Endpoint]) -> Endpoint:
    """An endpoint that answers in the dialect of the task, which is known only when there is an answer."""
    current, former = _of(A2A_1_0, endpoints), _of(A2A_0_3, endpoints)
    if not isinstance(current.route, CallRoute) or not isinstance(former.route, CallRoute):
        return current
    ask = partial(_ask_as_made, current, former)
    return Endpoint(current.dialect, replace(current.route, ask=ask))


def _ask_as_made(current: Endpoint, former: Endpoint, wire: WireRequest) -> AnyCall | WireAnswer:
    call, older = cast("CallRoute", current.route).ask(wire), cast("CallRoute", former.route).ask(wire)
    if isinstance(call, Call) and isinstance(older, Call):
        return call._replace(encode=partial(_encode_as_made, call, older))
    if isinstance(call, StreamCall) and isinstance(older, StreamCall):
        return _stream_as_made((current, call), (former, older))
    return call


def _encode_as_made(current: Call[Task], former: Call[Task], task: Task) -> bytes:
    return (former if task.dialect == A2A_0_3 else current).encode(task)


def _stream_as_made(current: tuple[Endpoint, StreamCall], former: tuple[Endpoint, StreamCall]) -> StreamCall:
    """A stream whose events, and the error that may break it off, are in the words that its task was made in."""
    spoken = current

    def encode(update: Update) -> WireEvent | None:
        nonlocal spoken
        spoken = former if update.task.dialect == A2A_0_3 else current
        return spoken[1].encode(update)

    def encode_error(error: SynapseError) -> WireAnswer:
        return spoken[0].dialect.encode_error(error)

    return current[1]._replace(encode=encode, encode_error=encode_error)


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
        def ask(wire: WireRequest) -> AnyCall | WireAnswer:
            return routes()[place].ask(wire)

        def refuse(wire: WireRequest, error: SynapseError) -> WireAnswer:
            told = routes()[place].refuse
            return told(wire, error) if told is not None else encode_error(error)

        return CallRoute(method=place[0], path=place[1], ask=ask, media_type=media_type, refuse=refuse)

    def encode_error(error: SynapseError) -> WireAnswer:
        return loaded().encode_error(error)

    loaded = cache(load)
    return Dialect(name=name, routes=tuple(late(place) for place in paths), encode_error=encode_error)
