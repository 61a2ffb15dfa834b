"""OpenCode's own server is asked for its events once it is up."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from synapse.drivers.pty.adapters.opencode import OpenCodeSignals
from synapse.terminal.evidence import Source
from synapse.terminal.signals.report import SignalKind
from tests.unit.drivers.pty.adapters.launches import launch_in, until
from tests.unit.drivers.pty.adapters.listeners import KeepingListener
from tests.unit.terminal.signals.recordings import recorded

OK = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


class FakeServer:
    """Refuses at first, then sends the recorded events and hangs up."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.asked: list[str] = []
        self.authorizations: set[str] = set()
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.asked.append(head.split(" ")[1])
        self.authorizations.add(head.partition("Authorization: ")[2].partition("\r\n")[0])
        if len(self.asked) == 1:
            writer.write(b"HTTP/1.1 503 Not yet\r\n\r\n")
        elif self.asked[-1] == "/event":
            events = [f"data: {json.dumps(event)}\n\n" for event in recorded("opencode", "events.jsonl")]
            data = "".join(["data: no JSON\n\n", "data: 5\n\n", *events]).encode()
            writer.write(OK + b"%x\r\n" % len(data) + data + b"\r\n0\r\n\r\n")
        else:
            writer.write(OK + b"0\r\n\r\n")
        await writer.drain()
        writer.close()


async def test_events_become_reports_also_if_the_server_was_not_up_at_first(tmp_path: Path) -> None:
    signals, listener = OpenCodeSignals(launch_in(tmp_path)), KeepingListener()
    prepared = signals.prepare(("-c",))
    assert prepared.arguments[:2] == ("-c", "--port")
    assert prepared.env == {"OPENCODE_SERVER_PASSWORD": "s3cret"}
    server = FakeServer(int(prepared.arguments[2]))
    signals.start(listener, 0)
    await server.open()
    await until(lambda: any(report.kind is SignalKind.ANSWERED for report in listener.reports))
    signals.look()
    signals.receive({})
    signals.stop()
    await server.close()

    assert Source.SIGNAL in listener.expected
    assert server.asked[:4] == ["/global/health", "/global/health", "/session/status", "/event"]
    assert server.authorizations == {"Basic b3BlbmNvZGU6czNjcmV0"}


@pytest.mark.parametrize("arguments", [("--port", "4096"), ("--port=4096",)])
def test_a_port_and_a_password_of_the_persons_own_are_kept(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    prepared = OpenCodeSignals(launch_in(tmp_path, {"OPENCODE_SERVER_PASSWORD": "theirs"})).prepare(arguments)

    assert (prepared.arguments, prepared.env) == (arguments, {})
