"""How A2A 1.0 encodes tasks and agent cards."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from synapse.core.events import (
    ArtifactAdded,
    AttentionChanged,
    MessageAdded,
    MetadataChanged,
    ReceiptChanged,
    StateChanged,
    TaskEvent,
    TaskHidden,
    TaskOpened,
    Update,
)
from synapse.core.message import Artifact, DataPart, FilePart, Part, Role, TextPart
from synapse.core.store import TaskPage
from synapse.core.task import ReceiptStep, Task, TaskState
from synapse.dialects.a2a_v1 import encode
from synapse.dialects.a2a_v1.encode import CardFacts, agent_card
from tests.samples.tasks import TASK_ID, UPDATED, a_message, a_question, a_task

ANSWER = Artifact(artifact_id="a-1", name="answer", parts=(TextPart(text="done"),), metadata={"source": "script"})


def changed(task: Task, event: TaskEvent) -> Any:
    told = encode.encode_update(Update(7, event, task))
    return None if told is None else json.loads(told)


def test_every_state_has_its_own_name() -> None:
    names = encode.STATE_NAMES

    assert set(names) == set(TaskState)
    assert len(set(names.values())) == len(TaskState)
    assert all(name == f"TASK_STATE_{state.value.upper()}" for state, name in names.items())


def test_a_task_has_its_ids_its_status_and_its_history() -> None:
    assert encode.task_object(a_task()) == {
        "id": TASK_ID,
        "contextId": "c-1",
        "status": {"state": "TASK_STATE_WORKING", "timestamp": "2026-01-15T10:30:05.123Z"},
        "history": [
            {
                "messageId": "m-1",
                "contextId": "c-1",
                "taskId": TASK_ID,
                "role": "ROLE_USER",
                "parts": [{"text": "hello"}],
            }
        ],
    }


def test_our_metadata_keys_are_in_camel_case_and_other_keys_are_unchanged() -> None:
    metadata = {
        "sender": {"sender_id": "synapse-claude-8100", "sender_type": "claude", "sender_endpoint": "http://x"},
        "sender_verified": True,
        "question": {"title": "Run it?", "takes_text": False, "asked_at": "2024-01-15T10:30:00.000Z"},
        "request": {"their_key": {"sender_id": "theirs"}},
        "in_reply_to": "not an object",
        "response_expected": True,
        "sender_task_id": "t-1",
        "sender_inbox": "claude@/proj",
        "waits_for": "synapse-codex-8120",
        "waits_for_inbox": "codex@/proj",
        "waiter_left": True,
    }

    assert encode.task_object(a_task(metadata=metadata))["metadata"] == {
        "sender": {"senderId": "synapse-claude-8100", "senderType": "claude", "senderEndpoint": "http://x"},
        "senderVerified": True,
        "question": {"title": "Run it?", "takesText": False, "askedAt": "2024-01-15T10:30:00.000Z"},
        "request": {"their_key": {"sender_id": "theirs"}},
        "inReplyTo": "not an object",
        "responseExpected": True,
        "senderTaskId": "t-1",
        "senderInbox": "claude@/proj",
        "waitsFor": "synapse-codex-8120",
        "waitsForInbox": "codex@/proj",
        "waiterLeft": True,
    }
    assert encode.task_object(a_task(metadata={"sender": "me"}))["metadata"] == {"sender": "me"}


def test_of_a_message_only_our_own_mark_is_renamed() -> None:
    metadata = {"answers_question": "q-1", "sender": {"sender_id": "theirs"}}
    said = replace(a_task().message, metadata=metadata)

    told = encode.message_object(said, a_task())["metadata"]

    assert told == {"answersQuestion": "q-1", "sender": {"sender_id": "theirs"}}


def test_a_task_shows_its_artifacts_and_metadata_only_when_it_has_some() -> None:
    task = encode.task_object(a_task(artifacts=(ANSWER,), metadata={"k": 1}))

    assert task["metadata"] == {"k": 1}
    assert task["artifacts"] == [
        {"artifactId": "a-1", "name": "answer", "parts": [{"text": "done"}], "metadata": {"source": "script"}}
    ]
    assert encode.task_object(a_task()).keys().isdisjoint({"metadata", "artifacts"})


@pytest.mark.parametrize(
    ("length", "shown"),
    [(None, ["one", "two", "three"]), (0, None), (1, ["three"]), (2, ["two", "three"]), (9, ["one", "two", "three"])],
)
def test_the_history_is_cut_to_the_last_messages(length: int | None, shown: list[str] | None) -> None:
    history = tuple(a_message(message_id=name) for name in ("one", "two", "three"))
    told = encode.task_object(a_task(history=history), length).get("history")

    assert (told and [message["messageId"] for message in told]) == shown


@pytest.mark.parametrize("state", [TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED])
def test_a_question_stands_in_the_status_and_not_in_the_history(state: TaskState) -> None:
    task = encode.task_object(a_question(state))

    assert task["status"]["message"]["parts"] == [{"text": "which one?"}]
    assert task["status"]["message"]["role"] == "ROLE_AGENT"
    assert [message["messageId"] for message in task["history"]] == ["m-1"]


def test_an_answered_question_stands_in_the_history() -> None:
    history = (a_message(), a_message(message_id="m-2", role=Role.AGENT), a_message(message_id="m-3"))
    task = encode.task_object(a_task(history=history, state=TaskState.SUBMITTED))

    assert [message["messageId"] for message in task["history"]] == ["m-1", "m-2", "m-3"]
    assert "message" not in task["status"]


def test_the_status_message_has_the_reason_of_the_end() -> None:
    status = encode.status_object(a_task(state=TaskState.FAILED, reason="quota", note="no tokens left"))

    assert status["message"] == {
        "messageId": f"{TASK_ID}.4",
        "contextId": "c-1",
        "taskId": TASK_ID,
        "role": "ROLE_AGENT",
        "parts": [{"text": "no tokens left"}],
    }


@pytest.mark.parametrize(
    ("part", "told"),
    [
        (TextPart(text=""), {"text": ""}),
        (FilePart(content=b"\xff\xfe"), {"raw": "//4="}),
        (FilePart(content=b""), {"raw": ""}),
        (FilePart(url="https://x/y"), {"url": "https://x/y"}),
        (DataPart(data=None), {"data": None}),
        (DataPart(data=[1, {"a": "b"}]), {"data": [1, {"a": "b"}]}),
        (
            TextPart(text="t", name="n.md", media_type="text/markdown", metadata={"k": "v"}),
            {"text": "t", "filename": "n.md", "mediaType": "text/markdown", "metadata": {"k": "v"}},
        ),
    ],
)
def test_a_part_has_one_content_and_its_label(part: Part, told: dict[str, Any]) -> None:
    assert encode.part_object(part) == told


def test_an_answer_with_a_plain_message_is_encoded_without_a_task() -> None:
    direct = a_task(state=TaskState.COMPLETED, reason="direct_message", artifacts=(ANSWER,))

    assert json.loads(encode.encode_sent(direct)) == {
        "message": {
            "messageId": f"{TASK_ID}.4",
            "contextId": "c-1",
            "role": "ROLE_AGENT",
            "parts": [{"text": "done"}],
        }
    }
    assert "id" in json.loads(encode.encode_task(direct)), "GetTask returns the task"


def test_a_page_has_all_its_fields_even_when_it_is_empty() -> None:
    page = encode.encode_page(TaskPage((), "", 0), page_size=50, history_length=None, artifacts=False)

    assert json.loads(page) == {"tasks": [], "nextPageToken": "", "pageSize": 50, "totalSize": 0}


def test_a_page_shows_artifacts_only_when_asked() -> None:
    page = TaskPage((a_task(artifacts=(ANSWER,)),), "next", 12)
    bare = json.loads(encode.encode_page(page, page_size=1, history_length=0, artifacts=False))
    full = json.loads(encode.encode_page(page, page_size=1, history_length=0, artifacts=True))

    assert "artifacts" not in bare["tasks"][0]
    assert full["tasks"][0]["artifacts"]
    assert (full["nextPageToken"], full["totalSize"]) == ("next", 12)


def test_a_change_of_state_is_a_status_update() -> None:
    done = a_task(state=TaskState.COMPLETED)

    assert changed(done, StateChanged(task_id=done.id, at=UPDATED, state=done.state)) == {
        "statusUpdate": {
            "taskId": TASK_ID,
            "contextId": "c-1",
            "status": {"state": "TASK_STATE_COMPLETED", "timestamp": "2026-01-15T10:30:05.123Z"},
        }
    }


@pytest.mark.parametrize(
    ("append", "last", "more"),
    [(False, True, {"lastChunk": True}), (True, False, {"append": True}), (False, False, {})],
)
def test_an_artifact_is_an_artifact_update(append: bool, last: bool, more: dict[str, bool]) -> None:
    task = a_task()
    event = ArtifactAdded(task_id=task.id, at=UPDATED, artifact=ANSWER, append=append, last_chunk=last)

    told = changed(task, event)["artifactUpdate"]

    assert told.pop("artifact")["artifactId"] == "a-1"
    assert told == {"taskId": TASK_ID, "contextId": "c-1", **more}


def test_a_snapshot_is_the_task() -> None:
    snapshot = encode.encode_update(Update(7, None, a_task()))

    assert snapshot is not None
    assert json.loads(snapshot) == {"task": encode.task_object(a_task())}


def test_updates_that_a2a_cannot_express_are_not_sent() -> None:
    task = a_task()
    silent: list[TaskEvent] = [
        MessageAdded(task_id=task.id, at=UPDATED, message=a_message()),
        ReceiptChanged(task_id=task.id, at=UPDATED, step=ReceiptStep.TYPED, source="journal"),
        MetadataChanged(task_id=task.id, at=UPDATED, metadata={}),
        AttentionChanged(task_id=task.id, at=UPDATED, attention="look"),
        TaskHidden(task_id=task.id, at=UPDATED),
    ]

    assert [changed(task, event) for event in silent] == [None] * len(silent)


def test_an_opened_task_is_sent_whole() -> None:
    task = a_task()
    opened = TaskOpened(
        task_id=task.id,
        at=UPDATED,
        agent_id="a",
        inbox="i",
        context_id="c-1",
        scope="local",
        dialect="a2a_v1",
        message=a_message(),
    )

    assert changed(task, opened) == {"task": encode.task_object(task)}


def test_a_name_that_is_not_unicode_does_not_spoil_the_answer() -> None:
    task = a_task(metadata={"path": "caf\udce9"})

    assert json.loads(encode.encode_task(task))["metadata"] == {"path": "caf?"}


FACTS: dict[str, Any] = {
    "name": "Synapse Codex",
    "description": "A CLI",
    "url": "http://localhost:8120",
    "version": "1.2.3",
    "input_modes": ("text/plain",),
    "output_modes": ("text/plain", "application/json"),
}


def test_the_card_has_every_required_field() -> None:
    card = agent_card(CardFacts(**FACTS))

    required = {"name", "description", "supportedInterfaces", "version", "capabilities", "skills"}
    assert card.keys() >= required | {"defaultInputModes", "defaultOutputModes"}
    assert all(card[field] for field in required)
    assert card["skills"][0].keys() >= {"id", "name", "description", "tags"}


def test_the_card_has_true_values() -> None:
    card = agent_card(CardFacts(**FACTS))

    assert card["capabilities"] == {"streaming": True, "pushNotifications": True, "extendedAgentCard": False}


def test_json_rpc_is_preferred_and_older_versions_come_last() -> None:
    interfaces = agent_card(CardFacts(**FACTS, legacy_versions=("0.3",)))["supportedInterfaces"]

    assert [(one["protocolBinding"], one["protocolVersion"]) for one in interfaces] == [
        ("JSONRPC", "1.0"),
        ("HTTP+JSON", "1.0"),
        ("JSONRPC", "0.3"),
        ("HTTP+JSON", "0.3"),
    ]
    assert {one["url"] for one in interfaces} == {"http://localhost:8120"}
