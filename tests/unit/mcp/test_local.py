"""The tools with fake hosts: older ones, ones that fail, and answers that come at the worst moment."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from synapse.client import hosts
from synapse.core.agent import AgentEntry
from synapse.core.errors import SynapseError, TaskNotFound
from synapse.mcp import local
from synapse.mcp.local import LocalTools, RunningCall
from synapse.mcp.tools import AGENT_TOOLS, ToolResult
from synapse.registry.files import FileRegistry
from tests.fakes.link import FakeLink
from tests.unit.cli.conftest import HostFactory, become
from tests.unit.cli.fake_host import FakeHost, Fields

BY_NAME = {tool.name: tool for tool in AGENT_TOOLS}
NOT_THERE = (404, {"error": {"code": "route_not_found", "message": "no such path"}})
Run = Callable[..., ToolResult]


def cancel_stored(_ids: list[str]) -> list[Fields | SynapseError]:
    return []


def new_tools(home: Path, wait: float = 5.0, found: tuple[AgentEntry, Fields] | None = None) -> LocalTools:
    def find_task(prefix: str, _registry: FileRegistry) -> tuple[AgentEntry, Fields]:
        if found is None:
            raise TaskNotFound(prefix)
        return found

    return LocalTools(
        FileRegistry(home / "registry"),
        time.monotonic,  # noqa: TID251 - real streams are waited for
        longest_wait=wait,
        find_task=find_task,
        cancel_stored=cancel_stored,
    )


@pytest.fixture
def run(home: Path) -> Run:
    def call(name: str, *, limit: float = 5.0, running: RunningCall | None = None, **given: Any) -> ToolResult:
        parsed = BY_NAME[name].read(given)
        return new_tools(home, limit).run(parsed, running or RunningCall(lambda _doing: None))

    return call


@pytest.fixture
def claude(start: HostFactory, monkeypatch: pytest.MonkeyPatch) -> FakeHost:
    host = start("claude", 8100)
    become(host, monkeypatch)
    return host


def answering(claude: FakeHost, text: str) -> Callable[[Fields], None]:
    """Returns an agent that replies at once to the task that waits at claude."""

    def answer(task: Fields) -> None:
        waiting = claude.find(task["metadata"]["sender_task_id"])
        assert waiting is not None
        claude.answer(waiting, text)

    return answer


def paths_of(host: FakeHost) -> list[str]:
    return [path for method, path, _ in host.requests if method == "POST"]


def test_a_waiting_task_is_followed_before_the_message_is_sent(claude: FakeHost, start: HostFactory, run: Run) -> None:
    codex = start()
    codex.on_send = answering(claude, "42")

    result = run("send", to="codex", text="what?", wait="answer")

    assert result.blocks[1] == "42"
    steps = [path for _, path, _ in claude.requests]
    assert steps[0] == "/tasks/create"
    assert steps[1].endswith("/subscribe")
    assert not any(path.endswith("/leave") for path in steps)


def test_an_answer_that_came_as_the_wait_ended_is_returned(claude: FakeHost, start: HostFactory, run: Run) -> None:
    start()
    claude.on_leave = lambda task: claude.answer(task, "just in time")

    result = run("send", limit=1.0, to="codex", text="what?", wait="answer")

    assert result.blocks[1] == "just in time"


def test_an_answer_that_was_delivered_as_a_message_is_not_told_again(
    claude: FakeHost, start: HostFactory, run: Run
) -> None:
    codex = start()

    def answer_without_waiter(task: Fields) -> None:
        waiting = claude.find(task["metadata"]["sender_task_id"])
        assert waiting is not None
        waiting["metadata"]["waiter_left"] = True
        claude.answer(waiting, "typed already")

    codex.on_send = answer_without_waiter

    result = run("send", to="codex", text="what?", wait="answer")

    assert "typed already" not in str(result.blocks)
    assert "message of its own" in result.blocks[0]


def test_an_older_host_notices_the_end_of_the_stream(claude: FakeHost, start: HostFactory, run: Run) -> None:
    codex = start()
    codex.on_send = lambda task: claude.refusals.update(
        {f"/tasks/{task['metadata']['sender_task_id']}/leave": NOT_THERE}
    )

    result = run("send", limit=1.0, to="codex", text="what?", wait="answer")

    assert not result.is_error
    assert "message of its own" in result.blocks[0]


def test_an_answer_that_came_as_the_client_canceled_is_handed_over(
    claude: FakeHost, start: HostFactory, run: Run
) -> None:
    codex, running = start(), RunningCall(lambda _doing: None)
    codex.on_send = lambda _task: threading.Thread(target=running.leave).start()
    claude.on_leave = lambda task: claude.answer(task, "nobody reads this")

    run("send", to="codex", text="what?", wait="answer", running=running)
    assert running.hand_over is not None
    running.hand_over()

    (handed,) = [body for _, path, body in claude.requests if path == "/tasks/send"]
    assert "nobody reads this" in handed["message"]["parts"][0]["text"]


def test_a_call_that_was_left_before_it_sent_sends_nothing(claude: FakeHost, start: HostFactory, run: Run) -> None:
    codex, running = start(), RunningCall(lambda _doing: None)
    running.leave()

    result = run("send", to="codex", text="what?", wait="answer", running=running)

    assert result.blocks == ("The call ended before anything was sent.",)
    assert paths_of(codex) == []
    assert [path.rpartition("/")[2] for path in paths_of(claude)] == ["create", "cancel"]


def test_a_refused_message_leaves_no_waiting_task(claude: FakeHost, start: HostFactory, run: Run) -> None:
    codex = start()
    codex.refusals["/tasks/send"] = (409, {"error": {"code": "queue_full", "message": "codex has 100 messages"}})

    with pytest.raises(SynapseError, match="100 messages"):
        run("send", to="codex", text="what?", wait="answer")

    (waiting,) = claude.tasks.values()
    assert waiting["status"] == "canceled"


def test_a_message_in_doubt_names_the_key_that_repeats_it_safely(
    claude: FakeHost, start: HostFactory, run: Run
) -> None:
    codex = start()
    codex.dropped_connections = 9

    with pytest.raises(SynapseError) as failed:
        run("send", to="codex", text="what?")
    key = failed.value.hint.partition('idempotency_key="')[2].rstrip('"')
    codex.dropped_connections = 0
    run("send", to="codex", text="what?", idempotency_key=key)

    sent = {body["message"]["message_id"] for _, path, body in codex.requests if path == "/tasks/send"}
    assert len(sent) == 1


def test_a_waiting_message_in_doubt_is_still_answered_by_a_message(
    claude: FakeHost, start: HostFactory, run: Run
) -> None:
    codex = start()
    codex.dropped_connections = 9

    with pytest.raises(SynapseError):
        run("send", to="codex", text="what?", wait="answer")

    assert paths_of(claude)[-1].endswith("/leave")


def test_a_question_to_a_person_returns_the_answer(claude: FakeHost, run: Run) -> None:
    claude.on_send = lambda task: claude.answer(task, "the second one")

    result = run("ask_person", question="which?", options=["first", "second"])

    assert result.blocks[1] == "the second one"
    assert "answered by a person" in result.blocks[0]
    asked = next(body for _, path, body in claude.requests if path == "/questions")
    assert asked["options"] == ["first", "second"]


def test_a_question_that_nobody_answers_in_time_arrives_later(claude: FakeHost, run: Run) -> None:
    result = run("ask_person", question="which?", timeout=0.1)

    assert "no answer from the person yet" in result.blocks[0]
    assert paths_of(claude)[-1].endswith("/leave")


def test_an_older_host_takes_no_questions(claude: FakeHost, run: Run) -> None:
    claude.refusals["/questions"] = NOT_THERE

    result = run("ask_person", question="which?")

    assert result.is_error
    assert "too old" in result.blocks[0]


def test_progress_is_reported_while_a_call_waits(
    claude: FakeHost, start: HostFactory, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "PROGRESS_SECONDS", 0.02)
    monkeypatch.setattr("synapse.client.watch.PULSE_SECONDS", 0.05)
    start()
    told: list[str] = []

    run("send", limit=1.0, to="codex", text="what?", wait="answer", running=RunningCall(told.append))

    assert len(told) > 2
    assert set(told) == {"waiting for codex-8120"}


def test_a_person_or_an_unproven_sender_is_no_target(claude: FakeHost, run: Run) -> None:
    for name in ("user", "@user", "unverified.codex", "key.ci"):
        result = run("send", to=name, text="hello")

        assert result.is_error
        assert "`reply`" in result.blocks[0]
    assert claude.requests == []


def test_a_person_is_not_told_of_a_tool_that_the_server_of_an_app_lacks(start: HostFactory, run: Run) -> None:
    start("codex", 8120)

    (text,) = run("send", to="unverified.user", text="x").blocks

    assert text == "'unverified.user' is not an agent. Call `agents` to see who is here."


def test_an_agent_does_not_wait_for_itself(claude: FakeHost, run: Run) -> None:
    result = run("send", to="claude", text="x", wait="answer")

    assert result.is_error
    assert "you cannot answer while you wait" in result.blocks[0]
    assert paths_of(claude) == []


def test_only_the_proven_sender_cancels_a_task(claude: FakeHost, start: HostFactory, home: Path) -> None:
    codex = start()
    mine = {"sender": {"sender_id": claude.entry.agent_id}, "sender_verified": True}
    cases = [(mine, True), ({**mine, "sender_verified": False}, False), ({**mine, "sender": {"sender_id": "x"}}, False)]
    for metadata, is_allowed in cases:
        task = codex.open({"message": {"role": "user", "parts": []}, "metadata": metadata})
        found = (codex.entry, task)
        call = BY_NAME["cancel"].read({"task": task["id"]})

        result = new_tools(home, found=found).run(call, RunningCall(lambda _doing: None))

        assert result.is_error is not is_allowed
        assert (task["status"] == "canceled") is is_allowed


def test_every_request_of_a_launch_shows_its_secret(
    claude: FakeHost, start: HostFactory, run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "_launch", {})
    folder = home / "launches" / claude.entry.agent_id
    folder.mkdir(parents=True)
    (folder / "secret").write_text("s3cret\n", encoding="ascii")
    codex = start()
    codex.on_send = answering(claude, "42")

    hosts.show_launch(str(home))
    run("send", to="codex", text="what?", wait="answer")

    assert set(claude.launches + codex.launches) == {"s3cret"}


@pytest.mark.parametrize("secret", [b"", b"\xff\xfe", b"a\r\nX-Evil: 1"])
def test_a_broken_secret_is_not_shown(
    claude: FakeHost, home: Path, monkeypatch: pytest.MonkeyPatch, secret: bytes
) -> None:
    monkeypatch.setattr(hosts, "_launch", {})
    folder = home / "launches" / claude.entry.agent_id
    folder.mkdir(parents=True)
    (folder / "secret").write_bytes(secret)

    hosts.show_launch(str(home))

    assert hosts.address_of(claude.entry).launch == ""


def test_an_agent_that_refuses_us_is_not_said_to_be_away(claude: FakeHost, start: HostFactory, run: Run) -> None:
    codex = start()
    codex.refusals["/status"] = (401, {"error": {"code": "unauthenticated", "message": "the launch secret is old"}})

    (line,) = [line for line in run("agents").blocks[0].split("\n") if line.startswith("codex")]

    assert "unknown - the launch secret is old" in line
    assert "not responding" not in line


def test_a_message_whose_wait_could_not_be_opened_has_certainly_not_arrived(
    claude: FakeHost, start: HostFactory, run: Run
) -> None:
    codex = start()
    claude.dropped_connections = 9

    with pytest.raises(SynapseError) as failed:
        run("send", to="codex", text="what?", wait="answer")

    assert failed.value.hint == "the message was not sent"
    assert codex.requests == []


def test_agents_of_other_machines_are_listed_with_their_machine(claude: FakeHost, home: Path, run: Run) -> None:
    assert len(run("agents").blocks[0].splitlines()) == 1
    with FakeLink(home).serving() as link:
        link.start("box2")
        link.join("box3")
        link.away["box3"] = "2026-11-17T09:00:00Z"

        own, remote, away = run("agents").blocks[0].splitlines()
    silent = run("agents").blocks[0].splitlines()

    assert own.startswith("claude-8100 (you): ready")
    assert remote.startswith("codex-8120@box2 (codex): ready - the prompt is empty")
    assert away == "machine box3: away since 2026-11-17T09:00:00Z; its agents too"
    assert silent[1].startswith("Agents on other machines are not known now: the link of this machine does not run")


def test_an_answer_comes_from_an_agent_on_another_machine(claude: FakeHost, home: Path, run: Run) -> None:
    with FakeLink(home).serving() as link:
        codex = link.start("box2")
        codex.on_send = answering(claude, "42")

        result = run("send", to="codex@box2", text="what?", wait="answer")
        shown = run("status", of="codex@box2")

    assert result.blocks[1] == "42"
    assert "answered by codex-8120@box2" in result.blocks[0]
    assert shown.blocks[0].startswith("codex-8120@box2: ready")


@pytest.mark.parametrize(("machine", "is_mine"), [("laptop", True), ("box2", False)])
def test_an_agent_cancels_on_another_machine_what_it_has_sent_itself(
    claude: FakeHost, home: Path, *, machine: str, is_mine: bool
) -> None:
    with FakeLink(home).serving() as link:
        codex = link.start("box2")
        metadata = {"sender": {"sender_id": f"{claude.entry.agent_id}@{machine}"}, "sender_inbox": f"{machine}!x"}
        task = codex.open({"message": {"role": "user", "parts": []}, "metadata": metadata})
        tools = new_tools(home, found=(codex.entry, task))

        tools.run(BY_NAME["cancel"].read({"task": task["id"]}), RunningCall(lambda _doing: None))

    assert (task["status"] == "canceled") is is_mine
