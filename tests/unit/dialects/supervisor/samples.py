"""Tasks and requests of the supervisor dialect, to be changed where a test needs it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from synapse.core.message import Artifact, Message, Part, TextPart
from synapse.core.task import Receipt, ReceiptStep, Task, TaskState
from synapse.dialects.dialect import Call, StreamCall, WireRequest
from synapse.dialects.supervisor.routes import supervisor_dialect
from tests.samples import tasks
from tests.samples.calls import json_bytes, rest_call, routes_of

CREATED = datetime(2025, 11, 18, 10, 0, 0, tzinfo=UTC)
ANSWERED = datetime(2025, 11, 18, 10, 0, 29, tzinfo=UTC)
UPDATED = datetime(2025, 11, 18, 10, 0, 30, tzinfo=UTC)
AGENT = "agent1"
TASK_ID = "task-12345"
MESSAGE: dict[str, Any] = {"content": "Your message here", "role": "user"}

DIALECT = supervisor_dialect()
ROUTES = routes_of(DIALECT)


def at(seconds: int) -> datetime:
    return CREATED + timedelta(seconds=seconds)


def a_message(*parts: Part, message_id: str = "hist-1", **more: Any) -> Message:
    return tasks.a_message(*parts, text="Previous message", message_id=message_id, **more)


def a_task(**changes: Any) -> Task:
    ours = {
        "id": TASK_ID,
        "scope": "key:1",
        "dialect": "supervisor",
        "history": (a_message(),),
        "created_at": CREATED,
        "updated_at": UPDATED,
        "receipts": (a_receipt(ReceiptStep.QUEUED, CREATED),),
    }
    return tasks.a_task(**ours | changes)


def an_answered_task(text: str = "Response from agent", **changes: Any) -> Task:
    answer = Artifact(
        artifact_id="msg-67890", name="answer", parts=(TextPart(text=text),), metadata={"source": "reply"}
    )
    receipts = (a_receipt(ReceiptStep.QUEUED, CREATED), a_receipt(ReceiptStep.ANSWERED, ANSWERED))
    return a_task(**{"state": TaskState.COMPLETED, "artifacts": (answer,), "receipts": receipts, **changes})


def a_receipt(step: ReceiptStep, when: datetime) -> Receipt:
    return Receipt(step=step, at=when, source="journal")


def ask(
    method: str, path: str, body: object = None, *, query: str = "", headers: Any = (), **params: str
) -> Call | StreamCall:
    wire = WireRequest(method, path, {"agentId": AGENT, **params}, query.encode(), headers, json_bytes(body))
    return rest_call(ROUTES, wire)
