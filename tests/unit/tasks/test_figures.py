"""The figures of the last hour and day, counted from events."""

from __future__ import annotations

from typing import Any

import pytest

from synapse.core.address import SYSTEM
from synapse.core.events import TaskEvent
from synapse.core.question import WAITING_FOR_PERSON
from synapse.core.task import ReceiptStep, TaskState
from synapse.core.task_metadata import asking_person
from synapse.tasks import figures
from synapse.tasks.figures import FigureCounter, Group, percentile
from tests.fakes.facts import after, handed, hidden, moved, numbered, opened, raised, said, stepped

ASKS = moved(TaskState.INPUT_REQUIRED, at=30, reason=WAITING_FOR_PERSON)


def counted(*events: TaskEvent) -> FigureCounter:
    counter = FigureCounter()
    for event in events:
        counter.count(event)
    return counter


def by_agent_id(group: Group) -> str:
    return group.agent_id


def figures_of(counter: FigureCounter, at: float = 60, hours: int = 1) -> dict[str, Any]:
    shown = counter.figures(after(at), hours, by_agent_id)
    return {**shown["total"], "steps": [place for place, number in enumerate(shown["total"]["messages"]) if number]}


def test_a_message_is_counted_in_its_minute_and_timed_from_when_it_was_queued() -> None:
    story = (
        opened(at=0),
        stepped(ReceiptStep.TYPED, at=1),
        stepped(ReceiptStep.SUBMITTED, at=2.5),
        moved(TaskState.WORKING, at=3),
        handed("done", at=9),
        stepped(ReceiptStep.ANSWERED, at=10),
        moved(TaskState.COMPLETED, at=10),
    )

    shown = counted(*story).figures(after(60), 1, by_agent_id)

    assert (shown["from"], shown["to"], shown["step_seconds"]) == (
        "2026-01-15T09:32:00.000Z",
        "2026-01-15T10:32:00.000Z",
        60,
    )
    assert shown["agents"] == [{"agent": "synapse-codex-8120", **shown["total"]}]
    assert shown["total"] == {
        "messages": [0] * 58 + [1, 0],
        "submitted_p50": 2.5,
        "submitted_p95": 2.5,
        "answered_p50": 10.0,
        "answered_p95": 10.0,
        "waiting_seconds": 0.0,
        "finished": 1,
        "failed": 0,
    }


def test_a_day_has_a_step_for_each_quarter_of_an_hour() -> None:
    shown = counted(opened(at=0)).figures(after(3600), 24, by_agent_id)

    assert (shown["step_seconds"], len(shown["total"]["messages"])) == (900, 96)
    assert shown["total"]["messages"][-5:] == [1, 0, 0, 0, 0]


def test_what_is_older_than_the_window_is_left_out() -> None:
    counter = counted(opened(at=0), moved(TaskState.FAILED, at=1))

    assert figures_of(counter, at=3590)["finished"] == 1
    assert figures_of(counter, at=3700)["finished"] == 0
    assert figures_of(counter, at=3700, hours=24)["failed"] == 1
    assert figures_of(counter, at=90_000, hours=24)["failed"] == 0


def test_a_follow_up_is_a_message_of_its_own_and_an_answer_of_the_agent_is_none() -> None:
    counter = counted(
        opened(at=0),
        moved(TaskState.WORKING, at=1),
        moved(TaskState.INPUT_REQUIRED, at=2),
        said("more", at=20),
        stepped(ReceiptStep.QUEUED, at=20),
        stepped(ReceiptStep.SUBMITTED, at=24),
    )

    shown = figures_of(counter)

    assert (sum(shown["messages"]), shown["submitted_p50"]) == (2, 4.0)


def test_waiting_for_a_person_counts_until_the_answer_and_until_now() -> None:
    start = (opened(at=0), moved(TaskState.WORKING, at=1), ASKS)

    assert figures_of(counted(*start), at=45)["waiting_seconds"] == 15
    ended = counted(*start, moved(TaskState.WORKING, at=100), moved(TaskState.COMPLETED, at=110))
    assert figures_of(ended, at=200)["waiting_seconds"] == 70


def test_a_question_to_another_agent_is_no_wait_for_a_person() -> None:
    counter = counted(opened(at=0), moved(TaskState.WORKING, at=1), moved(TaskState.INPUT_REQUIRED, at=2))

    assert figures_of(counter)["waiting_seconds"] == 0


def test_doubt_counts_as_waiting_and_never_twice() -> None:
    counter = counted(opened(at=0), raised("in doubt", at=10), raised("still", at=20), raised("", at=40))
    both = counted(opened(at=0), moved(TaskState.WORKING, at=1), raised("in doubt", at=20), ASKS)

    assert figures_of(counter)["waiting_seconds"] == 30
    assert figures_of(both, at=50)["waiting_seconds"] == 30


@pytest.mark.parametrize("end", [moved(TaskState.CANCELED, at=50), hidden(at=50)], ids=["ended", "deleted"])
def test_a_task_that_ends_waits_no_longer(end: TaskEvent) -> None:
    counter = counted(opened(at=0), moved(TaskState.WORKING, at=1), raised("doubt", at=5), ASKS, end)

    assert figures_of(counter, at=300)["waiting_seconds"] == 45


def test_a_wait_of_days_counts_for_the_window_only() -> None:
    counter = counted(opened(at=0), moved(TaskState.WORKING, at=1), ASKS)

    shown = figures_of(counter, at=3 * 86400, hours=1)

    # The window ends with the current minute, which has just begun.
    assert shown["waiting_seconds"] == 3540


def test_instructions_and_waits_for_a_reply_are_no_messages() -> None:
    system = {"sender": {"sender_id": SYSTEM, "sender_type": "system", "sender_endpoint": ""}}
    counter = counted(
        opened("a", metadata=system),
        stepped(ReceiptStep.SUBMITTED, "a"),
        moved(TaskState.COMPLETED, "a"),
        opened("b", queued=False),
        moved(TaskState.COMPLETED, "b"),
    )

    shown = figures_of(counter)

    assert (shown["steps"], shown["submitted_p50"], shown["finished"]) == ([], None, 0)


def test_a_question_of_the_agents_own_waits_but_is_no_message() -> None:
    counter = counted(opened(at=0, queued=False, metadata=asking_person()), ASKS, moved(TaskState.COMPLETED, at=50))

    shown = figures_of(counter)

    assert (shown["steps"], shown["waiting_seconds"], shown["finished"]) == ([], 20, 0)


def test_agents_are_apart_and_those_without_a_name_are_left_out() -> None:
    counter = counted(opened("a", agent_id="x"), opened("b", agent_id="y"), opened("c", agent_id="y", scope="key:1"))

    def name_of(group: Group) -> str | None:
        return group.agent_id if group.scope == "local" else None

    shown = counter.figures(after(1), 1, name_of, ["quiet"])

    assert {row["agent"]: sum(row["messages"]) for row in shown["agents"]} == {"quiet": 0, "x": 1, "y": 1}
    assert sum(shown["total"]["messages"]) == 2


def test_a_clock_that_was_set_back_makes_no_negative_time() -> None:
    assert figures_of(counted(opened(at=5), stepped(ReceiptStep.SUBMITTED, at=1)))["submitted_p50"] == 0


def test_events_of_an_unknown_task_are_left_out() -> None:
    counter = counted(moved(TaskState.COMPLETED, at=1), stepped(ReceiptStep.ANSWERED))

    assert figures_of(counter)["finished"] == 0


def test_no_more_ended_tasks_are_remembered_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "_MAX_ENDED", 2)
    tasks = [numbered(number) for number in range(4)]

    counter = counted(*(event for task in tasks for event in (opened(task), moved(TaskState.COMPLETED, task))))

    assert [counter.knows(task) for task in tasks] == [False, False, True, True]
    assert figures_of(counter)["finished"] == 4


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [([], 50, None), ([1.0], 95, 1.0), ([1.0, 2.0, 3.0], 50, 2.0), ([1.0, 2.0], 50, 1.0), ([*range(1, 101)], 95, 95)],
)
def test_a_percentile_is_one_of_the_values(values: list[float], percent: int, expected: float | None) -> None:
    assert percentile(values, percent) == expected
