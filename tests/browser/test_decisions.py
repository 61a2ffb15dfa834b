"""Two browsers at once: what one decides, the other sees, with who it was; nothing is decided twice."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import Page, Route, expect

from tests.architecture.source_tree import ROOT
from tests.browser.program_agent import program
from tests.browser.world import World, look

DEAF = ROOT / "tests" / "agents" / "deaf.py"


@pytest.fixture(scope="module")
def asker(machine_of_file: World) -> World:
    machine_of_file.scripted("asker")
    return machine_of_file


@pytest.fixture
def browsers(asker: World, shared: World) -> tuple[Page, Page]:
    """Two browsers that show the Inbox."""
    assert asker is shared
    return shared.page(), shared.page()


def asked(page: Page, title: str) -> None:
    expect(page.get_by_role("article", name=f"asker asks: {title}")).to_be_visible()


def answer_of(machine: World, task: str) -> str:
    """Returns the answer of a task, once it has ended."""
    fields = json.loads(machine.run("status", task, "--json").stdout)
    return json.dumps(fields)


def expect_settled(page: Page, title: str, how: str) -> None:
    """Waits until the page says how a question was settled elsewhere, and offers nothing for it any more."""
    expect(page.get_by_role("status").filter(has_text=f"asker: “{title}”")).to_contain_text(how)
    expect(page.get_by_role("article", name=f"asker asks: {title}")).to_have_count(0)


def test_what_one_allows_vanishes_for_the_other_with_who_did_it(shared: World, browsers: tuple[Page, Page]) -> None:
    first, second = browsers
    shared.send("asker", "run it")
    asked(first, "Run the command?")
    asked(second, "Run the command?")

    first.get_by_role("button", name="Allow", exact=True).click()

    expect_settled(second, "Run the command?", "was answered by dashboard: Yes")
    look(second, "answered-elsewhere")
    expect(first.get_by_role("status").filter(has_text="Allowed: asker · Run the command?")).to_be_visible()
    expect(second.get_by_role("article", name="asker done: did run it", exact=True)).to_be_visible()


def test_what_one_denies_is_denied(shared: World, browsers: tuple[Page, Page]) -> None:
    first, second = browsers
    shared.send("asker", "run it again")
    asked(first, "Run the command?")
    asked(second, "Run the command?")

    second.get_by_role("button", name="Deny", exact=True).click()

    expect_settled(first, "Run the command?", "was answered by dashboard: No")


def test_one_of_several_options_is_chosen(shared: World, browsers: tuple[Page, Page]) -> None:
    first, second = browsers
    shared.send("asker", "choose one")
    asked(first, "Which branch?")
    asked(second, "Which branch?")
    expect(first.get_by_role("button", name="Allow", exact=True)).to_have_count(0)

    first.get_by_role("button", name="release").click()

    expect_settled(second, "Which branch?", "was answered by dashboard: release")
    expect(first.get_by_role("article", name="asker done: took release")).to_be_visible()


def test_an_answer_in_ones_own_words(shared: World, browsers: tuple[Page, Page]) -> None:
    first, second = browsers
    shared.send("asker", "name it")
    asked(first, "What is it called?")
    asked(second, "What is it called?")

    first.get_by_role("textbox", name="Your answer to asker").fill("Zoë & <b>co</b>")
    first.get_by_role("button", name="Answer", exact=True).click()

    expect_settled(second, "What is it called?", "was answered by dashboard")
    expect(first.get_by_role("article", name="asker done: called Zoë & <b>co</b>")).to_be_visible()


def test_both_decide_at_once_and_one_is_told_that_it_was_late(shared: World, browsers: tuple[Page, Page]) -> None:
    first, second = browsers
    shared.send("asker", "run it once")
    asked(first, "Run the command?")
    asked(second, "Run the command?")
    # The second browser does not hear of the first one's answer before it sends its own.
    shared.expected = "409"
    held: list[Route] = []
    second.route("**/dashboard/tasks/*/answer", lambda route: held.append(route))
    with second.expect_request("**/dashboard/tasks/*/answer"):
        second.get_by_role("button", name="Deny", exact=True).click()
    first.get_by_role("button", name="Allow", exact=True).click()
    expect(first.get_by_role("article", name="asker done: did run it once")).to_be_visible()

    held[0].continue_()

    late = second.get_by_text(re.compile(r"Run the command\?” (was answered by dashboard|is not open any more)"))
    expect(late.first).to_be_visible()
    expect(second.get_by_text("Denied: asker")).to_have_count(0)
    expect(second.get_by_role("article", name="asker done: did run it once")).to_be_visible()


def test_a_session_that_may_only_read_sees_the_question_and_cannot_decide(
    shared: World, browsers: tuple[Page, Page]
) -> None:
    reader = shared.page(flags=("--read-only",))
    shared.send("asker", "run it for the reader")
    asked(reader, "Run the command?")

    for name in ("Allow", "Deny", "Cancel the task"):
        button = reader.get_by_role("button", name=name, exact=True)
        expect(button).to_be_disabled()
        expect(button).to_have_attribute("title", re.compile("this session may not"))
    reader.keyboard.press("a")
    expect(reader.get_by_role("dialog")).to_have_count(0)
    browsers[0].get_by_role("button", name="Allow", exact=True).click()
    expect_settled(reader, "Run the command?", "was answered by dashboard: Yes")


def test_a_message_in_doubt_is_resolved_by_a_person(shared: World, browsers: tuple[Page, Page]) -> None:
    first, second = browsers
    with program(shared, "deaf", DEAF, "echo = 0.2\nproof = 0.3"):
        task = shared.send("deaf", "are you there?")
        card = first.get_by_role("article", name=re.compile("^deaf in doubt"))
        expect(card).to_contain_text("are you there?")
        expect(card.get_by_role("button", name="Type it again")).to_be_enabled()
        other = second.get_by_role("article", name=re.compile("^deaf in doubt"))
        expect(other).to_be_visible()
        look(first, "in-doubt")

        card.get_by_role("button", name="Give it up").click()

        expect(card).to_have_count(0)
        expect(other).to_have_count(0)
        assert "failed" in answer_of(shared, task)


def test_a_task_is_canceled_from_its_card_after_a_second_question(shared: World, browsers: tuple[Page, Page]) -> None:
    first, second = browsers
    task = shared.send("asker", "run and cancel")
    asked(first, "Run the command?")
    asked(second, "Run the command?")

    first.get_by_role("button", name="Cancel the task").click()
    first.get_by_role("dialog").get_by_role("button", name="Cancel the task").click()

    expect(first.get_by_role("article", name="asker asks: Run the command?")).to_have_count(0)
    expect_settled(second, "Run the command?", "is not open any more")
    assert "canceled" in answer_of(shared, task)
