"""kill -9 of the host, the program, or both, at every step of a delivery and between any two.

Each test kills at one exact point, starts the agent again under the same name, decides about doubt as a person would
who has looked, and then compares what the program received with what the journal says: nothing lost, nothing twice.
"""

from __future__ import annotations

import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from synapse.client.http import NoAnswer
from synapse.core.task import ReceiptStep, Task, TaskState
from tests.integration.chaos.house import LINE_RULES, House, RunningHost, nonces, open_house, status_of, steps_of
from tests.integration.recovery.journal_file import all_tasks
from tests.integration.waiting import until

pytestmark = pytest.mark.integration

FAULTY_HOST = str(Path(__file__).with_name("faulty_host.py"))
STEPS = ("queued", "typed", "submitted", "turn_started", "answered")
POINTS = (
    *(f"commit:{step}:{moment}" for step in STEPS for moment in ("before", "after")),
    *(f"write:{what}:{moment}" for what in ("text", "enter") for moment in ("before", "after")),
)
MESSAGE_ID = "a message id of our own"
NONCE = "c0ffee000001"
TEXT = f"do this once <<{NONCE}>>"


def start(house: House, *launcher: str) -> RunningHost:
    house.add_profile("recorder", LINE_RULES, "line_recorder", "--works", "0.2")
    return house.start("recorder", name="victim", launcher=launcher)


def count_received(house: House) -> int:
    return sum(nonces(one.text).count(NONCE) for one in house.received("recorder"))


def broken_off(house: House, victim: str, point: str) -> Task | None:
    """Send a message, have somebody killed at `point`; return the task as it is durable then, or None."""
    host = start(house, FAULTY_HOST, victim, point)
    # Whoever is killed before it could answer has promised nothing.
    with suppress(NoAnswer):
        host.send(TEXT, message_id=MESSAGE_ID)
    host.wait_until_gone()
    tasks = all_tasks(house.home / "store.db")
    assert len(tasks) <= 1
    return tasks[0] if tasks else None


def last_step(task: Task) -> str:
    assert task.receipt is not None
    return task.receipt.step.value


@pytest.mark.parametrize("victim", ["host", "both"])
@pytest.mark.parametrize("point", POINTS)
def test_a_host_that_is_killed_leaves_nothing_lost_and_nothing_typed_twice(victim: str, point: str) -> None:
    with open_house() as house:
        left = broken_off(house, victim, point)
        before = count_received(house)
        assert before <= 1
        kind, step, moment = point.split(":")
        if kind == "commit" and moment == "after":
            # The events of a message may share a transaction, so a later step can be there too.
            assert left is not None
            assert ReceiptStep(step) in [receipt.step for receipt in left.receipts]

        host = start(house)
        task_id = host.accepted(TEXT, message_id=MESSAGE_ID)
        if left is None or last_step(left) == "queued":
            assert before == 0
            assert status_of(host.finished(task_id)) == "completed"
        elif last_step(left) == "typed":
            resolve_as_a_person_who_looked(house, host, task_id, was_received=before == 1)
        else:
            assert left.id == task_id
            ended = host.finished(task_id)
            assert (status_of(ended), ended["metadata"].get("reason", "")) == (
                ("completed", "") if last_step(left) == "answered" else ("failed", "agent_exited")
            )
        assert count_received(house) == 1 or last_step_is_failed(host, task_id)
        the_agent_goes_on(host)
        assert count_received(house) <= 1


@pytest.mark.parametrize("point", POINTS)
def test_a_program_that_is_killed_fails_what_it_worked_on_and_gets_the_rest_at_its_next_start(point: str) -> None:
    with open_house() as house:
        left = broken_off(house, "program", point)
        assert left is not None, "the host lives, so it keeps what it has accepted"
        before = count_received(house)
        assert before <= 1

        host = start(house)
        if last_step(left) == "queued":
            assert before == 0
            assert status_of(host.finished(left.id)) == "completed"
            assert count_received(house) == 1
        else:
            assert left.state.is_terminal
            assert left.reason == ("" if left.state is TaskState.COMPLETED else "agent_exited")
        the_agent_goes_on(host)
        assert count_received(house) <= 1


@pytest.mark.parametrize(
    ("verdict", "status", "received"),
    [("--retry", "completed", 1), ("--delivered", "completed", 0), ("--fail", "failed", 0)],
)
def test_a_person_decides_about_what_was_typed_before_the_host_was_killed(
    verdict: str, status: str, received: int
) -> None:
    with open_house() as house:
        left = broken_off(house, "host", "write:text:after")
        assert left is not None
        host = start(house)
        host.wait_for(left.id, lambda task: bool(task["metadata"].get("attention")), "attention")

        listed = house.synapse("list")
        assert left.short_id in listed.err
        assert "not certain" in listed.err
        assert "not certain" in house.synapse("status", left.id).out
        decided = house.synapse("resolve", left.short_id, verdict)

        assert decided.code == 0, decided.err
        assert status_of(host.finished(left.id)) == status
        assert count_received(house) == received
        assert house.synapse("resolve", left.short_id, verdict).code != 0
        the_agent_goes_on(host)


def test_the_queue_goes_on_in_its_order_after_the_host_was_killed() -> None:
    with open_house() as house:
        host = start(house)
        busy = host.accepted("<<c0ffee0000aa>>")
        host.wait_for(busy, lambda task: "typed" in steps_of(task), "the first to be typed")
        wanted = [(3, "1"), (1, "2"), (4, "3"), (3, "4")]
        tasks = [host.accepted(f"<<c0ffee00000{number}>>", priority=priority) for priority, number in wanted]
        host.kill()

        again = start(house)
        for task in tasks:
            assert status_of(again.finished(task)) == "completed"
        got = [nonce[-1] for one in house.received("recorder") for nonce in nonces(one.text)]
        assert [number for number in got if number != "a"] == ["3", "1", "4", "2"]


def resolve_as_a_person_who_looked(house: House, host: RunningHost, task_id: str, *, was_received: bool) -> None:
    """It is in doubt and stays so; then somebody decides."""
    told = host.wait_for(task_id, lambda task: bool(task["metadata"].get("attention")), "attention")
    assert "not certain" in told["metadata"]["attention"]
    the_agent_goes_on(host)
    assert count_received(house) == int(was_received), "what is in doubt is never typed again by itself"
    done = house.synapse("resolve", task_id[:8], "--delivered" if was_received else "--retry")
    assert done.code == 0, done.err
    assert status_of(host.finished(task_id)) == "completed"


def the_agent_goes_on(host: RunningHost) -> None:
    """Whatever happened, the next message is delivered and answered."""
    task = host.accepted("and then <<c0ffee999999>>")
    assert status_of(host.finished(task)) == "completed"


def last_step_is_failed(host: RunningHost, task_id: str) -> bool:
    return steps_of(host.task(task_id))[-1] == "failed"


def test_a_command_that_is_killed_while_it_sends_leaves_one_message_or_none() -> None:
    with open_house() as house:
        host = start(house)
        for number in range(12):
            sending = subprocess.Popen(
                house.command("send", "victim", f"<<{number:012x}>>", "--response"),
                cwd=house.folder,
                env=house.environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            with suppress(subprocess.TimeoutExpired):
                sending.wait(0.02 * number)
            sending.kill()
            sending.wait()
        # The host may still accept the message of a killed command; the next one is queued behind it.
        the_agent_goes_on(host)
        until(lambda: not host.get("/queue").body["tasks"], "the queue to be empty")
        until(lambda: host.get("/status").body["current_task"] is None, "the last turn to end")

        tasks = all_tasks(house.home / "store.db")
        got = [nonce for one in house.received("recorder") for nonce in nonces(one.text)]
        assert sorted(got) == sorted(nonce for task in tasks for nonce in nonces(task.message.text))
        assert all(task.state is TaskState.COMPLETED for task in tasks)
        assert len(got) == len(set(got))
