"""Runs a program on a pseudo-terminal, from its start to its end, for the driver, the person and attached viewers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import termios
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from synapse.core.errors import Conflict
from synapse.core.overview import StyledScreen
from synapse.core.types import Clock
from synapse.drivers.pty.person_input import LineRouting, PersonInput
from synapse.drivers.pty.process import Launch, ProcessWaiter, Program, spawn
from synapse.drivers.pty.pump import PersonStreams, Pump
from synapse.drivers.pty.screen import LockedScreen, ScreenSnapshot, Viewer
from synapse.drivers.pty.suspend import SuspendHandler
from synapse.drivers.pty.tty import count_unread, drop_unread, set_size
from synapse.terminal.profile import Profile
from synapse.terminal.runs import styled

_DRAIN_SECONDS: Final = 2.0
"""How long the last output may take to reach the person before the program counts as ended anyway."""
_STOP_SIGNALS: Final = ((signal.SIGTERM, 1.5), (signal.SIGHUP, 1.0), (signal.SIGKILL, 1.0))
"""The signals that end a program, and how many seconds it has after each. Shells ignore the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalUsers:
    """The people at the program's terminal, besides the driver. Empty for an agent in the background."""

    person: PersonStreams | None = None
    routing: LineRouting | None = None
    """Where a person's `@agent` lines go; None to pass them to the program like any other."""
    suspend: Callable[[bytes], None] | None = None
    """Called when the program has stopped itself (Ctrl-Z), with bytes that reset the terminal: gives the person their
    shell, and returns when they are back."""


class RunningProgram:
    """A program that runs. `exited` gets its exit status, as a shell would report it."""

    def __init__(self, program: Program, launch: Launch, profile: Profile, clock: Clock, users: TerminalUsers) -> None:
        self._program = program
        self._users = users
        self._status: int | None = None
        self._loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[int] = self._loop.create_future()
        self.screen = LockedScreen(launch.columns, launch.rows, launch.theme)
        self.on_output: Callable[[], None] = lambda: None
        self.pump = Pump(program.terminal, self.screen, clock, person=users.person, on_output=self._output_came)
        self._waiter = ProcessWaiter(
            program,
            stopped=lambda: self._from_thread(self._program_stopped),
            exited=lambda status: self._from_thread(lambda: self._program_ended(status)),
        )
        resume = self._waiter.resume if users.suspend is None else None
        suspend = SuspendHandler(self.pump, self.screen, clock, profile, resume)
        self._input = PersonInput(self.pump, self.screen, clock, profile, users.routing, suspend)

    @property
    def pid(self) -> int:
        """The program's own process id."""
        return self._program.pid

    @property
    def exit_status(self) -> int | None:
        """The status that the program ended with; None while it runs."""
        return self.exited.result() if self.exited.done() else None

    def begin(self) -> None:
        """Starts to move bytes."""
        self.pump.start(self._input)
        self._waiter.start()

    def load_screen(self) -> None:
        """Loads the emulator. It takes a fifth of a second of the interpreter, so a host serves first."""
        self.pump.load_screen()

    async def stop(self) -> None:
        """Ends the program, gently first, and closes its terminal."""
        for number, seconds in _STOP_SIGNALS:
            if self.exited.done():
                break
            self._waiter.send(number)
            self._waiter.resume()
            await asyncio.wait((self.exited,), timeout=seconds)
        self.pump.finish()
        await asyncio.to_thread(self.pump.close, _DRAIN_SECONDS)

    def write(self, data: bytes) -> None:
        """Types bytes into the program."""
        self.pump.input.write(data)

    def drop_unread(self) -> bool:
        """Drops typed bytes that were not read yet; False if they may be in a line that the program edits itself."""
        try:
            return drop_unread(self._program.tty)
        except (OSError, termios.error):
            # The program is gone, and its input too.
            return True

    def has_unread(self) -> bool:
        """Returns whether there are typed bytes that the program has not read yet."""
        try:
            return self.pump.input.pending > 0 or count_unread(self._program.tty) > 0
        except OSError:
            # The program is gone.
            return False

    async def clear_input(self) -> None:
        """Presses the keys that clear the input; returns once they are written, or the program has ended.

        The pump presses them, and it may hang because a person's terminal is stopped. The driver's next text must not
        overtake them, or they would clear that text.
        """
        pressed: asyncio.Future[None] = self._loop.create_future()
        self._input.clear(lambda: self._from_thread(lambda: pressed.set_result(None)))
        await asyncio.wait((pressed, self.exited), return_when=asyncio.FIRST_COMPLETED)

    def type_keys(self, data: bytes) -> None:
        """Types keys of a person who is attached; their `@agent` lines are found too."""
        self.pump.type_keys(data)

    @property
    def takes_keys(self) -> bool:
        """False while `type_keys` would drop keys."""
        return self.pump.takes_keys

    def say(self, text: str, command: str = "") -> None:
        """Shows the person a notice without breaking what the program has painted."""
        self._input.say(text, command)

    def resize(self, columns: int, rows: int) -> None:
        """Changes the terminal's size; the kernel tells the program."""
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
        """True if a person's own terminal shows the program; its size then counts."""
        return self._users.person is not None

    def watch(self, viewer: Viewer, begin: Callable[[bytes], None]) -> None:
        """Passes the screen as it is now to `begin` and all later output to `viewer`; see `LockedScreen.watch`."""
        self.screen.watch(viewer, begin)

    def follow(self, viewer: Viewer, begin: Callable[[int], None]) -> None:
        """Passes the offset of the next byte to `begin` and all later output to `viewer`; see `LockedScreen.follow`."""
        self.screen.follow(viewer, begin)

    def snapshot(self) -> ScreenSnapshot:
        """Returns bytes that rebuild the terminal with its scrollback, and the offset at which its output goes on."""
        return self.screen.snapshot()

    async def read_screen(self, lines: int, known: str) -> StyledScreen | None:
        """Returns what the terminal shows and the last `lines` of its scrollback; None if that is the version `known`.

        Raises Conflict while the emulator is not loaded.
        """
        # With the pid: the next program begins to count anew.
        if known == f"{self.pid}.{self.screen.version}":
            return None
        return await asyncio.to_thread(self._styled_screen, lines)

    def _styled_screen(self, lines: int) -> StyledScreen:
        self.screen.wait_loaded()
        version, painted = self.screen.painted(lines)
        if painted is None:
            raise Conflict("the agent's terminal cannot be read yet", hint="try again in a second")
        return styled(painted, f"{self.pid}.{version}")

    def unwatch(self, viewer: Viewer) -> None:
        self.screen.unwatch(viewer)

    def leaving_bytes(self) -> bytes:
        """Returns bytes that undo the terminal modes that the program has left on; empty if it cleaned up itself."""
        return self.screen.leaving_bytes()

    def signal_foreground(self, number: int) -> None:
        """Sends a signal to the foreground process group of the terminal, as its keys would."""
        with contextlib.suppress(OSError):
            group = os.tcgetpgrp(self._program.terminal)
            # Without a foreground group the kernel returns 0, which killpg takes for our own group.
            if group > 1:
                os.killpg(group, number)

    def _output_came(self) -> None:
        self.on_output()
        if self.pump.ended.is_set():
            self._from_thread(self._pump_ended)

    def _from_thread(self, call: Callable[[], None]) -> None:
        # The loop may be closed by now: the host is shutting down.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call)

    def _program_stopped(self) -> None:
        if self._users.suspend is not None:
            leaving, picture = self.leaving_bytes(), self.screen.picture()
            self._users.suspend(leaving)
            if picture is not None and picture.alternate:
                # The program did not leave its screen, so it does not know that the shell used the terminal.
                self.pump.call_soon(lambda: self.pump.show(self.screen.redraw()))
        self._waiter.resume()

    def _program_ended(self, status: int) -> None:
        self._status = status
        self.pump.finish()
        # A person's terminal that does not drain must not hide the end.
        self._loop.call_later(_DRAIN_SECONDS, self._announce_end, status)
        if self.pump.ended.is_set():
            self._announce_end(status)

    def _pump_ended(self) -> None:
        if self._status is not None:
            self._announce_end(self._status)

    def _announce_end(self, status: int) -> None:
        if not self.exited.done():
            self.exited.set_result(status)
            self.on_output()


async def start_program(launch: Launch, profile: Profile, clock: Clock, users: TerminalUsers) -> RunningProgram:
    """Starts a program; its output is read once `begin` is called.

    Raises:
        CommandMissing: the program is not installed.
        AgentFailed: the program cannot be run.
    """
    program = await asyncio.to_thread(spawn, launch)
    return RunningProgram(program, launch, profile, clock, users)
