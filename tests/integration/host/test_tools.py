"""A CLI with an MCP server, at a real host: when its first message is typed, and how it gets its instructions."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.chaos.house import LINE_RULES, House, RunningHost, open_house, status_of, steps_of
from tests.integration.waiting import until

pytestmark = pytest.mark.integration

GIVEN = (str(Path(__file__).parent / "given_tools.py"),)
REPORT = {"client": "claude-code 2.1.325", "protocol": "2026-07-28"}


@pytest.fixture
def house() -> Generator[House]:
    with open_house() as opened:
        yield opened


def start(house: House, *more: str, instructions: bool = False) -> RunningHost:
    """Start a CLI whose server reports once `report` is called."""
    house.add_profile("coder", LINE_RULES, "with_server", "--tools", str(house.folder / "tools"), *more)
    return house.start("coder", name="ada", launcher=GIVEN, instructions=instructions)


def report(house: House) -> str:
    """Let the server of the CLI report that its tools were listed; return how that was answered."""
    file = house.folder / "tools"
    file.with_suffix(".part").write_text(json.dumps(REPORT), encoding="utf-8")
    file.with_suffix(".part").rename(file)
    answer = house.folder / "tools.answer"
    until(answer.exists, "the answer to the report")
    return answer.read_text(encoding="utf-8")


def tools(host: RunningHost) -> dict[str, Any]:
    found: dict[str, Any] = host.get("/status").body["tools"]
    return found


def wait_for_hold(host: RunningHost) -> dict[str, Any]:
    def held() -> dict[str, Any] | None:
        now = host.get("/status").body["held"]
        return now if now and now["reason"] == "tools" else None

    return until(held, "a hold for the tools", lambda: host.get("/status").body)


def typed(house: House) -> list[str]:
    return [one.text for one in house.received("coder") if one.kind == "line"]


def instructions_of(host: RunningHost) -> dict[str, Any]:
    (task,) = [
        one for one in host.get("/tasks").body["tasks"] if one["metadata"]["sender"]["sender_id"] == "synapse-system"
    ]
    found: dict[str, Any] = task
    return found


def test_the_first_message_is_held_until_the_tools_are_listed(house: House) -> None:
    host = start(house)
    task_id = host.accepted("hello")
    held = wait_for_hold(host)
    listed, status = house.synapse("list").out, house.synapse("status", "ada").out
    queued = house.synapse("status", task_id).out + house.synapse("queue").err
    before = typed(house)

    answer = report(house)
    host.finished(task_id)

    assert before == []
    assert (held["messages"], held["task_id"], held["overdue"]) == (1, task_id, False)
    for shown, times in ((listed, 1), (status, 2), (queued, 2)):
        assert shown.count("has not asked for the tools of the MCP server") >= times
    assert answer == "200 {}"
    assert len(typed(house)) == 1
    assert tools(host).items() >= {"way": "mcp", "mcp": "listed", **REPORT}.items()


def test_a_server_that_never_reports_holds_nothing_for_ever(house: House) -> None:
    house.environment["SYNAPSE_TEST_HOLD_SECONDS"] = "1.5"
    host = start(house)
    task_id = host.accepted("hello")

    host.finished(task_id)

    assert (tools(host)["way"], tools(host)["mcp"]) == ("none", "missing")
    assert "ready for 1.5 s" in tools(host)["why"]


def test_a_server_that_has_ended_is_noticed(house: House) -> None:
    host = start(house)
    host.accepted("hello")
    report(house)
    listed = tools(host)

    (house.folder / "tools").unlink()
    until(lambda: tools(host)["mcp"] != "listed", "the end of the server to be noticed")

    assert listed["mcp"] == "listed"
    assert (tools(host)["way"], tools(host)["mcp"]) == ("none", "missing")
    assert "the MCP server `synapse` of its CLI has ended (pid " in tools(host)["why"]
    assert "has ended" in house.synapse("status", "ada").out


def test_instructions_that_the_cli_passes_on_are_not_typed(house: House) -> None:
    house.environment["SYNAPSE_TEST_PASSES_INSTRUCTIONS"] = "1"
    host = start(house, instructions=True)
    task_id = host.accepted("hello")
    assert status_of(instructions_of(host)) == "submitted"

    report(house)
    host.finished(task_id)

    told = instructions_of(host)
    assert status_of(told) == "completed"
    assert steps_of(told) == ["queued", "submitted", "answered"]
    assert told["message"]["parts"][0]["text"].startswith("[Synapse A2A Protocol Instructions]")
    (note,) = told["artifacts"]
    assert note["parts"][0]["text"] == "delivered as MCP server instructions to claude-code 2.1.325"
    (line,) = typed(house)
    assert line.endswith("] hello")


def test_a_cli_that_has_only_the_tools_is_typed_the_short_instructions_first(house: House) -> None:
    host = start(house, instructions=True)
    task_id = host.accepted("hello")

    report(house)
    host.finished(task_id)

    first, second = typed(house)
    assert "the MCP server `synapse`" in first
    assert "synapse send" not in first
    assert second.endswith("] hello")
    assert steps_of(instructions_of(host))[:3] == ["queued", "typed", "submitted"]


def test_a_dialog_at_the_start_is_waited_for_as_without_tools(house: House) -> None:
    host = start(house, "--trust")
    task_id = host.accepted("hello")

    report(house)
    host.finished(task_id)

    assert [one.kind for one in house.received("coder")] == ["line"]


def test_a_message_of_priority_5_is_typed_at_once(house: House) -> None:
    host = start(house)
    ordinary = host.accepted("hello")
    wait_for_hold(host)

    host.finished(host.accepted("stop", priority=5))
    host.finished(ordinary)

    assert typed(house)[0].endswith("] stop")
    assert tools(host)["mcp"] == "expected"


def test_a_cli_that_ends_while_its_tools_are_awaited_leaves_its_messages_queued(house: House) -> None:
    host = start(house)
    task_id = host.accepted("hello")
    wait_for_hold(host)

    host.kill_program()
    host.wait_until_gone()

    assert typed(house) == []
    assert task_id[:8] in house.synapse("queue", "ada").out


def test_nobody_else_may_report_tools(house: House) -> None:
    host = start(house)

    answer = host.post("/mcp/ready", REPORT)

    assert (answer.status, answer.body["error"]["code"]) == (403, "access_denied")
    assert tools(host)["mcp"] == "expected"
    assert host.post("/mcp/ready", {"client": 1}).status == 400


def test_a_cli_without_a_server_waits_for_nothing(house: House) -> None:
    house.add_profile("coder", LINE_RULES, "line_recorder")
    host = house.start("coder", name="ada")

    host.finished(host.accepted("hello"))

    assert tools(host)["mcp"] == "off"
