"""The record of an agent's last run: what it keeps, and what it does not believe."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from synapse.core.agent import AgentEntry
from synapse.host.conversations import RunRecord, last_runs
from tests.fakes.clock import FakeClock

SESSION = "7cbe5f9e-2d57-4b3c-9c60-0d6c8c1f5b1a"
OTHER = "0e4f3a52-10a7-4f0e-8d3f-2f5a8e9f3c11"
COMMAND = ("python", "-P", "-m", "synapse.cli.main", "claude", "--headless", "--", "--model", "x")


def agent(inbox: str = "ada", *, agent_type: str = "claude", folder: str = "/srv/shop") -> AgentEntry:
    return AgentEntry(
        f"synapse-{agent_type}-8100",
        agent_type,
        name="ada",
        inbox=inbox,
        port=8100,
        working_dir=folder,
        launch_key="secret",
    )


def record(home: Path, me: AgentEntry | None = None) -> RunRecord:
    return RunRecord(home, me or agent(), COMMAND, FakeClock())


def test_the_next_run_knows_the_session_that_had_a_turn(tmp_path: Path) -> None:
    first = record(tmp_path)
    first.begin(None)
    first.converse(SESSION)

    last = record(tmp_path).last()

    assert last is not None
    assert (last.session, last.command, last.entry.name) == (SESSION, COMMAND, "ada")


def test_a_run_that_begins_anew_forgets_the_session_at_once(tmp_path: Path) -> None:
    first = record(tmp_path)
    first.begin(None)
    first.converse(SESSION)

    record(tmp_path).begin(None)

    last = record(tmp_path).last()
    assert last is not None
    assert last.session == ""


def test_a_run_that_goes_on_keeps_the_session_before_its_first_turn(tmp_path: Path) -> None:
    first = record(tmp_path)
    first.begin(None)
    first.tell("digest")
    first.converse(SESSION)
    second = record(tmp_path)
    second.begin(second.last())

    last = record(tmp_path).last()

    assert last is not None
    assert (last.session, last.told) == (SESSION, "digest")


def test_another_session_was_not_told_the_instructions(tmp_path: Path) -> None:
    run = record(tmp_path)
    run.begin(None)
    run.tell("digest")
    run.converse(SESSION)

    run.converse(OTHER)

    last = record(tmp_path).last()
    assert last is not None
    assert (last.session, last.told) == (OTHER, "")


@pytest.mark.parametrize(
    "other", [agent(agent_type="codex"), agent(folder="/elsewhere"), agent(inbox="bob")], ids=["cli", "folder", "inbox"]
)
def test_a_session_is_of_one_cli_in_one_folder_for_one_inbox(tmp_path: Path, other: AgentEntry) -> None:
    first = record(tmp_path)
    first.begin(None)
    first.converse(SESSION)

    assert record(tmp_path, other).last() is None


@pytest.mark.parametrize("session", ["--dangerous", "../../etc/passwd", "a b", "a\nb", "x" * 300])
def test_an_unusual_session_is_neither_written_nor_read(tmp_path: Path, session: str) -> None:
    run = record(tmp_path)
    run.begin(None)
    run.converse(SESSION)

    run.converse(session)

    path = next((tmp_path / "conversations").iterdir())
    fields = json.loads(path.read_text(encoding="utf-8"))
    assert fields["session"] == SESSION
    path.write_text(json.dumps({**fields, "session": session}), encoding="utf-8")
    last = record(tmp_path).last()
    assert last is not None
    assert last.session == ""


def test_the_record_is_private_and_without_the_key_of_the_launch(tmp_path: Path) -> None:
    record(tmp_path).begin(None)

    folder = tmp_path / "conversations"
    path = next(folder.iterdir())

    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "secret" not in path.read_text(encoding="utf-8")


def test_a_broken_record_is_no_record(tmp_path: Path) -> None:
    record(tmp_path).begin(None)
    path = next((tmp_path / "conversations").iterdir())
    path.write_text("{", encoding="utf-8")

    assert record(tmp_path).last() is None
    assert last_runs(tmp_path) == []


def test_a_record_that_cannot_be_written_does_not_harm_the_agent(tmp_path: Path) -> None:
    (tmp_path / "conversations").write_text("in the way", encoding="utf-8")

    record(tmp_path).begin(None)

    assert record(tmp_path).last() is None


def test_the_last_runs_of_all_agents_are_known(tmp_path: Path) -> None:
    for inbox in ("ada", "bob"):
        record(tmp_path, agent(inbox)).begin(None)

    assert {run.entry.inbox for run in last_runs(tmp_path)} == {"ada", "bob"}
