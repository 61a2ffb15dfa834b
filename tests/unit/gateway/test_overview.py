"""The overview of a gateway: one follower for all viewers, and for each caller only what it may see."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from synapse.client.overview import Row
from synapse.client.seen import seen_until
from synapse.core.agent import AgentEntry
from synapse.core.caller import LOCAL_SCOPE, READ, Caller
from synapse.core.driver import DeliveryUncertain, Failed, Typing
from synapse.core.errors import (
    AgentNotFound,
    AgentNotResponding,
    Forbidden,
    RegistryFailed,
    StoreFailed,
    TaskNotFound,
    UnsupportedOperation,
)
from synapse.core.events import Update
from synapse.core.overview import EventsMissed, Overview, OverviewUpdate, RowChanged, RowRemoved, StreamAlive
from synapse.core.requests import (
    GetAgentOverview,
    GetAgentScreen,
    GetOverview,
    GetTimeline,
    ListTasks,
    MarkSeen,
    ResolveTask,
    WatchOverview,
)
from synapse.core.task import Task, TaskState
from synapse.core.waiting import pause
from synapse.gateway import overview, tasks
from synapse.gateway.overview import AWAY_SECONDS, limited_row
from tests.fakes.driver import FakeDriver
from tests.fakes.gateway_world import (
    ADA,
    BOB_NAME,
    BOUND,
    LAPTOP,
    OPERATOR,
    PHONE,
    World,
    fleet_world,
    world,
)
from tests.fakes.harness import AgentHarness, working
from tests.fakes.memory_store import MemoryStore

SESSION = Caller(scope=LOCAL_SCOPE, sees_all=True, actions=frozenset({READ}), name="dashboard", session_id="s1")
SESSION_ELSEWHERE = Caller(scope="session:s2", actions=frozenset({READ}), name="dashboard@box3", session_id="s2")
ONLY_ADA = replace(OPERATOR, agents=frozenset({"ada"}))


class Viewer:
    """Reads a stream and remembers all that it got."""

    def __init__(self, updates: AsyncGenerator[OverviewUpdate, None]) -> None:
        self._updates = updates
        self.got: list[OverviewUpdate] = []

    async def until(self, holds: Callable[[], object]) -> Any:
        """Reads until the condition holds; returns what it returned."""
        async with asyncio.timeout(BOUND):
            while not (found := holds()):
                self.got.append(await anext(self._updates))
        return found

    async def close(self) -> None:
        await self._updates.aclose()

    async def read(self, count: int = 1) -> list[OverviewUpdate]:
        wanted = len(self.got) + count
        await self.until(lambda: len(self.got) >= wanted)
        return self.got[-count:]

    @property
    def seqs(self) -> list[int]:
        return [one.seq for one in self.got if isinstance(one, Update)]

    def row(self, name: str) -> Row | None:
        """The last row of an agent that was sent; None if it is gone."""
        shown: dict[str, Any] = {}
        for one in self.got:
            if isinstance(one, Overview):
                shown = {row["id"]: row for row in one.rows}
            elif isinstance(one, RowChanged):
                shown[one.row["id"]] = one.row
            elif isinstance(one, RowRemoved):
                shown.pop(one.agent, None)
        return shown.get(name)

    def state(self, name: str) -> str:
        row = self.row(name)
        return "" if row is None else row["state"]


@asynccontextmanager
async def viewing(here: World, caller: Caller = OPERATOR, after: int | None = None) -> AsyncGenerator[Viewer]:
    """A viewer who has got the overview."""
    updates = await here.ask(WatchOverview(after=after), caller)
    viewer = Viewer(updates)
    try:
        await viewer.read()
        yield viewer
    finally:
        await viewer.close()


async def answered(here: World, text: str = "hello", caller: Caller = LAPTOP, agent: str = "ada") -> Task:
    task = await here.sent(text, caller, agent)
    return await here.desks["ada" if agent == "ada" else "bob"].finished(task)


async def test_the_overview_has_a_row_for_each_agent_and_the_position_of_the_log() -> None:
    async with world() as here:
        await answered(here)
        told = await here.ask(GetOverview(), OPERATOR)

        assert [(row["id"], row["state"]) for row in told.rows] == [("ada", "done"), (BOB_NAME, "ready")]
        assert told.cursor == await here.store.last_seq() > 0
        assert here.watched.total() == 0, "nobody looks any more"


async def test_a_viewer_gets_the_overview_then_each_row_and_each_event_that_changes() -> None:
    async with world() as here, viewing(here) as viewer:
        (first,) = viewer.got
        assert isinstance(first, Overview)
        assert viewer.state("ada") == "ready"

        task = await answered(here)
        last = await here.store.last_seq()
        await viewer.until(lambda: viewer.seqs[-1:] == [last] and viewer.state("ada") == "done")

        assert viewer.seqs == list(range(first.cursor + 1, last + 1))
        assert {one.task.id for one in viewer.got if isinstance(one, Update)} == {task.id}
        row = viewer.row("ada")
        assert row is not None
        assert (row["why"], row["unread"]) == ("→ key.laptop: echo: hello", 1)


async def test_two_viewers_share_one_stream_of_each_host_which_ends_with_the_last() -> None:
    async with world() as here:
        async with viewing(here) as first:
            async with viewing(here) as second:
                assert here.watched == {"ada": 1, "bob": 1}
                await answered(here)
                await first.until(lambda: first.state("ada") == "done")
                await second.until(lambda: second.state("ada") == "done")
            assert here.watched == {"ada": 1, "bob": 1}
        assert here.watched.total() == 0


async def test_a_viewer_who_comes_while_the_last_one_leaves_sees_all_agents() -> None:
    async with world() as here:
        for turns in range(40):
            first = await here.ask(WatchOverview(), OPERATOR)
            await anext(first)
            leaving = asyncio.create_task(first.aclose())
            for _ in range(turns):
                await pause(0)
            async with viewing(here) as second:
                await leaving
                assert [row["id"] for row in here.follower.rows()] == ["ada", BOB_NAME], turns
                assert second.state("ada") == "ready"
                assert here.watched == {"ada": 1, "bob": 1}


async def test_a_viewer_who_resumes_loses_nothing_and_gets_nothing_twice() -> None:
    async with world() as here:
        async with viewing(here) as before:
            await answered(here, "one")
            await before.until(lambda: len(before.seqs) >= 3)
        position = before.seqs[-1]
        await answered(here, "two")
        async with viewing(here, after=position) as after:
            assert isinstance(after.got[0], Overview)
            assert after.got[0].cursor == position, "what comes next is not lost if the stream breaks here"
            await answered(here, "three")
            last = await here.store.last_seq()
            await after.until(lambda: after.seqs[-1:] == [last])

        assert before.seqs + after.seqs == list(range(1, last + 1))


@pytest.mark.parametrize("after", [0, 10_000])
async def test_a_viewer_who_missed_too_much_is_told_to_load_anew(after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview, "MOST_MISSED", 3)
    async with world() as here:
        await answered(here)
        last = await here.store.last_seq()
        async with viewing(here, after=after) as viewer:
            (missed,) = await viewer.read()
            assert missed == EventsMissed(cursor=last)
            await answered(here)
            await viewer.until(lambda: viewer.seqs)

        assert viewer.seqs[0] == last + 1


async def test_a_viewer_who_reads_too_slowly_is_told_to_load_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview, "_QUEUED_UPDATES", 1)
    async with world(feed_buffer=2) as here, viewing(here) as viewer:
        # By the first sign of life the stream has left the log behind: what is in the log is never missed.
        await viewer.until(lambda: isinstance(viewer.got[-1], StreamAlive))
        for number in range(5):
            await answered(here, f"message {number}")
        last = await here.store.last_seq()
        await viewer.until(lambda: any(isinstance(one, EventsMissed) for one in viewer.got))
        await answered(here, "the last one")
        end = await here.store.last_seq()
        # On a slow machine the viewer may miss these too, and is told so again.
        await viewer.until(lambda: viewer.seqs[-1:] == [end] or EventsMissed(cursor=end) in viewer.got)

        assert end > last
        assert len(set(viewer.seqs)) == len(viewer.seqs)


async def test_a_quiet_stream_says_that_it_works_and_how_far_it_has_come() -> None:
    async with world() as here:
        hidden = await answered(here, caller=PHONE)
        async with viewing(here, LAPTOP) as viewer:
            await answered(here, caller=PHONE)
            last = await here.store.last_seq()
            await viewer.until(lambda: viewer.got[-1] == StreamAlive(at=here.clock.now(), cursor=last))

        assert hidden.id
        assert viewer.seqs == [], "events of another scope count as passed, and are not sent"


async def test_an_agent_whose_host_does_not_answer_is_away_and_says_why() -> None:
    async with world() as here:
        here.unreachable["ada"] = AgentNotResponding("synapse-codex-8120", 8120, "codex")
        async with viewing(here) as viewer:
            row = viewer.row("ada")
            assert row is not None
            assert (row["state"], row["agent_state"]) == ("away", "not_responding")
            assert "is not responding" in row["why"]
            assert row["since"], "since when it is away"

            here.unreachable.clear()
            await viewer.until(lambda: viewer.state("ada") == "ready")


async def test_an_agent_that_left_is_away_for_a_while_and_then_gone() -> None:
    async with world() as here, viewing(here) as viewer:
        del here.desks["bob"]
        await viewer.until(lambda: viewer.state(BOB_NAME) == "away")
        row = viewer.row(BOB_NAME)
        assert row is not None
        assert "has ended" in row["why"]
        here.clock.advance(AWAY_SECONDS)
        await viewer.until(lambda: viewer.row(BOB_NAME) is None)

        assert viewer.got[-1] == RowRemoved(agent=BOB_NAME)
        assert viewer.state("ada") == "ready"


async def test_an_agent_that_was_missing_for_a_moment_is_followed_again() -> None:
    async with world() as here, viewing(here) as viewer:
        bob = here.desks.pop("bob")
        await viewer.until(lambda: viewer.state(BOB_NAME) == "away")
        here.desks["bob"] = bob

        await viewer.until(lambda: viewer.state(BOB_NAME) == "ready")


async def test_an_agent_that_comes_is_shown_and_one_that_restarts_is_followed_again() -> None:
    store = MemoryStore()
    carl = AgentEntry("synapse-codex-8122", "codex", name="carl", inbox="carl")
    desk = AgentHarness(store=store, me=carl)
    async with world(store=store) as here, viewing(here) as viewer, working(desk):
        here.entries["carl"], here.desks["carl"] = carl, desk
        await viewer.until(lambda: viewer.state("carl") == "ready")
        again = AgentEntry("synapse-codex-8123", "codex", name="carl", inbox="carl", pid=7)
        here.entries["carl"] = again
        await viewer.until(lambda: (row := viewer.row("carl")) and row["agent_id"] == "synapse-codex-8123")
        await viewer.until(lambda: viewer.state("carl") == "ready")
        assert here.watched["carl"] == 1


@pytest.mark.parametrize("failure", [RegistryFailed("no folder"), ValueError("a defect")])
async def test_agents_are_followed_while_the_registry_cannot_be_read(
    failure: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    carl = AgentEntry("synapse-codex-8122", "codex", name="carl", inbox="carl")
    desk = AgentHarness(store=store, me=carl)
    async with world(store=store) as here, viewing(here) as viewer, working(desk):
        task = await here.sent()
        failed = asyncio.Event()

        async def fail() -> None:
            failed.set()
            raise failure

        monkeypatch.setattr(here.directory, "refresh", fail)
        async with asyncio.timeout(BOUND):
            await failed.wait()
        await here.desks["ada"].finished(task)
        await viewer.until(lambda: viewer.state("ada") == "done")
        monkeypatch.undo()
        here.entries["carl"], here.desks["carl"] = carl, desk
        await viewer.until(lambda: viewer.state("carl") == "ready")


async def test_a_store_that_fails_ends_the_stream_with_an_error() -> None:
    async with world() as here, viewing(here) as viewer:

        async def fail(*_: object, **__: object) -> Any:
            raise StoreFailed("no disk")

        here.store.read_after = fail  # type: ignore[method-assign]  # what a broken disk does
        with pytest.raises(StoreFailed, match="the gateway's store failed"):
            async with viewing(here, after=0) as second:
                await second.until(lambda: False)
        assert viewer.state("ada") == "ready"


async def test_a_caller_limited_to_some_agents_sees_only_those() -> None:
    async with world() as here, viewing(here, ONLY_ADA) as viewer:
        await answered(here, agent=BOB_NAME)
        seen = await answered(here)
        await viewer.until(lambda: viewer.state("ada") == "done")
        last = await here.store.last_seq()
        await viewer.until(lambda: viewer.seqs[-1:] == [last])

        assert viewer.row(BOB_NAME) is None
        assert {one.task.id for one in viewer.got if isinstance(one, Update)} == {seen.id}
        with pytest.raises(AgentNotFound):
            await here.ask(GetAgentOverview(BOB_NAME), ONLY_ADA)


async def test_a_caller_with_a_scope_of_its_own_sees_nothing_of_other_tasks() -> None:
    secret = "the secret plan"
    driver = FakeDriver()
    driver.go_on.clear()
    async with world(driver) as here:
        await here.sent(secret, PHONE)
        async with asyncio.timeout(BOUND):
            await driver.taken.wait()
        told = await here.ask(GetOverview(), LAPTOP)
        agent = await here.ask(GetAgentOverview("ada"), LAPTOP)
        own = await here.ask(GetOverview(), PHONE)
        driver.go_on.set()

        assert secret not in repr(told)
        assert secret not in repr(agent)
        (ada,) = (row for row in told.rows if row["id"] == "ada")
        assert (ada["why"], ada["task"], ada["queue"], ada["folder"]) == ("", None, 0, "")
        assert agent.status.keys() <= {
            "state",
            "since",
            "agent_id",
            "agent_type",
            "name",
            "started_at",
            "current_task",
            "finished",
        }
        (mine,) = (row for row in own.rows if row["id"] == "ada")
        assert mine["task"]["text"] == secret


AGENT_HERE = Caller(via_socket=True, agent_id=ADA.agent_id)
PERSON_HERE = Caller(via_socket=True)


@pytest.mark.parametrize("caller", [AGENT_HERE, Caller(via_socket=True, doubt="it has exited"), Caller(is_owner=True)])
async def test_a_process_that_is_no_persons_sees_nothing_of_what_another_machine_asks_people(caller: Caller) -> None:
    driver = FakeDriver(lambda _: [Typing(), DeliveryUncertain("which?"), Failed("never", "reached")])
    driver.holds_before = Failed
    driver.go_on.clear()
    async with fleet_world(driver) as here:
        await here.desks["carl"].send("the secret plan", caller=PERSON_HERE)
        async with viewing(here, PERSON_HERE) as viewer:
            await viewer.until(lambda: viewer.state("carl@box2") == "in_doubt")
            told = await here.ask(GetOverview(), caller)
            agent = await here.ask(GetAgentOverview("carl@box2"), caller)
            async with viewing(here, caller, after=0) as resumed:
                await resumed.until(lambda: any(isinstance(one, StreamAlive) for one in resumed.got))
            whole = await here.ask(GetAgentOverview("carl@box2"), PERSON_HERE)

        assert "secret" in repr(whole)
        assert "which?" in repr(whole)
        for shown in (told, agent, resumed.got):
            assert "secret" not in repr(shown)
            assert "which?" not in repr(shown)
        assert "question" not in agent.status


@pytest.mark.parametrize(
    ("caller", "sees"),
    [
        (PERSON_HERE, True),
        (replace(SESSION, actions=frozenset({READ})), True),
        (SESSION_ELSEWHERE, False),
        (replace(OPERATOR, actions=frozenset({READ, "approve"})), True),
        (OPERATOR, False),
        (AGENT_HERE, False),
        (Caller(is_owner=True), False),
    ],
    ids=["person", "session", "session elsewhere", "operator who approves", "operator", "agent", "owner"],
)
async def test_the_whole_status_of_another_machine_is_for_those_who_decide(caller: Caller, sees: bool) -> None:
    async with fleet_world() as here:
        far = await here.ask(GetAgentOverview("carl@box2"), caller)
        near = await here.ask(GetAgentOverview("ada"), caller)

        assert ("why" in far.status) is sees
        assert ("why" in near.status) is (caller is not SESSION_ELSEWHERE)


async def test_the_queue_of_an_agent_elsewhere_counts_the_tasks_that_the_caller_may_list() -> None:
    driver = FakeDriver(lambda _: [Typing(), Failed("never", "reached")])
    driver.holds_before = Failed
    driver.go_on.clear()
    async with fleet_world(driver) as here, asyncio.timeout(BOUND):
        for number in range(3):
            await here.desks["carl"].send(f"message {number}", caller=Caller(via_socket=True))

        async def queue(caller: Caller) -> int:
            told = await here.ask(GetOverview(), caller)
            queued: int = next(row["queue"] for row in told.rows if row["id"] == "carl@box2")
            return queued

        while await queue(PERSON_HERE) != 2:
            await pause(0.01)

        assert (await queue(OPERATOR), await queue(LAPTOP)) == (2, 0)
        driver.go_on.set()


async def test_an_answer_to_another_caller_needs_nobody_here() -> None:
    async with world() as here:
        await answered(here, "mine", PHONE)
        told = await here.ask(GetOverview(), LAPTOP)
        agent = await here.ask(GetAgentOverview("ada"), PHONE)

        (ada,) = (row for row in told.rows if row["id"] == "ada")
        assert (ada["state"], ada["why"], ada["needs"], ada["unread"]) == ("ready", "", [], 0)
        assert agent.row["state"] == "done"
        assert [task["message"]["parts"][0]["text"] for task in agent.status["finished"]] == ["mine"]


def test_a_limited_row_tells_the_need_that_is_left() -> None:
    theirs: Any = {"task_id": "t1", "kind": "permission", "title": "theirs", "asked_at": "1", "folder": "/x"}
    ours: Any = {"task_id": "t2", "kind": "done", "title": "ours", "asked_at": "2", "folder": "/x"}
    row: Any = {
        "state": "asks",
        "why": "theirs",
        "since": "1",
        "agent_state": "waiting",
        "needs": [theirs, ours],
        "task": {"id": "t1"},
        "owes": [{"task_id": "t1"}, {"task_id": "t2"}],
    }

    limited = limited_row(row, {"t2"}, 3)

    assert (limited["state"], limited["why"], limited["since"]) == ("done", "ours", "2")
    assert (limited["task"], limited["queue"], limited["owes"]) == (None, 3, [{"task_id": "t2"}])
    assert [(need["title"], need["folder"]) for need in limited["needs"]] == [("ours", "")]


async def test_a_person_who_has_seen_the_answers_is_needed_no_more(tmp_path: Path) -> None:
    async with world(home=tmp_path) as here, viewing(here) as viewer:
        await answered(here)
        await viewer.until(lambda: viewer.state("ada") == "done")
        await here.ask(MarkSeen(agent="ada", until=here.clock.now() + timedelta(days=9)), SESSION)
        await viewer.until(lambda: viewer.state("ada") == "ready")

        assert seen_until(tmp_path, ADA.agent_id) == here.clock.now(), "later answers are not seen yet"
        with pytest.raises(AgentNotFound):
            await here.ask(MarkSeen(agent="nobody", until=here.clock.now()), SESSION)


async def test_only_people_see_answers(tmp_path: Path) -> None:
    async with world(home=tmp_path) as here:
        for caller in (
            LAPTOP,
            OPERATOR,
            SESSION_ELSEWHERE,
            Caller(is_owner=True),
            Caller(via_socket=True, agent_id="a"),
        ):
            with pytest.raises(Forbidden):
                await here.ask(MarkSeen(agent="ada", until=here.clock.now()), caller)

        assert seen_until(tmp_path, ADA.agent_id) is None


async def test_an_agent_that_is_not_here_has_no_overview() -> None:
    async with world() as here:
        with pytest.raises(AgentNotFound):
            await here.ask(GetAgentOverview("nobody"), OPERATOR)


async def test_a_screen_comes_from_the_agents_host_to_those_who_may_attach() -> None:
    attaching = replace(OPERATOR, actions=frozenset({"attach"}), agents=frozenset({"ada", BOB_NAME}))
    async with world() as here:
        shown = await here.ask(GetAgentScreen(agent="ada", lines=2), attaching)

        assert len(shown["lines"]) == 3
        assert await here.ask(GetAgentScreen(agent="ada", known="7"), attaching) is None
        with pytest.raises(UnsupportedOperation):
            await here.ask(GetAgentScreen(agent=BOB_NAME), attaching)
        with pytest.raises(AgentNotFound):
            await here.ask(GetAgentScreen(agent="nobody"), attaching)
        for caller in (OPERATOR, Caller(is_owner=True), replace(OPERATOR, actions=frozenset({"read", "approve"}))):
            with pytest.raises(Forbidden):
                await here.ask(GetAgentScreen(agent="ada"), caller)


async def test_a_timeline_comes_in_pages_and_only_to_those_who_see_the_task() -> None:
    async with world() as here:
        task = await answered(here)
        whole = await here.ask(GetTimeline(task_id=task.id), LAPTOP)
        first = await here.ask(GetTimeline(task_id=task.id, limit=2), LAPTOP)
        rest = await here.ask(GetTimeline(task_id=task.id, after=first.next_after), LAPTOP)

        assert whole.next_after is None
        assert first.events + rest.events == whole.events
        assert first.next_after == first.events[-1].seq
        with pytest.raises(TaskNotFound):
            await here.ask(GetTimeline(task_id=task.id), PHONE)


async def test_a_decision_about_a_message_in_doubt_reaches_its_host() -> None:
    driver = FakeDriver(lambda _: [Typing(), DeliveryUncertain("no proof"), Failed("never", "reached")])
    driver.holds_before = Failed
    driver.go_on.clear()
    decider = replace(OPERATOR, actions=frozenset({"approve"}))
    async with world(driver) as here:
        task = await here.sent()
        await here.desks["ada"].raised(task)

        done = await here.ask(ResolveTask(task_id=task.id, verdict="fail"), decider)

        assert (done.state, done.reason) == (TaskState.FAILED, "resolved_failed")


async def test_tasks_are_listed_by_their_sender() -> None:
    async with world() as here:
        mine, theirs = await answered(here, caller=LAPTOP), await answered(here, caller=PHONE)
        local = await answered(here, caller=Caller())

        async def listed(sender: str) -> list[str]:
            return [task.id for task in (await here.ask(ListTasks(sender=sender), OPERATOR)).tasks]

        assert await listed("key.laptop") == [mine.id]
        assert await listed("key.phone") == [theirs.id]
        assert await listed("unverified.user") == [local.id]
        assert await listed("key.nobody") == []


async def test_a_page_for_a_caller_of_some_agents_is_filled_from_the_next_ones() -> None:
    async with world() as here:
        wanted = [(await answered(here, f"ada {number}")).id for number in range(3)]
        for number in range(6):
            await answered(here, f"bob {number}", agent=BOB_NAME)

        page = await here.ask(ListTasks(limit=2), ONLY_ADA)
        then = await here.ask(ListTasks(limit=2, cursor=page.next_cursor), ONLY_ADA)

        assert [task.id for task in (*page.tasks, *then.tasks)] == wanted[::-1]
        assert (then.next_cursor, then.is_counted) == ("", False), "how many there are of others is not told"


async def test_a_filter_that_few_tasks_pass_reads_a_bounded_part_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "READ_AT_ONCE", 2)
    monkeypatch.setattr(tasks, "MOST_READS", 2)
    async with world() as here:
        wanted = await answered(here, "the oldest")
        for number in range(7):
            await answered(here, f"bob {number}", agent=BOB_NAME)
        pages = [await here.ask(ListTasks(limit=2), ONLY_ADA)]
        while pages[-1].next_cursor:
            pages.append(await here.ask(ListTasks(limit=2, cursor=pages[-1].next_cursor), ONLY_ADA))

        assert [[task.id for task in page.tasks] for page in pages] == [[], [wanted.id]]
