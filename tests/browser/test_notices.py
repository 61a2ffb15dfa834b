"""Browser notifications: one for each need that came while nobody looked, closed when it is met."""

from __future__ import annotations

import json
import re
from typing import Any

from playwright.sync_api import Page, expect

from tests.browser.world import PATIENCE_MS, World, expect_live

# Playwright's Chromium shows no notifications, and counts every page as looked at.
_DESKTOP = """
  document.hasFocus = () => false;
  const shown = [];
  const note = (...call) => {
    shown.push(call);
    document.documentElement.dataset.notices = JSON.stringify(shown);
  };
  window.Notification = class {
    static permission = "default";
    static async requestPermission() { return (Notification.permission = "granted"); }
    constructor(title, { body, tag }) {
      note("show", title, body, tag);
      this.tag = tag;
    }
    close() { note("close", this.tag); }
  };
"""


def open_page(machine: World, desktop: str = _DESKTOP) -> Page:
    context = machine.context()
    context.add_init_script(desktop)
    page = context.new_page()
    page.goto(machine.link())
    expect_live(page)
    return page


def notices(page: Page, last: str) -> list[Any]:
    """Waits until the last notification was of this kind, and returns all that was done with notifications."""
    root = page.locator("html")
    expect(root).to_have_attribute("data-notices", re.compile(rf'\["{last}",[^\[]*\]$'), timeout=PATIENCE_MS)
    found: list[Any] = json.loads(root.get_attribute("data-notices") or "[]")
    return found


def test_a_question_is_notified_once_and_closed_when_it_is_answered(machine: World) -> None:
    for name in ("bob", "carl"):
        machine.scripted(name)
    machine.send("bob", "please run it")
    page = open_page(machine)
    expect(page.get_by_text("Run the command?").first).to_be_visible()

    page.get_by_role("button", name="Notify me: off").click()
    expect(page.get_by_role("button", name="Notify me: on")).to_be_visible()
    task = machine.send("carl", "run this")
    (shown,) = notices(page, "show")
    machine.run("approve", task)
    *_, closed = notices(page, "close")

    assert shown[:3] == ["show", "carl asks you", "Run the command?"]
    assert closed == ["close", shown[3]]


def test_notifications_that_the_browser_blocks_say_so(machine: World) -> None:
    page = open_page(machine, _DESKTOP.replace('"default"', '"denied"'))

    expect(page.get_by_role("button", name="Notifications are blocked")).to_be_disabled()
