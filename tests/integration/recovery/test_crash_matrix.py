"""kill -9 at every point of every append and of every typing: what was told is true, and nothing is typed twice.

The host has no sockets and its program is a file, so each point costs milliseconds and is met exactly. What real
programs and real terminals make of it is in test_kill_at_every_step.py.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Generator, Sequence
from functools import cache
from pathlib import Path

import pytest

from synapse.core.events import StateChanged
from synapse.core.push import PushConfig
from synapse.core.store import TaskQuery
from synapse.core.task import Task, TaskState
from synapse.tasks.outcomes import AGENT_EXITED
from tests.fakes.leased_store import LeasedStore
from tests.integration.recovery.crashing_host import LETTERS, WEBHOOKS, lines
from tests.integration.recovery.journal_file import all_events, all_tasks, is_whole

pytestmark = pytest.mark.integration

CRASHING_HOST = Path(__file__).with_name("crashing_host.py")
FEWEST_POINTS = 40
AT_ONCE = [letter for letter in LETTERS if letter.startswith("answered at once")]
TYPED = [letter for letter in LETTERS if letter not in AT_ONCE]


@pytest.fixture(scope="module")
def places() -> Generator[Sequence[Path]]:
    """What two lives left behind, for each point at which the first was ended."""
    # Processes are killed and not the machine, so memory will do for a disk where there is such a folder.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="synapse-lives-", dir=memory) as folder:
        done = subprocess.run(
            [sys.executable, "-P", str(CRASHING_HOST), folder], capture_output=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr.decode()
        found = sorted((place for place in Path(folder).iterdir() if place.is_dir()), key=lambda place: int(place.name))
        assert len(found) > FEWEST_POINTS
        assert ["killed" in lines(place / "told") for place in found] == [True] * (len(found) - 1) + [False]
        yield found


@cache
def tasks_of(place: Path) -> dict[str, Task]:
    tasks = all_tasks(place / "store.db")
    named = {str(task.message.message_id): task for task in tasks}
    assert len(named) == len(tasks), f"a message became two tasks at point {place.name}"
    return named


def test_whatever_was_told_is_so(places: Sequence[Path]) -> None:
    for place in places:
        tasks = tasks_of(place)
        assert sorted(tasks) == sorted(LETTERS)
        for line in lines(place / "told"):
            if line in ("killed", "ended"):
                continue
            letter, task_id, state = line.split("|")
            assert tasks[letter].id == task_id, (place.name, line)
            assert tasks[letter].state.value == state or not TaskState(state).is_terminal, (place.name, line)


def test_every_task_has_one_end_and_the_store_is_whole(places: Sequence[Path]) -> None:
    for place in places:
        ends = [
            one.event.task_id
            for one in all_events(place / "store.db")
            if isinstance(one.event, StateChanged) and one.event.state.is_terminal
        ]
        assert sorted(ends) == sorted(task.id for task in tasks_of(place).values()), place.name
        is_whole(place / "store.db")


def test_nothing_is_lost_and_nothing_is_received_twice(places: Sequence[Path]) -> None:
    for place in places:
        assert sorted(lines(place / "received")) == sorted(TYPED), place.name
        for letter in TYPED:
            task = tasks_of(place)[letter]
            steps = [receipt.step.value for receipt in task.receipts]
            if task.state.value == "failed":
                # There was proof, and then its program was gone.
                assert (task.reason, "submitted" in steps) == (AGENT_EXITED, True), (place.name, steps)
            else:
                assert (task.state.value, steps[-1]) == ("completed", "answered"), (place.name, steps)


def test_a_message_and_the_answer_to_it_that_are_one_append_are_there_together_or_not_at_all(
    places: Sequence[Path],
) -> None:
    for place in places:
        for letter in AT_ONCE:
            task = tasks_of(place)[letter]
            assert (task.state.value, [artifact.text for artifact in task.artifacts]) == ("completed", ["at once"])
            assert [receipt.step.value for receipt in task.receipts] == ["queued", "submitted", "answered"], place.name


def test_whoever_was_told_that_its_message_was_taken_has_its_webhook(places: Sequence[Path]) -> None:
    for place in places:
        wanted = {letter: [WEBHOOKS[letter]] if letter in WEBHOOKS else [] for letter in LETTERS}
        assert webhooks_in(place) == wanted, place.name


def webhooks_in(place: Path) -> dict[str, list[PushConfig]]:
    async def read() -> dict[str, list[PushConfig]]:
        store = await LeasedStore.open(place / "store.db")
        try:
            tasks = (await store.list(TaskQuery())).tasks
            return {task.message.text: [push.config for push in await store.pushes.of_task(task.id)] for task in tasks}
        finally:
            await store.close()

    return asyncio.run(read())
