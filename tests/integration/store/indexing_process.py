"""A process that keeps the search index of a store current, and prints a line whenever it is.

python -m tests.integration.store.indexing_process STORE
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from synapse.store.sqlite import SqliteStore


async def index(path: Path) -> None:
    store = await SqliteStore.open(path)
    while True:
        progress = await store.update_search(0.005)
        if progress.is_current:
            sys.stdout.write(f"{progress.seq}\n")
            sys.stdout.flush()
            await store.wait_after(progress.last, 1.0)


if __name__ == "__main__":
    asyncio.run(index(Path(sys.argv[1])))
