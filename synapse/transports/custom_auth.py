"""An authenticator of the owner's own: a function that is given the headers, the query and the path of a request.

    async def authenticate(headers: dict[str, str], query: dict[str, str], path: str) -> dict | None

It returns None for somebody it does not know, or who that is: `name` and `scope` (a text each; one is enough),
`actions` and `agents` (lists; all when left out), `all_tasks`. It may be `async` or not; one that is not runs in a
thread, so that it can look things up. What goes wrong in it is logged, and the caller gets no detail.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Final, cast
from urllib.parse import parse_qsl

from synapse.core.caller import Caller
from synapse.core.errors import InternalFailure, InvalidRequest
from synapse.dialects.dialect import Headers
from synapse.service.api_keys import checked_actions
from synapse.transports.authentication import Credentials, Verdict

log = logging.getLogger(__name__)

PATIENCE_SECONDS: Final = 10.0
_FIELDS: Final = {"name", "scope", "actions", "agents", "all_tasks"}

Custom = Callable[[dict[str, str], dict[str, str], str], Any]


class CustomAuthenticator:
    """Asks the owner's function."""

    unguessable = False

    def __init__(self, function: Custom, *, patience: float = PATIENCE_SECONDS) -> None:
        self._function = function
        self._patience = patience
        self._is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004 - an object whose call is async
        )

    def authenticate(self, credentials: Credentials) -> Awaitable[Verdict]:
        return self._ask(credentials)

    async def _ask(self, credentials: Credentials) -> Verdict:
        query = dict(parse_qsl(credentials.query.decode("ascii", "replace"), keep_blank_values=True))
        try:
            async with asyncio.timeout(self._patience):
                said = await self._call(_as_texts(credentials.headers), query, credentials.path)
            return read_caller(said)
        except Exception as error:
            # Somebody else's code may raise anything; nobody is let in by that, and nobody is told.
            log.exception("custom_authenticator_failed")
            raise InternalFailure from error

    def _call(self, headers: dict[str, str], query: dict[str, str], path: str) -> Awaitable[Any]:
        if self._is_async:
            return cast("Awaitable[Any]", self._function(headers, query, path))
        return asyncio.to_thread(self._function, headers, query, path)


def read_caller(said: object) -> Caller | None:
    """Whom the function means. Raises InvalidRequest for what cannot be meant."""
    if said is None:
        return None
    if isinstance(said, Caller):
        # What only the socket of this machine proves is not for it to say.
        return replace(said, via_socket=False, agent_id="", pid=0)
    if not isinstance(said, Mapping):
        raise InvalidRequest(f"it returned {type(said).__name__}, not a dictionary or None")
    fields = cast("Mapping[str, object]", said)
    if unknown := sorted(map(str, fields.keys() - _FIELDS)):
        raise InvalidRequest(f"it returned fields that mean nothing: {', '.join(unknown)}")
    name, scope = (_text(fields, field) for field in ("name", "scope"))
    if not name and not scope:
        raise InvalidRequest("it returned neither a name nor a scope")
    agents = _texts(fields, "agents")
    actions = _texts(fields, "actions")
    return Caller(
        name=name or scope,
        scope=scope or f"custom:{name}",
        actions=None if actions is None else checked_actions(actions) if actions else frozenset(),
        agents=None if agents is None else frozenset(agents),
        sees_all=fields.get("all_tasks", False) is True,
    )


def _text(fields: Mapping[str, object], name: str) -> str:
    value = fields.get(name, "")
    if not isinstance(value, str):
        raise InvalidRequest(f"its '{name}' is no text")
    return value


def _texts(fields: Mapping[str, object], name: str) -> list[str] | None:
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, list | tuple | set | frozenset):
        raise InvalidRequest(f"its '{name}' is no list")
    items = list(cast("list[object]", value))
    if not all(isinstance(item, str) for item in items):
        raise InvalidRequest(f"its '{name}' is no list of texts")
    return cast("list[str]", items)


def _as_texts(headers: Headers) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in headers}
