"""What Codex's rollout reports (recorded on 0.166.0)."""

from __future__ import annotations

from typing import Any

import pytest

from synapse.terminal.evidence import Source
from synapse.terminal.signals import codex
from synapse.terminal.signals.report import SignalKind, SignalReport
from tests.unit.terminal.signals.recordings import recorded

ROLLOUT = recorded("codex", "rollout.jsonl")
LONG_ANSWER_END = "```python\nprint('hello')\n```\n\nLast line of the answer."


def turns() -> list[list[SignalReport]]:
    """What was reported, turn by turn."""
    found: dict[str, list[SignalReport]] = {}
    for record in ROLLOUT:
        report = codex.read_record(record)
        if report is not None:
            found.setdefault(report.turn, []).append(report)
    return list(found.values())


def test_each_turn_begins_with_its_prompt_and_has_one_end() -> None:
    for reports in turns():
        assert [report.kind for report in reports[:2]] == [SignalKind.WORKING, SignalKind.SUBMITTED]
        assert len(reports) == 3
        assert all(report.source is Source.TRANSCRIPT for report in reports)


def test_the_answer_is_there_byte_for_byte() -> None:
    _, prompt, answer = turns()[1]

    assert prompt.is_about("LONGANS x")
    assert answer.kind is SignalKind.ANSWERED
    assert answer.text.endswith(LONG_ANSWER_END)


def test_an_interrupt_and_a_failure_of_the_model_end_the_turn_with_their_reason() -> None:
    ends = [reports[-1] for reports in turns()]

    assert [(end.kind, end.reason) for end in ends] == [
        (SignalKind.ANSWERED, ""),
        (SignalKind.ANSWERED, ""),
        (SignalKind.FAILED, "interrupted"),
        (SignalKind.ANSWERED, ""),
        (SignalKind.FAILED, "api_error"),
    ]
    assert ends[-1].text == "fake failure"


@pytest.mark.parametrize(
    ("info", "reason"),
    [
        ("usage_limit_exceeded", "rate_limited"),
        ({"rate_limit_exceeded": {"http_status_code": 429}}, "rate_limited"),
        ("server_overloaded", "api_error"),
        (None, "api_error"),
    ],
)
def test_a_rate_limit_has_its_own_reason(info: object, reason: str) -> None:
    error: dict[str, Any] = {"message": "try again at 3:05 PM", "codex_error_info": info}

    report = codex.read_record({"type": "event_msg", "payload": {"type": "task_complete", "error": error}})

    assert report is not None
    assert (report.reason, report.text) == (reason, "try again at 3:05 PM")


@pytest.mark.parametrize(("message", "note"), [("[1]", "[1]"), ('{"error": 5}', '{"error": 5}'), ("plain", "plain")])
def test_an_error_of_another_shape_is_reported_unchanged(message: str, note: str) -> None:
    event = {"type": "task_complete", "error": {"message": message}}

    report = codex.read_record({"type": "event_msg", "payload": event})

    assert report is not None
    assert report.text == note


def test_an_older_rollout_has_the_prompt_elsewhere() -> None:
    report = codex.read_record({"type": "event_msg", "payload": {"type": "user_message", "message": "hello"}})

    assert report is not None
    assert (report.kind, report.text) == (SignalKind.SUBMITTED, "hello")


def test_other_records_are_not_reported() -> None:
    assert codex.read_record({"type": "response_item"}) is None
    assert codex.read_record({"type": "event_msg", "payload": {"type": "token_count"}}) is None
    assert codex.read_record({"type": "event_msg", "payload": {"type": "item_completed"}}) is None


def test_only_a_persons_conversation_counts() -> None:
    first = ROLLOUT[0]
    of_an_agent = {**first, "payload": {**first["payload"], "source": {"subagent": "review"}}}

    assert codex.is_conversation(first)
    assert codex.working_dir(first).endswith("/proj")
    assert not codex.is_conversation(of_an_agent)
    assert not codex.is_conversation(ROLLOUT[1])
