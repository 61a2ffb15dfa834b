"""The log of a host or a gateway: a line of JSON for each event, in a private file; never where a CLI draws."""

from __future__ import annotations

import json
import logging
import os
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TextIO

from synapse.core.overriding import override
from synapse.registries.private_folders import make_private

_UNSEEN: Final = re.compile(r"[\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
LARGEST_LOG: Final = 4 * 1024 * 1024
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message"}


class _JsonLine(logging.Formatter):
    """An event with its name, its time and the fields that it was given."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "at": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            "room": record.name.removeprefix("synapse."),
        }
        fields |= {key: value for key, value in vars(record).items() if key not in _STANDARD}
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        text = json.dumps(fields, ensure_ascii=False, default=str)
        # A person reads this in a terminal: what JSON leaves as it is and a terminal obeys is escaped too.
        return text if text.isprintable() else _UNSEEN.sub(lambda found: json.dumps(found[0])[1:-1], text)


class _LogFile(logging.Handler):
    """Appends to a private file; one that has grown large is set aside, in the place of the one before it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._file = self._opened()

    @override
    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._file.write(self.format(record) + "\n")
            self._file.flush()
            if self._file.tell() > LARGEST_LOG:
                # The new one first: where it cannot be made, the old one goes on.
                full, self._file = self._file, self._opened()
                full.close()
        except OSError:
            pass  # a full disk: what fits in the buffer is written later; logging would say so where a CLI draws
        except Exception:  # noqa: BLE001 - nobody who logs something fails because of it
            self.handleError(record)

    @override
    def close(self) -> None:
        with suppress(OSError):  # what the disk has no room for even now is lost
            self._file.close()
        super().close()

    def _opened(self) -> TextIO:
        if self._path.exists() and self._path.stat().st_size > LARGEST_LOG:
            self._path.replace(self._path.with_suffix(".log.1"))
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        return os.fdopen(descriptor, "a", encoding="utf-8")


def log_to(folder: Path, agent_id: str, name: str = "") -> Path:
    """Write this process's log to `folder`. Return its path.

    It can be found by the agent's given name too, also when the agent has left the registry.
    """
    make_private(folder)
    path = folder / f"{agent_id}.log"
    handler = _LogFile(path)
    handler.setFormatter(_JsonLine())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(_level(os.environ.get("SYNAPSE_LOG_LEVEL", "INFO")))
    # The server's everyday words are no events; ours say when it starts and ends.
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    if name:
        _call(path, name)
    return path


def _level(name: str) -> int:
    """The level of that name; of none at all, the usual one."""
    return logging.getLevelNamesMapping().get(name.strip().upper(), logging.INFO)


def _call(path: Path, name: str) -> None:
    """Let `name` mean this log, whoever had the name before."""
    link = path.with_name(f"{name}.log")
    link.unlink(missing_ok=True)
    link.symlink_to(path.name)
