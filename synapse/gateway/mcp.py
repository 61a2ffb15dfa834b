"""The tools for clients of MCP, over Streamable HTTP at `/mcp`: for desktop apps, editors and agents elsewhere.

    POST /mcp ─► mcp.server decides ─► each tool call becomes requests to the service, for the caller
                                             │
              one JSON answer ◄── finished ──┴── waits for an agent ──► events, if the client accepts them

It keeps no sessions: every request is answered by itself, in each version of the protocol. A call that waits ends at
the latest after the setting `mcp_wait` with the id of its task, before a client or a proxy gives up on it. A client
that disconnects ends the wait and not the task. The server has no stream of its own, so GET and DELETE are refused.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple, Self

from synapse import __version__
from synapse.client.views import reply_of
from synapse.core.caller import Caller
from synapse.core.errors import AgentNotFound, InvalidRequest, SynapseError, TaskNotFound, describe
from synapse.core.message import Message, MessageId, Role, TextPart
from synapse.core.question import QuestionKind
from synapse.core.requests import (
    CancelTask,
    ForAgent,
    GetAgent,
    GetTask,
    ListAgents,
    ListedAgent,
    SendAndWait,
    SendMessage,
)
from synapse.core.service import Handler
from synapse.core.task import Task, changed
from synapse.core.trace import traced
from synapse.dialects.dialect import (
    Dialect,
    EventAnswer,
    LateAnswer,
    ServiceRoute,
    WireAnswer,
    WireEvent,
    WireRequest,
    error_headers,
)
from synapse.dialects.paths import MCP, MCP_PATH
from synapse.dialects.proto_json import to_json
from synapse.dialects.task_json import http_status, task_object
from synapse.gateway.service import StreamSlot
from synapse.mcp import tools
from synapse.mcp.server import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_REQUEST,
    PARSE_ERROR,
    Exchange,
    HttpHeaders,
    Server,
    Session,
    ToolCall,
    refuse,
)
from synapse.mcp.tools import WHOLE_ID, AgentsCall, CancelCall, SendCall, StatusCall, ToolResult
from synapse.server import sse

PROGRESS_SECONDS: Final = 5.0
_NOT_ACCEPTABLE: Final = 406
_JSON: Final = ("application/json", "application/*", "*/*")
_EVENTS: Final = ("text/event-stream", "text/*")
_BASE64: Final = ("=?base64?", "?=")
_NEITHER: Final = (
    "there is no task and no agent '{}'. A task needs its whole id, as `send` returned it; call `agents` for names."
)
_FOR_PERSON: Final = "Only a person there can answer: tell your user, and look later with `status`, or `cancel` it."
_FOR_SENDER: Final = "To answer, `cancel` the task and send a new message that has the answer in it."
_NEEDS_PERSON: Final = "a person at the agent's machine has to decide about it"

Count = Callable[[Caller], None]
"""Counts one more request of a caller; raises RateLimited or CredentialsRefused."""
AcquireSlot = Callable[[Caller], StreamSlot]
"""Returns a slot for one more stream of a caller; raises TooManyStreams."""
AgentName = Callable[[Task], str]
"""Returns the name that the gateway has for a task's agent."""


def mcp_dialect(
    agent_name: AgentName,
    count: Count,
    acquire_slot: AcquireSlot,
    *,
    most_wait: float,
    progress_every: float = PROGRESS_SECONDS,
) -> Dialect:
    """Returns the dialect of one gateway; a call waits at most `most_wait` seconds for an answer."""
    endpoint = McpEndpoint(agent_name, count, acquire_slot, most_wait=most_wait, progress_every=progress_every)
    route = ServiceRoute(method="POST", path=MCP_PATH, serve=endpoint.serve)
    return Dialect(name=MCP, routes=(route,), encode_error=encode_error)


def encode_error(error: SynapseError) -> WireAnswer:
    """Encodes an error of a request that was not read, such as one without credentials."""
    status = http_status(type(error))
    code = INTERNAL_ERROR if status >= 500 else INVALID_REQUEST
    fields = {"code": code, "message": str(error), "data": describe(error)}
    return WireAnswer(status, to_json({"jsonrpc": "2.0", "id": None, "error": fields}), error_headers(error))


class Waiting(NamedTuple):
    """A call of `send` whose message is durable, and whose answer is not there yet."""

    call: ToolCall
    to: str
    task: Task
    settled: asyncio.Future[Task]
    seconds: float

    async def result(self) -> ToolResult:
        """Waits for the answer; at the end of the time, or if the wait fails, says how to look later."""
        try:
            async with asyncio.timeout(self.seconds):
                return settled_result(await self.settled, self.to)
        except TimeoutError:
            return tools.look_later(self.task.id, self.to, letters=WHOLE_ID)
        except SynapseError as error:
            return self.given_up(error)

    def given_up(self, error: SynapseError) -> ToolResult:
        """Returns the result of a wait that failed: the message was sent, so its task is named."""
        return tools.look_later(self.task.id, self.to, str(error), WHOLE_ID)


class McpEndpoint:
    """Answers the POSTs of all clients."""

    def __init__(
        self,
        agent_name: AgentName,
        count: Count,
        acquire_slot: AcquireSlot,
        *,
        most_wait: float,
        progress_every: float,
    ) -> None:
        self._server = Server(tools.GATEWAY_TOOLS, tools.person_instructions(), __version__)
        self._agent_name = agent_name
        self._count = count
        self._acquire_slot = acquire_slot
        self._most_wait = most_wait
        self._progress_every = progress_every

    async def serve(self, wire: WireRequest, service: Handler, caller: Caller) -> WireAnswer | LateAnswer | EventAnswer:
        """Answers one message or batch. Raises RateLimited or TooManyStreams, before any of its calls is run."""
        accepted = _accepted(wire)
        if accepted.isdisjoint(_JSON):
            refused = refuse(INVALID_REQUEST, "the Accept header must allow application/json")
            return _answer(refused, InvalidRequest.code)._replace(status=_NOT_ACCEPTABLE)
        exchange = self._read(wire)
        if exchange.is_complete:
            return _answer(exchange, InvalidRequest.code if _is_refusal(exchange) else "")
        for _ in exchange.calls[1:]:
            self._count(caller)
        may_wait = any(isinstance(call.call, SendCall) and call.call.waits for call in exchange.calls)
        if may_wait and not accepted.isdisjoint(_EVENTS):
            return await self._serve_events(exchange, wire, service, caller)
        waits, code = await self._run(exchange, wire, service, caller)
        if not waits:
            return _answer(exchange, code)
        late = asyncio.ensure_future(_finish(exchange, waits))
        late.add_done_callback(lambda _: _end(waits))
        return LateAnswer(late, partial(_give_up, exchange, waits))

    async def _serve_events(
        self, exchange: Exchange, wire: WireRequest, service: Handler, caller: Caller
    ) -> WireAnswer | EventAnswer:
        # Before the message is sent: a caller that has too many streams must be able to repeat the request.
        slot = self._acquire_slot(caller)
        waits: list[Waiting] = []
        try:
            waits, code = await self._run(exchange, wire, service, caller)
        finally:
            if not waits:
                slot.release()
        if not waits:
            return _answer(exchange, code)
        events = _WaitEvents(self._events(exchange, waits), waits, slot)
        return EventAnswer(events, partial(_give_up_in_stream, exchange, waits))

    def _read(self, wire: WireRequest) -> Exchange:
        try:
            message: object = json.loads(wire.body)
        except (ValueError, RecursionError):
            return refuse(PARSE_ERROR, "the body is not JSON")
        headers = _headers(wire)
        if headers is None:
            return refuse(HEADER_MISMATCH, "a header of MCP is there twice, or cannot be read")
        return self._server.receive(message, Session(), headers)

    async def _run(
        self, exchange: Exchange, wire: WireRequest, service: Handler, caller: Caller
    ) -> tuple[list[Waiting], str]:
        """Runs the calls of an exchange in their order; returns those that wait, and the code of the last error."""
        waits: list[Waiting] = []
        code = ""
        for call in tuple(exchange.calls):
            try:
                done = await self._call(call, wire, service, caller)
            except SynapseError as error:
                done, code = tools.refusal(error), error.code
            except BaseException:
                # A bug, or a gateway that ends: nobody follows the calls before this one any more.
                _end(waits)
                raise
            if isinstance(done, Waiting):
                waits.append(done)
            else:
                exchange.finish(call, done)
        return waits, code

    async def _call(self, call: ToolCall, wire: WireRequest, service: Handler, caller: Caller) -> ToolResult | Waiting:
        given = call.call
        match given:
            case AgentsCall():
                return _agents(await service.handle(ListAgents(), caller))
            case SendCall():
                return await self._send(call, given, wire, service, caller)
            case StatusCall():
                return await self._status(given, service, caller)
            case CancelCall():
                task = await service.handle(CancelTask(given.task), caller)
                return tools.canceled(shown(task), self._agent_name(task), WHOLE_ID)
            case _:
                raise AssertionError(f"the gateway does not offer {call.tool.name}")

    async def _send(
        self, call: ToolCall, given: SendCall, wire: WireRequest, service: Handler, caller: Caller
    ) -> ToolResult | Waiting:
        message = Message(message_id=MessageId(given.key), role=Role.USER, parts=(TextPart(text=given.text),))
        # The agent is told that somebody waits, and answers with a reply instead of the last words of its turn.
        send = SendMessage(message=message, dialect=MCP, response_expected=given.waits)
        if not given.waits:
            task = await service.handle(traced(ForAgent(given.to, send), wire.headers), caller)
            return tools.sent(shown(task), given.to, WHOLE_ID)
        pending = await service.handle(traced(ForAgent(given.to, SendAndWait(send)), wire.headers), caller)
        if pending.is_settled:
            return settled_result(pending.task, given.to)
        seconds = min(given.timeout or self._most_wait, self._most_wait)
        return Waiting(call, given.to, pending.task, asyncio.ensure_future(pending.settled()), seconds)

    async def _status(self, given: StatusCall, service: Handler, caller: Caller) -> ToolResult:
        try:
            task = await service.handle(GetTask(given.of, exact=True), caller)
        except TaskNotFound as missing:
            unasked = (f"But {missing.hint}.",) if missing.hint else ()
            try:
                agent = await service.handle(GetAgent(given.of), caller)
            except AgentNotFound:
                return ToolResult(" ".join((_NEITHER.format(given.of), *unasked)), is_error=True)
            return ToolResult(_agent_line(agent))
        return tools.task_status(shown(task), self._agent_name(task))

    async def _events(self, exchange: Exchange, waits: Sequence[Waiting]) -> AsyncGenerator[WireEvent]:
        """Yields progress of the calls until all have ended, then the answer."""
        running = {asyncio.ensure_future(one.result()): one for one in waits}
        step = 0
        try:
            while running:
                done, _ = await asyncio.wait(running, timeout=self._progress_every)
                for ended in done:
                    exchange.finish(running.pop(ended).call, ended.result())
                step += 1
                for one in running.values():
                    told = one.call.progress(step, f"waiting for {one.to}")
                    if told is not None:
                        yield WireEvent("", "message", to_json(told))
            yield WireEvent("", "message", to_json(exchange.reply))
        finally:
            for left in running:
                left.cancel()
            await asyncio.gather(*running, return_exceptions=True)


class _WaitEvents:
    """The events of calls that wait. Closing it ends the waits, and releases the slot of the stream.

    It is not a generator, because a generator that was never started does not run its `finally`.
    """

    def __init__(self, events: AsyncGenerator[WireEvent], waits: Sequence[Waiting], slot: StreamSlot) -> None:
        self._events = events
        self._waits = waits
        self._slot = slot

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> WireEvent:
        return await anext(self._events)

    async def aclose(self) -> None:
        try:
            await self._events.aclose()
        finally:
            _end(self._waits)
            self._slot.release()


def _end(waits: Sequence[Waiting]) -> None:
    """Ends the waits; their tasks go on."""
    for one in waits:
        one.settled.cancel()


async def _finish(exchange: Exchange, waits: Sequence[Waiting]) -> WireAnswer:
    """Returns the whole answer once all calls have ended."""
    for one, result in zip(waits, await asyncio.gather(*(one.result() for one in waits)), strict=True):
        exchange.finish(one.call, result)
    return _answer(exchange)


def _give_up(exchange: Exchange, waits: Sequence[Waiting], error: SynapseError) -> WireAnswer:
    """Returns the answer when the waits cannot go on, because the gateway ends."""
    for one in waits:
        if one.call in exchange.calls:
            exchange.finish(one.call, one.given_up(error))
    return _answer(exchange)


def _give_up_in_stream(exchange: Exchange, waits: Sequence[Waiting], error: SynapseError) -> WireAnswer:
    event = WireEvent("", "message", _give_up(exchange, waits, error).body)
    return WireAnswer(200, sse.event_bytes(event), media_type=sse.MEDIA_TYPE)


def _answer(exchange: Exchange, code: str = "") -> WireAnswer:
    """Returns the answer of a finished exchange; `code` is the error in it, for metrics."""
    reply = exchange.reply
    return WireAnswer(exchange.http_status, b"" if reply is None else to_json(reply), error=code)


def _is_refusal(exchange: Exchange) -> bool:
    """Returns whether the only message was refused: as a request, or for the arguments of its tool."""
    reply = exchange.reply
    return isinstance(reply, dict) and ("error" in reply or reply["result"].get("isError") is True)


def _accepted(wire: WireRequest) -> frozenset[str]:
    """Returns the media types that the client accepts; one that names none accepts all."""
    given = ",".join(value.decode("latin-1") for name, value in wire.headers if name == b"accept")
    accepted = frozenset(one.partition(";")[0].strip().lower() for one in given.split(",")) - {""}
    # Such a client is a person with curl, who reads one JSON value more easily.
    return accepted or frozenset({"*/*"})


def _headers(wire: WireRequest) -> HttpHeaders | None:
    """Returns the headers of MCP; None if one is there twice, or `Mcp-Name` cannot be decoded."""
    found: dict[bytes, str] = {}
    for name, value in wire.headers:
        if name in (b"mcp-protocol-version", b"mcp-method", b"mcp-name"):
            if name in found:
                return None
            found[name] = value.decode("latin-1")
    named = found.get(b"mcp-name")
    if named is not None:
        named = _decoded(named)
        if named is None:
            return None
    return HttpHeaders(found.get(b"mcp-protocol-version"), found.get(b"mcp-method"), named)


def _decoded(value: str) -> str | None:
    """Returns the value of a header that may be in base64 (2026-07-28, basic/transports); None if it is damaged."""
    begin, end = _BASE64
    if not (value.startswith(begin) and value.endswith(end)):
        return value
    try:
        return base64.b64decode(value[len(begin) : -len(end)], validate=True).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError):
        return None


def _agents(agents: Sequence[ListedAgent]) -> ToolResult:
    return ToolResult("\n".join(map(_agent_line, agents)) or "no agent is running")


def _agent_line(agent: ListedAgent) -> str:
    return tools.agent_line(
        agent.id,
        {"state": agent.state if agent.away_since is None else "away", "agent_type": agent.agent_type},
        role=agent.role,
    )


def settled_result(task: Task, to: str) -> ToolResult:
    """Returns the result of a wait whose task has ended, or asks something."""
    if task.state.is_terminal:
        return tools.answered(shown(task), to, letters=WHOLE_ID)
    question = task.question
    is_for_sender = question is None or question.kind is QuestionKind.CHOICE
    who = _FOR_SENDER if is_for_sender else _FOR_PERSON
    return ToolResult(
        f"task {task.id}: {to} asks before it goes on. {who} {tools.FROM_AGENT}", reply_of(shown(task)) or task.note
    )


def shown(task: Task) -> dict[str, Any]:
    """Returns a task as the tools read it, without what concerns only people at the agent's machine."""
    receipts = tuple(replace(receipt, evidence="") for receipt in task.receipts)
    return task_object(changed(task, {"receipts": receipts, "attention": _NEEDS_PERSON if task.attention else ""}))
