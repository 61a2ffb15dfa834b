"""xterm shows a snapshot as the host's own emulator shows the terminal, for recorded sessions of real CLIs."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from synapse.terminal.screen import Screen
from tests.browser.fake_gateway import fake_gateway

SESSIONS = sorted((Path(__file__).parent.parent / "golden").glob("*/session.bin"))
CUTS = 8
SHOW = """
async ([snapshot, rest, columns, rows]) => {
  const { Terminal } = await import("/assets/vendor/xterm.js");
  const { Unicode11Addon } = await import("/assets/vendor/addon-unicode11.js");
  const terminal = new Terminal({ cols: columns, rows, scrollback: 5000, allowProposedApi: true });
  terminal.loadAddon(new Unicode11Addon());
  terminal.unicode.activeVersion = "11";
  const bytes = (text) => Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
  const shown = () => {
    const buffer = terminal.buffer.active;
    const lineAt = (row) => buffer.getLine(buffer.baseY + row)?.translateToString(true) ?? "";
    const lines = Array.from({ length: rows }, (_, row) => lineAt(row));
    return { lines, cursor: [buffer.cursorY, buffer.cursorX], alternate: buffer.type === "alternate" };
  };
  await new Promise((done) => terminal.write(bytes(snapshot), done));
  const first = shown();
  await new Promise((done) => terminal.write(bytes(rest), done));
  return [first, shown()];
}
"""


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with fake_gateway() as gateway:
        context = browser.new_context()
        page = context.new_page()
        page.goto(f"{gateway.url}/assets/index.html")
        yield page
        context.close()


def as_shown(screen: Screen) -> dict[str, Any]:
    picture = screen.picture()
    columns = picture.columns
    row, column = picture.cursor
    # xterm puts the cursor behind the last column when the next character would wrap.
    return {"lines": list(picture.lines), "cursor": [row, min(column, columns)], "alternate": picture.alternate}


@pytest.mark.parametrize("path", SESSIONS, ids=lambda path: path.parent.name)
def test_xterm_shows_the_same_and_goes_on_the_same(page: Page, path: Path) -> None:
    session = path.read_bytes()
    columns, rows = 120, 40
    for number in range(1, CUTS + 1):
        cut = len(session) * number // CUTS
        screen = Screen(columns, rows)
        screen.feed(session[:cut])
        snapshot, first = screen.snapshot(), as_shown(screen)
        following = session[cut : cut + 3000]
        screen.feed(following)

        encoded = [base64.b64encode(one).decode("ascii") for one in (snapshot, following)]
        shown = page.evaluate(SHOW, [*encoded, columns, rows])

        for one, expected in zip(shown, (first, as_shown(screen)), strict=True):
            one["lines"] = [line.rstrip() for line in one["lines"]]
            one["cursor"][1] = min(one["cursor"][1], columns - 1)
            assert one == expected
