"""Answers that come after their waiter has left, between real hosts: requests that stay open, questions to a person."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from synapse.client.http import HostAddress, request
from synapse.registry.files import FileRegistry, is_alive
from tests.integration.cli.session import Session, session
from tests.integration.waiting import until
from tests.samples.ports import own_port

pytestmark = pytest.mark.integration

Fields = dict[str, Any]


@pytest.fixture
def here() -> Iterator[Session]:
    """A session in which `synapse send --response` gives up after a second."""
    with tempfile.TemporaryDirectory(prefix="syn-") as folder:
        settings = Path(folder) / "c" / "synapse" / "config.toml"
        settings.parent.mkdir(parents=True)
        settings.write_text("response_timeout = 1\n", encoding="utf-8")
        with session(Path(folder) / "h") as opened:
            opened.environ["XDG_CONFIG_HOME"] = str(Path(folder) / "c")
            yield opened


def ask(agent: Fields, method: str, path: str, body: Fields | None = None) -> Fields:
    return request(HostAddress(agent["socket"]), method, path, body).body


def tasks_of(agent: Fields) -> list[Fields]:
    return list(ask(agent, "GET", "/tasks")["tasks"])


def text_of(task: Fields) -> str:
    return str(task["message"]["parts"][0]["text"])


def answer_in(task: Fields) -> str:
    return "".join(part["text"] for artifact in task["artifacts"] for part in artifact["parts"])


def identity(agent: Fields) -> dict[str, str]:
    """The environment of a process that the agent's program has started."""
    return {"SYNAPSE_AGENT_ID": agent["agent_id"], "SYNAPSE_SOCKET": agent["socket"]}


def deferred(agent: Fields, task_id: str) -> Fields:
    def is_deferred() -> Fields | None:
        task = ask(agent, "GET", f"/tasks/{task_id}")
        return task if task["metadata"].get("reason") == "waiting_for_reply" else None

    return until(is_deferred, "the request to be deferred", lambda: ask(agent, "GET", f"/tasks/{task_id}"))


def kill(here: Session, agent: Fields) -> None:
    """Kills the host at once, and waits until it is gone."""
    os.kill(agent["pid"], signal.SIGKILL)
    registry = FileRegistry(here.home / "registry")
    until(lambda: not any(is_alive(one) for one in registry.written() if one.agent_id == agent["agent_id"]), "its end")


def test_a_shell_gets_the_answer_that_its_agent_got_too_late_to_wait_for_it(here: Session) -> None:
    ada, bob = here.start("ada"), here.start("bob")

    # Ada asks Bob, gives up after a second, and ends its turn; Bob answers after three.
    answered = here.run("send", "ada", "ask bob wait 3", "--response", "--timeout", "25", "--json").json

    assert answered["task"]["status"] == "completed"
    assert answered["reply"].startswith("echo: working for 3 s")
    (asked,) = tasks_of(bob)
    waiting = ask(ada, "GET", f"/tasks/{asked['metadata']['sender_task_id']}")
    assert (waiting["status"], waiting["metadata"]["waiter_left"]) == ("completed", True)
    assert waiting["metadata"]["asked_in"] == answered["task"]["id"]
    typed = [task for task in tasks_of(ada) if task["metadata"].get("delivers") == waiting["id"]]
    assert [text_of(task) for task in typed] == [answer_in(waiting)]


def test_an_agent_gets_the_answer_over_two_agents(here: Session) -> None:
    for name in ("ada", "bob", "eve"):
        here.start(name)

    # Each gives up after a second, and each is answered by the turn that the late answer begins.
    answered = here.run("send", "ada", "ask bob ask eve wait 3", "--response", "--timeout", "25")

    assert (answered.code, answered.out.startswith("echo: echo: working for 3 s")) == (0, True), answered


def test_an_agent_that_is_killed_ends_the_request_that_waited_for_it(here: Session) -> None:
    ada, bob = here.start("ada"), here.start("bob")
    sent = here.run("send", "ada", "ask bob wait 60", "--json").json["task"]
    deferred(ada, sent["id"])

    kill(here, bob)

    ended = until(
        lambda: (task := ask(ada, "GET", f"/tasks/{sent['id']}"))["status"] == "completed" and task, "its end"
    )
    assert "was not answered" in answer_in(ended)


def test_a_host_that_is_killed_fails_what_it_deferred_and_its_successor_gets_the_answer(here: Session) -> None:
    port = own_port()
    ada, bob = here.start("ada", port=port), here.start("bob")
    sent = here.run("send", "ada", "ask bob wait 5", "--json").json["task"]
    deferred(ada, sent["id"])

    kill(here, ada)
    again = here.start("ada", port=port)

    failed = ask(again, "GET", f"/tasks/{sent['id']}")
    assert (failed["status"], failed["metadata"]["reason"]) == ("failed", "agent_exited")
    arrived = until(
        lambda: [
            task for task in tasks_of(again) if task["metadata"].get("delivers") and task["status"] == "completed"
        ],
        "the late answer",
        lambda: (tasks_of(again), tasks_of(bob)),
    )
    assert len(arrived) == 1
    assert answer_in(arrived[0]).startswith("echo: working for 5 s")


def test_an_agent_that_is_stopped_fails_what_it_deferred(here: Session) -> None:
    ada = here.start("ada")
    here.start("bob")
    sent = here.run("send", "ada", "ask bob wait 60", "--json").json["task"]
    deferred(ada, sent["id"])

    assert here.run("stop", "ada").code == 0

    stored = here.run("status", sent["id"], "--json").json["task"]
    assert (stored["status"], stored["metadata"]["reason"]) == ("failed", "agent_exited")


def test_a_person_answers_a_question_of_an_agent(here: Session) -> None:
    ada = here.start("ada")
    assert here.run("ask", "Which branch?").code != 0
    assert ask(ada, "GET", "/status")["questions"] == []

    environ = dict(here.environ)
    here.environ |= identity(ada)
    asking = here.begin("ask", "Which branch?", "--option", "main", "--option", "develop", "--timeout", "25")
    here.environ = environ
    until(lambda: ask(ada, "GET", "/status")["questions"], "the question")
    (item,) = here.run("approvals", "--json").json
    refused = here.run("answer", item["task_id"], "main", **identity(ada))
    answered = here.run("answer", item["task_id"][:8], "develop")

    out, _ = asking.communicate(timeout=20)
    assert (refused.code, answered.code, asking.returncode, out) == (7, 0, 0, "develop\n")
    assert ask(ada, "GET", "/status")["state"] == "ready"
    assert here.run("approvals", "--json").json == []


def test_a_question_outlives_its_host_and_the_answer_is_typed(here: Session) -> None:
    port = own_port()
    ada = here.start("ada", port=port)
    gave_up = here.run("ask", "Which branch?", "--timeout", "0.3", **identity(ada))
    assert gave_up.code == 5
    kill(here, ada)
    again = here.start("ada", port=port)

    (item,) = here.run("approvals", "--json").json
    assert here.run("answer", item["task_id"], "main").code == 0

    arrived = until(
        lambda: [
            task for task in tasks_of(again) if task["metadata"].get("delivers") and task["status"] == "completed"
        ],
        "the late answer",
    )
    assert [text_of(task) for task in arrived] == [
        f'Answer to your question "Which branch?" (task {item["task_id"][:8]}): main'
    ]
    assert arrived[0]["metadata"]["sender"]["sender_id"] == "user"
    assert arrived[0]["metadata"]["sender_verified"] is True
