"""The hub contract over the wire: a real gateway with keys, plain HTTP, and a real WebSocket client."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from tests.conformance.hub_rows import MESSAGE, PIECES, SOCKET_MESSAGE, STREAMED
from tests.conformance.real_gateway import RunningGateway, gateway, new_key
from tests.conformance.real_hosts import COMMAND, PATIENCE, ROOT, environ
from tests.conformance.wire_client import Event, Reply
from tests.integration.waiting import until

pytestmark = pytest.mark.integration

AGENT = "weather-agent"
MESSAGES = f"/agents/{AGENT}/messages"
CONFIG = f"""
[[agents]]
id = "{AGENT}"
driver = "scripted"
script = "{ROOT / "docs" / "examples" / "weather.toml"}"
"""
BOUND = 20.0
Frame = dict[str, Any]


@dataclass(frozen=True)
class Hub:
    """A gateway with one agent, and the keys of two callers."""

    gateway: RunningGateway
    laptop: str
    phone: str

    def ask(self, method: str, path: str, body: object = None, *, key: str = "", **headers: str) -> Reply:
        sent = body.encode() if isinstance(body, str) else body
        return self.gateway.ask(method, path, sent, key=key or self.laptop, **headers)

    def send(self, text: str, **more: Any) -> Frame:
        reply = self.ask("POST", MESSAGES, {"message": [{"type": "text", "content": text}], **more})
        assert reply.status == 202, reply.body
        answer: Frame = reply.json
        return answer

    def task(self, task_id: str) -> Frame:
        task: Frame = self.ask("GET", f"/tasks/{task_id}").json
        return task

    def done(self, task_id: str) -> Frame:
        def ended() -> Frame | None:
            task = self.task(task_id)
            return task if task["state"] in ("completed", "failed") else None

        task: Frame = until(ended, "the end of the task")
        return task

    @contextmanager
    def socket(self, *, ticket: str = "") -> Generator[ClientConnection]:
        headers = {} if ticket else {"Authorization": f"Bearer {self.laptop}"}
        query = f"?ticket={ticket}" if ticket else ""
        url = f"ws://localhost:{self.gateway.entry.port}/ws{query}"
        with connect(url, additional_headers=headers, open_timeout=BOUND) as socket:
            yield socket


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    home = tmp_path_factory.mktemp("hub")
    with gateway(home, CONFIG) as running:
        yield Hub(running, new_key(home, "laptop"), new_key(home, "phone", "--actions", "read"))


def read(socket: ClientConnection) -> Frame:
    frame: Frame = json.loads(socket.recv(timeout=BOUND))
    return frame


def told_after(socket: ClientConnection, frame: str) -> Frame:
    socket.send(frame)
    return read(socket)


def until_end(socket: ClientConnection, count: int = 1) -> list[Frame]:
    frames: list[Frame] = []
    while sum(frame["type"] in ("task.completed", "task.failed") for frame in frames) < count:
        frames.append(read(socket))
    return frames


def events_in(reply: Reply) -> list[Event]:
    assert reply.headers["content-type"] == "text/event-stream"
    fields = [dict(line.split(": ", 1) for line in block.splitlines()) for block in reply.body.decode().split("\n\n")]
    return [Event(one["id"], one["event"], json.loads(one["data"])) for one in fields if one]


def test_agents_are_shown_by_their_cards(hub: Hub) -> None:
    (card,) = hub.ask("GET", "/agents").json["agents"]

    assert card == hub.ask("GET", f"/agents/{AGENT}").json
    assert list(card)[:5] == ["id", "name", "description", "version", "capabilities"]
    assert card["id"] == AGENT
    assert all(isinstance(word, str) for word in card["capabilities"])
    assert set(card["auth"]) == {"type", "description"}


def test_the_example_message_is_accepted_and_its_task_has_the_answer(hub: Hub) -> None:
    reply = hub.ask("POST", MESSAGES, MESSAGE)
    assert (reply.status, list(reply.json)) == (202, ["taskId", "messageId"])

    task = hub.done(reply.json["taskId"])

    assert list(task) == ["id", "agentId", "state", "createdAt", "updatedAt", "userId", "artifacts"]
    assert (task["agentId"], task["state"], task["userId"]) == (AGENT, "completed", "laptop")
    assert task["artifacts"] == [{"type": "message", "content": [{"type": "text", "content": "".join(PIECES)}]}]
    message = hub.ask("GET", f"/messages/{reply.json['messageId']}").json
    assert message == {
        "messageId": reply.json["messageId"],
        "taskId": task["id"],
        "agentId": AGENT,
        "role": "user",
        "message": json.loads(MESSAGE)["message"],
    }


def test_the_example_stream_comes_in_pieces_and_completes(hub: Hub) -> None:
    *pieces, last = events_in(hub.ask("POST", MESSAGES, STREAMED))

    assert [(event.name, event.data) for event in pieces] == [
        ("update", {"type": "partial", "content": piece}) for piece in PIECES
    ]
    assert (last.name, list(last.data)) == ("complete", ["taskId"])


def test_a_broken_stream_is_resumed_after_its_last_event_by_either_request(hub: Hub) -> None:
    events = events_in(hub.ask("POST", MESSAGES, STREAMED))
    task_id = events[-1].data["taskId"]
    for cut, event in enumerate(events[:-1]):
        again = events_in(hub.ask("POST", MESSAGES, STREAMED, Last_Event_ID=event.id))
        by_get = events_in(
            hub.ask("GET", f"/tasks/{task_id}", Last_Event_ID=event.id, Accept="text/event-stream"),
        )
        assert again == by_get == events[cut + 1 :]
    assert hub.ask("GET", "/tasks?limit=1").json["tasks"][0]["id"] == task_id, "no second task was made"


def test_a_failure_is_reported_inside_the_stream(hub: Hub) -> None:
    body = {"message": [{"type": "text", "content": "a storm"}], "stream": True}
    (event,) = events_in(hub.ask("POST", MESSAGES, body))

    assert event.name == "error"
    assert event.data["error"]["code"] == "AGENT_EXECUTION_ERROR"
    assert event.data["error"]["message"] == "the window broke"
    assert hub.task(event.data["error"]["details"]["taskId"])["state"] == "failed"


def test_the_example_conversation_on_the_websocket(hub: Hub) -> None:
    with hub.socket() as socket:
        socket.send(SOCKET_MESSAGE)
        created, *between, last = until_end(socket)

    assert list(created) == ["type", "taskId", "messageId", "seq"]
    assert created["type"] == "task.created"
    assert {frame["type"] for frame in between} == {"task.updated"}
    assert between[0]["task"]["state"] == "in_progress"
    assert [list(frame) for frame in (*between, last)] == [["type", "task", "seq"]] * (len(between) + 1)
    assert last["type"] == "task.completed"
    assert last["task"] == hub.task(created["taskId"])
    seqs = [frame["seq"] for frame in (created, *between, last)]
    assert seqs == sorted(set(seqs))


def test_several_tasks_on_one_socket_and_one_that_fails(hub: Hub) -> None:
    with hub.socket() as socket:
        for text in ("one", "a storm", "three"):
            message = [{"type": "text", "content": text}]
            socket.send(json.dumps({"type": "message", "agentId": AGENT, "message": message, "messageId": f"m-{text}"}))
        frames = until_end(socket, 3)

    assert [frame["type"] for frame in frames].count("task.created") == 3
    (failed,) = [frame["task"] for frame in frames if frame["type"] == "task.failed"]
    assert failed["error"] == {
        "code": "AGENT_EXECUTION_ERROR",
        "message": "the window broke",
        "details": {"reason": "scripted"},
    }


def test_a_lost_connection_is_resumed_after_the_last_seq(hub: Hub) -> None:
    with hub.socket() as socket:
        socket.send(SOCKET_MESSAGE)
        whole = until_end(socket)
    task_id = whole[0]["taskId"]
    with hub.socket() as socket:
        socket.send(json.dumps({"type": "subscribe", "taskId": task_id, "after": whole[1]["seq"]}))
        rest = until_end(socket)
        socket.send(json.dumps({"type": "subscribe", "taskId": f"{AGENT}:{task_id}"}))
        now = read(socket)

    assert rest == whole[2:]
    assert (now["type"], now["task"], now["seq"]) == ("task.completed", whole[-1]["task"], whole[-1]["seq"])


def test_a_socket_needs_credentials_at_its_handshake(hub: Hub) -> None:
    port = hub.gateway.entry.port
    for url, headers in (
        (f"ws://localhost:{port}/ws", {}),
        (f"ws://localhost:{port}/ws", {"Authorization": "Bearer wrong"}),
        (f"ws://localhost:{port}/ws?ticket=wrong", {}),
    ):
        with pytest.raises(InvalidStatus) as refused:
            connect(url, additional_headers=headers, open_timeout=BOUND)
        assert refused.value.response.status_code == 401
        assert json.loads(refused.value.response.body)["error"]["code"] == "AUTHENTICATION_ERROR"


def test_a_ticket_admits_its_caller_to_one_socket(hub: Hub) -> None:
    reply = hub.ask("POST", "/ws/ticket", key=hub.phone)
    assert (reply.status, list(reply.json), reply.headers["cache-control"]) == (
        201,
        ["ticket", "expiresAt"],
        "no-store",
    )
    ticket = reply.json["ticket"]
    with hub.socket(ticket=ticket) as socket:
        socket.send(SOCKET_MESSAGE)
        assert read(socket)["error"]["code"] == "AUTHORIZATION_ERROR", "the phone may only read"
    with pytest.raises(InvalidStatus) as used, hub.socket(ticket=ticket):
        pass
    assert used.value.response.status_code == 401
    assert hub.gateway.ask("POST", "/ws/ticket").status == 401


def test_a_revoked_key_is_refused_on_an_open_socket(hub: Hub) -> None:
    home = hub.gateway.home
    headers = {"Authorization": f"Bearer {new_key(home, 'lost')}"}
    with connect(f"ws://localhost:{hub.gateway.entry.port}/ws", additional_headers=headers) as socket:
        assert told_after(socket, '{"type": "ping"}')["type"] == "pong"
        revoke = [*COMMAND, "keys", "revoke", "lost"]
        subprocess.run(revoke, env=environ(home), cwd=home, check=True, capture_output=True, timeout=PATIENCE)
        with pytest.raises(ConnectionClosed) as closed:
            told_after(socket, SOCKET_MESSAGE)

    assert closed.value.rcvd is not None
    assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (1008, "credentials_refused")


def test_hostile_frames_get_an_error_or_a_clean_close(hub: Hub) -> None:
    with hub.socket() as socket:
        for frame in ("not JSON", b"\x00\x01", "{}", '{"type": "dance"}', "[" * 50_000, '"\\ud800"', "null"):
            socket.send(frame)
            told = read(socket)
            assert (told["type"], told["error"]["code"]) == ("error", "INVALID_REQUEST"), frame[:20]
        socket.send('{"type": "message", "agentId": "nobody", "message": [{"type": "text", "content": "x"}]}')
        assert read(socket)["error"]["code"] == "AGENT_NOT_FOUND"
        socket.send('{"type": "subscribe", "taskId": "nothing"}')
        assert read(socket)["error"]["code"] == "TASK_NOT_FOUND"
        socket.send('{"type": "ping"}')
        assert read(socket)["type"] == "pong"
        with pytest.raises(ConnectionClosed) as closed:
            told_after(socket, "x" * 50_000_000)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009
    assert hub.ask("GET", "/agents").status == 200


def test_put_changes_only_metadata_and_final_states(hub: Hub) -> None:
    task_id = hub.send("wait for me", metadata={"colour": "red"})["taskId"]
    until(lambda: hub.task(task_id)["state"] == "in_progress", "the start of the task")

    changed = hub.ask("PUT", f"/tasks/{task_id}", {"metadata": {"colour": "blue"}})
    refused = hub.ask("PUT", f"/tasks/{task_id}", {"state": "pending"})
    unknown = hub.ask("PUT", f"/tasks/{task_id}", {"state": "dancing"})
    whole = hub.ask("PUT", f"/tasks/{task_id}", hub.task(task_id))
    forbidden = hub.ask("PUT", f"/tasks/{task_id}", {"state": "failed"}, key=hub.phone)
    ended = hub.ask("PUT", f"/tasks/{AGENT}:{task_id}", {"state": "completed"})
    late = hub.ask("PUT", f"/tasks/{task_id}", {"state": "in_progress"})

    assert (changed.status, changed.json["metadata"]) == (200, {"colour": "blue"})
    assert (refused.status, refused.code) == (409, "INVALID_REQUEST")
    assert (unknown.status, unknown.code) == (400, "INVALID_REQUEST")
    assert (whole.status, whole.json["state"]) == (200, "in_progress")
    assert (forbidden.status, forbidden.code) == (403, "AUTHORIZATION_ERROR")
    assert (ended.status, ended.json["state"]) == (200, "completed")
    assert (late.status, late.code) == (409, "INVALID_REQUEST")
    assert hub.done(hub.send("next")["taskId"])["state"] == "completed", "the agent was stopped, and goes on"


def test_a_deleted_task_is_canceled_and_gone_from_all_views(hub: Hub) -> None:
    sent = hub.send("wait again")
    task_id = sent["taskId"]
    until(lambda: hub.task(task_id)["state"] == "in_progress", "the start of the task")
    with hub.socket() as socket:
        socket.send(json.dumps({"type": "subscribe", "taskId": task_id}))
        read(socket)
        assert hub.ask("DELETE", f"/tasks/{task_id}", key=hub.phone).status == 403
        deleted = hub.ask("DELETE", f"/tasks/{task_id}")
        (last,) = until_end(socket)

    assert (deleted.status, deleted.body) == (204, b"")
    assert (last["type"], last["task"]["error"]["code"]) == ("task.failed", "TASK_CANCELLED")
    for reply in (
        hub.ask("GET", f"/tasks/{task_id}"),
        hub.ask("PUT", f"/tasks/{task_id}", {"metadata": {}}),
        hub.ask("DELETE", f"/tasks/{task_id}"),
        hub.ask("GET", f"/messages/{sent['messageId']}"),
        hub.ask("GET", f"/agents/{AGENT}/v1/tasks/{task_id}"),
        hub.ask("GET", f"/agents/{AGENT}/v1/tasks/{task_id}", A2A_Version="1.0"),
        hub.ask("GET", f"/agents/{AGENT}/v1/tasks/{task_id}", A2A_Version="0.3"),
    ):
        assert reply.status == 404, reply.body
    for path in ("/tasks", f"/agents/{AGENT}/v1/tasks"):
        assert task_id not in hub.ask("GET", path).body.decode()


def test_subtasks_and_callers_are_found_by_their_parent_and_name(hub: Hub) -> None:
    parent = hub.send("parent")["taskId"]
    child = hub.send("child", parentId=parent)["taskId"]
    assert hub.done(child)["parentId"] == parent

    def found(query: str, key: str = "") -> list[str]:
        return [task["id"] for task in hub.ask("GET", f"/tasks?{query}", key=key).json["tasks"]]

    assert found(f"parentId={parent}") == [child]
    assert child in found("userId=laptop")
    assert found("userId=phone") == []
    assert found("", key=hub.phone) == []
    assert hub.ask("GET", f"/tasks/{child}", key=hub.phone).status == 404
    body = {"message": [{"type": "text", "content": "x"}], "parentId": "no-such"}
    assert hub.ask("POST", MESSAGES, body).code == "INVALID_REQUEST"


def test_lists_come_in_pages(hub: Hub) -> None:
    sent = {hub.done(hub.send(f"page {number}")["taskId"])["id"] for number in range(3)}
    seen: list[str] = []
    cursor = ""
    while True:
        page = hub.ask("GET", f"/tasks?agentId={AGENT}&state=completed&limit=2&cursor={cursor}").json
        seen += [task["id"] for task in page["tasks"]]
        cursor = page["nextCursor"]
        if cursor is None:
            break

    assert len(seen) == len(set(seen))
    assert sent <= set(seen)


def test_synapse_watch_shows_the_events_of_the_hub(hub: Hub) -> None:
    home = hub.gateway.home
    watching = subprocess.Popen(
        [*COMMAND, "watch", "--agent", AGENT, "--json"],
        env=environ(home),
        cwd=home,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    assert watching.stdout is not None
    assert watching.stderr is not None
    try:
        assert "Watching" in watching.stderr.readline()
        task_id = hub.send("the weather, please")["taskId"]
        told: list[Frame] = []
        while not told or told[-1]["task"]["status"] != "completed":
            told.append(json.loads(watching.stdout.readline()))
    finally:
        watching.send_signal(signal.SIGINT)
        watching.communicate(timeout=PATIENCE)
    assert watching.returncode == 130
    assert {one["agent"] for one in told} == {AGENT}
    assert {one["task"]["id"] for one in told} == {task_id}
    words = [one["event"]["type"] for one in told]
    assert (words[0], words[-1], words.count("artifact_added")) == ("task_opened", "state_changed", 3)
