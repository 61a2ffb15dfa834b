"""A host in the foreground behaves as if it were not there: modes, signals, sizes, jobs, exit status."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.attach.seat import SHELL_PROMPT, Seat, children, seated
from tests.integration.pty.terminals import BOUND, agent

pytestmark = pytest.mark.integration

FOREGROUND = str(Path(__file__).with_name("foreground.py"))
DUMMY = (sys.executable, "-P", "-m", "synapse.tools.dummy")


@pytest.fixture(name="shell")
def a_shell_with_jobs() -> Iterator[Seat]:
    with seated("bash", "--norc", "--noprofile", "--noediting", "-i") as seat:
        seat.sees(SHELL_PROMPT)
        yield seat


def hosted(notes: Path, *command: str, mode: str = "plain") -> str:
    return shlex.join((sys.executable, FOREGROUND, mode, str(notes / "notes"), *command))


def modes(shell: Seat) -> str:
    shell.types("stty -g | tr -d '\\n' | sed 's/^/modes=/;s/$/./'\r")
    found = shell.matches(r"modes=([0-9a-f:]+)\.")[1]
    shell.sees(SHELL_PROMPT)
    return found


def status(shell: Seat) -> int:
    shell.types('echo "status=$?."\r')
    found = int(shell.matches(r"status=(\d+)\.")[1])
    shell.sees(SHELL_PROMPT)
    return found


def host_pid(shell: Seat) -> int:
    """The process that the shell runs in the foreground."""
    end = time.monotonic() + BOUND
    while (group := os.tcgetpgrp(shell.terminal)) == shell.pid:
        assert time.monotonic() < end
        time.sleep(0.01)
    return group


def types_line(shell: Seat, line: str) -> None:
    """Type a line, and Enter once the program shows it: on a busy machine it may not, for longer than Enter waits."""
    shell.types(line)
    shell.sees(line)
    shell.types("\r")


def is_raw(shell: Seat) -> bool:
    return not termios.tcgetattr(shell.terminal)[3] & termios.ICANON


def test_a_program_works_as_without_us_and_its_status_comes_back(shell: Seat, tmp_path: Path) -> None:
    before = modes(shell)
    shell.types(hosted(tmp_path, *DUMMY) + "\r")
    shell.sees("\n> ")
    assert is_raw(shell)

    shell.types("hello\r")
    shell.sees("echo: hello")
    shell.types("exit 3\r")
    shell.sees(SHELL_PROMPT)

    assert status(shell) == 3
    assert modes(shell) == before


def test_an_exception_puts_the_terminal_back(shell: Seat, tmp_path: Path) -> None:
    before = modes(shell)
    shell.types(hosted(tmp_path, *DUMMY, mode="raise") + "\r")
    shell.sees("RuntimeError")
    shell.sees(SHELL_PROMPT)

    assert modes(shell) == before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_ends_the_host_puts_the_terminal_back(
    shell: Seat, tmp_path: Path, number: signal.Signals
) -> None:
    before = modes(shell)
    shell.types(hosted(tmp_path, *DUMMY) + "\r")
    shell.sees("\n> ")

    os.kill(host_pid(shell), number)
    shell.sees(SHELL_PROMPT)

    assert status(shell) == 128 + number
    assert modes(shell) == before


def test_even_kill_9_of_the_host_puts_the_terminal_back(tmp_path: Path) -> None:
    # A plain sh, which does not repair terminals by itself as bash does.
    script = f"{hosted(tmp_path, *DUMMY)}; sleep 60"
    with seated("sh", "-c", script) as seat:
        before = termios.tcgetattr(seat.terminal)
        seat.sees("> ")
        assert is_raw(seat)
        (host,) = children(seat.pid)

        os.kill(host, signal.SIGKILL)

        end = time.monotonic() + BOUND
        while termios.tcgetattr(seat.terminal) != before and time.monotonic() < end:
            time.sleep(0.01)
        assert termios.tcgetattr(seat.terminal) == before


def test_a_program_that_dies_untidily_leaves_no_modes_behind(shell: Seat, tmp_path: Path) -> None:
    before = modes(shell)
    shell.types(hosted(tmp_path, *agent("painter")) + "\r")
    shell.sees("% ")
    shell.types("die")
    shell.sees("die")
    shell.types("\r")
    shell.sees(b"\x1b[?1049l")
    shell.sees(b"\x1b[?2004l")
    shell.sees(SHELL_PROMPT)

    assert status(shell) == 7
    assert modes(shell) == before


def test_ctrl_c_reaches_the_program_and_not_the_host(shell: Seat, tmp_path: Path) -> None:
    shell.types(hosted(tmp_path, *DUMMY) + "\r")
    shell.sees("\n> ")
    shell.types("wait 60\r")
    shell.sees("working for 60 s")
    shell.types("\x03")
    shell.sees("interrupted")
    shell.types("\x04")
    shell.sees(SHELL_PROMPT)

    assert status(shell) == 0


def test_the_size_of_the_window_is_followed(shell: Seat, tmp_path: Path) -> None:
    shell.types(hosted(tmp_path, *agent("sizes")) + "\r")
    shell.sees("size 100x30")

    shell.resizes(77, 21)
    shell.sees("size 77x21")


def test_ctrl_z_gives_the_shell_back_and_fg_the_program(shell: Seat, tmp_path: Path) -> None:
    before = modes(shell)
    shell.types(hosted(tmp_path, *DUMMY) + "\r")
    shell.sees("\n> ")

    shell.types("\x1a")
    shell.sees("Stopped")
    shell.sees(SHELL_PROMPT)
    assert modes(shell) == before
    shell.resizes(66, 22)
    shell.types("fg\r")
    shell.sees("foreground.py")
    shell.types("hello again\r")
    shell.sees("echo: hello again")
    assert is_raw(shell)
    shell.types("exit 0\r")
    shell.sees(SHELL_PROMPT)

    assert status(shell) == 0
    assert modes(shell) == before


def test_a_program_that_is_stopped_on_its_screen_is_painted_again(shell: Seat, tmp_path: Path) -> None:
    shell.types(hosted(tmp_path, *agent("painter")) + "\r")
    shell.sees("% ")
    shell.types("some words")
    shell.sees("some words")
    host = host_pid(shell)
    (leader,) = children(host)
    (painter,) = children(leader)

    os.kill(painter, signal.SIGSTOP)
    shell.sees("Stopped")
    shell.types("fg\r")
    shell.sees("% some words")


def test_input_from_a_pipe_is_passed_on_and_its_end_ends_the_program(shell: Seat, tmp_path: Path) -> None:
    shell.types(f"printf 'hello\\nunfinished' | {hosted(tmp_path, *DUMMY)} | cat\r")
    shell.sees("echo: hello")
    shell.sees("echo: unfinished")
    shell.sees(SHELL_PROMPT)

    assert status(shell) == 0


def test_a_line_for_another_agent_is_sent_and_told_above_a_cooked_prompt(shell: Seat, tmp_path: Path) -> None:
    shell.types(hosted(tmp_path, *DUMMY) + "\r")
    shell.sees("\n> ")
    types_line(shell, "@codex review この設計")
    shell.sees("[→ codex] sent\r\n> ")
    shell.types("hello\r")
    shell.sees("echo: hello")

    assert (tmp_path / "notes").read_text(encoding="utf-8") == "codex: review この設計\n"
    assert b"echo: @codex" not in shell.seen


def test_on_a_painted_screen_the_notice_lies_over_the_bottom_row_and_goes_with_the_next_key(
    shell: Seat, tmp_path: Path
) -> None:
    shell.types(hosted(tmp_path, *agent("painter")) + "\r")
    shell.sees("% ")
    types_line(shell, "@codex hi")
    shell.sees("\x1b[30;1H\x1b[0;7m[→ codex] sent\x1b[0m\x1b[K\x1b8")
    assert (tmp_path / "notes").read_text(encoding="utf-8") == "codex: hi\n"

    shell.types("x")
    shell.sees("\x1b[?2026l\x1b8")
    shell.types("\r")
    shell.sees("• x")


def test_on_the_ordinary_screen_the_notice_stands_beside_the_cursor_until_the_next_key(
    shell: Seat, tmp_path: Path
) -> None:
    shell.types(hosted(tmp_path, *agent("painter", "plain")) + "\r")
    shell.sees("% ")
    types_line(shell, "@codex hi")
    shell.sees("\x1b7\x1b[0;7m [→ codex] sent\x1b[0m\x1b8")

    shell.types("x")
    shell.sees("\x1b7\x1b[0;2m" + " " * len(" [→ codex] sent") + "\x1b[0m\x1b8")
    shell.types("\r")
    shell.sees("• x")


def test_a_notice_beside_the_cursor_is_gone_before_the_program_paints_on(shell: Seat, tmp_path: Path) -> None:
    shell.types(hosted(tmp_path, *agent("painter", "plain")) + "\r")
    shell.sees("% ")
    types_line(shell, "@codex hi")
    shell.sees("[→ codex] sent\x1b[0m\x1b8")

    shell.resizes(90, 30)
    shell.sees(" \x1b[0m\x1b8\x1b[5;1H\x1b[K% ")


def test_two_at_signs_reach_the_program_as_one(shell: Seat, tmp_path: Path) -> None:
    shell.types(hosted(tmp_path, *DUMMY) + "\r")
    shell.sees("\n> ")
    types_line(shell, "@@codex hi")
    shell.sees("echo: @codex hi")

    assert not (tmp_path / "notes").exists()


def test_an_unknown_name_is_the_programs(shell: Seat, tmp_path: Path) -> None:
    shell.types(hosted(tmp_path, *DUMMY) + "\r")
    shell.sees("\n> ")
    types_line(shell, "@nobody hi")
    shell.sees("echo: @nobody hi")
