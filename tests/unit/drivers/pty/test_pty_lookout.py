"""When the loop looks at the screen: as often as somebody needs it, however much is printed."""

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
from synapse.drivers.pty import watcher as lookout_module
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
    """Counts how often another thread tells it something."""

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


class Post:
    """A lookout with its screen and its pump; time stands still, and nobody looks without a reason."""

    def __init__(self, loop: CountingLoop, terminal: int) -> None:
        self.loop = loop
        self.clock = FakeClock()
        self.screen = LockedScreen(40, 6)
        self.pump = Pump(terminal, self.screen, self.clock, person=None, on_output=lambda: None)
        self.watch(self.screen)

    def watch(self, screen: LockedScreen) -> None:
        self.screen = screen
        self.screen.load()
        self.lookout = ScreenWatcher(RESTLESS, self.screen, self.pump, self.clock, lambda: False)

    def prints(self, data: bytes) -> None:
        """What the pump does when the program has printed something."""
        self.screen.feed(data)
        self.pump.last_output = self.clock.monotonic()
        self.lookout.output_came()

    async def turn(self) -> None:
        """Let the loop do what it was told until now."""
        done = self.loop.create_future()
        self.loop.call_soon(done.set_result, None)
        await done

    async def wait(self) -> None:
        await asyncio.wait_for(self.lookout.next_look(None), BOUND_SECONDS)


def on_post(scene: Callable[[Post], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=CountingLoop) as runner, a_terminal() as terminal:
        loop = runner.get_loop()
        assert isinstance(loop, CountingLoop)

        async def play() -> None:
            post = Post(loop, terminal)
            try:
                await scene(post)
            finally:
                post.lookout.close()

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
def nobody_looks_anyway(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only edges wake who waits here."""
    monkeypatch.setattr(lookout_module, "_SWEEP_SECONDS", LONG_SECONDS)
    monkeypatch.setattr(lookout_module, "_IDLE_SECONDS", LONG_SECONDS)


def test_a_flood_of_output_wakes_the_loop_once_for_each_look() -> None:
    async def scene(post: Post) -> None:
        for _ in range(100):
            post.prints(b"a line\r\n")
            await post.turn()
        assert post.loop.times_told == 1

        post.lookout.look()
        post.prints(b"one more\r\n")
        await post.turn()
        assert post.loop.times_told == 1, "that look is planned already"

    on_post(scene)


def test_who_waits_sees_what_is_printed_while_a_later_look_was_planned() -> None:
    async def scene(post: Post) -> None:
        post.prints(b"planned for later, as nobody waits\r\n")
        await post.turn()
        await post.wait()

        assert "planned for later, as nobody waits" in shown(post)

    on_post(scene)


def test_what_is_printed_after_a_look_is_told_anew() -> None:
    async def scene(post: Post) -> None:
        for word in ("one", "two", "three"):
            post.lookout.look()
            waiting = asyncio.ensure_future(post.wait())
            await post.turn()
            post.prints(word.encode() + b"\r\n")
            await waiting
            assert word in shown(post)

    on_post(scene)


def test_what_is_printed_after_somebody_else_has_looked_is_told_anew() -> None:
    async def scene(post: Post) -> None:
        post.lookout.look()
        waiting = asyncio.ensure_future(post.wait())
        await post.turn()
        post.prints(b"one\r\n")
        post.lookout.look()
        await waiting

        waiting = asyncio.ensure_future(post.wait())
        await post.turn()
        post.prints(b"two\r\n")
        await waiting

        assert "two" in shown(post)

    on_post(scene)


def test_a_look_that_took_long_does_not_put_off_the_next() -> None:
    async def scene(post: Post) -> None:
        post.watch(SlowScreen(post.clock))
        post.prints(b"first\r\n")
        post.lookout.look()
        post.prints(b"second\r\n")
        await post.wait()

        assert "second" in shown(post)

    on_post(scene)


def test_one_look_that_was_held_up_does_not_put_off_the_next_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookout_module, "_LONGEST_PAUSE", LONG_SECONDS)

    async def scene(post: Post) -> None:
        post.prints(b"first\r\n")
        post.lookout.look()
        post.watch(SlowScreen(post.clock))
        post.prints(b"second\r\n")
        post.lookout.look()
        post.prints(b"third\r\n")
        await post.wait()

        assert "third" in shown(post)

    on_post(scene)


def shown(post: Post) -> tuple[str, ...]:
    picture = post.lookout.look().picture
    assert picture is not None
    return picture.lines
