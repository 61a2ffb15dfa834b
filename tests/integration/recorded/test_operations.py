"""What operators depend on: the names, labels and kinds of the metrics, and the methods of gRPC.

tests/integration/gateway/test_operations.py checks the figures themselves. How to record anew: see golden.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import grpc  # type: ignore[import-untyped]  # it has no types of its own
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_reflection.v1alpha import (  # type: ignore[import-untyped]  # it has no types of its own
    reflection_pb2 as words,
    reflection_pb2_grpc as stubs,
)

from tests.integration.recorded.golden import check
from tests.integration.recorded.product import Product, product, until, wire

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def synapse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    with product(tmp_path_factory.mktemp("o")) as made:
        made.start_agent("ada")
        yield made


def test_metrics_have_the_names_and_labels_that_they_had(synapse: Product) -> None:
    client = wire(synapse.start_gateway())
    key = {"Authorization": f"Bearer {synapse.run('keys', 'create', 'ops', '--json').json['key']}"}
    client.request("GET", "/metrics", None, key)
    for dialect in ({"A2A-Version": "1.0"}, {"A2A-Version": "0.3"}, {}):
        assert client.request("GET", "/agents/ada/v1/tasks/none", None, key | dialect).status == 404
    message = {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "hello"}]}
    sent = client.request("POST", "/agents/ada/v1/message:send", {"message": message}, key | {"A2A-Version": "1.0"})
    assert sent.status == 200

    def complete() -> str:
        text = client.request("GET", "/metrics", None, key).body.decode()
        return text if 'step="answered"' in text else ""

    check("metrics.txt", names_of(until(complete, "the delivery is counted")))


def names_of(text: str) -> str:
    """Everything but numbers and sentences: each metric's type, and its samples with the labels that they have."""
    kinds = re.findall(r"^# TYPE (\S+ \S+)$", text, re.MULTILINE)
    samples = {re.sub(r'version="[^"]+"', 'version="…"', one) for one in re.findall(r"^(synapse\S*) ", text, re.M)}
    return "".join(f"{line}\n" for line in [*sorted(kinds), *sorted(samples)])


def test_grpc_has_the_methods_that_it_had(synapse: Product) -> None:
    synapse.start_gateway("", "--grpc-port", "0")
    key = synapse.run("keys", "create", "grpc", "--json").json["key"]
    targets = [one["url"] for one in grpc_interfaces(synapse, key)]
    assert targets, "the card names where gRPC listens"
    with grpc.insecure_channel(targets[0]) as channel:
        ask = stubs.ServerReflectionStub(channel).ServerReflectionInfo
        metadata = [("authorization", f"Bearer {key}")]

        def asked(question: object) -> object:
            return next(iter(ask(iter([question]), metadata=metadata)))

        listed = asked(words.ServerReflectionRequest(list_services=""))
        names = sorted(one.name for one in listed.list_services_response.service)  # type: ignore[attr-defined]  # untyped
        lines = [line for name in names for line in described(asked(question_about(name)), name)]
    check("grpc.txt", "".join(f"{line}\n" for line in lines))


def question_about(name: str) -> object:
    return words.ServerReflectionRequest(file_containing_symbol=name)
