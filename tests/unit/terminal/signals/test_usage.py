"""What requests cost, read from what the five CLIs wrote for three answers of the scripted model.

The scripted model tells other counts with each answer; see `calibration.vendor_apis.scripted_usage`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from synapse.calibration.vendor_apis import scripted_usage
from synapse.core.usage import NO_TOKENS, SESSION_COST, TokenCounts, UsageReport
from synapse.terminal.signals.usage import (
    ClaudeUsage,
    CodexRolloutUsage,
    CodexServerUsage,
    CopilotUsage,
    GeminiUsage,
    OpenCodeUsage,
    UsageReader,
)
from tests.unit.terminal.signals.recordings import recorded

RECORDINGS: tuple[tuple[Callable[[], UsageReader], str, str], ...] = (
    (ClaudeUsage, "claude", "usage.jsonl"),
    (CodexRolloutUsage, "codex", "usage_rollout.jsonl"),
    (CodexServerUsage, "codex", "usage_server.jsonl"),
    (GeminiUsage, "gemini", "usage.jsonl"),
    (CopilotUsage, "copilot", "usage.jsonl"),
)


def reports_of(reader: UsageReader, records: Sequence[dict[str, Any]]) -> list[UsageReport]:
    reports = [report for record in records if (report := reader.read(record)) is not None]
    return [report for report in reports if report.request != SESSION_COST]


def once(reports: Sequence[UsageReport]) -> list[UsageReport]:
    """The last report of each request."""
    return list({(report.session, report.request): report for report in reports}.values())


@pytest.mark.parametrize(("reader", "cli", "name"), RECORDINGS)
def test_three_answers_are_three_requests_with_the_counts_that_the_model_sent(
    reader: Callable[[], UsageReader], cli: str, name: str
) -> None:
    found = once(reports_of(reader(), recorded(cli, name)))

    left_out = {"reasoning": 0} if cli == "claude" else {"cache_write": 0}
    assert [report.tokens for report in found] == [replace(scripted_usage(number), **left_out) for number in (1, 2, 3)]
    assert all(report.model and report.at is not None for report in found)
    assert len({report.session for report in found}) == 1


@pytest.mark.parametrize(("reader", "cli", "name"), RECORDINGS)
def test_the_second_turn_has_two_requests(reader: Callable[[], UsageReader], cli: str, name: str) -> None:
    first, second, third = once(reports_of(reader(), recorded(cli, name)))

    assert first.turn
    assert second.turn
    assert first.turn != second.turn == third.turn


@pytest.mark.parametrize(("reader", "cli", "name"), RECORDINGS)
def test_reading_everything_again_tells_of_the_same_requests(
    reader: Callable[[], UsageReader], cli: str, name: str
) -> None:
    records = recorded(cli, name)
    one_reader = reader()

    again = reports_of(one_reader, [*records, *records])

    assert once(again) == once(reports_of(reader(), records))


def test_the_rollout_and_the_server_of_codex_name_a_request_alike() -> None:
    by_rollout = reports_of(CodexRolloutUsage(), recorded("codex", "usage_rollout.jsonl"))
    by_server = reports_of(CodexServerUsage(), recorded("codex", "usage_server.jsonl"))

    assert [(one.session, one.request, one.turn) for one in by_rollout] == [
        (one.session, one.request, one.turn) for one in by_server
    ]


def test_a_message_of_claude_in_two_lines_is_one_request() -> None:
    records = recorded("claude", "usage.jsonl")
    line = next(record for record in records if record["type"] == "assistant")
    twice = [line, {**line, "uuid": "another"}]

    assert len({report.request for report in reports_of(ClaudeUsage(), twice)}) == 1


def test_claude_tells_the_cost_of_its_session_without_tokens() -> None:
    reader = ClaudeUsage()
    told = [report for record in recorded("claude", "usage.jsonl") if (report := reader.read(record))][-1]

    assert (told.request, told.tokens, told.cost) == (SESSION_COST, NO_TOKENS, Decimal("0.007675199999999999"))


def test_claude_does_not_tell_the_cost_of_a_model_without_a_price() -> None:
    state = {"type": "cost-state", "sessionId": "s", "totalCostUSD": 0.5, "hasUnknownModelCost": True}

    assert ClaudeUsage().read(state) is None


def test_opencode_tells_tokens_of_each_message_and_no_cost_of_0() -> None:
    found = once(reports_of(OpenCodeUsage(), recorded("opencode", "events.jsonl")))

    assert len(found) > 3
    assert all(report.tokens == TokenCounts(input=10, output=5) for report in found)
    assert all(report.turn.startswith("msg_") and report.cost is None for report in found)
    assert {report.model for report in found} == {"fake/fake-model"}


def opencode_message(session: str, message: str, parent: str, **more: object) -> dict[str, Any]:
    tokens = {"input": 100, "output": 20, "reasoning": 7, "cache": {"read": 1000, "write": 300}}
    info = {"id": message, "role": "assistant", "parentID": parent, "tokens": tokens, "modelID": "m", **more}
    return {"type": "message.updated", "properties": {"sessionID": session, "info": info}}


def test_opencode_tells_money_and_counts_thoughts_as_output() -> None:
    report = OpenCodeUsage().read(opencode_message("ses_1", "msg_2", "msg_1", cost=0.0125))

    assert report is not None
    assert report.cost == Decimal("0.0125")
    assert report.tokens == TokenCounts(input=100, output=27, cache_read=1000, cache_write=300, reasoning=7)


def test_a_sub_agent_of_opencode_belongs_to_the_turn_that_called_it() -> None:
    asked = {"id": "msg_1", "role": "user"}
    begun = {"id": "ses_2", "parentID": "ses_1"}
    reader = OpenCodeUsage()
    reader.read({"type": "message.updated", "properties": {"sessionID": "ses_1", "info": asked}})
    reader.read({"type": "session.created", "properties": {"sessionID": "ses_2", "info": begun}})

    report = reader.read(opencode_message("ses_2", "msg_4", "msg_3"))

    assert report is not None
    assert report.turn == "msg_1"


def test_a_sub_agent_of_copilot_belongs_to_the_turn_that_called_it() -> None:
    found = reports_of(CopilotUsage(), recorded("copilot", "sub_agent.jsonl"))

    assert len(once(found)) == 3
    assert len({report.turn for report in found}) == 1


@pytest.mark.parametrize("value", [-1, True, "12", 1.5, None, 1 << 60, [1]])
def test_numbers_that_cannot_be_counts_are_none(value: object) -> None:
    message = {"id": "msg", "usage": {"input_tokens": value, "output_tokens": 3}}
    report = ClaudeUsage().read({"type": "assistant", "sessionId": "s", "message": message})

    assert report is not None
    assert report.tokens == TokenCounts(output=3)


def test_a_message_without_tokens_or_session_tells_nothing() -> None:
    nothing = {"type": "assistant", "sessionId": "s", "message": {"id": "msg", "usage": {"input_tokens": 0}}}
    nowhere = {"type": "assistant", "message": {"id": "msg", "usage": {"input_tokens": 5}}}

    assert ClaudeUsage().read(nothing) is None
    assert ClaudeUsage().read(nowhere) is None
