"""Every example of the supervisor contract, at its dialect: requests become core requests, results become answers."""

from __future__ import annotations

import json
from typing import Any, Final

from synapse.core.errors import MalformedJson, TaskNotFound, UnsupportedOperation
from synapse.core.events import StateChanged, Update
from synapse.core.message import Artifact, FilePart, Message, MessageId, Role, TextPart
from synapse.core.push import PushConfig
from synapse.core.requests import (
    CancelTask,
    DeletePushConfig,
    GetPushConfig,
    GetTask,
    ListedAgent,
    ListPushConfigs,
    ListTasks,
    SendAndFollow,
    SendAndWait,
    SendMessage,
    SetPushConfig,
    SubscribeTask,
)
from synapse.core.store import TaskPage
from synapse.core.task import Receipt, ReceiptStep, Task, TaskState
from synapse.dialects.dialect import AnyCall, Call, StreamCall
from synapse.dialects.negotiation import spoken_dialect
from synapse.dialects.supervisor.encode import STATE_WORDS, CardFacts, agent_card, agent_list
from synapse.dialects.supervisor.routes import TITLES, encode_error, error_shape
from tests.conformance.example_row import READINGS, SUPERVISOR, row, same_json
from tests.conformance.supervisor_examples import AGENTS, CARD, PUSH, SEND, TASK
from tests.unit.dialects.all_errors import ALL_ERRORS
from tests.unit.dialects.supervisor.samples import CREATED, ROUTES, TASK_ID, UPDATED, a_task, ask, at

GLOBAL_ID: Final = "agent1:task-12345"


def example_task(state: TaskState = TaskState.WORKING, **changes: Any) -> Task:
    """Returns the task of the document's answers: a code file, and an answer in the second of the question."""
    code = Artifact(
        artifact_id="artifact-1",
        description="Generated code file",
        parts=(FilePart(url="file://path/to/generated/code"),),
        metadata={"type": "code"},
    )
    answer = Message(message_id=MessageId("msg-67890"), role=Role.AGENT, parts=(TextPart(text="Response from agent"),))
    receipts = tuple(
        Receipt(step=step, at=CREATED, source="journal") for step in (ReceiptStep.QUEUED, ReceiptStep.ANSWERED)
    )
    history = (a_task().message, answer)
    return a_task(**{"state": state, "artifacts": (code,), "history": history, "receipts": receipts, **changes})


def push_config(config_id: str) -> PushConfig:
    return PushConfig(
        id=config_id,
        url="https://your-webhook.example.com/task-update",
        token="your-auth-token",
        scheme="bearer",
        credentials="auth-credentials",
        dialect="supervisor",
    )


def encoded(call: AnyCall, result: Any) -> bytes:
    assert isinstance(call, Call)
    return call.encode(result)


@row("sup-paths", SUPERVISOR, "every endpoint of the table is there, with its method")
def _() -> None:
    assert set(ROUTES) == {
        ("POST", "/message:send"),
        ("POST", "/message:stream"),
        ("GET", "/tasks/{id}"),
        ("GET", "/tasks"),
        ("POST", "/tasks/{id}:cancel"),
        ("POST", "/tasks/{id}:subscribe"),
        ("POST", "/tasks/{id}/pushNotificationConfigs"),
        ("GET", "/tasks/{id}/pushNotificationConfigs/{configId}"),
        ("GET", "/tasks/{id}/pushNotificationConfigs"),
        ("DELETE", "/tasks/{id}/pushNotificationConfigs/{configId}"),
    }


@row("sup-send-request", SUPERVISOR, "the example of Send Message is understood, field by field; blocking waits")
def _() -> None:
    request = ask("POST", "/message:send", SEND.encode()).request

    assert request == SendAndWait(
        SendMessage(
            message=Message(
                message_id=MessageId(""), role=Role.USER, parts=(TextPart(text="Your message here"),), metadata={}
            ),
            dialect="supervisor",
            exact=True,
            metadata={"request": {"customField": "customValue"}},
            push=push_config("notification-config-1"),
        )
    )
    assert spoken_dialect(SEND.encode()) == "supervisor"


@row("sup-send-answer", SUPERVISOR, "Send Message answers with the example's task")
def _() -> None:
    call = ask("POST", "/message:send", SEND.encode())

    same_json(encoded(call, example_task(TaskState.COMPLETED)), TASK % "succeeded")


@row("sup-send-at-once", READINGS, "rule 21: without blocking the answer comes at once")
def _() -> None:
    assert isinstance(ask("POST", "/message:send", {"message": {"content": "hi", "role": "user"}}).request, SendMessage)


@row("sup-message-fields", SUPERVISOR, "a message may have an id and a timestamp, and each of three roles")
def _() -> None:
    for role in ("user", "assistant", "system"):
        message = {"content": "x", "role": role, "id": "m", "timestamp": "2025-11-18T10:00:00.000Z"}
        request = ask("POST", "/message:send", {"message": message}).request
        assert isinstance(request, SendMessage)
        assert request.message.message_id == "m"


@row("sup-states", SUPERVISOR, "the task states are created, running, succeeded, failed, cancelled and expired")
def _() -> None:
    assert STATE_WORDS == ("created", "running", "succeeded", "failed", "cancelled", "expired")


@row("sup-error", SUPERVISOR, "an error has the example's form")
def _() -> None:
    answer = encode_error(UnsupportedOperation("Additional error details if applicable"))

    same_json(
        answer.body,
        """{
          "error": {
            "code": -32004,
            "message": "Unsupported operation error",
            "data": "Additional error details if applicable"
          }
        }""",
    )
    assert answer.status == 400


@row("sup-error-tables", SUPERVISOR, "both tables of error codes are used, and no other code")
def _() -> None:
    assert {error_shape(kind).code for kind in ALL_ERRORS} == set(TITLES)
    assert set(TITLES) == {-32700, -32600, -32601, -32602, -32603, -32001, -32002, -32003, -32004, -32005}


@row("sup-statuses", SUPERVISOR, "statuses are 400, 401, 404, 429 and 500")
def _() -> None:
    assert {400, 401, 404, 429, 500} <= {error_shape(kind).http for kind in ALL_ERRORS}
    assert encode_error(TaskNotFound("x")).status == 404


@row("sup-unparseable", READINGS, "rule 9: unparseable JSON is -32700 in the supervisor's form")
def _() -> None:
    assert json.loads(encode_error(MalformedJson("the body is not JSON")).body)["error"]["code"] == -32700


@row("sup-stream", SUPERVISOR, "Stream Message sends taskUpdate with final, then done, each with an id")
def _() -> None:
    call = ask("POST", "/message:stream", SEND.encode())
    assert isinstance(call, StreamCall)
    assert isinstance(call.request, SendAndFollow)
    running, done = example_task(), example_task(TaskState.COMPLETED)
    first = call.encode(Update(1, None, running))
    second = call.encode(Update(2, StateChanged(task_id=done.id, at=UPDATED, state=done.state), done))

    assert first is not None
    assert second is not None
    assert second.then is not None
    assert [event.name for event in (first, second, second.then)] == ["taskUpdate", "taskUpdate", "done"]
    assert [event.id for event in (first, second, second.then)] == ["event-1", "event-2", "event-3"]
    assert second.then.data == b"{}"
    for event, status, final in ((first, "running", False), (second, "succeeded", True)):
        same_json(event.data, json.dumps({**json.loads(TASK % status), "final": final}))


@row("sup-get", SUPERVISOR, "Get Task answers with the example's task")
def _() -> None:
    call = ask("GET", "/tasks/{id}", id=GLOBAL_ID, query="historyLength=10")

    assert call.request == GetTask(TASK_ID, exact=True)
    same_json(encoded(call, example_task()), TASK % "running")


@row("sup-list", SUPERVISOR, "List Tasks takes every parameter and answers with the example's page")
def _() -> None:
    query = (
        "contextId=c&status=running&pageSize=50&pageToken=t&historyLength=1&lastUpdatedAfter=1763460000000"
        "&includeArtifacts=true&metadata=%7B%22customField%22%3A%22customValue%22%7D"
    )
    call = ask("GET", "/tasks", query=query)

    assert call.request == ListTasks(
        states=frozenset({TaskState.WORKING, TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED}),
        context_id="c",
        updated_after=at(0),
        metadata={"request": {"customField": "customValue"}},
        limit=50,
        cursor="t",
    )
    page = json.loads(encoded(call, TaskPage((example_task(),), "next-page-token-string", 100)))
    assert list(page) == ["tasks", "totalSize", "pageSize", "nextPageToken"]
    assert (page["totalSize"], page["pageSize"], page["nextPageToken"]) == (100, 50, "next-page-token-string")
    assert list(page["tasks"][0]) == list(json.loads(TASK))


@row("sup-list-defaults", SUPERVISOR, "a page has 50 tasks, without history and artifacts, unless asked otherwise")
def _() -> None:
    call = ask("GET", "/tasks")
    page = json.loads(encoded(call, TaskPage((example_task(),), "", 1)))

    assert call.request == ListTasks(limit=50)
    assert page["pageSize"] == 50
    assert (page["tasks"][0]["history"], page["tasks"][0]["artifacts"]) == ([], [])


@row("sup-cancel", SUPERVISOR, "Cancel Task answers with the cancelled task")
def _() -> None:
    call = ask("POST", "/tasks/{id}:cancel", id=GLOBAL_ID)
    wire = json.loads(encoded(call, example_task(TaskState.CANCELED)))

    assert call.request == CancelTask(TASK_ID, exact=True)
    assert (wire["id"], wire["status"]) == (GLOBAL_ID, "cancelled")
    assert list(wire) == list(json.loads(TASK))


@row("sup-subscribe", SUPERVISOR, "Resubscribe is the same stream, and goes on after the last event")
def _() -> None:
    headers = [(b"last-event-id", b"event-2")]
    call = ask("POST", "/tasks/{id}:subscribe", id=GLOBAL_ID, headers=headers)

    assert isinstance(call, StreamCall)
    assert call.request == SubscribeTask(task_id=TASK_ID, after=2)
    told = call.encode(Update(3, None, example_task()))
    assert told is not None
    assert (told.name, told.id) == ("taskUpdate", "event-3")


@row("sup-push-set", SUPERVISOR, "Set Push Notification Configuration takes and gives the example")
def _() -> None:
    call = ask("POST", "/tasks/{id}/pushNotificationConfigs", PUSH.encode(), id=GLOBAL_ID)

    assert call.request == SetPushConfig(task_id=TASK_ID, config=push_config("config-1"))
    same_json(encoded(call, push_config("config-1")), PUSH)


@row("sup-push-get", SUPERVISOR, "Get Push Notification Configuration gives the example")
def _() -> None:
    call = ask("GET", "/tasks/{id}/pushNotificationConfigs/{configId}", id=GLOBAL_ID, configId="config-1")

    assert call.request == GetPushConfig(task_id=TASK_ID, config_id="config-1")
    same_json(encoded(call, push_config("config-1")), PUSH)


@row("sup-push-list", SUPERVISOR, "List Push Notification Configurations gives the example's list")
def _() -> None:
    call = ask("GET", "/tasks/{id}/pushNotificationConfigs", id=GLOBAL_ID)

    assert call.request == ListPushConfigs(task_id=TASK_ID)
    same_json(encoded(call, (push_config("config-1"),)), f"[{PUSH}]")


@row("sup-push-delete", SUPERVISOR, "Delete Push Notification Configuration answers 200 without a body")
def _() -> None:
    call = ask("DELETE", "/tasks/{id}/pushNotificationConfigs/{configId}", id=GLOBAL_ID, configId="config-1")

    assert call.request == DeletePushConfig(task_id=TASK_ID, config_id="config-1")
    assert isinstance(call, Call)
    assert (call.status, encoded(call, None)) == (200, b"")


def listed(name: str, title: str, description: str) -> ListedAgent:
    return ListedAgent(
        id=f"{name}-agent",
        name=title,
        description=description,
        version="1.0.0",
        agent_type="claude-code",
        state="ready",
    )


@row("sup-card", SUPERVISOR, "the agent card has the example's fields")
def _() -> None:
    agent = listed("claude", "Claude Code Agent", "CLI Claude Code agent wrapped by algonius-supervisor")
    facts = CardFacts(agent=agent, url="https://your-agent-domain.com/agents/claude-agent/v1")

    same_json(json.dumps(agent_card(facts), separators=(",", ":")), CARD)


@row("sup-directory", SUPERVISOR, "the directory lists agents as in the example")
def _() -> None:
    agents = [
        listed("claude", "Claude Code Agent", "CLI Claude Code agent"),
        listed("gemini", "Gemini CLI Agent", "CLI Gemini agent"),
    ]

    same_json(json.dumps(agent_list(agents), separators=(",", ":")), AGENTS)


@row("sup-ids", READINGS, "rule 4: agentId:taskId goes out; both forms come in")
def _() -> None:
    for form in (GLOBAL_ID, TASK_ID):
        call = ask("GET", "/tasks/{id}", id=form)
        assert call.request == GetTask(TASK_ID, exact=True)
        assert json.loads(encoded(call, example_task()))["id"] == GLOBAL_ID


@row("sup-unnamed-states", READINGS, "rule 10: rejected is failed, a question is running, canceled is cancelled")
def _() -> None:
    words = {
        TaskState.REJECTED: "failed",
        TaskState.INPUT_REQUIRED: "running",
        TaskState.AUTH_REQUIRED: "running",
        TaskState.CANCELED: "cancelled",
    }
    for state, word in words.items():
        assert json.loads(encoded(ask("GET", "/tasks/{id}", id=TASK_ID), example_task(state)))["status"] == word
