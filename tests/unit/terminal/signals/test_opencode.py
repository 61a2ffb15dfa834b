"""What the events of OpenCode's server report (recorded on 1.18.33)."""

from __future__ import annotations

from typing import Any

import pytest

from synapse.core.question import Choice, OptionEffect, Question, QuestionKind
from synapse.terminal.evidence import Source
from synapse.terminal.signals.opencode import OpenCodeEvents, ReplyRequest, reply_to
from synapse.terminal.signals.report import SignalKind, SignalReport
from tests.unit.terminal.signals.recordings import recorded


def reported() -> list[list[SignalReport]]:
    """What was reported, turn by turn."""
    events = OpenCodeEvents()
    turns: dict[str, list[SignalReport]] = {}
    for event in recorded("opencode", "events.jsonl"):
        report = events.read(event)
        if report is not None:
            turns.setdefault(report.turn, []).append(report)
    return list(turns.values())


def test_each_turn_has_its_prompt_and_one_end() -> None:
    for reports in reported():
        kinds = [report.kind for report in reports]
        assert kinds.count(SignalKind.SUBMITTED) == 1
        assert kinds.count(SignalKind.ANSWERED) + kinds.count(SignalKind.FAILED) == 1
        assert reports[-1].kind in (SignalKind.ANSWERED, SignalKind.FAILED)
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
    reports = reported()[turn]

    assert next(report.text for report in reports if report.kind is SignalKind.SUBMITTED) == prompt
    assert (reports[-1].kind, reports[-1].text) == (SignalKind.ANSWERED, text)


def test_a_stream_that_begins_in_the_middle_of_a_turn_tells_no_wrong_answer() -> None:
    """As one that is opened when a person has typed already, or again after it broke."""
    answers = {last.turn: last.text for *_, last in reported() if last.kind is SignalKind.ANSWERED}
    events = recorded("opencode", "events.jsonl")
    without_prompt = 0
    for begin in range(len(events)):
        late = OpenCodeEvents()
        reports = [report for event in events[begin:] if (report := late.read(event))]
        prompts = {report.turn for report in reports if report.kind is SignalKind.SUBMITTED}
        for report in reports:
            if report.kind is SignalKind.ANSWERED:
                assert report.text == answers[report.turn], begin
                without_prompt += report.turn not in prompts

    assert without_prompt


@pytest.mark.parametrize(("turn", "asked"), [(1, "bash: touch made-by-tool.txt"), (-1, "Which colour?")])
def test_a_question_and_its_answer_are_reported(turn: int, asked: str) -> None:
    reports = reported()[turn]
    waits = next(index for index, report in enumerate(reports) if report.kind is SignalKind.WAITING)

    assert reports[waits].text == asked
    assert reports[waits + 1].kind is SignalKind.WORKING


def test_interrupts_and_failures_end_the_turn_with_their_reason() -> None:
    ends = [reports[-1] for reports in reported()]

    assert [end.reason for end in ends] == ["", "", "interrupted", "api_error", "interrupted", ""]
    assert ends[3].text == "fake failure"


def test_a_rate_limit_has_its_own_reason_and_is_reported_while_it_tries_again() -> None:
    events = OpenCodeEvents()
    session = {"sessionID": "ses_1"}
    error = {"name": "APIError", "data": {"message": "too many", "statusCode": 429}}

    def read(name: str, **more: Any) -> SignalReport | None:
        return events.read({"type": name, "properties": {**session, **more}})

    read("message.updated", info={"id": "msg_1", "role": "user"})
    retry = read("session.status", status={"type": "retry", "message": "too many"})
    read("session.error", error=error)
    end = read("session.status", status={"type": "idle"})

    assert retry is not None
    assert end is not None
    assert retry.detail == "its server tries again: too many"
    assert (end.reason, end.text) == ("rate_limited", "too many")
    assert read("session.status", status={"type": "idle"}) is None


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
def test_other_events_are_not_reported(event: dict[str, Any]) -> None:
    assert OpenCodeEvents().read(event) is None


def test_the_time_of_the_next_try_is_reported() -> None:
    retries = [report.detail for reports in reported() for report in reports if "tries again" in report.detail]

    assert retries == ["its server tries again at 2026-11-15 11:30:42 UTC: fake rate limit"]


def asked(turn: int) -> Question:
    question = next(report.question for report in reported()[turn] if report.kind is SignalKind.WAITING)
    assert question is not None
    return question


def test_a_permission_is_a_question_with_the_answers_of_its_terminal() -> None:
    question = asked(1)

    assert (question.kind, question.title) == (QuestionKind.PERMISSION, "Permission required: bash")
    assert question.detail == "touch made-by-tool.txt"
    assert [(option.key, option.label, option.effect) for option in question.options] == [
        ("1", "Allow once", OptionEffect.ALLOW),
        ("2", "Allow always: touch *", OptionEffect.ALLOW_ALWAYS),
        ("3", "Reject", OptionEffect.DENY),
    ]
    assert not question.takes_text


def test_a_question_of_the_model_has_its_options_and_takes_free_text() -> None:
    question = asked(-1)

    assert (question.kind, question.title) == (QuestionKind.CHOICE, "Which colour?")
    assert [option.label for option in question.options] == ["Blue", "Red"]
    assert question.detail == "Blue: Like the sky\nRed: Like a rose"
    assert question.takes_text


PERMISSION: dict[str, Any] = {"id": "per_1", "sessionID": "ses_1", "permission": "edit", "patterns": ["a.txt", "b.txt"]}
ASKED = {"question": "Which?", "options": [{"label": "Blue"}, {"label": "Red"}]}
QUESTION: dict[str, Any] = {"id": "que_1", "questions": [ASKED]}


@pytest.mark.parametrize(
    ("request_", "choice", "reply"),
    [
        (PERMISSION, Choice(option="1"), ReplyRequest("/permission/per_1/reply", {"reply": "once"})),
        (PERMISSION, Choice(option="2"), ReplyRequest("/permission/per_1/reply", {"reply": "always"})),
        (PERMISSION, Choice(option="3"), ReplyRequest("/permission/per_1/reply", {"reply": "reject"})),
        (PERMISSION, Choice(text="yes"), None),
        (QUESTION, Choice(option="2"), ReplyRequest("/question/que_1/reply", {"answers": [["Red"]]})),
        (QUESTION, Choice(text="green"), ReplyRequest("/question/que_1/reply", {"answers": [["green"]]})),
        (QUESTION, Choice(), None),
        ({**QUESTION, "questions": [ASKED, ASKED]}, Choice(option="1"), None),
    ],
)
def test_a_choice_becomes_a_request_to_its_server(request_: dict[str, Any], choice: Choice, reply: object) -> None:
    assert reply_to(request_, choice) == reply


def test_a_permission_for_files_without_more_names_the_files() -> None:
    report = OpenCodeEvents().read({"type": "permission.asked", "properties": PERMISSION})

    assert report is not None
    assert report.question is not None
    assert report.question.detail == "a.txt\nb.txt"


def test_several_questions_at_once_are_left_to_the_terminal() -> None:
    given = {**QUESTION, "sessionID": "ses_1", "questions": [ASKED, ASKED]}
    report = OpenCodeEvents().read({"type": "question.asked", "properties": given})

    assert report is not None
    assert report.question is not None
    assert report.question.hint
    assert (report.question.options, report.question.takes_text) == ((), False)


def test_a_question_of_a_sub_agent_is_reported_too() -> None:
    events = OpenCodeEvents()
    events.read({"type": "session.created", "properties": {"info": {"id": "ses_1", "parentID": "ses_0"}}})

    report = events.read({"type": "permission.asked", "properties": PERMISSION})

    assert report is not None
    assert report.kind is SignalKind.WAITING
    assert set(events.asked) == {"per_1"}


def test_when_one_of_two_questions_is_answered_the_other_is_reported() -> None:
    events = OpenCodeEvents()
    events.read({"type": "permission.asked", "properties": PERMISSION})
    events.read({"type": "permission.asked", "properties": {**PERMISSION, "id": "per_2"}})
    replied = {"sessionID": "ses_1", "requestID": "per_1", "reply": "once"}

    report = events.read({"type": "permission.replied", "properties": replied})

    assert report is not None
    assert report.question is not None
    assert report.question.id == "per_2"


def test_a_no_that_ends_the_turn_is_no_answer() -> None:
    events = OpenCodeEvents()

    def read(name: str, **more: Any) -> SignalReport | None:
        return events.read({"type": name, "properties": {"sessionID": "ses_1", **more}})

    read("message.updated", info={"id": "msg_1", "role": "user"})
    read("permission.asked", id="per_1", permission="bash")
    read("permission.replied", requestID="per_1", reply="reject")
    end = read("session.status", status={"type": "idle"})

    assert end is not None
    assert (end.kind, end.reason) == (SignalKind.FAILED, "interrupted")


def test_the_conversation_that_was_spoken_in_last_is_known_with_its_agent_and_model() -> None:
    events = OpenCodeEvents()
    model = {"providerID": "fake", "modelID": "fake-model", "variant": "high"}
    user = {"id": "msg_1", "role": "user", "agent": "plan", "model": model}
    events.read({"type": "message.updated", "properties": {"sessionID": "ses_1", "info": user}})

    assert events.session == "ses_1"
    assert events.settings_of("ses_1") == {
        "agent": "plan",
        "model": {"providerID": "fake", "modelID": "fake-model"},
        "variant": "high",
    }
    assert events.settings_of("ses_2") == {}

    events.read({"type": "tui.session.select", "properties": {"sessionID": "ses_2"}})
    assert events.session == "ses_2"

    events.read({"type": "session.deleted", "properties": {"sessionID": "ses_2", "info": {"id": "ses_2"}}})
    assert events.session == ""
