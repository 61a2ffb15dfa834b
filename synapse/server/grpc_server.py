"""gRPC as it is served: from a call to a core request, and from what came of it to an answer or a stream.

    admit the caller → check the version → read the protobuf → decode → service → encode

The agent is the request's `tenant`, else the metadata `x-agent-id`, else the default one.

How gRPC says that something is wrong: the status of the table of A2A 1.0.1, and ErrorInfo in the trailer.

What a gRPC server says of itself to clients that know it by name only (reflection), such as grpcurl.

The messages of `v1` are those of `v1alpha` under another name, so both are answered by the same servicer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar, cast

import grpc  # type: ignore[import-untyped]  # it has no types of its own
import grpc.aio  # type: ignore[import-untyped]  # the same
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
"""A status travels in a header, and those are short."""

GrpcHeaders = list[tuple[bytes, bytes]]
AdmitCall = Callable[[GrpcHeaders, str, str], Caller | Awaitable[Caller]]
"""Tells on whose behalf a call runs, by its metadata, its path and where it comes from; raises a SynapseError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcLimits:
    """What one call may cost."""

    max_message_bytes: int = 10 * 1024 * 1024
    max_connections: int = 512
    handshake_seconds: float = 5.0
    """How long a connection may take until it speaks HTTP/2."""
    idle_seconds: float = 60.0
    """How long a connection without a call stays open; clients open another one by themselves."""
    ping_seconds: float = 30.0
    """How often a caller that says nothing is asked whether it is there: one that vanished holds a stream no longer."""


class GrpcServer:
    """Serves A2A over gRPC; it is made in the event loop that it runs in."""

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
                # Otherwise two gateways share a port, and each gets half of the calls.
                ("grpc.so_reuseport", 0),
                ("grpc.keepalive_time_ms", int(limits.ping_seconds * 1000)),
                ("grpc.keepalive_timeout_ms", int(limits.ping_seconds * 1000)),
                # Each connection is an open file, and gRPC lets in anybody before it is told who calls.
                ("grpc.max_allowed_incoming_connections", limits.max_connections),
                ("grpc.server_handshake_timeout_ms", int(limits.handshake_seconds * 1000)),
                ("grpc.max_connection_idle_ms", int(limits.idle_seconds * 1000)),
            ]
        )

    def offer(self, *services: GrpcService) -> None:
        """Take calls of these, and describe them to whoever may call; to be said before it serves."""
        description = Description(service.name for service in services)
        describing = partial(self._describe, services[0], description)
        self._server.add_generic_rpc_handlers(
            [*(self._handlers(one) for one in services), *(_describer(name, describing) for name in SERVICES)]
        )

    def bind(self, host: str, port: int, *, tls: tuple[bytes, bytes] | None = None) -> int:
        """Take a port, or any free one for 0; `tls` is a private key and a certificate, in PEM. Returns the port.

        Raises PortTaken or InvalidSettings.
        """
        place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            # gRPC writes a line of its own about a port that is taken, so it is asked for one that was free just now.
            bind_port(port, host).close()
            if tls is None:
                return int(self._server.add_insecure_port(place))
            return int(self._server.add_secure_port(place, grpc.ssl_server_credentials([tls])))
        except (PortTaken, RuntimeError) as error:
            raise PortTaken(
                f"port {port} is taken by another program", hint="choose another one for gRPC with --grpc-port"
            ) from error

    async def serve(self) -> None:
        """Serve until `stop`; then end the streams, and wait a moment for what runs."""
        try:
            await self._server.start()
            self._started.set()
            await self._stopping.wait()
        finally:
            self._stopping.set()
            await self._server.stop(GRACE_SECONDS)

    async def wait_started(self) -> None:
        """Return when calls are taken."""
        await self._started.wait()

    def stop(self) -> None:
        """Ask `serve` to return soon."""
        self._stopping.set()

    def _handlers(self, service: GrpcService) -> Any:
        """Requests and answers stay bytes here: what cannot be read is told in A2A's words, not in gRPC's."""
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
            call, caller = await self._asked(service, method, path, given, context)
            result: object = await self._service.handle(call.request, caller)
            if isinstance(result, Pending):
                pending = cast("Pending[object]", result)
                result = pending.now
                if not pending.is_settled:
                    result = await self._settled(asyncio.ensure_future(pending.settled()))
            answer = method.to_answer(cast("Call[object]", call).encode(result))
            await _tell_headers(call, context)
            return answer
        except Exception as error:
            # The outermost handler: see `_abort`.
            await _abort(service, path, error, context)
            raise

    async def _stream(
        self, service: GrpcService, method: Method, path: str, given: bytes, context: Any
    ) -> AsyncGenerator[bytes, None]:
        try:
            asked, caller = await self._asked(service, method, path, given, context)
            call = cast("StreamCall", asked)
            updates = await self._service.handle(call.request, caller)
            # The updates by themselves, too: a caller who leaves before the first of them leaves a generator that never
            # began, and closing such a one does nothing.
            async with aclosing(updates), aclosing(self._until_stopped(updates)) as coming:
                await _tell_headers(call, context)
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
        """Who may call may know what can be called, and nobody else: the rules are those of all calls."""
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

    async def _asked(
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
            raise InvalidField("tenant", "is missing", hint="it names the agent, and so does the metadata x-agent-id")
        call = method.ask(params, wire._replace(params={AGENT: agent}))
        request: Request[Any] = traced(call.request, headers)
        return call._replace(request=request), caller

    async def _settled(self, pending: asyncio.Future[T]) -> T:
        """The result, as long as the caller stays and the server runs. Raises AgentExited."""
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
        """The updates; a stream that the server's end cuts off ends with an error, so that its reader comes back."""
        stopping = asyncio.ensure_future(self._stopping.wait())
        coming: asyncio.Future[Update | None] | None = None
        try:
            async with aclosing(updates) as stream:
                while True:
                    coming = asyncio.ensure_future(_next(stream))
                    try:
                        await asyncio.wait({coming, stopping}, return_when=asyncio.FIRST_COMPLETED)
                    finally:
                        if not coming.done():
                            # The generator must have stopped before it can be closed.
                            coming.cancel()
                            await asyncio.wait({coming})
                    if coming.cancelled():
                        raise _ending()
                    update = coming.result()
                    if update is None:
                        return
                    yield update
        finally:
            stopping.cancel()


def _describer(name: str, describing: Callable[..., AsyncGenerator[bytes, None]]) -> Any:
    handlers: dict[str, Any] = {}
    handlers[METHOD] = grpc.stream_stream_rpc_method_handler(partial(describing, f"/{name}/{METHOD}"))
    return grpc.method_handlers_generic_handler(name, handlers)


async def _next(stream: TaskStream) -> Update | None:
    return await anext(stream, None)


def _ending() -> AgentExited:
    return AgentExited("the gateway ends; the task is kept")


def _headers(context: Any) -> GrpcHeaders:
    """The metadata as headers, in which the rest of us reads; it may be bytes, under names that end in -bin."""
    metadata: Any = context.invocation_metadata() or ()
    return [
        (str(name).encode("ascii"), value if isinstance(value, bytes) else str(value).encode("utf-8"))
        for name, value in metadata
    ]


async def _tell_headers(call: AnyCall, context: Any) -> None:
    """What an answer has as headers over HTTP goes ahead of it as metadata."""
    if call.headers:
        told = tuple((name.decode("ascii"), value.decode("ascii")) for name, value in call.headers)
        await context.send_initial_metadata(told)


async def _abort(service: GrpcService, path: str, error: Exception, context: Any) -> None:
    """Tell an error and end the call. A defect of ours is logged whole, and the caller gets no detail of it."""
    if isinstance(error, grpc.aio.AbortError):
        return
    if not isinstance(error, SynapseError):
        log.error("call_failed", exc_info=error, extra={"path": path})
        error = InternalFailure()
    told = tell(error)
    with suppress(grpc.aio.UsageError):  # the caller has left meanwhile
        await context.abort(grpc.StatusCode[told.status], service.details(error)[:LONGEST_DETAILS], told.trailers)


DETAILS: Final = "grpc-status-details-bin"
KNOWN_DETAILS: Final = (error_details_pb2.ErrorInfo, error_details_pb2.BadRequest)
"""What a status may carry. Naming them loads them: only then JSON's `@type` can be read."""

_TRAILERS: Final = frozenset({"www-authenticate", "retry-after"})

Trailer = tuple[str, str | bytes]


class Told(NamedTuple):
    """An error as gRPC tells it: the status by its name and number, and what stands in the trailer."""

    status: str
    number: int
    trailers: tuple[Trailer, ...]


def tell(error: SynapseError) -> Told:
    """The REST answer has all of it already: status, message and details are those of google.rpc.Status."""
    answer = encode_error(error)
    body: Mapping[str, Any] = msgspec.json.decode(answer.body)["error"]
    number = code_pb2.Code.Value(body["status"])
    fields = {"code": number, "message": body["message"], "details": body["details"]}
    rich = json_format.ParseDict(fields, status_pb2.Status())
    named = ((name.decode("ascii"), value.decode("latin-1")) for name, value in answer.headers)
    kept = tuple((name, value) for name, value in named if name in _TRAILERS and value.isascii())
    return Told(body["status"], number, ((DETAILS, rich.SerializeToString()), *kept))


SERVICES: Final = ("grpc.reflection.v1.ServerReflection", reflection.SERVICE_NAME)
METHOD: Final = "ServerReflectionInfo"
LONGEST_SECONDS: Final = 30.0
"""A client asks its few questions at once; one that stays for more has to come again."""


class Description:
    """Answers what the named services look like. What is described is public: the protobuf of A2A itself."""

    def __init__(self, names: Iterable[str], *, longest_seconds: float = LONGEST_SECONDS) -> None:
        self._servicer: Any = reflection.aio.ReflectionServicer([*names, reflection.SERVICE_NAME])
        self._longest_seconds = longest_seconds

    async def answers(self, asked: AsyncIterator[bytes], context: Any) -> AsyncGenerator[bytes, None]:
        """Raises InvalidRequest for what is no question, and WaitTimedOut for a client that stays too long."""
        async with aclosing(self._servicer.ServerReflectionInfo(self._questions(asked), context)) as answers:
            async for answer in answers:
                yield answer.SerializeToString()

    async def _questions(self, asked: AsyncIterator[bytes]) -> AsyncGenerator[Any, None]:
        end = asyncio.get_running_loop().time() + self._longest_seconds
        while True:
            try:
                async with asyncio.timeout_at(end):
                    question = await anext(asked)
                read = reflection_pb2.ServerReflectionRequest.FromString(question)
            except StopAsyncIteration:
                return
            except TimeoutError as error:
                raise WaitTimedOut(f"nothing more is described after {self._longest_seconds:g} s") from error
            except DecodeError as error:
                raise InvalidRequest("this is no ServerReflectionRequest") from error
            yield read
