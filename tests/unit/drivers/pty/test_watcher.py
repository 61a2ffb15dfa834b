"""When the watcher looks at the screen: as often as callers need it, however much is printed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from contextvars import Context
from dataclasses import replace
from typing import Any, TypeVarTuple

import pytest

from synapse.core.override import override
from synapse.drivers.pty import watcher as watcher_module
from synapse.drivers.pty.pump import Pump
from synapse.drivers.pty.screen import LockedScreen
from synapse.drivers.pty.watcher import ScreenWatcher
from synapse.terminal.picture import Picture
from tests.fakes.clock import FakeClock
from tests.unit.terminal.bundled import bundled

Arguments = TypeVarTuple("Arguments")
LONG_SECONDS = 3600.0
BOUND_SECONDS = 20.0
DUMMY = bundled("dummy")
RESTLESS = replace(DUMMY, times=replace(DUMMY.times, quiet=LONG_SECONDS))
"""A program that does not become quiet: that would be a reason to look too."""


class CountingLoop(asyncio.SelectorEventLoop):
    """Counts how often another thread wakes it."""

    def __init__(self) -> None:
        super().__init__()
        self.times_told = 0

    @override
    def call_soon_threadsafe(
        self, callback: Callable[[*Arguments], object], *args: *Arguments, context: Context | None = None
    ) -> asyncio.Handle:
        self.times_told += 1
        return super().call_soon_threadsafe(callback, *args, context=context)


class SlowScreen(LockedScreen):
    """A screen on a machine that is busy with other things: to read it takes an hour."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(40, 6)
        self._clock = clock

    @override
    def picture(self) -> Picture | None:
        self._clock.advance(LONG_SECONDS)
        return super().picture()


class Stage:
    """A watcher with its screen and its pump; time stands still, and nothing looks without a reason."""

    def __init__(self, loop: CountingLoop, terminal: int) -> None:
        self.loop = loop
        self.clock = FakeClock()
        self.screen = LockedScreen(40, 6)
        self.pump = Pump(terminal, self.screen, self.clock, person=None, on_output=lambda: None)
        self.use(self.screen)

    def use(self, screen: LockedScreen) -> None:
        self.screen = screen
        self.screen.load()
        self.watcher = ScreenWatcher(RESTLESS, self.screen, self.pump, self.clock, lambda: False)

    def prints(self, data: bytes) -> None:
        """Does what the pump does when the program has printed something."""
        self.screen.feed(data)
        self.pump.last_output = self.clock.monotonic()
        self.watcher.output_came()

    async def turn(self) -> None:
        """Lets the loop run the callbacks that it has."""
        done = self.loop.create_future()
        self.loop.call_soon(done.set_result, None)
        await done

    async def wait(self) -> None:
        await asyncio.wait_for(self.watcher.next_look(), BOUND_SECONDS)


def on_stage(scene: Callable[[Stage], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=CountingLoop) as runner, a_terminal() as terminal:
        loop = runner.get_loop()
        assert isinstance(loop, CountingLoop)

        async def play() -> None:
            stage = Stage(loop, terminal)
            try:
                await scene(stage)
            finally:
                stage.watcher.close()

        runner.run(play())


@contextmanager
def a_terminal() -> Generator[int]:
    master, slave = os.openpty()
    try:
        yield master
    finally:
        os.close(master)
        os.close(slave)


@pytest.fixture(autouse=True)
def only_edges_wake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets only edges wake a waiting caller."""
    monkeypatch.setattr(watcher_module, "_SWEEP_SECONDS", LONG_SECONDS)
    monkeypatch.setattr(watcher_module, "_IDLE_SECONDS", LONG_SECONDS)


def test_a_flood_of_output_wakes_the_loop_once_for_each_look() -> None:
    async def scene(stage: Stage) -> None:
        for _ in range(100):
            stage.prints(b"a line\r\n")
            await stage.turn()
        assert stage.loop.times_told == 1

        stage.watcher.look()
        stage.prints(b"one more\r\n")
        await stage.turn()
        assert stage.loop.times_told == 1, "that look is planned already"

    on_stage(scene)


def test_a_waiting_caller_sees_output_that_came_while_a_later_look_was_planned() -> None:
    async def scene(stage: Stage) -> None:
        stage.prints(b"planned for later, as no caller waits\r\n")
        await stage.turn()
        await stage.wait()

        assert "planned for later, as no caller waits" in shown(stage)

    on_stage(scene)


def test_output_after_a_look_notifies_the_loop_again() -> None:
    async def scene(stage: Stage) -> None:
        for word in ("one", "two", "three"):
            stage.watcher.look()
            waiting = asyncio.ensure_future(stage.wait())
            await stage.turn()
            stage.prints(word.encode() + b"\r\n")
            await waiting
            assert word in shown(stage)

    on_stage(scene)


def test_output_after_the_look_of_another_caller_notifies_the_loop_again() -> None:
    async def scene(stage: Stage) -> None:
        stage.watcher.look()
        waiting = asyncio.ensure_future(stage.wait())
        await stage.turn()
        stage.prints(b"one\r\n")
        stage.watcher.look()
        await waiting

        waiting = asyncio.ensure_future(stage.wait())
        await stage.turn()
        stage.prints(b"two\r\n")
        await waiting

        assert "two" in shown(stage)

    on_stage(scene)


def test_a_look_that_took_long_does_not_put_off_the_next() -> None:
    async def scene(stage: Stage) -> None:
        stage.use(SlowScreen(stage.clock))
        stage.prints(b"first\r\n")
        stage.watcher.look()
        stage.prints(b"second\r\n")
        await stage.wait()

        assert "second" in shown(stage)

    on_stage(scene)


def test_one_look_that_was_held_up_does_not_put_off_the_next_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher_module, "_LONGEST_PAUSE", LONG_SECONDS)

    async def scene(stage: Stage) -> None:
        stage.prints(b"first\r\n")
        stage.watcher.look()
        stage.use(SlowScreen(stage.clock))
        stage.prints(b"second\r\n")
        stage.watcher.look()
        stage.prints(b"third\r\n")
        await stage.wait()

        assert "third" in shown(stage)

    on_stage(scene)


def shown(stage: Stage) -> tuple[str, ...]:
    picture = stage.watcher.look().picture
    assert picture is not None
    return picture.lines
