"""What a person's page is told: rows, tasks without the bytes of files, streams with positions, and errors."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from synapse.core.address import PERSON, SYSTEM
from synapse.core.errors import (
    MachineAway,
    NotFound,
    QuestionGone,
    RateLimited,
    SynapseError,
    TaskNotFound,
    UnsupportedOperation,
    from_wire,
)
from synapse.core.events import (
    ArtifactAdded,
    AttentionChanged,
    MessageAdded,
    MetadataChanged,
    ReceiptChanged,
    Recorded,
    StateChanged,
    TaskEvent,
    TaskHidden,
    TaskOpened,
    Update,
)
from synapse.core.message import Artifact, FilePart, Role, Sender, TextPart
from synapse.core.overview import (
    AgentOverview,
    EventsMissed,
    Overview,
    OverviewUpdate,
    RowChanged,
    RowRemoved,
    StreamAlive,
    Timeline,
)
from synapse.core.question import WAITING_FOR_PERSON, Question, QuestionKind
from synapse.core.store import TaskPage
from synapse.core.task import Receipt, ReceiptStep, ReplyTo, Task, TaskId, TaskState, WaitTarget
from synapse.dialects.dashboard import encode
from synapse.dialects.dialect import Call
from synapse.dialects.task_json import HTTP_STATUS
from tests.samples.tasks import CREATED, TASK_ID, a_message, a_task
from tests.unit.dialects.all_errors import ALL_ERRORS, blank
from tests.unit.dialects.dashboard.samples import EVENTS, agent_name, ask

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
PNG, NOTES, LINK = (
    FilePart(content=b"\x89PNG", name="a.png", media_type="image/png"),
    FilePart(content=b"<script>", name="../../x<b>\u202e.html", media_type="text/html"),
    FilePart(url="https://example.com/b", name="b"),
)
WITH_FILES = a_task(
    history=(a_message(TextPart(text="look"), PNG), a_message(NOTES, role=Role.AGENT, message_id="m-2")),
    artifacts=(Artifact(artifact_id="r", parts=(LINK, PNG)),),
)


def event(update: OverviewUpdate) -> tuple[str, str, Any]:
    told = EVENTS.encode(update)
    assert told is not None
    return told.id, told.name, json.loads(told.data)


def test_a_row_of_a_task_is_flat_and_of_bounded_length() -> None:
    task = a_task(
        history=(a_message(text="x" * 1000), a_message(text="asks back", role=Role.AGENT)),
        receipts=(Receipt(step=ReceiptStep.QUEUED, at=CREATED, source="journal", evidence="e" * 5000),),
        sender=Sender(sender_id="synapse-claude-8100", sender_type="claude"),
        sender_verified=True,
        reply_to=ReplyTo(task_id=""),
        note="n" * 5000,
        attention="look at it",
        reason="r",
        parent_id="p",
    )

    assert encode.task_row(task, agent_name) == {
        "id": TASK_ID,
        "agent": "ada",
        "agent_id": "synapse-codex-8120",
        "from": "synapse-claude-8100",
        "from_agent": "synapse-claude-8100",
        "text": "x" * 300,
        "answer": "asks back",
        "state": "working",
        "receipt": "queued",
        "receipts": [{"step": "queued", "at": "2026-01-15T10:30:00.000Z", "source": "journal"}],
        "priority": 3,
        "created_at": "2026-01-15T10:30:00.000Z",
        "updated_at": "2026-01-15T10:30:05.123Z",
        "reply_expected": True,
        "waits_for": "",
        "parent_id": "p",
        "context_id": "c-1",
        "asks": False,
        "reason": "r",
        "note": "n" * 2000,
        "attention": "look at it",
        "files": 0,
    }


def test_a_row_says_whose_answer_a_task_only_waits_for() -> None:
    asked = WaitTarget(agent_id="synapse-claude-8100", inbox="claude")

    assert encode.task_row(a_task(waits_for=asked, queued=False), agent_name)["waits_for"] == "synapse-claude-8100"
    assert encode.task_row(a_task(waits_for=asked, queued=True), agent_name)["waits_for"] == ""


@pytest.mark.parametrize(
    ("sender", "verified", "user", "name", "agent"),
    [
        (PERSON, True, "", "user", ""),
        (SYSTEM, True, "", "synapse-system", ""),
        (PERSON, False, "dashboard", "key.dashboard", ""),
        ("synapse-claude-8100", False, "", "unverified.synapse-claude-8100", ""),
        ("synapse-claude-8100", True, "", "synapse-claude-8100", "synapse-claude-8100"),
    ],
)
def test_only_a_proven_agent_is_named_as_one(sender: str, verified: bool, user: str, name: str, agent: str) -> None:
    row = encode.task_row(a_task(sender=Sender(sender_id=sender), sender_verified=verified, user=user), agent_name)

    assert (row["from"], row["from_agent"]) == (name, agent)


def test_a_row_says_that_the_agent_asks_and_what_it_has_answered() -> None:
    question = Question(id="q", kind=QuestionKind.PERMISSION, title="Run?")
    asking = a_task(state=TaskState.INPUT_REQUIRED, reason=WAITING_FOR_PERSON, last_question=question)
    chunks = Artifact(artifact_id="r", parts=(TextPart(text="one, "), TextPart(text="two")))

    assert encode.task_row(asking, agent_name)["asks"] is True
    assert encode.task_row(a_task(artifacts=(chunks,)), agent_name)["answer"] == "one, two"


def test_files_have_numbers_and_sizes_in_place_of_bytes() -> None:
    call = ask("task", taskId=TASK_ID)
    assert isinstance(call, Call)
    told = json.loads(call.encode(WITH_FILES))

    parts = [part for message in told["task"]["history"] for part in message["parts"]]
    parts += [part for artifact in told["task"]["artifacts"] for part in artifact["parts"]]
    files = [part["file"] for part in parts if part["type"] == "file"]
    assert files[0] == {"name": "a.png", "mimeType": "image/png", "number": files[0]["number"], "size": 4}
    assert files[1]["size"] == len(b"<script>")
    assert files[2] == {"name": "b", "uri": "https://example.com/b", "number": 3}
    assert told["row"]["files"] == 4
    assert "bytes" not in json.dumps(told)


@pytest.mark.parametrize(
    ("number", "kind", "disposition"),
    [
        ("1", b"image/png", "inline; filename=\"a.png\"; filename*=UTF-8''a.png"),
        ("2", b"application/octet-stream", "attachment; filename=\"x_b_.html\"; filename*=UTF-8''x%3Cb%3E.html"),
        ("4", b"image/png", "inline; filename=\"a.png\"; filename*=UTF-8''a.png"),
    ],
)
def test_a_file_is_shown_only_if_it_is_an_image(number: str, kind: bytes, disposition: str) -> None:
    call = ask("file", taskId=TASK_ID, number=number)
    assert isinstance(call, Call)
    assert call.answer is not None
    told = call.answer(WITH_FILES)

    headers = dict(told.headers)
    assert (told.status, told.media_type) == (200, kind)
    assert headers[b"content-disposition"] == disposition.encode()
    assert headers[b"x-content-type-options"] == b"nosniff"
    assert b"sandbox" in headers[b"content-security-policy"]
    assert headers[b"cache-control"] == b"no-store"


@pytest.mark.parametrize("number", ["0", "3", "5", "-1", "1e1", "one", "9" * 40])
def test_a_file_that_is_not_here_is_not_found(number: str) -> None:
    call = ask("file", taskId=TASK_ID, number=number)
    assert isinstance(call, Call)
    assert call.answer is not None

    with pytest.raises(NotFound):
        call.answer(WITH_FILES)


@pytest.mark.parametrize("media_type", ["image/svg+xml", "IMAGE/PNG\r\nset-cookie: a=b", "text/html", "", "image/png2"])
def test_no_other_media_type_reaches_a_header(media_type: str) -> None:
    task = a_task(history=(a_message(FilePart(content=b"x", name="\r\nx: y", media_type=media_type)),))

    told = encode.encode_file(task, number=1)

    assert told.media_type == b"application/octet-stream"
    assert dict(told.headers)[b"content-disposition"].startswith(b"attachment; ")
    assert not any(b"\r" in value or b"\n" in value for _, value in told.headers)


@pytest.mark.parametrize("name", ["", "/", "..", "\u202e\u200b", "\x00", "a/b/", "\ud800"])
def test_any_name_of_a_file_makes_a_valid_header(name: str) -> None:
    told = encode.encode_file(a_task(history=(a_message(FilePart(content=b"x", name=name)),)), number=1)

    assert b'filename="' in dict(told.headers)[b"content-disposition"]


def test_a_page_has_rows_the_next_cursor_and_the_total() -> None:
    call = ask("tasks")
    assert isinstance(call, Call)

    told = json.loads(call.encode(TaskPage((a_task(),), "c2", 7)))

    assert told == {"tasks": [encode.task_row(a_task(), agent_name)], "next_cursor": "c2", "total": 7}
    assert json.loads(call.encode(TaskPage((), "", 0, is_counted=False)))["total"] is None


def test_a_timeline_has_every_event_with_its_long_texts_cut() -> None:
    ids: dict[str, Any] = {"task_id": TaskId(TASK_ID), "at": AT}
    long = "y" * 5000
    events: list[TaskEvent] = [
        MessageAdded(**ids, message=a_message(TextPart(text=long), PNG)),
        MetadataChanged(**ids, metadata={"a": {"b": [long]}}),
        ReceiptChanged(**ids, step=ReceiptStep.TYPED, source="screen", evidence=long),
    ]
    recorded = tuple(Recorded(seq, one) for seq, one in enumerate(events, 5))

    told = json.loads(encode.encode_timeline(Timeline(task=WITH_FILES, events=recorded, next_after=7)))

    assert told["next_after"] == 7
    assert [one["seq"] for one in told["events"]] == [5, 6, 7]
    message, metadata, receipt = told["events"]
    assert (message["type"], message["at"]) == ("message_added", "2026-01-02T03:04:05.000Z")
    cut = message["message"]["parts"][0]["text"]
    assert (len(cut), cut[-1]) == (2000, "…")
    assert message["message"]["parts"][1]["file"]["size"] == 4
    assert len(metadata["metadata"]["a"]["b"][0]) == 2000
    assert len(receipt["evidence"]) == 2000


@pytest.mark.parametrize(
    ("of", "brief"),
    [
        (StateChanged, {"type": "state_changed", "status": "failed", "reason": "r", "note": "n"}),
        (MessageAdded, {"type": "message_added", "role": "user"}),
        (ArtifactAdded, {"type": "artifact_added", "artifact_id": "r", "append": True, "last_chunk": False}),
        (ReceiptChanged, {"type": "receipt_changed", "step": "typed", "source": "screen", "evidence": "e"}),
        (MetadataChanged, {"type": "metadata_changed", "keys": ["a", "b"]}),
        (AttentionChanged, {"type": "attention_changed", "attention": "x"}),
        (TaskHidden, {"type": "task_hidden"}),
        (TaskOpened, {"type": "task_opened"}),
    ],
)
def test_an_event_of_a_task_is_brief_and_has_its_position(of: type[TaskEvent], brief: dict[str, Any]) -> None:
    fields: dict[type, dict[str, Any]] = {
        StateChanged: {"state": TaskState.FAILED, "reason": "r", "note": "n"},
        MessageAdded: {"message": a_message()},
        ArtifactAdded: {"artifact": Artifact(artifact_id="r", parts=()), "append": True, "last_chunk": False},
        ReceiptChanged: {"step": ReceiptStep.TYPED, "source": "screen", "evidence": "e"},
        MetadataChanged: {"metadata": {"b": "secret", "a": None}},
        AttentionChanged: {"attention": "x"},
        TaskOpened: {
            "agent_id": "a",
            "inbox": "i",
            "context_id": "",
            "scope": "local",
            "dialect": "hub",
            "message": a_message(),
        },
    }
    happened = of(task_id=TaskId(TASK_ID), at=AT, **fields.get(of, {}))

    told = event(Update(9, happened, a_task()))

    row = encode.task_row(a_task(), agent_name)
    assert told == ("9", "task", {"seq": 9, "event": {**brief, "at": "2026-01-02T03:04:05.000Z"}, "task": row})


def test_the_other_events_of_the_overview() -> None:
    row = {"id": "ada", "state": "ready"}

    assert event(Overview(rows=(row,), cursor=4, at=AT)) == ("4", "overview", {"agents": [row], "cursor": 4})
    assert event(RowChanged(row=row)) == ("", "agent", {"agent": row})
    assert event(RowRemoved(agent="ada")) == ("", "gone", {"id": "ada"})
    assert event(EventsMissed(cursor=9)) == ("9", "resync", {})
    assert event(StreamAlive(at=AT, cursor=9)) == ("9", "ping", {"at": "2026-01-02T03:04:05.000Z"})
    assert EVENTS.encode(Update(1, None, a_task())) is None


def test_the_overview_and_one_agent() -> None:
    row = {"id": "ada"}

    assert json.loads(encode.encode_overview(Overview(rows=(row,), cursor=4, at=AT))) == {
        "agents": [row],
        "cursor": 4,
        "at": "2026-01-02T03:04:05.000Z",
    }
    assert json.loads(encode.encode_agent(AgentOverview(row=row, status={"state": "ready"}))) == {
        "agent": row,
        "status": {"state": "ready"},
    }


def test_a_screen_has_its_version_as_etag_and_is_sent_once() -> None:
    call = ask("screen", agentId="ada")
    assert isinstance(call, Call)
    assert call.answer is not None
    assert call.encode_error is not None
    shown, same = call.answer({"version": "7", "lines": []}), call.answer(None)

    assert (shown.status, dict(shown.headers)[b"etag"]) == (200, b'"7"')
    assert json.loads(shown.body) == {"version": "7", "lines": []}
    assert (same.status, same.body) == (304, b"")
    assert call.encode_error(UnsupportedOperation("no terminal")).status == 404
    assert call.encode_error(TaskNotFound("t")).status == 404
    assert call.encode_error(RateLimited("slow", seconds=1)).status == 429


def test_a_stream_of_one_task_begins_with_the_whole_task() -> None:
    first = encode.encode_task_update(Update(3, None, WITH_FILES))
    ended = StateChanged(task_id=TaskId(TASK_ID), at=AT, state=TaskState.COMPLETED)
    then = encode.encode_task_update(Update(4, ended, WITH_FILES))

    assert (first.id, first.name, then.id, then.name) == ("3", "snapshot", "4", "state_changed")
    assert json.loads(first.data)["task"]["id"] == TASK_ID
    assert json.loads(then.data)["event"]["status"] == "completed"
    assert b"bytes" not in first.data + then.data


@pytest.mark.parametrize("kind", ALL_ERRORS, ids=lambda kind: kind.__name__)
def test_every_error_has_a_code_a_sentence_and_a_hint(kind: type[SynapseError]) -> None:
    told = encode.encode_error(blank(kind))

    assert json.loads(told.body)["error"].keys() >= {"code", "message", "hint"}
    assert told.status in HTTP_STATUS.values()
    assert (b"cache-control", b"no-store") in told.headers


def test_who_answered_first_is_told() -> None:
    gone = QuestionGone("answered")
    gone.answered_by = "person"

    told = encode.encode_error(gone)

    assert (told.status, json.loads(told.body)["error"]["answered_by"]) == (409, "person")
    assert "answered_by" not in json.loads(encode.encode_error(TaskNotFound("t")).body)["error"]
    assert dict(encode.encode_error(RateLimited("slow", seconds=3)).headers)[b"retry-after"] == b"3"


HOSTILE = "<img src=x onerror=alert(1)>\u202e\u200b\x1b[2J</script>\ud800"


def test_hostile_texts_stay_texts_in_valid_json() -> None:
    task: Task = a_task(history=(a_message(text=HOSTILE),), note=HOSTILE, metadata={HOSTILE: HOSTILE})

    told = event(Update(1, MetadataChanged(task_id=task.id, at=AT, metadata={HOSTILE: 1}), task))[2]

    assert told["task"]["text"].startswith("<img src=x onerror=alert(1)>\u202e\u200b\x1b[2J")
    assert json.loads(encode.encode_task(task, agent_name=agent_name))["task"]["id"] == TASK_ID


@pytest.mark.parametrize(
    "away",
    [
        MachineAway("box2", "noon", hint="send it again with the header `Synapse-Queue: true`"),
        from_wire({"code": "machine_away", "message": "the machine box2 is away (since noon)"}),  # without its fields
    ],
)
def test_a_person_is_told_to_try_again_when_the_machine_is_back(away: SynapseError) -> None:
    told = json.loads(encode.encode_error(away).body)["error"]

    assert told["message"] == "the machine box2 is away (since noon)"
    assert "again when the machine is back" in told["hint"]
    assert not any(word in told["hint"] for word in ("header", "send --queue"))
