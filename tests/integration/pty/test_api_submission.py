"""Where a program has an API, messages are sent by it: intent first, never twice, never into a dialog."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

import pytest

from synapse.core.driver import Answered, Deferred, DeliveryUncertain, Submitted, TurnEvent, Typing
from synapse.core.message import TextPart
from synapse.drivers.pty.adapters.adapter import Busy, NotTaken
from synapse.terminal.evidence import Source
from synapse.terminal.profile import Profile
from synapse.terminal.signals.report import SignalKind, SignalReport, TextSoFar
from tests.integration.pty.terminals import (
    BOUND,
    Forgetful,
    Stage,
    agent,
    dummy,
    line_program,
    names,
    new_turn,
    staged,
    until,
)

pytestmark = pytest.mark.integration


class FakeSender(Forgetful):
    """An API that answers as the test says, and keeps the messages that it gets."""

    def __init__(self, stage: Stage, failure: Exception | None = None) -> None:
        self.sent: list[str] = []
        self._stage = stage
        self._failure = failure

    async def send(self, text: str, _key: str, /) -> str:
        self.sent.append(text)
        if self._failure is not None:
            raise self._failure
        self._stage.driver.report(report(SignalKind.ANSWERED, f"heard {text[-5:]}"))
        return "its server took it"


def report(kind: SignalKind, text: str = "") -> SignalReport:
    return SignalReport(kind=kind, source=Source.SIGNAL, detail="its server says so", text=text)


def silent_program() -> Profile:
    """A program that shows nothing of its work."""
    return line_program(times={"quiet": 0.02, "settle": BOUND, "echo": 0.1, "proof": BOUND, "person": 0.0})


async def test_a_message_is_sent_without_a_key_once_the_intent_is_recorded() -> None:
    async with asyncio.timeout(3 * BOUND):
        async with staged(agent("deaf"), silent_program()) as stage:
            sender = stage.adapter.sends = FakeSender(stage)
            async with aclosing(stage.driver.take_turn(new_turn("hello"))) as turn:
                await stage.ready()
                assert await anext(turn) == Typing()
                assert sender.sent == []
                events = [event async for event in turn]

            assert events[0] == Submitted("signal", "its server took it")
            assert isinstance(events[-1], Answered)
            assert sender.sent == ["[A2A:1a2b3c4d:user] hello"]
            assert "hello" not in stage.screen()


async def test_a_persons_draft_does_not_hold_a_message_to_an_api_but_a_dialog_does() -> None:
    async with asyncio.timeout(3 * BOUND):
        async with staged(dummy().command, dummy()) as stage:
            await stage.ready()
            stage.program.type_keys(b"half a line")
            await stage.sees("half a line")
            sender = stage.adapter.sends = FakeSender(stage)
            events = await stage.turn("hello")
            assert isinstance(events[-1], Answered)

            stage.program.type_keys(b"\x15dialog\r")
            await stage.sees("Do you want to proceed?")
            events = await stage.take("again")
            assert names(events) == ["Deferred"]
            assert len(sender.sent) == 1


async def test_a_message_that_was_certainly_not_taken_is_typed_the_next_time() -> None:
    async with asyncio.timeout(3 * BOUND):
        async with staged(dummy().command, dummy()) as stage:
            sender = stage.adapter.sends = FakeSender(stage, NotTaken("no conversation is open"))
            refused = await stage.turn("hello")
            typed = await stage.turn("hello")

            assert refused == [Typing(), Deferred("no conversation is open")]
            assert names(typed)[:2] == ["Typing", "Submitted"]
            assert isinstance(typed[-1], Answered)
            assert len(sender.sent) == 1


async def test_behind_another_turn_a_message_waits_and_is_sent_again() -> None:
    async with asyncio.timeout(3 * BOUND):
        async with staged(agent("deaf"), silent_program()) as stage:
            sender = stage.adapter.sends = FakeSender(stage, Busy("another turn runs"))
            waits = await stage.turn("hello")
            stage.adapter.sends = FakeSender(stage)
            events = await stage.turn("hello")

            assert waits == [Typing(), Deferred("another turn runs")]
            assert events[1] == Submitted("signal", "its server took it")
            assert len(sender.sent) == 1


async def until_not_now(events: AsyncGenerator[TurnEvent, None]) -> list[TurnEvent]:
    """Follows a turn as the worker does, which closes it after Deferred."""
    seen: list[TurnEvent] = []
    async with aclosing(events):
        async for event in events:
            seen.append(event)
            if isinstance(event, Deferred):
                break
    return seen


async def test_a_refused_message_is_typed_also_if_the_worker_closes_the_turn() -> None:
    async with asyncio.timeout(3 * BOUND):
        async with staged(dummy().command, dummy()) as stage:
            await stage.ready()
            sender = stage.adapter.sends = FakeSender(stage, NotTaken("no conversation is open"))

            refused = await until_not_now(stage.driver.take_turn(new_turn("hello")))
            typed = await until_not_now(stage.driver.take_turn(new_turn("hello")))

            assert refused == [Typing(), Deferred("no conversation is open")]
            assert names(typed)[:2] == ["Typing", "Submitted"]
            assert len(sender.sent) == 1


async def test_the_end_of_another_turn_that_is_reported_late_is_not_ours() -> None:
    async with asyncio.timeout(3 * BOUND):
        async with staged(agent("deaf"), silent_program()) as stage:
            await stage.ready()
            stage.adapter.sends = SlowServer()
            turn = asyncio.ensure_future(stage.take("hello"))
            await until(lambda: stage.driver.view().why == "its server took it", "working by its server's word")
            stage.driver.say(TextSoFar("theirs", "not for us"))
            stage.driver.report(replace(report(SignalKind.ANSWERED, "not for us"), turn="theirs"))
            await asyncio.wait((turn,), timeout=0.2)
            assert not turn.done()

            stage.driver.report(replace(report(SignalKind.SUBMITTED), key=new_turn("hello").key, turn="ours"))
            stage.driver.report(replace(report(SignalKind.ANSWERED, "for us"), turn="ours"))

            events = await asyncio.wait_for(turn, BOUND)
            assert events[-1] == Answered(parts=(TextPart(text="for us"),), source="signal")
            assert "PartialAnswer" not in names(events)


class SlowServer(Forgetful):
    """An API that takes a message, and reports nothing about it for now."""

    async def send(self, text: str, _key: str, /) -> str:
        return "its server took it"


async def test_an_empty_prompt_does_not_end_the_turn_while_the_server_has_the_message() -> None:
    async with asyncio.timeout(3 * BOUND):
        quick = line_program(times={"quiet": 0.01, "settle": 0.02, "unseen": 0.02, "person": 0.0})
        async with staged(dummy().command, quick) as stage:
            await stage.ready()
            stage.adapter.sends = SlowServer()
            turn = asyncio.ensure_future(stage.take("hello"))
            await until(lambda: stage.driver.view().why == "its server took it", "working by its server's word")
            assert stage.driver.seems_ready()
            # Long enough for the screen to settle many times.
            await asyncio.wait((turn,), timeout=0.5)
            assert not turn.done()

            stage.driver.report(report(SignalKind.ANSWERED, "the answer"))

            end = (await asyncio.wait_for(turn, BOUND))[-1]
            assert isinstance(end, Answered)
            assert end.source == "signal"


async def in_doubt(stage: Stage) -> tuple[list[TurnEvent], asyncio.Future[None]]:
    """A turn whose message may have been taken or not."""
    stage.adapter.sends = FakeSender(stage, OSError("the line broke"))
    await stage.ready()
    events: list[TurnEvent] = []

    async def follow(turn: AsyncGenerator[TurnEvent, None]) -> None:
        async with aclosing(turn):
            async for event in turn:
                events.append(event)  # noqa: PERF401  # they are looked at while they come

    following = asyncio.ensure_future(follow(stage.driver.take_turn(new_turn("hello"))))
    await until(lambda: any(isinstance(event, DeliveryUncertain) for event in events), "doubt", lambda: events)
    return events, following


async def test_a_failure_that_may_have_come_too_late_leaves_doubt_until_the_program_says_so() -> None:
    async with asyncio.timeout(3 * BOUND):
        async with staged(agent("deaf"), silent_program()) as stage:
            events, following = await in_doubt(stage)
            assert stage.driver.drop() is False
            assert names(events) == ["Typing", "DeliveryUncertain"]

            stage.driver.report(report(SignalKind.SUBMITTED, "[A2A:1a2b3c4d:user] hello"))
            stage.driver.report(report(SignalKind.ANSWERED, "hello too"))
            await asyncio.wait_for(following, BOUND)
            assert names(events) == ["Typing", "DeliveryUncertain", "Submitted", "TurnStarted", "Answered"]


async def test_a_prompt_of_the_same_text_with_another_key_is_no_proof() -> None:
    async with asyncio.timeout(3 * BOUND):
        async with staged(agent("deaf"), silent_program()) as stage:
            events, following = await in_doubt(stage)
            prompt = report(SignalKind.SUBMITTED, "[A2A:1a2b3c4d:user] hello")
            stage.driver.report(replace(prompt, key="a person's own"))
            await asyncio.wait((following,), timeout=0.2)
            assert names(events) == ["Typing", "DeliveryUncertain"]

            stage.driver.report(replace(prompt, key=new_turn("hello").key, text="as its server shows it"))
            await until(lambda: "Submitted" in names(events), "proof", lambda: events)
            following.cancel()


async def test_a_person_may_end_the_doubt() -> None:
    async with asyncio.timeout(3 * BOUND):
        async with staged(agent("deaf"), silent_program()) as stage:
            events, following = await in_doubt(stage)
            stage.driver.confirm()
            await until(lambda: isinstance(events[-1], Submitted), "proof", lambda: events)
            following.cancel()


async def test_a_message_that_was_canceled_before_it_was_sent_is_not_sent() -> None:
    async with asyncio.timeout(3 * BOUND):
        async with staged(agent("deaf"), silent_program()) as stage:
            sender = stage.adapter.sends = FakeSender(stage)
            await stage.ready()
            async with aclosing(stage.driver.take_turn(new_turn("hello"))) as turn:
                assert await anext(turn) == Typing()
                assert stage.driver.drop() is True
                assert [event async for event in turn] == []
            assert sender.sent == []


async def test_a_dialog_that_opens_after_the_intent_defers_the_message() -> None:
    async with asyncio.timeout(3 * BOUND):
        async with staged(dummy().command, dummy()) as stage:
            sender = stage.adapter.sends = FakeSender(stage)
            await stage.ready()
            async with aclosing(stage.driver.take_turn(new_turn("hello"))) as turn:
                assert await anext(turn) == Typing()
                stage.program.type_keys(b"dialog\r")
                await stage.sees("Do you want to proceed?")
                assert names([event async for event in turn]) == ["Deferred"]
            assert sender.sent == []
