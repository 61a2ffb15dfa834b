"""The tools of a CLI: what its MCP server reports, and what that changes for the first messages."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime
from subprocess import Popen

import pytest

from synapse.core import agent
from synapse.core.caller import Caller
from synapse.core.driver import AgentStatus, HoldReason, Turn, TurnEvent
from synapse.core.errors import AccessDenied, AgentExited, UnsupportedOperation
from synapse.core.message import MessageId
from synapse.core.requests import GetStatus, McpState, ReportTools, ToolsWay
from synapse.core.task import Task, TaskState
from synapse.core.waiting import pause
from synapse.host.tools import AgentTools
from tests.fakes.clock import FakeClock
from tests.fakes.driver import FakeDriver, echo
from tests.fakes.harness import ME, AgentHarness, working
from tests.fakes.stores import settle

LONG, SHORT = 60.0, 0.05
OWN = Caller(agent_id=ME.agent_id, via_socket=True)
READY = ReportTools(client="claude-code 2.1.325", protocol="2026-07-28")
INSTRUCTIONS = MessageId("i-1")


def given(hold_seconds: float = LONG, *, passes_instructions: bool = False) -> AgentTools:
    tools = AgentTools(FakeClock(), is_given=True, passes_instructions=passes_instructions, hold_seconds=hold_seconds)
    tools.instruct(INSTRUCTIONS, "use the tools")
    return tools


class TypedTexts(FakeDriver):
    """Remembers the lines that it was to type."""

    def __init__(self) -> None:
        super().__init__(self._typed)
        self.lines: list[str] = []

    def _typed(self, turn: Turn) -> list[TurnEvent]:
        self.lines.append(turn.text)
        return echo(turn)


def harness(tools: AgentTools) -> AgentHarness:
    return AgentHarness(TypedTexts(), tools=tools)


def lines(harness: AgentHarness) -> list[str]:
    assert isinstance(harness.driver, TypedTexts)
    return harness.driver.lines


def delivery(task: Task) -> list[str]:
    return [artifact.text for artifact in task.artifacts if artifact.name == "delivery"]


def steps(task: Task) -> list[str]:
    return [receipt.step.value for receipt in task.receipts]


async def test_the_first_message_waits_for_the_tools_and_says_so() -> None:
    async with working(harness(given())) as host:
        sent = await host.send("hello")
        await settle()
        waiting = await host.service.status(GetStatus(), Caller())
        nothing_typed = lines(host) == []

        await host.service.report_tools(READY, OWN)
        done = await host.finished(sent)
        after = await host.service.status(GetStatus(), Caller())

    assert nothing_typed
    assert waiting.held is not None
    assert (waiting.held.reason, waiting.held.messages, waiting.held.task_id) == (HoldReason.TOOLS, 1, sent.id)
    assert waiting.held.why == waiting.view.gate == waiting.tools.why
    assert (waiting.tools.way, waiting.tools.mcp) == (ToolsWay.SHELL, McpState.EXPECTED)
    assert done.state is TaskState.COMPLETED
    assert (after.held, after.view.gate) == (None, "")
    assert (after.tools.way, after.tools.mcp, after.tools.why) == (ToolsWay.MCP, McpState.LISTED, "")
    assert (after.tools.client, after.tools.protocol) == ("claude-code 2.1.325", "2026-07-28")


async def test_tools_that_never_come_do_not_hold_a_message_for_long() -> None:
    async with working(harness(given(SHORT))) as host:
        await host.finished(await host.send("hello"))
        status = await host.service.status(GetStatus(), Caller())

    assert (status.tools.way, status.tools.mcp) == (ToolsWay.SHELL, McpState.MISSING)
    assert "ready for 0.05 s" in status.tools.why


async def test_the_time_for_the_tools_begins_when_the_cli_is_ready() -> None:
    driver = FakeDriver()
    driver.ready.clear()
    async with working(AgentHarness(driver, tools=given(SHORT))) as host:
        sent = await host.send("hello")
        await pause(3 * SHORT)
        early = await host.service.status(GetStatus(), Caller())
        host.driver.ready.set()
        await host.finished(sent)

    assert early.tools.mcp is McpState.EXPECTED
    assert early.held is not None
    assert early.held.reason is HoldReason.WORKING


async def test_tools_count_as_missing_even_if_no_message_waits_for_them() -> None:
    tools = given(SHORT)
    driver = FakeDriver()
    driver.ready.clear()
    host = AgentHarness(driver, tools=tools)
    changed = AgentStatus(state=agent.READY, why="", source="", since=datetime(2026, 1, 1, tzinfo=UTC))
    host.driver.listeners.tell(lambda: changed)

    async with asyncio.timeout(5):
        await tools.wait()

    assert (await host.service.status(GetStatus(), Caller())).tools.mcp is McpState.MISSING


async def test_tools_that_come_late_are_still_known() -> None:
    async with working(harness(given(SHORT))) as host:
        await host.finished(await host.send("hello"))
        await host.service.report_tools(READY, OWN)
        status = await host.service.status(GetStatus(), Caller())

    assert (status.tools.way, status.tools.mcp) == (ToolsWay.MCP, McpState.LISTED)


async def test_a_server_that_the_cli_restarts_reports_again() -> None:
    tools = AgentTools(FakeClock(), is_given=False, has_shell=False)
    off = tools.status()
    tools.report(READY)
    tools.report(ReportTools(client="two\n\x1b[31mlines" + "x" * 200, protocol="2025-06-18"))

    assert (off.way, off.mcp, off.why) == (ToolsWay.NONE, McpState.OFF, "its launch gives it no MCP server")
    assert tools.status().protocol == "2025-06-18"
    assert tools.status().client.startswith("two [31mlines")
    assert len(tools.status().client) == 80


@pytest.mark.parametrize(
    "caller",
    [Caller(), Caller(via_socket=True), Caller(agent_id="synapse-claude-8100", via_socket=True)],
    ids=["a port", "a person", "another agent"],
)
async def test_only_the_agent_itself_may_report(caller: Caller) -> None:
    host = harness(given())

    with pytest.raises(AccessDenied):
        await host.service.report_tools(READY, caller)

    assert (await host.service.status(GetStatus(), Caller())).tools.mcp is McpState.EXPECTED


async def test_an_agent_without_a_cli_has_no_tools() -> None:
    host = AgentHarness()

    with pytest.raises(UnsupportedOperation):
        await host.service.report_tools(READY, OWN)

    tools = (await host.service.status(GetStatus(), Caller())).tools
    assert (tools.way, tools.mcp) == (ToolsWay.NONE, McpState.OFF)


async def test_a_message_of_priority_5_does_not_wait_for_tools() -> None:
    async with working(harness(given())) as host:
        ordinary = await host.send("hello")
        await settle()
        urgent = await host.send("stop", priority=5)
        await host.finished(urgent)
        await host.finished(ordinary)

    assert [line.partition("] ")[2] for line in lines(host)] == ["stop", "hello"]


async def test_a_cli_that_ends_while_its_tools_are_awaited_ends_the_hold() -> None:
    host = harness(given())
    changed = AgentStatus(state=agent.EXITED, why="", source="", since=datetime(2026, 1, 1, tzinfo=UTC))
    working = asyncio.ensure_future(host.worker.run())
    sent = await host.send("hello")
    await settle()
    host.driver.exited = True
    host.driver.listeners.tell(lambda: changed)

    with pytest.raises(AgentExited):
        async with asyncio.timeout(5):
            await working

    assert (await host.task(sent.id)).state is TaskState.SUBMITTED
    assert lines(host) == []


async def test_a_gate_of_the_program_is_shown_before_that_of_its_tools() -> None:
    async with working(harness(given())) as host:
        host.driver.gate = ("a person has a half-typed line", HoldReason.PERSON)
        await host.send("hello")
        status = await host.service.status(GetStatus(), Caller())

    assert status.held is not None
    assert (status.held.reason, status.held.why) == (HoldReason.PERSON, "a person has a half-typed line")


async def test_a_message_that_is_canceled_while_it_is_held_is_never_typed() -> None:
    async with working(harness(given())) as host:
        first, second = await host.send("hello"), await host.send("there")
        await settle()
        host.worker.withdraw(first.id)
        await host.service.report_tools(READY, OWN)
        await host.finished(second)

    assert [line.partition("] ")[2] for line in lines(host)] == ["there"]


async def test_instructions_that_the_cli_passed_on_are_not_typed() -> None:
    async with working(harness(given(passes_instructions=True))) as host:
        told = await host.intake.instruct("all of it", INSTRUCTIONS)
        other = await host.send("hello")
        await host.service.report_tools(READY, OWN)
        done, later = await host.finished(told), await host.finished(other)

    assert done.state is TaskState.COMPLETED
    assert delivery(done) == ["delivered as MCP server instructions to claude-code 2.1.325"]
    assert steps(done) == ["queued", "submitted", "answered"]
    assert done.receipts[1].evidence == delivery(done)[0]
    assert later.state is TaskState.COMPLETED
    assert [line.partition("] ")[2] for line in lines(host)] == ["hello"]


async def test_a_cli_that_only_has_the_tools_is_typed_the_short_form() -> None:
    async with working(harness(given())) as host:
        told = await host.intake.instruct("all of it", INSTRUCTIONS)
        await host.service.report_tools(READY, OWN)
        done = await host.finished(told)

    assert lines(host) == [f"[A2A:{told.short_id}:synapse-system] use the tools"]
    assert steps(done) == ["queued", "typed", "submitted", "answered"]
    assert "a short form was typed, because claude-code 2.1.325 has the tools" in delivery(done)[0]
    assert done.message.text == "all of it"


@pytest.mark.parametrize("passes_instructions", [False, True])
async def test_a_cli_without_its_tools_is_typed_everything(passes_instructions: bool) -> None:
    async with working(harness(given(SHORT, passes_instructions=passes_instructions))) as host:
        told = await host.intake.instruct("all of it", INSTRUCTIONS)
        done = await host.finished(told)

    assert lines(host) == [f"[A2A:{told.short_id}:synapse-system] all of it"]
    assert delivery(done) == []


async def test_only_the_instructions_are_left_untyped() -> None:
    tools = given(passes_instructions=True)
    tools.report(READY)
    async with working(harness(tools)) as host:
        await host.finished(await host.send("hello"))

    assert len(lines(host)) == 1


def test_a_server_that_has_ended_is_missing_until_one_reports_again() -> None:
    tools = given()
    with Popen(["sleep", "60"]) as first, Popen(["sleep", "60"]) as second:
        try:
            for server in (first, second):
                tools.report(READY, server.pid)
            first.kill()
            first.wait()
            with_one_left = tools.status()
            second.kill()
            wait_for_zombie(second.pid)
            without = tools.status()
            tools.report(READY, os.getpid())
        finally:
            first.kill()
            second.kill()

    assert (with_one_left.way, with_one_left.mcp, with_one_left.why) == (ToolsWay.MCP, McpState.LISTED, "")
    assert (without.way, without.mcp) == (ToolsWay.SHELL, McpState.MISSING)
    assert "has ended" in without.why
    assert tools.status().mcp is McpState.LISTED


def wait_for_zombie(pid: int) -> None:
    """Waits for the end of a child, and leaves it to its parent, as a CLI may."""
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def test_a_server_whose_process_is_hidden_counts_as_running() -> None:
    tools = given()

    tools.report(READY, 0)

    assert tools.status().mcp is McpState.LISTED
