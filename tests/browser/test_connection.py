"""The page never shows more than the gateway has said: silence, sleep, refusals and ended sessions."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.fake_gateway import FakeGateway, fake_gateway, need, row

TITLE = "Run the command?"


@pytest.fixture
def gateway() -> Iterator[FakeGateway]:
    with fake_gateway() as fake:
        yield fake


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.set_default_timeout(10_000)
    yield context.new_page()
    context.close()


def test_silence_is_a_lost_connection_and_the_next_resumes_after_the_last_id(gateway: FakeGateway, page: Page) -> None:
    page.clock.install()
    gateway.open(page)

    with page.expect_request(lambda request: "/dashboard/events" in request.url) as second:
        page.clock.run_for(13_000)

    assert second.value.url.endswith("/dashboard/events?after=7")


def test_silence_is_noticed_although_the_clock_was_set_back(gateway: FakeGateway, page: Page) -> None:
    page.clock.install()
    gateway.open(page)
    now = page.evaluate("Date.now()")

    page.clock.set_system_time(now / 1000 - 3600)
    with page.expect_request(lambda request: "/dashboard/events" in request.url):
        page.clock.run_for(13_000)


def test_a_message_is_sent_with_an_id_also_where_the_browser_makes_none(gateway: FakeGateway, page: Page) -> None:
    # At an address without TLS that is not this machine's, browsers lack this function.
    page.add_init_script("delete Crypto.prototype.randomUUID")
    gateway.rows = [row("codex")]
    gateway.open(page, "#/send?to=codex")

    page.get_by_label("Message").fill("hello")
    with page.expect_response("**/messages"):
        page.get_by_role("button", name="Send", exact=True).click()

    [(_, _, sent)] = gateway.asked("/messages")
    assert re.fullmatch("[0-9a-f]{32}", sent["message_id"])


def test_while_not_connected_the_last_truth_stays_and_nothing_can_be_decided(gateway: FakeGateway, page: Page) -> None:
    gateway.rows = [row("codex", "asks", needs=[need("codex")])]
    gateway.open(page)
    allow = page.get_by_role("button", name="Allow", exact=True)
    expect(allow).to_be_enabled()

    page.route("**/dashboard/events*", lambda route: route.abort())
    gateway.end_streams()

    expect(page.get_by_role("alert")).to_contain_text(re.compile(r"Not connected since \d\d:\d\d:\d\d"))
    expect(page.get_by_role("article")).to_contain_text("rm -rf build")
    expect(allow).to_be_disabled()
    page.unroute("**/dashboard/events*")
    expect(allow).to_be_enabled()


def test_an_ended_session_says_so_and_asks_no_more(gateway: FakeGateway, page: Page) -> None:
    gateway.open(page)

    gateway.is_signed_in = False
    gateway.end_streams()
    expect(page.get_by_text("Your session has ended.")).to_be_visible()
    before = len(gateway.requests)
    page.wait_for_timeout(2500)  # longer than the longest pause before another try

    assert len(gateway.requests) == before
    assert page.evaluate("localStorage.length") == 0
    expect(page.get_by_text("synapse dashboard")).to_be_visible()


def test_the_code_leaves_the_address(gateway: FakeGateway, page: Page) -> None:
    gateway.open(page)

    assert "once" not in page.url
    assert not any("once" in path for _, path, _ in gateway.requests)


def test_an_answer_that_came_too_late_names_who_was_first(gateway: FakeGateway, page: Page) -> None:
    gateway.rows = [row("codex", "asks", needs=[need("codex")])]
    gone = {"code": "question_gone", "message": "was answered meanwhile", "hint": "", "answered_by": "key.phone"}
    gateway.answers["/dashboard/agents/codex/answer"] = (409, {"error": gone})
    gateway.open(page)

    page.get_by_role("button", name="Allow", exact=True).click()

    expect(page.locator(".need.gone")).to_contain_text("was answered by key.phone")
    assert gateway.asked("/answer")[0][2] == {"verdict": "allow", "question_id": "codex-permission"}


def test_a_decision_about_a_doubt_says_which_one_was_shown(gateway: FakeGateway, page: Page) -> None:
    gateway.rows = [row("codex", "in_doubt", needs=[need("codex", "in_doubt", task_id="t1", can=["resolve"])])]
    gateway.open(page)

    page.get_by_role("button", name="Type it again").click()

    expect(page.get_by_text("Type it again: codex")).to_be_visible()
    assert gateway.asked("/resolve") == [
        ("POST", "/dashboard/tasks/t1/resolve", {"verdict": "retry", "asked_at": "2026-01-31T10:30:00.000Z"})
    ]


def test_a_question_answered_elsewhere_says_by_whom(gateway: FakeGateway, page: Page) -> None:
    task = {"metadata": {"answered": {"question": TITLE, "choice": "Yes", "by": "key.phone", "how": "keys"}}}
    gateway.answers["/dashboard/tasks/t1"] = (200, {"task": task})
    gateway.rows = [row("codex", "asks", needs=[need("codex", task_id="t1")])]
    gateway.open(page)
    expect(page.get_by_role("article")).to_contain_text(TITLE)

    gateway.show(row("codex", "working"))

    expect(page.locator(".need.gone")).to_contain_text("was answered by key.phone: Yes")
    expect(page.get_by_role("button", name="Allow", exact=True)).to_have_count(0)


def test_a_key_decides_only_after_it_was_confirmed_once(gateway: FakeGateway, page: Page) -> None:
    gateway.rows = [row("codex", "asks", needs=[need("codex", task_id="t1")])]
    gateway.open(page)
    expect(page.get_by_role("article")).to_be_visible()

    page.keyboard.press("d")
    expect(page.get_by_role("dialog")).to_contain_text("rm -rf build")
    page.keyboard.press("Escape")
    assert gateway.asked("/answer") == []
    page.keyboard.press("d")
    page.get_by_role("dialog").get_by_role("button", name="Yes").click()

    expect(page.get_by_text("Denied: codex")).to_be_visible()
    assert gateway.asked("/answer") == [
        ("POST", "/dashboard/tasks/t1/answer", {"verdict": "deny", "question_id": "codex-permission"})
    ]


def test_new_needs_are_said_to_screen_readers(gateway: FakeGateway, page: Page) -> None:
    gateway.rows = [row("codex")]
    gateway.open(page)
    expect(page.get_by_text("Nobody needs you.")).to_be_visible()

    gateway.show(row("codex", "asks", needs=[need("codex")]))

    expect(page.locator("[aria-live=polite].sr-only")).to_have_text(f"codex asks: {TITLE}")
    assert page.title() == "(1) Inbox · Synapse"
