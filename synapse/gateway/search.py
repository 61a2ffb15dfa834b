"""Keeps the search index current in the background of a gateway, so that a search finds it ready.

index a little ─► rest ─► … ─► current ─► wait for the next event, and for those that follow it ─► again
"""

from __future__ import annotations

import logging
from typing import Final

from synapse.core.errors import StoreFailed
from synapse.core.store import TaskStore
from synapse.core.waiting import pause

log = logging.getLogger(__name__)

_SLICE_SECONDS: Final = 0.02
"""How long the index works before it rests: requests are served by the same process."""
_REST_SECONDS: Final = 0.06
_GATHER_SECONDS: Final = 1.0
"""A growing answer is indexed at most once in this time. A search indexes what is new before it answers."""
_QUIET_SECONDS: Final = 60.0
"""How long to wait for an event; pruning announces none."""
_RETRY_SECONDS: Final = 30.0


async def keep_search_current(store: TaskStore, *, is_on: bool) -> None:
    """Indexes what is new until it is cancelled; deletes the index and returns if search is switched off."""
    failed = ""
    while True:
        try:
            progress = await store.update_search(_SLICE_SECONDS)
            if not is_on:
                return
            if progress.is_current:
                await store.wait_after(progress.last, _QUIET_SECONDS)
            await pause(_GATHER_SECONDS if progress.is_current else _REST_SECONDS)
            failed = ""
        except StoreFailed as error:
            if str(error) != failed:
                failed = str(error)
                log.warning("search_index_not_updated", extra={"error": failed})
            await pause(_RETRY_SECONDS)
