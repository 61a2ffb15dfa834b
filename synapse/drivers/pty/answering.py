"""Answers what a program asks: its own way where it has one, else by keys, and only what is proven to be asked now."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from synapse.core.errors import AgentUnresponsive
from synapse.core.question import Choice, Leaning, Option, Question
from synapse.core.question_errors import InvalidChoice, QuestionGone
from synapse.drivers.pty.station import Station
from synapse.terminal.asking import Open
from synapse.terminal.dialog import Dialog
from synapse.terminal.keystrokes import keystrokes
from synapse.terminal.rules import Choosing

KEYS: Final = "keys"
SIGNAL: Final = "signal"
PERSON: Final = "person"
"""Who answered."""

OwnWay = Callable[[str, Choice], Awaitable[bool]]
"""Gives an answer to the program its own way; False when it has none for this question."""

_OWN_WAY_SECONDS: Final = 3.0
"""How long a program may take to close a dialog that was answered its own way; then keys are tried."""
_MOST_KEPT: Final = 64
_TELLING_LENGTH: Final = 40
_NO: Final = "The person said no."


class Answerer:
    """Answers for one driver."""

    def __init__(self, station: Station) -> None:
        self._station = station
        self.own_way: OwnWay = _no_own_way
        self._answered: dict[str, str] = {}
        """Question → how it is being answered; nobody answers it a second time."""
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
            AgentExited: nobody asks any more.
        """
        opened = self._still_asked(question_id)
        if question_id in self._answered:
            raise QuestionGone(
                "it was answered from here already, and its program has not gone on",
                hint="look at its terminal: `synapse attach`",
            )
        _require_offered(opened.question, choice)
        if _is_denial(opened.question, choice):
            self.denied = question_id
        if opened.own_id and await self._take_own_way(opened, choice):
            return SIGNAL
        return await self._press(question_id, choice)

    async def _take_own_way(self, opened: Open, choice: Choice) -> bool:
        self._begin(opened.id, SIGNAL)
        is_taken = False
        try:
            is_taken = await self.own_way(opened.own_id, choice) and await self._goes(
                opened.id, self._patience(_OWN_WAY_SECONDS)
            )
        finally:
            if not is_taken:
                del self._answered[opened.id]
        return is_taken

    async def _press(self, question_id: str, choice: Choice) -> str:
        if not await self._until(lambda _opened: not self._station.asking.is_changing, self._patience()):
            raise _stands("its dialog is being painted all the time; nothing was pressed")
        opened = self._still_asked(question_id)
        dialog = opened.dialog
        if dialog is None or dialog.choose is Choosing.NONE or not opened.is_shown:
            raise InvalidChoice("it cannot be answered by keys from here", ())
        index = _index_on_screen(dialog, opened.question, choice)
        words = choice.text or _words_for(dialog, index)
        self._begin(question_id, KEYS)
        if words:
            await self._write(question_id, dialog, index, words)
        else:
            await self._choose(question_id, dialog, index)
        if not await self._goes(question_id, self._patience()):
            raise _stands("its keys were pressed, and the question is still there")
        return KEYS

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
        if dialog.marked is None:
            raise InvalidChoice("nothing shows what is highlighted, so it cannot be answered by keys from here", ())
        self._keys(dialog.moves_to(index))
        if not await self._sees(question_id, lambda seen: seen.marked == index):
            raise _stands("the option did not become highlighted; nothing was chosen")

    async def _write(self, question_id: str, dialog: Dialog, index: int, text: str) -> None:
        """Words of one's own, in the field of the option that takes them."""
        if dialog.choose is Choosing.ARROWS:
            await self._highlight(question_id, dialog, index)
        else:
            self._keys(dialog.options[index].key.encode())
            if dialog.marked is not None and not await self._sees(question_id, lambda seen: seen.marked == index):
                raise _stands("the field for the text did not open; nothing was written")
        picture = self._station.look().picture
        line = " ".join(text.split())
        typed = keystrokes(line, self._station.profile, bracketed_paste=bool(picture and picture.bracketed_paste))
        self._keys(typed.data)
        if not await self._shows(typed.shown):
            raise _stands("the text is not to be seen in its dialog; it was not sent")
        self._keys(self._station.profile.typing.enter)

    def _still_asked(self, question_id: str) -> Open:
        """The question, if a look taken now proves that it is asked."""
        opened = self._station.asked(self._station.look())
        if opened is None or opened.id != question_id:
            raise QuestionGone("it is not asked any more: somebody answered first, perhaps in its terminal")
        return opened

    async def _goes(self, question_id: str, seconds: float) -> bool:
        """Wait until the question is not asked any more; False when it stays."""
        return await self._until(lambda opened: opened is None or opened.id != question_id, seconds)

    async def _sees(self, question_id: str, condition: Callable[[Dialog], bool]) -> bool:
        """Wait until its dialog is seen to be so."""

        def holds(opened: Open | None) -> bool:
            dialog = opened.dialog if opened and opened.id == question_id else None
            return dialog is not None and condition(dialog)

        return await self._until(holds, self._patience())

    async def _shows(self, line: str) -> bool:
        """Wait until the end of a text is on the screen, however it is wrapped and framed."""
        squeezed = _squeezed(line)[-_TELLING_LENGTH:]

        def holds(_opened: Open | None) -> bool:
            picture = self._station.lookout.latest().picture
            return picture is not None and squeezed in _squeezed("".join(picture.lines))

        return await self._until(holds, self._patience())

    async def _until(self, condition: Callable[[Open | None], bool], seconds: float) -> bool:
        station = self._station
        end = station.now() + seconds
        while not condition(station.asked(station.look())):
            if station.now() >= end:
                return False
            await station.lookout.next_look(min(end, station.asking.deadline or end))
        return True

    def _patience(self, most: float = float("inf")) -> float:
        """How long the program may take to do what it was told, in seconds."""
        return min(self._station.profile.times.proof, most)

    def _keys(self, data: bytes) -> None:
        self._station.program.write(data)

    def _begin(self, question_id: str, how: str) -> None:
        self._answered[question_id] = how
        while len(self._answered) > _MOST_KEPT:
            del self._answered[next(iter(self._answered))]


def _require_offered(question: Question, choice: Choice) -> None:
    offered = [option.key for option in question.options]
    if choice.text and not question.takes_text:
        raise InvalidChoice("words of one's own cannot be given there", offered)
    if not choice.text and choice.option not in offered:
        raise InvalidChoice(f"'{choice.option}' is not offered", offered)


def _is_denial(question: Question, choice: Choice) -> bool:
    chosen = next((option for option in question.options if option.key == choice.option), None)
    return chosen is not None and chosen.leaning is Leaning.DENY


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
    if dialog.options[index].leaning is Leaning.DENY:
        return _NO
    raise InvalidChoice("that option wants words of one's own: give them instead of it", ())


def _amounts_to(shown: Option, chosen: Option) -> bool:
    if shown.label.lower() == chosen.label.lower():
        return True
    return shown.leaning is chosen.leaning and chosen.leaning in (Leaning.ALLOW, Leaning.DENY)


def _squeezed(text: str) -> str:
    return "".join(text.split()).replace("│", "").replace("┃", "")


def _stands(why: str) -> AgentUnresponsive:
    return AgentUnresponsive(why, hint="look at its terminal: `synapse attach`")


async def _no_own_way(_question_id: str, _choice: Choice) -> bool:
    return False
