"""Tasks and requests of A2A 0.3, to be changed where a test needs it."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from synapse.core.message import Message, MessageId, Part, Role, TextPart
from synapse.core.task import Task, TaskId, TaskState
from synapse.dialects.a2a_v0_3.routes import a2a_v0_3_dialect
from synapse.dialects.dialect import Call, CallRoute, StreamCall, WireRequest

AT = datetime(2026, 1, 15, 10, 30, 5, 123456, tzinfo=UTC)
TASK_ID = "550e8400-e29b-41d4-a716-446655440000"
RPC_MESSAGE: dict[str, Any] = {
    "kind": "message",
    "messageId": "m-1",
    "role": "user",
    "parts": [{"kind": "text", "text": "hello"}],
}
REST_MESSAGE: dict[str, Any] = {"messageId": "m-1", "role": "ROLE_USER", "content": [{"text": "hello"}]}

DIALECT = a2a_v0_3_dialect()
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
        dialect="a2a_v0_3",
        state=TaskState.WORKING,
        history=(a_message(),),
        created_at=AT,
        updated_at=AT,
        version=4,
    )
    return replace(task, **changes)


def a_question() -> Task:
    """A task whose agent asks for something."""
    question = a_message(TextPart(text="which one?"), message_id="m-2", role=Role.AGENT)
    return a_task(state=TaskState.INPUT_REQUIRED, history=(a_message(), question), note="which one?")


def rpc(method: str, params: object = None, **headers: str) -> Call | StreamCall:
    """What a JSON-RPC call asks for."""
    assert DIALECT.rpc is not None
    body = b"" if params is None else json.dumps(params).encode()
    named = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return DIALECT.rpc.methods[method](body, WireRequest("POST", "/", headers=named))


def rest(method: str, path: str, body: object = None, query: str = "", **params: str) -> Call | StreamCall:
    """What a REST request asks for."""
    content = b"" if body is None else json.dumps(body).encode()
    asked = ROUTES[method, path].ask(WireRequest(method, path, params, query.encode(), (), content))
    assert isinstance(asked, Call | StreamCall)
    return asked
