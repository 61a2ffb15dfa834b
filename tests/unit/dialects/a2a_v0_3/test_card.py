"""The card of A2A 0.3."""

from __future__ import annotations

from synapse.dialects.a2a_v0_3.encode import CardFacts, agent_card


def test_the_card_has_every_required_field() -> None:
    facts = CardFacts(
        name="n", description="d", url="http://localhost:1", version="1", input_modes=("a",), output_modes=("b",)
    )
    card = agent_card(facts)

    assert (card["protocolVersion"], card["preferredTransport"], card["url"]) == ("0.3.0", "JSONRPC", facts.url)
    assert {one["transport"] for one in card["additionalInterfaces"]} == {"JSONRPC", "HTTP+JSON"}
    assert card["skills"][0].keys() >= {"id", "name", "description", "tags"}
    assert card["capabilities"]["streaming"] is True
