"""Sending and waiting: the answer, and every reason why there is none."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.cli.conftest import Cli, HostFactory, become
from tests.unit.cli.fake_host import Fields

NO_SUCH_PID = 2**22 + 1


def test_a_shell_follows_the_receivers_task(synapse: Cli, start: HostFactory) -> None:
    host = start()
    host.on_send = lambda task: host.answer(task, "looks good")

    ran = synapse("send", "codex", "review this", "--response")

    assert (ran.code, ran.out) == (0, "looks good\n")
    body = host.requests[0][2]
    assert body["metadata"]["response_expected"] is True
    assert "sender_task_id" not in body["metadata"]
    assert host.requests[1][1].endswith("/subscribe")


def test_an_agent_waits_on_a_task_of_its_own_host(
    synapse: Cli, start: HostFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    codex, claude = start(), start("claude", 8100)
    become(claude, monkeypatch)
    seen_before_sending: list[list[str]] = []

    def answer(task: Fields) -> None:
        seen_before_sending.append([path for _, path, _ in claude.requests])
        claude.answer(claude.tasks[task["metadata"]["sender_task_id"]], "42")

    codex.on_send = answer

    ran = synapse("send", "codex", "the answer?", "--response")

    assert (ran.code, ran.out) == (0, "42\n")
    create, subscribe = seen_before_sending[0]
    assert (create, subscribe.endswith("/subscribe")) == ("/tasks/create", True)


def test_an_inferred_answer_is_marked(synapse: Cli, start: HostFactory) -> None:
    host = start()
    host.on_send = lambda task: host.answer(task, "what the screen showed", inferred=True)

    ran = synapse("send", "codex", "hi", "--response")

    assert ran.out == "what the screen showed\n"
    assert "sent no reply" in ran.err


def test_json_has_the_answer(synapse: Cli, start: HostFactory) -> None:
    host = start()
    host.on_send = lambda task: host.answer(task, "yes")

    ran = synapse("send", "codex", "hi", "--response", "--json")

    assert (ran.json["reply"], ran.json["receipt"], ran.json["task"]["status"]) == ("yes", "answered", "completed")


@pytest.mark.parametrize("says_why", [False, True], ids=["silently", "with an error"])
def test_a_broken_stream_is_resumed_where_it_ended(synapse: Cli, start: HostFactory, says_why: bool) -> None:
    host = start()
    host.break_streams_after = 1
    host.says_why_streams_break = says_why

    def work(task: Fields) -> None:
        host.change(task, status="working")
        host.answer(task, "done")

    host.on_send = work

    ran = synapse("send", "codex", "hi", "--response")

    assert ran.out == "done\n"
    assert host.resumed_after == ["", "1", "2"]


def test_a_failed_task_gives_its_note_and_code_1(synapse: Cli, start: HostFactory) -> None:
    host = start()

    def fail(task: Fields) -> None:
        task["metadata"]["note"] = "the program has ended"
        host.change(task, status="failed", receipt="failed")

    host.on_send = fail

    ran = synapse("send", "codex", "hi", "--response")

    assert (ran.code, ran.out) == (1, "")
    assert "Error: codex-8120: the program has ended" in ran.err


def test_a_rejected_task_is_refused(synapse: Cli, start: HostFactory) -> None:
    host = start()

    def reject(task: Fields) -> None:
        task["metadata"] |= {"note": "I do not do that", "reason": "rejected"}
        host.change(task, status="failed")

    host.on_send = reject

    assert synapse("send", "codex", "hi", "--response").code == 7


def test_a_question_waits_for_a_person(synapse: Cli, start: HostFactory) -> None:
    host = start()
    question = {"role": "agent", "parts": [{"type": "text", "text": "which branch?"}]}
    host.on_send = lambda task: host.change(task, status="input_required", history=[task["message"], question])

    ran = synapse("send", "codex", "hi", "--response")

    assert (ran.code, ran.out) == (6, "which branch?\n")


def test_a_timeout_says_what_to_type_next(synapse: Cli, start: HostFactory) -> None:
    host = start()

    ran = synapse("send", "codex", "hi", "--response", "--timeout", "0.2")

    task_id = next(iter(host.tasks))
    assert ran.code == 5
    assert f"synapse status {task_id[:8]}" in ran.err


def test_an_agent_that_waits_no_longer_leaves_its_waiting_task(
    synapse: Cli, start: HostFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    start()
    claude = start("claude", 8100)
    become(claude, monkeypatch)

    ran = synapse("send", "codex", "hi", "--response", "--timeout", "0.2")

    (task,) = claude.tasks.values()
    assert (ran.code, ran.out, task["metadata"]["waiter_left"]) == (5, "", True)
    assert "the answer arrives as a message" in ran.err


def test_an_answer_that_comes_as_its_waiter_leaves_is_printed(
    synapse: Cli, start: HostFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    start()
    claude = start("claude", 8100)
    become(claude, monkeypatch)
    claude.on_leave = lambda task: claude.answer(task, "just in time")

    ran = synapse("send", "codex", "hi", "--response", "--timeout", "0.2")

    assert (ran.code, ran.out) == (0, "just in time\n")


@pytest.mark.parametrize("as_json", [False, True])
def test_an_answer_that_was_delivered_as_a_message_is_not_printed_too(
    synapse: Cli, start: HostFactory, monkeypatch: pytest.MonkeyPatch, as_json: bool
) -> None:
    codex, claude = start(), start("claude", 8100)
    become(claude, monkeypatch)

    def answer_in_a_message(task: Fields) -> None:
        waiting = claude.tasks[task["metadata"]["sender_task_id"]]
        waiting["metadata"]["waiter_left"] = True
        claude.answer(waiting, "typed")

    codex.on_send = answer_in_a_message

    ran = synapse("send", "codex", "hi", "--response", *(["--json"] if as_json else []))

    assert ran.code == 0
    assert ran.json["reply"] is None if as_json else ran.out == ""
    assert "the answer arrives as a message" in ran.err


def test_an_open_dialog_at_the_deadline_waits_for_a_person(synapse: Cli, start: HostFactory) -> None:
    host = start()
    host.state |= {"state": "waiting", "why": "it asks for permission"}

    ran = synapse("send", "codex", "hi", "--response", "--timeout", "0.2")

    assert ran.code == 6
    assert "synapse attach codex-8120" in ran.err


def test_a_message_in_doubt_is_reported_while_send_waits(synapse: Cli, start: HostFactory) -> None:
    host = start()

    def doubt(task: Fields) -> None:
        task["metadata"]["attention"] = "it is not certain that it was taken"
        host.change(task)
        host.answer(task, "ok")

    host.on_send = doubt

    ran = synapse("send", "codex", "hi", "--response")

    assert "codex-8120 needs a person: it is not certain that it was taken" in ran.err


def test_waiting_for_submission_ends_with_its_proof(synapse: Cli, start: HostFactory) -> None:
    host = start()

    def take(task: Fields) -> None:
        for step in ("typed", "submitted"):
            host.change(task, receipt=step)

    host.on_send = take

    ran = synapse("send", "codex", "hi", "--wait=submitted", "--json")

    assert (ran.code, ran.json["receipt"], ran.json["reply"]) == (0, "submitted", None)


def test_waiting_for_submission_says_what_it_proved(synapse: Cli, start: HostFactory) -> None:
    host = start()
    host.on_send = lambda task: host.change(task, receipt="submitted")

    ran = synapse("send", "codex", "hi", "--wait=submitted")

    proof = "[→ codex-8120] submitted, proven by screen: seen  (synapse status 00000abc)"
    assert (ran.code, ran.out, ran.err.splitlines()[-1]) == (0, "", proof)


def test_a_message_that_was_answered_at_once_says_so(synapse: Cli, start: HostFactory) -> None:
    host = start()
    host.on_send = lambda task: host.answer(task, "done")

    ran = synapse("send", "codex", "hi", "--wait=submitted")

    assert ran.err.splitlines()[-1].startswith("[→ codex-8120] answered, proven by screen: seen")


def test_a_receipt_shows_each_step_with_its_evidence(synapse: Cli, start: HostFactory) -> None:
    host = start()
    host.on_send = lambda task: host.change(task, receipt="submitted")

    ran = synapse("send", "codex", "hi", "--receipt")

    steps = [line.split()[0] for line in ran.err.splitlines() if line.startswith("  ")]
    assert (ran.code, ran.out, steps) == (0, "", ["queued", "submitted"])


def test_a_refused_message_withdraws_the_waiting_task(
    synapse: Cli, start: HostFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    codex, claude = start(), start("claude", 8100)
    become(claude, monkeypatch)
    error: dict[str, Any] = {"code": "wait_cycle", "message": "waiting would never end", "hint": "synapse reply"}
    codex.refusals["/tasks/send"] = (409, {"error": error})

    ran = synapse("send", "codex", "hi", "--response")

    assert ran.code == 7
    assert [task["status"] for task in claude.tasks.values()] == ["canceled"]


def test_a_host_that_always_closes_the_connection_does_not_respond(synapse: Cli, start: HostFactory) -> None:
    start().is_mute = True

    assert synapse("send", "codex", "hi", "--response", "--timeout", "5").code == 8


def test_a_receiver_that_was_killed_ends_the_wait_of_an_agent(
    synapse: Cli, start: HostFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    codex, claude = start(), start("claude", 8100)
    become(claude, monkeypatch)
    monkeypatch.setattr("synapse.client.watch.PULSE_SECONDS", 0.05)

    def die(task: Fields) -> None:
        codex.entry.pid, codex.entry.socket = NO_SUCH_PID, ""
        codex.registry.write(codex.entry)

    codex.on_send = die

    ran = synapse("send", "codex", "hi", "--response", "--timeout", "10")

    assert ran.code == 8
    assert "Agent 'synapse-codex-8120' server on port 8120 is not responding." in ran.err
    assert "synapse status" in ran.err


def test_a_silent_receiver_that_is_alive_is_waited_for(
    synapse: Cli, start: HostFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    start()
    become(start("claude", 8100), monkeypatch)
    monkeypatch.setattr("synapse.client.watch.PULSE_SECONDS", 0.02)

    assert synapse("send", "codex", "hi", "--response", "--timeout", "0.3").code == 5


def test_an_answer_cannot_act_on_a_terminal(synapse: Cli, start: HostFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    host = start()
    host.on_send = lambda task: host.answer(task, "a\x1b[2Jb\n\tc")

    assert synapse("send", "codex", "hi", "--response").out == "a\x1b[2Jb\n\tc\n"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert synapse("send", "codex", "hi", "--response").out == "a[2Jb\n\tc\n"


def test_an_answer_to_a_question_goes_to_its_task(synapse: Cli, start: HostFactory) -> None:
    host = start()
    host.on_send = lambda task: host.change(task, status="input_required")

    ran = synapse("send", "codex", "deploy", "--response")

    (task_id,) = host.tasks
    assert ran.code == 6
    assert f'synapse send codex-8120 "…" --task {task_id[:8]}' in ran.err
    host.on_send = lambda task: None
    synapse("send", "codex", "staging", "--task", task_id[:8])
    assert host.requests[-1][2]["message"]["task_id"] == task_id[:8]


@pytest.mark.parametrize("other", ["--queue", "--reply-to=abc"])
def test_the_option_task_excludes_queue_and_reply_to(synapse: Cli, other: str) -> None:
    assert synapse("send", "codex", "staging", "--task", "abc", other).code == 2


def test_a_waiting_send_reports_an_open_dialog_at_once(synapse: Cli, start: HostFactory) -> None:
    host = start()
    host.state |= {"state": "waiting", "why": "it asks to run a command"}

    ran = synapse("send", "codex", "hi", "--response", "--timeout", "0.3")

    assert ran.code == 6
    assert ran.err.index("codex-8120 waits for a person: it asks") < ran.err.index("Error:")


def test_a_waiting_send_reports_a_blocked_prompt_once(
    synapse: Cli, start: HostFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = start()
    host.state["gate"] = "there is text in the prompt"
    monkeypatch.setattr("synapse.client.watch.PULSE_SECONDS", 0.02)

    ran = synapse("send", "codex", "hi", "--response", "--timeout", "0.5")

    assert ran.code == 5
    assert ran.err.count("codex-8120 cannot be typed into: there is text in the prompt") == 1


def test_a_reason_that_was_printed_at_its_beginning_is_not_repeated_when_overdue(
    synapse: Cli, start: HostFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = start()
    host.state["gate"] = why = "there is text in the prompt"
    looks = iter(range(1000))
    monkeypatch.setattr("synapse.client.watch.PULSE_SECONDS", 0.02)

    def overdue_later(_state: dict[str, Any]) -> dict[str, Any]:
        return _overdue(why) if next(looks) > 4 else {}

    monkeypatch.setattr("synapse.cli.wait.overdue_in", overdue_later)

    ran = synapse("send", "codex", "hi", "--response", "--timeout", "0.5")

    assert ran.err.count(why) == 1


def _overdue(why: str) -> dict[str, object]:
    return {"reason": "person", "why": why, "messages": 1, "overdue": True}


def test_a_waiting_send_reports_overdue_messages_once(
    synapse: Cli, start: HostFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    why = "the program prints again and again"
    start().state["held"] = {"reason": "never_rests", "why": why, "messages": 1, "overdue": True}
    monkeypatch.setattr("synapse.client.watch.PULSE_SECONDS", 0.02)

    ran = synapse("send", "codex", "hi", "--response", "--timeout", "0.5")

    assert ran.code == 5
    assert ran.err.count(f"codex-8120 holds 1 message: {why}  (synapse attach codex-8120)") == 1


def test_json_names_the_task_that_continues(synapse: Cli, start: HostFactory) -> None:
    host = start()

    ran = synapse("send", "codex", "hi", "--response", "--timeout", "0.2", "--json")

    assert (ran.code, ran.json["error"]["task_id"]) == (5, next(iter(host.tasks)))
