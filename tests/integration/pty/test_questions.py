"""A program's questions are reported with their options, and answered once, only while they are asked."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from synapse.core.driver import Answered, QuestionRaised, Resumed, TurnEvent
from synapse.core.errors import AgentUnresponsive, InvalidChoice, QuestionGone
from synapse.core.question import Choice, Option, OptionEffect, Question, QuestionKind
from synapse.drivers.pty.context import SUBMITTED
from synapse.terminal.evidence import Source
from synapse.terminal.profile import Profile
from synapse.terminal.signals.report import SignalKind, SignalReport
from tests.integration.pty.terminals import BOUND, Stage, agent, line_program, names, new_turn, staged, until

pytestmark = pytest.mark.integration

YES, NO, WORDS = "1", "2", "3"
DOWN = b"\x1b[B"


def asking(
    choose: str = "digit",
    *,
    kind: str = "choice",
    proof: float = BOUND,
    quiet: float = 0.02,
    person: float = 0.0,
    **more: str,
) -> Profile:
    dialog = {
        "name": "ask",
        "hint": "look there",
        "kind": kind,
        "every": ["Go on", "Esc to cancel"],
        "begin": "^─{10,}",
        "title": r"(Go on\?)",
        "choose": choose,
        "text": "^Say something",
        **more,
    }
    return line_program(
        times={"quiet": quiet, "settle": 0.05, "unseen": 0.05, "echo": BOUND, "proof": proof, "person": person},
        regions={"input": {"between": "^─{10,}"}},
        prompt={"pattern": r"^>\s?(?P<text>.*)$", "region": "input"},
        interrupt={"keys": ["esc"]},
        dialogs=[dialog],
        answer={"drop": ["^─{10,}", "^ready$"]},
    )


class Asked:
    """A turn in which the program has asked."""

    def __init__(self, stage: Stage, log: Path, turn: AsyncGenerator[TurnEvent, None]) -> None:
        self.stage = stage
        self.events: list[TurnEvent] = []
        self._log = log
        self._turn = turn
        self._rest: asyncio.Future[None] | None = None

    @property
    def questions(self) -> list[Question]:
        return [event.question for event in self.events if isinstance(event, QuestionRaised)]

    @property
    def resumed_by(self) -> list[str]:
        return [event.by for event in self.events if isinstance(event, Resumed)]

    def keys(self) -> bytes:
        """The keys that were typed while it asked."""
        return self._log.read_bytes()

    def go_on(self) -> None:
        self._rest = asyncio.ensure_future(self._take())

    async def asks(self, number: int = 1) -> Question:
        await until(lambda: len(self.questions) >= number, "a question", lambda: self.events)
        return self.questions[number - 1]

    async def answered(self) -> str:
        """Returns what the program shows when the turn is over."""
        assert self._rest is not None
        await asyncio.wait_for(self._rest, BOUND)
        assert isinstance(self.events[-1], Answered), self.events
        return self.stage.screen()

    def stop(self) -> None:
        if self._rest is not None:
            self._rest.cancel()

    async def _take(self) -> None:
        async with aclosing(self._turn) as events:
            async for event in events:
                self.events.append(event)


@asynccontextmanager
async def asked(
    folder: Path, word: str = "ask", *, profile: Profile | None = None, by: str = ""
) -> AsyncGenerator[Asked, None]:
    log = folder / "keys"
    async with staged(agent("questioner", str(log), *filter(None, (by,))), profile or asking()) as stage:
        await stage.ready()
        turn = Asked(stage, log, stage.driver.take_turn(new_turn(word)))
        turn.go_on()
        try:
            await stage.sees("Go on?")
            # Its dialog covers the page, so only its own word proves that it has the message.
            stage.driver.signal(Source.SIGNAL, SUBMITTED, "its hook has the prompt")
            yield turn
        finally:
            turn.stop()


async def test_a_question_is_reported_with_its_options_and_answered_by_one_key(tmp_path: Path) -> None:
    async with asyncio.timeout(3 * BOUND):
        async with asked(tmp_path, profile=asking(kind="permission")) as turn:
            question = await turn.asks()

            assert (question.kind, question.title, question.detail) == (QuestionKind.PERMISSION, "Go on?", "run ask")
            assert [option.label for option in question.options] == ["Yes", "No", "Say something"]
            assert [option.effect for option in question.options] == [
                OptionEffect.ALLOW,
                OptionEffect.DENY,
                OptionEffect.OTHER,
            ]
            assert turn.stage.driver.view().question == question
            assert await turn.stage.driver.interrupt() is False
            assert await turn.stage.driver.answer(question.id, Choice(option=YES)) == "keys"
            assert "chose: Yes" in await turn.answered()
            assert turn.resumed_by == ["keys"]
            assert names(turn.events)[:3] == ["Typing", "Submitted", "TurnStarted"]
            assert turn.keys() == b"1"
            assert turn.stage.driver.view().question is None


async def test_with_arrow_keys_enter_is_pressed_once_the_option_is_highlighted(tmp_path: Path) -> None:
    async with asyncio.timeout(3 * BOUND):
        async with asked(tmp_path, profile=asking("arrows"), by="--arrows") as turn:
            question = await turn.asks()

            assert await turn.stage.driver.answer(question.id, Choice(option=NO)) == "keys"
            assert "chose: No" in await turn.answered()
            assert turn.keys() == DOWN + b"\r"


@pytest.mark.parametrize(("choose", "by"), [("digit", ""), ("arrows", "--arrows")])
async def test_free_text_goes_into_its_field(tmp_path: Path, choose: str, by: str) -> None:
    async with asyncio.timeout(3 * BOUND):
        async with asked(tmp_path, profile=asking(choose), by=by) as turn:
            question = await turn.asks()

            assert question.takes_text
            assert await turn.stage.driver.answer(question.id, Choice(text="rather\x1b purple\nthan red")) == "keys"
            assert "chose: rather purple than red" in await turn.answered()


async def test_if_a_person_at_the_terminal_answers_first_the_other_answer_is_refused(tmp_path: Path) -> None:
    async with asyncio.timeout(3 * BOUND):
        async with asked(tmp_path) as turn:
            question = await turn.asks()
            turn.stage.program.type_keys(b"2")

            assert "chose: No" in await turn.answered()
            assert turn.resumed_by == ["person"]
            with pytest.raises(QuestionGone):
                await turn.stage.driver.answer(question.id, Choice(option=YES))
            assert turn.keys() == b"2"


async def test_the_next_question_is_another_one_even_if_it_reads_the_same(tmp_path: Path) -> None:
    async with asyncio.timeout(3 * BOUND):
        async with asked(tmp_path, "twice") as turn:
            await turn.asks()
            turn.stage.driver.report(reported("first", "twice"))
            first = await turn.asks(2)
            answering = asyncio.ensure_future(turn.stage.driver.answer(first.id, Choice(option=YES)))
            # It reads the same, so the screen does not show that the first one was taken: only the next word shows it.
            await turn.stage.sees("chose: Yes")
            turn.stage.driver.report(reported("second", "twice"))
            second = await turn.asks(3)

            assert await answering == "keys"
            assert second.id != first.id
            with pytest.raises(QuestionGone):
                await turn.stage.driver.answer(first.id, Choice(option=NO))
            assert turn.keys() == b"1"
            assert await turn.stage.driver.answer(second.id, Choice(option=NO)) == "keys"
            assert "chose: Yes\nchose: No" in await turn.answered()


async def test_a_program_that_does_not_react_is_not_pressed_again(tmp_path: Path) -> None:
    async with asyncio.timeout(3 * BOUND):
        async with asked(tmp_path, "stubborn", profile=asking(proof=0.5)) as turn:
            question = await turn.asks()

            with pytest.raises(AgentUnresponsive):
                await turn.stage.driver.answer(question.id, Choice(option=YES))
            with pytest.raises(QuestionGone):
                await turn.stage.driver.answer(question.id, Choice(option=YES))
            assert turn.keys() == b"1"
            assert turn.stage.driver.view().question == question


@pytest.mark.parametrize("choice", [Choice(option="9"), Choice(), Choice(option=WORDS)])
async def test_an_answer_that_is_not_offered_presses_nothing(tmp_path: Path, choice: Choice) -> None:
    async with asyncio.timeout(3 * BOUND):
        async with asked(tmp_path) as turn:
            question = await turn.asks()

            with pytest.raises(InvalidChoice):
                await turn.stage.driver.answer(question.id, choice)
            with pytest.raises(QuestionGone):
                await turn.stage.driver.answer("another", Choice(option=YES))
            assert turn.keys() == b""


async def test_a_no_that_ends_the_program_was_taken(tmp_path: Path) -> None:
    async with asyncio.timeout(3 * BOUND):
        async with asked(tmp_path, "leave", profile=asking(kind="permission")) as turn:
            question = await turn.asks()

            assert await turn.stage.driver.answer(question.id, Choice(option=NO)) == "keys"
            assert turn.keys() == b"2"


def reported(question_id: str, word: str = "ask") -> SignalReport:
    about = f"it wants\x1b[2J to\nrun {word}"
    question = Question(id=question_id, kind=QuestionKind.PERMISSION, title="May I?", detail=about)
    return SignalReport(kind=SignalKind.WAITING, source=Source.SIGNAL, detail="its hook asks", question=question)


async def test_the_programs_report_and_its_dialog_are_one_question(tmp_path: Path) -> None:
    async with asyncio.timeout(3 * BOUND):
        async with asked(tmp_path, profile=asking(kind="permission")) as turn:
            await turn.asks()
            turn.stage.driver.report(reported("own"))
            question = await turn.asks(2)

            assert question.id == turn.questions[0].id
            assert (question.title, question.detail, question.source) == (
                "May I?",
                "it wants<U+001B>[2J to\nrun ask",
                "signal",
            )
            assert [option.label for option in question.options] == ["Yes", "No", "Say something"]

            def take(question_id: str, choice: Choice) -> bool:
                assert (question_id, choice) == ("own", Choice(option=YES))
                turn.stage.program.type_keys(b"1")
                return True

            turn.stage.adapter.answers = take
            assert await turn.stage.driver.answer(question.id, Choice(option=YES)) == "signal"
            assert "chose: Yes" in await turn.answered()
            assert turn.resumed_by == ["signal"]


async def test_a_number_on_the_screen_becomes_the_programs_own_option(tmp_path: Path) -> None:
    async with asyncio.timeout(3 * BOUND):
        async with asked(tmp_path, profile=asking(kind="permission")) as turn:
            await turn.asks()
            turn.stage.driver.report(reported_with_options("own"))
            question = await turn.asks(2)
            given: list[Choice] = []

            def take(_question_id: str, choice: Choice) -> bool:
                given.append(choice)
                turn.stage.program.type_keys(b"2")
                return True

            turn.stage.adapter.answers = take
            assert [f"{option.key}. {option.label}" for option in question.options[:2]] == ["1. Yes", "2. No"]
            assert await turn.stage.driver.answer(question.id, Choice(option=NO)) == "signal"
            assert given == [Choice(option="no")]


async def test_an_option_that_only_the_screen_offers_is_chosen_by_keys(tmp_path: Path) -> None:
    async with asyncio.timeout(3 * BOUND):
        async with asked(tmp_path, profile=asking(kind="permission")) as turn:
            await turn.asks()
            turn.stage.driver.report(reported_with_options("own", ("always", "Yes, always", OptionEffect.ALLOW_ALWAYS)))
            question = await turn.asks(2)

            assert await turn.stage.driver.answer(question.id, Choice(option=YES)) == "keys"
            assert turn.keys() == b"1"


def reported_with_options(
    question_id: str, yes: tuple[str, str, OptionEffect] = ("yes", "Yes", OptionEffect.ALLOW)
) -> SignalReport:
    """A hook's report whose options have no numbers, and are others than those of the dialog."""
    key, label, effect = yes
    options = (Option(key=key, label=label, effect=effect), Option(key="no", label="No", effect=OptionEffect.DENY))
    report = reported(question_id)
    assert report.question is not None
    return replace(report, question=replace(report.question, options=options))


async def test_after_a_native_answer_was_lost_keys_are_pressed_only_if_it_is_given_again(tmp_path: Path) -> None:
    async with asyncio.timeout(3 * BOUND):
        async with asked(tmp_path, profile=asking(proof=0.5)) as turn:
            await turn.asks()
            turn.stage.driver.report(reported("own"))
            question = await turn.asks(2)
            ways: list[str] = []

            def take(question_id: str, _choice: Choice) -> bool:
                ways.append(question_id)
                return True

            turn.stage.adapter.answers = take
            with pytest.raises(AgentUnresponsive):
                await turn.stage.driver.answer(question.id, Choice(option=YES))
            assert turn.keys() == b""

            await turn.stage.driver.answer(question.id, Choice(option=YES))
            assert "chose: Yes" in await turn.answered()
            assert (turn.keys(), ways) == (b"1", ["own"])


async def test_an_answer_whose_connection_broke_may_have_been_taken(tmp_path: Path) -> None:
    async with asyncio.timeout(3 * BOUND):
        async with asked(tmp_path) as turn:
            await turn.asks()
            turn.stage.driver.report(reported("own"))
            question = await turn.asks(2)

            def take(_question: str, _choice: Choice) -> bool:
                turn.stage.program.type_keys(b"1")
                raise ConnectionResetError

            turn.stage.adapter.answers = take
            assert await turn.stage.driver.answer(question.id, Choice(option=YES)) == "signal"
            assert "chose: Yes" in await turn.answered()
            assert turn.keys() == b"1"


async def test_no_key_is_pressed_while_a_persons_key_is_on_its_way(tmp_path: Path) -> None:
    async with asyncio.timeout(3 * BOUND):
        async with asked(tmp_path, "slow", profile=asking(person=BOUND)) as turn:
            question = await turn.asks()
            turn.stage.program.type_keys(b"2")
            await until(lambda: turn.keys() == b"2", "the person's key")

            with pytest.raises(QuestionGone):
                await turn.stage.driver.answer(question.id, Choice(option=YES))
            assert turn.keys() == b"2"
            assert "> 1" not in turn.stage.screen()


async def test_no_key_is_pressed_once_the_dialog_is_gone(tmp_path: Path) -> None:
    async with asyncio.timeout(3 * BOUND):
        # Until an answer comes from here, the dialog has to stay away.
        async with asked(tmp_path, profile=asking(quiet=2.0)) as turn:
            question = await turn.asks()
            turn.stage.program.type_keys(b"2")
            await turn.stage.sees("chose: No")

            assert turn.stage.driver.view().question == question
            with pytest.raises(QuestionGone):
                await turn.stage.driver.answer(question.id, Choice(option=YES))
            assert "> 1" not in turn.stage.screen()
            assert turn.keys() == b"2"


async def test_a_question_at_the_start_is_seen_without_a_turn_and_the_agent_is_not_ready_before(tmp_path: Path) -> None:
    async with asyncio.timeout(3 * BOUND):
        command = agent("questioner", str(tmp_path / "keys"), "--trust")
        async with staged(command, asking(kind="startup")) as stage:
            await until(lambda: stage.driver.view().question is not None, "a question", stage.screen)
            question = stage.driver.view().question
            assert question is not None
            assert (question.kind, question.hint) == (QuestionKind.STARTUP, "look there")
            waiting = asyncio.ensure_future(stage.driver.wait_ready())
            assert "dialog" in stage.driver.view().gate

            await stage.driver.answer(question.id, Choice(option=YES))
            await asyncio.wait_for(waiting, BOUND)
            assert isinstance((await stage.turn("plain"))[-1], Answered)


@pytest.mark.parametrize(("key", "pressed", "said"), [("Enter", b"\r", "Yes"), ("Esc", b"\x1b", "No")])
async def test_an_option_that_names_its_key_is_chosen_by_that_key_alone(
    tmp_path: Path, key: str, pressed: bytes, said: str
) -> None:
    profile = asking("key", kind="permission", option=r"(?P<key>Enter|Esc) to (?P<label>\w+)", allow="^agree")
    async with asked(tmp_path, profile=profile, by="--keys") as turn:
        question = await turn.asks()
        await turn.stage.driver.answer(question.id, Choice(option=key))
        shown = await turn.answered()

    assert [option.effect for option in question.options] == [OptionEffect.ALLOW, OptionEffect.DENY]
    assert f"chose: {said}" in shown
    assert turn.keys() == pressed


TWO_DIALOGS = """
import os, sys, tty
tty.setraw(0)
for about in ("first", "second"):
    lines = ["─" * 40, f" run {about}", " Go on?", "   1. Yes", "   2. No", " Esc to cancel"]
    os.write(1, ("\\x1b[2J\\x1b[H" + "\\r\\n".join(lines)).encode())
    os.read(0, 1)
"""


async def test_whoever_watches_is_told_of_the_next_question_although_the_state_is_the_same() -> None:
    async with asyncio.timeout(3 * BOUND), staged((sys.executable, "-c", TWO_DIALOGS), asking()) as stage:
        told = asyncio.Event()
        stage.driver.watch(lambda _status: told.set())
        await stage.sees("run first")
        while (first := stage.driver.view().question) is None:
            await told.wait()
            told.clear()
        assert first.detail == "run first"

        told.clear()
        stage.program.type_keys(b"x")
        await told.wait()
        second = stage.driver.view()
        assert (second.state, second.question and second.question.detail) == ("waiting", "run second")


async def test_a_state_keeps_the_date_of_its_start() -> None:
    async with asyncio.timeout(3 * BOUND), staged((sys.executable, "-c", TWO_DIALOGS), asking()) as stage:
        await stage.sees("run first")
        await until(lambda: stage.driver.view().question is not None, "a question", stage.screen)
        dates = {stage.driver.view().since for _ in range(50)}

    assert len(dates) == 1
