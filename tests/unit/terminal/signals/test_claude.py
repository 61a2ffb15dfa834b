"""What Claude Code's hooks and transcript say (recorded on 2.1.325)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from synapse.terminal.evidence import Source
from synapse.terminal.signals import claude
from synapse.terminal.signals.report import SignalKind, SignalReport
from tests.unit.terminal.signals.recordings import recorded

HOOKS = recorded("claude", "hooks.jsonl")
TRANSCRIPT = recorded("claude", "transcript.jsonl")


def reports_of(prompt: str) -> list[SignalReport]:
    """What was reported of the turn that began with this prompt."""
    turn = next(hook["prompt_id"] for hook in HOOKS if hook.get("prompt") == prompt)
    reports = [claude.read_hook(hook) for hook in HOOKS if hook["prompt_id"] == turn]
    reports += [claude.read_record(line) for line in TRANSCRIPT if line.get("promptId") == turn]
    return [report for report in reports if report is not None]


def test_a_turn_begins_with_the_prompt_and_ends_with_the_answer() -> None:
    taken, ended = reports_of("hello there\nsecond line")

    assert (taken.told, taken.text) == (SignalKind.SUBMITTED, "hello there\nsecond line")
    assert (ended.told, ended.text) == (SignalKind.ANSWERED, "FAKE-ECHO: hello there second line")
    assert taken.turn == ended.turn != ""
    assert taken.source is ended.source is Source.SIGNAL


def test_a_permission_request_says_what_is_asked() -> None:
    reports = reports_of("RUNTOOL now")

    assert [report.told for report in reports] == [SignalKind.SUBMITTED, SignalKind.WAITING, SignalKind.ANSWERED]
    assert reports[1].text == "Bash: touch made-by-tool.txt"


@pytest.mark.parametrize("prompt", ["SLOW one", "RUNTOOL deny"])
def test_an_interrupt_is_told_by_the_transcript_alone(prompt: str) -> None:
    *_, ended = reports_of(prompt)

    assert (ended.told, ended.reason, ended.source) == (SignalKind.FAILED, "interrupted", Source.TRANSCRIPT)


@pytest.mark.parametrize(
    ("prompt", "reason", "note"),
    [
        ("APIFAIL one", "api_error", "API Error: 400 fake failure"),
        ("APILIMIT one", "rate_limited", "API Error: Request rejected (429) · fake rate limit"),
    ],
)
def test_a_failure_of_the_model_ends_the_turn_with_its_reason(prompt: str, reason: str, note: str) -> None:
    _, ended = reports_of(prompt)

    assert (ended.told, ended.reason, ended.text) == (SignalKind.FAILED, reason, note)


def test_other_hooks_and_other_shapes_say_nothing() -> None:
    assert claude.read_hook({"hook_event_name": "PreToolUse"}) is None
    assert claude.read_hook({}) is None
    assert claude.read_record({"type": "user", "message": "text"}) is None
    subagent = {
        "type": "user",
        "isSidechain": True,
        "message": {"content": [{"text": "[Request interrupted by user]"}]},
    }
    assert claude.read_record(subagent) is None


def test_a_question_is_told_in_its_own_words() -> None:
    asked = {"tool_name": "AskUserQuestion", "tool_input": {"questions": [{"question": "Which colour?"}]}}

    report = claude.read_hook({"hook_event_name": "PermissionRequest", **asked})

    assert report is not None
    assert report.text == "Which colour?"


def test_a_tool_without_a_telling_input_is_told_by_its_name() -> None:
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


def test_a_limit_that_ends_at_a_known_time_says_when() -> None:
    payload = {
        "hook_event_name": "StopFailure",
        "error": "rate_limit",
        "last_assistant_message": "limit reached|1794737269",
    }

    report = claude.read_hook(payload)

    assert report is not None
    assert (report.reason, report.text) == ("rate_limited", "limit reached; try again after 2026-11-15 10:07:49 UTC")
