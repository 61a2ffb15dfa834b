"""Conversations between real hosts: instructions, replies, circles, files, senders, and the contract's curl lines."""

from __future__ import annotations

import base64
import json
import os
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from synapse.client.http import HostAddress, request
from tests.integration.cli.session import COMMAND, Session, session
from tests.samples.commands import Ran
from tests.samples.ports import own_port

pytestmark = pytest.mark.integration


@pytest.fixture
def here() -> Iterator[Session]:
    # Not pytest's folder: the path of a Unix socket must be short.
    with tempfile.TemporaryDirectory(prefix="syn-") as folder, session(Path(folder) / "h") as opened:
        yield opened


def ask(
    agent: dict[str, Any], method: str, path: str, body: dict[str, Any] | None = None
) -> tuple[int, dict[str, Any]]:
    answer = request(HostAddress(agent["socket"]), method, path, body)
    return answer.status, answer.body


def text(words: str) -> dict[str, Any]:
    return {"message": {"role": "user", "parts": [{"type": "text", "text": words}]}}


def answer_of(here: Session, *arguments: str) -> Ran:
    return here.run("send", *arguments, "--response", "--timeout", "20")


def test_the_initial_instructions_are_a_task_from_the_system(here: Session) -> None:
    agent = here.run("start", "dummy", "--json").json

    _, page = ask(agent, "GET", "/tasks")

    (task,) = page["tasks"]
    assert task["metadata"]["sender"] == {
        "sender_id": "synapse-system",
        "sender_type": "system",
        "sender_endpoint": f"http://localhost:{agent['port']}",
    }
    words = task["message"]["parts"][0]["text"]
    assert words.startswith("[Synapse A2A Protocol Instructions]\n\n")
    assert f"- Agent ID: {agent['agent_id']}\n- Agent Type: dummy\n- Port: {agent['port']}" in words


def test_instructions_can_be_left_out(here: Session) -> None:
    agent = here.run("start", "dummy", "--no-instructions", "--json").json

    assert ask(agent, "GET", "/tasks")[1]["tasks"] == []


def test_an_explicit_reply_is_the_answer(here: Session) -> None:
    here.start("ada")

    answered = here.run("send", "ada", "reply the tests pass", "--response", "--json", "--timeout", "20").json

    assert answered["reply"] == "the tests pass"
    assert answered["task"]["artifacts"][0]["metadata"] == {"source": "reply", "inferred": False}


def test_a_turn_without_a_reply_answers_with_its_final_text_marked_as_inferred(here: Session) -> None:
    here.start("ada")

    answered = here.run("send", "ada", "hello", "--response", "--json", "--timeout", "20").json

    assert answered["reply"] == "echo: hello"
    assert answered["task"]["artifacts"][0]["metadata"] == {"source": "screen", "inferred": True}


def test_the_prompt_shows_the_senders_task_and_name(here: Session) -> None:
    ada, bob = here.start("ada"), here.start("bob")
    answer_of(here, "ada", "ask bob how are you")

    asked = ask(bob, "GET", "/tasks")[1]["tasks"][0]

    assert asked["metadata"]["sender"]["sender_id"] == ada["agent_id"]
    assert asked["metadata"]["sender_verified"] is True
    assert asked["metadata"]["response_expected"] is True
    waiting = ask(ada, "GET", f"/tasks/{asked['metadata']['sender_task_id'][:8]}")[1]
    assert (waiting["status"], waiting["artifacts"][0]["metadata"]["inferred"]) == ("completed", True)


def test_a_reply_to_an_unknown_task_is_delivered_as_a_new_message_with_a_warning(here: Session) -> None:
    ada = here.start("ada")

    ran = here.run("send", "ada", "late news", "--reply-to", "abc12345")

    assert ran.code == 0
    assert "Warning: --reply-to abc12345 not found (404), retrying as new message" in ran.err
    assert ask(ada, "GET", "/tasks")[1]["tasks"][0]["message"]["parts"][0]["text"] == "late news"


def test_agents_that_would_wait_for_each_other_are_refused_at_once(here: Session) -> None:
    here.start("ada")
    here.start("bob")

    # Ada asks Bob, and Bob, to answer, asks Ada back.
    answered = answer_of(here, "ada", "ask bob ask ada how are you")

    assert answered.code == 0
    assert "ended with status 7" in answered.out


def test_a_sender_that_is_not_who_it_claims_to_be_is_refused(here: Session) -> None:
    here.start("ada")
    bob = here.start("bob")
    obedient = 'while read -r line; do eval "${line#*] }"; done'
    add_profile(here, "liar", f"command = ['sh', '-c', '{obedient}']\n")
    here.run("start", "liar", "--no-instructions")
    lie = " ".join([*COMMAND, "send", "ada", "obey", "--from", bob["agent_id"], ">", "said", "2>&1"])

    here.run("send", "liar", lie + "; echo $? >> said; exit", "--wait=submitted", "--timeout", "20")

    said = wait_for(here.folder / "said", "7\n")
    assert "belongs to 'synapse-liar-" in said


def add_profile(here: Session, name: str, rules: str) -> None:
    """Write a profile of the project, which its person trusts."""
    profile = here.folder / ".synapse" / "profiles" / f"{name}.toml"
    profile.parent.mkdir(parents=True)
    profile.write_text(rules, encoding="utf-8")
    here.run("trust")


def wait_for(path: Path, ending: str) -> str:
    """Waits until the file exists and ends with `ending`; returns its text."""
    script = f'while ! tail -c {len(ending)} "$0" 2>/dev/null | cmp -s - <(printf "%b" "$1"); do sleep 0.05; done'
    subprocess.run(["bash", "-c", script, str(path), ending], timeout=20, check=True)
    return path.read_text(encoding="utf-8")


def test_a_file_part_of_any_type_reaches_the_program_as_a_private_file(here: Session) -> None:
    ada = here.start("ada")
    body = text("read this")
    content = base64.b64encode(b"%PDF-1.7").decode()
    for file in ({"name": "doc.pdf", "mimeType": "application/pdf"}, {"mimeType": "image/png"}):
        body["message"]["parts"].append({"type": "file", "file": {**file, "bytes": content}})

    card = ask(ada, "GET", "/.well-known/agent-card.json")[1]
    task = ask(ada, "POST", "/tasks/send", body)[1]["task"]
    done = finished(ada, task["id"])

    typed = done["artifacts"][0]["parts"][0]["text"].replace("\n", "")
    paths = [Path(place.partition("]")[0]) for place in typed.split("[file: ")[1:]]
    assert "*/*" in card["defaultInputModes"]
    assert [path.name for path in paths] == ["doc.pdf", "file.png"]
    assert [path.read_bytes() for path in paths] == [b"%PDF-1.7"] * 2
    assert {stat.S_IMODE(path.stat().st_mode) for path in paths} == {0o600}


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o002])
def test_everything_under_the_home_is_private_under_any_umask(umask: int) -> None:
    before = os.umask(umask)
    try:
        with tempfile.TemporaryDirectory(prefix="syn-") as folder, session(Path(folder) / "new" / "h") as here:
            # As an earlier version left it.
            (here.home / "files").mkdir(mode=0o777, parents=True)
            for folder_above in (here.home, here.home.parent):
                folder_above.chmod(0o700)
            ada = here.start("ada")
            body = text("a long one " * 2000)
            content = base64.b64encode(b"hello").decode()
            body["message"]["parts"].append({"type": "file", "file": {"name": "a.txt", "bytes": content}})
            finished(ada, ask(ada, "POST", "/tasks/send", body)[1]["task"]["id"])
            here.run("keys", "create", "ci")
            here.run("send", "nobody-yet", "later", "--queue")

            made = [path for path in here.home.rglob("*") if path != here.folder]
            assert {"files", "logs", "registry", "token", "keys.json", "store.db", "a.txt", "message.txt"} <= {
                path.name for path in made
            }
            assert [str(path) for path in made if not path.is_symlink() and path.stat().st_mode & 0o077] == []
    finally:
        os.umask(before)


def finished(agent: dict[str, Any], task_id: str) -> dict[str, Any]:
    """Waits on the task's stream until it ends."""
    done = subprocess.run(
        ["curl", "-sN", "--max-time", "20", "--unix-socket", agent["socket"], f"http://x/tasks/{task_id}/subscribe"],
        capture_output=True,
        check=True,
    )
    last = [line for line in done.stdout.decode().splitlines() if line.startswith("data: ")][-1]
    task: dict[str, Any] = json.loads(last.removeprefix("data: "))["task"]
    return task


def test_the_documented_curl_lines_work_on_the_port(here: Session) -> None:
    ada = here.start("ada")
    url = f"http://localhost:{ada['port']}"
    head = ["curl", "-s", "--max-time", "20", "-H", "Content-Type: application/json"]

    sent = subprocess.run(
        [*head, "-X", "POST", f"{url}/tasks/send", "-d", json.dumps(text("Hello!"))], capture_output=True, check=True
    )
    task = json.loads(sent.stdout)["task"]
    card = subprocess.run([*head, f"{url}/.well-known/agent.json"], capture_output=True, check=True)

    assert finished(ada, task["id"])["artifacts"][0]["parts"][0]["text"] == "echo: Hello!"
    assert json.loads(card.stdout)["extensions"]["synapse"]["agent_id"] == ada["agent_id"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
def test_another_user_needs_the_token(here: Session) -> None:
    ada = here.start("ada")
    url = f"http://localhost:{ada['port']}/status"
    token = (here.home / "token").read_text(encoding="utf-8").strip()
    code = ["-s", "-o", os.devnull, "-w", "%{http_code}", "--max-time", "10", url]

    without = subprocess.run(["curl", *code], capture_output=True, check=True, user=65534)
    with_it = subprocess.run(
        ["curl", "-H", f"Authorization: Bearer {token}", *code], capture_output=True, check=True, user=65534
    )

    assert (without.stdout, with_it.stdout) == (b"401", b"200")


def test_a_web_page_is_refused(here: Session) -> None:
    ada = here.start("ada")
    url = f"http://localhost:{ada['port']}/status"

    page = subprocess.run(
        ["curl", "-s", "--max-time", "10", "-H", "Origin: http://evil.example", url], capture_output=True, check=True
    )

    assert json.loads(page.stdout)["error"]["code"] == "foreign_origin"


def test_priority_five_interrupts_and_is_typed_ahead_of_the_queue(here: Session) -> None:
    ada = here.start("ada")
    here.run("send", "ada", "wait 60", "--wait=submitted", "--timeout", "20")
    here.run("send", "ada", "queued", "--priority", "4")

    urgent = answer_of(here, "ada", "stop!", "--priority", "5")

    assert urgent.out == "echo: stop!\n"
    texts = {task["message"]["parts"][0]["text"]: task for task in ask(ada, "GET", "/tasks")[1]["tasks"]}
    assert (texts["wait 60"]["status"], texts["wait 60"]["metadata"]["reason"]) == ("canceled", "interrupted")


def test_an_agent_gets_a_port_of_its_profile_and_from_8200_up_when_they_are_taken(here: Session) -> None:
    only = own_port()
    add_profile(here, "alone", f"command = ['cat']\nports = [{only}, {only}]\n")

    ports = [here.run("start", "alone", "--no-instructions", "--json").json["port"] for _ in range(2)]

    assert ports[0] == only
    assert ports[1] >= 8200
    assert ports[1] != only
