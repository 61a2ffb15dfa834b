"""Races between a reader's thread and the loop: a read that is submitted, done or cancelled then is not lost.

Each race is brought about by a queue that lets the other side go first, once, at the one moment that matters.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from synapse.core.lifecycle import replay
from synapse.core.override import override
from synapse.store.threads import ReadThread
from tests.fakes.facts import TASK, opened
from tests.fakes.leased_store import LeasedStore

BOUND = 10.0
READER = "synapse-store-reader"
Moment = Callable[[], None]


def nothing() -> None:
    """Does nothing."""


class Rendezvous(deque[Any]):
    """A queue between the loop and the reader's thread. Each hook is called once."""

    def __init__(self) -> None:
        super().__init__()
        self.loop_takes: Moment = nothing
        self.reader_takes: Moment = nothing
        self.loop_found_nothing: Moment = nothing
        self.reader_found_nothing: Moment = nothing

    @override
    def popleft(self) -> Any:
        self._come("reader_takes" if in_the_reader() else "loop_takes")
        return super().popleft()

    @override
    def __len__(self) -> int:
        length = super().__len__()
        if not length:
            self._come("reader_found_nothing" if in_the_reader() else "loop_found_nothing")
        return length

    def _come(self, name: str) -> None:
        moment: Moment = getattr(self, name)
        setattr(self, name, nothing)
        moment()


class Meeting:
    """Lets one thread wait until the other has reached a point, or has ended."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._who = threading.current_thread()

    def reach(self) -> None:
        self._who = threading.current_thread()
        self._event.set()

    def wait(self) -> None:
        assert self._event.wait(BOUND)

    def wait_for_the_end(self) -> None:
        self._who.join(BOUND)
        assert not self._who.is_alive()


def in_the_reader() -> bool:
    return threading.current_thread().name == READER


def a_reader(path: Path, *, gather: int = 1) -> tuple[ReadThread, Rendezvous, Rendezvous]:
    """Returns a reader with its queue of reads and its queue of results."""
    reader, questions, answers = ReadThread(path, lock_timeout=BOUND, gather=gather), Rendezvous(), Rendezvous()
    reader._queue = questions  # pyright: ignore[reportPrivateUsage] # the race is inside
    reader._results = answers  # pyright: ignore[reportPrivateUsage] # see above
    return reader, questions, answers


async def test_a_read_that_arrives_while_the_thread_becomes_idle_is_done(tmp_path: Path) -> None:
    async with asyncio.timeout(2 * BOUND):
        reader, questions, _ = a_reader(tmp_path / "any.db")
        resting, asked = Meeting(), Meeting()

        def look_away() -> None:
            resting.reach()
            asked.wait()

        def look_once_more() -> None:
            # It first decides whether to deliver the result at once, then whether to become idle.
            questions.reader_found_nothing = look_away

        questions.reader_found_nothing = look_once_more
        first = reader.run(lambda: 1)
        await asyncio.to_thread(resting.wait)
        # It has seen an empty queue and has not set `_is_idle` yet, so the loop does not wake it.
        second = reader.run(lambda: 2)
        asked.reach()

        assert await asyncio.wait_for(first, BOUND) == 1
        assert await asyncio.wait_for(second, BOUND) == 2
        await reader.close()


async def test_a_result_that_arrives_during_a_delivery_is_delivered_too(tmp_path: Path) -> None:
    async with asyncio.timeout(2 * BOUND):
        reader, _, answers = a_reader(tmp_path / "any.db")
        late: list[asyncio.Future[Any]] = []
        is_answered = Meeting()

        def answer_one_more() -> None:
            late.append(reader.run(lambda: 2))
            late.append(reader.run(is_answered.reach))
            is_answered.wait()

        answers.loop_found_nothing = answer_one_more
        assert await reader.run(lambda: 1) == 1

        assert (await asyncio.wait_for(asyncio.gather(*late), BOUND))[0] == 2
        await reader.close()


async def test_the_result_of_a_read_is_delivered_although_the_thread_is_closing(tmp_path: Path) -> None:
    async with asyncio.timeout(2 * BOUND):
        reader, questions, _ = a_reader(tmp_path / "any.db", gather=5)
        begun, closing = Meeting(), Meeting()

        def read() -> str:
            begun.reach()
            closing.wait()
            return "read"

        def let_it_end() -> None:
            closing.reach()
            begun.wait_for_the_end()

        reading, waiting = reader.run(read), reader.run(lambda: "never")
        await asyncio.to_thread(begun.wait)
        # More reads wait after this one, so it delivers no result yet, and then it is closed.
        questions.loop_takes = let_it_end
        await reader.close()

        assert await asyncio.wait_for(reading, BOUND) == "read"
        assert waiting.cancelled()


async def test_a_read_that_is_cancelled_as_it_is_taken_does_not_break_the_thread(tmp_path: Path) -> None:
    async with asyncio.timeout(2 * BOUND):
        reader, questions, _ = a_reader(tmp_path / "any.db")
        taking, given_up = Meeting(), Meeting()

        def hesitate() -> None:
            taking.reach()
            given_up.wait()

        questions.reader_takes = hesitate
        asked = reader.run(lambda: 1)
        await asyncio.to_thread(taking.wait)
        reader.stop()
        given_up.reach()
        await asyncio.wait_for(reader.close(), BOUND / 2)

        assert asked.cancelled()
        taking.wait_for_the_end()


async def test_a_read_that_is_taken_as_it_is_cancelled_is_done(tmp_path: Path) -> None:
    async with asyncio.timeout(2 * BOUND):
        reader, questions, _ = a_reader(tmp_path / "any.db")
        taking, goes_on, is_taken = Meeting(), Meeting(), Meeting()

        def hesitate() -> None:
            taking.reach()
            goes_on.wait()

        def be_too_late() -> None:
            goes_on.reach()
            is_taken.wait()

        questions.reader_takes, questions.loop_takes = hesitate, be_too_late
        asked = reader.run(is_taken.reach)
        await asyncio.to_thread(taking.wait)
        reader.stop()

        await asyncio.wait_for(asked, BOUND)
        await reader.close()


async def test_a_read_may_outlive_its_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mishaps: list[object] = []
    monkeypatch.setattr(threading, "excepthook", mishaps.append)
    begun, goes_on = Meeting(), Meeting()

    def read() -> None:
        begun.reach()
        goes_on.wait()

    async with asyncio.timeout(2 * BOUND):
        reader, _, _ = a_reader(tmp_path / "any.db")
        reader.run(read).cancel()
        await asyncio.to_thread(begun.wait)
        reader.stop()
    goes_on.reach()
    begun.wait_for_the_end()

    assert mishaps == []


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
async def test_a_closed_store_holds_no_file(tmp_path: Path) -> None:
    path = tmp_path / "store.db"

    def held() -> list[str]:
        files = [os.path.realpath(file) for file in Path("/proc/self/fd").iterdir()]
        return [file for file in files if file.startswith(os.path.realpath(path))]

    async with asyncio.timeout(2 * BOUND):
        store = await LeasedStore.open(path)
        await store.append(replay([opened()]), [opened()])
        await store.load(TASK)
        assert held()
        await store.close()
        assert held() == []
