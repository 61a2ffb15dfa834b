"""From bytes to requests: what llhttp reads, with limits, and as scopes of ASGI. It does no I/O.

What it tells does not depend on how the bytes were cut, but for the pieces that a body comes in.
"""

from __future__ import annotations

import logging
from typing import Final, Protocol
from urllib.parse import unquote

import httptools

from synapse.core.errors import InternalFailure, InvalidRequest, SynapseError
from synapse.transports.asgi import Scope

log = logging.getLogger(__name__)

HEAD_LIMIT: Final = 64 * 1024
_RAW_LIMIT: Final = 2 * HEAD_LIMIT
"""Of bytes that bring nothing: a head without end, or a trailer. Blanks count here, though not as the head's size."""


class Fault(Exception):
    """Why bytes never became a request, and the status that tells it."""

    def __init__(self, status: int, error: SynapseError) -> None:
        super().__init__(status, error)
        self.status = status
        self.error = error
        self.scope: Scope | None = None
        """What was read of the head before it went wrong: enough to tell which dialect it speaks."""


class Listener(Protocol):
    """Is told what was read."""

    def on_request(self, scope: Scope, *, keep_alive: bool, wants_continue: bool) -> None:
        """A head is there. A body may follow."""
        ...

    def on_piece(self, piece: bytes) -> None:
        """Some of its body."""
        ...

    def on_whole(self) -> None:
        """All of it was read."""
        ...

    def on_upgrade(self, head: bytes) -> bool:
        """Somebody asks for a WebSocket; true if that gets all that follows. Otherwise it is a request like others."""
        ...


class RequestReader:
    """Reads the requests of one connection. `common` is what the scopes of all of them have."""

    def __init__(self, listener: Listener, common: Scope) -> None:
        self._listener = listener
        self._common = dict(common)
        self._parser = httptools.HttpRequestParser(self)
        self.is_within = False
        """A request has begun that is not whole."""
        self._in_body = False
        self._stopped = False
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._expects = False
        self._measures = False
        self._moved = False
        self._fruitless = 0

    def feed(self, data: bytes) -> None:
        """Read on.

        Raises:
            Fault: this is no HTTP, or too much of it. Nothing can be read after that.
        """
        # Most heads come in one small piece, which needs no measuring.
        self._measures = self.is_within or len(data) > HEAD_LIMIT
        self._moved = False
        rest: bytes | memoryview = data
        while rest:
            rest = self._parse(rest)
        if not self.is_within or self._stopped:
            return
        self._fruitless = 0 if self._moved else self._fruitless + len(data)
        if self._fruitless > _RAW_LIMIT:
            raise _head_too_large()

    def stop(self) -> None:
        """Tell nothing of what is still to come, also of what was fed already."""
        self._stopped = True

    def close(self) -> None:
        """The connection is gone: let go of it, and of the parser, which holds on to us.

        What holds on to itself stays in memory until the collector comes, which is seldom.
        """
        self.stop()
        self._listener = _NOBODY
        self._parser = _NO_PARSER

    # What the parser calls.

    def on_message_begin(self) -> None:
        self.is_within = self._moved = True
        self._url = b""
        self._headers = []
        self._expects = False

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_body:
            return  # a trailer: nothing may be said there that belongs to the head
        name = name.lower()
        self._headers.append((name, value))
        if name == b"expect" and value.lower() == b"100-continue":
            self._expects = True

    def on_headers_complete(self) -> None:
        parser = self._parser
        # What becomes of an upgrade is decided when the parser has let go of it.
        if self._stopped or parser.should_upgrade():
            return
        if self._measures:
            self._check_size()
        self._moved = self._in_body = True
        scope = self._scope()
        version = scope["http_version"]
        # Before 1.1 only the end of the connection can tell the end of an answer.
        keep_alive = version == "1.1" and parser.should_keep_alive()
        self._listener.on_request(scope, keep_alive=keep_alive, wants_continue=self._expects and version == "1.1")

    def on_body(self, body: bytes) -> None:
        self._moved = True
        if self._in_body:
            self._listener.on_piece(body)

    def on_message_complete(self) -> None:
        if self._in_body:
            self._in_body = self.is_within = False
            self._listener.on_whole()

    def _parse(self, data: bytes | memoryview) -> bytes | memoryview:
        """Read; return what is left behind a request for another protocol that was not granted."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            return memoryview(data)[upgrade.args[0] :] if self._forgoes_upgrade() else b""
        except httptools.HttpParserError as error:
            # Behind the last request anything may come.
            if not self._stopped:
                fault = _fault(error)
                fault.scope = self._scope_so_far()
                raise fault from error
        return b""

    def _scope_so_far(self) -> Scope | None:
        """Return the head as far as it was read, or None while not even its path is whole."""
        if self._in_body or not self._headers:
            return None
        try:
            return self._scope()
        except (Fault, UnicodeDecodeError):
            return None

    def _scope(self) -> Scope:
        scope = self._common.copy()
        scope["http_version"] = self._parser.get_http_version()
        scope["method"] = self._parser.get_method().decode("ascii")
        scope["headers"] = self._headers
        raw_path, scope["query_string"] = _split(self._url)
        path = raw_path.decode("ascii")
        scope["raw_path"] = raw_path
        scope["path"] = unquote(path) if "%" in path else path
        return scope

    def _forgoes_upgrade(self) -> bool:
        """Decide about an upgrade; true if the request is served like any other.

        The parser takes all that follows for the other protocol, also a body. So it is read once more, without the
        header: what a proxy takes for a body must never be a request of its own.
        """
        if self._stopped:
            return False
        wanted = dict(self._headers).get(b"upgrade", b"").lower()
        if wanted == b"websocket" and self._listener.on_upgrade(self._head(self._headers)):
            self.stop()
            return False
        if self._parser.get_method() == b"CONNECT":
            raise Fault(400, InvalidRequest("this is no proxy", hint="leave CONNECT to proxies"))
        head = self._head([line for line in self._headers if line[0] != b"upgrade"])
        self._parser = httptools.HttpRequestParser(self)
        return self._parse(head) == b""

    def _head(self, headers: list[tuple[bytes, bytes]]) -> bytes:
        version = self._parser.get_http_version().encode("ascii")
        lines = [b"%b %b HTTP/%b" % (self._parser.get_method(), self._url, version)]
        lines += [b"%b: %b" % line for line in headers]
        return b"\r\n".join([*lines, b"", b""])

    def _check_size(self) -> None:
        size = len(self._url) + sum([len(name) + len(value) + 4 for name, value in self._headers])
        if size > HEAD_LIMIT:
            raise _head_too_large()


def _split(url: bytes) -> tuple[bytes, bytes]:
    """The path and the query."""
    if url.startswith(b"/") and b"#" not in url:
        path, _, query = url.partition(b"?")
        return path, query
    try:
        parsed = httptools.parse_url(url)
    except httptools.HttpParserInvalidURLError as error:
        raise Fault(400, InvalidRequest("this address cannot be read", hint="send a path")) from error
    return parsed.path or b"/", parsed.query or b""


def _head_too_large() -> Fault:
    return Fault(431, InvalidRequest(f"the head of the request is larger than {HEAD_LIMIT} bytes"))


def _fault(error: httptools.HttpParserError) -> Fault:
    if not isinstance(error, httptools.HttpParserCallbackError):
        return Fault(400, InvalidRequest("this cannot be read as HTTP", hint="speak HTTP/1.1"))
    if isinstance(error.__context__, Fault):
        return error.__context__
    log.error("request_unreadable", exc_info=error.__context__)
    return Fault(500, InternalFailure())


class _Nobody:
    """Is told of what comes when the connection is gone already."""

    def on_request(self, scope: Scope, *, keep_alive: bool, wants_continue: bool) -> None: ...

    def on_piece(self, piece: bytes) -> None: ...

    def on_whole(self) -> None: ...

    def on_upgrade(self, head: bytes) -> bool:  # noqa: ARG002 - as a listener has it
        return False


_NOBODY: Final = _Nobody()
_NO_PARSER: Final = httptools.HttpRequestParser(_NOBODY)
