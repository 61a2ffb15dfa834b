"""What Codex's app-server reports to a second client (recorded on 0.166.0)."""

from __future__ import annotations

from typing import Any, cast

import pytest

from synapse.core.question import Choice, OptionEffect, QuestionKind
from synapse.terminal.evidence import Source
from synapse.terminal.signals.codex_server import AppServerEvents, read_question
from synapse.terminal.signals.report import SignalKind, SignalReport
from tests.unit.terminal.signals.recordings import recorded

MESSAGES = recorded("codex", "app_server.jsonl")
THREAD = MESSAGES[0]["params"]["thread"]["id"]
TOOL, YES_OR_NO, FORM = recorded("codex", "tool_requests.jsonl")


def reported() -> list[list[SignalReport]]:
    """What was reported, turn by turn."""
    events = AppServerEvents()
    turns: dict[str, list[SignalReport]] = {}
    for message in MESSAGES:
        for report in events.read(message):
            turns.setdefault(report.turn, []).append(report)
    return list(turns.values())


def up_to(method: str) -> AppServerEvents:
    """A reader that has read everything before the first message of this method, and that message."""
    events = AppServerEvents()
    for message in MESSAGES:
        events.read(message)
        if message["method"] == method:
            return events
    raise AssertionError(method)


def test_each_turn_has_its_prompt_and_one_end() -> None:
    for reports in reported():
        kinds = [report.kind for report in reports]
        assert kinds[0] is SignalKind.WORKING
        assert kinds.count(SignalKind.SUBMITTED) == 1
        assert kinds.count(SignalKind.ANSWERED) + kinds.count(SignalKind.FAILED) == 1
        assert kinds[-1] in (SignalKind.ANSWERED, SignalKind.FAILED)
        assert all(report.source is Source.SIGNAL for report in reports)


def test_prompts_and_answers_are_exact() -> None:
    first = reported()[0]

    assert [report.text for report in first if report.kind is SignalKind.SUBMITTED] == ["first by api\n  second line"]
    assert first[-1].text == "FAKE-ECHO: first by api second line"


def test_interrupts_failures_and_limits_end_the_turn_with_their_reason() -> None:
    ends = [reports[-1] for reports in reported()]

    assert [end.reason for end in ends[1:6]] == ["interrupted", "api_error", "rate_limited", "", "interrupted"]
    assert ends[2].text == "fake failure"
    assert "429" in ends[3].text


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("/bin/bash -lc 'cd /etc && cat passwd | head'", "cd /etc && cat passwd | head"),
        ("zsh -c ls", "ls"),
        ("rm -r build", "rm -r build"),
        ("bash -lc 'echo", "bash -lc 'echo"),
    ],
)
def test_the_command_is_shown_whole_whatever_its_summary_says(command: str, shown: str) -> None:
    summary = [{"type": "read", "command": "cat passwd"}]
    request = {
        "id": 7,
        "method": "item/commandExecution/requestApproval",
        "params": {"command": command, "commandActions": summary},
    }

    question = read_question(request, {})

    assert question is not None
    assert question.detail == shown


def test_an_option_that_remembers_something_names_it() -> None:
    decisions: list[dict[str, Any]] = [
        {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": ["rm", "-r", "a b"]}},
        {"acceptWithExecpolicyAmendment": {}},
        {"applyNetworkPolicyAmendment": {"network_policy_amendment": {"host": "example.com", "action": "allow"}}},
        {"applyNetworkPolicyAmendment": {"network_policy_amendment": {"host": "example.com", "action": "deny"}}},
    ]
    request: dict[str, Any] = {
        "id": 7,
        "method": "item/commandExecution/requestApproval",
        "params": {"command": "rm", "availableDecisions": decisions},
    }

    question = read_question(request, {})

    assert question is not None
    assert [option.label for option in question.options] == [
        "Yes, and don't ask again for commands that start with `rm -r 'a b'`",
        "Yes, and don't ask again for commands like this",
        "Yes, and allow example.com from now on",
        "No, and block example.com from now on",
    ]
    always, other = OptionEffect.ALLOW_ALWAYS, OptionEffect.OTHER
    assert [option.effect for option in question.options] == [always, always, other, other]


def test_a_command_that_needs_approval_is_a_question_with_the_options_of_its_terminal() -> None:
    reports = reported()[4]
    waits = next(index for index, report in enumerate(reports) if report.kind is SignalKind.WAITING)
    question = reports[waits].question

    assert question is not None
    assert question.kind is QuestionKind.PERMISSION
    assert question.detail == "Reason: May I make a file?\ntouch made-by-tool.txt"
    assert [(option.key, option.effect) for option in question.options] == [
        ("1", OptionEffect.ALLOW),
        ("2", OptionEffect.ALLOW_ALWAYS),
        ("3", OptionEffect.DENY),
    ]
    assert reports[waits + 1].kind is SignalKind.WORKING


def test_edits_are_shown_with_what_is_changed() -> None:
    asked = [report.question for reports in reported() for report in reports if report.question][-1]

    assert asked is not None
    assert asked.detail == "/srv/edited.txt\nhello"
    assert asked.options[0].label == "Yes, proceed"


@pytest.mark.parametrize(
    ("option", "decision"),
    [
        ("1", "accept"),
        ("2", {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": ["touch", "made-by-tool.txt"]}}),
        ("3", "cancel"),
    ],
)
def test_a_choice_becomes_the_decision_that_was_offered(option: str, decision: object) -> None:
    events = up_to("item/commandExecution/requestApproval")

    assert events.result_for("codex-0", Choice(option=option)) == (0, {"decision": decision})


@pytest.mark.parametrize("choice", [Choice(option="4"), Choice(option="y"), Choice(text="go on"), Choice()])
def test_a_choice_that_is_not_offered_is_no_decision(choice: Choice) -> None:
    events = up_to("item/commandExecution/requestApproval")

    assert events.result_for("codex-0", choice) is None
    assert events.result_for("codex-7", Choice(option="1")) is None


def test_a_question_that_the_person_answered_first_is_not_asked_any_more() -> None:
    asking, answered = up_to("item/commandExecution/requestApproval"), up_to("serverRequest/resolved")

    assert asking.is_asking("codex-0")
    assert not answered.is_asking("codex-0")
    assert answered.result_for("codex-0", Choice(option="1")) is None


def user_input(**more: Any) -> dict[str, Any]:
    options = [{"label": "Blue", "description": "Like the sky"}, {"label": "Red", "description": ""}]
    question = {"id": "colour", "header": "Colour", "question": "Which colour?", "options": options, **more}
    params = {"threadId": THREAD, "turnId": "t", "itemId": "i", "isBlocking": True, "questions": [question]}
    return {"method": "item/tool/requestUserInput", "id": 9, "params": params}


def test_a_question_of_the_model_can_be_answered_by_an_option_or_by_free_text() -> None:
    events = up_to("thread/started")
    report = events.read(user_input(isOther=True))[0]

    assert report.question is not None
    assert (report.question.kind, report.question.title) == (QuestionKind.CHOICE, "Which colour?")
    assert report.question.takes_text
    assert report.question.detail == "Blue: Like the sky"
    assert events.result_for("codex-9", Choice(option="2")) == (9, {"answers": {"colour": {"answers": ["Red"]}}})
    assert events.result_for("codex-9", Choice(text="green")) == (9, {"answers": {"colour": {"answers": ["green"]}}})
    assert events.result_for("codex-9", Choice()) is None


def test_several_questions_at_once_are_left_to_the_terminal() -> None:
    events, request = up_to("thread/started"), user_input()
    request["params"]["questions"] *= 2
    question = events.read(request)[0].question

    assert question is not None
    assert question.hint
    assert (question.options, question.takes_text) == ((), False)
    assert events.result_for("codex-9", Choice(option="1")) is None


def test_when_one_of_two_questions_is_answered_the_other_is_reported() -> None:
    events = up_to("thread/started")
    events.read(user_input())
    events.read({**user_input(), "id": 10})
    resolved = {"method": "serverRequest/resolved", "params": {"threadId": THREAD, "requestId": 9}}

    reports = events.read(resolved)

    assert [report.kind for report in reports] == [SignalKind.WAITING]
    assert reports[0].question is not None
    assert reports[0].question.id == "codex-10"
    assert events.read(resolved) == []


def test_the_conversation_of_the_terminal_is_the_last_that_is_no_title_and_no_sub_agent() -> None:
    events = AppServerEvents()
    for message in MESSAGES:
        events.read(message)
    last = [message for message in MESSAGES if message["method"] == "thread/started"][-2]["params"]["thread"]

    assert events.thread == last["id"]
    assert not events.note_thread({"id": "sub", "parentThreadId": last["id"]})
    assert events.thread == last["id"]


def test_other_conversations_and_other_requests_are_not_reported() -> None:
    events = up_to("thread/started")
    elsewhere = {"method": "turn/started", "params": {"threadId": "other", "turn": {"id": "t"}}}
    request = {"method": "account/chatgptAuthTokens/refresh", "id": 3, "params": {"threadId": THREAD}}

    assert events.read(elsewhere) == []
    assert events.read(request) == []
    assert events.read({"method": "of/the/future", "params": {"threadId": THREAD}}) == []
    assert AppServerEvents().read(elsewhere) == []


TURN = {
    "id": "t1",
    "status": "completed",
    "items": [
        {"type": "userMessage", "id": "u", "content": [{"type": "text", "text": "hello"}]},
        {"type": "agentMessage", "id": "a", "text": "FAKE-ECHO: hello"},
    ],
}


def test_a_turn_that_was_over_before_it_was_reported_is_reported_whole() -> None:
    events = up_to("thread/started")

    reports = [(report.kind, report.text) for report in events.catch_up(TURN)]

    assert reports == [
        (SignalKind.WORKING, ""),
        (SignalKind.SUBMITTED, "hello"),
        (SignalKind.ANSWERED, "FAKE-ECHO: hello"),
    ]
    assert events.catch_up(TURN) == []


def test_catching_up_late_does_not_repeat_what_was_reported_meanwhile() -> None:
    events = up_to("turn/completed")

    assert events.catch_up({**TURN, "id": "0"}) == []


def test_a_turn_that_passed_while_the_connection_was_broken_is_reported() -> None:
    events = up_to("turn/completed")

    assert events.note_thread({"id": THREAD, "ephemeral": False})
    assert [report.kind for report in events.catch_up(TURN)] == [
        SignalKind.WORKING,
        SignalKind.SUBMITTED,
        SignalKind.ANSWERED,
    ]


def test_a_look_at_a_running_turn_does_not_end_it() -> None:
    events = up_to("thread/started")

    kinds = [report.kind for report in events.catch_up({**TURN, "status": "inProgress"})]

    assert kinds == [SignalKind.WORKING, SignalKind.SUBMITTED]
    end = {"method": "turn/completed", "params": {"threadId": THREAD, "turn": {"id": "t1", "status": "completed"}}}
    assert [report.text for report in events.read(end)] == ["FAKE-ECHO: hello"]


def asking(request: dict[str, Any]) -> AppServerEvents:
    """A reader of a conversation in which this was asked."""
    events = AppServerEvents()
    events.read({"method": "thread/started", "params": {"thread": {"id": request["params"]["threadId"]}}})
    events.read(request)
    return events


def test_a_tool_of_an_mcp_server_is_a_permission_with_the_options_of_its_terminal() -> None:
    question = read_question(TOOL, {})

    assert question is not None
    assert question.kind is QuestionKind.PERMISSION
    assert question.title == 'Allow the notes MCP server to run tool "note"?'
    assert question.detail == "text: the note"
    assert [(option.label, option.effect) for option in question.options] == [
        ("Allow", OptionEffect.ALLOW),
        ("Allow for this session", OptionEffect.ALLOW_ALWAYS),
        ("Always allow", OptionEffect.ALLOW_ALWAYS),
        ("Cancel", OptionEffect.DENY),
    ]


@pytest.mark.parametrize(
    ("option", "result"),
    [
        ("1", {"action": "accept", "content": {}, "_meta": None}),
        ("2", {"action": "accept", "content": {}, "_meta": {"persist": "session"}}),
        ("3", {"action": "accept", "content": {}, "_meta": {"persist": "always"}}),
        ("4", {"action": "cancel", "content": None, "_meta": None}),
    ],
)
def test_only_the_option_that_says_so_remembers_a_tool(option: str, result: object) -> None:
    assert asking(TOOL).result_for("codex-0", Choice(option=option)) == (0, result)


@pytest.mark.parametrize(
    ("persist", "labels"),
    [
        (["session"], ["Allow", "Allow for this session", "Cancel"]),
        ("always", ["Allow", "Always allow", "Cancel"]),
        (None, ["Allow", "Cancel"]),
        (["forever", 7], ["Allow", "Cancel"]),
    ],
)
def test_a_tool_is_remembered_only_as_codex_offers_it(persist: object, labels: list[str]) -> None:
    params = {**TOOL["params"], "_meta": {**TOOL["params"]["_meta"], "persist": persist}}

    question = read_question({**TOOL, "params": params}, {})

    assert question is not None
    assert [option.label for option in question.options] == labels


def test_the_arguments_of_a_tool_are_shown_even_if_codex_does_not_prepare_them() -> None:
    meta = {"codex_approval_kind": "mcp_tool_call", "tool_params": {"text": "a\nb", "count": 2, "all": [True]}}

    question = read_question({**TOOL, "params": {**TOOL["params"], "_meta": meta}}, {})

    assert question is not None
    assert question.detail == "text: a\nb\ncount: 2\nall: [true]"


@pytest.mark.parametrize(("option", "action"), [("1", "accept"), ("2", "decline"), ("3", "cancel")])
def test_a_yes_or_no_that_an_mcp_server_asks_for_is_answered(option: str, action: str) -> None:
    found = asking(YES_OR_NO).result_for("codex-1", Choice(option=option))

    assert found is not None
    assert (found[0], cast("dict[str, Any]", found[1])["action"]) == (1, action)


@pytest.mark.parametrize(
    ("request_", "word"),
    [(FORM, "form"), ({**YES_OR_NO, "params": {**YES_OR_NO["params"], "mode": "url", "url": "https://x.y"}}, "page")],
)
def test_what_needs_more_than_a_yes_is_left_to_the_terminal(request_: dict[str, Any], word: str) -> None:
    question = read_question(request_, {})

    assert question is not None
    assert question.options == ()
    assert word in question.hint
    assert "the MCP server notes" in question.detail
    assert asking(request_).result_for(question.id, Choice(option="1")) is None
