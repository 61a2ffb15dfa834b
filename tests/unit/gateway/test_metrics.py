"""Metrics as Prometheus reads them."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from prometheus_client.parser import text_string_to_metric_families

from synapse.core.push import DeliveryState
from synapse.core.requests import Delivered, MetricsSnapshot
from synapse.core.usage import TokenCounts, UsageTotal
from synapse.gateway.metrics import Metrics
from synapse.server.app import Exchange

NOTHING = MetricsSnapshot(agents={}, waiting={}, working={}, notifications={})


def samples(metrics: Metrics, snapshot: MetricsSnapshot = NOTHING) -> dict[tuple[str, tuple[str, ...]], float]:
    """Returns each sample by its name and the values of its labels."""
    families = text_string_to_metric_families(metrics.text(snapshot).decode())
    return {
        (sample.name, tuple(sample.labels.values())): sample.value for family in families for sample in family.samples
    }


def test_requests_are_counted_by_dialect_and_outcome_and_streams_have_no_duration() -> None:
    metrics = Metrics()
    metrics.count(Exchange("POST", "/", "hub", 0.2))
    metrics.count(Exchange("POST", "/", "hub", 0.2, "task_not_found"))
    metrics.count(Exchange("GET", "/", "hub", 600.0, is_stream=True))

    seen = samples(metrics)

    assert seen["synapse_requests_total", ("hub", "ok")] == 2
    assert seen["synapse_requests_total", ("hub", "task_not_found")] == 1
    assert seen["synapse_request_seconds_count", ("hub",)] == 2
    assert seen["synapse_request_seconds_bucket", ("hub", "0.25")] == 2


def test_gauges_show_the_last_snapshot_and_no_agent_that_has_left() -> None:
    metrics = Metrics()
    first = MetricsSnapshot(
        agents={"ready": 1, "working": 1},
        waiting={"ada": 3, "bob": 0},
        working={"ada": 1, "bob": 0},
        notifications={DeliveryState.PENDING: 2},
    )
    metrics.text(first)

    seen = samples(
        metrics, MetricsSnapshot(agents={"ready": 1}, waiting={"bob": 0}, working={"bob": 0}, notifications={})
    )

    assert seen["synapse_agents", ("ready",)] == 1
    assert seen["synapse_agents", ("working",)] == 0
    assert ("synapse_messages_waiting", ("ada",)) not in seen
    assert seen["synapse_notifications", ("pending",)] == 0


def test_delivery_times_add_up() -> None:
    metrics = Metrics()
    one = MetricsSnapshot(
        agents={},
        waiting={},
        working={},
        notifications={},
        delivered=(Delivered(agent="ada", step="answered", seconds=2.0),),
    )
    metrics.text(one)

    seen = samples(metrics, one)

    assert seen["synapse_delivery_seconds_count", ("ada", "answered")] == 2
    assert seen["synapse_delivery_seconds_sum", ("ada", "answered")] == 4


def test_tokens_and_cost_are_counters_by_agent_and_each_token_is_of_one_kind() -> None:
    tokens = TokenCounts(input=100, output=20, cache_read=1000, cache_write=300, reasoning=7)
    total = UsageTotal(tokens=tokens, requests=1, cost=Decimal("0.25"))
    unpriced = UsageTotal(tokens=tokens, requests=1, unpriced=1)
    snapshot = replace(NOTHING, usage={"ada": total, "bob": unpriced})

    text = Metrics().text(snapshot).decode()
    seen = samples(Metrics(), snapshot)

    assert "# TYPE synapse_tokens_total counter" in text
    assert seen["synapse_cost_usd_total", ("ada",)] == 0.25
    assert ("synapse_cost_usd_total", ("bob",)) not in seen
    counted = {labels: value for (name, labels), value in seen.items() if name == "synapse_tokens_total"}
    assert sum(value for (agent, _), value in counted.items() if agent == "ada") == tokens.total
    assert len(counted) == 8
