"""The protocol and the URL of an agent are chosen from its card."""

from __future__ import annotations

from typing import Any

import pytest

from synapse.core.errors import ExternalAgentFailed, InvalidRequest
from synapse.external.card import (
    Interface,
    base_address,
    card_addresses,
    checked_address,
    choose_interface,
    is_card,
    modes_in,
    shown_text,
)

HOME = "http://other:9000"


def interface(url: str, binding: str = "JSONRPC", version: str = "1.0", tenant: str = "") -> dict[str, Any]:
    return {"url": url, "protocolBinding": binding, "protocolVersion": version, "tenant": tenant}


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("http://other:9000", "http://other:9000"),
        (" https://other/ ", "https://other"),
        ("http://other/agents/a/?x=1#top", "http://other/agents/a?x=1"),
        ("http://[::1]:9000", "http://[::1]:9000"),
    ],
)
def test_an_address_is_stored_in_one_form(given: str, kept: str) -> None:
    assert checked_address(given) == kept


@pytest.mark.parametrize(
    "given",
    [
        *("", "other:9000", "other", "ftp://other", "http://", "http://:9000", "http://o:99999", "http://o:x"),
        *("http://[::1", "http://user:secret@other", "file:///etc/passwd", "http://a b/", "http://o:0"),
    ],
)
def test_an_invalid_address_is_refused(given: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        checked_address(given)

    assert "http://host:port" in caught.value.hint
    assert "secret" not in str(caught.value)


def test_a_card_is_searched_at_the_new_path_then_at_the_old() -> None:
    assert card_addresses(HOME) == (f"{HOME}/.well-known/agent-card.json", f"{HOME}/.well-known/agent.json")
    assert card_addresses(f"{HOME}/agents/a")[0] == f"{HOME}/agents/a/.well-known/agent-card.json"


def test_an_address_of_a_card_is_used_unchanged() -> None:
    assert card_addresses(f"{HOME}/cards/a.json") == (f"{HOME}/cards/a.json",)


def test_the_agents_address_is_derived_from_its_cards() -> None:
    assert base_address(f"{HOME}/a/.well-known/agent.json") == f"{HOME}/a"
    assert base_address(f"{HOME}/a") == f"{HOME}/a"


@pytest.mark.parametrize("value", [None, [], "card", {}, {"name": "x"}, {"name": "", "url": "u"}, {"url": "http://x"}])
def test_other_json_is_no_card(value: object) -> None:
    assert not is_card(value)


def test_a_card_has_a_name_and_one_other_known_field() -> None:
    assert is_card({"name": "x", "url": "http://x"})
    assert is_card({"name": "x", "supportedInterfaces": []})


def test_control_characters_are_removed_from_the_texts_of_a_card() -> None:
    assert shown_text({"name": "a\x1b[2Jb\nc\u202e" + "d" * 99}, "name", 20) == "a[2Jb c" + "d" * 13
    assert shown_text({"name": 3}, "name", 20) == ""


def test_the_first_supported_1_0_interface_is_chosen() -> None:
    card = {
        "capabilities": {"streaming": True},
        "supportedInterfaces": [
            interface("other:9001", "GRPC"),
            interface("http://other:9000/old", version="0.3"),
            interface("http://other:9000/rest", "HTTP+JSON", tenant="a"),
            interface("http://other:9000/rpc"),
        ],
    }

    assert choose_interface(card, HOME) == Interface(
        protocol="a2a-1.0", url="http://other:9000/rest", binding="HTTP+JSON", tenant="a", streaming=True
    )


def test_a_0_3_interface_is_chosen_when_there_is_no_newer() -> None:
    card = {"supportedInterfaces": [interface("other:1", "GRPC"), interface("http://other:9000/old", version="0.3.0")]}

    assert choose_interface(card, HOME).protocol == "a2a-0.3"
    assert choose_interface(card, HOME).url == "http://other:9000/old"


@pytest.mark.parametrize(
    "fields",
    [
        {"protocolVersion": "0.3.0", "url": f"{HOME}/rpc"},
        {"preferredTransport": "JSONRPC", "url": f"{HOME}/rpc"},
        {
            "preferredTransport": "GRPC",
            "url": "other:1",
            "additionalInterfaces": [
                {"transport": "GRPC", "url": "other:1"},
                {"transport": "JSONRPC", "url": f"{HOME}/rpc"},
            ],
        },
    ],
)
def test_an_older_card_means_protocol_0_3(fields: dict[str, Any]) -> None:
    chosen = choose_interface({"name": "x", **fields}, HOME)

    assert (chosen.protocol, chosen.binding, chosen.url) == ("a2a-0.3", "JSONRPC", f"{HOME}/rpc")


@pytest.mark.parametrize(
    "card",
    [
        {"name": "x", "url": "http://localhost:9000", "extensions": {"synapse": {"agent_id": "synapse-claude-8100"}}},
        {"name": "x", "url": "http://localhost:9000"},
        {"name": "x", "supportedInterfaces": [interface("o:1", "GRPC")], "extensions": {"synapse": {}}},
        {"name": "x", "supportedInterfaces": "odd", "additionalInterfaces": 3, "capabilities": [], "extensions": None},
    ],
)
def test_any_other_card_means_the_synapse_dialect(card: dict[str, Any]) -> None:
    chosen = choose_interface(card, f"{HOME}/.well-known/agent.json")

    assert chosen == Interface(protocol="synapse", url=HOME, streaming=True)


@pytest.mark.parametrize(
    "card", [{"supportedInterfaces": [interface("o:1", "GRPC")]}, {"preferredTransport": "GRPC", "url": HOME}]
)
def test_an_agent_without_a_supported_interface_is_refused(card: dict[str, Any]) -> None:
    with pytest.raises(ExternalAgentFailed, match="no interface that Synapse speaks"):
        choose_interface(card, HOME)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "0.0.0.0", "[::1]", "[::]", "a.localhost"])
def test_localhost_in_a_card_means_the_cards_machine(host: str) -> None:
    card = {"supportedInterfaces": [interface(f"http://{host}:9001/rpc")]}

    assert choose_interface(card, HOME).url == "http://other:9001/rpc"
    assert choose_interface(card, "http://[2001:db8::1]:9000").url == "http://[2001:db8::1]:9001/rpc"


def test_an_interface_may_be_on_another_host_or_relative() -> None:
    assert (
        choose_interface({"supportedInterfaces": [interface("https://third/rpc#x")]}, HOME).url == "https://third/rpc"
    )
    assert choose_interface({"supportedInterfaces": [interface("/rpc")]}, HOME).url == f"{HOME}/rpc"


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "http://[::1", "http://user:pw@other/", "http://o:x/", "mailto:a"]
)
def test_an_interface_that_cannot_be_called_is_refused(url: str) -> None:
    with pytest.raises(ExternalAgentFailed, match="its card gives the address"):
        choose_interface({"supportedInterfaces": [interface(url)]}, HOME)


def test_the_media_types_of_all_skills_come_before_those_of_single_ones() -> None:
    skills = [{"inputModes": ["image/png", "text"]}, {"outputModes": ["text/csv"]}, "none"]
    card = {"defaultInputModes": ["text", "*/*", "a\x1bb", 5, "text/plain; charset=utf-8"], "skills": skills}

    assert modes_in(card, "Input") == ("text", "*/*", "text/plain; charset=utf-8", "image/png")
    assert modes_in(card, "Output") == ("text/csv",)
    assert modes_in({"skills": {}}, "Input") == ()
