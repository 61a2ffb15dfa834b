"""Starts and stops the link in the background, as `host.background` does with agents."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from synapse.client.hosts import ask
from synapse.client.link import ask_link
from synapse.config.private_files import make_private
from synapse.config.process import SystemClock
from synapse.core.agent import AgentEntry
from synapse.core.errors import AgentExited, AgentUnresponsive, LinkDown, SynapseError, UnsupportedOperation
from synapse.host.background import (
    LOG_LINES_SHOWN,
    STOP_SECONDS,
    TICK_SECONDS,
    host_environment,
    printed_error,
    wait_until_it_answers,
)
from synapse.registry.files import is_running, links

OUTPUT: Final = "synapse-link.out"
LOG: Final = "synapse-link.log"


def running_link(home: Path) -> AgentEntry | None:
    """Returns the entry of the link that runs for this state folder; None if none does."""
    return next((entry for entry in links(home).written() if is_running(entry.pid, entry.pid_started)), None)


def start_link(home: Path, logs: Path) -> AgentEntry:
    """Starts the link unless it runs, and returns its entry once it answers.

    Raises:
        AgentExited: it ended at once; the error is the one that it printed.
        AgentUnresponsive: it did not start in time.
    """
    running = _answering_link(home)
    if running is not None:
        return running
    make_private(logs)
    output_file = logs / OUTPUT
    with os.fdopen(os.open(output_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as output:
        # The command is our own interpreter and our own module.
        link = subprocess.Popen(
            [sys.executable, "-P", "-m", "synapse.cli.main", "link", "--json", "--headless"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd="/",
            env={**host_environment(), "SYNAPSE_HOME": str(home)},
        )
    try:
        return wait_until_it_answers(link, "the link", output_file, partial(_answering_link, home), _failed_start)
    except (KeyboardInterrupt, AgentUnresponsive):
        link.terminate()
        raise
    finally:
        # Reaps the link if this process outlives it.
        threading.Thread(target=link.wait, daemon=True).start()


def read_status(home: Path, logs: Path) -> dict[str, Any]:
    """Returns what the link says of itself and the fleet.

    Raises NotInFleet, or LinkDown: for a link that has ended by itself, with its reason.
    """
    try:
        return ask_link(str(home), "GET", "/fleet/status")
    except LinkDown as error:
        ended = _last_error(logs) if running_link(home) is None else None
        if ended is None:
            raise
        raise LinkDown(f"the link of this machine has ended: {ended}", hint=ended.hint or error.hint) from error


def stop_link(home: Path) -> bool:
    """Stops the link and waits until it has ended; returns whether one ran.

    Raises:
        UnsupportedOperation: it could not be signalled.
    """
    running = running_link(home)
    if running is None:
        return False
    for order in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.kill(running.pid, order)
        except ProcessLookupError:
            break
        except OSError as error:
            raise UnsupportedOperation(f"the link (pid {running.pid}) cannot be stopped: {error.strerror}") from error
        if _wait_until_ended(running):
            break
    links(home).remove_dead(running)
    return True


def _answering_link(home: Path) -> AgentEntry | None:
    running = running_link(home)
    with suppress(SynapseError):
        if running is not None:
            # Of all that it can be asked, this depends on no other machine.
            ask(running, "GET", "/fleet/outbox", timeout=1.0)
            return running
    return None


def _last_error(logs: Path) -> SynapseError | None:
    """Returns the error with which the last link has ended; None if it printed none, or a service ran it."""
    output, log = logs / OUTPUT, logs / LOG
    with suppress(OSError):
        # It prints its error after its last line in the log. A service does not write the file at all.
        if output.stat().st_mtime_ns >= log.stat().st_mtime_ns:
            lines = output.read_text(encoding="utf-8", errors="replace").splitlines()
            return printed_error(lines, "the link has ended")
    return None


def _failed_start(output: Path, why: str) -> SynapseError:
    lines = output.read_text(encoding="utf-8", errors="replace").splitlines()
    last = "\n".join(lines[-LOG_LINES_SHOWN:])
    return printed_error(lines, why) or AgentExited(why, hint=last or "it printed nothing")


def _wait_until_ended(entry: AgentEntry) -> bool:
    clock = SystemClock()
    deadline = clock.monotonic() + STOP_SECONDS
    while is_running(entry.pid, entry.pid_started) and clock.monotonic() < deadline:
        select.select([], [], [], TICK_SECONDS)
    return not is_running(entry.pid, entry.pid_started)
