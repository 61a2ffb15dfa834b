"""The metrics of the link, as Prometheus reads them."""

from __future__ import annotations

from synapse.fleet.relay_io import OutboxLimits, OutboxLoad
from synapse.link.database import OpenMessages
from synapse.link.metrics import metrics_text


def lines(*waiting: OpenMessages) -> list[str]:
    text = metrics_text(
        connected=True,
        waiting=waiting,
        load=OutboxLoad(limits=OutboxLimits()),
        proxies=0,
        now=2000.0,
        outcomes={},
        received={},
        ship_lag=0,
        replica=None,
        incarnations=0,
    )
    return text.splitlines()


def test_the_outbox_is_counted_over_all_machines() -> None:
    waiting = lines(OpenMessages("box2", 2, 1500.0), OpenMessages("box3", 1, 1000.5))

    assert "synapse_link_outbox_open 3" in waiting
    assert "synapse_link_outbox_oldest_seconds 999.5" in waiting
    assert {"synapse_link_outbox_open 0", "synapse_link_outbox_oldest_seconds 0"} <= set(lines())
