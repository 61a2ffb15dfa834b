"""Decides which needs of an agent become notices, when each opens, and when it is withdrawn. Pure.

    need ─► lasts for GRACE_SECONDS ─► allowed by the rules ─► opened ─► need gone ─► withdrawn
                                     └► suppressed, with the reason

A need that is met within the grace period, such as an answer that a waiting command prints, becomes no notice.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, time
from enum import StrEnum
from typing import Final

from synapse.client.overview import Need
from synapse.core.address import short_name
from synapse.core.agent import AgentEntry
from synapse.core.errors import InvalidSettings

GRACE_SECONDS: Final = 1.5
ALL: Final = "all"
NONE: Final = "none"


class Kind(StrEnum):
    """What a notice is about, as the setting `notify_on` names it."""

    ASKS = "asks"
    IN_DOUBT = "in_doubt"
    FAILED = "failed"
    ANSWERED = "answered"


_KIND_OF_NEED: Final[Mapping[str, Kind]] = {"in_doubt": Kind.IN_DOUBT, "failed": Kind.FAILED, "done": Kind.ANSWERED}
_SENTENCES: Final[Mapping[Kind, str]] = {
    Kind.ASKS: "{} asks you",
    Kind.IN_DOUBT: "{}: a message is in doubt",
    Kind.FAILED: "{} has failed",
    Kind.ANSWERED: "{} has answered",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One need of one agent, as a person is told about it."""

    id: str
    kind: Kind
    agent_id: str
    agent: str
    """The short name."""
    text: str
    """The question, the failure or the first line of the answer."""
    task_id: str = ""

    @property
    def title(self) -> str:
        return _SENTENCES[self.kind].format(self.agent)


def notice_of(need: Need) -> Notice:
    """Returns the notice for a need of an agent."""
    return Notice(
        id=need["id"],
        kind=_KIND_OF_NEED.get(need["kind"], Kind.ASKS),
        agent_id=need["agent_id"],
        agent=need["name"],
        text=need["title"],
        task_id=need["task_id"] or "",
    )


def agent_names(entry: AgentEntry) -> frozenset[str]:
    """Returns the names by which rules may name an agent."""
    return frozenset({entry.agent_id, entry.name, short_name(entry), entry.agent_type})


@dataclass(frozen=True, slots=True)
class QuietHours:
    """A daily time without notices, by the clock on the wall; it may cross midnight."""

    begin: time
    end: time

    def contains(self, at: time) -> bool:
        if self.begin <= self.end:
            return self.begin <= at < self.end
        return at >= self.begin or at < self.end


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """A person's rules: which kinds, which agents (empty means all), and when it is quiet."""

    on: frozenset[Kind] = frozenset(Kind)
    agents: frozenset[str] = frozenset()
    quiet: QuietHours | None = None

    def why_suppressed(self, notice: Notice, names: Collection[str], now: datetime) -> str:
        """Returns why `notice` is not shown, or an empty string. `names` are the agent's, `now` is local time."""
        if notice.kind not in self.on:
            return f"notify_on does not name {notice.kind}"
        if self.agents and self.agents.isdisjoint(names):
            return "notify_agents does not name this agent"
        if self.quiet is not None and self.quiet.contains(now.time()):
            return "quiet hours"
        return ""


def read_rules(on: str, agents: str, quiet: str) -> Rules:
    """Reads the settings `notify_on`, `notify_agents` and `notify_quiet`.

    Raises:
        InvalidSettings: a word is unknown, or the time cannot be read.
    """
    words = on.replace(",", " ").split()
    kinds = [] if words == [NONE] else [*Kind] if words == [ALL] else words
    try:
        chosen = frozenset(Kind(word) for word in kinds)
    except ValueError as error:
        known = ", ".join(Kind)
        raise InvalidSettings(f"notify_on: {error}", hint=f"name some of {known}; or all, or none") from error
    names = [] if agents == ALL else agents.replace(",", " ").split()
    return Rules(on=chosen, agents=frozenset(names), quiet=_quiet_hours(quiet))


def _quiet_hours(text: str) -> QuietHours | None:
    if text == NONE:
        return None
    begin, separator, end = text.partition("-")
    try:
        hours = QuietHours(time.fromisoformat(begin.strip()), time.fromisoformat(end.strip()))
    except ValueError as error:
        raise InvalidSettings(
            f"notify_quiet is not a time: '{text}'", hint="write it as 22:00-07:00, or none"
        ) from error
    if not separator or hours.begin == hours.end:
        raise InvalidSettings(f"notify_quiet has no length: '{text}'", hint="write it as 22:00-07:00, or none")
    return hours


@dataclass(frozen=True, slots=True)
class Changes:
    """What has changed since the last look: notices to show, and ids to withdraw."""

    opened: tuple[Notice, ...] = ()
    gone: tuple[str, ...] = ()


class NoticeTracker:
    """Follows the needs of one agent: each becomes due once, and is gone once."""

    def __init__(self, known: Collection[str] = ()) -> None:
        """`known` are ids that an earlier process has shown: they are not shown again."""
        self._first_seen: dict[str, float] = {}
        self._due: set[str] = set(known)

    def look(self, needs: Sequence[Need], now: float) -> Changes:
        """Takes the present needs, at `now` by a monotonic clock, and returns what changed."""
        present = {need["id"]: need for need in needs}
        gone = tuple(sorted(self._due - present.keys()))
        self._due -= set(gone)
        self._first_seen = {key: self._first_seen.get(key, now) for key in present}
        due = [key for key in present if key not in self._due and now - self._first_seen[key] >= GRACE_SECONDS]
        self._due.update(due)
        return Changes(tuple(notice_of(present[key]) for key in due), gone)

    @property
    def is_waiting(self) -> bool:
        """Whether a need is still in its grace period, or shown: then it looks again soon."""
        return bool(self._first_seen)
