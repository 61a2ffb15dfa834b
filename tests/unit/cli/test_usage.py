"""`synapse usage`: tables that fit 80 columns, totals, and honest words about costs that nobody told."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from synapse.cli import tables
from synapse.cli.usage import dollars
from synapse.client.lines import short_number, width
from synapse.config.process import SystemClock
from synapse.core.agent import AgentEntry
from synapse.core.task import TaskId
from synapse.core.usage import SESSION_COST, TokenCounts, UsageReport
from synapse.store.usage import UsageWriter, usage_path
from tests.unit.cli.conftest import Cli, HostFactory

Spend = Callable[..., None]
TOKENS = TokenCounts(input=1234, output=56, cache_read=7_890_123, cache_write=4567, reasoning=7)
TASK = TaskId("54241e7e-0000-4000-8000-000000000001")
OTHER = TaskId("54241e7e-0000-4000-8000-000000000002")


@pytest.fixture
def spend(home: Path) -> Spend:
    """Writes the usage of an agent's turns: request, turn and task of each."""

    def write(agent: str, *turns: tuple[str, str, str], **more: Any) -> None:
        agent_type = more.pop("agent_type", agent)
        name = "" if agent_type == agent else agent
        me = AgentEntry(f"synapse-{agent_type}-8120", agent_type, name=name, inbox=agent)
        writer = UsageWriter(usage_path(home), me, SystemClock())
        for request, turn, task in turns:
            fields: dict[str, Any] = {"session": "s", "model": "m1", "tokens": TOKENS, **more}
            writer.record(UsageReport(request=request, turn=turn, **fields))
            if task:
                writer.name_turn(turn, TaskId(task))
        writer.close(20.0)

    return write


def test_each_agent_and_all_of_them_are_added_up(synapse: Cli, spend: Spend) -> None:
    spend("codex", ("r1", "t1", TASK), ("r2", "t2", ""))
    spend("reviewer", ("r1", "t1", ""), agent_type="opencode", cost=Decimal("1.5"))

    ran = synapse("usage")

    titles, *rows = [line.split() for line in ran.out.splitlines()]
    assert titles == ["AGENT", "CALLS", "INPUT", "CACHED", "WRITTEN", "OUTPUT", "COST"]
    assert sorted(rows[:2]) == [
        ["codex-8120", "2", "2.5k", "15.8M", "9.1k", "112", "-"],
        ["reviewer", "1", "1.2k", "7.9M", "4.6k", "56", "$1.50"],
    ]
    assert rows[2] == ["in", "all", "3", "3.7k", "23.7M", "13.7k", "168", "$1.50"]
    assert ran.err == "cost: not told by codex\n"


def test_claude_says_when_its_cost_comes(synapse: Cli, spend: Spend) -> None:
    spend("claude", ("r1", "t1", TASK))
    before = synapse("usage")
    spend("claude", (SESSION_COST, "", ""), tokens=TokenCounts(), cost=Decimal("0.0077"))

    assert before.err == "cost: claude tells it for a whole session, at its end\n"
    assert "$0.0077" in synapse("usage").out
    assert synapse("usage").err == ""
    assert "at its end (--by agent, --by day)" in synapse("usage", "--by", "task").err


def test_an_agent_is_shown_day_by_day_and_a_task_turn_by_turn(synapse: Cli, spend: Spend) -> None:
    now = SystemClock().now()
    spend("codex", ("r1", "t1", TASK), at=now - timedelta(days=3))
    spend("codex", ("r2", "t2", TASK), ("r3", "t3", ""), at=now)
    spend("gemini", ("r1", "t1", ""))

    days = [line.split()[:2] for line in synapse("usage", "codex").out.splitlines()]
    turns = [line.split()[:4] for line in synapse("usage", "--task", "54241e7e").out.splitlines()]
    assert turns[2][2] == "3d"

    assert [day[0] for day in days] == ["DAY", f"{now.astimezone():%Y-%m-%d}", days[2][0], "in"]
    assert [day[1] for day in days[1:3]] == ["2", "1"]
    assert [turn[1] for turn in turns] == ["TASK", "54241e7e", "54241e7e", "all"]
    assert [turn[0] for turn in turns[1:3]] == ["codex-8120", "codex-8120"]


@pytest.mark.parametrize("target", ["codex", "codex-8120", "synapse-codex-8120", "@codex"])
def test_an_agent_is_found_by_all_of_its_names_also_when_it_has_stopped(
    synapse: Cli, spend: Spend, target: str
) -> None:
    spend("codex", ("r1", "t1", ""))

    assert synapse("usage", target, "--json").json["total"]["requests"] == 1


def test_json_has_exact_numbers_and_times(synapse: Cli, spend: Spend) -> None:
    spend("codex", ("r1", "t1", TASK), at=datetime.fromisoformat("2026-11-16T12:00:00Z"))

    told = synapse("usage", "--by", "turn", "--json").json

    tokens = {"input": 1234, "output": 56, "cache_read": 7890123, "cache_write": 4567, "reasoning": 7, "total": 7895980}
    total = {"tokens": tokens, "requests": 1, "cost_usd": None, "unpriced_requests": 1}
    assert told == {
        "by": "turn",
        "since": None,
        "rows": [
            {
                "agent": "codex-8120",
                "agent_id": "synapse-codex-8120",
                "agent_type": "codex",
                "inbox": "codex",
                "task": TASK,
                "session": "s",
                "turn": "t1",
                "model": "m1",
                "last": "2026-11-16T12:00:00.000Z",
                **total,
            }
        ],
        "total": total,
    }


@pytest.mark.parametrize(("since", "count"), [("2d", 1), ("48h", 1), ("1w", 2), ("2020-01-01", 2), ("2999-01-01", 0)])
def test_since_takes_a_time_or_a_date(synapse: Cli, spend: Spend, since: str, count: int) -> None:
    now = SystemClock().now()
    spend("codex", ("old", "t1", ""), at=now - timedelta(days=5))
    spend("codex", ("new", "t2", ""), at=now)

    assert synapse("usage", "--since", since, "--json").json["total"]["requests"] == count


@pytest.mark.parametrize("since", ["7", "7x", "yesterday", "2026-13-01", "999999w"])
def test_a_time_that_is_none_is_refused_with_examples(synapse: Cli, since: str) -> None:
    ran = synapse("usage", "--since", since)

    assert ran.code == 2
    assert "must be a time such as 12h, 7d or 4w, or a date" in ran.err


def test_without_any_usage_it_says_what_is_counted(synapse: Cli, start: HostFactory) -> None:
    start()

    assert "No usage is known yet." in synapse("usage").err
    assert "No usage is known of codex yet." in synapse("usage", "codex").err
    assert synapse("usage", "--json").json["rows"] == []
    assert synapse("usage", "nobody").code == synapse("status", "nobody").code != 0


def test_a_task_whose_turns_told_nothing_has_no_usage_and_an_unknown_one_is_an_error(
    synapse: Cli, start: HostFactory
) -> None:
    task = start().open({"message": {"role": "user", "parts": [{"type": "text", "text": "hello"}]}})
    short = str(task["id"])[:8]

    assert f"No usage is known of task {short} yet." in synapse("usage", "--task", short).err
    assert synapse("usage", "--task", "deadbeef").code == synapse("status", "deadbeef").code != 0


def test_a_beginning_that_several_tasks_have_is_refused(synapse: Cli, spend: Spend) -> None:
    spend("codex", ("r1", "t1", TASK), ("r2", "t2", OTHER))

    ran = synapse("usage", "--task", "5424")

    assert ran.code != 0
    assert TASK in ran.err
    assert OTHER in ran.err


@pytest.mark.parametrize(
    ("by", "columns"), [("turn", 80), ("task", 80), ("agent", 80), ("agent", 60), ("day", 60), ("model", 60)]
)
def test_tables_fit(synapse: Cli, spend: Spend, monkeypatch: pytest.MonkeyPatch, by: str, columns: int) -> None:
    huge = TokenCounts(input=999_949, output=123_456_789, cache_read=99_999_999_999, cache_write=999_999)
    name = "審査担当のとても長い名前-with-a-long-tail-that-does-not-fit"
    spend(name, ("r1", "t1", TASK), agent_type="codex", tokens=huge, model="m" * 70, cost=Decimal("1234.5"))
    monkeypatch.setattr(tables, "line_width", lambda: columns)

    ran = synapse("usage", "--by", by)

    assert max(map(width, ran.out.splitlines())) <= columns


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (999, "999"),
        (1000, "1.0k"),
        (999_949, "999.9k"),
        (999_950, "1.0M"),
        (5_000_000_000_000_000, "5000.0T"),
    ],
)
def test_a_number_is_short(number: int, text: str) -> None:
    assert short_number(number) == text


@pytest.mark.parametrize(("cost", "text"), [(None, "-"), ("0", "$0.00"), ("0.00768", "$0.0077"), ("12.346", "$12.35")])
def test_money_is_rounded(cost: str | None, text: str) -> None:
    assert dollars(None if cost is None else Decimal(cost)) == text
