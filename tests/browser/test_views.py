"""Flow, Task, Tasks and Figures, each alone in a page, with a context that answers as a gateway would."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.browser.fake_gateway import row as whole_row
from tests.browser.page_modules import ORIGIN, page_modules
from tests.browser.task_rows import Json, agent_row, at, task_of, task_row

WIDE = {"width": 1440, "height": 900}
PHONE = {"width": 390, "height": 844}
HOSTILE = [
    "<img src=x onerror=alert(1)><script>alert(2)</script>",
    "\x1b[31mred\x07",
    "photo\u202egnp.exe",
    "p\u0430ypal\u200b",
    "x" * 10_000,
    "",
    "]]>'\"--></style>",
]
MOUNT = """async ({ name, id, query, rows, answers }) => {
  document.body.style.height = "100vh";
  document.querySelector("main").style.height = "100vh";
  const listeners = [];
  const said = [];
  let wake = () => {};
  const fake = (window.fake = {
    asked: [], posted: [], failed: [],
    emit: (event, data) => listeners.filter(([one]) => one === event).forEach(([, listener]) => listener(data)),
    say: (event) => { said.push(event); wake(); },
    answers,
  });
  const find = (path) => {
    const found = fake.answers[path] ?? fake.answers[path.split("?")[0]];
    if (found) return found;
    throw Object.assign(new Error("no such task"), { status: 404, hint: "synapse tasks" });
  };
  const context = {
    api: {
      get: async (path) => { fake.asked.push(path); return find(path); },
      post: async (path, body) => { fake.posted.push([path, body]); return find(path); },
      blob: async (path) => {
        fake.asked.push(path);
        const { bytes, type } = find(path);
        return new Blob([Uint8Array.from(bytes)], { type });
      },
      async *stream(path, { signal }) {
        while (!signal.aborted) {
          if (said.length) yield said.shift();
          else await new Promise((resolve, reject) => {
            wake = resolve;
            signal.addEventListener("abort", () => reject(signal.reason));
          });
        }
      },
    },
    live: {
      rows, isLive: true,
      row: (key) => context.live.rows.find((row) => row.id === key || row.agent_id === key),
      on: (event, listener) => { listeners.push([event, listener]); return () => {}; },
    },
    navigate: (hash) => { location.hash = hash; },
    announce: () => {}, notify: () => {}, fail: (error) => fake.failed.push(String(error)),
    can: () => true, gate: (element) => element, notices: { state: "missing" },
    seen: async (agent, until) => fake.posted.push([`seen ${agent}`, until]),
  };
  fake.context = context;
  const { view } = await import(`/assets/views/${name}.js`);
  fake.handle = view.mount(document.querySelector("main"), context, { id, query: new URLSearchParams(query) });
}"""
ONLY_OURS = (
    """() => [...document.querySelectorAll("main script, main style, main img[onerror], main b, main iframe")].length"""
)


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with opened(browser, WIDE) as made:
        yield made


@contextmanager
def opened(browser: Browser, viewport: dict[str, int]) -> Generator[Page]:
    with page_modules(browser, viewport=viewport, timezone_id="UTC") as made:
        made.set_default_timeout(10_000)
        yield made


def mount(
    page: Page, name: str, *, task_id: str = "", query: str = "", rows: list[Json] | None = None, **answers: Any
) -> None:
    """Shows a view; `answers` are those of the API by path, with `__` for a slash below /dashboard."""
    paths = {f"/dashboard/{path.replace('__', '/')}": answer for path, answer in answers.items()}
    page.evaluate(MOUNT, {"name": name, "id": task_id, "query": query, "rows": rows or [], "answers": paths})


def page_of(rows: list[Json], **fields: Any) -> Json:
    return {"tasks": rows, "next_cursor": "", "total": len(rows), **fields}


def emit(page: Page, row: Json) -> None:
    """Sends a change of a task, as the live connection does."""
    page.evaluate("(row) => fake.emit('task', { seq: 1, event: {}, task: row })", row)


def frames(page: Page) -> None:
    """Waits until the page has drawn what it has to draw."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def scroll(page: Page) -> Json:
    place: Json = page.evaluate(
        """() => { const { scrollTop, scrollHeight, clientHeight } = document.querySelector(".flow-scroller");
           return { top: scrollTop, below: scrollHeight - scrollTop - clientHeight }; }"""
    )
    return place


def many(count: int) -> list[Json]:
    agents = ("claude", "codex", "gemini")
    rows = [
        task_row(f"t{n}", agents[n % 3], n * 10, ("submitted", n * 10 + 1), ("answered", n * 10 + 5))
        for n in range(count)
    ]
    return rows[::-1]


def test_the_flow_has_an_arrow_for_each_message_and_answer_that_leads_to_its_task(page: Page) -> None:
    row = task_row("one", "codex", 7, ("typed", 8), ("submitted", 9), ("answered", 30))
    mount(page, "flow", rows=[agent_row("codex")], tasks=page_of([row]))

    message = page.get_by_role("link", name="10:30:07, user to codex: message one — answered")
    answer = page.get_by_role("link", name="10:30:30, codex answers user: answer one — answer")
    expect(message).to_have_attribute("href", "#/tasks/one")
    expect(answer).to_have_attribute("href", "#/tasks/one")
    expect(page.locator(".flow-line")).to_have_count(2)
    expect(message.locator(".flow-dots")).to_have_text("●●●●●")
    message.focus()
    expect(page.locator(".flow-card")).to_contain_text("submitted10:30:09hook")


def test_an_arrow_is_dashed_until_there_is_proof(page: Page) -> None:
    waiting = task_row("one", "codex", 0, ("typed", 1))
    mount(page, "flow", tasks=page_of([waiting]))
    arrow = page.locator(".flow-line")
    expect(arrow).to_have_class("flow-line flow-waiting")
    expect(page.locator(".flow-dots").last).to_have_text("●●○○○")

    emit(page, task_row("one", "codex", 0, ("typed", 1), ("submitted", 2)))

    expect(arrow).to_have_class("flow-line")
    expect(page.locator(".flow-dots").last).to_have_text("●●●○○")


def test_the_flow_follows_the_newest_until_a_person_scrolls_up(page: Page) -> None:
    mount(page, "flow", tasks=page_of(many(80)))
    expect(page.locator(".flow-message")).to_have_count(80)
    frames(page)
    assert scroll(page)["below"] == 0

    page.locator(".flow-scroller").evaluate("(element) => { element.scrollTop = 200; }")
    frames(page)
    emit(page, task_row("new", "codex", 5000))
    expect(page.get_by_role("button", name="↓ 1 new message")).to_be_visible()
    assert scroll(page)["top"] == 200

    page.get_by_role("button", name="↓ 1 new message").click()
    emit(page, task_row("newer", "codex", 5010))
    expect(page.locator(".flow-message")).to_have_count(82)
    frames(page)
    assert scroll(page)["below"] == 0


def test_an_event_draws_its_own_row_and_no_other_of_hundreds(page: Page) -> None:
    rows = [task_row("open", "codex", 9000, ("submitted", 9001)), *many(300)]
    mount(page, "flow", tasks=page_of(rows))
    expect(page.locator(".flow-message")).to_have_count(301)
    page.evaluate(
        """() => { window.drawn = new Set(); new MutationObserver((changes) => changes.forEach(({ target }) =>
             window.drawn.add(target.closest(".flow-row")?.dataset.key ?? target.className)))
           .observe(document.querySelector(".flow-rows"), { childList: true, subtree: true }); }"""
    )

    emit(page, task_row("open", "codex", 9000, ("submitted", 9001), ("turn_started", 9002)))
    expect(page.locator("[data-key=open] .flow-dots")).to_have_text("●●●●○")

    assert page.evaluate("() => [...window.drawn]") == ["open"]


def test_keys_step_from_the_newest_row(page: Page) -> None:
    mount(page, "flow", tasks=page_of(many(80)))
    expect(page.locator(".flow-message")).to_have_count(80)
    links = page.locator(".flow-link")

    page.evaluate("() => fake.handle.keys.j()")
    expect(links.last).to_be_focused()
    page.evaluate("() => fake.handle.keys.k()")
    expect(links.nth(-2)).to_be_focused()
    expect(page.locator(".flow-card")).to_be_visible()


def test_older_messages_come_above_and_move_nothing(page: Page) -> None:
    rows = many(60)
    mount(page, "flow", tasks=page_of(rows[:30], next_cursor="more"))
    page.evaluate("(older) => { fake.answers['/dashboard/tasks?limit=100&cursor=more'] = older; }", page_of(rows[30:]))
    page.locator(".flow-scroller").evaluate("(element) => { element.scrollTop = 0; }")
    first = page.locator("[data-key=t30]")
    before = first.bounding_box()

    page.get_by_role("button", name="Older messages").click()

    expect(page.locator(".flow-message")).to_have_count(60)
    after = first.bounding_box()
    assert before is not None
    assert after is not None
    # The button is gone, and the row above is the same day's: what remains is less than a row.
    assert abs(after["y"] - before["y"]) < 48
    expect(page.get_by_role("button", name="Older messages")).to_be_hidden()


def test_texts_stay_in_sight_beside_lanes_that_are_not(page: Page) -> None:
    agents = [f"agent-{n:02}" for n in range(40)]
    rows = [task_row(name, name, n * 10) for n, name in enumerate(agents)]
    rows.append(task_row("far", "agent-39", 900, **{"from": "synapse-agent-38", "from_agent": "synapse-agent-38"}))
    mount(page, "flow", rows=[agent_row(name) for name in agents], tasks=page_of(rows))

    far = page.locator("[data-key=far]")
    expect(far.locator(".flow-brief")).to_have_text("agent-38 → agent-39")
    expect(far.locator(".flow-text")).to_be_in_viewport()
    half = page.locator("[data-key=agent-39] .flow-far")
    expect(half).to_have_text("agent-39")
    expect(half).to_be_in_viewport()

    page.locator(".flow-scroller").evaluate("(element) => { element.scrollLeft = element.scrollWidth; }")
    expect(far.locator(".flow-brief")).to_be_hidden()
    expect(far.locator(".flow-text")).to_be_in_viewport()


def test_on_a_phone_the_flow_is_a_list(browser: Browser) -> None:
    with opened(browser, PHONE) as page:
        agents = ["codex", *(f"agent-{n}" for n in range(6))]
        tasks = [
            task_row("one", "codex", 0),
            *(task_row(name, name, 10, from_agent="synapse-codex") for name in agents),
        ]
        mount(page, "flow", rows=[agent_row(name) for name in agents], tasks=page_of(tasks))

        row = page.locator("[data-key=one]")
        expect(row.locator(".flow-brief")).to_have_text("user → codex")
        expect(row.locator(".flow-brief")).to_be_visible()
        expect(row.locator(".flow-text")).to_have_text("message one")
        expect(row.locator(".flow-dots")).to_have_text("●○○○○")
        expect(page.locator(".flow-arrow:visible, .flow-far:visible")).to_have_count(0)
        tall = page.locator(".flow-link").evaluate_all("(links) => links.map((link) => link.clientHeight)")
        assert set(tall) == {tall[0]}
        assert page.evaluate("() => document.documentElement.scrollWidth") <= PHONE["width"]


def hostile_rows() -> list[Json]:
    return [
        task_row(
            f"h{n}",
            "codex",
            n,
            ("submitted", n + 1),
            ("answered", n + 2) if n % 2 else ("failed", n + 2),
            text=text[:300],
            answer=text[:300],
            note=text,
            attention=text,
            **{"from": text[:100]},
        )
        for n, text in enumerate(HOSTILE)
    ]


@pytest.mark.parametrize("viewport", [WIDE, PHONE], ids=["wide", "phone"])
@pytest.mark.parametrize("view", ["flow", "tasks"])
def test_hostile_texts_stay_texts_in_lists(browser: Browser, view: str, viewport: dict[str, int]) -> None:
    with opened(browser, viewport) as page:
        mount(page, view, rows=[agent_row("codex", name=HOSTILE[0])], tasks=page_of(hostile_rows()))

        expect(page.get_by_role("link").filter(has_text="<script>alert(2)</script>").first).to_be_attached()
        expect(page.locator("mark[data-code='U+202E']").first).to_be_attached()
        assert page.evaluate(ONLY_OURS) == 0
        assert page.evaluate("() => document.documentElement.scrollWidth") <= viewport["width"]


def answer(text: str, **metadata: Any) -> Json:
    return {"artifact_id": "a", "name": "answer", "parts": [{"type": "text", "text": text}], "metadata": metadata}


def show_task(page: Page, row: Json, task: Json, events: list[Json] | None = None, **more: Any) -> None:
    found: Json = {
        f"tasks__{row['id']}": {"task": task, "row": row},
        f"tasks__{row['id']}__timeline": {"events": events or []},
    }
    mount(page, "task", task_id=row["id"], rows=more.pop("rows", [agent_row("codex")]), **found, **more)


def test_an_answer_grows_and_keeps_what_stands(page: Page) -> None:
    row = task_row("one", "codex", 0, ("submitted", 1))
    show_task(page, row, task_of(row))
    expect(page.get_by_role("heading", name="No answer yet")).to_be_visible()

    grow(page, 5, task_of(row, answer("See:\n```python\nreturn 1\n```\n", partial=True)))
    code = page.locator(".part-code")
    expect(code.locator(".code-keyword")).to_have_text("return")
    page.evaluate("() => { document.querySelector('.part-code').kept = true; }")
    grow(page, 6, task_of(row, answer("See:\n```python\nreturn 1\n```\nand more", partial=True)))

    expect(page.locator(".part-text").last).to_have_text("and more")
    assert page.evaluate("() => document.querySelector('.part-code').kept") is True
    expect(page.locator(".timeline-event")).to_have_count(2)


def test_a_task_is_loaded_anew_when_the_page_was_away(page: Page) -> None:
    row = task_row("one", "codex", 0, ("submitted", 1))
    show_task(page, row, task_of(row))
    expect(page.get_by_role("heading", name="No answer yet")).to_be_visible()
    done = task_row("one", "codex", 0, ("submitted", 1), ("answered", 60))
    page.evaluate(
        "(now) => { fake.answers['/dashboard/tasks/one'] = now; }",
        {"task": task_of(done, answer("at last")), "row": done},
    )

    page.evaluate("() => fake.emit('connection', { state: 'live' })")

    expect(page.locator(".part-text").last).to_have_text("at last")


def grow(page: Page, seq: int, task: Json) -> None:
    event = {"type": "artifact_added", "at": at(seq), "artifact": task["artifacts"][0], "append": False}
    data = {"event": event, "task": task}
    page.evaluate("(said) => fake.say(said)", {"id": str(seq), "event": "artifact_added", "data": data})


def file_part(number: int, name: str, media_type: str) -> Json:
    return {"type": "file", "file": {"number": number, "name": name, "mimeType": media_type, "size": 43}}


GIF = list(
    b"GIF89a\x01\x00\x01\x00\x80\x00\x00\xff\x00\x00\xff\xff\xff!\xf9\x04\x00\x00\x00\x00\x00,\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02D\x01\x00;"
)


def test_images_are_shown_code_is_coloured_and_files_are_downloaded(page: Page) -> None:
    row = task_row("one", "codex", 0, ("submitted", 1), ("answered", 2))
    parts = [
        file_part(1, "../../a<b>.gif", "image/gif"),
        file_part(2, "x.svg", "image/svg+xml"),
        {"type": "file", "file": {"number": 3, "uri": "javascript:alert(1)"}},
        {"type": "text", "text": "import os", "name": "tool.py"},
    ]
    files: Json = {"artifact_id": "f", "name": "files", "parts": parts, "metadata": {}}
    show_task(
        page,
        row,
        task_of(row, files, answer("done")),
        tasks__one__files__1={"bytes": GIF, "type": "image/gif"},
        tasks__one__files__2={"bytes": list(b"<svg onload='alert(1)'/>"), "type": "application/octet-stream"},
    )

    expect(page.get_by_role("img", name="../../a<b>.gif")).to_have_js_property("naturalWidth", 1)
    expect(page.locator(".code-keyword")).to_have_text("import")
    expect(page.locator("a[href^=javascript]")).to_have_count(0)
    expect(page.locator("main img")).to_have_count(1)
    assert "/dashboard/tasks/one/files/2" not in page.evaluate("() => fake.asked")
    with page.expect_download() as started:
        page.get_by_role("button", name="Download").first.click()
    assert started.value.suggested_filename == "a_b_.gif"
    headings = page.locator(".task-said h2").all_inner_texts()
    assert [heading.split(maxsplit=1)[0] for heading in headings] == ["Message", "Answer", "files"]
    assert page.evaluate("() => fake.posted") == [["seen codex", row["updated_at"]]]


def test_hostile_texts_stay_texts_in_a_task(page: Page) -> None:
    text = "\n".join(HOSTILE)
    row = task_row(
        "one", "codex", 0, ("submitted", 1), ("failed", 2), text=text, note=text, attention=text, **{"from": text}
    )
    row["receipts"][1]["source"] = text
    task = task_of(row, {**answer(text), "name": text, "description": text}, answer(text), context_id=text)
    task["metadata"]["trace"] = {"traceparent": f"00-{text}-{text}-01"}
    event = {"seq": 1, "at": at(0), "type": "receipt_changed", "step": text, "source": text, "evidence": text}
    show_task(page, row, task, [event], rows=[agent_row("codex", name=text)])

    expect(page.locator(".timeline-event mark[data-code='U+202E']").first).to_be_visible()
    page.get_by_text("Raw JSON").click()
    expect(page.locator(".task-raw .code-string").first).to_be_visible()
    assert page.evaluate(ONLY_OURS) == 0
    assert page.evaluate("() => document.documentElement.scrollWidth") <= WIDE["width"]


def test_steps_that_a_message_skipped_are_not_shown_and_those_ahead_are_named_so(page: Page) -> None:
    row = task_row("one", "codex", 0, ("submitted", 1))
    show_task(page, row, task_of(row))

    steps = page.get_by_role("list", name="Receipt").get_by_role("listitem")
    expect(steps).to_have_count(4)
    assert [text.split()[1] for text in steps.all_inner_texts()] == ["queued", "submitted", "started", "answered"]
    expect(steps.last).to_contain_text("not yet")


def need_of(kind: str, **fields: Any) -> Json:
    """Returns a need of codex, about its task `one`."""
    return {
        "id": "q",
        "kind": kind,
        "agent": "codex",
        "agent_id": "synapse-codex",
        "name": "codex",
        "task_id": "one",
        "title": "Run it?",
        "detail": "rm -rf build",
        "options": [],
        "takes_text": False,
        "hint": "",
        "asked_at": at(2),
        "from": "user",
        "folder": "",
        "source": "hook",
        "next": "",
        "question_id": "q",
        "can": ["allow", "deny"],
        **fields,
    }


def test_a_question_about_the_task_is_answered_there(page: Page) -> None:
    row = task_row("one", "codex", 0, ("submitted", 1), state="input_required", asks=True)
    rows = [agent_row("codex", needs=[need_of("permission")])]
    show_task(page, row, task_of(row), rows=rows, tasks__one__answer={"task": None})

    expect(page.locator(".task-needs")).to_contain_text("rm -rf build")
    page.get_by_role("button", name="Allow", exact=True).click()

    page.wait_for_function("() => fake.posted.length > 0")
    assert page.evaluate("() => fake.posted") == [
        ["/dashboard/tasks/one/answer", {"verdict": "allow", "question_id": "q"}]
    ]


def test_a_question_names_the_agent_whose_task_it_is_about(page: Page) -> None:
    rows = [
        agent_row("codex", needs=[need_of("permission", **{"from": "synapse-claude"})]),
        agent_row("claude", name="reviewer"),
    ]
    mount(page, "inbox", rows=rows)

    expect(page.locator(".facts")).to_contain_text("from reviewer")


def test_an_answer_is_shown_once_with_its_first_line(page: Page) -> None:
    done = need_of("done", title="It is round.", detail="It is round.\n\nSee the tests.", can=["seen"])
    mount(page, "inbox", rows=[agent_row("codex", needs=[done])])

    expect(page.locator(".need-body")).to_contain_text("See the tests.")
    assert page.locator(".need-body").inner_text().count("It is round.") == 1


def test_an_agent_that_is_not_there_says_so(page: Page) -> None:
    mount(page, "agent", task_id="nobody", rows=[agent_row("codex")])

    expect(page.get_by_text("There is no such agent.")).to_be_visible()
    assert page.evaluate("() => fake.failed") == []


def test_an_agent_shows_its_role_with_hidden_characters_named(page: Page) -> None:
    role = "You plan the work.\nYou hand it out to the others, one piece after the other.\u202e <b>really</b>"
    mount(page, "agent", task_id="codex", rows=[whole_row("codex", role=role)])

    expect(page.locator(".view-head")).to_contain_text("You plan the work.")
    expect(page.locator(".view-head")).to_contain_text("<b>really</b>")
    expect(page.locator(".view-head .revealed")).to_have_count(1)


def test_the_name_in_the_list_leads_to_the_agent(page: Page) -> None:
    mount(page, "agent", task_id="codex-8120", rows=[agent_row("synapse-codex-8120", name="codex-8120")])

    page.wait_for_function("() => location.hash === '#/agents/synapse-codex-8120'")


def test_a_task_is_canceled_after_a_second_question(page: Page) -> None:
    row = task_row("one", "codex", 0)
    canceled = {**task_of(row), "status": "canceled"}
    show_task(page, row, task_of(row), tasks__one__cancel={"task": canceled})

    page.get_by_role("button", name="Cancel the task").click()
    assert page.evaluate("() => fake.posted") == []
    page.get_by_role("dialog").get_by_role("button", name="Cancel the task").click()

    expect(page.get_by_role("heading", level=1)).to_contain_text("canceled")
    expect(page.get_by_role("button", name="Cancel the task")).to_have_count(0)


def test_a_task_that_is_not_there_says_so(page: Page) -> None:
    mount(page, "task", task_id="gone")

    expect(page.get_by_role("heading", name="There is no such task.")).to_be_visible()


def test_the_beginning_of_an_id_leads_to_the_address_of_its_task(page: Page) -> None:
    whole = "54241e7e-0000-4000-8000-000000000000"
    mount(page, "task", task_id="54241e7e", tasks__54241e7e={"task": {"id": whole}, "row": {}})

    page.wait_for_function(f"() => location.hash === '#/tasks/{whole}'")
    assert page.evaluate("() => fake.asked") == ["/dashboard/tasks/54241e7e"]


def texts(rows: Locator) -> list[str]:
    return [text.splitlines()[0] for text in rows.locator(".tasks-text").all_inner_texts()]


def test_the_address_keeps_the_search(page: Page) -> None:
    mount(page, "tasks", rows=[agent_row("codex")], tasks=page_of([task_row("one", "codex", 0)]))

    page.get_by_label("Search messages and answers").fill("slow <b>")
    page.wait_for_url(f"{ORIGIN}/#/tasks?search=slow+%3Cb%3E")
    page.get_by_label("State").select_option("failed")
    page.wait_for_url(f"{ORIGIN}/#/tasks?search=slow+%3Cb%3E&state=failed")


def test_a_search_without_a_find_says_what_was_searched(page: Page) -> None:
    mount(page, "tasks", query="search=<b>nowhere</b>", tasks=page_of([]))

    expect(page.get_by_role("heading", name="Nothing found for “<b>nowhere</b>”.")).to_be_visible()
    assert "/dashboard/tasks?search=%3Cb%3Enowhere%3C%2Fb%3E&limit=50" in page.evaluate("() => fake.asked")


def test_pages_lead_to_the_oldest_of_many_and_back(page: Page) -> None:
    rows = many(60)
    mount(page, "tasks", tasks=page_of(rows[:50], next_cursor="older", total=100_000))
    page.evaluate(
        "(older) => { fake.answers['/dashboard/tasks?limit=50&cursor=older'] = older; }",
        page_of(rows[50:], total=100_000),
    )
    expect(page.locator(".tasks-summary")).to_have_text("1\N{EN DASH}50 of 100,000 tasks")
    expect(page.get_by_role("button", name="← Newer")).to_be_disabled()

    page.get_by_role("button", name="Older →").click()
    expect(page.locator(".tasks-summary")).to_have_text("51\N{EN DASH}60 of 100,000 tasks")
    expect(page.get_by_role("button", name="Older →")).to_be_disabled()

    page.get_by_role("button", name="← Newer").click()
    expect(page.locator(".tasks-summary")).to_have_text("1\N{EN DASH}50 of 100,000 tasks")


def test_a_shown_task_changes_in_place_and_newer_ones_are_only_counted(page: Page) -> None:
    open_row = task_row("open", "codex", 900, ("submitted", 901))
    mount(page, "tasks", tasks=page_of([open_row, *many(3)]))
    rows = page.locator(".tasks-row")
    expect(rows).to_have_count(4)
    before = texts(rows)
    page.locator(".tasks-link").first.focus()

    emit(page, task_row("open", "codex", 900, ("submitted", 901), ("answered", 910)))
    emit(page, task_row("newer", "codex", 1000))

    expect(rows.first.locator(".tasks-state")).to_contain_text("answered")
    expect(page.get_by_role("button", name="↑ 1 other task changed")).to_be_visible()
    assert texts(rows) == before
    expect(page.locator(".tasks-link").first).to_be_focused()


def test_a_filter_does_not_count_what_it_would_not_show(page: Page) -> None:
    mount(page, "tasks", query="agent=codex", tasks=page_of([task_row("one", "codex", 0)]))
    expect(page.locator(".tasks-row")).to_have_count(1)

    emit(page, task_row("other", "claude", 10))
    emit(page, task_row("mine", "codex", 20))

    expect(page.get_by_role("button", name="↑ 1 other task changed")).to_be_visible()


def figures_of(agent: str, messages: list[int], **fields: Any) -> Json:
    return {
        "agent": agent,
        "messages": messages,
        "submitted_p50": 0.2,
        "submitted_p95": 1.5,
        "answered_p50": 45,
        "answered_p95": 400,
        "waiting_seconds": 90,
        "finished": 5,
        "failed": 1,
        **fields,
    }


def test_figures_are_plots_with_units_and_a_table_with_the_same_numbers(page: Page) -> None:
    quiet = figures_of("quiet", [0, 0], submitted_p50=None, submitted_p95=None, answered_p50=None, answered_p95=None)
    agents = [figures_of(HOSTILE[0], [2, 4]), {**quiet, "waiting_seconds": 0, "finished": 0, "failed": 0}]
    found = {"from": at(0), "to": at(7200), "step_seconds": 3600, "agents": agents, "total": figures_of("", [2, 4])}
    mount(page, "figures", query="hours=24", figures=found)

    expect(page.get_by_role("img", name="Messages per minute: 6 in the last day")).to_be_visible()
    expect(page.locator(".figures-card")).to_have_count(3)
    times = page.get_by_role("img", name="Median time to submitted 200 ms, to answered 45 s")
    expect(times.locator("circle")).to_have_count(2)
    expect(times.locator(".plot-tick").first).to_have_text("100 ms")
    expect(page.get_by_role("img", name="Time waiting for a person: 1 min 30 s").locator("rect")).to_have_count(1)
    cells = page.get_by_role("row").nth(1)
    expect(cells).to_contain_text(HOSTILE[0])
    assert cells.get_by_role("cell").all_inner_texts() == [
        "6",
        "200 ms · 1.5 s",
        "45 s · 6 min 40 s",
        "1 min 30 s",
        "5",
        "1",
    ]
    expect(page.get_by_role("row").nth(2)).to_contain_text("\N{EN DASH}")
    expect(page.get_by_role("link", name="Last day")).to_have_attribute("aria-current", "true")
    assert page.evaluate("() => fake.asked")[0] == "/dashboard/figures?hours=24"
    assert page.evaluate(ONLY_OURS) == 0


def test_figures_of_an_hour_without_messages_say_so(page: Page) -> None:
    quiet = figures_of("codex", [0, 0], waiting_seconds=0, finished=0, failed=0)
    found = {"from": at(0), "to": at(3600), "step_seconds": 60, "agents": [quiet], "total": quiet}
    mount(page, "figures", figures=found)

    expect(page.get_by_role("heading", name="No messages in the last hour.")).to_be_visible()
