"""The report about a background program that ended by itself."""

from __future__ import annotations

import errno
import io
import sys
from types import SimpleNamespace
from typing import cast

import pytest

from synapse.core.override import override
from synapse.drivers.pty.driver import PtyDriver
from synapse.drivers.pty.program import RunningProgram
from synapse.host.pty import report_exit


class ShownScreen:
    """A screen that is up and shows one line."""

    def wait_loaded(self, _timeout: float) -> None:
        pass

    def history(self, _lines: int) -> tuple[str, ...]:
        return ("no such model  ", "")


class FullDisk(io.StringIO):
    """A file that takes nothing more."""

    @override
    def write(self, _text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def ended(*, last_key: float = float("-inf")) -> RunningProgram:
    program = SimpleNamespace(exit_status=3, pump=SimpleNamespace(last_key=last_key), screen=ShownScreen())
    return cast("RunningProgram", program)


def driver(typed: str = "") -> PtyDriver:
    return cast("PtyDriver", SimpleNamespace(typed=lambda: typed))


def test_the_screen_is_reported_when_nothing_was_typed(capsys: pytest.CaptureFixture[str]) -> None:
    report_exit(ended(), driver())

    assert capsys.readouterr().err.endswith("its terminal showed:\n  no such model\n")


def test_a_conversation_is_not_reported(capsys: pytest.CaptureFixture[str]) -> None:
    report_exit(ended(), driver("a message"))
    report_exit(ended(last_key=1.0), driver())

    assert capsys.readouterr().err == ""


def test_a_full_disk_does_not_keep_the_host_from_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", FullDisk())

    report_exit(ended(), driver())
