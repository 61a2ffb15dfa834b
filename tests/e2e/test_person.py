"""A person at a real terminal (tmux): the CLI looks as without Synapse; `@agent`, attach, detach and Ctrl-Z work."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from synapse.client.seen import seen_until
from tests.e2e.tmux import Terminal
from tests.integration.cli.session import Session, session

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed"),
]


@pytest.fixture
def here() -> Iterator[Session]:
    with tempfile.TemporaryDirectory(prefix="syn-") as folder, session(Path(folder) / "h") as opened:
        yield opened


@pytest.fixture
def terminal(here: Session) -> Iterator[Terminal]:
    opened = Terminal(here)
    try:
        yield opened
    finally:
        opened.close()


def begin_ada(here: Session, terminal: Terminal) -> None:
    """Runs an agent in the person's terminal, and waits until others can see it."""
    terminal.run("dummy", "--name", "ada", "--no-instructions")
    terminal.wait(">")
    wait_for_ada(here, terminal)


def wait_for_ada(here: Session, terminal: Terminal) -> None:
    """Waits until Ada is listed and answers."""
    for _ in range(200):
        if any(agent["name"] == "ada" and agent["status"] == "ready" for agent in here.run("list", "--json").json):
            return
    pytest.fail(f"ada is not there; her terminal shows:\n{terminal.screen()}")


def test_a_person_works_in_the_cli_sends_with_an_at_sign_and_gets_the_shell_back(
    here: Session, terminal: Terminal
) -> None:
    here.start("bob")
    begin_ada(here, terminal)

    terminal.type("hello")
    terminal.wait("echo: hello")
    terminal.type("@bob are you there?")
    terminal.wait("[→ bob] sent")
    delivered = here.run("send", "bob", "and this", "--response", "--timeout", "20")

    assert delivered.out == "echo: and this\n"
    assert "echo: @bob" not in terminal.screen()
    terminal.type("exit 3")
    terminal.wait("$")
    terminal.type("echo status $?")
    terminal.wait("status 3")
    assert here.run("list", "--json").json[0]["name"] == "bob"


def test_a_message_from_another_shell_is_seen_in_the_persons_terminal(here: Session, terminal: Terminal) -> None:
    begin_ada(here, terminal)

    answered = here.run("send", "ada", "from outside", "--response", "--timeout", "20")

    assert answered.out == "echo: from outside\n"
    terminal.wait("echo: from outside")


def test_a_half_typed_line_is_never_typed_over(here: Session, terminal: Terminal) -> None:
    begin_ada(here, terminal)
    terminal.press("h")
    terminal.press("i")
    terminal.wait("> hi")

    here.run("send", "ada", "from outside")
    explained = here.run("status", "ada", "--explain").out
    assert "gate     closed" in explained
    terminal.type(" there")

    terminal.wait("echo: hi there")
    terminal.wait("echo: from outside")


def test_attach_shows_the_screen_types_and_leaves_the_agent_running(here: Session, terminal: Terminal) -> None:
    agent = here.start("bob")
    here.run("send", "bob", "earlier", "--response", "--timeout", "20")

    terminal.run("attach", "bob")
    terminal.wait("echo: earlier")
    terminal.type("typed from here")
    terminal.wait("echo: typed from here")
    terminal.press("C-]")
    terminal.type("stty -a | grep -o ' icanon' && echo back")

    terminal.wait("back")
    assert here.run("list", "--json").json[0]["pid"] == agent["pid"]


def test_what_a_person_saw_while_attached_is_no_longer_new(here: Session, terminal: Terminal) -> None:
    agent = here.start("bob")
    home, agent_id = here.environ["SYNAPSE_HOME"], agent["agent_id"]
    here.run("send", "bob", "earlier")
    assert seen_until(home, agent_id) is None

    terminal.run("attach", "bob")
    terminal.wait("echo: earlier")
    at_start = seen_until(home, agent_id)
    assert at_start is not None
    here.run("send", "bob", "meanwhile")
    terminal.wait("echo: meanwhile")
    terminal.press("C-]")
    terminal.type("echo back")
    terminal.wait("back")

    at_end = seen_until(home, agent_id)
    assert at_end is not None
    assert at_end > at_start


def test_after_ctrl_z_and_fg_the_program_gets_messages_again(here: Session, terminal: Terminal) -> None:
    begin_ada(here, terminal)
    terminal.press("C-z")
    terminal.wait("$")
    terminal.type("echo in the shell")
    terminal.wait("in the shell")

    terminal.type("fg")
    wait_for_ada(here, terminal)
    answered = here.run("send", "ada", "again", "--response", "--timeout", "20")

    assert answered.out == "echo: again\n", answered
    terminal.wait("echo: again")


def test_a_program_looks_as_it_does_without_synapse(here: Session, terminal: Terminal) -> None:
    profile = here.home / "config" / "synapse" / "profiles" / "py.toml"
    profile.parent.mkdir(parents=True)
    profile.write_text(
        f"command = ['{sys.executable}', '-q']\n[prompt]\npattern = '^>>> (?P<text>.*)$'\nat_cursor = true\n",
        encoding="utf-8",
    )
    terminal.type(f"export XDG_CONFIG_HOME={here.home / 'config'}")
    terminal.run("py", "--no-instructions")
    terminal.wait(">>>")
    terminal.type("6 * 7")

    terminal.wait("42")
