"""A message for Codex goes through its server's queue: a turn of its own, once, whatever happens at that moment."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from synapse.calibration.model_server import Fact
from synapse.calibration.sandbox import AGENT
from synapse.core.json_text import object_in, objects_in
from synapse.net.jsonrpc import JsonObject, RpcClient, open_rpc
from tests.integration.attach.seat import Seat, seated
from tests.real_clis.benches import Bench, bench_for, eventually

ROUNDS = 30
STEP_SECONDS = 0.002
"""The other turn begins a little later in each round, before and after the message arrives."""
FIRST_SECONDS = 0.04
ESC = b"\x1b"


@contextmanager
def codex() -> Generator[Bench]:
    with bench_for("codex", os.environ, {}) as bench:
        bench.start()
        eventually(bench.is_ready)
        yield bench


@contextmanager
def at_terminal(bench: Bench) -> Generator[Seat]:
    env = [f"{name}={value}" for name, value in bench.workbench.env.items()]
    with seated("env", "-C", str(bench.workbench.project), *env, *bench.command, "attach", AGENT) as seat:
        yield seat


@asynccontextmanager
async def beside_tui(bench: Bench) -> AsyncGenerator[tuple[RpcClient, str]]:
    """Another client of the agent's server, and the conversation that its TUI shows."""
    command = next(command for command in bench.workbench.processes().values() if "--listen" in command)
    rpc = await open_rpc(Path(command.partition("unix://")[2].split()[0]), ignore)
    following = asyncio.create_task(rpc.follow())
    info = {"name": "test", "title": "Test", "version": "1"}
    await rpc.call("initialize", {"clientInfo": info, "capabilities": {"experimentalApi": True}})
    await rpc.notify("initialized")
    loaded = (await rpc.call("thread/loaded/list", {}))["data"]
    threads = [(await rpc.call("thread/read", {"threadId": one}))["thread"] for one in loaded]
    (shown,) = [one["id"] for one in threads if not one["ephemeral"] and not one.get("parentThreadId")]
    try:
        yield rpc, shown
    finally:
        following.cancel()
        await rpc.close()


def ignore(_message: JsonObject) -> None:
    """Takes no notice of what the server says to all of its clients."""


def send(bench: Bench, scene: str) -> str:
    """Sends a message, and returns its task."""
    return str(object_in(bench.synapse("send", AGENT, f"calibrate:{scene} please", "--json").fields, "task")["id"])


def task(bench: Bench, task_id: str) -> dict[str, Any]:
    return object_in(bench.synapse("status", task_id, "--json").fields, "task")


def steps(bench: Bench, task_id: str) -> list[str]:
    return [receipt["step"] for receipt in objects_in(object_in(task(bench, task_id), "metadata"), "receipts")]


def has_ended(bench: Bench, task_id: str) -> bool:
    return task(bench, task_id).get("status") in ("completed", "failed", "canceled")


def is_at_rest(bench: Bench) -> bool:
    status = bench.workbench.ask("/status")
    return status.get("state") == "ready" and not status.get("gate") and not status.get("current_task")


def turns_on_disk(bench: Bench) -> list[list[str]]:
    """The prompts of each turn, as Codex's own rollouts have them."""
    turns: dict[str, list[str]] = {}
    for rollout in sorted((bench.workbench.home / ".codex" / "sessions").rglob("rollout-*.jsonl")):
        for line in rollout.read_text(encoding="utf-8").splitlines():
            event = object_in(json.loads(line), "payload")
            item = object_in(event, "item")
            if event.get("type") == "item_completed" and item.get("type") == "UserMessage":
                said = "".join(str(part.get("text")) for part in objects_in(item, "content"))
                turns.setdefault(str(event["turn_id"]), []).append(said)
    return list(turns.values())


@pytest.mark.timeout(300)
def test_a_message_never_joins_a_turn_that_begins_at_the_same_moment() -> None:
    with codex() as bench:
        bench.synapse("send", AGENT, "calibrate:one-line:1 please", "--response", "--timeout", "50")
        answers = asyncio.run(race(bench))
        turns = turns_on_disk(bench)

    ours = [prompts for prompts in turns if any("calibrate:queued:" in prompt for prompt in prompts)]
    # Their prompt may come into our turn, as a person's does who types while the agent works.
    assert ["calibrate:queued:" in prompts[0] for prompts in ours] == [True] * ROUNDS
    assert sum(prompt.count("calibrate:queued:") for prompts in turns for prompt in prompts) == ROUNDS
    alone = [answer for prompts, answer in zip(ours, answers, strict=True) if len(prompts) == 1]
    assert set(alone) == {"It waited for its turn."}


async def race(bench: Bench) -> list[str]:
    """Returns the answers to our messages."""
    answers: list[str] = []
    async with beside_tui(bench) as (rpc, thread):
        for number in range(ROUNDS):
            await asyncio.to_thread(eventually, partial(is_at_rest, bench))
            sending = asyncio.create_task(asyncio.to_thread(send, bench, f"queued:{number}"))
            await asyncio.wait((sending,), timeout=FIRST_SECONDS + number * STEP_SECONDS)
            prompt = [{"type": "text", "text": f"calibrate:one-line:{100 + number} theirs"}]
            await rpc.call("turn/start", {"threadId": thread, "input": prompt})
            task_id = await sending
            await asyncio.to_thread(eventually, partial(has_ended, bench, task_id))
            (answer,) = objects_in(task(bench, task_id), "artifacts")
            answers.append(objects_in(answer, "parts")[0]["text"])
        assert (await rpc.call("thread/queue/list", {"threadId": thread}))["data"] == []
    return answers


@pytest.mark.timeout(120)
def test_after_esc_a_message_is_taken_although_the_queue_rests() -> None:
    with codex() as bench:
        press_esc_in_a_turn(bench)

        sent = bench.synapse("send", AGENT, "calibrate:queued:2 please", "--response", "--timeout", "50", "--json")

    assert sent.fields["reply"] == "It waited for its turn."


@pytest.mark.timeout(120)
def test_a_persons_draft_stays_in_the_prompt_before_the_first_turn() -> None:
    with codex() as bench, at_terminal(bench) as seat:
        seat.sees("Ask Codex to do anything")
        seat.types("half a thought")
        seat.sees("half a thought")
        sent = bench.synapse("send", AGENT, "calibrate:queued:1 please", "--response", "--timeout", "50", "--json")
        seat.types("-and-more")
        seat.sees("-and-more")
        seat.types("\r")
        eventually(lambda: any("half a thought-and-more" in prompt for turn in turns_on_disk(bench) for prompt in turn))

    assert sent.fields["reply"] == "It waited for its turn."


@pytest.mark.timeout(180)
def test_a_message_that_a_killed_host_left_in_the_queue_is_withdrawn_and_sent_once() -> None:
    with codex() as bench:
        press_esc_in_a_turn(bench)
        task_id = kill_host_while_it_sends(bench, lambda: asyncio.run(is_queued(bench)))

        bench.start()
        eventually(lambda: has_ended(bench, task_id))
        ended = task(bench, task_id)
        bench.synapse("stop", AGENT)
        bench.start("resume", "--last")
        eventually(lambda: is_at_rest(bench))
        turns = turns_on_disk(bench)

    assert ended["status"] == "completed"
    assert steps_of(ended)[:4] == ["queued", "typed", "queued", "typed"]
    assert sum("calibrate:queued:2" in prompt for turn in turns for prompt in turn) == 1


@pytest.mark.timeout(180)
def test_a_message_that_a_killed_host_had_sent_is_found_and_not_sent_again() -> None:
    with codex() as bench:
        bench.synapse("send", AGENT, "calibrate:one-line:1 please", "--response", "--timeout", "50")
        ledger = bench.model.ledger
        task_id = kill_host_while_it_sends(bench, lambda: ledger.last("queued:2", Fact.SAID) is not None)

        bench.start()
        eventually(lambda: has_ended(bench, task_id))
        ended = task(bench, task_id)
        turns = turns_on_disk(bench)

    assert (ended["status"], ended["metadata"]["reason"]) == ("failed", "agent_exited")
    assert "submitted" in steps_of(ended)
    assert sum("calibrate:queued:2" in prompt for turn in turns for prompt in turn) == 1


def press_esc_in_a_turn(bench: Bench) -> None:
    with at_terminal(bench) as seat:
        task_id = send(bench, "slow:1")
        assert bench.model.ledger.wait_for("slow:1", Fact.HELD, seconds=30)
        seat.types(ESC)
        eventually(lambda: has_ended(bench, task_id))
    eventually(lambda: is_at_rest(bench))


def kill_host_while_it_sends(bench: Bench, has_arrived: Callable[[], bool]) -> str:
    """Kills the host after it gave a message to the server and before it heard what became of it."""
    entry = bench.workbench.entry()
    assert entry is not None
    processes = bench.workbench.processes()
    servers = [pid for pid, command in processes.items() if "--listen" in command and "server_guard" not in command]
    guards = [pid for pid, command in processes.items() if "server_guard" in command]
    for pid in (*servers, *guards):
        os.kill(pid, signal.SIGSTOP)
    try:
        task_id = send(bench, "queued:2")
        eventually(lambda: "typed" in steps(bench, task_id))
        for _ in range(20):
            # The receipt comes before the message: a host that has answered so often since has given it to its server.
            bench.synapse("status", AGENT, "--json")
        # Stopped before it is killed: a server may drop what it has not read yet when a connection ends.
        os.kill(entry.pid, signal.SIGSTOP)
        for pid in servers:
            os.kill(pid, signal.SIGCONT)
        eventually(has_arrived)
    finally:
        os.kill(entry.pid, signal.SIGKILL)
        for pid in (*servers, *guards):
            os.kill(pid, signal.SIGCONT)
    eventually(lambda: not bench.workbench.processes())
    return task_id


async def is_queued(bench: Bench) -> bool:
    async with beside_tui(bench) as (rpc, thread):
        return bool((await rpc.call("thread/queue/list", {"threadId": thread}))["data"])


def steps_of(ended: dict[str, Any]) -> list[str]:
    return [receipt["step"] for receipt in objects_in(object_in(ended, "metadata"), "receipts")]
