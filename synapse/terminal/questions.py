"""Which question is open: what the program says it asks and what its terminal shows, as one. Time is an argument.

    nothing ──a dialog, or the program's word──> open ──the dialog is gone, and stays so──> nothing
                                                   └──another dialog, or another word──> open (the next one)

The program's words and its own options come first, then those of the dialog; but options whose numbers mean something
else on the screen give way to those of the screen. The id stays for as long as the same is
asked, and the next question has another one, even if it reads the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from synapse.core.agent import WAITING
from synapse.core.question import Option, OptionEffect, Question, QuestionKind
from synapse.core.text import safe_line, safe_lines
from synapse.terminal.dialog import Dialog, read_dialog
from synapse.terminal.evidence import Look
from synapse.terminal.profile import Profile
from synapse.terminal.signals.report import SignalKind, SignalReport

_GRACE: Final = 0.7
"""How long the dialog may take to appear that the program told of; it knows more about the options."""
_SHORT_GRACE: Final = 0.2
"""The same where the program has told its options: only a hook of the person's own may still answer first."""
_LONG_GRACE: Final = 2.5
"""The same where nothing is known but that it waits: some say so before they paint it."""
_STEADY: Final = 0.5
"""So long a dialog is seen to be the same before it counts while the program goes on painting."""
_STEADY_FRAME: Final = 0.05
"""The same where each picture is a whole frame: the next may still add to it."""
_TELLING_LENGTH: Final = 30
_LOOK_THERE: Final = "look at its terminal"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenQuestion:
    """A question that is asked now, and by what it is known."""

    id: str
    since: float
    told: SignalReport | None = None
    dialog: Dialog | None = None

    @property
    def own_id(self) -> str:
        """The program's name for it, or empty."""
        return self.told.question.id if self.told and self.told.question else ""

    @property
    def is_shown(self) -> bool:
        """True if its dialog is on the screen, and is about what the program told; of several, one is shown."""
        told = self.told.question if self.told else None
        if self.dialog is None or told is None:
            return self.dialog is not None
        about = (told.detail.strip() or told.title).split("\n")[-1]
        return _squeezed(safe_line(about))[:_TELLING_LENGTH] in _squeezed(f"{self.dialog.title} {self.dialog.detail}")

    @property
    def is_renumbered(self) -> bool:
        """True if the options that the program told stand on its screen under other numbers, so that those count.

        A person may look at the screen while they answer from elsewhere: 3 has to mean the same in both places.
        """
        told = self.told.question if self.told else None
        if told is None or self.dialog is None or not self.is_shown:
            return False
        return not _are_numbered_alike(told.options, self.dialog.options)

    @property
    def question(self) -> Question:
        """It, as people see it."""
        told, dialog = self.told.question if self.told else None, self.dialog
        if told is not None and not told.options and dialog is not None and not self.is_shown:
            # It is answered on the screen, so what the screen asks is what counts.
            told = None
        question = Question(
            id=self.id,
            kind=dialog.kind if dialog else QuestionKind.PERMISSION,
            title=dialog.title if dialog else "it waits for a person",
            detail=dialog.detail if dialog else safe_lines(self.told.text if self.told else ""),
            options=dialog.options if dialog else (),
            # Words where a permission is asked are said together with a no, and only then.
            takes_text=dialog is not None and dialog.text_option is not None and dialog.kind is QuestionKind.CHOICE,
            hint=dialog.hint if dialog else _LOOK_THERE,
        )
        if told is not None and self.told is not None:
            # Where the two do not agree, the stricter counts.
            is_agreed = dialog is None or dialog.kind is told.kind
            told = replace(told, source=self.told.source)
            if self.is_renumbered:
                told = replace(told, options=())
            question = _in_its_words(question, told, is_agreed=is_agreed)
        # What can be answered from here needs no advice, unless it is about more than this answer.
        is_plain = bool(question.options) and question.kind is not QuestionKind.STARTUP
        return replace(question, hint="") if is_plain else question


class QuestionTracker:
    """Follows what one program asks."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._told: SignalReport | None = None
        self._open: OpenQuestion | None = None
        self._past = ""
        """The dialog of the question before, which may still be on the screen when the next is told."""
        self._count = 0
        self._absent_since: float | None = None
        self._changing: tuple[str, float] | None = None
        """Another dialog that may be half painted, and since when it is seen."""
        self._wake_at: float | None = None
        self._is_seen = False

    @property
    def is_open(self) -> bool:
        """True if something is asked, though its dialog may not have been seen yet."""
        return self._open is not None

    @property
    def is_seen(self) -> bool:
        """True if the dialog of what is asked was on the screen in the last look, whole: only then keys answer it."""
        return self._is_seen

    @property
    def deadline(self) -> float | None:
        """When `see` is next worth calling even if nothing happens."""
        return self._wake_at

    def has(self, own_id: str) -> bool:
        """True while what the program told under this id is asked."""
        told = self._told.question if self._told else None
        return own_id in ((told.id if told else ""), (self._open.own_id if self._open else ""))

    def hear(self, report: SignalReport) -> None:
        """Take what the program says of its turn."""
        self._told = report if report.told is SignalKind.WAITING else None

    def see(self, look: Look, now: float, *, is_told_by_title: bool = False) -> OpenQuestion | None:
        """Take what is seen now; return what is asked.

        `is_told_by_title` if the program tells the terminal that it waits: then a menu is more than that.
        """
        self._wake_at = None
        is_whole = look.picture is not None and not look.is_half_painted
        dialog = read_dialog(look.picture, self._profile) if look.picture is not None and is_whole else None
        if is_whole:
            self._judge(look, dialog, now, is_told_by_title=is_told_by_title)
        opened = self._open
        self._is_seen = bool(dialog and opened and opened.dialog and opened.dialog.digest == dialog.digest)
        if opened is None or opened.dialog is not None:
            return opened
        return opened if self._has_passed(opened.since + _grace(opened.told), now) else None

    def _judge(self, look: Look, dialog: Dialog | None, now: float, *, is_told_by_title: bool) -> None:
        is_menu = bool(look.dialog) and dialog is None
        dialog = self._steady(look, dialog, now)
        if look.state != WAITING:
            # Something later than the program's word says that it goes on.
            self._told = None
        is_asked = self._told is not None or (look.state == WAITING and (is_told_by_title or not is_menu))
        if dialog is None and (not is_asked or (self._open is not None and self._open.dialog is not None)):
            self._miss(now)
            return
        self._absent_since = None
        if self._open is None or not self._is_same(self._open, dialog):
            self._begin(now)
        opened = self._open
        if opened is not None and (self._told, dialog) != (opened.told, opened.dialog):
            self._open = replace(opened, told=self._told or opened.told, dialog=self._present(opened, dialog, now))

    def _steady(self, look: Look, dialog: Dialog | None, now: float) -> Dialog | None:
        """The dialog, unless it is another one and may be half painted: then what was there before."""
        shown = self._open.dialog if self._open else None
        if dialog is None or (shown is not None and shown.digest == dialog.digest):
            self._changing = None
            return dialog
        if self._changing is None or self._changing[0] != dialog.digest:
            self._changing = dialog.digest, now
        is_quiet = look.quiet_for >= self._profile.times.quiet
        patience = _STEADY_FRAME if look.paints_frames else _STEADY
        if not is_quiet and not self._has_passed(self._changing[1] + patience, now):
            return shown
        self._changing = None
        return dialog

    def _is_same(self, opened: OpenQuestion, dialog: Dialog | None) -> bool:
        is_dialog_other = dialog and opened.dialog and dialog.digest != opened.dialog.digest
        if is_dialog_other and self._told is opened.told:
            # The next dialog is there before its word: what was told is about the one before.
            self._told = None
        if is_dialog_other:
            return False
        if self._told is None or opened.told is None or self._told is opened.told:
            return True
        return bool(self._told.question and self._told.question.id == opened.own_id)

    def _present(self, opened: OpenQuestion, dialog: Dialog | None, now: float) -> Dialog | None:
        """The dialog, unless it is still that of the question before."""
        if dialog is None or dialog.digest != self._past or opened.dialog is not None or self._told is None:
            return dialog or opened.dialog
        return dialog if self._has_passed(opened.since + _GRACE, now) else None

    def _begin(self, now: float) -> None:
        self._past = self._open.dialog.digest if self._open and self._open.dialog else ""
        self._count += 1
        own = self._told.question.id if self._told and self._told.question else ""
        self._open = OpenQuestion(id=own or f"q{self._count}", since=now)

    def _miss(self, now: float) -> None:
        """A full-screen program erases before it repaints: absence has to last."""
        if self._open is None:
            return
        if self._absent_since is None:
            self._absent_since = now
        if self._has_passed(self._absent_since + self._profile.times.quiet, now):
            if self._told is self._open.told:
                self._told = None
            self._open, self._absent_since, self._past = None, None, ""
            # What the program does now is worth a look at once.
            self._wake_at = now

    def _has_passed(self, moment: float, now: float) -> bool:
        if now < moment:
            self._wake_at = moment if self._wake_at is None else min(self._wake_at, moment)
        return now >= moment


def _grace(told: SignalReport | None) -> float:
    if told is None:
        return _LONG_GRACE
    return _SHORT_GRACE if told.question and told.question.options else _GRACE


def _in_its_words(shown: Question, told: Question, *, is_agreed: bool) -> Question:
    options = tuple(_safe_option(option) for option in told.options)
    return replace(
        shown,
        kind=told.kind if is_agreed else QuestionKind.PERMISSION,
        title=safe_line(told.title) or shown.title,
        detail=safe_lines(told.detail) or shown.detail,
        options=options or shown.options,
        takes_text=told.takes_text if options else told.takes_text or shown.takes_text,
        source=told.source,
        hint=safe_line(told.hint) or shown.hint,
    )


def _are_numbered_alike(told: tuple[Option, ...], shown: tuple[Option, ...]) -> bool:
    """Whether each option that the program tells is on its screen under the same key, and means the same there.

    True also when its dialog shows no options that could be chosen.
    """
    by_key = {option.key: option for option in shown}
    return not shown or all(option.key in by_key and _is_same(option, by_key[option.key]) for option in told)


def _is_same(told: Option, shown: Option) -> bool:
    if told.leaning is not shown.leaning:
        return False
    return told.leaning is not OptionEffect.OTHER or _squeezed(told.label.lower()) == _squeezed(shown.label.lower())


def _squeezed(text: str) -> str:
    return "".join(text.split())


def _safe_option(option: Option) -> Option:
    return replace(option, key=safe_line(option.key), label=safe_line(option.label))
