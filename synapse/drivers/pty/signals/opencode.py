"""OpenCode: the server inside its TUI, on a port and with a password of this launch."""

from __future__ import annotations

import base64
import socket
from typing import Final

from synapse.drivers.pty.signals.adapter import Listener, Prepared, Surroundings
from synapse.drivers.pty.signals.event_source import EventSource
from synapse.terminal.evidence import Source
from synapse.terminal.signals.opencode import OpenCodeEvents
from synapse.terminal.signals.report import Record

_PASSWORD: Final = "OPENCODE_SERVER_PASSWORD"  # noqa: S105  # the variable's name
_USER: Final = "OPENCODE_SERVER_USERNAME"
_PROBES: Final = ("/global/health", "/session/status")


class OpenCodeSignals:
    """Implements Adapter."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._port = 0
        self._events = OpenCodeEvents()
        self._listener: Listener | None = None
        self._source: EventSource | None = None

    def prepare(self, arguments: tuple[str, ...]) -> Prepared:
        """Give its server a port and a password, unless the person has: other users reach the port too."""
        chosen = _value_of("--port", arguments)
        is_chosen = chosen.isdigit() and int(chosen) > 0
        self._port = int(chosen) if is_chosen else _free_port()
        added = () if is_chosen else ("--port", str(self._port))
        env = {} if self._around.env.get(_PASSWORD) else {_PASSWORD: self._around.secret}
        return Prepared(arguments=(*arguments, *added), env=env)

    def start(self, listener: Listener, _pid: int, /) -> None:
        self._listener = listener
        listener.expect(Source.SIGNAL, "its server is switched on, and has said nothing yet")
        self._source = EventSource(self._port, "/event", _PROBES, self._authorization(), self._take)
        self._source.start()

    def look(self) -> None:
        """Its events come by themselves."""

    def receive(self, payload: Record) -> None:
        """It has no hooks of ours."""

    def stop(self) -> None:
        if self._source is not None:
            self._source.stop()

    def _take(self, event: Record) -> None:
        report = self._events.read(event)
        if report is not None and self._listener is not None:
            self._listener.report(report)

    def _authorization(self) -> str:
        env = self._around.env
        pair = f"{env.get(_USER) or 'opencode'}:{env.get(_PASSWORD) or self._around.secret}"
        return f"Basic {base64.b64encode(pair.encode()).decode()}"


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
