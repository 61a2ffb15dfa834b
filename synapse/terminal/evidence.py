"""Fuses what several sources say about an agent into one verdict: its state, and why.

Each source claims a state, or none. The most trusted source that claims one wins:

    exit > signal > transcript > dialog > title > screen > quiet

Further rules:
- Unknown never overwrites known: when no source claims a state (a help page, half a frame), the verdict stays.
- A dialog ranks above the title, because titles do not show dialogs.
- A mark that the program works ranks above the title if the profile says so: some titles ask for a person too early.
- Of signal and transcript, the later report counts.
- Both report a moment. If the terminal shows another state later, and goes on showing it, they are outdated (an
  interrupt that no hook reported, a hook that was lost).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from synapse.core.agent import EXITED, READY, STARTING, WAITING, WORKING
from synapse.terminal.line_editor import Draft
from synapse.terminal.picture import Picture
from synapse.terminal.profile import Profile, WorkingRule
from synapse.terminal.reading import find_dialog, find_working, read_prompt

# A program that dies inside a synchronized update never ends it; terminals give up waiting after about this time.
UPDATE_LIMIT: Final = 1.0

# How long the terminal has to show another state before that outdates the program's own last report.
_OUTDATED_AFTER: Final = {READY: 0.0, WAITING: 0.5, WORKING: 3.0}

# The states of the Program Status Protocol (OSC 7501).
_PROGRAM_STATES: Final = {"idle": READY, "done": READY, "error": READY, "working": WORKING, "blocked": WAITING}


class Source(StrEnum):
    """Where a claim comes from, most trusted first."""

    EXIT = "exit"
    SIGNAL = "signal"
    TRANSCRIPT = "transcript"
    DIALOG = "dialog"
    TITLE = "title"
    """The window's title, or the program's status (OSC 7501)."""
    SCREEN = "screen"
    QUIET = "quiet"


_REPORTED: Final = (Source.SIGNAL, Source.TRANSCRIPT)
"""The program's own reports about itself."""
_SEEN: Final = (Source.DIALOG, Source.TITLE, Source.SCREEN)
_STARTED: Final = "host"
"""The source of the first verdict: the program was started."""
_GUESSES: Final = (_STARTED, Source.SCREEN, Source.QUIET)


@dataclass(frozen=True, slots=True)
class Claim:
    """What one source says: a state, or "" if it cannot tell. `at` is when it began to say so."""

    source: Source
    state: str
    detail: str
    at: float
    last: float = 0.0
    """When it last said so."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The agent's state, why, by which source, and since when."""

    state: str
    why: str
    source: str
    since: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Everything that delivery and turn are judged by, at one moment."""

    picture: Picture | None
    state: str
    dialog: str = ""
    """The name of the open dialog, or empty."""
    hint: str = ""
    """The next step for a person, while a dialog is open."""
    quiet_for: float = 0.0
    """Seconds since the program last wrote."""
    person_idle_for: float = float("inf")
    """Seconds since a person last pressed a key."""
    draft: Draft = Draft.NONE
    """The text that a person's keys have left in the line, whether or not the screen shows it."""
    is_told: bool = False
    """The state comes from the program's own report, a dialog or the title; it is no guess by prompt and silence."""
    paints_frames: bool = False
    """The program paints in synchronized updates (DECSET 2026): a picture outside of one is a whole frame."""

    @property
    def is_half_painted(self) -> bool:
        return self.picture is not None and self.picture.updating and self.quiet_for < UPDATE_LIMIT


class Evidence:
    """Collects the claims about one agent. Callers pass the time."""

    def __init__(self, profile: Profile, now: float) -> None:
        self._profile = profile
        self._claims: dict[Source, Claim] = {}
        self._verdict = Verdict(STARTING, "the program was started", _STARTED, now)
        self.restless_since: float | None = None
        """Since when a visible prompt has not counted, only because output goes on; None if that is not so."""

    @property
    def verdict(self) -> Verdict:
        return self._verdict

    @property
    def claims(self) -> tuple[Claim, ...]:
        """The claim of each source, most trusted first: the list that `--explain` shows."""
        return tuple(self._claims[source] for source in Source if source in self._claims)

    @property
    def seen(self) -> str:
        """The state that the terminal shows, whatever the program reports; empty if it shows none."""
        claim = self._seen_claim()
        return claim.state if claim is not None else ""

    def look(
        self,
        picture: Picture | None,
        *,
        quiet_for: float,
        now: float,
        person_idle_for: float = float("inf"),
        draft: Draft = Draft.NONE,
        paints_frames: bool = False,
    ) -> Look:
        """Judges what the screen shows now; returns it together with the verdict."""
        dialog = None if picture is None else find_dialog(picture, self._profile)
        look = Look(
            picture=picture,
            state=self._verdict.state,
            dialog=dialog.name if dialog else "",
            hint=dialog.hint if dialog else "",
            quiet_for=quiet_for,
            person_idle_for=person_idle_for,
            draft=draft,
            paints_frames=paints_frames,
        )
        if picture is None or look.is_half_painted:
            return self._with_verdict(look)
        detail = f"a dialog is open: {look.dialog}" if dialog else "no dialog is open"
        self._claim(Source.DIALOG, WAITING if dialog else "", detail, now)
        working = find_working(picture, self._profile)
        self._read_title(picture, working, now)
        self._read_screen(picture, working, quiet_for, now)
        self._judge(now)
        return self._with_verdict(look)

    def report(self, source: Source, state: str, detail: str, now: float) -> None:
        """Takes the state that a source other than the screen claims: a hook, a transcript, the end of the process."""
        self._claim(source, state, detail, now)
        self._judge(now)

    def exited(self, detail: str, now: float) -> None:
        self.report(Source.EXIT, EXITED, detail, now)

    def _with_verdict(self, look: Look) -> Look:
        return replace(look, state=self._verdict.state, is_told=self._verdict.source not in _GUESSES)

    def _read_title(self, picture: Picture, working: WorkingRule | None, now: float) -> None:
        if picture.program_status in _PROGRAM_STATES:
            state = _PROGRAM_STATES[picture.program_status]
            self._claim(Source.TITLE, state, f"the program reports its status: {picture.program_status}", now)
            return
        if working is not None and working.outranks_title:
            detail = f"the title {picture.title!r} does not count while the screen shows: {working.name}"
            self._claim(Source.TITLE, "", detail, now)
            return
        for state, pattern in self._profile.titles.items():
            if pattern.search(picture.title):
                self._claim(Source.TITLE, state, f"the title is {picture.title!r}", now)
                return
        self._claim(Source.TITLE, "", "the title matches no rule", now)

    def _read_screen(self, picture: Picture, working: WorkingRule | None, quiet_for: float, now: float) -> None:
        restless_since, self.restless_since = self.restless_since, None
        if working is not None:
            self._claim(Source.SCREEN, WORKING, f"the screen shows that it works: {working.name}", now)
        elif self._profile.prompt is None:
            self._read_quiet(quiet_for, now)
        elif read_prompt(picture, self._profile) is None:
            # A line program is at its prompt or at work. A full-screen program may show a page that no rule knows.
            works = self._profile.reads_lines and self._verdict.state != STARTING
            self._claim(Source.SCREEN, WORKING if works else "", "the prompt is not visible", now)
        elif quiet_for < self._profile.times.quiet:
            self.restless_since = now if restless_since is None else restless_since
            self._claim(Source.SCREEN, "", "the prompt is visible, but output has only just stopped", now)
        else:
            self._claim(Source.SCREEN, READY, "the prompt is visible", now)

    def _read_quiet(self, quiet_for: float, now: float) -> None:
        needed = self._profile.times.quiet
        rule = f"the profile has no prompt rule, so {needed:g} s without output counts as ready"
        self._claim(Source.SCREEN, "", "no rule matches", now)
        if quiet_for >= needed:
            self._claim(Source.QUIET, READY, rule, now)
        else:
            state = "" if self._verdict.state == STARTING else WORKING
            self._claim(Source.QUIET, state, f"it has just printed something; {rule}", now)

    def _claim(self, source: Source, state: str, detail: str, now: float) -> None:
        before = self._claims.get(source)
        since = before.at if before is not None and before.state == state else now
        self._claims[source] = Claim(source, state, detail, since, now)

    def _judge(self, now: float) -> None:
        valid = [claim for claim in self.claims if claim.state and not self._is_outdated(claim, now)]
        exits = [claim for claim in valid if claim.source is Source.EXIT]
        reported = sorted((claim for claim in valid if claim.source in _REPORTED), key=lambda claim: -claim.last)
        winner = next(iter((*exits, *reported, *valid)), None)
        if winner is None:
            return
        since = self._verdict.since if winner.state == self._verdict.state else now
        self._verdict = Verdict(winner.state, winner.detail, winner.source, since)

    def _is_outdated(self, claim: Claim, now: float) -> bool:
        """Returns whether `claim` is a report of the program that the terminal has contradicted since."""
        if claim.source not in _REPORTED:
            return False
        seen = self._seen_claim()
        if seen is None or seen.state == claim.state or seen.at <= claim.last:
            return False
        # Nothing is ever typed into a dialog, so one counts at once.
        needed = 0.0 if seen.state == WAITING else _OUTDATED_AFTER.get(claim.state, 0.0)
        return now - seen.at >= needed

    def _seen_claim(self) -> Claim | None:
        """Returns the most trusted claim that comes from the terminal itself."""
        claims = (self._claims[source] for source in _SEEN if source in self._claims)
        return next((claim for claim in claims if claim.state), None)
