"""Texts that try to be more than text, in every field that an agent or a sender can fill, through real processes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.world import PHONE, PIXEL, World, go, look
from tests.conformance.real_gateway import new_key

MARKUP = "<img src=x onerror='window.__xss=1'><script>window.__xss=2</script><svg onload=window.__xss=3><a href='javascript:window.__xss=4'>"
ODD = "r\u043cm -rf \u202ebuild\u2066\u200b \x1b[31mred\x9b1m \uff0fetc"
LONG = "y" * 10_000
HOSTILE = f"{MARKUP} {ODD} {LONG}"
CODES = ("U+043C", "U+202E", "U+200B", "U+001B", "U+FF0F")
FILE_NAME = "../../<img src=x onerror=window.__xss=5>\u202egpj.exe"
STRANGE = """() => [...document.querySelectorAll("script, img, svg, iframe, a, style, object, embed")].filter((one) =>
  one.matches("script:not([src^='/assets/']), img[onerror], img[src='x'], svg[onload], iframe, object, embed, a[href^='javascript:']")
).map((one) => one.outerHTML.slice(0, 200))"""


def script() -> str:
    """Returns the script of an agent that says hostile things in every way it has."""
    text, detail = json.dumps(HOSTILE), json.dumps(f"in detail: {HOSTILE}")
    options = json.dumps([f"allow: {MARKUP} {ODD}", f"deny: {ODD} {LONG[:300]}", f"allow_always: {MARKUP}"])
    name = json.dumps(FILE_NAME)
    return f"""
[[rule]]
text = "/fail/"
steps = [{{ fail = {text}, reason = "quota" }}]

[[rule]]
text = "/hand over/"
steps = [
  {{ say = {text} }},
  {{ artifact = {text}, text = {text}, description = {text}, id = "one" }},
  {{ artifact = "two", base64 = "{PIXEL}", file = {name}, media_type = "image/gif" }},
  {{ artifact = "three", bytes = {text}, file = {name}, media_type = "text/html" }},
  {{ artifact = "four", data = {{ key = {text} }} }},
  {{ answer = {text} }},
]

[default]
steps = [
  {{ question = {text}, detail = {detail}, options = {options} }},
  {{ answer = {text} }},
]
"""


@pytest.fixture(scope="module")
def tasks(machine_of_file: World) -> dict[str, str]:
    """Starts the agent, gives it all its reasons to speak, and returns the ids of the tasks."""
    machine = machine_of_file
    machine.scripted("mallory", script())
    key = new_key(machine.home, "sender", "--actions", "read,send")
    ids: dict[str, str] = {}
    for name in ("fail", "hand over", "ask"):
        file = {"name": FILE_NAME, "media_type": "text/html", "data": "PGI+"}
        body = {"text": f"{name} {HOSTILE}", "files": [file]}
        reply = machine.gateway.ask("POST", "/dashboard/agents/mallory/messages", body, key=key)
        assert reply.status == 202, reply.body
        ids[name] = json.loads(reply.body)["task"]["id"]
    return ids


def expect_only_text(page: Page) -> None:
    """Fails if anything of the texts became an element, ran, or moved the page sideways."""
    assert page.evaluate("window.__xss") is None
    assert page.evaluate(STRANGE) == []
    root = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert root[0] <= root[1]


def expect_revealed(page: Page, place: str) -> None:
    """Waits until the place shows the text, and each of its characters that deceives marked with its code."""
    root = page.locator(place).first
    expect(root).to_contain_text("onerror='window.__xss=1'")
    for code in CODES:
        expect(root.locator(f"mark[data-code='{code}']").first).to_be_attached()


@pytest.mark.parametrize("size", [None, PHONE], ids=["wide", "phone"])
def test_in_every_list(shared: World, tasks: dict[str, str], size: dict[str, int] | None) -> None:
    assert tasks
    page = shared.page(**({"viewport": size} if size else {}))
    places = {"#/agents": "main .row-why", "#/tasks": ".tasks-text", "#/flow": ".flow-text", "#/send": "main"}
    places |= {"#/inbox": "main .row-why" if size else ".need .command"}
    for address, place in places.items():
        go(page, address)
        if address != "#/send":
            expect_revealed(page, place)
        else:
            expect(page.get_by_role("heading", name="Send")).to_be_visible()
        expect_only_text(page)
    look(page, f"hostile-inbox-{'phone' if size else 'wide'}")


def test_in_a_question_with_its_options(shared: World, tasks: dict[str, str]) -> None:
    assert tasks
    page = shared.page()
    card = page.locator(".need", has=page.get_by_role("button", name="Allow", exact=True))

    expect(card.get_by_role("note")).to_contain_text(re.compile(r"characters are invisible or imitate others"))
    for place in (".need-title", ".command", ".options"):
        expect(card.locator(place)).to_contain_text("<img src=x")
        assert card.locator(f"{place} mark").count() > 0 or place == ".options"
    command = card.locator(".command")
    assert LONG in str(command.inner_text()), "a long command is never cut"
    expect_only_text(page)


@pytest.mark.parametrize("name", ["fail", "hand over", "ask"])
def test_in_a_task(shared: World, tasks: dict[str, str], name: str) -> None:
    page = shared.page()
    go(page, f"#/tasks/{tasks[name]}")

    expect_revealed(page, ".task-talk")
    expect_revealed(page, ".timeline")
    page.get_by_text("Raw JSON").click()
    expect(page.locator(".task-raw")).to_contain_text("onerror='window.__xss=1'")
    expect_only_text(page)


def test_in_the_history_of_an_agent(shared: World, tasks: dict[str, str]) -> None:
    assert tasks
    page = shared.page()
    go(page, "#/agents/mallory")

    expect_revealed(page, ".history")
    page.get_by_role("tab", name="Timeline").click()
    expect_revealed(page, ".history")
    expect_revealed(page, ".queue")
    expect_only_text(page)


def test_names_of_files_are_shown_whole_and_saved_tame(shared: World, tasks: dict[str, str], tmp_path: Path) -> None:
    page = shared.page()
    go(page, f"#/tasks/{tasks['hand over']}")
    names = page.locator(".part-file-name")
    expect(names.filter(has=page.locator("mark[data-code='U+202E']")).first).to_contain_text("<img src=x onerror=")

    for number in range(page.get_by_role("button", name="Download").count()):
        with page.expect_download() as started:
            page.get_by_role("button", name="Download").nth(number).click()
        saved = started.value.suggested_filename
        assert "/" not in saved
        assert "\u202e" not in saved
        assert not saved.startswith(".")
        started.value.save_as(tmp_path / str(number))
    expect_only_text(page)


def test_in_the_address_and_the_search(shared: World, tasks: dict[str, str]) -> None:
    assert tasks
    shared.expected = "404|400"
    page = shared.page()
    for address in (
        f"#/agents/{MARKUP}",
        f"#/tasks/{MARKUP}",
        f"#/tasks?search={MARKUP}",
        f"#/send?to={MARKUP}",
        "#/%ff",
        f"#/{MARKUP}",
    ):
        go(page, address)
        expect(page.get_by_role("heading").first).to_be_attached()
        expect_only_text(page)
    go(page, "#/tasks")
    page.get_by_role("searchbox", name="Search messages and answers").fill(ODD + "zzz")
    expect(page.get_by_role("heading", name=re.compile("Nothing found for"))).to_be_visible()
    expect(page.get_by_role("heading", name=re.compile("Nothing found for")).locator("mark").first).to_be_visible()
    expect_only_text(page)
