"""The routes of the synapse dialect, those of both contracts and our additions, and its agent card."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from synapse.core.text import with_role
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
from synapse.dialects.proto_json import to_json
from synapse.dialects.synapse import commands, decode, encode
from synapse.dialects.synapse.encode import encode_agent_status, encode_error, encode_update
from synapse.dialects.task_json import Wire


@dataclass(frozen=True, slots=True, kw_only=True)
class CardFacts:
    """The values on a card. `title` is the agent's proper name ("Claude"), `name` the one from its user."""

    agent_id: str
    agent_type: str
    title: str
    url: str
    name: str = ""
    pty_wrapped: bool = True
    role: str = ""


def synapse_dialect(facts: CardFacts, url_of: Callable[[Headers], str] | None = None) -> Dialect:
    """Returns the dialect of one agent's host. `url_of` returns the address that a request came to, for the card."""

    @cache
    def card(url: str) -> WireAnswer:
        return WireAnswer(200, to_json(agent_card(replace(facts, url=url))))

    def answer_card(wire: WireRequest) -> WireAnswer:
        return card(facts.url if url_of is None else url_of(wire.headers))

    card_route = DocumentRoute(method="GET", path="/.well-known/agent.json", answer=answer_card)
    return Dialect(name=decode.DIALECT, routes=(card_route, *_TASKS, *_HOST, *_EXTERNALS), encode_error=encode_error)


def agent_card(facts: CardFacts) -> Wire:
    """Returns the card of an agent's host."""
    kind = f"PTY-wrapped {facts.agent_type} CLI" if facts.pty_wrapped else "Scripted"
    extension: Wire = {
        "agent_id": facts.agent_id,
        "pty_wrapped": facts.pty_wrapped,
        "priority_interrupt": True,
        "at_agent_syntax": facts.pty_wrapped,
    }
    if facts.name:
        extension["name"] = facts.name
    return {
        "name": f"Synapse {facts.title}",
        "description": with_role(f"{kind} agent with A2A communication", facts.role),
        "url": facts.url,
        "capabilities": {"streaming": True, "pushNotifications": False, "multiTurn": True},
        "skills": [
            {"id": "chat", "name": "Chat", "description": "Send messages to the CLI agent"},
            {"id": "interrupt", "name": "Interrupt", "description": "Interrupt current processing"},
        ],
        "extensions": {"synapse": extension},
    }


_TASKS: Final[tuple[AnyRoute, ...]] = (
    Route(method="POST", path="/tasks/send", decode=decode.decode_send, encode=encode.encode_task_answer),
    Route(method="POST", path="/tasks/send-priority", decode=decode.decode_send, encode=encode.encode_task_answer),
    Route(method="POST", path="/tasks/create", decode=decode.decode_create, encode=encode.encode_task_answer),
    Route(method="GET", path="/tasks", decode=decode.decode_list, encode=encode.encode_page),
    Route(method="GET", path="/tasks/{id}", decode=decode.decode_get, encode=encode.encode_task),
    Route(method="POST", path="/tasks/{id}/cancel", decode=decode.decode_cancel, encode=encode.encode_task_answer),
    Route(method="POST", path="/tasks/{id}/leave", decode=decode.decode_leave, encode=encode.encode_left),
    Route(method="POST", path="/tasks/{id}/resolve", decode=decode.decode_resolve, encode=encode.encode_task_answer),
    Route(method="POST", path="/tasks/{id}/answer", decode=decode.decode_answer, encode=encode.encode_answered),
    StreamRoute(method="GET", path="/tasks/{id}/subscribe", decode=decode.decode_subscribe, encode=encode_update),
)

_HOST: Final[tuple[AnyRoute, ...]] = (
    Route(method="POST", path="/reply", decode=decode.decode_reply, encode=encode.encode_replied),
    Route(method="POST", path="/answer", decode=decode.decode_answer, encode=encode.encode_answered),
    Route(method="POST", path="/questions", decode=decode.decode_ask, encode=encode.encode_task_answer),
    # A hook may wait for its answer as long as a person takes to decide.
    CallRoute(
        method="POST",
        path="/signals",
        ask=lambda wire: Call(decode.decode_signal(wire), encode.encode_signal_answer),
    ),
    Route(method="POST", path="/mcp/ready", decode=decode.decode_tools, encode=encode.encode_nothing),
    Route(method="GET", path="/queue", decode=decode.decode_queue, encode=encode.encode_queue),
    Route(method="GET", path="/status", decode=decode.decode_status, encode=encode.encode_status),
    StreamRoute(
        method="GET", path=commands.STATUS_STREAM, decode=decode.decode_follow_status, encode=encode_agent_status
    ),
    StreamRoute(
        method="GET",
        path=commands.STATUS_WATCH,
        decode=decode.decode_watch_status,
        encode=encode.encode_watched_status,
    ),
    CallRoute(method="GET", path=commands.SCREEN, ask=decode.ask_screen),
    CallRoute(method="POST", path=commands.PATH, ask=commands.ask),
)

_EXTERNALS: Final[tuple[AnyRoute, ...]] = (
    Route(method="POST", path="/external/discover", decode=decode.decode_discover, encode=encode.encode_external),
    Route(method="GET", path="/external/agents", decode=decode.decode_externals, encode=encode.encode_externals),
    Route(
        method="DELETE",
        path="/external/agents/{alias}",
        decode=decode.decode_remove_external,
        encode=encode.encode_external,
    ),
    Route(
        method="POST",
        path="/external/agents/{alias}/send",
        decode=decode.decode_send_external,
        encode=encode.encode_external_answer,
    ),
)
