"""How the supervisor dialect encodes tasks, updates, notifications and agent cards."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from urllib.request import urlopen

import pytest

from synapse.core.agent import AGENT_STATES
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
from synapse.core.requests import ListedAgent
from synapse.core.store import TaskPage
from synapse.core.task import ReceiptStep, Task, TaskState
from synapse.dialects.dialect import StreamCall, WireEvent
from synapse.dialects.supervisor.encode import (
    STATE_NAMES,
    STATE_WORDS,
    CardFacts,
    agent_card,
    agent_list,
    encode_notification,
    encode_page,
    state_name,
    task_object,
)
from synapse.server.sse import event_bytes
from tests.unit.dialects.supervisor.samples import (
    AGENT,
    CREATED,
    MESSAGE,
    a_message,
    a_receipt,
    a_task,
    an_answered_task,
    ask,
    at,
)


def shown(task: Task, **how: Any) -> Any:
    return json.loads(json.dumps(task_object(task, agent=AGENT, **how)))


def an_artifact(*parts: Part, **changes: Any) -> Artifact:
    return replace(Artifact(artifact_id="artifact-1", parts=parts), **changes)


def handed(*parts: Part, **changes: Any) -> list[dict[str, Any]]:
    artifacts: list[dict[str, Any]] = shown(a_task(artifacts=(an_artifact(*parts, **changes),)))["artifacts"]
    return artifacts


def test_every_state_has_a_word_of_the_document() -> None:
    assert set(STATE_NAMES) == set(TaskState)
    assert {*STATE_NAMES.values(), "expired"} == set(STATE_WORDS)


@pytest.mark.parametrize(
    ("state", "reason", "word"),
    [
        (TaskState.SUBMITTED, "", "created"),
        (TaskState.WORKING, "", "running"),
        (TaskState.INPUT_REQUIRED, "", "running"),
        (TaskState.AUTH_REQUIRED, "", "running"),
        (TaskState.COMPLETED, "", "succeeded"),
        (TaskState.FAILED, "agent_exited", "failed"),
        (TaskState.FAILED, "expired", "expired"),
        (TaskState.CANCELED, "canceled", "cancelled"),
        (TaskState.CANCELED, "expired", "cancelled"),
        (TaskState.REJECTED, "rejected", "failed"),
    ],
)
def test_state_and_reason_make_the_status(state: TaskState, reason: str, word: str) -> None:
    assert state_name(a_task(state=state, reason=reason)) == word


def test_the_answer_is_a_message_and_no_artifact() -> None:
    task = shown(an_answered_task())

    assert task["messages"] == [
        {
            "content": "Response from agent",
            "role": "assistant",
            "id": "msg-67890",
            "timestamp": "2025-11-18T10:00:29.000Z",
        }
    ]
    assert task["artifacts"] == []


def test_an_answer_in_chunks_is_one_message() -> None:
    chunks = an_artifact(TextPart(text="one "), TextPart(text="two"), name="answer")

    assert [message["content"] for message in shown(a_task(artifacts=(chunks,)))["messages"]] == ["one two"]


def test_a_named_text_is_a_message_and_an_artifact() -> None:
    task = shown(a_task(artifacts=(an_artifact(TextPart(text="print()"), name="main.py"),)))

    assert [message["content"] for message in task["messages"]] == ["print()"]
    assert task["artifacts"] == [
        {
            "id": "artifact-1",
            "type": "text",
            "description": "main.py",
            "uri": "data:text/plain;charset=utf-8;base64,cHJpbnQoKQ==",
            "content": "print()",
        },
    ]


def test_files_have_an_address_even_when_their_bytes_are_here() -> None:
    assert handed(FilePart(content=b"hi", media_type="image/png", name="a.png")) == [
        {"id": "artifact-1", "type": "image", "description": "a.png", "uri": "data:image/png;base64,aGk="}
    ]
    assert handed(FilePart(content=b""), description="empty") == [
        {
            "id": "artifact-1",
            "type": "file",
            "description": "empty",
            "uri": "data:application/octet-stream;base64,",
        }
    ]


def test_several_parts_are_several_artifacts() -> None:
    parts = (TextPart(text="see "), FilePart(url="https://x"), TextPart(text="this"), DataPart(data={"a": 1}))

    assert [(one["id"], one["type"], one.get("content", one["uri"])) for one in handed(*parts)] == [
        ("artifact-1", "text", "see this"),
        ("artifact-1.2", "file", "https://x"),
        ("artifact-1.3", "data", {"a": 1}),
    ]


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (TextPart(text="größer"), "größer".encode()),
        (DataPart(data={"a": [1, None]}), b'{"a":[1,null]}'),
        (DataPart(data=7), b"7"),
        (FilePart(content=b"\x00\xff"), b"\x00\xff"),
    ],
)
def test_every_artifact_has_an_address_that_can_be_opened(part: Part, said: bytes) -> None:
    (artifact,) = handed(part, name="named")

    with urlopen(artifact["uri"]) as opened:
        assert opened.read() == said


def test_an_artifact_may_name_its_type() -> None:
    assert handed(FilePart(url="u"), metadata={"type": "code"})[0]["type"] == "code"
    assert handed(FilePart(url="u", metadata={"type": "diff"}), metadata={"type": "code"})[0]["type"] == "diff"
    assert handed(FilePart(url="u"), metadata={"type": 3})[0]["type"] == "file"


def test_a_conversation_has_the_times_of_its_turns() -> None:
    task = an_answered_task(
        history=(
            a_message(message_id="1"),
            a_message(TextPart(text="which?"), message_id="2", role=Role.AGENT),
            a_message(TextPart(text="that"), message_id="3"),
        ),
        receipts=(
            a_receipt(ReceiptStep.QUEUED, at(0)),
            a_receipt(ReceiptStep.TYPED, at(1)),
            a_receipt(ReceiptStep.ANSWERED, at(2)),
            a_receipt(ReceiptStep.QUEUED, at(10)),
            a_receipt(ReceiptStep.ANSWERED, at(12)),
        ),
    )
    wire = shown(task)

    assert [(said["id"], said["timestamp"][17:19]) for said in wire["history"]] == [
        ("1", "00"),
        ("2", "02"),
        ("3", "10"),
    ]
    assert [(said["id"], said["timestamp"][17:19]) for said in wire["messages"]] == [("2", "02"), ("msg-67890", "12")]


def test_a_message_without_a_receipt_has_the_time_of_the_last_change() -> None:
    question = a_message(message_id="2", role=Role.AGENT)
    wire = shown(a_task(history=(a_message(), question, a_message(message_id="3")), receipts=(), queued=False))

    assert [said["timestamp"][17:19] for said in wire["history"]] == ["00", "30", "30"]


def test_the_agents_last_messages_are_not_in_the_history() -> None:
    question = a_message(message_id="2", role=Role.AGENT)
    asked = a_task(history=(a_message(message_id="1"), question))
    answered = a_task(history=(*asked.history, a_message(message_id="3")))

    assert [said["id"] for said in shown(asked)["history"]] == ["1"]
    assert [said["id"] for said in shown(answered)["history"]] == ["1", "2", "3"]
    assert [said["id"] for said in shown(asked)["messages"]] == ["2"]


def test_a_turn_that_has_not_ended_lasts_until_now() -> None:
    wire = shown(a_task(history=(a_message(), a_message(message_id="2", role=Role.AGENT))))

    assert wire["messages"][0]["timestamp"] == wire["modifiedAt"]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("2025-11-18T09:00:00+01:00", "2025-11-18T08:00:00.000Z"),
        ("whenever", "2025-11-18T10:00:00.000Z"),
        (17, "2025-11-18T10:00:00.000Z"),
    ],
)
def test_the_time_that_a_sender_gave_wins_if_it_is_one(given: Any, told: str) -> None:
    assert shown(a_task(history=(a_message(metadata={"timestamp": given}),)))["history"][0]["timestamp"] == told


def test_roles_keep_their_names() -> None:
    history = (a_message(), a_message(role=Role.AGENT), a_message(metadata={"role": "system"}))
    wire = shown(a_task(history=history))

    assert [said["message"]["role"] for said in wire["history"]] == ["user", "assistant", "system"]


def test_parts_of_other_dialects_become_one_text() -> None:
    parts = (
        TextPart(text="look:"),
        FilePart(url="https://x"),
        FilePart(content=b"", name="a.pdf"),
        FilePart(content=b"", media_type="image/png"),
        DataPart(data={"a": [1]}),
    )
    wire = shown(a_task(history=(a_message(*parts),)))

    assert wire["history"][0]["message"]["content"] == 'look:\nhttps://x\na.pdf\nimage/png\n{"a":[1]}'


@pytest.mark.parametrize(
    ("state", "told"),
    [
        (TaskState.FAILED, True),
        (TaskState.REJECTED, True),
        (TaskState.CANCELED, True),
        (TaskState.INPUT_REQUIRED, True),
        (TaskState.WORKING, False),
        (TaskState.COMPLETED, False),
    ],
)
def test_a_system_message_says_why_there_is_no_answer(state: TaskState, told: bool) -> None:
    wire = shown(a_task(state=state, note="the agent has exited"))

    expected = [("the agent has exited", "system")] if told else []
    assert [(said["content"], said["role"]) for said in wire["messages"]] == expected


def test_the_end_has_its_own_time() -> None:
    wire = shown(an_answered_task(state=TaskState.CANCELED, note="canceled by request"))

    assert [said["timestamp"][17:19] for said in wire["messages"]] == ["29", "30"]


def test_a_question_of_the_agent_is_not_repeated() -> None:
    question = a_message(TextPart(text="which?"), role=Role.AGENT)
    wire = shown(a_task(state=TaskState.INPUT_REQUIRED, history=(a_message(), question), note="which?"))

    assert [said["content"] for said in wire["messages"]] == ["which?"]


@pytest.mark.parametrize(
    ("length", "ids"), [(None, ["1", "2", "3"]), (0, []), (1, ["3"]), (2, ["2", "3"]), (9, ["1", "2", "3"])]
)
def test_the_history_has_the_requested_length(length: int | None, ids: list[str]) -> None:
    task = a_task(history=tuple(a_message(message_id=str(number)) for number in (1, 2, 3)))

    assert [entry["id"] for entry in shown(task, history_length=length)["history"]] == ids


def test_the_last_page_has_no_token_and_artifacts_only_when_asked_for() -> None:
    task = a_task(artifacts=(an_artifact(FilePart(url="u")),))
    page = TaskPage((task,), "", 1)
    without = json.loads(encode_page(page, agent=AGENT, page_size=50, history_length=0, artifacts=False))
    with_all = json.loads(encode_page(page, agent=AGENT, page_size=50, history_length=1, artifacts=True))

    assert without["nextPageToken"] == ""
    assert (without["tasks"][0]["artifacts"], without["tasks"][0]["history"]) == ([], [])
    assert len(with_all["tasks"][0]["artifacts"]) == len(with_all["tasks"][0]["history"]) == 1


TASK = a_task()
OPENED = TaskOpened(
    task_id=TASK.id,
    at=CREATED,
    agent_id=TASK.agent_id,
    inbox=TASK.inbox,
    context_id="c",
    scope="s",
    dialect="supervisor",
    message=TASK.message,
)
SHOWN: list[TaskEvent | None] = [
    None,
    OPENED,
    StateChanged(task_id=TASK.id, at=CREATED, state=TaskState.WORKING),
    MessageAdded(task_id=TASK.id, at=CREATED, message=a_message()),
    ArtifactAdded(task_id=TASK.id, at=CREATED, artifact=Artifact(artifact_id="a", parts=(TextPart(text="t"),))),
]
NOT_SHOWN: list[TaskEvent] = [
    ReceiptChanged(task_id=TASK.id, at=CREATED, step=ReceiptStep.TYPED, source="journal"),
    MetadataChanged(task_id=TASK.id, at=CREATED, metadata={}),
    AttentionChanged(task_id=TASK.id, at=CREATED, attention="look"),
    TaskHidden(task_id=TASK.id, at=CREATED),
]


def streamed(update: Update, **configuration: Any) -> WireEvent | None:
    call = ask("POST", "/message:stream", {"message": MESSAGE, "configuration": configuration})
    assert isinstance(call, StreamCall)
    return call.encode(update)


def subscribed(update: Update) -> WireEvent | None:
    call = ask("POST", "/tasks/{id}:subscribe", id=TASK.id)
    assert isinstance(call, StreamCall)
    return call.encode(update)


@pytest.mark.parametrize("event", SHOWN, ids=lambda event: type(event).__name__)
def test_an_update_that_changes_the_task_has_the_whole_task(event: TaskEvent | None) -> None:
    told = streamed(Update(7, event, TASK))

    assert told is not None
    assert (told.id, told.name, told.then) == ("event-7", "taskUpdate", None)
    assert json.loads(told.data) == {**task_object(TASK, agent=AGENT), "final": False}


@pytest.mark.parametrize("event", NOT_SHOWN, ids=lambda event: type(event).__name__)
def test_updates_that_change_nothing_visible_are_not_sent(event: TaskEvent) -> None:
    assert streamed(Update(7, event, TASK)) is None
    assert encode_notification(Update(7, event, TASK), AGENT) is None


def ended(task: Task) -> Update:
    return Update(9, StateChanged(task_id=task.id, at=CREATED, state=task.state), task)


@pytest.mark.parametrize("state", [state for state in TaskState if state.is_terminal])
def test_the_end_is_final_and_done_follows(state: TaskState) -> None:
    for encode in (streamed, subscribed):
        told = encode(ended(an_answered_task(state=state)))

        assert told is not None
        assert json.loads(told.data)["final"] is True
        assert told.then == WireEvent("event-10", "done", b"{}")


def test_a_stream_ends_also_when_the_agent_asks_and_a_subscription_does_not() -> None:
    update = ended(a_task(state=TaskState.INPUT_REQUIRED))
    stream, subscription = streamed(update), subscribed(update)

    assert stream is not None
    assert stream.then is not None
    assert json.loads(stream.data)["final"] is True
    assert subscription is not None
    assert subscription.then is None
    assert json.loads(subscription.data)["final"] is False


def test_both_events_are_written_at_once() -> None:
    told = streamed(ended(an_answered_task()))

    assert told is not None
    assert event_bytes(told).endswith(b"\n\nid: event-10\nevent: done\ndata: {}\n\n")


def test_a_stream_has_the_requested_length_of_history() -> None:
    told = streamed(Update(7, None, TASK), historyLength=0)

    assert told is not None
    assert json.loads(told.data)["history"] == []


def test_a_notification_has_the_data_of_the_streams_event() -> None:
    told = streamed(ended(an_answered_task()))

    assert told is not None
    assert encode_notification(ended(an_answered_task()), AGENT) == told.data


LISTED = ListedAgent(
    id="claude", name="Synapse Claude", description="d", version="0.1.0", agent_type="claude", state="ready"
)


def test_a_card_claims_only_what_the_agent_can_do() -> None:
    able = agent_card(CardFacts(agent=LISTED, url="https://x/agents/claude/v1"))
    plain = agent_card(CardFacts(agent=replace(LISTED, capabilities=()), url="u", extended=False))

    assert able["capabilities"] == {"pushNotifications": True, "streaming": True}
    assert plain["capabilities"] == {"pushNotifications": False, "streaming": False}
    assert (able["supportsAuthenticatedExtendedCard"], plain["supportsAuthenticatedExtendedCard"]) == (True, False)


@pytest.mark.parametrize("state", AGENT_STATES)
def test_an_agent_is_active_until_it_has_exited(state: str) -> None:
    status = agent_list([replace(LISTED, state=state)])["agents"][0]["status"]

    assert status == ("inactive" if state == "exited" else "active")


def test_an_agent_whose_machine_is_away_is_inactive() -> None:
    away = replace(LISTED, away_since=datetime(2026, 1, 2, 10, tzinfo=UTC))

    assert agent_list([away])["agents"][0]["status"] == "inactive"
