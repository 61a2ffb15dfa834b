"""Who has no business here gets nothing: other origins, other ports, agents, old links, revoked sessions."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from playwright.sync_api import Page, expect

from synapse.core.override import override
from tests.browser.program_agent import painter
from tests.browser.world import World, expect_live, go
from tests.conformance.real_hosts import ROOT

FOREIGN = "<!doctype html><title>foreign</title><body>"
REFUSED = r"Failed to load resource|blocked by CORS|WebSocket connection|frame-ancestors|Framing|X-Frame-Options|ERR_"
TRY_ALL = """async (gateway) => {
  const got = {};
  const ask = async (name, path, options) => {
    try {
      const response = await fetch(gateway + path, { credentials: "include", ...options });
      got[name] = response.type === "opaque" ? "opaque" : await response.text();
    } catch (error) { got[name] = "refused"; }
  };
  const json = { "Content-Type": "application/json" };
  await ask("read", "/dashboard/overview", {});
  await ask("read blindly", "/dashboard/overview", { mode: "no-cors" });
  await ask("send", "/dashboard/agents/asker/messages", { method: "POST", headers: json, body: '{"text": "forged"}' });
  await ask("send blindly", "/dashboard/agents/asker/messages",
    { method: "POST", mode: "no-cors", headers: { "Content-Type": "text/plain" }, body: '{"text": "forged"}' });
  await ask("token", "/dashboard/overview", { headers: { "X-Synapse-Token": "guess" } });
  got.socket = await new Promise((resolve) => {
    const address = gateway.replace("http", "ws") + "/dashboard/terminals";
    const socket = new WebSocket(address, ["synapse.terminals", "token.guess"]);
    socket.onopen = () => resolve("open");
    socket.onerror = () => resolve("refused");
  });
  return got;
}"""
FRAME = """(address) => new Promise((resolve) => {
  const frame = document.createElement("iframe");
  frame.onload = () => { try { resolve(frame.contentDocument ? "empty" : "loaded"); } catch { resolve("loaded"); } };
  frame.src = address;
  document.body.append(frame);
})"""
POST_FORM = """(address) => {
  const form = document.createElement("form");
  form.method = "POST"; form.action = address; form.enctype = "text/plain"; form.target = "_blank";
  const field = document.createElement("input");
  field.name = '{"text": "forged by a form", "x": "'; field.value = '"}';
  form.append(field); document.body.append(form); form.submit();
}"""


@dataclass
class Stranger:
    """A server of somebody else on this machine."""

    port: int = 0
    cookies: list[str] = field(default_factory=list[str])
    """What browsers sent to it."""


@contextmanager
def stranger() -> Generator[Stranger]:
    """Serves an empty page at every path, on another port."""
    made = Stranger()

    class Handler(BaseHTTPRequestHandler):
        @override
        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name for it
            """Keeps quiet."""

        def do_GET(self) -> None:
            made.cookies.append(self.headers.get("Cookie", ""))
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(FOREIGN.encode())

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def asker(machine_of_file: World) -> World:
    machine_of_file.scripted("asker")
    return machine_of_file


def origin_of(page: Page) -> str:
    origin: str = page.evaluate("location.origin")
    return origin


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_page_of_another_origin_gets_and_changes_nothing(asker: World, shared: World, host: str) -> None:
    assert asker is shared
    shared.expected = REFUSED
    page = shared.page("#/flow")
    with stranger() as other:
        foreign = page.context.new_page()
        foreign.goto(f"http://{host}:{other.port}/dashboard/page")

        got = foreign.evaluate(TRY_ALL, origin_of(page))

        assert got.pop("read blindly") == "opaque"
        assert got.pop("send blindly") == "opaque"
        assert set(got.values()) == {"refused"}, got
        # The frame holds the browser's own error page, or nothing: never ours.
        foreign.evaluate(FRAME, f"{origin_of(page)}/")
        assert all("Synapse" not in frame.content() for frame in foreign.frames[1:])
        with foreign.context.expect_page() as opened:
            foreign.evaluate(POST_FORM, f"{origin_of(page)}/dashboard/agents/asker/messages")
        opened.value.wait_for_load_state()
        assert opened.value.evaluate("document.body.innerText").find('"task"') < 0

    expect(page.get_by_role("heading", name="Nobody has sent a message yet.")).to_be_visible()


def test_a_server_on_another_port_may_see_the_cookie_and_cannot_use_it(asker: World, shared: World) -> None:
    assert asker is shared
    shared.expected = REFUSED  # the other server may be gone before its page has all that it wants
    page = shared.page()
    with stranger() as other:
        page.context.new_page().goto(f"http://127.0.0.1:{other.port}/dashboard/x")
        cookie = next(one for one in other.cookies if "synapse_session" in one)

        for more in ({}, {"Origin": origin_of(page)}, {"X_Synapse_Token": "guess"}):
            reply = shared.gateway.ask(
                "GET", "/dashboard/overview", Cookie=cookie, Host=origin_of(page).removeprefix("http://"), **more
            )
            assert reply.status == 401, reply.body
            assert b"agents" not in reply.body


def test_no_script_of_the_page_can_read_the_cookie(asker: World, shared: World) -> None:
    assert asker is shared
    page = shared.page()

    kept = [one for one in page.context.cookies() if "synapse" in one.get("name", "")]

    assert page.evaluate("document.cookie") == ""
    assert [(one.get("httpOnly"), one.get("sameSite")) for one in kept] == [(True, "Strict")]


def test_an_agent_is_refused_a_link(machine: World) -> None:
    with painter(machine, "ada"):
        page = machine.page()
        go(page, "#/agents/ada")
        expect(page.locator(".xterm-rows")).to_contain_text(">")
        command = f"run {sys.executable} {ROOT}/bin/synapse dashboard --no-open"

        page.locator(".terminal-screen").click()
        page.keyboard.type(command)
        page.keyboard.press("Enter")

        rows = page.locator(".xterm-rows")
        expect(rows).to_contain_text(re.compile(r"status [1-9]"))
        expect(rows).to_contain_text("person")
        expect(rows).not_to_contain_text("#code=")


def test_a_link_works_once(asker: World, shared: World) -> None:
    assert asker is shared
    shared.expected = "401|403|400"
    link = shared.link()
    first = shared.context().new_page()
    first.goto(link)
    expect_live(first)

    second = shared.context().new_page()
    second.goto(link)

    expect(second.get_by_role("alert")).to_contain_text("This link is not valid any more")
    expect(second.get_by_text("synapse dashboard", exact=True)).to_be_visible()
    assert "code" not in second.url
    expect_live(first)


def test_a_reload_and_a_second_tab_keep_the_session(asker: World, shared: World) -> None:
    assert asker is shared
    page = shared.page("#/agents")

    page.reload()

    expect_live(page)
    expect(page.get_by_role("heading", name="Agents")).to_be_visible()
    tab = page.context.new_page()
    tab.goto(origin_of(page))
    expect_live(tab)


def test_a_revoked_session_says_so_at_once_and_shows_nothing_more(asker: World, shared: World) -> None:
    assert asker is shared
    shared.expected = "401"
    page = shared.page("#/agents")
    expect(page.get_by_role("main").get_by_role("link", name=re.compile("^asker"))).to_be_visible()

    shared.run("dashboard", "revoke", "--all")

    expect(page.get_by_role("alert")).to_contain_text("Your session has ended.")
    expect(page.get_by_text("asker")).to_have_count(0)
    page.reload()
    expect(page.get_by_role("alert")).to_contain_text("not signed in")
    page.goto(shared.link())
    expect_live(page)


def test_who_signs_out_is_signed_out_in_all_tabs(asker: World, shared: World) -> None:
    assert asker is shared
    shared.expected = "401"
    page = shared.page()
    tab = page.context.new_page()
    tab.goto(origin_of(page))
    expect_live(tab)

    page.get_by_role("button", name="Keys and help").click()
    page.get_by_role("button", name="Sign out of this browser").click()

    expect(page.get_by_role("alert")).to_contain_text("not signed in")
    expect(tab.get_by_role("alert")).to_contain_text("Your session has ended.")


def test_a_session_that_may_only_read_gets_no_terminal(machine: World) -> None:
    with painter(machine, "ada"):
        reader = machine.page("#/agents/ada", flags=("--read-only",))

        terminal = reader.get_by_role("region", name="Terminal of ada").first
        expect(terminal).to_contain_text(re.compile("may not (see|attach)"))
        expect(reader.locator(".xterm-rows")).to_have_count(0)
        expect(reader.get_by_role("button", name="Take keyboard")).to_have_count(0)
        go(reader, "#/agents")
        expect(reader.locator(".card")).to_contain_text("this session may not see terminals")
        expect(reader.locator(".card .screen")).to_have_count(0)
