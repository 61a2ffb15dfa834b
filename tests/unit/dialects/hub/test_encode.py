"""How the hub dialect encodes tasks, messages, agent cards and errors."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from synapse.core import errors
from synapse.core.caller import AuthMethods
from synapse.core.errors import (
    CredentialsRefused,
    Forbidden,
    InvalidField,
    MethodNotAllowed,
    NotFound,
    RateLimited,
    SynapseError,
    TaskNotFound,
    Unauthenticated,
)
from synapse.core.message import DataPart, FilePart, Role, TextPart
from synapse.core.requests import ListedAgent
from synapse.core.store import TaskPage
from synapse.core.task import Task, TaskState
from synapse.dialects.hub.encode import (
    ASKED_STATES,
    FAILURE_CODES,
    STATE_NAMES,
    ErrorShape,
    agent_card,
    encode_error,
    error_shape,
    failure_object,
)
from tests.samples.calls import told
from tests.unit.dialects.all_errors import ALL_ERRORS, blank
from tests.unit.dialects.hub.samples import AGENT, QUESTION, TASK_ID, a_message, a_task, an_artifact, ask, said


def shown(task: Task) -> Any:
    return told(ask("GET", "/tasks/{taskId}", taskId=TASK_ID), task)


def test_every_state_has_a_word_of_the_document() -> None:
    assert set(STATE_NAMES) == set(TaskState)
    assert set(STATE_NAMES.values()) == set(ASKED_STATES)
    for word, state in ASKED_STATES.items():
        assert STATE_NAMES[state] == word


def test_only_a_failed_task_has_a_code() -> None:
    assert set(FAILURE_CODES) == {state for state in TaskState if STATE_NAMES[state] == "failed"}


@pytest.mark.parametrize(
    ("state", "reason", "note", "error"),
    [
        (
            TaskState.FAILED,
            "agent_exited",
            "it has exited",
            {"code": "AGENT_EXECUTION_ERROR", "message": "it has exited", "details": {"reason": "agent_exited"}},
        ),
        (
            TaskState.REJECTED,
            "",
            "not for me",
            {"code": "AGENT_EXECUTION_ERROR", "message": "not for me"},
        ),
        (
            TaskState.CANCELED,
            "",
            "",
            {"code": "TASK_CANCELLED", "message": "the task was canceled"},
        ),
        (TaskState.COMPLETED, "", "", None),
        (TaskState.WORKING, "", "half way", None),
    ],
)
def test_a_failed_task_has_its_code_its_note_and_its_reason(
    state: TaskState, reason: str, note: str, error: Any
) -> None:
    task = a_task(state=state, reason=reason, note=note)

    assert failure_object(task) == error
    assert shown(task).get("error") == error


def test_optional_fields_are_present_when_they_are_not_empty() -> None:
    task = shown(a_task(parent_id="p", metadata={"user": "alice", "request": {"k": 1}, "sender": {}}))

    assert list(task) == [
        "id", "agentId", "state", "createdAt", "updatedAt", "parentId", "userId", "artifacts", "metadata",
    ]  # fmt: skip
    assert (task["parentId"], task["userId"], task["metadata"]) == ("p", "alice", {"k": 1})


@pytest.mark.parametrize("metadata", [{"user": "", "request": {}}, {"user": {"id": 1}, "request": "words"}])
def test_metadata_of_other_dialects_is_not_taken_for_ours(metadata: Any) -> None:
    assert list(shown(a_task(metadata=metadata))) == ["id", "agentId", "state", "createdAt", "updatedAt", "artifacts"]


@pytest.mark.parametrize(
    ("artifact", "wire"),
    [
        (
            an_artifact(TextPart(text="sun")),
            {"type": "message", "content": [{"type": "text", "content": "sun"}]},
        ),
        (
            an_artifact(TextPart(text="su"), TextPart(text="n")),
            {"type": "message", "content": [{"type": "text", "content": "sun"}]},
        ),
        (
            an_artifact(TextPart(text="see"), FilePart(url="https://x")),
            {
                "type": "message",
                "content": [{"type": "text", "content": "see"}, {"type": "file", "content": {"url": "https://x"}}],
            },
        ),
        (
            an_artifact(FilePart(content=b"hi", name="a.txt"), name="a.txt", description="a file"),
            {
                "type": "file",
                "content": {"name": "a.txt", "data": "aGk="},
                "metadata": {"name": "a.txt", "description": "a file"},
            },
        ),
        (an_artifact(DataPart(data={"high": 72})), {"type": "result", "content": {"high": 72}}),
        (
            an_artifact(TextPart(text="sun"), metadata={"source": "screen", "inferred": True, "partial": True}),
            {
                "type": "message",
                "content": [{"type": "text", "content": "sun"}],
                "metadata": {"source": "screen", "inferred": True, "partial": True},
            },
        ),
        (
            an_artifact(TextPart(text="sun"), metadata={"source": "reply", "inferred": False}),
            {"type": "message", "content": [{"type": "text", "content": "sun"}]},
        ),
    ],
)
def test_artifacts_have_the_type_of_their_content(artifact: Any, wire: Any) -> None:
    assert shown(a_task(artifacts=(artifact,)))["artifacts"] == [wire]


def test_the_agents_question_comes_before_its_answer() -> None:
    asked = a_message(TextPart(text="where?"), role=Role.AGENT)
    artifacts = shown(said("sun", history=(a_message(), asked)))["artifacts"]

    assert [artifact["content"][0]["content"] for artifact in artifacts] == ["where?", "sun"]


def test_pages_follow_each_other_by_cursor() -> None:
    call = ask("GET", "/tasks")

    assert told(call, TaskPage((a_task(),), "more", 2))["nextCursor"] == "more"
    assert told(call, TaskPage((), "", 0)) == {"tasks": [], "nextCursor": None}


def test_a_message_is_shown_with_its_task() -> None:
    call = ask("GET", "/messages/{messageId}", messageId="m-1")

    assert told(call, a_task()) == {
        "messageId": "m-1",
        "taskId": TASK_ID,
        "agentId": AGENT,
        "role": "user",
        "message": [QUESTION],
    }


def test_a_message_that_is_not_there_is_not_found() -> None:
    with pytest.raises(NotFound, match="m-9"):
        told(ask("GET", "/messages/{messageId}", messageId="m-9"), a_task())


LISTED = ListedAgent(
    id="weather-agent", name="Weather", description="Knows", version="1.0.0", agent_type="codex", state="ready"
)


def test_a_card_has_the_fields_of_the_document() -> None:
    assert told(ask("GET", "/agents/{agentId}", agentId=LISTED.id), LISTED) == {
        "id": "weather-agent",
        "name": "Weather",
        "description": "Knows",
        "version": "1.0.0",
        "capabilities": ["streaming", "pushNotifications"],
        "auth": {"type": "bearer", "description": "Authorization: Bearer with an API key of this gateway"},
        "metadata": {"agentType": "codex", "state": "ready"},
    }


def test_the_card_of_an_agent_whose_machine_is_away_says_so_beside_its_last_state() -> None:
    away = replace(LISTED, away_since=datetime(2026, 1, 2, 10, tzinfo=UTC))

    assert told(ask("GET", "/agents/{agentId}", agentId=LISTED.id), away)["metadata"] == {
        "agentType": "codex",
        "state": "ready",
        "away": True,
        "since": "2026-01-02T10:00:00.000Z",
    }


def test_agents_are_listed_by_their_cards() -> None:
    assert [card["id"] for card in told(ask("GET", "/agents"), (LISTED, LISTED))["agents"]] == ["weather-agent"] * 2


@pytest.mark.parametrize(
    ("methods", "auth"),
    [
        (AuthMethods(), None),
        (AuthMethods(custom="a badge"), {"type": "custom", "description": "a badge"}),
        (
            AuthMethods(jwt_issuer="https://i.example"),
            {
                "type": "bearer",
                "description": "Authorization: Bearer with an OAuth 2.0 access token issued by https://i.example",
            },
        ),
        (
            AuthMethods(api_keys=True, jwt_issuer="https://i.example", custom="a badge"),
            {
                "type": "bearer",
                "description": "Authorization: Bearer with an API key of this gateway or "
                "an OAuth 2.0 access token issued by https://i.example; or: a badge",
            },
        ),
    ],
)
def test_a_card_names_every_accepted_kind_of_credentials(methods: AuthMethods, auth: Any) -> None:
    assert agent_card(LISTED, methods).get("auth") == auth


COMMON = {
    "AGENT_NOT_FOUND",
    "TASK_NOT_FOUND",
    "INVALID_REQUEST",
    "AUTHENTICATION_ERROR",
    "AUTHORIZATION_ERROR",
    "AGENT_EXECUTION_ERROR",
    "INTERNAL_SERVER_ERROR",
}
TABLE = [
    ("AgentNotFound", "AGENT_NOT_FOUND", 404),
    ("TaskNotFound", "TASK_NOT_FOUND", 404),
    ("NotFound", "NOT_FOUND", 404),
    ("RouteNotFound", "NOT_FOUND", 404),
    ("InvalidRequest", "INVALID_REQUEST", 400),
    ("InvalidField", "INVALID_REQUEST", 400),
    ("MalformedJson", "INVALID_REQUEST", 400),
    ("BodyTooLarge", "INVALID_REQUEST", 413),
    ("UnsupportedMediaType", "INVALID_REQUEST", 415),
    ("IllegalTransition", "INVALID_REQUEST", 409),
    ("CredentialsRefused", "AUTHENTICATION_ERROR", 401),
    ("Forbidden", "AUTHORIZATION_ERROR", 403),
    ("RateLimited", "RATE_LIMITED", 429),
    ("QueueFull", "RATE_LIMITED", 429),
    ("AgentExited", "AGENT_EXECUTION_ERROR", 502),
    ("InternalFailure", "INTERNAL_SERVER_ERROR", 500),
    ("StoreLocked", "INTERNAL_SERVER_ERROR", 503),
]


@pytest.mark.parametrize(("name", "code", "http"), TABLE)
def test_each_error_has_its_row_of_the_table(name: str, code: str, http: int) -> None:
    kind = next(kind for kind in ALL_ERRORS if kind.__name__ == name)

    assert error_shape(kind) == ErrorShape(code, http)


@pytest.mark.parametrize("kind", ALL_ERRORS, ids=lambda kind: kind.__name__)
def test_every_error_is_an_object_of_the_documents_form(kind: type[SynapseError]) -> None:
    answer = encode_error(blank(kind))

    error = json.loads(answer.body)["error"]
    assert list(error)[:2] == ["code", "message"]
    assert set(error) <= {"code", "message", "details"}
    assert error["message"] == "what happened"
    assert 400 <= answer.status <= 504


def test_every_common_code_is_used() -> None:
    assert {error_shape(kind).code for kind in ALL_ERRORS} == {*COMMON, "NOT_FOUND", "RATE_LIMITED"}


def test_details_name_the_field_and_the_hint() -> None:
    error = json.loads(encode_error(InvalidField("state", "is no state", hint="use pending")).body)["error"]
    whole = json.loads(encode_error(InvalidField("", "nothing to change")).body)["error"]

    assert error["details"] == {"field": "state", "hint": "use pending"}
    assert "details" not in whole


def test_headers_name_the_allowed_methods_and_the_challenge() -> None:
    assert encode_error(MethodNotAllowed("POST", "/tasks", ["GET"])).headers == ((b"allow", b"GET"),)
    assert encode_error(Unauthenticated()).headers == ((b"www-authenticate", b"Bearer"),)
    refused = CredentialsRefused(challenge='Bearer realm="synapse"')
    assert encode_error(refused).headers == ((b"www-authenticate", b'Bearer realm="synapse"'),)
    assert encode_error(RateLimited("too many", seconds=0.2)).headers == ((b"retry-after", b"1"),)
    assert encode_error(Forbidden()).headers == ()
    assert encode_error(TaskNotFound("x")).headers == ()


def test_an_error_without_a_row_gets_the_row_of_its_parent() -> None:
    class NewRefusal(errors.AgentFailed):
        """Not known to the table."""

    assert error_shape(NewRefusal).code == "AGENT_EXECUTION_ERROR"
