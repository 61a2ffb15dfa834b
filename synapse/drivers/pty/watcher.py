"""Decides when to look at the screen, and keeps the result: the loop's side of the pump.

A look costs milliseconds, so the watcher looks a little after edges (output came, output stopped), never for each
chunk. A caller of `next_look` is woken at once; without one, a look each second keeps the verdict current.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from synapse.core.driver import AgentStatus, StatusListeners
from synapse.core.types import Clock
from synapse.drivers.pty.pump import Pump
from synapse.drivers.pty.screen import LockedScreen
from synapse.drivers.pty.tty import edits_lines
from synapse.terminal.evidence import Evidence, Look, Source
from synapse.terminal.profile import Profile

log = logging.getLogger(__name__)

_AWAITED_SECONDS: Final = 0.002
_IDLE_SECONDS: Final = 1.0
_SHARE: Final = 16
"""Looks take about one part in so many of the time, however much the program prints."""
_LONGEST_PAUSE: Final = 0.05
"""On a busy machine a look takes long because others had the processor; that must not delay the next one."""
_FRESH_SECONDS: Final = 0.05
_SWEEP_SECONDS: Final = 2.0
"""How often a caller that waits looks anyway, to find what no edge announced."""
_LOG_BURST: Final = 10.0
"""How many changes of state are logged at once, then one a second: a program that flickers must not fill the log."""


class ScreenWatcher:
    """Looks at the screen for one driver. Call it in the loop's thread, except `output_came`."""

    def __init__(
        self, profile: Profile, screen: LockedScreen, pump: Pump, clock: Clock, has_unread: Callable[[], bool]
    ) -> None:
        self._profile = profile
        self._screen = screen
        self._pump = pump
        self._has_unread = has_unread
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self.evidence = Evidence(profile, clock.monotonic())
        self._waiters: set[asyncio.Future[None]] = set()
        self._is_notified = False
        """Whether the loop knows of new output: a look is planned, or will be."""
        self._timer: asyncio.TimerHandle | None = None
        self._looked_version = -1
        self._looked_at = clock.monotonic()
        self._costs = (0.0, 0.0)
        """How long the last two looks at something new took."""
        self._latest: Look | None = None
        self.listeners = StatusListeners()
        self.on_look: Callable[[Look], None] = lambda _look: None
        """Called with each look."""
        self._told_state = ""
        self._logged_state = ""
        self._log_budget = (_LOG_BURST, clock.monotonic())
        """How many changes of state may be logged, and when that was counted."""

    def output_came(self) -> None:
        """Notifies the loop of new output, at most once for each look. Call it in any thread.

        Otherwise a program that floods its terminal would wake the loop a thousand times a second.
        """
        if self._is_notified:
            return
        self._is_notified = True
        try:
            self._loop.call_soon_threadsafe(self._plan)
        except RuntimeError:
            # The loop is closed: the host is shutting down.
            return

    def look(self) -> Look:
        """Looks at the screen now."""
        begun = self._clock.monotonic()
        is_new = self._looked_version != self._screen.version
        self._looked_version = self._screen.version
        picture = self._screen.picture()
        draft = self._pump.draft.state(kernel_edits=edits_lines(self._pump.terminal), has_unread=self._has_unread)
        now = self._clock.monotonic()
        look = self.evidence.look(
            picture,
            quiet_for=0.0 if self._pump.is_moving else max(now - self._pump.last_output, 0.0),
            now=now,
            person_idle_for=now - self._pump.last_key,
            draft=draft,
            paints_frames=self._screen.paints_frames,
        )
        # The moment that was judged, not the end of judging: output may have become quiet between the two.
        self._looked_at = now
        self._latest = look
        self._log_state(now)
        self.tell_state()
        self.on_look(look)
        if is_new:
            self._costs = (self._costs[1], self._clock.monotonic() - begun)
            # This look takes the edge that the other callers wait for.
            self.wake()
        return look

    def tell_state(self) -> None:
        """Tells the listeners if the agent's state has changed since the last time."""
        if self.evidence.verdict.state != self._told_state:
            self._told_state = self.evidence.verdict.state
            self.tell()

    def tell(self) -> None:
        """Tells the listeners the agent's state."""
        self.listeners.tell(self._status)

    def latest(self) -> Look:
        """Returns the last look if it is still true, or looks again."""
        age = self._clock.monotonic() - self._looked_at
        if self._latest is None or age > _FRESH_SECONDS or self.is_stale():
            return self.look()
        return self._latest

    def is_stale(self) -> bool:
        """Returns whether something has changed since the last look."""
        quiet_at = self._pump.last_output + self._profile.times.quiet
        now = self._clock.monotonic()
        return self._looked_version != self._screen.version or self._looked_at < quiet_at <= now

    async def next_look(self, *deadlines: float | None) -> None:
        """Waits until a new look is worthwhile: output came or stopped, or the first of the deadlines has passed."""
        now = self._clock.monotonic()
        quiet_at = self._pump.last_output + self._profile.times.quiet
        moments = [now + _SWEEP_SECONDS, *(deadline for deadline in deadlines if deadline is not None)]
        if quiet_at > self._looked_at:
            # Also when that is past: since the last look, the program has become quiet.
            moments.append(quiet_at)
        wake_at = min(moments)
        waiter = self._loop.create_future()
        timer = self._loop.call_later(max(wake_at - now, 0.001), _resolve, waiter)
        self._waiters.add(waiter)
        self._plan()
        try:
            await waiter
        finally:
            timer.cancel()
            self._waiters.discard(waiter)

    def wake(self) -> None:
        """Lets all callers of `next_look` look now."""
        for waiter in self._waiters:
            _resolve(waiter)

    def close(self) -> None:
        """Plans no more looks."""
        if self._timer is not None:
            self._timer.cancel()

    def _status(self) -> AgentStatus:
        verdict = self.evidence.verdict
        since = self._clock.now() - timedelta(seconds=self._clock.monotonic() - verdict.since)
        return AgentStatus(state=verdict.state, why=verdict.why, source=verdict.source, since=since)

    def _log_state(self, now: float) -> None:
        verdict = self.evidence.verdict
        left, counted_at = self._log_budget
        left = min(_LOG_BURST, left + now - counted_at)
        if verdict.state == self._logged_state or left < 1.0:
            return
        self._logged_state = verdict.state
        self._log_budget = (left - 1.0, now)
        # A title is the program's own summary of the conversation, which must not be logged.
        why = "the title says so" if verdict.source == Source.TITLE else verdict.why
        log.info("agent_state", extra={"state": verdict.state, "source": str(verdict.source), "why": why})

    def _plan(self) -> None:
        """Sets the timer for the next look, if there will be anything new to see."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        # Before the screen is asked: later output notifies the loop again.
        self._is_notified = False
        if not self._is_look_due():
            return
        self._is_notified = True
        # The smaller cost: a single look that other processes held up does not say what the next one takes.
        rest = min(min(self._costs) * _SHARE, _LONGEST_PAUSE)
        pause = max(_AWAITED_SECONDS, rest) if self._waiters else _IDLE_SECONDS
        due_in = self._looked_at + pause - self._clock.monotonic()
        self._timer = self._loop.call_later(max(due_in, 0.0), self._due)

    def _is_look_due(self) -> bool:
        if self._waiters:
            return self._looked_version != self._screen.version
        is_quiet = self._clock.monotonic() >= self._pump.last_output + self._profile.times.quiet
        return self.is_stale() or not is_quiet

    def _due(self) -> None:
        self._timer, self._is_notified = None, False
        if self._waiters:
            self.wake()
            return
        self.look()
        self._plan()


def _resolve(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
