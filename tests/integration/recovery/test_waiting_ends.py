"""Waiting that cannot hang: circles, agents that end or are killed, deadlines, doubt and loops, on the command line."""

from __future__ import annotations

import fcntl
import json
import signal
import socket
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from synapse.client.events import EventStream, open_stream
from synapse.client.http import HostAddress
from synapse.client.views import has_left
from synapse.store.file import lock_path
from tests.integration.chaos.house import LINE_RULES, House, RunningHost, nonces, open_house, status_of, steps_of
from tests.integration.waiting import until

pytestmark = pytest.mark.integration

REFUSED, NOT_RESPONDING = 7, 8


@contextmanager
def asking(house: House, asker: RunningHost, *arguments: str) -> Generator[subprocess.Popen[str]]:
    """`synapse …` as it is run by an agent's own program, going on in the background."""
    process = subprocess.Popen(
        house.command(*arguments),
        cwd=house.folder,
        env={**house.environment, "SYNAPSE_AGENT_ID": asker.entry.agent_id, "SYNAPSE_SOCKET": asker.entry.socket},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        process.communicate()


def ended(process: subprocess.Popen[str], bound: float) -> tuple[int, str, float]:
    """Its exit code, what it said, and after how many seconds."""
    begun = time.monotonic()
    said, talked = process.communicate(timeout=bound)
    return process.returncode, said + talked, time.monotonic() - begun


def wait_until_it_waits(process: subprocess.Popen[str]) -> None:
    """Read what `synapse send --response` says once its message was taken: before that it may be lost with the host."""
    assert process.stderr is not None
    assert "waiting for the answer" in process.stderr.readline()


@contextmanager
def standing_still(*processes: subprocess.Popen[Any]) -> Generator[None]:
    for process in processes:
        process.send_signal(signal.SIGSTOP)
    yield
    for process in processes:
        process.send_signal(signal.SIGCONT)


@contextmanager
def taken(port: int) -> Generator[None]:
    """Somebody else has the port meanwhile."""
    with socket.create_server(("127.0.0.1", port)):
        yield


def two_agents(house: House) -> tuple[RunningHost, RunningHost]:
    house.add_profile("busy", LINE_RULES, "line_recorder", "--works", "40")
    house.add_profile("quick", LINE_RULES, "line_recorder")
    return house.start("quick", name="anna"), house.start("busy", name="bert")


def busy_with(host: RunningHost, text: str = "long work <<c0ffee0000ff>>") -> str:
    """Keep an agent busy for long."""
    task_id = host.accepted(text)
    host.wait_for(task_id, lambda task: "turn_started" in steps_of(task), "the work to begin")
    return task_id


def is_at_work(host: RunningHost) -> bool:
    current = host.get("/status").body["current_task"]
    return current is not None and "turn_started" in steps_of(current)


def waiting_tasks(host: RunningHost) -> list[dict[str, Any]]:
    """The tasks on a host that wait for a reply from elsewhere."""
    tasks = host.get("/tasks").body["tasks"]
    return [task for task in tasks if "receipts" not in task["metadata"] and status_of(task) == "submitted"]


def test_two_agents_that_would_wait_for_each_other_are_told_at_once() -> None:
    with open_house() as house:
        anna, bert = two_agents(house)
        busy_with(bert)
        with asking(house, anna, "send", "bert", "what now?", "--response", "--timeout", "30") as first:
            until(lambda: bool(waiting_tasks(anna)), "anna to wait")
            with asking(house, bert, "send", "anna", "and you?", "--response", "--timeout", "30") as second:
                code, said, seconds = ended(second, bound=10)

            assert (code, seconds < 5) == (REFUSED, True)
            circle = ["bert", "anna", "bert"]
            assert " waits for ".join(circle) in said
            told = waiting_tasks(anna)[0]["metadata"]["attention"]
            assert " waits for ".join(circle) in told
            assert " waits for ".join(circle) in house.synapse("list").err
            assert first.poll() is None


def test_an_agent_that_is_stopped_tells_those_who_wait_also_for_what_it_never_took() -> None:
    with open_house() as house:
        anna, bert = two_agents(house)
        with asking(house, anna, "send", "bert", "at work <<c0ffee000001>>", "--response") as at_work:
            until(lambda: is_at_work(bert), "bert to work")
            with asking(house, anna, "send", "bert", "queued <<c0ffee000002>>", "--response") as queued:
                until(lambda: len(bert.get("/queue").body["tasks"]) == 1, "one to be queued")
                bert.stop()

                for process in (at_work, queued):
                    code, said, seconds = ended(process, bound=10)
                    assert (code, seconds < 5) == (1, True), said
        # Both were told; what was never taken waits for the next start all the same.
        left = house.synapse("queue", "bert", "--json").json
        assert [nonces(item["task"]["message"]["parts"][0]["text"]) for item in left] == [["c0ffee000002"]]


@pytest.mark.timeout(90)
def test_an_agent_that_is_killed_does_not_leave_others_waiting() -> None:
    with open_house() as house:
        anna, bert = two_agents(house)
        with asking(house, anna, "send", "bert", "at work <<c0ffee000001>>", "--response") as waiting:
            until(lambda: is_at_work(bert), "bert to work")
            bert.kill()

            code, said, seconds = ended(waiting, bound=30)
            # Its own host tells it, or it sees for itself that the other one is gone.
            assert (code in (1, NOT_RESPONDING), seconds < 20) == (True, True), said
        until(lambda: not waiting_tasks(anna), "anna's host to wait no more")


def test_an_agent_that_is_killed_and_started_again_at_another_port_answers_those_who_wait() -> None:
    with open_house() as house:
        anna, bert = two_agents(house)
        with asking(house, anna, "send", "bert", "at work <<c0ffee000001>>", "--response") as at_work:
            wait_until_it_waits(at_work)
            until(lambda: is_at_work(bert), "bert to work")
            with asking(house, anna, "send", "bert", "queued <<c0ffee000002>>", "--response") as queued:
                wait_until_it_waits(queued)
                # Who waits gives up on an agent that stays away for seconds; on a slow machine a start takes as long.
                with standing_still(at_work, queued, anna.process):
                    bert.kill()
                    house.add_profile("busy", LINE_RULES, "line_recorder")
                    with taken(bert.entry.port):
                        again = house.start("busy", name="bert")

                assert again.entry.agent_id != bert.entry.agent_id
                code, said, _ = ended(at_work, bound=20)
                assert (code, "the program that worked on it is gone" in said) == (1, True), said
                code, said, _ = ended(queued, bound=20)
                assert (code, "done " in said) == (0, True), said


def test_an_asker_that_is_killed_and_started_again_at_another_port_gets_the_reply() -> None:
    with open_house() as house:
        anna, bert = two_agents(house)
        with asking(house, anna, "send", "bert", "what now? <<c0ffee000001>>", "--response") as waiting:
            wait_until_it_waits(waiting)
            until(lambda: is_at_work(bert), "bert to work")
            # Who waits gives up on a host that stays away for seconds; on a slow machine a start takes as long.
            with standing_still(waiting):
                anna.kill()
                with taken(anna.entry.port):
                    again = house.start("quick", name="anna")
            assert again.entry.agent_id != anna.entry.agent_id
            # An answer that comes before the waiter does is typed into anna's prompt instead.
            until(lambda: not any(has_left(task) for task in waiting_tasks(again)), "the waiter to come back")

            with asking(house, bert, "reply", "looks good") as replying:
                code, said, _ = ended(replying, bound=20)
            assert code == 0, said
            code, said, _ = ended(waiting, bound=20)
            assert (code, "looks good" in said) == (0, True), said


def test_a_forgotten_reply_is_what_the_turn_ended_with() -> None:
    with open_house() as house:
        anna, _ = two_agents(house)
        host = house.start("quick", name="carl")
        with asking(house, anna, "send", "carl", "hello <<c0ffee000001>>", "--response") as waiting:
            code, said, _ = ended(waiting, bound=15)

            assert code == 0
            assert "done " in said
            assert "sent no reply" in said
        assert host.get("/status").body["queue_depth"] == 0


def test_a_message_past_its_deadline_is_expired_and_never_typed() -> None:
    with open_house() as house:
        _, bert = two_agents(house)
        busy_with(bert)
        late = house.synapse("send", "bert", "<<c0ffee000001>>", "--ttl", "0.5", "--wait=submitted", "--json")

        assert late.code == 1
        task = late.json["task"]
        assert (status_of(task), steps_of(task)) == ("failed", ["queued", "expired"])
        assert "c0ffee000001" not in str(house.received("busy"))


def test_a_full_queue_says_so() -> None:
    with open_house() as house:
        house.environment["SYNAPSE_QUEUE_LIMIT"] = "2"
        _, bert = two_agents(house)
        busy_with(bert)
        for number in range(2):
            assert house.synapse("send", "bert", f"message {number}").code == 0
        refused = house.synapse("send", "bert", "one too many", "--json")

        assert refused.code == REFUSED
        assert refused.json["error"]["code"] == "queue_full"
        assert bert.get("/status").body["queue_depth"] == 2


def test_a_loop_between_two_agents_is_held_and_shown_and_a_person_can_end_it() -> None:
    with open_house() as house:
        house.environment["SYNAPSE_LOOP_LIMIT_PER_MINUTE"] = "2"
        anna, _ = two_agents(house)
        carl = house.start("quick", name="carl")
        tasks: list[str] = []
        for number in range(4):
            with asking(house, anna, "send", "carl", f"thanks! <<c0ffee00000{number}>>", "--json") as sending:
                code, said, _ = ended(sending, bound=10)
            assert code == 0
            tasks.append(json.loads(said)["task"]["id"])
        for delivered in tasks[:2]:
            assert status_of(carl.finished(delivered)) == "completed"

        assert [item["task_id"] for item in carl.get("/status").body["attention"]] == tasks[2:]
        listed = house.synapse("list").err
        assert "held: more than 2 messages within a minute" in listed
        assert "synapse resolve" not in listed, "it is not in doubt"
        assert house.synapse("cancel", tasks[2][:8]).code == 0
        assert [item["task_id"] for item in carl.get("/status").body["attention"]] == tasks[3:]
        assert len(house.received("quick")) == 2


def test_doubt_is_seen_by_those_who_follow_and_a_person_ends_it() -> None:
    with open_house() as house:
        house.add_profile("echoless", LINE_RULES, "line_recorder", "--echoless")
        host = house.start("echoless", name="dora")
        task_id = host.accepted("hello <<c0ffee000001>>")
        with following(host, task_id) as stream:
            events = [stream.next(time.monotonic() + 15)]
            while "attention" not in object_of(events[-1])["metadata"]:
                events.append(stream.next(time.monotonic() + 15))
        assert events[-1] is not None
        assert events[-1].name == "attention_changed"

        assert "synapse resolve" in house.synapse("list").err
        assert house.synapse("resolve", task_id[:8], "--delivered").code == 0
        ended_task = host.finished(task_id)
        assert status_of(ended_task) == "completed"
        assert steps_of(ended_task) == ["queued", "typed", "submitted", "turn_started", "answered"]
        assert len(house.received("echoless")) == 1


@contextmanager
def following(host: RunningHost, task_id: str) -> Generator[EventStream]:
    stream = open_stream(
        HostAddress(host.entry.socket, port=host.entry.port),
        f"/tasks/{task_id}/subscribe",
        after="",
        deadline=time.monotonic() + 15,
        monotonic=time.monotonic,
    )
    assert isinstance(stream, EventStream)
    try:
        yield stream
    finally:
        stream.close()


def object_of(event: Any) -> dict[str, Any]:
    assert event is not None
    return dict(json.loads(event.data)["task"])


@pytest.mark.timeout(90)
def test_a_store_that_is_locked_for_long_takes_no_agent_down_and_loses_nothing() -> None:
    """A process that was stopped in the middle of a write holds the lock until somebody lets it go on."""
    with open_house() as house:
        house.add_profile("slow", LINE_RULES, "line_recorder", "--works", "1")
        host = house.start("slow", name="emma")
        running, queued = host.accepted("<<c0ffee000001>>"), host.accepted("<<c0ffee000002>>")
        host.wait_for(running, lambda task: "turn_started" in steps_of(task), "the first to be worked on")
        with locked(lock_path(house.home / "store.db")):
            refused = host.send("<<c0ffee000003>>")
            assert (refused.status, refused.body["error"]["code"]) == (503, "store_locked")

        for task_id in (running, queued, host.accepted("<<c0ffee000004>>")):
            assert status_of(host.finished(task_id)) == "completed"
        got = [nonce[-1] for one in house.received("slow") for nonce in nonces(one.text)]
        assert got == ["1", "2", "4"]


@contextmanager
def locked(path: Path) -> Generator[None]:
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
