"""An agent elsewhere, run like any other: a message is sent to it, and what it answers is the turn's answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Final

from synapse.core.agent import READY, WORKING
from synapse.core.clock import Clock
from synapse.core.driver import AgentView, Answered, Asked, Failed, Submitted, Turn, TurnEvent, TurnStarted
from synapse.core.errors import SynapseError
from synapse.core.message import TextPart
from synapse.core.question import Choice
from synapse.core.question_errors import QuestionGone
from synapse.core.status import ExternalAgent, ExternalAnswer
from synapse.core.task import TaskState
from synapse.runtime.running_agent import RunningAgent
from synapse.service.externals import ExternalClient

SOURCE: Final = "a2a"
ANSWER_SECONDS: Final = 600.0
AGENT_TYPE: Final = "a2a"


class ExternalDriver:
    """Implements `core.driver.Driver` with one call for each turn."""

    def __init__(self, agent: ExternalAgent, client: ExternalClient, clock: Clock) -> None:
        self._agent = agent
        self._client = client
        self._clock = clock
        self._calling: asyncio.Future[ExternalAnswer] | None = None
        self._since = clock.now()

    def view(self) -> AgentView:
        state, why = (WORKING, "it was sent a message") if self._calling else (READY, "it can be sent a message")
        return AgentView(state=state, why=why, source=SOURCE, since=self._since)

    async def wait_ready(self) -> None:
        """It is asked when there is something to ask: only then it shows whether it is there."""

    async def take_turn(self, turn: Turn) -> AsyncGenerator[TurnEvent, None]:
        yield Submitted(SOURCE, f"sent to {self._agent.url}")
        yield TurnStarted(SOURCE, "it was taken")
        self._calling = asyncio.ensure_future(self._client.send(self._agent, turn.message, ANSWER_SECONDS))
        self._since = self._clock.now()
        try:
            await asyncio.wait({self._calling})
            yield _outcome(self._calling)
        finally:
            self._calling.cancel()
            self._calling = None
            self._since = self._clock.now()

    async def interrupt(self) -> bool:
        return self._calling is not None and self._calling.cancel()

    def drop(self) -> bool:
        return False

    async def answer(self, question_id: str, choice: Choice) -> str:  # noqa: ARG002 - it has no questions of this kind
        raise QuestionGone

    def confirm(self) -> None:
        """What was sent was taken; there is never a doubt."""


def external_agent(agent: ExternalAgent, client: ExternalClient, clock: Clock) -> RunningAgent:
    """The agent, as those around its driver see it."""
    driver = ExternalDriver(agent, client, clock)

    async def stop() -> None:
        await driver.interrupt()

    return RunningAgent(
        driver=driver, stop=stop, exit_status=lambda: None, title=agent.name or agent.alias, pty_wrapped=False
    )


def _outcome(call: asyncio.Future[ExternalAnswer]) -> TurnEvent:
    if call.cancelled():
        return Failed("interrupted", "the call was interrupted")
    error = call.exception()
    if isinstance(error, SynapseError):
        return Failed(error.code, str(error))
    answer = call.result()
    parts = (TextPart(text=answer.text),)
    match answer.state:
        case TaskState.COMPLETED:
            return Answered(parts=parts, source=SOURCE)
        case TaskState.INPUT_REQUIRED | TaskState.AUTH_REQUIRED:
            return Asked(parts, authorization=answer.state == TaskState.AUTH_REQUIRED)
        case _:
            return Failed("external_agent_failed", answer.text or f"it ended as {answer.state}")
