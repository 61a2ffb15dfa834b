"""Whether the model of an agent's CLI has the tools of Synapse, and what that changes for its first messages.

    off         the launch gave the CLI no MCP server
    expected    it did, and the server has not reported yet that the CLI asked for its tools
    listed      the server has reported it (`POST /mcp/ready`)
    missing     the CLI has been ready for HOLD_SECONDS without that, or every server that reported has ended; a later
                report is still taken

CLIs load their servers in the background, shortly after their prompt appears, and a turn that begins earlier has no
tools. So nothing is typed while the server is expected, except a message of priority 5. The initial instructions are
delivered last: only then is it known whether the model has read them as the instructions of the server.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace
from datetime import datetime
from typing import Final

from synapse.core.address import SYSTEM
from synapse.core.agent import EXITED, READY
from synapse.core.driver import (
    AgentStatus,
    AgentView,
    Answered,
    ArtifactProduced,
    Driver,
    HoldReason,
    StatusListener,
    Submitted,
    Turn,
    TurnEvent,
)
from synapse.core.message import Artifact, MessageId, TextPart
from synapse.core.question import Choice
from synapse.core.requests import McpState, ReportTools, ToolsStatus, ToolsWay
from synapse.core.task import SHORT_ID_LENGTH
from synapse.core.text import one_line, wrap_own
from synapse.core.types import Clock
from synapse.registry.files import is_running, start_time

log = logging.getLogger(__name__)

HOLD_SECONDS: Final = 5.0
"""How long the first message waits for the tools after the CLI is ready. Those that were tried took 0.2 to 0.6 s."""
_SOURCE: Final = "mcp"
_LONGEST_NAME: Final = 80
_EXPECTED: Final = "its CLI has not asked for the tools of the MCP server `synapse` yet"
_ENDED: Final = "the MCP server `synapse` has ended, and its CLI has not started it again"


class AgentTools:
    """The MCP server that the launch of one CLI gave it, as far as the host knows of it.

    `is_given` says whether the launch gave the CLI the server, and `why_not` why it did not. `passes_instructions` says
    whether the CLI tells its model the instructions of servers (`[mcp] instructions`), and `has_shell` whether its
    model can run commands. Lives in the event loop.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        is_given: bool,
        passes_instructions: bool = False,
        has_shell: bool = True,
        why_not: str = "its launch gives it no MCP server",
        hold_seconds: float = HOLD_SECONDS,
    ) -> None:
        self._clock = clock
        self._state = McpState.EXPECTED if is_given else McpState.OFF
        self._since: datetime = clock.now()
        self._passes_instructions = passes_instructions
        self._has_shell = has_shell
        self._why_not = "" if is_given else why_not
        self._hold_seconds = hold_seconds
        self._deadline: asyncio.TimerHandle | None = None
        self._is_hold_over = asyncio.Event()
        self._client = self._protocol = ""
        self._servers: set[tuple[int, int]] = set()
        """The processes of the servers that reported, with their start times; without those that cannot be seen."""
        self._why_missing = ""
        self._instructions = MessageId("")
        self._short_form = ""

    @property
    def is_expected(self) -> bool:
        """Whether the launch gave the CLI the server, and it has not reported yet."""
        return self._state is McpState.EXPECTED

    @property
    def holds(self) -> bool:
        """Whether the first message waits for the tools."""
        return self.is_expected and not self._is_hold_over.is_set()

    def report(self, request: ReportTools, pid: int = 0) -> None:
        """Notes that the CLI has asked the server for its tools. A CLI restarts its servers, so it may do so again.

        `pid` is the process of the server, or 0 where that is hidden.
        """
        if pid and (started := start_time(pid)) is not None:
            self._servers.add((pid, started))
        is_first = self._state is not McpState.LISTED
        self._change(McpState.LISTED)
        self._client = one_line(request.client)[:_LONGEST_NAME]
        self._protocol = one_line(request.protocol)[:_LONGEST_NAME]
        self.end_hold()
        if is_first:
            log.info("tools_listed", extra={"client": self._client, "protocol": self._protocol})

    def status(self) -> ToolsStatus:
        """Returns which way the model has to other agents, and why it has no better one."""
        self._look_for_servers()
        way = ToolsWay.SHELL if self._has_shell else ToolsWay.NONE
        return ToolsStatus(
            way=ToolsWay.MCP if self._state is McpState.LISTED else way,
            mcp=self._state,
            client=self._client,
            protocol=self._protocol,
            since=self._since,
            why=self._why(),
        )

    def cli_is_ready(self) -> None:
        """Starts the time that the tools may take. Only the first call counts."""
        if self._deadline is None and self.is_expected:
            self._deadline = asyncio.get_running_loop().call_later(self._hold_seconds, self._give_up)

    def end_hold(self) -> None:
        """Lets the first message be typed."""
        self._is_hold_over.set()

    async def wait(self) -> None:
        """Waits until nothing is held for the tools any more."""
        if self.is_expected:
            await self._is_hold_over.wait()

    def instruct(self, message_id: MessageId, short_form: str) -> None:
        """Sets which message has the initial instructions, and what is typed in its place if the tools are listed."""
        self._instructions, self._short_form = message_id, short_form

    def deliver(self, turn: Turn, driver: Driver) -> AsyncGenerator[TurnEvent, None]:
        """Delivers a message as `driver` does, except the initial instructions if the CLI has the tools."""
        if self._state is not McpState.LISTED or turn.message.message_id != self._instructions:
            return driver.take_turn(turn)
        return self._passed_on(turn) if self._passes_instructions else self._shortened(turn, driver)

    async def _passed_on(self, turn: Turn) -> AsyncGenerator[TurnEvent, None]:
        how = f"delivered as MCP server instructions to {self._client or 'the CLI'}"
        yield Submitted(_SOURCE, how)
        yield _note(turn, how)
        yield Answered(parts=(), source=_SOURCE)

    async def _shortened(self, turn: Turn, driver: Driver) -> AsyncGenerator[TurnEvent, None]:
        how = f"a short form was typed, because {self._client or 'the CLI'} has the tools of the MCP server `synapse`"
        text = wrap_own(self._short_form, short_id=turn.task_id[:SHORT_ID_LENGTH], sender=SYSTEM)
        async with aclosing(driver.take_turn(replace(turn, text=text))) as events:
            async for event in events:
                yield event
                if isinstance(event, Submitted):
                    yield _note(turn, how)

    def _change(self, state: McpState) -> None:
        self._state, self._since = state, self._clock.now()

    def _give_up(self) -> None:
        if self.is_expected:
            self._miss(f"{_EXPECTED}, although it has been ready for {self._hold_seconds:g} s")
            self.end_hold()

    def _look_for_servers(self) -> None:
        """Notices that a server has ended. Most CLIs do not start it again, and say so only to their model."""
        if self._state is McpState.LISTED and self._servers:
            self._servers = {server for server in self._servers if is_running(*server)}
            if not self._servers:
                self._miss(_ENDED)

    def _miss(self, why: str) -> None:
        self._change(McpState.MISSING)
        self._why_missing = why
        log.warning("tools_missing", extra={"why": why})

    def _why(self) -> str:
        if self._state is McpState.EXPECTED:
            return _EXPECTED
        if self._state is McpState.MISSING:
            return self._why_missing
        return self._why_not if self._state is McpState.OFF else ""


class ToolsDriver:
    """Implements core.driver.Driver for a CLI that was given the MCP server: `driver`, with the hold of its tools."""

    def __init__(self, driver: Driver, tools: AgentTools) -> None:
        self._driver = driver
        self._tools = tools
        driver.watch(self._on_status)
        self._on_status(driver.view().status)

    def view(self) -> AgentView:
        """Returns the driver's view; a gate that only the tools keep closed is part of it."""
        view = self._driver.view()
        if view.state != READY or view.gate or not self._tools.holds:
            return view
        return replace(view, gate=_EXPECTED, gate_reason=HoldReason.TOOLS)

    def watch(self, listener: StatusListener) -> Callable[[], None]:
        """See core.driver.Driver."""
        return self._driver.watch(listener)

    async def wait_ready(self) -> None:
        """Returns when the agent can take a message, and nothing is held for its tools.

        Raises AgentExited.
        """
        await self._driver.wait_ready()
        if self._tools.holds:
            self._tools.cli_is_ready()
            await self._tools.wait()
            # A person may have typed meanwhile, or a dialog may have come up.
            await self._driver.wait_ready()

    def take_turn(self, turn: Turn) -> AsyncGenerator[TurnEvent, None]:
        """Raises AgentExited; see core.driver.Driver."""
        return self._tools.deliver(turn, self._driver)

    async def interrupt(self) -> bool:
        """Interrupts the agent, and ends the hold: the message that interrupts it is too urgent to wait for tools."""
        is_interrupted = await self._driver.interrupt()
        # Last: the worker queues that message when this returns, ahead of those that are held.
        self._tools.end_hold()
        return is_interrupted

    def drop(self) -> bool:
        """See core.driver.Driver."""
        return self._driver.drop()

    async def answer(self, question_id: str, choice: Choice) -> str:
        """Raises QuestionGone or InvalidChoice; see core.driver.Driver."""
        return await self._driver.answer(question_id, choice)

    def confirm(self) -> None:
        """See core.driver.Driver."""
        self._driver.confirm()

    def _on_status(self, status: AgentStatus) -> None:
        if status.state == READY:
            self._tools.cli_is_ready()
        elif status.state == EXITED:
            self._tools.end_hold()


def _note(turn: Turn, how: str) -> ArtifactProduced:
    """Returns the artifact by which the task of the instructions says how they were delivered."""
    artifact = Artifact(
        artifact_id=f"{turn.task_id[:SHORT_ID_LENGTH]}-delivery",
        name="delivery",
        parts=(TextPart(text=how),),
        metadata={"source": _SOURCE},
    )
    return ArtifactProduced(artifact=artifact)
