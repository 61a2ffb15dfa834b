"""Codex's rollout is found among the files that Codex has open, and followed while it grows."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from synapse.drivers.pty.adapters import codex as adapter
from synapse.drivers.pty.adapters.codex import CodexSignals
from synapse.terminal.evidence import Source
from synapse.terminal.signals.report import SignalKind
from tests.unit.drivers.pty.adapters.launches import launch_in, until
from tests.unit.drivers.pty.adapters.listeners import KeepingListener
from tests.unit.terminal.signals.recordings import recorded

LINES = [json.dumps(record) for record in recorded("codex", "rollout.jsonl")]
TOLD_BY_ALL_LINES = 15


@pytest.fixture
def rollout(tmp_path: Path) -> Path:
    path = tmp_path / ".codex" / "sessions" / "2026" / "11" / "15" / "rollout-1.jsonl"
    path.parent.mkdir(parents=True)
    path.touch()
    return path


async def follow(folder: Path, rollout: Path, pid: int) -> KeepingListener:
    signals, listener = CodexSignals(launch_in(folder)), KeepingListener()
    signals.start(listener, pid)
    signals.receive({})
    with rollout.open("a", encoding="utf-8") as file:
        for line in LINES:
            file.write(line + "\n")
        file.flush()
        await until(lambda: len(listener.reports) == TOLD_BY_ALL_LINES)
        signals.look()
    signals.stop()
    return listener


async def test_the_rollout_that_the_program_has_open_is_followed(tmp_path: Path, rollout: Path) -> None:
    listener = await follow(tmp_path, rollout, os.getpid())

    assert Source.TRANSCRIPT in listener.expected
    assert [report.kind for report in listener.reports[:3]] == [
        SignalKind.WORKING,
        SignalKind.SUBMITTED,
        SignalKind.ANSWERED,
    ]
    assert len(listener.reports) == TOLD_BY_ALL_LINES


async def test_where_open_files_are_not_shown_the_newest_rollout_of_the_folder_is_followed(
    tmp_path: Path, rollout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter, "shows_open_files", lambda: False)
    elsewhere = json.loads(LINES[0])
    (rollout.parent / "rollout-2.jsonl").write_text(json.dumps(elsewhere) + "\n", encoding="utf-8")
    elsewhere["payload"]["cwd"] = str(tmp_path)
    monkeypatch.setattr("tests.unit.drivers.pty.adapters.test_codex.LINES", [json.dumps(elsewhere), *LINES[1:]])

    assert len((await follow(tmp_path, rollout, 0)).reports) == TOLD_BY_ALL_LINES


async def test_records_from_before_the_launch_are_left_out(tmp_path: Path, rollout: Path) -> None:
    old = [line.replace("2026-11-15T1", "2026-11-14T1") for line in LINES]
    rollout.write_text("\n".join(old) + "\n", encoding="utf-8")

    assert len((await follow(tmp_path, rollout, os.getpid())).reports) == TOLD_BY_ALL_LINES


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    path = tmp_path / "codex"
    path.write_text("#!/bin/sh\necho '      --no-daemon'\n", encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [(("resume",), ("--no-daemon", "resume")), (("--no-daemon", "-m", "x"), ("--no-daemon", "-m", "x"))],
)
def test_no_background_server_is_started(
    tmp_path: Path, scripts: Path, arguments: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    assert CodexSignals(launch_in(tmp_path, command=str(scripts))).prepare(arguments).arguments == expected


@pytest.mark.parametrize("command", ["true", "no-such-program"])
def test_an_older_version_gets_no_flag_that_it_does_not_know(tmp_path: Path, command: str) -> None:
    assert CodexSignals(launch_in(tmp_path, command=command)).prepare(("resume",)).arguments == ("resume",)
