"""Claude Code reports its prompts by a pipe, so that no prompt waits for us."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import stat
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from synapse.drivers.pty.adapters.claude import ClaudeSignals
from tests.unit.drivers.pty.adapters.launches import launch_in, until
from tests.unit.drivers.pty.adapters.listeners import KeepingListener

Scene = Callable[[ClaudeSignals, KeepingListener, int], Awaitable[None]]
SENT = {"hook_event_name": "UserPromptSubmit", "prompt_id": "p", "prompt": "please look at it"}
STOP = {"hook_event_name": "Stop", "prompt_id": "p", "last_assistant_message": "it is fine"}


def prompt_hook(prepared: tuple[str, ...]) -> dict[str, Any]:
    hooks = json.loads(Path(prepared[1]).read_text(encoding="utf-8"))["hooks"]
    found: dict[str, Any] = hooks["UserPromptSubmit"][0]["hooks"][0]
    return found


async def reported(folder: Path, scene: Scene) -> list[str]:
    """Returns what was reported in a scene, which gets the writing end of the pipe."""
    signals, listener = ClaudeSignals(launch_in(folder)), KeepingListener()
    listener.is_ready = True
    signals.prepare(())
    signals.start(listener, 0)
    writer = os.open(folder / "launch" / "prompts", os.O_WRONLY)
    try:
        await scene(signals, listener, writer)
    finally:
        os.close(writer)
        signals.stop()
    return [f"{report.kind}: {report.text}" for report in listener.reports]


def test_the_hook_runs_beside_the_prompt_and_writes_to_a_private_pipe(tmp_path: Path) -> None:
    signals = ClaudeSignals(launch_in(tmp_path))
    hook = prompt_hook(signals.prepare(()).arguments)
    target = shlex.split(hook["command"])[-1]

    assert (hook["type"], hook["async"]) == ("command", True)
    mode = Path(target.removeprefix(">")).stat().st_mode
    assert (stat.S_ISFIFO(mode), mode & 0o777) == (True, 0o600)


def test_where_no_pipe_can_be_made_the_hook_reports_over_http(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_given: object) -> None:
        raise OSError("no pipes on this file system")

    monkeypatch.setattr(os, "mkfifo", refuse)
    hook = prompt_hook(ClaudeSignals(launch_in(tmp_path)).prepare(()).arguments)

    assert (hook["type"], hook["url"]) == ("http", "http://127.0.0.1:8100/signals")


async def test_a_prompt_is_reported_however_its_bytes_are_cut(tmp_path: Path) -> None:
    async def scene(_signals: ClaudeSignals, listener: KeepingListener, writer: int) -> None:
        data = b"not JSON\n" + json.dumps(SENT).encode() + b"\n"
        for at in range(0, len(data), 7):
            os.write(writer, data[at : at + 7])
            await asyncio.wait((asyncio.get_running_loop().create_future(),), timeout=0.0)
        await until(lambda: bool(listener.reports))

    assert await reported(tmp_path, scene) == ["submitted: please look at it"]


@pytest.mark.parametrize("end", [b"", b"\n"])
async def test_the_command_writes_a_whole_line_also_after_one_that_was_cut_off(tmp_path: Path, end: bytes) -> None:
    async def scene(_signals: ClaudeSignals, listener: KeepingListener, writer: int) -> None:
        command = prompt_hook(("--settings", str(tmp_path / "launch" / "settings.json")))["command"]
        os.write(writer, b'{"prompt": "its command was killed whi')
        given = json.dumps(SENT).encode() + end
        await asyncio.to_thread(subprocess.run, ("sh", "-c", command), input=given, check=True, timeout=30)
        await until(lambda: bool(listener.reports))

    assert await reported(tmp_path, scene) == ["submitted: please look at it"]


async def test_the_end_of_a_turn_is_reported_after_its_prompt(tmp_path: Path) -> None:
    async def scene(signals: ClaudeSignals, _listener: KeepingListener, writer: int) -> None:
        os.write(writer, json.dumps(SENT).encode() + b"\n")
        signals.receive(STOP)

    assert await reported(tmp_path, scene) == ["submitted: please look at it", "answered: it is fine"]


async def test_a_prompt_that_is_reported_after_its_turn_begins_nothing(tmp_path: Path) -> None:
    async def scene(signals: ClaudeSignals, listener: KeepingListener, writer: int) -> None:
        signals.receive(STOP)
        os.write(writer, json.dumps(SENT).encode() + b"\n")
        os.write(writer, json.dumps({**SENT, "prompt_id": "next"}).encode() + b"\n")
        await until(lambda: len(listener.reports) > 1)

    assert await reported(tmp_path, scene) == ["answered: it is fine", "submitted: please look at it"]


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        (("before", "p"), ["submitted: please look at it", "failed: it was interrupted in its terminal"]),
        (("before", ""), ["submitted: please look at it"]),
    ],
)
async def test_an_interrupt_that_came_before_its_prompt_is_reported_after_it(
    tmp_path: Path, turns: tuple[str, ...], expected: list[str]
) -> None:
    transcript = tmp_path / "transcript.jsonl"
    words = {"content": [{"type": "text", "text": "[Request interrupted by user]"}]}
    records = [{"type": "user", "promptId": turn, "message": words} for turn in turns]
    transcript.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")

    async def scene(_signals: ClaudeSignals, listener: KeepingListener, writer: int) -> None:
        os.write(writer, json.dumps({**SENT, "transcript_path": str(transcript)}).encode() + b"\n")
        await until(lambda: bool(listener.reports))

    assert await reported(tmp_path, scene) == expected
