"""Several processes build one search index, and some are killed meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from synapse.core.store import TaskQuery
from synapse.store.sqlite import SqliteStore

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[3]
TASKS = 300


@contextmanager
def process(module: str, *arguments: object) -> Generator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", f"tests.integration.store.{module}", *map(str, arguments)]
    running = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
    try:
        yield running
    finally:
        running.kill()
        running.communicate(timeout=20)


def lines_of(running: subprocess.Popen[bytes], number: int) -> None:
    """Reads until the process has printed so many lines."""
    assert running.stdout is not None
    seen = 0
    while seen < number and (more := os.read(running.stdout.fileno(), 65536)):
        seen += more.count(b"\n")


async def test_processes_that_index_and_are_killed_lose_and_repeat_nothing(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with process("writing_process", path, "ada", TASKS, 8) as writing:
        lines_of(writing, 20)
        for _ in range(3):
            with process("indexing_process", path) as one, process("indexing_process", path) as other:
                lines_of(one, 2)
                lines_of(other, 1)  # then both are killed, wherever they are
        lines_of(writing, sys.maxsize)
        assert writing.wait(timeout=20) == 0

    store = await SqliteStore.open(path)
    try:
        while not (await store.update_search(1)).is_current:
            pass
        page = await store.list(TaskQuery(text='"an answer an"', limit=10 * TASKS))
        assert len(page.tasks) == page.total == TASKS
        assert len({task.id for task in page.tasks}) == TASKS
    finally:
        await store.close()
