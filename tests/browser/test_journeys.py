"""Every view of the page shows its first thing, with a real gateway and real agents behind it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.world import World, go, look
from tests.conformance.real_gateway import new_key

DROP = """({ target, name, text }) => {
  const moved = new DataTransfer();
  moved.items.add(new File([text], name, { type: "text/plain" }));
  for (const type of ["dragover", "drop"]) {
    target.dispatchEvent(new DragEvent(type, { bubbles: true, cancelable: true, dataTransfer: moved }));
  }
}"""


@pytest.fixture(scope="module")
def agents(machine_of_file: World) -> World:
    """An agent that plays a script, and one on a pseudo-terminal."""
    machine_of_file.scripted("asker")
    machine_of_file.dummy("ada")
    return machine_of_file


@pytest.fixture
def page(agents: World, shared: World) -> Page:
    assert agents is shared
    return shared.page()


def test_the_inbox_shows_the_whole_question_before_its_buttons(shared: World, page: Page) -> None:
    expect(page.get_by_role("heading", name="Nobody needs you.")).to_be_visible()

    task = shared.send("asker", "run the build")

    card = page.get_by_role("article", name="asker asks: Run the command?")
    expect(card).to_contain_text("rm -rf build")
    expect(card).to_contain_text(re.compile(rf"task {task[:8]} from user: “run the build”"))
    expect(card.get_by_role("button", name="Allow", exact=True)).to_be_enabled()
    expect(page.get_by_role("link", name=re.compile(r"^Inbox\s*1$"))).to_be_visible()
    assert page.title() == "(1) Inbox · Synapse"
    command = card.locator(".command").bounding_box()
    allow = card.get_by_role("button", name="Allow", exact=True).bounding_box()
    assert command is not None
    assert allow is not None
    assert command["y"] + command["height"] <= allow["y"]
    look(page, "inbox")

    card.get_by_role("button", name="Allow", exact=True).click()

    expect(card).to_have_count(0)
    expect(page.get_by_role("article", name="asker done: did run the build")).to_be_visible()
    page.get_by_role("button", name="Seen").click()
    expect(page.get_by_role("heading", name="Nobody needs you.")).to_be_visible()


def test_agents_have_a_state_a_line_of_why_and_a_picture_of_their_screen(shared: World, page: Page) -> None:
    shared.send("asker", "run the tests")
    go(page, "#/agents")

    asker = page.get_by_role("main").get_by_role("link", name=re.compile(r"^asker asks \d+[sm] "))
    expect(asker).to_contain_text("Run the command?")
    expect(page.get_by_role("main").get_by_role("link").first).to_contain_text("asker")
    ada = page.get_by_role("main").get_by_role("link", name=re.compile(r"^ada ready"))
    expect(ada.locator(".screen")).to_contain_text(">")
    look(page, "agents")

    asker.click()
    page.get_by_role("button", name="Deny", exact=True).click()
    expect(page.get_by_role("article", name=re.compile("asker asks"))).to_have_count(0)


def test_an_agent_has_its_terminal_live_with_what_it_works_on(shared: World, page: Page) -> None:
    page.get_by_role("navigation", name="Agents").get_by_role("link", name=re.compile("^ada")).click()

    expect(page.get_by_role("heading", name="ada")).to_be_visible()
    terminal = page.get_by_role("region", name="Terminal of ada")
    expect(terminal.locator(".xterm-rows")).to_contain_text(">")

    shared.send("ada", "good morning")

    expect(terminal.locator(".xterm-rows")).to_contain_text("echo: good morning")
    history = page.get_by_role("tabpanel", name="History")
    expect(history).to_contain_text("good morning")
    page.get_by_role("tab", name="Timeline").click()
    expect(history).to_contain_text("answered")
    look(page, "agent")


def test_the_flow_grows_by_an_arrow_that_gets_its_receipts(shared: World, page: Page) -> None:
    go(page, "#/flow")
    expect(page.get_by_role("heading", name="Flow")).to_be_visible()

    shared.send("asker", "slow work for the flow")

    message = page.get_by_role("link", name=re.compile(r"user to asker: slow work for the flow — "))
    expect(message).to_be_visible()
    expect(message.locator(".flow-dots")).to_have_text("●●●●●")
    answer = page.get_by_role("link", name=re.compile(r"asker answers user: all said — answer"))
    expect(answer).to_be_visible()
    look(page, "flow")

    message.click()
    expect(page.get_by_role("list", name="Receipt")).to_contain_text("answered")
    assert "#/tasks/" in page.url


def test_an_answer_grows_in_the_task(shared: World, page: Page) -> None:
    task = shared.send("asker", "grow a story")
    go(page, f"#/tasks/{task}")

    expect(page.get_by_role("heading", name="Message", exact=True)).to_be_visible()
    main = page.get_by_role("main")
    expect(main).to_contain_text("first half")
    expect(main).not_to_contain_text("second half")
    expect(page.get_by_role("button", name="Cancel the task").first).to_be_visible()
    main.get_by_role("button", name="Allow", exact=True).click()

    expect(main).to_contain_text("first half, second half")
    timeline = page.get_by_role("region", name="Timeline")
    expect(timeline).to_contain_text("answered")
    expect(page.get_by_role("button", name="Cancel the task")).to_have_count(0)


def test_what_an_agent_hands_over_is_shown_coloured_and_downloaded(shared: World, page: Page, tmp_path: Path) -> None:
    task = shared.send("asker", "picture please")
    go(page, f"#/tasks/{task}")

    image = page.get_by_role("img", name="pixel.gif")
    expect(image).to_be_visible()
    assert image.evaluate("image => image.decode().then(() => image.naturalWidth)") == 1
    expect(page.locator("code", has_text="def add(a, b):").locator("span").first).to_be_visible()
    expect(page.get_by_role("main")).to_contain_text("see the files")
    with page.expect_download() as started:
        page.get_by_role("button", name="Download").first.click()
    assert started.value.suggested_filename == "pixel.gif"
    started.value.save_as(tmp_path / "got")
    assert (tmp_path / "got").read_bytes().startswith(b"GIF89a")
    look(page, "task")


def test_tasks_are_searched_filtered_and_paged(shared: World, page: Page) -> None:
    key = new_key(shared.home, "filler", "--actions", "read,send")
    for number in range(60):
        body = {"text": f"filler number{number}"}
        reply = shared.gateway.ask("POST", "/dashboard/agents/asker/messages", body, key=key)
        assert reply.status == 202, reply.body
    shared.send("asker", "the zebra in the haystack")
    page.keyboard.press("g")
    page.keyboard.press("t")
    rows = page.get_by_role("main").get_by_role("listitem")
    expect(rows).to_have_count(50)

    page.get_by_role("button", name="Older").click()
    expect(page.get_by_role("main").get_by_role("status")).to_contain_text(re.compile(r"^51–"))
    page.get_by_role("button", name="Newer").click()
    expect(rows).to_have_count(50)

    page.get_by_role("searchbox", name="Search messages and answers").fill("zebra")
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text("the zebra in the haystack")
    assert "search=zebra" in page.url
    look(page, "tasks")
    page.go_back()
    page.get_by_role("combobox", name="Agent").select_option("ada")
    expect(rows.filter(has_text="filler")).to_have_count(0)


def test_figures_are_three_plots_and_a_table(shared: World, page: Page) -> None:
    shared.send("asker", "something to count")
    go(page, "#/figures")

    expect(page.get_by_role("main").locator("figure svg, svg[role=img]")).to_have_count(3)
    expect(page.get_by_role("table").get_by_role("row", name=re.compile("^asker"))).to_be_visible()
    page.get_by_role("link", name="Last day").click()
    expect(page.get_by_role("link", name="Last day")).to_have_attribute("aria-current", "true")
    look(page, "figures")


def test_a_message_with_a_dropped_file_is_sent_and_its_answer_streams_in(shared: World, page: Page) -> None:
    page.get_by_role("link", name="Send", exact=True).click()
    page.get_by_label("To", exact=True).select_option("asker")
    page.get_by_label("Message").fill("grow with a file")
    drop = page.locator(".drop").element_handle()
    page.evaluate(DROP, {"target": drop, "name": "notes.txt", "text": "by hand\n"})
    expect(page.get_by_role("button", name="Remove notes.txt")).to_be_visible()

    page.get_by_role("button", name="Send", exact=True).click()

    sent = page.get_by_role("article")
    expect(sent).to_contain_text("first half")
    shared.page().get_by_role("button", name="Allow", exact=True).click()
    expect(sent).to_contain_text("second half")
    expect(sent).to_contain_text("completed")
    look(page, "send")
    sent.get_by_role("link").click()
    with page.expect_download() as started:
        page.get_by_role("button", name="Download").click()
    assert started.value.suggested_filename == "notes.txt"
    assert Path(started.value.path()).read_bytes() == b"by hand\n"
    expect(page.get_by_role("heading", level=1)).to_contain_text("dashboard → asker")
