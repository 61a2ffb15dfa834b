"""Answers of all protocols become one RemoteTaskState."""

from __future__ import annotations

from typing import Any

import pytest

from synapse.core.errors import ExternalAgentFailed
from synapse.core.requests import ExternalAnswer
from synapse.external.decode import DEEPEST, RemoteTaskState, json_object, result_of, rpc_result
from synapse.net.http_types import HttpAnswer

Object = dict[str, Any]


def report(*said: Object) -> RemoteTaskState:
    made = RemoteTaskState()
    for item in said:
        made.receive(item)
    return made


def answer(*said: Object) -> ExternalAnswer:
    return report(*said).answer("other")


def text(*texts: str) -> Object:
    return {"parts": [{"text": item} for item in texts]}


@pytest.mark.parametrize(
    "said",
    [
        {"task": {"id": "t", "status": {"state": "TASK_STATE_COMPLETED"}, "artifacts": [text("a", "b"), text("c")]}},
        {"kind": "task", "id": "t", "status": {"state": "completed"}, "artifacts": [text("a", "b"), text("c")]},
        {"id": "t", "status": {"state": "completed"}, "artifacts": [text("a", "b"), text("c")]},
        {"task": {"id": "t", "status": "completed", "artifacts": [text("a", "b"), text("c")]}},
    ],
)
def test_a_finished_task_is_an_answer_in_every_protocol(said: Object) -> None:
    made = answer(said)

    assert (made.alias, made.task_id, made.state, made.text) == ("other", "t", "completed", "a\nb\nc")
    assert made.raw["id"] == "t"


@pytest.mark.parametrize("said", [{"message": {"taskId": "t", **text("hi")}}, {"kind": "message", **text("hi")}])
def test_a_plain_message_is_an_answer(said: Object) -> None:
    made = answer(said)

    assert (made.state, made.text) == ("completed", "hi")
    assert report(said).is_settled


@pytest.mark.parametrize(
    ("word", "state", "settled"),
    [
        ("TASK_STATE_SUBMITTED", "submitted", False),
        ("working", "working", False),
        ("input-required", "input_required", True),
        ("TASK_STATE_AUTH_REQUIRED", "auth_required", True),
        ("TASK_STATE_CANCELLED", "canceled", True),
        ("rejected", "rejected", True),
        ("failed", "failed", True),
        ("dreaming\x1b", "dreaming", False),
        ("", "unknown", False),
        (3, "unknown", False),
    ],
)
def test_states_of_all_protocols_become_task_states(word: object, state: str, settled: bool) -> None:
    made = report({"task": {"id": "t", "status": {"state": word}}})

    assert (made.state, made.is_settled) == (state, settled)


@pytest.mark.parametrize("kinds", [("statusUpdate", "artifactUpdate"), ("status-update", "artifact-update")])
def test_a_stream_adds_up_to_a_task(kinds: tuple[str, str]) -> None:
    def update(kind: str, fields: Object) -> Object:
        return {"kind": kind, **fields} if "-" in kind else {kind: fields}

    status, artifact = kinds
    made = answer(
        {"task": {"id": "t", "status": {"state": "submitted"}}},
        update(status, {"taskId": "t", "status": {"state": "working"}}),
        update(artifact, {"taskId": "t", "artifact": {"artifactId": "a", **text("one ")}}),
        update(artifact, {"taskId": "t", "artifact": {"artifactId": "a", **text("two", "three")}, "append": True}),
        update(artifact, {"taskId": "t", "artifact": {"artifactId": "b", **text("gone")}}),
        update(artifact, {"taskId": "t", "artifact": {"artifactId": "b", **text("kept")}}),
        update(status, {"taskId": "t", "status": {"state": "completed"}}),
    )

    assert (made.task_id, made.state, made.text) == ("t", "completed", "one two\nthree\nkept")


def test_a_stream_without_a_task_at_its_head_still_has_an_id() -> None:
    assert report({"statusUpdate": {"taskId": "t", "status": {"state": "working"}}}).task_id == "t"
    assert report({"artifactUpdate": {"taskId": "t", "artifact": {}}}).task_id == "t"


def test_chunks_of_files_stay_apart() -> None:
    part = {"raw": "AA=="}
    first = {"artifactId": "a", "parts": [part]}
    made = answer(
        {"artifactUpdate": {"taskId": "t", "artifact": first}},
        {"artifactUpdate": {"taskId": "t", "artifact": first, "append": True}},
    )

    assert made.raw["artifacts"][0]["parts"] == [part, part]


def test_a_question_is_the_agents_message_and_not_its_artifacts() -> None:
    task = {"id": "t", "artifacts": [text("draft")]}
    asked = {"status": {"state": "input-required", "message": text("which one?")}}

    assert answer({"task": {**task, **asked}}).text == "which one?"
    assert answer({"task": {**task, "status": "input_required", "history": [_said("agent", "?")]}}).text == "?"
    assert answer({"task": {**task, "status": "failed", "metadata": {"note": "no credit"}}}).text == "no credit"
    assert answer({"task": {**task, "status": "failed"}}).text == "draft"


def test_a_task_without_artifacts_answers_with_the_agents_last_message() -> None:
    done = {"id": "t", "status": {"state": "completed"}}
    history = [_said("ROLE_AGENT", "old"), _said("ROLE_AGENT", "new"), _said("ROLE_USER", "thanks")]

    assert answer({"task": {**done, "status": {"state": "completed", "message": text("done")}}}).text == "done"
    assert answer({"task": {**done, "history": history}}).text == "new"


def test_control_characters_are_removed_from_answers() -> None:
    assert answer({"message": text("a\x1b]0;x\x07b")}).text == "a]0;xb"


@pytest.mark.parametrize("said", [{}, {"odd": 1}, {"task": 3}, {"message": None}])
def test_nonsense_is_no_answer(said: Object) -> None:
    with pytest.raises(ExternalAgentFailed, match="neither a task nor a message"):
        answer(said)


def test_invalid_fields_are_ignored() -> None:
    made = answer(
        {"task": {"id": 3, "status": {"state": "completed"}, "artifacts": [3, {"parts": [{"text": 4}, "x"]}]}}
    )

    assert (made.task_id, made.text) == ("", "")


def test_a_result_is_taken_out_of_its_json_rpc_response() -> None:
    assert result_of(HttpAnswer(200, b'{"jsonrpc": "2.0", "id": 1, "result": {"a": 1}}')) == {"a": 1}
    assert result_of(HttpAnswer(200, b'{"task": {}}')) == {"task": {}}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('{"error": {"code": "queue_full", "message": "too\\u001b much"}}', "it refused (status 400): too much"),
        ('{"error": "plain"}', "it refused (status 400): plain"),
        ('{"detail": "words"}', "it refused (status 400): words"),
        ('{"detail": [1]}', "it refused (status 400)"),
        ("<html>", "it refused (status 400)"),
        ("", "it refused (status 400)"),
    ],
)
def test_a_refusal_has_the_agents_reason_if_there_is_one(body: str, said: str) -> None:
    with pytest.raises(ExternalAgentFailed) as caught:
        result_of(HttpAnswer(400, body.encode()))

    assert str(caught.value) == said


def test_an_error_in_a_json_rpc_response_is_a_refusal() -> None:
    with pytest.raises(ExternalAgentFailed, match=r"^it refused: unsupported$"):
        rpc_result({"jsonrpc": "2.0", "error": {"code": -32004, "message": "unsupported"}})


def test_credentials_and_redirects_are_named() -> None:
    with pytest.raises(ExternalAgentFailed, match=r"wants credentials \(status 401\)"):
        result_of(HttpAnswer(401, b""))
    with pytest.raises(ExternalAgentFailed, match="it redirects to https://elsewhere/"):
        result_of(HttpAnswer(307, b"", "https://elsewhere/"))


@pytest.mark.parametrize("body", [b"", b"x", b"\xff", b'"\\ud800"', b"[" * 100_000, b'{"a": NaN}'])
def test_an_answer_that_is_not_json_is_refused(body: bytes) -> None:
    with pytest.raises(ExternalAgentFailed, match="its answer is not JSON"):
        json_object(body)


def test_json_that_is_not_an_object_or_too_deep_is_refused() -> None:
    with pytest.raises(ExternalAgentFailed, match="not a JSON object"):
        json_object(b"[]")
    with pytest.raises(ExternalAgentFailed, match="nested deeper"):
        json_object(b'{"a": ' + b"[" * DEEPEST + b"]" * DEEPEST + b"}")


def _said(role: str, words: str) -> Object:
    return {"role": role, **text(words)}
