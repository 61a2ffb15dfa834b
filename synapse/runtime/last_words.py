"""What the program of a background agent showed before it ended by itself: nobody sat at its terminal to read it."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from typing import Final

from synapse.drivers.pty.driver import PtyDriver
from synapse.drivers.pty.running_program import RunningProgram
from synapse.drivers.pty.station import end_of

log = logging.getLogger(__name__)

_LINES: Final = 15
_LOAD_SECONDS: Final = 2.0


def tell_end(program: RunningProgram, driver: PtyDriver) -> None:
    """Log the end, and if no message was typed yet, what the terminal showed; `synapse start` reads it on stderr.

    Later it shows conversations, which no log may have.
    """
    status = program.exit_status
    if status is None:
        return
    if driver.typed() or program.pump.last_key != float("-inf"):
        log.info("program_ended", extra={"status": status})
        return
    program.screen.wait_loaded(_LOAD_SECONDS)
    shown = [line.rstrip() for line in program.screen.history(_LINES) if line.strip()]
    log.warning("program_ended", extra={"status": status, "shown": shown})
    title = f"{end_of(status)}; its terminal showed{':' if shown else ' nothing'}"
    with suppress(OSError):  # a full disk: the agent has ended all the same, and more than this is to be done
        sys.stderr.write("\n  ".join([title, *shown]) + "\n")
        sys.stderr.flush()
