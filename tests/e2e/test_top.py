"""A person at `synapse top` in a real terminal (tmux): sees who needs them, allows, attaches and comes back."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.tmux import Terminal
from tests.integration.cli.session import ROOT, Session, session

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed"),
]


@pytest.fixture
def here() -> Iterator[Session]:
    with tempfile.TemporaryDirectory(prefix="syn-") as folder, session(Path(folder) / "h") as opened:
        opened.environ |= {"LANG": "C.UTF-8"}
        yield opened


@pytest.fixture
def terminal(here: Session) -> Iterator[Terminal]:
    opened = Terminal(here, columns=80)
    try:
        yield opened
    finally:
        opened.close()


def test_a_person_attaches_from_the_list_and_comes_back_to_it(here: Session, terminal: Terminal) -> None:
    here.start("ada")
    terminal.run("top")
    terminal.wait(" ○ ada")

    terminal.press("Enter")
    terminal.wait(">")
    terminal.type("hello from the list")
    terminal.wait("echo: hello from the list")
    terminal.press("C-]")
    screen = terminal.wait(" ○ ada")
    terminal.press("q")
    terminal.wait("$")

    assert "echo: hello" not in screen
    assert "1 agent · nobody needs you" in screen


def test_a_person_reads_a_command_and_allows_it(here: Session, terminal: Terminal) -> None:
    asker = here.begin("scripted", str(ROOT / "docs" / "examples" / "questions.toml"), "--name", "asker")
    try:
        terminal.run("top")
        terminal.wait(" ○ asker")
        here.run("send", "asker", "build it")
        terminal.wait(" ? asker  asks")
        terminal.wait("     rm -r build")
        # A key right after the question has come is refused: nobody has read it yet.
        terminal.press_until("a", " asker: Allow this?")
        terminal.press("y")
        terminal.wait(" ● asker  done")

        listed = here.run("top", "--once", "--json").json
        assert [(row["name"], row["state"], row["why"]) for row in listed] == [
            ("asker", "done", "→ user: you said: Yes")
        ]
    finally:
        asker.terminate()
        asker.communicate()


def test_an_answer_that_arrives_is_done_until_it_is_seen(here: Session, terminal: Terminal) -> None:
    here.start("ada")
    terminal.run("top")
    terminal.wait(" ○ ada")
    terminal.press("s")
    terminal.wait(" Send to ada")
    terminal.type("are you there?")
    terminal.wait(" ● ada  done")
    terminal.wait("     echo: are you there?")

    terminal.press(".")

    terminal.wait(" ○ ada  ready")
    assert here.run("top", "--once", "--json").json[0]["unread"] == 0
