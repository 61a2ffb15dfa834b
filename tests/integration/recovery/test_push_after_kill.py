"""A host that is killed while its webhooks are down: its next start tells them everything, in order."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from threading import Event

import pytest

from tests.conformance.a2a_push_rows import Webhook, state_in
from tests.conformance.a2a_push_words import Config, send_with_push, set_push
from tests.conformance.a2a_row import unique
from tests.conformance.a2a_speakers import Rest10
from tests.conformance.a2a_words import Message
from tests.conformance.real_hosts import COMMAND, environ, scripted_host
from tests.conformance.wire_client import WireClient

pytestmark = pytest.mark.integration


def test_what_a_killed_host_had_not_delivered_is_delivered_by_the_next_in_order(tmp_path: Path) -> None:
    with Webhook(status=503) as hook:
        config = Config(url=hook.url + "?key=s3cret", token="s3cret", scheme="bearer", credentials="s3cret")
        with scripted_host(tmp_path) as entry:
            task_id = send_with_push(Rest10(WireClient(entry.port)), "hello", unique("tck-artifact-text"), config)
            tried, _ = hook.next()
            push_list(tmp_path, "pending", 1)
            os.kill(entry.pid, signal.SIGKILL)
        hook.drain()
        hook.status = 200
        with scripted_host(tmp_path):
            told = [hook.next()]
            while state_in(told[-1][1]) != "completed":
                told.append(hook.next())
            # What was on its way when the host died may have come twice: the id tells.
            bodies = {headers["X-Synapse-Notification-Id"]: body for headers, body in told}
            listed = push_list(tmp_path, "delivered", len(bodies))

    kinds = [next(iter(body)) for body in bodies.values()]
    assert kinds == ["task", "statusUpdate", "artifactUpdate", "statusUpdate"]
    assert next(iter(bodies)) == tried["X-Synapse-Notification-Id"]
    assert "s3cret" not in listed
    deliveries = json.loads(listed)
    assert {one["task"] for one in deliveries} == {task_id}
    assert {one["state"] for one in deliveries} == {"delivered"}
    assert deliveries[-1]["attempts"] >= 2


def test_a_webhook_that_hangs_delays_nobody(tmp_path: Path) -> None:
    going_on = Event()
    with Webhook(holds=going_on) as hook, scripted_host(tmp_path) as entry:
        speaker = Rest10(WireClient(entry.port))
        asked = speaker.task(Message("tck-input-required"))
        set_push(speaker, asked.id, Config(url=hook.url))
        speaker.cancel(asked.id)
        hook.wait_for_a_call()

        assert speaker.task(Message()).state == "completed"
        assert speaker.get(asked.id).state == "canceled"
        going_on.set()
        assert state_in(hook.next()[1]) == "canceled"


def push_list(home: Path, state: str, number: int) -> str:
    """What `synapse push list` says once so many are in that state: it is recorded after the answer has come."""
    shown = ""
    for _ in range(50):
        shown = subprocess.run(
            [*COMMAND, "push", "list", "--json"],
            env=environ(home),
            cwd=home,
            check=True,
            capture_output=True,
            encoding="utf-8",
            timeout=20,
        ).stdout
        if shown.count(f'"{state}"') == number:
            return shown
    raise AssertionError(shown)
