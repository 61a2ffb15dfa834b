"""Answers what a program asks: its own way where it has one, else by keys, and only what is proven to be asked now."""

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
"""Who answered."""

OwnWay = Callable[[str, Choice], Awaitable[bool]]
"""Gives an answer to the program its own way; False when it has none for this question."""

_MOST_KEPT: Final = 64
_TELLING_LENGTH: Final = 40
_NO: Final = "The person said no."


class Answerer:
    """Answers for one driver."""

    def __init__(self, station: PtyContext) -> None:
        self._station = station
        self.own_way: OwnWay = _no_own_way
        self._answered: dict[str, str] = {}
        """Question → how it is being answered; nobody answers it a second time."""
        self._stood = ""
        """The question that was last answered its own way, and stood all the same."""
        self.denied = ""
        """The question that was last answered with a no."""

    def answered_by(self, question_id: str) -> str:
        """Who answered; a person, when nobody did it from here."""
        return self._answered.get(question_id, PERSON)

    async def answer(self, question_id: str, choice: Choice) -> str:
        """Answer, and return how once the question is seen to be gone.

        Raises:
            QuestionGone: it is not asked any more, or somebody answers it already.
            InvalidChoice: it cannot be answered so.
            AgentUnresponsive: it was answered, and is still asked.
            AgentExited: its program had ended before it was answered.
        """
        opened = await self._shown(question_id)
        self._require_unanswered(question_id)
        _require_offered(opened.question, choice)
        if _is_denial(opened.question, choice):
            self.denied = question_id
        own = _own_choice(opened, choice)
        if opened.own_id and own is not None and question_id != self._stood and await self._take_own_way(opened, own):
            return SIGNAL
        return await self._press(question_id, choice)

    async def _take_own_way(self, opened: OpenQuestion, choice: Choice) -> bool:
        """Answer without keys; False when there is no such way. Raises AgentUnresponsive when the question stands.

        Keys do not follow by themselves: the answer may be on its way, and they would meet what is asked next.
        """
        self._begin(opened.id, SIGNAL)
        is_told = is_gone = False
        try:
            is_told = await self._tell(opened.own_id, choice)
            is_gone = is_told and await self._goes(opened.id)
        finally:
            if not is_gone:
                del self._answered[opened.id]
        if is_told and not is_gone:
            self._stood = opened.id
            raise AgentUnresponsive(
                "it was told the answer, and the question is still there",
                hint="answer once more, then it is done by keys; or look at its terminal: `synapse attach`",
            )
        return is_gone

    async def _tell(self, own_id: str, choice: Choice) -> bool:
        try:
            return await self.own_way(own_id, choice)
        except (OSError, EOFError, ValueError):
            # The connection broke, and it may have been told all the same.
            return True

    async def _press(self, question_id: str, choice: Choice) -> str:
        opened = await self._left_alone(question_id)
        self._require_unanswered(question_id)
        dialog = opened.dialog
        if dialog is None or dialog.choose is Choosing.NONE or not opened.is_shown:
            raise InvalidChoice("it cannot be answered by keys from here", ())
        index = _index_on_screen(dialog, opened.question, choice)
        words = choice.text or _words_for(dialog, index)
        if (words or dialog.choose is Choosing.ARROWS) and dialog.marked is None:
            raise InvalidChoice("nothing shows what is highlighted, so it cannot be answered by keys from here", ())
        self._begin(question_id, KEYS)
        if words:
            await self._write(question_id, dialog, index, words)
        else:
            await self._choose(question_id, dialog, index)
        if not await self._goes(question_id):
            raise _stands("its keys were pressed, and the question is still there")
        return KEYS

    def _require_unanswered(self, question_id: str) -> None:
        if question_id in self._answered:
            raise QuestionGone(
                "it was answered from here already, and its program has not gone on",
                hint="look at its terminal: `synapse attach`",
            )

    async def _shown(self, question_id: str) -> OpenQuestion:
        """The question; if its dialog was seen before, a look taken now proves that it is on the screen, whole."""
        opened = await self._while_asked(question_id, self._is_whole)
        if opened is None:
            raise _stands("its dialog is not to be seen whole; nothing was pressed")
        return opened

    async def _left_alone(self, question_id: str) -> OpenQuestion:
        """The same, when no key of a person is on its way to it. Nothing may be awaited between this and keys."""
        opened = await self._while_asked(
            question_id, lambda opened: self._is_whole(opened) and self._person_due() is None
        )
        if opened is None:
            raise _stands("a person types there, or its dialog is not to be seen whole; nothing was pressed")
        return opened

    def _is_whole(self, opened: OpenQuestion) -> bool:
        return opened.dialog is None or self._station.asking.is_seen

    def _person_due(self) -> float | None:
        """When the last key of a person has had its effect; None when that is past."""
        due = self._station.program.pump.last_key + self._station.profile.times.person
        return due if due > self._station.now() else None

    async def _choose(self, question_id: str, dialog: Dialog, index: int) -> None:
        match dialog.choose:
            case Choosing.DIGIT:
                self._keys(dialog.options[index].key.encode())
            case Choosing.LINE:
                self._keys(dialog.options[index].key.encode() + self._station.profile.typing.enter)
            case Choosing.ARROWS | Choosing.NONE:
                await self._highlight(question_id, dialog, index)
                self._keys(self._station.profile.typing.enter)

    async def _highlight(self, question_id: str, dialog: Dialog, index: int) -> None:
        """Move to an option; Enter is pressed only on what is seen to be highlighted."""
        self._keys(dialog.moves_to(index))
        if not await self._sees(question_id, lambda seen: seen.marked == index):
            # Nothing was chosen, so it may be tried again.
            self._answered.pop(question_id, None)
            raise _stands("the option did not become highlighted; nothing was chosen")

    async def _write(self, question_id: str, dialog: Dialog, index: int, text: str) -> None:
        """Words of one's own, in the field of the option that takes them."""
        if dialog.choose is Choosing.ARROWS:
            await self._highlight(question_id, dialog, index)
        else:
            self._keys(dialog.options[index].key.encode())
            if not await self._sees(question_id, lambda seen: seen.marked == index):
                raise _stands("the field for the text did not open; nothing was written")
        picture = self._station.look().picture
        line = " ".join(text.split())
        typed = keystrokes(line, self._station.profile, bracketed_paste=bool(picture and picture.bracketed_paste))
        self._keys(typed.data)
        if not await self._shows(question_id, typed.shown):
            raise _stands("the text is not to be seen in its dialog; it was not sent")
        self._keys(self._station.profile.typing.enter)

    async def _goes(self, question_id: str) -> bool:
        """Wait until the question is not asked any more; False when it stays. A no may end the program."""
        try:
            return await self._until(lambda opened: opened is None or opened.id != question_id)
        except AgentExited:
            return True

    async def _sees(self, question_id: str, condition: Callable[[Dialog], bool]) -> bool:
        """Wait until its dialog is seen to be so. Raises QuestionGone."""

        def holds(opened: OpenQuestion) -> bool:
            return self._station.asking.is_seen and opened.dialog is not None and condition(opened.dialog)

        return await self._while_asked(question_id, holds) is not None

    async def _shows(self, question_id: str, line: str) -> bool:
        """Wait until the end of a text is on the screen with its dialog, however it is wrapped. Raises QuestionGone."""
        squeezed = _squeezed(line)[-_TELLING_LENGTH:]

        def holds(_opened: OpenQuestion) -> bool:
            picture = self._station.lookout.latest().picture
            is_there = picture is not None and squeezed in _squeezed("".join(picture.lines))
            return is_there and self._station.asking.is_seen

        return await self._while_asked(question_id, holds) is not None

    async def _while_asked(self, question_id: str, condition: Callable[[OpenQuestion], bool]) -> OpenQuestion | None:
        """The question as soon as that holds for it; None when it takes too long. Raises QuestionGone."""
        seen: list[OpenQuestion | None] = []

        def holds(opened: OpenQuestion | None) -> bool:
            seen[:] = [opened]
            return opened is None or opened.id != question_id or condition(opened)

        is_reached = await self._until(holds)
        opened = _same(seen[0], question_id)
        return opened if is_reached else None

    async def _until(self, condition: Callable[[OpenQuestion | None], bool]) -> bool:
        """Wait until it holds, but no longer than the program may take to do what it was told."""
        station = self._station
        end = station.now() + station.profile.times.proof
        while not condition(station.asked(station.look())):
            if station.now() >= end:
                return False
            moments = (station.asking.deadline, self._person_due(), end)
            await station.lookout.next_look(min(moment for moment in moments if moment is not None))
        return True

    def _keys(self, data: bytes) -> None:
        self._station.program.write(data)

    def _begin(self, question_id: str, how: str) -> None:
        self._answered[question_id] = how
        while len(self._answered) > _MOST_KEPT:
            del self._answered[next(iter(self._answered))]


def _same(opened: OpenQuestion | None, question_id: str) -> OpenQuestion:
    """The question that is asked, if it is this one."""
    if opened is None or opened.id != question_id:
        raise QuestionGone("it is not asked any more: somebody answered first, perhaps in its terminal")
    return opened


def _require_offered(question: Question, choice: Choice) -> None:
    offered = [option.key for option in question.options]
    if choice.text and not question.takes_text:
        raise InvalidChoice("words of one's own cannot be given there", offered)
    if not choice.text and choice.option not in offered:
        raise InvalidChoice(f"'{choice.option}' is not offered", offered)


def _is_denial(question: Question, choice: Choice) -> bool:
    chosen = next((option for option in question.options if option.key == choice.option), None)
    return chosen is not None and chosen.leaning is OptionEffect.DENY


def _own_choice(opened: OpenQuestion, choice: Choice) -> Choice | None:
    """The same choice among the options that the program told; None when it told none that means this one alone."""
    told = opened.report.question if opened.report else None
    if told is None or choice.text or not opened.is_renumbered:
        return choice
    chosen = next(option for option in opened.question.options if option.key == choice.option)
    same = [option for option in told.options if _amounts_to(option, chosen)]
    return Choice(option=same[0].key) if len(same) == 1 else None


def _index_on_screen(dialog: Dialog, question: Question, choice: Choice) -> int:
    """Which option of the dialog is meant; the program's own options may be others than those that it shows."""
    if choice.text:
        if dialog.text_option is None:
            raise InvalidChoice("words of one's own can be given only in its terminal", ())
        return dialog.text_option
    if question.options == dialog.options:
        return next(index for index, option in enumerate(dialog.options) if option.key == choice.option)
    chosen = next(option for option in question.options if option.key == choice.option)
    same = [index for index, shown in enumerate(dialog.options) if _amounts_to(shown, chosen)]
    if len(same) != 1:
        raise InvalidChoice("the dialog on its screen has no such option, or several", ())
    return same[0]


def _words_for(dialog: Dialog, index: int) -> str:
    """What is said with an option that wants words, when none were given."""
    if index != dialog.text_option:
        return ""
    if dialog.options[index].leaning is OptionEffect.DENY:
        return _NO
    raise InvalidChoice("that option wants words of one's own: give them instead of it", ())


def _amounts_to(shown: Option, chosen: Option) -> bool:
    if shown.label.lower() == chosen.label.lower():
        return True
    return shown.leaning is chosen.leaning and chosen.leaning in (OptionEffect.ALLOW, OptionEffect.DENY)


def _squeezed(text: str) -> str:
    return "".join(text.split()).replace("│", "").replace("┃", "")


def _stands(why: str) -> AgentUnresponsive:
    return AgentUnresponsive(why, hint="look at its terminal: `synapse attach`")


async def _no_own_way(_question_id: str, _choice: Choice) -> bool:
    return False
