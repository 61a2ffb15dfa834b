"""`synapse ask`: an agent asks a person and prints the answer, or says how it will arrive."""

from __future__ import annotations

import pytest

from tests.unit.cli.conftest import Cli, HostFactory, become
from tests.unit.cli.fake_host import FakeHost, Fields


@pytest.fixture
def own(start: HostFactory, monkeypatch: pytest.MonkeyPatch) -> FakeHost:
    host = start()
    become(host, monkeypatch)
    return host


def test_the_answer_is_printed(synapse: Cli, own: FakeHost) -> None:
    own.on_send = lambda task: own.answer(task, "main")

    ran = synapse("ask", "Which", "branch?", "--option", "main", "--option", "develop")

    assert (ran.code, ran.out) == (0, "main\n")
    _, path, body = own.requests[0]
    assert (path, body["options"]) == ("/questions", ["main", "develop"])
    assert body["message"]["parts"] == [{"type": "text", "text": "Which branch?"}]


def test_json_has_the_answer(synapse: Cli, own: FakeHost) -> None:
    own.on_send = lambda task: own.answer(task, "main")

    assert synapse("ask", "Which branch?", "--json").json["answer"] == "main"


@pytest.mark.parametrize("as_json", [False, True])
def test_a_late_answer_arrives_as_a_message(synapse: Cli, own: FakeHost, as_json: bool) -> None:
    ran = synapse("ask", "Which branch?", "--timeout", "0.2", *(["--json"] if as_json else []))

    (task,) = own.tasks.values()
    assert (ran.code, task["metadata"]["waiter_left"]) == (5, True)
    said = ran.json["error"]["hint"] if as_json else ran.err
    assert "the answer arrives as a message" in said
    assert f"synapse cancel {task['id'][:8]}" in said


def test_an_answer_that_comes_as_the_time_is_over_is_printed(synapse: Cli, own: FakeHost) -> None:
    own.on_leave = lambda task: own.answer(task, "just in time")

    ran = synapse("ask", "Which branch?", "--timeout", "0.2")

    assert (ran.code, ran.out) == (0, "just in time\n")


def test_an_answer_that_was_delivered_as_a_message_is_not_printed_too(synapse: Cli, own: FakeHost) -> None:
    def deliver(task: Fields) -> None:
        task["metadata"]["waiter_left"] = True
        own.answer(task, "typed")

    own.on_send = deliver

    ran = synapse("ask", "Which branch?")

    assert (ran.code, ran.out) == (0, "")
    assert "arrives as a message" in ran.err


def test_a_question_that_was_withdrawn_fails(synapse: Cli, own: FakeHost) -> None:
    def withdraw(task: Fields) -> None:
        task["metadata"]["note"] = "canceled by request"
        own.change(task, status="canceled")

    own.on_send = withdraw

    ran = synapse("ask", "Which branch?")

    assert (ran.code, ran.out) == (1, "")
    assert "not answered: canceled by request" in ran.err


def test_only_an_agent_asks(synapse: Cli, start: HostFactory) -> None:
    host = start()

    ran = synapse("ask", "Which branch?")

    assert ran.code == 2
    assert "only an agent asks a person" in ran.err
    assert "reply" not in ran.err
    assert host.requests == []


@pytest.mark.parametrize("wrong", [[], ["--timeout", "0", "hm?"], ["--timeout", "soon", "hm?"]])
def test_a_wrong_line_is_refused(synapse: Cli, own: FakeHost, wrong: list[str]) -> None:
    assert synapse("ask", *wrong).code == 2
    assert own.requests == []
