"""A terminal in a browser: typed into, taken over, lost and resumed, flooded; nothing in it becomes markup or style."""

from __future__ import annotations

import re

from playwright.sync_api import ConsoleMessage, Page, expect

from tests.browser.program_agent import painter
from tests.browser.world import WIDE, World, look


def violations(page: Page) -> list[str]:
    """Collects what the page's content security policy refuses from now on."""
    found: list[str] = []

    def note(message: ConsoleMessage) -> None:
        if "Content Security Policy" in message.text:
            found.append(message.text)

    page.on("console", note)
    return found


def opened(machine: World, agent: str) -> Page:
    """Opens the terminal of an agent, and waits until it is shown."""
    page = machine.page()
    page.evaluate("address => { location.hash = address; }", f"#/agents/{agent}")
    expect(page.locator(".xterm-rows")).to_contain_text(">")
    return page


def types(page: Page, text: str) -> None:
    page.locator(".terminal-screen").click()
    page.keyboard.type(text)
    page.keyboard.press("Enter")


def test_keys_reach_the_program_and_its_colours_reach_the_page(machine: World) -> None:
    with painter(machine, "ada"):
        page = opened(machine, "ada")
        refused = violations(page)
        expect(page.locator(".terminal-role")).to_have_text("You type here")

        types(page, "colours")

        red = page.locator(".xterm-rows span", has_text="true red")
        expect(red).to_be_visible()
        assert red.evaluate("element => getComputedStyle(element).color") == "rgb(250, 1, 2)"
        assert (
            page.locator(".xterm-rows span", has_text="palette").evaluate("element => getComputedStyle(element).color")
            == "rgb(74, 222, 128)"
        )
        look(page, "terminal")
        assert refused == []


def test_what_a_program_prints_never_becomes_markup(machine: World) -> None:
    with painter(machine, "ada"):
        page = opened(machine, "ada")

        types(page, "markup")

        expect(page.locator(".xterm-rows")).to_contain_text("<img src=x onerror=")
        assert page.locator(".terminal img, .terminal script").count() == 0
        assert page.evaluate("window.hacked") is None


def test_a_reload_shows_the_same_screen_with_its_scrollback(machine: World) -> None:
    with painter(machine, "ada"):
        page = opened(machine, "ada")
        types(page, "lines 200")
        expect(page.locator(".xterm-rows")).to_contain_text("line 199")
        before = page.locator(".xterm-rows").inner_text()

        page.reload()

        expect(page.locator(".xterm-rows")).to_contain_text("line 199")
        assert page.locator(".xterm-rows").inner_text().split() == before.split()
        page.locator(".terminal-screen").hover()
        page.mouse.wheel(0, -100_000)
        expect(page.locator(".xterm-rows")).to_contain_text("line 1")


def test_a_second_browser_only_looks_until_it_takes_the_keyboard(machine: World) -> None:
    with painter(machine, "ada"):
        first = opened(machine, "ada")
        expect(first.locator(".terminal-role")).to_have_text("You type here")
        second = opened(machine, "ada")
        expect(second.locator(".terminal-role")).to_have_text("Read only")

        second.get_by_role("button", name="Take keyboard").click()

        expect(second.locator(".terminal-role")).to_have_text("You type here")
        expect(first.locator(".terminal-role")).to_have_text("Read only")
        types(second, "say here I am")
        expect(first.locator(".xterm-rows")).to_contain_text("here I am")


def test_a_page_that_was_offline_goes_on_where_it_was(machine: World) -> None:
    with painter(machine, "ada"):
        page = opened(machine, "ada")
        other = opened(machine, "ada")
        machine.stop_gateway(kill=True)
        expect(page.locator(".terminal-note")).to_contain_text("Not connected")

        machine.start_gateway()

        expect(page.locator(".terminal-note")).to_be_empty()
        expect(page.locator(".terminal-role")).to_have_text(re.compile("You type here|Read only"))
        for one in (page, other):
            take = one.get_by_role("button", name="Take keyboard")
            if take.is_visible():
                take.click()
            types(one, "say back again")
            expect(one.locator(".xterm-rows")).to_contain_text("back again")


def test_a_terminal_follows_the_window_but_never_below_eighty_columns(machine: World) -> None:
    with painter(machine, "ada"):
        page = opened(machine, "ada")
        types(page, "size")
        expect(page.locator(".xterm-rows")).to_contain_text("columns")

        page.set_viewport_size({"width": 900, "height": WIDE["height"]})

        def narrow() -> bool:
            types(page, "size")
            return "80 columns" in page.locator(".xterm-rows").inner_text()

        for _ in range(40):
            if narrow():
                break
            page.wait_for_timeout(100)
        assert narrow()


def test_keyboards_leave_the_terminal_by_its_key(machine: World) -> None:
    with painter(machine, "ada"):
        page = opened(machine, "ada")
        page.locator(".terminal-screen").click()

        page.keyboard.press("Control+]")

        assert page.evaluate("document.activeElement.className").startswith("terminal")
        assert page.evaluate("document.activeElement.tagName") != "TEXTAREA"


def test_a_flood_of_200_megabytes_leaves_another_terminal_usable(machine: World) -> None:
    machine.dummy("eve")
    with painter(machine, "ada"):
        flooded, calm = opened(machine, "ada"), opened(machine, "eve")
        types(flooded, "flood 200")

        types(calm, "still here")

        expect(calm.locator(".xterm-rows")).to_contain_text("echo: still here", timeout=5000)
        expect(flooded.locator(".xterm-rows")).to_contain_text("flood is over", timeout=50_000)
