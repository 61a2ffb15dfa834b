"""`synapse show` with real hosts: what agents said to each other, while they run and after they have stopped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cli.session import ROOT, Session, session
from tests.integration.waiting import until

pytestmark = pytest.mark.integration


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Session]:
    with session(tmp_path) as opened:
        yield opened


def bodies(text: str) -> list[str]:
    """The lines without times, receipts and rules."""
    return [line.partition("  +")[0] for line in text.splitlines() if line and line[0] not in "─·"]


def test_what_agents_say_to_each_other_is_read_also_after_they_have_stopped(here: Session) -> None:
    here.start("ada")
    here.start("bob")
    assert here.run("send", "ada", "ask bob are you there?", "--response", "--timeout", "20").code == 0

    while_running = here.run("show", "ada")
    for name in ("ada", "bob"):
        assert here.run("stop", name).code == 0
    afterwards = here.run("show", "ada")

    assert (while_running.code, afterwards.code) == (0, 0)
    assert bodies(while_running.out) == bodies(afterwards.out)
    lines = bodies(afterwards.out)
    assert lines[:2] == ["user → ada", "  ask bob are you there?"]
    assert lines[lines.index("ada → bob") :] == ["ada → bob", "  are you there?", "bob → ada", "  echo: are you there?"]
    assert bodies(here.run("show", "bob").out) == lines[lines.index("ada → bob") :]


def test_a_question_is_read_with_the_person_who_answered_it(here: Session) -> None:
    script = str(ROOT / "docs" / "examples" / "questions.toml")
    assert here.run("start", "scripted", script, "--name", "cleo").code == 0
    task_id = here.run("send", "cleo", "which branch?", "--json").json["task"]["id"]
    step = f"(synapse answer {task_id[:8]} …)"
    until(lambda: here.run("show", task_id[:8]).out.rstrip().endswith(step), "the question")
    assert here.run("answer", task_id[:8], "release").code == 0

    entries = here.run("show", task_id, "--json").json["tasks"][0]["entries"]

    assert [entry["kind"] for entry in entries] == ["message", "question", "answer", "receipts"]
    asked = entries[1]
    assert (asked["title"], asked["choice"]) == ("Which branch?", "release")
    assert asked["by"]
    assert entries[2]["parts"] == [{"type": "text", "text": "on release"}]


def test_a_follow_up_is_in_the_task_that_asked_for_it(here: Session) -> None:
    script = here.folder / "asker.toml"
    script.write_text(
        '[[rule]]\ntext = "paint"\nsteps = [{ ask = "Which colour?" }, { answer = "painted" }]\n', encoding="utf-8"
    )
    assert here.run("start", "scripted", str(script), "--name", "dora").code == 0
    task_id = here.run("send", "dora", "paint", "--response", "--json").json["task"]["id"]
    assert here.run("send", "dora", "blue", "--task", task_id, "--response").code == 0

    assert bodies(here.run("show", task_id[:8]).out) == [
        "user → dora",
        "  paint",
        "dora → user",
        "  Which colour?",
        "user → dora",
        "  blue",
        "dora → user",
        "  painted",
    ]
