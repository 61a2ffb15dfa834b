"""The model of a CLI waits in a tool for an answer, and the call ends first: the answer arrives as a message, once.

A call ends before its answer at its own limit, when a person presses Esc, when its client gives it up, and when the
tool server dies.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from synapse.calibration.model_server import Fact, LedgerEntry
from synapse.calibration.scripted_model import CallMcpTool, SayText, Scene
from synapse.calibration.trial import TaskFollower, reason, texts
from synapse.client.views import message_of
from synapse.config.settings import load_profile
from synapse.tasks.deferral import WAITING_FOR_REPLY
from tests.integration.attach.seat import Seat, seated
from tests.real_clis.benches import PATIENCE, eventually
from tests.real_clis.test_tools import ADA, BOB, EXACT, Row, World, change, each_profile, finished, world_of

LATE = f"calibrate:late:2 {EXACT}"
"""An answer that makes the model say what it does with a late one."""
READ = SayText(("I have ", "read it."))
ESC = b"\x1b"
ESC_SECONDS = 0.3
"""Between two presses of one person."""
CLIENT_SECONDS = 4
SCENES: dict[str, Scene] = {
    "wait": (CallMcpTool("send", {"to": BOB, "text": LATE, "wait": "answer"}), SayText(("I go ", "on."))),
    "wait-mine": (
        CallMcpTool("send", {"to": BOB, "text": LATE, "wait": "answer"}, server="mine"),
        SayText(("I go ", "on.")),
    ),
    "late": (READ,),
    "ask-bob": (
        CallMcpTool("send", {"to": BOB, "text": "calibrate:answer:2 please", "wait": "answer"}),
        SayText(("Bob has ", "answered.")),
    ),
    "ask-ada": (
        CallMcpTool("send", {"to": ADA, "text": "calibrate:answer:2 please", "wait": "answer"}),
        SayText(("Ada has ", "answered.")),
    ),
    "answer": (CallMcpTool("reply", {"text": EXACT}), SayText(("I have ", "replied."))),
    "person": (
        CallMcpTool("ask_person", {"question": "Which colour?", "options": ["Blue", "Red"]}),
        SayText(("A person ", "has answered.")),
    ),
}


def each_of(*profiles: str) -> pytest.MarkDecorator:
    """Runs a test with these CLIs, which stand for the others."""
    return pytest.mark.parametrize("row", [Row(profile) for profile in profiles], ids=lambda row: row.name)


def prompts(world: World, turn: str) -> list[str]:
    """Returns what the model was asked in turns of that name."""
    return [entry.text for entry in world.model.ledger.of(turn) if entry.fact is Fact.ASKED]


def wait_for(world: World, turn: str, fact: Fact) -> LedgerEntry:
    seen = world.model.ledger.wait_for(turn, fact, seconds=PATIENCE)
    assert seen is not None, world.told(ADA)
    return seen


def start_bob(world: World) -> None:
    """Starts an agent that answers with what it is told, once a person lets it."""
    script = world.sandbox.home / "bob.toml"
    steps = '[{ question = "Shall I answer?", options = ["allow: Yes", "deny: No"] }, { answer = "{text}" }]'
    script.write_text(f"[default]\nsteps = {steps}\n", encoding="utf-8")
    started = world.sandbox.synapse("start", "scripted", str(script), "--name", BOB)
    assert started.code == 0, started.notices


def let_bob_answer(world: World) -> None:
    allowed = world.sandbox.synapse("approve", BOB)
    assert allowed.code == 0, allowed.notices


def wait_in_call(world: World, scene: str) -> TaskFollower:
    """Makes the model of the agent ask the other one; returns when the other agent has the question."""
    task = world.send(ADA, scene)
    eventually(lambda: world.messages_to(BOB) == [LATE])
    return task


def assert_told_once(world: World) -> None:
    """Asserts that the late answer comes as a message, exactly, and not again, and that the model reads it."""
    eventually(
        lambda: [task["status"] for task in late_messages(world)] == ["completed"],
        lambda: f"{late_messages(world)}\n{world.told(ADA)}",
    )
    newest = json.dumps(world.model.requests[-1], ensure_ascii=False)
    assert json.dumps(LATE, ensure_ascii=False)[1:-1] in newest, world.told(ADA)
    assert len(late_messages(world)) == 1


def late_messages(world: World) -> list[dict[str, Any]]:
    """Returns the tasks by which the agent was told the late answer."""
    tasks: list[dict[str, Any]] = json.loads(world.sandbox.synapse("tasks", ADA, "--json").output)
    return [task for task in tasks if message_of(task) == LATE]


@each_profile
@pytest.mark.timeout(240)
def test_whoever_asked_the_agent_gets_what_it_makes_of_the_late_answer(row: Row) -> None:
    with world_of(row.profile, env={"SYNAPSE_MCP_WAIT": "2"}, scenes=SCENES) as world:
        start_bob(world)
        world.start(row, ADA, "--no-instructions")
        task = wait_in_call(world, "wait")
        open_yet = task.until(lambda seen: reason(seen) == WAITING_FOR_REPLY, PATIENCE)
        assert open_yet is not None, world.told(ADA)
        assert open_yet.status == "working"

        let_bob_answer(world)

        assert texts(finished(world, ADA, task)) == [READ.text]
        assert_told_once(world)
        results = [entry.text for entry in world.model.ledger.of("wait:1") if entry.fact is Fact.RESULT]
        assert [f"no answer from {BOB} yet" in result for result in results] == [True]


@pytest.mark.timeout(240)
def test_two_clis_whose_questions_cross_do_not_wait_for_each_other() -> None:
    with world_of("claude", "codex", scenes=SCENES) as world:
        world.start(Row("claude"), ADA, "--no-instructions")
        world.start(Row("codex"), BOB, "--no-instructions")
        # Both have their next message before either begins with it, so that each asks while the other does.
        for name in (ADA, BOB):
            world.send(name, "slow")
        eventually(lambda: [entry.fact for entry in world.model.ledger.of("slow:1")].count(Fact.HELD) == 2)
        to_ada, to_bob = world.send(ADA, "ask-bob"), world.send(BOB, "ask-ada")
        world.model.release("slow:1")

        # Neither can reply while it waits. The second call is refused, so that its agent can answer the first.
        assert texts(finished(world, ADA, to_ada)) == ["Bob has answered."], world.told(BOB)
        assert texts(finished(world, BOB, to_bob)) == ["Ada has answered."], world.told(BOB)
        results = [wait_for(world, turn, Fact.RESULT).text for turn in ("ask-bob:1", "ask-ada:1")]
        assert sorted("would never end" in result for result in results) == [False, True], results
        assert sorted(EXACT in result for result in results) == [False, True], results
        assert len(prompts(world, "answer:2")) == 1


# Gemini CLI cancels no call when its turn is interrupted.
@each_profile
@pytest.mark.timeout(240)
def test_an_answer_to_a_call_that_a_person_interrupts_arrives_as_a_message(row: Row) -> None:
    with world_of(row.profile, scenes=SCENES) as world:
        start_bob(world)
        world.start(row, ADA, "--no-instructions")
        with at_terminal(world, ADA) as seat:
            task = wait_in_call(world, "wait")
            press_esc(seat, row)
            assert task.until_finished(PATIENCE) is not None, world.told(ADA)
            assert task.status == "failed", world.told(ADA)

            let_bob_answer(world)

            assert_told_once(world)


@contextmanager
def at_terminal(world: World, name: str) -> Generator[Seat]:
    """Sits down at an agent in the background."""
    env = [f"{variable}={value}" for variable, value in world.sandbox.env.items()]
    command = (sys.executable, "-P", "-m", "synapse.cli.main", "attach", name)
    with seated("env", "-C", str(world.sandbox.project), *env, *command) as seat:
        yield seat


def press_esc(seat: Seat, row: Row) -> None:
    """Presses Esc as often as it takes to interrupt the CLI."""
    pause = threading.Event()
    for _ in load_profile(row.profile).interrupt.keys:
        seat.types(ESC)
        pause.wait(ESC_SECONDS)


@each_of("claude", "codex")
@pytest.mark.timeout(240)
def test_an_answer_is_not_lost_with_the_tool_server(row: Row) -> None:
    with world_of(row.profile, scenes=SCENES) as world:
        start_bob(world)
        world.start(row, ADA, "--no-instructions")
        task = wait_in_call(world, "wait")

        kill_server(world)
        wait_for(world, "wait:1", Fact.SAID)
        let_bob_answer(world)

        assert_told_once(world)
        assert task.until_finished(PATIENCE) is not None, world.told(ADA)
        # A CLI may start its server again.
        has_server = bool(servers(world))
        assert world.tools(ADA)["mcp"] == ("listed" if has_server else "missing"), world.told(ADA)


def kill_server(world: World) -> None:
    """Kills the process of `synapse mcp`, of which there is one."""
    (server,) = servers(world)
    os.kill(server, signal.SIGKILL)


def servers(world: World) -> list[int]:
    return [pid for pid, command in world.sandbox.processes().items() if command.endswith(" mcp")]


@each_of("codex", "opencode", "copilot")
@pytest.mark.timeout(240)
def test_an_answer_to_a_call_that_the_client_gives_up_arrives_as_a_message(row: Row) -> None:
    with world_of(row.profile, scenes=SCENES) as world:
        start_bob(world)
        world.start(own_server(world, row), ADA, "--no-instructions", "--no-mcp")
        wait_in_call(world, "wait-mine")
        wait_for(world, "wait-mine:1", Fact.SAID)
        let_bob_answer(world)

        assert_told_once(world)


def own_server(world: World, row: Row) -> Row:
    """Gives the CLI the tool server under another name, as a person may, with an impatient client.

    Returns the row with the arguments by which the person allows its tools.
    """
    home = world.sandbox.home
    command = (sys.executable, "-P", "-m", "synapse.cli.main", "mcp")
    program, *words = command
    entry: dict[str, Any] = {"command": program, "args": words}
    milliseconds = CLIENT_SECONDS * 1000
    match row.profile:
        case "codex":
            variables = '["SYNAPSE_AGENT_ID", "SYNAPSE_SOCKET", "SYNAPSE_HOME"]'
            with (home / ".codex" / "config.toml").open("a", encoding="utf-8") as config:
                config.write(
                    f"\n[mcp_servers.mine]\ncommand = {json.dumps(program)}\nargs = {json.dumps(words)}\n"
                    f'env_vars = {variables}\ndefault_tools_approval_mode = "approve"\n'
                )
            return replace(row, args=("-c", f"mcp_servers.mine.tool_timeout_sec={CLIENT_SECONDS}"))
        case "opencode":
            server = {"type": "local", "command": [*command], "timeout": milliseconds}
            change(home / ".config" / "opencode" / "opencode.json", mcp={"mine": server})
            return row
        case "copilot":
            server = {**entry, "type": "local", "tools": ["*"], "timeout": milliseconds}
            change(home / ".copilot" / "mcp-config.json", mcpServers={"mine": server})
            return replace(row, args=("--allow-tool=mine",))
        case _:
            raise AssertionError(f"how does {row.profile} get an impatient client?")


@pytest.mark.timeout(240)
def test_a_person_answers_a_models_question() -> None:
    with world_of("claude", scenes=SCENES) as world:
        world.start(Row("claude"), ADA, "--no-instructions")
        task = world.send(ADA, "person")
        eventually(lambda: bool(questions(world)))
        ((question_id, title),) = questions(world)
        assert "Which colour?" in title

        answered = world.sandbox.synapse("answer", question_id, "Blue")

        assert answered.code == 0, answered.notices
        assert texts(finished(world, ADA, task)) == ["A person has answered."]
        assert "Blue" in wait_for(world, "person:1", Fact.RESULT).text


def questions(world: World) -> list[tuple[str, str]]:
    """Returns the task and the title of each open question, as `synapse approvals` lists them."""
    listed: list[dict[str, Any]] = json.loads(world.sandbox.synapse("approvals", "--json").output or "[]")
    return [(str(one["task_id"]), str(one["question"]["title"])) for one in listed]
