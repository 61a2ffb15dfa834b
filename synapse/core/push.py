"""Push notifications: where somebody wants to be told about a task, how we prove that it is us, and what became of it.

    pending ─► delivered
       │  ▲
       │  └── failed, and tried again later
       └────► given up: refused, or tried too often

A notification is one event of the task's log. How far a webhook has been told is a seq, so nothing is queued twice.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final, Protocol
from urllib.parse import urlsplit

from synapse.core.errors import InvalidField
from synapse.core.task import Task, TaskId

TOKEN_HEADER: Final = "X-A2A-Notification-Token"  # noqa: S105  # the name, not the token
ID_HEADER: Final = "X-Synapse-Notification-Id"
"""The same for each try of one notification, so that a receiver can tell that it has it already."""
_API_KEY: Final = frozenset({"api-key", "apikey", "api_key", "x-api-key"})
_KNOWN_SCHEMES: Final = _API_KEY | {"bearer", "basic"}
_SCHEME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{0,64}")
_HEADER_TEXT: Final = re.compile(r"[\x20-\x7e]*")
_LONG_SEGMENT: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PushConfig:
    """One webhook of one task. Secrets are in it: it is never logged, and shown only to who configured it."""

    id: str = ""
    """Minted when empty; the same id again replaces the configuration."""
    url: str = field(repr=False)
    token: str = field(default="", repr=False)
    """Sent with every notification, so that the receiver knows its own configuration."""
    scheme: str = ""
    """How to authenticate there: `bearer`, `basic`, `api-key`, or as the caller wrote it."""
    credentials: str = field(default="", repr=False)
    dialect: str = ""
    """Who configured it decides how the notifications are worded."""
    set_by: str = ""
    """The API key of whoever configured it, at a gateway: once that counts no longer, nothing more is told."""


class DeliveryState(StrEnum):
    """What became of one notification."""

    PENDING = "pending"
    DELIVERED = "delivered"
    GIVEN_UP = "given_up"


@dataclass(frozen=True, slots=True, kw_only=True)
class Push:
    """A configuration as it is kept, and how far its webhook has been told."""

    number: int
    task_id: TaskId
    inbox: str
    config: PushConfig
    told: int
    """The seq of the last event that was delivered or given up."""
    pending: Delivery | None = None
    """The notification that was tried and not yet taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """How one notification goes: the event `seq` to the webhook of the push `number`."""

    number: int
    seq: int
    state: DeliveryState
    attempts: int
    at: datetime
    """The last try."""
    status: int = 0
    """What the webhook answered; 0 when it did not."""
    error: str = ""
    next_try: datetime | None = None


class PushStore(Protocol):
    """Keeps webhooks and what became of their notifications. Every method may raise StoreFailed."""

    async def save(self, task_id: TaskId, inbox: str, config: PushConfig, told: int) -> Push:
        """Keep a configuration; one with the same id is replaced, and goes on where it was."""
        ...

    async def of_task(self, task_id: TaskId) -> Sequence[Push]:
        """The configurations of a task, oldest first."""
        ...

    async def open_after(self, inbox: str, number: int) -> Sequence[Push]:
        """The pushes of an inbox that may have something to tell, beyond `number`, in their order."""
        ...

    async def load(self, number: int) -> Push | None:
        """None when it was deleted."""
        ...

    async def delete(self, task_id: TaskId, config_id: str) -> None:
        """Forget a configuration and its deliveries; one that is not there is no error."""
        ...

    async def record(self, delivery: Delivery) -> bool:
        """Keep how a notification goes; one that is no longer pending moves `told` on. False: the push is gone."""
        ...

    async def finish(self, number: int, told: int) -> None:
        """There is nothing more to tell."""
        ...

    async def deliveries(self, limit: int) -> Sequence[tuple[Push, Delivery | None]]:
        """What became of notifications, the latest first; a webhook that was told nothing yet has no delivery."""
        ...

    async def counts(self) -> Mapping[DeliveryState, int]:
        """How many notifications are in each state; the delivered ones only as far as they are kept."""
        ...


class PushService(Protocol):
    """The push configurations of tasks that the caller may see. Every method may raise StoreFailed."""

    async def set(self, task: Task, config: PushConfig) -> PushConfig:
        """Notify a webhook of what happens to the task from now on; return the configuration with its id.

        Raises InvalidField for a configuration that cannot be used, InvalidRequest when the task has too many.
        """
        ...

    async def expect(self, config: PushConfig, task_id: str) -> int:
        """Check a configuration before its message is sent; return the seq after which the webhook is notified.

        Raises InvalidField.
        """
        ...

    async def keep(self, task: Task, config: PushConfig, told: int) -> PushConfig:
        """Notify a webhook of what happens to the task after the seq `told`.

        Raises InvalidRequest when the task has too many configurations.
        """
        ...

    async def get(self, task: Task, config_id: str) -> PushConfig:
        """Return a configuration; without an id, the only one. Raises PushConfigNotFound."""
        ...

    async def list(self, task: Task) -> tuple[PushConfig, ...]:
        """Return the configurations of the task, oldest first."""
        ...

    async def delete(self, task: Task, config_id: str) -> None:
        """Delete a configuration; one that is not there is no error."""
        ...


def checked_config(config: PushConfig) -> PushConfig:
    """Return `config` when its secrets can be said in a header.

    Raises InvalidField.
    """
    for name, value in (("token", config.token), ("authentication.credentials", config.credentials)):
        if not _HEADER_TEXT.fullmatch(value):
            raise InvalidField(name, "must be printable ASCII, because it is sent in a header")
    if not _SCHEME.fullmatch(config.scheme):
        raise InvalidField("authentication.scheme", "is not the name of a scheme", hint="bearer, basic or api-key")
    return config


def chosen_scheme(schemes: Sequence[str]) -> str:
    """The one of several schemes that we use: the first that we know, else the first."""
    known = (scheme for scheme in schemes if scheme.lower() in _KNOWN_SCHEMES)
    return next(known, schemes[0] if schemes else "")


def proof_headers(config: PushConfig) -> list[tuple[str, str]]:
    """The headers by which a receiver knows that a notification is from us."""
    headers = [(TOKEN_HEADER, config.token)] if config.token else []
    scheme, credentials = config.scheme.lower(), config.credentials
    if not scheme or not credentials:
        return headers
    if scheme in _API_KEY:
        return [*headers, ("X-API-Key", credentials)]
    if scheme == "basic" and ":" in credentials:
        # Base64 has no colon: this is a name and a password as a person writes them.
        credentials = b64encode(credentials.encode("ascii")).decode("ascii")
    spelt = scheme.capitalize() if scheme in ("bearer", "basic") else config.scheme
    return [*headers, ("Authorization", f"{spelt} {credentials}")]


def shown_url(url: str) -> str:
    """The address for people and logs: without a query, and without parts of the path that may be secrets."""
    parts = urlsplit(url)
    segments = ["…" if len(segment) > _LONG_SEGMENT else segment for segment in parts.path.split("/")]
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{'/'.join(segments)}" + ("?…" if parts.query else "")
