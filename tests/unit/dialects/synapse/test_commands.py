"""Commands of a gateway to a host: both ends agree, and no caller gets more rights than the gateway gave it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import pytest

from synapse.core.agent import WAITING
from synapse.core.caller import Caller
from synapse.core.driver import AgentStatus
from synapse.core.errors import FeedLagged, InvalidField, InvalidRequest, SynapseError, TaskNotFound
from synapse.core.message import DataPart, FilePart, Message, MessageId, Role, Sender, TextPart
from synapse.core.push import PushConfig
from synapse.core.requests import (
    AnswerQuestion,
    CancelTask,
    ChangeTask,
    CommandResult,
    DeletePushConfig,
    DeleteTask,
    GetPushConfig,
    HostCommand,
    ListPushConfigs,
    OnBehalfOf,
    ResolveTask,
    SendMessage,
    SetPushConfig,
    VoidMessage,
)
from synapse.core.task import TaskState
from synapse.dialects.dialect import WireRequest
from synapse.dialects.synapse import commands
from synapse.dialects.synapse.encode import encode_agent_status
from tests.unit.dialects.all_errors import ALL_ERRORS
from tests.unit.dialects.error_samples import BARE, SAMPLES

CALLER = Caller(
    scope="key:7", sees_all=True, actions=frozenset({"read", "send"}), agents=frozenset({"ada"}), name="laptop"
)
CONFIG = PushConfig(id="c", url="https://example.com", token="t", scheme="bearer", credentials="x", dialect="a2a_v1")
PARTS = (
    TextPart(text="hällo", name="n", media_type="text/plain", metadata={"a": [1, None]}),
    FilePart(content=b"\0\xff", name="f.bin", media_type="application/octet-stream"),
    FilePart(url="https://example.com/f"),
    DataPart(data={"deep": {"er": [True, 1.5]}}),
    DataPart(data=None),
)
MESSAGE = Message(
    message_id=MessageId("m-1"),
    role=Role.USER,
    parts=PARTS,
    metadata={"k": "v"},
    extensions=("urn:x",),
    reference_task_ids=("t-0",),
)
REQUESTS: list[HostCommand] = [
    SendMessage(message=MESSAGE, dialect="a2a_v1"),
    SendMessage(
        message=MESSAGE,
        dialect="supervisor",
        priority=5,
        sender=Sender(sender_id="user", sender_type="user", sender_endpoint="e"),
        response_expected=True,
        sender_task_id="s",
        in_reply_to="r",
        context_id="c",
        task_id="t",
        exact=True,
        deadline=datetime(2027, 1, 2, 3, 4, 5, 678000, tzinfo=UTC),
        metadata={"request": {"customField": 1}},
        parent_id="p",
        push=CONFIG,
    ),
    VoidMessage(message_id="m-1", opens="0190a6c2-7d1e-7c3a-8f00-1234567890ab", expired=True),
    VoidMessage(message_id="m-1", opens="0", sender=Sender(sender_id="key.k4"), context_id="c", gateway_scope="key:4"),
    CancelTask("t", exact=True),
    ResolveTask(task_id="t", verdict="retry"),
    AnswerQuestion(task_id="t", verdict="allow", option="1", text="words"),
    ChangeTask(task_id="t", metadata={"a": None}, state=TaskState.CANCELED),
    DeleteTask(task_id="t"),
    SetPushConfig(task_id="t", config=CONFIG),
    GetPushConfig(task_id="t", config_id="c"),
    ListPushConfigs(task_id="t"),
    DeletePushConfig(task_id="t", config_id="c"),
]


def asked(body: bytes) -> OnBehalfOf:
    request = commands.ask(WireRequest("POST", commands.PATH, body=body)).request
    assert isinstance(request, OnBehalfOf)
    return request


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda one: type(one).__name__)
def test_a_command_arrives_as_it_was_sent(request_: HostCommand) -> None:
    assert asked(commands.encode_command(request_, CALLER)) == OnBehalfOf(CALLER, request_)


ON_LAPTOP = Caller(scope="machine:laptop", machine="laptop", remote_sender="synapse-claude-8100")


def test_a_command_for_a_caller_on_another_machine_arrives_as_it_was_sent() -> None:
    opens = "0190a6c2-7d1e-7c3a-8f00-1234567890ab"
    relayed = SendMessage(message=MESSAGE, dialect="synapse", opens=opens, waiting=("box2!codex", "claude"))

    assert asked(commands.encode_command(relayed, ON_LAPTOP)) == OnBehalfOf(ON_LAPTOP, relayed)


def test_hosts_of_earlier_versions_know_all_fields_of_commands_for_callers_here() -> None:
    body = json.loads(commands.encode_command(SendMessage(message=MESSAGE, dialect="a2a_v1"), CALLER))

    assert body["caller"].keys() == {"scope", "sees_all", "actions", "agents", "name"}
    assert not {"opens", "waiting"} & body["request"].keys()


def test_every_command_has_a_sample() -> None:
    assert {type(request) for request in REQUESTS} == set(get_args(HostCommand))


@pytest.mark.parametrize("field", ["agent_id", "pid", "via_socket"])
def test_a_command_cannot_make_its_caller_a_local_process(field: str) -> None:
    body = json.loads(commands.encode_command(CancelTask("t"), CALLER))
    body["caller"][field] = 1
    with pytest.raises(InvalidRequest, match=field):
        asked(json.dumps(body).encode())


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"nonsense",
        b"[]",
        b'{"caller": {"scope": "x"}, "request": {"type": "ResolveTask"}}',
        b'{"caller": {"scope": "x"}, "request": {}}',
        b'{"caller": {"scope": "x"}, "request": {"type": "SendMessage"}}',
        b'{"caller": {}, "request": {"type": "CancelTask", "task_id": "t"}}',
    ],
)
def test_a_body_that_is_not_a_command_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidRequest):
        asked(body)


@pytest.mark.parametrize(
    "done",
    [
        CommandResult(task_id="t", version=7, state="canceled", direct=True),
        CommandResult(result=CONFIG),
        CommandResult(result=(CONFIG, CONFIG)),
        CommandResult(result=()),
        CommandResult(),
    ],
    ids=str,
)
def test_the_result_of_a_command_arrives(done: CommandResult) -> None:
    assert commands.decode_result(commands.encode_result(done)) == done


@pytest.mark.parametrize("kind", ALL_ERRORS, ids=lambda kind: kind.__name__)
def test_every_error_is_raised_again_as_itself(kind: type[SynapseError]) -> None:
    error = kind.__new__(kind)
    SynapseError.__init__(error, "what was wrong", hint="what to do")

    again = commands.decode_failure(commands.encode_failure(error).body)

    assert (type(again), str(again), again.hint, again.code) == (kind, "what was wrong", "what to do", kind.code)


# What hosts have answered ever since there is `POST /commands`, to the byte: `status body` for each of the samples. A
# gateway may be older or newer than the host that it asks, so no line here may change; a new error adds its own.
RECORDED = Path(__file__).with_name("command_failures.txt").read_bytes().splitlines()
ALL_SAMPLES = [*sorted(SAMPLES, key=lambda error: error.code), *sorted(BARE, key=lambda error: error.code)]
WITH_RECORDS = pytest.mark.parametrize(
    ("error", "recorded"), [*zip(ALL_SAMPLES, RECORDED, strict=True)], ids=[error.code for error in ALL_SAMPLES]
)


@WITH_RECORDS
def test_every_error_is_encoded_as_in_earlier_versions(error: SynapseError, recorded: bytes) -> None:
    told = commands.encode_failure(error)

    assert b"%d %b" % (told.status, told.body) == recorded


@WITH_RECORDS
def test_every_error_of_another_version_is_understood(error: SynapseError, recorded: bytes) -> None:
    again = commands.decode_failure(recorded.partition(b" ")[2])

    assert (type(again), str(again), again.hint, again.code) == (type(error), str(error), error.hint, error.code)


@pytest.mark.parametrize(
    ("error", "fields"),
    [
        (InvalidField("a.b", "is missing"), {"field": "a.b", "why": "is missing"}),
        (FeedLagged(7), {"last_seq": 7}),
        (TaskNotFound("t"), {}),
    ],
)
def test_an_error_keeps_its_fields(error: SynapseError, fields: dict[str, Any]) -> None:
    again = commands.decode_failure(commands.encode_failure(error).body)

    assert str(again) == str(error)
    assert {name: getattr(again, name) for name in fields} == fields


def test_an_error_of_a_newer_host_is_an_error_with_its_code() -> None:
    told = {"error": {"code": "from_the_future", "message": "m", "hint": "h"}}

    error = commands.decode_failure(json.dumps(told).encode())

    assert (type(error), error.code, str(error), error.hint) == (SynapseError, "from_the_future", "m", "h")


@pytest.mark.parametrize("body", [b"", b"{}", b"\xff", b"[]"])
def test_an_invalid_answer_is_an_error_too(body: bytes) -> None:
    assert isinstance(commands.decode_failure(body), SynapseError)


def test_an_agents_status_survives_encoding_and_decoding() -> None:
    at = datetime(2026, 1, 15, 10, 30, 0, 250_000, UTC)
    status = AgentStatus(state=WAITING, why="asks: Deploy?\n", source="screen", since=at)

    event = encode_agent_status(status)

    assert (event.name, b"\n" in event.data) == ("status", False)
    assert commands.decode_agent_status(event.data) == status


@pytest.mark.parametrize("body", [b"", b"{}", b"\xff", b"[]", b'{"since": "today"}', b'{"state": 1}'])
def test_an_invalid_status_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"truncated|missing|malformed|Expected|Invalid"):
        commands.decode_agent_status(body)
