"""Bytes that rebuild a whole terminal in another one: scrollback, both screens, styles, modes and the cursor.

The emulator formats the lines; it leaves out what these functions add:

    blank rows at the bottom     without them the rebuilt screen would stand too low in its scrollback
    rows that were shortened     joined to the next, they would move it
    rows that only have colour   the emulator's formatter takes them for blank
    the primary screen           a program that leaves the alternate screen shows it again
    the order                    modes come after the text: wrapping or margins would move it

A sequence or character that was cut is repeated at the end, so that the program's next byte continues it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from typing import Any, Final

from synapse.terminal.emulator import check, ffi, find_cell, ghostty, lib

MAX_SNAPSHOT_BYTES: Final = 1024 * 1024
"""A terminal whose lines take more is rebuilt without scrollback: each cell may have a style of its own."""
MAX_UNFINISHED_BYTES: Final = 65536
"""A longer string sequence, such as an image, is forgotten; a viewer who comes in its middle sees its rest as text."""

_MODE: Final = re.compile(rb"\x1b\[\??(\d+)[hl]")
_ALTERNATE_MODES: Final = frozenset({b"47", b"1047", b"1049"})
_ERASING_MODES: Final = frozenset({b"3", b"40"})
"""To set the width of the screen erases it."""
_REGION: Final = re.compile(rb"\x1b\[(\d+);(\d+)r")
_MARGINS: Final = re.compile(rb"\x1b\[(\d+);(\d+)s")
_CURSOR: Final = re.compile(rb"\x1b\[(\d+);(\d+)H")
_ORIGIN_MODE: Final = b"\x1b[?6h"
_RESET: Final = b"\x1b[0m"


def keep_unfinished(handle: Any) -> None:
    """Makes the terminal remember the bytes of a sequence until it is complete."""
    limit = ffi.new("size_t*", MAX_UNFINISHED_BYTES)
    option = lib.GHOSTTY_TERMINAL_OPT_CONTINUATION_MAX_BYTES
    check(lib.ghostty_terminal_set(handle, option, limit), "keep unfinished sequences")


def snapshot(handle: Any) -> bytes:
    """Returns bytes that rebuild the terminal in a freshly reset one of the same size."""
    unfinished = read_buffer(partial(lib.ghostty_terminal_continuation_buf, handle))
    if not _is_alternate(handle):
        return _painted_screen(handle, with_modes=True) + unfinished
    with _copy_of(handle) as behind:
        # CAN ends the sequence that was cut, if any.
        leave = b"\x18\x1b[?1049l\x1b[?1047l\x1b[?47l"
        lib.ghostty_terminal_vt_write(behind, leave, len(leave))
        primary = _painted_screen(behind, with_modes=False)
    switch = b"".join(mode for mode, number in _modes(handle) if number in _ALTERNATE_MODES)
    return primary + switch + b"\x1b[H" + _RESET + _painted_screen(handle, with_modes=True) + unfinished


def read_buffer(call: Callable[[Any, int, Any], int]) -> bytes:
    """Asks a C function for the size that it needs, then for its bytes."""
    written = ffi.new("size_t*")
    call(ffi.NULL, 0, written)
    buffer = ffi.new("uint8_t[]", max(int(written[0]), 1))
    call(buffer, len(buffer), written)
    return bytes(ffi.buffer(buffer, written[0]))


def _painted_screen(handle: Any, *, with_modes: bool) -> bytes:
    """Returns bytes that paint the active screen with its scrollback, and set the state of its cursor."""
    painted = [*_lines(handle), _RESET]
    state = _formatted(handle, extras=True, selection=_cells(handle, (0, 0), (0, 0)))
    origin = (1, 1)
    if with_modes:
        region, margins = _REGION.search(state), _MARGINS.search(state)
        modes = b"".join(
            mode for mode, number in _modes(handle) if number not in _ALTERNATE_MODES and number not in _ERASING_MODES
        )
        painted += [modes, region[0] if region else b"", margins[0] if margins else b""]
        if _ORIGIN_MODE in modes:
            origin = (int(region[1]) if region else 1, int(margins[1]) if margins else 1)
    cursors = list(_CURSOR.finditer(state))
    row, column = int(cursors[-1][1]), int(cursors[-1][2])
    pen = state[cursors[-1].end() :]
    painted.append(b"\x1b[%d;%dH" % (max(row - origin[0] + 1, 1), max(column - origin[1] + 1, 1)) + pen)
    return b"".join(painted)


def _lines(handle: Any) -> list[bytes]:
    """Returns bytes that print all lines: those of the scrollback, then each row of the screen exactly where it is."""
    columns, rows, total = _columns(handle), _get(handle, "ROWS", "uint16_t"), _get(handle, "TOTAL_ROWS", "size_t")
    lines = _formatted(handle, selection=_cells(handle, (0, 0), (columns - 1, rows - 1))).split(b"\r\n")
    lines += [b""] * (rows - len(lines))
    scrolled = b""
    if total > rows:
        last = total - rows - 1
        selection = _cells(handle, (0, 0), (columns - 1, last), lib.GHOSTTY_POINT_TAG_SCREEN)
        scrolled = _formatted(handle, unwrap=True, selection=selection)
        # A wrap at the bottom of the screen fills the new row with the colour of what is printed.
        is_plain = lines[0] and not lines[0].startswith(b"\x1b")
        scrolled += b"" if is_plain and _is_continued(handle, last, lib.GHOSTTY_POINT_TAG_SCREEN) else b"\r\n"
        if len(scrolled) > MAX_SNAPSHOT_BYTES:
            scrolled = b""
    painted = [scrolled, b"\r\n".join(lines)]
    for y, line in enumerate(lines):
        if not line:
            painted.append(_background(handle, y))
        elif y < rows - 1 and lines[y + 1] and _is_continued(handle, y):
            painted.append(_wrapped(handle, y))
    return painted


def _is_continued(handle: Any, y: int, tag: int = lib.GHOSTTY_POINT_TAG_ACTIVE) -> bool:
    """Returns whether the terminal has wrapped a row into the next, and both still have the text there."""
    row, wrapped = ffi.new("GhosttyRow*"), ffi.new("bool*")
    end = _reference(handle, _columns(handle) - 1, y, tag)
    lib.ghostty_grid_ref_row(end, row)
    lib.ghostty_row_get(row[0], lib.GHOSTTY_ROW_DATA_WRAP, wrapped)
    return bool(wrapped[0]) and _has_text(end) and _has_text(_reference(handle, 0, y + 1, tag))


def _has_text(reference: Any) -> bool:
    cell, has_text = ffi.new("GhosttyCell*"), ffi.new("bool*")
    lib.ghostty_grid_ref_cell(reference, cell)
    lib.ghostty_cell_get(cell[0], lib.GHOSTTY_CELL_DATA_HAS_TEXT, has_text)
    return bool(has_text[0])


def _wrapped(handle: Any, y: int) -> bytes:
    """Returns bytes that print the end of a visible row and the beginning of the next again, so that the row wraps.

    People then copy the two as one line.
    """
    column = _columns(handle) - 1
    end = _formatted(handle, selection=_cells(handle, (column, y), (column, y)))
    begin = _formatted(handle, selection=_cells(handle, (0, y + 1), (0, y + 1)))
    return b"\x1b[%d;%dH" % (y + 1, column + 1) + end + begin


def _background(handle: Any, y: int) -> bytes:
    """Returns bytes that paint the colours of a visible row without text; empty if it has none."""
    cell = ffi.new("GhosttyCell*")
    reference = _reference(handle, 0, y)
    cells: list[int] = []
    for x in range(_columns(handle)):
        reference.x = x
        lib.ghostty_grid_ref_cell(reference, cell)
        cells.append(int(cell[0]))
    if not any(cells):
        return b""
    runs = [(value, len(list(run))) for value, run in groupby(cells)]
    # Erased rather than printed, as the program has done it.
    painted = [_background_colour(value) + b"\x1b[%dX\x1b[0m\x1b[%dC" % (count, count) for value, count in runs]
    return b"\x1b[%d;1H" % (y + 1) + b"".join(painted)


def _background_colour(cell: int) -> bytes:
    tag = ffi.new("int*")
    lib.ghostty_cell_get(cell, lib.GHOSTTY_CELL_DATA_CONTENT_TAG, tag)
    if tag[0] == lib.GHOSTTY_CELL_CONTENT_BG_COLOR_PALETTE:
        index = ffi.new("uint8_t*")
        lib.ghostty_cell_get(cell, lib.GHOSTTY_CELL_DATA_COLOR_PALETTE, index)
        return b"\x1b[48;5;%dm" % index[0]
    if tag[0] == lib.GHOSTTY_CELL_CONTENT_BG_COLOR_RGB:
        rgb = ffi.new("GhosttyColorRgb*")
        lib.ghostty_cell_get(cell, lib.GHOSTTY_CELL_DATA_COLOR_RGB, rgb)
        return b"\x1b[48;2;%d;%d;%dm" % (rgb.r, rgb.g, rgb.b)
    return b""


def _modes(handle: Any) -> list[tuple[bytes, bytes]]:
    """Returns the sequences that set the modes which are not at their default, each with the mode's number."""
    state = _formatted(handle, extras=True, selection=_cells(handle, (0, 0), (0, 0)))
    modes: list[tuple[bytes, bytes]] = []
    end = 0
    while mode := _MODE.match(state, end):
        modes.append((mode[0], mode[1]))
        end = mode.end()
    return modes


def _formatted(handle: Any, *, unwrap: bool = False, extras: bool = False, selection: Any = None) -> bytes:
    """Returns lines as the emulator formats them; with `unwrap`, what it has wrapped is one line.

    With `extras` they stand between the modes and the state of the cursor.
    """
    options = ghostty.core.init_sized("GhosttyFormatterTerminalOptions")
    options.emit, options.unwrap = lib.GHOSTTY_FORMATTER_FORMAT_VT, unwrap
    if selection is not None:
        options.selection = selection
    extra = options.extra
    extra.size = ffi.sizeof("GhosttyFormatterTerminalExtra")
    extra.screen.size = ffi.sizeof("GhosttyFormatterScreenExtra")
    if extras:
        extra.modes = extra.scrolling_region = extra.keyboard = True
        screen = extra.screen
        screen.cursor = screen.style = screen.hyperlink = screen.protection = True
        screen.kitty_keyboard = screen.charsets = True
    formatter = ffi.new("GhosttyFormatter*")
    made = lib.ghostty_formatter_terminal_new(ffi.NULL, formatter, handle, options[0])
    check(made, "new formatter")
    try:
        return read_buffer(partial(lib.ghostty_formatter_format_buf, formatter[0]))
    finally:
        lib.ghostty_formatter_free(formatter[0])


@contextmanager
def _copy_of(handle: Any) -> Generator[Any, None, None]:
    """Gives a second terminal in the same state."""
    encoded = read_buffer(partial(lib.ghostty_snapshot_encode_buf, handle))
    source = ffi.from_buffer("uint8_t[]", encoded)
    decoder, copy = ffi.new("GhosttySnapshotDecoder*"), ffi.new("GhosttyTerminal*")
    made = lib.ghostty_snapshot_decoder_new_buf(ffi.NULL, decoder, source, len(encoded))
    check(made, "new decoder")
    try:
        check(lib.ghostty_snapshot_decoder_decode(decoder[0], copy), "decode")
    finally:
        lib.ghostty_snapshot_decoder_free(decoder[0])
    try:
        yield copy[0]
    finally:
        lib.ghostty_terminal_free(copy[0])


def _cells(handle: Any, start: tuple[int, int], end: tuple[int, int], tag: int = lib.GHOSTTY_POINT_TAG_ACTIVE) -> Any:
    """Returns the cells from `start` to `end`, each (column, row) from zero."""
    selection = ghostty.core.init_sized("GhosttySelection")
    selection.start = _reference(handle, *start, tag)[0]
    selection.end = _reference(handle, *end, tag)[0]
    return selection


def _reference(handle: Any, x: int, y: int, tag: int = lib.GHOSTTY_POINT_TAG_ACTIVE) -> Any:
    point = ffi.new("GhosttyPointS*")
    point.tag = tag
    point.value.x, point.value.y = x, y
    reference = ghostty.core.init_sized("GhosttyGridRef")
    check(find_cell(handle, point[0], reference), "reference to a cell")
    return reference


def _is_alternate(handle: Any) -> bool:
    return bool(_get(handle, "ACTIVE_SCREEN", "int") == lib.GHOSTTY_TERMINAL_SCREEN_ALTERNATE)


def _columns(handle: Any) -> int:
    return int(_get(handle, "COLS", "uint16_t"))


def _get(handle: Any, key: str, kind: str) -> Any:
    value = ffi.new(f"{kind}*")
    found = lib.ghostty_terminal_get(handle, getattr(lib, f"GHOSTTY_TERMINAL_DATA_{key}"), value)
    check(found, key)
    return value[0]
