"""The screen of a running program behind a lock: the pump feeds it, and other threads read it.

The emulator takes about a fifth of a second to import. So the program is started first, and its output is kept until
the emulator is loaded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from synapse.terminal.theme import Theme

if TYPE_CHECKING:
    from synapse.terminal.picture import PaintedScreen, Picture
    from synapse.terminal.screen import Screen

_MAX_KEPT: Final = 1024 * 1024
_LOAD_SECONDS: Final = 1.0
_FRAME_END: Final = b"\x1b[?2026l"
_FRAME_TAIL: Final = 64
"""Hardly more than a cursor movement follows a frame."""

Viewer = Callable[[bytes], None]
"""Gets every byte that the program prints, in the pump's thread and under the lock: it must not wait."""


class ScreenSnapshot(NamedTuple):
    """A whole terminal at one moment: `data` rebuilds it, and the program's output goes on at `offset`."""

    offset: int
    columns: int
    rows: int
    data: bytes


class LockedScreen:
    """A `Screen` that several threads may use."""

    def __init__(self, columns: int, rows: int, theme: Theme = Theme.DARK) -> None:
        self._lock = threading.Lock()
        self._loaded = threading.Event()
        self._screen: Screen | None = None
        self._columns, self._rows = columns, rows
        self._theme = theme
        self._kept = bytearray()
        self._viewers: tuple[Viewer, ...] = ()
        self._offset = 0
        """How many bytes viewers could have been shown since the start."""
        self._version = 0
        self._picture: tuple[int, Picture] | None = None
        self.paints_frames = False
        """Whether the program was seen to paint in synchronized updates: then half a frame is recognised as such."""

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        return self._columns, self._rows

    @property
    def version(self) -> int:
        """A number that changes whenever the picture may have changed."""
        return self._version

    def load(self) -> None:
        """Loads the emulator; slow, so call it in a thread of its own."""
        from synapse.terminal.screen import Screen  # noqa: PLC0415  # its import costs 0.2 s, see above

        with self._lock:
            self._screen = Screen(self._columns, self._rows, theme=self._theme)
            self._screen.feed(bytes(self._kept))
            self._kept.clear()
            self._version += 1
        self._loaded.set()

    def wait_loaded(self, timeout: float = _LOAD_SECONDS) -> None:
        """Waits until the emulator is loaded, or the time is over."""
        self._loaded.wait(timeout)

    def feed(self, data: bytes) -> None:
        """Takes output of the program. Waits for the emulator when too much would have to be kept."""
        if len(self._kept) > _MAX_KEPT:
            self._loaded.wait()
        self.paints_frames = self.paints_frames or _FRAME_END in data[-_FRAME_TAIL:]
        with self._lock:
            self._version += 1
            self._offset += len(data)
            if self._screen is None:
                self._kept += data
            else:
                self._screen.feed(data)
            for viewer in self._viewers:
                viewer(data)

    def show_viewers(self, data: bytes) -> None:
        """Passes bytes to the viewers alone; the screen keeps what the program has painted."""
        with self._lock:
            self._offset += len(data)
            for viewer in self._viewers:
                viewer(data)

    def take_replies(self) -> bytes:
        """Returns a terminal's replies to the program's queries, each only once."""
        with self._lock:
            return self._screen.take_replies() if self._screen else b""

    def resize(self, columns: int, rows: int) -> None:
        with self._lock:
            self._columns, self._rows = columns, rows
            self._version += 1
            if self._screen is not None:
                self._screen.resize(columns, rows)

    def picture(self) -> Picture | None:
        """Returns what is on the screen, or None until the emulator is loaded."""
        with self._lock:
            if self._screen is None:
                return None
            if self._picture is None or self._picture[0] != self._version:
                self._picture = self._version, self._screen.picture()
            return self._picture[1]

    def history(self, max_lines: int) -> tuple[str, ...]:
        """Returns the last lines of scrollback and screen together."""
        with self._lock:
            return self._screen.history(max_lines) if self._screen else ()

    def painted(self, scrollback: int) -> tuple[int, PaintedScreen | None]:
        """Returns the version of the screen and its painted rows; None until the emulator is loaded."""
        with self._lock:
            return self._version, self._screen.painted(scrollback) if self._screen else None

    def redraw(self) -> bytes:
        """Returns bytes that paint the screen in any terminal."""
        with self._lock:
            return self._screen.redraw() if self._screen else bytes(self._kept)

    def leaving_bytes(self) -> bytes:
        """Returns bytes that undo the terminal modes that the program has left on; empty if it has left none."""
        self.wait_loaded()
        picture = self.picture()
        if picture is None or not (picture.alternate or picture.bracketed_paste or not picture.cursor_visible):
            return b""
        from synapse.terminal.screen import PLAIN_TERMINAL  # noqa: PLC0415  # loaded by now, see above

        # To leave the alternate screen without being in it would move the cursor.
        return PLAIN_TERMINAL if picture.alternate else PLAIN_TERMINAL.replace(b"\x1b[?1049l", b"")

    def watch(self, viewer: Viewer, begin: Callable[[bytes], None]) -> None:
        """Gives `begin` the bytes that paint the screen now; `viewer` gets all output after that, with no gap.

        A viewer that has fallen behind may call this again.
        """
        with self._lock:
            begin(self._screen.redraw() if self._screen else bytes(self._kept))
            self._viewers = (*(known for known in self._viewers if known != viewer), viewer)

    def follow(self, viewer: Viewer, begin: Callable[[int], None]) -> None:
        """Gives `begin` the offset of the next byte; `viewer` gets that byte and all output after it."""
        with self._lock:
            begin(self._offset)
            self._viewers = (*self._viewers, viewer)

    def snapshot(self) -> ScreenSnapshot:
        """Returns bytes that rebuild the terminal in another one, and the offset of the next byte."""
        with self._lock:
            data = self._screen.snapshot() if self._screen else bytes(self._kept)
            return ScreenSnapshot(self._offset, self._columns, self._rows, data)

    def unwatch(self, viewer: Viewer) -> None:
        with self._lock:
            self._viewers = tuple(known for known in self._viewers if known != viewer)
