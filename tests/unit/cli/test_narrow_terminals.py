"""Every table on a terminal of 80 and of 60 columns, with long and wide values; and its times, as people say them."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest

from synapse.auth.sessions import SESSION_ACTIONS, SessionFile
from synapse.client.lines import width
from synapse.config.process import SystemClock
from synapse.notices.log import NoticeLog, Result
from synapse.notices.rules import Kind, Notice
from tests.fakes.link import FakeLink
from tests.fakes.strangers import card_1_0, stranger_at_home
from tests.unit.cli.conftest import Cli, HostFactory
from tests.unit.cli.test_push import fill

LONG = "設計を見直して、" * 12 + "and then run every test that there is in this repository"
NAME = "a-reviewer-with-a-name-that-is-much-longer-than-usual"
ISO = re.compile(r"\d{4}-\d\d-\d\dT")
MESSAGE = {"message": {"role": "user", "parts": [{"type": "text", "text": LONG}]}}


@pytest.fixture(params=[80, 60], name="columns")
def a_narrow_terminal(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    columns: int = request.param
    for module in ("tables", "watch"):
        monkeypatch.setattr(f"synapse.cli.{module}.line_width", lambda: columns)
    return columns


def check(shown: str, columns: int) -> list[str]:
    """Checks a table: it fits, fills what it needs, and has no time that only programs read."""
    lines = shown.splitlines()
    assert len(lines) > 1
    assert [line for line in lines if width(line) > columns] == []
    assert not ISO.search(shown)
    return lines


def test_agents(synapse: Cli, start: HostFactory, columns: int) -> None:
    host = start(name=NAME)
    host.entry.working_dir = f"/srv/{'設計/' * 20}src"
    host.registry.write(host.entry)
    host.state |= {"state": "working", "current_task": host.open(MESSAGE), "queue_depth": 200}
    start("claude", 8100)

    _, short, long = check(synapse("list").out, columns)

    assert short.startswith("claude-8100 ")
    assert "working" in long
    assert "8120" in long
    assert long.endswith("/src")


def test_queued_messages(synapse: Cli, start: HostFactory, columns: int) -> None:
    host = start(name=NAME)
    task = host.open(MESSAGE)
    task["created_at"] = (SystemClock().now() - timedelta(hours=3.5)).isoformat()

    _, line = check(synapse("queue").out, columns)

    assert "3h ago" in line
    assert task["id"][:8] in line


def test_tasks(synapse: Cli, columns: int) -> None:
    task = synapse("send", NAME[:40], LONG, "--queue", "--json").json["task"]

    _, line = check(synapse("tasks").out, columns)

    assert line.startswith(f"{task['id'][:8]}  submitted  ")
    assert re.search(r" (\d+s ago|now) ", line)


def test_keys(synapse: Cli, columns: int) -> None:
    agents = ",".join(f"agent-{number}" for number in range(30))
    created = synapse("keys", "create", "a-key-of-the-build-server", "--agents", agents, "--expires", "90m")
    assert created.code == 0, created

    _, line = check(synapse("keys", "list").out, columns)

    assert "in 1h" in line
    assert line.endswith("never")


def test_sessions(synapse: Cli, home: Path, columns: int) -> None:
    session = SessionFile(home, SystemClock()).create(frozenset(SESSION_ACTIONS[1:]), timedelta(hours=12.5))

    _, line = check(synapse("dashboard", "sessions").out, columns)

    assert line.startswith(session.session.session_id)
    assert line.endswith("in 12h")


def test_trusted_folders(synapse: Cli, home: Path, columns: int) -> None:
    project = home / ("設計-" * 12) / "shop"
    (project / ".synapse").mkdir(parents=True)
    synapse("trust", str(project))

    _, line = check(synapse("trust", "--list").out, columns)

    assert re.search(r"設計-/shop  trusted +(\d+s ago|now)$", line)


def test_notices(synapse: Cli, home: Path, columns: int) -> None:
    notice = Notice(id="1", kind=Kind.ASKS, agent_id=NAME, agent=NAME, text=LONG)
    NoticeLog(home).append(notice, "webhook", Result.FAILED, SystemClock().now() - timedelta(hours=3.5), LONG)

    _, line = check(synapse("notify", "log").out, columns)

    assert line.startswith("3h ago ")


def test_pushes(synapse: Cli, home: Path, columns: int) -> None:
    fill(home)

    _, *lines = check(synapse("push", "list").out, columns)

    assert len(lines) == 3


def test_external_agents(synapse: Cli, columns: int) -> None:
    with stranger_at_home() as stranger:
        stranger.serves("/.well-known/agent-card.json", {**card_1_0(f"{stranger.url}/rpc"), "description": LONG})
        synapse("external", "add", stranger.url, "--alias", "other")

    check(synapse("external", "list").out, columns)


def test_messages_to_other_machines(synapse: Cli, home: Path, columns: int) -> None:
    row = {"task_id": "1a2b3c4d5e", "to": "box2", "target": "codex@box2", "kind": "send", "attempts": 3}
    waits = {"created_at": "2020-01-01T00:00:00Z", "expires_at": "2999-01-01T00:00:00Z", "state": "open"}
    with FakeLink(home).serving() as link:
        link.messages = [
            {**row, **waits, "why": "box2 has not taken it yet, and nobody can say when it will"},
            {**row, **waits, "state": "uncertain", "task_id": "9e20dd1e77", "why": LONG},
        ]
        lines = check(synapse("fleet", "outbox").out, columns)

    title, first, why, second, *rest = lines
    assert title.split() == ["TASK", "TO", "KIND", "STATE", "SENT", "EXPIRES", "TRIES"]
    assert first.startswith("1a2b3c4d  codex@box2" if columns == 80 else "1a2b3c4d  ")
    assert why.strip() == "box2 has not taken it yet, and nobody can say when it will"
    assert second.startswith("9e20dd1e  ")
    assert "2999" not in second
    assert second.split()[5] == "-"
    assert "".join("".join(rest).split()) == "".join(LONG.split())


def test_settings(synapse: Cli, columns: int) -> None:
    check(synapse("config").out, columns)
