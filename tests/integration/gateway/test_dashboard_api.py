"""The API of a person's page at a real gateway with real hosts: streams that miss nothing, rights, hostile texts."""

from __future__ import annotations

import base64
import http.client
import json
import os
import signal
import subprocess
import threading
from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpcore
import pytest

from synapse.dialects.paths import DASHBOARD_OPERATIONS
from synapse.host.background import stop_host
from synapse.registry.files import FileRegistry
from tests.conformance.real_gateway import RunningGateway, gateway, new_key
from tests.conformance.real_hosts import PATIENCE, scripted_host
from tests.conformance.wire_client import Event, Reply, WireClient
from tests.integration.waiting import until

pytestmark = pytest.mark.integration

HOSTILE = '</script><img src=x onerror=alert(1)>\u202e\u200bevil\x1b[2J\n\nevent: gone\ndata: {"id": "ada"}\n\n'
PIXEL = base64.b64decode("R0lGODlhAQABAAAAACwAAAAAAQABAAACAkQBADs=")
SCRIPT = f"""
[[rule]]
text = "ask*"
steps = [
  {{ question = "Run it?", detail = "rm -rf <b>", options = ["allow: Yes", "deny: No"] }},
  {{ answer = "{{answer}}" }},
]

[[rule]]
text = "picture"
steps = [
  {{ artifact = "pixel", base64 = "{base64.b64encode(PIXEL).decode()}", file = "pixel.gif", media_type = "image/gif" }},
  {{ artifact = "page", bytes = "<script>alert(1)</script>", file = "../evil.html", media_type = "text/html" }},
]

[[rule]]
text = "wait*"
steps = [{{ wait = 600 }}]

[default]
steps = [{{ answer = "{{text}}" }}]
"""
CONFIG = """
[rate_limit]
open_streams = 4
requests_per_minute = 0

[[agents]]
id = "terminal"
profile = "dummy"
instructions = false
"""
ACTIONS = {
    "overview": "read",
    "events": "read",
    "agent": "read",
    "screen": "attach",
    "send": "send",
    "answer_agent": "approve",
    "seen": "read",
    "tasks": "read",
    "task": "read",
    "timeline": "read",
    "task_events": "read",
    "file": "read",
    "answer": "approve",
    "cancel": "cancel",
    "resolve": "approve",
    "figures": "read",
}
BODIES: dict[str, Any] = {
    "send": {"text": "hello"},
    "answer_agent": {"question_id": "q", "verdict": "allow"},
    "seen": {"until": "2026-01-31T10:30:00Z"},
    "answer": {"question_id": "q", "verdict": "allow"},
    "resolve": {"verdict": "fail"},
}


@dataclass(frozen=True)
class Served:
    """A gateway before two scripted hosts, and an operator's key."""

    gateway: RunningGateway
    script: Path
    key: str

    @property
    def home(self) -> Path:
        return self.gateway.home

    def ask(self, method: str, path: str, body: object = None, key: str = "") -> Reply:
        return self.gateway.ask(method, f"/dashboard/{path}", body, key=key or self.key)

    def read(self, path: str, key: str = "") -> Any:
        reply = self.ask("GET", path, key=key)
        assert reply.status == 200, reply.body
        return reply.json

    def send(self, text: str, agent: str = "ada", key: str = "", **more: Any) -> str:
        """Sends a message; returns its task's id."""
        reply = self.ask("POST", f"agents/{agent}/messages", {"text": text, **more}, key)
        assert reply.status == 202, reply.body
        return str(reply.json["task"]["id"])

    def ended(self, task: str) -> Any:
        """Returns the task once it has ended."""
        return until(lambda: ended_or_none(self.read(f"tasks/{task}")["task"]), "the end of the task")

    def question(self, task: str) -> str:
        """Returns the id of the task's question once it asks."""

        def asked() -> str:
            question: dict[str, str] = self.read(f"tasks/{task}")["task"]["metadata"].get("question", {})
            return question.get("id", "")

        return until(asked, "a question")

    def last_seq(self) -> int:
        return int(self.read("overview")["cursor"])


def ended_or_none(task: Any) -> Any:
    return task if task["status"] in ("completed", "failed", "canceled") else None


class Page:
    """Reads the stream of events in a thread, as a browser's page does."""

    def __init__(self, port: int, key: str, after: str = "", path: str = "/dashboard/events") -> None:
        self.events: list[Event] = []
        self._connection = WireClient(port).connection()
        self._connection.sock.settimeout(PATIENCE)
        headers = {"Authorization": f"Bearer {key}", **({"Last-Event-ID": after} if after else {})}
        self._connection.request("GET", path, headers=headers)
        self.response = self._connection.getresponse()
        assert self.response.status == 200, self.response.read()
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        fields: dict[str, str] = {}
        try:
            while line := self.response.readline():
                text = line.decode().rstrip("\n")
                if text:
                    name, _, value = text.partition(": ")
                    fields[name] = value
                elif fields.get("data"):
                    data = json.loads(fields["data"])
                    self.events.append(Event(fields.get("id", ""), fields.get("event", ""), data))
                    fields = {}
        except (OSError, ValueError, http.client.HTTPException):
            pass  # closed

    def close(self) -> None:
        if self._connection.sock is not None:
            self._connection.sock.shutdown(2)
        self._reading.join(PATIENCE)
        self._connection.close()

    @property
    def cursor(self) -> str:
        return next((event.id for event in reversed(self.events) if event.id), "")

    @property
    def seqs(self) -> list[int]:
        return [event.data["seq"] for event in tuple(self.events) if event.name == "task"]

    def row(self, agent: str) -> Any:
        """The last row of an agent, or an empty one."""
        shown: dict[str, Any] = {}
        for event in tuple(self.events):
            if event.name == "overview":
                shown = {row["id"]: row for row in event.data["agents"]}
            elif event.name == "agent":
                shown[event.data["agent"]["id"]] = event.data["agent"]
            elif event.name == "gone":
                shown.pop(event.data["id"], None)
        return shown.get(agent, {"state": "", "needs": []})

    def until_row(self, agent: str, state: str) -> Any:
        until(lambda: self.row(agent)["state"] == state, f"{agent} {state}", lambda: self.row(agent))
        return self.row(agent)

    def until_seq(self, seq: int) -> None:
        until(lambda: self.seqs[-1:] == [seq], f"event {seq}", lambda: self.seqs)


@contextmanager
def page(served: Served, key: str = "", after: str = "") -> Generator[Page]:
    with closing(Page(served.gateway.entry.port, key or served.key, after)) as opened:
        until(lambda: opened.events, "the overview")
        yield opened


@contextmanager
def serving(home: Path, hosts: ExitStack) -> Generator[Served]:
    home.mkdir(parents=True, exist_ok=True)
    script = home / "agent.toml"
    script.write_text(SCRIPT, encoding="utf-8")
    for name in ("ada", "bob"):
        hosts.enter_context(scripted_host(home, script, name))
    with gateway(home, CONFIG) as running:
        yield Served(running, script, new_key(home, "ops", "--actions", "all", "--all-tasks"))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with ExitStack() as hosts, serving(tmp_path_factory.mktemp("d"), hosts) as one:
        yield one


def test_the_overview_comes_first_then_rows_and_every_event_once(served: Served) -> None:
    with page(served) as viewer:
        first = viewer.events[0]
        assert (first.name, int(first.id)) == ("overview", first.data["cursor"])
        assert {"ada", "bob"} <= {row["id"] for row in first.data["agents"]}
        assert first.data["cursor"] == served.last_seq()

        task = served.send("hello")
        served.ended(task)
        last = served.last_seq()
        viewer.until_seq(last)
        row = viewer.until_row("ada", "done")

    assert viewer.seqs == list(range(int(first.id) + 1, last + 1))
    told = [event for event in viewer.events if event.name == "task"]
    assert all(event.id == str(event.data["seq"]) and event.data["task"]["id"] == task for event in told)
    assert (told[-1].data["event"]["type"], told[-1].data["task"]["state"]) == ("state_changed", "completed")
    assert (told[-1].data["task"]["from"], told[-1].data["task"]["answer"]) == ("key.ops", "hello")
    assert row["needs"][-1]["kind"] == "done"


def test_of_two_pages_one_approves_and_the_other_learns_who_it_was(served: Served) -> None:
    deputy = new_key(served.home, "deputy", "--actions", "all", "--all-tasks")
    with page(served) as first, page(served, deputy) as second:
        task = served.send("ask me")
        question = served.question(task)
        for viewer in (first, second):
            (need,) = [one for one in viewer.until_row("ada", "asks")["needs"] if one["task_id"] == task]
            assert (need["title"], need["detail"], need["question_id"]) == ("Run it?", "rm -rf <b>", question)
            assert {"allow", "deny"} <= set(need["can"])

        answer = {"question_id": question, "verdict": "allow"}
        approved = served.ask("POST", f"tasks/{task}/answer", answer)
        late = served.ask("POST", f"tasks/{task}/answer", {**answer, "verdict": "deny"}, deputy)
        last = until(lambda: served.ended(task) and served.last_seq(), "the end")
        for viewer in (first, second):
            viewer.until_seq(last)
            viewer.until_row("ada", "done")

    assert (approved.status, approved.json["task"]["id"]) == (200, task)
    assert (late.status, late.json["error"]["code"]) == (409, "question_gone")
    assert late.json["error"]["answered_by"] == "ops"
    assert first.seqs[-5:] == second.seqs[-5:]
    assert served.ended(task)["artifacts"][0]["parts"][0]["text"] == "Yes"


def test_a_page_that_resumes_has_every_event_exactly_once(served: Served) -> None:
    with page(served) as before:
        start = int(before.events[0].id)
        served.ended(served.send("one"))
        until(lambda: len(before.seqs) >= 3, "some events")
    cut = int(before.cursor)
    served.ended(served.send("two"))
    with page(served, after=before.cursor) as after:
        assert after.events[0].data["cursor"] == cut
        served.ended(served.send("three"))
        last = served.last_seq()
        after.until_seq(last)

    got = [seq for seq in before.seqs if seq <= cut] + after.seqs
    assert got == list(range(start + 1, last + 1))


def test_a_position_of_another_log_makes_the_page_load_anew(served: Served) -> None:
    with page(served, after="999999999") as viewer:
        until(lambda: len(viewer.events) > 1, "a second event")

    assert [(event.name, event.id) for event in viewer.events[:2]] == [
        ("overview", str(viewer.events[0].data["cursor"])),
        ("resync", viewer.events[0].id),
    ]


def test_curl_and_httpcore_read_the_same_stream(served: Served) -> None:
    url = f"{served.gateway.url}/dashboard/events?after=0"
    curl = ["curl", "-sN", "--max-time", "3", "-H", f"Authorization: Bearer {served.key}", url]
    said = subprocess.run(curl, capture_output=True, check=False, timeout=PATIENCE).stdout.decode()
    last = served.last_seq()
    read = b""
    with httpcore.ConnectionPool() as pool, pool.stream("GET", url, headers={"X-API-Key": served.key}) as response:
        for chunk in response.iter_stream():
            read += chunk
            if b"id: %d\n" % last in read:
                break

    ids = [line for line in said.splitlines() if line.startswith("id: ")]
    assert ids[0] == "id: 0"
    assert ids[-1] == f"id: {last}"
    assert [line for line in read.decode().splitlines() if line.startswith("id: ")] == ids[: ids.index(ids[-1]) + 1]


def test_hostile_texts_stay_texts_in_every_field(served: Served) -> None:
    hostile_name = "</a>\u202e\r\nset-cookie: x=y.html"
    file = {"name": hostile_name, "media_type": "text/html", "data": base64.b64encode(b"<script>").decode()}
    with page(served) as viewer:
        task = served.send(HOSTILE, files=[file], context_id="<b>")
        served.ended(task)
        viewer.until_seq(served.last_seq())
        until(lambda: task in {need["task_id"] for need in viewer.row("ada")["needs"]}, "a row with the answer")

    told = next(event for event in reversed(viewer.events) if event.name == "task")
    assert "gone" not in {event.name for event in viewer.events}, "a text cannot make an event"
    assert told.data["task"]["text"] == HOSTILE[:300]
    whole = served.read(f"tasks/{task}")["task"]
    assert whole["message"]["parts"][0]["text"] == HOSTILE
    file_part = whole["message"]["parts"][1]["file"]
    assert (file_part["name"], file_part["size"]) == (hostile_name, len("<script>"))
    reply = served.ask("GET", f"tasks/{task}/files/{file_part['number']}")
    assert (reply.status, reply.body, reply.headers["content-type"]) == (200, b"<script>", "application/octet-stream")
    assert reply.headers["content-disposition"].startswith("attachment; ")
    assert "set-cookie" not in reply.headers
    assert served.read("tasks?search=onerror")["tasks"][0]["id"] == task


def test_images_are_shown_and_other_files_downloaded(served: Served) -> None:
    task = served.ended(served.send("picture"))
    files = [artifact["parts"][0]["file"] for artifact in task["artifacts"]]
    image, other = (served.ask("GET", f"tasks/{task['id']}/files/{file['number']}") for file in files)

    assert [file["number"] for file in files] == [1, 2]
    assert (image.body, image.headers["content-type"]) == (PIXEL, "image/gif")
    assert image.headers["content-disposition"].startswith('inline; filename="pixel.gif"')
    assert other.headers["content-disposition"].startswith('attachment; filename="evil.html"')
    for reply in (image, other):
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert "sandbox" in reply.headers["content-security-policy"]
    assert served.ask("GET", f"tasks/{task['id']}/files/3").status == 404


def test_a_task_is_followed_its_events_listed_and_it_is_canceled(served: Served) -> None:
    task = served.send("wait for it", agent="bob")
    until(lambda: served.read(f"tasks/{task}")["row"]["state"] == "working", "work")
    port = served.gateway.entry.port
    with closing(Page(port, served.key, path=f"/dashboard/tasks/{task}/events")) as stream:
        until(lambda: stream.events, "a snapshot")
        canceled = served.ask("POST", f"tasks/{task}/cancel")
        until(lambda: stream.events[-1].name == "state_changed", "the end", lambda: stream.events)
    timeline = served.read(f"tasks/{task}/timeline")

    assert (canceled.status, canceled.json["task"]["status"]) == (200, "canceled")
    assert stream.events[0].name == "snapshot"
    assert stream.events[-1].data["event"]["status"] == "canceled"
    assert [event["type"] for event in timeline["events"]][:2] == ["task_opened", "receipt_changed"]
    assert [event["seq"] for event in timeline["events"]] == sorted(event["seq"] for event in timeline["events"])
    assert served.ask("POST", f"tasks/{task}/cancel").status == 409
    assert served.ask("POST", f"tasks/{task}/resolve", {"verdict": "fail"}).status == 409


def test_tasks_come_in_pages_with_the_filters_of_the_page(served: Served) -> None:
    ids = [served.ended(served.send(f"number {number}", agent="bob", context_id="paged"))["id"] for number in range(5)]
    got: list[str] = []
    cursor = ""
    for _ in range(3):
        told = served.read(f"tasks?context=paged&limit=2&cursor={cursor}")
        assert told["total"] == 5
        got += [row["id"] for row in told["tasks"]]
        cursor = told["next_cursor"]

    assert (got, cursor) == (ids[::-1], "")
    assert {row["agent"] for row in served.read("tasks?agent=bob&state=completed&from=key.ops")["tasks"]} == {"bob"}
    assert served.read("tasks?from=key.nobody") == {"tasks": [], "next_cursor": "", "total": None}
    assert served.read("figures?hours=1")["total"]["finished"] >= 5


def test_a_host_that_is_killed_is_away_with_the_reason_and_comes_back(served: Served) -> None:
    with page(served) as viewer:
        with scripted_host(served.home, served.script, "carl") as carl:
            viewer.until_row("carl", "ready")
            os.kill(carl.pid, signal.SIGKILL)
            row = viewer.until_row("carl", "away")
            assert "host has ended" in row["why"]
            assert row["since"]
            assert served.ask("POST", "agents/carl/messages", {"text": "hi"}).status in (404, 502)
        with scripted_host(served.home, served.script, "carl"):
            viewer.until_row("carl", "ready")
        viewer.until_row("carl", "away")

    assert viewer.row("ada")["state"], "the others stay"


def test_a_page_of_a_gateway_that_was_killed_goes_on_at_the_next_one(tmp_path: Path) -> None:
    with ExitStack() as hosts:
        with serving(tmp_path / "g", hosts) as first:
            with page(first) as before:
                first.ended(first.send("one"))
                until(lambda: len(before.seqs) >= 3, "some events")
                first.gateway.process.kill()
                before.close()
            key, home = first.key, first.home
            script = first.script
        # The host has gone on meanwhile, and knows nothing of gateways.
        with gateway(home, CONFIG) as running:
            second = Served(running, script, key)
            with page(second, after=before.cursor) as after:
                second.ended(second.send("two"))
                last = second.last_seq()
                after.until_seq(last)
                after.until_row("ada", "done")
        # The killed gateway could not stop the agent that it had started.
        known = FileRegistry(home / "registry")
        for entry in known.entries():
            if entry.name == "terminal":
                stop_host(entry, known)

    cut = int(before.cursor)
    assert [seq for seq in before.seqs if seq <= cut] + after.seqs == list(range(1, last + 1))


@pytest.mark.parametrize("operation", DASHBOARD_OPERATIONS)
def test_each_route_needs_its_action(served: Served, operation: str) -> None:
    action = ACTIONS[operation]
    lacking = ",".join({"read", "send", "cancel", "approve", "attach", "register"} - {action})
    key = new_key(served.home, f"no-{action}-{operation.replace('_', '-')}", "--actions", lacking, "--all-tasks")
    method, path = DASHBOARD_OPERATIONS[operation]
    path = path.replace("{agentId}", "ada").replace("{taskId}", "no-such").replace("{number}", "1")

    refused = served.gateway.ask(method, path, BODIES.get(operation), key=key)
    unknown = served.gateway.ask(method, path, BODIES.get(operation))

    assert (refused.status, refused.json["error"]["code"]) == (403, "forbidden"), refused.body
    assert f"'{action}'" in refused.json["error"]["message"]
    assert (unknown.status, unknown.json["error"]["code"]) == (401, "credentials_refused")
    assert unknown.json["error"].keys() == {"code", "message", "hint"}


def test_a_message_that_interrupts_needs_the_right_to_cancel(served: Served) -> None:
    key = new_key(served.home, "sender", "--actions", "read,send")

    refused = served.ask("POST", "agents/ada/messages", {"text": "stop", "priority": 5}, key)

    assert (refused.status, "'cancel'" in refused.json["error"]["message"]) == (403, True)
    assert served.ask("POST", "agents/ada/messages", {"text": "please", "priority": 4}, key).status == 202


def test_the_streams_of_a_page_count_with_all_others(served: Served) -> None:
    key = new_key(served.home, "greedy", "--actions", "read")
    with ExitStack() as pages:
        for _ in range(4):
            pages.enter_context(page(served, key))
        refused = served.ask("GET", "events", key=key)

    assert (refused.status, refused.json["error"]["code"]) == (429, "too_many_streams")
    assert refused.headers["retry-after"]


def test_a_key_sees_its_own_agents_and_tasks_only(served: Served) -> None:
    of_bob = new_key(served.home, "of-bob", "--actions", "read,send", "--agents", "bob", "--all-tasks")
    private = new_key(served.home, "private", "--actions", "read,send")
    secret = served.ended(served.send("a secret of ops"))["id"]
    with page(served, of_bob) as limited, page(served, private) as own:
        served.ended(served.send("another secret of ops"))
        shown = served.send("for bob", agent="bob", key=of_bob)
        served.ended(shown)
        mine = served.send("my own", key=private)
        served.ended(mine)
        until(lambda: any(event.name == "task" for event in limited.events), "an event")
        until(lambda: own.seqs, "an event")
        own.until_row("ada", "done")

    assert {row["id"] for row in limited.events[0].data["agents"]} == {"bob"}
    assert {event.data["task"]["id"] for event in limited.events if event.name == "task"} == {shown}
    assert {event.data["task"]["id"] for event in own.events if event.name == "task"} == {mine}
    assert "secret of ops" not in json.dumps([event.data for event in (*limited.events, *own.events)])
    for key in (of_bob, private):
        for path in (
            f"tasks/{secret}",
            f"tasks/{secret}/timeline",
            f"tasks/{secret}/events",
            f"tasks/{secret}/files/1",
        ):
            reply = served.ask("GET", path, key=key)
            assert (reply.status, reply.json["error"]["code"]) == (404, "task_not_found"), path
        assert "secret of ops" not in served.ask("GET", "tasks?limit=500", key=key).body.decode()
        assert "secret of ops" not in served.ask("GET", "agents/bob", key=key).body.decode()
    assert served.ask("GET", "agents/ada", key=of_bob).status == 404
    assert "secret of ops" not in served.ask("GET", "agents/ada", key=private).body.decode()


def test_a_screen_is_read_once_for_each_version_by_those_who_may_attach(served: Served) -> None:
    with page(served) as viewer:
        viewer.until_row("terminal", "ready")
    path = "/dashboard/agents/terminal/screen"
    first = served.gateway.ask("GET", f"{path}?lines=5", key=served.key)
    again = served.gateway.ask("GET", path, key=served.key, If_None_Match=first.headers["etag"])

    assert first.status == 200, first.body
    assert (first.json["columns"] >= 80, len(first.json["lines"]) >= first.json["rows"]) == (True, True)
    assert first.headers["etag"] == f'"{first.json["version"]}"'
    assert (again.status, again.body) == (304, b"")
    assert served.ask("GET", "agents/ada/screen").status == 404
    assert served.ask("GET", "agents/nobody/screen").status == 404


def test_errors_below_the_path_are_of_this_dialect(served: Served) -> None:
    for method, path, status in (("GET", "nothing", 404), ("POST", "overview", 405), ("GET", "tasks?limit=x", 400)):
        reply = served.ask(method, path, {} if method == "POST" else None)
        assert reply.status == status
        assert reply.json["error"].keys() == {"code", "message", "hint"}
    assert served.gateway.ask("GET", "/dashboard", key=served.key).json["error"]["code"] == "route_not_found"


def test_a_person_with_a_session_sees_answers_and_a_key_does_not(served: Served) -> None:
    entry = served.gateway.entry
    link = WireClient(entry.port, entry.socket).request("POST", "/dashboard/links", {})
    assert link.status == 200, link.body
    origin = f"http://localhost:{entry.port}"
    code = link.json["url"].partition("#code=")[2]
    opened = served.gateway.ask("POST", "/dashboard/session", {"code": code}, Origin=origin)
    assert opened.status == 200, opened.body
    cookie = opened.headers["set-cookie"].partition(";")[0]
    session = {"Cookie": cookie, "X-Synapse-Token": opened.json["token"], "Origin": origin}
    seen = {"until": "2100-01-01T00:00:00Z"}

    with page(served) as viewer:
        served.ended(served.send("look at this", agent="bob"))
        viewer.until_row("bob", "done")
        refused = served.ask("POST", "agents/bob/seen", seen)
        marked = WireClient(entry.port).request("POST", "/dashboard/agents/bob/seen", seen, session)
        viewer.until_row("bob", "ready")
        sent = WireClient(entry.port).request("POST", "/dashboard/agents/bob/messages", {"text": "by hand"}, session)
        task = served.ended(sent.json["task"]["id"])

    assert (refused.status, refused.json["error"]["code"]) == (403, "forbidden")
    assert (marked.status, marked.json) == (200, {})
    assert served.read(f"tasks/{task['id']}")["row"]["from"] == "key.dashboard"
