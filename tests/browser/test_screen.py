"""Pictures of screens in the page: on the cards of agents, and on phones instead of a terminal."""

from __future__ import annotations

from playwright.sync_api import Page, Response, expect

from tests.browser.program_agent import painter
from tests.browser.world import PHONE, World, look


def shown_on_a_phone(machine: World) -> Page:
    page = machine.page(viewport=PHONE)
    page.evaluate("location.hash = '#/agents/ada'")
    expect(page.locator(".screen")).to_contain_text(">")
    return page


def test_a_phone_shows_the_screen_as_text_with_its_colours(machine: World) -> None:
    with painter(machine, "ada"):
        machine.run("send", "ada", "colours")
        page = shown_on_a_phone(machine)

        red = page.locator(".screen span", has_text="true red")
        expect(red).to_be_in_viewport()
        assert red.evaluate("element => getComputedStyle(element).color") == "rgb(250, 1, 2)"
        ground = page.locator(".screen span", has_text="ground")
        assert ground.evaluate("element => getComputedStyle(element).backgroundColor") == "rgb(0, 95, 255)"
        assert page.locator(".xterm").count() == 0
        look(page, "screen-phone")


def test_what_a_program_prints_stays_text(machine: World) -> None:
    with painter(machine, "ada"):
        machine.run("send", "ada", "markup")
        page = shown_on_a_phone(machine)

        expect(page.locator(".screen")).to_contain_text("<img src=x onerror=")
        assert page.locator(".screen img, .screen script").count() == 0
        assert page.evaluate("window.hacked") is None


def test_a_picture_follows_the_screen_and_asks_for_nothing_twice(machine: World) -> None:
    with painter(machine, "ada"):
        page = shown_on_a_phone(machine)
        statuses: list[int] = []

        def note(response: Response) -> None:
            if "/screen" in response.url:
                statuses.append(response.status)

        page.on("response", note)
        page.wait_for_event("response", lambda response: "/screen" in response.url and response.status == 304)

        machine.run("send", "ada", "say news")

        expect(page.locator(".screen")).to_contain_text("news")
        assert 200 in statuses


def test_a_hidden_page_asks_for_no_pictures(machine: World) -> None:
    with painter(machine, "ada"):
        page = shown_on_a_phone(machine)
        page.evaluate(
            """() => {
              Object.defineProperty(document, "visibilityState", { value: "hidden", configurable: true });
              document.dispatchEvent(new Event("visibilitychange"));
            }"""
        )
        page.wait_for_timeout(1200)
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url) if "/screen" in request.url else None)

        page.wait_for_timeout(2500)

        assert asked == []


def test_cards_show_what_was_said_far_above_the_prompt(machine: World) -> None:
    with painter(machine, "ada"):
        machine.run("send", "ada", "far")
        page = machine.page()
        page.evaluate("location.hash = '#/agents'")

        expect(page.locator(".card-screen").get_by_text("said above")).to_be_in_viewport()


def test_a_card_that_moves_still_shows_the_end_of_its_screen(machine: World) -> None:
    with painter(machine, "ada"):
        machine.run("send", "ada", "lines 60")
        page = machine.page()
        page.evaluate("location.hash = '#/agents'")
        end = page.locator(".card-screen").get_by_text("line 59")
        expect(end).to_be_in_viewport()

        move = "card => { card.parentElement.append(card); return card.querySelector('.screen').scrollTop; }"
        assert page.locator(".cards .card").evaluate(move) == 0

        expect(end).to_be_in_viewport()


def test_painted_ground_has_no_gaps_between_lines(machine: World) -> None:
    with painter(machine, "ada"):
        machine.run("send", "ada", "far")
        page = machine.page()
        page.evaluate("location.hash = '#/agents'")

        ground = page.locator(".card-screen .screen span").last
        expect(ground).to_be_visible()
        heights = ground.evaluate("span => [span, span.parentElement].map((one) => one.getBoundingClientRect().height)")
        assert heights[0] == heights[1] == round(heights[0])


def test_cards_show_small_screens_that_can_be_read(machine: World) -> None:
    with painter(machine, "ada"):
        machine.run("send", "ada", "colours")
        page = machine.page()
        page.evaluate("location.hash = '#/agents'")

        picture = page.locator(".card-screen .screen")
        expect(picture).to_contain_text("true red")
        expect(picture.get_by_text("true red")).to_be_in_viewport()
        assert float(picture.evaluate("element => parseFloat(getComputedStyle(element).fontSize)")) >= 7
        look(page, "screen-cards")
