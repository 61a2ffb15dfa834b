"""What operators depend on: the names, labels and kinds of the metrics, and the methods of gRPC.

tests/integration/gateway/test_operations.py checks the values themselves. How to record anew: see golden.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import grpc  # type: ignore[import-untyped]  # it has no types of its own
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, MethodDescriptorProto
from grpc_reflection.v1alpha import reflection_pb2 as words  # type: ignore[import-untyped]  # pyright: ignore[reportMissingTypeStubs]  # untyped

from tests.integration.recorded.golden import check
from tests.integration.recorded.product import PATIENCE, Product, product, until, wire

pytestmark = pytest.mark.integration

QUESTION: Any = words.ServerReflectionRequest
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"


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
    """Everything but numbers: the help and the type of each metric, and its samples with the labels that they have."""
    kinds = re.findall(r"^# ((?:TYPE|HELP) .+)$", text, re.MULTILINE)
    samples = {re.sub(r'version="[^"]+"', 'version="…"', one) for one in re.findall(r"^(synapse\S*) ", text, re.M)}
    return "".join(f"{line}\n" for line in [*sorted(kinds), *sorted(samples)])


def test_grpc_has_the_methods_that_it_had(synapse: Product) -> None:
    """Each method is called with an empty message, and what it is answered says whether it is served."""
    client = wire(synapse.start_gateway("", "--grpc-port", "0"))
    key = synapse.run("keys", "create", "grpc", "--json").json["key"]
    headers = {"Authorization": f"Bearer {key}", "A2A-Version": "1.0"}
    card = client.request("GET", "/agents/ada/.well-known/agent-card.json", None, headers).json
    target = next(str(one["url"]) for one in card["supportedInterfaces"] if one["protocolBinding"] == "GRPC")
    new_channel: Any = grpc.insecure_channel
    with new_channel(target) as channel:
        server = Server(channel, [("authorization", f"Bearer {key}")])
        lines = [line for service in server.services() for line in server.methods(service)]

    check("grpc.txt", "".join(f"{line}\n" for line in lines))


class Server:
    """A gRPC server, asked what it offers."""

    def __init__(self, channel: Any, metadata: list[tuple[str, str]]) -> None:
        self._channel = channel
        self._metadata = metadata

    def services(self) -> list[str]:
        return sorted(one.name for one in self._told(list_services="").list_services_response.service)

    def methods(self, service: str) -> list[str]:
        """A line for each method: what it takes and gives, and what an empty call is answered."""
        files = self._told(file_containing_symbol=service).file_descriptor_response.file_descriptor_proto
        parsed = [FileDescriptorProto.FromString(one) for one in files]
        return [
            f"{service}/{method.name} {method.input_type} -> {method.output_type}"
            f"{' stream' if method.server_streaming else ''}  {self._answer(service, method)}"
            for file in parsed
            for one in file.service
            if f"{file.package}.{one.name}" == service
            for method in one.method
        ]

    def _answer(self, service: str, method: MethodDescriptorProto) -> str:
        path = f"/{service}/{method.name}"
        if method.client_streaming:
            return "both sides stream"
        try:
            if method.server_streaming:
                next(iter(self._channel.unary_stream(path)(b"", metadata=self._metadata, timeout=PATIENCE)))
            else:
                self._channel.unary_unary(path)(b"", metadata=self._metadata, timeout=PATIENCE)
        except grpc.RpcError as error:
            refused: Any = error
            return str(refused.code().name)
        return "OK"

    def _told(self, **question: str) -> Any:
        ask: Any = self._channel.stream_stream(REFLECTION)
        body = QUESTION(**question).SerializeToString()
        return words.ServerReflectionResponse.FromString(next(iter(ask(iter([body]), metadata=self._metadata))))
