"""What a screen and its snapshot ask of the emulator, in few calls, with memory that is allocated once.

The wrapper's own calls allocate and describe each structure anew: reading a screen by them took seven times as long.
References to cells are valid until the terminal is fed or resized, so they are made for each reading.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple, cast

import pyghostty  # type: ignore[import-untyped]  # it ships no types; all of it stays behind Screen

ghostty: Final[Any] = cast(Any, pyghostty)
ffi: Final[Any] = ghostty.ffi
lib: Final[Any] = ghostty.lib
check: Final[Callable[[int, str], None]] = ghostty.core.check

ACTIVE: Final = lib.GHOSTTY_POINT_TAG_ACTIVE
HISTORY: Final = lib.GHOSTTY_POINT_TAG_HISTORY
CURSOR_VISIBLE: Final = 25
BRACKETED_PASTE: Final = 2004
SYNCHRONIZED_OUTPUT: Final = 2026

# The wrapper's own cast: cffi does not pass a union by value.
find_cell: Final = ghostty.core.union_fn(
    "ghostty_terminal_grid_ref", "GhosttyResult(*)(GhosttyTerminal, GhosttyPointS, GhosttyGridRef*)"
)
_FACTS: Final = tuple(
    (getattr(lib, f"GHOSTTY_TERMINAL_DATA_{key}"), kind)
    for key, kind in (
        ("COLS", "uint16_t*"),
        ("ROWS", "uint16_t*"),
        ("CURSOR_X", "uint16_t*"),
        ("CURSOR_Y", "uint16_t*"),
        ("ACTIVE_SCREEN", "int*"),
        ("TITLE", "GhosttyString*"),
    )
)
_MODES: Final = (CURSOR_VISIBLE, BRACKETED_PASTE, SYNCHRONIZED_OUTPUT)


_MOST_KEPT: Final = 65536


class Facts(NamedTuple):
    """What a terminal tells besides its cells."""

    columns: int
    rows: int
    column: int
    row: int
    """The cursor's."""
    alternate: bool
    title: str
    cursor_visible: bool
    bracketed_paste: bool
    updating: bool


class Emulator:
    """Reads one terminal. Not thread safe."""

    def __init__(self, handle: Any) -> None:
        """Takes the terminal's handle, which must stay open."""
        self._handle = handle
        self._values = [ffi.new(kind) for _, kind in _FACTS]
        self._modes = [ffi.new("GhosttyTerminalModeConfig*", {"mode": mode}) for mode in _MODES]
        keys = [key for key, _ in _FACTS] + [lib.GHOSTTY_TERMINAL_DATA_MODE] * len(_MODES)
        self._keys = ffi.new("GhosttyTerminalData[]", keys)
        self._targets = ffi.new("void*[]", [ffi.cast("void*", at) for at in (*self._values, *self._modes)])
        self._point = ffi.new("GhosttyPointS*")
        self._cell = ghostty.core.init_sized("GhosttyGridRef")
        self._selection = ghostty.core.init_sized("GhosttySelection")
        self._plain = ghostty.core.init_sized("GhosttyTerminalSelectionFormatOptions")
        self._plain.emit, self._plain.trim = lib.GHOSTTY_FORMATTER_FORMAT_PLAIN, True
        self._painted = ghostty.core.init_sized("GhosttyFormatterTerminalOptions")
        self._painted.emit = lib.GHOSTTY_FORMATTER_FORMAT_VT
        self._plain.selection = self._painted.selection = self._selection
        self._formatter = ffi.new("GhosttyFormatter*")
        self._line, self._is_set, self._count = ffi.new("GhosttyRow*"), ffi.new("bool*"), ffi.new("size_t*")
        self._buffer = ffi.new("uint8_t[]", 4096)

    def facts(self) -> Facts:
        """Returns what the terminal tells besides its cells."""
        read = lib.ghostty_terminal_get_multi(self._handle, len(self._keys), self._keys, self._targets, self._count)
        check(read, "read the terminal")
        columns, rows, column, row, screen, title = self._values
        visible, paste, updating = self._modes
        return Facts(
            columns[0],
            rows[0],
            column[0],
            row[0],
            screen[0] == lib.GHOSTTY_TERMINAL_SCREEN_ALTERNATE,
            bytes(ffi.buffer(title.ptr, title.len)).decode(errors="replace") if title.len else "",
            visible.value,
            paste.value,
            updating.value,
        )

    def is_wrapped(self, y: int) -> bool:
        """Returns whether the terminal has wrapped a row into the next."""
        check(lib.ghostty_grid_ref_row(self._at(0, y, ACTIVE), self._line), "row")
        check(lib.ghostty_row_get(self._line[0], lib.GHOSTTY_ROW_DATA_WRAP, self._is_set), "wrap")
        return bool(self._is_set[0])

    def text(self, columns: int, rows: int) -> str:
        """Returns the rows of the screen without colours; those at the end may lack."""
        self._select(ACTIVE, 0, rows, columns)
        return self._read(partial(lib.ghostty_terminal_selection_format_buf, self._handle, self._plain[0])).decode()

    def painted(self, where: int, begin: int, end: int, columns: int) -> bytes:
        """Returns bytes that paint the rows from `begin` to before `end`, each on a line; those at the end may lack."""
        self._select(where, begin, end, columns)
        made = lib.ghostty_formatter_terminal_new(ffi.NULL, self._formatter, self._handle, self._painted[0])
        check(made, "new formatter")
        try:
            return self._read(partial(lib.ghostty_formatter_format_buf, self._formatter[0]))
        finally:
            lib.ghostty_formatter_free(self._formatter[0])

    def _select(self, where: int, begin: int, end: int, columns: int) -> None:
        self._selection.start = self._at(0, begin, where)[0]
        self._selection.end = self._at(columns - 1, end - 1, where)[0]

    def _at(self, x: int, y: int, where: int) -> Any:
        point = self._point
        point.tag, point.value.x, point.value.y = where, x, y
        check(find_cell(self._handle, point[0], self._cell), "reference to a cell")
        return self._cell

    def _read(self, call: Callable[[Any, int, Any], int]) -> bytes:
        # One call, as a rule; if the buffer is too small, it tells how large it must be.
        result: int = call(self._buffer, len(self._buffer), self._count)
        if result != lib.GHOSTTY_OUT_OF_SPACE:
            check(result, "format")
            return bytes(ffi.buffer(self._buffer, self._count[0]))
        larger = ffi.new("uint8_t[]", int(self._count[0]))
        check(call(larger, len(larger), self._count), "format")
        # What a screen takes will be needed again; what a long scrollback takes is given back.
        if len(larger) <= _MOST_KEPT:
            self._buffer = larger
        return bytes(ffi.buffer(larger, self._count[0]))
