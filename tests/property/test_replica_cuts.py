"""A replica does not depend on how the log was cut into batches, what came twice, or when the link was restarted."""

from __future__ import annotations

import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synapse.core.events import TaskEvent
from synapse.core.task import TaskState
from synapse.fleet.log import Batch, Missing, Replica, Taken
from synapse.store import reader
from synapse.store.replica import ReplicaFile
from tests.fakes.facts import handed, hidden, moved, numbered, opened, said
from tests.fakes.shipped_log import NOW, ShippedMachine, rows_in, take_all

TABLES = ("appends", "tasks", "origins", "originals", "unread", "task_counts WHERE tasks <> 0", "stored_bytes")


def story(number: int, length: int) -> list[list[TaskEvent]]:
    """The appends of one task, of which some have several events."""
    task = numbered(number)
    parts: list[list[TaskEvent]] = [[handed(f"{part} ", task, append=part > 0)] for part in range(length * 11)]
    end: list[TaskEvent] = [moved(TaskState.COMPLETED, task, number + 5), hidden(task, number + 5)]
    return [
        [opened(task, number, inbox=f"agent-{number % 2}")],
        [moved(TaskState.WORKING, task, number), said("more", task, number)],
        *parts,
        *([end] if length % 2 else []),
    ]


# Each example commits to three files on disk.
@pytest.mark.timeout(300)
@settings(max_examples=40)
@given(
    lengths=st.lists(st.integers(0, 6), min_size=1, max_size=3),
    order=st.randoms(use_true_random=False),
    cuts=st.lists(st.integers(1, 9), min_size=1, max_size=8),
    restarts=st.sets(st.integers(0, 40)),
    repeats=st.sets(st.integers(0, 40)),
    lost=st.sets(st.integers(0, 40)),
)
async def test_any_cut_of_a_log_gives_the_same_replica(
    lengths: list[int],
    order: Random,
    cuts: list[int],
    restarts: set[int],
    repeats: set[int],
    lost: set[int],
) -> None:
    waiting = [story(number, length) for number, length in enumerate(lengths)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        machine = await ShippedMachine.open("box2", folder)
        batches: list[Batch] = []
        appended = 0
        while any(waiting):
            await machine.keep(*order.choice([one for one in waiting if one]).pop(0))
            appended += 1
            if appended % 10 == 0:
                batches += machine.batches(cuts[appended % len(cuts)])
        batches += machine.batches(cuts[0])

        cut = ReplicaFile.open(folder / "cut" / "replica.db")
        replica = Replica(cut.heads())
        for index, batch in enumerate(batches):
            if index in lost:
                continue
            if index in restarts:
                cut.close()
                cut = ReplicaFile.open(folder / "cut" / "replica.db")
                replica = Replica(cut.heads())
            for _ in range(2 if index in repeats else 1):
                decision = replica.take(batch)
                if isinstance(decision, Taken):
                    cut.take(decision, NOW)
                else:
                    assert isinstance(decision, Missing)
        take_all(cut, batches)

        assert rows_in(cut, machine) == machine.rows()
        machine.renew()
        whole = ReplicaFile.open(folder / "whole" / "replica.db")
        take_all(whole, machine.batches(10_000))
        assert _content(folder / "cut") == _content(folder / "whole")
        whole.close()
        cut.close()
        await machine.store.close()


def _content(folder: Path) -> list[Any]:
    with closing(sqlite3.connect(folder / "replica.db")) as connection:
        rows = [sorted(connection.execute(f"SELECT * FROM {table}"), key=repr) for table in TABLES]
        # Snapshots are where a batch ends; the tasks that they make with the later appends are the same.
        tasks = [repr(reader.load(connection, task_id)) for (task_id,) in connection.execute("SELECT id FROM tasks")]
        return [*rows, sorted(tasks)]
