"""The bell and the terminal's own notification."""

from __future__ import annotations

from pathlib import Path

import pytest

from synapse.notices.log import NoticeLog
from synapse.notices.rules import notice_of, read_rules
from synapse.top.notices import TerminalNotices, sequence_for
from tests.fakes.clock import FakeClock
from tests.samples.needs import need

HOSTILE = "run\x1b]0;owned\x07 a;b"


@pytest.mark.parametrize(
    ("environ", "shown"),
    [
        ({"TERM": "xterm-256color"}, "\a\x1b]9;codex asks you: run<U+001B>]0,owned<U+0007> a,b\x1b\\"),
        ({"TERM": "foot"}, "\a\x1b]777;notify;codex asks you;run<U+001B>]0,owned<U+0007> a,b\x1b\\"),
        (
            {"TERM": "xterm-256color", "VTE_VERSION": "7600"},
            "\a\x1b]777;notify;codex asks you;run<U+001B>]0,owned<U+0007> a,b\x1b\\",
        ),
        ({"TERM": "tmux-256color", "TMUX": "/tmp/tmux"}, "\a"),
        ({"TERM": "xterm-256color", "TMUX": "/tmp/tmux"}, "\a"),
        ({"TERM": "linux"}, "\a"),
    ],
)
def test_each_terminal_gets_the_bell_and_one_notification_that_it_knows(environ: dict[str, str], shown: str) -> None:
    assert sequence_for(notice_of(need(title=HOSTILE)), environ) == shown


def test_rules_hold_at_the_terminal_and_each_result_is_recorded(tmp_path: Path) -> None:
    written: list[str] = []
    log = NoticeLog(tmp_path)
    notices = TerminalNotices(read_rules("asks", "all", "none"), log, FakeClock(), {"TERM": "linux"})

    notices(need(), {"codex"}, written.append)
    notices(need("done:1", kind="done"), {"codex"}, written.append)

    assert written == ["\a"]
    assert [(record["outlet"], record["result"]) for record in log.records()] == [
        ("terminal", "sent"),
        ("terminal", "suppressed"),
    ]


def test_a_record_that_cannot_be_written_does_not_silence_the_bell(tmp_path: Path) -> None:
    (tmp_path / "notices.jsonl").mkdir()
    written: list[str] = []

    TerminalNotices(read_rules("all", "all", "none"), NoticeLog(tmp_path), FakeClock(), {})(need(), (), written.append)

    assert written[0].startswith("\a")
