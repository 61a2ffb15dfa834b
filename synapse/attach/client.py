"""Shows an agent's terminal in the person's own, over the host's Unix socket, for `synapse attach`."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from types import FrameType
from typing import Final

from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.sync.client import ClientConnection, unix_connect

from synapse.attach.frames import Exited, Hello, Resize, Role, Size, Take, decode_to_viewer, encode
from synapse.attach.person import PersonTerminal
from synapse.client.lines import cut, plain
from synapse.config.process import SystemClock
from synapse.core.errors import AgentFailed, ConnectionForbidden, SynapseError
from synapse.net.hosts import terminal_refusal
from synapse.terminal.keys import Key, KeyKind, KeyParser

FindAgain = Callable[[], str]
"""Returns the socket of the agent as it is now. Raises AgentFailed while it cannot be reached, else SynapseError."""
_READ_SIZE: Final = 65536
_ESCAPE_SECONDS: Final = 0.03
"""The rest of a split key sequence arrives within this time."""
_ANSWER_SECONDS: Final = 10.0
"""A host that does not answer within this time is suspended, or is not a host."""
_HOST_CLOSED: Final = "the agent's host closed the connection"
_RESIZED: Final = bytes((signal.SIGWINCH,))
_OVER: Final = b"\x00"
_ROLE_KNOWN: Final = b"\xff"
_FOUND: Final = b"\xfe"
_RETRY_SECONDS: Final = 1.0
_BROKEN: Final = (1001, 1006, 1012)
"""The codes of a connection whose other end is gone, stops or restarts (RFC 6455 §7.4.1)."""
_HINT_SECONDS: Final = 4.0
"""How long a person is shown how to leave, unless they press a key."""
_HINT_CALM_SECONDS: Final = 0.1
"""No output for this long: the program has painted what it wants to paint."""
# Saves the window's title.
_ENTER_SCREEN: Final = b"\x1b[22;2t\x1b[?1049h\x1b[H"
# Resets every mode that the agent's program may have set, then returns to the shell's screen and title.
_LEAVE_SCREEN: Final = (
    b"\x1b[?1;66;9;1000;1002;1003;1004;1005;1006;1015;1016;2004;2031l\x1b[?1007h\x1b[=0;1u\x1b[>4;0m\x1b[?2026l"
    b"\x1b[r\x1b[?7h\x1b[?25h\x1b[0 q\x1b[0m\x1b[?1049l\x1b[23;2t\r"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachOptions:
    """How a person wants to attach. The keys are characters that are pressed with Ctrl."""

    types: bool = True
    """False to only look."""
    take: bool = False
    """Take the keyboard from another viewer."""
    name: str = ""
    """The agent, for the window's title."""
    detach_key: str = "]"
    take_key: str = "\\"


@dataclass(frozen=True, slots=True)
class Detached:
    """How the attachment ended. `why` is for people; `status` is the program's exit status, None if it still runs."""

    why: str
    status: int | None = None
    lost: bool = False
    """True if the connection broke without a reason from the host."""


def attach(
    socket_path: str,
    options: AttachOptions,
    person: PersonTerminal,
    *,
    timeout: float = _ANSWER_SECONDS,
    find_again: FindAgain | None = None,
) -> Detached:
    """Shows the agent behind `socket_path` in `person`'s terminal until they detach or it ends.

    With `find_again` it goes on after a loss of the connection, as soon as the agent is found again.

    Raises:
        AccessDenied: the host refuses.
        UnsupportedOperation: the agent has no terminal.
        ConnectionForbidden: this process may not connect.
        AgentFailed: no host answers at that socket.
    """
    return _Attachment(_connect(socket_path, timeout), options, person, find_again).run()


def _connect(socket_path: str, timeout: float) -> ClientConnection:
    try:
        return unix_connect(socket_path, "ws://localhost/attach", max_size=None, compression=None, open_timeout=timeout)
    except InvalidStatus as refused:
        raise terminal_refusal(refused.response.status_code, bytes(refused.response.body or b"")) from refused
    except PermissionError as error:
        raise ConnectionForbidden(Path(socket_path).stem, f"it may not open connections ({error})") from error
    except (OSError, InvalidHandshake) as error:
        raise AgentFailed(f"no agent answers at {socket_path}: {_why(error)}", hint="`synapse list`") from error


def _why(error: OSError | InvalidHandshake) -> str:
    """Returns why the connection failed."""
    if isinstance(error, TimeoutError):
        return "the server there does not answer"
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return "the server there closed the connection, or is not an agent's host"


def _drain(pipe: int) -> None:
    """Forgets why the pipe has woken anybody."""
    while select.select((pipe,), (), (), 0)[0]:
        os.read(pipe, _READ_SIZE)


class AgentSearch:
    """Looks for the agent in another thread until the block ends: `take` returns what it has found.

    Calls `news` when there is something to take, and after each change of `why`. Closes a connection that is not taken.
    """

    def __init__(self, find_again: FindAgain, news: Callable[[], object]) -> None:
        self.why = "no connection: trying again"
        self._find_again = find_again
        self._news = news
        self._found: ClientConnection | Detached | None = None
        self._is_over = threading.Event()
        self._handover = threading.Lock()

    def __enter__(self) -> None:
        threading.Thread(target=self._run, name="attach-search", daemon=True).start()

    def __exit__(self, *_: object) -> None:
        with self._handover:
            self._is_over.set()
            self._close_unused()

    def take(self) -> ClientConnection | Detached | None:
        """Returns the new connection, which the caller has to close, or why there is none; None while it looks."""
        with self._handover:
            found, self._found = self._found, None
        return found

    def _run(self) -> None:
        while not self._is_over.wait(_RETRY_SECONDS):
            found = self._look()
            with self._handover:
                self._found = found
                if self._is_over.is_set():
                    self._close_unused()
            self._news()
            if found is not None:
                return

    def _look(self) -> ClientConnection | Detached | None:
        try:
            return _connect(self._find_again(), _ANSWER_SECONDS)
        except AgentFailed as error:  # it may return
            self.why = str(error)
            return None
        except SynapseError as error:
            return Detached(str(error), lost=True)

    def _close_unused(self) -> None:
        if isinstance(self._found, ClientConnection):
            self._found.close()


class _Hint(Enum):
    """Whether the person was shown how to leave."""

    DUE = auto()
    AWAITS_CALM = auto()
    """The role is known, and the program may still paint."""
    SHOWN = auto()
    REMOVED = auto()


class _Attachment:
    """One attachment: the main thread passes keys to the host, another shows its output."""

    def __init__(
        self,
        connection: ClientConnection,
        options: AttachOptions,
        person: PersonTerminal,
        find_again: FindAgain | None,
    ) -> None:
        self._connection = connection
        self._find_again = find_again
        self._options = options
        self._person = person
        self._types = False
        self._was_refused_keys = False
        self._painted_for = (0, 0)
        self._ended: Detached | None = None
        self._hint = _Hint.DUE if person.is_terminal else _Hint.REMOVED
        self._hint_painted_at = self._hint_until = 0.0
        self._clock = SystemClock()
        self._last_output = self._clock.monotonic()
        self._writing = threading.Lock()
        self._wakes, self._waker = os.pipe()
        os.set_blocking(self._waker, False)

    def run(self) -> Detached:
        # The kernel may deliver the signal to any thread, and only the pipe wakes the one that waits for keys. The
        # handler does not send to the host: it may have interrupted a send, which holds the connection's lock.
        previous = signal.signal(signal.SIGWINCH, _ignore)
        previous_fd = signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        self._person.enter(_LEAVE_SCREEN)
        try:
            self._write(_ENTER_SCREEN if self._person.is_terminal else b"")
            ended = self._serve(take=self._options.types and self._options.take)
            while self._find_again is not None and ended.lost and self._is_broken():
                returned = self._reconnect(self._find_again)
                if isinstance(returned, Detached):
                    return returned
                self._connection, self._types = returned, False
                ended = self._serve()
            return ended
        finally:
            self._person.restore()
            signal.set_wakeup_fd(previous_fd)
            signal.signal(signal.SIGWINCH, previous)

    def _serve(self, *, take: bool = False) -> Detached:
        """Shows the agent over the connection until that ends, and closes it."""
        is_over = threading.Event()
        output = threading.Thread(target=self._show, args=(is_over,), name="attach-show", daemon=True)
        output.start()
        try:
            self._greet(take=take)
            ended = self._pass_keys(is_over)
        except ConnectionClosed:
            ended = self._lost()
        self._connection.close()
        output.join(timeout=1)
        return self._ended or ended

    def _is_broken(self) -> bool:
        """Whether the connection ended although nobody has ended it in order or for a reason."""
        closed = self._connection.protocol
        return closed.close_code in _BROKEN and " " not in (closed.close_reason or "")

    def _reconnect(self, find_again: FindAgain) -> ClientConnection | Detached:
        """Tries until the agent is found again, or the person leaves. Keys that are typed meanwhile are dropped."""
        _drain(self._wakes)
        search = AgentSearch(find_again, lambda: os.write(self._waker, _FOUND))
        parser, painted = KeyParser(), ""
        with search:
            while (found := search.take()) is None:
                if painted != search.why:
                    painted = search.why
                    self._show_notes([plain(painted), f"Ctrl-{self._options.detach_key} leaves"])
                ready, _, _ = select.select([self._person.source, self._wakes], (), ())
                if self._wakes in ready and _RESIZED in os.read(self._wakes, _READ_SIZE):
                    painted = ""
                if self._person.source not in ready:
                    continue
                data = os.read(self._person.source, _READ_SIZE)
                if not data:
                    return Detached("the input ended")
                if any(_is_pressed(key, self._options.detach_key) for key in parser.feed(data)):
                    return Detached("detached")
        return found

    def _lost(self) -> Detached:
        """Returns that the connection has ended, with the reason that the other side gave."""
        reason = self._connection.protocol.close_reason or ""
        # A host of ours gives the code of an error there, and a link a sentence.
        return Detached(plain(reason) if " " in reason else _HOST_CLOSED, lost=True)

    def _greet(self, *, take: bool = False) -> None:
        """Tells the host who we are; after the first time it answers with the whole screen."""
        self._connection.send(encode(Hello(*self._person.size(), self._options.types, take)))

    def _pass_keys(self, is_over: threading.Event) -> Detached:
        """Sends keys to the host until the person leaves, or `_show` has set `is_over`."""
        parser = KeyParser()
        sources = [self._person.source, self._wakes]
        while True:
            waits = [self._tend_hint(), _ESCAPE_SECONDS if parser.pending else None]
            ready, _, _ = select.select(
                sources, (), (), min((wait for wait in waits if wait is not None), default=None)
            )
            if self._wakes in ready:
                reasons = os.read(self._wakes, _READ_SIZE)
                if _RESIZED in reasons:
                    self._connection.send(encode(Resize(*self._person.size())))
                # A thread of the connection before may say so late, when the terminal has taken the rest.
                if _OVER in reasons and is_over.is_set():
                    return self._lost()
            if self._person.source not in ready:
                keys = parser.flush() if not ready else []
            elif data := os.read(self._person.source, _READ_SIZE):
                keys = parser.feed(data)
            else:
                return Detached("the input ended")
            if not self._send(keys):
                return Detached("detached")

    def _tend_hint(self) -> float | None:
        """Shows or removes how to leave when that is due; returns in how many seconds to call again, or None."""
        now = self._clock.monotonic()
        if self._hint in (_Hint.DUE, _Hint.REMOVED):
            return None
        if self._hint is _Hint.SHOWN and now >= self._hint_until:
            self._remove_hint()
            return None
        # A program that gets another size paints all of its screen, also over the hint.
        is_gone = self._last_output > self._hint_painted_at
        if is_gone and now >= self._last_output + _HINT_CALM_SECONDS and self._drains():
            if self._hint is _Hint.AWAITS_CALM:
                self._hint, self._hint_until = _Hint.SHOWN, now + _HINT_SECONDS
            self._hint_painted_at = now
            self._show_notes([self._leave_note(), *self._notes()])
        return _HINT_CALM_SECONDS

    def _drains(self) -> bool:
        """Whether the terminal takes more: a write that waits must not keep the detach key from working."""
        return not self._writing.locked() and bool(select.select((), (self._person.sink,), (), 0)[1])

    def _remove_hint(self) -> None:
        """Lets the host paint its screen over the hint; other notes stay until the program paints over them."""
        was_shown, self._hint = self._hint is _Hint.SHOWN, _Hint.REMOVED
        if was_shown and not self._notes():
            self._greet()

    def _send(self, keys: list[Key]) -> bool:
        """Sends keys to the host; returns False at the detach key."""
        # The terminal's own reports, as its answers to the program's queries, are no keys of the person.
        if any(key.kind not in (KeyKind.REPORT, KeyKind.NEUTRAL) for key in keys):
            self._remove_hint()
        for key in keys:
            if _is_pressed(key, self._options.detach_key):
                return False
            if not self._options.types:
                continue
            if not _is_pressed(key, self._options.take_key):
                self._connection.send(key.raw)
            # Not sent to the program if we have just got the keyboard: there this key may mean quit.
            elif not self._types:
                self._connection.send(encode(Take()))
        return True

    def _show(self, is_over: threading.Event) -> None:
        """Writes the host's output. Runs in its own thread: a terminal that does not drain blocks only this."""
        with contextlib.suppress(ConnectionClosed, OSError):
            for frame in self._connection:
                if isinstance(frame, bytes):
                    self._write(frame)
                    self._last_output = self._clock.monotonic()
                    continue
                match decode_to_viewer(frame):
                    case Role() as role:
                        self._role_changed(role)
                    case Size(columns, rows):
                        self._painted_for = columns, rows
                    case Exited(status):
                        self._ended = Detached("the program ended", status)
                    case _:
                        continue
        is_over.set()
        with contextlib.suppress(BlockingIOError):
            os.write(self._waker, _OVER)

    def _role_changed(self, role: Role) -> None:
        """Shows a note about it in the bottom row until the program paints over it."""
        self._types = role.types
        self._show_notes(self._notes())
        self._was_refused_keys = self._was_refused_keys or not role.types
        if self._hint is _Hint.DUE:
            self._hint, self._last_output = _Hint.AWAITS_CALM, self._clock.monotonic()
            self._write(f"\x1b]2;{self._leave_note()}\x07".encode())
            with contextlib.suppress(BlockingIOError):
                os.write(self._waker, _ROLE_KNOWN)

    def _show_notes(self, notes: list[str]) -> None:
        if notes:
            # A note longer than the row would scroll the screen.
            shown = cut(f" {' · '.join(notes)} ", self._person.size()[0] - 1)
            self._write(f"\x1b7\x1b[999;1H\x1b[0;7m{shown}\x1b[0m\x1b[K\x1b8".encode())

    def _notes(self) -> list[str]:
        return [note for note in (self._role_note(), self._size_note()) if note]

    def _leave_note(self) -> str:
        leaves = f"Ctrl-{self._options.detach_key.upper()} leaves it running"
        return f"{plain(self._options.name)}: {leaves}" if self._options.name else leaves

    def _role_note(self) -> str:
        if not self._options.types:
            return ""
        if not self._types:
            return f"looking only: another person types; Ctrl-{self._options.take_key} takes over"
        return "your keys now reach the agent" if self._was_refused_keys else ""

    def _size_note(self) -> str:
        """Returns why the picture looks broken if this terminal is smaller than it; short, for narrow windows."""
        (columns, rows), (here_columns, here_rows) = self._painted_for, self._person.size()
        if columns <= here_columns and rows <= here_rows:
            return ""
        return f"painted for {columns} x {rows}"

    def _write(self, data: bytes) -> None:
        with self._writing:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(self._person.sink, rest) :]


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """Does nothing: the wakeup pipe has the number of the signal."""


def _is_pressed(key: Key, letter: str) -> bool:
    return key.kind is KeyKind.CONTROL and key.text == letter
