"""Questions of a program in the middle of a turn, as clients of A2A see them: a message to the task answers one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from synapse.client.http import Answer, HostAddress, request
from synapse.core.agent import AgentEntry
from tests.conformance.real_hosts import ROOT, scripted_host

pytestmark = pytest.mark.integration

CHOICES = "Which branch?\n1. main\n2. release"
STATES = {
    "1.0": ("TASK_STATE_INPUT_REQUIRED", "TASK_STATE_COMPLETED"),
    "0.3": ("input-required", "completed"),
}


@pytest.fixture(scope="module")
def asker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentEntry]:
    with scripted_host(tmp_path_factory.mktemp("h"), ROOT / "docs" / "examples" / "questions.toml", "asker") as entry:
        yield entry


def say(where: HostAddress, version: str, text: str, task: dict[str, Any] | None = None) -> Answer:
    """Sends a message by JSON-RPC and waits; with a task, the message continues it."""
    ids = {"taskId": task["id"], "contextId": task["contextId"]} if task else {}
    message_id = f"{version}-{text}-{ids.get('taskId', where.port)}"
    if version == "1.0":
        said: dict[str, Any] = {"role": "ROLE_USER", "parts": [{"text": text}]}
        method = "SendMessage"
    else:
        said = {"kind": "message", "role": "user", "parts": [{"kind": "text", "text": text}]}
        method = "message/send"
    params = {"message": {"messageId": message_id, **said, **ids}, "configuration": {"blocking": True}}
    if version == "1.0":
        del params["configuration"]
    call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return request(where, "POST", f"/?A2A-Version={version}", call, timeout=30)


def task_in(answer: Answer, version: str) -> dict[str, Any]:
    result: dict[str, Any] = answer.body["result"]
    return result["task"] if version == "1.0" else result


@pytest.mark.parametrize("version", STATES)
def test_a_client_gets_the_question_and_answers_it_with_a_message(asker: AgentEntry, version: str) -> None:
    tcp = HostAddress("", port=asker.port)
    asks, done = STATES[version]

    question = task_in(say(tcp, version, "which branch?"), version)
    answered = task_in(say(tcp, version, "release", question), version)

    assert question["status"]["state"] == asks
    assert question["status"]["message"]["parts"][0]["text"] == CHOICES
    assert (answered["id"], answered["status"]["state"]) == (question["id"], done)
    assert answered["artifacts"][0]["parts"][0]["text"] == "on release"
    assert [message["parts"][0]["text"] for message in answered["history"]] == ["which branch?", "release"]


@pytest.mark.parametrize("version", STATES)
def test_only_a_person_on_the_socket_gives_a_permission(asker: AgentEntry, version: str) -> None:
    tcp, unix = HostAddress("", port=asker.port), HostAddress(asker.socket, port=asker.port)

    question = task_in(say(tcp, version, "build it"), version)
    refused = say(tcp, version, "yes", question)
    unheard = say(unix, version, "hm", question)
    answered = task_in(say(unix, version, "yes", question), version)

    assert refused.body["error"]["message"] == "only a person may answer this"
    assert unheard.body["error"]["code"] == -32602
    assert answered["artifacts"][0]["parts"][0]["text"] == "you said: Yes"
