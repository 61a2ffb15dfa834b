"""What each verb gives with `--json`, and its exit code, told by one long conversation with real agents.

Sentences for people, ids, times and numbers of the machine have names in the golden files. docs/reference/exit-codes.md
and errors.md (which tests/architecture compares) hold the table of exit codes; here the processes really end with them.
How to record anew: see golden.py.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from tests.integration.recorded.golden import Plain, check_json
from tests.integration.recorded.product import SCRIPT, Product, product, until, wire
from tests.samples.ports import own_port

pytestmark = pytest.mark.integration


class Talk:
    """Runs verbs, each with `--json`, and checks what they gave."""

    def __init__(self, synapse: Product, plain: Plain) -> None:
        self.synapse = synapse
        self.plain = plain

    def check(self, name: str, *arguments: str, **variables: str) -> Any:
        """Run a verb; the golden file is cli/json/NAME.json."""
        ran = self.synapse.run(*arguments, "--json", **variables)
        given = [json.loads(line) for line in ran.out.splitlines()]
        check_json(f"cli/json/{name}.json", {"exit code": ran.code, "given": self.plain.afresh().json(given)})
        return given[0] if given else None

    def asked(self, text: str) -> str:
        """Send a message and wait until the agent needs a person; return the task's id."""
        ran = self.synapse.run("send", "ada", text, "--response", "--exit-on-wait", "--json")
        assert ran.code == 6, ran
        return str(ran.json["task_id"])


@pytest.fixture(scope="module")
def synapse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    with product(tmp_path_factory.mktemp("j")) as made:
        yield made


@pytest.fixture(scope="module")
def ada(synapse: Product) -> dict[str, Any]:
    return synapse.start_agent("ada")


@pytest.fixture(scope="module")
def talk(synapse: Product, ada: dict[str, Any]) -> Talk:
    return Talk(synapse, synapse.plain(ada=ada))


def test_agents(talk: Talk) -> None:
    talk.check("list", "list")
    talk.check("status", "status", "ada")
    talk.check("status_explain", "status", "ada", "--explain")
    talk.check("queue", "queue", "ada")


def test_messages(talk: Talk) -> None:
    talk.check("send", "send", "ada", "hello")
    talk.check("send_response", "send", "ada", "report it", "--response", "--message-id", "m-1")
    talk.check("send_failed", "send", "ada", "fail it", "--response")
    talk.check("send_rejected", "send", "ada", "refuse it", "--response")
    busy = talk.synapse.run("send", "ada", "wait", "--wait", "submitted", "--json").json["task"]["id"]
    late = talk.check("send_timeout", "send", "ada", "hello", "--response", "--timeout", "0.2")
    talk.synapse.run("cancel", late["error"]["task_id"])
    waiting = talk.check("send_queued", "send", "ada", "ask behind", "--priority", "4")
    talk.check("queue_of_one", "queue", "ada")
    talk.check("cancel", "cancel", waiting["task"]["id"])
    talk.synapse.run("send", "ada", "later")
    talk.check("cancel_queue", "cancel", "--queue", "ada")
    talk.check("cancel_working", "cancel", busy)


def test_tasks(talk: Talk) -> None:
    done = talk.synapse.run("send", "ada", "tell me", "--response", "--json").json["task"]["id"]
    until(lambda: not talk.synapse.run("status", "ada", "--json").json["current_task"], "nothing else is going on")

    talk.check("tasks", "tasks", "ada", "--limit", "1")
    talk.check("status_of_task", "status", done)
    talk.check("watch", "watch", "--task", done)


def test_questions(talk: Talk) -> None:
    waiting = talk.check("send_needs_person", "send", "ada", "permit it", "--response", "--exit-on-wait")
    talk.check("approvals", "approvals")
    talk.check("status_waiting", "status", "ada")
    talk.check("approve", "approve", waiting["task_id"])
    talk.check("deny", "deny", talk.asked("permit it"))
    talk.check("answer", "answer", talk.asked("choose it"), "main")
    asked = talk.check("send_input_required", "send", "ada", "ask me", "--response")
    talk.check("approvals_input", "approvals")
    talk.check("send_to_task", "send", "ada", "the first", "--task", asked["task"]["id"], "--response")


def test_other_verbs(talk: Talk) -> None:
    talk.check("config", "config")
    talk.check("broadcast", "broadcast", "to all", "--all")
    talk.check("trust_list", "trust", "--list")
    (talk.synapse.home / "p" / ".synapse").mkdir(parents=True)
    talk.check("trust", "trust", str(talk.synapse.home / "p"))
    talk.check("reply", "reply", "yes")


def test_doctor(talk: Talk) -> None:
    ran = talk.synapse.run("doctor", "--json")

    # What else it finds depends on the machine.
    steady = {"version", "person", "dummy", "home", "sockets", "store", "agents"}
    findings = [sorted(one) for one in ran.json["findings"] if one["subject"] in steady]
    assert len(findings) == len(steady)
    check_json("cli/json/doctor.json", {"keys": sorted(ran.json), "findings": findings})


def test_mistakes(talk: Talk) -> None:
    talk.check("no_agent", "send", "nobody", "hello")
    talk.check("no_task", "status", "00000000")
    talk.check("wrong_option", "tasks", "--nonsense")
    talk.check("wrong_priority", "send", "ada", "hello", "--priority", "9")
    talk.check("not_cancelable", "cancel", "00000000-0000-4000-8000-000000000000")
    talk.check("nothing_asked", "approve", "ada")
    talk.check("no_profile", "start", "nonsense")
    talk.check("no_script", "start", "scripted", "nowhere.toml")
    talk.check("no_calibration", "calibrate", "nonsense")


def test_keys(talk: Talk) -> None:
    talk.check("keys_create", "keys", "create", "ci", "--actions", "read,send", "--agents", "ada")
    talk.check("keys_list", "keys", "list")
    talk.check("keys_taken", "keys", "create", "ci")
    talk.check("keys_revoke", "keys", "revoke", "ci")
    talk.check("keys_missing", "keys", "revoke", "ci")


def test_agents_in_the_background(talk: Talk) -> None:
    synapse = talk.synapse
    begun = synapse.run("start", "scripted", str(SCRIPT), "--name", "bob", "--port", str(own_port()), "--json")
    bob = begun.json
    known = synapse.plain(bob=bob)
    try:
        check_json("cli/json/start.json", {"exit code": begun.code, "given": known.json(begun.json)})
        again = synapse.run("restart", "bob", "--json")
        assert again.code == 0, again
        known.know(again.json["agent_id"], "bob id")
        known.know(f":{again.json['port']}", ":bob port")
        check_json("cli/json/restart.json", {"exit code": again.code, "given": known.afresh().json(again.json)})
    finally:
        ended = synapse.run("stop", "bob", "--json")
    check_json("cli/json/stop.json", {"exit code": ended.code, "given": known.afresh().json(ended.json)})


def test_logs(tmp_path_factory: pytest.TempPathFactory) -> None:
    """`lines` are the host's own log, each a JSON text; `entries` are these and what happened to tasks."""
    # A home of its own: the other tests list all agents of theirs.
    with product(tmp_path_factory.mktemp("l")) as synapse:
        plain = synapse.plain(eve=synapse.start_agent("eve"))
        synapse.run("send", "eve", "permit logs", "--response", "--exit-on-wait")
        synapse.run("deny", "eve")
        synapse.run("send", "eve", "fail logs", "--response")
        synapse.run("cancel", "00000000-0000-4000-8000-000000000000")
        given = synapse.run("logs", "eve", "--json").json

    lines = [json.loads(line) for line in given["lines"]]
    kinds = {one["event"]: plain.afresh().json(one) for one in [*given["entries"], *lines]}
    check_json("cli/json/logs.json", {"keys": sorted(given), "entries by event": kinds})


def test_external_agents(talk: Talk, ada: dict[str, Any]) -> None:
    talk.check("external_add", "external", "add", ada["endpoint"], "--alias", "other")
    talk.check("external_list", "external", "list")
    talk.check("external_send", "external", "send", "other", "hello")
    asked = talk.check("external_send_waiting", "external", "send", "other", "ask me")
    talk.check("external_cancel", "external", "cancel", "other", asked["task_id"])
    talk.check("external_remove", "external", "remove", "other")
    talk.check("external_missing", "external", "send", "other", "hello")


def test_push_notifications(talk: Talk, ada: dict[str, Any]) -> None:
    with webhook() as url:
        message = {"messageId": "push-1", "role": "ROLE_USER", "parts": [{"text": "hello"}]}
        body = {"message": message, "configuration": {"taskPushNotificationConfig": {"url": url}}}
        assert wire(ada).request("POST", "/message:send", body, {"A2A-Version": "1.0"}).status == 200
        until(lambda: is_told(talk.synapse), "the webhook has been told of the end")
        plain = talk.plain.afresh()
        plain.know(url, "webhook")
        rows = talk.synapse.run("push", "list", "--json").json

    assert {type(row.pop("event")) for row in rows} == {int}
    # How many there are depends on what was committed together.
    check_json("cli/json/push_list.json", {"given": [plain.json(rows[0])], "event": "int"})


class _Hook(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response_only(200)
        self.end_headers()


@contextmanager
def webhook() -> Generator[str]:
    """The address of a webhook that takes everything."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Hook)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/hook"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def is_told(synapse: Product) -> bool:
    deliveries = synapse.run("push", "list", "--json").json
    return bool(deliveries) and all(one["state"] == "delivered" for one in deliveries)
