"""`approvals`, `approve`, `deny`, `answer` and the questions that a waiting `send` prints, against fake hosts."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import Any

import pytest

from synapse.cli import approvals
from synapse.client.attention import how_long
from synapse.config.process import SystemClock
from synapse.core.agent import AgentEntry
from tests.unit.cli.conftest import Cli, HostFactory, become
from tests.unit.cli.fake_host import FakeHost, Fields

MESSAGE = {"message": {"role": "user", "parts": [{"type": "text", "text": "review the design"}]}}
QUESTION: Fields = {
    "id": "q-1",
    "kind": "permission",
    "title": "Run the \x1b[31mcommand?",
    "detail": "rm -r build\nmake",
    "options": [
        {"key": "1", "label": "Yes", "leaning": "allow"},
        {"key": "2", "label": "No", "leaning": "deny"},
    ],
    "takes_text": False,
    "source": "signal",
    "hint": "",
    "asked_at": "2024-01-15T10:30:00.000Z",
}
CHOICE: Fields = {
    **QUESTION,
    "kind": "choice",
    "title": "Which branch?",
    "options": [{"key": "1", "label": "main", "leaning": "other"}],
    "takes_text": True,
}


def ask(host: FakeHost, task: Fields, question: Fields = QUESTION) -> None:
    """The agent asks this in the middle of the task's turn."""
    host.state |= {"state": "waiting", "why": "a dialog is open", "question": {**question, "task_id": task["id"]}}
    task["metadata"] |= {"reason": "waiting_for_person", "question": question}
    host.change(task, status="input_required")


def go_on(host: FakeHost, task: Fields) -> None:
    host.state |= {"state": "working", "question": None}
    del task["metadata"]["reason"], task["metadata"]["question"]
    host.change(task, status="working")


def asking(start: HostFactory, question: Fields = QUESTION) -> tuple[FakeHost, str]:
    host = start()
    task = host.open(MESSAGE)
    ask(host, task, question)
    return host, task["id"]


def test_approvals_show_each_question_and_the_command_to_type(synapse: Cli, start: HostFactory) -> None:
    _, task_id = asking(start)
    start("claude", 8100).state |= {"state": "waiting", "why": "an unknown dialog", "since": "2024-01-15T10:30:00.000Z"}
    start("gemini", 8110)

    ran = synapse("approvals")

    claude, codex = ran.out.split("codex-8120")
    short = task_id[:8]
    assert claude.startswith("claude-8100  no task  dialog  for ")
    assert claude.endswith("\n  an unknown dialog\n  → synapse attach claude-8100\n")
    assert codex.startswith(f"  task {short}  permission  for ")
    assert codex.splitlines()[1:] == [
        "  Run the [31mcommand?",
        "    rm -r build",
        "    make",
        "    1. Yes",
        "    2. No",
        f"  → synapse approve {short} | synapse deny {short}",
    ]


def test_commands_that_do_not_fit_stand_below_each_other(
    synapse: Cli, start: HostFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, task_id = asking(start)
    monkeypatch.setattr("synapse.cli.approvals.line_width", lambda: 40)

    lines = synapse("approvals").out.splitlines()

    assert lines[-2:] == [f"  → synapse approve {task_id[:8]}", f"  → synapse deny {task_id[:8]}"]


@pytest.mark.parametrize("number", ["1. ", ""])
def test_the_explanation_of_an_option_is_printed_once(synapse: Cli, start: HostFactory, number: str) -> None:
    asking(start, {**CHOICE, "detail": f"it wants to know\n{number}main: the default"})

    assert synapse("approvals").out.splitlines()[1:4] == [
        "  Which branch?",
        "    it wants to know",
        "    1. main: the default",
    ]


def just_now() -> str:
    return SystemClock().now().isoformat()


def test_a_dialog_that_has_just_opened_is_listed_once_it_is_read(synapse: Cli, start: HostFactory) -> None:
    host = start()
    task = host.open(MESSAGE)
    host.state |= {"state": "waiting", "why": "its hook asks", "since": just_now(), "current_task": task}
    reading = threading.Timer(0.3, ask, (host, task))
    reading.start()

    (one,) = synapse("approvals", "--json").json
    reading.join()

    assert (one["task_id"], one["kind"], one["title"]) == (task["id"], "permission", QUESTION["title"])


def test_a_dialog_that_is_not_understood_names_the_task_in_whose_turn_it_is_open(
    synapse: Cli, start: HostFactory
) -> None:
    host = start()
    task = host.open(MESSAGE)
    host.change(task, status="working")
    since = "2024-01-15T10:30:00.000Z"
    host.state |= {"state": "waiting", "why": "a menu", "since": since, "current_task": task}

    (one,) = synapse("approvals", "--json").json

    assert (one["task_id"], one["kind"], one["next"]) == (task["id"], "dialog", "synapse attach codex-8120")


def test_approvals_as_json(synapse: Cli, start: HostFactory) -> None:
    _, task_id = asking(start)

    (one,) = synapse("approvals", "--json").json

    assert (one["agent_id"], one["task_id"], one["kind"]) == ("synapse-codex-8120", task_id, "permission")
    assert one["question"]["options"] == QUESTION["options"]
    assert one["asked_at"] == QUESTION["asked_at"]


def test_approvals_without_questions_say_so(synapse: Cli, start: HostFactory) -> None:
    start()

    assert synapse("approvals").err == "No agent waits for a person.\n"
    assert synapse("approvals", "--json").json == []


@pytest.mark.parametrize(
    ("since", "said"),
    [
        ("2024-01-15T10:29:55.000Z", "for 5s"),
        ("2024-01-15T10:27:30.000Z", "for 2m"),
        ("2024-01-15T07:30:00.000Z", "for 3h"),
        ("2024-01-15T10:30:05.000Z", "for 0s"),
        ("soon", ""),
        ("2024-01-15T10:27:30", ""),
        (None, ""),
    ],
)
def test_a_duration_is_shown_in_seconds_minutes_or_hours(since: object, said: str) -> None:
    assert how_long(since, datetime(2024, 1, 15, 10, 30, tzinfo=UTC)) == said


@pytest.mark.parametrize(
    ("command", "body"),
    [
        (("approve", "TARGET"), {"verdict": "allow"}),
        (("approve", "TARGET", "2"), {"option": "2"}),
        (("deny", "TARGET"), {"verdict": "deny"}),
        (("answer", "TARGET", "no"), {"option": "2"}),
        (("answer", "TARGET", "not", "yet"), {"text": "not yet"}),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("by", ["agent", "task"])
def test_the_answer_goes_to_the_host_with_the_question_it_is_for(
    synapse: Cli, start: HostFactory, command: tuple[str, ...], body: dict[str, str], by: str
) -> None:
    host, task_id = asking(start)
    target = "codex" if by == "agent" else task_id[:8]

    ran = synapse(*(target if word == "TARGET" else word for word in command))

    assert ran.code == 0
    assert host.requests[-1] == ("POST", f"/tasks/{task_id}/answer", {**body, "question_id": "q-1"})
    assert ran.err.endswith(f"Run the [31mcommand?  (task {task_id[:8]} is working)\n")


def test_a_dialog_that_has_only_just_opened_is_waited_for(synapse: Cli, start: HostFactory) -> None:
    host = start()
    task = host.open(MESSAGE)
    host.state |= {"state": "waiting", "why": "a dialog is open"}
    asked_first = threading.Timer(0.2, ask, (host, task))
    asked_first.start()

    ran = synapse("approve", "codex")

    asked_first.join()
    assert ran.code == 0
    assert host.requests[-1] == ("POST", f"/tasks/{task['id']}/answer", {"verdict": "allow", "question_id": "q-1"})


def test_what_is_asked_in_the_task_of_an_api_key_is_answered_by_the_id_that_approvals_shows(
    synapse: Cli, start: HostFactory
) -> None:
    host, task_id = asking(start)
    missing = (404, {"error": {"code": "task_not_found", "message": "no task", "hint": ""}})
    host.refusals[f"/tasks/{task_id[:8]}"] = missing

    ran = synapse("approve", task_id[:8])

    assert ran.code == 0, ran.err
    assert host.requests[-1] == ("POST", f"/tasks/{task_id}/answer", {"verdict": "allow", "question_id": "q-1"})


def test_an_unknown_dialog_is_answered_in_the_agents_terminal(synapse: Cli, start: HostFactory) -> None:
    start().state |= {"state": "waiting", "why": "a menu \x1b[2Jis open"}

    ran = synapse("approve", "codex")

    assert ran.code == 7
    assert ran.err.splitlines() == [
        "Error: codex-8120 waits for a person, but cannot be answered from here: a menu [2Jis open",
        "answer it in its terminal: `synapse attach codex-8120`",
    ]


def test_a_question_at_the_start_is_answered_by_the_agents_name(synapse: Cli, start: HostFactory) -> None:
    host = start(name="reviewer")
    host.state |= {"state": "waiting", "question": {**QUESTION, "task_id": ""}}

    ran = synapse("approve", "reviewer", "--json")

    assert host.requests[-1][1] == "/answer"
    assert ran.json["task"] is None
    assert ran.json["question"]["id"] == "q-1"


@pytest.mark.parametrize("verb", ["approve", "deny", "answer"])
def test_the_error_for_a_missing_question_names_the_next_command(synapse: Cli, start: HostFactory, verb: str) -> None:
    task = start().open(MESSAGE)
    words = ("yes",) if verb == "answer" else ()

    for target in ("codex", task["id"][:8]):
        ran = synapse(verb, target, *words)
        assert ran.code == 7
        assert "has no open question\n`synapse approvals`" in ran.err
    assert synapse(verb, "nobody", *words).code == 3


def test_a_refusal_of_the_host_is_printed(synapse: Cli, start: HostFactory) -> None:
    host, task_id = asking(start)
    gone = {"code": "question_gone", "message": "'Run?' was answered meanwhile", "hint": "`synapse approvals`"}
    host.refusals[f"/tasks/{task_id}/answer"] = (409, {"error": gone})

    ran = synapse("approve", "codex")

    assert (ran.code, ran.err) == (7, "Error: 'Run?' was answered meanwhile\n`synapse approvals`\n")


def test_list_and_status_show_the_question(synapse: Cli, start: HostFactory) -> None:
    host, task_id = asking(start)
    host.state["attention"] = [{"task_id": task_id, "text": "Run?", "receipt": "", "question_id": "q-1"}]
    short = task_id[:8]
    asks = f"! codex-8120 asks a person: Run the [31mcommand?  (synapse approve {short} | synapse deny {short})\n"

    assert synapse("list").err == asks
    assert synapse("list", "--json").json[0]["question"]["id"] == "q-1"
    assert f"  {asks}      rm -r build\n      make\n      1. Yes\n" in synapse("status", "codex").out
    assert f"  asks     Run the [31mcommand?  (synapse approve {short} | " in synapse("status", short).out


def test_a_waiting_send_prints_a_question_once_and_continues(synapse: Cli, start: HostFactory) -> None:
    host = start()

    def work(task: Fields) -> None:
        ask(host, task)
        host.change(task)
        go_on(host, task)
        host.answer(task, "done")

    host.on_send = work

    ran = synapse("send", "codex", "hi", "--response", "--timeout", "10")

    assert (ran.code, ran.out) == (0, "done\n")
    assert ran.err.count("codex-8120 waits for a person: Run the [31mcommand?  (synapse approve ") == 1


@pytest.mark.parametrize("inside", [False, True], ids=["from a shell", "from an agent"])
def test_exit_on_wait_prints_the_question(
    synapse: Cli, start: HostFactory, monkeypatch: pytest.MonkeyPatch, *, inside: bool
) -> None:
    host = start()
    if inside:
        become(start("claude", 8100), monkeypatch)
    host.on_send = lambda task: ask(host, task, CHOICE)

    ran = synapse("send", "codex", "hi", "--response", "--exit-on-wait", "--timeout", "10")

    assert (ran.code, ran.out) == (6, "Which branch?\n  rm -r build\n  make\n  1. main\n")
    assert "waits for a person, who can type: synapse answer " in ran.err


def test_exit_on_wait_as_json(synapse: Cli, start: HostFactory) -> None:
    host = start()
    host.on_send = lambda task: ask(host, task)

    told: dict[str, Any] = synapse("send", "codex", "hi", "--wait", "answered", "--exit-on-wait", "--json").json

    assert told["task_id"] in host.tasks
    assert (told["waiting"]["agent_id"], told["waiting"]["question"]["id"]) == ("synapse-codex-8120", "q-1")


def test_exit_on_wait_also_ends_for_an_unknown_dialog(synapse: Cli, start: HostFactory) -> None:
    start().state |= {"state": "waiting", "why": "an unknown dialog"}

    ran = synapse("send", "codex", "hi", "--response", "--exit-on-wait", "--timeout", "10")

    assert (ran.code, ran.out) == (6, "codex-8120 waits for a person: an unknown dialog\n")
    assert "waits for a person, who can type: synapse attach codex-8120" in ran.err


def test_exit_on_wait_needs_something_to_wait_for(synapse: Cli, start: HostFactory) -> None:
    start()

    assert synapse("send", "codex", "hi", "--exit-on-wait").code == 2


def test_a_timeout_names_the_open_question(synapse: Cli, start: HostFactory) -> None:
    host = start()
    host.on_send = lambda task: ask(host, task)

    ran = synapse("send", "codex", "hi", "--response", "--timeout", "1")

    assert ran.code == 6
    assert "Error: codex-8120 waits for a person: Run the [31mcommand?\n`synapse approve " in ran.err


def own_question(host: FakeHost, question: Fields = CHOICE) -> str:
    """The agent itself asks a person; its program shows no dialog."""
    task = host.open(MESSAGE)
    host.state.setdefault("questions", []).append({**question, "task_id": task["id"]})
    task["metadata"] |= {"reason": "waiting_for_person", "question": question, "asks_person": True}
    host.change(task, status="input_required")
    return str(task["id"])


def test_questions_of_the_agents_own_are_listed_while_it_is_ready(synapse: Cli, start: HostFactory) -> None:
    host = start()
    task_id = own_question(host)

    (item,) = synapse("approvals", "--json").json
    assert (item["task_id"], item["kind"], item["title"]) == (task_id, "choice", "Which branch?")
    short = task_id[:8]
    command = f'synapse answer {short} "…" | synapse answer {short} OPTION'
    assert item["next"] == command
    listed = synapse("list")
    assert f"! codex-8120 asks a person: Which branch?  ({command})" in listed.out + listed.err


def test_the_only_question_of_an_agent_is_answered_by_its_name(synapse: Cli, start: HostFactory) -> None:
    host = start()
    task_id = own_question(host)

    assert synapse("answer", "codex", "main").code == 0
    assert host.requests[-1][1:] == (f"/tasks/{task_id}/answer", {"option": "1", "question_id": "q-1"})


def test_of_several_questions_of_an_agent_one_has_to_be_named(synapse: Cli, start: HostFactory) -> None:
    host = start()
    first, second = own_question(host), own_question(host, {**CHOICE, "id": "q-2"})

    ran = synapse("answer", "codex", "main")
    assert ran.code != 0
    assert first[:8] in ran.err
    assert synapse("answer", second, "the other").code == 0
    assert host.requests[-1][2] == {"text": "the other", "question_id": "q-2"}


def test_a_question_of_a_stopped_agent_is_open_but_cannot_be_answered_yet(
    synapse: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = {"reason": "waiting_for_person", "question": CHOICE}
    task = {"id": "0123456789abcdef", "status": "input_required", "metadata": metadata}
    stopped = AgentEntry("synapse-claude-8100", "claude", name="ada")

    def find_task(_prefix: str, _registry: object) -> tuple[AgentEntry, Fields]:
        return stopped, task

    monkeypatch.setattr(approvals, "find_task", find_task)

    ran = synapse("answer", "01234567", "main")

    assert ran.code == 7
    assert "ada is not running" in ran.err
    assert "no open question" not in ran.err
