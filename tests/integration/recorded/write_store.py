"""Writes tests/golden/stores/schema_N.sql: the store of an agent that has tasks in every state and was then killed.

    python -m tests.integration.recorded.write_store CHECKOUT N

CHECKOUT holds the Synapse that writes: for an earlier schema, a commit from before its next migration. A file that was
written is never written again, since it stands for the stores that users have.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.conformance.wire_client import WireClient
from tests.integration.recorded.golden import ROOT

FOLDER = ROOT / "tests" / "golden" / "stores"
SCRIPT = ROOT / "tests" / "golden" / "stores" / "agent.toml"
HOOK = {"id": "p-1", "url": "http://127.0.0.1:9/hook", "token": "t"}
# No dialect lets half of a surrogate pair in, but agents have written some: it is put into the dump, as it is stored.
LONE = "XLONEX"
ODD = f"日本語 \"quoted\" \\ {LONE} \x00 \u2028 'single'"


def main(checkout: Path, schema: str) -> None:
    with tempfile.TemporaryDirectory(prefix="s") as folder:
        home = Path(folder)
        path = os.environ["PATH"]
        variables = {"PYTHONPATH": str(checkout), "SYNAPSE_HOME": folder, "HOME": folder, "PATH": path}
        variables |= {"SYNAPSE_UDS_DIR": f"{folder}/u", "SYNAPSE_ALLOW_PRIVATE_WEBHOOKS": "1"}
        command = [sys.executable, str(checkout / "bin" / "synapse"), "scripted", str(SCRIPT), "--name", "ada"]
        host = subprocess.Popen(command, cwd=folder, env=variables)
        try:
            fill(WireClient(port_of(home)))
        finally:
            host.send_signal(signal.SIGKILL)
            host.wait()
        (FOLDER / f"schema_{schema}.sql").write_text(dumped(home / "store.db", schema), encoding="utf-8")


def port_of(home: Path) -> int:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        for file in (home / "registry").glob("[!.]*.json"):
            return int(json.loads(file.read_text(encoding="utf-8"))["port"])
        time.sleep(0.05)
    raise AssertionError("the agent has not started")


def fill(agent: WireClient) -> None:
    """Leave tasks in every state; the last ones wait when the host is killed."""

    def send(text: str, number: int, *more: dict[str, Any], wait: bool = True, **fields: Any) -> Any:
        parts = [{"text": text}, *more]
        message = {"messageId": f"m-{number}", "role": "ROLE_USER", "parts": parts, **fields}
        body = {"message": message, "configuration": {"returnImmediately": not wait}, "metadata": {"user": "ada"}}
        reply = agent.request("POST", "/message:send", body, {"A2A-Version": "1.0"})
        assert reply.status == 200, reply.body
        return reply.json.get("task")

    odd: dict[str, Any] = {"data": {"n": [1.5, None, 10**30, -0.0], "ключ": ODD, "": {}}, "metadata": {"x": ODD}}
    file = {"raw": "AAECAwQF/w==", "filename": "f.bin", "mediaType": "application/octet-stream"}
    link = {"url": "https://example.com/x", "mediaType": "text/html"}
    send("report", 1, odd, file, link, metadata={"k": ODD}, extensions=["https://example.com/e"])
    send(ODD, 2)
    send("fail", 3)
    send("refuse", 4)
    send("direct", 5)
    canceled = send("ask me", 6)
    agent.request("POST", f"/tasks/{canceled['id']}:cancel", {}, {"A2A-Version": "1.0"})
    followed = send("ask me", 7)
    send("the first", 8, taskId=followed["id"])
    for text, number in (("ask me", 9), ("log in", 10)):
        task = send(text, number)
        path = f"/tasks/{task['id']}/pushNotificationConfigs"
        assert agent.request("POST", path, HOOK, {"A2A-Version": "1.0"}).status == 200
    old = {"kind": "message", "messageId": "m-11", "role": "user", "parts": [{"kind": "text", "text": "by 0.3"}]}
    asked = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": old}}
    assert "result" in agent.request("POST", "/", asked).json
    own = {"message": {"role": "user", "parts": [{"type": "text", "text": "wait for a reply"}]}}
    assert agent.request("POST", "/tasks/create", own).status == 200
    send("wait", 12, wait=False)
    until_working(agent)
    send("behind it", 13, wait=False)


def until_working(agent: WireClient) -> None:
    deadline = time.monotonic() + 30
    while not agent.request("GET", "/tasks?status=working").json["tasks"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def dumped(path: Path, schema: str) -> str:
    """The store as SQL, with what `iterdump` leaves out."""
    with closing(sqlite3.connect(path)) as connection:
        numbers = {
            name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
        }
        assert str(numbers["user_version"]) == schema, numbers
        pragmas = [f"PRAGMA {name} = {value};" for name, value in numbers.items()]
        return "\n".join([*connection.iterdump(), *pragmas]).replace(LONE, "\\ud800") + "\n"


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), sys.argv[2])
