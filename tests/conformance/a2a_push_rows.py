"""Clauses of A2A about push notifications: configurations, and the notifications that webhooks get."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Queue
from threading import Event, Thread
from types import TracebackType
from typing import Any, Self

from synapse.core.override import override
from tests.conformance.a2a_push_words import (
    Config,
    delete_push,
    get_push,
    list_push,
    send_with_push,
    set_push,
)
from tests.conformance.a2a_row import BOTH, READINGS, SPEC, refusal, row, unique
from tests.conformance.a2a_speakers import Speaker
from tests.conformance.a2a_words import Message

NO_WEBHOOK = "http://127.0.0.1:9/hook"
PATIENCE = 20.0


class Webhook:
    """A webhook on loopback that keeps its notifications and answers with `status`, after `holds` is set."""

    def __init__(self, *, status: int = 200, holds: Event | None = None) -> None:
        self.status = status
        called, told = Event(), Queue[tuple[dict[str, str], Any]]()
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                called.set()
                if holds is not None:
                    holds.wait(PATIENCE)
                # Before the answer: the next notification comes at once, in another thread.
                told.put((dict(self.headers), json.loads(body)))
                self.send_response(hook.status)
                self.end_headers()

            @override
            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as the parent has it
                """Prints nothing on stderr."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = Thread(target=partial(self._server.serve_forever, 0.05), daemon=True)
        self._told = told
        self._called = called

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(PATIENCE)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/hook"

    def next(self) -> tuple[dict[str, str], Any]:
        """Returns the headers and the body of the next notification."""
        return self._told.get(timeout=PATIENCE)

    def wait_for_a_call(self) -> None:
        assert self._called.wait(PATIENCE)

    def drain(self) -> None:
        """Drops the notifications so far."""
        while not self._told.empty():
            self._told.get()


def state_in(body: Any) -> str:
    """Returns the state in a notification of any version; empty if it has none."""
    told = body.get("task") or body.get("statusUpdate") or body
    return str(told.get("status", {}).get("state", "")).removeprefix("TASK_STATE_").lower()


@row("push-set", BOTH, f"{SPEC} §3.1.7", "a push configuration is created, and comes back with an id")
def _(speaker: Speaker) -> None:
    task = speaker.task(Message())
    asked = Config(url=NO_WEBHOOK, token="tok", scheme="Bearer", credentials="secret")
    made = set_push(speaker, task.id, asked)

    assert made.id
    assert made == replace(asked, id=made.id)
    assert get_push(speaker, task.id, made.id) == made


@row("push-several", BOTH, f"{SPEC} §3.1.7", "a task has several push configurations, and lists them all")
def _(speaker: Speaker) -> None:
    task = speaker.task(Message())
    assert list_push(speaker, task.id) == []
    made = [set_push(speaker, task.id, Config(url=NO_WEBHOOK)) for _ in range(2)]
    named = set_push(speaker, task.id, Config(url=NO_WEBHOOK, id="mine"))

    assert named.id == "mine"
    assert list_push(speaker, task.id) == [*made, named]


@row("push-replaced", BOTH, f"{SPEC} §3.1.7", "a configuration with the same id takes the place of the first")
def _(speaker: Speaker) -> None:
    task = speaker.task(Message())
    set_push(speaker, task.id, Config(url=NO_WEBHOOK, id="mine"))
    again = set_push(speaker, task.id, Config(url=NO_WEBHOOK + "/new", id="mine"))

    assert list_push(speaker, task.id) == [again]


@row("push-deleted", BOTH, f"{SPEC} §3.1.10", "a push configuration is deleted; doing it again is no error")
def _(speaker: Speaker) -> None:
    task = speaker.task(Message())
    made = set_push(speaker, task.id, Config(url=NO_WEBHOOK))
    for _ in range(2):
        delete_push(speaker, task.id, made.id)

    assert list_push(speaker, task.id) == []
    assert refusal(lambda: get_push(speaker, task.id, made.id)) == "TaskNotFound"


@row("push-unknown", BOTH, f"{SPEC} §3.3.4", "the configurations of an unknown task are not found")
def _(speaker: Speaker) -> None:
    acts = [
        lambda: set_push(speaker, "no-such-task", Config(url=NO_WEBHOOK)),
        lambda: get_push(speaker, "no-such-task", "c"),
        lambda: list_push(speaker, "no-such-task"),
        lambda: delete_push(speaker, "no-such-task", "c"),
    ]
    for act in acts:
        assert refusal(act) == "TaskNotFound"


@row("push-refused", BOTH, READINGS, "an address that cannot be a webhook is refused")
def _(speaker: Speaker) -> None:
    task = speaker.task(Message())
    for url in ("http://169.254.169.254/latest", "ftp://example.com", "http://2852039166/", "https://a:b@example.com"):
        assert refusal(partial(set_push, speaker, task.id, Config(url=url))) == "InvalidParams"
        assert refusal(partial(send_with_push, speaker, "x", unique("no"), Config(url=url))) == "InvalidParams"
    assert list_push(speaker, task.id) == []


@row("push-told", BOTH, f"{SPEC} §4.3.3", "a webhook that comes with a message gets each change, with its credentials")
def _(speaker: Speaker) -> None:
    with Webhook() as hook:
        config = Config(url=hook.url, token="tok", scheme="Bearer", credentials="secret")
        task_id = send_with_push(speaker, "hello", unique("tck-artifact-text"), config)
        told = [hook.next()]
        while state_in(told[-1][1]) != "completed":
            told.append(hook.next())

    states = [state for _, body in told if (state := state_in(body))]
    assert list(dict.fromkeys(states)) == ["submitted", "working", "completed"]
    for headers, body in told:
        assert headers["X-A2A-Notification-Token"] == "tok"
        assert headers["Authorization"] == "Bearer secret"
        assert task_id in json.dumps(body)
    media_types = {headers["Content-Type"] for headers, _ in told}
    assert media_types == ({"application/a2a+json"} if speaker.version == "1.0" else {"application/json"})
    if speaker.version == "0.3":
        assert all(body["kind"] == "task" for _, body in told)
    else:
        assert {kind for _, body in told for kind in body} == {"task", "statusUpdate", "artifactUpdate"}


@row("push-later", BOTH, f"{SPEC} §3.1.7", "a webhook that is configured later gets the changes after that")
def _(speaker: Speaker) -> None:
    task = speaker.task(Message("tck-input-required"))
    with Webhook() as hook:
        set_push(speaker, task.id, Config(url=hook.url))
        speaker.cancel(task.id)
        _, body = hook.next()

    assert state_in(body) == "canceled"
