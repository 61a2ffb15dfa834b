"""Only the agent's own CLI reports to its host."""

from __future__ import annotations

import asyncio

import pytest

from synapse.core.agent import AgentEntry
from synapse.core.caller import Caller
from synapse.core.errors import AccessDenied, UnsupportedOperation
from synapse.core.message import Json
from synapse.core.requests import ReportSignal
from synapse.tasks.service import HookEndpoint, HookReports

ME = AgentEntry("synapse-claude-8100", "claude")
OWN_CLI = Caller(agent_id=ME.agent_id, via_socket=True)


async def report(caller: Caller, secret: str = "") -> list[Json]:
    taken: list[Json] = []
    reports = HookReports(ME, HookEndpoint(secret="right", receive=taken.append))
    await reports.take(ReportSignal(payload={"hook": "Stop"}, secret=secret), caller)
    return taken


@pytest.mark.parametrize(("caller", "secret"), [(OWN_CLI, ""), (Caller(), "right")])
async def test_a_report_of_the_own_cli_is_passed_on(caller: Caller, secret: str) -> None:
    assert await report(caller, secret) == [{"hook": "Stop"}]


@pytest.mark.parametrize(
    ("caller", "secret"),
    [(Caller(), ""), (Caller(), "wrong"), (Caller(agent_id="synapse-codex-8120", via_socket=True), "wröng")],
)
async def test_a_report_of_another_process_is_refused(caller: Caller, secret: str) -> None:
    with pytest.raises(AccessDenied):
        await report(caller, secret)


async def test_an_agent_without_hooks_takes_no_report() -> None:
    with pytest.raises(UnsupportedOperation):
        await HookReports(ME, None).take(ReportSignal(payload={}), OWN_CLI)


async def test_a_hook_that_waits_gets_its_answer_when_there_is_one() -> None:
    answer: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
    reports = HookReports(ME, HookEndpoint(secret="right", receive=lambda _payload: answer))
    waiting = await reports.take(ReportSignal(payload={"hook": "PermissionRequest"}), OWN_CLI)
    answer.set_result({"decision": "allow"})
    result = await waiting.settled()

    assert result == {"decision": "allow"}
