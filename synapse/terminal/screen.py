"""A terminal emulator: takes the bytes that a program writes, and gives pictures of what they show.

Importing this module costs about a fifth of a second, because the emulator parses its C declarations. Drivers therefore
start their program first and import it afterwards. A `Screen` is not thread safe: its owner holds one lock around
feeding and reading.
"""

from __future__ import annotations

import re
from typing import Any, Final

from synapse.terminal.emulator import (
    ACTIVE,
    BRACKETED_PASTE,
    CURSOR_VISIBLE,
    HISTORY,
    Emulator,
    check,
    ffi,
    ghostty,
    lib,
)
from synapse.terminal.picture import PaintedScreen, Picture
from synapse.terminal.snapshot import keep_unfinished, snapshot
from synapse.terminal.theme import Theme

DEFAULT_SCROLLBACK_LINES: Final = 2000
# Scrollback is limited by bytes, about ten for each cell: a limit by lines costs the emulator seven times the speed
# (98 against 690 MB/s). The line limit that it must be given is therefore one that no session reaches.
_BYTES_PER_CELL: Final = 10
_NO_LINE_LIMIT: Final = 100_000_000

# The modes that decide how a person's keys, clicks and pastes reach the program: cursor keys, keypad, the mouse modes
# and their encodings, focus reports, alternate scroll, bracketed paste, theme reports.
_INPUT_MODES: Final = (1, 66, 9, 1000, 1002, 1003, 1004, 1005, 1006, 1015, 1016, 1007, BRACKETED_PASTE, 2031)
_ON_BY_DEFAULT: Final = frozenset({1007})

_PROGRAM_STATUS: Final = re.compile(rb"7501;(?:.*:)?state=([a-z]+)(?::|$)", re.DOTALL)
_RESET: Final = "\x1b[0m"
_FAINT: Final = "\x1b[2m"
_STYLE_OR_TEXT: Final = re.compile(r"(\x1b\[[\d;:]*m)|([^\x1b]+)")
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
        """Creates an empty screen; `theme` decides the answer when the program asks for the terminal's colours."""
        # The emulator answers OSC 10 and 11 only if it is given colours.
        foreground, background = theme.colours
        self._terminal: Any = ghostty.Terminal(
            max(columns, 1), max(rows, 1), scrollback=_NO_LINE_LIMIT, fg=foreground, bg=background
        )
        most_bytes = ffi.new("size_t*", scrollback_lines * max(columns, 80) * _BYTES_PER_CELL)
        lib.ghostty_terminal_set(self._handle, lib.GHOSTTY_TERMINAL_OPT_SCROLLBACK_MAX_BYTES, most_bytes)
        keep_unfinished(self._handle)
        self._emulator = Emulator(self._handle)
        self._replies = bytearray()
        self._terminal.on_reply(self._replies.extend)
        self._program_status = ""
        self._terminal.on_unknown_sequence(self._read_program_status)
        if theme is not Theme.NONE:
            self._answer_scheme_queries(theme)

    def feed(self, data: bytes) -> None:
        """Takes bytes that the program wrote, cut anywhere."""
        self._terminal.feed(data)

    def take_replies(self) -> bytes:
        """Returns the terminal's answers to the program's queries since the last call."""
        replies = bytes(self._replies)
        self._replies.clear()
        return replies

    def resize(self, columns: int, rows: int) -> None:
        self._terminal.resize(max(columns, 1), max(rows, 1))

    def picture(self) -> Picture:
        """Returns what the screen shows now."""
        facts = self._emulator.facts()
        columns, rows, row = facts.columns, facts.rows, facts.row
        lines = [line.rstrip() for line in self._emulator.text(columns, rows).split("\n")]
        line_begin = row
        # A row that is merely full does not count: the terminal must have wrapped it.
        while line_begin > 0 and self._emulator.is_wrapped(line_begin - 1):
            line_begin -= 1
        return Picture(
            lines=tuple(lines + [""] * (rows - len(lines))),
            cursor=(row, facts.column),
            columns=columns,
            rows=rows,
            line_begin=line_begin,
            alternate=facts.alternate,
            bracketed_paste=facts.bracketed_paste,
            title=facts.title,
            cursor_visible=facts.cursor_visible,
            updating=facts.updating,
            program_status=self._program_status,
            firm_line=_without_faint(self._painted_row(row, columns).decode(errors="replace")),
        )

    def history(self, max_lines: int) -> tuple[str, ...]:
        """Returns the last lines of scrollback and screen together; a line that the terminal wrapped is one line."""
        lines: list[str] = self._terminal.contents().split("\n")
        return tuple(lines[-max_lines:])

    def redraw(self) -> bytes:
        """Returns bytes that paint this screen, with its colours, its cursor and its input modes, in any terminal.

        Assumes that the other terminal is plain (see `PLAIN_TERMINAL`) and at least as large.
        """
        facts = self._emulator.facts()
        # Wrapping is off while it paints: a row that is too long for the viewer is cut and does not push the rest down.
        painted = [b"\x1b[?1049h" if facts.alternate else b"", b"\x1b[?7l\x1b[0m\x1b[2J"]
        painted += [
            b"\x1b[%d;1H" % (y + 1) + self._painted_row(y, facts.columns) + b"\x1b[0m" for y in range(facts.rows)
        ]
        painted.append(b"\x1b[?7h\x1b[%d;%dH" % (facts.row + 1, facts.column + 1))
        return b"".join(painted) + self._input_modes()

    def snapshot(self) -> bytes:
        """Returns bytes that rebuild this terminal with its scrollback in a freshly reset one of the same size.

        The program's next byte may follow them, also when it continues a sequence.
        """
        return snapshot(self._handle)

    def painted(self, scrollback: int) -> PaintedScreen:
        """Returns the rows with their colours, preceded by at most so many rows of scrollback."""
        facts = self._emulator.facts()
        kept: int = self._terminal.get("scrollback_rows", "size_t")
        above = min(scrollback, kept)
        return PaintedScreen(
            columns=facts.columns,
            rows=facts.rows,
            above=above,
            cursor=(facts.row, facts.column) if facts.cursor_visible else None,
            alternate=facts.alternate,
            title=facts.title,
            history=self._emulator.painted(HISTORY, kept - above, kept, facts.columns) if above else b"",
            screen=self._emulator.painted(ACTIVE, 0, facts.rows, facts.columns),
        )

    def _answer_scheme_queries(self, theme: Theme) -> None:
        """Makes the emulator answer `CSI ? 996 n`, by which programs ask whether the terminal is light or dark."""
        light, dark = lib.GHOSTTY_COLOR_SCHEME_LIGHT, lib.GHOSTTY_COLOR_SCHEME_DARK

        def answer(_terminal: Any, _userdata: Any, scheme: Any) -> bool:
            scheme[0] = light if theme is Theme.LIGHT else dark
            return True

        # The emulator keeps no reference to the callback.
        self._scheme_callback = ffi.callback("GhosttyTerminalColorSchemeFn", answer)
        option = lib.GHOSTTY_TERMINAL_OPT_COLOR_SCHEME
        check(lib.ghostty_terminal_set(self._handle, option, self._scheme_callback), "set color scheme")

    def _read_program_status(self, sequence: Any) -> None:
        """Follows the Program Status Protocol: `OSC 7501;?` is a query, `OSC 7501;state=working:app=codex` a report."""
        content = bytes(sequence.content)
        if content == b"7501;?":
            # Echoing the query tells the program that reports are welcome.
            self._replies += b"\x1b]7501;?" + (b"\x07" if sequence.terminator == "bel" else b"\x1b\\")
        status = _PROGRAM_STATUS.match(content)
        if status is not None:
            self._program_status = status[1].decode()

    def _input_modes(self) -> bytes:
        modes = [
            b"\x1b[?%d%s" % (mode, b"h" if is_set else b"l")
            for mode in _INPUT_MODES
            if (is_set := self._terminal.mode(mode)) != (mode in _ON_BY_DEFAULT)
        ]
        flags: int = self._terminal.get("kitty_keyboard_flags", "uint8_t")
        modes.append(b"\x1b[=%d;1u" % flags if flags else b"")
        modes.append(b"\x1b[?25h" if self._terminal.mode(CURSOR_VISIBLE) else b"\x1b[?25l")
        return b"".join(modes)

    def _painted_row(self, y: int, columns: int) -> bytes:
        """Returns bytes that paint one row, colours included."""
        return self._emulator.painted(ACTIVE, y, y + 1, columns)

    @property
    def _handle(self) -> Any:
        return self._terminal._t[0]  # noqa: SLF001  # the wrapper does not offer the calls that need it


def _without_faint(painted: str) -> str:
    """Replaces faint text by spaces; `painted` is a row as the emulator formats it."""
    firm: list[str] = []
    faint = False
    for sgr, text in _STYLE_OR_TEXT.findall(_LINK.sub("", painted)):
        if sgr:
            # Each style begins with its own reset, then one sequence for each attribute.
            faint = sgr == _FAINT or (faint and sgr != _RESET)
        else:
            firm.append(" " * len(text) if faint else text)
    return "".join(firm).rstrip()
