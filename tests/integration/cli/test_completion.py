"""The words for completion, from the store that real agents write."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.cli.session import session

pytestmark = pytest.mark.integration


def test_tasks_are_completed_with_what_they_are_about(tmp_path: Path) -> None:
    with session(tmp_path / "100% #?") as here:
        # With instructions, which are no task that a person knows.
        started = here.run("start", "dummy", "--name", "reviewer", "--json")
        assert started.code == 0, started
        done = here.run("send", "reviewer", "look at\nthis", "--response", "--json", "--timeout", "20").json
        here.run("stop", "reviewer")
        queued = here.run("send", "reviewer", "later \x1b[31m: $(id)", "--queue", "--json").json

        ids = [one["task"]["id"][:8] for one in (queued, done)]
        lines = here.run("completion", "--words", "tasks").out.splitlines()
        unfinished = here.run("completion", "--words", "open-tasks").out.splitlines()

    assert lines == [f"{ids[0]}\treviewer, submitted: later [31m: $(id)", f"{ids[1]}\treviewer, completed: look at"]
    assert unfinished == lines[:1]
