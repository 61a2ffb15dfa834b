"""The gate: decides whether a message may be typed now. Unknown counts as unsafe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from synapse.core.agent import EXITED, READY, STARTING, WAITING
from synapse.core.driver import HoldReason
from synapse.terminal.evidence import Look
from synapse.terminal.line_editor import Draft
from synapse.terminal.picture import Picture
from synapse.terminal.profile import Profile, TypingStyle
from synapse.terminal.reading import find_working, read_prompt

# Differences of clock readings are not exact; a shorter wait is none.
GRAIN: Final = 1e-6
_SILENT_KEY_SECONDS: Final = 3.0
"""A key that the program has read, followed by no output for this long, has put nothing into the prompt."""
_REPAINT_SECONDS: Final = 0.5
"""A program without synchronized output may pause within a repaint: an empty prompt must last this long to prove that
a person's text is gone."""
_UNREAD_SECONDS: Final = 0.2
"""How often to check whether a program has read the keys: no output announces it."""


@dataclass(frozen=True, slots=True)
class Shut:
    """Why nothing may be typed, as a sentence for `--explain`; `opens_in` is set if time alone may open the gate."""

    why: str
    reason: HoldReason
    opens_in: float | None = None


UNSEEN: Final = Shut("nothing is known of the screen yet", HoldReason.UNSEEN)


def shut(look: Look, profile: Profile) -> Shut | None:
    """Returns why the gate is shut, or None if a message may be typed."""
    if look.picture is None:
        return UNSEEN
    return (
        _state_shut(look, profile)
        or _prompt_shut(look.picture, profile)
        or _draft_shut(look, profile)
        or _recent_key_shut(look, profile)
        or _quiet_shut(look, profile)
    )


def shut_for_sending(look: Look, profile: Profile) -> Shut | None:
    """Returns why the gate is shut for a message that is sent by an API, which leaves the prompt's text alone."""
    if look.picture is None:
        return UNSEEN
    return _state_shut(look, profile) or _recent_key_shut(look, profile) or _quiet_shut(look, profile)


def dialog_open(look: Look) -> bool:
    """Returns whether a dialog is open: a rule recognises it, or a signal reports that the agent waits."""
    return bool(look.dialog) or look.state == WAITING


def _state_shut(look: Look, profile: Profile) -> Shut | None:
    if look.dialog:
        why = f"a dialog is open: {look.dialog}" + (f" ({look.hint})" if look.hint else "")
        return Shut(why, HoldReason.DIALOG)
    if look.state == READY:
        return None
    why = f"the agent is {look.state}"
    if look.state == WAITING:
        return Shut(why, HoldReason.DIALOG)
    is_known = look.is_told or look.state == EXITED
    if not is_known and look.picture is not None and not find_working(look.picture, profile):
        # The program was merely not seen to be ready, which may have other reasons than work.
        if profile.prompt is not None and read_prompt(look.picture, profile) is None:
            return Shut(f"{why}: its prompt is not visible", HoldReason.NO_PROMPT)
        if look.is_half_painted or look.quiet_for < profile.times.quiet:
            return Shut(f"{why}: the program prints again and again", HoldReason.NEVER_RESTS)
    return Shut(why, HoldReason.STARTING if look.state == STARTING else HoldReason.WORKING)


def _prompt_shut(picture: Picture, profile: Profile) -> Shut | None:
    if profile.typing.style is TypingStyle.PASTE and not picture.bracketed_paste:
        return Shut("the program does not take pastes now", HoldReason.NO_PROMPT)
    if profile.prompt is None:
        return None
    prompt = read_prompt(picture, profile)
    if prompt is None:
        return Shut("the prompt is not visible", HoldReason.NO_PROMPT)
    return None if prompt.is_empty else Shut("there is text in the prompt", HoldReason.PERSON)


def _draft_shut(look: Look, profile: Profile) -> Shut | None:
    """Returns why a person's keys forbid typing. The prompt is visible and empty, if the profile has a rule for it.

    A program that edits its own line shows its text once it has reacted to the keys. Text is always shown, so no
    reaction means that it is yet to come. Keys that may or may not put text there (Up, Tab, a function key) often do
    nothing, and then the program shows nothing.
    """
    if look.draft is Draft.NONE:
        return None
    if look.draft is Draft.UNREAD:
        return Shut("the program has not read a person's last keys yet", HoldReason.PERSON, opens_in=_UNREAD_SECONDS)
    has_reacted = look.quiet_for <= look.person_idle_for
    if look.draft is not Draft.HIDDEN and has_reacted and profile.prompt is not None:
        missing = 0.0 if look.paints_frames else _REPAINT_SECONDS - look.quiet_for
        if missing > GRAIN:
            return Shut("a person's text has only just left the prompt", HoldReason.PERSON, opens_in=missing)
        return None
    if look.draft is not Draft.UNCERTAIN:
        return Shut("a person has a half-typed line", HoldReason.PERSON)
    return _uncertain_shut(look, profile)


def _uncertain_shut(look: Look, profile: Profile) -> Shut | None:
    if profile.prompt is None:
        why = "a person pressed keys that may have put text into the line, and no rule of the profile shows it"
        return Shut(why, HoldReason.PERSON)
    missing = _SILENT_KEY_SECONDS - look.person_idle_for
    if missing > GRAIN:
        why = "a person pressed keys that may have put text into the prompt"
        return Shut(why, HoldReason.PERSON, opens_in=missing)
    return None


def _recent_key_shut(look: Look, profile: Profile) -> Shut | None:
    missing = profile.times.person - look.person_idle_for
    if missing > GRAIN:
        return Shut(f"a person typed {look.person_idle_for:.1f} s ago", HoldReason.PERSON, opens_in=missing)
    return None


def _quiet_shut(look: Look, profile: Profile) -> Shut | None:
    if look.is_half_painted:
        return Shut("the program is painting", HoldReason.NEVER_RESTS, opens_in=profile.times.quiet)
    missing = profile.times.quiet - look.quiet_for
    if missing > GRAIN:
        return Shut("output has only just stopped", HoldReason.NEVER_RESTS, opens_in=missing)
    return None
