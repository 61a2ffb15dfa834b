"""Until when a person has seen the answers of an agent."""

from __future__ import annotations

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from synapse.client.seen import mark_seen, seen_until

AGENT = "synapse-codex-8120"
AT = datetime(2024, 1, 15, 10, 30, 0, 123456, tzinfo=UTC)


def test_nothing_was_seen_before_the_first_mark(tmp_path: Path) -> None:
    assert seen_until(tmp_path, AGENT) is None


@pytest.mark.parametrize("microseconds", [0, 1, 123_456, 999_999])
def test_a_mark_is_read_back_exactly(tmp_path: Path, microseconds: int) -> None:
    at = AT.replace(microsecond=microseconds)

    mark_seen(tmp_path, AGENT, at)

    assert seen_until(tmp_path, AGENT) == at
    assert seen_until(tmp_path, "synapse-claude-8100") is None


def test_a_mark_moves_forward_only(tmp_path: Path) -> None:
    mark_seen(tmp_path, AGENT, AT)
    mark_seen(tmp_path, AGENT, AT - timedelta(minutes=1))
    assert seen_until(tmp_path, AGENT) == AT

    mark_seen(tmp_path, AGENT, AT + timedelta(microseconds=1))
    assert seen_until(tmp_path, AGENT) == AT + timedelta(microseconds=1)


def test_the_mark_is_an_empty_private_file(tmp_path: Path) -> None:
    mark_seen(tmp_path, AGENT, AT)

    mark = tmp_path / "seen" / AGENT
    assert mark.read_bytes() == b""
    assert stat.S_IMODE(mark.stat().st_mode) == 0o600
    assert stat.S_IMODE(mark.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("agent_id", ["", "..", "../registry/x", "a/b", "a\0b"])
def test_an_id_that_is_no_file_name_marks_nothing(tmp_path: Path, agent_id: str) -> None:
    mark_seen(tmp_path, agent_id, AT)

    assert seen_until(tmp_path, agent_id) is None
    assert list(tmp_path.rglob("*")) == []


def test_a_link_in_the_place_of_a_mark_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.touch()
    before = target.stat().st_mtime_ns
    (tmp_path / "seen").mkdir()
    (tmp_path / "seen" / AGENT).symlink_to(target)

    mark_seen(tmp_path, AGENT, datetime(2200, 1, 1, tzinfo=UTC))

    assert target.stat().st_mtime_ns == before


def test_a_home_that_cannot_be_written_stops_nobody(tmp_path: Path) -> None:
    (tmp_path / "seen").write_text("in the way", encoding="utf-8")

    mark_seen(tmp_path, AGENT, AT)

    assert seen_until(tmp_path, AGENT) is None
    assert (tmp_path / "seen").read_text(encoding="utf-8") == "in the way"
