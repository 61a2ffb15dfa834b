"""The record of every notice: sent, suppressed, failed or withdrawn. One line of JSON each, in the state folder.

All hosts of a user append to one file. It is private, holds no text of a question, and is cut when it grows large.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from synapse.config.private_files import make_folders
from synapse.notices.rules import Kind, Notice

FILE: Final = "notices.jsonl"
MAX_BYTES: Final = 1024 * 1024


class Result(StrEnum):
    """What became of a notice at one outlet."""

    SENT = "sent"
    SUPPRESSED = "suppressed"
    FAILED = "failed"
    WITHDRAWN = "withdrawn"


class NoticeLog:
    """Appends records and reads them. Both raise OSError when the file cannot be used."""

    def __init__(self, home: Path) -> None:
        self._path = home / FILE

    def append(self, notice: Notice, outlet: str, result: Result, at: datetime, why: str = "") -> None:
        """Records one result."""
        record = {
            "at": at.isoformat(timespec="milliseconds"),
            "id": notice.id,
            "kind": notice.kind.value,
            "agent_id": notice.agent_id,
            "agent": notice.agent,
            "task_id": notice.task_id,
            "outlet": outlet,
            "result": result.value,
            "why": why,
        }
        line = json.dumps(record, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
        make_folders(self._path.parent)
        descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.fstat(descriptor).st_size > MAX_BYTES:
                self._keep_newer_half(descriptor)
            os.write(descriptor, line)
        finally:
            os.close(descriptor)

    def records(self) -> Iterator[dict[str, Any]]:
        """Yields the records, oldest first; skips lines that are no records."""
        try:
            text = self._path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return
        # Not `splitlines`: that ends lines at characters that JSON leaves as they are in a text.
        for line in text.split("\n"):
            with suppress(ValueError, TypeError):
                yield {**json.loads(line)}

    def open_notices(self, agent_id: str) -> dict[str, tuple[Notice, set[str]]]:
        """Returns the notices of an agent that are still shown, by id, each with the outlets that show it."""
        shown: dict[str, tuple[Notice, set[str]]] = {}
        for record in self.records():
            if record.get("agent_id") != agent_id:
                continue
            with suppress(KeyError, ValueError, TypeError):
                notice, outlet = _notice_in(record), str(record["outlet"])
                if record["result"] == Result.SENT:
                    shown.setdefault(notice.id, (notice, set()))[1].add(outlet)
                elif record["result"] == Result.WITHDRAWN and notice.id in shown:
                    shown[notice.id][1].discard(outlet)
        return {notice_id: found for notice_id, found in shown.items() if found[1]}

    @staticmethod
    def _keep_newer_half(descriptor: int) -> None:
        """Drops the older half in place: a rename would lose lines of processes that have the file open."""
        whole = os.pread(descriptor, 4 * MAX_BYTES, 0)
        newer = whole[len(whole) // 2 :].partition(b"\n")[2]
        os.ftruncate(descriptor, 0)
        os.write(descriptor, newer)


def _notice_in(record: dict[str, Any]) -> Notice:
    """Returns the notice of a record, without its text, which is not kept."""
    return Notice(
        id=record["id"],
        kind=Kind(record["kind"]),
        agent_id=record["agent_id"],
        agent=record["agent"],
        text="",
        task_id=record["task_id"],
    )
