"""What is said when an agent ends: what a program in the background showed that nobody sat at, and what still waits."""

from __future__ import annotations

import logging
import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from synapse.core.address import short_name
from synapse.core.agent import AgentEntry
from synapse.core.envelope import sanitise, typed_sender
from synapse.core.task import Task
from synapse.drivers.pty.driver import PtyDriver
from synapse.drivers.pty.running_program import RunningProgram
from synapse.drivers.pty.station import end_of

log = logging.getLogger(__name__)

_LINES: Final = 15
_LOAD_SECONDS: Final = 2.0
_MOST_LEFT: Final = 5
_LONGEST_TEXT: Final = 60


def tell_left(me: AgentEntry, tasks: Sequence[Task], *, is_person_there: bool) -> None:
    """Say which messages wait for the agent's next start: whoever leaves its program may not know of them."""
    if not tasks:
        return
    log.info("messages_left", extra={"count": len(tasks)})
    if not is_person_there:
        return
    name = short_name(me)
    wait = "1 message waits" if len(tasks) == 1 else f"{len(tasks)} messages wait"
    shown = [
        f"  {task.short_id} from {typed_sender(task.metadata)}: {_beginning(task.message.text)}"
        for task in tasks[:_MOST_LEFT]
    ]
    if len(tasks) > _MOST_LEFT:
        shown.append(f"  and {len(tasks) - _MOST_LEFT} more  (synapse queue)")
    say(f"{wait} for {name}, and will be delivered when it is started again  ({start_command(me)})", *shown)


def start_command(me: AgentEntry) -> str:
    """How a person starts the agent again, so that it has the same queue."""
    return f"synapse {me.agent_type}" + (f" --name {shlex.quote(me.name)}" if me.name else "")


def say(*lines: str) -> None:
    """Print lines on stderr. A full disk or a terminal that is gone: the agent has ended all the same."""
    with suppress(OSError):
        sys.stderr.write("\n".join(lines) + "\n")
        sys.stderr.flush()


def _beginning(text: str) -> str:
    line = " ".join(sanitise(text).split())
    return line if len(line) <= _LONGEST_TEXT else f"{line[: _LONGEST_TEXT - 1]}…"


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
    say(title, *(f"  {line}" for line in shown))
