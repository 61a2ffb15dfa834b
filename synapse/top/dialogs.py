"""Screens above the list: confirm a decision, write a text, read a timeline, help."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Final, NamedTuple, TypeVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import Static, TextArea

from synapse.core.errors import SynapseError
from synapse.core.override import override
from synapse.top.detail import Line
from synapse.top.lines import Glyphs
from synapse.top.row_list import STATE_STYLES
from synapse.top.timeline import TaskEvents, Timeline

Result = TypeVar("Result")
"""What a screen returns."""

LOWEST, HIGHEST = 1, 5
_ROLE_STYLES: Final = {"name": "bold", "title": "bold", "label": "dim", "odd": "bold reverse"}

HELP: Final = (
    ("j k", "choose an agent (also the arrows, Home, End, PgUp, PgDn, a click)"),
    ("⏎", "attach to its terminal; Ctrl-] detaches and comes back here"),
    ("a d", "allow, deny what it asks"),
    ("1-9", "choose an option"),
    ("r", "answer with text"),
    ("D R F", "a message in doubt: delivered, retry, fail"),
    ("Tab", "the agent's next need"),
    ("J K", "scroll the text below the list (also the wheel)"),
    (".", "mark its answers as seen"),
    ("s", "send it a message"),
    ("t", "timeline of its task, with receipts"),
    ("x", "cancel its task"),
    ("/", "filter the list; Esc shows all"),
    ("q", "quit"),
)


def content_of(lines: Sequence[Line]) -> Content:
    """Returns lines for a widget; texts in them are never read as markup."""
    return Content("\n").join(Content.assemble(*((cell.text, _style_of(cell.role)) for cell in line)) for line in lines)


def _style_of(role: str) -> str:
    kind, _, name = role.partition(":")
    if kind == "state":
        return textual_style(STATE_STYLES[name]) if name in STATE_STYLES else ""
    if kind == "option":
        return f"underline @click=app.choose({name})"
    return _ROLE_STYLES.get(role, "")


def textual_style(rich_style: str) -> str:
    """Returns a style of Rich in the words of Textual, where the terminal's own colours are called `ansi_…`."""
    words = {"color(208)": "rgb(255,135,0)", "bold": "bold", "dim": "dim"}
    return " ".join(words.get(word, f"ansi_{word}") for word in rich_style.split())


class TextScreen(ModalScreen[Result]):
    """A screen with a title and lines that scroll."""

    def __init__(self, title: str, lines: Sequence[Line]) -> None:
        super().__init__()
        self._title = title
        self._lines = lines

    def action_scroll(self, lines: int) -> None:
        self.query_one(VerticalScroll).scroll_relative(y=lines, animate=False)


class Dialog(TextScreen[bool]):
    """A question to the person about one decision; returns whether they confirm it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "confirm"),
        Binding("n,escape,q", "dismiss(False)"),
        Binding("down,j,J", "scroll(1)"),
        Binding("up,k,K", "scroll(-1)"),
        Binding("pagedown,space", "scroll(8)"),
        Binding("pageup", "scroll(-8)"),
    ]

    @override
    def compose(self) -> ComposeResult:
        yield Static(Content(f" {self._title}"), classes="heading")
        with VerticalScroll(classes="text", can_focus=False):
            yield Static(content_of(self._lines))
        yield Static(classes="keys")

    def on_mount(self) -> None:
        self.watch(self.query_one(VerticalScroll), "scroll_y", self._show_keys, init=False)
        self.call_after_refresh(self._show_keys)

    def on_resize(self) -> None:
        self.call_after_refresh(self._show_keys)

    def action_confirm(self) -> None:
        """Confirms what the person has read to its end; before, it shows more of it."""
        if self._is_read:
            self.dismiss(True)
        else:
            self.action_scroll(self.query_one(VerticalScroll).size.height - 1)

    @property
    def _is_read(self) -> bool:
        # Counted as well: a key may come before the text is laid out.
        text = self.query_one(VerticalScroll)
        return text.scroll_y >= text.max_scroll_y and len(self._lines) - text.scroll_y <= text.size.height

    def _show_keys(self) -> None:
        yes = "y yes" if self._is_read else "more below: Space"
        keys = Content.assemble(
            " ", (yes, "bold @click=screen.confirm"), "  ", ("n no", "bold @click=screen.dismiss(False)")
        )
        self.query_one(".keys", Static).update(keys)


class Composed(NamedTuple):
    """What a person has written."""

    text: str
    priority: int


class Editor(TextArea):
    """A text of any number of lines; Enter submits it."""

    class Submitted(Message):
        """The text is written."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    @override
    async def _on_key(self, event: events.Key) -> None:
        # Here and not by bindings, which overtake the characters that were typed before them.
        if event.key == "enter":
            self.post_message(self.Submitted(self.text))
        elif event.key in ("ctrl+j", "shift+enter", "alt+enter"):
            self.insert("\n")
        else:
            await super()._on_key(event)
            return
        event.stop()
        event.prevent_default()


class Compose(ModalScreen[Composed | None]):
    """Takes a text from the person, with a priority if `priority` is not 0."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", priority=True),
        Binding("ctrl+p", "priority", priority=True),
    ]

    def __init__(self, title: str, glyphs: Glyphs, priority: int = 0) -> None:
        super().__init__()
        self._title = title
        self._glyphs = glyphs
        self._priority = priority

    @override
    def compose(self) -> ComposeResult:
        yield Static(Content(f" {self._title}"), classes="heading")
        editor = Editor(highlight_cursor_line=False)
        editor.cursor_blink = False  # a blinking cursor redraws for ever
        yield editor
        yield Static(self._keys(), classes="keys")

    def on_mount(self) -> None:
        self.query_one(Editor).focus()

    def on_editor_submitted(self, event: Editor.Submitted) -> None:
        if event.text.strip():
            self.dismiss(Composed(event.text, self._priority))

    def action_priority(self) -> None:
        """Chooses the next priority; the highest interrupts what the agent does."""
        if self._priority:
            self._priority = self._priority % HIGHEST + LOWEST
            self.query_one(".keys", Static).update(self._keys())

    def _keys(self) -> Content:
        note = ", interrupts" if self._priority == HIGHEST else ""
        priority = f"  Ctrl-P priority {self._priority}{note}" if self._priority else ""
        return Content(f" {self._glyphs.enter} send  Ctrl-J new line{priority}  Esc back")


class Reader(TextScreen[None]):
    """Shows lines that a person scrolls through."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,t,question_mark,enter", "dismiss(None)"),
        Binding("down,j", "scroll(1)"),
        Binding("up,k", "scroll(-1)"),
        Binding("pagedown,space", "scroll(10)"),
        Binding("pageup", "scroll(-10)"),
        Binding("home,g", "scroll(-100000)"),
        Binding("end,G", "scroll(100000)"),
    ]

    @override
    def compose(self) -> ComposeResult:
        yield Static(Content(f" {self._title}"), classes="heading")
        with VerticalScroll(classes="text whole", can_focus=False):
            yield Static(content_of(self._lines), id="lines")
        yield Static(Content.assemble(" ", ("Esc back", "bold @click=screen.dismiss(None)")), classes="keys")


class TimelineReader(Reader):
    """Shows the events of a task, and each new one as it happens."""

    class Grew(Message):
        """There are more events."""

    class Refused(Message):
        """The host does not tell the events any more."""

        def __init__(self, error: SynapseError) -> None:
            super().__init__()
            self.error = error

    def __init__(self, title: str, events: TaskEvents, glyphs: Glyphs, failed: Callable[[SynapseError], None]) -> None:
        super().__init__(title, [])
        self._events = events
        self._timeline = Timeline(glyphs)
        self._failed = failed
        self._is_stale = False

    def on_mount(self) -> None:
        self.run_worker(self._read, thread=True)

    def on_unmount(self) -> None:
        self._events.stop()

    def on_timeline_reader_grew(self) -> None:
        self._is_stale = False
        scroll = self.query_one(VerticalScroll)
        is_at_end = scroll.scroll_y >= scroll.max_scroll_y
        self.query_one("#lines", Static).update(content_of([*self._timeline.lines]))
        if is_at_end:
            scroll.scroll_end(animate=False)

    def on_timeline_reader_refused(self, refused: Refused) -> None:
        self._failed(refused.error)
        self.dismiss(None)

    def _read(self) -> None:
        """Runs in a thread."""
        try:
            for event in self._events.read():
                self._timeline.add(event)
                # One message for all events that come before it is handled.
                if not self._is_stale:
                    self._is_stale = True
                    self.post_message(self.Grew())
        except SynapseError as error:
            self.post_message(self.Refused(error))
