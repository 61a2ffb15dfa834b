"""Deliveries that have come some way, for tests to go on with."""

from __future__ import annotations

from synapse.terminal.delivery import Delivery, Intend, Step, Write
from synapse.terminal.evidence import Look
from synapse.terminal.picture import Picture
from synapse.terminal.profile import Profile
from tests.unit.terminal.scenes import TEXT, look_at, page

PASTE = b"\x1b[200~" + TEXT.encode() + b"\x1b[201~"
ENTER = Write(b"\r")
SUBMITTED = page(above=("▸ " + TEXT[:54], "  " + TEXT[54:]))


def typed_delivery(profile: Profile, ready: Picture, now: float = 0.0, text: str = TEXT) -> Delivery:
    """A delivery whose text has been written."""
    delivery = Delivery(text, profile)
    assert delivery.advance(look_at(ready), now) == (Intend(),)
    delivery.intent_recorded(now)
    (write,) = delivery.advance(look_at(ready), now)
    assert isinstance(write, Write)
    return delivery


def entered_delivery(profile: Profile, ready: Picture, with_text: Picture, now: float = 0.0) -> Delivery:
    """A delivery whose Enter has been pressed after the text was seen."""
    delivery = typed_delivery(profile, ready, now)
    assert delivery.advance(look_at(with_text), now) == (ENTER,)
    return delivery


def lasting(delivery: Delivery, look: Look, now: float) -> tuple[Step, ...]:
    """Shows the delivery one look now, and again when it next wants one."""
    first = delivery.advance(look, now)
    if first or delivery.deadline is None:
        return first
    return delivery.advance(look, delivery.deadline)
