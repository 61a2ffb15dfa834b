"""`synapse send` and `synapse reply` against a fake host that speaks as the contract says."""

from __future__ import annotations

import io
import os
import socket
import sys
from pathlib import Path

import pytest

from synapse.core.agent import AgentEntry
from synapse.registry.files import FileRegistry, start_time
from tests.unit.cli.conftest import Cli, HostFactory, become

NO_SUCH_PID = 2**22 + 1


def test_a_message_is_sent_to_the_agents_host(synapse: Cli, start: HostFactory) -> None:
    host = start()

    ran = synapse("send", "codex", "review", "this")

    assert (ran.code, ran.out) == (0, "")
    assert ran.err.startswith("[→ codex-8120] sent  (task ")
    _, path, body = host.requests[0]
    assert path == "/tasks/send"
    assert body["message"]["parts"] == [{"type": "text", "text": "review this"}]
    assert body["metadata"] == {"sender": {"sender_id": "user", "sender_type": "user", "sender_endpoint": ""}}


def test_a_priority_goes_to_the_extension_endpoint(synapse: Cli, start: HostFactory) -> None:
    host = start()

    synapse("send", "codex", "Stop!", "--priority", "5")

    assert host.requests[0][1] == "/tasks/send-priority?priority=5"


@pytest.mark.parametrize("target", ["codex", "@codex", "codex-8120", "@codex-8120", "synapse-codex-8120", "reviewer"])
def test_an_agent_is_found_by_each_of_its_names(synapse: Cli, start: HostFactory, target: str) -> None:
    start(name="reviewer")

    assert synapse("send", target, "hi").code == 0


def test_json_gives_task_reply_and_receipt(synapse: Cli, start: HostFactory) -> None:
    start()

    ran = synapse("send", "codex", "hi", "--json")

    assert ran.json["task"]["status"] == "submitted"
    assert (ran.json["reply"], ran.json["receipt"]) == (None, "queued")


def test_an_unknown_agent_is_named_in_the_contracts_words(synapse: Cli, start: HostFactory) -> None:
    start()

    ran = synapse("send", "codx", "hi")

    assert ran.code == 3
    assert ran.err.splitlines() == ["Error: No agent found matching 'codx'", "Did you mean 'codex'?  (synapse list)"]


def test_several_agents_are_ambiguous_in_the_contracts_words(synapse: Cli, start: HostFactory) -> None:
    start(port=8120)
    start(port=8121)

    ran = synapse("send", "codex", "hi")

    assert ran.code == 4
    first, hint = ran.err.splitlines()
    assert first == "Error: Ambiguous target 'codex'. Multiple agents found."
    assert hint == "use one of: codex-8120, codex-8121"


def test_a_dead_agent_does_not_respond_and_its_entry_is_removed(synapse: Cli, home: Path) -> None:
    registry = FileRegistry(home / "registry")
    registry.write(AgentEntry("synapse-claude-8100", "claude", port=8100, pid=NO_SUCH_PID, pid_started=1))

    ran = synapse("send", "claude", "hi")

    assert ran.code == 8
    assert ran.err.splitlines() == [
        "Error: Agent 'synapse-claude-8100' server on port 8100 is not responding.",
        "restart the agent with `synapse claude`",
    ]
    assert registry.written() == []


def test_a_dead_agent_does_not_make_a_living_one_ambiguous(synapse: Cli, start: HostFactory, home: Path) -> None:
    start(port=8121)
    FileRegistry(home / "registry").write(
        AgentEntry("synapse-codex-8120", "codex", port=8120, pid=NO_SUCH_PID, pid_started=1)
    )

    assert synapse("send", "codex", "hi").code == 0


def test_an_error_is_one_object_in_json(synapse: Cli) -> None:
    ran = synapse("send", "xyz", "hi", "--json")

    assert ran.code == 3
    assert ran.json["error"]["code"] == "agent_not_found"
    assert ran.json["error"]["message"] == "No agent found matching 'xyz'"
    assert ran.json["error"]["hint"]


def test_a_hosts_refusal_keeps_its_code_and_hint(synapse: Cli, start: HostFactory) -> None:
    error = {"code": "queue_full", "message": "1000 messages wait", "hint": "synapse queue"}
    start().refusals["/tasks/send"] = (429, {"error": error})

    ran = synapse("send", "codex", "hi", "--json")

    assert (ran.code, ran.json["error"]) == (7, error)


def test_a_message_is_repeated_with_its_id_after_a_broken_connection(synapse: Cli, start: HostFactory) -> None:
    host = start()
    host.dropped_connections = 1

    assert synapse("send", "codex", "hi").code == 0
    first, second = (body["message"]["message_id"] for _, _, body in host.requests)
    assert first == second
    assert len(host.tasks) == 1


def test_a_host_that_always_closes_the_connection_does_not_respond(synapse: Cli, start: HostFactory) -> None:
    start().dropped_connections = 9

    assert synapse("send", "codex", "hi").code == 8


def test_the_sender_is_the_agent_that_we_run_in(
    synapse: Cli, start: HostFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    codex, claude = start(), start("claude", 8100)
    become(claude, monkeypatch)

    synapse("send", "codex", "hi")

    assert codex.requests[0][2]["metadata"]["sender"] == {
        "sender_id": "synapse-claude-8100",
        "sender_type": "claude",
        "sender_endpoint": "http://localhost:8100",
    }


def test_from_names_another_sender(synapse: Cli, start: HostFactory) -> None:
    codex = start()
    start("claude", 8100)

    synapse("send", "codex", "hi", "--from", "claude")

    assert codex.requests[0][2]["metadata"]["sender"]["sender_id"] == "synapse-claude-8100"


def test_a_reply_answers_the_waiting_task(synapse: Cli, start: HostFactory) -> None:
    claude = start("claude", 8100)
    asked = claude.open({"message": {"role": "user", "parts": []}})

    ran = synapse("send", "claude", "done", "--reply-to", asked["id"][:8])

    assert ran.code == 0
    assert asked["status"] == "completed"
    assert "replied" in ran.err


def test_a_reply_to_nothing_is_sent_as_a_new_message(synapse: Cli, start: HostFactory) -> None:
    claude = start("claude", 8100)

    ran = synapse("send", "claude", "done", "--reply-to", "abc12345")

    assert ran.code == 0
    assert ran.err.splitlines()[0] == "Warning: --reply-to abc12345 not found (404), retrying as new message"
    assert len(claude.tasks) == 1


@pytest.mark.parametrize("asker", ["user", "@user", "unverified.synapse-claude-8100", "key.ci", "@key.ci"])
def test_an_agent_replies_to_a_sender_without_a_host_through_its_own_host(
    synapse: Cli, start: HostFactory, monkeypatch: pytest.MonkeyPatch, asker: str
) -> None:
    codex = start()
    start("claude", 8100)
    asked = codex.open({"message": {"role": "user", "parts": []}})
    become(codex, monkeypatch)

    ran = synapse("send", asker, "it is fine", "--reply-to", asked["id"][:8])

    assert ran.code == 0
    assert asked["status"] == "completed"


@pytest.mark.parametrize("asker", ["user", "unverified.synapse-claude-8100", "key.ci"])
def test_a_sender_without_a_host_is_not_an_agent(synapse: Cli, asker: str) -> None:
    ran = synapse("send", asker, "hi")

    assert ran.code == 3
    assert "synapse reply" in ran.err


def test_reply_answers_without_an_id(synapse: Cli, start: HostFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    codex = start()
    asked = codex.open({"message": {"role": "user", "parts": []}})
    become(codex, monkeypatch)

    ran = synapse("reply", "all", "tests", "pass", "--json")

    assert ran.json == {"replied": {"task_id": asked["id"], "to": "user"}}
    assert codex.requests[0][2]["message"]["parts"][0]["text"] == "all tests pass"
    assert codex.requests[0][2]["failed"] is False


def test_a_failed_reply_says_so(synapse: Cli, start: HostFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    codex = start()
    codex.open({"message": {"role": "user", "parts": []}})
    become(codex, monkeypatch)

    synapse("reply", "--failed", "no tests here")

    assert codex.requests[0][2]["failed"] is True


def test_reply_outside_an_agent_is_refused_with_the_next_step(synapse: Cli) -> None:
    ran = synapse("reply", "hello")

    assert ran.code == 2
    assert "synapse send TARGET" in ran.err


def test_a_message_comes_from_a_file(synapse: Cli, start: HostFactory, home: Path) -> None:
    host = start()
    (home / "diff.txt").write_text("--- a\n+++ b\n", encoding="utf-8")

    synapse("send", "codex", "review:", "--file", str(home / "diff.txt"))

    assert host.requests[0][2]["message"]["parts"][0]["text"] == "review:\n--- a\n+++ b\n"


def test_a_message_comes_from_standard_input(synapse: Cli, start: HostFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    host = start()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("日本語".encode()), encoding="utf-8"))

    synapse("send", "codex", "-")

    assert host.requests[0][2]["message"]["parts"][0]["text"] == "日本語"


def test_a_missing_file_is_an_error_not_a_traceback(synapse: Cli, start: HostFactory) -> None:
    start()

    ran = synapse("send", "codex", "--file", "nowhere.txt")

    assert ran.code == 1
    assert ran.err == "Error: No such file or directory: nowhere.txt\n"


def test_bytes_that_are_not_text_are_replaced(synapse: Cli, start: HostFactory) -> None:
    host = start()

    synapse("send", "codex", os.fsdecode(b"caf\xe9"))

    assert host.requests[0][2]["message"]["parts"][0]["text"] == "caf\N{REPLACEMENT CHARACTER}"


def test_a_ttl_travels_in_the_metadata(synapse: Cli, start: HostFactory) -> None:
    host = start()

    synapse("send", "codex", "hi", "--ttl", "60")

    assert host.requests[0][2]["metadata"]["ttl"] == 60.0


@pytest.mark.parametrize(
    "arguments",
    [
        ["send"],
        ["send", "codex"],
        ["send", "codex", "  "],
        ["send", "codex", "hi", "--priority", "6"],
        ["send", "codex", "hi", "--priority", "high"],
        ["send", "codex", "hi", "--wait=never"],
        ["send", "codex", "hi", "--timeout", "0"],
        ["send", "codex", "hi", "--ttl", "soon"],
        ["send", "codex", "hi", "--response", "--no-response"],
        ["send", "codex", "hi", "--response", "--reply-to", "abc"],
        ["send", "codex", "hi", "--queue", "--response"],
        ["send", "codex", "hi", "--bogus"],
        ["send", "codex", "hi", "--priority"],
    ],
)
def test_invalid_arguments_are_wrong_usage_and_send_nothing(
    synapse: Cli, start: HostFactory, arguments: list[str]
) -> None:
    host = start()

    ran = synapse(*arguments)

    assert ran.code == 2
    assert ran.err.startswith("Error: ")
    assert host.requests == []


def test_help_names_every_option_and_the_exit_codes(synapse: Cli) -> None:
    ran = synapse("send", "--help")

    assert ran.code == 0
    assert "--reply-to" in ran.out
    assert "exit codes:" in ran.out


def test_a_host_that_is_too_slow_may_still_have_the_message(synapse: Cli, home: Path) -> None:
    entry = AgentEntry("synapse-codex-8120", "codex", name="rev", port=8120, socket=str(home / "slow.sock"))
    entry.pid, entry.pid_started = os.getpid(), start_time(os.getpid()) or 0
    FileRegistry(home / "registry").write(entry)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(entry.socket)
        listener.listen()
        ran = synapse("send", "rev", "hi", "--timeout", "0.1", "--message-id", "m-1")

    assert ran.code == 8
    assert "may still be delivered" in ran.err
    assert "--message-id m-1" in ran.err


def test_a_message_that_is_sent_twice_with_its_id_opens_one_task(synapse: Cli, start: HostFactory) -> None:
    host = start()

    for _ in range(2):
        synapse("send", "codex", "hi", "--message-id", "m-1")

    assert len(host.tasks) == 1


def test_a_reply_that_is_sent_as_a_new_message_is_reported_as_sent(synapse: Cli, start: HostFactory) -> None:
    start()

    assert "[→ codex-8120] sent" in synapse("send", "codex", "done", "--reply-to", "deadbeef").err
