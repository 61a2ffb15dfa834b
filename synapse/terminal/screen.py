"""What the program has painted: bytes go in, a picture comes out.

Importing this file costs about a fifth of a second (the emulator parses its C declarations), so drivers start their
program first and import it then. A `Screen` is not thread safe: its owner holds one lock around feeding and reading.

What is on a screen at one moment: the value that all judgement is made of.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, cast

import pyghostty  # type: ignore[import-untyped]  # it ships no types; all of it stays behind Screen

from synapse.terminal.theme import Theme

_ghostty: Final[Any] = cast(Any, pyghostty)
_ffi: Final[Any] = _ghostty.ffi
_lib: Final[Any] = _ghostty.lib

DEFAULT_SCROLLBACK_LINES: Final = 2000
# Scrollback is bounded by bytes, about ten for each cell: cutting it by lines costs the emulator seven times the speed
# (98 against 690 MB/s). The number of lines that it gets is one that is never reached.
_BYTES_PER_CELL: Final = 10
_NO_LINE_LIMIT: Final = 100_000_000

_CURSOR_VISIBLE: Final = 25
_BRACKETED_PASTE: Final = 2004
_SYNCHRONIZED_OUTPUT: Final = 2026
# What decides how a person's keys, clicks and pastes reach the program: cursor keys, keypad, the mouse modes and their
# encodings, focus reports, alternate scroll, bracketed paste, theme reports.
_INPUT_MODES: Final = (1, 66, 9, 1000, 1002, 1003, 1004, 1005, 1006, 1015, 1016, 1007, _BRACKETED_PASTE, 2031)
_ON_BY_DEFAULT: Final = frozenset({1007})

_PROGRAM_STATUS: Final = re.compile(rb"7501;(?:.*:)?state=([a-z]+)(?::|$)", re.DOTALL)
_RESET: Final = "\x1b[0m"
_FAINT: Final = "\x1b[2m"
_PIECES: Final = re.compile(r"(\x1b\[[\d;:]*m)|([^\x1b]+)")
_LINK: Final = re.compile(r"\x1b\]8;.*?(?:\x1b\\|\x07)")

PLAIN_TERMINAL: Final = (
    b"".join(b"\x1b[?%dl" % mode for mode in _INPUT_MODES if mode not in _ON_BY_DEFAULT)
    + b"\x1b[?1007h\x1b[=0;1u\x1b[>4;0m\x1b[?1049l\x1b[?7h\x1b[?25h\x1b[0 q\x1b[0m"
)
"""Bytes that undo every mode that `redraw` may have set, and leave the alternate screen."""


class Screen:
    """A terminal without a window. Not thread safe."""

    def __init__(
        self,
        columns: int,
        rows: int,
        scrollback_lines: int = DEFAULT_SCROLLBACK_LINES,
        theme: Theme = Theme.DARK,
    ) -> None:
        """`theme` is what the program is told when it asks for the terminal's colours."""
        # With colours of its own the emulator answers OSC 10 and 11.
        foreground, background = theme.colours
        self._terminal: Any = _ghostty.Terminal(
            max(columns, 1), max(rows, 1), scrollback=_NO_LINE_LIMIT, fg=foreground, bg=background
        )
        self._set("SCROLLBACK_MAX_BYTES", "size_t*", scrollback_lines * max(columns, 80) * _BYTES_PER_CELL)
        self._replies = bytearray()
        self._terminal.on_reply(self._replies.extend)
        self._program_status = ""
        self._terminal.on_unknown_sequence(self._note)
        if theme is not Theme.NONE:
            self._tell_scheme(theme)

    def feed(self, data: bytes) -> None:
        """Take what the program wrote, cut anywhere."""
        self._terminal.feed(data)

    def take_replies(self) -> bytes:
        """Return, once, what a terminal would have answered to the program's queries since the last call."""
        replies = bytes(self._replies)
        self._replies.clear()
        return replies

    def resize(self, columns: int, rows: int) -> None:
        self._terminal.resize(max(columns, 1), max(rows, 1))

    def picture(self) -> Picture:
        """Return what is on the screen now."""
        columns, rows = self._terminal.size
        column, row = self._terminal.cursor
        return Picture(
            lines=self._visible_lines(rows),
            cursor=(row, column),
            columns=columns,
            rows=rows,
            line_begin=self._line_begin(row),
            alternate=self._is_alternate(),
            bracketed_paste=self._terminal.mode(_BRACKETED_PASTE),
            title=self._title(),
            cursor_visible=self._terminal.mode(_CURSOR_VISIBLE),
            updating=self._terminal.mode(_SYNCHRONIZED_OUTPUT),
            program_status=self._program_status,
            firm_line=_without_faint(self._row(row, columns).decode(errors="replace")),
        )

    def history(self, max_lines: int) -> tuple[str, ...]:
        """Return the last lines of scrollback and screen together; a line that the terminal wrapped is one line."""
        lines: list[str] = self._terminal.contents().split("\n")
        return tuple(lines[-max_lines:])

    def redraw(self) -> bytes:
        """Return bytes that paint this screen, with its colours, its cursor and its input modes, in any terminal.

        The terminal that gets them is assumed to be plain (see `PLAIN_TERMINAL`) and at least as large.
        """
        columns, rows = self._terminal.size
        column, row = self._terminal.cursor
        # No wrapping while painting: a row that is too long for the viewer is cut instead of pushing the rest down.
        painted = [b"\x1b[?1049h" if self._is_alternate() else b"", b"\x1b[?7l\x1b[0m\x1b[2J"]
        painted += [b"\x1b[%d;1H" % (y + 1) + self._row(y, columns) + b"\x1b[0m" for y in range(rows)]
        painted.append(b"\x1b[?7h\x1b[%d;%dH" % (row + 1, column + 1))
        return b"".join(painted) + self._input_modes()

    def _tell_scheme(self, theme: Theme) -> None:
        """Answer `CSI ? 996 n`, by which programs ask whether the terminal is light or dark."""
        light, dark = _lib.GHOSTTY_COLOR_SCHEME_LIGHT, _lib.GHOSTTY_COLOR_SCHEME_DARK

        def tell(_terminal: Any, _userdata: Any, scheme: Any) -> bool:
            scheme[0] = light if theme is Theme.LIGHT else dark
            return True

        # The emulator keeps no reference to it.
        self._scheme_callback = _ffi.callback("GhosttyTerminalColorSchemeFn", tell)
        option = _lib.GHOSTTY_TERMINAL_OPT_COLOR_SCHEME
        _ghostty.core.check(_lib.ghostty_terminal_set(self._handle, option, self._scheme_callback), "set color scheme")

    def _note(self, sequence: Any) -> None:
        """Follow the Program Status Protocol: `OSC 7501;?` asks for it, `OSC 7501;state=working:app=codex` tells."""
        content = bytes(sequence.content)
        if content == b"7501;?":
            # The same bytes back mean that the program may go on and tell.
            self._replies += b"\x1b]7501;?" + (b"\x07" if sequence.terminator == "bel" else b"\x1b\\")
        status = _PROGRAM_STATUS.match(content)
        if status is not None:
            self._program_status = status[1].decode()

    def _visible_lines(self, rows: int) -> tuple[str, ...]:
        lines: list[str] = [line.rstrip() for line in self._terminal.text().split("\n")]
        return tuple(lines + [""] * (rows - len(lines)))

    def _line_begin(self, row: int) -> int:
        """Walk up from `row` over the rows that the terminal itself wrapped, which a row that is merely full is not."""
        while row > 0 and self._is_wrapped(row - 1):
            row -= 1
        return row

    def _is_wrapped(self, y: int) -> bool:
        row, wrapped = _ffi.new("GhosttyRow*"), _ffi.new("bool*")
        _ghostty.core.check(_lib.ghostty_grid_ref_row(self._terminal.ref(0, y), row), "row")
        _ghostty.core.check(_lib.ghostty_row_get(row[0], _lib.GHOSTTY_ROW_DATA_WRAP, wrapped), "wrap")
        return bool(wrapped[0])

    def _is_alternate(self) -> bool:
        return bool(self._terminal.get("active_screen", "int") == _lib.GHOSTTY_TERMINAL_SCREEN_ALTERNATE)

    def _title(self) -> str:
        title = self._terminal.get("title", "GhosttyString")
        return bytes(_ffi.buffer(title.ptr, title.len)).decode(errors="replace") if title.len else ""

    def _input_modes(self) -> bytes:
        modes = [
            b"\x1b[?%d%s" % (mode, b"h" if is_set else b"l")
            for mode in _INPUT_MODES
            if (is_set := self._terminal.mode(mode)) != (mode in _ON_BY_DEFAULT)
        ]
        flags: int = self._terminal.get("kitty_keyboard_flags", "uint8_t")
        modes.append(b"\x1b[=%d;1u" % flags if flags else b"")
        modes.append(b"\x1b[?25h" if self._terminal.mode(_CURSOR_VISIBLE) else b"\x1b[?25l")
        return b"".join(modes)

    def _row(self, y: int, columns: int) -> bytes:
        """One row as bytes that paint it, colours included."""
        selection = _ghostty.core.init_sized("GhosttySelection")
        selection.start = self._terminal.ref(0, y)[0]
        selection.end = self._terminal.ref(columns - 1, y)[0]
        options = _ghostty.core.init_sized("GhosttyFormatterTerminalOptions")
        options.emit, options.selection = _lib.GHOSTTY_FORMATTER_FORMAT_VT, selection
        formatter = _ffi.new("GhosttyFormatter*")
        made = _lib.ghostty_formatter_terminal_new(_ffi.NULL, formatter, self._handle, options[0])
        _ghostty.core.check(made, "new formatter")
        try:
            return _filled(partial(_lib.ghostty_formatter_format_buf, formatter[0]))
        finally:
            _lib.ghostty_formatter_free(formatter[0])

    @property
    def _handle(self) -> Any:
        return self._terminal._t[0]  # noqa: SLF001  # the wrapper has no calls of its own for these

    def _set(self, option: str, ctype: str, value: int) -> None:
        _lib.ghostty_terminal_set(self._handle, getattr(_lib, f"GHOSTTY_TERMINAL_OPT_{option}"), _ffi.new(ctype, value))


def _without_faint(painted: str) -> str:
    """Put spaces in place of what is painted faint; `painted` is a row as the emulator formats it."""
    firm: list[str] = []
    faint = False
    for sgr, text in _PIECES.findall(_LINK.sub("", painted)):
        if sgr:
            # Each style begins with a reset of its own, then one sequence for each attribute.
            faint = sgr == _FAINT or (faint and sgr != _RESET)
        else:
            firm.append(" " * len(text) if faint else text)
    return "".join(firm).rstrip()


def _filled(call: Callable[[Any, int, Any], int]) -> bytes:
    """Ask a C function for the size that it needs, then for its bytes."""
    written = _ffi.new("size_t*")
    call(_ffi.NULL, 0, written)
    buffer = _ffi.new("uint8_t[]", max(int(written[0]), 1))
    call(buffer, len(buffer), written)
    return bytes(_ffi.buffer(buffer, written[0]))


@dataclass(frozen=True, slots=True)
class Picture:
    """The screen at one moment. Rows and columns count from zero; `lines` has one entry for each row."""

    lines: tuple[str, ...]
    cursor: tuple[int, int]
    """(row, column)"""
    columns: int
    rows: int
    line_begin: int | None = None
    """The first row of the cursor's line, which the terminal wrapped from there down to the cursor; None if unknown."""
    alternate: bool = False
    bracketed_paste: bool = False
    title: str = ""
    cursor_visible: bool = True
    updating: bool = False
    """The program is inside a synchronized update (DECSET 2026): half a frame may be on the screen."""
    firm_line: str | None = None
    """The cursor's line with spaces for what is painted faint, as placeholders and suggestions are; None if unknown."""
    program_status: str = ""
    """What the program last said of itself by OSC 7501: `idle`, `working`, `blocked`, `done`, `error`, or nothing."""
