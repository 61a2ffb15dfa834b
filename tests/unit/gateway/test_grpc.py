"""The gRPC server of a gateway: authentication, its address, and the environment it leaves."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import grpc.aio  # type: ignore[import-untyped]  # it has no types of its own
import pytest
from a2a.types import a2a_pb2 as a2a
from a2a.types import a2a_pb2_grpc

from synapse.auth.gateway import GatewayAuth
from synapse.auth.settings import AccessSettings
from synapse.core.caller import AuthMethods, Caller
from synapse.core.lifecycle import replay
from synapse.core.override import override
from synapse.core.requests import Request
from synapse.dialects.dialect import Headers
from synapse.gateway.cards import GatewayCards
from synapse.gateway.config import AgentConfig, GatewayConfig
from synapse.gateway.grpc import GatewayGrpc
from synapse.gateway.routes import gateway_dialects
from synapse.server.middleware import Addresses
from synapse.server.peer import UNKNOWN_PEER, Peer
from tests.fakes.certificates import self_made
from tests.fakes.facts import opened

BOUND = 20.0
TASK = replay([opened()])


class AdmitAll(GatewayAuth):
    """Admits every caller, and records where each came from."""

    def __init__(self) -> None:
        self.admitted: list[tuple[str, str, int | None]] = []

    @override
    def admit_headers(
        self, headers: Headers, *, path: str, peer: str, query: bytes = b"", owner: Peer = UNKNOWN_PEER
    ) -> Caller:
        assert (b"authorization", b"Bearer k") in headers
        self.admitted.append((path, peer, owner.uid))
        return Caller()


class OneTask:
    """A handler that returns one task for every request."""

    def __init__(self) -> None:
        self.asked: list[tuple[Request[object], Caller]] = []

    async def handle(self, request: Request[object], caller: Caller) -> Any:
        self.asked.append((request, caller))
        return TASK


def new_grpc(auth: AdmitAll, access: AccessSettings, **fields: Any) -> GatewayGrpc:
    gateway_grpc = GatewayGrpc(
        GatewayConfig(port=0, **fields),
        access,
        service=OneTask(),
        auth=auth,
        public_url="https://agents.example.com:8443/a",
        max_message_bytes=1000,
    )
    cards = GatewayCards(
        addresses=Addresses("http://a.example"), methods=AuthMethods(), config_of=lambda name: AgentConfig(id=name)
    )
    gateway_grpc.offer({dialect.name: dialect for dialect in gateway_dialects(cards)})
    return gateway_grpc


async def task_from(channel: Any) -> a2a.Task:
    new_stub: Any = a2a_pb2_grpc.A2AServiceStub
    request = a2a.GetTaskRequest(tenant="ada", id=TASK.id)
    task: a2a.Task = await new_stub(channel).GetTask(request, metadata=(("authorization", "Bearer k"),))
    return task


async def test_callers_are_judged_by_their_metadata_and_their_address() -> None:
    auth = AdmitAll()

    gateway_grpc = new_grpc(auth, AccessSettings(), host="localhost")
    serving = asyncio.ensure_future(gateway_grpc.server.serve())
    async with asyncio.timeout(BOUND):
        await gateway_grpc.server.wait_started()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{gateway_grpc.port}") as channel:
            assert (await task_from(channel)).id == TASK.id
        gateway_grpc.server.stop()
        await serving
    assert gateway_grpc.url == f"agents.example.com:{gateway_grpc.port}"

    owner = os.getuid() if sys.platform == "linux" else None
    assert auth.admitted == [("/lf.a2a.v1.A2AService/GetTask", "127.0.0.1", owner)]


async def test_grpc_uses_the_certificate_too(tmp_path: Path) -> None:
    certificate, key = self_made(tmp_path)

    gateway_grpc = new_grpc(AdmitAll(), AccessSettings(tls_cert=certificate, tls_key=key))
    serving = asyncio.ensure_future(gateway_grpc.server.serve())
    async with asyncio.timeout(BOUND):
        await gateway_grpc.server.wait_started()
        trusted = grpc.ssl_channel_credentials(certificate.read_bytes())
        async with grpc.aio.secure_channel(f"localhost:{gateway_grpc.port}", trusted) as channel:
            assert (await task_from(channel)).id == TASK.id
        gateway_grpc.server.stop()
        await serving


@pytest.mark.parametrize("wished", ["", "INFO"])
async def test_the_setting_that_silences_grpc_is_not_inherited(monkeypatch: pytest.MonkeyPatch, wished: str) -> None:
    monkeypatch.delenv("GRPC_VERBOSITY", raising=False)
    if wished:
        monkeypatch.setenv("GRPC_VERBOSITY", wished)

    new_grpc(AdmitAll(), AccessSettings())

    assert os.environ.get("GRPC_VERBOSITY", "") == wished
