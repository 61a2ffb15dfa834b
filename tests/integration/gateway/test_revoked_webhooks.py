"""Revoking a key stops its webhooks, and keeps its tasks."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.real_gateway import gateway, new_key
from tests.conformance.real_hosts import COMMAND, PATIENCE, environ
from tests.fakes.strangers import Said, stranger_at_home
from tests.integration.waiting import until

pytestmark = pytest.mark.integration


def run(home: Path, *words: str) -> Any:
    ran = [*COMMAND, *words, "--json"]
    done = subprocess.run(ran, env=environ(home), cwd=home, check=True, capture_output=True, timeout=PATIENCE)
    return json.loads(done.stdout)


def test_webhooks_of_a_revoked_key_get_nothing(tmp_path: Path) -> None:
    home = tmp_path / "h"
    with stranger_at_home() as receiver, gateway(home) as running:
        receiver.routes["/hook"] = lambda _heard: Said({})
        laptop = new_key(home, "laptop", "--scope", "local")
        operator = new_key(home, "operator", "--actions", "all", "--all-tasks")
        push = {"taskPushNotificationConfig": {"url": f"{receiver.url}/hook"}, "returnImmediately": True}
        message = {"messageId": "tck-cancel-1", "role": "ROLE_USER", "parts": [{"text": "wait"}]}
        body = {"message": message, "configuration": push}
        sent = running.ask("POST", "/agents/tck/v1/message:send", body, key=laptop, A2A_Version="1.0")
        path = f"/agents/tck/v1/tasks/{sent.json['task']['id']}"

        def state() -> str:
            return str(running.ask("GET", path, key=operator, A2A_Version="1.0").json["status"]["state"])

        def deliveries() -> list[Any]:
            found: list[Any] = run(home, "push", "list")
            return found

        until(lambda: state() == "TASK_STATE_WORKING", "it works on it")
        until(lambda: deliveries() and {one["state"] for one in deliveries()} == {"delivered"}, "all is told")
        told = len(receiver.heard)
        run(home, "keys", "revoke", "laptop")
        assert running.ask("POST", f"{path}:cancel", {}, key=operator, A2A_Version="1.0").status == 200

        until(lambda: any(one["state"] == "given_up" for one in deliveries()), "the end is given up")
        (given_up,) = [one for one in deliveries() if one["state"] == "given_up"]
        assert given_up["error"] == "the key that set it was revoked, or has expired"
        assert (state(), len(receiver.heard)) == ("TASK_STATE_CANCELED", told)
