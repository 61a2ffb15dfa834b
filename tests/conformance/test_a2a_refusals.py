"""A request that is refused before its body is read gets an error of its own version and binding."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]  # it has no types of its own
import grpc.aio  # type: ignore[import-untyped]  # the same
import pytest
from a2a.types import a2a_pb2 as a2a
from a2a.types import a2a_pb2_grpc

from tests.conformance.real_gateway import IN_PROCESS, RunningGateway, gateway, new_key
from tests.conformance.real_hosts import PATIENCE, entry_of, scripted_host
from tests.conformance.wire_client import Reply, WireClient

pytestmark = pytest.mark.integration

LIMIT = 4000
CURRENT, FORMER = {"A2A-Version": "1.0"}, {"A2A-Version": "0.3"}
ERROR_INFO = "type.googleapis.com/google.rpc.ErrorInfo"
AGENT = "/agents/tck"


@dataclass(frozen=True)
class Place:
    """The port that requests are sent to, and the key of their caller."""

    port: int
    key: str = ""

    def post(self, path: str, body: bytes, headers: dict[str, str]) -> Reply:
        return WireClient(self.port).request("POST", path, body, {**self.credentials, **headers})

    def ask(self, method: str, path: str, headers: dict[str, str]) -> Reply:
        return WireClient(self.port).request(method, path, None, {**self.credentials, **headers})

    @property
    def credentials(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    home = tmp_path_factory.mktemp("g")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SYNAPSE_MAX_BODY_BYTES", str(LIMIT))
        with scripted_host(home), gateway(home, IN_PROCESS) as running:
            yield running


@pytest.fixture(scope="module")
def place(running: RunningGateway) -> Place:
    return Place(running.entry.port, new_key(running.home, "laptop", "--actions", "all"))


@pytest.fixture(scope="module")
def host(running: RunningGateway) -> Place:
    return Place(entry_of(running.home, "conf").port)


def is_current(reply: Reply) -> bool:
    """Decides whether the answer is an error of REST 1.0."""
    (details, *_) = reply.json["error"]["details"]
    return bool(details["@type"] == ERROR_INFO) and reply.headers["content-type"] == "application/a2a+json"


def is_former(reply: Reply) -> bool:
    """Decides whether the answer is an error of REST 0.3."""
    return set(reply.json) == {"type", "message"}


def is_current_call(reply: Reply) -> bool:
    """Decides whether the answer is an error of JSON-RPC 1.0."""
    return set(reply.json) == {"jsonrpc", "id", "error"} and bool(reply.json["error"]["data"][0]["@type"] == ERROR_INFO)


def is_former_call(reply: Reply) -> bool:
    """Decides whether the answer is an error of JSON-RPC 0.3."""
    error = reply.json["error"]
    return set(reply.json) == {"jsonrpc", "id", "error"} and isinstance(error.get("data", {}), dict)


def is_supervisor(reply: Reply) -> bool:
    return isinstance(reply.json["error"]["data"], str)


Told = Callable[[Reply], bool]
AT_GATEWAY = [
    pytest.param(f"{AGENT}/v1/message:send", CURRENT, is_current, id="1.0 REST"),
    pytest.param(f"{AGENT}/v1/message:stream", CURRENT, is_current, id="1.0 REST stream"),
    pytest.param(f"{AGENT}/v1/tasks/t/pushNotificationConfigs", CURRENT, is_current, id="1.0 REST push"),
    pytest.param(f"{AGENT}/v1/message:send?A2A-Version=1.0", {}, is_current, id="1.0 in the query"),
    pytest.param(f"{AGENT}/v1/message:send", FORMER, is_former, id="0.3 REST"),
    pytest.param(f"{AGENT}/v1", CURRENT, is_current_call, id="1.0 JSON-RPC"),
    pytest.param(AGENT, FORMER, is_former_call, id="0.3 JSON-RPC"),
    pytest.param(f"{AGENT}/v1", {}, is_current_call, id="JSON-RPC"),
    pytest.param(f"{AGENT}/v1/message:send", {}, is_supervisor, id="no version"),
]
AT_HOST = [
    pytest.param("/message:send", CURRENT, is_current, id="1.0 REST"),
    pytest.param("/v1/message:send", FORMER, is_former, id="0.3 REST"),
    pytest.param("/v1/message:send", {}, is_former, id="below /v1"),
    pytest.param("/message:send", {}, is_current, id="no version"),
    pytest.param("/", CURRENT, is_current_call, id="1.0 JSON-RPC"),
    pytest.param("/", FORMER, is_former_call, id="0.3 JSON-RPC"),
]


def check(place: Place, path: str, version: dict[str, str], told: Told) -> None:
    plain = place.post(path, b"{}", {**version, "Content-Type": "text/plain"})
    assert told(plain), plain.body
    unread = place.post(path, b"{", version)
    assert told(unread), unread.body
    large = place.post(path, b" " * (LIMIT + 1), version)
    assert told(large), large.body
    assert large.status in (200, 400, 413)
    for bytes_sent in (cut_short, bad_chunk, bad_length):
        broken = raw(place, path, version, bytes_sent)
        assert told(broken), (bytes_sent.__name__, broken.body)


def cut_short(head: bytes) -> bytes:
    """Returns a request with a chunk that is larger than the limit."""
    return head + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % (2 * LIMIT) + b" " * 2 * LIMIT


def bad_chunk(head: bytes) -> bytes:
    return head + b"Transfer-Encoding: chunked\r\n\r\nno number\r\n"


def bad_length(head: bytes) -> bytes:
    return head + b"Content-Length: many\r\n\r\n{}"


def raw(place: Place, path: str, version: dict[str, str], sent: Callable[[bytes], bytes]) -> Reply:
    named = {"Host": f"localhost:{place.port}", "Content-Type": "application/json", **place.credentials, **version}
    lines = "".join(f"{name}: {value}\r\n" for name, value in named.items())
    with WireClient(place.port).connect() as connection:
        connection.sendall(sent(f"POST {path} HTTP/1.1\r\n{lines}".encode()))
        answer = b""
        while more := connection.recv(65536):
            answer += more
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *rest = head.decode().split("\r\n")
    headers = {line.partition(": ")[0].lower(): line.partition(": ")[2] for line in rest}
    return Reply(int(first.split()[1]), headers, body)


@pytest.mark.parametrize(("path", "version", "told"), AT_GATEWAY)
def test_an_unread_body_is_refused_in_the_format_of_its_request(
    place: Place, path: str, version: dict[str, str], told: Told
) -> None:
    check(place, path, version, told)


@pytest.mark.parametrize(("path", "version", "told"), AT_HOST)
def test_a_host_refuses_it_in_the_format_of_its_request_too(
    host: Place, path: str, version: dict[str, str], told: Told
) -> None:
    check(host, path, version, told)


@pytest.mark.parametrize(("path", "version", "told"), AT_GATEWAY)
def test_an_unknown_caller_is_refused_in_the_format_of_the_request(
    place: Place, path: str, version: dict[str, str], told: Told
) -> None:
    reply = Place(place.port).post(path, b"{}", version)

    assert reply.status == 401
    assert "Bearer" in reply.headers["www-authenticate"]
    assert told(reply), reply.body


@pytest.mark.parametrize(("path", "version", "told"), AT_GATEWAY)
def test_a_foreign_web_page_is_refused_in_the_format_of_the_request(
    place: Place, path: str, version: dict[str, str], told: Told
) -> None:
    reply = place.post(path, b"{}", {**version, "Origin": "https://elsewhere.example"})

    assert reply.status == 403
    assert told(reply), reply.body


MESSAGE = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}}
FORMER_MESSAGE = {"message": {"messageId": "m", "role": "ROLE_USER", "content": [{"text": "hi"}]}}


@pytest.mark.parametrize(
    ("asked", "body", "version", "status", "told"),
    [
        ("POST /agents/nobody/v1/message:send", MESSAGE, CURRENT, 404, is_current),
        ("POST /agents/nobody/v1/message:send", FORMER_MESSAGE, FORMER, 404, is_former),
        ("GET /agents/nobody/v1/extendedAgentCard", None, CURRENT, 404, is_current),
        ("GET /agents/nobody/v1/card", None, FORMER, 404, is_former),
        ("GET /agents/nobody/.well-known/agent-card.json", None, CURRENT, 404, is_current),
        ("GET /agents/nobody/.well-known/agent-card.json", None, {}, 404, is_supervisor),
        (f"PUT {AGENT}/v1/message:send", {}, CURRENT, 405, is_current),
        (f"PUT {AGENT}/v1/message:send", {}, FORMER, 405, is_former),
        (f"GET {AGENT}/v1/nowhere", None, CURRENT, 404, is_current),
        (f"GET {AGENT}/v1/nowhere", None, FORMER, 404, is_former),
    ],
)
def test_a_missing_thing_is_reported_in_the_format_of_the_request(
    place: Place, asked: str, body: Any, version: dict[str, str], status: int, told: Told
) -> None:
    method, path = asked.split()
    reply = WireClient(place.port).request(method, path, body, {**place.credentials, **version})

    assert reply.status == status
    assert told(reply), reply.body


@pytest.mark.parametrize("path", [f"{AGENT}/v1/extendedAgentCard", f"{AGENT}/v1/card"])
def test_the_extended_card_is_an_operation_and_has_a_version(place: Place, host: Place, path: str) -> None:
    refused = place.ask("GET", path, {"A2A-Version": "99.0"})
    at_host = host.ask("GET", path.removeprefix(f"{AGENT}/v1"), {"A2A-Version": "99.0"})

    for reply in (refused, at_host):
        assert reply.status == 400
        assert reply.json["error"]["details"][0]["reason"] == "VERSION_NOT_SUPPORTED"
    assert place.ask("GET", path, CURRENT).status == 200
    assert place.ask("GET", f"{AGENT}/.well-known/agent-card.json", {"A2A-Version": "99.0"}).status == 200


def test_the_extended_card_as_a_call_has_a_version_too(place: Place) -> None:
    call = json.dumps({"jsonrpc": "2.0", "id": 7, "method": "GetExtendedAgentCard", "params": {}}).encode()

    told = place.post(f"{AGENT}/v1", call, {"A2A-Version": "99.0"}).json

    assert (told["id"], told["error"]["code"]) == (7, -32009)


async def test_the_extended_card_over_grpc_has_a_version_too(place: Place) -> None:
    card = place.ask("GET", f"{AGENT}/.well-known/agent-card.json", CURRENT).json
    (address,) = [one["url"] for one in card["supportedInterfaces"] if one["protocolBinding"] == "GRPC"]

    async with grpc.aio.insecure_channel(address) as channel:
        new_stub: Any = a2a_pb2_grpc.A2AServiceStub
        stub = new_stub(channel)
        metadata = (("authorization", f"Bearer {place.key}"), ("a2a-version", "99.0"))
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.GetExtendedAgentCard(
                a2a.GetExtendedAgentCardRequest(tenant="tck"), metadata=metadata, timeout=PATIENCE
            )

    assert refused.value.code() == grpc.StatusCode.FAILED_PRECONDITION


def test_the_rate_limit_is_reported_in_the_format_of_the_request(tmp_path: Path) -> None:
    config = f"[rate_limit]\nrequests_per_minute = 1\nburst = 1\n{IN_PROCESS}"
    with gateway(tmp_path, config) as running:
        place = Place(running.entry.port, new_key(tmp_path, "laptop", "--actions", "all"))
        place.ask("GET", f"{AGENT}/v1/tasks", CURRENT)
        for path, version, told in (
            (f"{AGENT}/v1/message:send", CURRENT, is_current),
            (f"{AGENT}/v1/message:send", FORMER, is_former),
            (f"{AGENT}/v1", CURRENT, is_current_call),
            (AGENT, FORMER, is_former_call),
            (f"{AGENT}/v1/message:send", {}, is_supervisor),
        ):
            reply = place.post(path, b"{}", version)
            assert reply.status == 429
            assert int(reply.headers["retry-after"]) > 0
            assert told(reply), reply.body
