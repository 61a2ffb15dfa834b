"""Which task over there a task here belongs to, as one private file.

A question may be answered, and a task that is still worked on is followed again, after this process was restarted.
"""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from synapse.core.task import TaskId
from synapse.registries.private_folders import make_private
from synapse.transports.external_words import Thread

log = logging.getLogger(__name__)

MOST_THREADS: Final = 1000
"""Questions that nobody answers are forgotten, the oldest first."""


class _Kept(NamedTuple):
    thread: Thread
    message_id: str
    """The last message that the agent is known to have taken."""


class FileThreads:
    """The open tasks of one agent that it has taken."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kept = _read(path)

    def find(self, task_id: TaskId) -> Thread | None:
        """Returns the task over there."""
        kept = self._kept.get(task_id)
        return kept.thread if kept else None

    def has(self, task_id: TaskId, message_id: str) -> bool:
        """Tells whether the agent is known to have taken this message of the task."""
        kept = self._kept.get(task_id)
        return kept is not None and bool(message_id) and kept.message_id == message_id

    def keep(self, task_id: TaskId, thread: Thread, message_id: str) -> None:
        """Remembers that the agent took the message as part of its task `thread`."""
        if self.has(task_id, message_id) and self.find(task_id) == thread:
            return
        self._kept.pop(task_id, None)
        self._kept[task_id] = _Kept(thread, message_id)
        while len(self._kept) > MOST_THREADS:
            del self._kept[next(iter(self._kept))]
        self._write()

    def forget(self, task_id: TaskId) -> None:
        """Forgets a task that has ended."""
        if self._kept.pop(task_id, None) is not None:
            self._write()

    def _write(self) -> None:
        rows = {task: [*_ids(kept.thread), kept.message_id] for task, kept in self._kept.items()}
        draft = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            make_private(self._path.parent)
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
                file.write(json.dumps(rows))
            draft.replace(self._path)
        except OSError as error:
            # As long as this process lives, it is known all the same.
            log.warning("threads_not_kept", extra={"path": str(self._path), "error": error.strerror})


def _ids(thread: Thread) -> tuple[str, str]:
    return thread.task_id, thread.context_id


def _read(path: Path) -> dict[str, _Kept]:
    try:
        fields: object = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError):
        log.warning("threads_not_read", extra={"path": str(path)})
        return {}
    rows = cast("dict[str, Any]", fields) if isinstance(fields, dict) else {}
    return {task: _kept(row) for task, row in rows.items() if len(row) in (2, 3)}


def _kept(row: list[Any]) -> _Kept:
    """Reads a row; those of earlier versions name no message."""
    thread = Thread(task_id=str(row[0]), context_id=str(row[1]))
    return _Kept(thread, str(row[2]) if len(row) == 3 else "")
