"""One message to an agent elsewhere, and its task there: sent, followed to the end, looked at again after a break.

    sent → taken (its task is known) → followed → settled
             └ the connection breaks, or we were restarted: look, follow again; nothing is sent a second time

A message whose taking is uncertain is sent again only to agents that know a message by its id.

What an agent elsewhere has said and what of it was passed on already: from a report to a turn's events. Pure.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from synapse.core.driver import Answered, ArtifactProduced, Failed, InputRequested, Progress, Refused, TurnEvent
from synapse.core.errors import ExternalAgentFailed, ExternalAgentUnreachable
from synapse.core.message import Artifact, Message, Part, TextPart, text_of
from synapse.core.requests import ExternalAgent
from synapse.core.task import TaskState
from synapse.core.types import Clock
from synapse.external.client import Said, Unanswered
from synapse.external.decode import RemoteTaskState
from synapse.external.encode import RemoteTaskRef

REPEATS: Final = 3
_INTERRUPTED_STATES: Final = frozenset(state.value for state in TaskState if state.is_interrupted)


class RemoteClient(Protocol):
    """Speaks to the agent; `transports.a2a_client` says what is raised."""

    def tell(
        self, agent: ExternalAgent, message: Message, thread: RemoteTaskRef, seconds: float, /
    ) -> AsyncGenerator[Said, None]: ...

    def follow(self, agent: ExternalAgent, task_id: str, seconds: float, /) -> AsyncGenerator[Said, None]: ...

    async def look(self, agent: ExternalAgent, task_id: str, seconds: float, /) -> Said: ...

    async def cancel(self, agent: ExternalAgent, task_id: str, seconds: float, /) -> object: ...

    def has_streams(self, agent: ExternalAgent, /) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long what is waited for, in seconds."""

    stream: float = 300.0
    """One connection; then the task is looked at, and followed again."""
    answer: float = 20.0
    lost: float = 120.0
    """How long an agent may be out of reach before its task is given up."""
    first_pause: float = 0.2
    longest_pause: float = 5.0

    def pauses(self) -> Iterator[float]:
        """The pauses between looks, each longer than the one before."""
        pause = self.first_pause
        while True:
            yield pause
            pause = min(pause * 2, self.longest_pause)


class Conversation:
    """What one message brings; `report` says what is known so far."""

    def __init__(
        self,
        agent: ExternalAgent,
        client: RemoteClient,
        message: Message,
        thread: RemoteTaskRef,
        clock: Clock,
        patience: Patience,
    ) -> None:
        self.report = RemoteTaskState()
        self._agent = agent
        self._client = client
        self._message = message
        self._thread = thread
        self._clock = clock
        self._patience = patience
        self._known = asyncio.Event()
        self._has_moved = False
        self.is_lost = False
        """The agent did not answer when its task was last looked at; it is looked at again."""

    async def known(self) -> None:
        """Return once the task over there is known."""
        await self._known.wait()

    @property
    def thread(self) -> RemoteTaskRef:
        """What the next message goes on with."""
        context_id = self.report.context_id or self._thread.context_id
        return RemoteTaskRef(task_id=self.report.task_id or self._thread.task_id, context_id=context_id)

    async def heard(self) -> AsyncGenerator[None, None]:
        """Send, and follow to the end; yields whenever the report has something new.

        Raises ExternalAgentFailed, or Unanswered when it is not certain that the message was taken.
        """
        async with aclosing(self._sent()) as said:
            async for _ in said:
                yield
        if self.report.is_settled:
            return
        if not self.report.task_id:
            raise ExternalAgentFailed("its answer is neither a task nor a message")
        async with aclosing(self._followed()) as said:
            async for _ in said:
                yield

    async def heard_again(self) -> AsyncGenerator[None, None]:
        """Follow a task that took the message before this process started; yields as `heard` does.

        Raises ExternalAgentFailed, also when the agent does not know the task any longer.
        """
        self._known.set()
        self._has_moved = True
        async with aclosing(self._followed()) as said:
            async for _ in said:
                yield

    async def cancel(self) -> str:
        """Stop the task over there, once it is known; returns a note on what came of it."""
        try:
            async with asyncio.timeout(self._patience.answer):
                await self.known()
            await self._client.cancel(self._agent, self.thread.task_id, self._patience.answer)
        except TimeoutError:
            return "it may go on there: it did not answer"
        except ExternalAgentFailed as error:
            return f"it may go on there: {error}"
        return "it was canceled there"

    async def _sent(self) -> AsyncGenerator[None, None]:
        """Send the message. Returns when nothing more is said, or the connection broke and the task is known."""
        for pause in self._repeats():
            telling = self._client.tell(self._agent, self._message, self._thread, self._patience.stream)
            try:
                async with aclosing(self._taken_in(telling)) as said:
                    async for _ in said:
                        yield
                return
            except Unanswered:
                if pause is not None:
                    await _pause(pause)
                elif await self._went_on():
                    return
                else:
                    raise
            except (TimeoutError, ExternalAgentFailed) as error:
                if self.report.task_id:
                    return
                raise _unusable(error) from error

    async def _went_on(self) -> bool:
        """Whether the task that the message is for does not wait any longer, so that it was taken."""
        if self._thread.task_id:
            with suppress(TimeoutError, ExternalAgentFailed):
                self._receive(await self._client.look(self._agent, self._thread.task_id, self._patience.answer))
        return self._has_moved

    def _repeats(self) -> Iterator[float | None]:
        """The pauses before a message is sent again; None when it is not."""
        extensions: Any = self._agent.card.get("extensions")
        pauses = self._patience.pauses()
        if isinstance(extensions, dict) and "synapse" in extensions:
            for _ in range(REPEATS):
                yield next(pauses)
        yield None

    async def _followed(self) -> AsyncGenerator[None, None]:
        """Look at the task, and follow it where that is possible, until it is settled."""
        streams, pauses = self._client.has_streams(self._agent), self._patience.pauses()
        heard_at = self._clock.monotonic()
        while not self.report.is_settled:
            await _pause(next(pauses))
            try:
                self._receive(await self._client.look(self._agent, self.thread.task_id, self._patience.answer))
                heard_at, self.is_lost = self._clock.monotonic(), False
                yield
                if not streams or self.report.is_settled:
                    continue
                async with aclosing(self._streamed()) as said:
                    async for _ in said:
                        heard_at, pauses = self._clock.monotonic(), self._patience.pauses()
                        yield
            except (TimeoutError, ExternalAgentUnreachable) as error:
                self.is_lost = True
                if self._clock.monotonic() - heard_at >= self._patience.lost:
                    raise _unusable(error) from error
            except _NoStreams:
                streams = False

    async def _streamed(self) -> AsyncGenerator[None, None]:
        following = self._client.follow(self._agent, self.thread.task_id, self._patience.stream)
        try:
            async with aclosing(self._taken_in(following)) as said:
                async for _ in said:
                    yield
        except ExternalAgentUnreachable:
            raise
        except ExternalAgentFailed as error:
            raise _NoStreams from error

    async def _taken_in(self, brought: AsyncGenerator[Said, None]) -> AsyncGenerator[None, None]:
        async with aclosing(brought) as said:
            async for one in said:
                self._receive(one)
                yield
                if self._is_settled:
                    return

    def _receive(self, said: Said) -> None:
        self.report.receive(said)
        if self.thread.task_id:
            self._known.set()
        if self.report.state not in _INTERRUPTED_STATES:
            self._has_moved = True

    @property
    def _is_settled(self) -> bool:
        """A task that is gone on with may first be shown as it was, still waiting."""
        return self.report.is_settled and (self._has_moved or not self._thread.task_id)


class _NoStreams(Exception):
    """The agent has no streams after all; it can still be looked at."""


async def _pause(seconds: float) -> None:
    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    await asyncio.wait({never}, timeout=seconds)


def _unusable(error: Exception) -> ExternalAgentFailed:
    return error if isinstance(error, ExternalAgentFailed) else ExternalAgentUnreachable("it did not answer in time")


SOURCE: Final = "a2a"


class ReportTranslator:
    """Tells what is new. After a break the agent tells a whole task again; nothing of it is passed on twice."""

    def __init__(self) -> None:
        self._handed: dict[str, Artifact] = {}
        self._note = ""

    def news(self, report: RemoteTaskState) -> list[TurnEvent]:
        """The events that bring whoever follows up to date."""
        events: list[TurnEvent] = []
        for artifact in report.artifacts:
            known = self._handed.get(artifact.artifact_id)
            if known == artifact:
                continue
            self._handed[artifact.artifact_id] = artifact
            is_last = report.is_whole(artifact.artifact_id)
            more = _rest(known, artifact) if known is not None else ()
            if more:
                events.append(ArtifactProduced(artifact=replace(artifact, parts=more), append=True, last_chunk=is_last))
            else:
                events.append(ArtifactProduced(artifact=artifact, last_chunk=is_last))
        if report.note != self._note and not report.is_settled:
            self._note = report.note
            events.append(Progress(report.note))
        return events

    def outcome(self, report: RemoteTaskState) -> TurnEvent:
        """How the turn ended, of a report that is settled."""
        words = report.words
        match report.state:
            case TaskState.COMPLETED:
                # What was handed over is the answer; only an agent that handed over nothing answers with its words.
                return Answered(parts=() if self._handed else words, source=SOURCE)
            case TaskState.INPUT_REQUIRED:
                return InputRequested(words or (TextPart(text="it waits for input"),))
            case TaskState.AUTH_REQUIRED:
                return InputRequested(words or (TextPart(text="it waits for an authorization"),), authorization=True)
            case TaskState.REJECTED:
                return Refused(text_of(words) or "the agent refused")
            case TaskState.CANCELED:
                return Failed("external_task_canceled", text_of(words) or "its task was canceled there")
            case _:
                return Failed("external_agent_failed", text_of(words) or f"its task ended as {report.state}")


def _rest(known: Artifact, new: Artifact) -> tuple[Part, ...]:
    """What `new` has more than `known`; nothing when it is not the same with more behind it."""
    last = len(known.parts) - 1
    if new.parts[:last] != known.parts[:last] or len(new.parts) <= last:
        return ()
    before, now = known.parts[last], new.parts[last]
    following = new.parts[last + 1 :]
    if before == now:
        return following
    if isinstance(before, TextPart) and isinstance(now, TextPart) and now.text.startswith(before.text):
        return (replace(now, text=now.text.removeprefix(before.text)), *following)
    return ()
