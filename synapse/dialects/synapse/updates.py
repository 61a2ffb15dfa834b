"""Updates of the feed as the events of a stream: `snapshot` first, then one for each thing that happened."""

from __future__ import annotations

from typing import assert_never

from synapse.core.events import (
    ArtifactAdded,
    AttentionChanged,
    MessageAdded,
    MetadataChanged,
    ReceiptChanged,
    StateChanged,
    TaskEvent,
    TaskHidden,
    TaskOpened,
    Update,
)
from synapse.dialects.dialect import WireEvent
from synapse.dialects.synapse.projection import (
    STATE_NAMES,
    Wire,
    artifact_object,
    instant,
    message_object,
    task_object,
    to_json,
)


def encode_update(update: Update) -> WireEvent:
    """The event of a stream that tells `update`."""
    task = task_object(update.task)
    if update.event is None:
        return WireEvent(str(update.seq), "snapshot", to_json({"task": task}))
    name, fields = described(update.event)
    event: Wire = {"type": name, "at": instant(update.event.at), **fields}
    return WireEvent(str(update.seq), name, to_json({"event": event, "task": task}))


def described(event: TaskEvent) -> tuple[str, Wire]:
    """The event's name on the wire, and what it says."""
    match event:
        case TaskOpened():
            return "task_opened", {"message": message_object(event.message)}
        case StateChanged():
            return "state_changed", {
                "status": STATE_NAMES[event.state],
                "reason": event.reason,
                "note": event.note,
            }
        case MessageAdded():
            return "message_added", {"message": message_object(event.message)}
        case ArtifactAdded():
            return "artifact_added", {
                "artifact": artifact_object(event.artifact),
                "append": event.append,
                "last_chunk": event.last_chunk,
            }
        case _:
            return _described_rest(event)


def _described_rest(event: ReceiptChanged | MetadataChanged | AttentionChanged | TaskHidden) -> tuple[str, Wire]:
    match event:
        case ReceiptChanged():
            return "receipt_changed", {
                "step": event.step.value,
                "source": event.source,
                "evidence": event.evidence,
            }
        case MetadataChanged():
            return "metadata_changed", {"metadata": event.metadata}
        case AttentionChanged():
            return "attention_changed", {"attention": event.attention}
        case TaskHidden():
            return "task_hidden", {}
        case _:
            assert_never(event)
