"""The ring keeps the last output by offset, and wakes readers that had nothing left."""

from __future__ import annotations

import asyncio
import threading

from hypothesis import given
from hypothesis import strategies as st

from synapse.attach.output_ring import KEPT_BYTES, OutputRing


async def test_output_is_read_from_any_offset_that_is_kept() -> None:
    ring = OutputRing(100)
    ring.append(b"hello ")
    ring.append(b"world")

    assert ring.read(100, 5) == b"hello"
    assert ring.read(106, 100) == b"world"
    assert ring.read(111, 100) == b""
    assert ring.read(99, 100) is None
    assert ring.holds(111)
    assert not ring.holds(112)


async def test_it_keeps_what_it_promises_and_little_more() -> None:
    ring = OutputRing(0)
    for number in range(3000):
        ring.append(b"%09d\n" % number * 100)

    assert ring.end == 3_000_000
    assert KEPT_BYTES <= ring.end - ring.start < KEPT_BYTES + 65536
    assert ring.read(ring.end - 10, 10) == b"000002999\n"
    assert ring.read(ring.start, 10) is not None


@given(st.lists(st.one_of(st.binary(max_size=40), st.binary(min_size=40, max_size=9000)), max_size=40), st.data())
async def test_what_is_read_is_what_was_appended_however_it_was_cut(pieces: list[bytes], data: st.DataObject) -> None:
    ring = OutputRing(1000, kept=10_000)
    for piece in pieces:
        ring.append(piece)
    whole = b"".join(pieces)
    offset = data.draw(st.integers(900, 1000 + len(whole) + 10))
    most = data.draw(st.integers(1, 20_000))

    found = ring.read(offset, most)

    assert ring.end == 1000 + len(whole)
    assert ring.end - ring.start >= min(len(whole), 10_000)
    assert (found is None) == (offset < ring.start)
    assert found in (None, whole[offset - 1000 :][:most])


async def test_a_reader_with_nothing_left_is_woken_once() -> None:
    ring, woken = OutputRing(0), asyncio.Event()
    ring.notify(woken.set)
    assert ring.read(0, 10) == b""

    threading.Thread(target=ring.append, args=(b"x",)).start()
    async with asyncio.timeout(10):
        await woken.wait()

    woken.clear()
    ring.append(b"y")
    await asyncio.to_thread(lambda: None)
    assert not woken.is_set()


async def test_a_reader_that_has_left_is_not_woken() -> None:
    ring, woken, other = OutputRing(0), asyncio.Event(), asyncio.Event()
    ring.notify(woken.set)
    ring.notify(other.set)
    ring.forget(woken.set)
    ring.read(0, 10)
    ring.append(b"x")
    async with asyncio.timeout(10):
        await other.wait()

    assert not woken.is_set()
