"""Clients from other ecosystems hold a conversation with the hub: the npm package `ws`, and Chromium.

scripts/clients installs what they need; without that they are skipped.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from typing import Any
from urllib.parse import urlencode

import pytest

from synapse.core.override import override
from tests.conformance.real_gateway import RunningGateway, gateway, new_key
from tests.conformance.real_hosts import ROOT

pytestmark = pytest.mark.integration

FOLDER = Path(__file__).parent / "js"
JS_FOLDER = os.environ.get("SYNAPSE_A2A_JS", "")
NODE = shutil.which("node") or ""
CHROMIUM = os.environ.get("SYNAPSE_CHROMIUM", "")
ANSWER = "The weather in San Francisco is currently sunny with a high of 72°F and a low of 58°F."
BOUND = 50.0
# Chromium has no sandbox as root; the other options keep it from calling home.
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@contextmanager
def page_server() -> Generator[tuple[str, Queue[Any]]]:
    """Serves the page and puts its reports into a queue."""
    reports: Queue[Any] = Queue()

    class Pages(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = (FOLDER / "page.html").read_bytes()
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def do_POST(self) -> None:
            reports.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        @override
        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as the base class has it
            """Prints nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://localhost:{server.server_address[1]}", reports
    finally:
        server.shutdown()
        server.server_close()
        thread.join(BOUND)


@pytest.fixture(scope="module")
def pages() -> Iterator[tuple[str, Queue[Any]]]:
    with page_server() as served:
        yield served


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory, pages: tuple[str, Queue[Any]]) -> Iterator[RunningGateway]:
    script = ROOT / "docs" / "examples" / "weather.toml"
    agent = f'[[agents]]\nid = "weather-agent"\ndriver = "scripted"\nscript = "{script}"\n'
    with gateway(tmp_path_factory.mktemp("hub"), f'[cors]\norigins = ["{pages[0]}"]\n{agent}') as running:
        yield running


@pytest.mark.skipif(not JS_FOLDER or not NODE, reason="scripts/clients installs the npm package ws")
def test_the_npm_package_ws_holds_a_conversation(hub: RunningGateway) -> None:
    address = f"ws://localhost:{hub.entry.port}/ws"
    done = subprocess.run(
        [NODE, str(FOLDER / "hub_socket.mjs"), address, new_key(hub.home, "ws")],
        cwd=JS_FOLDER,
        capture_output=True,
        encoding="utf-8",
        timeout=BOUND,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)

    kinds = [frame["type"] for frame in told["frames"]]
    assert sorted(set(kinds)) == ["task.completed", "task.created", "task.failed", "task.updated"]
    own = [frame for frame in told["frames"] if frame.get("task", {}).get("id") == told["frames"][0]["taskId"]]
    assert told["resumed"] == own
    assert own[-1]["task"]["artifacts"][0]["content"][0]["content"] == ANSWER
    assert (told["answersPings"], told["closed"]) == (True, 1009)


@pytest.mark.skipif(not CHROMIUM, reason="scripts/clients installs chromium")
def test_a_page_in_chromium_holds_a_conversation(
    hub: RunningGateway, pages: tuple[str, Queue[Any]], tmp_path: Path
) -> None:
    address, reports = pages
    query = urlencode({"hub": hub.url, "key": new_key(hub.home, "chromium")})
    browser = subprocess.Popen(
        [CHROMIUM, *FLAGS, f"--user-data-dir={tmp_path}", f"{address}/?{query}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        told = reports.get(timeout=BOUND)
    finally:
        browser.terminate()
        browser.wait(BOUND)

    assert "error" not in told, told
    assert '"type":"partial"' in told["stream"]
    assert "event: complete" in told["stream"]
    assert told["frames"][0]["type"] == "task.created"
    assert told["frames"][-1]["task"]["artifacts"][0]["content"][0]["content"] == ANSWER
