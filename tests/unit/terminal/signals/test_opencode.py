"""What the events of OpenCode's server say (recorded on 1.18.33)."""

from __future__ import annotations

from typing import Any

import pytest

from synapse.terminal.evidence import Source
from synapse.terminal.signals.opencode import OpenCodeEvents
from synapse.terminal.signals.report import Report, Told
from tests.unit.terminal.signals.recordings import recorded


def heard() -> list[list[Report]]:
    """What was reported, turn by turn."""
    events = OpenCodeEvents()
    turns: dict[str, list[Report]] = {}
    for event in recorded("opencode", "events.jsonl"):
        report = events.read(event)
        if report is not None:
            turns.setdefault(report.turn, []).append(report)
    return list(turns.values())


def test_each_turn_has_its_prompt_and_one_end() -> None:
    for reports in heard():
        told = [report.told for report in reports]
        assert told.count(Told.SUBMITTED) == 1
        assert told.count(Told.ANSWERED) + told.count(Told.FAILED) == 1
        assert reports[-1].told in (Told.ANSWERED, Told.FAILED)
        assert all(report.source is Source.SIGNAL for report in reports)


@pytest.mark.parametrize(
    ("turn", "prompt", "text"),
    [
        (0, "hello there\nsecond", "FAKE-ECHO: hello there second"),
        (1, "RUNTOOL now", "FAKE-ECHO: RUNTOOL now"),
        (-1, "ASKTOOL one", "FAKE-ECHO: ASKTOOL one"),
    ],
)
def test_the_answer_is_the_last_thing_that_was_said(turn: int, prompt: str, text: str) -> None:
    reports = heard()[turn]

    assert next(report.text for report in reports if report.told is Told.SUBMITTED) == prompt
    assert (reports[-1].told, reports[-1].text) == (Told.ANSWERED, text)


@pytest.mark.parametrize(("turn", "asked"), [(1, "bash: touch made-by-tool.txt"), (-1, "Which colour?")])
def test_a_question_is_told_with_what_is_asked_and_that_it_was_answered(turn: int, asked: str) -> None:
    reports = heard()[turn]
    waits = next(index for index, report in enumerate(reports) if report.told is Told.WAITING)

    assert reports[waits].text == asked
    assert reports[waits + 1].told is Told.WORKING


def test_interrupts_and_failures_end_the_turn_with_their_reason() -> None:
    ends = [reports[-1] for reports in heard()]

    assert [end.reason for end in ends] == ["", "", "interrupted", "api_error", "interrupted", ""]
    assert ends[3].text == "fake failure"


def test_a_limit_is_told_apart_and_said_while_it_tries_again() -> None:
    events = OpenCodeEvents()
    session = {"sessionID": "ses_1"}
    error = {"name": "APIError", "data": {"message": "too many", "statusCode": 429}}

    def tell(name: str, **more: Any) -> Report | None:
        return events.read({"type": name, "properties": {**session, **more}})

    tell("message.updated", info={"id": "msg_1", "role": "user"})
    retry = tell("session.status", status={"type": "retry", "message": "too many"})
    tell("session.error", error=error)
    end = tell("session.status", status={"type": "idle"})

    assert retry is not None
    assert end is not None
    assert retry.detail == "its server tries again: too many"
    assert (end.reason, end.text) == ("rate_limited", "too many")
    assert tell("session.status", status={"type": "idle"}) is None


def test_conversations_of_sub_agents_are_left_aside() -> None:
    events = OpenCodeEvents()
    events.read({"type": "session.created", "properties": {"info": {"id": "ses_2", "parentID": "ses_1"}}})

    busy = {"type": "session.status", "properties": {"sessionID": "ses_2", "status": {"type": "busy"}}}

    assert events.read(busy) is None


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"type": "server.connected", "properties": {}},
        {"type": "session.status", "properties": {"sessionID": "s", "status": {"type": "idle"}}},
        {"type": "session.status", "properties": {"sessionID": "s", "status": {"type": "of the future"}}},
        {"type": "message.part.updated", "properties": {"sessionID": "s", "part": {"type": "tool"}}},
        {"type": "message.part.updated", "properties": {"sessionID": "s", "part": {"type": "text", "messageID": "m"}}},
    ],
)
def test_other_events_say_nothing(event: dict[str, Any]) -> None:
    assert OpenCodeEvents().read(event) is None


def test_when_it_tries_again_is_told() -> None:
    retries = [report.detail for reports in heard() for report in reports if "tries again" in report.detail]

    assert retries == ["its server tries again at 2026-11-15 11:30:42 UTC: fake rate limit"]
