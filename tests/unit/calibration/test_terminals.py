"""The kinds of terminals, and how the person's own is recognised."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from itertools import combinations

import pytest

from synapse.calibration.terminals import EVERY_KIND, PAIRWISE, TerminalKind
from synapse.drivers.pty.tty import set_size
from synapse.terminal.theme import Theme

ASK = """
import os
from synapse.calibration.terminals import own_terminal
from synapse.config.process import SystemClock
own = own_terminal(os.environ, SystemClock())
print(own, own.env["TERM"], "COLORTERM" in own.env, own.env["SYNAPSE_TERMINAL_SIZE"], own.env["SYNAPSE_TERMINAL_THEME"])
"""


def traits(kind: TerminalKind) -> tuple[str, str, str]:
    return kind.colours, str(kind.size), kind.theme.value


def pairs(kinds: tuple[TerminalKind, ...]) -> set[tuple[str, str]]:
    return {pair for kind in kinds for pair in combinations(traits(kind), 2)}


def test_there_are_twelve_kinds_and_half_of_them_hold_every_pair() -> None:
    assert len({traits(kind) for kind in EVERY_KIND}) == len(EVERY_KIND) == 12
    assert len(PAIRWISE) == 6
    assert set(map(traits, PAIRWISE)) <= set(map(traits, EVERY_KIND))
    assert pairs(PAIRWISE) == pairs(EVERY_KIND)


def test_a_kind_sets_the_variables_of_a_program_and_its_host() -> None:
    (light, *_) = EVERY_KIND

    assert light.env == {
        "TERM": "xterm",
        "COLORFGBG": "0;15",
        "SYNAPSE_TERMINAL_SIZE": "80x24",
        "SYNAPSE_TERMINAL_THEME": "light",
    }


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("answer", "theme"),
    [(b"\x1b]11;rgb:ffff/ffff/ffff\x1b\\\x1b[?62c", Theme.LIGHT), (b"\x1b[?62c", Theme.NONE)],
)
def test_the_persons_own_terminal_is_asked(answer: bytes, theme: Theme) -> None:
    """On a terminal of 113 columns that answers so; what it answers is not left for the shell to read."""
    pid, terminal = pty.fork()
    if pid == 0:
        env = {**os.environ, "TERM": "screen-256color"}
        env.pop("COLORTERM", None)
        os.execve(sys.executable, [sys.executable, "-c", "input()\n" + ASK], env)
    set_size(terminal, 113, 28)
    os.write(terminal, b"\n")
    said = b""
    while b"\x1b[c" not in said:
        said += os.read(terminal, 1024)
    os.write(terminal, answer)
    while b" screen-256color" not in said or not said.endswith(b"\n"):
        said += os.read(terminal, 1024)
    os.waitpid(pid, 0)
    os.close(terminal)

    assert said.decode().splitlines()[-1].endswith(f" screen-256color False 113x28 {theme.value}")


def test_without_a_terminal_the_default_kind_is_used() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", ASK],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "TERM": "dumb", "COLORTERM": "truecolor"},
        check=True,
        timeout=60,
    )

    assert ran.stdout.split("dark", 1)[1].split() == ["xterm-256color", "False", "120x40", "dark"]
