"""What people do by commands, they can do in `synapse top` and in the page: docs/reference/parity.md tells where."""

from __future__ import annotations

from textual.binding import Binding

from synapse.cli.main import VERBS
from synapse.top.app import TopApp
from tests.architecture.parity_table import left_out, parities

SIGNS = {".": "full_stop", "/": "slash", "?": "question_mark", "Enter": "enter", "Tab": "tab"}


def bound_keys() -> set[str]:
    bindings = [one for one in TopApp.BINDINGS if isinstance(one, Binding)]
    return {key for binding in bindings for key in binding.key.split(",")}


def test_every_verb_has_its_place_or_a_reason_for_none() -> None:
    shown, not_shown = {one.verb for one in parities()}, left_out()

    assert shown | not_shown.keys() == VERBS.keys()
    assert shown & not_shown.keys() == set()
    assert all(not_shown.values())


def test_every_key_is_bound_in_top() -> None:
    keys = {one.key for one in parities() if one.key}

    assert {SIGNS.get(key, key) for key in keys} - bound_keys() == set()


def test_every_verb_with_a_place_has_a_key() -> None:
    assert {one.verb for one in parities()} - {one.verb for one in parities() if one.key} == set()
