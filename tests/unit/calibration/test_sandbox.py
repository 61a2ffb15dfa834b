"""The recipes: how each CLI is pointed to the scripted model."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from synapse.calibration.sandbox import Recipe, WhenLimited, load_recipe, placeholders, recipe_names
from synapse.config.settings import load_profile, profile_names
from synapse.core.errors import UnsupportedOperation

URL = "http://127.0.0.1:12345"
every_recipe = pytest.mark.parametrize("name", recipe_names())


def filled(name: str) -> Recipe:
    return load_recipe(name).filled(placeholders(URL, home=Path("/h"), project=Path("/p")))


def test_every_profile_with_signals_has_a_recipe() -> None:
    with_signals = [name for name in profile_names() if load_profile(name).signals.adapter]

    assert recipe_names() == sorted(with_signals)


@every_recipe
def test_a_recipe_points_to_the_scripted_model_and_to_nothing_else(name: str) -> None:
    recipe = filled(name)
    texts = [*recipe.env.values(), *recipe.files.values(), *recipe.args]

    assert any(URL in text for text in texts)
    assert not any("${" in text for text in texts)


@every_recipe
def test_the_files_of_a_recipe_are_what_their_names_say(name: str) -> None:
    for path, text in filled(name).files.items():
        assert json.loads(text) if path.endswith(".json") else tomllib.loads(text)


@every_recipe
def test_a_recipe_switches_telemetry_and_updates_off(name: str) -> None:
    recipe = filled(name)
    said = " ".join([*recipe.env, *recipe.env.values(), *recipe.files.values()]).lower()

    assert any(word in said for word in ("telemetry", "analytics", "offline", '"share": "disabled"'))
    assert "update" in said


def test_settings_are_watched_also_among_the_files_that_a_cli_writes() -> None:
    recipe = Recipe(name="x", own_files=(".x/*",), settings=(".x/settings.json", ".x/hooks/*"))

    assert recipe.is_watched(".x/settings.json")
    assert recipe.is_watched(".x/hooks/mine.sh")
    assert not recipe.is_watched(".x/history/1.jsonl")
    assert recipe.is_watched(".bashrc")


def test_the_reaction_of_a_cli_to_a_limit_is_part_of_its_recipe() -> None:
    assert load_recipe("claude").when_limited is WhenLimited.FAILS
    assert load_recipe("gemini").when_limited is WhenLimited.ASKS


def test_a_profile_without_a_recipe_is_refused_with_those_that_have_one() -> None:
    with pytest.raises(UnsupportedOperation) as refused:
        load_recipe("dummy")

    assert "claude" in refused.value.hint
