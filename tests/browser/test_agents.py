"""The view of all agents: a card for each, and terminals that stay in sight."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.browser.world import World


def test_a_pinned_terminal_is_typed_into_and_is_a_picture_again_when_left(machine: World) -> None:
    machine.dummy("ada")
    machine.dummy("bob")
    page = machine.page()
    page.keyboard.press("g")
    page.keyboard.press("a")
    page.locator(".card").get_by_role("link", name="ada").focus()
    page.get_by_role("button", name="Pin the terminal of ada").click()
    pin = page.get_by_role("group", name="Screen of ada")

    pin.focus()
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Unpin the terminal of ada")).to_be_focused()
    pin.click()
    expect(pin).to_contain_text("You type here")
    page.keyboard.type("from the pin\n")
    expect(pin).to_contain_text("echo: from the pin")
    page.get_by_role("heading", name="Agents").click()

    expect(pin).not_to_contain_text("You type here")
    expect(pin).to_contain_text("echo: from the pin")
    page.reload()
    expect(pin).to_be_visible()
    page.get_by_role("button", name="Unpin the terminal of ada").click()
    expect(pin).to_have_count(0)


def test_a_phone_has_the_pinned_agent_among_the_others(machine: World) -> None:
    machine.dummy("ada")
    page = machine.page()
    page.keyboard.press("g")
    page.keyboard.press("a")
    page.locator(".card").get_by_role("link", name="ada").focus()
    page.get_by_role("button", name="Pin the terminal of ada").click()
    expect(page.locator(".pin")).to_have_count(1)

    page.set_viewport_size({"width": 390, "height": 844})

    expect(page.locator(".pin")).to_have_count(0)
    expect(page.locator(".card")).to_have_count(1)
