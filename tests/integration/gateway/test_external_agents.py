"""External agents are registered at a gateway by URL, and called like any other agent."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import pytest

from tests.conformance.real_gateway import RunningGateway, gateway, new_key
from tests.conformance.real_hosts import COMMAND, PATIENCE, ROOT, environ, scripted_host
from tests.fakes.strangers import Heard, Said, Stranger, card_0_3, card_1_0, rpc, stranger_at_home
from tests.integration.waiting import until

pytestmark = pytest.mark.integration

SCRIPT = """
[[rule]]
text = "ask"
steps = [{ ask = "which one?" }, { answer = "you said {text}" }]

[[rule]]
text = "wait"
steps = [{ state = "working" }, { wait = 60 }, { fail = "nobody canceled" }]

[default]
steps = [{ state = "working" }, { answer = "you said {text}" }]
"""
KINDS = ["sdk-rpc", "sdk-rest", "sdk-plain", "synapse-1-0", "synapse-0-3", "synapse-0-3-rest", "locked"]


@contextmanager
def sdk_agents() -> Generator[subprocess.Popen[str]]:
    """The agents on the official SDK's server, in a process of their own, which prints their ports."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.agents.sdk_agent"],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        encoding="utf-8",
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A gateway that knows one agent of each kind; those of Synapse live in a home of their own."""
    home, elsewhere = tmp_path_factory.mktemp("h"), tmp_path_factory.mktemp("e")
    script = elsewhere / "script.toml"
    script.write_text(SCRIPT, encoding="utf-8")
    inner = f'[[agents]]\nid = "inner"\ndriver = "scripted"\nscript = "{script}"\n'
    with ExitStack() as stack:
        sdk = stack.enter_context(sdk_agents())
        host = stack.enter_context(scripted_host(elsewhere, script))
        stranger = stack.enter_context(stranger_at_home())
        stranger.serves("/.well-known/agent-card.json", card_0_3(f"http://127.0.0.1:{host.port}/", streaming=True))
        former = {"url": f"http://127.0.0.1:{host.port}", "preferredTransport": "HTTP+JSON"}
        stranger.serves("/rest.json", {**card_0_3("", streaming=True), **former})
        locked = stack.enter_context(gateway(elsewhere, inner))
        assert sdk.stdout is not None
        ports = sdk.stdout.readline().split()
        addresses = {
            **{name: f"http://127.0.0.1:{port}" for name, port in zip(KINDS[:3], ports, strict=True)},
            "synapse-1-0": f"http://127.0.0.1:{host.port}",
            "synapse-0-3": stranger.url,
            "synapse-0-3-rest": f"{stranger.url}/rest.json",
        }
        _add(home, f"{locked.url}/agents/inner", "locked", new_key(elsewhere, "us"))
        running = stack.enter_context(gateway(home, "", "--no-auth"))
        for name, url in addresses.items():
            made = running.ask("POST", "/agents", {"url": url, "id": name})
            assert made.status == 201, made.body
        yield running


def _add(home: Path, url: str, alias: str, key: str) -> None:
    """Adds an agent that wants a key, as a person does."""
    added = [*COMMAND, "external", "add", url, "--alias", alias, "--bearer-env", "OTHERS_KEY"]
    env = {**environ(home), "OTHERS_KEY": key}
    subprocess.run(added, env=env, cwd=home, check=True, capture_output=True, timeout=PATIENCE)


def ask(running: RunningGateway, method: str, path: str, body: object = None) -> Any:
    reply = running.ask(method, path, body, A2A_Version="1.0")
    assert reply.status == 200, reply.body
    return reply.json


def send(running: RunningGateway, agent: str, text: str, task_id: str = "", **configuration: Any) -> Any:
    message = {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": [{"text": text}]}
    if task_id:
        message["taskId"] = task_id
    body = {"message": message, "configuration": configuration}
    return ask(running, "POST", f"/agents/{agent}/v1/message:send", body)["task"]


def said(task: Any) -> str:
    return "".join(part["text"] for artifact in task["artifacts"] for part in artifact["parts"])


@pytest.mark.parametrize("agent", KINDS)
def test_the_answer_of_an_external_agent_arrives(running: RunningGateway, agent: str) -> None:
    task = send(running, agent, "hello")

    assert (task["status"]["state"], said(task)) == ("TASK_STATE_COMPLETED", "you said hello")


@pytest.mark.parametrize("agent", KINDS)
def test_a_question_of_an_external_agent_is_answered_in_its_task(running: RunningGateway, agent: str) -> None:
    asked = send(running, agent, "ask")
    assert asked["status"]["state"] == "TASK_STATE_INPUT_REQUIRED", asked
    assert asked["status"]["message"]["parts"] == [{"text": "which one?"}]

    done = send(running, agent, "this one", asked["id"])

    assert (done["status"]["state"], said(done)) == ("TASK_STATE_COMPLETED", "you said this one")


@pytest.mark.parametrize("agent", KINDS)
def test_a_cancel_reaches_the_external_agent(running: RunningGateway, agent: str) -> None:
    task = send(running, agent, "wait", returnImmediately=True)
    path = f"/agents/{agent}/v1/tasks/{task['id']}"
    until(lambda: ask(running, "GET", path)["status"]["state"] == "TASK_STATE_WORKING", "it works on it")

    canceled = ask(running, "POST", f"{path}:cancel", {})

    assert canceled["status"]["state"] == "TASK_STATE_CANCELED"
    # The only worker of the agent is free again, which proves that the other side has canceled.
    assert said(send(running, agent, "still there?")) == "you said still there?"


def test_an_agent_that_wants_a_key_fails_without_it(running: RunningGateway) -> None:
    inner = (running.home / "external" / "locked.json").read_text(encoding="utf-8")
    url = inner.split('"url": "')[1].split('"')[0]

    refused = running.ask("POST", "/agents", {"url": url, "id": "unlocked"})

    assert refused.status in (400, 500, 502)
    assert "credentials" in str(refused.json)


def test_stored_credentials_are_private(running: RunningGateway) -> None:
    file = running.home / "external" / "credentials" / "locked.json"

    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    secret = file.read_text(encoding="utf-8").split("Bearer ")[1].split('"')[0]
    listed = running.ask("GET", "/agents/list.json").body + running.ask("GET", "/agents/locked/v1/card").body
    assert secret not in str(listed)


def test_a_removed_agent_is_no_longer_listed(running: RunningGateway) -> None:
    with stranger_at_home() as stranger:
        stranger.serves("/.well-known/agent-card.json", card_0_3(stranger.url))
        assert running.ask("POST", "/agents", {"url": stranger.url, "id": "passing"}).status == 201

    assert running.ask("DELETE", "/agents/passing").status == 204
    assert running.ask("GET", "/agents/passing/v1/card").status == 404


def test_an_agent_that_is_gone_fails_its_task(running: RunningGateway) -> None:
    with stranger_at_home() as stranger:
        stranger.serves("/.well-known/agent-card.json", card_0_3(stranger.url))
        assert running.ask("POST", "/agents", {"url": stranger.url, "id": "gone"}).status == 201

    task = send(running, "gone", "hello?")

    assert task["status"]["state"] == "TASK_STATE_FAILED"
    assert "nothing listens" in task["status"]["message"]["parts"][0]["text"]


class SlowStranger:
    """Serves one task, which a test ends, and counts the messages and cancels that it gets."""

    def __init__(self, stranger: Stranger) -> None:
        self.is_done = False
        self.sent = self.canceled = 0
        stranger.serves("/.well-known/agent-card.json", card_1_0(f"{stranger.url}/rpc"))
        stranger.routes["/rpc"] = self._reply

    def _reply(self, heard: Heard) -> Said:
        self.sent += heard.body["method"] == "SendMessage"
        self.canceled += heard.body["method"] == "CancelTask"
        task: dict[str, Any] = {"id": "there-1", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}}
        if self.is_done:
            task["status"] = {"state": "TASK_STATE_COMPLETED"}
            task["artifacts"] = [{"artifactId": "a", "parts": [{"text": "done over there"}]}]
        return Said(rpc(heard, {"task": task} if heard.body["method"] == "SendMessage" else task))


def begun_task(running: RunningGateway, url: str) -> str:
    """Sends a message to the agent at `url`, waits until it works on it, and returns the path of the task."""
    assert running.ask("POST", "/agents", {"url": url, "id": "far"}).status == 201
    task = send(running, "far", "take your time", returnImmediately=True)
    path = f"/agents/far/v1/tasks/{task['id']}"
    until(lambda: ask(running, "GET", path)["status"]["state"] == "TASK_STATE_WORKING", "it works on it")
    return path


def finished(running: RunningGateway, path: str) -> Any:
    def task() -> Any:
        found = ask(running, "GET", path)
        return found if found["status"]["state"] not in ("TASK_STATE_WORKING", "TASK_STATE_SUBMITTED") else None

    return until(task, "the task ends")


@pytest.mark.parametrize("how", ["kill", "terminate"])
def test_a_task_goes_on_when_its_gateway_ends_and_the_next_one_takes_its_result(tmp_path: Path, how: str) -> None:
    home = tmp_path / "h"
    with stranger_at_home() as stranger:
        far = SlowStranger(stranger)
        with gateway(home, "", "--no-auth") as first:
            path = begun_task(first, stranger.url)
            getattr(first.process, how)()
            first.process.wait(PATIENCE)
        far.is_done = True
        with gateway(home, "", "--no-auth") as again:
            task = finished(again, path)

    assert (task["status"]["state"], said(task)) == ("TASK_STATE_COMPLETED", "done over there")
    assert (far.sent, far.canceled) == (1, 0)


def test_a_second_gateway_takes_over_the_agents_of_one_that_is_gone(tmp_path: Path) -> None:
    home = tmp_path / "h"
    with (
        stranger_at_home() as stranger,
        gateway(home, "", "--no-auth") as first,
        gateway(home, "", "--no-auth") as other,
    ):
        far = SlowStranger(stranger)
        path = begun_task(first, stranger.url)
        first.process.kill()
        first.process.wait(PATIENCE)
        far.is_done = True

        task = finished(other, path)
        assert (task["status"]["state"], said(task)) == ("TASK_STATE_COMPLETED", "done over there")
        assert said(send(other, "far", "still there?")) == "done over there"


@pytest.mark.parametrize(
    ("folder", "warning", "status"), [("gateways", "externals_not_read", 200), ("registry", "registry_not_read", 503)]
)
def test_a_registry_that_cannot_be_read_ends_neither_the_gateway_nor_its_agents(
    folder: str, warning: str, status: int
) -> None:
    # A short path, or the in-process agent has no socket, and no entry in the registry.
    with (
        TemporaryDirectory(prefix="s") as short,
        stranger_at_home() as stranger,
        gateway(home := Path(short) / "h", "", "--no-auth") as running,
    ):
        far = SlowStranger(stranger)
        path = begun_task(running, stranger.url)
        place, aside = home / folder, home / "aside"
        # The gateway makes the registry when it enters its first in-process agent there.
        until(place.is_dir, "the folder")
        place.rename(aside)
        place.write_text("not a folder", encoding="utf-8")

        until(lambda: running.process.poll() is not None or warning in logged(home), "a failed read of the registry")
        assert running.process.poll() is None
        assert running.ask("GET", path, A2A_Version="1.0").status == status
        place.unlink()
        aside.rename(place)
        far.is_done = True

        assert said(finished(running, path)) == "done over there"
        assert (far.sent, far.canceled) == (1, 0)


def logged(home: Path) -> str:
    return "".join(file.read_text(encoding="utf-8") for file in (home / "logs").glob("*.log"))


def test_a_question_is_answered_after_the_gateway_was_started_anew(tmp_path: Path) -> None:
    def reply(heard: Heard) -> Said:
        goes_on = heard.body["params"]["message"].get("taskId") == "there-1"
        state = "TASK_STATE_COMPLETED" if goes_on else "TASK_STATE_INPUT_REQUIRED"
        return Said(rpc(heard, {"task": {"id": "there-1", "contextId": "c", "status": {"state": state}}}))

    home = tmp_path / "h"
    with stranger_at_home() as stranger:
        stranger.serves("/.well-known/agent-card.json", card_1_0(f"{stranger.url}/rpc"))
        stranger.routes["/rpc"] = reply
        with gateway(home, "", "--no-auth") as first:
            assert first.ask("POST", "/agents", {"url": stranger.url, "id": "far"}).status == 201
            asked = send(first, "far", "hello")
        with gateway(home, "", "--no-auth") as again:
            done = send(again, "far", "this one", asked["id"])

    assert (asked["status"]["state"], done["status"]["state"]) == ("TASK_STATE_INPUT_REQUIRED", "TASK_STATE_COMPLETED")
