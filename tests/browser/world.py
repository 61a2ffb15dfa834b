"""A person's machine for the tests of the dashboard: a gateway, agents, and pages in a real browser."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, WebError, expect

from synapse.core.agent import AgentEntry
from tests.conformance.real_gateway import RunningGateway, gateway
from tests.conformance.real_hosts import COMMAND, PATIENCE, dummy_host, environ, scripted_host

WIDE = {"width": 1440, "height": 900}
PHONE = {"width": 390, "height": 844}
PATIENCE_MS = 20_000
SCREENSHOTS = os.environ.get("SYNAPSE_SCREENSHOTS", "")
NO_GATEWAY = (
    r"ERR_(CONNECTION|SOCKET_NOT_CONNECTED|NETWORK_CHANGED|INTERNET_DISCONNECTED|INCOMPLETE_CHUNKED|EMPTY_RESPONSE)"
    r"|WebSocket connection to"
)
"""What a browser itself logs while it cannot reach the gateway."""

PIXEL = "R0lGODlhAQABAIAAAAUEBAAAACwAAAAAAQABAAACAkQBADs="
ASKER = """
[[rule]]
text = "/run/"
steps = [
  { question = "Run the command?", detail = "rm -rf build", options = ["allow: Yes", "deny: No"] },
  { answer = "did {text}" },
]

[[rule]]
text = "/fail/"
steps = [{ fail = "no more quota", reason = "quota" }]

[[rule]]
text = "/slow/"
steps = [{ stream = ["one ", "two ", "three "], every = 0.3 }, { answer = "all said" }]

[[rule]]
text = "/grow/"
steps = [
  { artifact = "answer", text = "first half, ", last = false },
  { question = "Go on?", options = ["allow: Yes", "deny: No"] },
  { artifact = "answer", text = "second half", append = true },
]

[[rule]]
text = "/choose/"
steps = [
  { question = "Which branch?", kind = "choice", options = ["main", "release"] },
  { answer = "took {answer}" },
]

[[rule]]
text = "/name/"
steps = [
  { question = "What is it called?", kind = "choice", takes_text = true },
  { answer = "called {answer}" },
]

[[rule]]
text = "/picture/"
steps = [
  { artifact = "pixel", base64 = "PIXEL", file = "pixel.gif", media_type = "image/gif" },
  { artifact = "code", text = "def add(a, b):\\n    return a + b  # sum\\n", media_type = "text/x-python" },
  { answer = "see the files" },
]

[default]
steps = [{ answer = "You said: {text}" }]
""".replace("PIXEL", PIXEL)


@dataclass
class World:
    """Everything behind one page. Agents and the gateway are real processes."""

    home: Path
    browser: Browser
    _open: ExitStack
    gateway: RunningGateway
    _gateway: ExitStack
    contexts: list[BrowserContext] = field(default_factory=list[BrowserContext])
    faults: list[str] = field(default_factory=list[str])
    """What went wrong in pages: errors that they logged, exceptions, what their content security policy refused."""
    expected: str = ""
    """A pattern of the faults that belong to the test, such as what a browser logs while the gateway is down."""

    def scripted(self, name: str, script: str = ASKER) -> AgentEntry:
        """Starts an agent that plays a script."""
        file = self.home / f"{name}.toml"
        file.write_text(script, encoding="utf-8")
        return self._open.enter_context(scripted_host(self.home, file, name))

    def dummy(self, name: str) -> AgentEntry:
        """Starts the built-in agent on a pseudo-terminal."""
        return self._open.enter_context(dummy_host(self.home, name))

    def run(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Runs `synapse …` as the person."""
        return subprocess.run(
            [*COMMAND, *arguments],
            env=environ(self.home),
            cwd=self.home,
            check=check,
            capture_output=True,
            encoding="utf-8",
            timeout=PATIENCE,
        )

    def send(self, agent: str, text: str) -> str:
        """Sends a message and returns the id of its task."""
        return str(json.loads(self.run("send", agent, text, "--json").stdout)["task"]["id"])

    def link(self, *flags: str) -> str:
        """Returns a one-time link to the dashboard."""
        return str(json.loads(self.run("dashboard", "--no-open", "--json", *flags).stdout)["url"])

    def context(self, **options: Any) -> BrowserContext:
        """Opens a browser of its own: own cookies, own storage."""
        context = self.browser.new_context(viewport=options.pop("viewport", WIDE), **options)
        context.set_default_timeout(PATIENCE_MS)
        context.on("console", self._note)
        context.on("weberror", self._note)
        self.contexts.append(context)
        return context

    def _note(self, said: ConsoleMessage | WebError) -> None:
        if isinstance(said, WebError):
            self.faults.append(str(said.error))
        elif "net::ERR_" in said.text:
            # The browser's own word for a server or a network that goes. Whether the page copes is seen on the page.
            return
        elif said.type == "error" or "Content Security Policy" in said.text:
            self.faults.append(f"{said.text} ({said.location.get('url', '')})")

    def check_faults(self) -> None:
        """Fails if a page had a fault that its test did not expect, and forgets those that it did."""
        unexpected = [one for one in self.faults if not self.expected or not re.search(self.expected, one)]
        self.faults.clear()
        self.expected = ""
        assert not unexpected, unexpected

    def close_pages(self) -> None:
        """Closes all browsers of the machine."""
        for context in self.contexts:
            context.close()
        self.contexts.clear()

    def page(self, path: str = "", *, flags: tuple[str, ...] = (), **options: Any) -> Page:
        """Opens the dashboard by a new link, and waits until it is live; `path` is an address such as `#/flow`."""
        page = self.context(**options).new_page()
        page.goto(self.link(*flags))
        expect_live(page)
        if path:
            go(page, path)
        return page

    def stop_gateway(self, *, kill: bool = False) -> None:
        """Ends the gateway: in order, or by SIGKILL."""
        if kill:
            self.gateway.process.send_signal(signal.SIGKILL)
            self.gateway.process.wait(PATIENCE)
        self._gateway.close()

    def start_gateway(self) -> None:
        """Starts the gateway again, at the same port."""
        self._gateway = ExitStack()
        self.gateway = self._gateway.enter_context(
            gateway(self.home, "", "--port", str(self.gateway.entry.port), "--grpc-port", "0")
        )


@contextmanager
def world(home: Path, browser: Browser, config: str = "") -> Generator[World]:
    """Runs a gateway, without agents if `config` names none; the test adds them."""
    with ExitStack() as agents:
        running = ExitStack()
        started = running.enter_context(gateway(home, config, "--grpc-port", "0"))
        made = World(home, browser, agents, started, running)
        try:
            yield made
        finally:
            made.close_pages()
            made.stop_gateway()


def go(page: Page, address: str) -> None:
    """Goes to another view of the open page, as a link in it does."""
    page.evaluate("address => { location.hash = address; }", address)


def expect_live(page: Page, *, within: int = PATIENCE_MS) -> None:
    """Waits until the page says that what it shows is true now; `within` are milliseconds."""
    expect(page.get_by_role("status").filter(has_text=re.compile("^live$"))).to_be_visible(timeout=within)


def look(page: Page, name: str) -> None:
    """Keeps a screenshot for people, if a folder for them is named."""
    if SCREENSHOTS:
        page.screenshot(path=Path(SCREENSHOTS) / f"{name}.png")
