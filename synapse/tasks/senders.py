"""Decides whose messages an agent accepts, by the rule that it was started with (`--accept-from`, a team file).

    NAME             the agent of that name, `profile-port` or id
    team             the agents of the same team
    person           a person, in a shell or in the dashboard
    key.NAME         a caller of the gateway
    anyone           everybody
    NAME@MACHINE     the agent of that name, `profile-port` or id on another machine of the fleet
    person@MACHINE   a person there
    @MACHINE         everybody there, callers of a gateway included

Without a rule an agent accepts everybody. With one, only what is proven counts: a sender that a message merely claims
is nobody. So is an agent that another agent started: it could have taken the name of a member that is stopped. For its
own senders another machine vouches.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from synapse.core.address import (
    KEY,
    PERSON,
    UNVERIFIED,
    is_marked,
    nearest,
    on_machine,
    short_name,
    split_inbox,
    split_machine,
)
from synapse.core.agent import AgentEntry
from synapse.core.caller import Caller
from synapse.core.errors import InvalidRequest, SenderNotAccepted
from synapse.core.message import Sender
from synapse.core.task import Task
from synapse.core.text import sender_name
from synapse.tasks.admission import sender_of

A_PERSON: Final = "person"
THE_TEAM: Final = "team"
ANYONE: Final = "anyone"
WORDS: Final = (A_PERSON, THE_TEAM, ANYONE)
"""The senders that are not named. An agent that has one of them as its name is accepted by its id only."""
_MEANINGS: Final = {A_PERSON: "a person", THE_TEAM: "agents of its team"}
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_KEY_NAME: Final = re.compile(rf"{re.escape(KEY)}\S{{1,200}}")
_ID: Final = re.compile(r"[A-Za-z0-9_.-]+-[0-9]{1,5}")
_ELSEWHERE: Final = re.compile(rf"(?:{_NAME.pattern})?@[a-z0-9](?:[a-z0-9-]{{0,30}}[a-z0-9])?")


def check_accepts(values: Iterable[str], member_names: Collection[str] | None = None) -> None:
    """Raises InvalidRequest for a value that names no sender.

    With `member_names`, those of a team, a name must be one of them: a misspelt one would accept nobody. An agent
    outside of the team can be named by `profile-port` or id.
    """
    for value in values:
        if value in WORDS or _KEY_NAME.fullmatch(value):
            continue
        is_elsewhere = _ELSEWHERE.fullmatch(value) is not None
        if not (is_elsewhere or _NAME.fullmatch(value)) or value.startswith((KEY, UNVERIFIED)):
            raise InvalidRequest(
                f"'{value}' is no sender that an agent can accept",
                hint=f"use an agent's name, {', '.join(WORDS)}, {KEY}NAME for a key of the gateway, or NAME@MACHINE, "
                f"{A_PERSON}@MACHINE or @MACHINE for senders on another machine",
            )
        if is_elsewhere:
            continue
        if member_names is None or value in member_names or _ID.fullmatch(value):
            continue
        meant = nearest(value, [*member_names, *WORDS])
        raise InvalidRequest(
            f"no member of the team is called '{value}'",
            hint=f"did you mean '{meant}'?" if meant else f"use one of: {', '.join((*sorted(member_names), *WORDS))}",
        )


@dataclass(frozen=True, slots=True)
class SenderRule:
    """The rule of one agent."""

    agent: str
    """The agent's name, for error messages."""
    team: str
    accepts: tuple[str, ...]

    @classmethod
    def of(cls, me: AgentEntry) -> SenderRule:
        """Returns the rule in an agent's registry entry."""
        return cls(short_name(me), me.team, tuple(me.accepts.split()))

    @property
    def is_open(self) -> bool:
        """Whether the agent accepts everybody."""
        return not self.accepts or ANYONE in self.accepts

    def in_words(self) -> str:
        """Returns the accepted senders for people: `lead, a person`."""
        return "everybody" if self.is_open else ", ".join(map(_in_words, self.accepts))

    def check(self, claimed: Sender | None, caller: Caller, agents: Iterable[AgentEntry]) -> None:
        """Raises SenderNotAccepted unless the agent accepts messages of the caller.

        `claimed` is the sender that the message names; `agents` are the running ones, to describe a caller that is one.
        """
        if self.is_open:
            return
        if caller.machine:
            self._check_elsewhere(claimed, caller)
        elif caller.is_agent:
            self._check_agent(caller, next((one for one in agents if one.agent_id == caller.agent_id), None))
        elif caller.is_dashboard or (caller.may_decide and (claimed is None or claimed.sender_id in ("", PERSON))):
            if A_PERSON not in self.accepts:
                way = "add `person` to its `accepts` in the team file" if self.team else "use --accept-from person"
                hint = f"type in its own terminal (synapse attach {self.agent}), or {way}"
                raise self._refusal("a person", hint)
        elif caller.name and not caller.is_anonymous:
            if KEY + caller.name not in self.accepts:
                # Not whom it accepts: a key may be for some agents only, and must not learn of others.
                raise SenderNotAccepted(
                    f"{self.agent} accepts no messages from {KEY}{caller.name}", hint="ask the person who started it"
                )
        else:
            sender = sender_name(claimed.sender_id if claimed else "", verified=False)
            raise self._refusal(sender, caller.objection or "leave out `--from`: only what is proven counts")

    def refusal_of(self, task: Task) -> str:
        """Says why a message is refused that waits in the queue since before the agent's start; empty if it is not.

        A sender that a host has proven was checked when the message came. No host proves the sender of a message to an
        agent that is not running; for one on another machine, that machine vouches.
        """
        if self.is_open or task.user or task.delivers:
            return ""
        name, machine = split_machine(task.sender.sender_id)
        if task.sender_verified and machine and not self._accepts_elsewhere(task.sender, machine, name):
            return self._sentence(task.sender_name)
        if task.sender_verified:
            return ""
        return (
            f"{self._sentence(task.sender_name)}; the message was queued while no host could prove who sent it, so it "
            "must be sent again now that the agent runs"
        )

    def names(self, entry: AgentEntry) -> bool:
        """Decides whether the rule has the agent's name or team, whoever started the agent."""
        names = {entry.agent_id, entry.name, f"{entry.agent_type}-{entry.port}"}.difference(WORDS)
        is_member = THE_TEAM in self.accepts and bool(self.team) and entry.team == self.team
        return is_member or not names.isdisjoint(self.accepts)

    def _check_elsewhere(self, claimed: Sender | None, caller: Caller) -> None:
        sender, _ = sender_of(claimed, caller, ())
        if not self._accepts_elsewhere(sender, caller.machine, caller.remote_sender):
            raise self._refusal(sender.sender_id if caller.remote_sender else f"callers on {caller.machine}")

    def _accepts_elsewhere(self, sender: Sender, machine: str, name: str) -> bool:
        """Decides whether the rule has a sender on another machine; `name` is empty or marked if that is not proven."""
        names = {f"@{machine}"}
        if name == PERSON:
            names.add(on_machine(A_PERSON, machine))
        elif name and not is_marked(name):
            inbox, _ = split_inbox(sender.inbox)
            own = {name, name.removeprefix("synapse-"), inbox}.difference(WORDS, {""})
            names |= {on_machine(one, machine) for one in own}
        return not names.isdisjoint(self.accepts)

    def _check_agent(self, caller: Caller, entry: AgentEntry | None) -> None:
        if entry is None:
            raise self._refusal(caller.agent_id, "it is not registered")
        if entry.launched_by:
            why = f"{short_name(entry)} was started by {entry.launched_by}; only agents that a person started count"
            raise self._refusal(short_name(entry), why)
        if not self.names(entry):
            raise self._refusal(short_name(entry))

    def _refusal(self, sender: str, hint: str = "ask one of them to pass it on") -> SenderNotAccepted:
        return SenderNotAccepted(self._sentence(sender), hint=hint)

    def _sentence(self, sender: str) -> str:
        return f"{self.agent} accepts no messages from {sender}, only from {self.in_words()}"


def _in_words(value: str) -> str:
    name, separator, machine = value.rpartition("@")
    if not separator or value.startswith(KEY):
        return _MEANINGS.get(value, value)
    if not name:
        return f"everybody on {machine}"
    return f"a person on {machine}" if name == A_PERSON else value
