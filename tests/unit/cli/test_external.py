"""`synapse external` with an agent of another make."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.fakes.strangers import Object, Said, Stranger, card_1_0, rpc, stranger_at_home
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

    assert "Removed other." in synapse("external", "remove", "other").err
    assert synapse("external", "list", "--json").json == []


def test_every_action_prints_json(synapse: Cli, stranger: Stranger) -> None:
    assert synapse("external", "add", stranger.url, "--alias", "other", "--json").json["alias"] == "other"
    assert synapse("external", "send", "other", "hi", "--json").json["text"] == "done"
    assert synapse("external", "remove", "other", "--json").json["alias"] == "other"


@pytest.mark.parametrize(
    ("state", "code"),
    [("TASK_STATE_FAILED", 1), ("TASK_STATE_REJECTED", 7), ("TASK_STATE_INPUT_REQUIRED", 6), ("TASK_STATE_WORKING", 5)],
)
def test_the_exit_code_of_watch_is_the_tasks_outcome(synapse: Cli, stranger: Stranger, state: str, code: int) -> None:
    answers(stranger, state, "because")
    synapse("external", "add", stranger.url, "--alias", "other")

    assert synapse("external", "send", "other", "hi", "--timeout", "1").code == code


def test_an_agent_that_cannot_be_reached_does_not_respond(synapse: Cli) -> None:
    ran = synapse("external", "add", "http://127.0.0.1:1", "--json")

    assert (ran.code, ran.json["error"]["code"]) == (8, "external_agent_unreachable")


def test_an_unknown_alias_is_not_found(synapse: Cli) -> None:
    assert synapse("external", "remove", "nobody").code == 3


def test_a_secret_comes_from_the_environment_and_is_never_shown(
    synapse: Cli, stranger: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTHER_TOKEN", "the-secret")
    added = synapse("external", "add", stranger.url, "--alias", "other", "--bearer-env", "OTHER_TOKEN", "--json")
    monkeypatch.delenv("OTHER_TOKEN")
    sent = synapse("external", "send", "other", "hi", "--json")
    listed = synapse("external", "list", "--json")

    assert [heard.headers["Authorization"] for heard in stranger.heard] == ["Bearer the-secret"] * 2
    assert not any("the-secret" in ran.out + ran.err for ran in (added, sent, listed))


def test_a_secret_comes_from_a_file(synapse: Cli, stranger: Stranger, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("the-secret\n", encoding="utf-8")

    synapse("external", "add", stranger.url, "--alias", "other", "--header", f"X-Team: @{tmp_path / 'token'}")

    assert stranger.heard[-1].headers["X-Team"] == "the-secret"


def test_a_key_has_its_own_header(synapse: Cli, stranger: Stranger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTHER_KEY", "k-1")

    synapse("external", "add", stranger.url, "--alias", "other", "--api-key-env", "OTHER_KEY")

    assert stranger.heard[-1].headers["X-API-Key"] == "k-1"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--header", "X-Team: the-secret"), "a header must be given as 'NAME: @FILE'"),
        (("--header", "X-Team: @/no/such/file"), "cannot read /no/such/file"),
        (("--bearer-env", "NO_SUCH_VARIABLE"), "the environment variable NO_SUCH_VARIABLE is not set"),
    ],
)
def test_a_missing_secret_is_refused(synapse: Cli, stranger: Stranger, options: tuple[str, str], said: str) -> None:
    ran = synapse("external", "add", stranger.url, *options)

    assert ran.code != 0
    assert said in ran.err
    assert "the-secret" not in ran.err
    assert stranger.heard == []


def test_an_answer_is_printed_as_it_arrives(synapse: Cli, stranger: Stranger) -> None:
    def chunk(text: str, *, append: bool) -> Object:
        artifact = {"artifactId": "a", "parts": [{"text": text}]}
        return {"artifactUpdate": {"taskId": "t-1", "artifact": artifact, "append": append}}

    events = [
        {"task": {"id": "t-1", "status": {"state": "TASK_STATE_WORKING"}}},
        chunk("hel", append=False),
        chunk("lo", append=True),
        {"statusUpdate": {"taskId": "t-1", "status": {"state": "TASK_STATE_COMPLETED"}}},
    ]
    stranger.serves("/.well-known/agent-card.json", card_1_0(f"{stranger.url}/rpc", streaming=True))
    stranger.routes["/rpc"] = lambda heard: Said(events=[rpc(heard, event) for event in events])
    synapse("external", "add", stranger.url, "--alias", "other")

    assert synapse("external", "send", "other", "hi", "--stream").out == "hello\n"
    lines = synapse("external", "send", "other", "hi", "--stream", "--json").out.splitlines()
    assert len(lines) == len(events)


def test_an_agent_without_streams_is_printed_at_the_end(synapse: Cli, stranger: Stranger) -> None:
    synapse("external", "add", stranger.url, "--alias", "other")

    assert synapse("external", "send", "other", "hi", "--stream").out == "done\n"


def test_a_question_is_answered_and_a_task_canceled(synapse: Cli, stranger: Stranger) -> None:
    answers(stranger, "TASK_STATE_INPUT_REQUIRED", "which one?")
    synapse("external", "add", stranger.url, "--alias", "other")

    asked = synapse("external", "send", "other", "hi")
    assert "synapse external send other" in asked.err
    synapse("external", "send", "other", "this one", "--task", "t-1")
    assert stranger.heard[-1].body["params"]["message"]["taskId"] == "t-1"
    answers(stranger, "TASK_STATE_CANCELED", "")
    assert "canceled" in synapse("external", "cancel", "other", "t-1").err
    assert stranger.heard[-1].body["method"] == "CancelTask"
    assert synapse("external", "cancel", "other", "t-1", "--json").json["state"] == "canceled"
