"""Stores that earlier versions wrote are opened, brought to today's schema, and nothing in them is lost or changed.

tests/golden/stores/schema_N.sql are such stores (write_store.py made them, with the code of the time): tasks in every
state, follow-ups, artifacts, webhooks, and odd texts. What is read from each is recorded beside the other golden files.
tests/unit/store/test_migration.py kills migrations at every statement. How to record anew: see golden.py.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.wire_client import WireClient
from tests.integration.recorded.golden import ROOT, check_json
from tests.integration.recorded.product import product, until, wire

pytestmark = pytest.mark.integration

STORES = ROOT / "tests" / "golden" / "stores"
SCHEMAS = (3, 4, 5, 6, 7, 8)
JSON = dict[str, Any]


def put_back(schema: int, path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript((STORES / f"schema_{schema}.sql").read_text(encoding="utf-8"))
    path.chmod(0o600)


@pytest.mark.parametrize("schema", SCHEMAS)
def test_every_task_event_and_webhook_of_an_earlier_store_is_read(schema: int, tmp_path: Path) -> None:
    with product(tmp_path) as synapse:
        put_back(schema, tmp_path / "store.db")
        tasks: list[JSON] = synapse.run("tasks", "--limit", "100", "--json").json
        check_json(f"stores/schema_{schema}_tasks.json", tasks)

        host = Host(wire(synapse.start_agent("ada", STORES / "agent.toml"), over_socket=True))
        ids = [str(task["id"]) for task in tasks]
        started = {task: host.settled(task) for task in ids}
        check_json(f"stores/schema_{schema}_after_a_start.json", started)
        check_json(f"stores/schema_{schema}_webhooks.json", {task: host.webhooks(task) for task in ids})
        assert host.send("m-3", "fail") in ids, "a message that was sent before is known"

        last = max(str(task["updated_at"]) for task in tasks)
        events = {task: [event for event in host.events(task) if event["at"] <= last] for task in ids}
        check_json(f"stores/schema_{schema}_events.json", events)


class Host:
    """What the host of the agent tells about its tasks."""

    def __init__(self, client: WireClient) -> None:
        self._client = client

    def settled(self, task_id: str) -> str:
        """The state of a task, once what a start does to it is done."""

        def found() -> str:
            state = str(self._client.request("GET", f"/tasks/{task_id}").json["status"])
            return "" if state in ("submitted", "working") and not self._is_created(task_id) else state

        return until(found, f"{task_id} goes on")

    def _is_created(self, task_id: str) -> bool:
        """Whether it waits for a reply; nothing was typed for it."""
        return "wait for a reply" in self._client.request("GET", f"/tasks/{task_id}").body.decode()

    def webhooks(self, task_id: str) -> Any:
        path = f"/tasks/{task_id}/pushNotificationConfigs"
        return self._client.request("GET", path, None, {"A2A-Version": "1.0"}).json

    def send(self, message_id: str, text: str) -> str:
        message = {"messageId": message_id, "role": "ROLE_USER", "parts": [{"text": text}]}
        body = {"message": message, "metadata": {"user": "ada"}}
        return str(self._client.request("POST", "/message:send", body, {"A2A-Version": "1.0"}).json["task"]["id"])

    def events(self, task_id: str) -> list[JSON]:
        """Everything that happened to a task; one that is open is canceled first, so that the stream ends."""
        self._client.request("POST", f"/tasks/{task_id}/cancel", {})
        with self._client.follow(f"/tasks/{task_id}/subscribe?after=0") as events:
            return [event.data["event"] for event in events if "event" in event.data]
