"""What a gateway counts, in the format of Prometheus. The registry is our own: nothing of the process comes with it.

synapse_requests_total{dialect,outcome}        synapse_request_seconds{dialect}
synapse_agents{state}                          synapse_messages_waiting{agent}, synapse_tasks_working{agent}
synapse_delivery_seconds{agent,step}           synapse_notifications{state}
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest

from synapse import __version__
from synapse.core.agent import AGENT_STATES
from synapse.core.figures import Figures
from synapse.core.push import DeliveryState
from synapse.transports.exchange import Exchange

log = logging.getLogger(__name__)

MEDIA_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"
OK: Final = "ok"
_QUICK: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_SLOW: Final = (0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)


class Metrics:
    """Counts requests as they come, and writes everything down when asked."""

    def __init__(self) -> None:
        registry = CollectorRegistry()
        self._registry = registry
        self._requests = Counter(
            "synapse_requests", "Requests, by dialect and by how they ended", ["dialect", "outcome"], registry=registry
        )
        self._seconds = Histogram(
            "synapse_request_seconds",
            "How long requests took that were no streams",
            ["dialect"],
            buckets=_QUICK,
            registry=registry,
        )
        self._agents = Gauge("synapse_agents", "Agents, by what they do", ["state"], registry=registry)
        self._waiting = Gauge("synapse_messages_waiting", "Messages in the queue", ["agent"], registry=registry)
        self._working = Gauge("synapse_tasks_working", "Tasks that are worked on", ["agent"], registry=registry)
        self._deliveries = Histogram(
            "synapse_delivery_seconds",
            "How long after it was queued a message was submitted, started and answered",
            ["agent", "step"],
            buckets=_SLOW,
            registry=registry,
        )
        self._notifications = Gauge(
            "synapse_notifications", "Notifications for webhooks, by what became of them", ["state"], registry=registry
        )
        Gauge("synapse_gateway_info", "The gateway", ["version"], registry=registry).labels(__version__).set(1)

    def count(self, exchange: Exchange) -> None:
        """Note one request that was answered, and tell the log."""
        outcome = exchange.error or OK
        self._requests.labels(exchange.dialect, outcome).inc()
        if not exchange.is_stream:
            self._seconds.labels(exchange.dialect).observe(exchange.seconds)
        if log.isEnabledFor(logging.DEBUG):
            facts = {"method": exchange.method, "path": exchange.path, "dialect": exchange.dialect, "outcome": outcome}
            log.debug("request_answered", extra={**facts, "ms": round(exchange.seconds * 1000, 1)})

    def text(self, figures: Figures) -> bytes:
        """Everything, with these figures."""
        _set(self._agents, dict.fromkeys(AGENT_STATES, 0) | dict(figures.agents))
        _set(self._waiting, figures.waiting)
        _set(self._working, figures.working)
        counted = {state.value: figures.notifications.get(state, 0) for state in DeliveryState}
        _set(self._notifications, counted)
        for one in figures.delivered:
            self._deliveries.labels(one.agent, one.step).observe(one.seconds)
        return generate_latest(self._registry)


def _set(gauge: Gauge, values: Mapping[str, int]) -> None:
    # An agent that has left is not shown with its last figures for ever.
    gauge.clear()
    for label, value in values.items():
        gauge.labels(label).set(value)
