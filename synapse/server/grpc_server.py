"""The gRPC server of a gateway: turns calls into core requests, and results into answers and streams.

    admit the caller → check the version → read the protobuf → decode → service → encode

The agent is the request's `tenant`, else the metadata `x-agent-id`, else the default one.

Errors have the status of A2A 1.0.1's table, with ErrorInfo in the trailer. Reflection describes the services to clients
such as grpcurl; the messages of its `v1` are those of `v1alpha` under another name, so one servicer answers both.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar, cast

import grpc  # type: ignore[import-untyped]  # it has no types
import grpc.aio  # type: ignore[import-untyped]  # it has no types
import msgspec
from google.protobuf import json_format
from google.protobuf.message import DecodeError
from google.rpc import code_pb2, error_details_pb2, status_pb2  # type: ignore[import-untyped]  # pyright: ignore[reportMissingTypeStubs]  # untyped
from grpc_reflection.v1alpha import reflection, reflection_pb2  # type: ignore[import-untyped]  # pyright: ignore[reportMissingTypeStubs]  # untyped

from synapse.core.caller import Caller
from synapse.core.errors import (
    AgentExited,
    InternalFailure,
    InvalidField,
    InvalidRequest,
    PortTaken,
    SynapseError,
    VersionNotSupported,
    WaitTimedOut,
)
from synapse.core.events import Update
from synapse.core.requests import Pending, Request, TaskStream
from synapse.core.service import Handler
from synapse.core.trace import traced
from synapse.core.waiting import CutOff, read_until
from synapse.dialects.a2a_v1.routes import encode_error
from synapse.dialects.dialect import AGENT, AnyCall, Call, StreamCall, WireRequest
from synapse.dialects.negotiation import DIALECTS, asked_dialect, asked_version
from synapse.server.grpc_methods import GrpcService, Method
from synapse.server.listener import bind_port

T = TypeVar("T")

log = logging.getLogger(__name__)

AGENT_METADATA: Final = b"x-agent-id"
GRACE_SECONDS: Final = 3.0
LONGEST_DETAILS: Final = 1000
"""A status travels in a header, and headers are short."""
DETAILS: Final = "grpc-status-details-bin"
KNOWN_DETAILS: Final = (error_details_pb2.ErrorInfo, error_details_pb2.BadRequest)
"""The messages that a status may carry. Naming them loads them, which JSON's `@type` needs."""
REFLECTION_SERVICES: Final = ("grpc.reflection.v1.ServerReflection", reflection.SERVICE_NAME)
REFLECTION_METHOD: Final = "ServerReflectionInfo"
REFLECTION_SECONDS: Final = 30.0
"""How long one reflection stream may last: a client asks its few questions at once."""
_TRAILERS: Final = frozenset({"www-authenticate", "retry-after"})

GrpcHeaders = list[tuple[bytes, bytes]]
Trailer = tuple[str, str | bytes]
AdmitCall = Callable[[GrpcHeaders, str, str], Caller | Awaitable[Caller]]
"""Returns the caller of a call, by its metadata, its path and its peer's address; raises a SynapseError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcLimits:
    """Limits of connections and messages."""

    max_message_bytes: int = 10 * 1024 * 1024
    max_connections: int = 512
    handshake_seconds: float = 5.0
    """How long a connection may take until it speaks HTTP/2."""
    idle_seconds: float = 60.0
    """How long a connection without a call stays open; clients open another one by themselves."""
    ping_seconds: float = 30.0
    """How often a silent client is pinged, so that one that vanished does not hold its stream."""


class GrpcServer:
    """Serves A2A over gRPC. Create it in the event loop that it runs in."""

    def __init__(
        self,
        service: Handler,
        *,
        admit: AdmitCall,
        default_agent: str = "",
        limits: GrpcLimits | None = None,
    ) -> None:
        limits = limits or GrpcLimits()
        self._service = service
        self._admit = admit
        self._default_agent = default_agent
        self._stopping = asyncio.Event()
        self._started = asyncio.Event()
        self._server: Any = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", limits.max_message_bytes),
                ("grpc.max_send_message_length", -1),
                # Otherwise two gateways could share a port, and each would get half of the calls.
                ("grpc.so_reuseport", 0),
                ("grpc.keepalive_time_ms", int(limits.ping_seconds * 1000)),
                ("grpc.keepalive_timeout_ms", int(limits.ping_seconds * 1000)),
                # Each connection is an open file, and gRPC accepts it before its caller is known.
                ("grpc.max_allowed_incoming_connections", limits.max_connections),
                ("grpc.server_handshake_timeout_ms", int(limits.handshake_seconds * 1000)),
                ("grpc.max_connection_idle_ms", int(limits.idle_seconds * 1000)),
            ]
        )

    def offer(self, *services: GrpcService) -> None:
        """Serves these services, and their reflection. Call it before `serve`."""
        description = Description(service.name for service in services)
        handlers = [self._handlers(service) for service in services]
        for name in REFLECTION_SERVICES:
            describe = partial(self._describe, services[0], description, f"/{name}/{REFLECTION_METHOD}")
            methods: dict[str, Any] = {REFLECTION_METHOD: grpc.stream_stream_rpc_method_handler(describe)}
            handlers.append(grpc.method_handlers_generic_handler(name, methods))
        self._server.add_generic_rpc_handlers(handlers)

    def bind(self, host: str, port: int, *, tls: tuple[bytes, bytes] | None = None) -> int:
        """Binds a port, or any free one for 0, and returns it; `tls` is a private key and a certificate, in PEM.

        Raises PortTaken or InvalidSettings.
        """
        place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            # gRPC prints a line of its own about a port that is taken, so check first that it is free.
            bind_port(port, host).close()
            if tls is None:
                return int(self._server.add_insecure_port(place))
            return int(self._server.add_secure_port(place, grpc.ssl_server_credentials([tls])))
        except (PortTaken, RuntimeError) as error:
            raise PortTaken(
                f"port {port} is taken by another program", hint="choose another port for gRPC with --grpc-port"
            ) from error

    async def serve(self) -> None:
        """Serves until `stop`; then ends the streams, and waits GRACE_SECONDS for running calls."""
        try:
            await self._server.start()
            self._started.set()
            await self._stopping.wait()
        finally:
            self._stopping.set()
            await self._server.stop(GRACE_SECONDS)

    async def wait_started(self) -> None:
        """Waits until calls are accepted."""
        await self._started.wait()

    def stop(self) -> None:
        """Makes `serve` return soon."""
        self._stopping.set()

    def _handlers(self, service: GrpcService) -> Any:
        """Returns the handlers of a service. They take and return bytes, so that A2A encodes the decoding errors."""
        handlers: dict[str, Any] = {}
        for name, method in service.methods.items():
            path = f"/{service.name}/{name}"
            if method.streams:
                handlers[name] = grpc.unary_stream_rpc_method_handler(partial(self._stream, service, method, path))
            else:
                handlers[name] = grpc.unary_unary_rpc_method_handler(partial(self._answer, service, method, path))
        return grpc.method_handlers_generic_handler(service.name, handlers)

    async def _answer(self, service: GrpcService, method: Method, path: str, given: bytes, context: Any) -> bytes:
        try:
            call, caller = await self._decode(service, method, path, given, context)
            result: object = await self._service.handle(call.request, caller)
            if isinstance(result, Pending):
                pending = cast("Pending[object]", result)
                result = pending.now
                if not pending.is_settled:
                    result = await self._settled(asyncio.ensure_future(pending.settled()))
            answer = method.to_answer(cast("Call[object]", call).encode(result))
            await _send_headers(call, context)
            return answer
        except Exception as error:
            # The outermost handler: see `_abort`.
            await _abort(service, path, error, context)
            raise

    async def _stream(
        self, service: GrpcService, method: Method, path: str, given: bytes, context: Any
    ) -> AsyncGenerator[bytes, None]:
        try:
            asked, caller = await self._decode(service, method, path, given, context)
            call = cast("StreamCall", asked)
            updates = await self._service.handle(call.request, caller)
            # Closes `updates` too: if the caller leaves before the first one, the outer generator never began, and
            # closing such a one does nothing.
            async with aclosing(updates), aclosing(self._until_stopped(updates)) as coming:
                await _send_headers(call, context)
                async for update in coming:
                    event = call.encode(update)
                    if event is not None:
                        yield method.to_answer(event.data)
        except Exception as error:
            # The outermost handler: see `_abort`.
            await _abort(service, path, error, context)
            raise

    async def _describe(
        self, service: GrpcService, description: Description, path: str, asked: Any, context: Any
    ) -> AsyncGenerator[bytes, None]:
        """Answers reflection for admitted callers only, by the rules of all calls."""
        try:
            admitted = self._admit(_headers(context), path, str(context.peer()))
            if not isinstance(admitted, Caller):
                await admitted
            async with aclosing(description.answers(aiter(asked), context)) as answers:
                async for answer in answers:
                    yield answer
        except Exception as error:
            # The outermost handler: see `_abort`.
            await _abort(service, path, error, context)
            raise

    async def _decode(
        self, service: GrpcService, method: Method, path: str, given: bytes, context: Any
    ) -> tuple[AnyCall, Caller]:
        headers = _headers(context)
        admitted = self._admit(headers, path, str(context.peer()))
        caller = admitted if isinstance(admitted, Caller) else await admitted
        wire = WireRequest("POST", path, headers=headers)
        if asked_dialect(wire) not in ("", service.dialect.name):
            spoken = [version for version, name in DIALECTS.items() if name == service.dialect.name]
            raise VersionNotSupported(asked_version(wire)[:40], spoken)
        params, tenant = method.read(given)
        agent = tenant or wire.header(AGENT_METADATA) or self._default_agent
        if not agent:
            raise InvalidField("tenant", "is missing", hint="name the agent there, or in the metadata x-agent-id")
        call = method.ask(params, wire._replace(params={AGENT: agent}))
        request: Request[Any] = traced(call.request, headers)
        return call._replace(request=request), caller

    async def _settled(self, pending: asyncio.Future[T]) -> T:
        """Waits for the result, as long as the caller stays and the server runs. Raises AgentExited."""
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            either: set[asyncio.Future[Any]] = {pending, stopping}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not pending.done():
                raise _ending()
            return pending.result()
        finally:
            stopping.cancel()
            pending.cancel()

    async def _until_stopped(self, updates: TaskStream) -> AsyncGenerator[Update, None]:
        """Yields the updates. When the server stops, raises AgentExited, so that the reader reconnects."""
        async with aclosing(read_until(self._stopping, updates)) as coming:
            try:
                async for update in coming:
                    yield update
            except CutOff:
                raise _ending() from None


def _ending() -> AgentExited:
    return AgentExited("the gateway ends; the task is kept")


def _headers(context: Any) -> GrpcHeaders:
    """Returns the metadata as HTTP headers; values are bytes under names that end in -bin."""
    metadata: Any = context.invocation_metadata() or ()
    return [
        (str(name).encode("ascii"), value if isinstance(value, bytes) else str(value).encode("utf-8"))
        for name, value in metadata
    ]


async def _send_headers(call: AnyCall, context: Any) -> None:
    """Sends the headers that the answer has over HTTP as initial metadata."""
    if call.headers:
        metadata = tuple((name.decode("ascii"), value.decode("ascii")) for name, value in call.headers)
        await context.send_initial_metadata(metadata)


async def _abort(service: GrpcService, path: str, error: Exception, context: Any) -> None:
    """Ends the call with an error. The log gets the traceback of a defect, the caller gets no details."""
    if isinstance(error, grpc.aio.AbortError):
        return
    if not isinstance(error, SynapseError):
        log.error("call_failed", exc_info=error, extra={"path": path})
        error = InternalFailure()
    status = grpc_status(error)
    with suppress(grpc.aio.UsageError):  # the caller has left meanwhile
        await context.abort(grpc.StatusCode[status.status], service.details(error)[:LONGEST_DETAILS], status.trailers)


class GrpcStatus(NamedTuple):
    """An error in gRPC: the name and number of its status, and its trailers."""

    status: str
    number: int
    trailers: tuple[Trailer, ...]


def grpc_status(error: SynapseError) -> GrpcStatus:
    """Converts the REST answer of an error, whose status, message and details are those of google.rpc.Status."""
    answer = encode_error(error)
    body: Mapping[str, Any] = msgspec.json.decode(answer.body)["error"]
    number = code_pb2.Code.Value(body["status"])
    fields = {"code": number, "message": body["message"], "details": body["details"]}
    rich = json_format.ParseDict(fields, status_pb2.Status())
    named = ((name.decode("ascii"), value.decode("latin-1")) for name, value in answer.headers)
    kept = tuple((name, value) for name, value in named if name in _TRAILERS and value.isascii())
    return GrpcStatus(body["status"], number, ((DETAILS, rich.SerializeToString()), *kept))


class Description:
    """Answers reflection requests about the named services. It shows only what is public: the protobuf of A2A."""

    def __init__(self, names: Iterable[str], *, longest_seconds: float = REFLECTION_SECONDS) -> None:
        self._servicer: Any = reflection.aio.ReflectionServicer([*names, reflection.SERVICE_NAME])
        self._longest_seconds = longest_seconds

    async def answers(self, asked: AsyncIterator[bytes], context: Any) -> AsyncGenerator[bytes, None]:
        """Yields the answers. Raises InvalidRequest for an invalid request, WaitTimedOut after `longest_seconds`."""
        async with aclosing(self._servicer.ServerReflectionInfo(self._requests(asked), context)) as answers:
            async for answer in answers:
                yield answer.SerializeToString()

    async def _requests(self, asked: AsyncIterator[bytes]) -> AsyncGenerator[Any, None]:
        end = asyncio.get_running_loop().time() + self._longest_seconds
        while True:
            try:
                async with asyncio.timeout_at(end):
                    question = await anext(asked)
                read = reflection_pb2.ServerReflectionRequest.FromString(question)
            except StopAsyncIteration:
                return
            except TimeoutError as error:
                raise WaitTimedOut(f"a reflection stream ends after {self._longest_seconds:g} s") from error
            except DecodeError as error:
                raise InvalidRequest("this is not a ServerReflectionRequest") from error
            yield read
