"""What Claude Code's hooks and transcript report, and how its permission hook is answered (recorded on 2.1.325)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from synapse.core.question import Choice, OptionEffect, QuestionKind
from synapse.terminal.evidence import Source
from synapse.terminal.signals import claude
from synapse.terminal.signals.report import SignalKind, SignalReport
from tests.unit.terminal.signals.recordings import recorded

HOOKS = recorded("claude", "hooks.jsonl")
TRANSCRIPT = recorded("claude", "transcript.jsonl")
PERMISSION = next(hook for hook in HOOKS if hook["hook_event_name"] == "PermissionRequest")
COLOUR: dict[str, Any] = {
    "question": "Which colour?",
    "header": "Colour",
    "options": [{"label": "Blue", "description": "Like the sky"}, {"label": "Red"}],
}


def reports_of(prompt: str) -> list[SignalReport]:
    """What was reported of the turn that began with this prompt."""
    turn = next(hook["prompt_id"] for hook in HOOKS if hook.get("prompt") == prompt)
    reports = [claude.read_hook(hook) for hook in HOOKS if hook["prompt_id"] == turn]
    reports += [claude.read_record(line) for line in TRANSCRIPT if line.get("promptId") == turn]
    return [report for report in reports if report is not None]


def test_a_turn_begins_with_the_prompt_and_ends_with_the_answer() -> None:
    taken, ended = reports_of("hello there\nsecond line")

    assert (taken.kind, taken.text) == (SignalKind.SUBMITTED, "hello there\nsecond line")
    assert (ended.kind, ended.text) == (SignalKind.ANSWERED, "FAKE-ECHO: hello there second line")
    assert taken.turn == ended.turn != ""
    assert taken.source is ended.source is Source.SIGNAL


def test_a_permission_request_reports_the_question() -> None:
    reports = reports_of("RUNTOOL now")

    assert [report.kind for report in reports] == [SignalKind.SUBMITTED, SignalKind.WAITING, SignalKind.ANSWERED]
    assert reports[1].text == "Bash: touch made-by-tool.txt"


@pytest.mark.parametrize("prompt", ["SLOW one", "RUNTOOL deny"])
def test_only_the_transcript_reports_an_interrupt(prompt: str) -> None:
    *_, ended = reports_of(prompt)

    assert (ended.kind, ended.reason, ended.source) == (SignalKind.FAILED, "interrupted", Source.TRANSCRIPT)


@pytest.mark.parametrize(
    ("prompt", "reason", "note"),
    [
        ("APIFAIL one", "api_error", "API Error: 400 fake failure"),
        ("APILIMIT one", "rate_limited", "API Error: Request rejected (429) · fake rate limit"),
    ],
)
def test_a_failure_of_the_model_ends_the_turn_with_its_reason(prompt: str, reason: str, note: str) -> None:
    _, ended = reports_of(prompt)

    assert (ended.kind, ended.reason, ended.text) == (SignalKind.FAILED, reason, note)


def test_other_hooks_and_other_shapes_are_not_reported() -> None:
    assert claude.read_hook({"hook_event_name": "PreToolUse"}) is None
    assert claude.read_hook({}) is None
    assert claude.read_record({"type": "user", "message": "text"}) is None
    subagent = {
        "type": "user",
        "isSidechain": True,
        "message": {"content": [{"text": "[Request interrupted by user]"}]},
    }
    assert claude.read_record(subagent) is None


def test_a_question_is_reported_by_its_text() -> None:
    asked = {"tool_name": "AskUserQuestion", "tool_input": {"questions": [{"question": "Which colour?"}]}}

    report = claude.read_hook({"hook_event_name": "PermissionRequest", **asked})

    assert report is not None
    assert report.text == "Which colour?"


def test_a_tool_without_a_telling_input_is_named_alone() -> None:
    report = claude.read_hook({"hook_event_name": "PermissionRequest", "tool_name": "Odd"})

    assert report is not None
    assert report.text == "Odd"


def test_our_hooks_are_added_behind_the_persons_own() -> None:
    theirs: dict[str, Any] = {"model": "m", "hooks": {"Stop": ["theirs"], "PreToolUse": ["theirs"], "StopFailure": 5}}

    merged = claude.merged(theirs, claude.hook_settings("http://127.0.0.1:8100/signals", "X-Secret", "s"))

    assert merged["model"] == "m"
    assert merged["hooks"]["Stop"][0] == "theirs"
    assert merged["hooks"]["Stop"][1]["hooks"][0]["headers"] == {"X-Secret": "s"}
    assert merged["hooks"]["PreToolUse"] == ["theirs"]
    assert set(merged["hooks"]) == {"PreToolUse", *claude.HOOKS}
    assert json.dumps(merged)


@pytest.mark.parametrize(
    ("arguments", "theirs", "rest"),
    [
        ((), "", ()),
        (("-c",), "", ("-c",)),
        (("--settings", "a.json", "-c"), "a.json", ("-c",)),
        (("--settings=a.json", "--settings", "b.json"), "b.json", ()),
        (("--", "--settings", "a.json"), "", ("--", "--settings", "a.json")),
        (("--settings",), "", ()),
    ],
)
def test_the_persons_own_settings_are_found(arguments: tuple[str, ...], theirs: str, rest: tuple[str, ...]) -> None:
    assert claude.settings_argument(arguments) == (theirs, rest)


def test_a_rate_limit_reports_when_it_ends() -> None:
    payload = {
        "hook_event_name": "StopFailure",
        "error": "rate_limit",
        "last_assistant_message": "limit reached|1794737269",
    }

    report = claude.read_hook(payload)

    assert report is not None
    assert (report.reason, report.text) == ("rate_limited", "limit reached; try again after 2026-11-15 10:07:49 UTC")


def asking(*questions: dict[str, Any]) -> dict[str, Any]:
    return {"tool_name": "AskUserQuestion", "tool_input": {"questions": list(questions)}}


def decision(payload: dict[str, Any], choice: Choice) -> Any:
    answer = claude.hook_answer(payload, choice)
    assert answer is not None
    assert answer["hookSpecificOutput"]["hookEventName"] == "PermissionRequest"
    return answer["hookSpecificOutput"]["decision"]


def test_a_permission_offers_the_options_that_the_hook_can_express() -> None:
    question = claude.question_in(PERMISSION, "q")

    assert (question.kind, question.title) == (QuestionKind.PERMISSION, "May it use Bash?")
    assert question.detail == "Make a file\ntouch made-by-tool.txt"
    assert [(option.key, option.label, option.effect) for option in question.options] == [
        ("yes", "Yes", OptionEffect.ALLOW),
        ("always", "Yes, and always allow access to /tmp/person/proj (session)", OptionEffect.ALLOW_ALWAYS),
        ("always-2", "Yes, and switch to acceptEdits (session)", OptionEffect.ALLOW_ALWAYS),
        ("no", "No", OptionEffect.DENY),
    ]


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("yes", {"behavior": "allow"}),
        ("always", {"behavior": "allow", "updatedPermissions": PERMISSION["permission_suggestions"][:1]}),
        ("always-2", {"behavior": "allow", "updatedPermissions": PERMISSION["permission_suggestions"][1:]}),
        ("no", {"behavior": "deny", "message": "The person said no."}),
    ],
)
def test_each_option_is_one_decision(key: str, expected: dict[str, Any]) -> None:
    assert decision(PERMISSION, Choice(option=key)) == expected


@pytest.mark.parametrize("key", ["", "0", "5", "-1", "²", "always-3"])
def test_a_choice_that_is_not_offered_is_no_decision(key: str) -> None:
    assert claude.hook_answer(PERMISSION, Choice(option=key)) is None
    assert claude.hook_answer(asking(COLOUR), Choice(option=key)) is None


def test_rules_that_would_be_remembered_are_named_and_unknown_ones_are_not_offered() -> None:
    rules = {"type": "addRules", "rules": [{"toolName": "Bash", "ruleContent": "touch:*"}], "destination": "session"}
    payload = {
        "tool_name": "Bash",
        "permission_suggestions": [{"type": "removeRules"}, {**rules, "behavior": "deny"}, rules],
    }

    labels = [option.label for option in claude.question_in(payload, "q").options]

    assert labels == ["Yes", "Yes, and don't ask again for Bash(touch:*) (session)", "No"]
    assert decision(payload, Choice(option="always"))["updatedPermissions"] == [rules]


def test_a_question_is_answered_by_a_label_or_by_free_text() -> None:
    payload = asking(COLOUR)
    question = claude.question_in(payload, "q")

    assert (question.kind, question.title, question.takes_text) == (QuestionKind.CHOICE, "Which colour?", True)
    assert question.detail == "1. Blue: Like the sky"
    assert [option.label for option in question.options] == ["Blue", "Red"]
    for choice, said in ((Choice(option="2"), "Red"), (Choice(text="Green"), "Green")):
        given = decision(payload, choice)
        assert given["updatedInput"] == {"questions": [COLOUR], "answers": {"Which colour?": said}}


def test_several_questions_at_once_are_left_to_the_terminal() -> None:
    payload = asking(COLOUR, {**COLOUR, "question": "And the next?"})
    question = claude.question_in(payload, "q")

    assert (question.options, question.takes_text) == ((), False)
    assert "in its terminal" in question.hint
    assert "And the next?" in question.detail
    assert claude.hook_answer(payload, Choice(text="Green")) is None


@pytest.mark.parametrize(
    "payload", [{}, {"tool_input": 5, "permission_suggestions": 7}, {"tool_input": {"questions": [5]}}]
)
def test_a_payload_of_another_version_still_asks_yes_or_no(payload: dict[str, Any]) -> None:
    assert [option.label for option in claude.question_in(payload, "q").options] == ["Yes", "No"]


def test_a_tool_of_an_mcp_server_is_shown_with_its_arguments_as_its_dialog_shows_them() -> None:
    payload = {"tool_name": "mcp__notes__note", "tool_input": {"text": "hello", "sizes": [1, {"ä": None}]}}

    question = claude.question_in(payload, "q")

    assert question.title == "May it use mcp__notes__note?"
    assert question.detail == 'text: "hello"\nsizes: [1, {"ä": null}]'
