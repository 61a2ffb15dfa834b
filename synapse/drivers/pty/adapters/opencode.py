"""OpenCode: the server inside its TUI, on a port and with a password of this launch.

Hands a message to OpenCode by its server: no key is pressed, and what a person has begun to type stays.

A stream of server-sent events from a CLI's own server, opened when it is up and again when it breaks.

Talks to the HTTP server inside OpenCode's TUI, on a port of this machine.
"""

from __future__ import annotations

import asyncio
import base64
import json
import socket
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Final, cast

from synapse.client.events import EventDecoder
from synapse.core.errors import QuestionGone
from synapse.core.question import Choice
from synapse.core.text import sanitise
from synapse.drivers.pty.adapters.adapter import LaunchContext, Listener, NotTaken, Prepared, Sender
from synapse.net.http import HttpClient, HttpResponse
from synapse.net.http_types import HttpAnswer, HttpFailed, HttpRequest
from synapse.terminal.evidence import Source
from synapse.terminal.screen import Picture
from synapse.terminal.signals.opencode import OpenCodeEvents, Shown, conversation_shown, reply_to
from synapse.terminal.signals.report import Record, SignalKind, SignalReport, word

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
        self._server: OpenCodeServer | None = None
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
        self._server = OpenCodeServer(self._port, self._authorization())
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
            OSError: it may have been told, and did not say so.
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
        saying = self._events.take_saying()
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
        server: OpenCodeServer,
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
        if report.told is not SignalKind.SUBMITTED or self._expected is None:
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
            case Shown.SAME:
                return last
            case Shown.NONE:
                return await self._begin()
            case Shown.ANOTHER:
                raise NotTaken("its terminal shows another conversation: the message is typed there")

    async def _sessions(self) -> list[Record]:
        value = json_of(await self._ask("GET", "/session"))
        return [_table(one) for one in cast("list[object]", value)] if isinstance(value, list) else []

    async def _begin(self) -> str:
        """Begin a conversation; it is in the list of its person's conversations like any other."""
        session = word(_table(json_of(await self._ask("POST", "/session", {}))), "id")
        if not session:
            raise NotTaken("its server began no conversation")
        return session

    async def _hand_over(self, session: str, body: Mapping[str, Any], seen: asyncio.Future[None]) -> str:
        try:
            reply = await self._server.ask("POST", f"/session/{session}/prompt_async", body)
        except NotReached as error:
            raise NotTaken(str(error)) from error
        except HttpFailed:
            if await _is_seen(seen):
                return "its server has the message, though it did not answer"
            raise
        if not reply.is_success:
            raise NotTaken(_refusal(reply))
        if await _is_seen(seen):
            return "its server took the message, and tells of it"
        return "its server took the message"

    async def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> HttpAnswer:
        """Prepare its server for the message. Whatever goes wrong here, the message was not taken."""
        try:
            reply = await self._server.ask(method, path, body)
        except (NotReached, HttpFailed) as error:
            raise NotTaken(f"its server did not answer: {error}") from error
        if not reply.is_success:
            raise NotTaken(_refusal(reply))
        return reply


async def _is_seen(seen: asyncio.Future[None]) -> bool:
    done, _ = await asyncio.wait((seen,), timeout=_SEEN_SECONDS)
    return bool(done)


def _refusal(reply: HttpAnswer) -> str:
    error = _table(json_of(reply))
    why = word(error, "data", "message") or word(error, "message")
    return f"its server refused the message ({reply.status}){': ' if why else ''}{sanitise(why)}"


def _table(value: object) -> Record:
    return cast("Record", value) if isinstance(value, Mapping) else {}


_PAUSE_SECONDS: Final = 0.2
_SILENCE_SECONDS: Final = 25.0
"""Its heart beats every ten seconds."""
_OK: Final = 200


class EventSource:
    """Calls `take` for each event of `path`. `probes` are asked first: a stream opened too early stays silent."""

    def __init__(
        self, server: OpenCodeServer, path: str, probes: tuple[str, ...], take: Callable[[Record], None]
    ) -> None:
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
            with suppress(OSError):
                for probe in self._probes:
                    await self._probe(probe)
                await self._follow()
            with suppress(TimeoutError):
                await asyncio.wait_for(never.wait(), _PAUSE_SECONDS)

    async def _follow(self) -> None:
        """Read until the stream ends. Raises OSError, also when the stream is silent for too long."""
        async with self._server.open(self._path) as response:
            _require_ok(response)
            decoder = EventDecoder()
            self.is_open = True
            try:
                while True:
                    async with asyncio.timeout(_SILENCE_SECONDS):
                        data = await response.receive()
                    if not data:
                        return
                    for event in decoder.receive(data):
                        self._pass_on(event.data)
            finally:
                self.is_open = False

    async def _probe(self, path: str) -> None:
        async with self._server.open(path) as response:
            _require_ok(response)

    def _pass_on(self, data: str) -> None:
        with suppress(ValueError):
            value: object = json.loads(data)
            if isinstance(value, Mapping):
                self._take(cast("Record", value))


def _require_ok(response: HttpResponse) -> None:
    if response.status != _OK:
        raise ConnectionError(f"its server answers {response.status}")


_CONNECT_SECONDS: Final = 2.0
_HEAD_SECONDS: Final = 2.0
_ANSWER_SECONDS: Final = 10.0
_LARGEST_ANSWER: Final = 64 * 1024 * 1024


class NotReached(Exception):
    """Nobody listens on the port: the server has not seen the request."""


class OpenCodeServer:
    """Sends requests to the server on a port, with the credentials of this launch."""

    def __init__(self, port: int, authorization: str) -> None:
        self._port = port
        self._authorization = authorization
        self._client = HttpClient(connect_seconds=_CONNECT_SECONDS)

    async def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> HttpAnswer:
        """Send a request and return the whole answer.

        Raises:
            NotReached: nobody listens there.
            HttpFailed: the server may have seen the request, and did not answer.
        """
        try:
            return await self._client.fetch(
                self._request(method, path, body), seconds=_ANSWER_SECONDS, limit=_LARGEST_ANSWER
            )
        except HttpFailed as failed:
            if failed.sent:
                raise
            raise NotReached(f"nobody answers on port {self._port}") from failed

    @asynccontextmanager
    async def open(self, path: str) -> AsyncGenerator[HttpResponse, None]:
        """Get a path; the head of its answer has two seconds, its body all the time it wants.

        Raises HttpFailed, or TimeoutError for a head that is late.
        """
        async with AsyncExitStack() as stack:
            async with asyncio.timeout(_HEAD_SECONDS):
                opening = self._client.open(self._request("GET", path), deadline=None)
                response = await stack.enter_async_context(opening)
            yield response

    def _request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> HttpRequest:
        authorization = ("Authorization", self._authorization)
        return HttpRequest(
            method=method,
            url=f"http://127.0.0.1:{self._port}{path}",
            headers=(authorization,) if body is None else (authorization, ("Content-Type", "application/json")),
            body=None if body is None else json.dumps(body).encode(),
        )


def json_of(answer: HttpAnswer) -> object:
    """Return the body as JSON, or None if it is none."""
    try:
        value: object = json.loads(answer.body)
    except ValueError:
        return None
    return value
