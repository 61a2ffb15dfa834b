"""The secret of a launch, at real hosts: an agent whose pids are hidden is who it is, and nobody else is."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from synapse.client.http import HostAddress
from tests.fakes.sandbox import can_hide_pids, with_own_pids
from tests.integration.cli.session import ROOT, Session, session
from tests.integration.host.as_launch import ask

pytestmark = pytest.mark.integration

ASK = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from tests.integration.host.as_launch import send
send(*sys.argv[1:])
"""


@pytest.fixture
def here() -> Iterator[Session]:
    # Not pytest's folder: the path of a Unix socket must be short.
    with tempfile.TemporaryDirectory(prefix="syn-") as folder, session(Path(folder) / "h") as opened:
        yield opened


def secret_file(here: Session, agent: dict[str, Any]) -> Path:
    return here.home / "launches" / str(agent["agent_id"]) / "secret"


def secret_of(here: Session, agent: dict[str, Any]) -> str:
    return secret_file(here, agent).read_text(encoding="ascii").strip()


def send_hidden(here: Session, to: dict[str, Any], secret: str, claimed: str) -> tuple[int, dict[str, Any]]:
    """Send a message from a process whose ancestors the host cannot see."""
    command = with_own_pids([sys.executable, "-c", ASK, to["socket"], secret, claimed, "hello"])
    done = subprocess.run(command, env=here.environ, capture_output=True, encoding="utf-8", timeout=20, check=True)
    status, body = json.loads(done.stdout)
    return status, body


@pytest.mark.skipif(not can_hide_pids(), reason="this user may not make namespaces")
def test_an_agent_with_hidden_pids_is_proven_by_its_secret(here: Session) -> None:
    ada, bob = here.start("ada"), here.start("bob")

    plain_status, plain = send_hidden(here, bob, "", ada["agent_id"])
    status, proven = send_hidden(here, bob, secret_of(here, ada), ada["agent_id"])
    mismatched, error = send_hidden(here, bob, secret_of(here, bob), ada["agent_id"])
    unknown, refused = send_hidden(here, bob, "x" * 43, ada["agent_id"])

    assert (plain_status, plain["task"]["metadata"]["sender_verified"]) == (200, False)
    assert (status, proven["task"]["metadata"]["sender_verified"]) == (200, True)
    assert (mismatched, error["error"]["code"]) == (403, "sender_mismatch")
    assert (unknown, refused["error"]["code"]) == (401, "unauthenticated")


def test_an_agent_that_is_proven_gets_nowhere_with_another_secret(here: Session) -> None:
    ada, bob = here.start("ada"), here.start("bob")
    script = here.folder / "ask.py"
    script.write_text(ASK, encoding="utf-8")
    command = f"{sys.executable} {script} {bob['socket']} {secret_of(here, bob)} {bob['agent_id']} hi > said"
    profile = here.folder / ".synapse" / "profiles" / "shell.toml"
    profile.parent.mkdir(parents=True)
    profile.write_text(
        "command = ['sh', '-c', 'while read -r line; do eval \"${line#*] }\"; done']\n", encoding="utf-8"
    )
    here.run("trust")
    started = here.run("start", "shell", "--no-instructions", "--json")
    assert started.code == 0, started

    here.run("send", "shell", command, "--wait=submitted", "--timeout", "20")

    status, body = json.loads(wait_for(here.folder / "said"))
    assert (status, body["error"]["code"]) == (403, "sender_mismatch")
    assert ada["agent_id"] not in body["error"]["message"]


def test_a_port_takes_no_secret(here: Session) -> None:
    ada = here.start("ada")
    secret, socket = secret_of(here, ada), HostAddress(ada["socket"])

    over_tcp = ask(HostAddress("", port=ada["port"]), "GET", "/status", secret)
    once, twice = ask(socket, "GET", "/status", secret), ask(socket, "GET", "/status", secret, secret)
    huge = ask(socket, "GET", "/status", "x" * 50_000)

    assert [status for status, _ in (over_tcp, twice, once, huge)] == [401, 401, 200, 401]


def test_whoever_shows_a_secret_has_no_rights_of_a_person(here: Session) -> None:
    ada, bob = here.start("ada"), here.start("bob")
    message = {"message": {"role": "user", "parts": [{"type": "text", "text": "Which branch?"}]}}
    secret, other = secret_of(here, ada), secret_of(here, bob)
    socket = HostAddress(ada["socket"])
    _, asked = ask(socket, "POST", "/questions", secret, body=message)
    path = f"/tasks/{asked['task']['id']}"

    for shown in (secret, other):
        assert ask(socket, "POST", f"{path}/answer", shown, body={"text": "main"})[0] == 403
    for route, body in (("/questions", message), (f"{path}/leave", {}), ("/mcp/ready", {}), ("/reply", message)):
        assert ask(socket, "POST", route, other, body=body)[0] == 403, route
    # Without it, this process is a person's.
    assert ask(socket, "POST", f"{path}/answer", body={"text": "main"})[0] == 200


def test_a_launch_that_fails_leaves_nothing_behind(here: Session) -> None:
    program = here.folder / "broken"
    program.write_text("#!/there/is/no/such/interpreter\n", encoding="utf-8")
    program.chmod(0o700)
    profile = here.folder / ".synapse" / "profiles" / "broken.toml"
    profile.parent.mkdir(parents=True)
    profile.write_text(f"command = ['{program}']\n", encoding="utf-8")
    here.run("trust")

    assert here.run("start", "broken", "--no-instructions").code != 0

    assert not [file for file in (here.home / "launches").rglob("*") if not file.is_dir()]


def test_a_secret_lives_as_long_as_its_launch_and_is_shown_nowhere(here: Session) -> None:
    ada = here.start("ada")
    file = secret_file(here, ada)
    first = secret_of(here, ada)
    registered = json.loads((here.home / "registry" / f"{ada['agent_id']}.json").read_text(encoding="utf-8"))

    assert here.run("restart", "ada").code == 0
    second = secret_of(here, ada)
    told = here.run("list", "--json").out + here.run("status", "ada", "--json").out + json.dumps(ada)
    assert here.run("stop", "ada").code == 0

    logs = "".join(log.read_text(encoding="utf-8") for log in (here.home / "logs").iterdir())
    assert first != second
    assert registered["launch_key"]
    for hidden in (first, second, registered["launch_key"], "launch_key"):
        assert hidden not in told
        assert hidden not in logs
    assert not file.exists()


def test_only_its_user_can_read_a_secret(here: Session) -> None:
    previous = os.umask(0)
    try:
        ada = here.start("ada")
    finally:
        os.umask(previous)

    file = secret_file(here, ada)
    assert [stat.S_IMODE(one.stat().st_mode) for one in (file, file.parent, file.parent.parent)] == [
        0o600,
        0o700,
        0o700,
    ]


def wait_for(file: Path) -> str:
    deadline = time.monotonic() + 20
    while not (file.exists() and (text := file.read_text(encoding="utf-8"))):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return text
