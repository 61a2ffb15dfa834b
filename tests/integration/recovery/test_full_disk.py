"""A disk that is full: whoever sends is told, nothing is half there, and once there is room everything goes on.

Nothing is started again in between: one host with a real program, and a gateway with an agent of its own, live through
all of it.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import uuid
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from tests.conformance.real_gateway import RunningGateway, gateway, new_key
from tests.integration.chaos.house import LINE_RULES, House, RunningHost, nonces, open_house, status_of, steps_of
from tests.integration.recovery.journal_file import all_tasks, is_whole
from tests.integration.recovery.small_disk import SmallDisk, small_disk
from tests.integration.waiting import until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="needs limits that others can set"),
]

Sent = tuple[int, Any]
"""The status and the body of an answer."""


@dataclass(frozen=True)
class Scene:
    """Who lives on the small disk."""

    house: House
    disk: SmallDisk
    host: RunningHost
    gateway: RunningGateway
    key: str

    @contextmanager
    def full_disk(self) -> Generator[None]:
        with self.disk.full(self.host.process.pid, self.gateway.process.pid):
            yield

    def ask(self, path: str, body: object, **headers: str) -> Sent:
        reply = self.gateway.ask("POST", path, body, key=self.key, **headers)
        return reply.status, reply.json

    def signal_program(self, number: signal.Signals) -> None:
        os.kill(self.host.entry.cli_pid, number)

    def state(self) -> str:
        return str(self.host.get("/status").body["state"])

    def received(self, nonce: str) -> int:
        return sum(nonces(one.text).count(nonce) for one in self.house.received("recorder"))


@pytest.fixture(scope="module")
def scene() -> Generator[Scene]:
    with open_house() as house, small_disk(house.home) as disk:
        house.environment["SYNAPSE_ATTENTION_AFTER"] = "0.5"
        # It works until it is told to stop, so nothing here depends on who is quick.
        house.add_profile("recorder", LINE_RULES, "line_recorder", "--works", "3600")
        host = house.start("recorder", name="victim")
        with gateway(house.home) as served:
            yield Scene(house, disk, host, served, new_key(house.home, "laptop"))
        house.close()


def new_message() -> tuple[str, str]:
    return uuid.uuid4().hex, f"<<{uuid.uuid4().hex[:12]}>>"


def by_host(scene: Scene, message_id: str, text: str) -> Sent:
    answer = scene.host.send(text, message_id=message_id)
    return answer.status, answer.body


def by_supervisor(scene: Scene, _message_id: str, text: str) -> Sent:
    return scene.ask("/agents/tck/v1/message:send", {"message": {"content": text, "role": "user"}})


def by_hub(scene: Scene, _message_id: str, text: str) -> Sent:
    return scene.ask("/agents/tck/messages", {"message": [{"type": "text", "content": text}]})


def by_rest(scene: Scene, message_id: str, text: str) -> Sent:
    message = {"messageId": message_id, "role": "ROLE_USER", "parts": [{"text": text}]}
    return scene.ask("/agents/tck/v1/message:send", {"message": message}, A2A_Version="1.0")


def by_rest_through_the_gateway(scene: Scene, message_id: str, text: str) -> Sent:
    message = {"messageId": message_id, "role": "ROLE_USER", "parts": [{"text": text}]}
    sent = {"message": message, "configuration": {"returnImmediately": True}}
    return scene.ask("/agents/victim/v1/message:send", sent, A2A_Version="1.0")


def by_jsonrpc(scene: Scene, message_id: str, text: str) -> Sent:
    message = {"messageId": message_id, "role": "ROLE_USER", "parts": [{"text": text}]}
    call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    return scene.ask("/agents/tck", call, A2A_Version="1.0")


def by_former_jsonrpc(scene: Scene, message_id: str, text: str) -> Sent:
    parts = [{"kind": "text", "text": text}]
    message = {"kind": "message", "messageId": message_id, "role": "user", "parts": parts}
    call = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": message}}
    return scene.ask("/agents/tck", call)


def host_says(body: Any) -> bool:
    return body["error"]["code"] in ("store_full", "store_failed") and "df -h" in body["error"]["hint"]


def rpc_says(body: Any) -> bool:
    return body["error"]["code"] == -32603 and "try again" in json.dumps(body["error"]["data"])


WAYS: list[tuple[Callable[[Scene, str, str], Sent], int, Callable[[Any], bool]]] = [
    (by_host, 503, host_says),
    (by_supervisor, 500, rpc_says),
    (by_hub, 503, lambda body: body["error"]["code"] == "INTERNAL_SERVER_ERROR"),
    (by_rest, 503, lambda body: body["error"]["status"] == "UNAVAILABLE"),
    (by_rest_through_the_gateway, 503, lambda body: body["error"]["status"] == "UNAVAILABLE"),
    (by_jsonrpc, 200, rpc_says),
    (by_former_jsonrpc, 200, rpc_says),
]


def test_whoever_sends_is_told_in_their_own_words_and_may_send_the_same_again(scene: Scene) -> None:
    messages = [(*way, *new_message()) for way in WAYS]
    with scene.full_disk():
        for send, status, says, message_id, text in messages:
            got, body = send(scene, message_id, text)
            assert (got, says(body)) == (status, True), (send.__name__, got, body)
            # Only who is on this machine is told where it keeps its files.
            assert send is by_host or str(scene.house.home) not in json.dumps(body)
            assert "Traceback" not in json.dumps(body)
        refused = scene.house.synapse("send", "victim", "by hand")
        assert (refused.code, "df -h" in refused.err) == (1, True), refused

    # The same message ids: had anything been left, it would be found instead.
    for send, _, _, message_id, text in messages:
        got, body = send(scene, message_id, text)
        assert got in (200, 201, 202), (send.__name__, got, body)
        assert "error" not in body, (send.__name__, body)
    texts = [task.message.text for task in all_tasks(copied(scene, "first"))]
    assert sorted(text for text in texts if "<<" in text) == sorted(text for *_, text in messages)
    finish_what_runs(scene)


def test_a_message_that_waits_is_not_typed_before_there_is_room_for_the_intent(scene: Scene) -> None:
    _, text = new_message()
    scene.signal_program(signal.SIGUSR1)
    until(lambda: scene.state() == "waiting", "the dialog")
    task_id = scene.host.accepted(text)
    with scene.full_disk():
        scene.signal_program(signal.SIGUSR2)
        until(lambda: current(scene) == task_id, "its turn to begin")
        for _ in range(3):
            assert by_host(scene, *new_message())[0] == 503
        assert steps_of(scene.host.task(task_id)) == ["queued"]
        assert scene.received(text[2:-2]) == 0
        until(lambda: held(scene).get("overdue") is True, "the reason", lambda: scene.host.get("/status").body)
        assert (held(scene)["reason"], held(scene)["task_id"]) == ("store", task_id)
        assert "held: the store cannot be written" in scene.house.synapse("list").out
        for told in (scene.house.synapse("status", "victim").out, scene.house.synapse("approvals").out):
            assert "the store cannot be written" in told
            assert "df -h" in told

    scene.host.wait_for(task_id, lambda task: "turn_started" in steps_of(task), "the work to begin")
    assert held(scene) == {}
    finish_what_runs(scene)
    assert status_of(scene.host.task(task_id)) == "completed"
    assert scene.received(text[2:-2]) == 1


def test_an_answer_that_came_while_the_disk_was_full_is_not_lost(scene: Scene) -> None:
    (_, first), (_, second) = new_message(), new_message()
    tasks = [scene.host.accepted(first), scene.host.accepted(second)]
    scene.host.wait_for(tasks[0], lambda task: "turn_started" in steps_of(task), "the work to begin")
    with scene.full_disk():
        end_work_until(scene, lambda: scene.state() == "ready")
        for _ in range(3):
            assert by_host(scene, *new_message())[0] == 503
        assert [status_of(scene.host.task(task_id)) for task_id in tasks] == ["working", "submitted"]
        assert scene.received(second[2:-2]) == 0

    ended = scene.host.finished(tasks[0])
    assert "interrupted" in json.dumps(ended["artifacts"])
    finish_what_runs(scene)
    assert status_of(scene.host.task(tasks[1])) == "completed"
    assert [scene.received(one[2:-2]) for one in (first, second)] == [1, 1]


def test_nobody_ended_nothing_was_printed_where_a_person_looks_and_the_store_is_whole(scene: Scene) -> None:
    with scene.full_disk():
        assert by_host(scene, *new_message())[0] == 503
    assert by_host(scene, *new_message())[0] == 200
    finish_what_runs(scene)

    assert (scene.host.process.poll(), scene.gateway.process.poll()) == (None, None)
    scene.host.stop()  # all that it has to say is in its log then; nobody needs it behind this
    assert "Traceback" not in (scene.house.folder / "victim.out").read_text(encoding="utf-8")
    log = (scene.house.home / "logs" / "victim.log").read_text(encoding="utf-8")
    assert "store_failed" in [json.loads(line)["event"] for line in log.splitlines()]
    is_whole(copied(scene, "last"))


def held(scene: Scene) -> dict[str, Any]:
    return scene.host.get("/status").body["held"] or {}


def current(scene: Scene) -> str:
    running = scene.host.get("/status").body["current_task"]
    return str(running["id"]) if running else ""


def end_work_until(scene: Scene, condition: Callable[[], bool]) -> None:
    def holds() -> bool:
        # At its prompt the program takes no notice, so nobody has to know whether it works already.
        scene.signal_program(signal.SIGINT)
        return condition()

    until(holds, "the end of the work", lambda: scene.host.get("/status").body)


def finish_what_runs(scene: Scene) -> None:
    # In this order: what is taken from the queue in between is seen to run.
    end_work_until(scene, lambda: not scene.host.get("/queue").body["tasks"] and not current(scene))


def copied(scene: Scene, name: str) -> Any:
    """The store as it is now, where there is room: opening it makes a file."""
    folder = scene.house.folder / name
    folder.mkdir()
    for file in scene.house.home.glob("store.db*"):
        shutil.copy(file, folder / file.name)
    return folder / "store.db"
