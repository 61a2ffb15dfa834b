"""What is seen of a delivery and of a turn, in the words of core.driver."""

from __future__ import annotations

from typing import assert_never

from synapse.core.driver import Doubted, NotNow, Progress, Submitted, TurnEvent, TurnStarted, Typing
from synapse.terminal.delivery import Closed, Doubt, Intend, Proven, Withdrawn
from synapse.terminal.turn import Waiting, Working


def delivery_event(step: Closed | Withdrawn | Intend | Proven | Doubt) -> TurnEvent:
    """What a step of a delivery tells the worker."""
    match step:
        case Closed(why) | Withdrawn(why):
            return NotNow(why)
        case Intend():
            return Typing()
        case Proven(source, evidence):
            return Submitted(source, evidence)
        case Doubt(why):
            return Doubted(why)
        case _:
            assert_never(step)


def turn_event(step: Working | Waiting, *, has_started: bool) -> TurnEvent:
    """What a step of a turn tells the worker; `has_started` if it was told of its start."""
    match step:
        case Working(source, evidence):
            return Progress("the dialog was answered") if has_started else TurnStarted(source, evidence)
        case Waiting(dialog, hint):
            return Progress(f"a dialog waits for a person: {dialog}" + (f" ({hint})" if hint else ""))
        case _:
            assert_never(step)
