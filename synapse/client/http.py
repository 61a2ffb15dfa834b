"""A small blocking HTTP client for a host's Unix socket or TCP port: one request per connection.

`synapse send` imports this module, so it uses only `_socket`. Hosts use it in a thread. `client.events` reads event
streams and is loaded only by commands that wait.
"""

from synapse.core.agent import LAUNCH_HEADER
from synapse.core.json_text import decode_object, encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

try:
    import _socket as socket
except ImportError:
    import socket  # type: ignore[no-redef]  # its public name


READ_SIZE = 65_536
MAX_ANSWER_BYTES = 256 * 1024 * 1024
CONNECT_SECONDS = 2.0
ANSWER_SECONDS = 15.0
CHECK_SECONDS = 2.0
"""After this much silence the client checks whether the host is suspended."""


class NoAnswer(Exception):
    """The host could not be reached, closed the connection, or was too slow.

    `sent`: it may have read the request. `forbidden`: this process may not connect, as in a sandbox, so the error says
    nothing about the host.
    """

    def __init__(self, why: str, *, sent: bool, timed_out: bool = False, forbidden: bool = False) -> None:
        super().__init__(why)
        self.sent = sent
        self.timed_out = timed_out
        self.forbidden = forbidden


class HostAddress:
    """Where a host listens. The client tries the Unix socket first, then the TCP port.

    `launch` is the secret of the launch that this process belongs to. Only a Unix socket gets it: whoever has taken the
    host's TCP port must not learn it.
    """

    __slots__ = ("host", "launch", "port", "socket")

    def __init__(self, socket: str = "", *, host: str = "127.0.0.1", port: int = 0, launch: str = "") -> None:
        self.socket = socket
        self.host = host
        self.port = port
        self.launch = launch

    def proof(self, connection: "socket.socket") -> "tuple[str, ...]":
        """Returns the header that proves the launch, if `connection` may show it."""
        return (f"{LAUNCH_HEADER}: {self.launch}",) if self.launch and connection.family == socket.AF_UNIX else ()


class Answer:
    """A response: the HTTP status and the JSON body (an empty object if the body is not JSON)."""

    __slots__ = ("body", "status")

    def __init__(self, status: int, body: "dict[str, Any]") -> None:
        self.status = status
        self.body = body


def request(
    address: HostAddress,
    method: str,
    path: str,
    body: "dict[str, Any] | None" = None,
    *,
    timeout: float = ANSWER_SECONDS,
    is_stopped: "Callable[[], bool]" = lambda: False,
) -> Answer:
    """Sends a request to the host at `address` and returns its answer, whatever its status.

    Calls `is_stopped` after CHECK_SECONDS of silence, and stops waiting if the host is suspended.

    Raises:
        NoAnswer: the host cannot be reached, does not answer in `timeout` seconds, or does not speak HTTP.
    """
    connection = connect(address)
    try:
        _send(connection, compose(address, method, path, body, address.proof(connection)), timeout, is_stopped)
        _with_timeout(connection, timeout, is_stopped, connection.recv, 1, socket.MSG_PEEK)
        head, rest = read_head(connection)
        return Answer(status_of(head), as_object(_read_body(connection, head, rest)))
    except OSError as error:
        raise NoAnswer(str(error), sent=True, timed_out=isinstance(error, TimeoutError)) from error
    finally:
        connection.close()


def connect(address: HostAddress) -> "socket.socket":
    """Opens a connection.

    Raises:
        NoAnswer: nothing listens there.
    """
    why = "it has no address"
    forbidden = False
    if address.socket:
        try:
            return _connect_to(socket.AF_UNIX, address.socket)
        except OSError as error:
            why = str(error)
            forbidden = isinstance(error, PermissionError)
    if address.port:
        try:
            return _connect_to(socket.AF_INET, (address.host, address.port))
        except OSError as error:
            why = why if forbidden else str(error)
            forbidden = forbidden or isinstance(error, PermissionError)
    raise NoAnswer(why, sent=False, forbidden=forbidden)


def compose(
    address: HostAddress,
    method: str,
    path: str,
    body: "dict[str, Any] | None" = None,
    headers: "tuple[str, ...]" = (),
) -> bytes:
    """Returns the bytes of a request that is the only one on its connection."""
    lines = [f"{method} {path} HTTP/1.1", f"Host: localhost:{address.port}", "Connection: close", *headers]
    content = b""
    if body is not None:
        content = encode(body).encode("ascii")
        lines += ["Content-Type: application/json", f"Content-Length: {len(content)}"]
    return "\r\n".join([*lines, "", ""]).encode("utf-8") + content


def read_head(connection: "socket.socket") -> "tuple[bytes, bytes]":
    """Reads the head of the answer; returns it with the part of the body that arrived with it."""
    received = b""
    while b"\r\n\r\n" not in received:
        piece = connection.recv(READ_SIZE)
        if not piece or len(received) > READ_SIZE:
            raise NoAnswer("it closed the connection without an answer", sent=True)
        received += piece
    head, _, rest = received.partition(b"\r\n\r\n")
    return head, rest


def status_of(head: bytes) -> int:
    """Returns the status in the first line of a head. Raises NoAnswer."""
    words = head[:32].split()
    if len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
        raise NoAnswer("what listens there does not speak HTTP", sent=True)
    return int(words[1])


def header(head: bytes, name: bytes) -> bytes:
    """Returns the value of a header, or an empty value; `name` is in lower case."""
    for line in head.split(b"\r\n")[1:]:
        key, _, value = line.partition(b":")
        if key.strip().lower() == name:
            return value.strip()
    return b""


def _send(connection: "socket.socket", data: bytes, timeout: float, is_stopped: "Callable[[], bool]") -> None:
    """Writes a request. Stops if the host closes its side early: it has refused the body, and its answer is there."""
    rest = memoryview(data)
    try:
        while rest:
            # Not sendall: after a timeout it does not tell how much was written.
            rest = rest[_with_timeout(connection, timeout, is_stopped, connection.send, rest) :]
    except (BrokenPipeError, ConnectionResetError):
        return


def _with_timeout(
    connection: "socket.socket", timeout: float, is_stopped: "Callable[[], bool]", operation: "Any", *arguments: "Any"
) -> "Any":
    """Calls a blocking operation with a timeout; gives up after CHECK_SECONDS if the host is suspended."""
    connection.settimeout(min(timeout, CHECK_SECONDS))
    try:
        return operation(*arguments)
    except TimeoutError:
        if timeout <= CHECK_SECONDS or is_stopped():
            raise
        connection.settimeout(timeout - CHECK_SECONDS)
        return operation(*arguments)
    finally:
        connection.settimeout(timeout)


def _connect_to(family: int, address: "str | tuple[str, int]") -> "socket.socket":
    connection = socket.socket(family, socket.SOCK_STREAM)
    try:
        connection.settimeout(CONNECT_SECONDS)
        connection.connect(address)
    except OSError:
        connection.close()
        raise
    return connection


def _read_body(connection: "socket.socket", head: bytes, rest: bytes) -> bytes:
    length = header(head, b"content-length")
    wanted = int(length) if length.isdigit() else MAX_ANSWER_BYTES
    pieces, size = [rest], len(rest)
    while size < wanted:
        piece = connection.recv(READ_SIZE)
        if not piece:
            break
        pieces.append(piece)
        size += len(piece)
    if length and size < wanted:
        raise NoAnswer("it closed the connection in the middle of its answer", sent=True)
    whole = b"".join(pieces)
    if header(head, b"transfer-encoding").lower() == b"chunked":
        try:
            return ChunkDecoder().receive(whole)
        except ValueError as error:
            raise NoAnswer("it sent a broken chunk", sent=True) from error
    return whole


def as_object(body: bytes) -> "dict[str, Any]":
    """Returns the JSON object of a body, or an empty one."""
    try:
        return decode_object(body)
    except ValueError:
        return {}


class ChunkDecoder:
    """Decodes the chunked transfer encoding of HTTP, however the bytes are split."""

    def __init__(self) -> None:
        self._rest = b""
        self._missing = 0
        self.ended = False

    def receive(self, data: bytes) -> bytes:
        """Returns the content that is complete so far.

        Raises:
            ValueError: it is not chunked.
        """
        self._rest += data
        content: list[bytes] = []
        while self._rest and not self.ended:
            if self._missing:
                piece, self._rest = self._rest[: self._missing], self._rest[self._missing :]
                self._missing -= len(piece)
                content.append(piece)
            elif not self._begin_chunk():
                break
        return b"".join(content)

    def _begin_chunk(self) -> bool:
        """Reads the size of the next chunk; returns False if its line is not complete yet."""
        stripped = self._rest.lstrip(b"\r\n")
        line, newline, after = stripped.partition(b"\r\n")
        if not newline:
            return False
        self._missing = int(line.partition(b";")[0], 16)
        self._rest = after
        self.ended = self._missing == 0
        return True
