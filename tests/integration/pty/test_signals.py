"""A program's own reports are believed before its screen."""

from __future__ import annotations

import asyncio

import pytest

from synapse.core.driver import Answered, Failed, Submitted, TurnEvent
from synapse.core.message import TextPart
from synapse.core.usage import TokenCounts, UsageReport
from synapse.terminal.evidence import Source
from synapse.terminal.profile import parse_profile
from synapse.terminal.signals.report import SignalKind, SignalReport
from tests.fakes.usage import KeptUsage
from tests.integration.pty.terminals import BOUND, agent, dummy, line_program, staged, until

pytestmark = pytest.mark.integration

PAINTER = parse_profile(
    {
        "command": ["painter"],
        "typing": {"style": "paste"},
        "prompt": {"pattern": "^% ?(?P<text>.*)$", "region": "input", "holds_cursor": True},
        "regions": {"input": {"last": 1}},
        "times": {"quiet": 0.02, "settle": 0.05, "unseen": 0.05, "person": 0.1},
        "answer": {"echo": "^• "},
    },
    "painter",
)


def report(kind: SignalKind, text: str = "", *, turn: str = "t1", reason: str = "") -> SignalReport:
    return SignalReport(kind=kind, source=Source.SIGNAL, detail="its hook said so", text=text, turn=turn, reason=reason)


async def reported_turn(*ends: SignalReport, usage: KeptUsage | None = None) -> list[TurnEvent]:
    """Takes a turn of a program that shows nothing and reports everything."""
    profile = line_program(times={"quiet": 0.02, "echo": 0.1, "proof": BOUND, "settle": BOUND})
    async with staged(agent("deaf"), profile, usage=usage) as stage:
        stage.driver.expect(Source.SIGNAL, "nothing yet")
        await stage.ready()
        turn = asyncio.ensure_future(stage.take("hello"))
        await until(lambda: stage.program.pump.input.pending == 0 and not turn.done(), "typed")
        await asyncio.sleep(0.05)
        stage.driver.report(report(SignalKind.SUBMITTED, "a person's own prompt", turn="t0"))
        stage.driver.report(report(SignalKind.ANSWERED, "the answer to that", turn="t0"))
        stage.driver.report(report(SignalKind.SUBMITTED, "[A2A:1a2b3c4d:user] hello"))
        for end in ends:
            stage.driver.report(end)
        return await asyncio.wait_for(turn, BOUND)


async def test_the_answer_is_that_of_our_own_turn() -> None:
    events = await reported_turn(report(SignalKind.ANSWERED, "**all** of it\n"))

    assert events[-1] == Answered(parts=(TextPart(text="**all** of it\n"),), source="signal")
    assert Submitted("signal", "its hook said so") in events


@pytest.mark.parametrize("kind", [SignalKind.ANSWERED, SignalKind.FAILED])
async def test_our_own_turn_is_named_as_that_of_its_task_and_a_persons_own_is_not(kind: SignalKind) -> None:
    usage = KeptUsage()
    await reported_turn(report(kind, "the end", reason="interrupted" if kind is SignalKind.FAILED else ""), usage=usage)

    assert usage.named == [("t1", "task-1")]


async def test_what_a_request_cost_is_recorded() -> None:
    usage, told = KeptUsage(), UsageReport(session="s", request="r", tokens=TokenCounts(output=1))
    async with staged(dummy().command, dummy(), usage=usage) as stage:
        stage.driver.note_usage(told)

    assert usage.reports == [told]


async def test_a_turn_that_the_program_reports_as_interrupted_fails_with_that_reason() -> None:
    events = await reported_turn(report(SignalKind.FAILED, "it was interrupted", reason="interrupted"))

    assert events[-1] == Failed("interrupted", "it was interrupted")


async def test_a_report_that_is_a_moment_late_is_believed_before_the_screen() -> None:
    async with staged(dummy().command, dummy()) as stage:
        stage.adapter.looks = lambda: stage.driver.report(report(SignalKind.ANSWERED, "exactly this"))
        events = await stage.turn("hello")

        assert events[-1] == Answered(parts=(TextPart(text="exactly this"),), source="signal")


async def test_without_a_report_the_source_is_degraded_and_the_screen_gives_the_answer() -> None:
    async with staged(dummy().command, dummy()) as stage:
        stage.driver.expect(Source.SIGNAL, "nothing yet")
        events = await stage.turn("hello")

        assert isinstance(events[-1], Answered)
        assert events[-1].source == "screen"
        silent = next(seen for seen in stage.driver.view().observations if seen.source == "signal")
        assert (silent.state, silent.detail.startswith("degraded")) == ("", True)


async def test_a_slow_program_that_has_reported_the_turn_is_not_done_while_its_screen_shows_nothing() -> None:
    """The prompt is back at once, and nothing stands below the message: as OpenCode on a busy machine."""
    looks = 0

    def tell_later() -> None:
        nonlocal looks
        looks += 1
        if looks == 1:
            stage.driver.report(report(SignalKind.SUBMITTED, "[A2A:1a2b3c4d:user] hello"))
        elif looks == 6:
            stage.driver.report(report(SignalKind.ANSWERED, "the answer"))

    async with staged(agent("painter"), PAINTER) as stage:
        stage.driver.expect(Source.SIGNAL, "nothing yet")
        stage.adapter.looks = tell_later
        result = await stage.turn("hello")

    assert result[-1] == Answered(parts=(TextPart(text="the answer"),), source="signal")


async def test_a_program_that_is_held_is_not_ready_whatever_it_shows() -> None:
    async with staged(dummy().command, dummy()) as stage:
        await stage.ready()
        stage.driver.hold("it loads its conversation")

        waiting = asyncio.ensure_future(stage.driver.wait_ready())
        await asyncio.wait({waiting}, timeout=0.2)
        held = (waiting.done(), stage.driver.view().gate)
        stage.driver.hold("")
        await asyncio.wait_for(waiting, BOUND)

        assert held == (False, "it loads its conversation")
        assert stage.driver.view().gate == ""
