"""The list of agents as a Textual widget that draws only the lines that have changed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from synapse.client.overview import Row
from synapse.core.override import override
from synapse.top.lines import Cell, Columns, Glyphs, cells_of, columns_for

STATE_STYLES: Final = {
    "asks": "bold yellow",
    "in_doubt": "bold color(208)",
    "failed": "bold red",
    "done": "bold green",
    "working": "bright_blue",
    "queued": "bright_blue",
    "starting": "bright_blue",
    "ready": "dim",
    "away": "dim",
}
"""Colours of the terminal's own palette, so that they suit its background; a word and a mark say the same."""
_PLAIN: Final = Style()
_STYLES: Final = {state: Style.parse(style) for state, style in STATE_STYLES.items()}
_ROLE_STYLES: Final = {"name": Style(bold=True), "count": Style(bold=True), "folder": Style(dim=True)}
_CHOSEN: Final = Style(reverse=True)


class RowList(ScrollView):
    """Shows one line per agent, one of them chosen. The choice stays with its agent when the order changes."""

    DEFAULT_CSS = "RowList { scrollbar-size: 0 0; overflow-x: hidden; }"

    class Chosen(Message):
        """The person has chosen another agent."""

    class Opened(Message):
        """The chosen agent was clicked twice."""

    def __init__(self, now: Callable[[], datetime], glyphs: Glyphs) -> None:
        super().__init__(id="rows")
        self.can_focus = False
        self._now = now
        self._glyphs = glyphs
        self._rows: list[Row] = []
        self._lines: list[list[Cell]] = []
        self._columns = Columns(0, 0, 0)
        self._chosen_id = ""
        self._is_persons_choice = False
        """Until the person has chosen an agent, the first one is chosen."""

    @property
    def chosen(self) -> Row | None:
        """The row of the chosen agent."""
        return self._rows[self._index] if self._rows else None

    @property
    def rows(self) -> list[Row]:
        """The rows that are listed, in their order."""
        return self._rows

    @property
    def position(self) -> tuple[int, int]:
        """The place of the chosen row, from 1 on, and the number of rows."""
        return self._index + 1 if self._rows else 0, len(self._rows)

    def show(self, rows: list[Row]) -> None:
        """Shows these rows, in this order."""
        before, index = self._chosen_id, self._index
        first, last = self._visible()
        self._rows = rows
        if not self._is_persons_choice:
            self._chosen_id = rows[0]["agent_id"] if rows else ""
        elif rows and not any(row["agent_id"] == self._chosen_id for row in rows):
            # The chosen agent is gone: its neighbour takes its place.
            self._chosen_id = rows[min(index, len(rows) - 1)]["agent_id"]
        if self.virtual_size.height != len(rows):
            self.virtual_size = Size(self.size.width, len(rows))
        if before != self._chosen_id:
            self._lines = []
        self.redraw()
        # A person who has scrolled away with the wheel is left where they are.
        if first <= index < last or before != self._chosen_id:
            self._keep_in_view()

    def redraw(self) -> None:
        """Draws the lines that have changed, by new rows, another size or time that passed."""
        columns = columns_for(self._rows, self.size.width)
        now = self._now()
        first, last = self._visible()
        is_whole = columns != self._columns or len(self._lines) != len(self._rows)
        if is_whole:
            self._columns = columns
            self._lines = [[] for _ in self._rows]
        for index in range(first, last):
            line = cells_of(self._rows[index], columns, now, self._glyphs)
            if line != self._lines[index]:
                self._lines[index] = line
                if not is_whole:
                    self.refresh_line(index)
        if is_whole:
            self.refresh()

    def move(self, by: int) -> None:
        """Chooses the row that is so many lines further down."""
        if self._rows:
            self._choose(max(0, min(self._index + by, len(self._rows) - 1)))

    def page(self, pages: int) -> None:
        """Chooses the row that is so many screens further down."""
        self.move(pages * max(1, self.size.height - 1))

    @override
    def render_line(self, y: int) -> Strip:
        index = y + self.scroll_offset.y
        if not index < len(self._rows):
            return Strip.blank(self.size.width)
        if not self._lines[index]:
            self._lines[index] = cells_of(self._rows[index], self._columns, self._now(), self._glyphs)
        row = self._rows[index]
        is_chosen = row["agent_id"] == self._chosen_id
        segments = [Segment(cell.text, _style_of(cell.role, row["state"], is_chosen)) for cell in self._lines[index]]
        return Strip(segments, self._columns.whole)

    def on_resize(self) -> None:
        self.virtual_size = Size(self.size.width, len(self._rows))
        self.redraw()
        self._keep_in_view()

    def on_click(self, event: events.Click) -> None:
        index = event.y + self.scroll_offset.y
        if index < len(self._rows):
            self._choose(index)
            if event.chain == 2:
                self.post_message(self.Opened())

    @property
    def _index(self) -> int:
        return next((index for index, row in enumerate(self._rows) if row["agent_id"] == self._chosen_id), 0)

    def _visible(self) -> tuple[int, int]:
        first = self.scroll_offset.y
        return min(first, len(self._rows)), min(first + self.size.height, len(self._rows))

    def _choose(self, index: int) -> None:
        before, self._is_persons_choice = self._index, True
        if index == before:
            return
        self._chosen_id = self._rows[index]["agent_id"]
        self.refresh_line(before)
        self.refresh_line(index)
        self._keep_in_view()
        self.post_message(self.Chosen())

    def _keep_in_view(self) -> None:
        top, height, index = self.scroll_offset.y, self.size.height, self._index
        if index < top:
            self.scroll_to(y=index, animate=False)
        elif height and index >= top + height:
            self.scroll_to(y=index - height + 1, animate=False)


def _style_of(role: str, state: str, is_chosen: bool) -> Style:
    style = _STYLES.get(state, _PLAIN) if role in ("mark", "state") else _ROLE_STYLES.get(role, _PLAIN)
    if role == "mark" and state == "asks":
        style += _CHOSEN
    return style + _CHOSEN if is_chosen else style
