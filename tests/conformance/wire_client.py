"""A plain HTTP client for a TCP port or a Unix socket; each request is a connection of its own."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

TIMEOUT = 10.0


@dataclass(frozen=True)
class Reply:
    """An HTTP answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        return str(self.json["error"]["code"])


@dataclass(frozen=True)
class Event:
    """One server-sent event."""

    id: str
    name: str
    data: Any


class WireClient:
    """Sends requests to `localhost:port`, or over the Unix socket when one is given."""

    def __init__(self, port: int, path: str = "") -> None:
        self.port = port
        self.path = path

    def request(self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None) -> Reply:
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        sent = {"Content-Type": "application/json"} if content is not None else {}
        with closing(self.connection()) as connection:
            connection.request(method, path, content, {**sent, **(headers or {})})
            response = connection.getresponse()
            return Reply(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())

    @contextmanager
    def follow(self, path: str, after: str = "") -> Generator[Iterator[Event]]:
        """Opens a stream of events."""
        headers = {"Last-Event-ID": after} if after else {}
        with closing(self.connection()) as connection:
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            assert response.status == 200, response.read()
            assert response.getheader("content-type") == "text/event-stream"
            yield _events(response)

    def connect(self) -> socket.socket:
        """Returns a bare connection, for bytes that no client would send."""
        connection = socket.socket(socket.AF_UNIX if self.path else socket.AF_INET)
        connection.settimeout(TIMEOUT)
        connection.connect(self.path or ("127.0.0.1", self.port))
        return connection

    def connection(self) -> http.client.HTTPConnection:
        """Returns an HTTP connection, for streams that need other requests."""
        connection = http.client.HTTPConnection("localhost", self.port, timeout=TIMEOUT)
        connection.sock = self.connect()
        return connection


def _events(response: http.client.HTTPResponse) -> Iterator[Event]:
    fields: dict[str, str] = {}
    while line := response.readline():
        text = line.decode().rstrip("\n")
        if text:
            name, _, value = text.partition(": ")
            fields[name] = value
        elif fields.get("data"):
            yield Event(fields.get("id", ""), fields["event"], json.loads(fields["data"]))
            fields = {}
