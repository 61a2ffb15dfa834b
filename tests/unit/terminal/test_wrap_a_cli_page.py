"""The page about profiles is true: its examples can be used, and it shows every key."""

from __future__ import annotations

import re
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from synapse.terminal.profile import (
    AnswerRule,
    DialogRule,
    Interrupt,
    McpRule,
    Profile,
    PromptRule,
    Region,
    ScreenRule,
    Signals,
    Times,
    TypingRule,
    WorkingRule,
    parse_profile,
)

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "howto" / "wrap-a-cli.md").read_text(encoding="utf-8")
EXAMPLES: list[str] = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)


def named(example: str) -> str:
    name = re.search(r"profiles/(\w+)\.toml", example)
    assert name is not None
    return name[1]


@pytest.mark.parametrize("example", EXAMPLES, ids=named)
def test_an_example_of_the_page_can_be_used(example: str) -> None:
    assert parse_profile(tomllib.loads(example), named(example)).name == named(example)


@pytest.mark.parametrize(
    "shape",
    [
        Profile,
        TypingRule,
        Interrupt,
        Times,
        Region,
        PromptRule,
        ScreenRule,
        WorkingRule,
        DialogRule,
        AnswerRule,
        Signals,
        McpRule,
    ],
)
def test_every_key_is_in_the_long_example(shape: type[Any]) -> None:
    written = set(re.findall(r"^(?:# )?(\w+) = ", EXAMPLES[-1], re.MULTILINE))
    tables = set(re.findall(r"^\[+(\w+)", EXAMPLES[-1], re.MULTILINE))
    # `name` of a profile is its file's, and `rule` holds the keys of a screen rule.
    keys = {field.name for field in fields(shape)} - {"rule"} - ({"name"} if shape is Profile else set())

    assert keys <= written | tables
