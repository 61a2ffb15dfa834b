"""Identifies real processes that connect: an agent's children count as the agent, other users need the token."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from synapse.core.agent import AgentEntry
from tests.conformance.in_memory_service import InMemoryService
from tests.conformance.served_host import served
from tests.conformance.wire_client import WireClient

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell whose connection it is"),
]

ASK = """
import os, socket, sys
if sys.argv[4]:
    os.setuid(int(sys.argv[4]))  # only now: the interpreter itself may lie where others cannot read
connection = socket.socket(socket.AF_UNIX if sys.argv[1] else socket.AF_INET)
connection.settimeout(10)
connection.connect(sys.argv[1] or ("127.0.0.1", int(sys.argv[2])))
head = f"GET /status HTTP/1.1\\r\\nHost: localhost:{sys.argv[2]}\\r\\nConnection: close\\r\\n{sys.argv[3]}\\r\\n"
connection.sendall(head.encode())
print(connection.recv(65536).split()[1].decode())
"""
NOBODY = "65534"


def ask(port: int, path: str = "", header: str = "", *, user: str = "", through: Sequence[str] = ()) -> str:
    command = [*through, sys.executable, "-I", "-S", "-c", ASK, path, str(port), header, user]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=20, check=True)
    return done.stdout.strip()


def test_a_child_of_an_agent_is_identified_over_the_socket_and_not_over_tcp(tmp_path: Path) -> None:
    me = AgentEntry("synapse-claude-8100", "claude", pid=os.getpid())
    with served(tmp_path, InMemoryService, entries=lambda: (me,)) as host:
        assert ask(host.port, str(host.socket)) == "200"
        assert ask(host.port, str(host.socket), through=["sh", "-c", '"$@"; true', "sh"]) == "200"
        assert ask(host.port) == "200"

    child, grandchild, over_tcp = host.service.callers
    assert (child.agent_id, grandchild.agent_id) == ("synapse-claude-8100", "synapse-claude-8100")
    assert child.via_socket
    assert child.pid not in (0, os.getpid())
    assert (over_tcp.agent_id, over_tcp.via_socket) == ("", False)


def test_a_process_that_belongs_to_no_agent_is_a_person(tmp_path: Path) -> None:
    elsewhere = AgentEntry("synapse-claude-8100", "claude", pid=2**22 + 1, cli_pid=2**22 + 2)
    with served(tmp_path, InMemoryService, entries=lambda: (elsewhere,)) as host:
        ask(host.port, str(host.socket))

    assert not host.service.callers[0].is_agent


def test_a_connection_is_identified_once(tmp_path: Path) -> None:
    asked: list[int] = []

    def entries() -> Sequence[AgentEntry]:
        asked.append(1)
        return ()

    with served(tmp_path, InMemoryService, entries=entries) as host:
        client = WireClient(host.port, str(host.socket))
        with client.connect() as connection:
            for _ in range(3):
                connection.sendall(b"GET /status HTTP/1.1\r\nHost: x\r\n\r\n")
                assert connection.recv(65536).startswith(b"HTTP/1.1 200")

    assert len(asked) == 1


@pytest.mark.skipif(os.getuid() != 0, reason="only root can run as another user")
def test_another_user_needs_the_token_over_tcp(tmp_path: Path) -> None:
    with served(tmp_path, InMemoryService, token="t0ken") as host:
        without = ask(host.port, user=NOBODY)
        wrong = ask(host.port, header="Authorization: Bearer no\r\n", user=NOBODY)
        right = ask(host.port, header="Authorization: Bearer t0ken\r\n", user=NOBODY)

    assert (without, wrong, right) == ("401", "401", "200")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can run as another user")
def test_another_user_cannot_open_the_socket_even_in_an_accessible_folder() -> None:
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        with served(Path(name), InMemoryService) as host, pytest.raises(subprocess.CalledProcessError) as caught:
            ask(host.port, str(host.socket), user=NOBODY)

    assert "PermissionError" in caught.value.stderr


@pytest.mark.parametrize("name", ["evil.example", "localhost", "127.0.0.1:1"])
def test_a_foreign_host_name_is_refused_over_tcp(tmp_path: Path, name: str) -> None:
    with served(tmp_path, InMemoryService) as host:
        reply = WireClient(host.port).request("GET", "/status", headers={"Host": name})

    assert (reply.status, reply.code) == (403, "foreign_origin")


def test_a_web_page_is_refused(tmp_path: Path) -> None:
    with served(tmp_path, InMemoryService) as host:
        reply = WireClient(host.port).request(
            "POST", "/tasks/send", b"{}", {"Origin": "http://evil.example", "Content-Type": "text/plain"}
        )

    assert (reply.status, reply.code) == (403, "foreign_origin")
