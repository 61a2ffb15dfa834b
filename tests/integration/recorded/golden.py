"""Compares what the product says today with what it said when tests/golden/recorded was written.

    SYNAPSE_RECORD=1 .venv/bin/pytest tests/integration/recorded

writes these files anew. Do that only for a change that users are told about: the diff of the files is that change.
Nothing in this folder imports the package, so that its modules can move as they like.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

ROOT: Final = Path(__file__).resolve().parents[3]
FOLDER: Final = ROOT / "tests" / "golden" / "recorded"
RECORDS_ANEW: Final = bool(os.environ.get("SYNAPSE_RECORD"))

# Sentences for people, which may be written better. What stands for the empty text says something, so it is kept.
SENTENCES: Final = frozenset(
    {"advice", "data", "description", "detail", "evidence", "hint", "message", "next", "note", "why"}
)
# Numbers and names of the machine, of the moment, and of modules.
VOLATILE: Final = frozenset(
    {"cli_pid", "pid", "logger", "pid_namespace", "pid_started", "port", "program", "room", "seq", "terminal"}
)

_UUID: Final = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
_TIME: Final = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)")
_PORT: Final = re.compile(r"\blocalhost:\d+")
_CURSOR: Final = re.compile(r"\b\d{16}\.\d+\b")
_KEY: Final = re.compile(r"\bsk_[0-9a-f]{12}(_[0-9a-f]{64})?|\bkey:[0-9a-f]{12}\b")
_LARGEST_PLAIN_NUMBER: Final = 10**11


class Plain:
    """Puts a name in the place of each value that differs from run to run. Ids are numbered as they appear."""

    def __init__(self, known: Mapping[str, str] | None = None) -> None:
        self._known = dict(known or {})
        self.ids: dict[str, str] = {}
        """Each id that was seen, with its name."""

    def know(self, value: str, name: str) -> None:
        """Show `value` as `<name>` from now on."""
        self._known[value] = name

    def afresh(self) -> Plain:
        """What knows the same of this run, and has seen no id yet."""
        return Plain(self._known)

    def json(self, value: Any) -> Any:
        """Return the JSON value without what is volatile; sentences for people become `<words>`."""
        self._value(value)  # all ids first: the beginning of one may stand before it
        return self._value(value)

    def _value(self, value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            table = cast("dict[str, Any]", value)
            # In the order of the keys: that of the ids then does not depend on how the table was written.
            return {self.text(name): self._value(table[name], name) for name in sorted(table)}
        if isinstance(value, list):
            return [self._value(item, key) for item in cast("Sequence[Any]", value)]
        if key in VOLATILE and value:
            return f"<{key}>"
        if isinstance(value, str):
            return "<words>" if value and key in SENTENCES else self.text(value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return value
        return "<moment>" if value > _LARGEST_PLAIN_NUMBER else value

    def text(self, text: str) -> str:
        """Return the text without ids, times, and what is known of this run."""
        for value in sorted(self._known, key=len, reverse=True):
            text = text.replace(value, f"<{self._known[value]}>")
        text = _CURSOR.sub("<cursor>", _UUID.sub(self._named, text))
        text = _PORT.sub("localhost:<port>", _KEY.sub("<key>", _TIME.sub("<time>", text)))
        for whole, name in self.ids.items():
            # People type the beginning of an id, and texts for them have it.
            text = text.replace(whole[:8], f"{name[:-1]}…>")
        return text

    def _named(self, found: re.Match[str]) -> str:
        return self.ids.setdefault(found[0], f"<id {len(self.ids) + 1}>")


def check(name: str, recorded: str) -> None:
    """Fail unless the golden file `name` says the same; with SYNAPSE_RECORD set, write it instead."""
    path = FOLDER / name
    if RECORDS_ANEW:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(recorded, encoding="utf-8")
    assert recorded == path.read_text(encoding="utf-8"), f"it was recorded otherwise: {path.relative_to(ROOT)}"


def check_json(name: str, value: Any) -> None:
    """`check` for a JSON value; the order of keys does not count."""
    check(name, json.dumps(value, indent=1, sort_keys=True, ensure_ascii=True) + "\n")
