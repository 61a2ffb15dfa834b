"""`@agent` lines between real agents at real terminals: the answer comes back to the person, and into no prompt."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from synapse.client.http import HostAddress, request
from tests.integration.attach.seat import Seat, seated
from tests.integration.cli.session import COMMAND, Session, session
from tests.integration.waiting import until
from tests.samples.ports import own_port

pytestmark = pytest.mark.integration

FULL_SCREEN = """
import os, sys, termios, tty
tty.setraw(0)
sys.stdout.write('\\x1b[?1049h\\x1b[2J\\x1b[1;1Htop row\\x1b[30;1Hbottom row\\x1b[3;1H> ')
sys.stdout.flush()
line = b''
while (key := os.read(0, 1)) != b'q':
    line = b'' if key == b'\\x15' else line + key if key != b'\\r' else b''
    sys.stdout.write('\\x1b[3;1H\\x1b[K> ' + line.decode(errors='replace'))
    sys.stdout.flush()
"""


@pytest.fixture
def here() -> Iterator[Session]:
    # Not pytest's folder: the path of a Unix socket must be short.
    with tempfile.TemporaryDirectory(prefix="syn-") as folder, session(Path(folder) / "h") as opened:
        yield opened


def at_terminal(here: Session, *arguments: str, **environ: str) -> AbstractContextManager[Seat]:
    """Runs `synapse …` in a terminal of its own, as a person does."""
    ours = {name: here.environ[name] for name in ("SYNAPSE_HOME", "SYNAPSE_UDS_DIR", "PYTHONPATH")} | environ
    words = [f"{name}={value}" for name, value in ours.items()]
    return seated("env", "-C", str(here.folder), *words, *COMMAND, *arguments)


def dummy(here: Session, name: str, **environ: str) -> AbstractContextManager[Seat]:
    return at_terminal(here, "dummy", "--name", name, "--port", str(own_port()), "--no-instructions", **environ)


def types_line(seat: Seat, line: str) -> None:
    seat.types(line)
    seat.sees(line)
    seat.types("\r")


def tasks_of(agent: dict[str, Any]) -> list[dict[str, Any]]:
    tasks: list[dict[str, Any]] = request(HostAddress(agent["socket"]), "GET", "/tasks").body["tasks"]
    return tasks


def ada_in(here: Session) -> dict[str, Any]:
    return next(one for one in here.run("list", "--json").json if one["name"] == "ada")


def test_the_answer_is_shown_above_the_prompt_and_a_half_typed_line_stays(here: Session) -> None:
    bob = here.start("bob")
    with dummy(here, "ada") as seat:
        seat.sees("> ")
        types_line(seat, "@bob wait 1")
        task = seat.matches(r"\[→ bob\] sent \(task ([0-9a-f]{8})\)")[1]
        seat.types("half a li")
        seat.sees(f"[← bob] working for 1 s  (synapse show {task})")
        # The line goes on where it was, and the agent at whose prompt it is gets nothing else.
        seat.types("ne\r")
        seat.sees("echo: half a line")
        assert tasks_of(ada_in(here)) == []
    (asked,) = tasks_of(bob)
    assert (asked["status"], asked["metadata"]["response_expected"]) == ("completed", True)


def test_an_explicit_reply_is_the_answer_and_is_not_typed_into_the_asking_agent(here: Session) -> None:
    bob = here.start("bob")
    with dummy(here, "ada") as seat:
        seat.sees("> ")
        types_line(seat, "@bob reply all is well")
        seat.sees("[← bob] all is well  (synapse show ")
        assert tasks_of(ada_in(here)) == []
    assert tasks_of(bob)[0]["artifacts"][0]["metadata"] == {"source": "reply", "inferred": False}


def test_people_who_attached_see_the_answer_too(here: Session) -> None:
    here.start("bob")
    here.start("ada")
    with at_terminal(here, "attach", "ada") as seat:
        seat.sees("> ")
        types_line(seat, "@bob hello there")
        seat.sees("[← bob] echo: hello there  (synapse show ")


def test_the_answer_over_a_full_screen_program_leaves_its_rows_as_they_were(here: Session) -> None:
    here.start("bob")
    profiles = here.home / "config" / "synapse" / "profiles"
    profiles.mkdir(parents=True)
    script = here.home / "full.py"
    script.write_text(FULL_SCREEN, encoding="utf-8")
    (profiles / "full.toml").write_text(
        f"title = 'Full'\ncommand = ['{sys.executable}', '{script}']\ninstructions = false\nports = [18900, 18999]\n"
        "[prompt]\npattern = '^> (?P<text>.*)$'\nat_cursor = true\n",
        encoding="utf-8",
    )
    with at_terminal(here, "full", "--port", str(own_port()), XDG_CONFIG_HOME=str(here.home / "config")) as seat:
        seat.sees("bottom row")
        types_line(seat, "@bob hello there")
        seat.sees("[← bob] echo: hello there  (synapse show ")
        # The next key removes it: what the program painted is there again.
        seat.types("x")
        seat.sees("bottom row")


def test_with_the_setting_off_the_line_is_only_sent(here: Session) -> None:
    bob = here.start("bob")
    with dummy(here, "ada", SYNAPSE_MENTION_ANSWERS="off") as seat:
        seat.sees("> ")
        types_line(seat, "@bob hello")
        seat.sees("[→ bob] sent")
        done = until(
            lambda: next((task for task in tasks_of(bob) if task["status"] == "completed"), None), "bob's answer"
        )
        seat.types("exit\r")
        seat.reads_to_end()
    assert b"[\xe2\x86\x90 bob]" not in seat.seen
    assert "response_expected" not in done["metadata"]


def test_when_the_asking_agent_ends_meanwhile_the_task_has_the_answer(here: Session) -> None:
    here.start("bob")
    with dummy(here, "ada") as seat:
        seat.sees("> ")
        types_line(seat, "@bob wait 2")
        task = seat.matches(r"\[→ bob\] sent \(task ([0-9a-f]{8})\)")[1]
        seat.types("exit\r")
        seat.reads_to_end()

    def answered() -> dict[str, Any] | None:
        found: dict[str, Any] = here.run("status", task, "--json").json["task"]
        return found if found["status"] == "completed" else None

    assert "waited 2 s" in str(until(answered, "the answer")["artifacts"])


def test_the_answer_of_an_agent_that_restarted_meanwhile_still_comes(here: Session) -> None:
    here.start("bob")
    here.run("send", "bob", "wait 60", "--wait=submitted")
    with dummy(here, "ada") as seat:
        seat.sees("> ")
        types_line(seat, "@bob hello")
        seat.sees("[→ bob] sent")

        assert here.run("restart", "bob").code == 0

        seat.sees("[← bob] echo: hello  (synapse show ")
