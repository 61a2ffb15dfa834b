"""The keys that stand for texts in the indexes of the store."""

from __future__ import annotations

import pytest

from synapse.config.process import new_context_id, new_task_id
from synapse.store.queries import id_key, text_key

EARLY = "019a8b00-0000-7abc-8def-000000000000"
LATER = "019a8b00-0001-7000-8000-000000000000"
LATEST = "ffffffff-ffff-7fff-8000-000000000000"
EARLY_TASK = "ffffffff-ffff-8fff-bfff-019a8b000000"
LATER_TASK = "00000000-0000-8000-8000-019a8b000001"
LATEST_TASK = "00000000-0000-8000-8000-ffffffffffff"


def test_keys_of_contexts_that_begin_with_the_time_are_in_its_order() -> None:
    assert id_key(EARLY) < id_key(LATER) < id_key(LATEST)


def test_keys_of_tasks_that_end_with_the_time_are_in_its_order() -> None:
    assert id_key(EARLY_TASK) < id_key(LATER_TASK) < id_key(LATEST_TASK)


@pytest.mark.parametrize("new_id", [new_task_id, new_context_id])
def test_own_ids_have_keys_in_the_order_of_their_creation(new_id: type[str], monkeypatch: pytest.MonkeyPatch) -> None:
    keys: list[int] = []
    for milliseconds in (1, 2**32, 2**41, 2**47):
        monkeypatch.setattr("synapse.config.process.time.time_ns", lambda at=milliseconds: at * 1_000_000)
        keys.append(id_key(new_id()))

    assert keys == sorted(keys)


@pytest.mark.parametrize("text", ["c-1", "", EARLY.upper(), EARLY + "0", "019a8b00-0000-4abc-8def-000000000000"])
def test_other_ids_have_the_keys_of_texts(text: str) -> None:
    assert id_key(text) == text_key(text)


@pytest.mark.parametrize("text", ["", "x", EARLY, LATEST, LATEST_TASK, "00000000-0000-7000-8000-000000000000"])
def test_every_key_fits_into_a_column(text: str) -> None:
    for key in (id_key(text), text_key(text)):
        assert -(2**63) <= key < 2**63
