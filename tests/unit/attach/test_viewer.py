"""A viewer's buffer: in order, bounded, and fresh again after it fell behind."""

from __future__ import annotations

import asyncio
import threading

from synapse.attach.server import MAX_BUFFERED_BYTES, Viewer


async def test_bytes_come_out_as_they_came_in() -> None:
    viewer = Viewer()
    viewer.begin(b"picture ")
    viewer.receive(b"one ")
    viewer.receive(b"two")

    assert await viewer.take() == b"picture one two"


async def test_bytes_from_another_thread_wake_the_loop() -> None:
    viewer = Viewer()
    taking = asyncio.ensure_future(viewer.take())
    await asyncio.wait((taking,), timeout=0)
    thread = threading.Thread(target=viewer.receive, args=(b"late",))
    thread.start()

    assert await asyncio.wait_for(taking, 5) == b"late"
    thread.join()


async def test_a_viewer_that_falls_behind_keeps_nothing_until_it_begins_anew() -> None:
    viewer = Viewer()
    viewer.receive(b"x" * MAX_BUFFERED_BYTES)
    viewer.receive(b"more")
    viewer.receive(b"and more")

    assert await viewer.take() == b""
    assert viewer.is_behind
    viewer.begin(b"picture")
    viewer.receive(b" live")
    assert await viewer.take() == b"picture live"
    assert not viewer.is_behind


async def test_after_the_end_the_buffered_bytes_come_and_then_none() -> None:
    viewer = Viewer()
    viewer.receive(b"last words")
    viewer.end()

    assert await viewer.take() == b"last words"
    assert await viewer.take() is None
