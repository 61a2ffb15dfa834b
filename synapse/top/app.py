"""The app of `synapse top`: the list, the pane about the chosen agent, and what the keys do.

A decision goes to the question that the pane shows, by its id. If the question changes under the person's finger, the
key is refused for a moment: nobody allows what they have not read.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import ClassVar, Final, NamedTuple

from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.timer import Timer
from textual.widgets import Input, Static

from synapse.client.lines import width
from synapse.client.overview import Need, Row, ShownOption
from synapse.core.agent import AgentEntry
from synapse.core.errors import SynapseError
from synapse.core.override import override
from synapse.core.types import Clock
from synapse.notices.rules import agent_names
from synapse.registry.files import FileRegistry
from synapse.top import actions
from synapse.top.detail import (
    SHORT_ID,
    Line,
    detail_of,
    keys_for,
    option_at,
    running_task_in,
    task_in,
    text_lines,
    told_need,
)
from synapse.top.dialogs import HELP, Compose, Composed, Dialog, Reader, TimelineReader, content_of
from synapse.top.follower import RowFollower, SeenUntil, WatchStatus
from synapse.top.lines import Cell, Glyphs, matches, summary
from synapse.top.notices import Notify
from synapse.top.row_list import RowList
from synapse.top.timeline import TaskEvents

SETTLE_SECONDS: Final = 0.7
"""A decision is refused for so long after the question has changed by itself."""
SAY_SECONDS: Final = 12.0
_ATTACH: Final = (sys.executable, "-P", "-m", "synapse.cli.main", "attach")
_NO_AGENTS: Final = "No agent is running. Start one in another terminal: `synapse claude` or `synapse start codex`."
_VERBS: Final = {"allow": "Allow", "deny": "Deny", "choose": "Choose", "text": "Answer"}


class SeenMarks(NamedTuple):
    """Until when the person has seen the answers of agents, by their ids."""

    until: SeenUntil
    mark: Callable[[str, datetime], None]


class TopApp(App[None]):
    """The overview in a terminal."""

    CSS = """
    Screen { background: ansi_default; color: ansi_default; }
    Static { link-color: ansi_default; link-background: ansi_default; link-style: none; }
    Static { link-color-hover: ansi_default; link-background-hover: ansi_default; link-style-hover: reverse; }
    #title, #rule, #keys, .keys, .heading { height: 1; }
    #title { text-style: bold; }
    #note { height: auto; max-height: 3; padding: 0 1; text-style: italic; display: none; }
    #rule { text-style: dim; }
    #rows { height: 1fr; min-height: 1; }
    #detail { height: 8; padding: 0 1; scrollbar-size: 0 0; }
    #message { height: auto; max-height: 4; padding: 0 1; text-style: reverse; display: none; }
    #filter { height: 1; border: none; padding: 0 1; display: none; background: ansi_default; color: ansi_default; }
    #filter:focus { border: none; background: ansi_default; }
    ModalScreen { background: ansi_default; align: left top; }
    .heading { text-style: bold reverse; }
    .text { height: 1fr; padding: 0 1; scrollbar-size: 0 0; }
    TextArea { height: 1fr; border: none; padding: 0 1; scrollbar-size: 0 0; }
    TextArea, TextArea:focus { border: none; background: ansi_default; color: ansi_default; }
    """
    AUTO_FOCUS = ""
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,j", "move(1)"),
        Binding("up,k", "move(-1)"),
        Binding("home,g", "move(-100000)"),
        Binding("end,G", "move(100000)"),
        Binding("pagedown", "page(1)"),
        Binding("pageup", "page(-1)"),
        Binding("J,shift+down", "scroll_detail(1)"),
        Binding("K,shift+up", "scroll_detail(-1)"),
        Binding("tab", "next_need", priority=True),
        Binding("enter", "attach"),
        Binding("a", "allow"),
        Binding("d", "deny"),
        *(Binding(digit, f"choose_digit('{digit}')") for digit in "123456789"),
        Binding("r", "answer"),
        Binding("D", "resolve('delivered')"),
        Binding("R", "resolve('retry')"),
        Binding("F", "resolve('fail')"),
        Binding("full_stop", "seen"),
        Binding("s", "send"),
        Binding("t", "timeline"),
        Binding("x", "cancel"),
        Binding("slash", "filter"),
        Binding("escape", "clear_filter"),
        Binding("question_mark", "help"),
        Binding("q,ctrl+c", "quit"),
        Binding("ctrl+z", "suspend_process"),
    ]

    def __init__(  # noqa: PLR0913 - what it shows, and how; one of them has a default
        self,
        registry: FileRegistry,
        watch_status: WatchStatus,
        seen: SeenMarks,
        notify: Notify,
        clock: Clock,
        glyphs: Glyphs,
        *,
        remote: Callable[[], list[AgentEntry]] = list,
        missing: Callable[[datetime], list[str]] = lambda _now: [],
    ) -> None:
        """`remote` returns the agents of other machines, `missing` says why some of them are not shown."""
        # Textual takes NO_COLOR out of the environment; the attach client must still find it.
        self._environ = dict(os.environ)
        super().__init__(ansi_color=True)
        self.theme = "ansi-dark"
        self._agents = registry
        self._mark_seen = seen.mark
        self._notify = notify
        self._clock = clock
        self._glyphs = glyphs
        self._missing = missing
        self._follower = RowFollower(
            registry, watch_status, seen.until, self._rows_changed, self._announce, remote=remote
        )
        self._wanted = ""
        self._need_key = ""
        """The need that the pane shows; see `_key_of`."""
        self._shown: tuple[str, str, list[ShownOption]] | None = None
        """What the pane says of it."""
        self._lines_about = 0
        self._need_position = 0
        self._settled_at = 0.0
        self._confirmed: set[str] = set()
        self._decided: set[str] = set()
        """Questions whose answer is on its way or was taken."""
        self._drawn: dict[str, Content] = {}
        self._silence: Timer | None = None
        self._running_in: asyncio.AbstractEventLoop | None = None
        self.failure: BaseExceptionGroup[SynapseError] | None = None
        """Why the app could not go on."""

    @override
    def compose(self) -> ComposeResult:
        yield Static(id="title")
        yield Static(id="note")
        yield RowList(self._clock.now, self._glyphs)
        yield Static(id="rule")
        with VerticalScroll(id="detail", can_focus=False):
            yield Static(id="about")
        yield Static(id="message")
        yield Input(id="filter", placeholder="words to look for; Enter keeps the filter, Esc shows all")
        yield Static(id="keys")

    def on_mount(self) -> None:
        self.query_one("#filter", Input).cursor_blink = False  # a blinking cursor redraws for ever
        self._running_in = asyncio.get_running_loop()
        self._follow()
        self.set_interval(1.0, self._tick)
        self._draw_all()

    def leave(self) -> None:
        """Ends the app, and leaves the terminal as it was. Any thread may call it."""
        if self._running_in is not None:
            with suppress(RuntimeError):  # the loop is closed: the app has ended
                self._running_in.call_soon_threadsafe(self.exit)

    def on_resize(self) -> None:
        self.query_one("#detail").styles.height = max(2, self.size.height // 3)
        self.call_after_refresh(self._draw_all)

    @work
    async def _follow(self) -> None:
        try:
            await self._follower.run()
        except* SynapseError as errors:
            # Leaves the terminal in order first: the command then reports it as any other error.
            self.failure = errors
            self.exit()

    @property
    def _rows(self) -> RowList:
        return self.query_one(RowList)

    @property
    def _need(self) -> Need | None:
        """The need that the pane shows."""
        row = self._rows.chosen
        return row["needs"][self._need_position] if row and row["needs"] else None

    @property
    def _columns(self) -> int:
        """The width of a text in the pane."""
        return max(20, self.size.width - 2)

    def _chosen(self) -> tuple[AgentEntry, Row] | None:
        row = self._rows.chosen
        entry = self._follower.entry(row["agent_id"]) if row else None
        return (entry, row) if entry and row else None

    # Drawing

    def _rows_changed(self) -> None:
        if not self.is_running or not self.screen_stack:
            return
        rows = self._follower.rows
        # The same question may be asked again later.
        self._decided &= {_key_of(need) for row in rows for need in row["needs"]}
        self._rows.show([row for row in rows if matches(row, self._wanted)])
        self._take_need(by_person=False)
        self._draw_all()

    def _announce(self, needs: list[Need]) -> None:
        """Rings for what has come up, and says it while the person does not see the list."""
        for need in needs:
            entry = self._follower.entry(need["agent_id"])
            if entry is not None:
                self._notify(need, agent_names(entry), self._write_to_terminal)
        if len(self.screen_stack) > 1 or self._wanted:
            told = [f"{need['name']}: {need['title']}" for need in needs]
            self._say(f" {self._glyphs.dot} ".join(self._glyphs.line(one) for one in told))

    def _write_to_terminal(self, sequence: str) -> None:
        # As App.bell does; the app offers no other way to send a sequence of the terminal's own.
        if not self.is_headless and self._driver is not None:
            self._driver.write(sequence)

    def on_row_list_chosen(self) -> None:
        self._take_need(by_person=True)
        self._draw_all()

    async def on_row_list_opened(self) -> None:
        await self.run_action("attach")

    def _take_need(self, *, by_person: bool) -> None:
        """Keeps the pane at its need as long as that exists, and else shows the one that the row tells."""
        row = self._rows.chosen
        keys = [_key_of(need) for need in row["needs"]] if row else []
        is_kept = not by_person and self._need_key in keys
        self._need_position = keys.index(self._need_key) if is_kept else told_need(row) if row else 0
        need = self._need
        shown = _text_of(need) if need else None
        # Also the text of the same question may change: a dialog is read while it is drawn.
        if not by_person and (not is_kept or shown != self._shown):
            self._settled_at = self._clock.monotonic() + SETTLE_SECONDS
        self._shown = shown
        self._need_key = _key_of(need) if need else ""
        if not is_kept:
            self.query_one("#detail", VerticalScroll).scroll_home(animate=False, immediate=True)

    def _tick(self) -> None:
        """Draws what has become older by a second; nothing is drawn whose text is the same."""
        if len(self.screen_stack) == 1:
            self._rows.redraw()
            self._draw_all()

    def _draw_all(self) -> None:
        self._draw("#title", self._title_line())
        self._draw_note()
        row, need = self._rows.chosen, self._need
        if row is None:
            nothing = f"Nothing matches '{self._wanted}'." if self._wanted else _NO_AGENTS
            self._lines_about = 0
            self._draw("#about", Content(nothing))
        else:
            lines = self._about(row)
            self._lines_about = len(lines)
            self._draw("#about", content_of(lines))
        self._draw("#keys", self._key_line(row, need))
        self._draw("#rule", self._rule_line())

    def _draw_note(self) -> None:
        """Says which agents are not in the list, and why: nobody looks for rows that are gone."""
        note = f" {self._glyphs.dot} ".join(self._missing(self._clock.now()))
        self._draw("#note", Content(self._glyphs.line(note)))
        self.screen_stack[0].query_one("#note", Static).styles.display = "block" if note else "none"

    def _about(self, row: Row) -> list[Line]:
        """Returns what the pane says about an agent: all that a person has to know before a decision."""
        return detail_of(row, self._need_position, self._columns, self._clock.now(), self._glyphs)

    def _draw(self, selector: str, content: Content) -> None:
        """Updates a widget, unless it shows the same already."""
        last = self._drawn.get(selector)
        if last is None or not last.is_same(content):
            self._drawn[selector] = content
            self.screen_stack[0].query_one(selector, Static).update(content)

    def _title_line(self) -> Content:
        clock = f"{self._clock.now().astimezone():%H:%M} "
        begin, middle = " synapse top", summary(self._follower.rows, self._glyphs)
        if self._wanted:
            middle = f"{len(self._rows.rows)} of {middle} {self._glyphs.dot} filter: {self._glyphs.line(self._wanted)}"
        room = self.size.width - width(begin) - width(clock)
        return Content(f"{begin}{self._glyphs.fit(f'  {middle}', max(0, room))}{clock}")

    def _rule_line(self) -> Content:
        position, count = self._rows.position
        place = f" {position} of {count} " if count > self._rows.size.height else ""
        more = "" if self._is_read() else " more below: J "
        rule = self._glyphs.rule
        middle = rule * max(0, self.size.width - len(place) - len(more) - 4)
        return Content(f"{rule * 2}{place}{middle}{more}{rule * 2}")

    def _key_line(self, row: Row | None, need: Need | None) -> Content:
        """Returns the keys that fit; help stays, the pane shows the keys of options, and everybody tries `q`."""
        hints = keys_for(row, need, self._glyphs)
        spare = [hint for hint in hints if hint.word in ("quit", "choose")]
        while len(hints) > 1 and sum(width(f"{hint.key} {hint.word}") + 2 for hint in hints) > self.size.width + 1:
            hints.remove(spare.pop() if spare else hints[-2])
        parts: list[str | tuple[str, str]] = [" "]
        for hint in hints:
            click = f" @click=app.{hint.action}" if hint.action else ""
            parts += [(hint.key, f"bold{click}"), (f" {hint.word}", click.strip()), "  "]
        return Content.assemble(*parts)

    def _say(self, text: str) -> None:
        """Shows a sentence for a while, or until the person moves on."""
        message = self.screen_stack[0].query_one("#message", Static)
        message.update(Content(text))
        message.styles.display = "block" if text else "none"
        if self._silence is not None:
            self._silence.stop()
        self._silence = self.set_timer(SAY_SECONDS, lambda: self._say("")) if text else None

    def _say_error(self, error: SynapseError) -> None:
        self._say(self._glyphs.line(f"{error} {error.hint}"))

    # Moving

    def action_move(self, by: int) -> None:
        self._say("")
        self._rows.move(by)

    def action_page(self, pages: int) -> None:
        self._say("")
        self._rows.page(pages)

    def action_scroll_detail(self, lines: int) -> None:
        self.query_one("#detail", VerticalScroll).scroll_relative(y=lines, animate=False)
        self._draw("#rule", self._rule_line())

    def action_next_need(self) -> None:
        row = self._rows.chosen
        if row and len(row["needs"]) > 1:
            self._need_position = (self._need_position + 1) % len(row["needs"])
            need = row["needs"][self._need_position]
            self._need_key, self._shown = _key_of(need), _text_of(need)
            self.query_one("#detail", VerticalScroll).scroll_home(animate=False, immediate=True)
            self._draw_all()

    def action_filter(self) -> None:
        field = self.query_one("#filter", Input)
        field.styles.display = "block"
        field.focus()

    def action_clear_filter(self) -> None:
        self._say("")
        self.query_one("#filter", Input).value = ""
        self._close_filter()

    def on_input_changed(self, event: Input.Changed) -> None:
        self._wanted = event.value
        self._rows_changed()

    def on_input_submitted(self) -> None:
        self._close_filter()

    def _close_filter(self) -> None:
        self.query_one("#filter", Input).styles.display = "none"
        self.set_focus(None)

    # Decisions

    def action_allow(self) -> None:
        self._answer("allow", {"verdict": "allow"}, "Allow this?")

    def action_deny(self) -> None:
        self._answer("deny", {"verdict": "deny"}, "Deny this?")

    def action_choose_digit(self, digit: str) -> None:
        need = self._need
        if need and (key := option_at(need, digit)):
            self._choose(need, key)

    def action_choose(self, number: int) -> None:
        """Chooses the option at that place, which was clicked."""
        need = self._need
        if need and number < len(need["options"]):
            self._choose(need, need["options"][number]["key"])

    def _choose(self, need: Need, key: str) -> None:
        label = next(option["label"] for option in need["options"] if option["key"] == key)
        self._answer("choose", {"option": key}, f"Answer '{self._glyphs.line(label)}'?")

    @work
    async def _answer(self, action: str, choice: dict[str, str], title: str) -> None:
        """Answers the question that the pane shows; asks first if the person may not have read all of it."""
        chosen, need = self._chosen(), self._need
        if chosen is None or need is None or not self._may(action, need):
            return
        if action not in self._confirmed or not self._is_read():
            if not await self._confirm(f"{need['name']}: {title}", self._about(chosen[1])):
                return
            self._confirmed.add(action)
        await self._decide(need, lambda: actions.answer(chosen[0], need, choice), _VERBS[action])

    @work
    async def action_answer(self) -> None:
        chosen, need = self._chosen(), self._need
        if chosen is None or need is None or not self._may("text", need):
            return
        composed = await self._write(f"Answer {need['name']}: {need['title']}")
        if composed:
            await self._decide(need, lambda: actions.answer(chosen[0], need, {"text": composed.text}), "Answer")

    @work
    async def action_resolve(self, verdict: str) -> None:
        chosen, need = self._chosen(), self._need
        if chosen is None or need is None or not self._may("resolve", need):
            return
        says = {
            "delivered": "The message arrived?",
            "retry": "It did not arrive: type it again?",
            "fail": "It did not arrive: fail the task?",
        }
        if await self._confirm(f"{need['name']}: {says[verdict]}", self._about(chosen[1])):
            await self._decide(need, lambda: actions.resolve(chosen[0], need, verdict), verdict.capitalize())

    @work
    async def action_cancel(self) -> None:
        chosen, need = self._chosen(), self._need
        task_id = running_task_in(chosen[1], need) if chosen else ""
        if chosen is None or not task_id:
            self._say("There is no task to cancel.")
            return
        entry, row = chosen
        task = row["task"]
        text = task["text"] if task and task["id"] == task_id else need["title"] if need else ""
        lines = text_lines(text, self._columns, self._glyphs)
        if await self.push_screen_wait(
            Dialog(self._glyphs.line(f"{row['name']}: cancel task {task_id[:SHORT_ID]}?"), lines)
        ):
            await self._request(lambda: actions.cancel(entry, task_id), "Canceled")

    @work
    async def action_send(self) -> None:
        chosen = self._chosen()
        if chosen is None:
            return
        entry, row = chosen
        composed = await self._write(f"Send to {row['name']}", actions.USUAL_PRIORITY)
        if composed:
            await self._request(
                lambda: actions.send(entry, composed.text, composed.priority, self._agents), row["name"]
            )

    def action_seen(self) -> None:
        if row := self._rows.chosen:
            self._see(row)

    def _see(self, row: Row) -> None:
        """Marks what the list shows of an agent as seen; an answer that arrives meanwhile stays unseen."""
        ended = [need["asked_at"] for need in row["needs"] if "seen" in need["can"] and need["asked_at"]]
        if ended:
            self._mark_seen(row["agent_id"], datetime.fromisoformat(max(ended)))
            self._follower.look_again()

    async def _confirm(self, title: str, lines: list[Line]) -> bool:
        return await self.push_screen_wait(Dialog(self._glyphs.line(title), lines))

    async def _write(self, title: str, priority: int = 0) -> Composed | None:
        return await self.push_screen_wait(Compose(self._glyphs.line(title), self._glyphs, priority))

    def _may(self, action: str, need: Need) -> bool:
        """Decides whether the person can do this now; says why not."""
        if action not in need["can"]:
            self._say(f"That is not asked here. Next: {self._glyphs.line(need['next'])}" if need["next"] else "")
            return False
        if _key_of(need) in self._decided:
            self._say("This is answered already.")
            return False
        if self._clock.monotonic() < self._settled_at:
            self._say("The question has just changed: read it, then press the key again.")
            return False
        return True

    def _is_read(self) -> bool:
        """Decides whether the end of the question is in view; counted, because the pane may not be laid out yet."""
        detail = self.query_one("#detail", VerticalScroll)
        return self._lines_about - detail.scroll_y <= detail.size.height

    async def _decide(self, need: Need, act: Callable[[], str], verb: str) -> None:
        """Sends a decision, once."""
        if _key_of(need) in self._decided:
            return
        self._decided.add(_key_of(need))
        if not await self._request(act, f"{verb}: {need['name']}"):
            self._decided.discard(_key_of(need))

    async def _request(self, act: Callable[[], str], done: str) -> bool:
        """Runs a request to a host in a thread, says what became of it, and returns whether it succeeded."""
        try:
            told = await asyncio.to_thread(act)
        except SynapseError as error:
            self._say_error(error)
            return False
        self._say(self._glyphs.line(f"{done} {self._glyphs.dot} {told}" if told else done))
        return True

    # Other screens

    @work
    async def action_attach(self) -> None:
        """Lends the terminal to the attach client, and comes back when that ends."""
        chosen = self._chosen()
        if chosen is None:
            return
        entry, row = chosen
        if not row["has_terminal"]:
            self._say(f"{self._glyphs.line(row['name'])} has no terminal to attach to.")
            return
        with self.batch_update(), self.suspend():
            said = await self._run_attach(entry.agent_id)
        self._mark_seen(entry.agent_id, self._clock.now())
        self._follower.look_again()
        self._say(self._glyphs.line(said))

    async def _run_attach(self, agent_id: str) -> str:
        """Runs the attach client in this terminal; returns what went wrong, or an empty string.

        In a process of its own, so that this one goes on reading the hosts' streams meanwhile.
        """
        try:
            client = await asyncio.create_subprocess_exec(
                *_ATTACH, agent_id, env=self._environ, stderr=asyncio.subprocess.PIPE
            )
        except OSError as error:
            return f"The attach client cannot be started: {error.strerror}"
        try:
            _, said = await client.communicate()
        except asyncio.CancelledError:
            client.terminate()  # this app ends, and its terminal with it
            raise
        return said.decode("utf-8", "replace") if client.returncode else ""

    @work
    async def action_timeline(self) -> None:
        chosen, need = self._chosen(), self._need
        task_id = task_in(chosen[1], need) if chosen else ""
        if chosen is None or not task_id:
            self._say("There is no task to show.")
            return
        entry, row = chosen
        events = TaskEvents(entry, task_id, self._clock.monotonic)
        title = self._glyphs.line(f"{row['name']}, task {task_id[:SHORT_ID]}")
        await self.push_screen_wait(TimelineReader(title, events, self._glyphs, self._say_error))
        if need and "seen" in need["can"]:
            self._see(row)

    def action_help(self) -> None:
        lines = [[Cell(f"{key.replace('⏎', self._glyphs.enter):10}", "name"), Cell(does)] for key, does in HELP]
        self.push_screen(Reader("synapse top: keys", lines))


def _key_of(need: Need) -> str:
    """Returns what tells this need from those of all agents."""
    return f"{need['agent_id']} {need['id']}"


def _text_of(need: Need) -> tuple[str, str, list[ShownOption]]:
    """Returns what a person decides about."""
    return need["title"], need["detail"], need["options"]
