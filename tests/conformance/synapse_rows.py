"""Each clause of the two Synapse documents that is visible on the wire, as a row: id, source, sentence, check.

The rows do not know which server answers them: they get a client, and the address of another agent.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tests.conformance.wire_client import Reply, WireClient

README: Final = "synapse-readme.ja.md"
REFERENCE: Final = "synapse-protocol-reference.md"
READINGS: Final = "contracts/README.md"

TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
STATES: Final = {"submitted", "working", "completed", "failed", "input_required", "canceled"}
HELLO: Final[dict[str, Any]] = {"message": {"role": "user", "parts": [{"type": "text", "text": "Hello!"}]}}
STOP: Final[dict[str, Any]] = {"message": {"role": "user", "parts": [{"type": "text", "text": "Stop!"}]}}
SENDER: Final = {
    "sender_id": "synapse-claude-8100",
    "sender_type": "claude",
    "sender_endpoint": "http://localhost:8100",
}


@dataclass(frozen=True)
class Ground:
    """What a row needs: the host under test, and the address of another one."""

    host: WireClient
    other_url: str

    def task(self, reply: Reply) -> dict[str, Any]:
        """Returns the task in the answer to a sent message."""
        assert reply.status == 200, reply.body
        assert set(reply.json) == {"task"}
        task: dict[str, Any] = reply.json["task"]
        return task

    def send(self, body: dict[str, Any] = HELLO) -> dict[str, Any]:
        return self.task(self.host.request("POST", "/tasks/send", body))


@dataclass(frozen=True)
class Row:
    """One clause."""

    id: str
    source: str
    sentence: str
    check: Callable[[Ground], None]


ROWS: Final[list[Row]] = []


def row(id: str, source: str, sentence: str) -> Callable[[Callable[[Ground], None]], Callable[[Ground], None]]:  # noqa: A002 - its name in the table
    def add(check: Callable[[Ground], None]) -> Callable[[Ground], None]:
        ROWS.append(Row(id, source, sentence, check))
        return check

    return add


@row("send", README, "POST /tasks/send sends a message and answers with its task")
def _send(ground: Ground) -> None:
    task = ground.send()

    assert task["message"] == HELLO["message"]
    assert task["status"] in STATES


@row("send-reference", REFERENCE, "the curl line for Send Message works")
def _send_reference(ground: Ground) -> None:
    body = b'{"message": {"role": "user", "parts": [{"type": "text", "text": "Hello!"}]}}'

    assert ground.task(ground.host.request("POST", "/tasks/send", body))["message"] == HELLO["message"]


@row("send-priority", README, "POST /tasks/send-priority?priority=5 sends with that priority")
def _send_priority(ground: Ground) -> None:
    task = ground.task(ground.host.request("POST", "/tasks/send-priority?priority=5", STOP))

    assert task["message"] == STOP["message"]
    assert task["metadata"]["priority"] == 5


@row("priority-levels", REFERENCE, "priorities are 1 to 5; 3 is the default")
def _priority_levels(ground: Ground) -> None:
    for priority in (1, 2, 3, 4):
        task = ground.task(ground.host.request("POST", f"/tasks/send-priority?priority={priority}", HELLO))
        assert task["metadata"]["priority"] == priority
    task = ground.task(ground.host.request("POST", "/tasks/send-priority", HELLO))
    assert task["metadata"]["priority"] == 3
    assert ground.send()["metadata"]["priority"] == 3


@row("priority-range", REFERENCE, "another priority is refused")
def _priority_range(ground: Ground) -> None:
    for priority in ("0", "6", "high", "-1", "1.5"):
        reply = ground.host.request("POST", f"/tasks/send-priority?priority={priority}", HELLO)
        assert (reply.status, reply.code) == (400, "priority_out_of_range")


@row("create", REFERENCE, "POST /tasks/create makes a task without sending it to the PTY")
def _create(ground: Ground) -> None:
    task = ground.task(ground.host.request("POST", "/tasks/create", HELLO))

    assert task["status"] == "submitted"
    assert "receipt" not in task["metadata"]
    queue = ground.host.request("GET", "/queue").json["tasks"]
    assert task["id"] not in [waiting["id"] for waiting in queue]


@row("get", README, "GET /tasks/{id} answers with the task")
def _get(ground: Ground) -> None:
    sent = ground.send()

    reply = ground.host.request("GET", f"/tasks/{sent['id']}")

    assert reply.status == 200
    assert reply.headers["content-type"] == "application/json"
    assert reply.json["id"] == sent["id"]
    assert reply.json["message"] == HELLO["message"]


@row("get-short-id", REFERENCE, "short ids are understood by prefix match, full ids too")
def _get_short(ground: Ground) -> None:
    sent = ground.send()

    assert ground.host.request("GET", f"/tasks/{sent['id'][:8]}").json["id"] == sent["id"]


@row("get-unknown", REFERENCE, "an unknown task is a 404")
def _get_unknown(ground: Ground) -> None:
    reply = ground.host.request("GET", "/tasks/ffffffff-0000-4000-8000-000000000000")

    assert (reply.status, reply.code) == (404, "task_not_found")


@row("list", README, "GET /tasks lists the tasks")
def _list(ground: Ground) -> None:
    sent = ground.send({**HELLO, "context_id": "listed-together"})

    reply = ground.host.request("GET", "/tasks?context_id=listed-together&limit=1")

    assert reply.status == 200
    assert set(reply.json) == {"tasks", "next_cursor"}
    assert reply.json["tasks"][0]["id"] == sent["id"]


@row("cancel", README, "POST /tasks/{id}/cancel cancels a task; a finished one cannot be canceled")
def _cancel(ground: Ground) -> None:
    made = ground.task(ground.host.request("POST", "/tasks/create", HELLO))

    canceled = ground.task(ground.host.request("POST", f"/tasks/{made['id']}/cancel"))
    again = ground.host.request("POST", f"/tasks/{made['id']}/cancel")

    assert canceled["status"] == "canceled"
    assert (again.status, again.code) == (409, "task_not_cancelable")


@row("status", README, "GET /status says IDLE or BUSY")
def _status(ground: Ground) -> None:
    status = ground.host.request("GET", "/status").json

    assert status["status"] in {"IDLE", "BUSY"}
    assert status["state"] in {"starting", "ready", "working", "waiting", "exited"}
    assert status["port"] == ground.host.port
    assert {"agent_id", "agent_type", "current_task", "queue_depth", "why", "source", "since"} <= set(status)


@row("task-object", README, "a task has the fields of the example, each of its type")
def _task_object(ground: Ground) -> None:
    sent = ground.send({**HELLO, "context_id": "conversation-123", "metadata": {"sender": SENDER}})

    task = ground.host.request("GET", f"/tasks/{sent['id']}").json

    assert set(task) >= {
        "id",
        "context_id",
        "status",
        "message",
        "artifacts",
        "metadata",
        "created_at",
        "updated_at",
    }
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", task["id"])
    assert task["context_id"] == "conversation-123"
    assert task["status"] in STATES
    assert isinstance(task["artifacts"], list)


@row("times", READINGS, "times are RFC 3339, UTC, milliseconds, Z")
def _times(ground: Ground) -> None:
    task = ground.send()

    assert TIME.fullmatch(task["created_at"])
    assert TIME.fullmatch(task["updated_at"])
    assert TIME.fullmatch(ground.host.request("GET", "/status").json["since"])


@row("sender", README, "GET /tasks/{task_id} | jq '.metadata.sender' gives the three fields of the sender")
def _sender(ground: Ground) -> None:
    sent = ground.send({**HELLO, "metadata": {"sender": SENDER}})

    assert ground.host.request("GET", f"/tasks/{sent['id']}").json["metadata"]["sender"] == SENDER


@row("json-payload", REFERENCE, "the JSON payload with all metadata fields is understood")
def _json_payload(ground: Ground) -> None:
    metadata = {"sender": SENDER, "response_expected": True, "sender_task_id": "abc12345"}

    task = ground.send({**HELLO, "metadata": metadata})

    for key, value in metadata.items():
        assert task["metadata"][key] == value


@row("unknown-metadata", REFERENCE, "metadata that Synapse does not know is kept")
def _unknown_metadata(ground: Ground) -> None:
    task = ground.send({**HELLO, "metadata": {"customField": {"deep": [1, None, "あ"]}}})

    assert task["metadata"]["customField"] == {"deep": [1, None, "あ"]}


@row("parts", README, "text, file and data parts are taken and shown as in the example")
def _parts(ground: Ground) -> None:
    message = {
        "role": "user",
        "parts": [
            {"type": "text", "text": "メッセージ内容"},
            {"type": "file", "file": {"name": "doc.pdf", "mimeType": "application/pdf", "bytes": "JVBERi0xLjcK"}},
            {"type": "data", "data": {"key": ["value", 1, True, None]}},
        ],
    }

    made = ground.task(ground.host.request("POST", "/tasks/create", {"message": message}))

    assert ground.host.request("GET", f"/tasks/{made['id']}").json["message"] == message


@row("in-reply-to", REFERENCE, "in_reply_to answers the task that was created for it")
def _in_reply_to(ground: Ground) -> None:
    made = ground.task(ground.host.request("POST", "/tasks/create", HELLO))

    ground.send({**STOP, "metadata": {"in_reply_to": made["id"]}})

    answered = ground.host.request("GET", f"/tasks/{made['id']}").json
    assert answered["status"] == "completed"
    assert answered["artifacts"][-1]["parts"] == STOP["message"]["parts"]


@row("in-reply-to-unknown", REFERENCE, "a reply to a task that does not exist is a 404, for the failsafe")
def _in_reply_to_unknown(ground: Ground) -> None:
    reply = ground.host.request("POST", "/tasks/send", {**HELLO, "metadata": {"in_reply_to": "ffffffff"}})

    assert (reply.status, reply.code) == (404, "task_not_found")


@row("card", README, "/.well-known/agent.json is the agent card of the example")
def _card(ground: Ground) -> None:
    status = ground.host.request("GET", "/status").json
    card = ground.host.request("GET", "/.well-known/agent.json").json
    kind = status["agent_type"]
    # The agent of the example has no name.
    card["extensions"]["synapse"].pop("name", None)

    assert card == {
        "name": f"Synapse {kind.capitalize()}",
        "description": f"PTY-wrapped {kind} CLI agent with A2A communication",
        "url": f"http://localhost:{ground.host.port}",
        "capabilities": {"streaming": True, "pushNotifications": False, "multiTurn": True},
        "skills": [
            {"id": "chat", "name": "Chat", "description": "Send messages to the CLI agent"},
            {"id": "interrupt", "name": "Interrupt", "description": "Interrupt current processing"},
        ],
        "extensions": {
            "synapse": {
                "agent_id": status["agent_id"],
                "pty_wrapped": True,
                "priority_interrupt": True,
                "at_agent_syntax": True,
            }
        },
    }


@row("uds", REFERENCE, "the Unix socket is named {agent_id}.sock and serves the same as the port")
def _uds(ground: Ground) -> None:
    status = ground.host.request("GET", "/status").json

    assert status["socket"].endswith(f"/{status['agent_id']}.sock")
    assert status["endpoint"] == f"http://localhost:{ground.host.port}"


@row("external", README, "external agents are discovered, listed, sent to and removed")
def _external(ground: Ground) -> None:
    discovered = ground.host.request("POST", "/external/discover", {"url": ground.other_url, "alias": "row"})
    listed = ground.host.request("GET", "/external/agents")
    sent = ground.host.request("POST", "/external/agents/row/send", HELLO)
    removed = ground.host.request("DELETE", "/external/agents/row")
    missing = ground.host.request("DELETE", "/external/agents/row")

    assert (discovered.status, discovered.json["agent"]["url"]) == (200, ground.other_url)
    assert "row" in [agent["alias"] for agent in listed.json["agents"]]
    assert (sent.status, sent.json["answer"]["alias"]) == (200, "row")
    assert removed.status == 200
    assert (missing.status, missing.code) == (404, "external_agent_not_found")


@row("subscribe", READINGS, "a task is followed as a stream: a snapshot, then each event, until it ends")
def _subscribe(ground: Ground) -> None:
    made = ground.task(ground.host.request("POST", "/tasks/create", HELLO))

    with ground.host.follow(f"/tasks/{made['id']}/subscribe") as events:
        snapshot = next(events)
        ground.host.request("POST", f"/tasks/{made['id']}/cancel")
        rest = list(events)

    assert (snapshot.name, snapshot.data["task"]["id"]) == ("snapshot", made["id"])
    assert rest[-1].data["task"]["status"] == "canceled"
    assert "state_changed" in [event.name for event in rest]
    seqs = [int(event.id) for event in (snapshot, *rest)]
    assert seqs == sorted(set(seqs))


@row("subscribe-resumed", READINGS, "Last-Event-ID resumes a stream without a gap or a repeat")
def _subscribe_resumed(ground: Ground) -> None:
    made = ground.task(ground.host.request("POST", "/tasks/create", HELLO))
    with ground.host.follow(f"/tasks/{made['id']}/subscribe") as events:
        snapshot = next(events)
    ground.send({**STOP, "metadata": {"in_reply_to": made["id"]}})

    with ground.host.follow(f"/tasks/{made['id']}/subscribe", after=snapshot.id) as events:
        missed = list(events)
    with ground.host.follow(f"/tasks/{made['id']}/subscribe", after=missed[0].id) as events:
        again = list(events)

    assert "snapshot" not in [event.name for event in missed]
    assert missed[-1].data["task"]["status"] == "completed"
    assert again == missed[1:]


@row("errors", READINGS, "an error is one JSON object with a code, a sentence and a hint")
def _errors(ground: Ground) -> None:
    for reply in (
        ground.host.request("GET", "/nothing"),
        ground.host.request("POST", "/tasks/send", b"{"),
        ground.host.request("POST", "/tasks/send", {}),
        ground.host.request("PUT", "/tasks/send", HELLO),
        ground.host.request("POST", "/tasks/send", b"hello", {"Content-Type": "text/plain"}),
    ):
        assert 400 <= reply.status < 500
        assert reply.headers["content-type"] == "application/json"
        assert set(reply.json["error"]) == {"code", "message", "hint"}
        assert reply.json["error"]["hint"]
