"""Reads lines at a prompt, and paints a clock above it ten times a second: it never rests.

    ticker.py LOG [--calm]

SIGUSR1 stops the clock, SIGUSR2 starts it; with `--calm` it stands still at first. The log is not written.
"""

import os
import select
import signal
import sys

TICK_SECONDS = 0.1


class Clock:
    """Whether it ticks is decided by signals."""

    def __init__(self) -> None:
        self.ticks = "--calm" not in sys.argv
        self.count = 0
        signal.signal(signal.SIGUSR1, lambda _number, _frame: setattr(self, "ticks", False))
        signal.signal(signal.SIGUSR2, lambda _number, _frame: setattr(self, "ticks", True))

    def paint(self) -> None:
        self.count += 1
        os.write(1, b"\x1b7\x1b[1;60Htick %d\x1b8" % self.count)


def main() -> None:
    clock = Clock()
    os.write(1, b"\r\n> ")
    while True:
        if not select.select((0,), (), (), TICK_SECONDS)[0]:
            if clock.ticks:
                clock.paint()
            continue
        line = os.read(0, 65536)
        if not line:
            return
        os.write(1, b"got: " + line + b"> ")


main()
