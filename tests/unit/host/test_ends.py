"""The records of how hosts ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from synapse.core.agent import AgentEntry
from synapse.host.ends import EndReason, HostEnd, read_end, write_end

ENTRY = AgentEntry("synapse-dummy-8190", "dummy", pid=12, pid_started=34)
END = HostEnd(reason=EndReason.ENDED, status=3, at="2026-01-15T10:30:00.000Z")


def test_an_end_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_end(tmp_path, ENTRY, HostEnd(reason=EndReason.STOPPED))
    write_end(tmp_path, ENTRY, END)

    assert read_end(tmp_path, ENTRY.agent_id, 12, 34) == END
    assert [path.name for path in (tmp_path / "ends").iterdir()] == ["synapse-dummy-8190.json"]


def test_an_end_belongs_to_one_process(tmp_path: Path) -> None:
    write_end(tmp_path, ENTRY, END)

    assert read_end(tmp_path, ENTRY.agent_id, 13, 34) is None
    assert read_end(tmp_path, ENTRY.agent_id, 12, 35) is None
    assert read_end(tmp_path, "synapse-dummy-8191", 12, 34) is None


@pytest.mark.parametrize("damage", [b"", b"{", b'{"pid": 12, "pid_started": 34, "reason": "bored", "status": 0}'])
def test_a_damaged_record_is_none(tmp_path: Path, damage: bytes) -> None:
    write_end(tmp_path, ENTRY, END)
    (tmp_path / "ends" / "synapse-dummy-8190.json").write_bytes(damage)

    assert read_end(tmp_path, ENTRY.agent_id, 12, 34) is None
