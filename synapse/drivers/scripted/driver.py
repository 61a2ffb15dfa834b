"""Runs an agent whose behaviour is a script: finds the rule for a message and plays its steps.

    waiting (a question at its start) → ready → (a turn) working → ready
                                                   ↕           ↘ exited   (`exit`)
                                                waiting (a question)

It types nothing, so there is no gate and no doubt: the agent takes every message that it is given.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Final, NamedTuple, assert_never

from synapse.core.agent import EXITED, READY, WAITING, WORKING
from synapse.core.driver import (
    AgentView,
    Answered,
    ArtifactProduced,
    Failed,
    InputRequested,
    Observation,
    Progress,
    QuestionRaised,
    Refused,
    Resumed,
    StatusListener,
    StatusListeners,
    Submitted,
    Turn,
    TurnEvent,
    TurnStarted,
)
from synapse.core.errors import AgentExited, QuestionGone
from synapse.core.message import Message, Part, TextPart
from synapse.core.question import Choice, Question, chosen, label_of
from synapse.core.task import TaskId
from synapse.core.types import Clock
from synapse.drivers.scripted.script import Script
from synapse.drivers.scripted.steps import Answer, Ask, AskPerson, Exit, Fail, Produce, Reject, Say, Step, Wait

SOURCE: Final = "script"
MAX_OPEN_QUESTIONS: Final = 1000
"""Beyond that the oldest unanswered questions are forgotten; a late follow-up is then matched as a new message."""

_AT_ONCE: Final = (Say, Answer, Produce, Reject, Fail)
"""Steps that take no time and need no person."""
_IDLE: Final = "the script waits for a message"

Pause = Callable[[asyncio.Event, float], Awaitable[None]]
"""Returns after a number of seconds, or as soon as the event is set."""


async def pause(stop: asyncio.Event, seconds: float) -> None:
    """Waits on the loop's clock."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stop.wait()


class ScriptedDriver:
    """Implements core.driver.Driver for a script."""

    def __init__(self, script: Script, clock: Clock, *, pause: Pause = pause) -> None:
        self._script = script
        self._clock = clock
        self._pause = pause
        self._stop = asyncio.Event()
        self._open_questions: OrderedDict[TaskId, tuple[Step, ...]] = OrderedDict()
        self.exit_status: int | None = None
        """The status that the script exited with; None until then."""
        self._is_stopped = False
        self._numbers = itertools.count(1)
        self._answered = asyncio.Event()
        self._answer = ""
        self._listeners = StatusListeners()
        self._view = self._before_question = _View(READY, _IDLE, clock.now())
        self._ready = asyncio.Event()
        if script.startup is None:
            self._ready.set()
        else:
            self._pose(script.startup)

    def view(self) -> AgentView:
        state, why, since, question = self._view
        observation = Observation(source=SOURCE, state=state, detail=why, at=since)
        return AgentView(
            state=state, why=why, source=SOURCE, since=since, observations=(observation,), question=question
        )

    def watch(self, listener: StatusListener) -> Callable[[], None]:
        return self._listeners.add(listener)

    async def wait_ready(self) -> None:
        await self._ready.wait()
        self._require_alive()

    async def take_turn(self, turn: Turn) -> AsyncGenerator[TurnEvent, None]:
        """Plays the steps for this message, or the steps after the question that it answers."""
        self._require_alive()
        steps, evidence = self._steps_for(turn)
        self._stop.clear()
        self._answer = ""
        self._enter(WORKING, f"plays {evidence}")
        try:
            yield Submitted(SOURCE, evidence)
            yield TurnStarted(SOURCE, evidence)
            for index, step in enumerate(steps):
                if isinstance(step, AskPerson) and not self._stop.is_set():
                    yield QuestionRaised(self._pose(step.question))
                    await self._answered.wait()
                    if not self._stop.is_set():
                        yield Resumed("signal")
                event = await self._play(step, turn, steps[index + 1 :])
                if event is not None:
                    yield event
                if isinstance(event, InputRequested | Answered | Refused | Failed):
                    return
            yield Answered(parts=(), source=SOURCE)
        finally:
            if self.exit_status is None:
                self._enter(READY, _IDLE)

    def answer_at_once(self, message: Message) -> Sequence[TurnEvent] | None:
        """Returns all events of a message whose rule needs neither time nor a person; else, or if not ready, None."""
        if self._view.state != READY or self._is_stopped:
            return None
        values = _Values(message.text, "")
        # Submitted and TurnStarted are left out: no reader could see them without the answer.
        events: list[TurnEvent] = []
        for step in self._script.rule_for(message).steps:
            if not isinstance(step, _AT_ONCE):
                return None
            events.append(_event(step, values))
        if not isinstance(events[-1], Answered | Refused | Failed):
            events.append(Answered(parts=(), source=SOURCE))
        return events

    async def interrupt(self) -> bool:
        if self._view.question is not None:
            return False
        # Without a turn this has no effect: each turn begins by clearing the event.
        self._stop.set()
        return self._view.state == WORKING

    def stop(self) -> None:
        """Ends the current turn, whatever it waits for, and takes no other; queued messages wait for the next start."""
        self._is_stopped = True
        self._stop.set()
        self._answered.set()
        self._ready.set()

    async def answer(self, question_id: str, choice: Choice) -> str:
        question = self._view.question
        if question is None or question.id != question_id:
            raise QuestionGone
        self._answer = label_of(question, chosen(question, option=choice.option, text=choice.text))
        self._show(self._before_question)
        self._ready.set()
        self._answered.set()
        return "signal"

    def drop(self) -> bool:
        """Returns False: a script takes its message at once, so it is always too late."""
        return False

    def confirm(self) -> None:
        """Does nothing: a script always takes its message, so it is never in doubt."""

    async def _play(self, step: Step, turn: Turn, rest: tuple[Step, ...]) -> TurnEvent | None:
        """Plays one step; returns its event, if it has one."""
        if isinstance(step, Wait):
            await self._pause(self._stop, step.seconds)
        if self._stop.is_set():
            return Failed("interrupted", "the turn was interrupted")
        if isinstance(step, Wait | AskPerson):
            return None
        if isinstance(step, Exit):
            self.exit_status = step.status
            gone = AgentExited(f"the script ended the agent with status {step.status}")
            self._enter(EXITED, str(gone))
            raise gone
        if isinstance(step, Ask) and rest:
            self._open_questions[turn.task_id] = rest
            if len(self._open_questions) > MAX_OPEN_QUESTIONS:
                self._open_questions.popitem(last=False)
        return _event(step, _Values(turn.message.text, self._answer))

    def _steps_for(self, turn: Turn) -> tuple[tuple[Step, ...], str]:
        """Returns the steps and, for the receipt, the name of their place in the script."""
        rest = self._open_questions.pop(turn.task_id, ())
        if rest and not turn.first:
            return rest, "the steps after the question"
        rule = self._script.rule_for(turn.message)
        return rule.steps, rule.name

    def _require_alive(self) -> None:
        if self._is_stopped:
            raise AgentExited("the agent was stopped")
        if self.exit_status is not None:
            raise AgentExited(f"the script ended the agent with status {self.exit_status}")

    def _pose(self, question: Question) -> Question:
        """Asks a person, and waits in state `waiting` until the answer comes."""
        posed = replace(question, id=f"{SOURCE}-{next(self._numbers)}")
        self._answered.clear()
        self._before_question = self._view
        self._show(_View(WAITING, f"asks: {posed.title}", self._clock.now(), posed))
        return posed

    def _enter(self, state: str, why: str) -> None:
        self._show(_View(state, why, self._clock.now()))

    def _show(self, view: _View) -> None:
        self._view = view
        self._listeners.tell(lambda: self.view().status)


class _View(NamedTuple):
    """The state of the agent and since when it has it."""

    state: str
    why: str
    since: datetime
    question: Question | None = None


class _Values(NamedTuple):
    """The values of the placeholders in a script's texts."""

    text: str
    """The text of the message."""
    answer: str
    """The last answer of a person."""

    def fill(self, text: str) -> str:
        return text.replace("{answer}", self.answer).replace("{text}", self.text)


def _event(step: Say | Answer | Produce | Ask | Reject | Fail, values: _Values) -> TurnEvent:
    match step:
        case Say(text=text):
            return Progress(values.fill(text))
        case Answer(text=text, direct=direct):
            return Answered(parts=_parts(text, values), source=SOURCE, direct=direct)
        case Produce(artifact=artifact, append=append, last=last):
            parts = tuple(
                replace(part, text=values.fill(part.text)) if isinstance(part, TextPart) else part
                for part in artifact.parts
            )
            return ArtifactProduced(artifact=replace(artifact, parts=parts), append=append, last_chunk=last)
        case Ask(text=text, authorization=authorization):
            return InputRequested(_parts(text, values), authorization)
        case Reject(note=note):
            return Refused(values.fill(note))
        case Fail(reason=reason, note=note):
            return Failed(reason, values.fill(note))
        case _:
            assert_never(step)


def _parts(text: str, values: _Values) -> tuple[Part, ...]:
    return (TextPart(text=values.fill(text)),) if text else ()
