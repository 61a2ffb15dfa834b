"""A message that is canceled while its files are being stored: nothing of it is typed."""

from __future__ import annotations

import asyncio
import threading

from synapse.core.message import FilePart
from tests.integration.pty.terminals import BOUND, answer, dummy, staged


async def test_a_message_that_is_canceled_while_its_files_are_stored_is_never_typed() -> None:
    async with staged(dummy().command, dummy()) as stage:
        await stage.ready()
        turn = asyncio.ensure_future(stage.take("not this", FilePart(content=b"x", name="notes.txt")))
        # One round of the loop: a thread stores the file now, and the turn has to wait for it at least so long.
        loop = asyncio.get_running_loop()
        begun = loop.create_future()
        loop.call_soon(begun.set_result, None)
        await begun

        assert stage.driver.drop() is True
        assert await turn == []
        assert "but this" in answer(await stage.turn("but this"))
        assert "not this" not in stage.screen()


async def test_the_keys_that_clear_the_input_are_pressed_before_anything_else_is_typed() -> None:
    async with staged(dummy().command, dummy()) as stage:
        await stage.ready()
        goes_on = threading.Event()
        # The pump hangs, as it does behind a person's terminal that is stopped.
        stage.program.pump.call_soon(lambda: assert_set(goes_on))
        clearing = asyncio.ensure_future(stage.program.clear_input())
        # Nothing that the loop does makes it go on.
        for _ in range(50):
            await asyncio.sleep(0)
        assert not clearing.done()
        goes_on.set()
        await asyncio.wait_for(clearing, BOUND)
        assert "kept" in answer(await stage.turn("kept"))


async def test_clearing_the_input_of_a_program_that_ends_comes_to_an_end() -> None:
    async with staged(dummy().command, dummy()) as stage:
        await stage.ready()
        await stage.driver.stop()
        await asyncio.wait_for(stage.program.clear_input(), BOUND)


def assert_set(event: threading.Event) -> None:
    assert event.wait(BOUND)
