"""The table of the synapse dialect: every path of both documents, and ours beside them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Final

from synapse.dialects.dialect import (
    AnyRoute,
    Call,
    CallRoute,
    Dialect,
    DocumentRoute,
    Headers,
    Route,
    StreamRoute,
    WireAnswer,
    WireRequest,
)
from synapse.dialects.synapse import commands, decoding, projection
from synapse.dialects.synapse.card import CardFacts, agent_card
from synapse.dialects.synapse.errors import encode_error
from synapse.dialects.synapse.updates import encode_update

CARD_PATH: Final = "/.well-known/agent.json"


def synapse_dialect(facts: CardFacts, url_of: Callable[[Headers], str] | None = None) -> Dialect:
    """The dialect as one agent host speaks it; `url_of` tells by which address a request came, for the card."""

    @cache
    def card(url: str) -> WireAnswer:
        return WireAnswer(200, projection.to_json(agent_card(replace(facts, url=url))))

    def answer_card(wire: WireRequest) -> WireAnswer:
        return card(facts.url if url_of is None else url_of(wire.headers))

    card_route = DocumentRoute(method="GET", path=CARD_PATH, answer=answer_card)
    return Dialect(name=decoding.DIALECT, routes=(card_route, *_TASKS, *_HOST, *_EXTERNALS), encode_error=encode_error)


def _ask_signal(wire: WireRequest) -> Call:
    return Call(decoding.decode_signal(wire), projection.encode_taken)


_TASKS: Final[tuple[AnyRoute, ...]] = (
    Route(method="POST", path="/tasks/send", decode=decoding.decode_send, encode=projection.encode_task_answer),
    Route(
        method="POST", path="/tasks/send-priority", decode=decoding.decode_send, encode=projection.encode_task_answer
    ),
    Route(method="POST", path="/tasks/create", decode=decoding.decode_create, encode=projection.encode_task_answer),
    Route(method="GET", path="/tasks", decode=decoding.decode_list, encode=projection.encode_page),
    Route(method="GET", path="/tasks/{id}", decode=decoding.decode_get, encode=projection.encode_task),
    Route(
        method="POST", path="/tasks/{id}/cancel", decode=decoding.decode_cancel, encode=projection.encode_task_answer
    ),
    Route(
        method="POST", path="/tasks/{id}/resolve", decode=decoding.decode_resolve, encode=projection.encode_task_answer
    ),
    Route(method="POST", path="/tasks/{id}/answer", decode=decoding.decode_answer, encode=projection.encode_answered),
    StreamRoute(method="GET", path="/tasks/{id}/subscribe", decode=decoding.decode_subscribe, encode=encode_update),
)

_HOST: Final[tuple[AnyRoute, ...]] = (
    Route(method="POST", path="/reply", decode=decoding.decode_reply, encode=projection.encode_replied),
    Route(method="POST", path="/answer", decode=decoding.decode_answer, encode=projection.encode_answered),
    # A hook may wait for its answer as long as a person takes to decide.
    CallRoute(method="POST", path="/signals", ask=_ask_signal),
    Route(method="GET", path="/queue", decode=decoding.decode_status, encode=projection.encode_queue),
    Route(method="GET", path="/status", decode=decoding.decode_status, encode=projection.encode_status),
    CallRoute(method="POST", path=commands.PATH, ask=commands.ask),
)

_EXTERNALS: Final[tuple[AnyRoute, ...]] = (
    Route(method="POST", path="/external/discover", decode=decoding.decode_discover, encode=projection.encode_external),
    Route(method="GET", path="/external/agents", decode=decoding.decode_externals, encode=projection.encode_externals),
    Route(
        method="DELETE",
        path="/external/agents/{alias}",
        decode=decoding.decode_remove_external,
        encode=projection.encode_external,
    ),
    Route(
        method="POST",
        path="/external/agents/{alias}/send",
        decode=decoding.decode_send_external,
        encode=projection.encode_external_answer,
    ),
)
