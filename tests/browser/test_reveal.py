"""Characters that hide, reorder or imitate others are marked and named before a person decides about a command."""

from __future__ import annotations

import mimetypes
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route

from tests.architecture.source_tree import PACKAGE

ORIGIN = "http://page.test"
REVEAL = """async (text) => {
  const { h, oddities, reveal } = await import("/assets/dom.js");
  const box = h("pre", {}, reveal(text));
  const marks = [...box.querySelectorAll("mark")];
  return {
    marks: marks.map((mark) => mark.dataset.code),
    named: marks.map((mark) => mark.title),
    shown: box.textContent,
    children: box.querySelectorAll(":not(mark, mark *)").length,
    count: oddities(text),
  };
}"""


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[Page]:
    """A page with the dashboard's modules and nothing else."""
    opened = browser.new_page()
    opened.route(f"{ORIGIN}/**", _serve)
    opened.goto(f"{ORIGIN}/")
    yield opened
    opened.close()


def _serve(route: Route) -> None:
    path = route.request.url.removeprefix(f"{ORIGIN}/").removeprefix("assets/")
    if not path:
        route.fulfill(body="<!doctype html>", content_type="text/html")
        return
    route.fulfill(path=PACKAGE / "dashboard" / path, content_type=mimetypes.guess_type(path)[0] or "")


def reveal(page: Page, text: str) -> dict[str, Any]:
    found: dict[str, Any] = page.evaluate(REVEAL, text)
    assert found["count"] == len(found["marks"])
    return found


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("rm -rf \u202ecod/\u202c", ["U+202E", "U+202C"]),
        ("a\u200bb \u2066c\u2069", ["U+200B", "U+2066", "U+2069"]),
        ("x\x1b[31m\x07\r", ["U+001B", "U+0007", "U+000D"]),
        ("curl p\u0430ypal.example", ["U+0430"]),
        ("\u0455\u0441\u0440 file host:", ["U+0455", "U+0441", "U+0440"]),
        ("ls\u00a0-l \uff1b id", ["U+00A0", "U+FF1B"]),
        ("hidden\U000e0041", ["U+E0041"]),
        ("\ud83d", ["U+D83D"]),
    ],
    ids=["bidi", "zero width", "control", "look-alike", "look-alike word", "signs", "tag", "half a character"],
)
def test_a_character_that_deceives_is_marked(page: Page, text: str, codes: list[str]) -> None:
    found = reveal(page, text)

    assert found["marks"] == codes
    assert all(
        name.startswith(code) and len(name) > len(code) + 3 for name, code in zip(found["named"], codes, strict=True)
    )
    assert all(code in found["shown"] for code in codes)


@pytest.mark.parametrize(
    "text",
    [
        "make -j8 && ./run\n\tindented",
        "naïve café größer Ærø",
        "почему это работает",
        "日本語のテキスト",
        "👩‍💻 ❤️ 1️⃣ 🇩🇪",
    ],
    ids=["ascii", "accents", "russian", "japanese", "emoji"],
)
def test_what_people_write_is_left_alone(page: Page, text: str) -> None:
    found = reveal(page, text)

    assert found["marks"] == []
    assert found["shown"] == text


def test_markup_stays_text(page: Page) -> None:
    found = reveal(page, "<img src=x onerror=alert(1)>\u200b<script>alert(2)</script>")

    assert found["children"] == 0
    assert found["shown"].startswith("<img src=x onerror=alert(1)>")


def test_a_text_of_nothing_but_odd_characters_is_shown_whole_and_does_not_stop_the_page(page: Page) -> None:
    flood = 150_000
    script = REVEAL.replace("shown: box.textContent", 'shown: box.textContent.split("U+200B").length - 1')

    found = page.evaluate(script, "\u200b" * flood)

    assert (found["shown"], found["count"]) == (flood, flood)
    assert len(found["marks"]) < flood / 10
