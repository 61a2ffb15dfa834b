"""Updates of the feed as the events of a stream: `taskUpdate` with the whole task each time, and `done` at the end."""

from __future__ import annotations

import re
from typing import Final

from synapse.core.events import ArtifactAdded, MessageAdded, StateChanged, TaskOpened, Update
from synapse.core.wire_errors import InvalidField
from synapse.dialects.dialect import WireEvent, WireRequest
from synapse.dialects.proto_json import to_json
from synapse.dialects.supervisor.projection import task_object

_EVENT_ID: Final = re.compile(r"(?:event-)?([0-9]{1,18})")


def encode_update(
    update: Update, *, agent: str, history_length: int | None = None, ends_when_asked: bool = False
) -> WireEvent | None:
    """The event that tells `update`; None for what changes nothing that is shown: receipts, attention, metadata.

    `ends_when_asked` is said of a stream that ends also when the agent waits for somebody.
    """
    if not isinstance(update.event, TaskOpened | StateChanged | MessageAdded | ArtifactAdded | None):
        return None
    state = update.task.state
    final = state.is_terminal or (ends_when_asked and state.is_interrupted)
    task = task_object(update.task, agent=agent, history_length=history_length)
    done = WireEvent(_event_id(update.seq + 1), "done", b"{}") if final else None
    return WireEvent(_event_id(update.seq), "taskUpdate", to_json({**task, "final": final}), done)


def last_event(wire: WireRequest) -> int | None:
    """The seq after which a stream is resumed, from the header that event streams have for it.

    Raises InvalidField.
    """
    given = wire.header(b"last-event-id")
    if not given:
        return None
    known = _EVENT_ID.fullmatch(given)
    if known is None:
        raise InvalidField("Last-Event-ID", "must be the id of an event of an earlier stream", hint="event-1")
    return int(known[1])


def _event_id(seq: int) -> str:
    return f"event-{seq}"
