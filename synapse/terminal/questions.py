"""Decides which question is open, from the program's report and the dialog on its screen. Callers pass the time.

    nothing ──a dialog, or a report──> open ──the dialog is gone, and stays so──> nothing
                                         └──another dialog, or another report──> open (the next question)

The report's text and options come first, then those of the dialog. But if the screen numbers the options differently,
those of the screen count. A question keeps its id while it is asked; the next one has another id, even if it reads the
same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from synapse.core.agent import WAITING
from synapse.core.question import Option, OptionEffect, Question, QuestionKind
from synapse.core.text import one_line, safe_line, safe_lines, without_names
from synapse.terminal.dialog import Dialog, read_dialog
from synapse.terminal.evidence import Look
from synapse.terminal.profile import Profile
from synapse.terminal.reading import compact
from synapse.terminal.signals.report import SignalKind, SignalReport

_GRACE: Final = 0.7
"""How long a reported question waits for its dialog, which knows more about the options."""
_SHORT_GRACE: Final = 0.2
"""Replaces `_GRACE` if the report has options: only a person's own hook may still answer first."""
_LONG_GRACE: Final = 2.5
"""Replaces `_GRACE` if only the state is known: some programs report that they wait before they paint the dialog."""
_STEADY: Final = 0.5
"""How long a dialog must stay unchanged before it counts while the program goes on painting."""
_STEADY_FRAME: Final = 0.05
"""Replaces `_STEADY` if each picture is a whole frame: the next one may still add to the dialog."""
_TELLING_LENGTH: Final = 30
_LOOK_THERE: Final = "look at its terminal"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenQuestion:
    """A question that is asked now, with the report and the dialog that show it."""

    id: str
    since: float
    report: SignalReport | None = None
    dialog: Dialog | None = None

    @property
    def own_id(self) -> str:
        """The program's own id for it, or empty."""
        return self._reported.id if self._reported else ""

    @property
    def is_shown(self) -> bool:
        """True if its dialog is on the screen and matches the report; a program shows one of several questions."""
        if self.dialog is None or self._reported is None:
            return self.dialog is not None
        subject = (self._reported.detail.strip() or self._reported.title).split("\n")[-1]
        # The screen shows no hidden characters.
        return compact(without_names(one_line(subject)))[:_TELLING_LENGTH] in compact(
            f"{self.dialog.title} {self.dialog.detail}"
        )

    @property
    def is_renumbered(self) -> bool:
        """True if the screen numbers the reported options differently, so that those of the screen count.

        A person may look at the screen while they answer from elsewhere: 3 has to mean the same in both places.
        """
        if self._reported is None or self.dialog is None or not self.is_shown:
            return False
        return not _are_numbered_alike(self._reported.options, self.dialog.options)

    @property
    def question(self) -> Question:
        """The question as people see it."""
        reported, dialog = self._reported, self.dialog
        if reported is not None and not reported.options and dialog and dialog.options and not self.is_shown:
            # It can only be answered on the screen, so the question on the screen counts.
            reported = None
        question = Question(
            id=self.id,
            kind=dialog.kind if dialog else QuestionKind.PERMISSION,
            title=dialog.title if dialog else "it waits for a person",
            detail=dialog.detail if dialog else safe_lines(self.report.text if self.report else ""),
            options=dialog.options if dialog else (),
            # A permission dialog takes free text only together with a no.
            takes_text=dialog is not None and dialog.text_option is not None and dialog.kind is QuestionKind.CHOICE,
            hint=dialog.hint if dialog else _LOOK_THERE,
        )
        if reported is not None and self.report is not None:
            # If report and dialog disagree about the kind, the stricter one counts.
            is_agreed = dialog is None or dialog.kind is reported.kind
            reported = replace(reported, source=self.report.source)
            if self.is_renumbered:
                reported = replace(reported, options=())
            question = _with_report(question, reported, is_agreed=is_agreed)
        # A question that can be answered from here needs no hint, unless it is about more than this answer.
        is_plain = bool(question.options) and question.kind is not QuestionKind.STARTUP
        return replace(question, hint="") if is_plain else question

    @property
    def _reported(self) -> Question | None:
        return self.report.question if self.report else None


class QuestionTracker:
    """Follows the questions of one program.

    `run` names this start of the program. Programs and this class number questions from the start on, and a decision
    about a question must never count for another one that has its number after a restart.
    """

    def __init__(self, profile: Profile, run: str = "") -> None:
        self._profile = profile
        self._run = run
        self._report: SignalReport | None = None
        self._open: OpenQuestion | None = None
        self._previous = ""
        """The digest of the previous question's dialog, which may still be visible when the next one is reported."""
        self._count = 0
        self._absent_since: float | None = None
        self._changing: tuple[str, float] | None = None
        """The digest of another dialog that may be half painted, and since when it is visible."""
        self._wake_at: float | None = None
        self._is_seen = False

    @property
    def is_open(self) -> bool:
        """True if a question is asked, though its dialog may not have been seen yet."""
        return self._open is not None

    @property
    def is_seen(self) -> bool:
        """True if the last look showed the question's whole dialog: only then do keys answer it."""
        return self._is_seen

    @property
    def deadline(self) -> float | None:
        """When to call `observe` again even if nothing happens."""
        return self._wake_at

    def has(self, own_id: str) -> bool:
        """Returns whether the question that the program reported under this id is still asked."""
        reported = self._report.question if self._report else None
        return own_id in ((reported.id if reported else ""), (self._open.own_id if self._open else ""))

    def receive(self, report: SignalReport) -> None:
        """Takes the program's latest report about its turn."""
        self._report = report if report.kind is SignalKind.WAITING else None

    def observe(self, look: Look, now: float, *, title_says_waiting: bool = False) -> OpenQuestion | None:
        """Takes the latest look; returns the open question.

        `title_says_waiting` if the program tells the terminal that it waits: then a menu is a question too.
        """
        self._wake_at = None
        is_whole = look.picture is not None and not look.is_half_painted
        dialog = read_dialog(look.picture, self._profile) if look.picture is not None and is_whole else None
        if is_whole:
            self._judge(look, dialog, now, title_says_waiting=title_says_waiting)
        opened = self._open
        self._is_seen = bool(dialog and opened and opened.dialog and opened.dialog.digest == dialog.digest)
        if opened is None or opened.dialog is not None:
            return opened
        return opened if self._has_passed(opened.since + _grace(opened.report), now) else None

    def _judge(self, look: Look, dialog: Dialog | None, now: float, *, title_says_waiting: bool) -> None:
        is_menu = bool(look.dialog) and dialog is None
        dialog = self._steady(look, dialog, now)
        if look.state != WAITING:
            # Evidence that is later than the report shows that the program goes on.
            self._report = None
        is_asked = self._report is not None or (look.state == WAITING and (title_says_waiting or not is_menu))
        if dialog is None and (not is_asked or (self._open is not None and self._open.dialog is not None)):
            self._note_absence(now)
            return
        self._absent_since = None
        opened = self._open
        if opened is None or not self._is_same(opened, dialog):
            self._previous = opened.dialog.digest if opened and opened.dialog else ""
            self._count += 1
            own_id = self._report.question.id if self._report and self._report.question else ""
            number = own_id or f"q{self._count}"
            self._open = opened = OpenQuestion(id=f"{number}.{self._run}" if self._run else number, since=now)
        if (self._report, dialog) != (opened.report, opened.dialog):
            dialog = self._dialog_of(opened, dialog, now)
            self._open = replace(opened, report=self._report or opened.report, dialog=dialog)

    def _steady(self, look: Look, dialog: Dialog | None, now: float) -> Dialog | None:
        """Returns the dialog, or the previous one while another may be only half painted."""
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
        if is_dialog_other and self._report is opened.report:
            # The next dialog is visible before its report: the one that we have is about the question before.
            self._report = None
        if is_dialog_other:
            return False
        if self._report is None or opened.report is None or self._report is opened.report:
            return True
        return bool(self._report.question and self._report.question.id == opened.own_id)

    def _dialog_of(self, opened: OpenQuestion, dialog: Dialog | None, now: float) -> Dialog | None:
        """Returns the question's dialog; None if the screen still shows that of the question before."""
        if dialog is None or dialog.digest != self._previous or opened.dialog is not None or self._report is None:
            return dialog or opened.dialog
        return dialog if self._has_passed(opened.since + _GRACE, now) else None

    def _note_absence(self, now: float) -> None:
        """Closes the question if its dialog stays away: a full-screen program erases before it repaints."""
        if self._open is None:
            return
        if self._absent_since is None:
            self._absent_since = now
        if self._has_passed(self._absent_since + self._profile.times.quiet, now):
            if self._report is self._open.report:
                self._report = None
            self._open, self._absent_since, self._previous = None, None, ""
            # Look at once at what the program does now.
            self._wake_at = now

    def _has_passed(self, moment: float, now: float) -> bool:
        if now < moment:
            self._wake_at = moment if self._wake_at is None else min(self._wake_at, moment)
        return now >= moment


def _grace(report: SignalReport | None) -> float:
    if report is None:
        return _LONG_GRACE
    return _SHORT_GRACE if report.question and report.question.options else _GRACE


def _with_report(shown: Question, reported: Question, *, is_agreed: bool) -> Question:
    options = tuple(
        replace(option, key=safe_line(option.key), label=safe_line(option.label)) for option in reported.options
    )
    return replace(
        shown,
        kind=reported.kind if is_agreed else QuestionKind.PERMISSION,
        title=safe_line(reported.title) or shown.title,
        detail=safe_lines(reported.detail) or shown.detail,
        options=options or shown.options,
        takes_text=reported.takes_text if options else reported.takes_text or shown.takes_text,
        source=reported.source,
        hint=safe_line(reported.hint) or shown.hint,
    )


def _are_numbered_alike(reported: tuple[Option, ...], shown: tuple[Option, ...]) -> bool:
    """Returns whether each reported option is on the screen under its key, with the same meaning.

    True also if the dialog shows no options that could be chosen.
    """
    by_key = {option.key: option for option in shown}
    return not shown or all(option.key in by_key and _is_alike(option, by_key[option.key]) for option in reported)


def _is_alike(reported: Option, shown: Option) -> bool:
    if reported.effect is not shown.effect:
        return False
    return reported.effect is not OptionEffect.OTHER or compact(reported.label.lower()) == compact(shown.label.lower())
