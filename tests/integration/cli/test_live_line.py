"""The line that a waiting command shows on a terminal, and where it shows none."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from synapse.terminal.screen import Screen
from tests.integration.attach.seat import Seat, seated
from tests.integration.cli.session import COMMAND, Session, session

pytestmark = pytest.mark.integration

ERASED = b"\r\x1b[K"


@pytest.fixture
def here() -> Iterator[Session]:
    # Not pytest's folder: the path of a Unix socket must be short.
    with tempfile.TemporaryDirectory(prefix="syn-") as folder, session(Path(folder) / "h") as opened:
        yield opened


def at_terminal(here: Session, *arguments: str, **environ: str) -> AbstractContextManager[Seat]:
    """Runs `synapse …` in a terminal of its own, as a person does."""
    ours = {name: here.environ[name] for name in ("SYNAPSE_HOME", "SYNAPSE_UDS_DIR", "PYTHONPATH")}
    words = [f"{name}={value}" for name, value in {**ours, "TERM": "xterm-256color", **environ}.items()]
    return seated("env", "-C", str(here.folder), "-u", "NO_COLOR", *words, *COMMAND, *arguments)


def left_on_screen(seat: Seat) -> list[str]:
    """Returns the lines that a person has at the end."""
    screen = Screen(100, 30)
    screen.feed(seat.seen)
    return [line.rstrip() for line in screen.picture().lines if line.strip()]


def test_a_wait_shows_the_time_and_the_state_and_leaves_only_the_answer(here: Session) -> None:
    here.start("bob")
    with at_terminal(here, "send", "bob", "wait 3", "--response") as seat:
        seat.matches(r"bob working 0:0[12] · ctrl-c leaves it running")
        seat.reads_to_end()

    sent, *answer = left_on_screen(seat)
    assert re.fullmatch(r"\[→ bob\] sent  \(task [0-9a-f]{8}\), waiting for the answer", sent)
    assert answer == ["working for 3 s", "waited 3 s", "(bob sent no reply; this is the end of its turn)"]


def test_a_notice_on_the_way_is_printed_above_the_line(here: Session) -> None:
    here.start("bob")
    here.run("send", "bob", "dialog")
    with at_terminal(here, "send", "bob", "hello", "--response") as seat:
        seat.matches(r"bob waits for a person[^\n]*\(synapse")
        seat.matches(r"bob waits for a person 0:0\d · ctrl-c leaves it running")
        # The kernel turns the key into the signal, as at a person's terminal.
        seat.types("\x03")
        seat.reads_to_end()
    assert not any("ctrl-c leaves" in line for line in left_on_screen(seat))
    assert any(line.startswith("Stopped waiting; the task continues.") for line in left_on_screen(seat))


@pytest.mark.parametrize(
    ("more", "environ"),
    [((), {"NO_COLOR": "1"}), ((), {"TERM": "dumb"}), (("--json",), {}), ((), {"TERM": ""})],
)
def test_there_is_no_line_where_it_could_not_be_erased_or_is_not_wanted(
    here: Session, more: tuple[str, ...], environ: dict[str, str]
) -> None:
    here.start("bob")
    with at_terminal(here, "send", "bob", "wait 2", "--response", *more, **environ) as seat:
        seat.reads_to_end()

    assert b"ctrl-c" not in seat.seen
    assert ERASED not in seat.seen
    assert b"waited 2 s" in seat.seen


def test_there_is_no_line_in_a_pipe(here: Session) -> None:
    here.start("bob")

    ran = here.run("send", "bob", "wait 2", "--response", TERM="xterm-256color")

    assert "waited 2 s" in ran.out
    assert "ctrl-c" not in ran.err


def test_a_job_in_the_background_does_not_write_over_the_shell(here: Session) -> None:
    here.start("bob")
    ours = {name: here.environ[name] for name in ("SYNAPSE_HOME", "SYNAPSE_UDS_DIR", "PYTHONPATH")}
    words = [f"{name}={value}" for name, value in {**ours, "TERM": "xterm-256color"}.items()]
    with seated("env", *words, "bash", "--norc", "--noprofile", "--noediting", "-i") as shell:
        shell.sees("sh$ ")
        shell.types(f"{' '.join(COMMAND)} send bob 'wait 2' --response &\r")
        shell.sees("waited 2 s")
    assert b"ctrl-c" not in shell.seen


def test_the_question_of_an_agent_shows_that_a_person_is_awaited(here: Session) -> None:
    bob = here.start("bob")
    inside = {"SYNAPSE_AGENT_ID": bob["agent_id"], "SYNAPSE_SOCKET": bob["socket"]}
    with at_terminal(here, "ask", "May I?", **inside) as seat:
        seat.matches(r"waiting for a person 0:0[12] · ctrl-c leaves the question open")
        seat.types("\x03")
        seat.sees("Stopped waiting; the question stays open.")
