"""Messages into real programs: delivered, proven, answered; or not at all, with the reason."""

from __future__ import annotations

import asyncio
import stat
import sys
import time
from pathlib import Path

import pytest

from synapse.core.agent import EXITED, READY, WAITING, WORKING
from synapse.core.driver import Deferred, DeliveryUncertain, QuestionRaised, Submitted, Typing
from synapse.core.errors import AgentExited
from synapse.core.message import DataPart, FilePart
from synapse.drivers.pty.process import Launch
from synapse.terminal.reading import cells
from tests.integration.pty.terminals import (
    BOUND,
    Stage,
    agent,
    answer,
    dummy,
    environment,
    line_program,
    names,
    new_turn,
    staged,
    until,
)

pytestmark = pytest.mark.integration

PYTHON_PROMPT = {"prompt": {"pattern": "^>>> (?P<text>.*)$", "at_cursor": True}}


async def test_the_built_in_agent_answers() -> None:
    async with staged(dummy().command, dummy()) as stage:
        events = await stage.turn("hello")

        assert names(events) == ["Typing", "Submitted", "TurnStarted", "Answered"]
        assert answer(events) == "echo: hello"
        assert answer(await stage.turn("lines 3")) == "line 1\nline 2\nline 3"


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("letter", ["x", "日", "e\u0301"])
async def test_an_answer_that_fills_its_row_lets_the_next_message_in(columns: int, letter: str) -> None:
    launch = Launch(command=dummy().command, env=environment(), columns=columns, rows=24)
    async with staged(dummy().command, dummy(), launch=launch) as stage:
        for width in range(columns - 2, columns + 3):
            text = letter * ((width - len("echo: ")) // cells(letter))
            text += "." * (width - len("echo: ") - cells(text))
            assert answer(await stage.turn(text)) == f"echo: {text}"


async def test_messages_are_answered_one_after_the_other() -> None:
    async with staged(dummy().command, dummy()) as stage:
        for number in range(15):
            assert answer(await stage.turn(f"hello {number}")) == f"echo: hello {number}"


async def test_nothing_is_written_before_the_intent_is_recorded() -> None:
    async with staged(dummy().command, dummy()) as stage:
        await stage.ready()
        turn = stage.driver.take_turn(new_turn("hello"))
        event = await anext(turn)
        assert isinstance(event, Typing)
        await asyncio.sleep(0.1)  # the worker takes its time to make it durable
        assert "hello" not in stage.screen()

        assert isinstance(await anext(turn), Submitted)
        assert "hello" in stage.screen()
        await turn.aclose()


async def test_python_at_its_own_prompt_answers() -> None:
    command = (sys.executable, "-i", "-q")
    async with staged(command, line_program(**PYTHON_PROMPT)) as stage:
        await stage.ready()
        # Not an expression that Python could compute: the header makes it a syntax error, and that is its answer.
        events = await stage.turn("1 + 1")

        assert names(events) == ["Typing", "Submitted", "TurnStarted", "Answered"]
        assert "SyntaxError" in answer(events)


async def test_a_program_without_echo_and_prompt_gets_the_message_once() -> None:
    profile = line_program(prompt=None, times={"quiet": 0.1, "settle": 0.1, "unseen": 0.3, "echo": 0.2, "proof": 0.3})
    async with staged(agent("echoless"), profile) as stage:
        await stage.ready()
        turn = stage.driver.take_turn(new_turn("hello"))
        first = await anext(turn)
        second = await anext(turn)
        await stage.sees("got: [A2A:1a2b3c4d:user] hello")
        await turn.aclose()

        assert isinstance(first, Typing)
        # Nothing on such a screen proves that the program took it: it only looks as if. Doubt is the truth.
        assert isinstance(second, DeliveryUncertain | Submitted)
        assert stage.screen().count("hello") == 1


async def test_a_program_that_reads_late_gets_the_message_once() -> None:
    async with staged(agent("slow_reader", "0.7"), line_program()) as stage:
        events = await stage.turn("hello")

        assert "Submitted" in names(events)
        assert answer(events) == f"read {len('[A2A:1a2b3c4d:user] hello')} characters"


async def test_typing_into_a_program_that_never_reads_blocks_nothing() -> None:
    async with staged(agent("deaf"), line_program()) as stage:
        await stage.ready()
        begun = time.monotonic()
        stage.program.write(b"x" * 300_000)

        assert time.monotonic() - begun < 1
        assert stage.program.pump.input.pending > 0
        stage.program.type_keys(b"y" * 300_000)
        assert stage.program.pump.input.pending <= 300_000
        assert stage.driver.view().state == READY


async def test_a_message_in_a_program_that_never_reads_ends_in_doubt_and_is_typed_once() -> None:
    profile = line_program(times={"quiet": 0.02, "echo": 0.2, "proof": 0.3})
    async with staged(agent("deaf"), profile) as stage:
        await stage.ready()
        turn = stage.driver.take_turn(new_turn("hello"))

        assert isinstance(await anext(turn), Typing)
        assert isinstance(await asyncio.wait_for(anext(turn), BOUND), DeliveryUncertain)
        await turn.aclose()


async def test_a_dialog_is_waited_for_and_never_typed_into() -> None:
    async with staged(dummy().command, dummy()) as stage:
        await stage.ready()
        turn = stage.driver.take_turn(new_turn("dialog"))
        seen = [type(await anext(turn)).__name__ for _ in range(2)]
        event = await asyncio.wait_for(anext(turn), BOUND)
        while not isinstance(event, QuestionRaised):
            event = await asyncio.wait_for(anext(turn), BOUND)

        assert seen == ["Typing", "Submitted"]
        assert event.question.title == "Do you want to proceed?"
        assert stage.driver.view().state == WAITING
        assert await stage.driver.interrupt() is False
        await waits_at_gate(stage, "permission")
        stage.program.type_keys(b"y\r")
        rest = [event async for event in turn]
        assert "allowed" in answer(rest)


async def waits_at_gate(stage: Stage, why: str) -> None:
    """Checks that nothing else is delivered meanwhile: the gate is shut, and says why."""
    waiting = asyncio.ensure_future(stage.driver.wait_ready())
    await asyncio.wait((waiting,), timeout=0.2)
    assert not waiting.done()
    waiting.cancel()
    assert why in stage.driver.view().gate


async def test_a_half_typed_line_of_a_person_is_left_alone() -> None:
    async with staged(dummy().command, dummy()) as stage:
        await stage.ready()
        stage.program.type_keys(b"half a li")
        await stage.sees("> half a li")

        assert names(await stage.take("hello")) == ["Deferred"]
        await waits_at_gate(stage, "text in the prompt")
        stage.program.type_keys(b"ne\r")
        assert answer(await stage.turn("hello")) == "echo: hello"
        assert "echo: half a line" in stage.screen()


async def test_a_gate_that_shuts_before_typing_says_why() -> None:
    async with staged(dummy().command, dummy()) as stage:
        await stage.ready()
        stage.program.type_keys(b"x")
        await stage.sees("> x")

        events = await stage.take("hello")

        assert isinstance(events[0], Deferred)
        assert events[0].why


async def test_an_interrupt_ends_the_turn_that_runs_and_leaves_the_program_alive() -> None:
    async with staged(dummy().command, dummy()) as stage:
        await stage.ready()
        turn = asyncio.ensure_future(stage.take("wait 60"))
        await stage.sees("working for 60 s")
        assert stage.driver.view().state == WORKING

        assert await stage.driver.interrupt() is True

        assert "interrupted" in answer(await asyncio.wait_for(turn, BOUND))
        assert answer(await stage.turn("hello")) == "echo: hello"


async def test_an_idle_agent_gets_the_signal_and_then_the_message() -> None:
    async with staged(dummy().command, dummy()) as stage:
        await stage.ready()

        assert await stage.driver.interrupt() is True
        assert answer(await stage.turn("hello")) == "echo: hello"
        assert stage.screen().count("interrupted") == 1


@pytest.mark.parametrize("body", ["hello", "日本語 " * 60])
async def test_a_message_that_is_canceled_before_enter_is_cleared_and_never_submitted(body: str) -> None:
    profile = line_program(times={"quiet": 0.02, "settle": 0.05, "enter": BOUND, "echo": BOUND})
    async with staged(dummy().command, profile) as stage:
        await stage.ready()
        turn = asyncio.ensure_future(stage.take(body))
        await stage.sees(body.strip()[-3:])

        assert stage.driver.drop() is True

        assert names(await asyncio.wait_for(turn, BOUND)) == ["Typing"]
        await stage.ready()
        assert "echo" not in stage.screen()
        stage.program.type_keys(b"mine\r")
        await stage.sees("echo: mine")


async def test_nothing_can_be_dropped_when_nothing_is_being_typed() -> None:
    async with staged(dummy().command, dummy()) as stage:
        await stage.turn("hello")

        assert stage.driver.drop() is False
        assert answer(await stage.turn("again")) == "echo: again"


async def test_keys_that_interrupt_are_pressed_only_while_it_works() -> None:
    profile = line_program(interrupt={"keys": ["ctrl-c", "ctrl-c"], "pause": 0.05})
    async with staged(dummy().command, profile) as stage:
        await stage.ready()
        await stage.driver.interrupt()
        turn = asyncio.ensure_future(stage.take("wait 60"))
        await stage.sees("working for 60 s")
        assert "interrupted" not in stage.screen()

        await until(lambda: stage.driver.view().state == WORKING, "working")
        await stage.driver.interrupt()

        assert "interrupted" in answer(await asyncio.wait_for(turn, BOUND))


async def test_a_program_that_exits_in_the_middle_of_a_turn_ends_it() -> None:
    async with staged(dummy().command, dummy()) as stage:
        with pytest.raises(AgentExited, match="status 3"):
            await stage.turn("exit 3")

        assert await asyncio.wait_for(stage.program.exited, BOUND) == 3
        assert stage.driver.view().state == EXITED
        with pytest.raises(AgentExited):
            await stage.driver.wait_ready()


async def test_a_flood_of_output_is_followed_by_the_next_message() -> None:
    async with staged(agent("flooder", "20"), line_program()) as stage:
        assert answer(await stage.turn("hi")) == "hello"


@pytest.mark.parametrize("arguments", [(), ("plain",)])
async def test_a_full_screen_program_gets_a_paste_and_then_enter(arguments: tuple[str, ...]) -> None:
    profile = line_program(
        typing={"style": "paste"},
        times={"quiet": 0.05, "settle": 0.1, "unseen": 0.3},
        prompt={"pattern": "^% ?(?P<text>.*)$"},
    )
    async with staged(agent("painter", *arguments), profile) as stage:
        events = await stage.turn("hello\nthere @file")

        assert names(events) == ["Typing", "Submitted", "TurnStarted", "Answered"]
        assert "• [A2A:1a2b3c4d:user] hellothere @file" in stage.screen()
        assert stage.screen().count("hello") == 1


async def test_a_signal_of_the_program_proves_and_answers() -> None:
    profile = line_program(times={"quiet": 0.02, "echo": 0.1, "proof": BOUND, "settle": BOUND})
    async with staged(agent("deaf"), profile) as stage:
        await stage.ready()
        turn = asyncio.ensure_future(stage.take("hello"))
        await until(lambda: stage.program.pump.input.pending == 0 and not turn.done(), "typed")
        await asyncio.sleep(0.05)
        stage.driver.signal("signal", "submitted", "its hook said so")
        stage.driver.signal("signal", "working", "its hook said so")
        await until(lambda: stage.driver.view().state == WORKING, "working")
        stage.driver.signal("signal", "answered", "done, all of it")

        events = await asyncio.wait_for(turn, BOUND)

        assert "done, all of it" in answer(events)
        assert Submitted("signal", "its hook said so") in events


async def test_a_file_reaches_the_program_as_a_private_file_and_a_path() -> None:
    async with staged(dummy().command, dummy()) as stage:
        part = FilePart(content=b"\x00\x01binary", name="../../notes of today.txt")
        said = answer(await stage.turn("look", part))

        check_private(Path(said.replace("\n", "").partition("[file: ")[2].partition("]")[0]), stage.files)


def check_private(path: Path, folder: Path) -> None:
    assert path.read_bytes() == b"\x00\x01binary"
    assert path.is_relative_to(folder)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


async def test_data_and_addresses_reach_the_program_as_text() -> None:
    async with staged(dummy().command, dummy()) as stage:
        data = {"a": [1, 2], "b": "é"}
        said = answer(await stage.turn("see", DataPart(data=data), FilePart(url="https://example.org/x")))

        assert said == 'echo: see [data: {"a":[1,2],"b":"é"}] [file: https://example.org/x]'


async def test_a_message_over_the_limit_goes_as_a_file() -> None:
    async with staged(dummy().command, dummy()) as stage:
        said = answer(await stage.turn("word " * 2000))

        path = Path(said.replace("\n", "").rpartition(": ")[2])
        assert await asyncio.to_thread(path.read_text, "utf-8") == ("word " * 2000).strip()
