"""Any history of a task that the lifecycle allows, with any content that a wire can bring."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from synapse.core.errors import Conflict
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
)
from synapse.core.lifecycle import apply, opened
from synapse.core.message import Artifact, DataPart, FilePart, Message, MessageId, Part, Role, TextPart
from synapse.core.question import WAITING_FOR_PERSON, Question, QuestionKind, question_fields
from synapse.core.task import ReceiptStep, TaskId, TaskState
from synapse.core.task_metadata import RESERVED_KEYS
from synapse.core.types import BootTime, Deadline
from tests.fakes.facts import TASK

# Everything that JSON can say, lone surrogates included: a wire can bring them.
texts = st.text(st.characters(codec=None), max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
objects = st.dictionaries(texts, values, max_size=3)
QUESTION = Question(id="q-1", kind=QuestionKind.PERMISSION, title="Run it?")
# The keys that become fields of a task, with values of the right type and of others; None removes a key.
FIELDS: list[tuple[str, Any]] = [
    ("sender", {"sender_id": "synapse-claude-8100", "sender_type": "claude"}),
    ("sender", "claude"),
    ("sender_inbox", "claude@/proj"),
    ("user", "ci"),
    ("waits_for", "synapse-gemini-8110"),
    ("waits_for", ["synapse-gemini-8110"]),
    ("question", question_fields(QUESTION)),
    ("question", {"id": "q-1"}),
    *((key, value) for key in sorted(RESERVED_KEYS) for value in (True, "text", None)),
]
task_metadata = objects | st.lists(st.sampled_from(FIELDS), max_size=6).map(dict)
moments = st.datetimes(
    min_value=datetime(1999, 1, 1),  # noqa: DTZ001 - hypothesis wants naive bounds and adds the zone
    max_value=datetime(2100, 1, 1),  # noqa: DTZ001 - hypothesis wants naive bounds and adds the zone
    timezones=st.just(UTC),
)
named = {"name": texts, "media_type": texts, "metadata": objects}
parts: st.SearchStrategy[tuple[Part, ...]] = st.lists(
    st.one_of(
        st.builds(TextPart, text=texts, **named),
        st.builds(FilePart, content=st.none() | st.binary(max_size=20), url=texts, **named),
        st.builds(DataPart, data=values, **named),
    ),
    max_size=3,
).map(tuple)
words = st.lists(texts, max_size=2).map(tuple)
messages = st.builds(
    Message,
    message_id=st.uuids().map(lambda one: MessageId(str(one))),
    role=st.sampled_from(Role),
    parts=parts,
    metadata=objects,
    extensions=words,
    reference_task_ids=words,
)
artifacts = st.builds(
    Artifact,
    artifact_id=st.sampled_from(["a", "b"]),
    parts=parts,
    name=texts,
    description=texts,
    metadata=objects,
    extensions=words,
)


reasons = texts | st.just(WAITING_FOR_PERSON)
boot_times = st.builds(BootTime, texts, st.floats(0, 1e9, allow_nan=False))
deadlines = st.builds(Deadline, moments, st.none() | boot_times)


@st.composite
def openings(draw: st.DrawFn, task_id: TaskId) -> TaskOpened:
    return TaskOpened(
        task_id=task_id,
        at=draw(moments),
        agent_id="synapse-codex-8120",
        inbox="codex@/proj",
        context_id=f"context of {task_id}",
        scope="local",
        dialect=draw(st.sampled_from(["synapse", "a2a-1.0"])),
        message=draw(messages),
        priority=draw(st.integers(1, 5)),
        queued=draw(st.booleans()),
        deadline=draw(st.none() | deadlines),
        metadata=draw(task_metadata),
        parent_id=draw(st.sampled_from(["", "parent"])),
    )


def changes(task_id: TaskId, at: datetime) -> st.SearchStrategy[TaskEvent]:
    """Any event that is not the first, allowed or not."""
    about: dict[str, Any] = {"task_id": st.just(task_id), "at": st.just(at)}
    return st.one_of(
        st.builds(StateChanged, **about, state=st.sampled_from(TaskState), reason=reasons, note=texts),
        st.builds(MessageAdded, **about, message=messages),
        st.builds(ArtifactAdded, **about, artifact=artifacts, append=st.booleans(), last_chunk=st.booleans()),
        st.builds(ReceiptChanged, **about, step=st.sampled_from(ReceiptStep), source=texts, evidence=texts),
        st.builds(MetadataChanged, **about, metadata=task_metadata),
        st.builds(AttentionChanged, **about, attention=texts),
        st.builds(TaskHidden, **about),
    )


@st.composite
def histories(draw: st.DrawFn, task_id: TaskId = TASK, most: int = 12) -> list[TaskEvent]:
    """A log that the lifecycle allows, from TaskOpened on."""
    first = draw(openings(task_id))
    log: list[TaskEvent] = [first]
    task = opened(first)
    for _ in range(draw(st.integers(0, most))):
        at = task.updated_at + timedelta(microseconds=draw(st.integers(0, 10**9)))
        event = draw(changes(first.task_id, at))
        try:
            task = apply(task, event)
        except Conflict:
            continue
        log.append(event)
    return log


@st.composite
def cuts(draw: st.DrawFn, log: list[TaskEvent]) -> list[list[TaskEvent]]:
    """The same log in pieces, each recorded at once."""
    pieces: list[list[TaskEvent]] = []
    rest = list(log)
    while rest:
        size = draw(st.integers(1, len(rest)))
        pieces.append(rest[:size])
        rest = rest[size:]
    return pieces
