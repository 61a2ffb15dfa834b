"""Every example of the hub contract, at its dialect: requests become core requests, results become answers."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Final

from synapse.core.errors import InvalidField, TaskNotFound
from synapse.core.events import ArtifactAdded, StateChanged, TaskOpened, Update
from synapse.core.message import DataPart, FilePart, Message, MessageId, Role, TextPart
from synapse.core.requests import (
    ChangeTask,
    DeleteTask,
    ForAgent,
    GetAgent,
    GetMessage,
    GetTask,
    ListAgents,
    ListedAgent,
    ListTasks,
    SendAndFollow,
    SendMessage,
    SubscribeTask,
)
from synapse.core.store import TaskPage
from synapse.core.task import Task, TaskState
from synapse.dialects.dialect import AnyCall, Call, StreamCall
from synapse.dialects.hub.encode import STATE_NAMES, ErrorShape, encode_error, error_shape
from synapse.dialects.hub.stream import decode_incoming, encode_update
from synapse.dialects.paths import WEBSOCKET_PATH
from tests.conformance.example_row import HUB, READINGS, row, same_json
from tests.unit.dialects.all_errors import ALL_ERRORS
from tests.unit.dialects.hub.samples import AGENT, CREATED, ROUTES, TASK_ID, a_task, agent_name, an_artifact, ask, said

MESSAGE: Final = """{
  "message": [
    {
      "type": "text",
      "content": "What is the weather like in San Francisco?"
    }
  ]
}"""
STREAMED: Final = """{
  "message": [
    {
      "type": "text",
      "content": "What is the weather like in San Francisco?"
    }
  ],
  "stream": true
}"""
SOCKET_MESSAGE: Final = """{
  "type": "message",
  "agentId": "weather-agent",
  "message": [
    {
      "type": "text",
      "content": "What is the weather like in San Francisco?"
    }
  ]
}"""
# A wrong encoding damaged the document's degree sign; this is the intended one.
PIECES: Final = (
    "The weather in San Francisco is ",
    "currently sunny with a high of ",
    "72°F and a low of 58°F.",
)
COMPLETED: Final = """{
  "id": "task-123",
  "agentId": "weather-agent",
  "state": "completed",
  "createdAt": "2023-05-25T12:00:00.000Z",
  "updatedAt": "2023-05-25T12:00:02.000Z",
  "artifacts": [
    {
      "type": "message",
      "content": [
        {
          "type": "text",
          "content": "The weather in San Francisco is currently sunny with a high of 72°F and a low of 58°F."
        }
      ]
    }
  ]
}"""
MESSAGES: Final = "/agents/{agentId}/messages"
WEATHER: Final = SendMessage(
    message=Message(
        message_id=MessageId(""),
        role=Role.USER,
        parts=(TextPart(text="What is the weather like in San Francisco?"),),
    ),
    dialect="hub",
    exact=True,
)


def encoded(call: AnyCall, result: Any) -> bytes:
    assert isinstance(call, Call)
    return call.encode(result)


def added(text: str) -> ArtifactAdded:
    chunk = an_artifact(TextPart(text=text))
    return ArtifactAdded(task_id=a_task().id, at=CREATED, artifact=chunk, append=True, last_chunk=False)


def changed(task: Task) -> StateChanged:
    return StateChanged(task_id=task.id, at=CREATED, state=task.state)


@row("hub-paths", HUB, "every endpoint of the document is there")
def _() -> None:
    ours = {("POST", "/ws/ticket")}
    assert set(ROUTES) - ours == {
        ("GET", "/agents"),
        ("GET", "/agents/{agentId}"),
        ("POST", "/agents/{agentId}/messages"),
        ("GET", "/messages/{messageId}"),
        ("GET", "/tasks"),
        ("GET", "/tasks/{taskId}"),
        ("PUT", "/tasks/{taskId}"),
        ("DELETE", "/tasks/{taskId}"),
    }
    assert WEBSOCKET_PATH == "/ws"


@row("hub-requests", HUB, "every endpoint asks for what the document says of it")
def _() -> None:
    assert ask("GET", "/agents").request == ListAgents()
    assert ask("GET", "/agents/{agentId}", agentId="a").request == GetAgent("a")
    assert ask("GET", "/messages/{messageId}", messageId="m").request == GetMessage("m")
    assert ask("GET", "/tasks").request == ListTasks()
    assert ask("GET", "/tasks/{taskId}", taskId="t").request == GetTask("t", exact=True)
    change = ask("PUT", "/tasks/{taskId}", {"state": "completed"}, taskId="t").request
    assert change == ChangeTask(task_id="t", state=TaskState.COMPLETED)
    assert ask("DELETE", "/tasks/{taskId}", taskId="t").request == DeleteTask(task_id="t")


@row("hub-card", HUB, "a card has id, name, description, version and a list of capabilities; the rest is optional")
def _() -> None:
    agent = ListedAgent(id="a", name="n", description="d", version="1", agent_type="codex", state="ready")
    card = json.loads(encoded(ask("GET", "/agents/{agentId}", agentId="a"), agent))

    assert list(card)[:5] == ["id", "name", "description", "version", "capabilities"]
    assert set(card) - {"parameters", "auth", "metadata"} == {"id", "name", "description", "version", "capabilities"}
    assert all(isinstance(word, str) for word in card["capabilities"])
    assert set(card["auth"]) == {"type", "description"}


@row("hub-send", HUB, "the example message becomes a request to its agent")
def _() -> None:
    call = ask("POST", MESSAGES, MESSAGE.encode(), agentId=AGENT)

    assert call.request == ForAgent(AGENT, WEATHER)


@row("hub-accepted", HUB, "202 carries the task's id, and the message's beside it (rule 12)")
def _() -> None:
    call = ask("POST", MESSAGES, MESSAGE.encode(), agentId=AGENT)
    answer = json.loads(encoded(call, a_task()))

    assert isinstance(call, Call)
    assert call.status == 202
    assert answer == {**json.loads('{"taskId": "task-123"}'), "messageId": "m-1"}


@row("hub-parts", HUB, "parts are text, image, file and custom, each with its content")
def _() -> None:
    parts = [
        {"type": "text", "content": "hi"},
        {"type": "image", "content": {"mimeType": "image/png", "data": "aGk="}},
        {"type": "file", "content": {"name": "a.pdf", "mimeType": "application/pdf", "data": "aGk="}},
        {"type": "custom", "content": {"k": 1}, "metadata": {"schema": "x"}},
    ]
    request = ask("POST", MESSAGES, {"message": parts}, agentId=AGENT).request

    assert isinstance(request, ForAgent)
    assert isinstance(request.request, SendMessage)
    kinds = [type(part) for part in request.request.message.parts]
    assert kinds == [TextPart, FilePart, FilePart, DataPart]
    shown = json.loads(
        encoded(
            ask("GET", "/messages/{messageId}", messageId="m-1"),
            a_task(history=(replace(request.request.message, message_id=MessageId("m-1")),)),
        )
    )
    assert shown["message"] == parts


@row("hub-stream", HUB, "a streamed message tells its text in pieces, then that it is complete")
def _() -> None:
    call = ask("POST", MESSAGES, STREAMED.encode(), agentId=AGENT)
    assert isinstance(call, StreamCall)
    assert call.request == ForAgent(AGENT, SendAndFollow(WEATHER))
    assert call.encode(Update(1, None, a_task(state=TaskState.SUBMITTED))) is None
    for number, piece in enumerate(PIECES, start=1):
        event = call.encode(Update(number + 1, added(piece), said(*PIECES[:number])))
        assert event is not None
        assert (event.name, event.then) == ("update", None)
        same_json(event.data, json.dumps({"type": "partial", "content": piece}))
    done = said(*PIECES, state=TaskState.COMPLETED)
    last = call.encode(Update(9, changed(done), done))

    assert last is not None
    assert (last.name, last.then) == ("complete", None)
    same_json(last.data, '{"taskId":"task-123"}')


@row("hub-socket-message", HUB, "the example client message becomes a request to its agent")
def _() -> None:
    assert decode_incoming(SOCKET_MESSAGE).request == ForAgent(AGENT, WEATHER)


@row("hub-socket-created", HUB, "task.created names the task; every object carries seq (rule 12)")
def _() -> None:
    task = a_task(state=TaskState.SUBMITTED)
    opened = TaskOpened(
        task_id=task.id,
        at=CREATED,
        agent_id=task.agent_id,
        inbox=task.inbox,
        context_id=task.context_id,
        scope=task.scope,
        dialect="hub",
        message=task.message,
    )
    told = json.loads(encode_update(Update(1, opened, task), agent_name) or "")

    assert told == {**json.loads('{"type": "task.created", "taskId": "task-123"}'), "messageId": "m-1", "seq": 1}


@row("hub-socket-updated", HUB, "task.updated has the example's task (times by rule 14)")
def _() -> None:
    task = replace(a_task(), updated_at=CREATED.replace(second=1))

    same_json(
        encode_update(Update(2, changed(task), task), agent_name) or "",
        """{
          "type": "task.updated",
          "task": {
            "id": "task-123",
            "agentId": "weather-agent",
            "state": "in_progress",
            "createdAt": "2023-05-25T12:00:00.000Z",
            "updatedAt": "2023-05-25T12:00:01.000Z",
            "artifacts": []
          },
          "seq": 2
        }""",
    )


@row("hub-socket-completed", HUB, "task.completed has the example's task with its answer")
def _() -> None:
    task = said(*PIECES, state=TaskState.COMPLETED)

    same_json(
        encode_update(Update(3, changed(task), task), agent_name) or "",
        f'{{"type": "task.completed", "task": {COMPLETED}, "seq": 3}}',
    )


@row("hub-socket-failed", HUB, "task.failed has the task with its error")
def _() -> None:
    task = a_task(state=TaskState.FAILED, note="it has exited")
    told = json.loads(encode_update(Update(3, changed(task), task), agent_name) or "")

    assert told["type"] == "task.failed"
    assert told["task"]["error"] == {"code": "AGENT_EXECUTION_ERROR", "message": "it has exited"}


@row("hub-socket-resume", READINGS, "rule 12: subscribe resumes after a seq")
def _() -> None:
    frame = '{"type": "subscribe", "taskId": "task-123", "after": 17}'

    assert decode_incoming(frame).request == SubscribeTask(task_id=TASK_ID, after=17)


@row("hub-task", HUB, "a task has the example's fields")
def _() -> None:
    task = said(*PIECES, state=TaskState.COMPLETED)

    same_json(encoded(ask("GET", "/tasks/{taskId}", taskId=TASK_ID), task), COMPLETED)


@row("hub-lists", READINGS, "rule 12: lists are {agents} and {tasks, nextCursor}")
def _() -> None:
    agents = json.loads(encoded(ask("GET", "/agents"), ()))
    tasks = json.loads(encoded(ask("GET", "/tasks"), TaskPage((a_task(),), "c", 2)))

    assert agents == {"agents": []}
    assert list(tasks) == ["tasks", "nextCursor"]


@row("hub-states", HUB, "states are pending, in_progress, completed and failed")
def _() -> None:
    assert set(STATE_NAMES.values()) == {"pending", "in_progress", "completed", "failed"}


@row("hub-canceled", READINGS, "rule 10: a canceled task failed with TASK_CANCELLED")
def _() -> None:
    wire = json.loads(encoded(ask("GET", "/tasks/{taskId}", taskId="t"), a_task(state=TaskState.CANCELED)))

    assert (wire["state"], wire["error"]["code"]) == ("failed", "TASK_CANCELLED")


@row("hub-error", HUB, "an error has code, message and optional details")
def _() -> None:
    same_json(
        encode_error(TaskNotFound("x")).body, """{"error": {"code": "TASK_NOT_FOUND", "message": "no task 'x'"}}"""
    )
    error = json.loads(encode_error(InvalidField("state", "is no state", hint="use pending")).body)["error"]
    assert list(error) == ["code", "message", "details"]
    assert isinstance(error["details"], dict)


@row("hub-error-codes", HUB, "every code of the document's list is used, with a fitting status")
def _() -> None:
    assert {error_shape(kind) for kind in ALL_ERRORS} >= {
        ErrorShape("AGENT_NOT_FOUND", 404),
        ErrorShape("TASK_NOT_FOUND", 404),
        ErrorShape("INVALID_REQUEST", 400),
        ErrorShape("AUTHENTICATION_ERROR", 401),
        ErrorShape("AUTHORIZATION_ERROR", 403),
        ErrorShape("AGENT_EXECUTION_ERROR", 502),
        ErrorShape("INTERNAL_SERVER_ERROR", 500),
    }
