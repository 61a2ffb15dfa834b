"""Several processes on one store, and what is left when one is killed at any moment."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from synapse.core.errors import StoreLocked
from synapse.core.events import Recorded
from synapse.core.lifecycle import replay
from synapse.core.store import TaskStore
from synapse.core.task import TaskId
from tests.fakes.leased_store import LeasedStore, nobody_lives

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[3]
EVENTS_OF_A_TASK = 5


class Writing:
    """A process that writes, and its output so far."""

    def __init__(self, path: Path, name: str, tasks: int, concurrency: int = 8) -> None:
        command = [sys.executable, "-m", "tests.integration.store.writing_process", path, name, tasks, concurrency]
        self._process = subprocess.Popen([str(word) for word in command], cwd=ROOT, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self._output = self._process.stdout.fileno()
        self._heard = b""

    @property
    def said(self) -> list[str]:
        # The rest after the last newline is an incomplete line.
        return self._heard.decode().split("\n")[:-1]

    def hear(self, lines: int) -> None:
        """Reads until it has printed that many lines."""
        while self._heard.count(b"\n") < lines and (more := os.read(self._output, 65536)):
            self._heard += more

    def hear_what_was_said(self) -> None:
        """Reads the output that is there, without waiting for more."""
        os.set_blocking(self._output, False)
        try:
            while more := os.read(self._output, 65536):
                self._heard += more
        except BlockingIOError:
            os.set_blocking(self._output, True)

    def finish(self) -> None:
        self.hear(sys.maxsize)
        assert self._process.wait(timeout=20) == 0

    def kill(self) -> None:
        self._process.kill()
        self.hear(sys.maxsize)
        self._process.wait(timeout=20)

    def stop(self) -> None:
        """Stops the process with SIGSTOP."""
        os.kill(self._process.pid, signal.SIGSTOP)
        os.waitpid(self._process.pid, os.WUNTRACED)

    def go_on(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)

    def end(self) -> None:
        self._process.kill()
        self._process.communicate(timeout=20)

    @property
    def acknowledged(self) -> set[tuple[str, int, int]]:
        """Returns each event that was acknowledged to it: task, version, seq."""
        said = [line.split() for line in self.said if line not in ("done", "lost")]
        return {(task_id, int(version), int(seq)) for task_id, version, seq in said}


@contextmanager
def writing(path: Path, names: Sequence[str], tasks: int) -> Generator[list[Writing]]:
    processes = [Writing(path, name, tasks) for name in names]
    try:
        yield processes
    finally:
        for process in processes:
            process.end()


def look(path: Path) -> set[tuple[str, int, int]]:
    """Checks that the store is sound and each task matches its log; returns all events as the writers name them."""

    async def read() -> list[Recorded]:
        store = await LeasedStore.open(path)
        try:
            await store.check()
            log = await whole_log(store)
            await compare(store, log)
        finally:
            await store.close()
        return log

    versions: dict[str, int] = defaultdict(int)
    events: set[tuple[str, int, int]] = set()
    for recorded in asyncio.run(asyncio.wait_for(read(), 30)):
        versions[recorded.event.task_id] += 1
        events.add((recorded.event.task_id, versions[recorded.event.task_id], recorded.seq))
    return events


async def whole_log(store: TaskStore) -> list[Recorded]:
    log: list[Recorded] = []
    while page := await store.read_after(log[-1].seq if log else 0):
        log += page
    return log


async def compare(store: TaskStore, log: Sequence[Recorded]) -> None:
    logs: dict[TaskId, list[Recorded]] = defaultdict(list)
    for recorded in log:
        logs[recorded.event.task_id].append(recorded)
    for task_id, events in logs.items():
        assert await store.load(task_id) == replay(one.event for one in events)


def test_several_processes_create_and_write_one_store_at_once(tmp_path: Path) -> None:
    path = tmp_path / "new" / "store.db"
    with writing(path, ["a", "b", "c", "d"], tasks=60) as processes:
        for process in processes:
            process.finish()

    said = [process.acknowledged for process in processes]
    assert [len(events) for events in said] == [60 * EVENTS_OF_A_TASK] * 4
    assert look(path) == set[tuple[str, int, int]]().union(*said)


def test_each_process_gets_its_acknowledgements_in_the_order_of_seqs(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with writing(path, ["a", "b"], tasks=60) as processes:
        for process in processes:
            process.finish()

    for process in processes:
        seqs = [int(line.split()[2]) for line in process.said if line != "done"]
        assert seqs == sorted(set(seqs))


@pytest.mark.parametrize("lines", [1, 7, 40, 155, 400])
def test_a_killed_writer_leaves_a_log_with_everything_it_acknowledged(tmp_path: Path, lines: int) -> None:
    path = tmp_path / "store.db"
    with writing(path, ["a"], tasks=5000) as (process,):
        process.hear(lines)
        process.kill()

    assert len(process.acknowledged) >= lines
    assert process.acknowledged <= look(path)


def test_other_writers_continue_when_one_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with writing(path, ["a"], tasks=100_000) as (doomed,), writing(path, ["b"], tasks=200) as (other,):
        doomed.hear(50)
        other.hear(50)
        doomed.kill()
        other.finish()

    assert "done" in other.said
    events = look(path)
    assert doomed.acknowledged | other.acknowledged <= events


@pytest.mark.parametrize("lines", [3, 60, 300])
def test_a_copy_of_the_files_at_any_instant_has_everything_acknowledged(tmp_path: Path, lines: int) -> None:
    path = tmp_path / "store.db"
    copy = tmp_path / "copy" / "store.db"
    copy.parent.mkdir()
    with writing(path, ["a"], tasks=100_000) as (process,):
        process.hear(lines)
        process.stop()
        process.hear_what_was_said()
        for name in ("store.db", "store.db-wal"):
            shutil.copyfile(path.with_name(name), copy.with_name(name))

        assert len(process.acknowledged) >= lines
        assert process.acknowledged <= look(copy)


def test_a_writer_that_is_killed_while_stopped_does_not_block_others(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with writing(path, ["a"], tasks=100_000) as (stopped,):
        stopped.hear(100)
        stopped.stop()
        with writing(path, ["b"], tasks=5) as (other,):
            # It may or may not have been stopped while it held the lock; once it is gone nothing blocks the other.
            stopped.kill()
            other.finish()

    assert stopped.acknowledged | other.acknowledged <= look(path)


def test_a_suspended_writer_writes_nothing_after_its_successor_has_acquired_the_inbox(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with writing(path, ["a"], tasks=100_000) as (suspended,):
        suspended.hear(100)
        suspended.stop()
        while not acquire(path, "a"):
            # It was stopped while it held the lock of the store: no process writes until it is released.
            suspended.go_on()
            suspended.hear(len(suspended.said) + 10)
            suspended.stop()
        suspended.hear_what_was_said()
        before = look(path)

        suspended.go_on()
        suspended.finish()

    assert suspended.said[-1] == "lost"
    assert look(path) == before
    assert suspended.acknowledged <= before


def acquire(path: Path, inbox: str) -> bool:
    """Acquires the inbox of a process that is no longer visible; returns False when the store is locked."""

    async def run() -> bool:
        store = await LeasedStore.open(path, lock_timeout=0.5)
        try:
            return await store.acquire(inbox, "successor", nobody_lives) is not None
        except StoreLocked:
            return False
        finally:
            await store.close()

    return asyncio.run(run())
