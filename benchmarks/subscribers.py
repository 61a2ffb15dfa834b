"""Many readers of one task: each opens a stream of its own and reads it to its end, all in one process.

    python -m benchmarks.subscribers SOCKET COUNT < REQUEST

It prints `joined` when everybody has had a first event, and at the end, as JSON, the ids of the events that each had:
how many readers had which.
"""

from __future__ import annotations

import json
import re
import resource
import select
import socket
import sys
from collections import Counter

_READ_SIZE = 65536
_SPARE_FILES = 50
_SECONDS_IN_SILENCE = 60
_END = b"0\r\n\r\n"
_EVENT_ID = re.compile(rb"^id: ?(\d+)", re.MULTILINE)


def follow(path: str, count: int, request: bytes) -> Counter[bytes]:
    """Return how many readers had which events."""
    readers = {one.fileno(): one for one in (_connected(path, request) for _ in range(count))}
    received = dict.fromkeys(readers, b"")
    joined, had = 0, Counter[bytes]()
    with select.epoll() as poller:
        for number in readers:
            poller.register(number, select.EPOLLIN)
        while readers:
            ready = poller.poll(_SECONDS_IN_SILENCE)
            if not ready:
                raise TimeoutError(f"{len(readers)} readers wait for an end that does not come")
            for number, _ in ready:
                data = readers[number].recv(_READ_SIZE)
                joined += b"data:" not in received[number] and b"data:" in received[number] + data
                if joined == count:
                    joined = 0
                    print("joined", flush=True)
                received[number] += data
                if not data or received[number].endswith(_END):
                    poller.unregister(number)
                    readers.pop(number).close()
                    had[b" ".join(_EVENT_ID.findall(received.pop(number)))] += 1
    return had


def _connected(path: str, request: bytes) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(path)
    connection.sendall(request)
    return connection


def _allow_files(count: int) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + _SPARE_FILES
    if most != resource.RLIM_INFINITY and most < wanted:
        raise SystemExit(f"{wanted} files are needed, and {most} are allowed here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


if __name__ == "__main__":
    _allow_files(int(sys.argv[2]))
    found = follow(sys.argv[1], int(sys.argv[2]), sys.stdin.buffer.read())
    json.dump([[ids.decode(), readers] for ids, readers in found.items()], sys.stdout)
