"""The metrics of the link, as Prometheus reads them."""

from __future__ import annotations

from typing import Any

from synapse.fleet.relay_io import OutboxLimits, OutboxLoad
from synapse.link.database import OpenMessages
from synapse.link.metrics import metrics_text


def lines(*waiting: OpenMessages, replica: dict[str, Any] | None = None) -> list[str]:
    text = metrics_text(
        connected=True,
        waiting=waiting,
        load=OutboxLoad(limits=OutboxLimits()),
        proxies=0,
        now=2000.0,
        outcomes={},
        received={},
        log_seq=41,
        ship_lag=0,
        replica=replica,
        incarnations=0,
    )
    return text.splitlines()


def test_the_outbox_is_counted_over_all_machines() -> None:
    waiting = lines(OpenMessages("box2", 2, 1500.0), OpenMessages("box3", 1, 1000.5))

    assert "synapse_link_outbox_open 3" in waiting
    assert "synapse_link_outbox_oldest_seconds 999.5" in waiting
    assert {"synapse_link_outbox_open 0", "synapse_link_outbox_oldest_seconds 0"} <= set(lines())


def test_a_replica_tells_how_far_the_log_of_each_machine_is_here() -> None:
    machines = [
        {"machine": "box2", "seq": 38, "incomplete": "its batches do not follow each other", "repairs": 3},
        {"machine": "box3", "seq": 7, "incomplete": "", "repairs": 0},
    ]

    told = lines(replica={"events": 12, "machines": machines})

    assert [line for line in told if line.startswith("synapse_link_replica")] == [
        "synapse_link_replica_events_total 12",
        'synapse_link_replica_seq{machine="box2"} 38',
        'synapse_link_replica_seq{machine="box3"} 7',
        'synapse_link_replica_incomplete{machine="box2"} 1',
        'synapse_link_replica_incomplete{machine="box3"} 0',
        'synapse_link_replica_repairs_total{machine="box2"} 3',
        'synapse_link_replica_repairs_total{machine="box3"} 0',
    ]
    assert "# TYPE synapse_link_replica_repairs_total counter" in told
    assert "synapse_link_log_seq 41" in told
    assert not [line for line in lines() if "replica" in line]
