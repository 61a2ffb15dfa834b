"""The record of notices."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from synapse.notices import log
from synapse.notices.log import NoticeLog, Result
from synapse.notices.rules import Kind, Notice

NOW = datetime(2026, 1, 15, 10, 30, tzinfo=UTC)


def notice(key: str = "q1", agent_id: str = "synapse-codex-8120") -> Notice:
    return Notice(id=key, kind=Kind.ASKS, agent_id=agent_id, agent="codex", text="rm -rf /secret", task_id="t1")


def test_a_record_says_what_became_of_a_notice_and_not_what_it_said(tmp_path: Path) -> None:
    NoticeLog(tmp_path).append(notice(), "desktop", Result.FAILED, NOW, "no daemon")

    assert list(NoticeLog(tmp_path).records()) == [
        {
            "at": "2026-01-15T10:30:00.000+00:00",
            "id": "q1",
            "kind": "asks",
            "agent_id": "synapse-codex-8120",
            "agent": "codex",
            "task_id": "t1",
            "outlet": "desktop",
            "result": "failed",
            "why": "no daemon",
        }
    ]
    assert (tmp_path / log.FILE).stat().st_mode & 0o077 == 0


def test_open_notices_are_those_sent_and_not_withdrawn(tmp_path: Path) -> None:
    notices = NoticeLog(tmp_path)
    notices.append(notice("q1"), "desktop", Result.SENT, NOW)
    notices.append(notice("q1"), "ntfy", Result.SENT, NOW)
    notices.append(notice("q1"), "ntfy", Result.WITHDRAWN, NOW)
    notices.append(notice("q2"), "desktop", Result.SENT, NOW)
    notices.append(notice("q2"), "desktop", Result.WITHDRAWN, NOW)
    notices.append(notice("q3"), "desktop", Result.SUPPRESSED, NOW)
    notices.append(notice("q4", agent_id="synapse-claude-8100"), "desktop", Result.SENT, NOW)

    shown = notices.open_notices("synapse-codex-8120")

    assert {key: outlets for key, (_, outlets) in shown.items()} == {"q1": {"desktop"}}
    assert shown["q1"][0].kind is Kind.ASKS


def test_lines_that_are_no_records_are_skipped(tmp_path: Path) -> None:
    notices = NoticeLog(tmp_path)
    (tmp_path / log.FILE).write_text('[1]\nnot json\n{"agent_id": "synapse-codex-8120", "result": "sent"}\n', "utf-8")
    notices.append(notice(), "desktop", Result.SENT, NOW)

    assert list(notices.open_notices("synapse-codex-8120")) == ["q1"]


def test_a_large_file_keeps_its_newer_half(tmp_path: Path) -> None:
    notices = NoticeLog(tmp_path)
    line = b'{"id": "%08d"}\n'
    (tmp_path / log.FILE).write_bytes(b"".join(line % number for number in range(log.MAX_BYTES // 16)))

    notices.append(notice(), "desktop", Result.SENT, NOW)

    kept = [record["id"] for record in notices.records()]
    assert kept[-1] == "q1"
    assert kept[-2] == f"{log.MAX_BYTES // 16 - 1:08d}"
    assert (tmp_path / log.FILE).stat().st_size < 0.6 * log.MAX_BYTES


def test_no_text_in_a_record_can_be_read_as_another_record(tmp_path: Path) -> None:
    notices = NoticeLog(tmp_path)
    notices.append(notice(), "ntfy", Result.SENT, NOW)
    forged = '{"agent_id": "synapse-codex-8120", "id": "q1", "kind": "asks", "agent": "", "task_id": "", '
    forged += '"outlet": "ntfy", "result": "withdrawn"}'
    notices.append(notice("q2"), "ntfy", Result.FAILED, NOW, f"the server said \u2028{forged}\x85{forged}\u2029")

    assert len(list(notices.records())) == 2
    assert list(notices.open_notices("synapse-codex-8120")) == ["q1"]
