"""API keys: what one looks like, what is kept of it, and whom it speaks for. Pure.

    sk_<id>_<secret>      the id finds the key; the secret has 256 random bits

Only the SHA-256 of the whole text is kept. A slow hash would protect words that people choose; nobody can try through
256 random bits (docs/decisions/0012).
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from synapse.core.caller import ACTIONS, Caller, for_good
from synapse.core.errors import InvalidRequest

PREFIX: Final = "sk_"
ID_LENGTH: Final = 12

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_DURATION: Final = re.compile(r"(\d{1,5})([mhdw])")
_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """What is kept of a key: not the key."""

    key_id: str
    name: str
    digest: str = field(repr=False)
    created_at: datetime
    expires_at: datetime | None = None
    actions: frozenset[str] | None = None
    """What it may do, of ACTIONS; None is everything."""
    agents: frozenset[str] | None = None
    scope: str = ""
    """Whose tasks it sees and makes; empty is its own."""
    all_tasks: bool = False

    def is_expired(self, now: datetime) -> bool:
        return self.expires_at is not None and now >= self.expires_at

    def fits(self, text: str) -> bool:
        """Whether this is the key; takes as long for a wrong one as for the right one."""
        return hmac.compare_digest(digest_of(text), self.digest)

    def caller(self, holds: Callable[[], bool] = for_good) -> Caller:
        """On whose behalf its requests run; `holds` tells later whether they still may."""
        return Caller(
            scope=self.scope or f"key:{self.key_id}",
            sees_all=self.all_tasks,
            actions=self.actions,
            agents=self.agents,
            name=self.name,
            key_id=self.key_id,
            holds=holds,
        )


def compose(key_id: str, secret: str) -> str:
    """The text of a key."""
    return f"{PREFIX}{key_id}_{secret}"


def id_in(text: str) -> str:
    """The id in what may be the text of a key, or an empty string."""
    key_id, separator, _ = text.removeprefix(PREFIX).partition("_")
    return key_id if text.startswith(PREFIX) and separator and len(key_id) == ID_LENGTH else ""


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def checked_name(name: str) -> str:
    """Raises InvalidRequest for what cannot be the name of a key."""
    if not _NAME.fullmatch(name):
        raise InvalidRequest(
            f"{name!r} cannot be the name of a key", hint="use letters, digits, '.', '_' and '-', 64 at most"
        )
    return name


def checked_actions(actions: Iterable[str]) -> frozenset[str]:
    """Raises InvalidRequest for an action that there is not."""
    wanted = frozenset(actions)
    unknown = ", ".join(sorted(wanted - set(ACTIONS)))
    if unknown or not wanted:
        raise InvalidRequest(f"no such action: {unknown or '(none given)'}", hint="there are " + ", ".join(ACTIONS))
    return wanted


def read_expiry(text: str, now: datetime) -> datetime:
    """When `30d`, `12h`, `2027-01-01` or a time of RFC 3339 is; a date means its first moment in UTC.

    Raises InvalidRequest when it is none of them, or past.
    """
    try:
        end = _moment(text.strip(), now)
    except (ValueError, OverflowError) as error:
        raise InvalidRequest(f"{text!r} is no time", hint="write 30d, 12h, or a date such as 2030-01-01") from error
    if end <= now:
        raise InvalidRequest(f"{text!r} is past already", hint="choose a later time, or leave `--expires` out")
    return end


def _moment(text: str, now: datetime) -> datetime:
    if duration := _DURATION.fullmatch(text):
        return now + timedelta(**{_UNITS[duration[2]]: int(duration[1])})
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=now.tzinfo) if moment.tzinfo is None else moment.astimezone(now.tzinfo)
