"""Each thing that happens to a task is one event of the stream."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest

from synapse.core.events import (
    ArtifactAdded,
    AttentionChanged,
    MessageAdded,
    MetadataChanged,
    ReceiptChanged,
    StateChanged,
    TaskEvent,
    TaskHidden,
    TaskOpened,
    Update,
)
from synapse.core.message import Artifact, TextPart
from synapse.core.task import ReceiptStep, TaskState
from synapse.dialects.synapse.encode import artifact_object, encode_update, message_object, task_object
from tests.unit.dialects.synapse.samples import CREATED, a_message, a_task

TASK = a_task()
MESSAGE = a_message()
ARTIFACT = Artifact(artifact_id="a", parts=(TextPart(text="done"),))
EVENTS: list[tuple[TaskEvent, str, dict[str, Any]]] = [
    (
        TaskOpened(
            task_id=TASK.id,
            at=CREATED,
            agent_id=TASK.agent_id,
            inbox=TASK.inbox,
            context_id="c",
            scope="local",
            dialect="synapse",
            message=MESSAGE,
        ),
        "task_opened",
        {"message": message_object(MESSAGE)},
    ),
    (
        StateChanged(task_id=TASK.id, at=CREATED, state=TaskState.REJECTED, reason="r", note="n"),
        "state_changed",
        {"status": "failed", "reason": "r", "note": "n"},
    ),
    (
        MessageAdded(task_id=TASK.id, at=CREATED, message=MESSAGE),
        "message_added",
        {"message": message_object(MESSAGE)},
    ),
    (
        ArtifactAdded(task_id=TASK.id, at=CREATED, artifact=ARTIFACT, append=True, last_chunk=False),
        "artifact_added",
        {"artifact": artifact_object(ARTIFACT), "append": True, "last_chunk": False},
    ),
    (
        ReceiptChanged(task_id=TASK.id, at=CREATED, step=ReceiptStep.TYPED, source="pty", evidence="e"),
        "receipt_changed",
        {"step": "typed", "source": "pty", "evidence": "e"},
    ),
    (
        MetadataChanged(task_id=TASK.id, at=CREATED, metadata={"k": None}),
        "metadata_changed",
        {"metadata": {"k": None}},
    ),
    (
        AttentionChanged(task_id=TASK.id, at=CREATED, attention="look"),
        "attention_changed",
        {"attention": "look"},
    ),
    (TaskHidden(task_id=TASK.id, at=CREATED), "task_hidden", {}),
]


def test_a_snapshot_is_the_task_alone() -> None:
    event = encode_update(Update(17, None, TASK))

    assert (event.id, event.name) == ("17", "snapshot")
    assert json.loads(event.data) == {"task": task_object(TASK)}


@pytest.mark.parametrize(("happened", "name", "fields"), EVENTS, ids=[name for _, name, _ in EVENTS])
def test_an_event_is_told_by_its_name_with_the_task_after_it(
    happened: TaskEvent, name: str, fields: dict[str, Any]
) -> None:
    event = encode_update(Update(18, happened, TASK))

    assert (event.id, event.name) == ("18", name)
    assert json.loads(event.data) == {
        "event": {"type": name, "at": "2024-01-15T10:30:00.000Z", **fields},
        "task": task_object(TASK),
    }


def test_every_event_of_the_core_has_a_name_here() -> None:
    assert {type(event) for event, _, _ in EVENTS} == set(get_args(TaskEvent))


def test_an_event_is_one_line_whatever_the_text() -> None:
    task = a_task(history=(a_message(text="one\ntwo\r\n\u2028three"),))

    assert len(encode_update(Update(1, None, task)).data.splitlines()) == 1
