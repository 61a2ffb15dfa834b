"""`synapse external` with an agent that is not ours."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.fakes.strangers import Said, Stranger, card_1_0, rpc, stranger_at_home
from tests.unit.cli.conftest import Cli


@pytest.fixture
def stranger() -> Generator[Stranger]:
    with stranger_at_home() as stranger:
        stranger.serves("/.well-known/agent-card.json", card_1_0(f"{stranger.url}/rpc"))
        answers(stranger, "TASK_STATE_COMPLETED", "done")
        yield stranger


def answers(stranger: Stranger, state: str, text: str) -> None:
    artifacts = [{"artifactId": "a", "parts": [{"text": text}]}] if text else []
    task = {"id": "t-1", "contextId": "c", "status": {"state": state}, "artifacts": artifacts}
    stranger.routes["/rpc"] = lambda heard: Said(rpc(heard, {"task": task}))


def test_an_agent_is_added_listed_asked_and_removed(synapse: Cli, stranger: Stranger) -> None:
    added = synapse("external", "add", stranger.url, "--alias", "other")
    assert added.code == 0
    assert "other: Other Agent at" in added.err

    assert [agent["alias"] for agent in synapse("external", "list", "--json").json] == ["other"]
    assert stranger.url in synapse("external", "list").out
    assert synapse("external", "send", "other", "process", "this").out == "done\n"
    assert stranger.heard[-1].body["params"]["message"]["parts"] == [{"text": "process this"}]

    assert "other is forgotten" in synapse("external", "remove", "other").err
    assert synapse("external", "list", "--json").json == []


def test_json_everywhere(synapse: Cli, stranger: Stranger) -> None:
    assert synapse("external", "add", stranger.url, "--alias", "other", "--json").json["alias"] == "other"
    assert synapse("external", "send", "other", "hi", "--json").json["text"] == "done"
    assert synapse("external", "remove", "other", "--json").json["alias"] == "other"


@pytest.mark.parametrize(
    ("state", "code"),
    [("TASK_STATE_FAILED", 1), ("TASK_STATE_REJECTED", 7), ("TASK_STATE_INPUT_REQUIRED", 6), ("TASK_STATE_WORKING", 5)],
)
def test_the_exit_code_says_what_became_of_it(synapse: Cli, stranger: Stranger, state: str, code: int) -> None:
    answers(stranger, state, "because")
    synapse("external", "add", stranger.url, "--alias", "other")

    assert synapse("external", "send", "other", "hi", "--timeout", "1").code == code


def test_an_agent_that_cannot_be_reached_does_not_respond(synapse: Cli) -> None:
    ran = synapse("external", "add", "http://127.0.0.1:1", "--json")

    assert (ran.code, ran.json["error"]["code"]) == (8, "external_agent_unreachable")


def test_an_unknown_alias_is_not_found(synapse: Cli) -> None:
    assert synapse("external", "remove", "nobody").code == 3
