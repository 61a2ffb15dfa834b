"""`synapse top --once` for scripts and screen readers, and what the overview says where it cannot run."""

from __future__ import annotations

from pathlib import Path

import pytest

from synapse.client.seen import mark_seen
from tests.unit.cli.conftest import Cli, HostFactory
from tests.unit.top.statuses import NOW, answered, asking, working


def test_the_list_is_printed_in_the_order_of_need(
    synapse: Cli, start: HostFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    start(port=8121, name="ada").state = working(1, "write\u202e it", queued=1)
    start(port=8122, name="bob").state = asking(2)

    said = synapse("top", "--once").out.splitlines()

    assert said[0] == "2 agents · 1 needs you"
    assert [line.split()[:3] for line in said[1:]] == [["?", "bob", "asks"], ["◐", "ada", "working"]]
    assert "Run this command? rm -rf build" in said[1]
    assert "write<U+202E> it" in said[2]


def test_a_locale_without_unicode_gets_ascii(synapse: Cli, start: HostFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    start(name="ada").state = answered(1, "für dich")

    said = synapse("top", "--once").out

    assert said.isascii()
    assert " * ada  done" in said


def test_rows_are_json_for_scripts_and_know_what_was_seen(synapse: Cli, start: HostFactory, home: Path) -> None:
    host = start(name="ada")
    host.state = answered(1, "fine")
    before = synapse("top", "--once", "--json").json
    mark_seen(home, host.entry.agent_id, NOW)

    after = synapse("top", "--once", "--json").json

    assert [(row["name"], row["state"], row["unread"]) for row in before] == [("ada", "done", 1)]
    assert [(row["name"], row["state"], row["unread"]) for row in after] == [("ada", "ready", 0)]
    assert host.requests[0][1] == "/status?finished=20"


def test_a_host_that_does_not_answer_is_away_and_the_row_says_why(synapse: Cli, start: HostFactory) -> None:
    host = start(name="ada")
    host.entry.socket, host.entry.port = "/nowhere.sock", 0
    host.registry.write(host.entry)

    (row,) = synapse("top", "--once", "--json").json

    assert row["state"] == "away"
    assert "not responding" in row["why"]


def test_no_agents_is_an_empty_list(synapse: Cli) -> None:
    assert synapse("top", "--once", "--json").json == []
    assert synapse("top", "--once").out.startswith("0 agents")


def test_the_overview_needs_a_terminal_and_names_the_way_without(synapse: Cli) -> None:
    ran = synapse("top")

    assert ran.code == 2
    assert "synapse top --once" in ran.err


def test_json_is_for_the_list_that_is_printed(synapse: Cli) -> None:
    ran = synapse("top", "--json")

    assert ran.code == 2
    assert "--json needs --once" in ran.out
