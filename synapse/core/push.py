"""Push notifications: the webhooks of tasks, the headers that authenticate us there, and the state of each delivery.

    pending ─► delivered
       │  ▲
       │  └── failed, and tried again later
       └────► given up: refused, or tried too often

Each notification is one event of the task's log. The progress of a webhook is a seq, so nothing is queued twice.
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
"""Identical in all tries of one notification, so that receivers recognise a repetition."""
_API_KEY: Final = frozenset({"api-key", "apikey", "api_key", "x-api-key"})
_KNOWN_SCHEMES: Final = _API_KEY | {"bearer", "basic"}
_SCHEME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{0,64}")
_HEADER_TEXT: Final = re.compile(r"[\x20-\x7e]*")
_LONG_SEGMENT: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PushConfig:
    """One webhook of one task. It contains secrets: it is never logged, and only the caller who set it may read it."""

    id: str = ""
    """Generated when empty; a configuration replaces an earlier one with its id."""
    url: str = field(repr=False)
    token: str = field(default="", repr=False)
    """Sent with every notification, so that the receiver can recognise its own configuration."""
    scheme: str = ""
    """The authentication scheme: `bearer`, `basic`, `api-key`, or another one as the caller wrote it."""
    credentials: str = field(default="", repr=False)
    dialect: str = ""
    """The dialect that set the webhook, in which its notifications are written."""
    set_by: str = ""
    """The gateway API key that set the webhook. When the key becomes invalid, notifications stop."""


class DeliveryState(StrEnum):
    """The state of one notification."""

    PENDING = "pending"
    DELIVERED = "delivered"
    GIVEN_UP = "given_up"


@dataclass(frozen=True, slots=True, kw_only=True)
class Push:
    """A stored configuration and the progress of its webhook."""

    number: int
    task_id: TaskId
    inbox: str
    config: PushConfig
    told: int
    """The seq of the last event that was delivered or given up."""
    pending: Delivery | None = None
    """The notification that was tried and is not delivered yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """The delivery of one notification: the event `seq` to the webhook of the push `number`."""

    number: int
    seq: int
    state: DeliveryState
    attempts: int
    at: datetime
    """The time of the last try."""
    status: int = 0
    """The HTTP status of the webhook's answer; 0 without an answer."""
    error: str = ""
    next_try: datetime | None = None


class PushStore(Protocol):
    """Keeps webhooks and the deliveries of their notifications. Every method may raise StoreFailed."""

    async def save(self, task_id: TaskId, inbox: str, config: PushConfig, told: int) -> Push:
        """Stores a configuration; one that replaces an earlier configuration with its id keeps its progress."""
        ...

    async def of_task(self, task_id: TaskId) -> Sequence[Push]:
        """Returns the configurations of a task, oldest first."""
        ...

    async def open_after(self, inbox: str, number: int) -> Sequence[Push]:
        """Returns the unfinished pushes of an inbox with numbers above `number`, in order."""
        ...

    async def load(self, number: int) -> Push | None:
        """Returns the push, or None if it was deleted."""
        ...

    async def delete(self, task_id: TaskId, config_id: str) -> None:
        """Deletes a configuration and its deliveries; does nothing if it is missing."""
        ...

    async def record(self, delivery: Delivery) -> bool:
        """Stores a delivery, and advances `told` unless it is pending. Returns False if the push was deleted."""
        ...

    async def finish(self, number: int, told: int) -> None:
        """Marks a push as finished: no more notifications follow."""
        ...

    async def deliveries(self, limit: int) -> Sequence[tuple[Push, Delivery | None]]:
        """Returns pushes with their deliveries, latest first; a webhook without notifications has no delivery."""
        ...

    async def counts(self) -> Mapping[DeliveryState, int]:
        """Returns how many stored notifications are in each state; old delivered ones are not kept."""
        ...


class PushService(Protocol):
    """The push configurations of tasks that the caller may see. Every method may raise StoreFailed."""

    async def set(self, task: Task, config: PushConfig) -> PushConfig:
        """Notifies a webhook of all later events of the task; returns the configuration with its id.

        Raises InvalidField for an unusable configuration, InvalidRequest if the task has too many.
        """
        ...

    async def expect(self, config: PushConfig, task_id: str) -> int:
        """Checks a configuration before its message is sent; returns the seq after which the webhook is notified.

        Raises InvalidField.
        """
        ...

    async def keep(self, task: Task, config: PushConfig, told: int) -> PushConfig:
        """Notifies a webhook of the events of the task after the seq `told`.

        Raises InvalidRequest if the task has too many configurations.
        """
        ...

    async def get(self, task: Task, config_id: str) -> PushConfig:
        """Returns a configuration; without an id, the only one. Raises PushConfigNotFound."""
        ...

    async def list(self, task: Task) -> tuple[PushConfig, ...]:
        """Returns the configurations of the task, oldest first."""
        ...

    async def delete(self, task: Task, config_id: str) -> None:
        """Deletes a configuration; does nothing if it is missing."""
        ...


def checked_config(config: PushConfig) -> PushConfig:
    """Returns `config` if its secrets can be sent in a header.

    Raises InvalidField.
    """
    for name, value in (("token", config.token), ("authentication.credentials", config.credentials)):
        if not _HEADER_TEXT.fullmatch(value):
            raise InvalidField(name, "must be printable ASCII, because it is sent in a header")
    if not _SCHEME.fullmatch(config.scheme):
        raise InvalidField("authentication.scheme", "is not the name of a scheme", hint="bearer, basic or api-key")
    return config


def chosen_scheme(schemes: Sequence[str]) -> str:
    """Returns the scheme to use: the first known one, else the first."""
    known = (scheme for scheme in schemes if scheme.lower() in _KNOWN_SCHEMES)
    return next(known, schemes[0] if schemes else "")


def proof_headers(config: PushConfig) -> list[tuple[str, str]]:
    """Returns the headers that authenticate a notification at its receiver."""
    headers = [(TOKEN_HEADER, config.token)] if config.token else []
    scheme, credentials = config.scheme.lower(), config.credentials
    if not scheme or not credentials:
        return headers
    if scheme in _API_KEY:
        return [*headers, ("X-API-Key", credentials)]
    if scheme == "basic" and ":" in credentials:
        # Base64 has no colon, so these are a plain name and password.
        credentials = b64encode(credentials.encode("ascii")).decode("ascii")
    spelt = scheme.capitalize() if scheme in ("bearer", "basic") else config.scheme
    return [*headers, ("Authorization", f"{spelt} {credentials}")]


def shown_url(url: str) -> str:
    """Returns the URL for people and logs, without its query and without path segments that may be secrets."""
    parts = urlsplit(url)
    segments = ["…" if len(segment) > _LONG_SEGMENT else segment for segment in parts.path.split("/")]
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{'/'.join(segments)}" + ("?…" if parts.query else "")
