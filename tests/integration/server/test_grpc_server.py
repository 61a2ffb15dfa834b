"""gRPC over real sockets: admission, errors, and the ends of calls and streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NoReturn

import grpc.aio  # type: ignore[import-untyped]  # it has no types of its own
import pytest
from a2a.types import a2a_pb2 as a2a
from a2a.types import a2a_pb2_grpc
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]  # pyright: ignore[reportMissingTypeStubs]  # untyped

from synapse.core.caller import AuthMethods, Caller
from synapse.core.errors import AgentNotFound, CredentialsRefused, PortTaken
from synapse.core.events import Update
from synapse.core.extension import Extension
from synapse.core.lifecycle import replay
from synapse.core.requests import FollowTask, ForAgent, GetTask, PendingTask, Request, SendAndWait
from synapse.core.service import Handler
from synapse.core.task import Task
from synapse.dialects.dialect import Dialect
from synapse.gateway.cards import GatewayCards
from synapse.gateway.config import AgentConfig
from synapse.gateway.routes import MOUNT, gateway_dialects
from synapse.gateway.service import LimitedStreams, StreamLimit
from synapse.server.grpc_methods import current_service, former_service
from synapse.server.grpc_server import AdmitCall, GrpcHeaders, GrpcLimits, GrpcServer
from synapse.server.middleware import Addresses
from tests.fakes.certificates import self_made
from tests.fakes.facts import opened

pytestmark = pytest.mark.integration

PATIENCE = 20.0
HOST = "127.0.0.1"
SERVICE = "/lf.a2a.v1.A2AService"
CARDS = GatewayCards(
    addresses=Addresses("http://a.example"), methods=AuthMethods(), config_of=lambda name: AgentConfig(id=name)
)
DIALECTS = {dialect.name: dialect for dialect in gateway_dialects(CARDS)}
PLAN = Extension(uri="https://example.com/ext/plan/v1")
EXTENDED = next(one for one in gateway_dialects(CARDS, extensions_of=lambda _: (PLAN,)) if one.name == "a2a_v1")
TASK: Task = replay([opened()])


class OneTask:
    """A service with one task that never ends; it records the requests."""

    def __init__(self, error: Exception | None = None) -> None:
        self.asked: list[tuple[Request[object], Caller]] = []
        self.left = asyncio.Event()
        self.waiting = asyncio.Semaphore(0)
        """Released once for each call that waits."""
        self._error = error

    async def handle(self, request: Request[object], caller: Caller) -> Any:
        self.asked.append((request, caller))
        if self._error is not None:
            raise self._error
        match request:
            case ForAgent(request=GetTask()):
                return TASK
            case ForAgent(request=SendAndWait()):
                return PendingTask(TASK, asyncio.ensure_future(self._never()))
            case ForAgent(request=FollowTask()):
                return self._updates()
            case _:
                raise AgentNotFound("nobody")

    async def _updates(self) -> AsyncGenerator[Update, None]:
        yield Update(1, None, TASK)
        await self._never()

    async def _never(self) -> NoReturn:
        self.waiting.release()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.left.set()
        raise AssertionError("this wait never ends")


def everybody(_headers: GrpcHeaders, _path: str, _peer: str) -> Caller | Awaitable[Caller]:
    return Caller(name="somebody")


@asynccontextmanager
async def serving(
    service: Handler,
    tls: tuple[Path, Path] | None = None,
    *,
    admit: AdmitCall = everybody,
    dialect: Dialect = DIALECTS["a2a_v1"],
    **options: Any,
) -> AsyncGenerator[tuple[GrpcServer, str]]:
    server = GrpcServer(service, admit=admit, **options)
    pair = (tls[1].read_bytes(), tls[0].read_bytes()) if tls else None
    port = server.bind(HOST, 0, tls=pair)
    server.offer(current_service(dialect), former_service(DIALECTS["a2a_v0_3"], MOUNT))
    running = asyncio.ensure_future(server.serve())
    try:
        await server.wait_started()
        yield server, f"localhost:{port}"
    finally:
        server.stop()
        await running


def a_message(tenant: str = "ada") -> a2a.SendMessageRequest:
    spoken = a2a.Message(message_id="m-1", role=a2a.ROLE_USER, parts=[a2a.Part(text="hi")])
    return a2a.SendMessageRequest(tenant=tenant, message=spoken)


def stub_of(channel: Any) -> Any:
    """Returns the SDK's own stub, which has no types."""
    new_stub: Any = a2a_pb2_grpc.A2AServiceStub
    return new_stub(channel)


def reason(error: Any) -> str:
    """Returns the reason in the ErrorInfo of the trailer."""
    status, info = status_pb2.Status(), error_details_pb2.ErrorInfo()
    status.ParseFromString(dict(error.trailing_metadata())["grpc-status-details-bin"])
    assert status.details[0].Unpack(info)
    return str(info.reason)


async def refusal(address: str, path: str, given: bytes, metadata: Any = ()) -> Any:
    """Sends raw bytes, and returns the error."""
    async with grpc.aio.insecure_channel(address) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await channel.unary_unary(f"{SERVICE}/{path}")(given, metadata=metadata)
    return refused.value


async def test_the_tenant_is_the_agent() -> None:
    async with asyncio.timeout(PATIENCE):
        service = OneTask()
        async with serving(service) as (_, address), grpc.aio.insecure_channel(address) as channel:
            task = await stub_of(channel).GetTask(a2a.GetTaskRequest(tenant="ada", id=TASK.id))
            assert task.id == TASK.id
        assert service.asked == [(ForAgent("ada", GetTask(TASK.id, exact=True), frozenset()), Caller(name="somebody"))]


@pytest.mark.parametrize(
    ("metadata", "default", "agent"),
    [((), "cleo", "cleo"), ((("x-agent-id", "bob"),), "cleo", "bob")],
    ids=["the default agent", "the metadata before the default"],
)
async def test_without_a_tenant_the_metadata_or_the_default_names_the_agent(
    metadata: Any, default: str, agent: str
) -> None:
    async with asyncio.timeout(PATIENCE):
        service = OneTask()
        async with (
            serving(service, default_agent=default) as (_, address),
            grpc.aio.insecure_channel(address) as channel,
        ):
            stub = stub_of(channel)
            await stub.GetTask(a2a.GetTaskRequest(id=TASK.id), metadata=metadata)
        assert [asked.agent for asked, _ in service.asked if isinstance(asked, ForAgent)] == [agent]


@pytest.mark.parametrize(
    ("path", "given", "metadata", "status", "why"),
    [
        ("GetTask", a2a.GetTaskRequest(id="t").SerializeToString(), (), "INVALID_ARGUMENT", "INVALID_PARAMS"),
        ("GetTask", b"\xff\xff\xff", (), "INVALID_ARGUMENT", "INVALID_PARAMS"),
        ("GetTask", b"", (("x-agent-id", "ada"),), "INVALID_ARGUMENT", "INVALID_PARAMS"),
        ("SendMessage", b"\n\x03ada", (), "INVALID_ARGUMENT", "INVALID_PARAMS"),
        ("ListTasks", b"\n\x03ada", (("a2a-version", "99.0"),), "FAILED_PRECONDITION", "VERSION_NOT_SUPPORTED"),
        ("ListTasks", b"\n\x03ada", (("a2a-version", "0.3"),), "FAILED_PRECONDITION", "VERSION_NOT_SUPPORTED"),
        ("ListTasks", b"\n\x03ada", (("a2a-version", "1.0.1"),), "NOT_FOUND", "NOT_FOUND"),
    ],
    ids=["no agent", "no protobuf", "no id", "no message", "unknown version", "other version", "unknown agent"],
)
async def test_an_error_has_its_status_and_reason(
    path: str, given: bytes, metadata: Any, status: str, why: str
) -> None:
    async with asyncio.timeout(PATIENCE):
        async with serving(OneTask()) as (_, address):
            error = await refusal(address, path, given, metadata)
            assert (error.code().name, reason(error)) == (status, why)


async def test_a_refused_caller_gets_a_challenge() -> None:
    def admit_no_caller(headers: GrpcHeaders, path: str, peer: str) -> Caller:
        assert (b"authorization", b"Bearer wrong") in headers
        assert path == f"{SERVICE}/GetTask"
        assert peer.startswith("ipv4:127.0.0.1:")
        raise CredentialsRefused("these credentials are not known here", challenge="Bearer")

    async with asyncio.timeout(PATIENCE):
        service = OneTask()
        async with serving(service, admit=admit_no_caller) as (_, address):
            error = await refusal(address, "GetTask", b"", (("authorization", "Bearer wrong"),))
            assert error.code() == grpc.StatusCode.UNAUTHENTICATED
            assert dict(error.trailing_metadata())["www-authenticate"] == "Bearer"
        assert service.asked == []


async def test_a_defect_is_reported_without_details(caplog: pytest.LogCaptureFixture) -> None:
    async with asyncio.timeout(PATIENCE):
        async with serving(OneTask(error=RuntimeError("the secret"))) as (_, address):
            error = await refusal(address, "GetTask", b"\n\x03ada\x12\x01t")
            assert (error.code(), reason(error)) == (grpc.StatusCode.INTERNAL, "INTERNAL_ERROR")
            assert "secret" not in error.details()
        assert "the secret" in caplog.text


async def test_a_message_that_is_too_large_is_refused() -> None:
    async with asyncio.timeout(PATIENCE):
        service = OneTask()
        async with serving(service, limits=GrpcLimits(max_message_bytes=1000)) as (_, address):
            async with grpc.aio.insecure_channel(address) as channel:
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await channel.unary_unary(f"{SERVICE}/GetTask")(b"x" * 2000)
            assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert service.asked == []


async def test_a_reader_that_disconnects_ends_its_stream() -> None:
    async with asyncio.timeout(PATIENCE):
        service = OneTask()
        async with serving(service) as (_, address), grpc.aio.insecure_channel(address) as channel:
            stub = stub_of(channel)
            stream = stub.SubscribeToTask(a2a.SubscribeToTaskRequest(tenant="ada", id=TASK.id))
            assert (await anext(aiter(stream))).task.id == TASK.id
            await service.waiting.acquire()
            stream.cancel()
            await service.left.wait()


async def test_a_caller_that_cancels_ends_its_wait() -> None:
    async with asyncio.timeout(PATIENCE):
        service = OneTask()
        async with serving(service) as (_, address), grpc.aio.insecure_channel(address) as channel:
            call = stub_of(channel).SendMessage(a_message())
            sending = asyncio.ensure_future(_outcome(call))
            await service.waiting.acquire()
            call.cancel()
            await service.left.wait()
            await sending


async def _outcome(call: Any) -> None:
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_waiting_callers_get_an_error_when_the_server_ends() -> None:
    async with asyncio.timeout(PATIENCE):
        service = OneTask()
        async with serving(service) as (server, address), grpc.aio.insecure_channel(address) as channel:
            stub = stub_of(channel)
            stream = stub.SubscribeToTask(a2a.SubscribeToTaskRequest(tenant="ada", id=TASK.id))
            await anext(aiter(stream))
            sending = stub.SendMessage(a_message())
            for _ in (stream, sending):
                await service.waiting.acquire()

            server.stop()

            for waiting in (anext(aiter(stream)), sending):
                with pytest.raises(grpc.aio.AioRpcError) as ended:
                    await waiting
                assert ended.value.code() == grpc.StatusCode.UNAVAILABLE


async def test_a_server_with_a_certificate_speaks_tls(tmp_path: Path) -> None:
    certificate, key = self_made(tmp_path)

    async with asyncio.timeout(PATIENCE):
        async with serving(OneTask(), tls=(certificate, key)) as (_, address):
            trusted = grpc.ssl_channel_credentials(certificate.read_bytes())
            async with grpc.aio.secure_channel(address, trusted) as channel:
                stub = stub_of(channel)
                assert (await stub.GetTask(a2a.GetTaskRequest(tenant="ada", id=TASK.id))).id == TASK.id


async def test_a_port_that_is_taken_is_refused() -> None:
    async with asyncio.timeout(PATIENCE):
        async with serving(OneTask()) as (_, address):
            other = GrpcServer(OneTask(), admit=everybody)
            with pytest.raises(PortTaken) as taken:
                other.bind(HOST, int(address.rpartition(":")[2]))
            assert "--grpc-port" in taken.value.hint


class Leaving:
    """The context of a call that names an extension, and whose caller disconnects before the headers are sent."""

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return (("a2a-extensions", PLAN.uri),)

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    async def send_initial_metadata(self, _metadata: object) -> None:
        raise asyncio.CancelledError


async def test_a_caller_that_disconnects_before_the_first_update_releases_its_stream_slot() -> None:
    async with asyncio.timeout(PATIENCE):
        streams = StreamLimit(1)
        offered = current_service(EXTENDED)
        async with serving(LimitedStreams(OneTask(), streams)) as (server, _):
            given = a2a.SubscribeToTaskRequest(tenant="ada", id=TASK.id).SerializeToString()
            method = offered.methods["SubscribeToTask"]
            stream = server._stream(offered, method, SERVICE, given, Leaving())  # pyright: ignore[reportPrivateUsage] # no real caller leaves at that very moment
            with pytest.raises(asyncio.CancelledError):
                await anext(stream)

        streams.acquire(Caller(name="somebody"))


async def test_a_failed_call_names_no_extension() -> None:
    async with asyncio.timeout(PATIENCE):
        service = OneTask()
        async with (
            serving(service, dialect=EXTENDED) as (server, address),
            grpc.aio.insecure_channel(address) as channel,
        ):
            call = stub_of(channel).SendMessage(a_message(), metadata=(("a2a-extensions", PLAN.uri),))
            await service.waiting.acquire()
            server.stop()
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call
            assert "a2a-extensions" not in dict(refused.value.initial_metadata() or ())


async def test_an_answer_names_the_requested_extension() -> None:
    async with asyncio.timeout(PATIENCE):
        async with serving(OneTask(), dialect=EXTENDED) as (_, address), grpc.aio.insecure_channel(address) as channel:
            call = stub_of(channel).GetTask(
                a2a.GetTaskRequest(tenant="ada", id=TASK.id), metadata=(("a2a-extensions", PLAN.uri),)
            )
            await call
            assert dict(await call.initial_metadata())["a2a-extensions"] == PLAN.uri
