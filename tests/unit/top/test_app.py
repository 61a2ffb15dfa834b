"""A person at `synapse top`: Textual's pilot presses the keys, and the hosts are fakes on real Unix sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import ExitStack, asynccontextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from textual.pilot import Pilot
from textual.widgets import Static

from synapse.client.seen import mark_seen, seen_until
from synapse.core.errors import RegistryFailed
from synapse.net.hosts import UnixHostClient
from synapse.registry.files import FileRegistry
from synapse.registry.local import open_local_registry
from synapse.top.app import SETTLE_SECONDS, SeenMarks, TopApp
from synapse.top.dialogs import Compose, Dialog, Reader, TimelineReader
from synapse.top.lines import UNICODE, Glyphs
from synapse.top.row_list import RowList
from tests.fakes.clock import FakeClock
from tests.unit.cli.fake_host import FakeHost
from tests.unit.top.statuses import NOW, Fields, answered, asking, in_doubt, ready, task_id, working


def nothing_missing(_now: datetime) -> list[str]:
    return []


class Desk:
    """A running app and its hosts."""

    def __init__(self, home: Path, pilot: Pilot[None], app: TopApp, clock: FakeClock) -> None:
        self.home = home
        self.pilot = pilot
        self.app = app
        self.clock = clock
        self.hosts: dict[str, FakeHost] = {}
        self.told: list[tuple[str, Collection[str]]] = []
        """The titles of needs that were told, and the names of their agents."""

    def text(self, selector: str) -> str:
        return str(self.app.screen.query(selector).first(Static).content)

    def lines(self) -> list[str]:
        rows = self.app.screen_stack[0].query_one(RowList)
        return [rows.render_line(y).text.rstrip() for y in range(rows.size.height) if rows.render_line(y).text.strip()]

    def states(self) -> dict[str, str]:
        return {row["name"]: row["state"] for row in self.app.screen_stack[0].query_one(RowList).rows}

    async def until(self, is_true: Callable[[], bool]) -> None:
        async with asyncio.timeout(6):
            while not is_true():
                await self.pilot.pause(0.02)

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def pressed(self, key: str, screen: type) -> None:
        """Presses a key and waits until it has opened a screen."""
        await self.press(key)
        await self.until(lambda: isinstance(self.app.screen, screen))

    def posts(self, name: str) -> list[tuple[str, Fields]]:
        return [(path, body) for method, path, body in self.hosts[name].requests if method == "POST"]

    async def said(self, words: str) -> None:
        message = self.app.screen_stack[0].query_one("#message", Static)
        await self.until(lambda: words in str(message.content))


@asynccontextmanager
async def desk(
    *,
    size: tuple[int, int] = (80, 24),
    glyphs: Glyphs = UNICODE,
    missing: Callable[[datetime], list[str]] = nothing_missing,
    **statuses: Fields,
) -> AsyncGenerator[Desk]:
    """Runs the app with a host for each status; all are listed when it begins."""
    with TemporaryDirectory(prefix="syn-") as folder, ExitStack() as stack:
        home, clock = Path(folder), FakeClock()
        told: list[tuple[str, Collection[str]]] = []
        clock.jump((NOW - clock.now()).total_seconds())
        registry = FileRegistry(home / "registry")
        client = UnixHostClient(open_local_registry(registry.folder, clock.monotonic), clock)
        app = TopApp(
            registry,
            client.watch_status,
            SeenMarks(partial(seen_until, home), partial(mark_seen, home)),
            lambda need, names, _write: told.append((need["title"], names)),
            clock,
            glyphs,
            missing=missing,
        )
        hosts: dict[str, FakeHost] = {}
        for number, (name, status) in enumerate(statuses.items()):
            host = FakeHost(home, port=8120 + number, name=name)
            host.state, host.entry.terminal = status, 5
            hosts[name] = stack.enter_context(host.serving())
        async with app.run_test(size=size) as pilot:
            opened = Desk(home, pilot, app, clock)
            opened.hosts, opened.told = hosts, told
            await opened.until(
                lambda: opened.states().keys() == hosts.keys() and "away" not in opened.states().values()
            )
            clock.advance(SETTLE_SECONDS)
            yield opened


async def test_who_needs_me_comes_first_with_the_exact_question() -> None:
    async with desk(ada=ready(), bob=asking(1), cyd=in_doubt(2), dee=working(3, "write")) as top:
        assert [line.split()[:2] for line in top.lines()] == [["?", "bob"], ["!", "cyd"], ["◐", "dee"], ["○", "ada"]]
        assert "4 agents · 2 need you" in top.text("#title")
        assert "rm -rf build" in top.lines()[0]
        assert "rm -rf build" in top.text("#about")


async def test_a_change_at_a_host_changes_its_row_and_keeps_the_choice() -> None:
    async with desk(ada=ready(), bob=working(1, "write")) as top:
        await top.press("down")
        assert "ada" in top.text("#about")
        top.hosts["ada"].tell(**working(2, "read"))
        await top.until(lambda: any("ada" in line and "working" in line for line in top.lines()))
        top.hosts["bob"].tell(**asking(3))
        await top.until(lambda: "asks" in top.lines()[0])

        assert "ada working" in top.text("#about")


async def test_agents_that_are_not_in_the_list_are_accounted_for() -> None:
    missing = ["box2 is away, last seen 3m ago: not asked"]
    async with desk(missing=lambda _now: missing, ada=ready()) as top:
        assert top.text("#note") == "box2 is away, last seen 3m ago: not asked"
        assert top.app.query_one("#note").display

        missing.clear()

        await top.until(lambda: not top.app.query_one("#note").display)


async def test_what_comes_up_is_told_once_and_what_was_there_is_not() -> None:
    async with desk(ada=asking(1), bob=working(2, "write")) as top:
        top.hosts["bob"].tell(**asking(3))
        await top.until(lambda: bool(top.told))
        top.hosts["bob"].tell(**{**asking(3), "queue_depth": 1})
        await top.until(lambda: any("bob" in line and "+1" in line for line in top.lines()))

        ((title, names),) = top.told
        assert title == "Run this command?"
        assert "bob" in names


async def test_allow_is_confirmed_once_and_goes_to_the_question_that_is_shown() -> None:
    async with desk(ada=asking(1), bob=asking(2)) as top:
        await top.pressed("a", Dialog)
        assert "rm -rf build" in top.text(".text Static")
        assert "task 00000001 from claude-8101" in top.text(".text Static")
        await top.press("y")
        await top.until(lambda: bool(top.posts("ada")))
        await top.press("down", "a")
        await top.until(lambda: bool(top.posts("bob")))

        body = {"verdict": "allow", "question_id": "question-1"}
        assert top.posts("ada") == [(f"/tasks/{task_id(1)}/answer", body)]
        assert top.posts("bob")[0][1] == {"verdict": "allow", "question_id": "question-2"}


async def test_a_decision_that_is_not_confirmed_is_not_made() -> None:
    async with desk(ada=asking(1)) as top:
        await top.pressed("d", Dialog)
        await top.press("n")
        await top.pressed("d", Dialog)
        await top.press("escape")

        assert top.posts("ada") == []


async def test_a_command_longer_than_the_pane_is_confirmed_after_its_end_was_read() -> None:
    command = "\n".join(f"echo line {number}" for number in range(60))
    async with desk(ada=asking(1), bob=asking(2, command)) as top:
        await top.pressed("a", Dialog)
        await top.press("y")
        await top.until(lambda: bool(top.posts("ada")))
        await top.press("down")
        await top.pressed("a", Dialog)
        await top.press("y")
        assert isinstance(top.app.screen, Dialog)
        assert top.posts("bob") == []
        for _ in range(6):
            await top.press("pagedown")
        await top.press("y")

        await top.until(lambda: bool(top.posts("bob")))


async def test_a_question_that_has_just_changed_is_not_answered() -> None:
    async with desk(ada=asking(1)) as top:
        await top.pressed("a", Dialog)
        await top.press("y")
        await top.until(lambda: len(top.posts("ada")) == 1)
        top.hosts["ada"].tell(**asking(2, "rm -rf /"))
        await top.until(lambda: "rm -rf /" in top.text("#about"))
        await top.press("a")
        await top.said("has just changed")
        assert len(top.posts("ada")) == 1
        top.clock.advance(SETTLE_SECONDS)
        await top.press("a")

        await top.until(lambda: len(top.posts("ada")) == 2)


async def test_a_question_whose_text_has_just_changed_is_not_answered_either() -> None:
    async with desk(ada=asking(1)) as top:
        top.hosts["ada"].tell(**asking(1, "rm -rf /"))
        await top.until(lambda: "rm -rf /" in top.text("#about"))
        await top.press("d")

        await top.said("has just changed")


async def test_a_question_is_answered_once_however_often_the_key_is_pressed() -> None:
    asks = asking(1)
    asks["question"]["task_id"] = None
    async with desk(ada=asks) as top:
        await top.pressed("a", Dialog)
        await top.press("y")
        await top.said("Allow: ada")
        await top.press("a", "a")
        await top.said("answered already")

        assert len(top.posts("ada")) == 1


async def test_digits_and_clicks_choose_an_option() -> None:
    async with desk(ada=asking(1), bob=asking(2)) as top:
        await top.pressed("2", Dialog)
        await top.press("y")
        await top.until(lambda: bool(top.posts("ada")))
        await top.press("down")
        options = top.text("#about").split("\n")[-1]
        await top.pilot.click("#about", offset=(options.index("3 No"), top.text("#about").count("\n")))
        await top.until(lambda: bool(top.posts("bob")))

        assert top.posts("ada")[0][1]["option"] == "2"
        assert top.posts("bob")[0][1]["option"] == "3"


async def test_a_text_answers_a_question_that_takes_one() -> None:
    async with desk(ada=asking(1, options=(), takes_text=True)) as top:
        await top.pressed("r", Compose)
        await top.press(*"main", "enter")
        await top.until(lambda: bool(top.posts("ada")))

        assert top.posts("ada")[0][1] == {"text": "main", "question_id": "question-1"}


async def test_a_message_in_doubt_is_resolved_after_a_confirmation() -> None:
    async with desk(ada=in_doubt(1)) as top:
        await top.press("a")
        await top.said("not asked here")
        await top.pressed("R", Dialog)
        await top.press("y")
        await top.until(lambda: bool(top.posts("ada")))

        ((path, body),) = top.posts("ada")
        assert (path, body["verdict"]) == (f"/tasks/{task_id(1)}/resolve", "retry")
        assert body["asked_at"] == in_doubt(1)["attention"][0]["since"]


async def test_a_message_of_several_lines_is_sent_with_its_priority() -> None:
    async with desk(ada=ready()) as top:
        await top.pressed("s", Compose)
        await top.press("enter")
        assert isinstance(top.app.screen, Compose)
        await top.press(*"one", "ctrl+j", *"two", "ctrl+p", "enter")
        await top.until(lambda: bool(top.posts("ada")))

        path, body = top.posts("ada")[0]
        assert path == "/tasks/send-priority?priority=4"
        assert body["message"]["parts"][0]["text"] == "one\ntwo"


async def test_cancel_names_the_task_first() -> None:
    async with desk(ada=working(1, "write the tests")) as top:
        await top.pressed("x", Dialog)
        assert "cancel task 00000001" in top.text(".heading")
        await top.press("y")
        await top.until(lambda: bool(top.posts("ada")))

        assert top.posts("ada")[0][0] == f"/tasks/{task_id(1)}/cancel"


async def test_an_agent_without_a_terminal_is_not_attached_to() -> None:
    async with desk(ada=ready()) as top:
        entry = top.hosts["ada"].entry
        entry.terminal, entry.pid_started = 0, 0
        top.hosts["ada"].registry.write(entry)
        await top.until(lambda: "attach" not in top.text("#keys"))
        await top.press("enter")

        await top.said("ada has no terminal to attach to")


async def test_a_refusal_of_the_host_is_shown() -> None:
    refusal = {"error": {"code": "person_required", "message": "only a person may decide", "hint": "ask one"}}
    async with desk(ada=asking(1)) as top:
        top.hosts["ada"].refusals[f"/tasks/{task_id(1)}/answer"] = (403, refusal)
        await top.pressed("a", Dialog)
        await top.press("y")

        await top.said("only a person may decide ask one")


async def test_a_filter_leaves_what_matches_and_escape_brings_all_back() -> None:
    async with desk(ada=ready(), bob=working(1, "write")) as top:
        await top.press("slash", *"wri")
        await top.until(lambda: len(top.lines()) == 1)
        assert "filter: wri" in top.text("#title")
        await top.press("enter", "escape")
        await top.until(lambda: len(top.lines()) == 2)


async def test_an_answer_is_seen_by_a_dot_or_by_its_timeline() -> None:
    async with desk(ada=answered(1, "fine"), bob=ready()) as top:
        await top.press("full_stop")
        await top.until(lambda: all("ready" in line for line in top.lines()))
        opened = top.hosts["bob"].open({"message": {"role": "user", "parts": [{"type": "text", "text": "review"}]}})
        told = answered(2, "good")
        told["finished"][0]["id"] = opened["id"]
        top.hosts["bob"].tell(**told)
        await top.until(lambda: "done" in top.lines()[0])
        await top.press("home")
        await top.pressed("t", TimelineReader)
        await top.press("escape")

        await top.until(lambda: all("ready" in line for line in top.lines()))


async def test_a_timeline_shows_events_of_the_task_as_they_happen() -> None:
    async with desk(ada=ready()) as top:
        opened = top.hosts["ada"].open({"message": {"role": "user", "parts": [{"type": "text", "text": "review"}]}})
        current = {**working(1, "review"), "current_task": opened}
        top.hosts["ada"].tell(**current)
        await top.until(lambda: "working" in top.lines()[0])
        await top.pressed("t", TimelineReader)

        await top.until(lambda: top.hosts["ada"].resumed_after == ["0"])


async def test_a_timeline_that_the_host_refuses_says_why_and_closes() -> None:
    async with desk(ada=working(1, "write")) as top:
        await top.press("t")

        await top.said("no task '00000001")
        await top.until(lambda: len(top.app.screen_stack) == 1)


async def test_new_needs_are_told_while_the_list_is_covered() -> None:
    async with desk(ada=ready()) as top:
        await top.pressed("question_mark", Reader)
        top.hosts["ada"].tell(**asking(1))
        await top.said("ada: Run this command?")


async def test_the_next_need_of_an_agent_is_a_tab_away() -> None:
    async with desk(ada={**asking(1), "attention": in_doubt(2)["attention"]}) as top:
        assert "1 of 2" in top.text("#about")
        await top.press("tab")
        assert "review src/app.py" in top.text("#about")


async def test_a_click_chooses_an_agent_and_the_keys_below_can_be_clicked() -> None:
    async with desk(ada=asking(1), bob=working(2, "write")) as top:
        await top.pilot.click("#rows", offset=(5, 1))
        await top.until(lambda: "bob" in top.text("#about"))
        await top.pilot.click("#keys", offset=(top.text("#keys").index("send"), 0))
        await top.until(lambda: isinstance(top.app.screen, Compose))


async def test_a_long_list_is_paged_and_the_chosen_line_stays_in_view() -> None:
    agents = {f"agent{number}": ready(3600 - number) for number in range(12)}
    async with desk(size=(80, 12), glyphs=UNICODE, missing=nothing_missing, **agents) as top:
        await top.press("pagedown", "pagedown")
        chosen = top.app.screen.query_one(RowList).position[0]
        assert chosen > len(top.lines())
        await top.press("end")
        assert "12 of 12" in top.text("#rule")
        assert "agent11" in top.lines()[-1]
        await top.press("home")
        await top.until(lambda: "agent0 " in top.lines()[0])


async def test_the_neighbour_of_a_chosen_agent_that_leaves_is_chosen() -> None:
    async with desk(ada=asking(1), bob=working(2, "write"), cyd=ready()) as top:
        await top.press("down")
        top.hosts["bob"].registry.remove(top.hosts["bob"].entry.agent_id)
        await top.until(lambda: len(top.lines()) == 2)

        await top.until(lambda: "cyd" in top.text("#about"))


async def test_a_registry_that_cannot_be_read_ends_the_overview_with_its_error() -> None:
    async with desk(ada=ready()) as top:
        folder = Path(top.hosts["ada"].registry.folder)
        folder.rename(folder.with_name("moved"))
        folder.write_text("not a folder", encoding="utf-8")
        await top.until(lambda: top.app.failure is not None)
        folder.unlink()
        folder.with_name("moved").rename(folder)

        assert isinstance(top.app.failure, ExceptionGroup)
        assert isinstance(top.app.failure.exceptions[0], RegistryFailed)


@pytest.mark.parametrize("size", [(60, 15), (80, 24), (200, 60), (24, 8)])
async def test_every_size_shows_the_agents_and_the_keys(size: tuple[int, int]) -> None:
    async with desk(size=size, ada=asking(1, "x" * 500), bob=ready()) as top:
        assert len(top.lines()) == 2
        assert all(len(line) <= size[0] for line in top.lines())
        assert "help" in top.text("#keys")


async def test_without_agents_the_list_says_how_to_start_one() -> None:
    async with desk() as top:
        assert "synapse start" in top.text("#about")
        await top.press("a", "s", "t", "x", "enter", "full_stop", "down", "tab")
        assert len(top.app.screen_stack) == 1
