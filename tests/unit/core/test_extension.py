"""Extensions are read strictly where a person writes them, and required where an agent requires them."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from synapse.core.agent import AgentEntry, entry_from
from synapse.core.errors import ExtensionRequired, InvalidScript, InvalidSettings
from synapse.core.extension import Extension, check_named, from_text, joined, read_extensions, to_text

PLAN = Extension(uri="urn:plan", description="plän", required=True, params={"deep": [1, 2.5, {"a": True}]})
PACE = Extension(uri="https://example.com/pace/v1?x=1#y")


def read(text: str) -> tuple[Extension, ...]:
    table: dict[str, Any] = tomllib.loads(text)
    return read_extensions(table["extensions"], "s.toml", InvalidScript)


def test_every_field_of_an_extension_is_read() -> None:
    assert read(
        "extensions = [{ uri = 'urn:plan', description = 'plän', required = true,"
        " params = { deep = [1, 2.5, { a = true }] } }, { uri = 'https://example.com/pace/v1?x=1#y' }]"
    ) == (PLAN, PACE)
    assert read("extensions = []") == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("'urn:a'", "s.toml: 'extensions' must be a list of tables, not 'urn:a'"),
        ("['urn:a']", "s.toml: extension 1 must be a table, not 'urn:a'"),
        ("[{ }]", "s.toml: extension 1: 'uri' must be a URI, and it is missing"),
        ("[{ uri = 'plan' }]", "s.toml: extension 1: 'uri' must be a URI, and 'plan' is none"),
        ("[{ uri = 'urn:a,urn:b' }]", "s.toml: extension 1: 'uri' must be a URI, and 'urn:a,urn:b' is none"),
        ("[{ uri = 'urn: a' }]", "s.toml: extension 1: 'uri' must be a URI, and 'urn: a' is none"),
        ("[{ uri = 'urn:ä' }]", "s.toml: extension 1: 'uri' must be a URI, and 'urn:ä' is none"),
        ("[{ uri = 'urn:a\\n' }]".replace("'", '"'), "s.toml: extension 1: 'uri' must be a URI, and 'urn:a"),
        (f"[{{ uri = 'urn:{'a' * 500}' }}]", "s.toml: extension 1: 'uri' must be a URI, and 'urn:aa"),
        ("[{ uri = 3 }]", "s.toml: extension 1: 'uri' must be a text, not 3"),
        ("[{ uri = 'urn:a' }, { uri = 'urn:b', required = 1 }]", "s.toml: extension 2: 'required' must be true or fal"),
        ("[{ uri = 'urn:a', params = 1 }]", "s.toml: extension 1: 'params' must be a table, not 1"),
        ("[{ uri = 'urn:a', params = { at = 2026-01-01 } }]", "s.toml: extension 1: 'params' must contain only JSON"),
        ("[{ uri = 'urn:a', params = { a = [inf] } }]", "s.toml: extension 1: 'params' must contain only JSON"),
        (
            f"[{{ uri = 'urn:a', params = {{ a = {'[' * 30}{']' * 30} }} }}]",
            "s.toml: extension 1: 'params' must contain",
        ),
        ("[{ uri = 'urn:a', requierd = true }]", "s.toml: extension 1: there is no key 'requierd'"),
        ("[{ uri = 'urn:a' }, { uri = 'urn:a' }]", "s.toml: the extension 'urn:a' is declared twice"),
    ],
)
def test_an_error_names_the_place_of_the_mistake(text: str, said: str) -> None:
    with pytest.raises(InvalidScript) as refused:
        read(f"extensions = {text}")

    assert str(refused.value).startswith(said)


def test_a_misspelt_key_is_recognised_and_the_error_is_of_the_file_that_was_read() -> None:
    with pytest.raises(InvalidSettings) as refused:
        read_extensions([{"uri": "urn:a", "requierd": True}], "gateway.toml", InvalidSettings)

    assert refused.value.hint == "did you mean 'required'?"


def test_a_card_leaves_out_empty_fields() -> None:
    assert PACE.as_dict() == {"uri": PACE.uri}
    assert PLAN.as_dict() == {"uri": "urn:plan", "description": "plän", "required": True, "params": PLAN.params}


def test_extensions_survive_a_registry_entry() -> None:
    entry = AgentEntry("synapse-scripted-8180", "scripted", extensions=to_text((PLAN, PACE)))
    found = entry_from(entry.as_dict())

    assert found is not None
    assert from_text(found.extensions) == (PLAN, PACE)
    assert (to_text(()), from_text("")) == ("", ())


@pytest.mark.parametrize("text", ["{", "3", '[{"uri": 3}]', '[{"other": 1}]'])
def test_an_entry_that_cannot_be_read_declares_nothing(text: str) -> None:
    assert from_text(text) == ()


def test_every_required_extension_must_be_named() -> None:
    also = Extension(uri="urn:also", required=True)

    check_named((), ())
    check_named((PACE,), ())
    check_named((PLAN, PACE, also), {"urn:plan", "urn:also", "urn:other"})
    with pytest.raises(ExtensionRequired, match=r"urn:also$"):
        check_named((PLAN, PACE, also), {"urn:plan", PACE.uri})


def test_extensions_given_for_an_agent_win_over_its_own() -> None:
    told = Extension(uri="urn:plan", required=False)

    assert joined((), (PLAN, PACE)) == (PLAN, PACE)
    assert joined((told,), ()) == (told,)
    assert joined((told,), (PLAN, PACE)) == (told, PACE)
