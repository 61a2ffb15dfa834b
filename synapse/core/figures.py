"""What can be counted at a gateway at one instant. Who writes it down, and in which format, is not decided here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from synapse.core.push import DeliveryState


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """A message that has come one step further: how long after it was queued."""

    agent: str
    step: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The figures of one instant; `delivered` is what has happened since they were taken last."""

    agents: Mapping[str, int]
    """How many agents are in each state."""
    waiting: Mapping[str, int]
    """How many messages wait for each agent, by its name at the gateway."""
    working: Mapping[str, int]
    """How many tasks each agent works on."""
    notifications: Mapping[DeliveryState, int]
    """How many notifications for webhooks are in each state."""
    delivered: tuple[Delivered, ...] = ()
