"""A message that is canceled while its files are being stored: nothing of it is typed."""

from __future__ import annotations

import asyncio

from synapse.core.message import FilePart
from tests.integration.pty.terminals import answer, dummy, staged


def test_a_message_that_is_canceled_while_its_files_are_stored_is_never_typed() -> None:
    async def story() -> None:
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

    asyncio.run(story())
