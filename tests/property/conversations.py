"""Any message, artifact or task that could travel, for the laws of the dialects."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies as st

from synapse.core.events import ArtifactAdded, StateChanged, TaskEvent, Update
from synapse.core.message import Artifact, DataPart, FilePart, Message, MessageId, Part, Role, TextPart
from synapse.core.task import Task, TaskId, TaskState

# Protobuf takes no lone surrogates. Its numbers are doubles.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
NUMBERS = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
METADATA = st.dictionaries(TEXTS, JSON, max_size=2)
INSTANTS = st.datetimes(
    min_value=datetime(2000, 1, 1),  # noqa: DTZ001  # hypothesis wants its bounds without a zone
    max_value=datetime(2100, 1, 1),  # noqa: DTZ001  # as above
    timezones=st.just(UTC),
)

LABELS: dict[str, st.SearchStrategy[Any]] = {"name": TEXTS, "media_type": TEXTS, "metadata": METADATA}
PARTS: st.SearchStrategy[Part] = (
    st.builds(TextPart, text=TEXTS, **LABELS)
    | st.builds(FilePart, content=st.binary(max_size=12), **LABELS)
    | st.builds(FilePart, url=TEXTS, **LABELS)
    | st.builds(DataPart, data=JSON, **LABELS)
)
SOME_PARTS = st.lists(PARTS, min_size=1, max_size=3).map(tuple)
LISTS = st.lists(NAMES, max_size=2).map(tuple)

MESSAGES = st.builds(
    Message,
    message_id=NAMES.map(MessageId),
    role=st.sampled_from(Role),
    parts=SOME_PARTS,
    metadata=METADATA,
    extensions=LISTS,
    reference_task_ids=LISTS,
)
ARTIFACTS = st.builds(
    Artifact,
    artifact_id=NAMES,
    parts=SOME_PARTS,
    name=TEXTS,
    description=TEXTS,
    metadata=METADATA,
    extensions=LISTS,
)
TASKS = st.builds(
    Task,
    id=NAMES.map(TaskId),
    agent_id=st.just("synapse-codex-8120"),
    inbox=st.just("codex"),
    context_id=NAMES,
    scope=st.just("local"),
    dialect=st.just("a2a_v1"),
    state=st.sampled_from(TaskState),
    history=st.lists(MESSAGES, min_size=1, max_size=3).map(tuple),
    created_at=INSTANTS,
    updated_at=INSTANTS,
    version=st.integers(1, 100),
    reason=st.sampled_from(["", "expired", "direct_message"]),
    note=TEXTS,
    artifacts=st.lists(ARTIFACTS, max_size=2).map(tuple),
    metadata=METADATA,
)


@st.composite
def updates(draw: st.DrawFn) -> Update:
    """A snapshot, a change of state, or an artifact."""
    task = draw(TASKS)
    event: TaskEvent | None = draw(
        st.none()
        | st.builds(StateChanged, task_id=st.just(task.id), at=INSTANTS, state=st.just(task.state))
        | st.builds(
            ArtifactAdded,
            task_id=st.just(task.id),
            at=INSTANTS,
            artifact=ARTIFACTS,
            append=st.booleans(),
            last_chunk=st.booleans(),
        )
    )
    return Update(draw(st.integers(1, 10**6)), event, task)
