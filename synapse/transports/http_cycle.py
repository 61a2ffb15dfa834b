"""One request of a connection and its answer: ASGI on one side, HTTP/1.1 on the other.

                  start               last piece
    WAITING ───────────────► STREAMING ─────────► ANSWERED
       └──────────────────────────────────────────────▲
                        a whole answer

A request whose body breaks off is told to the application as a caller who left. If it did not need the body, its
answer counts; otherwise the fault is answered when the application has ended. So what is answered does not depend on
how the bytes were cut.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from enum import Enum
from typing import Any, Final, Protocol

from synapse.core.errors import AgentExited, InternalFailure
from synapse.dialects.dialect import WireAnswer
from synapse.transports.answer_head import WITHOUT_BODY, Openings
from synapse.transports.asgi import Receive, Scope, Send
from synapse.transports.http_reader import Fault

log = logging.getLogger(__name__)

App = Callable[[Scope, Receive, Send], Awaitable[None]]
Message = MutableMapping[str, Any]

HIGH_WATER: Final = 64 * 1024
"""So many bytes of a body wait for the application; then no more are read."""

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
CLOSE: Final = b"connection: close\r\n"
_CHUNKED: Final = b"transfer-encoding: chunked\r\n"
_LAST_CHUNK: Final = b"0\r\n\r\n"


class Line(Protocol):
    """The connection, as one request needs it."""

    openings: Openings
    is_clogged: bool
    """The caller does not read what was written."""

    def write(self, data: bytes) -> None: ...
    async def drained(self) -> None:
        """Return when the caller has read, or is gone."""
        ...

    def go_on_reading(self) -> None:
        """The application waits for more of the body, or for the caller to leave."""
        ...

    def answered(self, cycle: Cycle) -> None:
        """All of the answer is written."""
        ...

    def ended(self, cycle: Cycle, fault: Fault | None) -> None:
        """The application has ended; with a fault when there is an answer missing, or the rest of one."""
        ...


class Phase(Enum):
    """How far the answer is."""

    WAITING = "waiting"
    STREAMING = "streaming"
    ANSWERED = "answered"


class _Framing(Enum):
    """How the reader of an answer knows where its body ends."""

    NO_BODY = "no body"
    COUNTED = "counted"
    CHUNKED = "chunked"
    UNTIL_CLOSE = "until close"


class Cycle:
    """One request. It is itself the `send` of the application."""

    __slots__ = (
        "_arrived",
        "_body_taken",
        "_fault",
        "_framing",
        "_left",
        "_line",
        "_on_leave",
        "_pieces",
        "_void",
        "_wants_continue",
        "keep_alive",
        "phase",
        "scope",
        "task",
        "unread",
        "whole",
    )

    def __init__(self, line: Line, scope: Scope, *, keep_alive: bool, wants_continue: bool) -> None:
        self.scope = scope
        self.keep_alive = keep_alive
        self.phase = Phase.WAITING
        self.whole = False
        """All of the request has come."""
        self.unread = 0
        """Bytes of the body that wait for the application."""
        self.task: asyncio.Task[None] | None = None
        self._line = line
        self._wants_continue = wants_continue
        self._pieces: list[bytes] = []
        self._body_taken = False
        self._arrived: asyncio.Event | None = None
        self._fault: Fault | None = None
        self._void = False
        self._on_leave: Callable[[], object] | None = None
        self._framing = _Framing.NO_BODY
        self._left = 0

    # What the connection tells.

    def add_body(self, piece: bytes) -> None:
        """Some of the body has come."""
        if self.phase is not Phase.ANSWERED:
            self._pieces.append(piece)
            self.unread += len(piece)
            self._tell()

    def complete(self) -> None:
        """All of the body has come."""
        self.whole = True
        self._tell()

    def break_off(self, fault: Fault) -> None:
        """The rest of the body will never come, or means nothing."""
        self._fault = fault
        self.keep_alive = False
        self._tell()

    def lose(self) -> None:
        """The caller has left."""
        self._void = True
        self._tell()
        if self._on_leave is not None:
            self._on_leave()

    # What the application asks.

    async def run(self, app: App) -> None:
        """Let the application answer, and see to it that there is an answer."""
        fault: Fault | None = None
        try:
            await app(self.scope, self.receive, self)
            fault = self._missing()
        except Exception:
            # The outermost handler, for what the application itself did not catch.
            log.exception("application_failed", extra={"path": self.scope["path"]})
            fault = Fault(500, InternalFailure())
        except asyncio.CancelledError:
            # The server ends and waits no longer.
            fault = Fault(503, AgentExited("this server ends"))
            raise
        finally:
            self._line.ended(self, fault)

    def body_at_hand(self) -> bytes | None:
        """The whole body, if it has come in one piece and nothing else has happened: the short way for nearly all."""
        if not self.whole or len(self._pieces) != 1 or self._void or self._wants_continue or self._body_taken:
            return None
        self._body_taken = True
        self.unread = 0
        return self._pieces.pop()

    async def receive(self) -> Message:
        """The next piece of the body; or that the caller has left."""
        if self._wants_continue:
            self._wants_continue = False
            if not self._has_news():
                self._line.write(CONTINUE)
        while not self._has_news():
            self._line.go_on_reading()
            if self._arrived is None:
                self._arrived = asyncio.Event()
            self._arrived.clear()
            await self._arrived.wait()
        if self._void or self.phase is Phase.ANSWERED or not (self._pieces or self.whole):
            # Whatever is answered now is nobody's answer.
            self._void = True
            return {"type": "http.disconnect"}
        pieces = self._pieces
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self._pieces = []
        self.unread = 0
        self._body_taken = self.whole
        return {"type": "http.request", "body": body, "more_body": not self.whole}

    async def __call__(self, message: Message) -> None:
        """Send one of ASGI's messages; waits while the caller does not read."""
        if self._line.is_clogged and not self._void:
            await self._line.drained()
        if self._void:
            return
        if self.phase is Phase.WAITING and message["type"] == "http.response.start":
            self._start(message["status"], [*message.get("headers", ())])
        elif self.phase is Phase.STREAMING and message["type"] == "http.response.body":
            self._send_piece(message.get("body", b""), is_last=not message.get("more_body", False))
        else:
            raise RuntimeError(f"{message['type']} does not come while an answer is {self.phase.value}")

    def answer(self, answer: WireAnswer, *, last: bool = False) -> None:
        """Send a whole answer at once: the short way for nearly all of them."""
        if self._void:
            return
        if self.phase is not Phase.WAITING:
            raise RuntimeError(f"an answer does not come while another is {self.phase.value}")
        status, body, headers, media_type, _ = answer
        if status in WITHOUT_BODY:
            head, body = self._line.openings.of(status, headers), b""
        elif headers:
            about = (*headers, (b"content-type", media_type), (b"content-length", b"%d" % len(body)))
            head = self._line.openings.of(status, about)
        else:
            head = b"%b%d\r\n" % (self._line.openings.plain(status, media_type), len(body))
        if last or self._wants_continue:
            self.keep_alive = False
        if not self.keep_alive:
            head += CLOSE
        self._line.write(b"%b\r\n%b" % (head, b"" if self.scope["method"] == "HEAD" else body))
        self._finish()

    def when_left(self, call: Callable[[], object] | None) -> None:
        """Call this when the caller leaves; there is one such call at most."""
        self._on_leave = call
        if call is None:
            return
        if self._void:
            call()
        else:
            self._line.go_on_reading()

    def _has_news(self) -> bool:
        if self._void or self._pieces or self._fault is not None or self.phase is Phase.ANSWERED:
            return True
        return self.whole and not self._body_taken

    def _tell(self) -> None:
        if self._arrived is not None:
            self._arrived.set()

    def _missing(self) -> Fault | None:
        """What is to be answered when the application has not."""
        if self.phase is Phase.ANSWERED or (self._void and self._fault is None):
            return None
        if self._fault is None:
            log.error("request_unanswered", extra={"path": self.scope["path"]})
        return self._fault or Fault(500, InternalFailure())

    def _start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        named = {name.lower(): value for name, value in headers}
        length = named.get(b"content-length")
        head = self._line.openings.of(status, headers)
        if b"close" in named.get(b"connection", b"").lower():
            self.keep_alive = False
        elif not self.keep_alive or self._wants_continue:
            # Who asked whether to send a body and got an answer instead may send it or not: nobody could tell.
            self.keep_alive = False
            head += CLOSE
        self._framing = self._framing_of(status, length)
        if self._framing is _Framing.CHUNKED:
            head += _CHUNKED
        self._left = int(length or b"0")
        self.phase = Phase.STREAMING
        self._line.write(head + b"\r\n")

    def _framing_of(self, status: int, length: bytes | None) -> _Framing:
        if self.scope["method"] == "HEAD" or status in WITHOUT_BODY:
            return _Framing.NO_BODY
        if length is not None:
            return _Framing.COUNTED
        # Chunks are an invention of 1.1; who speaks less gets a connection of its own for each answer.
        return _Framing.CHUNKED if self.scope["http_version"] == "1.1" else _Framing.UNTIL_CLOSE

    def _send_piece(self, body: bytes, *, is_last: bool) -> None:
        match self._framing:
            case _Framing.NO_BODY:
                pass
            case _Framing.CHUNKED:
                framed = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
                self._line.write(framed + _LAST_CHUNK if is_last else framed)
            case _Framing.COUNTED:
                self._left -= len(body)
                if self._left < 0 or (is_last and self._left):
                    raise RuntimeError("the body is not as long as its content-length says")
                self._line.write(body)
            case _Framing.UNTIL_CLOSE:
                self._line.write(body)
        if is_last:
            self._finish()

    def _finish(self) -> None:
        self.phase = Phase.ANSWERED
        self._pieces = []
        self.unread = 0
        self._tell()
        self._line.answered(self)
