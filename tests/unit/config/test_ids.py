"""Ids are random UUIDs, also across batches; those of contexts and tasks also contain the time."""

from __future__ import annotations

import time
import uuid

from synapse.config.process import new_context_id, new_id, new_task_id


def test_an_id_is_a_random_uuid() -> None:
    ids = [new_id() for _ in range(1000)]

    assert all(str(uuid.UUID(one)) == one for one in ids)
    assert {uuid.UUID(one).version for one in ids} == {4}
    assert {uuid.UUID(one).variant for one in ids} == {uuid.RFC_4122}


def test_ids_are_unique() -> None:
    ids = [new_id() for _ in range(1000)]

    assert len(set(ids)) == len(ids)


def test_the_id_of_a_context_is_a_uuid_that_begins_with_the_time() -> None:
    before = time.time_ns() // 1_000_000
    ids = [uuid.UUID(new_context_id()) for _ in range(1000)]
    after = time.time_ns() // 1_000_000

    assert {one.version for one in ids} == {7}
    assert {one.variant for one in ids} == {uuid.RFC_4122}
    assert all(before <= one.int >> 80 <= after for one in ids)
    assert len(set(ids)) == len(ids)


def test_the_id_of_a_task_is_a_uuid_that_begins_at_random_and_ends_with_the_time() -> None:
    before = time.time_ns() // 1_000_000
    ids = [uuid.UUID(new_task_id()) for _ in range(1000)]
    after = time.time_ns() // 1_000_000

    assert {one.version for one in ids} == {8}
    assert {one.variant for one in ids} == {uuid.RFC_4122}
    assert all(before <= one.int & 0xFFFFFFFFFFFF <= after for one in ids)
    assert len({str(one)[:8] for one in ids}) > 990
