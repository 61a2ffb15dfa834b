"""Ends the overview for sure after SIGTERM or SIGHUP, or when its terminal is gone.

    a signal, no terminal ─► the app is asked to leave ─ PATIENCE ─► the process ends as it is

Textual writes to the terminal through a thread and a queue. If the terminal takes no more, or the thread has failed
because the terminal is gone, the queue fills and the app's own thread waits for ever, so it cannot leave in order.
"""

from __future__ import annotations

import os
import select
import signal
import termios
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Final

PATIENCE: Final = 4.0
"""How many seconds the app has to leave in order."""
_KILLED: Final = 128
"""With the number of a signal, the exit code of a program that it has ended."""


@contextmanager
def ending_surely(terminal: int, leave: Callable[[], None]) -> Generator[None]:
    """Calls `leave`, in another thread, when the process should end, and ends the process if it does not end then."""
    wakes, waker = os.pipe()
    os.set_blocking(waker, False)

    # It only writes: it may have interrupted any code of the main thread, with any lock.
    def wake(number: int, _frame: FrameType | None) -> None:
        with suppress(OSError):
            os.write(waker, bytes((number,)))

    previous = {number: signal.signal(number, wake) for number in (signal.SIGTERM, signal.SIGHUP)}
    arguments = (terminal, wakes, _settings_of(terminal), leave)
    threading.Thread(target=_watch, args=arguments, name="top-ending", daemon=True).start()
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        os.close(waker)


def _watch(terminal: int, wakes: int, settings: list[Any] | None, leave: Callable[[], None]) -> None:
    poll = select.poll()
    poll.register(terminal, 0)  # a terminal that is gone is reported although nothing is asked of it
    poll.register(wakes, select.POLLIN)
    ready = dict(poll.poll())
    numbers = os.read(wakes, 1) if wakes in ready else bytes((signal.SIGHUP,))
    if not numbers:
        os.close(wakes)
        return  # the block has ended
    leave()
    # Also after the block: a thread of the app that does not end would keep the process.
    threading.Event().wait(PATIENCE)
    if settings is not None:
        with suppress(termios.error):
            termios.tcsetattr(terminal, termios.TCSANOW, settings)
    os._exit(_KILLED + numbers[0])


def _settings_of(terminal: int) -> list[Any] | None:
    try:
        return termios.tcgetattr(terminal)
    except termios.error:
        return None
