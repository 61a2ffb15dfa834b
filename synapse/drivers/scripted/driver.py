"""Plays a script as an agent: takes a message, finds its rule, and yields what the steps say.

    ready → (a turn) working → ready
                             ↘ exited   (`exit`)

It types nothing, so there is no gate and no doubt: a message that it is given is taken.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Final, assert_never

from synapse.core.agent import EXITED, READY, WORKING
from synapse.core.clock import Clock
from synapse.core.driver import (
    AgentView,
    Answered,
    Asked,
    Failed,
    Handed,
    Progress,
    Refused,
    Sighting,
    Submitted,
    Turn,
    TurnEvent,
    TurnStarted,
)
from synapse.core.errors import AgentExited
from synapse.core.message import Artifact, Part, TextPart
from synapse.core.task import TaskId
from synapse.drivers.scripted.script import Script
from synapse.drivers.scripted.steps import Answer, Ask, Exit, Fail, Hand, Reject, Say, Step, Wait

SOURCE: Final = "script"
MOST_OPEN_QUESTIONS: Final = 1000
"""Questions whose follow-up never came are forgotten, oldest first; then a late one is matched as a new message."""

_IDLE: Final = "the script waits for a message"

Pause = Callable[[asyncio.Event, float], Awaitable[None]]
"""Returns after so many seconds, or as soon as the event is set."""


async def pause(stop: asyncio.Event, seconds: float) -> None:
    """Wait, on the loop's clock."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stop.wait()


class ScriptedDriver:
    """An agent whose behaviour is a file."""

    def __init__(self, script: Script, clock: Clock, *, pause: Pause = pause) -> None:
        self._script = script
        self._clock = clock
        self._pause = pause
        self._stop = asyncio.Event()
        self._gone = asyncio.Event()
        self._open_questions: OrderedDict[TaskId, tuple[Step, ...]] = OrderedDict()
        self.exit_status: int | None = None
        """What the script exited with, or None while it plays."""
        self._enter(READY, _IDLE)

    def view(self) -> AgentView:
        return self._view

    async def wait_ready(self) -> None:
        self._require_alive()

    async def wait_exited(self) -> int:
        """Return the exit status when the script has ended the agent; most scripts never do."""
        await self._gone.wait()
        return self.exit_status or 0

    async def take_turn(self, turn: Turn) -> AsyncGenerator[TurnEvent, None]:
        """Play the steps for this message, or go on behind the question that it answers."""
        self._require_alive()
        steps, evidence = self._steps_for(turn)
        self._stop.clear()
        self._enter(WORKING, f"plays {evidence}")
        try:
            yield Submitted(SOURCE, evidence)
            yield TurnStarted(SOURCE, evidence)
            for index, step in enumerate(steps):
                event = await self._play(step, turn, steps[index + 1 :])
                if event is not None:
                    yield event
                if isinstance(event, Asked | Answered | Refused | Failed):
                    return
            yield Answered(parts=(), source=SOURCE)
        finally:
            if self.exit_status is None:
                self._enter(READY, _IDLE)

    async def interrupt(self) -> bool:
        # Without a turn this has no effect: each turn begins by clearing it.
        self._stop.set()
        return self._view.state == WORKING

    def drop(self) -> bool:
        """A script takes its message at once, so it is always too late."""
        return False

    def confirm(self) -> None:
        """A script always takes its message, so there is never doubt."""

    async def _play(self, step: Step, turn: Turn, rest: tuple[Step, ...]) -> TurnEvent | None:
        """Do one step; None when there is nothing to tell of it."""
        if isinstance(step, Wait):
            await self._pause(self._stop, step.seconds)
        if self._stop.is_set():
            return Failed("interrupted", "the turn was interrupted")
        match step:
            case Wait():
                return None
            case Exit(status=status):
                raise self._exit(status)
            case Ask():
                self._remember(turn.task_id, rest)
                return _event(step, turn.message.text)
            case _:
                return _event(step, turn.message.text)

    def _steps_for(self, turn: Turn) -> tuple[tuple[Step, ...], str]:
        """The steps and, for the receipt, where they stand."""
        rest = self._open_questions.pop(turn.task_id, ())
        if rest and not turn.first:
            return rest, "the steps after the question"
        rule = self._script.rule_for(turn.message)
        return rule.steps, rule.name

    def _remember(self, task_id: TaskId, rest: tuple[Step, ...]) -> None:
        if not rest:
            return
        self._open_questions[task_id] = rest
        if len(self._open_questions) > MOST_OPEN_QUESTIONS:
            self._open_questions.popitem(last=False)

    def _require_alive(self) -> None:
        if self.exit_status is not None:
            raise AgentExited(f"the script ended the agent with status {self.exit_status}")

    def _exit(self, status: int) -> AgentExited:
        self.exit_status = status
        self._gone.set()
        gone = AgentExited(f"the script ended the agent with status {status}")
        self._enter(EXITED, str(gone))
        return gone

    def _enter(self, state: str, why: str) -> None:
        now = self._clock.now()
        sighting = Sighting(source=SOURCE, state=state, detail=why, at=now)
        self._view = AgentView(state=state, why=why, source=SOURCE, since=now, sightings=(sighting,))


def _event(step: Say | Answer | Hand | Ask | Reject | Fail, said: str) -> TurnEvent:
    """What a step tells the worker; `{text}` becomes what the message said."""
    match step:
        case Say(text=text):
            return Progress(_filled(text, said))
        case Answer(text=text, direct=direct):
            return Answered(parts=_parts(text, said), source=SOURCE, direct=direct)
        case Hand(artifact=artifact, append=append, last=last):
            return Handed(artifact=_filled_artifact(artifact, said), append=append, last_chunk=last)
        case Ask(text=text, authorization=authorization):
            return Asked(_parts(text, said), authorization)
        case Reject(note=note):
            return Refused(_filled(note, said))
        case Fail(reason=reason, note=note):
            return Failed(reason, _filled(note, said))
        case _:
            assert_never(step)


def _parts(text: str, said: str) -> tuple[Part, ...]:
    return (TextPart(text=_filled(text, said)),) if text else ()


def _filled_artifact(artifact: Artifact, said: str) -> Artifact:
    parts = tuple(
        replace(part, text=_filled(part.text, said)) if isinstance(part, TextPart) else part for part in artifact.parts
    )
    return replace(artifact, parts=parts)


def _filled(text: str, said: str) -> str:
    return text.replace("{text}", said)
