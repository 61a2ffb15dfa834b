"""The options of `send` and `reply`."""

from __future__ import annotations

import pytest

from synapse.cli.options import parse
from synapse.core.errors import InvalidRequest

VALUED = ("--priority", "--file")
SWITCHES = ("--json",)


@pytest.mark.parametrize(
    ("arguments", "words", "values"),
    [
        (["codex", "hi"], ["codex", "hi"], {}),
        (["--priority", "5", "codex", "hi", "--json"], ["codex", "hi"], {"--priority": "5", "--json": ""}),
        (["codex", "--priority=5", "hi"], ["codex", "hi"], {"--priority": "5"}),
        (["codex", "--priority", "--json"], ["codex"], {"--priority": "--json"}),
        (["codex", "--", "--json", "--"], ["codex", "--json", "--"], {}),
        (["codex", "-", "-5 degrees"], ["codex", "-", "-5 degrees"], {}),
        (["codex", "--json is what I want"], ["codex", "--json is what I want"], {}),
        (["codex", "--\nnew line"], ["codex", "--\nnew line"], {}),
        (["-h"], [], {"--help": ""}),
    ],
)
def test_options_are_separated_from_words(arguments: list[str], words: list[str], values: dict[str, str]) -> None:
    options = parse("send", arguments, VALUED, SWITCHES)

    assert (options.words, options.values) == (words, values)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--priorty", "5"], "unknown option --priorty"),
        (["--json=yes"], "unknown option --json"),
        (["--priority"], "--priority needs a value"),
    ],
)
def test_wrong_options_are_refused(arguments: list[str], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        parse("send", arguments, VALUED, SWITCHES)


def test_the_error_for_an_unknown_option_suggests_a_similar_one() -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse("send", ["--priorty=5"], VALUED, SWITCHES)

    assert "did you mean --priority?" in caught.value.hint
