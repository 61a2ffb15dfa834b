"""The load generator: keep-alive connections over a Unix socket, each asking again as soon as it was answered.

A process of its own, so that it takes nothing from the server but a core. Run as

    python -m benchmarks.load SOCKET SECONDS CONNECTIONS < REQUEST

It prints how many were answered and in how many seconds. `ID` in the request becomes another id each time.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time
from itertools import count

ID = b"%SIXTEEN-DIGITS%"
_READ_SIZE = 65536


class Connection:
    """A connection that asks one thing at a time."""

    def __init__(self, path: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.connect(path)
        self._received = b""
        self.body = b""
        """Of the last answer."""

    def ask(self, request: bytes) -> None:
        self.socket.sendall(request)

    def take_answer(self) -> bool:
        """Read what has come; True when that completes the answer. Raises if it is not a success."""
        data = self.socket.recv(_READ_SIZE)
        if not data:
            raise ConnectionError("the server hung up")
        received = self._received + data
        head, separator, body = received.partition(b"\r\n\r\n")
        if not separator or len(body) < _length(head):
            self._received = received
            return False
        # JSON-RPC tells its errors with status 200.
        if not head.startswith(b"HTTP/1.1 200") or b'"error":' in body:
            raise RuntimeError(received.decode())
        self._received = b""
        self.body = body
        return True


def _length(head: bytes) -> int:
    return int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])


def drive(path: str, request: bytes, seconds: float, connections: int) -> tuple[int, float]:
    """Return how many requests were answered, and in how many seconds."""
    ids = count(time.monotonic_ns())
    with select.epoll() as poller:
        asking = {one.socket.fileno(): one for one in (Connection(path) for _ in range(connections))}
        for number in asking:
            poller.register(number, select.EPOLLIN)
        begun = time.perf_counter()
        for connection in asking.values():
            connection.ask(with_id(request, next(ids)))
        answered = 0
        while (taken := time.perf_counter() - begun) < seconds:
            for number, _ in poller.poll(1.0):
                if asking[number].take_answer():
                    answered += 1
                    asking[number].ask(with_id(request, next(ids)))
    for connection in asking.values():
        connection.socket.close()
    return answered, taken


def with_id(request: bytes, number: int) -> bytes:
    """The request with an id of its own."""
    # As long as the placeholder, so that the Content-Length stays true.
    return request.replace(ID, b"%016x" % number)


if __name__ == "__main__":
    answered, taken = drive(sys.argv[1], sys.stdin.buffer.read(), float(sys.argv[2]), int(sys.argv[3]))
    json.dump({"answered": answered, "seconds": taken}, sys.stdout)
