"""Another user who opens many connections does not lock the owner out of an agent."""

from __future__ import annotations

import json
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]  # it has no types of its own
import pytest

from tests.conformance import real_gateway, real_hosts
from tests.integration.cli import session as cli

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(os.getuid() != 0 or sys.platform != "linux", reason="only root can act as another user"),
]

NOBODY = 65534
LIMIT = 1024
CARD = "/agents/tck/.well-known/agent-card.json"
CROWD = """
import os, resource, socket, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (2048, 2048))
os.setgid({uid}); os.setuid({uid})
opened = []
for _ in range({count}):
    one = socket.socket()
    one.settimeout(5)
    try:
        one.connect(("127.0.0.1", {port}))
    except OSError:
        break
    opened.append(one)
print(len(opened), flush=True)
sys.stdin.read()
"""


def limited(command: list[str], soft: int, hard: int) -> list[str]:
    """The command, in a process that may have so many files open."""
    return ["sh", "-c", f'ulimit -Sn {soft} && ulimit -Hn {hard} && exec "$@"', "sh", *command]


@contextmanager
def crowd(port: int, count: int, uid: int = NOBODY) -> Generator[int]:
    """Holds that many idle connections as another user; yields how many could be opened."""
    program = CROWD.format(uid=uid, count=count, port=port)
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.stdin.close()


def status_over_tcp(port: int) -> dict[str, Any]:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(b"GET /status HTTP/1.1\r\nHost: localhost:%d\r\nConnection: close\r\n\r\n" % port)
        answer = connection.makefile("rb").read()
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    status: dict[str, Any] = json.loads(body)
    return status


def test_the_owner_reaches_an_agent_that_another_user_crowds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with cli.session(tmp_path / "home") as home:
        monkeypatch.setattr(cli, "COMMAND", limited(cli.COMMAND, LIMIT, LIMIT))
        agent = home.start("crowded")
        with crowd(agent["port"], 1300) as opened:
            assert opened > 1000

            assert home.run("status", "crowded").code == 0
            assert home.run("send", "crowded", "hello", "--no-response").code == 0
            assert status_over_tcp(agent["port"])["state"]


def test_a_refused_connection_gets_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with cli.session(tmp_path / "home") as home:
        monkeypatch.setattr(cli, "COMMAND", limited(cli.COMMAND, LIMIT, LIMIT))
        agent = home.start("crowded")
        with crowd(agent["port"], 200):
            program = CROWD.format(uid=NOBODY, count=1, port=agent["port"]).replace(
                "sys.stdin.read()", "print(opened[0].recv(65536).decode())"
            )
            done = subprocess.run(
                [sys.executable, "-c", program], capture_output=True, encoding="utf-8", timeout=30, check=True
            )

    assert "429 Too Many Requests" in done.stdout
    assert "too many connections" in done.stdout


def test_the_program_of_an_agent_keeps_the_limit_of_its_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with cli.session(tmp_path / "home") as home:
        monkeypatch.setattr(cli, "COMMAND", limited(cli.COMMAND, LIMIT, 4 * LIMIT))
        home.start("limited")
        (entry,) = (json.loads(path.read_text(encoding="utf-8")) for path in (home.home / "registry").glob("*.json"))

        assert resource.prlimit(entry["pid"], resource.RLIMIT_NOFILE) == (4 * LIMIT, 4 * LIMIT)
        assert resource.prlimit(entry["cli_pid"], resource.RLIMIT_NOFILE) == (LIMIT, 4 * LIMIT)


def test_the_owner_reaches_a_gateway_that_another_user_crowds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real_gateway, "COMMAND", limited(real_hosts.COMMAND, LIMIT, LIMIT))
    with real_gateway.gateway(tmp_path / "home") as served:
        key = real_gateway.new_key(served.home, "owner")
        card = served.ask("GET", CARD, key=key, A2A_Version="1.0").json
        (called,) = (one["url"] for one in card["supportedInterfaces"] if one["protocolBinding"] == "GRPC")
        grpc_port = int(called.rpartition(":")[2])
        with crowd(served.entry.port, 1300) as opened, crowd(grpc_port, 1300):
            assert opened > 1000

            assert served.ask("GET", CARD, key=key).status == 200
            # Connections that do not speak gRPC are closed after a few seconds.
            with grpc.insecure_channel(f"127.0.0.1:{grpc_port}") as channel:
                grpc.channel_ready_future(channel).result(timeout=30)
