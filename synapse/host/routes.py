"""The dialects of an agent host, and the choice of the dialect for each request.

    the request names a version (A2A-Version)     that version
    none, on a path of the synapse dialect        synapse
    none, with a message in the body              the dialect whose format the message has
    none, below /v1                               A2A 0.3, which has its paths there
    none, about a task                            0.3 if the task was created in 0.3, else 1.0

The dialects of A2A are loaded by their first request: most hosts never get one, and loading takes a while.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Final

from synapse.auth.local import loopback_hosts
from synapse.core.agent import AgentEntry
from synapse.core.errors import SynapseError
from synapse.core.events import Update
from synapse.core.task import Task
from synapse.dialects import paths
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
from synapse.dialects.negotiation import asked_dialect, spoken_dialect
from synapse.dialects.paths import A2A_V0_3, A2A_V1
from synapse.dialects.synapse.routes import CardFacts, agent_card, synapse_dialect
from synapse.server.middleware import Addresses
from synapse.server.routing import Endpoint

_JSONRPC: Final = "jsonrpc"
"""The name of the dialect of `server.jsonrpc`, which is loaded late."""
_PUSH_PATH: Final = "/pushNotificationConfigs"


def host_dialects(entry: AgentEntry, *, title: str, pty_wrapped: bool, advertise_0_3: bool = True) -> list[Dialect]:
    """Returns the dialects of a host: its own first, then those of A2A, which their first request loads.

    It serves 0.3 also when the card does not advertise it.
    """
    facts = CardFacts(
        agent_id=entry.agent_id,
        agent_type=entry.agent_type,
        title=title,
        url=entry.endpoint,
        name=entry.name,
        pty_wrapped=pty_wrapped,
        role=entry.role,
    )
    declared = (entry.extensions, entry.lacks)
    addresses = Addresses(entry.endpoint, loopback_hosts(entry.port))
    return [
        synapse_dialect(facts, addresses.of),
        late_dialect(A2A_V1, paths.a2a_v1_paths(), partial(_a2a_1_0, *declared), paths.MEDIA_TYPE),
        late_dialect(A2A_V0_3, paths.a2a_v0_3_paths(), partial(_a2a_0_3, *declared)),
        late_dialect(_JSONRPC, [("POST", "/")], partial(_json_rpc, *declared)),
        late_dialect("a2a_cards", [("GET", paths.CARD_PATH)], partial(_cards, facts, entry, addresses, advertise_0_3)),
    ]


# These four load A2A when they are called, see above; a function that returned the module would lose its types.
def _a2a_1_0(extensions: str, lacks: str) -> Dialect:
    from synapse.host import a2a_routes  # noqa: PLC0415 - see above

    return a2a_routes.a2a_1_0(extensions, lacks)


def _a2a_0_3(extensions: str, lacks: str) -> Dialect:
    from synapse.host import a2a_routes  # noqa: PLC0415 - see above

    return a2a_routes.a2a_0_3(extensions, lacks)


def _json_rpc(extensions: str, lacks: str) -> Dialect:
    from synapse.host import a2a_routes  # noqa: PLC0415 - see above

    return a2a_routes.json_rpc(extensions, lacks)


def _cards(facts: CardFacts, entry: AgentEntry, addresses: Addresses, advertise_0_3: bool) -> Dialect:
    from synapse.host import a2a_routes  # noqa: PLC0415 - see above

    card = agent_card(facts)
    return a2a_routes.cards(
        name=card["name"],
        description=card["description"],
        addresses=addresses,
        takes=entry.takes,
        extensions=entry.extensions,
        lacks=entry.lacks,
        advertise_0_3=advertise_0_3,
    )


def late_dialect(
    name: str,
    operations: Iterable[tuple[str, str]],
    load: Callable[[], Dialect],
    media_type: bytes = b"application/json",
) -> Dialect:
    """Returns a dialect with these methods and paths; its first request calls `load`, once."""

    @cache
    def routes() -> dict[tuple[str, str], CallRoute]:
        return {(route.method, route.path): route for route in loaded().routes if isinstance(route, CallRoute)}

    def late(operation: tuple[str, str]) -> CallRoute:
        def ask(wire: WireRequest) -> AnyCall | WireAnswer:
            return routes()[operation].ask(wire)

        def refuse(wire: WireRequest, error: SynapseError) -> WireAnswer:
            refuse = routes()[operation].refuse
            return refuse(wire, error) if refuse is not None else encode_error(error)

        method, path = operation
        return CallRoute(method=method, path=path, ask=ask, media_type=media_type, refuse=refuse)

    def encode_error(error: SynapseError) -> WireAnswer:
        return loaded().encode_error(error)

    loaded = cache(load)
    return Dialect(name=name, routes=tuple(late(operation) for operation in operations), encode_error=encode_error)


class DialectChoice:
    """Chooses the dialect for each request among those of its path."""

    def __init__(self, dialects: Sequence[Dialect]) -> None:
        self._standard = next(dialect for dialect in dialects if dialect.name == A2A_V1)

    def __call__(self, wire: WireRequest, endpoints: Sequence[Endpoint]) -> Endpoint:
        """Returns the endpoint that answers, or one that answers with the error of an invalid version."""
        if endpoints[0].dialect.name == _JSONRPC:
            return endpoints[0]  # the only one at its path, and it knows both versions
        try:
            demanded = asked_dialect(wire)
        except SynapseError as error:
            refusal = self._standard.encode_error(error)
            route = DocumentRoute(method=wire.method, path=endpoints[0].route.path, answer=lambda _: refusal)
            return Endpoint(self._standard, route)
        if not demanded and paths.TENANT in endpoints[0].names:
            demanded = A2A_V1  # no other dialect has tenants
        if demanded:
            return _of(demanded, endpoints)
        if endpoints[0].dialect.name not in (A2A_V1, A2A_V0_3):
            return endpoints[0]
        spoken = spoken_dialect(wire.body) if wire.body else ""
        if not spoken and wire.path.startswith("/v1/"):
            spoken = A2A_V0_3
        if not spoken and _PUSH_PATH in wire.path:
            # Only 0.3 nests the configuration in a field.
            spoken = A2A_V0_3 if b'"pushNotificationConfig"' in wire.body else A2A_V1
        return _of(spoken, endpoints) if spoken else _by_task(endpoints)


def _of(name: str, endpoints: Sequence[Endpoint]) -> Endpoint:
    return next((endpoint for endpoint in endpoints if endpoint.dialect.name == name), endpoints[0])


def _by_task(endpoints: Sequence[Endpoint]) -> Endpoint:
    """Returns an endpoint that answers in the dialect of the task, which is known only with the result."""
    current, former = _of(A2A_V1, endpoints), _of(A2A_V0_3, endpoints)
    route, former_route = current.route, former.route
    if not isinstance(route, CallRoute) or not isinstance(former_route, CallRoute):
        return current

    def ask(wire: WireRequest) -> AnyCall | WireAnswer:
        call, older = route.ask(wire), former_route.ask(wire)
        if isinstance(call, Call) and isinstance(older, Call):

            def encode(task: Task) -> bytes:
                return (older if task.dialect == A2A_V0_3 else call).encode(task)

            return call._replace(encode=encode)
        if isinstance(call, StreamCall) and isinstance(older, StreamCall):
            return _stream_by_task((current, call), (former, older))
        return call

    return Endpoint(current.dialect, replace(route, ask=ask))


def _stream_by_task(current: tuple[Endpoint, StreamCall], former: tuple[Endpoint, StreamCall]) -> StreamCall:
    """Returns a stream whose events, and final error if any, are in the dialect that its task was created in."""
    spoken = current

    def encode(update: Update) -> WireEvent | None:
        nonlocal spoken
        spoken = former if update.task.dialect == A2A_V0_3 else current
        return spoken[1].encode(update)

    def encode_error(error: SynapseError) -> WireAnswer:
        return spoken[0].dialect.encode_error(error)

    return current[1]._replace(encode=encode, encode_error=encode_error)
