"""Whatever we say in A2A 1.0 is what the official SDK's protobuf types say, and the reverse.

The oracle reads strictly: a field that it does not know is an error.
"""

from __future__ import annotations

import json
import re
from typing import Any

from a2a.types import a2a_pb2
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message import Message as ProtoMessage
from hypothesis import given
from hypothesis import strategies as st

from synapse.core.events import Update
from synapse.core.message import Artifact, DataPart, FilePart, Message, Part, TextPart
from synapse.core.requests import SendAndWait, SendMessage
from synapse.core.store import TaskPage
from synapse.core.task import Task
from synapse.dialects.a2a_v1 import encode
from synapse.dialects.a2a_v1.encode import CardFacts, agent_card
from synapse.dialects.a2a_v1.routes import a2a_v1_dialect
from synapse.dialects.dialect import WireRequest
from tests.property.conversations import ARTIFACTS, MESSAGES, NAMES, PARTS, TASKS, TEXTS, updates
from tests.samples.tasks import a_task

RPC = a2a_v1_dialect().rpc
ROLES: Any = {"user": a2a_pb2.ROLE_USER, "agent": a2a_pb2.ROLE_AGENT}
MILLISECONDS = re.compile(r"(T\d\d:\d\d:\d\d)\.000Z")


def as_the_oracle_says_it(told: Any, message: ProtoMessage) -> Any:
    """Read our JSON with the SDK's type and let it tell the same."""
    return MessageToDict(ParseDict(told, message), preserving_proto_field_name=False)


def ours(encoded: bytes) -> Any:
    """Our JSON; a whole second has no fraction where protobuf writes it."""
    return json.loads(MILLISECONDS.sub(r"\1Z", encoded.decode()))


@given(task=TASKS)
def test_a_task_is_told_as_the_oracle_tells_it(task: Task) -> None:
    told = ours(encode.encode_task(task))

    assert as_the_oracle_says_it(told, a2a_pb2.Task()) == told


@given(task=TASKS)
def test_an_answer_to_a_message_is_told_as_the_oracle_tells_it(task: Task) -> None:
    told = ours(encode.encode_sent(task))

    assert as_the_oracle_says_it(told, a2a_pb2.SendMessageResponse()) == told


@given(update=updates())
def test_an_event_is_told_as_the_oracle_tells_it(update: Update) -> None:
    encoded = encode.encode_update(update)
    assert encoded is not None
    told = ours(encoded)

    assert as_the_oracle_says_it(told, a2a_pb2.StreamResponse()) == told


@given(tasks=st.lists(TASKS, max_size=2), token=TEXTS, size=st.integers(1, 100), total=st.integers(0, 10**6))
def test_a_page_is_read_by_the_oracle_as_it_was_meant(tasks: list[Task], token: str, size: int, total: int) -> None:
    page = TaskPage(tuple(tasks), token, total)
    told = ours(encode.encode_page(page, page_size=size, history_length=None, artifacts=True))
    read = ParseDict(told, a2a_pb2.ListTasksResponse())

    assert (read.next_page_token, read.page_size, read.total_size) == (token, size, total)
    assert [MessageToDict(task) for task in read.tasks] == told["tasks"]


@given(name=NAMES, url=NAMES)
def test_the_card_is_told_as_the_oracle_tells_it(name: str, url: str) -> None:
    facts = CardFacts(
        name=name,
        description="d",
        url=url,
        version="1",
        input_modes=("a",),
        output_modes=("b",),
        legacy_versions=("0.3",),
    )
    card = agent_card(facts)

    assert as_the_oracle_says_it(card, a2a_pb2.AgentCard()) == card


@given(message=MESSAGES, context_id=TEXTS, task_id=TEXTS, immediately=st.booleans(), snake=st.booleans())
def test_what_the_oracle_sends_is_understood(
    message: Message, context_id: str, task_id: str, immediately: bool, snake: bool
) -> None:
    spoken = proto_message(message)
    spoken.context_id, spoken.task_id = context_id, task_id
    request = a2a_pb2.SendMessageRequest(message=spoken)
    request.configuration.return_immediately = immediately

    understood = ask(MessageToDict(request, preserving_proto_field_name=snake))

    assert understood.message == message
    assert (understood.context_id, understood.task_id) == (context_id, task_id)


@given(message=MESSAGES)
def test_a_message_comes_back_as_it_was_sent(message: Message) -> None:
    told = encode.message_object(message, a_task())

    assert ask({"message": json.loads(json.dumps(told))}).message == message


@given(artifact=ARTIFACTS)
def test_an_artifact_is_read_by_the_oracle_as_it_was_meant(artifact: Artifact) -> None:
    read = ParseDict(json.loads(json.dumps(encode.artifact_object(artifact))), a2a_pb2.Artifact())

    assert (read.artifact_id, read.name, read.description) == (
        artifact.artifact_id,
        artifact.name,
        artifact.description,
    )
    assert list(read.parts) == [proto_part(part) for part in artifact.parts]


@given(part=PARTS)
def test_a_part_is_read_by_the_oracle_as_it_was_meant(part: Part) -> None:
    read = ParseDict(json.loads(json.dumps(encode.part_object(part))), a2a_pb2.Part())

    assert read == proto_part(part)


def proto_message(message: Message) -> a2a_pb2.Message:
    """The same message in the oracle's own type, made without any JSON of ours."""
    spoken = a2a_pb2.Message(
        message_id=message.message_id,
        role=ROLES[message.role.value],
        parts=[proto_part(part) for part in message.parts],
        extensions=message.extensions,
        reference_task_ids=message.reference_task_ids,
    )
    if message.metadata:
        spoken.metadata.update(dict(message.metadata))
    return spoken


def proto_part(part: Part) -> a2a_pb2.Part:
    spoken = a2a_pb2.Part(filename=part.name, media_type=part.media_type)
    if part.metadata:
        spoken.metadata.update(dict(part.metadata))
    match part:
        case TextPart():
            spoken.text = part.text
        case DataPart():
            ParseDict(part.data, spoken.data)
        case FilePart(content=bytes() as content):
            spoken.raw = content
        case FilePart():
            spoken.url = part.url
    return spoken


def ask(params: Any) -> SendMessage:
    assert RPC is not None
    request = RPC.methods["SendMessage"](json.dumps(params).encode(), WireRequest("POST", "/")).request
    assert isinstance(request, SendMessage | SendAndWait)
    return request.send if isinstance(request, SendAndWait) else request
