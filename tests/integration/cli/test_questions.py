"""Questions of agents, with real hosts, a real shell inside an agent, and the verbs that answer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.real_hosts import ROOT, scripted_host
from tests.integration.cli.session import COMMAND, Session, session

pytestmark = pytest.mark.integration

EXAMPLE = ROOT / "docs" / "examples" / "questions.toml"
STARTUP = """
[startup]
question = "Do you trust this folder?"

[default]
steps = [{ answer = "{text}" }]
"""
# An agent that is a shell: what it is told runs inside of it.
RUNNER = """
command = ["sh", "-c", '''printf 'run> '; while read -r line; do eval "$line"; printf 'run> '; done''']
envelope = false
instructions = false

[prompt]
pattern = '^run> (?P<text>.*)$'
at_cursor = true

[times]
quiet = 0.05
settle = 0.1
"""


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    home = tmp_path_factory.mktemp("h")
    with session(home) as opened, scripted_host(home, EXAMPLE, "asker"):
        yield opened


def begin(here: Session, text: str) -> dict[str, Any]:
    """Sends a message and returns the question; the task continues."""
    ran = here.run("send", "asker", text, "--response", "--exit-on-wait", "--json")
    assert ran.code == 6, ran
    told: dict[str, Any] = ran.json
    return told


def outcome(here: Session, task_id: str) -> tuple[str, str]:
    # The next message in the queue is answered only after this turn.
    assert here.run("send", "asker", "next", "--response", "--timeout", "20").code == 0
    shown = here.run("status", task_id[:8], "--json").json
    return shown["task"]["status"], shown["reply"]


@pytest.mark.parametrize(
    ("command", "reply"),
    [
        (("approve",), "you said: Yes"),
        (("approve", "2"), "you said: Yes, and do not ask again"),
        (("deny",), "you said: No"),
        (("answer", "no"), "you said: No"),
    ],
    ids=str,
)
def test_a_permission_is_listed_and_answered(here: Session, command: tuple[str, ...], reply: str) -> None:
    task_id = begin(here, "build it")["task_id"]
    listed = here.run("approvals", "--json").json
    verb, *more = command

    ran = here.run(verb, task_id[:8], *more)

    assert [(one["name"], one["task_id"], one["kind"]) for one in listed] == [("asker", task_id, "permission")]
    assert ran.code == 0, ran
    assert re.match(rf"\[asker\] \w+: Run the command\?  \(task {task_id[:8]} is \w+\)\n", ran.err)
    assert outcome(here, task_id) == ("completed", reply)
    assert here.run("approvals").err == "No agent waits for a person.\n"


def test_a_choice_takes_words(here: Session) -> None:
    task_id = begin(here, "which branch?")["task_id"]

    assert here.run("answer", "asker", "feature", "x").code == 0
    assert outcome(here, task_id) == ("completed", "on feature x")


def test_an_option_that_is_not_offered_is_refused_and_the_question_stays_open(here: Session) -> None:
    task_id = begin(here, "build it")["task_id"]

    wrong = here.run("approve", task_id, "7")
    words = here.run("answer", "asker", "because")

    assert (wrong.code, words.code) == (2, 2)
    assert "choose one of: 1 (Yes), 2 (Yes, and do not ask again), 3 (No)" in wrong.err
    assert here.run("deny", task_id).code == 0
    assert outcome(here, task_id)[1] == "you said: No"
    assert here.run("deny", task_id).code == 7
    assert here.run("approve", "asker").code == 7


def test_a_waiting_send_prints_the_question_once_and_then_the_answer(here: Session) -> None:
    waiting = here.begin("send", "asker", "build it", "--response", "--timeout", "20")
    assert waiting.stderr is not None
    told = [waiting.stderr.readline(), waiting.stderr.readline()]

    task_id = told[0].partition("(task ")[2][:8]
    assert told[1].startswith("asker waits for a person: Run the command?  (synapse approve ")
    assert here.run("send", "asker", "yes", "--task", task_id).code == 0
    out, err = waiting.communicate(timeout=20)
    assert (waiting.returncode, out, err) == (0, "you said: Yes\n", "")


def test_an_agent_may_not_approve_and_is_told_so_but_may_answer_a_choice(here: Session) -> None:
    profiles = here.folder / ".synapse" / "profiles"
    profiles.mkdir(parents=True)
    (profiles / "runner.toml").write_text(RUNNER, encoding="utf-8")
    typed = here.folder / "typed"
    typed.write_text(f'#!/bin/sh\nexec {" ".join(COMMAND)} "$@" 2>&1\n', encoding="utf-8")
    typed.chmod(0o755)
    assert here.run("trust").code == 0
    assert here.run("start", "runner", "--name", "runner").code == 0

    permission = begin(here, "build it")["task_id"]
    refused = _inside(here, f"approve {permission[:8]}")
    still = here.run("approvals", "--json").json
    assert here.run("deny", permission).code == 0
    choice = begin(here, "which branch?")["task_id"]
    taken = _inside(here, "answer asker main")

    assert "only a person may answer this" in refused
    assert "code=7" in refused
    assert [one["task_id"] for one in still] == [permission]
    assert "code=0" in taken
    assert outcome(here, choice) == ("completed", "on main")


def _inside(here: Session, command: str) -> str:
    """Returns the output of `synapse …` inside an agent."""
    ran = here.run("send", "runner", f"./typed {command}; echo code=$?", "--response", "--timeout", "20")
    assert ran.code == 0, ran
    return ran.out


def test_a_cancel_denies_what_is_asked(here: Session) -> None:
    task_id = begin(here, "build it")["task_id"]

    assert here.run("cancel", task_id).code == 0
    assert here.run("approvals", "--json").json == []
    assert outcome(here, task_id)[0] == "canceled"


def test_a_question_at_the_start_keeps_messages_waiting_until_a_person_answers(here: Session, tmp_path: Path) -> None:
    script = tmp_path / "startup.toml"
    script.write_text(STARTUP, encoding="utf-8")
    with scripted_host(here.home, script, "starter"):
        waits = here.run("send", "starter", "hello", "--response", "--exit-on-wait")
        listed = here.run("list")
        status = here.run("status", "starter", "--explain").out
        answered = here.run("approve", "starter")
        reply = here.run("send", "starter", "more", "--response", "--timeout", "20")

        assert (waits.code, waits.out.splitlines()[0]) == (6, "Do you trust this folder?")
        asks = "! starter asks a person: Do you trust this folder?  (synapse approve starter | synapse deny starter)"
        assert asks in listed.err
        assert asks in status
        assert "starter  waiting" in status
        assert (answered.code, answered.err) == (0, "[starter] approved: Do you trust this folder?\n")
        assert (reply.code, reply.out) == (0, "more\n")
