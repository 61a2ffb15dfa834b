"""Sends one message to an external agent and follows the remote task to its end, through broken connections.

    sent → taken (its task is known) → followed → settled
             └ the connection breaks, or this process restarts: read the task, follow it again; never send twice

If it is uncertain whether the agent took a message, it is sent again only to agents that recognise a message by its id.
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
from synapse.core.waiting import pause
from synapse.external.client import RemoteUpdate, Unanswered
from synapse.external.decode import RemoteTaskState
from synapse.external.encode import RemoteTaskRef

SOURCE: Final = "a2a"
REPEATS: Final = 3
_INTERRUPTED_STATES: Final = frozenset(state.value for state in TaskState if state.is_interrupted)


class RemoteClient(Protocol):
    """What a Conversation needs of `client.A2AClient`, which says what each method raises."""

    def send_and_follow(
        self, agent: ExternalAgent, message: Message, ref: RemoteTaskRef, seconds: float, /
    ) -> AsyncGenerator[RemoteUpdate, None]: ...

    def follow(self, agent: ExternalAgent, task_id: str, seconds: float, /) -> AsyncGenerator[RemoteUpdate, None]: ...

    async def get_task(self, agent: ExternalAgent, task_id: str, seconds: float, /) -> RemoteUpdate: ...

    async def cancel(self, agent: ExternalAgent, task_id: str, seconds: float, /) -> object: ...

    def has_streams(self, agent: ExternalAgent, /) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """How long a conversation waits, in seconds."""

    stream: float = 300.0
    """For one connection; then the task is read, and followed again."""
    answer: float = 20.0
    lost: float = 120.0
    """How long an agent may be unreachable before its task fails."""
    first_pause: float = 0.2
    longest_pause: float = 5.0

    def pauses(self) -> Iterator[float]:
        """Yields the pauses between attempts: each twice as long as the one before, up to `longest_pause`."""
        seconds = self.first_pause
        while True:
            yield seconds
            seconds = min(seconds * 2, self.longest_pause)


class Conversation:
    """The exchange about one message; `report` holds what is known of the remote task."""

    def __init__(
        self,
        agent: ExternalAgent,
        client: RemoteClient,
        message: Message,
        ref: RemoteTaskRef,
        clock: Clock,
        timeouts: Timeouts,
    ) -> None:
        self.report = RemoteTaskState()
        self._agent = agent
        self._client = client
        self._message = message
        self._ref = ref
        self._clock = clock
        self._timeouts = timeouts
        self._known = asyncio.Event()
        self._has_moved = False
        self.is_lost = False
        """Whether the agent did not answer when its task was last read; it is asked again."""

    async def known(self) -> None:
        """Waits until the remote task is known."""
        await self._known.wait()

    @property
    def ref(self) -> RemoteTaskRef:
        """The remote task that the next message continues."""
        context_id = self.report.context_id or self._ref.context_id
        return RemoteTaskRef(task_id=self.report.task_id or self._ref.task_id, context_id=context_id)

    async def run(self) -> AsyncGenerator[None, None]:
        """Sends the message and follows the task to its end; yields whenever `report` has changed.

        Raises ExternalAgentFailed, or Unanswered when it is uncertain whether the agent took the message.
        """
        async with aclosing(self._send()) as changes:
            async for _ in changes:
                yield
        if self.report.is_settled:
            return
        if not self.report.task_id:
            raise ExternalAgentFailed("its answer is neither a task nor a message")
        async with aclosing(self._follow()) as changes:
            async for _ in changes:
                yield

    async def resume(self) -> AsyncGenerator[None, None]:
        """Follows a task that took the message before this process started; yields as `run` does.

        Raises ExternalAgentFailed, also when the agent no longer knows the task.
        """
        self._known.set()
        self._has_moved = True
        async with aclosing(self._follow()) as changes:
            async for _ in changes:
                yield

    async def cancel(self) -> str:
        """Cancels the remote task, once it is known; returns a note about the result."""
        try:
            async with asyncio.timeout(self._timeouts.answer):
                await self.known()
            await self._client.cancel(self._agent, self.ref.task_id, self._timeouts.answer)
        except TimeoutError:
            return "it may go on there: it did not answer"
        except ExternalAgentFailed as error:
            return f"it may go on there: {error}"
        return "it was canceled there"

    async def _send(self) -> AsyncGenerator[None, None]:
        """Sends the message. Ends when the stream ends, or when the connection breaks and the task is known."""
        for seconds in self._repeats():
            updates = self._client.send_and_follow(self._agent, self._message, self._ref, self._timeouts.stream)
            try:
                async with aclosing(self._receive_all(updates)) as changes:
                    async for _ in changes:
                        yield
                return
            except Unanswered:
                if seconds is not None:
                    await pause(seconds)
                elif await self._was_taken():
                    return
                else:
                    raise
            except (TimeoutError, ExternalAgentFailed) as error:
                if self.report.task_id:
                    return
                raise _unusable(error) from error

    async def _was_taken(self) -> bool:
        """Whether the task that the message continues has stopped waiting, so that the agent must have taken it."""
        if self._ref.task_id:
            with suppress(TimeoutError, ExternalAgentFailed):
                self._receive(await self._client.get_task(self._agent, self._ref.task_id, self._timeouts.answer))
        return self._has_moved

    def _repeats(self) -> Iterator[float | None]:
        """Yields the pauses before the message is sent again; None ends the attempts."""
        extensions: Any = self._agent.card.get("extensions")
        pauses = self._timeouts.pauses()
        if isinstance(extensions, dict) and "synapse" in extensions:
            for _ in range(REPEATS):
                yield next(pauses)
        yield None

    async def _follow(self) -> AsyncGenerator[None, None]:
        """Reads the task, and follows it if the agent has streams, until it is settled."""
        streams, pauses = self._client.has_streams(self._agent), self._timeouts.pauses()
        answered_at = self._clock.monotonic()
        while not self.report.is_settled:
            await pause(next(pauses))
            try:
                self._receive(await self._client.get_task(self._agent, self.ref.task_id, self._timeouts.answer))
                answered_at, self.is_lost = self._clock.monotonic(), False
                yield
                if not streams or self.report.is_settled:
                    continue
                async with aclosing(self._follow_stream()) as changes:
                    async for _ in changes:
                        answered_at, pauses = self._clock.monotonic(), self._timeouts.pauses()
                        yield
            except (TimeoutError, ExternalAgentUnreachable) as error:
                self.is_lost = True
                if self._clock.monotonic() - answered_at >= self._timeouts.lost:
                    raise _unusable(error) from error
            except _NoStreams:
                streams = False

    async def _follow_stream(self) -> AsyncGenerator[None, None]:
        updates = self._client.follow(self._agent, self.ref.task_id, self._timeouts.stream)
        try:
            async with aclosing(self._receive_all(updates)) as changes:
                async for _ in changes:
                    yield
        except ExternalAgentUnreachable:
            raise
        except ExternalAgentFailed as error:
            raise _NoStreams from error

    async def _receive_all(self, updates: AsyncGenerator[RemoteUpdate, None]) -> AsyncGenerator[None, None]:
        async with aclosing(updates):
            async for update in updates:
                self._receive(update)
                yield
                # A continued task may first come back in its old state, still waiting for input.
                if self.report.is_settled and (self._has_moved or not self._ref.task_id):
                    return

    def _receive(self, update: RemoteUpdate) -> None:
        self.report.receive(update)
        if self.ref.task_id:
            self._known.set()
        if self.report.state not in _INTERRUPTED_STATES:
            self._has_moved = True


class _NoStreams(Exception):
    """The agent refuses streams; its task can still be read."""


def _unusable(error: Exception) -> ExternalAgentFailed:
    return error if isinstance(error, ExternalAgentFailed) else ExternalAgentUnreachable("it did not answer in time")


class ReportTranslator:
    """Translates what is new in a RemoteTaskState into events of a turn. Pure.

    After a broken connection the agent sends its whole task again; no part of it becomes an event twice.
    """

    def __init__(self) -> None:
        self._produced: dict[str, Artifact] = {}
        self._note = ""

    def news(self, report: RemoteTaskState) -> list[TurnEvent]:
        """Returns the events since the last call."""
        events: list[TurnEvent] = []
        for artifact in report.artifacts:
            known = self._produced.get(artifact.artifact_id)
            if known == artifact:
                continue
            self._produced[artifact.artifact_id] = artifact
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
        """Returns the event that ends the turn of a settled report."""
        words = report.words
        match report.state:
            case TaskState.COMPLETED:
                # The artifacts are the answer; only an agent without artifacts answers with its message.
                return Answered(parts=() if self._produced else words, source=SOURCE)
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
    """Returns the parts that `new` appends to `known`; none if `new` is not a continuation."""
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
