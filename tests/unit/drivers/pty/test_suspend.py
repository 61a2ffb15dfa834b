"""The rest of a line that Ctrl-Z has dropped, on a terminal that echoes the key."""

from __future__ import annotations

import pytest

from synapse.drivers.pty.suspend import SuspendedLine
from synapse.terminal.screen import Screen
from tests.unit.terminal.scenes import line_profile


@pytest.mark.parametrize(
    ("before", "echoed", "wanted"),
    [
        (b"> ", b"^Z", "> "),
        (b"> ", b"half a line^Z", "> "),
        (b"> half a line", b"^Z", "> "),
        (b"> half", b"^Znew", "> new"),
        (b"> " + b"long " * 12, b"^Z", "> "),
        (b"press ^Z to stop\r\n", b"^Z> ", "> "),
        (b"> work\r\n", b"^Z", ""),
        (b"working: ", b"^Z", "working: "),
    ],
)
def test_the_line_is_painted_as_the_program_left_it(before: bytes, echoed: bytes, wanted: str) -> None:
    screen = Screen(30, 8)
    screen.feed(before)
    line = SuspendedLine(screen.picture(), line_profile())
    screen.feed(echoed)

    screen.feed(line.repainted(screen.picture()))

    row, column = screen.picture().cursor
    assert screen.picture().lines[row] == wanted.rstrip()
    assert column == len(wanted)


@pytest.mark.parametrize(("before", "echoed"), [(b"> ^Z", b""), (b"> ", b"^Z\r\n> "), (b"> ", b"\r> "), (b"", b"\a")])
def test_a_line_that_the_program_has_painted_itself_is_left_alone(before: bytes, echoed: bytes) -> None:
    screen = Screen(30, 8)
    screen.feed(before)
    line = SuspendedLine(screen.picture(), line_profile())
    screen.feed(echoed)

    assert line.repainted(screen.picture()) == b""
