"""OpenCode: the HTTP server inside its TUI, on a port and with a password of this launch.

Its stream of server-sent events reports its turns; questions are answered and messages are sent by requests, so that no
key is pressed and a person's half-typed text stays.

Its MCP server and the permission for our tools come by variables, merged with the person's own values. OpenCode merges
all its configurations key by key, and the last rule that matches decides, so a key `synapse_*` behind all others adds
one rule and changes none. A rule for `bash` would replace a person's `"bash": "ask"`, wherever that stands: OpenCode
gets none, and asks about our shell commands if the person's configuration says so.
"""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import sqlite3
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

from synapse.client.events import EventDecoder
from synapse.config.cli_configs import parse_config, read_configs, table_in
from synapse.core.driver import SendOutcome
from synapse.core.errors import QuestionGone
from synapse.core.question import Choice
from synapse.core.text import sanitise
from synapse.core.waiting import pause
from synapse.drivers.pty.adapters.adapter import (
    SERVER_NAME,
    ApiSender,
    LaunchContext,
    NotTaken,
    Prepared,
    SignalListener,
    why_anew,
)
from synapse.net.http import HttpClient, HttpResponse
from synapse.net.http_types import HttpAnswer, HttpFailed, HttpRequest
from synapse.terminal.evidence import Source
from synapse.terminal.picture import Picture
from synapse.terminal.signals.opencode import OpenCodeEvents, ShownConversation, conversation_shown, reply_to
from synapse.terminal.signals.report import Record, SignalKind, SignalReport, text_at
from synapse.terminal.signals.usage import OpenCodeUsage

_PASSWORD: Final = "OPENCODE_SERVER_PASSWORD"  # noqa: S105  # the variable's name
_USER: Final = "OPENCODE_SERVER_USERNAME"
_CONTENT: Final = "OPENCODE_CONFIG_CONTENT"
_PERMISSION: Final = "OPENCODE_PERMISSION"
_OUR_TOOLS: Final = f"{SERVER_NAME}_*"
_CONFIG_NAMES: Final = ("opencode.json", "opencode.jsonc")
_TIMEOUT_MARGIN_SECONDS: Final = 20.0
_PROBES: Final = ("/global/health", "/session/status")
_SESSION_FLAG: Final = "--session"
_CONTINUING_FLAGS: Final = ("-c", "--continue", "-s", _SESSION_FLAG, "--fork", "--prompt")
_UNKNOWN_SESSION: Final = "which conversation it goes on with is known after the first message"
_OK: Final = 200
_NOT_FOUND: Final = 404
_CONNECT_SECONDS: Final = 2.0
_HEAD_SECONDS: Final = 2.0
_ANSWER_SECONDS: Final = 10.0
_MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024
_DATABASE_SECONDS: Final = 2.0
_SEEN_SECONDS: Final = 2.0
"""How long a message may take to appear among the server's events."""
_PAUSE_SECONDS: Final = 0.2
_SILENCE_SECONDS: Final = 25.0
"""After that a stream counts as broken; the server sends a heartbeat every ten seconds."""


class OpenCodeSignals:
    """Implements Adapter for OpenCode."""

    def __init__(self, launch: LaunchContext) -> None:
        self._launch = launch
        self._port = 0
        self._events = OpenCodeEvents()
        self._usage = OpenCodeUsage()
        self._listener: SignalListener | None = None
        self._source: EventSource | None = None
        self._server: OpenCodeServer | None = None
        self._sender: OpenCodeSender | None = None
        self._arguments: tuple[str, ...] = ()

    def prepare(self, arguments: tuple[str, ...]) -> Prepared:
        """Gives its server a port and a password, unless the person did: other users can reach the port too."""
        self._arguments = arguments
        chosen = _value_of("--port", arguments)
        is_chosen = chosen.isdigit() and int(chosen) > 0
        self._port = int(chosen) if is_chosen else _free_port()
        added = () if is_chosen else ("--port", str(self._port))
        env = {} if self._launch.env.get(_PASSWORD) else {_PASSWORD: self._launch.secret}
        lacks = ""
        try:
            env |= tool_variables(self._launch)
        except ValueError as error:
            lacks = str(error)
        anew = why_anew(
            self._launch,
            arguments,
            # Its help is on stderr, and all versions with a server know the flag.
            knows="",
            choosing=_CONTINUING_FLAGS,
            folder_of=partial(session_folder, _database(self._launch)),
        )
        resumes = bool(self._launch.resume) and not anew
        if resumes:
            # The conversation that its terminal shows from the start.
            self._events.session = self._launch.resume
            added = (_SESSION_FLAG, self._launch.resume, *added)
        return Prepared(arguments=(*arguments, *added), env=env, lacks_tools=lacks, resumes=resumes, begins_anew=anew)

    def start(self, listener: SignalListener, _pid: int, /) -> None:
        self._listener = listener
        listener.expect(Source.SIGNAL, "its server is switched on, and has said nothing yet")
        self._server = OpenCodeServer(self._port, self._authorization())
        continues = any(argument.partition("=")[0] in _CONTINUING_FLAGS for argument in self._arguments)
        self._sender = OpenCodeSender(
            self._server,
            self._events,
            _agent_and_model(self._arguments),
            unknown=_UNKNOWN_SESSION if continues else "",
            resumed=self._events.session,
            picture=listener.picture,
        )
        self._source = EventSource(self._server, self._take)
        self._source.start()

    def look(self) -> None:
        """Does nothing: its events come by themselves."""

    def receive(self, payload: Record) -> None:
        """Does nothing: we give OpenCode no hooks."""

    def sender(self) -> ApiSender | None:
        """Returns the sender while the server is up."""
        return self._sender if self._source is not None and self._source.is_open else None

    async def answer(self, question_id: str, choice: Choice) -> bool:
        """Answers by the server; see `adapters.adapter.Adapter`.

        Raises:
            QuestionGone: it was answered meanwhile.
            OSError: the server may have got the answer, and did not confirm it.
        """
        request = self._events.asked.get(question_id)
        reply = None if request is None else reply_to(request, choice)
        if reply is None or self._server is None:
            return False
        try:
            answer = await self._server.ask("POST", reply.path, reply.body)
        except NotReached:
            return False
        if answer.status == _NOT_FOUND:
            self._events.asked.pop(question_id, None)
            raise QuestionGone("it was answered in its terminal first")
        return answer.is_success

    def prompts(self, session: str, /) -> list[str]:
        return session_prompts(_database(self._launch), session)

    def correction(self, _shown: str, /) -> str:
        return ""

    def stop(self) -> None:
        if self._source is not None:
            self._source.stop()

    def _take(self, event: Record) -> None:
        report = self._events.read(event)
        if report is not None and self._listener is not None:
            if report.kind is SignalKind.SUBMITTED:
                self._launch.converse(self._events.session)
            if self._sender is not None:
                self._sender.take(report)
            self._listener.report(report)
        saying = self._events.take_text()
        if saying is not None and self._listener is not None:
            self._listener.say(saying)
        used = self._usage.read(event)
        if used is not None and self._listener is not None:
            self._listener.note_usage(used)

    def _authorization(self) -> str:
        env = self._launch.env
        pair = f"{env.get(_USER) or 'opencode'}:{env.get(_PASSWORD) or self._launch.secret}"
        return f"Basic {base64.b64encode(pair.encode()).decode()}"


def tool_variables(launch: LaunchContext) -> dict[str, str]:
    """Returns the variables that give OpenCode our MCP server and allow its tools; none if the launch has no server.

    Raises ValueError when that would replace something of the person's; it says what.
    """
    if not launch.tools.command:
        return {}
    try:
        content = dict(parse_config(launch.env.get(_CONTENT) or "{}"))
    except ValueError as error:
        raise ValueError(f"{_CONTENT} cannot be read ({error})") from error
    general = content.get("permission", {})
    if not isinstance(general, str | Mapping) or not isinstance(content.get("mcp", {}), Mapping):
        why = f"{_CONTENT} cannot be read (`mcp` and `permission` are no objects)"
        raise ValueError(why)  # noqa: TRY004  # the caller knows one error for bad settings
    configs = [content, *read_configs(_config_files(launch))]
    if any(SERVER_NAME in table_in(config, "mcp") for config in configs):
        raise ValueError(f"its own configuration has an MCP server named `{SERVER_NAME}`, which is left as it is")
    server = {
        "type": "local",
        "command": list(launch.tools.command),
        "environment": dict(launch.tools.env),
        "timeout": int((launch.tools.wait_seconds + _TIMEOUT_MARGIN_SECONDS) * 1000),
    }
    content["mcp"] = {**table_in(content, "mcp"), SERVER_NAME: server}
    permission = _rules_of(_PERMISSION, launch.env)
    if any(_rules_for_us(config) for config in (*configs, {"permission": permission})):
        # The person has decided about our tools.
        return {_CONTENT: _written(content)}
    if permission:
        # These rules come last: ours must stand behind them, because a `"*": "ask"` among them is about all tools.
        return {_CONTENT: _written(content), _PERMISSION: _written({**permission, _OUR_TOOLS: "allow"})}
    # A text is short for a rule about all tools.
    theirs = {"*": general} if isinstance(general, str) else table_in(content, "permission")
    content["permission"] = {**theirs, _OUR_TOOLS: "allow"}
    return {_CONTENT: _written(content)}


def session_folder(database: Path, session: str) -> str | None:
    """Returns the folder of a conversation that OpenCode has in its database; None if it has none, or another one."""
    rows = _rows(database, "SELECT directory FROM session WHERE id = ?", session)
    return next(iter(rows), None)


def session_prompts(database: Path, session: str) -> list[str]:
    """Returns the texts of a person's messages in a conversation."""
    query = """
        SELECT json_extract(part.data, '$.text') FROM part JOIN message ON message.id = part.message_id
        WHERE part.session_id = ? AND json_extract(message.data, '$.role') = 'user'
        AND json_extract(part.data, '$.type') = 'text'
    """
    return _rows(database, query, session)


def _rows(database: Path, query: str, session: str) -> list[str]:
    """Returns the texts that a query finds; none in the database of a version that keeps them in another way."""
    if not database.is_file():
        return []
    try:
        with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True, timeout=_DATABASE_SECONDS)) as opened:
            found = opened.execute(query, (session,)).fetchall()
    except sqlite3.Error:
        return []
    return [str(row[0]) for row in found if row[0]]


def _database(launch: LaunchContext) -> Path:
    data = Path(launch.env.get("XDG_DATA_HOME") or launch.home / ".local" / "share") / "opencode"
    return data / (launch.env.get("OPENCODE_DB") or "opencode.db")


def _config_files(launch: LaunchContext) -> list[Path]:
    """Returns the paths of the person's and the project's configurations."""
    env = launch.env
    own = Path(env.get("XDG_CONFIG_HOME") or launch.home / ".config") / "opencode"
    files = [own / "config.json"]
    if env.get("OPENCODE_CONFIG"):
        files.append(launch.working_dir / env["OPENCODE_CONFIG"])
    folders = [own, launch.home / ".opencode"]
    if env.get("OPENCODE_CONFIG_DIR"):
        folders.append(launch.working_dir / env["OPENCODE_CONFIG_DIR"])
    for folder in (launch.working_dir, *launch.working_dir.parents):
        folders += [folder, folder / ".opencode"]
    return files + [folder / name for folder in folders for name in _CONFIG_NAMES]


def _rules_of(variable: str, env: Mapping[str, str]) -> Record:
    """Returns the rules in a variable; none if OpenCode itself finds none in it."""
    try:
        value: object = json.loads(env.get(variable) or "{}")
    except ValueError:
        return {}
    return cast("Record", value) if isinstance(value, Mapping) else {}


def _rules_for_us(config: Record) -> bool:
    """Returns whether a configuration says by name what our tools may do."""
    named = (*table_in(config, "permission"), *table_in(config, "tools"))
    return any(key.startswith(f"{SERVER_NAME}_") for key in named)


def _written(value: Record) -> str:
    # Not in ASCII only: OpenCode replaces `{file:PATH}` in the text before it reads it.
    return json.dumps(value, ensure_ascii=False)


def _agent_and_model(arguments: tuple[str, ...]) -> Record:
    """Returns the agent and the model that a person has named in the arguments, as the server takes them."""
    agent = _value_of("--agent", arguments)
    provider, _, model = (_value_of("--model", arguments) or _value_of("-m", arguments)).partition("/")
    fields: dict[str, object] = {"agent": agent} if agent else {}
    return {**fields, "model": {"providerID": provider, "modelID": model}} if model else fields


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


class OpenCodeSender:
    """Implements ApiSender for OpenCode's server.

    A message goes into the conversation of the last message, with that message's agent and model, and the TUI is made
    to show that conversation. If there is none yet, or the TUI shows its start page again, the sender begins one. If
    the TUI shows another conversation, the message is not taken, so that it is typed there.
    """

    def __init__(
        self,
        server: OpenCodeServer,
        events: OpenCodeEvents,
        first_settings: Record,
        *,
        unknown: str,
        resumed: str = "",
        picture: Callable[[], Picture | None],
    ) -> None:
        self._server = server
        self._events = events
        self._first_settings = first_settings
        """The agent and the model of the first message."""
        self._resumed = resumed
        """The conversation that the TUI was started with, if it goes on with that of an earlier run."""
        self._unknown = unknown
        """Why the conversation that the TUI shows is not known before its first message; empty if it shows none."""
        self._picture = picture
        """Returns what its terminal shows."""
        self._expected: tuple[str, asyncio.Future[None]] | None = None

    async def send(self, text: str, _key: str, /) -> str:
        """Sends one message; see `adapters.adapter.ApiSender`."""
        text = sanitise(text).strip()
        before = self._events.session
        session = await self._find_session(before)
        settings = self._events.settings_of(session) or self._events.settings_of(before) or self._first_settings
        seen: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._expected = (text, seen)
        try:
            await self._ask("POST", "/tui/select-session", {"sessionID": session})
            return await self._prompt(session, {"parts": [{"type": "text", "text": text}], **settings}, seen)
        finally:
            self._expected = None

    async def reconcile(self, _key: str, /) -> SendOutcome:
        """Returns UNKNOWN: it has no names for messages."""
        return SendOutcome.UNKNOWN

    def take(self, report: SignalReport) -> None:
        """Takes a report of the server's events, which may be about our message."""
        if report.kind is not SignalKind.SUBMITTED or self._expected is None:
            return
        text, seen = self._expected
        if report.is_about(text) and not seen.done():
            seen.set_result(None)

    async def _find_session(self, last: str) -> str:
        """Returns the session of the conversation on the screen: the one of the last message, or a new one."""
        if not last:
            if self._unknown:
                raise NotTaken(self._unknown)
            return await self._begin()
        picture, listed = self._picture(), _json_of(await self._ask("GET", "/session"))
        sessions = [_table(one) for one in cast("list[object]", listed)] if isinstance(listed, list) else []
        match conversation_shown(picture, last, sessions):
            case ShownConversation.SAME:
                return last
            case ShownConversation.NONE if last == self._resumed and not self._events.settings_of(last):
                # It was started with this one, and may not show it yet; it had no message in this run.
                return last
            case ShownConversation.NONE:
                return await self._begin()
            case ShownConversation.ANOTHER:
                raise NotTaken("its terminal shows another conversation: the message is typed there")

    async def _begin(self) -> str:
        """Begins a conversation, which the person finds in OpenCode's list like any other."""
        session = text_at(_table(_json_of(await self._ask("POST", "/session", {}))), "id")
        if not session:
            raise NotTaken("its server began no conversation")
        return session

    async def _prompt(self, session: str, body: Mapping[str, Any], seen: asyncio.Future[None]) -> str:
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
        """Sends a request before the message itself: after any error here, the message was not taken."""
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
    error = _table(_json_of(reply))
    why = text_at(error, "data", "message") or text_at(error, "message")
    return f"its server refused the message ({reply.status}){': ' if why else ''}{sanitise(why)}"


def _table(value: object) -> Record:
    return cast("Record", value) if isinstance(value, Mapping) else {}


class EventSource:
    """Calls `take` for each event of the server's stream, which it opens again whenever it breaks."""

    def __init__(self, server: OpenCodeServer, take: Callable[[Record], None]) -> None:
        self._server = server
        self._take = take
        self._task: asyncio.Task[None] | None = None
        self.is_open = False
        """Whether the stream is open now."""

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while True:
            with suppress(OSError):
                await self._follow()
            await pause(_PAUSE_SECONDS)

    async def _follow(self) -> None:
        """Reads until the stream ends. Raises OSError, also when the stream is silent for too long."""
        # A stream that is opened too early stays silent.
        for probe in _PROBES:
            async with self._server.open(probe) as response:
                _require_ok(response)
        async with self._server.open("/event") as response:
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

    def _pass_on(self, data: str) -> None:
        with suppress(ValueError):
            value: object = json.loads(data)
            if isinstance(value, Mapping):
                self._take(cast("Record", value))


def _require_ok(response: HttpResponse) -> None:
    if response.status != _OK:
        raise ConnectionError(f"its server answers {response.status}")


class NotReached(Exception):
    """No server listens on the port, so none has seen the request."""


class OpenCodeServer:
    """Sends requests to the server on a port, with the credentials of this launch."""

    def __init__(self, port: int, authorization: str) -> None:
        self._port = port
        self._authorization = authorization
        self._client = HttpClient(connect_seconds=_CONNECT_SECONDS)

    async def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> HttpAnswer:
        """Sends a request and returns the whole answer.

        Raises:
            NotReached: no server listens there.
            HttpFailed: the server may have seen the request, and did not answer.
        """
        try:
            return await self._client.fetch(
                self._request(method, path, body), seconds=_ANSWER_SECONDS, limit=_MAX_ANSWER_BYTES
            )
        except HttpFailed as failed:
            if failed.sent:
                raise
            raise NotReached(f"no server answers on port {self._port}") from failed

    @asynccontextmanager
    async def open(self, path: str) -> AsyncGenerator[HttpResponse, None]:
        """Gets a path. The head of the answer must come within two seconds; its body may take any time.

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


def _json_of(answer: HttpAnswer) -> object:
    """Returns the body as JSON, or None if it is none."""
    try:
        value: object = json.loads(answer.body)
    except ValueError:
        return None
    return value
