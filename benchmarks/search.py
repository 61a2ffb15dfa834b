"""Full-text search over many stored tasks: the build, the first page, and what the build costs those who write."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from benchmarks.hosts import Home, Host, temporary_home
from benchmarks.listing import timed
from benchmarks.processes import SYNAPSE, run_command
from benchmarks.rows import QUICK, Effort, Figure, Row, at_most, within
from synapse.core.events import ArtifactAdded, StateChanged, TaskEvent, TaskOpened
from synapse.core.message import Artifact, Message, MessageId, Role, TextPart
from synapse.core.store import Lease, TaskQuery
from synapse.core.task import TaskId, TaskState
from synapse.store.search import index_path
from synapse.store.sqlite import SqliteStore
from synapse.tasks.journal import rebuild

TITLE = "Searching stored tasks"
PAGE_LIMIT_MS = 50.0
MOST_SLOWER = 1.25
_WHOLE, _SMALL = 100_000, 5_000
_APPENDS = 400
_APPEND_EVERY = 0.005
_START = datetime(2026, 1, 1, tzinfo=UTC)
_AT_ONCE = 1000


class Texts:
    """Texts of words that are as common as those of a language: the n-th is n times as rare as the first."""

    def __init__(self) -> None:
        self._random = random.Random(1)
        letters = "abcdefghijklmnopqrstuvwxyz"
        sizes = [self._random.randint(3, 10) for _ in range(20_000)]
        self.words = ["".join(self._random.choices(letters, k=size)) for size in sizes]
        self._weights = list(itertools.accumulate(1 / rank for rank in range(1, len(sizes) + 1)))

    def text(self, words: int) -> str:
        return " ".join(self._random.choices(self.words, cum_weights=self._weights, k=words))


def run(effort: Effort) -> list[Row]:
    """Searches many tasks; before that, sends and appends while a gateway builds their index."""
    tasks = _SMALL if effort is QUICK else _WHOLE
    with temporary_home() as home, home.host() as host:
        host.keep_busy()
        return asyncio.run(_measured(home, host, tasks, effort.commands))


async def _measured(home: Home, host: Host, tasks: int, sends: int) -> list[Row]:
    path = home.folder / "state" / "store.db"
    store, texts = await SqliteStore.open(path), Texts()
    try:
        lease = await store.acquire("agent", "benchmark", lambda _holder: False)
        if lease is None:
            raise ValueError("somebody else holds an inbox that no agent has")
        for first in range(0, tasks, _AT_ONCE):
            await asyncio.gather(*(_append(store, lease, n, texts) for n in range(first, first + _AT_ONCE)))
        numbers = itertools.count(tasks)
        send = partial(run_command, [SYNAPSE, "send", host.agent_id, "please look at the parser again"], home.env)
        send()
        sent_alone = [send().wall for _ in range(sends // 2)]
        appended_alone = await _append_times(store, lease, numbers, texts)
        with home.gateway():
            sent = [send().wall for _ in range(sends)]
            appended = await _append_times(store, lease, numbers, texts)
            if (await store.update_search(0.0)).is_current and tasks == _WHOLE:
                raise ValueError("the index was built before the end, so this measures nothing")
        # Half of them before and half after, because other programs use the machine more or less as time goes by.
        sent_alone += [send().wall for _ in range(sends // 2)]
        appended_alone += await _append_times(store, lease, numbers, texts)
        built = await _build_times(store, path)
        return [
            Row(what=f"{tasks:,} tasks, index built without a rest", measured=Figure("", built, "s").shown),
            at_most(
                MOST_SLOWER,
                Figure("synapse send while a gateway builds the index", sent, "ms", 1000),
                Figure("without", sent_alone, "ms", 1000),
            ),
            at_most(
                MOST_SLOWER,
                Figure("append while a gateway builds the index", appended, "ms", 1000),
                Figure("without", appended_alone, "ms", 1000),
            ),
            *[
                within(PAGE_LIMIT_MS, Figure(f"first page, {name}", await timed(store, query), "ms", 1000))
                for name, query in _searches(texts).items()
            ],
        ]
    finally:
        await store.close()


def _searches(texts: Texts) -> dict[str, TaskQuery]:
    common, second, usual, rare = (texts.words[rank] for rank in (0, 1, 50, 3000))
    return {
        "a word of every task": TaskQuery(text=common),
        "a word of every task, of one agent": TaskQuery(text=common, inbox="agent", scope="local"),
        "a word of every fourth task": TaskQuery(text=usual),
        "a phrase of two common words": TaskQuery(text=f'"{common} {second}"'),
        "the beginning of a word": TaskQuery(text=rare[:3]),
        "a rare word": TaskQuery(text=rare),
    }


async def _build_times(store: SqliteStore, path: Path) -> list[float]:
    """Returns how long it takes to build the whole index."""
    index = index_path(path)
    for suffix in ("", "-wal", "-shm"):
        index.with_name(index.name + suffix).unlink(missing_ok=True)
    begun = time.perf_counter()
    while not (await store.update_search(0.5)).is_current:
        pass
    return [time.perf_counter() - begun]


async def _append_times(store: SqliteStore, lease: Lease, numbers: itertools.count[int], texts: Texts) -> list[float]:
    """Returns how long appends took that came one by one, as messages of people and agents do."""
    seconds: list[float] = []
    for number in itertools.islice(numbers, _APPENDS):
        begun = time.perf_counter()
        await _append(store, lease, number, texts)
        seconds.append(time.perf_counter() - begun)
        await asyncio.sleep(_APPEND_EVERY)
    return seconds


async def _append(store: SqliteStore, lease: Lease, number: int, texts: Texts) -> None:
    at = _START + timedelta(seconds=number)
    task_id = TaskId(f"{number:08d}-0000-4000-8000-000000000000")
    message = Message(message_id=MessageId(f"m-{number}"), role=Role.USER, parts=(TextPart(text=texts.text(40)),))
    artifact = Artifact(artifact_id="answer", parts=(TextPart(text=texts.text(100)),))
    events: list[TaskEvent] = [
        TaskOpened(
            task_id=task_id,
            at=at,
            agent_id="synapse-scripted-8180",
            inbox=lease.inbox,
            context_id=f"context {number // 10}",
            scope="local",
            dialect="a2a_v1",
            message=message,
        ),
        StateChanged(task_id=task_id, at=at, state=TaskState.WORKING),
        ArtifactAdded(task_id=task_id, at=at, artifact=artifact),
        StateChanged(task_id=task_id, at=at, state=TaskState.COMPLETED),
    ]
    await store.append(rebuild(None, events), events, lease=lease)
