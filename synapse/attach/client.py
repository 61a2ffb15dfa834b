"""`synapse attach`: an agent's terminal in this one, over its host's Unix socket."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final

from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.sync.client import ClientConnection, unix_connect

from synapse.attach.frames import Exited, Hello, Resize, Role, Size, Take, decode_to_viewer, encode
from synapse.attach.person import PersonTerminal
from synapse.core.errors import (
    AccessDenied,
    AgentFailed,
    ConnectionForbidden,
    SynapseError,
    UnsupportedOperation,
    from_wire,
)
from synapse.core.json_text import decode_object, object_in
from synapse.terminal.keys import Key, KeyKind, KeyParser

_READ_SIZE: Final = 65536
_ESCAPE_SECONDS: Final = 0.03
"""A cut key sequence comes whole within this time."""
_ANSWER_SECONDS: Final = 10.0
"""A host that says nothing for so long is stopped, or something else."""
_NO_SUCH_ROUTE: Final = 404
_HOST_CLOSED: Final = "the agent's host has closed the connection"
_RESIZED: Final = bytes((signal.SIGWINCH,))
_OVER: Final = b"\x00"
_ENTER_SCREEN: Final = b"\x1b[?1049h\x1b[H"
# Every mode that the agent's program may have set, off; then the screen that the shell had.
_LEAVE_SCREEN: Final = (
    b"\x1b[?1;66;9;1000;1002;1003;1004;1005;1006;1015;1016;2004;2031l\x1b[?1007h\x1b[=0;1u\x1b[>4;0m\x1b[?2026l"
    b"\x1b[r\x1b[?7h\x1b[?25h\x1b[0 q\x1b[0m\x1b[?1049l\r"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachOptions:
    """How a person wants to attach. Keys are letters or signs that are pressed with Ctrl."""

    types: bool = True
    """False to look only."""
    take: bool = False
    """Take the typing over from whoever has it."""
    detach_key: str = "]"
    take_key: str = "\\"


@dataclass(frozen=True, slots=True)
class Detached:
    """How it ended: `status` is the program's exit status, or None when it still runs; `why` is a word for a person."""

    why: str
    status: int | None = None
    lost: bool = False
    """True if the host went away without a word."""


def attach(
    socket_path: str, options: AttachOptions, person: PersonTerminal, *, patience: float = _ANSWER_SECONDS
) -> Detached:
    """Show the agent behind `socket_path` in `person`'s terminal until they detach or it ends.

    Raises:
        AccessDenied: the host refuses.
        UnsupportedOperation: the agent has no terminal.
        ConnectionForbidden: this process may not connect.
        AgentFailed: there is no host behind that socket, or none that answers.
    """
    try:
        connection = unix_connect(
            socket_path, "ws://localhost/attach", max_size=None, compression=None, open_timeout=patience
        )
    except InvalidStatus as refused:
        raise _refusal(refused) from refused
    except PermissionError as error:
        raise ConnectionForbidden(Path(socket_path).stem, f"it may not open connections ({error})") from error
    except (OSError, InvalidHandshake) as error:
        raise AgentFailed(f"no agent answers at {socket_path}: {_why(error)}", hint="`synapse list`") from error
    with connection:
        return _Attachment(connection, options, person).run()


def _why(error: OSError | InvalidHandshake) -> str:
    """What kept us from the host; only the system's own errors have a sentence of theirs."""
    if isinstance(error, TimeoutError):
        return "what listens there says nothing"
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return "what listens there hangs up, or is no agent's host"


def _refusal(refused: InvalidStatus) -> SynapseError:
    if refused.response.status_code == _NO_SUCH_ROUTE:
        return UnsupportedOperation(
            "this agent has no terminal to attach to", hint="`synapse status` says what it does"
        )
    told = _told(bytes(refused.response.body or b""), str(refused))
    return AccessDenied(f"the agent's host refuses: {told}", hint=told.hint)


def _told(body: bytes, otherwise: str) -> SynapseError:
    """Return the error that a host has answered with; a body that is not JSON is its sentence."""
    try:
        return from_wire(object_in(decode_object(body), "error"), otherwise)
    except ValueError:
        return SynapseError(body.decode(errors="replace").strip() or otherwise)


class _Attachment:
    def __init__(self, connection: ClientConnection, options: AttachOptions, person: PersonTerminal) -> None:
        self._connection = connection
        self._options = options
        self._person = person
        self._types = False
        self._was_told = False
        self._painted_for = (0, 0)
        self._ended: Detached | None = None
        self._wakes, self._waker = os.pipe()
        os.set_blocking(self._waker, False)

    def run(self) -> Detached:
        # The kernel may give the signal to any thread, and only the pipe wakes the one that waits for keys. The host is
        # not told from a handler: that may have interrupted a send, which holds the connection's lock.
        previous = signal.signal(signal.SIGWINCH, _noted)
        told_before = signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        shower = threading.Thread(target=self._show, name="attach-show", daemon=True)
        self._person.enter(_LEAVE_SCREEN)
        try:
            self._write(_ENTER_SCREEN if self._person.is_terminal else b"")
            columns, rows = self._person.size()
            takes = self._options.types and self._options.take
            self._connection.send(encode(Hello(columns, rows, self._options.types, takes)))
            shower.start()
            ended = self._pass_keys()
            self._connection.close()
            shower.join(timeout=1)
            return self._ended or ended
        except ConnectionClosed:
            return self._ended or Detached(_HOST_CLOSED, lost=True)
        finally:
            self._person.restore()
            signal.set_wakeup_fd(told_before)
            signal.signal(signal.SIGWINCH, previous)

    def _pass_keys(self) -> Detached:
        parser = KeyParser()
        sources = [self._person.source, self._wakes]
        while True:
            patience = _ESCAPE_SECONDS if parser.pending else None
            ready, _, _ = select.select(sources, (), (), patience)
            if self._wakes in ready and self._is_over():
                return Detached(_HOST_CLOSED, lost=True)
            if self._person.source not in ready:
                keys = parser.flush() if not ready else []
            elif data := os.read(self._person.source, _READ_SIZE):
                keys = parser.feed(data)
            else:
                return Detached("the input has ended")
            if not self._send(keys):
                return Detached("detached")

    def _is_over(self) -> bool:
        """Find out why the pipe woke us; a new size is told to the host."""
        news = os.read(self._wakes, _READ_SIZE)
        if _RESIZED in news:
            self._connection.send(encode(Resize(*self._person.size())))
        return _OVER in news

    def _send(self, keys: list[Key]) -> bool:
        """Pass keys to the host; False when one of them means to leave."""
        for key in keys:
            if _is_pressed(key, self._options.detach_key):
                return False
            if not self._options.types:
                continue
            if not _is_pressed(key, self._options.take_key):
                self._connection.send(key.raw)
            # The keyboard may have come to us unseen a moment ago; to the program this key may mean to quit.
            elif not self._types:
                self._connection.send(encode(Take()))
        return True

    def _show(self) -> None:
        """Write what comes from the host. A thread of its own: a terminal that does not drain holds back only this."""
        with contextlib.suppress(ConnectionClosed, OSError):
            for said in self._connection:
                if isinstance(said, bytes):
                    self._write(said)
                    continue
                match decode_to_viewer(said):
                    case Role() as role:
                        self._role_changed(role)
                    case Size(columns, rows):
                        self._painted_for = columns, rows
                    case Exited(status):
                        self._ended = Detached("the program has ended", status)
                    case _:
                        continue
        self._wake(_OVER)

    def _role_changed(self, role: Role) -> None:
        self._types = role.types
        words = [word for word in (self._role_word(), self._room_word()) if word]
        self._was_told = self._was_told or not role.types
        if words:
            self._note(f" {' · '.join(words)} ")

    def _role_word(self) -> str:
        if not self._options.types:
            return ""
        if not self._types:
            return f"looking only: somebody else types; Ctrl-{self._options.take_key} takes over"
        return "your keys reach the agent now" if self._was_told else ""

    def _room_word(self) -> str:
        """Say why the picture is broken, if there is less room than it is painted for; short, for narrow windows."""
        (columns, rows), (here_columns, here_rows) = self._painted_for, self._person.size()
        if columns <= here_columns and rows <= here_rows:
            return ""
        return f"painted for {columns} x {rows}"

    def _note(self, text: str) -> None:
        """Put a word over the bottom row; the program paints over it when it likes."""
        # One that is too long for the row would push the whole screen up.
        shown = text[: self._person.size()[0] - 1]
        self._write(f"\x1b7\x1b[999;1H\x1b[0;7m{shown}\x1b[0m\x1b[K\x1b8".encode())

    def _wake(self, news: bytes) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._waker, news)

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._person.sink, rest) :]


def _noted(_number: int, _frame: FrameType | None) -> None:
    """Nothing to do here: the number of the signal is in the pipe."""


def _is_pressed(key: Key, letter: str) -> bool:
    return key.kind is KeyKind.CONTROL and key.text == letter
