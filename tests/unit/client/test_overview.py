"""The rows of agents that `synapse top`, the dashboard and notices show."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from synapse.client.overview import MARKS, ORDER, WORDS, Row, in_order, row_of
from synapse.core.agent import AgentEntry
from synapse.core.errors import AgentNotResponding, ConnectionForbidden

Fields = dict[str, Any]
SINCE = "2024-01-15T10:00:00.000Z"
CODEX = AgentEntry("synapse-codex-8120", "codex", port=8120, working_dir="/srv/project", terminal=34816)
AGENT = {"sender_id": "synapse-claude-8100", "sender_type": "claude"}
QUESTION: Fields = {
    "id": "q-1",
    "kind": "permission",
    "title": "Run the command?",
    "detail": "rm -rf build\nmake",
    "options": [
        {"key": "1", "label": "Yes", "leaning": "allow"},
        {"key": "2", "label": "No", "leaning": "deny"},
    ],
    "takes_text": False,
    "source": "hook",
    "hint": "",
    "asked_at": "2024-01-15T10:30:00.000Z",
    "task_id": "task-1",
}


def status(state: str = "ready", **fields: Any) -> Fields:
    return {"state": state, "why": f"it is {state}", "source": "screen", "since": SINCE, "queue_depth": 0, **fields}


def task(number: int, text: str = "review it", *, sender: Fields | None = None, verified: bool = True) -> Fields:
    metadata: Fields = {"sender_verified": verified, "receipt": "submitted", "receipts": []}
    if sender is not None:
        metadata["sender"] = sender
    parts = [{"type": "text", "text": text}]
    return {"id": f"task-{number}", "status": "working", "message": {"parts": parts}, "metadata": metadata}


def ended(number: int, outcome: str, at: str, text: str = "", *, sender: Fields | None = None) -> Fields:
    made = task(number, sender=sender)
    made["metadata"]["receipts"] = [{"step": "answered", "at": at}]
    made["updated_at"] = "2024-01-15T23:00:00.000Z"
    if outcome == "failed":
        made["metadata"]["note"] = text
    else:
        made["artifacts"] = [{"parts": [{"type": "text", "text": text}]}]
    return {**made, "status": outcome}


def row(fields: Fields | None = None, seen: datetime | None = None) -> Row:
    return row_of(CODEX, status() if fields is None else fields, seen)


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        (status("ready"), "ready"),
        (status("starting"), "starting"),
        (status("starting", queue_depth=2), "starting"),
        (status("working"), "working"),
        (status("working", queue_depth=2), "working"),
        (status("ready", queue_depth=2), "queued"),
        (status("ready", held={"reason": "person", "why": "somebody types"}), "queued"),
        (status("waiting"), "asks"),
        (status("working", question=QUESTION), "asks"),
        (status("ready", questions=[QUESTION]), "asks"),
        (status("ready", held={"reason": "no_prompt", "overdue": True}), "asks"),
        (status("ready", held={"reason": "in_doubt", "overdue": True}), "queued"),
        (status("ready", attention=[{"task_id": "t", "text": "was it taken?", "receipt": "queued"}]), "asks"),
        (status("ready", attention=[{"task_id": "t", "text": "was it taken?", "receipt": "typed"}]), "in_doubt"),
        (status("ready", store_fault="the disk is full"), "failed"),
        (status("ready", finished=[ended(1, "failed", SINCE)]), "failed"),
        (status("ready", finished=[ended(1, "failed", SINCE, sender=AGENT)]), "failed"),
        (status("ready", finished=[ended(2, "completed", SINCE, sender=AGENT), ended(1, "failed", SINCE)]), "ready"),
        (status("working", finished=[ended(1, "completed", SINCE)]), "done"),
        (status("ready", finished=[ended(1, "completed", SINCE, sender=AGENT)]), "ready"),
        (status("ready", finished=[ended(1, "canceled", SINCE)]), "ready"),
        (status("exited"), "away"),
        (status("exited", finished=[ended(1, "completed", SINCE)]), "away"),
    ],
)
def test_the_state_is_the_most_urgent_thing_that_the_host_says(fields: Fields, state: str) -> None:
    assert row(fields)["state"] == state
    assert row(fields)["agent_state"] == fields["state"]


def test_what_needs_a_person_comes_before_what_the_agent_does() -> None:
    everything = status(
        "working",
        question=QUESTION,
        attention=[{"task_id": "t", "text": "was it taken?", "receipt": "typed"}],
        finished=[ended(2, "failed", SINCE), ended(1, "completed", SINCE)],
    )
    found: list[str] = []
    for gone in ("question", "attention", "finished"):
        found.append(row(everything)["state"])
        del everything[gone]

    assert [*found, row(everything)["state"]] == ["asks", "in_doubt", "failed", "working"]


def test_a_question_is_told_with_its_command_and_all_that_a_person_must_know() -> None:
    asks = row(status("waiting", question=QUESTION, current_task=task(1, sender=AGENT)))

    assert asks["why"] == "Run the command?  rm -rf build"
    assert asks["since"] == QUESTION["asked_at"]
    [need] = asks["needs"]
    assert need == {
        "id": "synapse-codex-8120:q-1",
        "kind": "permission",
        "agent": "synapse-codex-8120",
        "agent_id": "synapse-codex-8120",
        "name": "codex-8120",
        "task_id": "task-1",
        "title": "Run the command?",
        "detail": "rm -rf build\nmake",
        "options": [
            {"key": "1", "label": "Yes", "effect": "allow"},
            {"key": "2", "label": "No", "effect": "deny"},
        ],
        "takes_text": False,
        "hint": "",
        "asked_at": "2024-01-15T10:30:00.000Z",
        "from": "synapse-claude-8100",
        "folder": "/srv/project",
        "source": "hook",
        "next": "synapse approve task-1 | synapse deny task-1",
        "question_id": "q-1",
        "can": ["allow", "deny", "choose", "cancel", "attach"],
    }


def test_an_unknown_dialog_can_only_be_answered_in_the_terminal() -> None:
    [need] = row(status("waiting"))["needs"]

    assert (need["kind"], need["id"]) == ("dialog", f"dialog:synapse-codex-8120:{SINCE}")
    assert (need["title"], need["next"], need["can"]) == ("it is waiting", "synapse attach codex-8120", ["attach"])


def test_a_terminal_that_its_machine_does_not_allow_is_not_offered() -> None:
    entry = AgentEntry("synapse-codex-8120@box2", "codex", name="codex@box2", inbox="box2!codex", terminal=-1)
    told = {**status("waiting"), "attach_after": "synapse fleet allow hub attach"}

    [need] = row_of(entry, told, None)["needs"]

    assert (need["can"], need["next"]) == ([], "on box2: synapse fleet allow hub attach")


def test_a_free_text_question_of_an_agent_without_a_terminal_takes_a_text_only() -> None:
    own: Fields = {**QUESTION, "kind": "choice", "options": [], "takes_text": True, "task_id": ""}
    scripted = AgentEntry("synapse-echo-8130", "echo", name="echo")

    [need] = row_of(scripted, status(questions=[own]), None)["needs"]

    assert need["can"] == ["text"]
    assert need["agent"] == "echo"


def test_a_message_in_doubt_names_the_message_its_sender_and_since_when() -> None:
    noted = {
        "task_id": "task-1",
        "text": "typed, and nothing proves that it was taken",
        "receipt": "typed",
        "since": "2024-01-15T09:00:00.000Z",
        "from": "user",
        "message": "review src/app.py\nplease",
    }

    doubtful = row(status("ready", attention=[noted]))

    assert doubtful["why"] == 'was it taken? "review src/app.py"'
    assert doubtful["since"] == noted["since"]
    [need] = doubtful["needs"]
    assert (need["id"], need["from"], need["detail"]) == ("in_doubt:task-1", "user", noted["message"])
    assert need["can"] == ["resolve", "cancel", "attach"]
    assert need["next"] == "synapse resolve task-1 --delivered|--retry|--fail"


def test_held_messages_are_known_by_their_task_or_their_reason() -> None:
    held = {"reason": "no_prompt", "why": "no prompt", "overdue": True, "messages": 2, "since": SINCE}

    [without] = row(status(held=held))["needs"]
    [with_task] = row(status(held={**held, "task_id": "task-7"}))["needs"]

    assert (without["id"], with_task["id"]) == ("held:synapse-codex-8120:no_prompt", "held:task-7")
    assert (without["kind"], without["title"]) == ("held", "2 messages held: no prompt")


def test_unseen_answers_to_people_are_counted_and_the_oldest_is_told() -> None:
    finished = [
        ended(3, "completed", "2024-01-15T10:30:00.000Z", "newest"),
        ended(2, "completed", "2024-01-15T10:20:00.000Z", "\nlooks good\ntwo nits", sender=None),
        ended(1, "completed", "2024-01-15T10:10:00.000Z", "seen before"),
    ]

    done = row(status(finished=finished), seen=datetime(2024, 1, 15, 10, 10, tzinfo=UTC))

    assert (done["state"], done["unread"]) == ("done", 2)
    assert (done["why"], done["since"]) == ("→ user: looks good", "2024-01-15T10:20:00.000Z")
    assert [need["id"] for need in done["needs"]] == ["done:task-3", "done:task-2"]
    assert done["needs"][1]["detail"] == "\nlooks good\ntwo nits"
    assert done["needs"][1]["can"] == ["seen", "attach"]
    assert done["needs"][1]["next"] == "synapse status task-2"


def test_answers_that_were_seen_need_nobody() -> None:
    finished = [ended(2, "failed", "2024-01-15T10:20:00.000Z"), ended(1, "completed", "2024-01-15T10:10:00.000Z")]

    ready = row(status(finished=finished), seen=datetime(2024, 1, 15, 10, 20, tzinfo=UTC))

    assert (ready["state"], ready["unread"], ready["needs"]) == ("ready", 0, [])


@pytest.mark.parametrize(
    ("metadata", "unread"),
    [
        ({"sender": {"sender_id": "user"}, "sender_verified": True}, 1),
        ({"sender": {"sender_id": "user"}, "sender_verified": False}, 1),
        ({"sender": {"sender_id": "user"}, "sender_verified": False, "user": "laptop"}, 1),
        ({"sender": {"sender_id": "synapse-claude-8100"}, "sender_verified": True}, 0),
        ({"sender": {"sender_id": "synapse-claude-8100"}, "sender_verified": False}, 0),
        ({"sender": {"sender_id": "synapse-system"}, "sender_verified": True}, 0),
    ],
)
def test_only_answers_to_people_and_callers_of_the_gateway_wait_to_be_seen(metadata: Fields, unread: int) -> None:
    finished = ended(1, "completed", SINCE)
    finished["metadata"] |= metadata

    assert row(status(finished=[finished]))["unread"] == unread


def test_a_failure_is_told_in_the_words_of_the_task() -> None:
    failed = row(status(finished=[ended(1, "failed", "2024-01-15T09:30:00.000Z", "its program has ended")]))

    assert (failed["why"], failed["since"]) == ("its program has ended", "2024-01-15T09:30:00.000Z")
    assert failed["needs"][0]["id"] == "failed:task-1"


def test_a_store_that_fails_is_told_with_the_command_to_type() -> None:
    failed = row(status(store_fault="the disk is full"))

    assert (failed["why"], failed["store_fault"]) == ("the disk is full", "the disk is full")
    assert failed["needs"][0]["next"] == "synapse restart codex-8120"


def test_needs_of_two_agents_never_have_the_same_id() -> None:
    held = {"reason": "no_prompt", "why": "no prompt", "overdue": True, "messages": 2, "since": SINCE}
    other = AgentEntry("synapse-codex-8121", "codex")

    asking = status("waiting", question=QUESTION)
    for same in (asking, status(store_fault="the disk is full"), status("waiting"), status(held=held)):
        [one], [another] = (row_of(entry, same, None)["needs"] for entry in (CODEX, other))
        assert one["id"] != another["id"]


def test_a_working_agent_is_told_by_its_task() -> None:
    working = row(status("working", current_task=task(1, "write the tests\nfor the parser"), queue_depth=1))

    assert (working["why"], working["since"], working["queue"]) == ("write the tests", SINCE, 1)
    assert working["task"] == {
        "id": "task-1",
        "from": "user",
        "text": "write the tests\nfor the parser",
        "receipt": "submitted",
    }


def test_a_task_that_has_just_ended_is_no_longer_worked_on() -> None:
    assert row(status(current_task={**task(1), "status": "completed"}))["task"] is None


def test_an_agent_at_rest_that_owes_an_answer_says_so() -> None:
    owes = [{"task_id": "task-1", "to": "user", "text": "ask codex\nand tell me"}]

    ready = row(status(owes=owes))

    assert (ready["state"], ready["why"]) == ("ready", "owes user an answer: ask codex")
    assert ready["owes"] == owes


def test_a_queue_that_waits_says_why_and_since_when() -> None:
    held = {"reason": "person", "why": "somebody types", "since": "2024-01-15T09:59:00.000Z", "messages": 1}

    assert row(status(queue_depth=1, held=held))["why"] == "somebody types"
    assert row(status(queue_depth=1, held=held))["since"] == "2024-01-15T09:59:00.000Z"
    assert row(status(queue_depth=3))["why"] == "3 queued"


def test_an_agent_whose_host_does_not_answer_is_away_whatever_it_said_before() -> None:
    before = status("waiting", question=QUESTION)

    silent = row_of(CODEX, before, None, AgentNotResponding("synapse-codex-8120", 8120, "codex"))
    hidden = row_of(CODEX, None, None, ConnectionForbidden("synapse-codex-8120", "no sockets here"))
    unasked = row_of(CODEX, None, None)

    assert [one["state"] for one in (silent, hidden, unasked)] == ["away"] * 3
    assert [one["agent_state"] for one in (silent, hidden, unasked)] == ["not_responding", "unknown", "unknown"]
    assert silent["needs"] == []
    assert "synapse-codex-8120" in silent["why"]
    assert unasked["why"] == "has not answered yet"


def test_a_row_has_the_names_that_the_gateway_and_the_list_use(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    started = "2026-01-31T10:30:00.000Z"
    folder = str(tmp_path / "project")
    named = AgentEntry("synapse-codex-8120", "codex", name="reviewer", working_dir=folder, started_at=started)

    shown = row_of(named, status(), None)

    assert (shown["id"], shown["name"], shown["agent_type"]) == ("reviewer", "reviewer", "codex")
    assert shown["started_at"] == started
    assert (shown["folder"], shown["machine"], shown["has_terminal"]) == ("~/project", "", False)
    assert (row()["id"], row()["name"], row()["has_terminal"]) == ("synapse-codex-8120", "codex-8120", True)


def test_rows_are_in_order_of_need_and_the_longest_waiting_comes_first() -> None:
    rows: list[Row] = [
        {**row(status("ready")), "name": "a"},
        {**row_of(CODEX, None, None), "name": "b"},
        {**row(status("waiting", since="2024-01-15T11:00:00.000Z")), "name": "c"},
        {**row(status("waiting", since="2024-01-15T10:00:00.000Z")), "name": "d"},
        {**row(status("working")), "name": "e"},
        {**row(status(store_fault="full")), "name": "f"},
    ]

    assert [one["name"] for one in in_order(rows)] == ["d", "c", "f", "e", "a", "b"]


def test_each_state_has_a_mark_of_its_own_and_a_word() -> None:
    assert len(set(MARKS.values())) == len(MARKS)
    assert tuple(MARKS) == ORDER
    assert WORDS["in_doubt"] == "in doubt"
    assert set(WORDS) == set(MARKS)


def test_a_status_of_an_earlier_version_makes_a_row_too() -> None:
    assert row({"state": "ready"})["state"] == "ready"
    assert row({"state": "ready", "finished": None, "owes": None, "queue_depth": None})["since"] == ""
