"""Limits how many bytes are stored for one agent, or for one key of a gateway: messages, their files, and answers.

The store measures the stored bytes, across restarts; they shrink when old tasks are pruned. It is asked only now and
then: sizes accepted since are added here, and near the limit the store is asked each time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from synapse.core.caller import LOCAL_SCOPE, Caller
from synapse.core.errors import QuotaExceeded
from synapse.core.message import DataPart, FilePart, Json, Message, Part, TextPart
from synapse.core.requests import (
    AskPerson,
    ChangeTask,
    CreateTask,
    ForAgent,
    Request,
    SendAndFollow,
    SendAndWait,
    SendMessage,
)
from synapse.core.types import Clock

REMEMBERED_SECONDS: Final = 5.0
"""How long a measurement is used: answers are stored too, and other processes may write for the key."""
_NEAR: Final = 0.9
_MOST_REMEMBERED: Final = 4096
_UNITS: Final = ("bytes", "KB", "MB", "GB")

Measure = Callable[[], Awaitable[int]]
"""Asks the store how many bytes are stored now. Raises StoreFailed."""


class Quota:
    """Refuses what exceeds the limit. The error names `whose` quota it is, and the `setting` that raises it."""

    def __init__(self, limit: int, measure: Measure, clock: Clock, *, whose: str, setting: str) -> None:
        """A `limit` of 0 means no limit."""
        self._limit = limit
        self._measure = measure
        self._clock = clock
        self._whose = whose
        self._setting = setting
        self._kept = 0
        self._measured = float("-inf")

    async def take(self, size: int) -> None:
        """Counts `size` bytes that are to be stored. Raises QuotaExceeded when they exceed the limit."""
        if not self._limit:
            return
        is_old = self._clock.monotonic() - self._measured > REMEMBERED_SECONDS
        if is_old or self._kept + size > self._limit * _NEAR:
            self._measured = self._clock.monotonic()
            self._kept = await self._measure()
        if self._kept + size > self._limit:
            raise QuotaExceeded(
                f"{self._whose} may keep {_shown(self._limit)} of messages and files, has {_shown(self._kept)}, and "
                f"this takes {_shown(size)} more",
                hint=f"`{self._setting}` raises the quota; a lower `keep_days` forgets finished tasks sooner",
            )
        self._kept += size


class KeyQuotas:
    """The quotas of a gateway's callers: one for each scope; the gateway's own user has none."""

    def __init__(self, limit: int, measure: Callable[[str], Awaitable[int]], clock: Clock) -> None:
        """`measure` asks the store how many bytes a scope has."""
        self._limit = limit
        self._measure = measure
        self._clock = clock
        self._quotas: dict[str, Quota] = {}

    async def take(self, request: Request[object], caller: Caller) -> None:
        """Counts the bytes that `request` stores for `caller`. Raises QuotaExceeded."""
        size = _size_asked(request)
        # Callers in the scope of this machine's user share that user's storage, which only agents' quotas limit.
        if not size or not self._limit or caller.is_own_user or caller.scope == LOCAL_SCOPE:
            return
        quota = self._quotas.get(caller.scope)
        if quota is None:
            if len(self._quotas) >= _MOST_REMEMBERED:
                self._quotas.clear()  # they are measured again from the store
            whose, setting = f"the key '{caller.name}'", "rate_limit.stored_bytes_per_key"
            measure = partial(self._measure, caller.scope)
            quota = self._quotas[caller.scope] = Quota(self._limit, measure, self._clock, whose=whose, setting=setting)
        await quota.take(size)


def message_in(request: Request[object]) -> Message | None:
    """Returns the message that a request asks to be stored, if any."""
    asked = _innermost(request)
    return asked.message if isinstance(asked, SendMessage | CreateTask | AskPerson) else None


def _size_asked(request: Request[object]) -> int:
    """Returns about how many bytes the request stores; 0 when it only reads or ends a task."""
    match asked := _innermost(request):
        case SendMessage() | CreateTask():
            return size_of(asked.message, asked.metadata)
        case AskPerson():
            return size_of(asked.message, {"options": asked.options})
        case ChangeTask():
            return len(repr(asked.metadata)) if asked.metadata else 0
        case _:
            return 0


def _innermost(request: Request[object]) -> Request[object]:
    match request:
        case ForAgent():
            return _innermost(request.request)
        case SendAndWait() | SendAndFollow():
            return request.send
        case _:
            return request


def size_of(message: Message, metadata: Json) -> int:
    """Returns about how many bytes a message takes in the store; files are stored as base64."""
    described = sum(len(repr(one)) for one in (message.metadata, metadata) if one)
    return described + sum(map(_size_of_part, message.parts))


def _size_of_part(part: Part) -> int:
    about = len(repr(part.metadata)) if part.metadata else 0
    match part:
        case TextPart():
            return about + (len(part.text) if part.text.isascii() else len(part.text.encode(errors="surrogatepass")))
        case FilePart():
            return about + len(part.content or b"") * 4 // 3 + len(part.url)
        case DataPart():
            return about + len(repr(part.data))


def _shown(size: int) -> str:
    """Returns the size in the shortest unit, such as `1.5 GB`."""
    amount, units = float(size), list(_UNITS)
    while amount >= 1024 and len(units) > 1:
        amount /= 1024
        units.pop(0)
    return f"{amount:.0f} {units[0]}" if amount >= 10 or units[0] == _UNITS[0] else f"{amount:.1f} {units[0]}"
