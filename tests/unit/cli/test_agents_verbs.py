"""`list`, `status`, `queue`, `cancel`, `resolve`, `broadcast`, `logs` and `stop` against fake hosts."""

from __future__ import annotations

import logging
import os
import re
from datetime import timedelta
from pathlib import Path

import pytest

from synapse.client.lines import short_path
from synapse.config.process import SystemClock, log_to
from synapse.core.agent import AgentEntry
from synapse.registry.files import FileRegistry
from tests.unit.cli.conftest import Cli, HostFactory, become
from tests.unit.cli.fake_host import FakeHost

NO_SUCH_PID = 2**22 + 1
HOURS_AGO = (SystemClock().now() - timedelta(hours=3.5)).isoformat()
"""Three hours ago for people, however long the tests before this one take."""
MESSAGE = {"message": {"role": "user", "parts": [{"type": "text", "text": "review the design\nin detail"}]}}
LEAST_FIELDS = {"agent_id", "agent_type", "name", "port", "pid", "socket", "status", "working_dir"}


def test_list_prints_a_table_of_the_agents(synapse: Cli, start: HostFactory, home: Path) -> None:
    host = start(name="reviewer")
    host.state |= {"state": "working", "current_task": host.open(MESSAGE), "queue_depth": 2}
    start("claude", 8100)

    ran = synapse("list")

    titles, claude, codex = ran.out.splitlines()
    assert titles.split() == ["AGENT", "STATE", "PORT", "PID", "WORKING", "ON", "FOLDER"]
    assert claude.split()[:3] == ["claude-8100", "ready", "8100"]
    assert codex.startswith("reviewer (codex)  working  8120")
    assert "review the design (+2 queued)" in codex
    assert short_path(str(home)) in codex
    assert "\x1b" not in ran.out


def test_list_json_has_the_promised_fields(synapse: Cli, start: HostFactory) -> None:
    start()

    (agent,) = synapse("list", "--json").json

    assert agent.keys() >= LEAST_FIELDS
    assert agent["status"] == "ready"


def test_list_without_agents_is_an_empty_list(synapse: Cli) -> None:
    assert synapse("list", "--json").json == []
    assert "synapse claude" in synapse("list").err


def test_list_removes_the_entries_of_dead_hosts_and_says_so(synapse: Cli, home: Path) -> None:
    registry = FileRegistry(home / "registry")
    registry.write(AgentEntry("synapse-codex-8120", "codex", port=8120, pid=NO_SUCH_PID, pid_started=1))
    (home / "registry" / "synapse-claude-8100.json").write_text("{broken", encoding="utf-8")

    ran = synapse("list")

    assert "removed synapse-codex-8120" in ran.err
    assert "does not describe an agent" in ran.err
    assert registry.written() == []
    assert (home / "registry" / "synapse-claude-8100.json.broken").exists()


def test_a_host_that_hangs_is_listed_as_not_responding(synapse: Cli, home: Path) -> None:
    entry = AgentEntry("synapse-codex-8120", "codex", pid=os.getpid(), socket=str(home / "nobody.sock"))
    FileRegistry(home / "registry").write(entry)

    assert synapse("list", "--json").json[0]["status"] == "not_responding"


def test_list_prints_what_needs_a_person(synapse: Cli, start: HostFactory) -> None:
    start().state |= {
        "state": "waiting",
        "why": "it asks for permission",
        "attention": [{"task_id": "12345678-aaaa", "text": "it is not certain that it was taken"}],
    }

    ran = synapse("list")

    assert "codex-8120 waits for a person: it asks for permission  (synapse attach codex-8120)" in ran.err
    assert "synapse resolve 12345678 --delivered|--retry|--fail" in ran.err


HELD = {
    "reason": "person",
    "why": "a person has a half-typed line",
    "hint": "",
    "since": HOURS_AGO,
    "messages": 2,
    "task_id": "54241e7e-1",
    "overdue": True,
}


def test_held_messages_have_a_reason_in_every_view(synapse: Cli, start: HostFactory) -> None:
    start().state |= {
        "queue_depth": 2,
        "held": HELD,
        "attention": [{"task_id": "54241e7e-1", "text": HELD["why"], "receipt": "queued", "held": "person"}],
    }

    listed, told, asked = synapse("list"), synapse("status", "codex"), synapse("approvals")

    assert "(+2 queued, held: a person has a half-typed line)" in listed.out
    said = "! codex-8120 holds 2 messages: a person has a half-typed line  (synapse attach codex-8120)\n"
    assert listed.err == said
    assert re.search(r"\n  held     2 messages for 3h: a person has a half-typed line  \(synapse attach", told.out)
    assert re.fullmatch(
        r"codex-8120  task 54241e7e  held  for \d+h\n"
        r"  2 messages held: a person has a half-typed line\n"
        r"  → synapse attach codex-8120\n",
        asked.out,
    )
    assert synapse("list", "--json").json[0]["held"] == HELD


def test_a_queued_task_shows_why_it_is_held(synapse: Cli, start: HostFactory) -> None:
    host = start()
    host.state["held"] = HELD
    task = host.open(MESSAGE)

    assert (
        "messages for 3h: a person has a half-typed line  (synapse attach codex-8120)"
        in synapse("status", task["id"][:8]).out
    )
    assert synapse("status", task["id"][:8], "--json").json["held"] == HELD
    host.change(task, receipt="typed")
    assert "half-typed" not in synapse("status", task["id"][:8]).out
    assert synapse("status", task["id"][:8], "--json").json["held"] is None


def test_the_queue_shows_why_its_messages_wait(synapse: Cli, start: HostFactory) -> None:
    host = start()
    host.open(MESSAGE)
    host.state["held"] = {**HELD, "reason": "tools", "why": "its CLI has no tools yet", "overdue": False}

    ran = synapse("queue")

    assert "review the design" in ran.out
    assert ran.err == "codex-8120 holds 2 messages: its CLI has no tools yet  (a few seconds at most)\n"


def test_messages_held_for_a_moment_need_no_person(synapse: Cli, start: HostFactory) -> None:
    start().state |= {"queue_depth": 1, "held": {**HELD, "overdue": False, "messages": 1}}

    assert synapse("list").err == ""
    assert "  held     1 message for " in synapse("status", "codex").out
    assert synapse("approvals", "--json").json == []


@pytest.mark.parametrize(
    ("held", "next_step"),
    [
        ({"reason": "store", "hint": "free some space: `df -h /home`"}, "free some space: `df -h /home`"),
        ({"reason": "store"}, "synapse doctor"),
        ({"reason": "unreachable"}, "synapse external list"),
        ({"reason": "no_prompt"}, "synapse attach codex-8120"),
        ({"reason": "tools"}, "a few seconds at most"),
    ],
)
def test_each_reason_has_a_next_step(synapse: Cli, start: HostFactory, held: dict[str, str], next_step: str) -> None:
    start().state["held"] = {**HELD, **held}

    (item,) = synapse("approvals", "--json").json

    assert (item["kind"], item["next"], item["asked_at"]) == ("held", next_step, HELD["since"])


def test_approvals_list_messages_in_doubt_and_held_messages(synapse: Cli, start: HostFactory) -> None:
    start().state |= {
        "held": {**HELD, "reason": "in_doubt"},
        "attention": [
            {"task_id": "54241e7e-1", "text": "was it typed?", "receipt": "typed"},
            {"task_id": "64241e7e-1", "text": "held: too many", "receipt": "queued"},
        ],
    }

    items = synapse("approvals", "--json").json

    assert [(item["kind"], item["title"], item["next"]) for item in items] == [
        ("in_doubt", "was it typed?", "synapse resolve 54241e7e --delivered|--retry|--fail"),
        ("held", "held: too many", "synapse cancel 64241e7e"),
    ]


def test_the_text_of_agents_has_no_control_characters(synapse: Cli, start: HostFactory) -> None:
    host = start()
    evil = {"message": {"role": "user", "parts": [{"type": "text", "text": "a\x1b[2Jb\x07\u202ec"}]}}
    host.state |= {"current_task": host.open(evil)}

    ran = synapse("list")

    assert "a[2Jbc" in ran.out
    assert not set(ran.out) & {"\x1b", "\x07", "\u202e"}


EVIL = "x\x1b[2J\x07\u202e\x9b1m\x7f\u2028\nError: y"


def test_fields_of_other_agents_have_no_control_characters_and_no_newlines(synapse: Cli, start: HostFactory) -> None:
    host = start()
    sender = {"sender_id": EVIL, "sender_type": EVIL, "sender_endpoint": EVIL}
    body = {"message": {"role": "user", "parts": [{"type": "text", "text": EVIL}]}, "metadata": {"sender": sender}}
    task = host.open(body)
    task["metadata"] |= {"attention": EVIL, "note": EVIL}
    option = {"key": EVIL, "label": EVIL, "leaning": "allow"}
    question = {"id": "q", "kind": EVIL, "title": EVIL, "hint": EVIL, "options": [option], "task_id": EVIL}
    item = {"task_id": EVIL, "text": EVIL, "receipt": "queued"}
    status = {"current_task": task, "why": EVIL, "source": EVIL, "gate": EVIL, "since": EVIL, "question": question}
    host.state |= {
        **status,
        "attention": [item],
        "held": {**dict.fromkeys(("reason", "why", "since", "task_id", "hint"), EVIL), "messages": 1, "overdue": True},
        "sightings": [dict.fromkeys(("source", "state", "at", "detail"), EVIL)],
    }
    host.entry.working_dir = EVIL
    host.registry.write(host.entry)

    for verb in (["list"], ["queue"], ["approvals"], ["status", "codex", "--explain"], ["status", task["id"][:8]]):
        ran = synapse(*verb)
        shown = ran.out + ran.err
        assert not set(shown) & set("\x1b\x07\u202e\x9b\x7f\u2028"), verb
        assert "x[2J" in shown
        assert "\nError: y" not in shown, verb


def test_an_entry_with_control_characters_in_its_name_is_ignored(synapse: Cli, start: HostFactory) -> None:
    host = start()
    host.entry.name = EVIL
    host.registry.write(host.entry)

    assert synapse("list", "--json").json == []


def test_status_shows_the_reason_and_the_time_of_the_state(synapse: Cli, start: HostFactory) -> None:
    start().state |= {"since": HOURS_AGO, "gate": "a person is typing"}

    ran = synapse("status", "codex")

    assert ran.out.splitlines()[:3] == [
        "codex-8120  ready  for 3h",
        "  why      the prompt is empty  (screen)",
        "  gate     closed: a person is typing",
    ]


@pytest.mark.parametrize(
    ("tools", "line"),
    [
        (
            {
                "way": "mcp",
                "mcp": "listed",
                "client": "claude-code 2.1\x1b[2J",
                "protocol": "2026-07-28",
                "since": HOURS_AGO,
            },
            "  tools    by MCP, in claude-code 2.1[2J (version 2026-07-28)",
        ),
        ({"way": "mcp", "mcp": "listed", "client": "", "since": HOURS_AGO}, "  tools    by MCP, in its CLI"),
        (
            {"way": "shell", "mcp": "missing", "why": "it did not ask", "since": HOURS_AGO},
            "  tools    by shell commands only: it did not ask",
        ),
        ({"way": "none", "mcp": "off", "why": "--no-mcp", "since": HOURS_AGO}, "  tools    none: --no-mcp"),
        ({"way": "none", "mcp": "off", "why": "a script", "since": None}, ""),
        (None, ""),
    ],
)
def test_status_shows_how_an_agent_reaches_others(
    synapse: Cli, start: HostFactory, tools: dict[str, str | None] | None, line: str
) -> None:
    start().state["tools"] = tools

    plainly, explained = synapse("status", "codex").out, synapse("status", "codex", "--explain").out

    assert [shown for shown in plainly.splitlines() if shown.startswith("  tools")] == ([line] if line else [])
    told = f"  MCP server of its launch: {tools['mcp']} for 3h" if tools and line else ""
    assert (told in explained.splitlines()) is bool(told)
    assert synapse("list", "--json").json[0]["tools"] == tools


def test_explain_lists_the_observation_of_each_source(synapse: Cli, start: HostFactory) -> None:
    start().state["sightings"] = [
        {"source": "exit", "state": "", "detail": "it runs", "at": HOURS_AGO},
        {"source": "screen", "state": "ready", "detail": "prompt seen", "at": HOURS_AGO},
    ]

    lines = synapse("status", "codex", "--explain").out.splitlines()

    assert lines[-1] == "  → screen       ready     3h ago    prompt seen"
    assert lines[-2].startswith("    exit")


def test_status_of_a_task_shows_its_receipt_and_its_answer(synapse: Cli, start: HostFactory) -> None:
    host = start()
    task = host.open(MESSAGE)
    host.answer(task, "fine")

    ran = synapse("status", task["id"][:8])

    assert f"task {task['id']}  completed  at codex-8120, from user" in ran.out
    assert "answered" in ran.out
    assert ran.out.endswith("  answer\nfine\n")


def test_status_shows_the_answers_that_an_agent_owes(synapse: Cli, start: HostFactory) -> None:
    owed = {"task_id": "54241e7e-0000", "to": "user", "text": "ask claude\x1b[2J\nand tell me"}
    start().state["owes"] = [owed]

    assert (
        "\n  owes     the answer to task 54241e7e of user: ask claude[2J and tell me\n"
        in synapse("status", "codex").out
    )
    assert synapse("status", "codex", "--json").json["owes"] == [owed]


@pytest.mark.parametrize(("target", "code"), [("d1", "agent_not_found"), ("d1f0", "ambiguous_task")])
def test_status_of_a_name_that_begins_several_ids_at_one_host(
    synapse: Cli, start: HostFactory, target: str, code: str
) -> None:
    several = {"code": "ambiguous_task", "message": f"'{target}' fits more than one task", "hint": "use one of: …"}
    start().refusals[f"/tasks/{target}"] = (400, {"error": several})

    assert synapse("status", target, "--json").json["error"]["code"] == code


def test_status_of_nothing_known_is_not_found(synapse: Cli, start: HostFactory) -> None:
    start()

    assert synapse("status", "deadbeef").code == 3


def test_queue_lists_messages_in_the_order_of_delivery(synapse: Cli, start: HostFactory) -> None:
    host = start()
    task = host.open(MESSAGE, priority=4)

    line = synapse("queue", "codex").out.splitlines()[1]

    assert line.split() == ["codex-8120", task["id"][:8], "4", "user", "review", "the", "design", "in", "detail"]
    assert synapse("queue", "--json").json[0]["agent_id"] == "synapse-codex-8120"


def test_cancel_cancels_a_queued_message(synapse: Cli, start: HostFactory) -> None:
    host = start()
    task = host.open(MESSAGE)

    ran = synapse("cancel", task["id"][:8])

    assert ran.code == 0
    assert task["status"] == "canceled"


def test_cancel_of_several_continues_after_one_that_fails(synapse: Cli, start: HostFactory) -> None:
    left = synapse("send", "reviewer", "later", "--queue", "--json").json["task"]
    host = start()
    first, second = host.open(MESSAGE), host.open(MESSAGE)
    synapse("cancel", left["id"])

    ran = synapse("cancel", left["id"], first["id"], second["id"], "--json")

    (one, other), error = [one["task"]["status"] for one in ran.json[:2]], ran.json[2]["error"]
    assert (ran.code, one, other, error["code"]) == (7, "canceled", "canceled", "task_not_cancelable")


def test_cancel_queue_cancels_all_messages_queued_for_an_agent(synapse: Cli) -> None:
    for text in ("one", "two"):
        synapse("send", "reviewer", text, "--queue")
    synapse("send", "writer", "three", "--queue")

    ran = synapse("cancel", "--queue", "reviewer")

    assert (ran.code, ran.err.count(" is canceled")) == (0, 2)
    assert [one["agent_id"] for one in synapse("queue", "--json").json] == ["writer"]


@pytest.mark.parametrize("wrong", [(), ("54241e7e", "--queue", "codex")])
def test_cancel_needs_tasks_or_a_queue(synapse: Cli, wrong: tuple[str, ...]) -> None:
    ran = synapse("cancel", *wrong)

    assert (ran.code, "name the tasks to cancel, or use --queue AGENT" in ran.err) == (2, True)


def test_cancel_of_an_unknown_task_is_not_found(synapse: Cli, start: HostFactory) -> None:
    start()

    ran = synapse("cancel", "deadbeef", "--json")

    assert (ran.code, ran.json["error"]["code"]) == (3, "task_not_found")


@pytest.mark.parametrize(("verdict", "status"), [("delivered", "working"), ("retry", "submitted")])
def test_resolve_sends_the_decision(synapse: Cli, start: HostFactory, verdict: str, status: str) -> None:
    host = start()
    task = host.open(MESSAGE)

    synapse("resolve", task["id"], f"--{verdict}")

    assert host.requests[-1][2] == {"verdict": verdict}
    assert task["status"] == status


def test_resolve_needs_exactly_one_verdict(synapse: Cli) -> None:
    assert synapse("resolve", "abc").code == 2
    assert synapse("resolve", "abc", "--retry", "--fail").code == 2


def test_broadcast_reaches_the_agents_of_this_folder_but_not_the_sender(
    synapse: Cli, start: HostFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    codex, claude, far = start(), start("claude", 8100), start("gemini", 8110)
    far.entry.working_dir = "/"
    far.registry.write(far.entry)
    become(claude, monkeypatch)

    ran = synapse("broadcast", "pull first")

    assert ran.code == 0
    assert [len(host.tasks) for host in (codex, claude, far)] == [1, 0, 0]


def test_broadcast_to_all_includes_every_folder(synapse: Cli, start: HostFactory) -> None:
    codex, far = start(), start("gemini", 8110)
    far.entry.working_dir = "/"
    far.registry.write(far.entry)

    answers = synapse("broadcast", "--all", "--json", "save your work").json

    assert {answer["agent_id"] for answer in answers} == {codex.entry.agent_id, far.entry.agent_id}


@pytest.mark.parametrize("options", [[], ["--all"]])
def test_a_broadcast_without_any_agent_says_how_to_start_one(synapse: Cli, options: list[str]) -> None:
    ran = synapse("broadcast", "anybody?", *options)

    assert ran.code == 3
    assert ran.err.splitlines() == [
        "Error: no other agent is running",
        "start one with `synapse claude` or `synapse start codex`",
    ]


def test_a_broadcast_without_agents_in_this_folder_names_the_option_all(
    synapse: Cli, start: HostFactory, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    start("codex")
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))

    ran = synapse("broadcast", "anybody?", "--json")

    assert (ran.code, ran.json["error"]["code"]) == (3, "agent_not_found")
    assert ran.json["error"]["message"] == "no other agent is running in this folder"
    assert "--all" in ran.json["error"]["hint"]


def test_a_refusal_in_a_broadcast_is_its_exit_code(synapse: Cli, start: HostFactory) -> None:
    start().refusals["/tasks/send-priority"] = (429, {"error": {"code": "queue_full", "message": "full"}})
    start("claude", 8100)

    ran = synapse("broadcast", "hi")

    assert ran.code == 7
    assert "Error: full" in ran.err
    assert "[→ claude-8100] sent" in ran.err


def test_logs_of_an_agent_that_has_ended_can_still_be_read(synapse: Cli, home: Path) -> None:
    (home / "logs").mkdir()
    (home / "logs" / "synapse-codex-8120.log").write_text("one\ntwo\nthree\n", encoding="utf-8")

    assert synapse("logs", "codex", "-n", "2").out == "two\nthree\n"
    assert synapse("logs", "synapse-codex-8120", "--json").json["lines"] == ["one", "two", "three"]
    assert synapse("logs", "claude").code == 3


def test_stop_needs_a_name_or_all(synapse: Cli) -> None:
    assert synapse("stop").code == 2
    assert synapse("stop", "codex", "--all").code == 2
    assert synapse("stop", "codex").code == 3


def test_logs_are_found_by_the_name_that_an_ended_agent_had(synapse: Cli, home: Path) -> None:
    for port in (8119, 8120):
        log_of(home, f"synapse-codex-{port}").write_text(f"{port}\n", encoding="utf-8")

    assert synapse("logs", "reviewer").out == "8120\n"
    assert synapse("logs", "codex").code == 4


def log_of(home: Path, agent_id: str) -> Path:
    """Opens the log of an agent named `reviewer` and closes it."""
    root = logging.getLogger()
    previous = root.handlers[:], root.level
    try:
        path = log_to(home / "logs", agent_id, "reviewer")
        root.handlers[0].close()
    finally:
        root.handlers[:] = previous[0]
        root.setLevel(previous[1])
    return path


def test_an_unverified_sender_is_marked(synapse: Cli, start: HostFactory) -> None:
    host = start()
    sender = {"sender_id": "synapse-claude-8100", "sender_type": "claude", "sender_endpoint": ""}
    task = host.open(
        {
            "message": {"role": "user", "parts": [{"type": "text", "text": "hi"}]},
            "metadata": {"sender": sender, "sender_verified": False},
        }
    )
    host.state["current_task"] = task

    for shown in (synapse("queue"), synapse("status", "codex"), synapse("status", task["id"][:8]), synapse("list")):
        assert "unverified.synapse-claude-8100" in shown.out


def test_a_held_message_names_the_command_that_cancels_it(synapse: Cli, start: HostFactory) -> None:
    host = start()
    host.state["attention"] = [{"task_id": "54241e7e-1", "text": "held", "receipt": "queued"}]

    assert "(synapse cancel 54241e7e)" in synapse("list").err


def test_messages_that_are_held_for_one_reason_share_a_line(synapse: Cli, start: HostFactory) -> None:
    held = [{"task_id": f"{number:08}-1", "text": "held", "receipt": "queued"} for number in range(50)]
    start().state["attention"] = [*held, {"task_id": "54241e7e-1", "text": "in doubt", "receipt": "typed"}]

    doubt, all_held = synapse("list").err.splitlines()

    assert doubt.startswith("! codex-8120, task 54241e7e: in doubt")
    assert all_held == "! codex-8120, 50 messages: held  (`synapse cancel --queue codex-8120` cancels them)"


def test_a_script_cannot_be_attached_to(synapse: Cli, start: HostFactory) -> None:
    start("scripted", 8180)

    ran = synapse("attach", "scripted")

    assert ran.code == 7
    assert "has no terminal" in ran.err


def test_the_text_of_a_running_task_is_called_an_answer_so_far(synapse: Cli, start: HostFactory) -> None:
    task = start().open(MESSAGE)
    task |= {"status": "working", "artifacts": [{"parts": [{"type": "text", "text": "half of it"}]}]}

    assert synapse("status", task["id"]).out.endswith("  answer so far\nhalf of it\n")
    task["status"] = "completed"
    assert synapse("status", task["id"]).out.endswith("  answer\nhalf of it\n")


def test_an_agent_that_has_logged_nothing_says_so(synapse: Cli, home: Path) -> None:
    (home / "logs").mkdir()
    (home / "logs" / "synapse-codex-8120.log").touch()

    ran = synapse("logs", "codex")

    assert (ran.code, ran.out, ran.err.startswith("Nothing was logged yet.")) == (0, "", True)


@pytest.mark.parametrize("target", ["reviewer", "codex-8120", "synapse-codex-8120", "@reviewer"])
def test_the_error_tells_a_stopped_agent_from_one_that_never_existed(synapse: Cli, home: Path, target: str) -> None:
    log_of(home, "synapse-codex-8120")

    name = target.removeprefix("@")
    hint = f"it has stopped: `synapse restart {name}` starts it again\n(synapse logs {name}; "
    assert hint in synapse("send", target, "hi").err
    assert "it has stopped" not in synapse("send", "codex-8121", "hi").err


def give(host: FakeHost, **fields: str) -> None:
    """Changes the registry entry of a host."""
    for name, value in fields.items():
        setattr(host.entry, name, value)
    host.registry.write(host.entry)


def test_list_has_a_column_of_roles_when_an_agent_has_one(synapse: Cli, start: HostFactory) -> None:
    give(start("claude", 8100, name="lead"), role="You plan the work and you hand it out\x1b[2J and more.")
    start()

    titles, lead, codex = synapse("list").out.splitlines()

    at = titles.index("ROLE")
    assert titles.split() == ["AGENT", "STATE", "ROLE", "PORT", "PID", "WORKING", "ON", "FOLDER"]
    assert lead[at:].startswith("You plan the work and you hand it out[2…  8100")
    assert codex[at:].strip().startswith("8120")
    assert synapse("list", "--json").json[0]["role"].startswith("You plan the work and you hand it out")


def test_status_shows_role_team_and_accepted_senders(synapse: Cli, start: HostFactory) -> None:
    give(start(name="db"), role="You keep the data.", team="shop", accepts="lead person team")

    told = synapse("status", "db").out

    assert "  role     You keep the data.\n" in told
    assert "  team     shop\n" in told
    assert "  accepts  messages from lead, a person, agents of its team\n" in told


def test_explain_says_who_is_accepted_and_which_agent_started_it(synapse: Cli, start: HostFactory) -> None:
    host = start()

    assert "  accepts  messages from everybody\n" in synapse("status", "codex", "--explain").out
    assert "accepts" not in synapse("status", "codex").out
    give(host, launched_by="synapse-claude-8100")
    assert "  started  by synapse-claude-8100: " in synapse("status", "codex", "--explain").out


def test_doctor_tells_the_rule_and_who_only_seems_to_be_accepted(synapse: Cli, start: HostFactory) -> None:
    give(start(name="db"), accepts="lead")
    lead = start("claude", 8100, name="lead")

    def about() -> list[str]:
        findings = synapse("doctor", "--json").json["findings"]
        return [
            f"{one['level']} {one['text']}" for one in findings if one["subject"] == "db" and "accept" in one["text"]
        ]

    assert about() == ["ok accepts messages from lead"]
    give(lead, launched_by="synapse-gemini-8110")
    assert about()[1].startswith("note does not accept lead, which synapse-gemini-8110 started")
