"""The examples of docs/howto/wrap-a-cli.md with the real programs, where they are installed."""

from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path

import pytest

from synapse.terminal.profile import Profile, parse_profile
from tests.integration.pty.terminals import answer, names, staged

pytestmark = pytest.mark.integration

PAGE = Path(__file__).resolve().parents[3] / "docs" / "howto" / "wrap-a-cli.md"


def example(name: str) -> Profile:
    found = re.search(rf"```toml\n# \.synapse/profiles/{name}\.toml\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert found is not None
    profile = parse_profile(tomllib.loads(found[1]), name)
    if shutil.which(profile.command[0]) is None:
        pytest.skip(f"{profile.command[0]} is not installed")
    return profile


async def test_a_calculator_computes() -> None:
    profile = example("bc")

    async with staged(profile.command, profile) as stage:
        assert answer(await stage.turn("2^100")) == "1267650600228229401496703205376"
        assert answer(await stage.turn("1")) == "1"


async def test_a_database_shell_answers_at_its_prompt(tmp_path: Path) -> None:
    profile = example("sql")

    command = (*profile.command[:-1], str(tmp_path / profile.command[-1]))
    async with staged(command, profile) as stage:
        events = await stage.turn("select 6 * 7;")

        assert names(events) == ["Typing", "Submitted", "TurnStarted", "Answered"]
        assert answer(events) == "42"
        assert answer(await stage.turn("values (1), (21), (3);")) == "1\n21\n3"


async def test_a_repeated_message_without_output_has_no_answer_the_second_time() -> None:
    tells_once = """printf '> '; while read -r line; do [ "$told" ] || echo news; told=yes; printf '> '; done"""
    profile = parse_profile(
        {
            "command": ["sh", "-c", tells_once],
            "envelope": False,
            "prompt": {"pattern": "^> (?P<text>.*)$", "at_cursor": True},
            "times": {"quiet": 0.05, "settle": 0.1},
        },
        "once",
    )

    async with staged(profile.command, profile) as stage:
        assert answer(await stage.turn("anything new?")) == "news"
        assert answer(await stage.turn("anything new?")) == ""
