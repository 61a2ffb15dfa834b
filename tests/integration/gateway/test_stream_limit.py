"""A key has a limit of open streams over all dialects, and each dialect reports it."""

from __future__ import annotations

import http.client
import json
from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any
from uuid import uuid4

import grpc  # type: ignore[import-untyped]  # it has no types of its own
import pytest
from a2a.types import a2a_pb2 as v1
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.conformance.a2a_grpc_speakers import NEW_STUB_1_0, target_of
from tests.conformance.real_gateway import IN_PROCESS, RunningGateway, gateway, new_key
from tests.conformance.wire_client import WireClient
from tests.integration.waiting import until

pytestmark = pytest.mark.integration

BOUND = 20.0
CONFIG = f"public_discovery = true\n{IN_PROCESS}\n[rate_limit]\nopen_streams = 2\n"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with gateway(tmp_path_factory.mktemp("streams"), CONFIG) as running:
        yield running


def waiting_task(running: RunningGateway, key: str) -> str:
    message = {"messageId": f"tck-cancel-{uuid4()}", "role": "ROLE_USER", "parts": [{"text": "wait"}]}
    body = {"message": message, "configuration": {"returnImmediately": True}}
    reply = running.ask("POST", "/agents/tck/v1/message:send", body, key=key, A2A_Version="1.0")
    return str(reply.json["task"]["id"])


@contextmanager
def subscribed(running: RunningGateway, task: str, key: str) -> Generator[http.client.HTTPResponse]:
    with closing(WireClient(running.entry.port).connection()) as connection:
        path = f"/agents/tck/v1/tasks/{task}:subscribe"
        connection.request("GET", path, headers={"Authorization": f"Bearer {key}"})
        with connection.getresponse() as response:
            yield response


def test_streams_of_all_kinds_share_the_limit_of_a_key(running: RunningGateway) -> None:
    key, other = new_key(running.home, "laptop"), new_key(running.home, "phone")
    task = waiting_task(running, key)
    bearer = {"Authorization": f"Bearer {key}"}
    socket = f"ws://localhost:{running.entry.port}/ws"
    with ExitStack() as stack:
        first = ExitStack()
        assert first.enter_context(subscribed(running, task, key)).status == 200
        stack.enter_context(connect(socket, additional_headers=bearer, open_timeout=BOUND))

        asked = {"message": {"content": "hello", "role": "user"}}
        supervisor = running.ask("POST", "/agents/tck/v1/message:stream", asked, key=key)
        assert (supervisor.status, supervisor.json["error"]["code"]) == (429, -32600)
        assert supervisor.headers["retry-after"] == "1"
        with subscribed(running, task, key) as refused:
            assert (refused.status, json.loads(refused.read())["error"]["status"]) == (429, "RESOURCE_EXHAUSTED")
        with pytest.raises(InvalidStatus) as handshake:
            connect(socket, additional_headers=bearer, open_timeout=BOUND)
        assert handshake.value.response.status_code == 429
        assert grpc_status(running, task, key) == "RESOURCE_EXHAUSTED"
        assert grpc_status(running, waiting_task(running, other), other) == "OK"

        first.close()
        until(lambda: grpc_status(running, task, key) == "OK", "a free slot")


def grpc_status(running: RunningGateway, task: str, key: str) -> str:
    """Returns the status of following a task: OK once there is a first event."""
    target = target_of(WireClient(running.entry.port), "/agents/tck")
    with grpc.insecure_channel(target) as channel:
        metadata = [("a2a-version", "1.0"), ("authorization", f"Bearer {key}")]
        asked = v1.SubscribeToTaskRequest(tenant="tck", id=task)
        stream: Any = NEW_STUB_1_0(channel).SubscribeToTask(asked, timeout=BOUND, metadata=metadata)
        try:
            next(stream)
        except grpc.RpcError as error:
            failure: Any = error
            return str(failure.code().name)
        stream.cancel()
        return "OK"
