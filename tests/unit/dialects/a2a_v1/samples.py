"""Tasks and requests of A2A 1.0, to be changed where a test needs it."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from synapse.core.message import Message, MessageId, Part, Role, TextPart
from synapse.core.task import Task, TaskId, TaskState
from synapse.dialects.a2a_v1.routes import a2a_v1_dialect
from synapse.dialects.dialect import Call, CallRoute, StreamCall, WireRequest

CREATED = datetime(2026, 1, 15, 10, 30, 0, tzinfo=UTC)
UPDATED = datetime(2026, 1, 15, 10, 30, 5, 123456, tzinfo=UTC)
TASK_ID = "550e8400-e29b-41d4-a716-446655440000"
MESSAGE: dict[str, Any] = {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "hello"}]}

DIALECT = a2a_v1_dialect()
ROUTES = {(route.method, route.path): route for route in DIALECT.routes if isinstance(route, CallRoute)}


def a_message(*parts: Part, message_id: str = "m-1", role: Role = Role.USER) -> Message:
    return Message(message_id=MessageId(message_id), role=role, parts=parts or (TextPart(text="hello"),))


def a_task(**changes: Any) -> Task:
    task = Task(
        id=TaskId(TASK_ID),
        agent_id="synapse-codex-8120",
        inbox="codex@/proj",
        context_id="c-1",
        scope="local",
        dialect="a2a_v1",
        state=TaskState.WORKING,
        history=(a_message(),),
        created_at=CREATED,
        updated_at=UPDATED,
        version=4,
    )
    return replace(task, **changes)


def a_question(state: TaskState = TaskState.INPUT_REQUIRED) -> Task:
    """A task whose agent asks for something."""
    question = a_message(TextPart(text="which one?"), message_id="m-2", role=Role.AGENT)
    return a_task(state=state, history=(a_message(), question), note="which one?")


def rpc(method: str, params: object = None, **headers: str) -> Call | StreamCall:
    """What a JSON-RPC call asks for."""
    assert DIALECT.rpc is not None
    body = b"" if params is None else params if isinstance(params, bytes) else json.dumps(params).encode()
    return DIALECT.rpc.methods[method](body, WireRequest("POST", "/", headers=_wire(headers)))


def rest(method: str, path: str, body: object = None, query: str = "", **params: str) -> Call | StreamCall:
    """What a REST request asks for."""
    content = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    wire = WireRequest(method, path, params, query.encode(), (), content)
    asked = ROUTES[method, path].ask(wire)
    assert isinstance(asked, Call | StreamCall)
    return asked


def _wire(headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
