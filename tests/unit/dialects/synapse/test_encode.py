"""How the synapse dialect encodes tasks, events, the status and errors: as in the contract's examples."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, get_args

import pytest

from synapse.core import errors
from synapse.core.agent import AGENT_STATES, AgentEntry
from synapse.core.driver import AgentView, Hold, HoldReason, Observation
from synapse.core.errors import AmbiguousTask, MethodNotAllowed, SynapseError, TaskNotFound, Unauthenticated
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
from synapse.core.message import Artifact, DataPart, FilePart, Part, TextPart
from synapse.core.overview import Run, StyledScreen
from synapse.core.question import Option, Question, QuestionKind, question_fields
from synapse.core.requests import ExternalAgent, ExternalAnswer, HostStatus, McpState, Replied, ToolsStatus, ToolsWay
from synapse.core.store import TaskPage
from synapse.core.task import Receipt, ReceiptStep, TaskState
from synapse.dialects.proto_json import instant, to_json
from synapse.dialects.synapse import encode
from synapse.dialects.synapse.encode import BUSY_WORDS, encode_error, encode_update
from synapse.dialects.task_json import (
    HTTP_STATUS,
    STATE_NAMES,
    artifact_object,
    http_status,
    message_object,
    task_object,
)
from tests.unit.dialects.all_errors import ALL_ERRORS, blank
from tests.unit.dialects.synapse.samples import CREATED, SENDER, UPDATED, a_message, a_task


def test_a_task_is_the_object_of_the_readme() -> None:
    wire = task_object(a_task())

    assert wire == {
        "id": "550e8400-e29b-41d4-a716-446655440000",
        "context_id": "conversation-123",
        "status": "working",
        "message": {"role": "user", "parts": [{"type": "text", "text": "この設計をレビューして"}]},
        "artifacts": [],
        "metadata": {"sender": SENDER, "priority": 3},
        "created_at": "2024-01-15T10:30:00.000Z",
        "updated_at": "2024-01-15T10:30:05.000Z",
    }


def test_every_state_has_a_word_of_the_contract() -> None:
    words = {"submitted", "working", "input_required", "completed", "failed", "canceled"}

    assert set(STATE_NAMES) == set(TaskState)
    assert set(STATE_NAMES.values()) == words


def test_states_without_a_name_of_their_own_have_the_nearest_name() -> None:
    assert task_object(a_task(state=TaskState.AUTH_REQUIRED))["status"] == "input_required"
    assert task_object(a_task(state=TaskState.REJECTED))["status"] == "failed"


def test_every_agent_state_is_idle_or_busy_and_only_ready_is_idle() -> None:
    assert set(BUSY_WORDS) == set(AGENT_STATES)
    assert [state for state, word in BUSY_WORDS.items() if word == "IDLE"] == ["ready"]


def test_a_task_without_a_context_has_null() -> None:
    assert task_object(a_task(context_id=""))["context_id"] is None


def test_the_receipts_of_a_message_are_in_the_metadata() -> None:
    receipts = (
        Receipt(step=ReceiptStep.QUEUED, at=CREATED, source="journal"),
        Receipt(step=ReceiptStep.TYPED, at=UPDATED, source="pty", evidence="prompt empty"),
    )

    metadata = task_object(
        a_task(receipts=receipts, priority=5, reason="expired", note="too late", attention="was it typed?")
    )["metadata"]

    assert metadata == {
        "sender": SENDER,
        "priority": 5,
        "receipt": "typed",
        "receipts": [
            {"step": "queued", "at": "2024-01-15T10:30:00.000Z", "source": "journal", "evidence": ""},
            {"step": "typed", "at": "2024-01-15T10:30:05.000Z", "source": "pty", "evidence": "prompt empty"},
        ],
        "reason": "expired",
        "note": "too late",
        "attention": "was it typed?",
    }


def test_a_caller_cannot_forge_priority_and_receipts() -> None:
    task = a_task(metadata={"priority": 1, "receipt": "answered"}, priority=4, receipts=(_queued(),))

    metadata = task_object(task)["metadata"]

    assert metadata["priority"] == 4
    assert metadata["receipt"] == "queued"


def test_later_messages_are_in_the_history() -> None:
    task = a_task(history=(a_message(text="one"), a_message(text="two")))

    wire = task_object(task)

    assert wire["message"]["parts"][0]["text"] == "one"
    assert [message["parts"][0]["text"] for message in wire["history"]] == ["one", "two"]


@pytest.mark.parametrize(
    ("part", "wire"),
    [
        (TextPart(text="a"), {"type": "text", "text": "a"}),
        (DataPart(data={"x": [1, None]}), {"type": "data", "data": {"x": [1, None]}}),
        (
            FilePart(content=b"%PDF", name="doc.pdf", media_type="application/pdf"),
            {"type": "file", "file": {"name": "doc.pdf", "mimeType": "application/pdf", "bytes": "JVBERg=="}},
        ),
        (FilePart(url="https://x/y"), {"type": "file", "file": {"uri": "https://x/y"}}),
        (FilePart(content=b""), {"type": "file", "file": {"bytes": ""}}),
        (
            TextPart(text="a", name="n", media_type="text/markdown", metadata={"k": 1}),
            {"type": "text", "text": "a", "name": "n", "mimeType": "text/markdown", "metadata": {"k": 1}},
        ),
    ],
)
def test_parts_look_as_in_the_contract(part: Part, wire: dict[str, Any]) -> None:
    message = replace(a_message(part), metadata={"m": True})

    assert message_object(message) == {"role": "user", "parts": [wire], "metadata": {"m": True}}


def test_an_answer_is_an_artifact_that_says_where_it_is_from() -> None:
    artifact = Artifact(
        artifact_id="a1",
        parts=(TextPart(text="done"),),
        name="answer",
        description="what it said",
        metadata={"source": "screen", "inferred": True},
    )

    wire = task_object(a_task(artifacts=(artifact,)))["artifacts"]

    assert wire == [
        {
            "artifact_id": "a1",
            "name": "answer",
            "parts": [{"type": "text", "text": "done"}],
            "metadata": {"source": "screen", "inferred": True},
            "description": "what it said",
        }
    ]


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC), "2026-01-02T03:04:05.678Z"),
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "2026-01-02T03:04:05.000Z"),
        (datetime(2026, 1, 2, 3, 4, 5, 999, tzinfo=UTC), "2026-01-02T03:04:05.000Z"),
        (datetime(2026, 1, 2, 3, 4, 5, 1000, tzinfo=timezone(timedelta(hours=9))), "2026-01-01T18:04:05.001Z"),
        (datetime(999, 1, 1, tzinfo=UTC), "0999-01-01T00:00:00.000Z"),
    ],
)
def test_times_are_rfc_3339_in_utc_with_milliseconds(at: datetime, text: str) -> None:
    assert instant(at) == text


def test_answers_to_sending_wrap_the_task_and_reading_gives_it_bare() -> None:
    task = a_task()

    assert json.loads(encode.encode_task_answer(task)) == {"task": task_object(task)}
    assert json.loads(encode.encode_task(task)) == task_object(task)


def test_a_page_has_the_cursor_of_the_next_one() -> None:
    page = TaskPage((a_task(),), "c2", 7)

    assert json.loads(encode.encode_page(page)) == {"tasks": [task_object(a_task())], "next_cursor": "c2"}


def test_the_answer_to_a_reply_names_the_task_and_the_agent() -> None:
    assert json.loads(encode.encode_replied(Replied(task_id="t", to="synapse-claude-8100"))) == {
        "replied": {"task_id": "t", "to": "synapse-claude-8100"}
    }


@pytest.mark.parametrize(
    ("reason", "is_overdue", "items"),
    [
        (HoldReason.PERSON, False, 0),
        (HoldReason.PERSON, True, 1),
        # These have an item of their own: the question, and the task in doubt.
        (HoldReason.DIALOG, True, 0),
        (HoldReason.IN_DOUBT, True, 0),
    ],
)
def test_the_status_says_why_messages_wait(reason: HoldReason, *, is_overdue: bool, items: int) -> None:
    held = Hold(
        reason=reason, why="a person types", since=CREATED, messages=2, task_id="t-1", hint="ask", is_overdue=is_overdue
    )
    status = HostStatus(entry=_entry(), view=_view(), current=None, queue=(), attention=(), held=held)

    wire = json.loads(encode.encode_status(status))

    assert wire["held"] == {
        "reason": reason.value,
        "why": "a person types",
        "hint": "ask",
        "since": "2024-01-15T10:30:00.000Z",
        "messages": 2,
        "task_id": "t-1",
        "overdue": is_overdue,
    }
    item = {"task_id": "t-1", "text": "a person types", "receipt": "queued", "held": reason.value}
    assert wire["attention"] == [item] * items


def test_the_status_says_idle_or_busy_and_how_that_is_known() -> None:
    waiting = a_task(attention="was it typed?")
    status = HostStatus(entry=_entry(), view=_view(), current=waiting, queue=(waiting, waiting), attention=(waiting,))

    wire = json.loads(encode.encode_status(status))

    assert wire == {
        "status": "BUSY",
        "state": "working",
        "why": "a spinner",
        "source": "screen",
        "since": "2024-01-15T10:30:00.000Z",
        "gate": "the prompt is not empty",
        "agent_id": "synapse-codex-8120",
        "agent_type": "codex",
        "name": "reviewer",
        "port": 8120,
        "pid": 42,
        "socket": "s.sock",
        "endpoint": "http://localhost:8120",
        "working_dir": "/proj",
        "started_at": "2024-01-15T10:30:00.000Z",
        "current_task": task_object(waiting),
        "queue_depth": 2,
        "held": None,
        "attention": [
            {
                "task_id": waiting.id,
                "text": "was it typed?",
                "receipt": "",
                "since": "2024-01-15T10:30:05.000Z",
                "from": waiting.sender_name,
                "message": waiting.message.text,
            }
        ],
        "owes": [],
        "question": None,
        "questions": [],
        "store_fault": "",
        "usage": None,
        "tools": {
            "way": "none",
            "mcp": "off",
            "client": "",
            "protocol": "",
            "since": None,
            "why": "it runs no model of a CLI here",
        },
        "conversation": None,
        "sightings": [{"source": "screen", "state": "working", "detail": "spinner", "at": "2024-01-15T10:30:05.000Z"}],
    }


def test_the_status_has_what_the_agent_owes_and_what_ended_if_that_was_asked_for() -> None:
    owed, ended = a_task(), a_task(state=TaskState.COMPLETED)
    status = HostStatus(
        entry=_entry(), view=_view(), current=None, queue=(), attention=(), owes=(owed,), finished=(ended,)
    )

    told = json.loads(encode.encode_status(status))

    assert told["owes"] == [{"task_id": owed.id, "to": owed.sender_name, "text": owed.message.text}]
    assert told["finished"] == [task_object(ended)]
    event = encode.encode_watched_status(status)
    assert (event.id, event.name, json.loads(event.data)) == ("", "status", told)


def test_a_screen_has_its_version_and_runs_with_only_what_is_not_usual() -> None:
    screen = StyledScreen(
        version="7.3",
        columns=80,
        rows=2,
        cursor=(1, 4),
        alternate=True,
        title="<b>",
        lines=((Run("plain"), Run("red", {"fg": 1, "b": 1})), ()),
    )

    answer = encode.answer_screen(screen)

    assert (answer.status, dict(answer.headers)[b"etag"]) == (200, b'"7.3"')
    assert json.loads(answer.body) == {
        "version": "7.3",
        "columns": 80,
        "rows": 2,
        "cursor": [1, 4],
        "alternate": True,
        "title": "<b>",
        "lines": [[["plain"], ["red", {"fg": 1, "b": 1}]], []],
    }
    assert encode.answer_screen(None)[:2] == (304, b"")


def test_an_agent_without_a_terminal_has_no_screen() -> None:
    assert encode.encode_screen_error(errors.UnsupportedOperation("no terminal")).status == 404
    assert encode.encode_screen_error(errors.Forbidden("not yours")).status == 403


def test_the_status_says_which_tools_the_agent_has() -> None:
    tools = ToolsStatus(
        way=ToolsWay.MCP, mcp=McpState.LISTED, client="claude-code 2.1", protocol="2026-07-28", since=_view().since
    )
    status = HostStatus(entry=_entry(), view=_view(), current=None, queue=(), attention=(), tools=tools)

    told = json.loads(encode.encode_status(status))

    assert told["tools"] == {
        "way": "mcp",
        "mcp": "listed",
        "client": "claude-code 2.1",
        "protocol": "2026-07-28",
        "since": told["since"],
        "why": "",
    }


def test_the_status_of_an_agent_without_work_has_no_task() -> None:
    status = HostStatus(entry=_entry(), view=_view(), current=None, queue=(), attention=())

    assert json.loads(encode.encode_status(status))["current_task"] is None


QUESTION = Question(
    id="q-1", kind=QuestionKind.STARTUP, title="Trust this folder?", options=(Option(key="1", label="Yes"),)
)


def test_a_question_at_the_start_counts_as_attention_and_belongs_to_no_task() -> None:
    view = replace(_view(), state="waiting", question=QUESTION)
    status = HostStatus(entry=_entry(), view=view, current=None, queue=(), attention=())

    wire = json.loads(encode.encode_status(status))

    assert wire["question"] == {
        "id": "q-1",
        "kind": "startup",
        "title": "Trust this folder?",
        "detail": "",
        "options": [{"key": "1", "label": "Yes", "leaning": "other"}],
        "takes_text": False,
        "source": "screen",
        "hint": "",
        "asked_at": "2024-01-15T10:30:00.000Z",
        "task_id": "",
    }
    assert wire["attention"] == [{"task_id": "", "text": "Trust this folder?", "receipt": "", "question_id": "q-1"}]


def test_a_question_in_a_turn_names_its_task() -> None:
    recorded = {"question": {**question_fields(QUESTION), "asked_at": "2024-01-15T10:31:00.000Z"}}
    asking = a_task(
        metadata=recorded, last_question=QUESTION, state=TaskState.INPUT_REQUIRED, reason="waiting_for_person"
    )
    status = HostStatus(entry=_entry(), view=_view(), current=asking, queue=(), attention=(), asking=asking)

    question = json.loads(encode.encode_status(status))["question"]

    assert (question["task_id"], question["asked_at"]) == (asking.id, "2024-01-15T10:31:00.000Z")


def test_a_question_that_the_task_does_not_tell_of_yet_names_its_task_too() -> None:
    view = replace(_view(), state="waiting", question=QUESTION)
    status = HostStatus(entry=_entry(), view=view, current=a_task(), queue=(), attention=(), asking=a_task())

    question = json.loads(encode.encode_status(status))["question"]

    assert (question["task_id"], question["title"]) == (a_task().id, "Trust this folder?")


def test_the_answer_to_a_question_has_the_task_that_goes_on_if_there_is_one() -> None:
    assert json.loads(encode.encode_answered(a_task())) == {"task": task_object(a_task())}
    assert json.loads(encode.encode_answered(None)) == {"task": None}


def test_the_queue_lists_the_waiting_tasks() -> None:
    status = HostStatus(entry=_entry(), view=_view(), current=None, queue=(a_task(),), attention=())

    assert json.loads(encode.encode_queue(status)) == {"tasks": [task_object(a_task())]}


def test_external_agents_are_listed_without_their_cards() -> None:
    other = ExternalAgent(alias="other", url="http://other-agent:9000", name="Other", card={"big": 1})
    wire = {
        "alias": "other",
        "url": "http://other-agent:9000",
        "name": "Other",
        "description": "",
        "protocol": "synapse",
        "added_at": "",
    }

    assert json.loads(encode.encode_external(other)) == {"agent": wire}
    assert json.loads(encode.encode_externals((other,))) == {"agents": [wire]}


def test_an_external_answer_keeps_the_other_sides_text() -> None:
    answer = ExternalAnswer(alias="other", task_id="t", state="TASK_STATE_COMPLETED", text="done", raw={"id": "t"})

    assert json.loads(encode.encode_external_answer(answer)) == {
        "answer": {
            "alias": "other",
            "task_id": "t",
            "state": "TASK_STATE_COMPLETED",
            "text": "done",
            "raw": {"id": "t"},
        }
    }


def test_a_folder_whose_name_is_not_utf_8_does_not_spoil_the_answer() -> None:
    assert json.loads(to_json({"dir\udcff": ["/p\udcff", 1, None]})) == {"dir?": ["/p?", 1, None]}


def _queued() -> Receipt:
    return Receipt(step=ReceiptStep.QUEUED, at=CREATED, source="journal")


def _entry() -> AgentEntry:
    return AgentEntry(
        "synapse-codex-8120",
        "codex",
        name="reviewer",
        port=8120,
        pid=42,
        socket="s.sock",
        endpoint="http://localhost:8120",
        working_dir="/proj",
        started_at="2024-01-15T10:30:00.000Z",
    )


def _view() -> AgentView:
    observation = Observation(source="screen", state="working", detail="spinner", at=UPDATED)
    return AgentView(
        state="working",
        why="a spinner",
        source="screen",
        since=CREATED,
        gate="the prompt is not empty",
        observations=(observation,),
    )


TASK = a_task()
MESSAGE = a_message()
ARTIFACT = Artifact(artifact_id="a", parts=(TextPart(text="done"),))
EVENTS: list[tuple[TaskEvent, str, dict[str, Any]]] = [
    (
        TaskOpened(
            task_id=TASK.id,
            at=CREATED,
            agent_id=TASK.agent_id,
            inbox=TASK.inbox,
            context_id="c",
            scope="local",
            dialect="synapse",
            message=MESSAGE,
        ),
        "task_opened",
        {"message": message_object(MESSAGE)},
    ),
    (
        StateChanged(task_id=TASK.id, at=CREATED, state=TaskState.REJECTED, reason="r", note="n"),
        "state_changed",
        {"status": "failed", "reason": "r", "note": "n"},
    ),
    (
        MessageAdded(task_id=TASK.id, at=CREATED, message=MESSAGE),
        "message_added",
        {"message": message_object(MESSAGE)},
    ),
    (
        ArtifactAdded(task_id=TASK.id, at=CREATED, artifact=ARTIFACT, append=True, last_chunk=False),
        "artifact_added",
        {"artifact": artifact_object(ARTIFACT), "append": True, "last_chunk": False},
    ),
    (
        ReceiptChanged(task_id=TASK.id, at=CREATED, step=ReceiptStep.TYPED, source="pty", evidence="e"),
        "receipt_changed",
        {"step": "typed", "source": "pty", "evidence": "e"},
    ),
    (
        MetadataChanged(task_id=TASK.id, at=CREATED, metadata={"k": None}),
        "metadata_changed",
        {"metadata": {"k": None}},
    ),
    (
        AttentionChanged(task_id=TASK.id, at=CREATED, attention="look"),
        "attention_changed",
        {"attention": "look"},
    ),
    (TaskHidden(task_id=TASK.id, at=CREATED), "task_hidden", {}),
]


def test_a_snapshot_is_the_task_alone() -> None:
    event = encode_update(Update(17, None, TASK))

    assert (event.id, event.name) == ("17", "snapshot")
    assert json.loads(event.data) == {"task": task_object(TASK)}


@pytest.mark.parametrize(("happened", "name", "fields"), EVENTS, ids=[name for _, name, _ in EVENTS])
def test_an_event_has_its_name_and_the_task_after_it(happened: TaskEvent, name: str, fields: dict[str, Any]) -> None:
    event = encode_update(Update(18, happened, TASK))

    assert (event.id, event.name) == ("18", name)
    assert json.loads(event.data) == {
        "event": {"type": name, "at": "2024-01-15T10:30:00.000Z", **fields},
        "task": task_object(TASK),
    }


def test_every_event_of_the_core_has_a_name_here() -> None:
    assert {type(event) for event, _, _ in EVENTS} == set(get_args(TaskEvent))


def test_an_event_is_one_line_whatever_the_text() -> None:
    task = a_task(history=(a_message(text="one\ntwo\r\n\u2028three"),))

    assert len(encode_update(Update(1, None, task)).data.splitlines()) == 1


EXPECTED = {
    "BodyTooLarge": 413,
    "PriorityOutOfRange": 400,
    "AmbiguousTask": 400,
    "TaskNotFound": 404,
    "RouteNotFound": 404,
    "TaskNotCancelable": 409,
    "MessageIdReused": 409,
    "NothingAsked": 409,
    "QuestionGone": 409,
    "InvalidChoice": 400,
    "QueueFull": 429,
    "SenderMismatch": 403,
    "ForeignOrigin": 403,
    "Unauthenticated": 401,
    "StoreLocked": 503,
    "AgentNotResponding": 502,
    "InternalFailure": 500,
}


@pytest.mark.parametrize("kind", ALL_ERRORS, ids=lambda kind: kind.__name__)
def test_every_error_has_its_code_and_a_status(kind: type[SynapseError]) -> None:
    answer = encode_error(blank(kind))

    told = json.loads(answer.body)["error"]
    assert told == {"code": kind.code, "message": "what happened", "hint": kind.hint}
    assert 400 <= answer.status <= 599


@pytest.mark.parametrize("kind", ALL_ERRORS, ids=lambda kind: kind.__name__)
def test_only_the_root_and_our_own_defects_are_internal(kind: type[SynapseError]) -> None:
    assert (http_status(kind) == 500) == (kind.__name__ in ("SynapseError", "InternalFailure"))


@pytest.mark.parametrize(("name", "status"), EXPECTED.items())
def test_errors_have_the_statuses_of_the_contract(name: str, status: int) -> None:
    assert http_status(next(kind for kind in ALL_ERRORS if kind.__name__ == name)) == status


def test_codes_are_unique() -> None:
    codes = [kind.code for kind in ALL_ERRORS]

    assert len(set(codes)) == len(codes)


def test_an_error_without_a_status_gets_the_status_of_its_parent() -> None:
    class NewRefusal(errors.QueueFull):
        """Not known to the table."""

    assert NewRefusal not in HTTP_STATUS
    assert http_status(NewRefusal) == 429


def test_the_message_and_the_hint_are_those_of_the_error() -> None:
    told = json.loads(encode_error(AmbiguousTask("54", ["54241e7e", "54aa"])).body)["error"]

    assert told == {
        "code": "ambiguous_task",
        "message": "'54' fits more than one task",
        "hint": "use one of: 54241e7e, 54aa",
    }
    assert json.loads(encode_error(TaskNotFound("x")).body)["error"]["hint"] == ""


def test_the_error_of_a_wrong_method_names_the_allowed_ones() -> None:
    answer = encode_error(MethodNotAllowed("PUT", "/tasks", ["GET", "POST"]))

    assert (answer.status, answer.headers) == (405, ((b"allow", b"GET, POST"),))


def test_an_unauthenticated_caller_gets_the_challenge() -> None:
    assert encode_error(Unauthenticated()).headers == ((b"www-authenticate", b"Bearer"),)
