"""`synapse tasks`: recent tasks, also of stopped agents."""

from __future__ import annotations

from typing import Any

import pytest

from synapse.cli import tasks
from synapse.cli.exit_codes import REFUSED, USAGE
from synapse.tasks import stopped
from tests.unit.cli.conftest import Cli


def test_the_latest_task_comes_first_with_its_state(synapse: Cli) -> None:
    first = synapse("send", "reviewer", "one", "--queue", "--json").json["task"]
    synapse("send", "codex-8120", "two\nlines", "--queue")
    synapse("cancel", first["id"])

    titles, one, two = synapse("tasks").out.splitlines()

    assert titles.split() == ["TASK", "STATE", "CHANGED", "AGENT", "FROM", "MESSAGE"]
    assert [one.split()[at] for at in (0, 1, 3, 4, 5)] == [
        first["id"][:8],
        "canceled",
        "reviewer",
        "unverified.user",
        "one",
    ]
    assert [two.split()[at] for at in (1, 3, 4, 5)] == ["submitted", "codex-8120", "unverified.user", "two"]


def test_the_tasks_of_one_agent_are_found_by_its_name_and_its_profile(synapse: Cli) -> None:
    for agent in ("reviewer", "codex-8120"):
        synapse("send", agent, f"for {agent}", "--queue")

    assert [task["message"]["parts"][0]["text"] for task in synapse("tasks", "codex", "--json").json] == [
        "for codex-8120"
    ]
    assert synapse("tasks", "@reviewer").out.splitlines()[1].endswith("for reviewer")
    assert len(synapse("tasks", "-n", "1", "--json").json) == 1


def test_an_empty_list_says_so(synapse: Cli) -> None:
    assert (synapse("tasks").err, synapse("tasks", "--json").json) == ("There are no tasks yet.\n", [])
    assert synapse("tasks", "codex").err == "There are no tasks of 'codex'.  (synapse list)\n"


def texts(found: list[dict[str, Any]]) -> list[str]:
    return [task["message"]["parts"][0]["text"] for task in found]


def test_tasks_are_found_by_the_words_of_their_messages(synapse: Cli) -> None:
    for agent, text in (("reviewer", "write the parser"), ("codex-8120", "test the Parser"), ("reviewer", "a lexer")):
        synapse("send", agent, text, "--queue")

    assert texts(synapse("tasks", "--search", "parser", "--json").json) == ["test the Parser", "write the parser"]
    assert texts(synapse("tasks", "reviewer", "--search", "pars", "--json").json) == ["write the parser"]
    assert texts(synapse("tasks", "--search", '"the parser" test', "--json").json) == ["test the Parser"]
    assert texts(synapse("tasks", "--search", "the", "-n", "1", "--json").json) == ["test the Parser"]
    titles, found = synapse("tasks", "--search", "lexer").out.splitlines()
    assert titles.startswith("TASK")
    assert found.endswith("a lexer")


def test_a_search_that_finds_nothing_says_so(synapse: Cli) -> None:
    synapse("send", "reviewer", "hello", "--queue")

    nothing = synapse("tasks", "reviewer", "--search", "AND NOT (")

    assert (nothing.code, nothing.out) == (0, "")
    assert nothing.err == "No task of 'reviewer' has 'AND NOT (' in its messages or answers.  (synapse tasks)\n"
    assert synapse("tasks", "--search", "x", "--json").json == []


@pytest.mark.parametrize(("text", "error"), [(" ", "--search needs a text"), ("x" * 501, "at most 500")])
def test_a_search_without_a_text_or_with_too_long_a_one_is_wrong_usage(synapse: Cli, text: str, error: str) -> None:
    synapse("send", "reviewer", "hello", "--queue")

    refused = synapse("tasks", "--search", text)

    assert refused.code == USAGE
    assert error in refused.err


def test_a_search_that_is_switched_off_is_refused_with_what_switches_it_on(
    synapse: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    synapse("send", "reviewer", "hello", "--queue")
    monkeypatch.setenv("SYNAPSE_SEARCH", "off")

    refused = synapse("tasks", "--search", "hello")

    assert refused.code == REFUSED
    assert "search is switched off" in refused.err
    assert "`search = true`" in refused.err


def test_a_search_that_has_to_index_for_long_says_how_far_it_is(synapse: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        synapse("send", "reviewer", f"hello {number}", "--queue")
    monkeypatch.setattr(stopped, "_SEARCH_SECONDS", 0.0)
    monkeypatch.setattr(tasks, "_NOTICE_SECONDS", 0.0)

    found = synapse("tasks", "--search", "hello", "--json")

    assert texts(found.json) == ["hello 2", "hello 1", "hello 0"]
    assert "Indexing the tasks for the search: 33 %\n" in found.err
