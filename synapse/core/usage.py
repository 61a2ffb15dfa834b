"""What the turns of an agent cost: tokens, and money where its CLI tells it.

    a CLI's own records ─► UsageReport, one per request to its model ─► UsageRecorder ─► usage.db

A report is about one request, under the CLI's own names for session, turn and request, so that the same record counts
once however often it is read. Which task a turn belongs to is said separately (`name_turn`): a CLI may report what a
request cost before or after it is known whose turn it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Final, Protocol

from synapse.core.task import TaskId

SESSION_COST: Final = ""
"""The request of a report that tells what a whole session has cost so far; it has no tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCounts:
    """Tokens of one request or of many, each counted in one field only, except `reasoning`, a part of `output`."""

    input: int = 0
    """Read by the model anew: neither from its cache nor into it."""
    output: int = 0
    """Written by the model, thoughts included."""
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    """How many of `output` were thoughts, where the CLI tells it."""

    def __add__(self, other: TokenCounts) -> TokenCounts:
        return TokenCounts(**{name: getattr(self, name) + getattr(other, name) for name in TOKEN_KINDS})

    @property
    def total(self) -> int:
        return self.input + self.output + self.cache_read + self.cache_write


TOKEN_KINDS: Final = tuple(kind.name for kind in fields(TokenCounts))
NO_TOKENS: Final = TokenCounts()


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageReport:
    """What one request to the model cost, as the CLI tells it; a later report of the same request replaces it."""

    session: str
    request: str
    """The CLI's own name of the request; unique in its session."""
    turn: str = ""
    """The CLI's own name of the turn; the same as in its signals."""
    model: str = ""
    tokens: TokenCounts
    cost: Decimal | None = None
    """In US dollars; None where the CLI does not tell it."""
    at: datetime | None = None
    """When it was; None where the CLI does not tell it."""


class UsageRecorder(Protocol):
    """Keeps what an agent's requests cost. Neither method blocks or raises."""

    def record(self, report: UsageReport, /) -> None: ...

    def name_turn(self, turn: str, task: TaskId, /) -> None:
        """Notes that the CLI's turn is the turn of a task's message. Turns without a task are a person's own."""
        ...


class NoUsage:
    """Implements UsageRecorder for agents whose usage nobody counts."""

    def record(self, report: UsageReport, /) -> None:
        """Does nothing."""

    def name_turn(self, turn: str, task: TaskId, /) -> None:
        """Does nothing."""


class UsageGroup(StrEnum):
    """By what usage is added up."""

    TURN = "turn"
    TASK = "task"
    AGENT = "agent"
    DAY = "day"
    MODEL = "model"


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageTotal:
    """The usage of several requests."""

    tokens: TokenCounts = NO_TOKENS
    requests: int = 0
    cost: Decimal | None = None
    """What the requests with a known cost amount to, in US dollars; None if none has one."""
    unpriced: int = 0
    """How many of the requests have no known cost."""

    def __add__(self, other: UsageTotal) -> UsageTotal:
        known = [cost for cost in (self.cost, other.cost) if cost is not None]
        return UsageTotal(
            tokens=self.tokens + other.tokens,
            requests=self.requests + other.requests,
            cost=sum(known, Decimal(0)) if known else None,
            unpriced=self.unpriced + other.unpriced,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRow:
    """The usage of one group, and what all of its requests have in common: other fields are empty."""

    key: Mapping[str, str] = field(default_factory=dict[str, str])
    total: UsageTotal
    last: datetime
    """When its last request was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentUsage:
    """The usage of one agent, for its status."""

    today: UsageTotal = UsageTotal()
    overall: UsageTotal = UsageTotal()


def usage_object(total: UsageTotal) -> dict[str, object]:
    """Returns a total as JSON: `tokens` by kind, `cost_usd` as a number or null."""
    return {
        "tokens": {**{kind: getattr(total.tokens, kind) for kind in TOKEN_KINDS}, "total": total.tokens.total},
        "requests": total.requests,
        "cost_usd": None if total.cost is None else float(total.cost),
        "unpriced_requests": total.unpriced,
    }
