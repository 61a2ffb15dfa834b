"""The host's own log: a line of JSON for each event, in a private file; never on the terminal that a CLI draws on."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from typing_extensions import override
else:

    def override(method):
        """Typing has it from Python 3.12 on."""
        return method


LARGEST_LOG: Final = 4 * 1024 * 1024
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message"}


class _JsonLine(logging.Formatter):
    """An event with its name, its time and the fields that it was given."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "at": self.formatTime(record, "%Y-%m-%dT%H:%M:%S"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            "room": record.name.removeprefix("synapse."),
        }
        fields |= {key: value for key, value in vars(record).items() if key not in _STANDARD}
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False, default=str)


def log_to(folder: Path, agent_id: str, name: str = "") -> Path:
    """Write this process's log to `folder`; a log that has grown large is set aside once. Return its path.

    It can be found by the agent's given name too, also when the agent has left the registry.
    """
    # The mode counts for the last folder only, and whoever is first makes the one above it too.
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / f"{agent_id}.log"
    if path.exists() and path.stat().st_size > LARGEST_LOG:
        path.replace(path.with_suffix(".log.1"))
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    handler = logging.StreamHandler(os.fdopen(descriptor, "a", encoding="utf-8"))
    handler.setFormatter(_JsonLine())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(os.environ.get("SYNAPSE_LOG_LEVEL", "INFO").upper())
    if name:
        _call(path, name)
    return path


def _call(path: Path, name: str) -> None:
    """Let `name` mean this log, whoever had the name before."""
    link = path.with_name(f"{name}.log")
    link.unlink(missing_ok=True)
    link.symlink_to(path.name)
