"""A stream that ends because its server stops says so in every dialect, and does not look complete."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import uuid
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]  # it has no types of its own
import grpc.aio  # type: ignore[import-untyped]  # the same
import httpx
import pytest
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.client.errors import A2AClientError
from a2a.types import a2a_pb2 as a2a
from a2a.types import a2a_pb2_grpc
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tests.conformance.real_gateway import IN_PROCESS, RunningGateway, gateway
from tests.conformance.real_hosts import PATIENCE, scripted_host
from tests.conformance.wire_client import WireClient

pytestmark = pytest.mark.integration

KEPT = "this server ends; the task is kept"
AGENT = "/agents/tck"
Fields = dict[str, Any]


def asking(port: int, base: str) -> str:
    """Returns the id of a task that waits for an answer, so that its followers wait too."""
    spoken = {"messageId": f"tck-input-required-{uuid.uuid4()}", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
    reply = WireClient(port).request("POST", f"{base}/message:send", {"message": spoken}, {"A2A-Version": "1.0"})
    return str(reply.json["task"]["id"])


@contextmanager
def stream(port: int, path: str, body: Fields | None = None, version: str = "") -> Generator[HTTPResponse]:
    """Opens a stream and reads its first event."""
    headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
    headers |= {"A2A-Version": version} if version else {}
    with closing(WireClient(port).connection()) as connection:
        connection.timeout = PATIENCE
        connection.sock.settimeout(PATIENCE)
        connection.request("GET" if body is None else "POST", path, json.dumps(body) if body else None, headers)
        response = connection.getresponse()
        assert response.getheader("content-type") == "text/event-stream", response.read()
        while response.readline().strip():
            pass  # the first event, up to its end
        yield response


def last_event(response: HTTPResponse) -> tuple[str, Any]:
    """Reads a stream to its end; returns the name and the data of its last event."""
    *_, last, rest = response.read().decode().split("\n\n")
    assert rest == ""
    fields = dict(line.split(": ", 1) for line in last.splitlines())
    return fields.get("event", ""), json.loads(fields["data"])


def call(method: str, task: str) -> Fields:
    return {"jsonrpc": "2.0", "id": 7, "method": method, "params": {"id": task}}


def is_current(told: Any) -> bool:
    return bool(
        told["error"]["status"] == "UNAVAILABLE" and told["error"]["details"][0]["reason"] == "AGENT_UNAVAILABLE"
    )


def is_former(told: Any) -> bool:
    return bool(told["type"] == "AgentUnavailableError")


def is_call(told: Any) -> bool:
    return bool(told["id"] == 7 and told["error"]["code"] == -32000)


def is_own(told: Any) -> bool:
    return bool(told["error"]["code"] == "agent_exited")


def is_other(told: Any) -> bool:
    return KEPT in json.dumps(told["error"])


Told = Callable[[Any], bool]


def check(streams: list[tuple[HTTPResponse, str, Told]]) -> None:
    for response, name, told in streams:
        event, data = last_event(response)
        assert event == name, data
        assert told(data), data
        assert KEPT in json.dumps(data)


def test_a_gateway_that_is_stopped_ends_its_streams_with_an_error(tmp_path: Path) -> None:
    with gateway(tmp_path, IN_PROCESS, "--no-auth") as running, ExitStack() as opened:
        port, base = running.entry.port, f"{AGENT}/v1"
        task = asking(port, base)
        asked: list[tuple[str, Fields | None, str, str, Told]] = [
            (f"{base}/tasks/{task}:subscribe", None, "1.0", "error", is_current),
            (f"{base}/tasks/{task}:subscribe", None, "0.3", "error", is_former),
            (f"{base}/tasks/{task}:subscribe", {}, "", "error", is_current),
            (base, call("SubscribeToTask", task), "1.0", "error", is_call),
            (AGENT, call("tasks/resubscribe", task), "0.3", "", is_call),
            (f"/tasks/{task}", None, "", "error", is_other),
        ]
        streams = [
            (opened.enter_context(stream(port, path, body, version)), name, told)
            for path, body, version, name, told in asked
        ]
        socket = opened.enter_context(connect(f"ws://localhost:{port}/ws", open_timeout=PATIENCE))
        socket.send(json.dumps({"type": "subscribe", "taskId": task}))
        assert task in str(socket.recv(timeout=PATIENCE))

        running.process.send_signal(signal.SIGTERM)

        check(streams)
        with pytest.raises(ConnectionClosed) as closed:
            socket.recv(timeout=PATIENCE)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1012, "service restart: come back"


def test_a_host_that_is_stopped_ends_its_streams_with_an_error(tmp_path: Path) -> None:
    with scripted_host(tmp_path) as entry, ExitStack() as opened:
        task = asking(entry.port, "")
        asked: list[tuple[str, Fields | None, str, str, Told]] = [
            (f"/tasks/{task}:subscribe", None, "1.0", "error", is_current),
            (f"/v1/tasks/{task}:subscribe", None, "", "error", is_former),
            ("/", call("SubscribeToTask", task), "1.0", "error", is_call),
            (f"/tasks/{task}/subscribe", None, "", "error", is_own),
        ]
        streams = [
            (opened.enter_context(stream(entry.port, path, body, version)), name, told)
            for path, body, version, name, told in asked
        ]

        os.kill(entry.pid, signal.SIGTERM)

        check(streams)


async def test_clients_of_the_sdk_get_the_error_too(tmp_path: Path) -> None:
    with gateway(tmp_path, f'default_agent = "tck"\n{IN_PROCESS}', "--no-auth") as running:
        task = asking(running.entry.port, f"{AGENT}/v1")
        await _followed_to_the_end(running, task)


async def _followed_to_the_end(running: RunningGateway, task: str) -> None:
    async with asyncio.timeout(PATIENCE), httpx.AsyncClient(timeout=PATIENCE) as http:
        card = await A2ACardResolver(http, f"{running.url}{AGENT}").get_agent_card()
        streams: list[Any] = []
        for binding in ("JSONRPC", "HTTP+JSON"):
            config = ClientConfig(supported_protocol_bindings=[binding], httpx_client=http)
            following = aiter(ClientFactory(config).create(card).subscribe(a2a.SubscribeToTaskRequest(id=task)))
            assert (await anext(following)).task.id == task
            streams.append(following)
        (address,) = [one.url for one in card.supported_interfaces if one.protocol_binding == "GRPC"]
        async with grpc.aio.insecure_channel(address) as channel:
            new_stub: Any = a2a_pb2_grpc.A2AServiceStub
            stub = new_stub(channel)
            calling = stub.SubscribeToTask(a2a.SubscribeToTaskRequest(id=task, tenant="tck"))
            assert (await calling.read()).task.id == task

            running.process.send_signal(signal.SIGTERM)

            for following in streams:
                with pytest.raises(A2AClientError, match=KEPT):
                    await anext(following)
            with pytest.raises(grpc.aio.AioRpcError) as ended:
                await calling.read()
            assert ended.value.code() == grpc.StatusCode.UNAVAILABLE
