"""Which commands mark an agent's answers as seen, and for whom."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from synapse.client import seen
from synapse.client.seen import seen_until
from synapse.config.process import SystemClock
from tests.unit.cli.conftest import Cli, HostFactory, become
from tests.unit.cli.fake_host import FakeHost

MESSAGE = {"message": {"role": "user", "parts": [{"type": "text", "text": "review the design"}]}}
AT_END = datetime(2024, 1, 15, 10, 30, tzinfo=UTC)
"""When fake hosts answer."""
TERMINAL = 34816
"""The device number of a person's terminal."""


def sit_at(terminal: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the process one with this controlling terminal, 0 for none, and without streams to a terminal."""

    def controlling_terminal(_pid: int) -> int:
        return terminal

    monkeypatch.setattr(seen, "controlling_terminal", controlling_terminal)
    have_terminal((), monkeypatch)


def have_terminal(streams: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes these streams of the process those of a terminal."""

    def isatty(stream: int) -> bool:
        return stream in streams

    monkeypatch.setattr("os.isatty", isatty)


@pytest.fixture(autouse=True)
def person(monkeypatch: pytest.MonkeyPatch) -> None:
    sit_at(TERMINAL, monkeypatch)


def answered(host: FakeHost) -> str:
    """Returns the id of a task that the agent has answered."""
    task = host.open(MESSAGE)
    host.answer(task, "fine")
    return str(task["id"])


def mark_of(host: FakeHost, home: Path) -> datetime | None:
    return seen_until(home, host.entry.agent_id)


def test_the_status_of_an_agent_marks_what_it_had_answered_before(synapse: Cli, start: HostFactory, home: Path) -> None:
    host, other = start(), start("claude", 8100)
    before = SystemClock().now()

    synapse("status", "codex")

    marked = mark_of(host, home)
    assert marked is not None
    assert before <= marked <= SystemClock().now()
    assert mark_of(other, home) is None


def test_the_status_of_a_task_marks_what_was_answered_when_it_ended(
    synapse: Cli, start: HostFactory, home: Path
) -> None:
    host = start()
    synapse("status", host.open(MESSAGE)["id"])
    assert mark_of(host, home) is None

    synapse("status", answered(host))

    assert mark_of(host, home) == AT_END


def test_a_waiting_send_marks_the_answer_that_it_printed(synapse: Cli, start: HostFactory, home: Path) -> None:
    host = start()
    host.on_send = lambda task: host.answer(task, "fine")

    ran = synapse("send", "codex", "hello", "--response")

    assert (ran.code, ran.out) == (0, "fine\n")
    assert mark_of(host, home) == AT_END


def test_other_commands_mark_nothing(synapse: Cli, start: HostFactory, home: Path) -> None:
    host = start()
    task = answered(host)

    for command in (["list"], ["send", "codex", "hello"], ["approvals"], ["status", "codex", "--json"]):
        assert synapse(*command).code == 0
    assert synapse("status", task, "--json").code == 0

    assert mark_of(host, home) is None


def in_an_agent(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    become(host, monkeypatch)


def at_an_agents_terminal(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    host.entry.terminal = 99
    host.registry.write(host.entry)
    sit_at(99, monkeypatch)


def without_a_terminal(_host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    sit_at(0, monkeypatch)


@pytest.mark.parametrize("place", [in_an_agent, at_an_agents_terminal, without_a_terminal])
def test_only_a_person_at_a_terminal_marks_anything(
    synapse: Cli,
    start: HostFactory,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: Callable[[FakeHost, pytest.MonkeyPatch], None],
) -> None:
    host = start()
    task = answered(host)
    place(start("claude", 8100), monkeypatch)

    assert synapse("status", "codex").code == 0
    assert synapse("status", task).code == 0

    assert mark_of(host, home) is None


def test_a_system_that_does_not_tell_the_terminal_is_asked_for_the_streams(
    synapse: Cli, start: HostFactory, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = start()
    sit_at(0, monkeypatch)
    have_terminal((2,), monkeypatch)

    synapse("status", answered(host))

    assert mark_of(host, home) == AT_END
