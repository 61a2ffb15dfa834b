"""Tasks and requests of the hub dialect, to be changed where a test needs it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from synapse.core.caller import AuthMethods
from synapse.core.message import Artifact, Message, Part, TextPart
from synapse.core.task import Task
from synapse.dialects.dialect import AnyCall, WireRequest
from synapse.dialects.hub.routes import hub_dialect
from tests.samples import tasks
from tests.samples.calls import json_bytes, rest_call, routes_of

CREATED = datetime(2023, 5, 25, 12, 0, 0, tzinfo=UTC)
UPDATED = datetime(2023, 5, 25, 12, 0, 2, tzinfo=UTC)
TASK_ID = "task-123"
AGENT = "weather-agent"
QUESTION: dict[str, Any] = {"type": "text", "content": "What is the weather like in San Francisco?"}


def agent_name(_task: Task) -> str:
    return AGENT


DIALECT = hub_dialect(agent_name, AuthMethods(api_keys=True))
ROUTES = routes_of(DIALECT)


def a_message(*parts: Part, **more: Any) -> Message:
    return tasks.a_message(*parts, text=QUESTION["content"], **more)


def a_task(**changes: Any) -> Task:
    ours = {
        "id": TASK_ID,
        "agent_id": "synapse-weather-8120",
        "inbox": AGENT,
        "scope": "key:1",
        "dialect": "hub",
        "history": (a_message(),),
        "created_at": CREATED,
        "updated_at": UPDATED,
    }
    return tasks.a_task(**ours | changes)


def an_artifact(*parts: Part, **changes: Any) -> Artifact:
    return replace(Artifact(artifact_id="a-1", parts=parts, name="answer"), **changes)


def said(*texts: str, **changes: Any) -> Task:
    """Returns a task whose agent answered with these texts, as chunks."""
    return a_task(artifacts=(an_artifact(*[TextPart(text=text) for text in texts]),), **changes)


def ask(method: str, path: str, body: object = None, *, query: str = "", headers: Any = (), **params: str) -> AnyCall:
    wire = WireRequest(method, path, params, query.encode(), headers, json_bytes(body))
    return rest_call(ROUTES, wire)
