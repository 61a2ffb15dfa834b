"""What Claude Code's permission hook asks, and how the hook is answered (tried on 2.1.325)."""

from __future__ import annotations

from typing import Any

import pytest

from synapse.core.question import Choice, OptionEffect, QuestionKind
from synapse.terminal.signals.claude import hook_answer, question_in
from tests.unit.terminal.signals.recordings import recorded

PERMISSION = next(hook for hook in recorded("claude", "hooks.jsonl") if hook["hook_event_name"] == "PermissionRequest")
COLOUR: dict[str, Any] = {
    "question": "Which colour?",
    "header": "Colour",
    "options": [{"label": "Blue", "description": "Like the sky"}, {"label": "Red"}],
}


def asking(*questions: dict[str, Any]) -> dict[str, Any]:
    return {"tool_name": "AskUserQuestion", "tool_input": {"questions": list(questions)}}


def decision(payload: dict[str, Any], choice: Choice) -> Any:
    answer = hook_answer(payload, choice)
    assert answer is not None
    assert answer["hookSpecificOutput"]["hookEventName"] == "PermissionRequest"
    return answer["hookSpecificOutput"]["decision"]


def test_a_permission_offers_what_the_hook_can_say() -> None:
    question = question_in(PERMISSION, "q")

    assert (question.kind, question.title) == (QuestionKind.PERMISSION, "May it use Bash?")
    assert question.detail == "Make a file\ntouch made-by-tool.txt"
    assert [(option.key, option.label, option.leaning) for option in question.options] == [
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
def test_what_is_not_offered_is_no_decision(key: str) -> None:
    assert hook_answer(PERMISSION, Choice(option=key)) is None
    assert hook_answer(asking(COLOUR), Choice(option=key)) is None


def test_rules_that_would_be_remembered_are_named_and_unknown_ones_are_not_offered() -> None:
    rules = {"type": "addRules", "rules": [{"toolName": "Bash", "ruleContent": "touch:*"}], "destination": "session"}
    payload = {
        "tool_name": "Bash",
        "permission_suggestions": [{"type": "removeRules"}, {**rules, "behavior": "deny"}, rules],
    }

    labels = [option.label for option in question_in(payload, "q").options]

    assert labels == ["Yes", "Yes, and don't ask again for Bash(touch:*) (session)", "No"]
    assert decision(payload, Choice(option="always"))["updatedPermissions"] == [rules]


def test_a_question_is_answered_by_a_label_or_in_words() -> None:
    payload = asking(COLOUR)
    question = question_in(payload, "q")

    assert (question.kind, question.title, question.takes_text) == (QuestionKind.CHOICE, "Which colour?", True)
    assert question.detail == "1. Blue: Like the sky"
    assert [option.label for option in question.options] == ["Blue", "Red"]
    for choice, said in ((Choice(option="2"), "Red"), (Choice(text="Green"), "Green")):
        given = decision(payload, choice)
        assert given["updatedInput"] == {"questions": [COLOUR], "answers": {"Which colour?": said}}


def test_several_questions_at_once_are_left_to_the_terminal() -> None:
    payload = asking(COLOUR, {**COLOUR, "question": "And the next?"})
    question = question_in(payload, "q")

    assert (question.options, question.takes_text) == ((), False)
    assert "in its terminal" in question.hint
    assert "And the next?" in question.detail
    assert hook_answer(payload, Choice(text="Green")) is None


@pytest.mark.parametrize(
    "payload", [{}, {"tool_input": 5, "permission_suggestions": 7}, {"tool_input": {"questions": [5]}}]
)
def test_a_payload_of_another_version_still_asks_yes_or_no(payload: dict[str, Any]) -> None:
    assert [option.label for option in question_in(payload, "q").options] == ["Yes", "No"]
