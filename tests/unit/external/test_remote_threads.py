"""Which task over there a task here goes on with is remembered, and a broken file stops nobody."""

from __future__ import annotations

from pathlib import Path

import pytest

from synapse.core.task import TaskId
from synapse.external.driver import FileThreads
from synapse.external.encode import RemoteTaskRef

TASK = TaskId("11111111-0000-4000-8000-000000000000")


@pytest.mark.parametrize("content", ["not json", "[]", '{"a": ["x"]}'])
def test_a_broken_file_of_threads_is_an_empty_one(tmp_path: Path, content: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(content, encoding="utf-8")

    assert FileThreads(path).find(TaskId("a")) is None


def test_old_questions_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("synapse.external.driver.MOST_THREADS", 2)
    threads = FileThreads(tmp_path / "other.json")

    for number in range(3):
        threads.keep(TaskId(str(number)), RemoteTaskRef(task_id="r"), "m")

    assert [threads.find(TaskId(str(number))) is not None for number in range(3)] == [False, True, True]


def test_threads_that_cannot_be_written_are_known_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    threads = FileThreads(tmp_path / "file" / "other.json")

    threads.keep(TASK, RemoteTaskRef(task_id="r-1"), "m")

    assert threads.find(TASK) == RemoteTaskRef(task_id="r-1")
