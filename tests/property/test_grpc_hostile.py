"""Whatever comes in over gRPC, it is understood or refused in our own words; whatever goes out can be read."""

from __future__ import annotations

from typing import Any

import pytest
from a2a.types import a2a_pb2 as v1
from google.protobuf import json_format, struct_pb2
from hypothesis import given
from hypothesis import strategies as st

from synapse.core.caller import AuthMethods
from synapse.core.errors import SynapseError
from synapse.dialects.dialect import WireRequest
from synapse.gateway.cards import GatewayCards
from synapse.gateway.config import AgentConfig
from synapse.gateway.routes import MOUNT, gateway_dialects
from synapse.server.grpc_methods import Method, current_service, former_service
from synapse.server.middleware import Addresses

CARDS = GatewayCards(
    addresses=Addresses("http://a.example"), methods=AuthMethods(), config_of=lambda name: AgentConfig(id=name)
)
DIALECTS = {dialect.name: dialect for dialect in gateway_dialects(CARDS)}
SERVICES = (current_service(DIALECTS["a2a_v1"]), former_service(DIALECTS["a2a_v0_3"], MOUNT))
METHODS = [
    pytest.param(method, id=f"{service.name}/{name}")
    for service in SERVICES
    for name, method in service.methods.items()
]
WIRE = WireRequest("POST", "/", params={"agentId": "ada"})

texts = st.text(max_size=20)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=10
)


def ask(method: Method, given: bytes) -> None:
    try:
        params, _ = method.read(given)
        method.ask(params, WIRE)
    except SynapseError:
        pass


@pytest.mark.parametrize("method", METHODS)
@given(data=st.data())
def test_any_bytes_are_understood_or_refused(method: Method, data: st.DataObject) -> None:
    ask(method, data.draw(st.binary(max_size=200)))


@given(texts, st.lists(values, max_size=3), st.dictionaries(texts, values, max_size=3), st.integers(0, 9))
def test_any_message_is_understood_or_refused(text: str, data: list[Any], metadata: dict[str, Any], role: int) -> None:
    request = v1.SendMessageRequest(message=v1.Message(message_id=text, role=v1.Role.Name(role % 3)))
    for value in data:
        request.message.parts.add(data=json_format.ParseDict(value, struct_pb2.Value()))
    json_format.ParseDict(metadata, request.message.metadata)

    ask(SERVICES[0].methods["SendMessage"], request.SerializeToString())


@pytest.mark.parametrize("number", [10**400, -(10**400), 2**70, 0.1])
def test_a_number_of_any_size_can_be_told(number: float) -> None:
    told = f'{{"id": "t", "metadata": {{"n": [{number}]}}}}'.encode()

    task = v1.Task.FromString(SERVICES[0].methods["GetTask"].to_answer(told))

    assert task.id == "t"
    assert "n" in task.metadata
