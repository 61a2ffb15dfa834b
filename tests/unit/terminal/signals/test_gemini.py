"""What Gemini CLI's chat file reports (recorded on 0.61.0)."""

from __future__ import annotations

import pytest

from synapse.terminal.evidence import Source
from synapse.terminal.signals.gemini import GeminiChat
from synapse.terminal.signals.report import SignalKind, SignalReport
from tests.unit.terminal.signals.recordings import recorded

CHAT = recorded("gemini", "chat.jsonl")


def reported() -> list[SignalReport]:
    """What is reported when the terminal shows readiness after every record that could be the last."""
    chat = GeminiChat()
    reports: list[SignalReport] = []
    for record in CHAT:
        report = chat.read(record)
        reports += [report] if report is not None else []
        if record.get("type") == "gemini" and (end := chat.conclude()) is not None:
            reports.append(end)
    return reports


def test_each_prompt_has_one_end_with_its_text_or_its_reason() -> None:
    reports = reported()

    assert [report.kind for report in reports] == [
        *(SignalKind.SUBMITTED, SignalKind.ANSWERED) * 2,
        *(SignalKind.SUBMITTED, SignalKind.FAILED),
        *(SignalKind.SUBMITTED, SignalKind.ANSWERED),
        *(SignalKind.SUBMITTED, SignalKind.FAILED),
        *(SignalKind.SUBMITTED, SignalKind.ANSWERED),
    ]
    assert [report.reason for report in reports if report.kind is SignalKind.FAILED] == ["interrupted", "api_error"]
    assert [report.text for report in reports if report.reason == "api_error"] == ["fake failure"]
    assert all(report.source is Source.TRANSCRIPT for report in reports)


def test_the_answer_is_there_byte_for_byte() -> None:
    answers = [report.text for report in reported() if report.kind is SignalKind.ANSWERED]

    assert answers[1].endswith("```python\nprint('hello')\n```\n\nLast line of the answer.")


def test_a_message_before_a_tool_has_run_is_no_answer() -> None:
    chat = GeminiChat()
    chat.read({"type": "user", "id": "1", "content": [{"text": "hello"}]})
    chat.read({"type": "gemini", "content": "I will look.", "toolCalls": [{"name": "list"}]})
    assert chat.conclude() is None

    chat.read({"type": "user", "id": "2", "content": [{"functionResponse": {}}]})
    assert chat.conclude() is None

    chat.read({"type": "gemini", "content": "Done."})
    end = chat.conclude()
    assert end is not None
    assert (end.text, end.turn) == ("Done.", "1")
    assert chat.conclude() is None


@pytest.mark.parametrize(
    ("content", "reason", "note"),
    [
        (
            '[API Error: {"error":{"code":429,"message":"Quota exceeded, retry in 41s"}}]',
            "rate_limited",
            "Quota exceeded",
        ),
        ("[API Error: something]", "api_error", "something"),
        ("[API Error: [1]]", "api_error", "[1]"),
    ],
)
def test_an_error_ends_the_turn_with_its_reason(content: str, reason: str, note: str) -> None:
    chat = GeminiChat()
    chat.read({"type": "user", "id": "1", "content": [{"text": "hello"}]})

    report = chat.read({"type": "error", "content": content})

    assert report is not None
    assert report.reason == reason
    assert report.text.startswith(note)
    assert chat.read({"type": "error", "content": content}) is None


def test_other_records_are_not_reported() -> None:
    assert GeminiChat().read({"type": "info", "content": "a tip"}) is None
    assert GeminiChat().read({"$set": {}}) is None


def test_context_for_the_model_at_the_start_is_no_prompt() -> None:
    chat = GeminiChat()
    chat.read({"type": "user", "id": "t1", "content": [{"text": "hello"}]})
    ended = chat.read({"type": "info", "content": "Request cancelled."})

    again = chat.read({"type": "user", "id": "t2", "content": [{"text": "<session_context>\nhello"}]})

    assert ended is not None
    assert (ended.turn, ended.reason, again) == ("t1", "interrupted", None)
