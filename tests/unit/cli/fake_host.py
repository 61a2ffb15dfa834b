"""A fake agent host: it serves the synapse dialect on a real Unix socket, and does what a test tells it."""

from __future__ import annotations

import json
import os
import socketserver
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from synapse import __version__
from synapse.core.agent import LAUNCH_HEADER, AgentEntry
from synapse.core.override import override
from synapse.registry.files import FileRegistry, start_time

Fields = dict[str, Any]


class FakeHost:
    """Keeps tasks in memory. `on_send` sees each new task; `answer` and `change` do what an agent would."""

    def __init__(self, home: Path, agent_type: str = "codex", port: int = 8120, name: str = "") -> None:
        agent_id = f"synapse-{agent_type}-{port}"
        self.registry = FileRegistry(home / "registry")
        self.entry = AgentEntry(
            agent_id,
            agent_type,
            name=name,
            port=port,
            pid=os.getpid(),
            pid_started=start_time(os.getpid()) or 0,
            socket=str(home / f"{agent_id}.sock"),
            endpoint=f"http://localhost:{port}",
            working_dir=str(home),
            inbox=name,
            version=__version__,
        )
        self.state: Fields = {"state": "ready", "why": "the prompt is empty", "source": "screen", "queue_depth": 0}
        self.requests: list[tuple[str, str, Fields]] = []
        self.launches: list[str] = []
        """The secret of a launch that each request showed; empty for none."""
        self.resumed_after: list[str] = []
        self.tasks: dict[str, Fields] = {}
        self.on_send: Callable[[Fields], None] = lambda task: None
        self.on_leave: Callable[[Fields], None] = lambda task: None
        self.refusals: dict[str, tuple[int, Fields]] = {}
        self.dropped_connections = 0
        self.break_streams_after = 0
        self.says_why_streams_break = False
        self.is_mute = False
        """Whether streams end before their first event."""
        self.stream_refusals: list[tuple[int, Fields]] = []
        """The answers to the next streams of tasks, in place of the streams."""
        self.changed = threading.Condition()
        self._events: dict[str, list[Fields]] = {}
        self._is_ending = False

    @contextmanager
    def serving(self) -> Generator[FakeHost]:
        host = self

        class Handler(_Handler):
            fake = host

        path = self.entry.socket
        with _Server(path, Handler) as server:
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
            thread.start()
            self.registry.write(self.entry)
            try:
                yield self
            finally:
                with self.changed:
                    self._is_ending = True
                    self.changed.notify_all()
                server.shutdown()
                thread.join()
                self.registry.remove(self.entry.agent_id)
                Path(path).unlink()

    def tell(self, **fields: Any) -> None:
        """Changes the status, which followers see at once."""
        with self.changed:
            self.state = {**self.state, **fields}
            self.changed.notify_all()

    def status_after(self, told: Fields | None) -> Fields | None:
        """Returns the status once it is another than the one that was told; None when the host ends."""
        with self.changed:
            self.changed.wait_for(lambda: self._is_ending or self.state is not told)
            return None if self._is_ending else self.state

    def answer(self, task: Fields, text: str, *, inferred: bool = False) -> None:
        artifact = {
            "artifact_id": "a",
            "name": "answer",
            "parts": [{"type": "text", "text": text}],
            "metadata": {"source": "screen" if inferred else "reply", "inferred": inferred},
        }
        self.change(task, artifacts=[artifact], status="completed", receipt="answered")

    def change(self, task: Fields, *, receipt: str = "", **fields: Any) -> None:
        with self.changed:
            task.update(fields)
            if receipt:
                task["metadata"]["receipt"] = receipt
                step = {"step": receipt, "at": "2024-01-15T10:30:00.000Z", "source": "screen", "evidence": "seen"}
                task["metadata"].setdefault("receipts", []).append(step)
            self._events[task["id"]].append(json.loads(json.dumps(task)))
            self.changed.notify_all()

    def open(self, body: Fields, priority: int = 3) -> Fields:
        task: Fields = {
            "id": str(UUID(int=len(self.tasks) + 0xABC << 96)),
            "context_id": "c",
            "status": "submitted",
            "message": body["message"],
            "artifacts": [],
            "metadata": {"sender_verified": True, **body.get("metadata", {}), "priority": priority},
        }
        self.tasks[task["id"]] = task
        self._events[task["id"]] = []
        self.change(task, receipt="queued")
        return task

    def find(self, prefix: str) -> Fields | None:
        return next((task for task_id, task in self.tasks.items() if task_id.startswith(prefix)), None)

    def events_after(self, task_id: str, count: int) -> list[Fields]:
        with self.changed:
            self.changed.wait_for(lambda: len(self._events[task_id]) > count, timeout=10)
            return self._events[task_id][count:]


_BECOMES = {"canceled": "canceled", "retry": "submitted", "fail": "submitted"}
"""The state of a task after a decision that does not continue it."""


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True

    @override
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Does nothing: a client that has left is not an error here."""


class _Handler(BaseHTTPRequestHandler):
    fake: FakeHost

    @override
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as the parent has it
        """Prints nothing."""

    def do_GET(self) -> None:
        self._record({})
        path = urlsplit(self.path).path
        if path in self.fake.refusals:
            self._answer(*self.fake.refusals[path])
            return
        match path.strip("/").split("/"):
            case ["status"]:
                self._answer(200, {**self.fake.entry.as_dict(), **self.fake.state})
            case ["status", "watch"]:
                self._watch()
            case ["queue"]:
                waiting = [task for task in self.fake.tasks.values() if task["status"] == "submitted"]
                self._answer(200, {"tasks": waiting})
            case ["tasks"]:
                self._answer(200, {"tasks": [*self.fake.tasks.values()], "next_cursor": ""})
            case ["tasks", task_id, "subscribe"]:
                self._stream(task_id)
            case ["tasks", task_id]:
                self._answer_task(task_id, bare=True)
            case _:
                self._refuse(404, "route_not_found", self.path)

    def do_POST(self) -> None:  # noqa: C901, PLR0912 - a case for each route
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._record(body)
        fake, url = self.fake, urlsplit(self.path)
        if fake.dropped_connections:
            fake.dropped_connections -= 1
            self.close_connection = True
            return
        if url.path in fake.refusals:
            self._answer(*fake.refusals[url.path])
            return
        match url.path.strip("/").split("/"):
            case ["tasks", "send" | "send-priority"]:
                self._send(body, int(url.query.removeprefix("priority=") or 3))
            case ["tasks", "create"]:
                self._answer(200, {"task": fake.open(body)})
            case ["tasks", task_id, "leave"]:
                self._leave(task_id)
            case ["tasks", task_id, "cancel" | "resolve" | "answer"]:
                verdict = "canceled" if url.path.endswith("cancel") else body.get("verdict", "")
                self._change(task_id, status=_BECOMES.get(verdict, "working"))
            case ["questions"]:
                task = fake.open({**body, "metadata": {"asks_person": True}})
                self._answer(200, {"task": task})
                fake.on_send(task)
            case ["answer"]:
                self._answer(200, {"task": None})
            case ["reply"]:
                self._reply(body)
            case ["mcp", "ready"]:
                self._answer(200, {})
            case _:
                self._refuse(404, "route_not_found", self.path)

    def _send(self, body: Fields, priority: int) -> None:
        reply_to = body.get("metadata", {}).get("in_reply_to")
        if reply_to:
            asked = self.fake.find(reply_to)
            if asked is None:
                self._refuse(404, "task_not_found", f"no task '{reply_to}'")
                return
            self.fake.answer(asked, body["message"]["parts"][0]["text"])
            self._answer(200, {"task": asked})
            return
        message_id = body["message"].get("message_id", "")
        known = [task for task in self.fake.tasks.values() if task["message"].get("message_id", "") == message_id != ""]
        task = known[0] if known else self.fake.open(body, priority)
        self._answer(200, {"task": task})
        self.fake.on_send(task)

    def _reply(self, body: Fields) -> None:
        asked = self.fake.find(body["task_id"])
        if asked is None:
            self._refuse(404, "task_not_found", f"no task '{body['task_id']}'")
            return
        sender = asked["metadata"].get("sender", {}).get("sender_id", "user")
        self.fake.answer(asked, body["message"]["parts"][0]["text"])
        self._answer(200, {"replied": {"task_id": asked["id"], "to": sender}})

    def _leave(self, task_id: str) -> None:
        task = self.fake.find(task_id)
        if task is None:
            self._refuse(404, "task_not_found", f"no task '{task_id}'")
            return
        self.fake.on_leave(task)
        if task["status"] == "submitted":
            self.fake.change(task, metadata={**task["metadata"], "waiter_left": True})
        self._answer(200, {"task": task, "left": task["metadata"].get("waiter_left") is True})

    def _change(self, task_id: str, **fields: Any) -> None:
        task = self.fake.find(task_id)
        if task is not None:
            self.fake.change(task, **fields)
        self._answer_task(task_id, bare=False)

    def _watch(self) -> None:
        self._begin_stream()
        told: Fields | None = None
        while (told := self.fake.status_after(told)) is not None:
            self._write_chunk(f"event: status\ndata: {json.dumps({**self.fake.entry.as_dict(), **told})}\n\n")
        self._write_chunk("event: error\ndata: {}\n\n")

    def _stream(self, task_id: str) -> None:
        task = self.fake.find(task_id)
        if task is None:
            self._refuse(404, "task_not_found", f"no task '{task_id}'")
            return
        after = self.headers.get("Last-Event-ID", "")
        self.fake.resumed_after.append(after)
        if self.fake.stream_refusals:
            self._answer(*self.fake.stream_refusals.pop(0))
            return
        self._begin_stream()
        if self.fake.is_mute:
            return
        self._write_events(task["id"], int(after or 0))

    def _begin_stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self._write_chunk(": hello\n\n")

    def _write_events(self, task_id: str, seen: int) -> None:
        written = 0
        while True:
            for task in self.fake.events_after(task_id, seen):
                seen += 1
                name = "state_changed" if written else "snapshot"
                self._write_chunk(f"id: {seen}\nevent: {name}\ndata: {json.dumps({'task': task})}\n\n")
                written += 1
                if written == self.fake.break_streams_after:
                    if self.fake.says_why_streams_break:
                        told = {"error": {"code": "agent_exited", "message": "this server ends", "hint": ""}}
                        self._write_chunk(f"event: error\ndata: {json.dumps(told)}\n\n")
                        self._write_chunk("")
                    self.close_connection = True
                    return
                if task["status"] in ("completed", "failed", "canceled", "rejected"):
                    self._write_chunk("")
                    return

    def _write_chunk(self, text: str) -> None:
        data = text.encode()
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def _answer_task(self, task_id: str, *, bare: bool) -> None:
        task = self.fake.find(task_id)
        if task is None:
            self._refuse(404, "task_not_found", f"no task '{task_id}'")
        else:
            self._answer(200, task if bare else {"task": task})

    def _refuse(self, status: int, code: str, message: str) -> None:
        self._answer(status, {"error": {"code": code, "message": message, "hint": ""}})

    def _answer(self, status: int, body: Fields) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _record(self, body: Fields) -> None:
        self.fake.launches.append(self.headers.get(LAUNCH_HEADER, ""))
        self.fake.requests.append((self.command, self.path, body))
