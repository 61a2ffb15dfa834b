"""The text of a running turn reaches the listener while the CLI's server streams it."""

from __future__ import annotations

from pathlib import Path

import pytest

from synapse.drivers.pty.adapters import codex_client
from synapse.drivers.pty.adapters.codex_client import CodexClient
from synapse.drivers.pty.adapters.opencode import OpenCodeSignals
from synapse.terminal.signals.report import TextSoFar
from tests.unit.drivers.pty.adapters.fake_app_server import THREAD, FakeAppServer
from tests.unit.drivers.pty.adapters.fake_opencode import FakeOpenCode
from tests.unit.drivers.pty.adapters.launches import launch_in, until
from tests.unit.drivers.pty.adapters.listeners import KeepingListener


def is_there(_socket: Path) -> bool:
    return True


async def test_opencodes_deltas_reach_the_listener(tmp_path: Path) -> None:
    server, listener = FakeOpenCode(), KeepingListener()

    signals = OpenCodeSignals(launch_in(tmp_path))
    await server.open(int(signals.prepare(()).arguments[-1]))
    signals.start(listener, 0)
    try:
        await until(lambda: signals.sender() is not None)
        server.emit_prompt("ses_1", "hello")
        info = {"id": "msg_2", "role": "assistant", "parentID": "msg_1"}
        server.emit("message.updated", sessionID="ses_1", info=info)
        part = {"id": "prt_2", "type": "text", "text": "", "messageID": "msg_2"}
        server.emit("message.part.updated", sessionID="ses_1", part=part)
        for delta in ("Hel", "lo"):
            words = {"messageID": "msg_2", "partID": "prt_2", "field": "text", "delta": delta}
            server.emit("message.part.delta", sessionID="ses_1", **words)
        await until(lambda: len(listener.said) == 2)
    finally:
        signals.stop()
        await server.close()

    assert listener.said == [TextSoFar("msg_1", "Hel"), TextSoFar("msg_1", "Hello")]


async def test_codexs_deltas_reach_the_listener(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codex_client, "_has_client", is_there)
    monkeypatch.setattr(codex_client, "_BLIND_SECONDS", 0.0)
    server, listener = FakeAppServer(), KeepingListener()

    await server.open(tmp_path / "s")
    client = CodexClient(tmp_path / "s", listener.report, lambda: False, listener.say)
    client.start()
    try:
        await until(lambda: client.is_ready)
        await server.notify("turn/started", threadId=THREAD, turn={"id": "turn-9"})
        for delta in ("Hel", "lo"):
            words = {"turnId": "turn-9", "itemId": "i", "delta": delta}
            await server.notify("item/agentMessage/delta", threadId=THREAD, **words)
        await until(lambda: len(listener.said) == 2)
    finally:
        client.stop()
        await server.close()

    assert listener.said == [TextSoFar("turn-9", "Hel"), TextSoFar("turn-9", "Hello")]
