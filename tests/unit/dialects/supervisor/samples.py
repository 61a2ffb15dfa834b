"""Tasks and requests of the supervisor dialect, to be changed where a test needs it."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from synapse.core.message import Artifact, Message, MessageId, Part, Role, TextPart
from synapse.core.task import Receipt, ReceiptStep, Task, TaskId, TaskState
from synapse.dialects.dialect import Call, CallRoute, StreamCall, WireRequest
from synapse.dialects.supervisor.routes import supervisor_dialect

CREATED = datetime(2025, 11, 18, 10, 0, 0, tzinfo=UTC)
ANSWERED = datetime(2025, 11, 18, 10, 0, 29, tzinfo=UTC)
UPDATED = datetime(2025, 11, 18, 10, 0, 30, tzinfo=UTC)
AGENT = "agent1"
TASK_ID = "task-12345"
MESSAGE: dict[str, Any] = {"content": "Your message here", "role": "user"}

DIALECT = supervisor_dialect()
ROUTES = {(route.method, route.path): route for route in DIALECT.routes if isinstance(route, CallRoute)}


def at(seconds: int) -> datetime:
    return CREATED + timedelta(seconds=seconds)


def a_message(*parts: Part, message_id: str = "hist-1", role: Role = Role.USER, metadata: Any = None) -> Message:
    said = parts or (TextPart(text="Previous message"),)
    return Message(message_id=MessageId(message_id), role=role, parts=said, metadata=metadata or {})


def a_task(**changes: Any) -> Task:
    task = Task(
        id=TaskId(TASK_ID),
        agent_id="synapse-codex-8120",
        inbox="codex@/proj",
        context_id="c-1",
        scope="key:1",
        dialect="supervisor",
        state=TaskState.WORKING,
        history=(a_message(),),
        created_at=CREATED,
        updated_at=UPDATED,
        version=4,
        receipts=(a_receipt(ReceiptStep.QUEUED, CREATED),),
    )
    return replace(task, **changes)


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
    """What a request asks for."""
    content = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    wire = WireRequest(method, path, {"agentId": AGENT, **params}, query.encode(), headers, content)
    asked = ROUTES[method, path].ask(wire)
    assert isinstance(asked, Call | StreamCall)
    return asked


def told(call: Call | StreamCall, result: Any) -> Any:
    """The answer that tells `result`, as JSON."""
    assert isinstance(call, Call)
    return json.loads(call.encode(result))
