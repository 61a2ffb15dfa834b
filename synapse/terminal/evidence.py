"""What is known of an agent, fused into one verdict.

Each source says in what state the agent is, or nothing. The most trusted source that says something wins:

    exit > signal > transcript > dialog > title > screen > quiet

Rules beside the order. Unknown never overwrites known: when no source says anything (a help page, half a frame),
the verdict stays. A dialog is trusted above the title, because titles do not show dialogs. Of signal and transcript the
later word counts. And both are words about a moment: what is seen to be otherwise later, and stays so, outdates them
(an interrupt that no hook told, a hook that was lost).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from synapse.core.agent import EXITED, READY, STARTING, WAITING, WORKING
from synapse.terminal.line_editor import Draft
from synapse.terminal.picture import Picture
from synapse.terminal.profile import Profile
from synapse.terminal.reading import find_dialog, find_working, read_prompt

# A program that dies inside a synchronized update leaves it on; terminals give up waiting after about as long.
UPDATE_LIMIT: Final = 1.0

# How long the terminal has to show something else before it outdates what the program itself said last.
_PATIENCE: Final = {READY: 0.0, WAITING: 0.5, WORKING: 3.0}

# The words of the Program Status Protocol (OSC 7501).
_PROGRAM_STATES: Final = {"idle": READY, "done": READY, "error": READY, "working": WORKING, "blocked": WAITING}


class Source(StrEnum):
    """Where knowledge comes from, most trusted first."""

    EXIT = "exit"
    SIGNAL = "signal"
    TRANSCRIPT = "transcript"
    DIALOG = "dialog"
    TITLE = "title"
    """What the program tells the terminal: its title, its status (OSC 7501)."""
    SCREEN = "screen"
    QUIET = "quiet"


_OWN_WORDS: Final = (Source.SIGNAL, Source.TRANSCRIPT)
_SEEN: Final = (Source.DIALOG, Source.TITLE, Source.SCREEN)
_STARTED: Final = "host"
"""The source of the first verdict: the program was started."""
_GUESSES: Final = (_STARTED, Source.SCREEN, Source.QUIET)


@dataclass(frozen=True, slots=True)
class Claim:
    """What one source says: a state, or an empty one when it cannot tell; `at` is when it began to say so."""

    source: Source
    state: str
    detail: str
    at: float
    last: float = 0.0
    """When it said so last."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The agent's state, why, by which source, and since when."""

    state: str
    why: str
    source: str
    since: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What is seen at one moment: what delivery and turn are judged by."""

    picture: Picture | None
    state: str
    dialog: str = ""
    """The name of the open dialog, or empty."""
    hint: str = ""
    """What a person should do about the dialog."""
    quiet_for: float = 0.0
    """Seconds since the program last wrote."""
    person_idle_for: float = float("inf")
    """Seconds since a person last pressed a key."""
    draft: Draft = Draft.NONE
    """What a person's keys have left in the line, whether or not the screen shows it."""
    is_told: bool = False
    """The program itself said in what state it is; the screen alone does not."""
    paints_frames: bool = False
    """The program paints in synchronized updates (DECSET 2026): what is not half painted is a whole frame."""

    @property
    def is_half_painted(self) -> bool:
        return self.picture is not None and self.picture.updating and self.quiet_for < UPDATE_LIMIT


class Evidence:
    """Collects claims about one agent; time is an argument."""

    def __init__(self, profile: Profile, now: float) -> None:
        self._profile = profile
        self._claims: dict[Source, Claim] = {}
        self._verdict = Verdict(STARTING, "the program was started", _STARTED, now)
        self.restless_since: float | None = None
        """Since when output alone keeps a visible prompt from counting; None if it does not."""

    @property
    def verdict(self) -> Verdict:
        return self._verdict

    @property
    def claims(self) -> tuple[Claim, ...]:
        """What each source says, most trusted first: the list that `--explain` shows."""
        return tuple(self._claims[source] for source in Source if source in self._claims)

    @property
    def seen(self) -> str:
        """The state that the terminal shows, whatever the program said of itself; empty when it shows none."""
        return next((self._claims[source].state for source in _SEEN if self._says(source)), "")

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
        """Judge what is on the screen now, and return it together with the verdict."""
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
            return self._judged(look)
        opened = f"a dialog is open: {look.dialog}" if dialog else "no dialog is open"
        self._say(Source.DIALOG, WAITING if dialog else "", opened, now)
        self._read_title(picture, now)
        self._read_screen(picture, quiet_for, now)
        self._judge(now)
        return self._judged(look)

    def _judged(self, look: Look) -> Look:
        return replace(look, state=self._verdict.state, is_told=self._verdict.source not in _GUESSES)

    def report(self, source: Source, state: str, detail: str, now: float) -> None:
        """Take what a source outside of the screen says: a hook, a transcript, the end of the process."""
        self._say(source, state, detail, now)
        self._judge(now)

    def exited(self, detail: str, now: float) -> None:
        self.report(Source.EXIT, EXITED, detail, now)

    def _read_title(self, picture: Picture, now: float) -> None:
        if picture.program_status in _PROGRAM_STATES:
            state = _PROGRAM_STATES[picture.program_status]
            self._say(Source.TITLE, state, f"the program says of itself: {picture.program_status}", now)
            return
        for state, pattern in self._profile.titles.items():
            if pattern.search(picture.title):
                self._say(Source.TITLE, state, f"the title is {picture.title!r}", now)
                return
        self._say(Source.TITLE, "", "the title says nothing", now)

    def _read_screen(self, picture: Picture, quiet_for: float, now: float) -> None:
        restless_since, self.restless_since = self.restless_since, None
        if self._profile.prompt is None and not self._profile.working:
            self._read_quiet(quiet_for, now)
            return
        working = find_working(picture, self._profile)
        if working is not None:
            self._say(Source.SCREEN, WORKING, f"the screen shows that it works: {working.name}", now)
        elif self._profile.prompt is None:
            self._read_quiet(quiet_for, now)
        elif read_prompt(picture, self._profile) is None:
            self._no_prompt(now)
        elif quiet_for < self._profile.times.quiet:
            self.restless_since = now if restless_since is None else restless_since
            self._say(Source.SCREEN, "", "the prompt is there, but output has only just stopped", now)
        else:
            self._say(Source.SCREEN, READY, "the prompt is there", now)

    def _no_prompt(self, now: float) -> None:
        # A line program is at its prompt or at work. A full-screen program may show a page that no rule knows.
        works = self._profile.reads_lines and self._verdict.state != STARTING
        self._say(Source.SCREEN, WORKING if works else "", "the prompt is not there", now)

    def _read_quiet(self, quiet_for: float, now: float) -> None:
        needed = self._profile.times.quiet
        rule = f"the profile has no prompt rule, so {needed:g} s without output count as ready"
        self._say(Source.SCREEN, "", "no rule says anything", now)
        if quiet_for >= needed:
            self._say(Source.QUIET, READY, rule, now)
        else:
            state = "" if self._verdict.state == STARTING else WORKING
            self._say(Source.QUIET, state, f"it has just printed something; {rule}", now)

    def _say(self, source: Source, state: str, detail: str, now: float) -> None:
        before = self._claims.get(source)
        since = before.at if before is not None and before.state == state else now
        self._claims[source] = Claim(source, state, detail, since, now)

    def _judge(self, now: float) -> None:
        said = [claim for claim in self.claims if claim.state and not self._is_outdated(claim, now)]
        own = sorted((claim for claim in said if claim.source in _OWN_WORDS), key=lambda claim: -claim.last)
        exits = [claim for claim in said if claim.source is Source.EXIT]
        won = next(iter((*exits, *own, *said)), None)
        if won is None:
            return
        since = self._verdict.since if won.state == self._verdict.state else now
        self._verdict = Verdict(won.state, won.detail, won.source, since)

    def _is_outdated(self, claim: Claim, now: float) -> bool:
        """True for a word of the program about itself that the terminal has contradicted since."""
        if claim.source not in _OWN_WORDS:
            return False
        seen = next((self._claims[source] for source in _SEEN if self._says(source)), None)
        if seen is None or seen.state == claim.state or seen.at <= claim.last:
            return False
        # A dialog is never typed into, so it counts at once.
        patience = 0.0 if seen.state == WAITING else _PATIENCE.get(claim.state, 0.0)
        return now - seen.at >= patience

    def _says(self, source: Source) -> bool:
        return source in self._claims and bool(self._claims[source].state)
