"""Shows a person what a command waits for: one line on stderr, painted anew each second and erased at the end.

    codex working 0:12 · ctrl-c leaves it running

Only on a terminal that can erase a line, and only while this process has it: never in a pipe, in a job in the
background, with `--json`, NO_COLOR or TERM=dumb.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from typing import Final

from synapse.cli.output import print_notice
from synapse.client.lines import cut, plain
from synapse.config.process import SystemClock

FIRST_SECONDS: Final = 0.5
"""What ends sooner needs no line."""
NEXT_SECONDS: Final = 1.0
_ERASED: Final = "\r\x1b[K"


class LiveLine:
    """The line of one wait, as a context manager. `state` may be changed at any time, also in another thread."""

    def __init__(self, target: str, ctrl_c: str, *, state: str = "", as_json: bool = False) -> None:
        """`ctrl_c` says what the key does, as `leaves it running`."""
        self.target = target
        self.state = state
        self._ctrl_c = ctrl_c
        self._clock = SystemClock()
        self._began = self._clock.monotonic()
        self._is_wanted = not as_json and _can_erase()
        self._is_painted = False
        self._ended = threading.Event()
        self._lock = threading.Lock()

    def __enter__(self) -> LiveLine:
        self._began = self._clock.monotonic()
        if self._is_wanted:
            threading.Thread(target=self._run, name="live-line", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Erases the line for good."""
        with self._lock:
            self._ended.set()
            self._erase()

    def say(self, text: str) -> None:
        """Prints a notice, and the line again below it."""
        with self._lock:
            was_painted = self._is_painted
            self._erase()
            print_notice(text)
            if was_painted:
                self._paint()

    def _run(self) -> None:
        pause = FIRST_SECONDS
        while not self._ended.wait(pause):
            with self._lock:
                self._paint()
            pause = NEXT_SECONDS

    def _paint(self) -> None:
        if self._ended.is_set() or not _is_in_foreground():
            return
        minutes, seconds = divmod(int(self._clock.monotonic() - self._began), 60)
        words = " ".join(word for word in (plain(self.target), plain(self.state)) if word)
        # One column less: a full row would wrap, and only its second half would be erased.
        shown = cut(f"{words} {minutes}:{seconds:02} · ctrl-c {self._ctrl_c}", _columns() - 1)
        # First, because Ctrl-C may come as soon as the line is there. To erase what is not there does no harm.
        self._is_painted = True
        _write(f"{_ERASED}{shown}")

    def _erase(self) -> None:
        if self._is_painted:
            _write(_ERASED)
            self._is_painted = False


def _can_erase() -> bool:
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    return is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") not in (None, "", "dumb")


def _is_in_foreground() -> bool:
    try:
        return os.tcgetpgrp(sys.stderr.fileno()) == os.getpgrp()
    except OSError:
        return False


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except OSError:
        return 80


def _write(text: str) -> None:
    # The line is a comfort: a terminal that is gone must not change how the command ends.
    with suppress(OSError, ValueError):
        sys.stderr.flush()
        sys.stderr.buffer.write(text.encode("utf-8", "replace"))
        sys.stderr.buffer.flush()
