"""Numbers that stand for texts in the indexes of the store."""

from __future__ import annotations

import pytest

from synapse.stores.sqlite_keys import context_key, id_key, last_id_key, text_key

EARLY = "019a8b00-0000-7abc-8def-000000000000"
LATER = "019a8b00-0001-7000-8000-000000000000"
LATEST = "ffffffff-ffff-7fff-8000-000000000000"


def test_contexts_that_begin_with_the_time_are_in_its_order() -> None:
    assert context_key(EARLY) < context_key(LATER) < context_key(LATEST)


@pytest.mark.parametrize("text", ["c-1", "", EARLY.upper(), EARLY + "0", "019a8b00-0000-4abc-8def-000000000000"])
def test_other_contexts_are_numbered_as_any_text(text: str) -> None:
    assert context_key(text) == text_key(text)


def test_ids_are_in_the_order_of_their_beginnings() -> None:
    assert id_key("0a") < id_key("0b") <= last_id_key("0b") < id_key("0c")
    assert id_key("0b") <= id_key("0bffffff") <= last_id_key("0b")


@pytest.mark.parametrize("text", ["", "x", EARLY, LATEST, "00000000-0000-7000-8000-000000000000"])
def test_every_number_fits_into_a_column(text: str) -> None:
    for key in (context_key(text), id_key(text), text_key(text)):
        assert -(2**63) <= key < 2**63
