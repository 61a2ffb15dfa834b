"""FileTaskRefs remembers which remote task a task continues; a broken file counts as empty."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from synapse.core.task import TaskId
from synapse.external.driver import FileTaskRefs
from synapse.external.encode import RemoteTaskRef

TASK = TaskId("11111111-0000-4000-8000-000000000000")
BOUND = 10.0


@pytest.mark.parametrize("content", ["not json", "[]", '{"a": ["x"]}'])
def test_a_broken_file_counts_as_empty(tmp_path: Path, content: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(content, encoding="utf-8")

    assert FileTaskRefs(path).find(TaskId("a")) is None


async def test_old_questions_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("synapse.external.driver.MOST_REFS", 2)
    refs = FileTaskRefs(tmp_path / "other.json")

    for number in range(3):
        await refs.keep(TaskId(str(number)), RemoteTaskRef(task_id="r"), "m")

    assert [refs.find(TaskId(str(number))) is not None for number in range(3)] == [False, True, True]


async def test_a_file_that_cannot_be_written_keeps_its_refs_in_memory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refs = FileTaskRefs(tmp_path / "file" / "other.json")

    await refs.keep(TASK, RemoteTaskRef(task_id="r-1"), "m")

    assert refs.find(TASK) == RemoteTaskRef(task_id="r-1")


class HeldReplace:
    """`Path.replace`, which waits until it may go on; counts the threads that are in it."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.may_go_on = threading.Event()
        self.here = self.most_here = 0

    def __call__(self, source: Path, target: Path) -> None:
        self.here += 1
        self.most_here = max(self.most_here, self.here)
        self.begun.release()
        assert self.may_go_on.wait(BOUND)
        os.replace(source, target)  # noqa: PTH105 - `Path.replace` is this method
        self.here -= 1


async def test_a_ref_counts_as_kept_when_it_is_on_disk_also_for_a_second_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = HeldReplace()

    def replace(source: Path, target: Path) -> None:
        held(source, target)

    monkeypatch.setattr(Path, "replace", replace)
    path = tmp_path / "other.json"
    refs, ref = FileTaskRefs(path), RemoteTaskRef(task_id="r-1")

    first = asyncio.create_task(refs.keep(TASK, ref, "m"))
    await asyncio.to_thread(held.begun.acquire, timeout=BOUND)
    second = asyncio.create_task(refs.keep(TASK, ref, "m"))
    another = asyncio.create_task(refs.keep(TaskId("another"), ref, "m"))
    first.cancel()
    done, _ = await asyncio.wait({second, another}, timeout=0.05)
    assert not done
    held.may_go_on.set()
    await asyncio.wait_for(asyncio.gather(second, another), BOUND)

    assert held.most_here == 1
    assert FileTaskRefs(path).has(TASK, "m")
    assert FileTaskRefs(path).has(TaskId("another"), "m")
