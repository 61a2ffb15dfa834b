"""In-process agents of a gateway: on the shared store, and one at a time for a name."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from synapse.config.process import SystemClock
from synapse.config.settings import Settings
from synapse.core.agent import READY
from synapse.core.caller import Caller
from synapse.core.errors import AgentNotResponding, NameTaken
from synapse.core.requests import SendMessage
from synapse.core.task import Task, TaskId, TaskState
from synapse.drivers.scripted.script import read_script
from synapse.gateway.in_process import InProcessAgent, InProcessAgents, in_process_entry
from synapse.host.scripted import play
from synapse.net.hosts import open_host_client
from synapse.registry.local import open_local_registry
from tests.conformance.real_hosts import CONFORMANCE
from tests.fakes.harness import say
from tests.fakes.leased_store import LeasedStore

pytestmark = pytest.mark.integration

BOUND = 20.0
LAPTOP = Caller(scope="key:laptop")
CLOCK = SystemClock()


@asynccontextmanager
async def opened(home: Path) -> AsyncGenerator[LeasedStore]:
    store = await LeasedStore.open(home / "store.db")
    try:
        async with asyncio.timeout(BOUND):
            yield store
    finally:
        await store.close()


def in_process_agent(home: Path, store: LeasedStore, name: str = "tck", script: Path = CONFORMANCE) -> InProcessAgent:
    registry = open_local_registry(home / "registry", CLOCK.monotonic)
    return InProcessAgent(
        in_process_entry(name, "scripted", CLOCK),
        play(read_script(script), CLOCK),
        store=store,
        registry=registry,
        hosts=open_host_client(registry, CLOCK, registry.recheck),
        settings=Settings(home=home),
    )


async def sent(one: InProcessAgent, text: str, message_id: str = "") -> TaskId:
    done = await one.as_agent().command(SendMessage(message=say(text, message_id), dialect="a2a_v1"), LAPTOP)
    return TaskId(done.task_id)


async def until(store: LeasedStore, task_id: TaskId, state: TaskState) -> Task:
    while True:
        task = await store.load(task_id)
        if task.state is state:
            return task
        assert not task.state.is_terminal, task.note
        await asyncio.sleep(0.01)


async def gone(one: InProcessAgent) -> None:
    while True:
        if not one.is_running:
            return
        await asyncio.sleep(0.01)


async def test_an_in_process_agent_takes_messages_and_answers_on_the_shared_store(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        agents = InProcessAgents()
        await agents.add(in_process_agent(tmp_path, store))
        (agent,) = agents()
        assert (agent.name, await agent.state()) == ("tck", READY)

        done = await agent.command(SendMessage(message=say("hello"), dialect="a2a_v1"), LAPTOP)
        task = await until(store, TaskId(done.task_id), TaskState.COMPLETED)

        assert (task.inbox, task.scope, task.artifacts[0].text) == ("tck", "key:laptop", "hello")
        assert await agents.remove("tck")
        assert not await agents.remove("tck")
        with pytest.raises(AgentNotResponding):
            await agent.command(SendMessage(message=say("more"), dialect="a2a_v1"), LAPTOP)


async def test_a_message_that_is_durable_is_delivered_although_its_caller_left(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        one = in_process_agent(tmp_path, store)
        await one.start()
        # The caller leaves at each step of the way: a gRPC call at its deadline, or a WebSocket that closes.
        for step in range(12):
            sending = asyncio.ensure_future(sent(one, "hello", f"m-{step}"))
            for _ in range(step):
                await asyncio.sleep(0)
            sending.cancel()
            await asyncio.wait({sending})
        await until(store, await sent(one, "the last one"), TaskState.COMPLETED)

        kept = [await store.find_message("tck", LAPTOP.scope, f"m-{step}") for step in range(12)]
        assert any(kept)
        for known in kept:
            if known is not None:
                await until(store, known.task_id, TaskState.COMPLETED)
        await one.stop()


async def test_a_name_belongs_to_one_agent_at_a_time(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        # The holder is a living process that is not this one.
        assert await store.acquire("tck", f"{os.getppid()}:0", lambda _: True)
        one = in_process_agent(tmp_path, store)
        with pytest.raises(NameTaken):
            await InProcessAgents().add(one)
        assert not one.is_running


async def test_the_next_agent_of_a_name_resumes_what_the_last_one_left(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        first = in_process_agent(tmp_path, store)
        await first.start()
        waiting = await sent(first, "wait", "tck-cancel-1")
        await until(store, waiting, TaskState.WORKING)
        await first.stop()
        assert (await store.load(waiting)).state.is_terminal

        second = in_process_agent(tmp_path, store)
        await second.start()
        await until(store, await sent(second, "hello"), TaskState.COMPLETED)
        await second.stop()


async def test_an_agent_whose_driver_ends_is_no_longer_listed(tmp_path: Path) -> None:
    script = tmp_path / "exit.toml"
    script.write_text("[default]\nsteps = [{ exit = 0 }]\n", encoding="utf-8")

    async with opened(tmp_path) as store:
        agents = InProcessAgents()
        one = in_process_agent(tmp_path, store, script=script)
        await agents.add(one)
        await sent(one, "leave")
        await gone(one)
        assert agents() == []
        await agents.stop()
