"""The page and its gateway lose each other: the page says so, keeps the last truth, and misses nothing afterwards."""

from __future__ import annotations

import re
import time

from playwright.sync_api import Page, expect

from tests.browser.world import NO_GATEWAY, World, expect_live, go, look

RESUME = 2000
"""The milliseconds after which a page has to be live again once the gateway is."""


def expect_lost(page: Page) -> None:
    expect(page.get_by_role("alert")).to_contain_text(re.compile(r"Not connected since \d\d:\d\d:\d\d"))
    expect(page.get_by_role("status").filter(has_text="not connected")).to_be_visible()


def flow_link(page: Page, text: str) -> None:
    expect(page.get_by_role("link", name=re.compile(f"user to asker: {text} — answered"))).to_be_visible()


def test_a_browser_goes_offline_and_comes_back(machine: World) -> None:
    machine.expected = NO_GATEWAY
    machine.scripted("asker")
    machine.send("asker", "run before the tunnel")
    page = machine.page()
    allow = page.get_by_role("button", name="Allow", exact=True)
    expect(allow).to_be_enabled()

    page.context.set_offline(True)  # noqa: FBT003 - the library's way to say it

    expect_lost(page)
    expect(allow).to_be_disabled()
    expect(page.get_by_role("article")).to_contain_text("rm -rf build")
    look(page, "offline")
    other = machine.page()
    other.get_by_role("button", name="Allow", exact=True).click()
    expect(other.get_by_role("article", name="asker done: did run before the tunnel")).to_be_visible()

    page.context.set_offline(False)  # noqa: FBT003 - the library's way to say it

    expect(page.get_by_role("alert")).to_be_hidden(timeout=RESUME)
    expect(page.get_by_role("article", name="asker done: did run before the tunnel")).to_be_visible()
    expect(allow).to_have_count(0)
    expect(page.get_by_role("status").filter(has_text="was answered by dashboard: Yes")).to_be_visible()


def test_a_killed_gateway_comes_back_and_nothing_was_missed(machine: World) -> None:
    machine.expected = NO_GATEWAY
    machine.scripted("asker")
    machine.send("asker", "before")
    page = machine.page("#/flow")
    flow_link(page, "before")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/dashboard/events" in request.url else None)

    machine.stop_gateway(kill=True)

    expect_lost(page)
    flow_link(page, "before")
    machine.send("asker", "while it was down")
    machine.start_gateway()
    up = time.monotonic()
    expect_live(page)
    assert time.monotonic() - up <= RESUME / 1000
    flow_link(page, "while it was down")
    expect(page.get_by_role("link", name=re.compile("user to asker: before"))).to_have_count(1)
    assert re.search(r"after=\d+$", asked[-1])
    machine.send("asker", "afterwards")
    flow_link(page, "afterwards")
    go(page, "#/inbox")
    expect(page.get_by_role("article", name=re.compile("asker done"))).to_have_count(3)


def test_a_page_that_was_opened_while_the_gateway_is_away_waits_for_it(machine: World) -> None:
    machine.expected = NO_GATEWAY
    page = machine.page()
    machine.expected += "|ERR_FAILED"
    page.route("**/dashboard/session", lambda route: route.abort())

    page.reload()

    expect(page.get_by_role("alert")).to_contain_text("The gateway cannot be reached")
    page.unroute("**/dashboard/session")
    expect_live(page)


def test_an_agent_that_starts_comes_and_one_that_ended_is_away(machine: World) -> None:
    page = machine.page("#/agents")
    expect(page.get_by_role("heading", name="No agents yet.")).to_be_visible()

    machine.dummy("ada")

    main = page.get_by_role("main")
    expect(main.get_by_role("link", name=re.compile("^ada ready"))).to_be_visible()
    expect(main).to_contain_text("1 running")
    machine.run("stop", "ada")
    expect(main.get_by_role("link", name=re.compile("^ada away .*its host has ended"))).to_be_visible()
    expect(main).to_contain_text("0 running, 1 away")
