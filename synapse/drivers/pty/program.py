"""A program on its terminal, from start to end: what a driver, a person and those who watch share."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import termios
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from synapse.core.types import Clock
from synapse.drivers.pty.person_input import LineRouting, PersonInput
from synapse.drivers.pty.process import Launch, ProcessWaiter, Program, count_unread, drop_unread, set_size, spawn
from synapse.drivers.pty.pump import PersonStreams, Pump
from synapse.drivers.pty.screen import LockedScreen, Watcher
from synapse.drivers.pty.suspend import Suspending
from synapse.terminal.profile import Profile

_DRAIN_SECONDS: Final = 2.0
"""How long the last output may take to reach the person before the end is told anyway."""
_GOODBYES: Final = ((signal.SIGTERM, 1.5), (signal.SIGHUP, 1.0), (signal.SIGKILL, 1.0))
"""What a program is sent to make it end, and how long it has for it. Shells ignore the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalUsers:
    """Who is at the program's terminal besides the driver. Empty for an agent in the background."""

    person: PersonStreams | None = None
    routing: LineRouting | None = None
    """Where `@agent` lines of a person go; None when nobody looks for them."""
    suspend: Callable[[bytes], None] | None = None
    """Called when the program has stopped itself (Ctrl-Z), with bytes that make the terminal plain: gives the person
    their shell, and returns when they are back."""


class RunningProgram:
    """Starts a program and ends it. `exited` gets its exit status, as a shell would report it."""

    def __init__(
        self, program: Program, launch: Launch, profile: Profile, clock: Clock, company: TerminalUsers
    ) -> None:
        self._program = program
        self._company = company
        self._status: int | None = None
        self._loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[int] = self._loop.create_future()
        self.screen = LockedScreen(launch.columns, launch.rows, launch.theme)
        self.on_output: Callable[[], None] = _nothing
        self.pump = Pump(program.terminal, self.screen, clock, person=company.person, on_output=self._output_came)
        resume = self._resume if company.suspend is None else None
        suspending = Suspending(self.pump, self.screen, clock, profile, resume)
        self._desk = PersonInput(self.pump, self.screen, clock, profile, company.routing, suspending)
        self._lifeline = ProcessWaiter(
            program,
            stopped=lambda: self._from_thread(self._program_stopped),
            exited=lambda status: self._from_thread(lambda: self._program_ended(status)),
        )

    @property
    def pid(self) -> int:
        """The program's own process id."""
        return self._program.pid

    @property
    def exit_status(self) -> int | None:
        """The status that it ended with, or None while it runs."""
        return self.exited.result() if self.exited.done() else None

    def begin(self) -> None:
        """Let bytes flow."""
        self.pump.start(self._desk)
        self._lifeline.start()

    def load_screen(self) -> None:
        """Bring the emulator up. It takes a fifth of a second of the interpreter, so a host serves first."""
        self.pump.load_screen()

    async def stop(self) -> None:
        """End the program, gently first, and give its terminal back."""
        for number, patience in _GOODBYES:
            if self.exited.done():
                break
            self._lifeline.send(number)
            self._lifeline.resume()
            await asyncio.wait((self.exited,), timeout=patience)
        self.pump.finish()
        await asyncio.to_thread(self.pump.close, _DRAIN_SECONDS)

    def write(self, data: bytes) -> None:
        """Type for the driver."""
        self.pump.input.write(data)

    def drop_unread(self) -> bool:
        """Drop what was typed and not read yet; False if it may be in the line that the program edits itself."""
        try:
            return drop_unread(self._program.tty)
        except (OSError, termios.error):
            # The program is gone, and all that was typed with it.
            return True

    def has_unread(self) -> bool:
        """Return whether the program has yet to read something that was typed."""
        try:
            return self.pump.input.pending > 0 or count_unread(self._program.tty) > 0
        except OSError:
            # The program is gone.
            return False

    async def clear_input(self) -> None:
        """Press the keys that clear the input; returns once they are written, or the program has ended.

        The pump presses them, and it may hang behind a person's terminal that is stopped. What the driver types must
        not overtake them: they would clear that instead.
        """
        pressed: asyncio.Future[None] = self._loop.create_future()
        self._desk.clear(lambda: self._from_thread(lambda: pressed.set_result(None)))
        await asyncio.wait((pressed, self.exited), return_when=asyncio.FIRST_COMPLETED)

    def type_keys(self, data: bytes) -> None:
        """Type for a person who watches from elsewhere; their `@agent` lines are found too."""
        self.pump.type_keys(data)

    @property
    def takes_keys(self) -> bool:
        """False while keys that are typed from elsewhere would be dropped."""
        return self.pump.takes_keys

    def say(self, text: str) -> None:
        """Show a person a line of ours, without breaking what the program has painted."""
        self._desk.say(text)

    def resize(self, columns: int, rows: int) -> None:
        """Give the terminal another size; the program is told by the kernel."""
        if columns < 1 or rows < 1 or self.exited.done():
            return
        self.screen.resize(columns, rows)
        with contextlib.suppress(OSError):
            set_size(self._program.terminal, columns, rows)

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        return self.screen.size

    @property
    def has_person(self) -> bool:
        """True if a person's own terminal shows it; its size then counts."""
        return self._company.person is not None

    def watch(self, watcher: Watcher, begin: Callable[[bytes], None]) -> None:
        """Have the program's output from now on, after a picture of what is there; see `LockedScreen.watch`."""
        self.screen.watch(watcher, begin)

    def unwatch(self, watcher: Watcher) -> None:
        self.screen.unwatch(watcher)

    def leaving_bytes(self) -> bytes:
        """Bytes that undo what the program has left in its person's terminal; none if it cleaned up itself."""
        return self.screen.leaving_bytes()

    def signal_foreground(self, number: int) -> None:
        """Send a signal to whatever is in the foreground of the terminal, as its keys would."""
        with contextlib.suppress(OSError):
            group = os.tcgetpgrp(self._program.terminal)
            # Without a foreground the kernel says 0, and to a signal that means our own group.
            if group > 1:
                os.killpg(group, number)

    def _output_came(self) -> None:
        self.on_output()
        if self.pump.ended.is_set():
            self._from_thread(self._pump_ended)

    def _from_thread(self, call: Callable[[], None]) -> None:
        # The loop may be closed by now: the host is on its way out and nobody wants to know.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call)

    def _resume(self) -> None:
        self._lifeline.resume()

    def _program_stopped(self) -> None:
        if self._company.suspend is not None:
            leaving, picture = self.leaving_bytes(), self.screen.picture()
            self._company.suspend(leaving)
            if picture is not None and picture.alternate:
                # It did not leave its screen by itself, so it does not know that somebody else used the terminal.
                self.pump.call_soon(lambda: self.pump.show(self.screen.redraw()))
        self._lifeline.resume()

    def _program_ended(self, status: int) -> None:
        self._status = status
        self.pump.finish()
        # A terminal that does not drain must not hide the end.
        self._loop.call_later(_DRAIN_SECONDS, self._tell_end, status)
        if self.pump.ended.is_set():
            self._tell_end(status)

    def _pump_ended(self) -> None:
        if self._status is not None:
            self._tell_end(self._status)

    def _tell_end(self, status: int) -> None:
        if not self.exited.done():
            self.exited.set_result(status)
            self.on_output()


async def start_program(launch: Launch, profile: Profile, clock: Clock, company: TerminalUsers) -> RunningProgram:
    """Start a program; bytes flow once `begin` is called.

    Raises:
        CommandMissing: it is not installed.
        AgentFailed: it cannot be run.
    """
    program = await asyncio.to_thread(spawn, launch)
    return RunningProgram(program, launch, profile, clock, company)


def _nothing() -> None:
    """Nobody listens yet."""
