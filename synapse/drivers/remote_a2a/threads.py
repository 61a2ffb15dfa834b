"""Which task over there a task here goes on with, as one private file: a question may be answered after a restart."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any, Final, cast

from synapse.core.task import TaskId
from synapse.registries.private_folders import make_private
from synapse.transports.external_words import Thread

log = logging.getLogger(__name__)

MOST_THREADS: Final = 1000
"""Questions that nobody answers are forgotten, the oldest first."""


class FileThreads:
    """The tasks of one agent that wait for an answer."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._threads = _read(path)

    def find(self, task_id: TaskId) -> Thread | None:
        return self._threads.get(task_id)

    def keep(self, task_id: TaskId, thread: Thread) -> None:
        """Remember a task that waits."""
        self._threads.pop(task_id, None)
        self._threads[task_id] = thread
        while len(self._threads) > MOST_THREADS:
            del self._threads[next(iter(self._threads))]
        self._write()

    def forget(self, task_id: TaskId) -> None:
        """It waits no longer."""
        if self._threads.pop(task_id, None) is not None:
            self._write()

    def _write(self) -> None:
        text = json.dumps({task: [thread.task_id, thread.context_id] for task, thread in self._threads.items()})
        draft = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            make_private(self._path.parent)
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
                file.write(text)
            draft.replace(self._path)
        except OSError as error:
            # As long as this process lives, it is known all the same.
            log.warning("threads_not_kept", extra={"path": str(self._path), "error": error.strerror})


def _read(path: Path) -> dict[str, Thread]:
    try:
        fields: object = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError):
        log.warning("threads_not_read", extra={"path": str(path)})
        return {}
    known = cast("dict[str, Any]", fields) if isinstance(fields, dict) else {}
    return {
        task: Thread(task_id=str(pair[0]), context_id=str(pair[1])) for task, pair in known.items() if len(pair) == 2
    }
