"""The keys of a task's metadata that Synapse itself writes keep their bytes, in the store and on every wire."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from synapse.core.events import TaskEvent
from synapse.core.question import Option, OptionEffect, Question, QuestionKind, question_fields
from synapse.core.task import Task, TaskState
from synapse.dialects.a2a_v0_3 import encode as a2a_v0_3
from synapse.dialects.a2a_v1 import encode as a2a_v1
from synapse.dialects.hub import encode as hub
from synapse.dialects.supervisor import encode as supervisor
from synapse.dialects.synapse import encode as synapse
from synapse.tasks.journal import Journal
from tests.fakes.facts import TASK, moved, noted, opened
from tests.fakes.leased_store import LeasedStore
from tests.fakes.leases import ANY_LEASE

GOLDEN: Final = Path(__file__).with_name("reply_metadata.json")
QUESTION: Final = Question(
    id="q-1",
    kind=QuestionKind.PERMISSION,
    title="Run it?",
    detail="rm -r build",
    options=(Option(key="y", label="Yes", effect=OptionEffect.ALLOW),),
)
# Keys of the sender's own stand between ours: their order is part of what is stored and shown.
METADATA: Final[dict[str, Any]] = {
    "mine": 1,
    "response_expected": True,
    "sender": {"sender_id": "synapse-claude-8100", "sender_type": "claude", "sender_endpoint": "http://localhost:8100"},
    "sender_verified": True,
    "yours": {"sender": "not ours"},
    "sender_inbox": "claude@/proj",
    "sender_task_id": "22222222-0000-4000-8000-000000000000",
    "in_reply_to": "33333333-0000-4000-8000-000000000000",
    "waits_for": "synapse-gemini-8110",
    "waits_for_inbox": "gemini@/proj",
    "user": "laptop",
    "ttl": 60,
}
APPENDS: Final[tuple[tuple[TaskEvent, ...], ...]] = (
    (opened(metadata=METADATA),),
    (
        moved(TaskState.WORKING, at=1),
        noted({"question": question_fields(QUESTION)}, at=2),
        moved(TaskState.INPUT_REQUIRED, at=2, reason="waiting_for_person"),
    ),
    (
        noted(
            {"waiter_left": True, "answered": {"by": "user", "answer": "allow"}, "replied": "explicit", "mine": None},
            at=3,
        ),
    ),
)


async def kept_in(path: Path) -> Task:
    """Record the task, and return it as the store reads it."""
    store = await LeasedStore.open(path)
    try:
        for events in APPENDS:
            await Journal(store, ANY_LEASE).record(*events)
        return await store.load(TASK)
    finally:
        await store.close()


async def test_what_is_kept_of_a_reply_is_stored_and_shown_as_ever(tmp_path: Path) -> None:
    task = await kept_in(tmp_path / "store.db")
    with closing(sqlite3.connect(tmp_path / "store.db")) as rows:
        found = {
            "appends": [body for (body,) in rows.execute("SELECT body FROM appends ORDER BY seq")],
            "snapshots": [body for (body,) in rows.execute("SELECT body FROM snapshots ORDER BY version")],
        }
    found["wires"] = [
        encoded.decode()
        for encoded in (
            synapse.encode_task(task),
            a2a_v1.encode_task(task),
            a2a_v0_3.JSON_RPC.encode_task(task),
            a2a_v0_3.PROTO_JSON.encode_task(task),
            supervisor.encode_task(task, agent="codex"),
            hub.encode_task(task, agent_name=lambda _: "codex"),
        )
    ]

    assert found == json.loads(GOLDEN.read_text(encoding="utf-8"))
