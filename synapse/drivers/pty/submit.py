"""Brings a message into the program, by keys or by its API: durable intent first, and never twice.

Both ways yield `Typing` before anything reaches the program, and end with `Deferred` (nothing was taken) or `Submitted`
(there is proof). `DeliveryUncertain` in between means that the message may have been taken: nothing is sent again.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from typing import Final, assert_never

from synapse.core.agent import WORKING
from synapse.core.driver import DEGRADED, Deferred, DeliveryUncertain, Submitted, TurnEvent, Typing
from synapse.drivers.pty.adapters.adapter import ApiSender, Busy, NotTaken
from synapse.drivers.pty.context import PtyContext
from synapse.terminal.delivery import (
    Clear,
    Closed,
    Delivery,
    Doubt,
    Dropped,
    Intend,
    Phase,
    Proven,
    Step,
    Withdrawn,
    Write,
)
from synapse.terminal.evidence import Source
from synapse.terminal.gate import shut_for_sending

log = logging.getLogger(__name__)

_DRAIN_SECONDS: Final = 0.05
"""How often to check whether the program has read what was written."""
_FIRST_SIGNAL_SECONDS: Final = 30.0
_SILENT: Final = f"{DEGRADED}: its server took the message and has said nothing since"


class KeySubmitter:
    """Types messages for one driver, as `terminal.delivery` decides."""

    def __init__(self, context: PtyContext) -> None:
        self._context = context
        self._is_unread = False
        self._may_leave_text = False

    async def deliver(self, delivery: Delivery) -> AsyncGenerator[TurnEvent, None]:
        """Types the text; ends with Deferred or Submitted, or without an event when the delivery is dropped.

        Raises AgentExited.
        """
        while True:
            for step in await self._next_steps(delivery):
                if isinstance(step, Write):
                    self._write(step.data, is_text=delivery.phase is Phase.TYPED)
                    continue
                if isinstance(step, Clear):
                    await self._context.program.clear_input()
                    continue
                if isinstance(step, Dropped):
                    return
                yield _event(step)
                if isinstance(step, Closed | Withdrawn | Proven):
                    self._may_leave_text = self._may_leave_text and not isinstance(step, Proven)
                    return
                if isinstance(step, Intend):
                    delivery.intent_recorded(self._context.now())

    async def _next_steps(self, delivery: Delivery) -> tuple[Step, ...]:
        """Looks at the screen until the delivery has something to do."""
        context = self._context
        while True:
            if self._is_unread and context.program.pump.input.pending == 0:
                self._is_unread = False
                delivery.written(context.now())
            signal = context.signals.take_submission()
            if signal is not None:
                steps = delivery.signalled(signal.source, signal.detail, context.now())
            else:
                steps = delivery.advance(context.look(), context.now())
            if steps:
                return steps
            drained = context.now() + _DRAIN_SECONDS if self._is_unread else None
            await context.watcher.next_look(delivery.deadline, drained)

    def _write(self, data: bytes, *, is_text: bool) -> None:
        context = self._context
        # A line that was typed and never proven would be submitted together with this one. It is in the terminal of a
        # line program, or in its line editor, and later output of the program may hide it.
        is_hidden = is_text and self._may_leave_text and context.profile.reads_lines
        if is_hidden and not context.program.drop_unread():
            context.program.write(context.profile.clear_keys)
        context.program.write(data)
        self._is_unread = self._may_leave_text = True
        context.recheck()


class ApiSubmitter:
    """Sends one message by the program's API. `key` names the message there."""

    def __init__(self, context: PtyContext, sender: ApiSender, text: str, key: str) -> None:
        self._context = context
        self._sender = sender
        self._text = text
        self._key = key
        self._has_begun = False
        self._is_dropped = False
        self.was_refused = False
        """The program has certainly not taken the message, so it may be typed."""

    def drop(self, _now: float) -> bool:
        """Cancels the message; False when it is too late."""
        self._is_dropped = not self._has_begun
        return self._is_dropped

    async def events(self) -> AsyncGenerator[TurnEvent, None]:
        """Sends the message; ends with Deferred or Submitted, or without an event when the message was dropped.

        Raises AgentExited.
        """
        closed = self._closed()
        if not closed:
            yield Typing()
            closed = self._closed()
        if self._is_dropped:
            return
        if closed:
            yield Deferred(closed)
            return
        event = await self._send()
        yield event
        if isinstance(event, DeliveryUncertain):
            yield await self._wait_for_proof()
        elif isinstance(event, Submitted):
            await self._wait_for_first_signal(event.evidence)

    def _closed(self) -> str:
        closed = shut_for_sending(self._context.look(), self._context.profile)
        return closed.why if closed else ""

    async def _send(self) -> Submitted | Deferred | DeliveryUncertain:
        self._has_begun = True
        self._context.signals.key = self._key
        try:
            evidence = await self._sender.send(self._text, self._key)
        except Busy as error:
            return Deferred(str(error))
        except NotTaken as error:
            self.was_refused = True
            return Deferred(str(error))
        except Exception as error:  # noqa: BLE001  # whatever went wrong, the message may be there: only its signals can tell
            log.warning("submission_in_doubt", extra={"error": type(error).__name__})
            return DeliveryUncertain(
                f"it is not certain that the program took the message: {str(error) or type(error).__name__}"
            )
        return Submitted(Source.SIGNAL, evidence)

    async def _wait_for_first_signal(self, evidence: str) -> None:
        """Reports that the agent works until its server reports something itself.

        The TUI may show an empty prompt for many seconds more (OpenCode, at its first turn on a busy machine), which
        looks like the end of the turn. A server that stays silent is not believed for ever: then the terminal counts.
        """
        context, end = self._context, self._context.now() + _FIRST_SIGNAL_SECONDS
        if not context.signals.has_reported:
            context.watcher.evidence.report(Source.SIGNAL, WORKING, evidence, context.now())
        while not context.signals.has_reported:
            if context.now() >= end:
                context.watcher.evidence.report(Source.SIGNAL, "", _SILENT, context.now())
                return
            context.look()
            await context.watcher.next_look(end)

    async def _wait_for_proof(self) -> Submitted:
        """Waits until the program, or a person, says that the program has the message."""
        while True:
            self._context.look()
            signal = self._context.signals.take_submission()
            if signal is not None:
                return Submitted(signal.source, signal.detail)
            await self._context.watcher.next_look()


def _event(step: Closed | Withdrawn | Intend | Proven | Doubt) -> TurnEvent:
    match step:
        case Closed(why) | Withdrawn(why):
            return Deferred(why)
        case Intend():
            return Typing()
        case Proven(source, evidence):
            return Submitted(source, evidence)
        case Doubt(why):
            return DeliveryUncertain(why)
        case _:
            assert_never(step)
