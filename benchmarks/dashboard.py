"""The page in a real browser: how soon it shows something, what it loads in all, how soon an event is on the screen.

The browser is the Chromium that `SYNAPSE_CHROMIUM` names, or the system's; without one the benchmark says so.
"""

from __future__ import annotations

import http.server
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Generator
from contextlib import contextmanager
from datetime import datetime

from playwright.sync_api import Browser, Page, sync_playwright

from benchmarks.hosts import Home, Host, temporary_home
from benchmarks.processes import SYNAPSE
from benchmarks.rows import Effort, Figure, Row, within
from synapse.core.override import override

TITLE = "The dashboard in a browser"

_MOST_PAINT_MS = 500.0
_MOST_KB = 700.0
_MOST_EVENT_MS = 100.0
_VIEWS = ("#/agents", "#/flow", "#/tasks", "#/figures", "#/send", "#/inbox")
_SCRIPT = """
[[rule]]
text = "wait"
steps = [{ wait = 3600 }]

[default]
steps = [{ answer = "You said: {text}" }]
"""
_WORD = b"<!doctype html><title>word</title><body>word"
_PAINT = """() => new Promise((resolve) => new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) if (entry.name === "first-contentful-paint") resolve(entry.startTime);
}).observe({ type: "paint", buffered: true }))"""
_LOADED = """() => [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")]
  .filter((one) => !new URL(one.name).pathname.startsWith("/dashboard/"))
  .reduce((sum, one) => sum + one.transferSize, 0)"""
# What is drawn at the next frame is on the screen: the clock stops there, not when the element changes.
_WATCH = """([place, words]) => {
  window.shownAt = new Promise((resolve) => {
    const look = () => {
      if (![...document.querySelectorAll(place)].some((one) => one.textContent.includes(words))) return;
      watcher.disconnect();
      requestAnimationFrame(() => resolve(Date.now()));
    };
    const watcher = new MutationObserver(look);
    watcher.observe(document.body, { childList: true, subtree: true, characterData: true });
  });
}"""


def run(effort: Effort) -> list[Row]:
    chromium = os.environ.get("SYNAPSE_CHROMIUM") or shutil.which("chromium")
    if chromium is None:
        return [Row(what="skipped: there is no Chromium", measured="")]
    arguments = ["--no-sandbox"] if os.getuid() == 0 else []
    with (
        sync_playwright() as playwright,
        temporary_home() as home,
        home.scripted(_SCRIPT) as agent,
        home.scripted(_SCRIPT) as busy,
        home.host() as terminal,
        home.gateway(),
    ):
        terminal.wait_ready()
        busy.send("wait")
        browser = playwright.chromium.launch(executable_path=chromium, args=arguments)
        try:
            return _measure(effort, browser, home, agent, busy, terminal)
        finally:
            browser.close()


def _measure(effort: Effort, browser: Browser, home: Home, agent: Host, busy: Host, terminal: Host) -> list[Row]:
    words: list[float] = []
    paints: list[float] = []
    with _word_server() as address:
        # The first of each warms the browser and the gateway.
        for _ in range(effort.launches + 1):
            words.append(_paint(browser, address))
            paints.append(_paint(browser, _link(home)))
    page = _opened(browser, home)
    loaded = _load_all(page, terminal.name)
    flow = _events(page, agent, effort.messages, "#/flow", ".flow-text", "event {} end")
    # The row of an agent that works counts what waits for it.
    rows = _events(page, busy, effort.messages, "#/inbox", ".side .row-queue", "+{}")
    return [
        within(
            _MOST_PAINT_MS,
            Figure("first paint", paints[1:], "ms"),
            Figure("a page of one word", words[1:], "ms"),
        ),
        within(_MOST_KB, Figure("loaded for all views and a terminal", [loaded], "kB", 1 / 1000)),
        within(_MOST_EVENT_MS, Figure("event in the log → its arrow in Flow", flow, "ms")),
        within(_MOST_EVENT_MS, Figure("event in the log → its agent's row", rows, "ms")),
    ]


def _link(home: Home) -> str:
    """Returns a new one-time link."""
    command = [SYNAPSE, "dashboard", "--no-open", "--json"]
    done = subprocess.run(command, env=home.env, cwd=home.folder, check=True, capture_output=True, encoding="utf-8")
    return str(json.loads(done.stdout)["url"])


def _paint(browser: Browser, address: str) -> float:
    """Returns the milliseconds from the navigation to the first content, in a browser that knows nothing of it."""
    context = browser.new_context()
    try:
        page = context.new_page()
        page.goto(address)
        return float(page.evaluate(_PAINT))
    finally:
        context.close()


def _opened(browser: Browser, home: Home) -> Page:
    page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
    page.goto(_link(home))
    page.wait_for_selector("html[data-connection=live]")
    return page


def _load_all(page: Page, agent: str) -> float:
    """Returns the bytes that came over the network for the page, after every view was shown."""
    for address in (f"#/agents/{agent}", *_VIEWS):
        page.evaluate("address => { location.hash = address; }", address)
        page.wait_for_selector(".xterm-rows" if agent in address else "main h1", state="attached")
    return float(page.evaluate(_LOADED))


def _events(page: Page, agent: Host, count: int, address: str, place: str, shows: str) -> list[float]:
    """Returns the milliseconds from the time of an event in the log until the page has drawn it."""
    page.evaluate("address => { location.hash = address; }", address)
    page.wait_for_selector("main h1", state="attached")
    found: list[float] = []
    for number in range(1, count + 1):
        words = shows.format(number)
        page.evaluate(_WATCH, [place, words])
        task = agent.get(f"/tasks/{agent.send(words)}")
        shown = float(page.evaluate("() => window.shownAt"))
        found.append(shown - datetime.fromisoformat(str(task["created_at"])).timestamp() * 1000)
    return found


@contextmanager
def _word_server() -> Generator[str]:
    """Serves the smallest page there is."""

    class Handler(http.server.BaseHTTPRequestHandler):
        @override
        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name for it
            """Keeps quiet."""

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(_WORD)))
            self.end_headers()
            self.wfile.write(_WORD)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
