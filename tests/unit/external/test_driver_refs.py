"""FileTaskRefs remembers which remote task a task continues; a broken file counts as empty."""

from __future__ import annotations

from pathlib import Path

import pytest

from synapse.core.task import TaskId
from synapse.external.driver import FileTaskRefs
from synapse.external.encode import RemoteTaskRef

TASK = TaskId("11111111-0000-4000-8000-000000000000")


@pytest.mark.parametrize("content", ["not json", "[]", '{"a": ["x"]}'])
def test_a_broken_file_counts_as_empty(tmp_path: Path, content: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(content, encoding="utf-8")

    assert FileTaskRefs(path).find(TaskId("a")) is None


def test_old_questions_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("synapse.external.driver.MOST_REFS", 2)
    refs = FileTaskRefs(tmp_path / "other.json")

    for number in range(3):
        refs.keep(TaskId(str(number)), RemoteTaskRef(task_id="r"), "m")

    assert [refs.find(TaskId(str(number))) is not None for number in range(3)] == [False, True, True]


def test_a_file_that_cannot_be_written_keeps_its_refs_in_memory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refs = FileTaskRefs(tmp_path / "file" / "other.json")

    refs.keep(TASK, RemoteTaskRef(task_id="r-1"), "m")

    assert refs.find(TASK) == RemoteTaskRef(task_id="r-1")
