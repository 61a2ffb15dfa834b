"""Agents that wait for agents of other machines: cycles are refused, and no wait outlives what could end it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest

from synapse.config.settings import load_settings
from synapse.core.store import TaskQuery
from synapse.core.task import Task, TaskState
from synapse.host.open_store import open_store
from tests.fleet.waiting import until
from tests.fleet.world import Machine, World, open_world

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]
PATIENCE = "25"
AGENTS = {"laptop": ("ada",), "box2": ("bob", "bea"), "box3": ("cy",)}


@pytest.fixture(scope="module", name="fleet")
def _fleet() -> Iterator[World]:
    """Three machines with dummies; the first runs the server."""
    with open_world(*AGENTS, namespaces=False) as world:
        world.form()
        for machine in world:
            for agent in AGENTS[machine.name]:
                machine.start_dummy(agent)
        yield world


def stored(machine: Machine, agent: str) -> tuple[Task, ...]:
    """Returns the tasks of an agent, the latest change first; also those that only wait for an answer."""

    async def read() -> tuple[Task, ...]:
        store = await open_store(load_settings(environ={"SYNAPSE_HOME": str(machine.home)}))
        try:
            return (await store.list(TaskQuery(inbox=agent, limit=100))).tasks
        finally:
            await store.close()

    return asyncio.run(read())


def waiting_for(machine: Machine, agent: str, inbox: str) -> Task | None:
    """Returns the newest task of an agent that waits, or has waited, for the agent of an inbox on another machine."""
    waits = (task for task in stored(machine, agent) if task.waits_for is not None and task.waits_for.inbox == inbox)
    return max(waits, key=lambda task: task.created_at, default=None)


def ended_wait(machine: Machine, agent: str, inbox: str) -> Task:
    def read() -> Task | None:
        task = waiting_for(machine, agent, inbox)
        return task if task is not None and task.state.is_terminal else None

    return until(read, f"the end of {agent}'s wait", lambda: waiting_for(machine, agent, inbox), bound=40)


@pytest.mark.parametrize(
    ("chain", "machine", "agent"),
    [
        (("bob@box2", "ada@laptop"), "box2", "bob"),
        (("bob@box2", "bea", "ada@laptop"), "box2", "bea"),
        (("bob@box2", "cy@box3", "ada@laptop"), "box3", "cy"),
    ],
)
def test_a_request_that_closes_a_cycle_over_machines_is_refused(
    fleet: World, chain: tuple[str, ...], machine: str, agent: str
) -> None:
    text = " ".join(f"ask {name}" for name in chain)

    asked = fleet["laptop"].run("send", "ada", f"{text} hello {agent}", "--response", "--timeout", PATIENCE)

    assert "error: synapse send ended with status 7" in asked
    refused = next(task for task in stored(fleet["laptop"], "ada") if task.message.text == f"hello {agent}")
    port = next(one["port"] for one in fleet[machine].read("list") if one["name"] == agent)
    closes = f"dummy-{port}@{machine} waits for ada@laptop waits for dummy-"
    assert (refused.state, refused.reason) == (TaskState.FAILED, "wait_cycle")
    assert closes in fleet[machine].run("status", refused.id)
    # The command that is refused takes its wait back, unless the link has ended it first.
    waited = ended_wait(fleet[machine], agent, "laptop!ada")
    assert waited.state is TaskState.CANCELED or closes in waited.note


def test_an_agent_that_is_killed_ends_the_waits_on_other_machines_and_keeps_its_messages(
    fleet: World,
) -> None:
    laptop, box2 = fleet["laptop"], fleet["box2"]
    busy = laptop.begin("send", "ada", "ask bob@box2 wait 100", "--response", "--timeout", "60")
    until(lambda: any(task.message.text == "wait 100" for task in stored(box2, "bob")), "the request at bob")
    queued = laptop.read("send", "bob@box2", "still there?")["task"]["id"]
    entry = next(one for one in box2.read("list") if one["name"] == "bob")
    os.kill(entry["pid"], signal.SIGKILL)

    waited = ended_wait(laptop, "ada", "box2!bob")
    busy.communicate(timeout=60)

    assert (waited.state, waited.reason) == (TaskState.FAILED, "agent_exited")
    assert "@box2 has exited; messages that it had not started wait for its next start" in waited.note
    box2.start_dummy("bob", port=entry["port"])
    until(
        lambda: laptop.read("status", queued)["task"]["status"] == "completed",
        "the answer to the message that had waited",
    )


def test_a_waiter_that_is_stopped_finds_the_answer_at_its_next_start(fleet: World) -> None:
    laptop = fleet["laptop"]
    port = next(one["port"] for one in laptop.read("list") if one["name"] == "ada")
    cy = next(one["pid"] for one in fleet["box3"].read("list") if one["name"] == "cy")
    asking = laptop.begin("send", "ada", "ask cy@box3 wait 4", "--response", "--timeout", "60")
    until(lambda: any(task.message.text == "wait 4" for task in stored(fleet["box3"], "cy")), "the request at cy")
    # However long it takes to stop ada, cy answers after that.
    os.kill(cy, signal.SIGSTOP)
    try:
        laptop.run("stop", "ada", "--force")
    finally:
        os.kill(cy, signal.SIGCONT)

    waited = ended_wait(laptop, "ada", "box3!cy")
    asking.communicate(timeout=60)

    assert (waited.state, waited.artifacts[-1].text) == (TaskState.COMPLETED, "working for 4 s\nwaited 4 s")
    laptop.start_dummy("ada", port=port)
    until(lambda: any(task.delivers == waited.id for task in stored(laptop, "ada")), "the answer as a message")
