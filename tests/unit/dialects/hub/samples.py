"""Tasks and requests of the hub dialect, to be changed where a test needs it."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from synapse.core.caller import AuthMethods
from synapse.core.message import Artifact, Message, MessageId, Part, Role, TextPart
from synapse.core.task import Task, TaskId, TaskState
from synapse.dialects.dialect import Call, CallRoute, StreamCall, WireRequest
from synapse.dialects.hub.routes import hub_dialect

CREATED = datetime(2023, 5, 25, 12, 0, 0, tzinfo=UTC)
UPDATED = datetime(2023, 5, 25, 12, 0, 2, tzinfo=UTC)
TASK_ID = "task-123"
AGENT = "weather-agent"
QUESTION: dict[str, Any] = {"type": "text", "content": "What is the weather like in San Francisco?"}


def agent_name(_task: Task) -> str:
    return AGENT


DIALECT = hub_dialect(agent_name, AuthMethods(api_keys=True))
ROUTES = {(route.method, route.path): route for route in DIALECT.routes if isinstance(route, CallRoute)}


def a_message(*parts: Part, message_id: str = "m-1", role: Role = Role.USER) -> Message:
    return Message(message_id=MessageId(message_id), role=role, parts=parts or (TextPart(text=QUESTION["content"]),))


def a_task(**changes: Any) -> Task:
    task = Task(
        id=TaskId(TASK_ID),
        agent_id="synapse-weather-8120",
        inbox=AGENT,
        context_id="c-1",
        scope="key:1",
        dialect="hub",
        state=TaskState.WORKING,
        history=(a_message(),),
        created_at=CREATED,
        updated_at=UPDATED,
        version=4,
    )
    return replace(task, **changes)


def an_artifact(*parts: Part, **changes: Any) -> Artifact:
    return replace(Artifact(artifact_id="a-1", parts=parts, name="answer"), **changes)


def said(*texts: str, **changes: Any) -> Task:
    """A task whose agent handed over these texts, as the chunks of its answer."""
    return a_task(artifacts=(an_artifact(*[TextPart(text=text) for text in texts]),), **changes)


def ask(
    method: str, path: str, body: object = None, *, query: str = "", headers: Any = (), **params: str
) -> Call | StreamCall:
    """What a request asks for."""
    content = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    wire = WireRequest(method, path, params, query.encode(), headers, content)
    asked = ROUTES[method, path].ask(wire)
    assert isinstance(asked, Call | StreamCall)
    return asked


def told(call: Call | StreamCall, result: Any) -> Any:
    """The answer that tells `result`, as JSON."""
    assert isinstance(call, Call)
    return json.loads(call.encode(result))
