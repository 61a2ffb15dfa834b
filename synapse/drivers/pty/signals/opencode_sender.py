"""Hands a message to OpenCode by its server: no key is pressed, and what a person has begun to type stays."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from synapse.core.envelope import sanitise
from synapse.drivers.pty.signals.adapter import NotTaken
from synapse.drivers.pty.signals.local_server import LocalServer, NotReached, Reply
from synapse.terminal.picture import Picture
from synapse.terminal.signals.opencode import OpenCodeEvents, Shown, conversation_shown
from synapse.terminal.signals.report import Record, Report, Told, word

_SEEN_SECONDS: Final = 2.0
"""How long the message may take to appear among its server's events."""


class OpenCodeSender:
    """Implements Sender.

    A message goes into the conversation that was last spoken in, with the agent and the model of its last message, and
    the TUI is made to show that conversation. Where there is none yet, or the TUI shows its start page again, one is
    begun; where it shows another one, the message is not taken, so that it is typed there.
    """

    def __init__(
        self,
        server: LocalServer,
        events: OpenCodeEvents,
        first_way: Record,
        *,
        unknown: str,
        picture: Callable[[], Picture | None],
    ) -> None:
        self._server = server
        self._events = events
        self._first_way = first_way
        self._unknown = unknown
        """Why the conversation that it shows cannot be known before its first message; empty if it shows none."""
        self._picture = picture
        """What its terminal shows."""
        self._expected: tuple[str, asyncio.Future[None]] | None = None

    async def send(self, text: str) -> str:
        """Hand one message over; see `signals.adapter.Sender`."""
        text = sanitise(text).strip()
        before = self._events.session
        session = await self._conversation(before)
        way = self._events.way_of(session) or self._events.way_of(before) or self._first_way
        seen: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._expected = (text, seen)
        try:
            await self._ask("POST", "/tui/select-session", {"sessionID": session})
            return await self._hand_over(session, {"parts": [{"type": "text", "text": text}], **way}, seen)
        finally:
            self._expected = None

    def hear(self, report: Report) -> None:
        """Take what its events say: a message of ours may be among them."""
        if report.told is not Told.SUBMITTED or self._expected is None:
            return
        text, seen = self._expected
        if report.is_about(text) and not seen.done():
            seen.set_result(None)

    async def _conversation(self, last: str) -> str:
        """The conversation on its screen: the one that was last spoken in, or a new one."""
        if not last:
            if self._unknown:
                raise NotTaken(self._unknown)
            return await self._begin()
        match conversation_shown(self._picture(), last, await self._sessions()):
            case Shown.SAME:
                return last
            case Shown.NONE:
                return await self._begin()
            case Shown.ANOTHER:
                raise NotTaken("its terminal shows another conversation: the message is typed there")

    async def _sessions(self) -> list[Record]:
        value = (await self._ask("GET", "/session")).value()
        return [_table(one) for one in cast("list[object]", value)] if isinstance(value, list) else []

    async def _begin(self) -> str:
        """Begin a conversation; it is in the list of its person's conversations like any other."""
        session = word(_table((await self._ask("POST", "/session", {})).value()), "id")
        if not session:
            raise NotTaken("its server began no conversation")
        return session

    async def _hand_over(self, session: str, body: Mapping[str, Any], seen: asyncio.Future[None]) -> str:
        try:
            reply = await self._server.ask("POST", f"/session/{session}/prompt_async", body)
        except NotReached as error:
            raise NotTaken(str(error)) from error
        except (OSError, EOFError, ValueError):
            if await _is_seen(seen):
                return "its server has the message, though it did not answer"
            raise
        if not reply.is_success:
            raise NotTaken(_refusal(reply))
        if await _is_seen(seen):
            return "its server took the message, and tells of it"
        return "its server took the message"

    async def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Reply:
        """Prepare its server for the message. Whatever goes wrong here, the message was not taken."""
        try:
            reply = await self._server.ask(method, path, body)
        except (NotReached, OSError, EOFError, ValueError) as error:
            raise NotTaken(f"its server did not answer: {error}") from error
        if not reply.is_success:
            raise NotTaken(_refusal(reply))
        return reply


async def _is_seen(seen: asyncio.Future[None]) -> bool:
    done, _ = await asyncio.wait((seen,), timeout=_SEEN_SECONDS)
    return bool(done)


def _refusal(reply: Reply) -> str:
    error = _table(reply.value())
    why = word(error, "data", "message") or word(error, "message")
    return f"its server refused the message ({reply.status}){': ' if why else ''}{sanitise(why)}"


def _table(value: object) -> Record:
    return cast("Record", value) if isinstance(value, Mapping) else {}
