"""A gateway that says what a test tells it to: for what a real one does too rarely, such as falling silent."""

from __future__ import annotations

import json
import mimetypes
import queue
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from playwright.sync_api import Page

from synapse.core.override import override
from tests.architecture.source_tree import PACKAGE

ACTIONS = ("read", "send", "cancel", "approve", "attach")
Answer = tuple[int, dict[str, Any]]
END: tuple[str, Any, str] = ("", {}, "")


def need(agent: str, kind: str = "permission", **fields: Any) -> dict[str, Any]:
    """Returns something that needs a person: by default, a command to allow or deny."""
    options = [("1", "Yes", "allow"), ("2", "Yes, always", "allow_always"), ("3", "No", "deny")]
    return {
        "id": f"{agent}-{kind}",
        "kind": kind,
        "agent": agent,
        "agent_id": f"synapse-{agent}",
        "name": agent,
        "task_id": None,
        "title": "Run the command?",
        "detail": "rm -rf build",
        "options": [{"key": key, "label": label, "effect": effect} for key, label, effect in options],
        "takes_text": False,
        "hint": "",
        "asked_at": "2026-01-31T10:30:00.000Z",
        "from": "user",
        "folder": "~/project",
        "source": "screen",
        "next": f"synapse approve {agent}",
        "question_id": f"{agent}-{kind}",
        "can": ["allow", "deny", "choose"],
        **fields,
    }


def row(name: str, state: str = "ready", **fields: Any) -> dict[str, Any]:
    """Returns the row of an agent."""
    return {
        "id": name,
        "agent_id": f"synapse-{name}",
        "name": name,
        "agent_type": "scripted",
        "role": "",
        "folder": "~/project",
        "machine": "",
        "state": state,
        "why": "",
        "since": "2026-01-31T10:30:00.000Z",
        "source": "script",
        "agent_state": state,
        "queue": 0,
        "unread": 0,
        "has_terminal": False,
        "task": None,
        "owes": [],
        "needs": [],
        "store_fault": "",
        **fields,
    }


@dataclass
class FakeGateway:
    """Serves the real page, and answers its requests from these fields."""

    url: str = ""
    rows: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    cursor: int = 7
    is_signed_in: bool = True
    answers: dict[str, Answer] = field(default_factory=dict[str, Answer])
    """The answer to a request by its path; 200 and an empty object to all others."""
    requests: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list[tuple[str, str, dict[str, Any]]])
    """What the page asked below /dashboard/: method, path with query, body."""
    _streams: list[queue.SimpleQueue[tuple[str, Any, str]]] = field(
        default_factory=list[queue.SimpleQueue[tuple[str, Any, str]]]
    )

    def open(self, page: Page, path: str = "#/inbox") -> None:
        """Opens the page by a link and waits until it is live."""
        page.goto(f"{self.url}/#code=once")
        page.wait_for_selector("html[data-connection=live]")
        if path != "#/inbox":
            page.goto(f"{self.url}/{path}")

    def show(self, *rows: dict[str, Any]) -> None:
        """Changes rows of agents, and tells every page."""
        names = {one["id"] for one in rows}
        self.rows = [*(one for one in self.rows if one["id"] not in names), *rows]
        for one in rows:
            self._say("agent", {"agent": one})

    def end_streams(self) -> None:
        """Ends the streams of all pages."""
        self._say(*END)

    def asked(self, part: str) -> list[tuple[str, str, dict[str, Any]]]:
        """Returns the requests whose path has `part`."""
        return [one for one in list(self.requests) if part in one[1]]

    def events(self) -> Generator[tuple[str, Any, str]]:
        """Yields what a new stream says; it never pings."""
        said: queue.SimpleQueue[tuple[str, Any, str]] = queue.SimpleQueue()
        self._streams.append(said)
        yield "overview", {"agents": self.rows, "cursor": self.cursor}, str(self.cursor)
        while (event := said.get()) != END:
            yield event

    def _say(self, event: str, data: Any, seq: str = "") -> None:
        for stream in self._streams:
            stream.put((event, data, seq))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    fake: FakeGateway

    @override
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name for it
        """Keeps quiet: the test knows what it asks."""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if not path.startswith("/dashboard/"):
            name = path.removeprefix("/assets/") if path != "/" else "index.html"
            file = PACKAGE / "dashboard" / name
            self._answer(200, file.read_bytes(), mimetypes.guess_type(name)[0] or "text/plain")
        elif self._may({}):
            self._stream() if path == "/dashboard/events" else self._reply(path)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/dashboard/session":
            self._answer_json(200, {"token": "secret", "session": self._session()})
        elif self._may(body):
            self._reply(self.path)

    def _may(self, body: dict[str, Any]) -> bool:
        self.fake.requests.append((self.command, self.path, body))
        if self.fake.is_signed_in and self.headers["X-Synapse-Token"] == "secret":
            return True
        self._answer_json(401, {"error": {"code": "unauthenticated", "message": "signed out elsewhere", "hint": ""}})
        return False

    def _reply(self, path: str) -> None:
        if path == "/dashboard/session":
            self._answer_json(200, {"session": self._session()})
        elif path == "/dashboard/tasks":
            self._answer_json(200, {"tasks": [], "next_cursor": "", "total": 0})
        else:
            self._answer_json(*self.fake.answers.get(path, (200, {})))

    def _session(self) -> dict[str, Any]:
        return {"id": "s1", "name": "dashboard", "actions": list(ACTIONS), "max_body_bytes": 4096}

    def _stream(self) -> None:
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        try:
            for event, data, seq in self.fake.events():
                line = f"id: {seq}\n" if seq else ""
                self.wfile.write(f"{line}event: {event}\ndata: {json.dumps(data)}\n\n".encode())
                self.wfile.flush()
        except OSError:
            pass  # the page has left

    def _answer_json(self, status: int, body: dict[str, Any]) -> None:
        self._answer(status, json.dumps(body).encode(), "application/json")

    def _answer(self, status: int, body: bytes, media_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def fake_gateway() -> Generator[FakeGateway]:
    """Serves on loopback until the block ends."""
    fake = FakeGateway()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"fake": fake}))
    server.daemon_threads = True
    fake.url = f"http://localhost:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield fake
    finally:
        fake.end_streams()
        server.shutdown()
        thread.join()
        server.server_close()
