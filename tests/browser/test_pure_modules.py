"""What the views decide before they draw: lanes and rows of the flow, the timeline, colours of code, axes, words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.page_modules import page_modules
from tests.browser.task_rows import Json, agent_row, at, receipts, task_row


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[Page]:
    with page_modules(browser) as opened:
        yield opened


def call(page: Page, module: str, function: str, *arguments: Any) -> Any:
    """Calls a function that a module exports."""
    script = "async ([module, name, args]) => (await import(`/assets/${module}`))[name](...args)"
    return page.evaluate(script, [module, function, list(arguments)])


def flow(page: Page, tasks: list[Json], *agents: Json) -> Json:
    laid: Json = call(page, "views/flow_layout.js", "layout", tasks, list(agents))
    return laid


def shown(laid: Json) -> list[tuple[str, str]]:
    """Returns the rows of a layout as their kind and their task; a day or a gap has none."""
    return [(row["kind"], row.get("task", {}).get("id", "")) for row in laid["rows"]]


def test_messages_and_their_answers_stand_in_the_order_of_time(page: Page) -> None:
    first = task_row("first", "codex", 0, ("submitted", 1), ("answered", 30))
    second = task_row("second", "claude", 10, ("submitted", 11), ("answered", 20), from_agent="synapse-codex")

    laid = flow(page, [second, first], agent_row("codex"), agent_row("claude"))

    assert [lane["name"] for lane in laid["lanes"]] == ["People", "claude", "codex"]
    assert shown(laid) == [
        ("day", ""),
        ("message", "first"),
        ("message", "second"),
        ("answer", "second"),
        ("answer", "first"),
    ]
    arrows = [(row["from"], row["to"]) for row in laid["rows"] if row["kind"] != "day"]
    assert arrows == [(0, 2), (2, 1), (1, 2), (2, 0)]


def test_an_agent_that_waits_for_an_answer_has_sent_nothing_to_itself(page: Page) -> None:
    asked = task_row("asked", "codex", 0, ("submitted", 1), ("answered", 30), from_agent="synapse-claude")
    waiting = task_row("waiting", "claude", 0, from_agent="synapse-claude", waits_for="synapse-codex")
    noted = task_row("noted", "claude", 40, ("submitted", 41), from_agent="synapse-claude")

    laid = flow(page, [{**waiting, "receipts": receipts(("answered", 31))}, asked, noted])

    assert shown(laid) == [("day", ""), ("message", "asked"), ("answer", "asked"), ("message", "noted")]


def test_more_than_a_minute_between_two_rows_is_a_gap(page: Page) -> None:
    tasks = [task_row("one", "codex", 0), task_row("two", "codex", 60), task_row("three", "codex", 121)]

    laid = flow(page, tasks)

    assert shown(laid) == [("day", ""), ("message", "one"), ("message", "two"), ("gap", ""), ("message", "three")]
    assert laid["rows"][3]["seconds"] == 61


def test_an_agent_is_at_work_from_its_message_to_its_answer_and_not_while_one_waits(page: Page) -> None:
    busy = task_row("busy", "codex", 0, ("submitted", 1), ("answered", 40))
    waits = task_row("waits", "codex", 20)

    bars = [
        (row["kind"], [bar["half"] for bar in row["bars"]])
        for row in flow(page, [busy, waits])["rows"]
        if row["kind"] != "day"
    ]

    assert bars == [("message", ["lower"]), ("message", ["whole"]), ("answer", ["upper"])]


def test_a_task_that_only_waits_for_a_reply_is_no_message(page: Page) -> None:
    waiting: Json = {**task_row("waiting", "codex", 0), "receipts": [], "receipt": "", "waits_for": "synapse-claude"}

    assert flow(page, [waiting])["rows"] == []


def test_an_agents_own_question_points_to_people(page: Page) -> None:
    asks: Json = {
        **task_row("asks", "codex", 0),
        "receipts": [],
        "receipt": "",
        "asks": True,
        "state": "input_required",
    }

    answered = {**asks, "asks": False, "state": "completed", "receipts": receipts(("answered", 9))}

    assert [(row["from"], row["to"]) for row in flow(page, [asks])["rows"][1:]] == [(1, 0)]
    assert [(row["from"], row["to"]) for row in flow(page, [answered])["rows"][1:]] == [(1, 0), (0, 1)]


def test_agents_that_left_keep_a_lane_by_the_name_they_had(page: Page) -> None:
    laid = flow(page, [task_row("one", "old", 0)], agent_row("new"))

    assert laid["lanes"][1:] == [{"key": "old", "id": "", "name": "old"}]


def test_an_agent_that_got_the_port_of_another_one_later_did_not_send_its_messages(page: Page) -> None:
    later = agent_row("new", agent_id="synapse-codex-8120", started_at=at(100))
    sent = {"from": "synapse-codex-8120", "from_agent": "synapse-codex-8120"}
    to_old = task_row("to-old", "old", 0, agent_id="synapse-codex-8120")
    tasks = [to_old, task_row("before", "claude", 50, **sent), task_row("after", "claude", 150, **sent)]

    laid = flow(page, tasks, later)

    names = {row["key"]: laid["lanes"][row["from"]]["name"] for row in laid["rows"] if row["kind"] == "message"}
    assert names == {"to-old": "People", "before": "old", "after": "new"}
    assert call(page, "task_words.js", "senderName", tasks[1], [later]) == "synapse-codex-8120"
    assert call(page, "task_words.js", "senderName", tasks[2], [later]) == "new"


@pytest.mark.parametrize(
    ("steps", "fields", "word"),
    [
        ([], {}, "queued"),
        ([("typed", 1)], {"attention": "was it taken?"}, "in doubt"),
        ([("submitted", 1)], {}, "working"),
        ([("submitted", 1)], {"state": "input_required"}, "asks"),
        ([("answered", 1)], {}, "answered"),
        ([("failed", 1)], {}, "failed"),
        ([("expired", 1)], {"state": "failed", "reason": "expired"}, "expired"),
        ([("failed", 1)], {"attention": "was it taken?"}, "failed"),
    ],
)
def test_each_state_has_its_word(page: Page, steps: list[tuple[str, float]], fields: Json, word: str) -> None:
    assert call(page, "task_words.js", "taskState", task_row("one", "codex", 0, *steps, **fields))["word"] == word


def test_a_message_that_was_not_typed_after_all_waits_again(page: Page) -> None:
    back = task_row("one", "codex", 0, ("typed", 1), ("queued", 2))

    assert call(page, "task_words.js", "progress", back)["reached"] == 1
    assert call(page, "task_words.js", "isWaiting", back) is True
    proven = {**back, "receipts": receipts(("queued", 0), ("typed", 1), ("submitted", 2)), "state": "working"}
    assert call(page, "task_words.js", "isWaiting", proven) is False


def piece(seq: int, seconds: float, text: str, *, append: bool) -> Json:
    artifact = {"artifact_id": "a", "name": "answer", "parts": [{"type": "text", "text": text}]}
    return {"seq": seq, "at": at(seconds), "type": "artifact_added", "append": append, "artifact": artifact}


def step(seq: int, seconds: float, name: str) -> Json:
    return {
        "seq": seq,
        "at": at(seconds),
        "type": "receipt_changed",
        "step": name,
        "source": "hook",
        "evidence": "seen",
    }


def test_pieces_of_a_growing_answer_are_one_row_of_the_timeline(page: Page) -> None:
    events = [step(1, 0, "turn_started"), piece(2, 1, "one ", append=False), piece(3, 2, "two", append=True)]

    rows = call(page, "views/timeline.js", "timeline", [*events, step(4, 3, "answered")])

    assert [row["what"] for row in rows] == ["started", "answer: 2 pieces, 7 characters", "answered"]
    assert (rows[0]["source"], rows[0]["evidence"]) == ("hook", "seen")


def test_the_timeline_declares_gaps_also_up_to_now(page: Page) -> None:
    events = [step(1, 0, "queued"), step(2, 60, "typed"), step(3, 130, "submitted")]

    rows = call(page, "views/timeline.js", "timeline", events, at(400))

    assert [(row["kind"], row.get("seconds")) for row in rows] == [
        ("event", None),
        ("event", None),
        ("gap", 70),
        ("event", None),
        ("gap", 270),
    ]
    assert [row["open"] for row in rows if row["kind"] == "gap"] == [False, True]


def test_the_timeline_says_who_answered_a_question_and_how(page: Page) -> None:
    answered = {"question": "Run it?", "id": "q", "choice": "Yes", "by": "key.phone", "how": "signal"}
    changes: list[Json] = [{"question": {"title": "Run it?"}}, {"answered": answered}, {"question": None}]
    events = [{"seq": n, "at": at(n), "type": "metadata_changed", "metadata": one} for n, one in enumerate(changes)]

    rows = call(page, "views/timeline.js", "timeline", events)

    assert [(row["what"], row["evidence"]) for row in rows] == [
        ("a question was asked", "Run it?"),
        ("a question was answered", "Yes · by key.phone · Run it?"),
        ("the question was closed", ""),
    ]


def test_an_unknown_event_of_a_newer_gateway_has_a_row(page: Page) -> None:
    (row,) = call(page, "views/timeline.js", "timeline", [{"seq": 1, "at": at(0), "type": "task_archived"}])

    assert row["what"] == "task archived"


CODE = [
    ("python", "def f(x):  # why\n  return \"a\\\"b\" + '''x\ny''' + 0x1f"),
    ("javascript", "const a = `x${1}`; // end\n/* open"),
    ("shell", "echo $# 'it''s' # note\nexport A=1"),
    ("rust", "fn f<'a>(x: &'a str) {}"),
    ("sql", "SELECT 'it' FROM t -- all"),
    ("diff", "--- a\n+++ b\n@@ -1 +1 @@\n-x\n+y\n"),
    ("markup", "<b class='x'>\u202e</b><!-- c"),
    ("", "no language <script>"),
]


@pytest.mark.parametrize(("language", "code"), CODE)
def test_colouring_never_changes_the_code(page: Page, language: str, code: str) -> None:
    found = call(page, "highlight.js", "tokens", code, language)

    assert "".join(text for _, text in found) == code


@pytest.mark.parametrize(("language", "code"), [("json", "1 " * 90_000), ("diff", "+\n" * 90_000)])
def test_code_of_very_many_tokens_is_shown_without_colours(page: Page, language: str, code: str) -> None:
    script = """async ([text, language]) => {
      const { codeBlock } = await import("/assets/views/task_parts.js");
      const block = codeBlock(text, language);
      return [block.textContent === text, block.querySelectorAll("*").length];
    }"""

    assert page.evaluate(script, [code, language]) == [True, 1]


def test_an_element_takes_any_number_of_children(page: Page) -> None:
    script = """async (count) => {
      const { fill, h } = await import("/assets/dom.js");
      const list = h("ol", {}, Array.from({ length: count }, () => h("li")));
      const before = list.children.length;
      fill(list, Array.from({ length: count + 1 }, () => h("li")));
      return [before, list.children.length];
    }"""

    assert page.evaluate(script, 150_000) == [150_000, 150_001]


def test_strings_comments_numbers_and_keywords_are_coloured(page: Page) -> None:
    found = call(page, "highlight.js", "tokens", "return 'a\\'#b' + 12  # sum", "python")

    assert [token for token in found if token[0]] == [
        ["keyword", "return"],
        ["string", "'a\\'#b'"],
        ["number", "12"],
        ["comment", "# sum"],
    ]


def test_a_fence_that_is_still_open_is_code_up_to_the_end(page: Page) -> None:
    blocks = call(page, "highlight.js", "fences", "See:\n\n```py\nx = 1\n```\nand\n~~~\n```\nrest")

    assert [(block["kind"], block["text"], block["language"]) for block in blocks] == [
        ("text", "See:", ""),
        ("code", "x = 1", "python"),
        ("text", "and", ""),
        ("code", "```\nrest", ""),
    ]


@pytest.mark.parametrize(
    ("name", "language"),
    [
        ("src/app.py", "python"),
        ("text/x-python", "python"),
        ("application/json", "json"),
        ("Makefile", "shell"),
        ("x.bin", ""),
    ],
)
def test_names_and_media_types_tell_the_language(page: Page, name: str, language: str) -> None:
    assert call(page, "highlight.js", "languageOf", name) == language


@pytest.mark.parametrize("largest", [0, 0.3, 1, 7, 59, 1000, 123_456])
def test_an_axis_of_counts_holds_the_largest_with_few_lines(page: Page, largest: float) -> None:
    axis = call(page, "plot.js", "countAxis", largest)

    assert axis["top"] >= largest
    assert axis["ticks"][0] == 0
    assert axis["ticks"][-1] == pytest.approx(axis["top"])
    assert 2 <= len(axis["ticks"]) <= 6


@pytest.mark.parametrize("largest", [1, 90, 1900, 35_000, 10_000_000])
def test_an_axis_of_times_holds_the_largest_with_few_lines(page: Page, largest: float) -> None:
    axis = call(page, "plot.js", "timeAxis", largest)

    assert axis["top"] >= largest
    assert (axis["ticks"][0], axis["ticks"][-1]) == (0, axis["top"])
    assert 2 <= len(axis["ticks"]) <= 6


@pytest.mark.parametrize("values", [[], [0.004], [0.2, 45], [3000, 90_000]])
def test_a_logarithmic_axis_holds_all_values(page: Page, values: list[float]) -> None:
    axis = call(page, "plot.js", "logAxis", values)

    assert axis["low"] < axis["high"]
    assert all(axis["low"] <= value <= axis["high"] for value in values)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, "\N{EN DASH}"),
        (0, "0 s"),
        (0.0421, "42 ms"),
        (0.75, "750 ms"),
        (1.25, "1.3 s"),
        (59.6, "1 min"),
        (61, "1 min 1 s"),
        (660, "11 min"),
        (3661, "1 h 1 min"),
        (259_200, "3 days"),
    ],
)
def test_lengths_of_time_have_units(page: Page, seconds: float | None, words: str) -> None:
    assert call(page, "format.js", "duration", seconds) == words
