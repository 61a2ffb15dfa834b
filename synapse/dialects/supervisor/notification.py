"""What a webhook is told that was configured in this dialect: the same task as in a stream, without the frame."""

from __future__ import annotations

from synapse.core.events import Update
from synapse.dialects.supervisor.updates import encode_update


def encode_notification(update: Update, agent: str) -> bytes | None:
    """The body of the notification that tells `update`; None when there is nothing to tell."""
    event = encode_update(update, agent=agent)
    return None if event is None else event.data
