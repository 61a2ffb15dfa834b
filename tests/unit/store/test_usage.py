"""The usage file: one row for each request, sums by turn, task, agent, day and model."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from synapse.config.process import SystemClock
from synapse.core.agent import AgentEntry
from synapse.core.errors import StoreCorrupt, StoreTooNew
from synapse.core.task import TaskId
from synapse.core.usage import SESSION_COST, TokenCounts, UsageGroup, UsageReport, UsageTotal
from synapse.store.usage import KEPT, UsageQuery, UsageWriter, known_agents, read_usage, tasks_beginning, usage_path
from tests.fakes.clock import FakeClock

SECONDS = 20.0
NOON = FakeClock().now()
ONE = TokenCounts(input=100, output=20, cache_read=1000, cache_write=300, reasoning=7)


@contextmanager
def writing(path: Path, name: str = "lead", clock: FakeClock | None = None) -> Generator[UsageWriter]:
    me = AgentEntry(f"synapse-{name}-8100", "claude", name=name, inbox=name)
    writer = UsageWriter(path, me, clock or FakeClock())
    try:
        yield writer
    finally:
        writer.close(SECONDS)


def report(request: str = "r1", turn: str = "t1", **more: Any) -> UsageReport:
    fields: dict[str, Any] = {"session": "s", "model": "opus", "tokens": ONE, "at": NOON, **more}
    return UsageReport(request=request, turn=turn, **fields)


def rows(path: Path, by: UsageGroup, **more: Any) -> list[tuple[str, UsageTotal]]:
    """The groups, each with the text that names it."""
    field = {UsageGroup.DAY: "day", UsageGroup.MODEL: "model", UsageGroup.TURN: "turn", UsageGroup.TASK: "task"}
    found = read_usage(path, UsageQuery(by=by, **more))
    return [(row.key[field.get(by, "agent")], row.total) for row in found]


def wait_until(condition: Callable[[], bool]) -> None:
    """Waits for a writer's thread. Raises AssertionError when it never holds."""
    pause, clock = Event(), SystemClock()
    deadline = clock.monotonic() + SECONDS
    while not condition():
        assert clock.monotonic() < deadline
        pause.wait(0.01)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return usage_path(tmp_path / "home")


def test_requests_are_added_up_in_every_way(path: Path) -> None:
    with writing(path) as writer:
        writer.record(report("r1", "t1"))
        writer.record(report("r2", "t2", model="haiku", at=NOON + timedelta(days=1)))
        writer.record(report("r3", "t2", at=NOON + timedelta(days=1)))
        writer.name_turn("t2", TaskId("task-2"))

    two = UsageTotal(tokens=ONE + ONE, requests=2, unpriced=2)
    one = UsageTotal(tokens=ONE, requests=1, unpriced=1)
    assert rows(path, UsageGroup.TURN) == [("t2", two), ("t1", one)]
    assert rows(path, UsageGroup.TASK) == [("task-2", two), ("", one)]
    assert rows(path, UsageGroup.AGENT) == [("lead", two + one)]
    assert [total for _, total in rows(path, UsageGroup.DAY)] == [two, one]
    assert sorted(rows(path, UsageGroup.MODEL), key=lambda row: row[0]) == [("haiku", one), ("opus", two)]


def test_reading_a_transcript_again_changes_nothing(path: Path) -> None:
    for _ in range(2):
        with writing(path) as writer:
            writer.record(report("r1"))
            writer.record(report("r1"))
            writer.name_turn("t1", TaskId("task-1"))

    assert rows(path, UsageGroup.TASK) == [("task-1", UsageTotal(tokens=ONE, requests=1, unpriced=1))]


def test_a_request_that_grows_counts_with_its_last_numbers_in_any_order(path: Path) -> None:
    begin = TokenCounts(input=100, output=1)
    with writing(path) as writer:
        for tokens in (begin, ONE, begin):
            writer.record(report(tokens=tokens))

    assert rows(path, UsageGroup.AGENT) == [("lead", UsageTotal(tokens=ONE, requests=1, unpriced=1))]


def test_the_task_of_a_turn_may_be_known_before_or_after_its_requests(path: Path) -> None:
    with writing(path) as writer:
        writer.name_turn("early", TaskId("task-1"))
        writer.record(report("r1", "early"))
        writer.record(report("r2", "late"))
    with writing(path) as writer:
        writer.name_turn("late", TaskId("task-2"))

    assert {task for task, _ in rows(path, UsageGroup.TASK)} == {"task-1", "task-2"}


def test_a_turn_of_an_unknown_name_belongs_to_no_task(path: Path) -> None:
    with writing(path) as writer:
        writer.name_turn("", TaskId("task-1"))
        writer.record(report("r1", ""))

    assert [task for task, _ in rows(path, UsageGroup.TASK)] == [""]


def test_money_is_added_up_exactly_and_what_has_no_price_is_counted(path: Path) -> None:
    with writing(path) as writer:
        writer.record(report("r1", cost=Decimal("0.1")))
        writer.record(report("r2", cost=Decimal("0.2")))
        writer.record(report("r3"))

    [(_, total)] = rows(path, UsageGroup.AGENT)
    assert (total.cost, total.unpriced, total.requests) == (Decimal("0.3"), 1, 3)


def test_the_cost_of_a_session_counts_for_agents_and_days_and_is_no_request(path: Path) -> None:
    with writing(path) as writer:
        writer.record(report("r1"))
        for cost in ("0.5", "0.7"):
            told = report(SESSION_COST, "", tokens=TokenCounts(), model="", cost=Decimal(cost))
            writer.record(told)
        writer.record(report("r2", session="another"))

    for by in (UsageGroup.AGENT, UsageGroup.DAY):
        [(_, total)] = rows(path, by)
        assert (total.cost, total.unpriced, total.requests) == (Decimal("0.7"), 1, 2)
    for by in (UsageGroup.TURN, UsageGroup.MODEL):
        found = rows(path, by)
        assert all(total.cost is None for _, total in found)
        assert sum(total.unpriced for _, total in found) == 2


def test_what_is_asked_for_can_be_one_agent_one_task_and_since_when(path: Path) -> None:
    with writing(path) as writer:
        writer.record(report("r1", "t1", at=NOON - timedelta(days=9)))
        writer.record(report("r2", "t2"))
        writer.name_turn("t2", TaskId("abc-2"))
    with writing(path, "other") as writer:
        writer.record(report("r1", "t1"))

    assert {agent for agent, _ in rows(path, UsageGroup.AGENT)} == {"lead", "other"}
    [(agent, total)] = rows(path, UsageGroup.AGENT, inboxes=("lead",), since=NOON - timedelta(days=1))
    assert (agent, total.requests) == ("lead", 1)
    assert rows(path, UsageGroup.TASK, task="abc-2") == [("abc-2", UsageTotal(tokens=ONE, requests=1, unpriced=1))]
    assert tasks_beginning(path, "ab") == ["abc-2"]
    assert tasks_beginning(path, "b") == []
    assert {entry.name for entry in known_agents(path)} == {"lead", "other"}


def test_without_a_file_there_is_no_usage_and_none_is_made(path: Path) -> None:
    assert read_usage(path, UsageQuery()) == []
    assert known_agents(path) == []
    assert not path.exists()


def test_the_file_is_private(path: Path) -> None:
    with writing(path) as writer:
        writer.record(report())

    assert path.stat().st_mode & 0o077 == 0


def test_the_status_has_the_sums_of_today_and_of_all(path: Path) -> None:
    clock = FakeClock()
    with writing(path, clock=clock) as writer:
        writer.record(report("r1", at=NOON - timedelta(days=3)))
        writer.record(report("r2"))
    writer = UsageWriter(path, AgentEntry("synapse-lead-8100", "claude", name="lead", inbox="lead"), clock)
    writer.close(SECONDS)

    usage = writer.usage()
    assert usage is not None
    assert (usage.today.requests, usage.overall.requests) == (1, 2)

    clock.advance(24 * 3600.0)
    tomorrow = writer.usage()
    assert tomorrow is not None
    assert (tomorrow.today.requests, tomorrow.overall.requests) == (0, 2)


def test_old_rows_are_deleted(path: Path) -> None:
    with writing(path) as writer:
        writer.record(report("old", at=NOON - KEPT - timedelta(days=1)))
        writer.record(report("new", at=NOON - KEPT + timedelta(days=1)))

    [(_, total)] = rows(path, UsageGroup.AGENT)
    assert total.requests == 1


def test_a_damaged_file_is_moved_aside_and_the_numbers_go_on(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"this is no database " * 100)
    with pytest.raises(StoreCorrupt):
        read_usage(path, UsageQuery())
    with writing(path) as writer:
        writer.record(report())
        # It is not yet closing while it moves the file.
        wait_until(path.with_name("usage.db.damaged").exists)
        writer.close(0.0)
    with writing(path) as writer:
        writer.record(report())

    assert [agent for agent, _ in rows(path, UsageGroup.AGENT)] == ["lead"]
    assert path.with_name("usage.db.damaged").read_bytes().startswith(b"this is no database")


def test_a_file_of_a_newer_version_is_left_alone(path: Path) -> None:
    with writing(path) as writer:
        writer.record(report())
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")
    with writing(path) as writer:
        writer.record(report("r2"))

    with pytest.raises(StoreTooNew):
        read_usage(path, UsageQuery())


def test_a_file_that_cannot_be_written_harms_nobody(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("in the way", encoding="utf-8")
    with writing(usage_path(tmp_path / "home")) as writer:
        writer.record(report())
        assert writer.usage() is None


def test_a_deleted_file_is_made_again(path: Path) -> None:
    with writing(path) as writer:
        writer.record(report("r1"))
        # With the sums made the writer is idle: three files cannot be deleted at once, and it may open anew in between.
        wait_until(lambda: writer.usage() is not None)
        for file in path.parent.glob("usage.db*"):
            file.unlink()
        writer.record(report("r2"))

    [(_, total)] = rows(path, UsageGroup.AGENT)
    assert total.requests == 1


def test_many_agents_write_at_once(path: Path) -> None:
    names = [f"agent-{number}" for number in range(8)]
    me = [AgentEntry(f"synapse-{name}-1", "claude", name=name, inbox=name) for name in names]
    writers = [UsageWriter(path, entry, FakeClock()) for entry in me]
    for number in range(50):
        for writer in writers:
            writer.record(report(f"r{number}"))
    wait_until(lambda: len(rows(path, UsageGroup.AGENT)) == len(names))
    for writer in writers:
        writer.close(SECONDS)

    assert sorted((agent, total.requests) for agent, total in rows(path, UsageGroup.AGENT)) == [
        (name, 50) for name in names
    ]


def test_text_that_cannot_be_stored_is_replaced(path: Path) -> None:
    with writing(path) as writer:
        writer.record(report("r\ud800", model="m\ud800"))

    assert rows(path, UsageGroup.MODEL) == [("m?", UsageTotal(tokens=ONE, requests=1, unpriced=1))]
