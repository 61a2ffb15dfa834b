"""`synapse watch`: one task from its beginning to its end, as lines or as objects."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from pathlib import Path

import pytest

from synapse.cli.watch import line_of
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
from synapse.core.message import Artifact, Message, MessageId, Role, TextPart
from synapse.core.question import Question, QuestionKind, question_fields
from synapse.core.task import ReceiptStep, Task, TaskId, TaskState
from synapse.tasks.journal import Journal, rebuild
from tests.fakes.facts import START
from tests.fakes.leased_store import LeasedStore
from tests.fakes.leases import ANY_LEASE
from tests.unit.cli.conftest import Cli

TASK = TaskId("54241e7e-0000-4000-8000-000000000000")
OPENED = TaskOpened(
    task_id=TASK,
    at=START,
    agent_id="synapse-codex-8120",
    inbox="ada",
    context_id="c",
    scope="local",
    dialect="synapse",
    message=Message(message_id=MessageId("m"), role=Role.USER, parts=(TextPart(text="hello\nthere"),)),
    metadata={"sender": {"sender_id": "synapse-claude-8100"}, "sender_verified": True},
)
AT = START + timedelta(seconds=1)


def chunk(text: str, *, append: bool = False, last: bool = False) -> ArtifactAdded:
    artifact = Artifact(artifact_id="a", name="answer", parts=(TextPart(text=text),))
    return ArtifactAdded(task_id=TASK, at=AT, artifact=artifact, append=append, last_chunk=last)


def state(state: TaskState, note: str = "") -> StateChanged:
    return StateChanged(task_id=TASK, at=AT, state=state, note=note)


def fill(home: Path, *events: TaskEvent) -> None:
    async def save() -> None:
        store = await LeasedStore.open(home / "store.db")
        journal = Journal(store, ANY_LEASE)
        await journal.record(OPENED)
        for event in events:
            await journal.record(event)
        await store.close()

    asyncio.run(save())


@pytest.mark.parametrize(("end", "code"), [(TaskState.COMPLETED, 0), (TaskState.FAILED, 1), (TaskState.REJECTED, 7)])
def test_a_task_is_followed_from_its_beginning_to_its_end(home: Path, synapse: Cli, end: TaskState, code: int) -> None:
    fill(home, state(TaskState.WORKING), chunk("The "), chunk("end", append=True), state(end, "as it had to be"))

    shown = synapse("watch", "--task", "54241e7e")

    assert shown.code == code
    words = [line.split(maxsplit=4)[1:] for line in shown.out.splitlines()]
    assert words == [
        ["ada", "54241e7e", "opened", "synapse-claude-8100: hello there"],
        ["ada", "54241e7e", "working"],
        ["ada", "54241e7e", "says", "The"],
        ["ada", "54241e7e", "says", "end"],
        ["ada", "54241e7e", "failed" if end is TaskState.REJECTED else end.value, "as it had to be"],
    ]


def test_events_as_json_are_objects(home: Path, synapse: Cli) -> None:
    fill(home, state(TaskState.COMPLETED))

    told = [json.loads(line) for line in synapse("watch", "--task", "54241e7e", "--json").out.splitlines()]

    assert [(one["seq"], one["agent"], one["event"]["type"]) for one in told] == [
        (1, "ada", "task_opened"),
        (2, "ada", "state_changed"),
    ]
    assert told[-1]["task"]["status"] == "completed"


def test_the_error_names_a_missing_task_or_agent(home: Path, synapse: Cli) -> None:
    unknown = synapse("watch", "--task", "nothing")
    assert (unknown.code, "no task 'nothing'" in unknown.err) == (3, True)
    nobody = synapse("watch", "--agent", "nobody")
    assert (nobody.code, "nobody" in nobody.err) == (3, True)
    assert synapse("watch", "--task", "a", "--agent", "b").code == 2


def seen(*events: TaskEvent) -> Task:
    return rebuild(None, (OPENED, *events))


ASKED = MetadataChanged(
    task_id=TASK,
    at=AT,
    metadata={"question": question_fields(Question(id="q", kind=QuestionKind.PERMISSION, title="Run it?"))},
)
WAITS = StateChanged(task_id=TASK, at=AT, state=TaskState.INPUT_REQUIRED, reason="waiting_for_person")


@pytest.mark.parametrize(
    ("update", "words"),
    [
        (Update(1, None, seen()), ["submitted", "hello there"]),
        (Update(1, chunk("all", last=True), seen()), ["answer", "all"]),
        (
            Update(1, MessageAdded(task_id=TASK, at=AT, message=OPENED.message), seen()),
            ["message", "user: hello there"],
        ),
        (Update(1, ReceiptChanged(task_id=TASK, at=AT, step=ReceiptStep.TYPED, source="journal"), seen()),
         ["typed", "journal"]),
        (Update(1, ReceiptChanged(task_id=TASK, at=AT, step=ReceiptStep.TYPED, source="s", evidence="e"), seen()),
         ["typed", "s: e"]),
        (Update(1, ASKED, seen(ASKED, WAITS)), ["asks", "Run it?"]),
        (Update(1, TaskHidden(task_id=TASK, at=AT), seen()), ["deleted"]),
    ],
)  # fmt: skip
def test_each_event_has_its_word(update: Update, words: list[str]) -> None:
    assert line_of(update).split(maxsplit=4)[3:] == words


def test_watch_shows_what_needs_a_person_and_hides_other_metadata() -> None:
    needed = AttentionChanged(task_id=TASK, at=AT, attention="look here")
    assert line_of(Update(1, needed, seen())).endswith("needs a person  look here")
    for event in (
        AttentionChanged(task_id=TASK, at=AT, attention=""),
        MetadataChanged(task_id=TASK, at=AT, metadata={"request": {}}),
    ):
        assert line_of(Update(1, event, seen())) == ""
