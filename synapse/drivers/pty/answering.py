"""Answers a program's questions: by the program's API or hook where it has one, otherwise by keys.

An answer is given only to a question that is proven to be asked now; keys are pressed only into its dialog.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from synapse.core.errors import AgentExited, AgentUnresponsive, InvalidChoice, QuestionGone
from synapse.core.question import Choice, Option, OptionEffect, Question
from synapse.drivers.pty.context import PtyContext
from synapse.terminal.dialog import Dialog
from synapse.terminal.keys import keystrokes
from synapse.terminal.profile import Choosing
from synapse.terminal.questions import OpenQuestion

KEYS: Final = "keys"
SIGNAL: Final = "signal"
PERSON: Final = "person"
"""How a question was answered, as core.driver.Resumed has it."""

NativeAnswer = Callable[[str, Choice], Awaitable[bool]]
"""Answers a question by the program's API or hook; False when it has none for this question."""

_MAX_KEPT: Final = 64
_TAIL_LENGTH: Final = 40
"""So many characters of a text's end show that it stands in a dialog."""
_DENIAL: Final = "The person said no."


class Answerer:
    """Answers questions for one driver."""

    def __init__(self, context: PtyContext) -> None:
        self._context = context
        self.native_answer: NativeAnswer = _no_native_answer
        self._answered: dict[str, str] = {}
        """Question → how it is being answered; it is not answered a second time."""
        self._ignored = ""
        """The last question that was answered natively and is still asked."""
        self.denied = ""
        """The last question that was answered with a no."""

    def answered_by(self, question_id: str) -> str:
        """Returns how the question was answered; by a person at the terminal, if not from here."""
        return self._answered.get(question_id, PERSON)

    async def answer(self, question_id: str, choice: Choice) -> str:
        """Answers the question; returns how (KEYS or SIGNAL) once the question is seen to be gone.

        Raises:
            QuestionGone: it is not asked any more, or is being answered already.
            InvalidChoice: it cannot be answered with this choice.
            AgentUnresponsive: it was answered, and is still asked.
            AgentExited: its program had ended before it was answered.
        """
        # If its dialog was seen before, a look now proves that it is on the screen, whole.
        opened = await self._while_asked(question_id, self._is_whole)
        if opened is None:
            raise _unresponsive("its dialog is not fully visible; no key was pressed")
        self._require_unanswered(question_id)
        _require_offered(opened.question, choice)
        chosen = next((option for option in opened.question.options if option.key == choice.option), None)
        if chosen is not None and chosen.effect is OptionEffect.DENY:
            self.denied = question_id
        native = _native_choice(opened, choice)
        may_answer_natively = bool(opened.own_id) and question_id != self._ignored
        if native is not None and may_answer_natively and await self._answer_natively(opened, native):
            return SIGNAL
        return await self._answer_by_keys(question_id, choice)

    async def _answer_natively(self, opened: OpenQuestion, choice: Choice) -> bool:
        """Answers without keys; False when the program has no way for it.

        Raises AgentUnresponsive when the question is still asked. Keys do not follow by themselves: the answer may be
        under way, and they would go into the next question.
        """
        self._begin(opened.id, SIGNAL)
        is_told = is_gone = False
        try:
            try:
                is_told = await self.native_answer(opened.own_id, choice)
            except (OSError, EOFError, ValueError):
                # The connection broke, and the program may have been told all the same.
                is_told = True
            is_gone = is_told and await self._wait_until_gone(opened.id)
        finally:
            if not is_gone:
                del self._answered[opened.id]
        if is_told and not is_gone:
            self._ignored = opened.id
            raise AgentUnresponsive(
                "it was told the answer, and the question is still there",
                hint="answer again to press its keys, or look at its terminal: `synapse attach`",
            )
        return is_gone

    async def _answer_by_keys(self, question_id: str, choice: Choice) -> str:
        # Wait until it is shown and no key of a person is under way to it. Nothing may be awaited between this and the
        # first key.
        opened = await self._while_asked(
            question_id, lambda opened: self._is_whole(opened) and self._person_due() is None
        )
        if opened is None:
            raise _unresponsive("a person types there, or its dialog is not fully visible; no key was pressed")
        self._require_unanswered(question_id)
        dialog = opened.dialog
        if dialog is None or dialog.choose is Choosing.NONE or not opened.is_shown:
            raise InvalidChoice("it cannot be answered by keys from here", ())
        index = _index_on_screen(dialog, opened.question, choice)
        text = choice.text or _default_text(dialog, index)
        if (text or dialog.choose is Choosing.ARROWS) and dialog.marked is None:
            raise InvalidChoice(
                "the dialog does not show which option is highlighted, so it cannot be answered by keys from here", ()
            )
        self._begin(question_id, KEYS)
        if text:
            await self._write(question_id, dialog, index, text)
        else:
            await self._choose(question_id, dialog, index)
        if not await self._wait_until_gone(question_id):
            raise _unresponsive("its keys were pressed, and the question is still there")
        return KEYS

    def _require_unanswered(self, question_id: str) -> None:
        if question_id in self._answered:
            raise QuestionGone(
                "it was already answered from here, but its program has not gone on",
                hint="look at its terminal: `synapse attach`",
            )

    def _is_whole(self, opened: OpenQuestion) -> bool:
        return opened.dialog is None or self._context.questions.is_seen

    def _person_due(self) -> float | None:
        """Returns when the last key of a person will have had its effect; None when that is past."""
        due = self._context.program.pump.last_key + self._context.profile.times.person
        return due if due > self._context.now() else None

    async def _choose(self, question_id: str, dialog: Dialog, index: int) -> None:
        match dialog.choose:
            case Choosing.DIGIT:
                self._press(dialog.options[index].key.encode())
            case Choosing.LINE:
                self._press(dialog.options[index].key.encode() + self._context.profile.typing.enter)
            case Choosing.KEY:
                self._press(dialog.named_key(index))
            case Choosing.ARROWS | Choosing.NONE:
                await self._highlight(question_id, dialog, index)
                self._press(self._context.profile.typing.enter)

    async def _highlight(self, question_id: str, dialog: Dialog, index: int) -> None:
        """Moves to an option and waits until it is seen to be highlighted: only then may Enter be pressed."""
        self._press(dialog.moves_to(index))
        if not await self._sees(question_id, lambda seen: seen.marked == index):
            # Nothing was chosen, so the question may be answered again.
            self._answered.pop(question_id, None)
            raise _unresponsive("the option was not highlighted; nothing was chosen")

    async def _write(self, question_id: str, dialog: Dialog, index: int, text: str) -> None:
        """Types a person's own text into the field of the option that takes it."""
        if dialog.choose is Choosing.ARROWS:
            await self._highlight(question_id, dialog, index)
        else:
            self._press(dialog.options[index].key.encode())
            if not await self._sees(question_id, lambda seen: seen.marked == index):
                raise _unresponsive("the field for the text did not open; nothing was written")
        picture = self._context.look().picture
        line = " ".join(text.split())
        typed = keystrokes(line, self._context.profile, bracketed_paste=bool(picture and picture.bracketed_paste))
        self._press(typed.data)
        if not await self._shows(question_id, typed.shown):
            raise _unresponsive("the text does not appear in its dialog; it was not submitted")
        self._press(self._context.profile.typing.enter)

    async def _wait_until_gone(self, question_id: str) -> bool:
        """Waits until the question is not asked any more; False when it stays. A denial may end the program."""
        try:
            return await self._until(lambda opened: opened is None or opened.id != question_id)
        except AgentExited:
            return True

    async def _sees(self, question_id: str, condition: Callable[[Dialog], bool]) -> bool:
        """Waits until its dialog meets the condition; False when it takes too long. Raises QuestionGone."""

        def holds(opened: OpenQuestion) -> bool:
            return self._context.questions.is_seen and opened.dialog is not None and condition(opened.dialog)

        return await self._while_asked(question_id, holds) is not None

    async def _shows(self, question_id: str, line: str) -> bool:
        """Waits until the end of a text is on the screen with its dialog, however it is wrapped; False as in `_sees`.

        Raises QuestionGone.
        """
        squeezed = _squeezed(line)[-_TAIL_LENGTH:]

        def holds(_opened: OpenQuestion) -> bool:
            picture = self._context.watcher.latest().picture
            is_there = picture is not None and squeezed in _squeezed("".join(picture.lines))
            return is_there and self._context.questions.is_seen

        return await self._while_asked(question_id, holds) is not None

    async def _while_asked(self, question_id: str, condition: Callable[[OpenQuestion], bool]) -> OpenQuestion | None:
        """Returns the question as soon as it meets the condition; None when it takes too long. Raises QuestionGone."""
        seen: list[OpenQuestion | None] = []

        def holds(opened: OpenQuestion | None) -> bool:
            seen[:] = [opened]
            return opened is None or opened.id != question_id or condition(opened)

        is_reached = await self._until(holds)
        opened = seen[0]
        if opened is None or opened.id != question_id:
            raise QuestionGone("it is not asked any more: it was answered first, perhaps in its terminal")
        return opened if is_reached else None

    async def _until(self, condition: Callable[[OpenQuestion | None], bool]) -> bool:
        """Waits until the open question meets the condition; False when the program takes longer than it may."""
        context = self._context
        end = context.now() + context.profile.times.proof
        while not condition(context.open_question(context.look())):
            if context.now() >= end:
                return False
            await context.watcher.next_look(context.questions.deadline, self._person_due(), end)
        return True

    def _press(self, data: bytes) -> None:
        self._context.program.write(data)

    def _begin(self, question_id: str, how: str) -> None:
        self._answered[question_id] = how
        while len(self._answered) > _MAX_KEPT:
            del self._answered[next(iter(self._answered))]


def _require_offered(question: Question, choice: Choice) -> None:
    offered = [option.key for option in question.options]
    if choice.text and not question.takes_text:
        raise InvalidChoice("this question takes no text of your own", offered)
    if not choice.text and choice.option not in offered:
        raise InvalidChoice(f"'{choice.option}' is not offered", offered)


def _native_choice(opened: OpenQuestion, choice: Choice) -> Choice | None:
    """Returns the choice in terms of the options that the program reported; None if not exactly one of them fits."""
    reported = opened.report.question if opened.report else None
    if reported is None or choice.text or not opened.is_renumbered:
        return choice
    chosen = next(option for option in opened.question.options if option.key == choice.option)
    same = [option for option in reported.options if _means_same(option, chosen)]
    return Choice(option=same[0].key) if len(same) == 1 else None


def _index_on_screen(dialog: Dialog, question: Question, choice: Choice) -> int:
    """Returns the index of the chosen option in the dialog, whose options may differ from those of the question."""
    if choice.text:
        if dialog.text_option is None:
            raise InvalidChoice("text of your own can be given only in its terminal", ())
        return dialog.text_option
    if question.options == dialog.options:
        return next(index for index, option in enumerate(dialog.options) if option.key == choice.option)
    chosen = next(option for option in question.options if option.key == choice.option)
    same = [index for index, shown in enumerate(dialog.options) if _means_same(shown, chosen)]
    if len(same) != 1:
        raise InvalidChoice("the dialog on its screen has no such option, or more than one", ())
    return same[0]


def _default_text(dialog: Dialog, index: int) -> str:
    """Returns the text for an option that requires one when none was given; empty for other options."""
    if index != dialog.text_option:
        return ""
    if dialog.options[index].effect is OptionEffect.DENY:
        return _DENIAL
    raise InvalidChoice("that option needs text of your own: give the text instead of the option", ())


def _means_same(shown: Option, chosen: Option) -> bool:
    if shown.label.lower() == chosen.label.lower():
        return True
    return shown.effect is chosen.effect and chosen.effect in (OptionEffect.ALLOW, OptionEffect.DENY)


def _squeezed(text: str) -> str:
    return "".join(text.split()).replace("│", "").replace("┃", "")


def _unresponsive(why: str) -> AgentUnresponsive:
    return AgentUnresponsive(why, hint="look at its terminal: `synapse attach`")


async def _no_native_answer(_question_id: str, _choice: Choice) -> bool:
    return False
