"""The link's metrics in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from synapse.fleet.relay_io import OutboxLoad
from synapse.link.database import OpenMessages


def metrics_text(  # noqa: PLR0913 - one for each metric
    *,
    connected: bool,
    waiting: Sequence[OpenMessages],
    load: OutboxLoad,
    proxies: int,
    now: float,
    outcomes: Mapping[str, int],
    received: Mapping[str, int],
    log_seq: int,
    ship_lag: int,
    replica: Mapping[str, Any] | None,
    incarnations: int,
) -> str:
    """Returns all metrics of a link."""
    number = sum(one.number for one in waiting)
    oldest = now - min((one.oldest for one in waiting), default=now)
    lines = [
        *_metric("synapse_link_connected", "gauge", "Whether the link is connected to the fleet's server.", connected),
        *_metric("synapse_link_outbox_open", "gauge", "Messages that no machine has accepted yet.", number),
        *_metric("synapse_link_outbox_oldest_seconds", "gauge", "The age of the oldest of them.", round(oldest, 3)),
        *_metric("synapse_link_outbox_most", "gauge", "Those to the machine with the most of them.", load.most),
        *_metric("synapse_link_outbox_limit", "gauge", "How many may wait for one machine.", load.limits.messages),
        *_metric(
            "synapse_link_outbox_bytes", "gauge", "Bytes of messages whose tasks have not ended.", load.held_bytes
        ),
        *_metric(
            "synapse_link_outbox_quota_bytes", "gauge", "How many they may be; 0 means any.", load.limits.total_bytes
        ),
        *_metric("synapse_link_proxies", "gauge", "Open sockets for agents on other machines.", proxies),
        *_labelled("synapse_link_relayed_total", "Messages to other machines, by kind and state.", _relayed(outcomes)),
        *_labelled("synapse_link_received_total", "Messages of other machines, by outcome.", _outcome(received)),
        *_metric(
            "synapse_link_log_seq", "gauge", "The last seq of this machine's log that the link has read.", log_seq
        ),
        *_metric("synapse_link_ship_lag", "gauge", "Events of the log that are not shipped yet.", ship_lag),
        *_metric("synapse_link_incarnations_total", "counter", "New incarnations of this machine.", incarnations),
    ]
    if replica is not None:
        machines: list[dict[str, Any]] = replica.get("machines", [])
        events = int(replica.get("events", 0))
        lines += _metric("synapse_link_replica_events_total", "counter", "Events written to the replica.", events)
        seqs = [({"machine": str(one["machine"])}, int(one.get("seq", 0))) for one in machines]
        gaps = [({"machine": str(one["machine"])}, int(bool(one.get("incomplete")))) for one in machines]
        repairs = [({"machine": str(one["machine"])}, int(one.get("repairs", 0))) for one in machines]
        about = "The last seq of a machine's log that is in the replica."
        lines += _labelled("synapse_link_replica_seq", about, seqs, "gauge")
        lines += _labelled("synapse_link_replica_incomplete", "Whether the log of a machine has a gap.", gaps, "gauge")
        about = "Ranges of a machine's log that were asked for because a batch was missing."
        lines += _labelled("synapse_link_replica_repairs_total", about, repairs)
    return "\n".join(lines) + "\n"


def _metric(name: str, kind: str, about: str, value: float) -> list[str]:
    return [f"# HELP {name} {about}", f"# TYPE {name} {kind}", f"{name} {int(value) if value == int(value) else value}"]


def _labelled(
    name: str, about: str, values: Iterable[tuple[Mapping[str, str], int]], kind: str = "counter"
) -> list[str]:
    rows = [
        name + "{" + ",".join(f'{label}="{text}"' for label, text in labels.items()) + "} " + str(value)
        for labels, value in values
    ]
    return [f"# HELP {name} {about}", f"# TYPE {name} {kind}", *rows]


def _relayed(outcomes: Mapping[str, int]) -> list[tuple[dict[str, str], int]]:
    split = ((name.partition("."), count) for name, count in sorted(outcomes.items()))
    return [({"kind": kind, "state": state}, count) for (kind, _, state), count in split]


def _outcome(received: Mapping[str, int]) -> list[tuple[dict[str, str], int]]:
    return [({"outcome": name.removeprefix("Host").lower()}, count) for name, count in sorted(received.items())]
