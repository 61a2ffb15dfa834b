"""Runs a host in which somebody is killed, as by `kill -9`, at one point of a delivery.

    python faulty_host.py VICTIM POINT PROFILE …

    VICTIM  host, program or both
    POINT   commit:STEP:before   the receipt STEP is on its way to the disk
            commit:STEP:after    it is durable, and nobody was told
            write:text:before    nothing of the message was written to the program
            write:text:after     the text was written, Enter was not
            write:enter:before · write:enter:after

The product has no code for this: the classes that do these things are wrapped here, in this process only.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

from synapse.cli.main import main
from synapse.core.events import ReceiptChanged, TaskOpened
from synapse.drivers.pty.program import RunningProgram
from synapse.store import writer
from synapse.store.writer import Append


class Killer:
    """Knows the program, once it runs, and kills once."""

    def __init__(self, victim: str) -> None:
        self.victim = victim
        self.program = 0
        self.is_done = False

    def strike(self) -> None:
        if self.is_done:
            return
        self.is_done = True
        if self.victim in ("program", "both"):
            os.kill(self.program, signal.SIGKILL)
        if self.victim in ("host", "both"):
            os.kill(os.getpid(), signal.SIGKILL)

    def follow(self) -> None:
        begin = RunningProgram.begin

        def wrapped(program: RunningProgram) -> None:
            self.program = program.pid
            begin(program)

        RunningProgram.begin = wrapped  # type: ignore[method-assign, assignment] # see the module's first lines


def strike_at_commit(killer: Killer, step: str, moment: str) -> None:
    """Kill around the transaction that makes `step` durable."""
    commit = writer.Writer._write  # pyright: ignore[reportPrivateUsage] # see the module's first lines

    def wrapped(self: writer.Writer, batch: Sequence[writer.Work]) -> list[Any]:
        found = any(step in steps_in(work) for work in batch)
        if found and moment == "before":
            killer.strike()
        outcomes = commit(self, batch)
        if found:
            killer.strike()
        return outcomes

    writer.Writer._write = wrapped  # type: ignore[method-assign] # see the module's first lines


def steps_in(work: writer.Work) -> list[str]:
    if not isinstance(work, Append):
        return []
    steps = ["queued" for event in work.events if isinstance(event, TaskOpened)]
    return steps + [event.step.value for event in work.events if isinstance(event, ReceiptChanged)]


def strike_at_write(killer: Killer, what: str, moment: str) -> None:
    """Kill around the bytes of a message, or around its Enter."""
    write = RunningProgram.write

    def wrapped(self: RunningProgram, data: bytes) -> None:
        found = (data == b"\r") == (what == "enter")
        if found and moment == "before":
            killer.strike()
        write(self, data)
        if found:
            wait_until_written(self)
            killer.strike()

    RunningProgram.write = wrapped  # type: ignore[method-assign] # see the module's first lines


def wait_until_written(program: RunningProgram) -> None:
    while program.pump.input.pending:
        os.sched_yield()


if __name__ == "__main__":
    the_killer = Killer(sys.argv[1])
    the_killer.follow()
    kind, where, when = sys.argv[2].split(":")
    (strike_at_commit if kind == "commit" else strike_at_write)(the_killer, where, when)
    sys.exit(main(["synapse", *sys.argv[3:]]))
