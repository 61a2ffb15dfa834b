"""Gemini's answer is what its chat file has when its terminal shows that it is ready."""

from __future__ import annotations

import json
from pathlib import Path

from synapse.drivers.pty.adapters.gemini import GeminiSignals
from synapse.terminal.signals.report import SignalKind
from tests.unit.drivers.pty.adapters.launches import launch_in, until
from tests.unit.drivers.pty.adapters.listeners import KeepingListener
from tests.unit.terminal.signals.recordings import recorded

RECORDS = recorded("gemini", "chat.jsonl")
SESSION: str = RECORDS[0]["sessionId"]


async def test_an_answer_waits_for_the_terminal(tmp_path: Path) -> None:
    chat = tmp_path / ".gemini" / "tmp" / "proj" / "chats" / f"session-2026-11-15T10-34-{SESSION[:8]}.jsonl"
    chat.parent.mkdir(parents=True)
    (chat.parent / f"session-2026-11-14T10-34-{SESSION[:8]}.jsonl").write_text("{}\n", encoding="utf-8")

    signals, listener = GeminiSignals(launch_in(tmp_path)), KeepingListener()
    signals.prepare(("--session-id", SESSION))
    signals.start(listener, 0)
    first_turn = RECORDS[:5]
    chat.write_text("".join(json.dumps(record) + "\n" for record in first_turn), encoding="utf-8")
    await until(lambda: len(listener.reports) == 1)
    assert listener.reports[0].kind is SignalKind.SUBMITTED
    listener.is_ready = True
    await until(lambda: len(listener.reports) == 2)
    with chat.open("a", encoding="utf-8") as file:
        file.write("".join(json.dumps(record) + "\n" for record in RECORDS[5:]))
    signals.look()
    signals.receive({})
    signals.stop()

    assert listener.reports[1].kind is SignalKind.ANSWERED
    assert listener.reports[1].text.startswith("FAKE-ECHO: ")
    assert [report.reason for report in listener.reports if report.kind is SignalKind.FAILED] == [
        "interrupted",
        "api_error",
    ]
