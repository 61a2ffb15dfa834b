"""Ctrl-Z at a program that has no shell behind it, or that goes on, does not keep messages away."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from synapse.core.agent import READY
from tests.integration.pty.terminals import Stage, answer, line_program, staged, until

pytestmark = pytest.mark.integration

# A line that the program has not read yet would be lost with Ctrl-Z, so it reports when it has one.
SILENT = """
import pathlib, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
while True:
    if input('> ') == 'work':
        pathlib.Path(sys.argv[1]).touch()
        signal.sigwait({signal.SIGUSR1})
    else:
        print('yes')
"""

LEAVING = """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTSTP, signal.SIGCONT})
print('here')
signal.sigwait({signal.SIGTSTP})
signal.sigwait({signal.SIGCONT})
print('back')
input('> ')
"""


async def press(stage: Stage, keys: bytes) -> None:
    """Types as a person who is attached, and waits until the terminal has the keys."""
    before = stage.program.pump.last_key
    stage.program.type_keys(keys)
    await until(lambda: stage.program.pump.last_key > before, "the keys are typed")


async def test_a_half_typed_line_is_dropped_and_the_next_message_is_typed() -> None:
    async with staged(
        (sys.executable, "-P", "-m", "synapse.tools.dummy"), line_program(answer={"echo": "^> "})
    ) as stage:
        await stage.ready()
        await press(stage, b"half a line\x1a")

        assert answer(await stage.turn("hello")) == "echo: hello"
        assert "half a line" not in stage.screen()


async def test_a_ctrl_z_that_is_echoed_during_work_does_not_hide_the_next_prompt(tmp_path: Path) -> None:
    read = tmp_path / "read"
    async with staged((sys.executable, "-c", SILENT, str(read)), line_program()) as stage:
        await stage.ready()
        await press(stage, b"work\r")
        await until(read.exists, "the line is read", stage.screen)
        await until(lambda: not stage.screen().rpartition("> work")[2].strip(), "it is echoed", stage.screen)
        await press(stage, b"\x1a")
        os.kill(stage.program.pid, signal.SIGUSR1)

        await stage.ready()
        assert stage.driver.view().state == READY


async def test_a_program_that_waits_to_be_continued_is_continued_where_no_shell_would() -> None:
    async with staged((sys.executable, "-c", LEAVING), line_program()) as stage:
        await stage.sees("here")
        stage.program.type_keys(b"\x1a")

        await stage.sees("back")
