"""`synapse tasks`: recent tasks, also of stopped agents."""

from __future__ import annotations

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
