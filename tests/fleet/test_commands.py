"""The commands on agents of another machine: two homes on this computer, real links, the fleet's own server."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from tests.fleet.waiting import RELAYED, until
from tests.fleet.world import Machine, open_world
from tests.samples.commands import Ran

pytestmark = pytest.mark.integration
PATIENCE = "20"


@dataclass(frozen=True, slots=True)
class Pair:
    """Two machines of a fleet: `laptop` has the agent ada, `box2` has bob."""

    laptop: Machine
    box2: Machine


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with open_world("laptop", "box2", namespaces=False) as world:
        world.form()
        laptop, box2 = world
        laptop.start_dummy("ada")
        box2.start_dummy("bob")
        for machine, agent in ((laptop, "bob@box2"), (box2, "ada@laptop")):
            until(partial(_knows, machine, agent), f"{agent} to be known")
        yield Pair(laptop, box2)


@dataclass(frozen=True, slots=True)
class Watching:
    """A `synapse watch` that runs; what it prints goes to one file."""

    process: subprocess.Popen[bytes]
    printed: Path

    def lines(self, *words: str) -> list[str]:
        """Return the lines that have all these words."""
        printed = self.printed.read_text(encoding="utf-8").splitlines()
        return [line for line in printed if all(word in line for word in words)]

    def sees(self, *words: str) -> None:
        until(lambda: self.lines(*words), f"a line with {words}", self.lines)

    def ends(self, bound: float = float(PATIENCE)) -> int:
        return self.process.wait(bound)


@contextmanager
def watching(machine: Machine, *arguments: str) -> Generator[Watching]:
    printed = machine.home / "watched"
    with printed.open("wb") as file:
        process = subprocess.Popen(
            machine.command("watch", *arguments), cwd=machine.folder, env=machine.environment, stdout=file, stderr=file
        )
    try:
        yield Watching(process, printed)
    finally:
        process.kill()
        process.wait()


def _knows(machine: Machine, agent: str) -> bool:
    return machine.synapse("status", agent).code == 0


def succeed(ran: Ran) -> Ran:
    assert ran.code == 0, ran
    return ran


def test_a_person_asks_an_agent_on_another_machine(pair: Pair) -> None:
    asked = pair.laptop.read("send", "bob@box2", "hello", "--response", "--timeout", PATIENCE)

    task = asked["task"]
    assert "echo: hello" in asked["reply"]
    assert f"task {task['id']}  completed  at bob@box2, from user@laptop" in pair.laptop.run("status", task["id"])
    assert f"task {task['id']}  completed  at bob, from user@laptop" in pair.box2.run("status", task["id"])
    assert "echo: hello" in pair.laptop.run("show", task["id"][:8])
    assert task["id"] in [one["id"] for one in pair.laptop.read("tasks", "--machine", "box2")]


def test_agents_ask_each_other_over_machines(pair: Pair) -> None:
    asked = pair.laptop.run("send", "ada", "ask bob@box2 are you there?", "--response", "--timeout", PATIENCE)

    assert "echo: are you there?" in asked


def test_all_agents_are_listed_with_their_machines(pair: Pair) -> None:
    listed = pair.box2.read("list", "--all")

    assert {(one["name"], one["machine"]) for one in listed} == {("bob", "box2"), ("ada@laptop", "laptop")}


def test_an_agent_that_has_just_started_is_listed_on_other_machines(pair: Pair) -> None:
    pair.box2.start_dummy("new")

    def listed() -> list[tuple[str, str]]:
        return [(one["name"], one["machine"]) for one in pair.laptop.read("list", "--all")]

    until(lambda: ("new@box2", "box2") in listed(), "the new agent in the list", listed)
    pair.box2.run("stop", "new")


def test_a_message_for_an_agent_that_has_stopped_there_is_queued_until_it_starts(pair: Pair) -> None:
    pair.box2.start_dummy("late")
    pair.box2.run("stop", "late")

    queued = succeed(pair.laptop.synapse("send", "late@box2", "later", "--queue"))
    listed = succeed(pair.laptop.synapse("queue", "late@box2"))
    canceled = succeed(pair.laptop.synapse("cancel", "--queue", "late@box2"))

    assert queued.err.startswith("[→ late@box2] queued until it starts  (")
    assert listed.out.splitlines()[-1].startswith("late@box2")
    assert canceled.err.endswith("is canceled\n")
    assert succeed(pair.laptop.synapse("queue", "late@box2")).err == "No messages are queued.\n"


def test_a_message_waits_for_a_machine_that_is_away_and_can_be_taken_back(pair: Pair) -> None:
    pair.box2.run("fleet", "stop")
    until(lambda: pair.laptop.synapse("status", "bob@box2").code == 8, "box2 to be away")
    away = pair.laptop.synapse("send", "bob@box2", "now")
    kept = pair.laptop.read("send", "bob@box2", "later", "--queue")["task"]["id"]
    recalled = pair.laptop.read("send", "bob@box2", "never", "--queue")["task"]["id"]

    waiting = pair.laptop.synapse("status", recalled)
    canceled = succeed(pair.laptop.synapse("cancel", recalled[:8]))
    pair.box2.run("fleet", "start")

    def state_on(machine: Machine, task_id: str) -> str:
        found = machine.synapse("status", task_id, "--json").json
        return str(found["task"]["status"]) if "task" in found else ""

    until(lambda: state_on(pair.box2, kept) == "completed", "the kept message")
    # The copy that the server has may come before the cancel: what counts is that nobody is told wrong.
    until(
        lambda: state_on(pair.laptop, recalled) == state_on(pair.box2, recalled) in ("completed", "canceled"),
        "both machines to know the end of the other one",
    )
    assert "box2 is away" in away.err
    assert "in the outbox of this machine" in waiting.out
    assert canceled.err == (
        f"[bob@box2] task {recalled[:8]} is in the outbox: taken back (canceled); box2 has yet to confirm it\n"
    )


def test_an_end_that_came_while_the_link_was_down_is_told_when_it_is_back(pair: Pair) -> None:
    task = pair.laptop.read("send", "bob@box2", "wait 2")["task"]["id"]
    pair.box2.run("fleet", "stop")
    until(lambda: pair.box2.read("status", task)["task"]["status"] == "completed", "the end")

    pair.box2.run("fleet", "start")

    def state() -> str:
        sent = pair.laptop.read("fleet", "outbox")["messages"]
        return next(str(one["state"]) for one in sent if one["task_id"] == task)

    until(lambda: state() == "settled", "the end to be told", state)


def test_a_person_approves_on_another_machine_only_if_it_allows_that(pair: Pair) -> None:
    task = pair.laptop.read("send", "bob@box2", "dialog")["task"]["id"]
    until(lambda: "bob" in pair.box2.synapse("approvals").out, "the question")
    # Another machine learns of it with the next beat.
    until(lambda: "bob@box2" in pair.laptop.synapse("approvals", "--all").err, "the laptop to know of it")

    hidden, refused = pair.laptop.synapse("approvals", "--all"), pair.laptop.synapse("approve", task)
    pair.box2.run("fleet", "allow", "laptop", "approve")
    until(lambda: "bob@box2" in pair.laptop.synapse("approvals", "--all").out, "the right to approve")
    approved = succeed(pair.laptop.synapse("approve", task))

    assert hidden.out == ""
    assert hidden.err == (
        "bob@box2 waits for a person; box2 does not let this machine approve  "
        "(`synapse fleet allow laptop approve` on box2)\n"
    )
    assert refused.code == 7
    assert "[bob@box2] approved" in approved.err


def test_a_person_with_the_right_to_approve_answers_what_others_have_asked_for(pair: Pair) -> None:
    pair.box2.run("fleet", "allow", "laptop", "approve")
    task = pair.box2.read("send", "bob", "dialog")["task"]["id"]
    until(lambda: task[:8] in pair.laptop.synapse("approvals", "--all").out, "the question")

    by_agent = pair.laptop.synapse("approve", "bob@box2", SYNAPSE_AGENT_ID="synapse-dummy-1")
    approved = succeed(pair.laptop.synapse("approve", "bob@box2"))
    until(lambda: pair.box2.read("status", task)["task"]["status"] == "completed", "the answer")
    again = pair.box2.read("send", "bob", "dialog")["task"]["id"]
    until(lambda: again[:8] in pair.laptop.synapse("approvals", "--all").out, "the second question")
    denied = succeed(pair.laptop.synapse("deny", again[:8]))

    assert by_agent.code == 7, by_agent
    assert "person" in by_agent.err
    assert "[bob@box2] approved" in approved.err
    assert "[bob@box2] denied" in denied.err
    # What asks nobody any more is no business of other machines.
    assert pair.laptop.synapse("status", task).code == 3


def test_a_message_continues_a_task_on_another_machine_and_one_that_it_refuses_does_not_change_it(pair: Pair) -> None:
    script = pair.box2.folder / "asker.toml"
    steps = 'steps = [{ ask = "Which colour?" }, { answer = "painted" }]'
    script.write_text(f'[[rule]]\ntext = "paint"\n{steps}\n', encoding="utf-8")
    pair.box2.run("start", "scripted", str(script), "--name", "dora")
    asked = pair.laptop.synapse("send", "dora@box2", "paint", "--response", "--timeout", PATIENCE, "--json")
    task = asked.json["task"]["id"]

    painted = pair.laptop.synapse("send", "dora@box2", "blue", "--task", task, "--response", "--timeout", PATIENCE)
    late = pair.laptop.synapse("send", "dora@box2", "no, red", "--task", task)
    shown = pair.laptop.run("status", task)
    pair.box2.run("stop", "dora")

    assert asked.code == 6, asked  # it asks for input
    assert "painted" in succeed(painted).out
    assert "completed and accepts no more messages" in late.err
    assert f"task {task}  completed  at dora@box2" in shown


def test_the_events_of_an_agent_on_another_machine_are_watched_also_after_it_was_away(pair: Pair) -> None:
    with watching(pair.laptop, "--agent", "bob@box2") as watch:
        watch.sees("Watching")
        pair.laptop.run("send", "bob@box2", "before")
        watch.sees("bob@box2", "answer", "echo: before")
        pair.box2.run("fleet", "stop")
        watch.sees("box2", "follow when it is back")
        # Of its own people, without the right to read.
        secret = pair.box2.read("send", "bob", "secret", "--response", "--timeout", PATIENCE)
        pair.box2.run("fleet", "start")
        watch.sees("box2 is back")
        pair.laptop.run("send", "bob@box2", "after")
        watch.sees("bob@box2", "completed")
        watch.sees("bob@box2", "answer", "echo: after")
        watch.process.send_signal(signal.SIGINT)

        assert watch.ends() == 130
        assert not watch.lines(secret["task"]["id"][:8])
        assert len(watch.lines("opened")) == 2


def test_the_events_of_all_machines_are_watched_together(pair: Pair) -> None:
    with watching(pair.laptop, "--all", "--json") as watch:
        watch.sees("Watching")
        pair.laptop.run("send", "ada", "here")
        pair.laptop.run("send", "bob@box2", "there")
        watch.sees('"agent": "ada"', '"type": "state_changed"', '"status": "completed"')
        watch.sees('"agent": "bob@box2"', '"type": "state_changed"', '"status": "completed"')
        opened = [json.loads(line) for line in watch.lines("task_opened")]

    said = {(one["agent"], one["task"]["message"]["parts"][0]["text"]) for one in opened}
    assert said == {("ada", "here"), ("bob@box2", "there")}


def test_a_task_on_another_machine_is_watched_from_the_outbox_to_its_end(pair: Pair) -> None:
    pair.box2.run("fleet", "stop")
    until(lambda: pair.laptop.synapse("status", "bob@box2").code == 8, "box2 to be away")
    task = pair.laptop.read("send", "bob@box2", "later", "--queue")["task"]["id"]

    with watching(pair.laptop, "--task", task[:8]) as watch:
        watch.sees("submitted", "kept in the outbox of this machine until box2 takes it")
        pair.box2.run("fleet", "start")

        assert watch.ends(bound=RELAYED) == 0
        assert watch.lines("opened", "later")
        assert watch.lines()[-1].endswith("completed")
    assert pair.laptop.synapse("watch", "--task", task[:8]).out.splitlines()[-1].endswith("completed")


def test_only_agents_and_machines_that_are_there_are_watched(pair: Pair) -> None:
    nobody, nowhere = (
        pair.laptop.synapse("watch", "--agent", "nobody@box2"),
        pair.laptop.synapse("watch", "--machine", "nowhere"),
    )

    assert (nobody.code, nowhere.code) == (3, 3)
    assert "the fleet has no machine 'nowhere'" in nowhere.err


def test_the_tasks_of_an_agent_that_has_stopped_there_are_listed_and_shown(pair: Pair) -> None:
    pair.box2.start_dummy("past")
    asked = pair.laptop.synapse("send", "past@box2", "hello", "--response", "--timeout", PATIENCE, "--json")
    task = succeed(asked).json["task"]["id"]
    pair.box2.run("stop", "past")

    of_machine = succeed(pair.laptop.synapse("tasks", "--machine", "box2"))
    of_agent = succeed(pair.laptop.synapse("tasks", "past@box2", "--json"))
    shown = succeed(pair.laptop.synapse("show", "past@box2"))

    assert [line for line in of_machine.out.splitlines() if line.startswith(task[:8]) and "past@box2" in line]
    assert [one["id"] for one in of_agent.json] == [task]
    assert re.search(r"past@box2 → user@laptop.*\n  echo: hello\n", shown.out)


def test_a_task_on_another_machine_is_shown_in_every_form(pair: Pair) -> None:
    task = succeed(pair.laptop.synapse("send", "bob@box2", "form", "--response", "--timeout", PATIENCE, "--json"))
    short = task.json["task"]["id"][:8]
    export = pair.laptop.folder / "task.md"

    here, there = [
        [machine.run("show", short, *form) for form in (("--raw",), ("--raw", "--json"))]
        for machine in (pair.laptop, pair.box2)
    ]
    entries_here, entries_there = [
        machine.read("show", short)["tasks"][0]["entries"] for machine in (pair.laptop, pair.box2)
    ]
    context = pair.laptop.run("show", short, "--context")
    written = pair.laptop.synapse("show", "bob@box2", "--since", "1h", "--output", str(export))

    assert here == there
    assert [one["kind"] for one in entries_here] == [one["kind"] for one in entries_there]
    assert re.search(r"bob@box2 → user@laptop.*\n  echo: form\n", context)
    assert succeed(written).err.startswith("Wrote ")
    assert "### `bob@box2` → `user@laptop`" in export.read_text(encoding="utf-8")


def test_what_cannot_be_read_of_a_machine_that_is_away_is_said(pair: Pair) -> None:
    pair.box2.run("fleet", "stop")
    until(lambda: pair.laptop.synapse("status", "bob@box2").code == 8, "box2 to be away")
    kept = pair.laptop.read("send", "bob@box2", "kept", "--queue")["task"]["id"][:8]

    queue, tasks, raw, shown = (
        pair.laptop.synapse("queue", "bob@box2"),
        pair.laptop.synapse("tasks", "--machine", "box2"),
        pair.laptop.synapse("show", kept, "--raw"),
        succeed(pair.laptop.synapse("show", kept)),
    )
    pair.box2.run("fleet", "start")
    until(lambda: pair.laptop.synapse("status", "bob@box2").code == 0, "box2 to be back")

    assert (queue.code, tasks.code, raw.code) == (8, 8, 7)
    assert "`synapse fleet outbox` lists messages that it has not taken yet" in queue.err
    assert "box2 is away" in tasks.err
    assert "--raw needs the events of the task, and box2 has not taken its message yet" in raw.err
    assert "kept in the outbox of this machine until box2 takes it" in shown.out


def test_what_another_machine_does_not_tell_is_said(pair: Pair) -> None:
    logs, explained = (
        pair.laptop.synapse("logs", "bob@box2"),
        succeed(pair.laptop.synapse("status", "bob@box2", "--explain")),
    )

    assert (logs.code, "type `synapse logs bob` on box2" in logs.err) == (7, True)
    assert "box2 does not let this machine read it" in explained.out
    assert succeed(pair.box2.synapse("logs", "bob@box2")).out
