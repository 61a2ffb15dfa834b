"""Different people: on a phone, with the keyboard alone, with a screen reader, in the dark, with fifty agents."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.world import ASKER, PHONE, World, go, look, world

VIEWS = ("#/inbox", "#/agents", "#/agents/asker", "#/agents/ada", "#/flow", "#/tasks", "#/figures", "#/send")
NAMELESS = """() => {
  const named = (one) => one.getAttribute("aria-label")?.trim() || one.labels?.[0]?.textContent.trim()
    || one.textContent.trim() || one.getAttribute("aria-labelledby");
  return [...document.querySelectorAll("button, a[href], input, select, textarea, [role=tab], dialog")]
    .filter((one) => one.checkVisibility() && !named(one)).map((one) => one.outerHTML.slice(0, 200));
}"""
CONTRAST = """() => {
  const channels = (color) => color.match(/[\\d.]+/g).map(Number);
  const shade = ([r, g, b]) => [r, g, b].map((c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, index) => sum + c * [0.2126, 0.7152, 0.0722][index], 0);
  const ground = (one) => {
    for (; one; one = one.parentElement) {
      const color = channels(getComputedStyle(one).backgroundColor);
      if ((color[3] ?? 1) === 1) return color;
    }
    return [255, 255, 255];
  };
  const weak = [];
  for (const one of document.querySelectorAll("header *, nav *, main *")) {
    const says = [...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!says || !one.checkVisibility({ opacityProperty: true })) continue;
    if (one.closest(".xterm, .screen, svg, [disabled], .sr-only")) continue;
    const [front, back] = [shade(channels(getComputedStyle(one).color)), shade(ground(one))];
    const ratio = (Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05);
    if (ratio < 4.5) weak.push(`${ratio.toFixed(2)} ${one.className} ${one.textContent.slice(0, 30)}`);
  }
  return weak;
}"""
SIDEWAYS = """() => [document.documentElement, document.body, document.querySelector("main")]
  .filter((one) => one.scrollWidth > one.clientWidth).map((one) => [one.tagName, one.scrollWidth, one.clientWidth])"""


@pytest.fixture(scope="module")
def agents(machine_of_file: World) -> World:
    """An agent that asks, and one with a terminal."""
    machine_of_file.scripted("asker")
    machine_of_file.dummy("ada")
    machine_of_file.send("asker", "picture please")
    machine_of_file.send("asker", "run " + "the long command " * 20)
    return machine_of_file


def visit(page: Page, address: str) -> None:
    """Goes to a view and waits until it is shown."""
    go(page, address)
    expect(page.get_by_role("main").get_by_role("heading").first).to_be_attached()


def test_a_phone_has_one_column_large_buttons_and_no_sideways_scrolling(agents: World, shared: World) -> None:
    assert agents is shared
    page = shared.page(viewport=PHONE, has_touch=True, is_mobile=True)
    for address in VIEWS:
        visit(page, address)
        assert page.evaluate(SIDEWAYS) == [], address
        look(page, f"phone{address.replace('#', '').replace('/', '-')}")
    for tab in page.get_by_role("navigation", name="Views").get_by_role("link").all():
        box = tab.bounding_box()
        assert box is not None
        assert box["height"] >= 44
    expect(page.get_by_role("navigation", name="Agents")).to_be_hidden()
    visit(page, "#/agents/ada")
    expect(page.locator(".screen")).to_contain_text(">")
    expect(page.locator(".xterm")).to_have_count(0)

    visit(page, "#/inbox")
    page.get_by_role("main").get_by_role("link", name=re.compile("^asker asks")).tap()

    allow, deny = (page.get_by_role("button", name=name, exact=True) for name in ("Allow", "Deny"))
    above, below = allow.bounding_box(), deny.bounding_box()
    assert above is not None
    assert below is not None
    for box in (above, below):
        assert box["height"] >= 48
        assert box["width"] >= PHONE["width"] - 64
    assert below["y"] >= above["y"] + above["height"] + 8, "a thumb that misses one does not hit the other"
    expect(page.locator(".command")).to_contain_text("rm -rf build")
    look(page, "phone-question")


def test_keys_lead_everywhere_and_send(agents: World, shared: World) -> None:
    assert agents is shared
    page = shared.page()
    keys = page.keyboard
    main = page.get_by_role("main")

    keys.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    keys.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    for second, heading in (("a", "Agents"), ("f", "Flow"), ("t", "Tasks"), ("i", "Inbox")):
        keys.press("g")
        keys.press(second)
        expect(main.get_by_role("heading", name=heading, exact=True)).to_be_attached()

    keys.press("g")
    keys.press("a")
    expect(main.get_by_role("link", name=re.compile("^ada"))).to_be_visible()
    keys.press("j")
    expect(main.get_by_role("link", name=re.compile("^asker"))).to_be_focused()
    keys.press("j")
    expect(main.get_by_role("link", name=re.compile("^ada"))).to_be_focused()
    keys.press("k")
    keys.press("Enter")
    expect(main.get_by_role("heading", name="asker")).to_be_visible()

    keys.press("s")
    expect(page.get_by_label("Message")).to_be_focused()
    keys.type("typed by keys: s, a, d and / are only letters here")
    keys.press("Control+Enter")
    expect(page.get_by_role("article")).to_contain_text("typed by keys")

    keys.press("Escape")
    keys.press("/")
    expect(page.get_by_role("searchbox").first).to_be_focused()
    keys.type("picture")
    keys.press("Enter")
    expect(main.get_by_role("listitem")).to_have_count(1)
    keys.press("Escape")
    keys.press("j")
    keys.press("Enter")
    expect(page.get_by_role("heading", name="Message", exact=True)).to_be_visible()


def test_keys_decide_after_they_were_confirmed_once(agents: World, shared: World) -> None:
    assert agents is shared
    shared.send("asker", "run by keys")
    page = shared.page()
    keys = page.keyboard
    asks = page.get_by_role("article", name="asker asks: Run the command?")
    expect(asks).to_be_visible()
    keys.press("j")
    expect(asks).to_be_focused()
    keys.press("a")
    dialog = page.get_by_role("dialog", name="Allow this for asker?")
    expect(dialog).to_contain_text("rm -rf build")
    keys.press("Enter")
    expect(page.get_by_role("article", name=re.compile("asker done: did run the long"))).to_be_visible()
    # The second question of the same agent; another key asks again, once.
    expect(asks).to_be_visible()
    keys.press("d")
    expect(page.get_by_role("dialog", name="Deny this for asker?")).to_be_visible()
    keys.press("Enter")
    expect(asks).to_have_count(0)


def test_keys_that_are_typed_into_a_terminal_do_nothing_in_the_page(agents: World, shared: World) -> None:
    assert agents is shared
    page = shared.page("#/agents/ada")
    rows = page.locator(".xterm-rows")
    expect(rows).to_contain_text(">")
    page.locator(".terminal-screen").click()

    page.keyboard.type("gts?/ad")
    page.keyboard.press("Enter")

    expect(rows).to_contain_text("echo: gts?/ad")
    assert page.url.endswith("#/agents/ada")
    page.keyboard.press("Control+]")
    page.keyboard.press("g")
    page.keyboard.press("f")
    expect(page.get_by_role("heading", name="Flow")).to_be_visible()


def test_every_control_has_a_name_and_every_part_of_the_page_a_landmark(agents: World, shared: World) -> None:
    assert agents is shared
    page = shared.page()
    for address in VIEWS:
        visit(page, address)
        assert page.evaluate(NAMELESS) == [], address
        expect(page.get_by_role("main")).to_have_count(1)
        expect(page.get_by_role("banner")).to_have_count(1)
        expect(page.get_by_role("navigation", name="Views")).to_be_visible()
        expect(page.locator("main h1")).to_have_count(1)
        assert page.title().endswith("· Synapse")
        assert page.evaluate(
            "() => { const ids = [...document.querySelectorAll('[id]')].map((one) => one.id);"
            " return ids.length === new Set(ids).size; }"
        )
    page.keyboard.press("?")
    assert page.evaluate(NAMELESS) == []


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_both_themes_can_be_read(agents: World, shared: World, scheme: str) -> None:
    assert agents is shared
    page = shared.page(color_scheme=scheme, reduced_motion="reduce")
    for address in VIEWS:
        visit(page, address)
        assert page.evaluate(CONTRAST) == [], address
        look(page, f"{scheme}{address.replace('#', '').replace('/', '-')}")


def test_the_theme_can_be_chosen_and_stays(agents: World, shared: World) -> None:
    assert agents is shared
    page = shared.page(color_scheme="light")
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    light = page.evaluate(ground)

    page.get_by_role("button", name=re.compile("^Theme: auto")).click()
    page.get_by_role("button", name=re.compile("^Theme: light")).click()

    expect(page.get_by_role("button", name=re.compile("^Theme: dark"))).to_be_visible()
    dark = page.evaluate(ground)
    assert dark != light
    page.reload()
    expect(page.get_by_role("button", name=re.compile("^Theme: dark"))).to_be_visible()
    assert page.evaluate(ground) == dark


@pytest.fixture
def crowd(browser: Browser) -> Iterator[World]:
    """A machine whose gateway runs fifty agents."""
    with tempfile.TemporaryDirectory(prefix="sb") as home:
        script = Path(home) / "asker.toml"
        script.write_text(ASKER, encoding="utf-8")
        agent = '[[agents]]\nid = "agent-{number:02}"\ndriver = "scripted"\nscript = "{script}"\n'
        config = "\n".join(agent.format(number=number, script=script) for number in range(50))
        with world(Path(home), browser, config) as made:
            yield made
            made.check_faults()


def test_fifty_agents_in_the_list_with_the_one_that_asks_first(crowd: World) -> None:
    page = crowd.page("#/agents")
    cards = page.get_by_role("main").get_by_role("link")
    rows = page.get_by_role("navigation", name="Agents").get_by_role("link")
    expect(cards).to_have_count(50)
    expect(rows).to_have_count(50)
    page.evaluate("window.kept = document.querySelector(\"nav.side [data-key='agent-07']\")")

    crowd.send("agent-37", "run the thirty-seventh")

    expect(rows.first).to_contain_text("agent-37")
    expect(rows.first).to_contain_text("Run the command?")
    expect(cards.first).to_contain_text("agent-37")
    expect(page.get_by_role("link", name=re.compile(r"^Agents\s*50$"))).to_be_visible()
    assert page.evaluate("window.kept.isConnected"), "rows that did not change stay the same elements"
    look(page, "fifty")
    crowd.send("agent-11", "hello")
    expect(rows.nth(1)).to_contain_text(re.compile("agent-11.*done"))
    go(page, "#/flow")
    expect(page.get_by_role("link", name=re.compile("user to agent-37"))).to_be_visible()
