"""Whatever we say in A2A 0.3 is what the official SDK's types of that version say, in both forms, and the reverse."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

from a2a.compat.v0_3 import a2a_v0_3_pb2 as proto
from a2a.compat.v0_3 import types
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message import Message as ProtoMessage
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from synapse.core.events import ArtifactAdded, StateChanged, Update
from synapse.core.message import Message, TextPart
from synapse.core.requests import SendAndWait
from synapse.core.task import Task
from synapse.dialects.a2a_v0_3.encode import JSON_RPC, PROTO_JSON, CardFacts, agent_card
from synapse.dialects.a2a_v0_3.routes import a2a_v0_3_dialect
from synapse.dialects.dialect import CallRoute, WireRequest
from tests.property.conversations import MESSAGES, NAMES, TASKS, updates
from tests.unit.dialects.a2a_v0_3.samples import a_task

DIALECT = a2a_v0_3_dialect()
MILLISECONDS = re.compile(r"(T\d\d:\d\d:\d\d)\.000Z")
KINDS: dict[str, type[BaseModel]] = {
    "task": types.Task,
    "message": types.Message,
    "status-update": types.TaskStatusUpdateEvent,
    "artifact-update": types.TaskArtifactUpdateEvent,
}


def as_the_protobuf_says_it(encoded: bytes, message: ProtoMessage) -> tuple[Any, Any]:
    """Our JSON, and what the SDK makes of it; a field that it does not know is an error."""
    told = json.loads(MILLISECONDS.sub(r"\1Z", encoded.decode()))
    return told, MessageToDict(ParseDict(told, message))


def as_the_schema_says_it(encoded: bytes) -> tuple[Any, Any]:
    told = json.loads(encoded)
    model = KINDS[told["kind"]].model_validate(told)
    return told, model.model_dump(mode="json", by_alias=True, exclude_none=True)


@given(task=TASKS)
def test_rest_tells_a_task_as_the_oracle_does(task: Task) -> None:
    told, said = as_the_protobuf_says_it(PROTO_JSON.encode_task(task), proto.Task())
    assert told == said
    told, said = as_the_protobuf_says_it(PROTO_JSON.encode_sent(task), proto.SendMessageResponse())
    assert told == said


@given(update=updates(), ends=st.booleans())
def test_rest_tells_an_event_as_the_oracle_does(update: Update, ends: bool) -> None:
    encoded = PROTO_JSON.encode_update(update, ends_when_asked=ends)
    assert encoded is not None

    told, said = as_the_protobuf_says_it(encoded, proto.StreamResponse())
    assert told == said


@given(task=TASKS)
def test_json_rpc_tells_a_task_as_the_oracle_does(task: Task) -> None:
    for encoded in (JSON_RPC.encode_task(task), JSON_RPC.encode_sent(task)):
        told, said = as_the_schema_says_it(encoded)
        assert without_nulls(told) == without_nulls(said)


@given(update=updates(), ends=st.booleans())
def test_json_rpc_tells_an_event_as_the_oracle_does(update: Update, ends: bool) -> None:
    encoded = JSON_RPC.encode_update(update, ends_when_asked=ends)
    assert encoded is not None

    told, said = as_the_schema_says_it(encoded)
    assert without_nulls(told) == without_nulls(said)
    assert {type(update.event): told["kind"]} in (
        {StateChanged: "status-update"},
        {ArtifactAdded: "artifact-update"},
        {type(None): "task"},
        {type(None): "message"},
    )


@given(message=MESSAGES)
def test_a_message_comes_back_as_it_was_sent(message: Message) -> None:
    message = as_0_3_can_say_it(message)
    told = json.loads(json.dumps(JSON_RPC.message_object(message, a_task())))
    assert DIALECT.rpc is not None
    request = DIALECT.rpc.methods["message/send"](
        json.dumps({"message": told}).encode(), WireRequest("POST", "/")
    ).request

    assert isinstance(request, SendAndWait)
    assert request.send.message == message


@given(message=MESSAGES, snake=st.booleans())
def test_a_rest_message_comes_back_as_the_oracle_sends_it(message: Message, snake: bool) -> None:
    message = replace(as_0_3_can_say_it(message), reference_task_ids=())
    told = json.loads(json.dumps(PROTO_JSON.message_object(message, a_task())))
    spoken = proto.SendMessageRequest(request=ParseDict(told, proto.Message()))
    body = json.dumps(MessageToDict(spoken, preserving_proto_field_name=snake)).encode()
    route = next(route for route in DIALECT.routes if route.path == "/v1/message:send")
    assert isinstance(route, CallRoute)
    call = route.ask(WireRequest("POST", route.path, body=body))

    assert not isinstance(call, bytes)
    request = getattr(call, "request", None)
    assert isinstance(request, SendAndWait)
    assert request.send.message == message


@given(name=NAMES, url=NAMES)
def test_the_card_is_read_by_the_oracle(name: str, url: str) -> None:
    facts = CardFacts(name=name, description="d", url=url, version="1", input_modes=("a",), output_modes=("b",))
    card = agent_card(facts)

    assert types.AgentCard.model_validate(card).model_dump(mode="json", by_alias=True, exclude_none=True) == card


def as_0_3_can_say_it(message: Message) -> Message:
    """0.3 has names and media types only for files."""
    parts = tuple(part if hasattr(part, "content") else replace(part, name="", media_type="") for part in message.parts)
    return replace(message, parts=parts or (TextPart(text=""),))


def without_nulls(value: Any) -> Any:
    """The SDK leaves out what is null, also inside of free JSON."""
    if isinstance(value, dict):
        return {key: without_nulls(inner) for key, inner in value.items() if inner is not None}  # pyright: ignore[reportUnknownVariableType]  # any JSON
    return [without_nulls(inner) for inner in value] if isinstance(value, list) else value  # pyright: ignore[reportUnknownVariableType]  # any JSON
