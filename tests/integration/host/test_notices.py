"""A real agent tells its person by a webhook, and takes it back when the question is answered."""

from __future__ import annotations

import json
import tempfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from synapse.client.seen import mark_seen
from synapse.config.process import SystemClock
from synapse.core.override import override
from tests.conformance.real_hosts import PATIENCE, scripted_host, synapse

SCRIPT = """
[[rule]]
text = "/run/"
steps = [{ question = "Run it?", detail = "rm -rf build", options = ["allow: Yes", "deny: No"] }, { answer = "ran" }]

[[rule]]
text = "/fail/"
steps = [{ fail = "no quota" }]

[default]
steps = [{ answer = "hello" }]
"""


@pytest.fixture
def received() -> Iterator[tuple[str, Queue[dict[str, Any]]]]:
    """A webhook: its address, and what was posted to it."""
    posted: Queue[dict[str, Any]] = Queue()

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            posted.put(json.loads(body))
            self.send_response(204)
            self.end_headers()

        @override
        def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002 - the name in the base class

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/hook", posted
    server.shutdown()
    thread.join()
    server.server_close()


def test_each_need_is_told_once_and_withdrawn(
    received: tuple[str, Queue[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, posted = received
    monkeypatch.setenv("SYNAPSE_NOTIFY_WEBHOOK", url)
    with tempfile.TemporaryDirectory(prefix="sn") as folder:
        home = Path(folder)
        script = home / "asker.toml"
        script.write_text(SCRIPT, encoding="utf-8")
        with scripted_host(home, script, "asker") as agent:
            task = json.loads(synapse(home, "send", "asker", "run it", "--json"))["task"]["id"]
            asked = posted.get(timeout=PATIENCE)
            synapse(home, "approve", task)
            answered = [posted.get(timeout=PATIENCE), posted.get(timeout=PATIENCE)]
            mark_seen(home, agent.agent_id, SystemClock().now())
            seen = posted.get(timeout=PATIENCE)
            synapse(home, "send", "asker", "please fail", "--json")
            failed = posted.get(timeout=PATIENCE)

        records = json.loads(synapse(home, "notify", "log", "--json"))

    assert (asked["type"], asked["kind"], asked["agent"], asked["task_id"]) == ("notice", "asks", "asker", task)
    assert "rm -rf" not in json.dumps(asked)
    assert {"type": "withdrawn", "id": asked["id"]} in answered
    (done,) = [body for body in answered if body["type"] == "notice"]
    assert done["kind"] == "answered"
    assert seen == {"type": "withdrawn", "id": done["id"]}
    assert (failed["type"], failed["kind"]) == ("notice", "failed")
    assert [(record["kind"], record["result"]) for record in records if record["kind"] == "asks"] == [
        ("asks", "sent"),
        ("asks", "withdrawn"),
    ]
