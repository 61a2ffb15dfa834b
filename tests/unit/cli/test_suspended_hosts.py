"""Hosts whose process is suspended (Ctrl-Z, SIGSTOP): commands fail at once and say what to do."""

from __future__ import annotations

import socket
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from synapse.client import http
from synapse.core.agent import AgentEntry
from synapse.registry.files import FileRegistry
from tests.fakes.processes import Bystander, bystander
from tests.unit.cli.conftest import Cli, become
from tests.unit.cli.fake_host import FakeHost

NAME = "synapse-codex-8120"


@pytest.fixture
def process() -> Iterator[Bystander]:
    with bystander() as running:
        yield running


@pytest.fixture
def stopped(home: Path, process: Bystander) -> Iterator[FakeHost]:
    """A host that would answer if its process were not suspended."""
    host = FakeHost(home)
    host.entry.pid, host.entry.pid_started = process.pid, process.started
    with host.serving():
        process.stop()
        yield host


@contextmanager
def silent_host(home: Path, process: Bystander) -> Generator[AgentEntry]:
    """A host that is suspended at the first connection, and so never answers."""
    entry = AgentEntry(NAME, "codex", port=8120, pid=process.pid, pid_started=process.started)
    entry.socket = str(home / "silent.sock")
    over = threading.Event()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(entry.socket)
        listener.listen()

        def stand_still() -> None:
            connection, _ = listener.accept()
            with connection:
                process.stop()
                over.wait(30)

        thread = threading.Thread(target=stand_still)
        thread.start()
        FileRegistry(home / "registry").write(entry)
        try:
            yield entry
        finally:
            over.set()
            thread.join(30)


@pytest.mark.parametrize(
    "command",
    [
        ("send", "codex", "hi"),
        ("send", "codex", "hi", "--response"),
        ("send", "codex", "hi", "--queue"),
        ("status", "codex"),
        ("broadcast", "hi"),
        ("attach", "codex"),
        ("approve", "codex"),
    ],
)
def test_a_suspended_host_is_not_asked(
    synapse: Cli, stopped: FakeHost, process: Bystander, command: tuple[str, ...]
) -> None:
    ran = synapse(*command)

    assert ran.code == 8
    assert f"Agent '{NAME}' server on port 8120 is not responding." in ran.err
    assert f"(pid {process.pid}) is suspended, as by Ctrl-Z" in ran.err
    assert f"kill -CONT {process.pid}" in ran.err
    assert ("the message was not sent" in ran.err) == (command[0] in ("send", "broadcast"))
    assert stopped.requests == []


def test_a_host_that_was_continued_is_asked_again(synapse: Cli, stopped: FakeHost, process: Bystander) -> None:
    process.go_on()

    assert synapse("send", "codex", "hi").code == 0
    assert len(stopped.tasks) == 1


@pytest.mark.parametrize("verb", ["list", "queue", "approvals"])
def test_verbs_that_list_say_why_a_suspended_agent_is_missing(
    synapse: Cli, stopped: FakeHost, process: Bystander, verb: str
) -> None:
    ran = synapse(verb)

    assert (ran.code, stopped.requests) == (0, [])
    assert f"kill -CONT {process.pid}" in ran.err


def test_json_says_why_a_suspended_agent_does_not_respond(synapse: Cli, stopped: FakeHost, process: Bystander) -> None:
    (listed,) = synapse("list", "--json").json

    assert (listed["agent_id"], listed["status"]) == (stopped.entry.agent_id, "not_responding")
    assert f"kill -CONT {process.pid}" in listed["why"]


def test_a_reply_through_a_suspended_host_says_so(
    synapse: Cli, stopped: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    become(stopped, monkeypatch)

    ran = synapse("reply", "done")

    assert (ran.code, stopped.requests) == (8, [])
    assert "is suspended, as by Ctrl-Z" in ran.err


def test_the_hint_for_an_unconfirmed_message_names_its_message_id(
    synapse: Cli, home: Path, process: Bystander, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "CHECK_SECONDS", 0.05)

    with silent_host(home, process):
        ran = synapse("send", "codex", "hi", "--message-id", "m-1", "--timeout", "20")

    assert ran.code == 8
    assert "the message was not confirmed and may still be delivered" in ran.err
    assert "add `--message-id m-1`" in ran.err
    assert f"kill -CONT {process.pid}" in ran.err
    assert "--force" not in ran.err


def test_the_hint_for_an_unconfirmed_reply_says_not_to_repeat_it(
    synapse: Cli, home: Path, process: Bystander, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "CHECK_SECONDS", 0.05)

    with silent_host(home, process):
        ran = synapse("send", "codex", "done", "--reply-to", "abc12345", "--timeout", "20")

    assert ran.code == 8
    assert "a second reply arrives as a new message" in ran.err
    assert "--message-id" not in ran.err


def test_a_broadcast_that_a_host_may_have_read_names_its_message_id(
    synapse: Cli, home: Path, process: Bystander, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "CHECK_SECONDS", 0.05)

    with silent_host(home, process):
        ran = synapse("broadcast", "hi", "--all")

    assert ran.code == 8
    assert "the message may still be delivered; send it again with `synapse send codex-8120 --message-id " in ran.err
