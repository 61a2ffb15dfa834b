"""The receipt: how far a message has come on its way to an answer, with evidence for each step.

    queued → typed → submitted → turn_started → answered
                                              ↘ failed | canceled | expired   (from any step)

`typed` is the intent: it is durable before the first byte is written. `submitted` needs proof.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from synapse.core.value import value


class ReceiptStep(StrEnum):
    """One step of a message's way.

    Two things lead back, from typed to queued: an intent that came to nothing, and a person's decision.
    """

    QUEUED = "queued"
    TYPED = "typed"
    SUBMITTED = "submitted"
    TURN_STARTED = "turn_started"
    ANSWERED = "answered"
    FAILED = "failed"
    CANCELED = "canceled"
    EXPIRED = "expired"

    __hash__ = str.__hash__  # see TaskState

    @property
    def is_final(self) -> bool:
        return self in _FINAL


_FINAL = frozenset({ReceiptStep.ANSWERED, ReceiptStep.FAILED, ReceiptStep.CANCELED, ReceiptStep.EXPIRED})


@value
class Receipt:
    """A step that was reached: when, what was seen, and by which source (`screen`, `hook`, `journal`, …)."""

    step: ReceiptStep
    at: datetime
    source: str
    evidence: str = ""
