"""OpenCode: the server inside its TUI, on a port and with a password of this launch."""

from __future__ import annotations

import base64
import socket
from typing import Final

from synapse.core.question import Choice
from synapse.core.question_errors import QuestionGone
from synapse.drivers.pty.signals.adapter import Listener, Prepared, Sender, Surroundings
from synapse.drivers.pty.signals.event_source import EventSource
from synapse.drivers.pty.signals.local_server import LocalServer, NotReached
from synapse.drivers.pty.signals.opencode_sender import OpenCodeSender
from synapse.terminal.evidence import Source
from synapse.terminal.signals.opencode import OpenCodeEvents
from synapse.terminal.signals.opencode_questions import reply_to
from synapse.terminal.signals.report import Record

_PASSWORD: Final = "OPENCODE_SERVER_PASSWORD"  # noqa: S105  # the variable's name
_USER: Final = "OPENCODE_SERVER_USERNAME"
_PROBES: Final = ("/global/health", "/session/status")
_CONTINUES: Final = ("-c", "--continue", "-s", "--session", "--fork", "--prompt")
_NOT_KNOWN: Final = "which conversation it goes on with is known after the first message"
_NOT_FOUND: Final = 404


class OpenCodeSignals:
    """Implements Adapter."""

    def __init__(self, around: Surroundings) -> None:
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
