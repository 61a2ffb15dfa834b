"""Interrupts by keys, and programs that do not notice them at once."""

from __future__ import annotations

import asyncio
import signal
import sys

from synapse.core.agent import WAITING, WORKING
from tests.integration.pty.terminals import BOUND, answer, line_program, staged, until

# It takes the first interrupt for something else, as a busy program does with two Escapes that come at once.
HARD_OF_HEARING = """
import signal
came = []
signal.signal(signal.SIGINT, lambda *_: came.append(1))
while True:
    input("> ")
    print("working", flush=True)
    while len(came) < 2:
        signal.pause()
    print("interrupted", flush=True)
"""


# The first of two keys makes it ask; the second would be the answer.
ASKS_WHEN_INTERRUPTED = """
import signal
signal.signal(signal.SIGINT, lambda *_: print("Really? 1. Yes", flush=True))
while True:
    input("> ")
    print("working", flush=True)
    while True:
        signal.pause()
"""


async def test_a_dialog_that_comes_between_the_keys_of_an_interrupt_gets_none_of_them() -> None:
    dialog = {"name": "really", "every": ["Really"]}
    profile = line_program(interrupt={"keys": ["ctrl-c", "ctrl-c"], "pause": BOUND}, dialogs=[dialog])
    async with staged((sys.executable, "-c", ASKS_WHEN_INTERRUPTED), profile) as stage:
        await stage.ready()
        turn = asyncio.ensure_future(stage.take("hello"))
        await stage.sees("working")
        await until(lambda: stage.driver.view().state == WORKING, "working")

        assert await stage.driver.interrupt() is False

        assert stage.screen().count("Really?") == 1
        turn.cancel()


async def test_an_interrupt_that_was_missed_is_pressed_again() -> None:
    profile = line_program(interrupt={"keys": ["ctrl-c"]})
    async with staged((sys.executable, "-c", HARD_OF_HEARING), profile) as stage:
        await stage.ready()
        turn = asyncio.ensure_future(stage.take("hello"))
        await stage.sees("working")
        await until(lambda: stage.driver.view().state == WORKING, "working")

        await stage.driver.interrupt()

        assert "interrupted" in answer(await asyncio.wait_for(turn, BOUND))


# It says nothing of itself but its question, and an interrupt would be an answer.
ASKS_AT_ONCE = """
import signal
signal.signal(signal.SIGINT, lambda *_: print("answered", flush=True))
print("Really? 1. Yes", flush=True)
while True:
    signal.pause()
"""


async def test_a_program_that_asks_is_not_interrupted_even_if_its_prompt_is_not_known() -> None:
    profile = line_program(prompt=None, dialogs=[{"name": "really", "every": ["Really"]}])
    async with staged((sys.executable, "-c", ASKS_AT_ONCE), profile) as stage:
        await until(lambda: stage.driver.view().state == WAITING, "the question")

        assert await stage.driver.interrupt() is False
        stage.program.signal_foreground(signal.SIGINT)
        await stage.sees("answered")
        assert stage.screen().count("answered") == 1
