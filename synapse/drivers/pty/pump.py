"""The thread between a program and its person: reads the program's terminal, shows it unchanged, keeps the screen.

It never waits for the event loop and the loop never waits for it. A person's terminal that does not drain stalls this
thread and so the program, as it would without us; nothing piles up.

What is typed into a program: written at once as far as its terminal takes it, and kept in order beyond that.

Wakes a thread that polls files.

What the kernel does with the lines of a program, by the settings of its terminal.
"""

from __future__ import annotations

import contextlib
import os
import select
import termios
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from synapse.core.types import Clock
from synapse.drivers.pty.screen import LockedScreen
from synapse.terminal.line_editor import LineKeys, PersonDraft

_READ_SIZE: Final = 65536
_PIECE: Final = 4096
"""The most that the kernel hands out of a terminal at once; to offer more room only costs time."""
_READABLE: Final = select.POLLIN | select.POLLHUP | select.POLLERR
_MOST_UNREAD: Final = 65536
"""A person's further keys stay in their terminal while the program has so many bytes to read."""


@dataclass(frozen=True, slots=True)
class PersonStreams:
    """The two ends of a person's terminal, or of the pipes that stand in for it."""

    source: int
    sink: int


class InputHandler(Protocol):
    """What is done with a person's keys. All calls come from the pump's thread."""

    def typed(self, data: bytes) -> None: ...

    def output_comes(self) -> None:
        """The program has printed something, which nobody has seen yet."""
        ...

    def output_seen(self, data: bytes) -> None:
        """The program has printed `data`; the screen has it."""
        ...

    def tick(self) -> float | None:
        """Do what is due; return how many seconds from now something will be, or None."""
        ...


class Pump:
    """Moves bytes until the program is gone or `finish` is called. `ended` is set when it has stopped."""

    def __init__(
        self,
        terminal: int,
        screen: LockedScreen,
        clock: Clock,
        *,
        person: PersonStreams | None,
        on_output: Callable[[], None],
    ) -> None:
        self.terminal = terminal
        self._screen = screen
        self._clock = clock
        self._person = person
        self._on_output = on_output
        self._waker = Waker()
        self.input = ProgramInput(terminal, self._waker.wake)
        self.ended = threading.Event()
        self.last_output = clock.monotonic()
        self.is_moving = False
        """True while output is on its way: the program is not quiet, however long a slow terminal takes."""
        self.last_key = float("-inf")
        self.draft = PersonDraft()
        self._desk: InputHandler | None = None
        self._jobs: deque[Callable[[], None]] = deque()
        self._finishing = False
        self._closed = False
        self._source_open = person is not None
        self._watched: tuple[bool, bool] | None = None
        """Whether the poller waits for room in the program's terminal, and for a person's keys."""
        self._line_open = False
        # Two counts, as each has one thread that writes it: the loop's, and the pump's.
        self._keys_given = self._keys_taken = 0
        self._thread = threading.Thread(target=self._run, name="pty-pump", daemon=True)

    def start(self, desk: InputHandler) -> None:
        self._desk = desk
        self._thread.start()

    def load_screen(self) -> None:
        """Bring the emulator up, in a thread of its own; until then what the program prints is kept."""
        threading.Thread(target=self._load_screen, name="pty-screen", daemon=True).start()

    def type_keys(self, data: bytes) -> None:
        """Take keys of a person elsewhere, as if typed at the terminal. The loop's thread.

        They are dropped when the program has very much to read already, as a terminal does.
        """
        if self.takes_keys:
            self._keys_given += len(data)
            self.call_soon(lambda: self._take_given(data))

    @property
    def takes_keys(self) -> bool:
        """False while so much waits for the program that further keys of somebody elsewhere would be dropped."""
        return self._keys_given - self._keys_taken + self.input.pending < _MOST_UNREAD

    def call_soon(self, job: Callable[[], None]) -> None:
        """Have `job` done by the pump's thread, between two events. Any thread."""
        if not self.ended.is_set():
            self._jobs.append(job)
            self._waker.wake()

    def finish(self) -> None:
        """Pass on what the program has left, then stop. Any thread; returns at once."""
        self._finishing = True
        self._waker.wake()

    def close(self, timeout: float) -> None:
        """Give the files back. A thread that hangs in a person's terminal keeps its own; it ends with the process."""
        self.input.close()
        if not self._closed and self.ended.wait(timeout):
            self._closed = True
            self._waker.close()
            os.close(self.terminal)

    def show(self, data: bytes) -> None:
        """Write to the person's terminal and the watchers. The pump's thread only."""
        self.show_person(data)
        self._screen.show_watchers(data)

    def show_person(self, data: bytes) -> None:
        """Write all of `data` to the person's terminal, however long that takes. The pump's thread only."""
        if self._person is None:
            return
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._person.sink, rest) :]
            except BlockingIOError:
                # Somebody who shares the terminal made it non-blocking.
                select.select((), (self._person.sink,), ())
            except OSError:
                # The terminal is gone; the signal that says so is handled elsewhere.
                return

    def _load_screen(self) -> None:
        self._screen.load()
        # What was kept may have held queries, and somebody may wait for the first picture.
        self._answer_queries()
        self._waker.wake()
        self._on_output()

    def _run(self) -> None:
        poller = select.poll()
        try:
            while self._turn(poller):
                pass
        finally:
            self.ended.set()
            self._on_output()

    def _turn(self, poller: select.poll) -> bool:
        """Wait for one event of any kind and handle it; False when the program has no more to say."""
        self._watch_files(poller)
        ready = dict(poller.poll(self._patience()))
        if self._waker.number in ready:
            self._waker.drain()
            while self._jobs:
                self._jobs.popleft()()
        events = ready.get(self.terminal, 0)
        if events & select.POLLOUT:
            self.input.flush()
        if events & _READABLE and not self._move_output():
            return False
        if self._finishing and not events & _READABLE:
            return False
        if self._person is not None and self._person.source in ready:
            self._move_keys(self._person.source)
        return True

    def _watch_files(self, poller: select.poll) -> None:
        pending = self.input.pending
        wanted = pending > 0, self._source_open and pending < _MOST_UNREAD
        if wanted == self._watched:
            return
        waits_for_room, waits_for_keys = wanted
        poller.register(self._waker.number, select.POLLIN)
        poller.register(self.terminal, select.POLLIN | (select.POLLOUT if waits_for_room else 0))
        if self._person is not None and waits_for_keys:
            poller.register(self._person.source, select.POLLIN)
        elif self._person is not None and self._watched is not None and self._watched[1]:
            poller.unregister(self._person.source)
        self._watched = wanted

    def _patience(self) -> float | None:
        """How long to wait, in milliseconds; what is due is done here, between two events."""
        if self._finishing:
            return 0
        seconds = self._desk.tick() if self._desk else None
        return None if seconds is None else max(seconds, 0.001) * 1000

    def _move_output(self) -> bool:
        data, is_over = self._read_output()
        if data:
            self._pass_output(data)
        return not is_over

    def _pass_output(self, data: bytes) -> None:
        if self._desk is not None:
            self._desk.output_comes()
        # Before the screen has it: nobody may see the new picture and think that it has been quiet for long.
        self.is_moving, self.last_output = True, self._clock.monotonic()
        # The screen first: what it has seen must not wait for a terminal that does not drain.
        self._screen.feed(data)
        self.show_person(data)
        self._answer_queries()
        self.is_moving, self.last_output = False, self._clock.monotonic()
        if self._desk is not None:
            self._desk.output_seen(data)
        self._on_output()

    def _read_output(self) -> tuple[bytes, bool]:
        """All that can be read now, up to a limit: larger steps cost less."""
        chunks: list[bytes] = []
        size = 0
        is_over = False
        while size < _READ_SIZE:
            try:
                chunk = os.read(self.terminal, _PIECE)
            except BlockingIOError:
                break
            except OSError:
                # EIO on Linux: no program has the terminal open any more.
                chunk = b""
            if not chunk:
                is_over = True
                break
            chunks.append(chunk)
            size += len(chunk)
        return b"".join(chunks), is_over

    def _answer_queries(self) -> None:
        replies = self._screen.take_replies()
        # A person's own terminal has got the same queries and answers them itself. A program that asks and asks and
        # never reads gets no more answers.
        if replies and self._person is None and self.input.pending < _MOST_UNREAD:
            self.input.write(replies)

    def _move_keys(self, source: int) -> None:
        try:
            data = os.read(source, _READ_SIZE)
        except OSError:
            data = b""
        if not data:
            self._source_open = False
            self.input.write(self._end_of_input())
            return
        self._line_open = not data.endswith(b"\n")
        self._take_keys(data)

    def _take_keys(self, data: bytes) -> None:
        if self.draft.typed(data, line_keys(self.terminal)):
            self.last_key = self._clock.monotonic()
        if self._desk is not None:
            self._desk.typed(data)

    def _take_given(self, data: bytes) -> None:
        self._keys_taken += len(data)
        self._take_keys(data)

    def _end_of_input(self) -> bytes:
        """What a person types to end the input. If a line was begun the first only ends that line, and programs that
        read on for the line's end need a third."""
        try:
            key = bytes(termios.tcgetattr(self.terminal)[6][termios.VEOF])
        except termios.error:
            return b""
        return key * 3 if self._line_open else key


class ProgramInput:
    """The way into a terminal. Any thread may write; nobody ever waits for a program that does not read."""

    def __init__(self, terminal: int, wake: Callable[[], None]) -> None:
        self._terminal = terminal
        self._wake = wake
        self._lock = threading.Lock()
        self._pending = bytearray()
        self._closed = False

    @property
    def pending(self) -> int:
        """How many bytes wait for the program to read."""
        return len(self._pending)

    def write(self, data: bytes) -> None:
        """Type these bytes after all that were written before; those of a program that is gone are dropped."""
        with self._lock:
            self._pending += data
            self._push()
            is_stuck = bool(self._pending)
        if is_stuck:
            self._wake()

    def flush(self) -> None:
        """Write what waits, as far as the terminal takes it."""
        with self._lock:
            self._push()

    def close(self) -> None:
        """Drop what waits and whatever comes."""
        with self._lock:
            self._closed = True
            self._pending.clear()

    def _push(self) -> None:
        if self._closed:
            self._pending.clear()
            return
        try:
            while self._pending:
                del self._pending[: os.write(self._terminal, self._pending)]
        except BlockingIOError:
            return
        except OSError:
            # EIO: the program is gone; its exit is reported elsewhere.
            self._pending.clear()


class Waker:
    """A pipe that one thread polls and any other may write to, also after it was closed."""

    def __init__(self) -> None:
        self.number, self._bell = os.pipe()
        os.set_blocking(self.number, False)
        os.set_blocking(self._bell, False)
        # Guards the number of a closed file: another file may have it by then.
        self._lock = threading.Lock()
        self._is_open = True

    def wake(self) -> None:
        # A full pipe is full of wakes that were not seen yet.
        with self._lock, contextlib.suppress(BlockingIOError):
            if self._is_open:
                os.write(self._bell, b"w")

    def drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self.number, 4096)

    def close(self) -> None:
        with self._lock:
            self._is_open = False
            os.close(self.number)
            os.close(self._bell)


SUSPEND_KEY: Final = b"\x1a"
_COOKED_SIGNALS: Final = termios.ICANON | termios.ISIG
# Python's termios has no name for it; Linux and macOS share the value.
IUTF8: Final = 0x4000
_DISABLED: Final = b"\0"
"""A key that a terminal does not have."""
_RETURN: Final = frozenset(b"\r")
_NONE: Final[frozenset[int]] = frozenset()


def edits_lines(terminal: int) -> bool:
    """True if the kernel edits the program's lines, and hands them over whole."""
    try:
        return bool(termios.tcgetattr(terminal)[3] & termios.ICANON)
    except termios.error:
        return False


def line_keys(terminal: int) -> LineKeys | None:
    """Return the keys by which the kernel edits the program's line; None if the program edits it."""
    try:
        settings = termios.tcgetattr(terminal)
    except termios.error:
        return None
    flags: int = settings[3]
    if not flags & termios.ICANON:
        return None
    takes: int = settings[0]
    is_extended = bool(flags & termios.IEXTEN)
    signals = _keys(settings, termios.VINTR, termios.VQUIT, termios.VSUSP, when=flags & termios.ISIG)
    pauses = _keys(settings, termios.VSTART, termios.VSTOP, when=takes & termios.IXON)
    reprint = _keys(settings, termios.VREPRINT, when=is_extended and flags & termios.ECHO)
    end = _keys(settings, termios.VEOF, termios.VEOL, termios.VEOL2) | {ord("\n")}
    return LineKeys(
        erase=_keys(settings, termios.VERASE),
        kill=_keys(settings, termios.VKILL) | (_NONE if flags & termios.NOFLSH else signals),
        erase_word=_keys(settings, termios.VWERASE, when=is_extended),
        literal=_keys(settings, termios.VLNEXT, when=is_extended),
        end=end | _RETURN if takes & termios.ICRNL else end,
        ignored=pauses | reprint | signals | (_RETURN if takes & termios.IGNCR else _NONE),
        erases_characters=bool(takes & IUTF8),
    )


def suspending_drops_line(terminal: int) -> bool:
    """True if the kernel itself acts on Ctrl-Z: it drops the line, shows `^Z` where it stood, and stops the program.

    It does so also when the program ignores the signal, or has no shell behind it, and so is not stopped.
    """
    try:
        settings = termios.tcgetattr(terminal)
    except termios.error:
        return False
    flags, is_key = settings[3], settings[6][termios.VSUSP] == SUSPEND_KEY
    return is_key and flags & _COOKED_SIGNALS == _COOKED_SIGNALS and not flags & termios.NOFLSH


def _keys(settings: list[Any], *indexes: int, when: int = True) -> frozenset[int]:
    """The bytes of the keys at these places of a terminal's settings, unless something has switched them off."""
    keys: list[bytes] = settings[6]
    return frozenset(keys[index][0] for index in indexes if when and keys[index] != _DISABLED)
