"""The routes have every path of both contracts, and the card has true values."""

from __future__ import annotations

import json
from dataclasses import replace

from synapse.core.requests import ReportSignal
from synapse.dialects.dialect import Call, CallRoute, DocumentRoute, StreamRoute, WireRequest
from synapse.dialects.synapse.routes import CardFacts, agent_card, synapse_dialect

FACTS = CardFacts(agent_id="synapse-claude-8100", agent_type="claude", title="Claude", url="http://localhost:8100")
DIALECT = synapse_dialect(FACTS)

PATHS = {
    ("GET", "/.well-known/agent.json"),
    ("POST", "/tasks/send"),
    ("POST", "/tasks/send-priority"),
    ("POST", "/tasks/create"),
    ("GET", "/tasks"),
    ("GET", "/tasks/{id}"),
    ("POST", "/tasks/{id}/cancel"),
    ("POST", "/tasks/{id}/leave"),
    ("POST", "/questions"),
    ("POST", "/tasks/{id}/resolve"),
    ("POST", "/tasks/{id}/answer"),
    ("GET", "/tasks/{id}/subscribe"),
    ("POST", "/reply"),
    ("POST", "/answer"),
    ("POST", "/commands"),
    ("POST", "/signals"),
    ("POST", "/mcp/ready"),
    ("GET", "/queue"),
    ("GET", "/status"),
    ("GET", "/status/subscribe"),
    ("GET", "/status/watch"),
    ("GET", "/screen"),
    ("POST", "/external/discover"),
    ("GET", "/external/agents"),
    ("DELETE", "/external/agents/{alias}"),
    ("POST", "/external/agents/{alias}/send"),
}


def test_the_table_has_exactly_the_documented_paths() -> None:
    assert {(route.method, route.path) for route in DIALECT.routes} == PATHS
    assert len(DIALECT.routes) == len(PATHS)


def test_only_the_subscriptions_stream() -> None:
    streams = [route.path for route in DIALECT.routes if isinstance(route, StreamRoute)]

    assert streams == ["/tasks/{id}/subscribe", "/status/subscribe", "/status/watch"]


def test_the_card_is_answered_without_asking_the_service() -> None:
    (card,) = [route for route in DIALECT.routes if isinstance(route, DocumentRoute)]

    answer = card.answer(WireRequest("GET", "/.well-known/agent.json"))

    assert (answer.status, answer.media_type) == (200, b"application/json")
    assert json.loads(answer.body) == agent_card(FACTS)


def test_a_hook_is_answered_when_its_answer_is_known() -> None:
    (route,) = [route for route in DIALECT.routes if route.path == "/signals"]
    assert isinstance(route, CallRoute)

    call = route.ask(WireRequest("POST", "/signals", {}, b"", [], b'{"hook": "Stop"}'))

    assert isinstance(call, Call)
    assert call.request == ReportSignal(payload={"hook": "Stop"}, secret="")
    assert (call.encode(None), call.encode({"decision": 1})) == (b"{}", b'{"decision":1}')


CLAUDE = CardFacts(agent_id="synapse-claude-8100", agent_type="claude", title="Claude", url="http://localhost:8100")


def test_the_card_is_the_one_of_the_readme_except_that_it_streams() -> None:
    assert agent_card(CLAUDE) == {
        "name": "Synapse Claude",
        "description": "PTY-wrapped claude CLI agent with A2A communication",
        "url": "http://localhost:8100",
        "capabilities": {"streaming": True, "pushNotifications": False, "multiTurn": True},
        "skills": [
            {"id": "chat", "name": "Chat", "description": "Send messages to the CLI agent"},
            {"id": "interrupt", "name": "Interrupt", "description": "Interrupt current processing"},
        ],
        "extensions": {
            "synapse": {
                "agent_id": "synapse-claude-8100",
                "pty_wrapped": True,
                "priority_interrupt": True,
                "at_agent_syntax": True,
            }
        },
    }


def test_a_scripted_agent_does_not_claim_a_terminal() -> None:
    facts = CardFacts(
        agent_id="synapse-tester-8200",
        agent_type="tester",
        title="Tester",
        url="http://localhost:8200",
        name="reviewer",
        pty_wrapped=False,
    )

    card = agent_card(facts)

    assert card["description"] == "Scripted agent with A2A communication"
    assert card["extensions"]["synapse"] == {
        "agent_id": "synapse-tester-8200",
        "pty_wrapped": False,
        "priority_interrupt": True,
        "at_agent_syntax": False,
        "name": "reviewer",
    }


def test_the_card_of_an_agent_with_a_role_says_so_on_one_line() -> None:
    facts = replace(CLAUDE, role="You plan.\nYou hand out work." + "x" * 8000)

    description = agent_card(facts)["description"]

    assert description.startswith(f"{agent_card(CLAUDE)['description']}. Its role: You plan. You hand out work.x")
    assert len(description) < 400
