"""Tables of profiles and scripts are read strictly, and an error names its place as the kind of file does."""

from __future__ import annotations

import pytest

from synapse.core.errors import InvalidProfile, InvalidScript
from synapse.core.tables import ProfileTable, ScriptTable

WHERE = "hello.toml: rule 2, step 1"


def test_an_error_about_a_profile_names_the_path_of_the_key() -> None:
    prompt = ProfileTable({"prompt": {"pattern": 5}}, "claude").table("prompt")

    with pytest.raises(InvalidProfile, match=r"^profile 'claude': prompt\.pattern must be text, not 5$") as wrong:
        prompt.text("pattern")
    assert wrong.value.hint == "docs/howto/wrap-a-cli.md explains every key"


def test_a_key_in_a_list_of_tables_is_named_by_its_position() -> None:
    _, second = ProfileTable({"dialogs": [{}, {"keys": ["no-key"]}]}, "claude").tables("dialogs")

    with pytest.raises(InvalidProfile, match=r"^profile 'claude': dialogs\[1\]\.keys must hold names of keys"):
        second.keys("keys")


def test_an_error_about_a_script_names_the_place_of_the_table_and_shortens_the_value() -> None:
    step = ScriptTable({"wait": "x" * 100}, WHERE)

    with pytest.raises(InvalidScript) as wrong:
        step.seconds("wait")
    assert str(wrong.value) == f"{WHERE}: `wait` must be a number of seconds from 0 to 3600, not '{'x' * 56}..."
    assert wrong.value.hint == ""


def test_only_a_script_says_that_a_value_is_missing() -> None:
    with pytest.raises(InvalidScript, match=r"`say` must be a text, but it is missing$"):
        ScriptTable({}, WHERE).required_text("say")
    with pytest.raises(InvalidProfile, match=r"command must be text$"):
        ProfileTable({}, "claude").required_text("command")


def test_a_script_consists_of_tables() -> None:
    with pytest.raises(InvalidScript, match=f"^{WHERE} must be a table, not 3$"):
        ScriptTable(3, WHERE)


@pytest.mark.parametrize(
    ("keys", "error", "hint"),
    [
        (["pront", "command"], "there is no key pront", "Did you mean 'prompt'?"),
        (["zzzzzz"], "there is no key zzzzzz", "docs/howto/wrap-a-cli.md lists every key"),
    ],
)
def test_an_unknown_key_of_a_profile_is_refused(keys: list[str], error: str, hint: str) -> None:
    table = ProfileTable(dict.fromkeys(keys, "x"), "claude")
    assert ("prompt" in table, table.text("command", "x")) == (False, "x")

    with pytest.raises(InvalidProfile) as wrong:
        table.done()
    assert (str(wrong.value), wrong.value.hint) == (f"profile 'claude': {error}", hint)


@pytest.mark.parametrize(
    ("keys", "hint"),
    [
        (["wiat"], "did you mean `wait`?"),
        (["zzzzzz"], "known here: say, wait"),
        # Every unknown key counts: a step without a verb is explained by its misspelt one.
        (["zzzzzz", "wiat"], "did you mean `wait`?"),
    ],
)
def test_an_unknown_key_of_a_script_is_refused(keys: list[str], hint: str) -> None:
    table = ScriptTable(dict.fromkeys(keys, 1), WHERE)

    with pytest.raises(InvalidScript) as wrong:
        table.refuse_unknown(("wait", "say"))
    assert (str(wrong.value), wrong.value.hint) == (f"{WHERE}: there is no key `{keys[0]}`", hint)
    assert table.suggest(("wait", "say")) == hint


def test_a_pattern_must_be_a_regular_expression() -> None:
    with pytest.raises(InvalidProfile, match="pattern is not a regular expression") as wrong:
        ProfileTable({"pattern": "("}, "claude").pattern("pattern")
    assert "single quotes" in wrong.value.hint


def test_named_keys_become_the_bytes_that_a_terminal_sends() -> None:
    assert ProfileTable({"keys": ["esc", "enter", "ctrl-u"]}, "claude").keys("keys") == (b"\x1b", b"\r", b"\x15")
