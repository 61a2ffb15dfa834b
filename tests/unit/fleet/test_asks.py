"""What links ask each other survives the wire, and what a newer version adds does no harm."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from synapse.core.errors import AgentNotFound, AmbiguousTarget, InvalidRequest
from synapse.core.message import DataPart, FilePart, TextPart
from synapse.fleet import asks
from synapse.fleet.log import RangeRequest, encode_log
from synapse.fleet.wire import UnreadableBody

ASKS = (
    asks.ResolveAgent(target="codex", queue=True),
    asks.ListRemoteAgents(),
    asks.ReadStatus(target="codex", sender="synapse-claude-8100", finished=3, known="v1", seconds=2.5),
    asks.ReadTask(task_id="0198", exact=True),
    asks.ReadMessage(message_id="m-1"),
    asks.ReadTasks(target="codex", states=("working",), limit=7, cursor="c"),
    asks.FollowRemoteTask(task_id="t", after=12, seconds=1.0),
    asks.FollowRemoteTasks(target="codex", after=12, seconds=1.0),
    asks.CancelRemoteTask(task_id="t", exact=True),
    asks.AnswerRemoteQuestion(task_id="t", verdict="allow", question_id="q"),
    asks.ResolveRemoteTask(task_id="t", verdict="retry"),
    asks.ReadScreen(target="codex", lines=3),
    asks.ReadQuestions(),
    asks.RunCommand(body=b"{}", target="codex"),
    asks.FollowForCaller(task_id="t", caller={"scope": "key:1"}, after=12, seconds=1.0),
)
ANSWERS = (
    asks.AgentResolved(agent={"agent_id": "synapse-codex-8120"}),
    asks.AgentsListed(agents=({"agent_id": "synapse-codex-8120", "state": "ready"},)),
    asks.StatusRead(status=None, version="v1", may_attach=False),
    asks.TaskRead(task="{}", seq=4),
    asks.TasksListed(tasks=("{}",), next_cursor="n", total=2),
    asks.EventsRead(events=(asks.EventText(5, "[]"),), more=True),
    asks.UpdatesRead(seq=5, updates=(asks.UpdateText(5, "t", "[]", "{}"),), more=True, left_out=1),
    asks.ScreenRead(screen={"lines": []}),
    asks.QuestionsListed(questions=({"id": "q"},)),
    asks.CommandDone(body=b"{}"),
)


@pytest.mark.parametrize("ask", ASKS, ids=lambda ask: type(ask).__name__)
def test_an_ask_is_read_as_it_was_written(ask: Any) -> None:
    assert asks.decode_ask(asks.encode_ask(ask)) == ask


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: type(answer).__name__)
def test_an_answer_is_read_as_it_was_written(answer: Any) -> None:
    assert asks.decode_answer(asks.encode_answer(answer)) == answer


def test_a_request_about_the_log_is_an_ask_too() -> None:
    request = RangeRequest(machine="box2")

    assert asks.decode_ask(encode_log(request)) == request


def test_fields_of_a_newer_version_are_ignored() -> None:
    body = msgspec.msgpack.encode({"type": "task", "task_id": "t", "since_1_9": [1, 2]})

    assert asks.decode_ask(body) == asks.ReadTask(task_id="t")


def test_a_type_of_a_newer_version_is_refused_with_what_to_do() -> None:
    body = msgspec.msgpack.encode({"type": "teleport", "task_id": "t"})

    with pytest.raises(UnreadableBody) as refused:
        asks.decode_ask(body)

    error = asks.unreadable(refused.value).as_error
    assert isinstance(error, InvalidRequest)
    assert "teleport" in str(error)
    assert "update Synapse" in error.hint


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x81", b"null", msgspec.msgpack.encode({"type": "task"})])
def test_damaged_bytes_are_no_ask(body: bytes) -> None:
    with pytest.raises(UnreadableBody):
        asks.decode_ask(body)


def test_an_error_keeps_its_class_and_its_fields() -> None:
    answer = asks.decode_answer(asks.encode_answer(asks.failed(AmbiguousTarget("codex", ["codex-1", "codex-2"]))))

    assert isinstance(answer, asks.AskFailed)
    error = answer.as_error
    assert isinstance(error, AmbiguousTarget)
    assert error.candidates == ("codex-1", "codex-2")
    assert not isinstance(error, AgentNotFound)


def test_a_message_keeps_every_kind_of_part() -> None:
    parts = (
        TextPart(text="", name="empty"),
        DataPart(data=None),
        DataPart(data={"a": [1]}, metadata={"k": 1}),
        FilePart(content=b"\x00\xff", name="f.bin", media_type="application/octet-stream"),
        FilePart(url="https://example.org/f"),
    )
    body = asks.SendBody(parts=asks.part_bodies(parts), sender="synapse-claude-8100", ttl=3.5)

    read = asks.decode_send_body(asks.encode_send_body(body))

    assert read == body
    assert asks.message_of(read, "m-1").parts == parts


def test_no_answer_is_an_empty_one() -> None:
    assert asks.decode_answer_body(b"") == asks.AnswerBody()
