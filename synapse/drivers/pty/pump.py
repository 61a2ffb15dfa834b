"""The thread between a program and its person: passes output to the person unchanged, feeds the screen, types keys.

The thread never waits for the event loop, and the loop never waits for the thread. A person's terminal that does not
drain stalls the thread and so the program, as it would without us; nothing piles up. Input goes into the program's
terminal at once, as far as the terminal takes it; the rest is kept in order.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from synapse.core.types import Clock
from synapse.drivers.pty.screen import LockedScreen
from synapse.drivers.pty.tty import end_of_file_key, line_keys
from synapse.terminal.line_editor import PersonDraft

_READ_SIZE: Final = 65536
_CHUNK_SIZE: Final = 4096
"""The most that the kernel returns from a terminal at once; a larger buffer only costs time."""
_READABLE: Final = select.POLLIN | select.POLLHUP | select.POLLERR
_MAX_UNREAD: Final = 65536
"""Bytes that the program has yet to read, beyond which a person's further keys stay in their terminal."""


@dataclass(frozen=True, slots=True)
class PersonStreams:
    """The two ends of a person's terminal, or of the pipes that stand in for it."""

    source: int
    sink: int


class InputHandler(Protocol):
    """Handles a person's keys. All calls come from the pump's thread."""

    def typed(self, data: bytes) -> None: ...

    def before_output(self) -> None:
        """Prepares for output that neither the screen nor the person has yet."""
        ...

    def after_output(self, data: bytes) -> None:
        """Takes note of output that the screen and the person have."""
        ...

    def tick(self) -> float | None:
        """Does what is due; returns in how many seconds to call again, or None."""
        ...


class Pump:
    """Moves bytes until the program is gone or `finish` is called; then sets `ended`."""

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
        """True while output is being passed on: the program is not quiet, however long a slow terminal takes."""
        self.last_key = float("-inf")
        self.draft = PersonDraft()
        self._handler: InputHandler | None = None
        self._callbacks: deque[Callable[[], None]] = deque()
        self._finishing = False
        self._closed = False
        self._source_open = person is not None
        self._polled: tuple[bool, bool] | None = None
        """Whether the poller waits for room in the program's terminal, and whether for a person's keys."""
        self._line_open = False
        # Two counts, so that each has one thread that writes it: the loop's and the pump's.
        self._remote_keys_given = self._remote_keys_taken = 0
        self._thread = threading.Thread(target=self._run, name="pty-pump", daemon=True)

    def start(self, handler: InputHandler) -> None:
        self._handler = handler
        self._thread.start()

    def load_screen(self) -> None:
        """Loads the emulator in a thread of its own; output is kept until then."""
        threading.Thread(target=self._load_screen, name="pty-screen", daemon=True).start()

    def type_keys(self, data: bytes) -> None:
        """Types keys of a person who is attached, as if typed at the terminal. Call it in the loop's thread.

        The keys are dropped when the program has very much to read already, as a terminal does.
        """

        def take() -> None:
            self._remote_keys_taken += len(data)
            self._take_keys(data)

        if self.takes_keys:
            self._remote_keys_given += len(data)
            self.call_soon(take)

    @property
    def takes_keys(self) -> bool:
        """False while the program has so much to read that `type_keys` would drop further keys."""
        return self._remote_keys_given - self._remote_keys_taken + self.input.pending < _MAX_UNREAD

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Runs `callback` in the pump's thread, between two events. Call it in any thread."""
        if not self.ended.is_set():
            self._callbacks.append(callback)
            self._waker.wake()

    def finish(self) -> None:
        """Passes on the program's remaining output, then stops. Call it in any thread; it returns at once."""
        self._finishing = True
        self._waker.wake()

    def close(self, timeout: float) -> None:
        """Closes the files. A thread that hangs in a person's terminal keeps its own until the process ends."""
        self.input.close()
        if not self._closed and self.ended.wait(timeout):
            self._closed = True
            self._waker.close()
            os.close(self.terminal)

    def show(self, data: bytes) -> None:
        """Writes to the person's terminal and to the viewers. Call it in the pump's thread only."""
        self.show_person(data)
        self._screen.show_viewers(data)

    def show_person(self, data: bytes) -> None:
        """Writes all of `data` to the person's terminal, however long that takes. Call it in the pump's thread only."""
        if self._person is None:
            return
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._person.sink, rest) :]
            except BlockingIOError:
                # Another process that shares the terminal made it non-blocking.
                select.select((), (self._person.sink,), ())
            except OSError:
                # The terminal is gone; the signal that says so is handled elsewhere.
                return

    def _load_screen(self) -> None:
        self._screen.load()
        # The kept output may hold queries, and the loop may wait for the first picture.
        self._answer_queries()
        self._waker.wake()
        self._on_output()

    def _run(self) -> None:
        poller = select.poll()
        try:
            while self._handle_event(poller):
                pass
        finally:
            self.ended.set()
            self._on_output()

    def _handle_event(self, poller: select.poll) -> bool:
        """Waits for one event of any kind and handles it; False when there is no more output."""
        self._register_files(poller)
        ready = dict(poller.poll(self._tick()))
        if self._waker.fileno in ready:
            self._waker.drain()
            while self._callbacks:
                self._callbacks.popleft()()
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

    def _register_files(self, poller: select.poll) -> None:
        pending = self.input.pending
        wanted = pending > 0, self._source_open and pending < _MAX_UNREAD
        if wanted == self._polled:
            return
        waits_for_room, waits_for_keys = wanted
        poller.register(self._waker.fileno, select.POLLIN)
        poller.register(self.terminal, select.POLLIN | (select.POLLOUT if waits_for_room else 0))
        if self._person is not None and waits_for_keys:
            poller.register(self._person.source, select.POLLIN)
        elif self._person is not None and self._polled is not None and self._polled[1]:
            poller.unregister(self._person.source)
        self._polled = wanted

    def _tick(self) -> float | None:
        """Lets the handler do what is due; returns how long to wait for the next event, in milliseconds."""
        if self._finishing:
            return 0
        seconds = self._handler.tick() if self._handler else None
        return None if seconds is None else max(seconds, 0.001) * 1000

    def _move_output(self) -> bool:
        """Passes on the output that can be read now; False when there will be no more."""
        data, is_over = self._read_output()
        if data:
            self._pass_output(data)
        return not is_over

    def _pass_output(self, data: bytes) -> None:
        if self._handler is not None:
            self._handler.before_output()
        # Before the screen has it: otherwise the loop could see the new picture as one that has long been quiet.
        self.is_moving, self.last_output = True, self._clock.monotonic()
        # The screen first: it must not wait for a terminal that does not drain.
        self._screen.feed(data)
        self.show_person(data)
        self._answer_queries()
        self.is_moving, self.last_output = False, self._clock.monotonic()
        if self._handler is not None:
            self._handler.after_output(data)
        self._on_output()

    def _read_output(self) -> tuple[bytes, bool]:
        """Returns all that can be read now, up to a limit, and whether the output is over. Larger steps cost less."""
        chunks: list[bytes] = []
        size = 0
        is_over = False
        while size < _READ_SIZE:
            try:
                chunk = os.read(self.terminal, _CHUNK_SIZE)
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
        # A person's own terminal gets the queries too and answers them itself. A program that keeps asking and never
        # reads gets no more answers.
        if replies and self._person is None and self.input.pending < _MAX_UNREAD:
            self.input.write(replies)

    def _move_keys(self, source: int) -> None:
        try:
            data = os.read(source, _READ_SIZE)
        except OSError:
            data = b""
        if not data:
            self._source_open = False
            # If a line was begun, the first key only ends that line, and programs that read on for the line's end need
            # a third.
            self.input.write(end_of_file_key(self.terminal) * (3 if self._line_open else 1))
            return
        self._line_open = not data.endswith(b"\n")
        self._take_keys(data)

    def _take_keys(self, data: bytes) -> None:
        if self.draft.typed(data, line_keys(self.terminal)):
            self.last_key = self._clock.monotonic()
        if self._handler is not None:
            self._handler.typed(data)


class ProgramInput:
    """Types into a terminal from any thread. No call waits for a program that does not read."""

    def __init__(self, terminal: int, wake: Callable[[], None]) -> None:
        self._terminal = terminal
        self._wake = wake
        self._lock = threading.Lock()
        self._pending = bytearray()
        self._closed = False

    @property
    def pending(self) -> int:
        """How many bytes the terminal has not taken yet."""
        return len(self._pending)

    def write(self, data: bytes) -> None:
        """Types bytes after all earlier ones; drops them if the program is gone."""
        with self._lock:
            self._pending += data
            self._push()
            is_stuck = bool(self._pending)
        if is_stuck:
            self._wake()

    def flush(self) -> None:
        """Writes pending bytes, as far as the terminal takes them."""
        with self._lock:
            self._push()

    def close(self) -> None:
        """Drops pending bytes and all later ones."""
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
    """Wakes a thread that polls `fileno`. Any other thread may call `wake`, also after `close`."""

    def __init__(self) -> None:
        self.fileno, self._write_end = os.pipe()
        os.set_blocking(self.fileno, False)
        os.set_blocking(self._write_end, False)
        # Guards the descriptor of a closed file: another file may have it by then.
        self._lock = threading.Lock()
        self._is_open = True

    def wake(self) -> None:
        # A full pipe holds wakes that the other thread has not seen yet.
        with self._lock, contextlib.suppress(BlockingIOError):
            if self._is_open:
                os.write(self._write_end, b"w")

    def drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self.fileno, 4096)

    def close(self) -> None:
        with self._lock:
            self._is_open = False
            os.close(self.fileno)
            os.close(self._write_end)
