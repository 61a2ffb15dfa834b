"""Ids are random UUIDs, also across the batches in which they are minted."""

from __future__ import annotations

import uuid

from synapse.runtime.ids import new_id


def test_an_id_is_a_random_uuid() -> None:
    ids = [new_id() for _ in range(1000)]

    assert all(str(uuid.UUID(one)) == one for one in ids)
    assert {uuid.UUID(one).version for one in ids} == {4}
    assert {uuid.UUID(one).variant for one in ids} == {uuid.RFC_4122}


def test_no_id_comes_twice() -> None:
    ids = [new_id() for _ in range(1000)]

    assert len(set(ids)) == len(ids)
