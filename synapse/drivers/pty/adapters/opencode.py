"""OpenCode: the server inside its TUI, on a port and with a password of this launch.

Hands a message to OpenCode by its server: no key is pressed, and what a person has begun to type stays.

A stream of server-sent events from a CLI's own server, opened when it is up and again when it breaks.

A CLI's own HTTP server on loopback: one request, one connection.
"""

from __future__ import annotations

import asyncio
import base64
import json
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, cast

from synapse.client.events import EventDecoder
from synapse.client.http import ChunkDecoder
from synapse.core.errors import QuestionGone
from synapse.core.question import Choice
from synapse.core.text import sanitise
from synapse.drivers.pty.adapters.adapter import LaunchContext, Listener, NotTaken, Prepared, Sender
from synapse.terminal.evidence import Source
from synapse.terminal.picture import Picture
from synapse.terminal.signals.opencode import OpenCodeEvents, ShownConversation, conversation_shown, reply_to
from synapse.terminal.signals.report import Record, SignalKind, SignalReport, text_at

_PASSWORD: Final = "OPENCODE_SERVER_PASSWORD"  # noqa: S105  # the variable's name
_USER: Final = "OPENCODE_SERVER_USERNAME"
_PROBES: Final = ("/global/health", "/session/status")
_CONTINUES: Final = ("-c", "--continue", "-s", "--session", "--fork", "--prompt")
_NOT_KNOWN: Final = "which conversation it goes on with is known after the first message"
_NOT_FOUND: Final = 404


class OpenCodeSignals:
    """Implements Adapter."""

    def __init__(self, around: LaunchContext) -> None:
        self._around = around
        self._port = 0
        self._events = OpenCodeEvents()
        self._listener: Listener | None = None
        self._source: EventSource | None = None
        self._server: LocalServer | None = None
        self._sender: OpenCodeSender | None = None
        self._arguments: tuple[str, ...] = ()

    def prepare(self, arguments: tuple[str, ...]) -> Prepared:
        """Give its server a port and a password, unless the person has: other users reach the port too."""
        self._arguments = arguments
        chosen = _value_of("--port", arguments)
        is_chosen = chosen.isdigit() and int(chosen) > 0
        self._port = int(chosen) if is_chosen else _free_port()
        added = () if is_chosen else ("--port", str(self._port))
        env = {} if self._around.env.get(_PASSWORD) else {_PASSWORD: self._around.secret}
        return Prepared(arguments=(*arguments, *added), env=env)

    def start(self, listener: Listener, _pid: int, /) -> None:
        self._listener = listener
        listener.expect(Source.SIGNAL, "its server is switched on, and has said nothing yet")
        self._server = LocalServer(self._port, self._authorization())
        is_known = not any(argument.partition("=")[0] in _CONTINUES for argument in self._arguments)
        self._sender = OpenCodeSender(
            self._server,
            self._events,
            _way(self._arguments),
            unknown="" if is_known else _NOT_KNOWN,
            picture=listener.picture,
        )
        self._source = EventSource(self._server, "/event", _PROBES, self._take)
        self._source.start()

    def look(self) -> None:
        """Its events come by themselves."""

    def receive(self, payload: Record) -> None:
        """It has no hooks of ours."""

    def sender(self) -> Sender | None:
        """Its server takes messages, once it is up."""
        return self._sender if self._source is not None and self._source.is_open else None

    async def answer(self, question_id: str, choice: Choice) -> bool:
        """Tell its server; see `signals.adapter.Adapter`.

        Raises:
            QuestionGone: it was answered meanwhile.
            OSError, EOFError, ValueError: it may have been told, and did not say so.
        """
        request = self._events.asked.get(question_id)
        reply = None if request is None else reply_to(request, choice)
        if reply is None or self._server is None:
            return False
        try:
            told = await self._server.ask("POST", reply.path, reply.body)
        except NotReached:
            return False
        if told.status == _NOT_FOUND:
            self._events.asked.pop(question_id, None)
            raise QuestionGone("it was answered in its terminal first")
        return told.is_success

    def correction(self, _shown: str, /) -> str:
        return ""

    def stop(self) -> None:
        if self._source is not None:
            self._source.stop()

    def _take(self, event: Record) -> None:
        report = self._events.read(event)
        if report is not None and self._listener is not None:
            if self._sender is not None:
                self._sender.hear(report)
            self._listener.report(report)
        saying = self._events.take_text()
        if saying is not None and self._listener is not None:
            self._listener.say(saying)

    def _authorization(self) -> str:
        env = self._around.env
        pair = f"{env.get(_USER) or 'opencode'}:{env.get(_PASSWORD) or self._around.secret}"
        return f"Basic {base64.b64encode(pair.encode()).decode()}"


def _way(arguments: tuple[str, ...]) -> Record:
    """The agent and the model that a person has named at the start, as its server wants them told."""
    agent = _value_of("--agent", arguments)
    provider, _, model = (_value_of("--model", arguments) or _value_of("-m", arguments)).partition("/")
    told: dict[str, object] = {"agent": agent} if agent else {}
    return {**told, "model": {"providerID": provider, "modelID": model}} if model else told


def _value_of(flag: str, arguments: tuple[str, ...]) -> str:
    for index, argument in enumerate(arguments):
        if argument == flag and index + 1 < len(arguments):
            return arguments[index + 1]
        if argument.startswith(flag + "="):
            return argument.partition("=")[2]
    return ""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


_SEEN_SECONDS: Final = 2.0
"""How long the message may take to appear among its server's events."""


class OpenCodeSender:
    """Implements Sender.

    A message goes into the conversation that was last spoken in, with the agent and the model of its last message, and
    the TUI is made to show that conversation. Where there is none yet, or the TUI shows its start page again, one is
    begun; where it shows another one, the message is not taken, so that it is typed there.
    """

    def __init__(
        self,
        server: LocalServer,
        events: OpenCodeEvents,
        first_way: Record,
        *,
        unknown: str,
        picture: Callable[[], Picture | None],
    ) -> None:
        self._server = server
        self._events = events
        self._first_way = first_way
        self._unknown = unknown
        """Why the conversation that it shows cannot be known before its first message; empty if it shows none."""
        self._picture = picture
        """What its terminal shows."""
        self._expected: tuple[str, asyncio.Future[None]] | None = None

    async def send(self, text: str) -> str:
        """Hand one message over; see `signals.adapter.Sender`."""
        text = sanitise(text).strip()
        before = self._events.session
        session = await self._conversation(before)
        way = self._events.way_of(session) or self._events.way_of(before) or self._first_way
        seen: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._expected = (text, seen)
        try:
            await self._ask("POST", "/tui/select-session", {"sessionID": session})
            return await self._hand_over(session, {"parts": [{"type": "text", "text": text}], **way}, seen)
        finally:
            self._expected = None

    def hear(self, report: SignalReport) -> None:
        """Take what its events say: a message of ours may be among them."""
        if report.kind is not SignalKind.SUBMITTED or self._expected is None:
            return
        text, seen = self._expected
        if report.is_about(text) and not seen.done():
            seen.set_result(None)

    async def _conversation(self, last: str) -> str:
        """The conversation on its screen: the one that was last spoken in, or a new one."""
        if not last:
            if self._unknown:
                raise NotTaken(self._unknown)
            return await self._begin()
        match conversation_shown(self._picture(), last, await self._sessions()):
            case ShownConversation.SAME:
                return last
            case ShownConversation.NONE:
                return await self._begin()
            case ShownConversation.ANOTHER:
                raise NotTaken("its terminal shows another conversation: the message is typed there")

    async def _sessions(self) -> list[Record]:
        value = (await self._ask("GET", "/session")).value()
        return [_table(one) for one in cast("list[object]", value)] if isinstance(value, list) else []

    async def _begin(self) -> str:
        """Begin a conversation; it is in the list of its person's conversations like any other."""
        session = text_at(_table((await self._ask("POST", "/session", {})).value()), "id")
        if not session:
            raise NotTaken("its server began no conversation")
        return session

    async def _hand_over(self, session: str, body: Mapping[str, Any], seen: asyncio.Future[None]) -> str:
        try:
            reply = await self._server.ask("POST", f"/session/{session}/prompt_async", body)
        except NotReached as error:
            raise NotTaken(str(error)) from error
        except (OSError, EOFError, ValueError):
            if await _is_seen(seen):
                return "its server has the message, though it did not answer"
            raise
        if not reply.is_success:
            raise NotTaken(_refusal(reply))
        if await _is_seen(seen):
            return "its server took the message, and tells of it"
        return "its server took the message"

    async def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Reply:
        """Prepare its server for the message. Whatever goes wrong here, the message was not taken."""
        try:
            reply = await self._server.ask(method, path, body)
        except (NotReached, OSError, EOFError, ValueError) as error:
            raise NotTaken(f"its server did not answer: {error}") from error
        if not reply.is_success:
            raise NotTaken(_refusal(reply))
        return reply


async def _is_seen(seen: asyncio.Future[None]) -> bool:
    done, _ = await asyncio.wait((seen,), timeout=_SEEN_SECONDS)
    return bool(done)


def _refusal(reply: Reply) -> str:
    error = _table(reply.value())
    why = text_at(error, "data", "message") or text_at(error, "message")
    return f"its server refused the message ({reply.status}){': ' if why else ''}{sanitise(why)}"


def _table(value: object) -> Record:
    return cast("Record", value) if isinstance(value, Mapping) else {}


_PAUSE_SECONDS: Final = 0.2
_ANSWER_SECONDS: Final = 2.0
_SILENCE_SECONDS: Final = 25.0
"""Its heart beats every ten seconds."""
_READ_SIZE: Final = 65536
_OK: Final = 200


class EventSource:
    """Calls `take` for each event of `path`. `probes` are asked first: a stream opened too early stays silent."""

    def __init__(self, server: LocalServer, path: str, probes: tuple[str, ...], take: Callable[[Record], None]) -> None:
        self._server = server
        self._path = path
        self._probes = probes
        self._take = take
        self._task: asyncio.Task[None] | None = None
        self.is_open = False
        """It is being followed right now."""

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        never = asyncio.Event()
        while True:
            with suppress(OSError, ValueError, EOFError, NotReached):
                for probe in self._probes:
                    await self._probe(probe)
                await self._follow()
            with suppress(TimeoutError):
                await asyncio.wait_for(never.wait(), _PAUSE_SECONDS)

    async def _probe(self, path: str) -> None:
        (await self._open(path)).writer.close()

    async def _follow(self) -> None:
        """Read until the stream ends."""
        stream = await self._open(self._path)
        chunks = ChunkDecoder() if stream.is_chunked else None
        decoder = EventDecoder()
        self.is_open = True
        try:
            while data := await asyncio.wait_for(stream.reader.read(_READ_SIZE), _SILENCE_SECONDS):
                for event in decoder.receive(chunks.receive(data) if chunks else data):
                    self._pass_on(event.data)
        finally:
            self.is_open = False
            stream.writer.close()

    async def _open(self, path: str) -> Stream:
        """Ask for a path; raises as `LocalServer.ask` does, and ValueError when the answer is no success."""
        async with asyncio.timeout(_ANSWER_SECONDS):
            stream = await self._server.open("GET", path)
        if stream.status != _OK:
            stream.writer.close()
            raise ValueError("it refuses")
        return stream

    def _pass_on(self, data: str) -> None:
        with suppress(ValueError):
            value: object = json.loads(data)
            if isinstance(value, Mapping):
                self._take(cast("Record", value))


_REQUEST_SECONDS: Final = 10.0
_CONNECT_SECONDS: Final = 2.0
_NO_CONTENT: Final = 204


class NotReached(Exception):
    """Nobody listens there: nothing was said to anybody."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What it answered."""

    status: int
    body: bytes

    @property
    def is_success(self) -> bool:
        return self.status // 100 == 2

    def value(self) -> object:
        """The body as JSON; None if it is none."""
        try:
            value: object = json.loads(self.body)
        except ValueError:
            return None
        return value


@dataclass(frozen=True, slots=True)
class Stream:
    """An answer whose head is there, and whose body comes."""

    status: int
    is_chunked: bool
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class LocalServer:
    """Asks the server on a port of this machine."""

    def __init__(self, port: int, authorization: str) -> None:
        self._port = port
        self._authorization = authorization

    async def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Reply:
        """Ask, and wait for the whole answer.

        Raises:
            NotReached: nobody listens; it cannot have been asked.
            OSError, EOFError, ValueError: it may have been asked, and did not answer (TimeoutError is an OSError).
        """
        async with asyncio.timeout(_REQUEST_SECONDS):
            stream = await self.open(method, path, body)
            try:
                data = b"" if stream.status == _NO_CONTENT else await _read_all(stream.reader)
            finally:
                stream.writer.close()
        return Reply(stream.status, ChunkDecoder().receive(data) if stream.is_chunked else data)

    async def open(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Stream:
        """Ask, and return once the answer's head is there; raises as `ask` does."""
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError as error:
            raise NotReached(f"nobody answers on port {self._port}") from error
        try:
            writer.write(self._request(method, path, body))
            await writer.drain()
            head = await reader.readuntil(b"\r\n\r\n")
            return Stream(_status(head), b"transfer-encoding: chunked" in head.lower(), reader, writer)
        except BaseException:
            writer.close()
            raise

    def _request(self, method: str, path: str, body: Mapping[str, Any] | None) -> bytes:
        content = b"" if body is None else json.dumps(body).encode()
        lines = [
            f"{method} {path} HTTP/1.1",
            f"Host: 127.0.0.1:{self._port}",
            f"Authorization: {self._authorization}",
            "Connection: close",
        ]
        if body is not None:
            lines += ["Content-Type: application/json", f"Content-Length: {len(content)}"]
        return "\r\n".join((*lines, "", "")).encode("ascii") + content


async def _read_all(reader: asyncio.StreamReader) -> bytes:
    data = b""
    while more := await reader.read(_READ_SIZE):
        data += more
    return data


def _status(head: bytes) -> int:
    words = head.split(b" ", 2)
    if len(words) < 3 or not words[1].isdigit():
        raise ValueError("it does not speak HTTP")
    return int(words[1])
