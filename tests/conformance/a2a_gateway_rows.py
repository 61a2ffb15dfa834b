"""Clauses about gateways only: several agents, several dialects, one address."""

from __future__ import annotations

from tests.conformance.a2a_row import BOTH, GATEWAY, HTTP, READINGS, SPEC, refusal, row
from tests.conformance.a2a_speakers import JsonRpc03, JsonRpc10, Rest03, Rest10, Speaker
from tests.conformance.a2a_words import Message

SUPERVISOR = "supervisor-a2a-endpoints.md"
HUB = "hub-protocol.md"


@row("gateway-extended-card", BOTH, f"{SPEC} §3.1.11", "an authenticated caller gets the extended card", only=GATEWAY)
def _(speaker: Speaker) -> None:
    card = speaker.extended_card()

    assert isinstance(card, dict)
    assert card["capabilities"]["streaming"] is True  # pyright: ignore[reportUnknownVariableType]  # of any JSON


@row("gateway-global-id", BOTH, f"{READINGS} 4", "agentId:taskId is understood wherever an id is", only=GATEWAY)
def _(speaker: Speaker) -> None:
    task = speaker.task(Message("tck-input-required"))
    named = f"{agent_of(speaker)}:{task.id}"

    assert speaker.get(named).id == task.id
    assert speaker.cancel(named).id == task.id
    assert refusal(lambda: speaker.cancel(named)) == "TaskNotCancelable"


@row("gateway-one-task", BOTH, f"{READINGS} 4", "a task is the same in every dialect", only=GATEWAY, bindings=HTTP)
def _(speaker: Speaker) -> None:
    task = speaker.task(Message("tck-artifact-text"))

    for other in (JsonRpc10, Rest10, JsonRpc03, Rest03):
        seen = other(speaker.client, speaker.mount).get(task.id)
        assert (seen.id, seen.context_id, seen.state, seen.parts) == (task.id, task.context_id, task.state, task.parts)
    hub = speaker.client.request("GET", f"/tasks/{task.id}").json
    assert (hub["id"], hub["state"]) == (task.id, "completed")


@row(
    "gateway-as-made",
    BOTH,
    f"{READINGS} 3",
    "without a version a task is encoded in the dialect that made it",
    only=GATEWAY,
)
def _(speaker: Speaker) -> None:
    task = speaker.task(Message())
    shown = speaker.client.request("GET", f"{speaker.mount}/tasks/{task.id}").json

    assert shown["id"] == task.id
    assert shown["status"]["state"] == "TASK_STATE_COMPLETED"


@row(
    "gateway-supervisor", BOTH, SUPERVISOR, "the supervisor's words on the same path make the same tasks", only=GATEWAY
)
def _(speaker: Speaker) -> None:
    body = {"message": {"content": "hello", "role": "user"}, "configuration": {"blocking": True}}
    made = speaker.client.request("POST", f"{speaker.mount}/message:send", body).json
    agent, _, task_id = made["id"].partition(":")

    assert (agent, made["status"]) == (agent_of(speaker), "succeeded")
    if isinstance(speaker, Rest03):
        speaker.names_version = True
    assert speaker.get(task_id).state == "completed"


@row(
    "gateway-hub-types",
    BOTH,
    HUB,
    "parts that an agent does not accept are refused with an error of the hub",
    only=GATEWAY,
)
def _(speaker: Speaker) -> None:
    image = {"type": "image", "content": {"mimeType": "image/png", "data": "dGNr"}}
    reply = speaker.client.request("POST", f"/agents/{agent_of(speaker)}/messages", {"message": [image]})

    assert (reply.status, reply.json["error"]["code"]) == (415, "INVALID_REQUEST")
    assert "image/png" in reply.json["error"]["message"]


@row("gateway-hub", BOTH, HUB, "a message sent by the hub is read in A2A", only=GATEWAY)
def _(speaker: Speaker) -> None:
    body = {"message": [{"type": "text", "content": "tell me"}]}
    reply = speaker.client.request("POST", f"/agents/{agent_of(speaker)}/messages", body)

    assert reply.status == 202
    if isinstance(speaker, Rest03):
        speaker.names_version = True
    assert speaker.get(reply.json["taskId"]).history[:1] == ["tell me"]


def agent_of(speaker: Speaker) -> str:
    return speaker.mount.split("/")[2]
