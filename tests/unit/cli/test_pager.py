"""Long results on a terminal go through the user's pager; in a pipe and in an agent they do not."""

from __future__ import annotations

import os
import pty
import sys
from pathlib import Path

import pytest

from synapse.cli.pager import print_paged

SHOW = "from synapse.cli.pager import print_paged; print_paged('first\\nlast')"
PAGER = "sh -c 'echo the pager; cat'"


def at_terminal(folder: Path, environ: dict[str, str]) -> str:
    """Returns what the process shows on a terminal of its own."""
    inherited = {name: value for name, value in os.environ.items() if name not in ("SYNAPSE_AGENT_ID", "LESS", "PAGER")}
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.execve(sys.executable, [sys.executable, "-c", SHOW], {**inherited, "TERM": "xterm", **environ})
    shown = b""
    try:
        while data := os.read(terminal, 4096):
            shown += data
    except OSError:
        pass  # its process has ended
    finally:
        os.close(terminal)
        os.waitpid(pid, 0)
    return shown.decode().replace("\r\n", "\n")


def test_a_result_goes_through_the_pager_of_the_user(tmp_path: Path) -> None:
    assert at_terminal(tmp_path, {"PAGER": PAGER}) == "the pager\nfirst\nlast\n"


@pytest.mark.parametrize(
    "environ",
    [
        {"PAGER": ""},
        {"PAGER": "cat"},
        {"PAGER": "no-such-program"},
        {"PAGER": "sh -c 'unclosed"},
        {"PAGER": PAGER, "TERM": "dumb"},
        {"PAGER": PAGER, "SYNAPSE_AGENT_ID": "synapse-codex-8120"},
    ],
)
def test_without_a_pager_the_result_is_printed(tmp_path: Path, environ: dict[str, str]) -> None:
    assert at_terminal(tmp_path, environ) == "first\nlast\n"


def test_a_pager_that_ends_early_ends_the_command(tmp_path: Path) -> None:
    assert at_terminal(tmp_path, {"PAGER": "sh -c 'head -n 1'"}) == "first\n"


def test_ctrl_c_is_for_the_pager(tmp_path: Path) -> None:
    # It has read something, so the command has begun to write.
    interrupting = "sh -c 'read line; kill -INT $PPID; echo $line; cat'"

    assert at_terminal(tmp_path, {"PAGER": interrupting}) == "first\nlast\n"


def test_less_gets_the_options_that_git_gives_it(tmp_path: Path) -> None:
    assert at_terminal(tmp_path, {"PAGER": "sh -c 'echo $LESS'"}) == "FRX\n"
    assert at_terminal(tmp_path, {"PAGER": "sh -c 'echo $LESS'", "LESS": "S"}) == "S\n"


def test_in_a_pipe_nothing_is_paged(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGER", PAGER)

    print_paged("first\nlast")

    assert capsys.readouterr().out == "first\nlast\n"
