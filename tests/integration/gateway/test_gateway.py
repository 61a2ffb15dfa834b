"""A real gateway with real hosts: keys, scopes, agents that come and go, and every kind of request."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.real_gateway import IN_PROCESS, RunningGateway, gateway, new_key
from tests.conformance.real_hosts import COMMAND, EXTENSIONS, PATIENCE, environ, scripted_host
from tests.conformance.wire_client import WireClient
from tests.integration.waiting import until

pytestmark = pytest.mark.integration

KEPT = """
[[agents]]
id = "ada"
profile = "dummy"
instructions = false
"""


@dataclass(frozen=True)
class Served:
    """A gateway before a scripted host, an in-process agent and an agent that it starts; and two callers."""

    gateway: RunningGateway
    laptop: str
    phone: str

    def send(self, agent: str, text: str, *, key: str = "", cue: str = "", **configuration: Any) -> Any:
        """A message in the supervisor's words, or with a cue in those of A2A 1.0; the answer's body."""
        if cue:
            message: dict[str, Any] = {"messageId": cue, "role": "ROLE_USER", "parts": [{"text": text}]}
            version = {"A2A_Version": "1.0"}
        else:
            message, version = {"content": text, "role": "user"}, {}
        reply = self.gateway.ask(
            "POST",
            f"/agents/{agent}/v1/message:send",
            {"message": message, "configuration": configuration},
            key=key or self.laptop,
            **version,
        )
        assert reply.status == 200, reply.body
        return reply.json

    def read(self, path: str, key: str = "", method: str = "GET", **headers: str) -> Any:
        return self.gateway.ask(method, path, key=key or self.laptop, **headers)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("g")
    with scripted_host(home, name="conf"), gateway(home, IN_PROCESS + KEPT) as running:
        laptop, phone = new_key(home, "laptop", "--actions", "all"), new_key(home, "phone")
        with closing(WireClient(running.entry.port).connection()):
            yield Served(running, laptop, phone)


def listed(served: Served) -> set[str]:
    return {agent["id"] for agent in served.read("/agents/list.json").json["agents"]}


def test_a_request_without_a_key_is_refused(served: Served) -> None:
    for path in ("/agents/list.json", "/agents", "/agents/conf/v1/tasks", "/agents/conf/v1/card"):
        reply = served.gateway.ask("GET", path)
        assert reply.status == 401, path
        assert "Bearer" in reply.headers["www-authenticate"]


def test_an_agent_is_known_with_all_that_it_declares_from_its_first_request_on(served: Served) -> None:
    served.read("/agents/list.json")
    plan = "https://example.com/ext/plan/v1"
    message = {"messageId": "plan-1", "role": "ROLE_USER", "parts": [{"text": "hello"}]}
    with scripted_host(served.gateway.home, EXTENSIONS, name="planner"):
        first = served.gateway.ask(
            "POST",
            "/agents/planner/v1/message:send",
            {"message": message},
            key=served.laptop,
            A2A_Version="1.0",
            A2A_Extensions=plan,
        )

    assert (first.status, first.headers.get("a2a-extensions")) == (200, plan), first.body


@pytest.mark.parametrize("agent", ["conf", "tck", "ada"])
def test_each_kind_of_agent_answers_through_the_gateway(served: Served, agent: str) -> None:
    until(lambda: agent in listed(served), f"{agent} is here")
    task = served.send(agent, "hello", blocking=True)

    assert task["status"] == "succeeded"
    assert task["id"].startswith(f"{agent}:")
    assert "hello" in task["messages"][-1]["content"]
    again = served.read(f"/agents/{agent}/v1/tasks/{task['id']}").json
    assert again["id"] == task["id"]


def test_tasks_of_one_key_look_missing_to_another(served: Served) -> None:
    task = served.send("conf", "mine")["id"]
    for path in (f"/agents/conf/v1/tasks/{task}", f"/tasks/{task}"):
        assert served.read(path).status == 200
        foreign, unknown = served.read(path, served.phone), served.read(path.replace(task, "no-such"), served.phone)
        assert (foreign.status, unknown.status) == (404, 404)
        assert foreign.body.replace(task.removeprefix("conf:").encode(), b"") == unknown.body.replace(b"no-such", b"")
    cancel = served.read(f"/agents/conf/v1/tasks/{task}:cancel", served.phone, "POST")
    assert cancel.status == 404


def test_a_task_is_shown_in_every_dialect_under_the_same_id(served: Served) -> None:
    made = served.send("conf", "hello", cue="views-1")["task"]["id"]
    current = served.read(f"/agents/conf/v1/tasks/{made}", A2A_Version="1.0").json
    former = served.read(f"/agents/conf/v1/tasks/{made}", A2A_Version="0.3").json
    hub = served.read(f"/tasks/{made}").json
    assert (current["id"], former["id"], hub["id"]) == (made, made, made)
    assert (hub["agentId"], hub["state"]) == ("conf", "completed")


def test_a_running_task_is_canceled_and_its_followers_see_the_end(served: Served) -> None:
    task = served.send("conf", "wait", cue="tck-cancel-g1", returnImmediately=True)["task"]["id"]
    followers = [Follower(served, "conf", task) for _ in range(20)]
    for follower in followers:
        follower.joined.wait(PATIENCE)

    canceled = served.read(f"/agents/conf/v1/tasks/{task}:cancel", method="POST", A2A_Version="1.0").json

    assert canceled["status"]["state"] == "TASK_STATE_CANCELED"
    ids = [follower.ended() for follower in followers]
    # A follower that joined later began later; from there on all have seen equal events.
    whole = max(ids, key=len)
    assert all(len(seen) >= 2 and seen[1:] == whole[-len(seen) + 1 :] for seen in ids), ids


def test_the_streams_of_a_revoked_key_end(served: Served) -> None:
    home = served.gateway.home
    guest = new_key(home, "guest")
    # It waits for input, so that it neither ends nor blocks the queue.
    task = served.send("tck", "hello", key=guest, cue="tck-input-required-revoked")["task"]["id"]
    with closing(WireClient(served.gateway.entry.port).connection()) as connection:
        connection.sock.settimeout(PATIENCE)
        path = f"/agents/tck/v1/tasks/{task}:subscribe"
        connection.request("POST", path, headers={"Authorization": f"Bearer {guest}", "A2A-Version": "1.0"})
        stream = connection.getresponse()
        assert stream.readline().startswith(b"id: ")

        revoke = [*COMMAND, "keys", "revoke", "guest"]
        subprocess.run(revoke, env=environ(home), cwd=home, check=True, capture_output=True, timeout=PATIENCE)

        deadline = time.monotonic() + PATIENCE
        told: list[bytes] = []
        while (line := stream.readline()) and time.monotonic() < deadline:
            told.append(line)
        assert line == b""
        assert b"no longer valid" in b"".join(told)


class Follower:
    """Subscribes to a task in a thread; the ids of the events that it saw."""

    def __init__(self, served: Served, agent: str, task: str, after: str = "") -> None:
        self._served, self._path, self._after = served, f"/agents/{agent}/v1/tasks/{task}:subscribe", after
        self.seen: list[str] = []
        self.joined = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def ended(self) -> list[str]:
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        return self.seen

    def _follow(self) -> None:
        headers = {"Authorization": f"Bearer {self._served.laptop}", "A2A-Version": "1.0"}
        if self._after:
            headers["Last-Event-ID"] = self._after
        with closing(WireClient(self._served.gateway.entry.port).connection()) as connection:
            connection.request("POST", self._path, headers=headers)
            response = connection.getresponse()
            while line := response.readline():
                if line.startswith(b"id: "):
                    self.seen.append(line.decode().strip())
                    self.joined.set()


def test_a_stream_is_resumed_where_it_was(served: Served) -> None:
    task = served.send("conf", "go", cue="tck-stream-artifact-chunked-g2")["task"]["id"]
    whole = Follower(served, "conf", task, after="0").ended()
    middle = len(whole) // 2

    rest = Follower(served, "conf", task, after=whole[middle].removeprefix("id: ")).ended()

    assert len(whole) > 3
    assert rest == whole[middle + 1 :]


def test_an_agent_appears_disappears_and_leaves_its_tasks(served: Served) -> None:
    home = served.gateway.home
    with scripted_host(home, name="guest") as entry:
        until(lambda: "guest" in listed(served), "the guest is here")
        done = served.send("guest", "hello", blocking=True)["id"]
        # The script waits, so the second message stays in the queue.
        served.send("guest", "wait", cue="tck-cancel-g3", returnImmediately=True)
        queued = served.send("guest", "later")["id"]
        os.kill(entry.pid, signal.SIGKILL)
    until(lambda: "guest" not in listed(served), "the guest is gone")

    assert served.read(f"/agents/guest/v1/tasks/{done}").json["status"] == "succeeded"
    assert served.read("/agents/guest/v1/tasks").json["totalSize"] == 3
    refused = served.gateway.ask(
        "POST", "/agents/guest/v1/message:send", {"message": {"content": "x", "role": "user"}}, key=served.laptop
    )
    assert refused.status == 404
    assert b"does not run" in refused.body
    taken_back = served.read(f"/agents/guest/v1/tasks/{queued}:cancel", method="POST")
    assert taken_back.json["status"] == "cancelled"


def test_an_agent_that_the_gateway_starts_is_started_again(served: Served) -> None:
    def pid() -> int:
        for file in (served.gateway.home / "registry").glob("[!.]*.json"):
            fields = json.loads(file.read_text(encoding="utf-8"))
            if fields["name"] == "ada":
                return int(fields["pid"])
        return 0

    first = until(pid, "ada is here")
    os.kill(first, signal.SIGKILL)

    until(lambda: pid() not in (0, first), "ada is here again")
    until(lambda: "ada" in listed(served), "ada is listed again")
    assert served.send("ada", "again", blocking=True)["status"] == "succeeded"


def test_an_external_agent_is_registered_called_and_removed(served: Served) -> None:
    registry = served.gateway.home / "registry"
    entries = [json.loads(file.read_text(encoding="utf-8")) for file in registry.glob("[!.]*.json")]
    url = next(entry["endpoint"] for entry in entries if entry["name"] == "conf")

    made = served.gateway.ask("POST", "/agents", {"url": url, "id": "far"}, key=served.laptop)
    assert (made.status, made.json["id"]) == (201, "far")
    task = served.send("far", "hello", blocking=True)
    gone = served.gateway.ask("DELETE", "/agents/far", key=served.laptop)

    assert task["status"] == "succeeded"
    assert (gone.status, "far" in listed(served)) == (204, False)
    assert served.read(f"/agents/far/v1/tasks/{task['id']}").status == 200
    taken = served.gateway.ask("POST", "/agents", {"url": url, "id": "conf"}, key=served.laptop)
    assert taken.status >= 400


@pytest.mark.parametrize(
    ("url", "why"),
    [("http://169.254.169.254/latest", "is a link-local address"), ("http://localhost:1", "nothing listens at")],
)
def test_registering_an_address_without_an_agent_says_why_it_failed(served: Served, url: str, why: str) -> None:
    refused = served.gateway.ask("POST", "/agents", {"url": url, "id": "nobody"}, key=served.laptop)

    error = refused.json["error"]
    assert (refused.status, error["code"], error["message"]) == (400, -32602, "Invalid params")
    assert why in error["data"]
    assert "nobody" not in listed(served)


def test_in_process_agents_are_reached_by_this_users_commands(served: Served) -> None:
    home = served.gateway.home
    (tck,) = [one for one in json.loads(run(home, "list", "--json").stdout) if one["name"] == "tck"]
    answered = run(home, "send", "tck", "hello", "--response")

    assert (tck["gateway"], tck["status"]) == (served.gateway.entry.agent_id, "ready")
    assert answered.stdout.decode().strip() == "hello"
    assert run(home, "stop", "tck").returncode != 0
    # The gateway serves it once, and still serves the host beside it.
    assert served.send("tck", "hello", blocking=True)["status"] == "succeeded"
    assert served.send("conf", "hello", blocking=True)["status"] == "succeeded"


def test_a_running_gateway_notices_an_added_external_agent(served: Served) -> None:
    home = served.gateway.home
    conf = next(one for one in json.loads(run(home, "list", "--json").stdout) if one["name"] == "conf")
    assert run(home, "external", "add", conf["endpoint"], "--alias", "late").returncode == 0
    until(lambda: "late" in listed(served), "the gateway shows it")
    assert served.send("late", "hello", blocking=True)["status"] == "succeeded"
    assert run(home, "external", "remove", "late").returncode == 0


def test_this_user_needs_no_key_on_the_socket_and_sees_it_in_the_list(served: Served) -> None:
    entry = served.gateway.entry
    agents = WireClient(entry.port, entry.socket).request("GET", "/agents").json["agents"]
    assert {"conf", "tck"} <= {agent["id"] for agent in agents}

    shown = run(served.gateway.home, "list", "--json")
    (me,) = [one for one in json.loads(shown.stdout) if one["agent_type"] == "gateway"]
    assert (me["port"], me["status"]) == (entry.port, "ready")
    assert run(served.gateway.home, "logs", "gateway").returncode == 0


def test_a_port_has_one_gateway(served: Served) -> None:
    second = run(served.gateway.home, "gateway", "--port", str(served.gateway.entry.port))

    assert second.returncode != 0
    assert b"is taken" in second.stderr


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["--host", "0.0.0.0", "--no-auth"], b"without authentication"),
        (["--host", "0.0.0.0"], b"without TLS"),
        (["--config", "nowhere.toml"], b"does not exist"),
        (["--public-url", "nonsense"], b"is not an address"),
        (["--tls-cert", "nowhere.pem", "--tls-key", "nowhere.pem"], b"nowhere.pem cannot be read"),
    ],
)
def test_unsafe_and_contradicting_options_are_refused(tmp_path: Path, flags: list[str], why: bytes) -> None:
    refused = run(tmp_path, "gateway", "--port", "0", *flags)

    assert refused.returncode != 0
    assert why in refused.stderr


def test_a_gateway_in_the_background_is_started_and_stopped_and_ends_its_streams(tmp_path: Path) -> None:
    (tmp_path / "gateway.toml").write_text(IN_PROCESS, encoding="utf-8")
    started = run(tmp_path, "start", "gateway", "--port", "0", "--no-auth", "--json")
    assert started.returncode == 0, started.stderr
    entry = json.loads(started.stdout)
    message = {"messageId": "tck-cancel-bg", "role": "ROLE_USER", "parts": [{"text": "wait"}]}
    with closing(WireClient(entry["port"]).connection()) as connection:
        headers = {"Content-Type": "application/json", "A2A-Version": "1.0"}
        body = json.dumps({"message": message})
        connection.request("POST", "/agents/tck/v1/message:stream", body, headers)
        stream = connection.getresponse()
        assert stream.status == 200
        stream.readline()

        stopped = run(tmp_path, "stop", "gateway")

        assert stopped.returncode == 0, stopped.stderr
        stream.read()  # it ends as a whole, and is not cut off
    assert run(tmp_path, "list", "--json").stdout.strip() == b"[]"


def run(home: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*COMMAND, *arguments], env=environ(home), cwd=home, check=False, capture_output=True, timeout=PATIENCE
    )
