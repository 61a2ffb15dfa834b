"""Where ids come from."""

from __future__ import annotations

import uuid


def new_id() -> str:
    """Return an id that nothing else has: of a task, a message, or a conversation."""
    return str(uuid.uuid4())  # noqa: TID251 - this is the one place that mints them
