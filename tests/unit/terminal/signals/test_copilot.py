"""What the events of a Copilot session report (recorded on 1.0.102)."""

from __future__ import annotations

from synapse.terminal.evidence import Source
from synapse.terminal.signals.copilot import CopilotEvents
from synapse.terminal.signals.report import SignalKind, SignalReport
from tests.unit.terminal.signals.recordings import recorded


def reported() -> list[list[SignalReport]]:
    """What was reported, turn by turn."""
    events = CopilotEvents()
    turns: dict[str, list[SignalReport]] = {}
    for event in recorded("copilot", "events.jsonl"):
        report = events.read(event)
        if report is not None:
            turns.setdefault(report.turn, []).append(report)
    return list(turns.values())


def test_each_turn_begins_with_its_prompt_and_has_one_end() -> None:
    for reports in reported():
        assert reports[0].kind is SignalKind.SUBMITTED
        assert [report.kind in (SignalKind.ANSWERED, SignalKind.FAILED) for report in reports].count(True) == 1
        assert reports[-1].kind in (SignalKind.ANSWERED, SignalKind.FAILED)
        assert all(report.source is Source.TRANSCRIPT for report in reports)


def test_the_ends_have_their_texts_and_reasons() -> None:
    ends = [reports[-1] for reports in reported()]

    assert [end.reason for end in ends] == ["", "", "interrupted", "", "api_error", "rate_limited", ""]
    assert ends[0].text.startswith("FAKE-ECHO: ")
    assert ends[1].text.endswith("```python\nprint('hello')\n```\n\nLast line of the answer.")
    assert ends[4].text == "400 fake failure"


def test_permissions_and_questions_and_their_answers_are_reported() -> None:
    asking = [reports for reports in reported() if any(report.kind is SignalKind.WAITING for report in reports)]

    assert [[report.kind for report in reports] for reports in asking] == [
        [SignalKind.SUBMITTED, SignalKind.WAITING, SignalKind.WORKING, SignalKind.ANSWERED]
    ] * 2
    assert [reports[1].text for reports in asking] == ["shell: touch made-by-tool.txt", "Which colour?"]


def test_messages_of_sub_agents_and_unknown_events_are_no_answer() -> None:
    events = CopilotEvents()

    assert events.read({"type": "of the future"}) is None
    assert events.read({"type": "assistant.message", "data": {"parentToolCallId": "c", "content": "inside"}}) is None
    assert events.read({"type": "assistant.turn_end"}) is None
    assert events.read({"type": "tool.execution_start", "data": {"toolName": "bash"}}) is None
    assert events.read({"type": "tool.execution_complete"}) is None


def test_a_permission_without_a_subject_is_named_by_its_kind() -> None:
    report = CopilotEvents().read({"type": "permission.requested"})

    assert report is not None
    assert report.text == "permission"


def test_a_sub_agent_neither_begins_nor_ends_the_turn_that_called_it() -> None:
    events = CopilotEvents()
    reports = [report for event in recorded("copilot", "sub_agent.jsonl") if (report := events.read(event))]

    assert [(report.kind, report.text) for report in reports] == [
        (SignalKind.SUBMITTED, "[A2A:3e5c16be:user:R] calibrate:sub:1 please"),
        (SignalKind.ANSWERED, "done"),
    ]
    assert len({report.turn for report in reports}) == 1
