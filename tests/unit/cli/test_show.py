"""`synapse show`: one task or the last tasks of an agent, running or not, for people and as an export."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from synapse.cli import show, tables
from synapse.cli.exit_codes import NOT_FOUND, USAGE
from synapse.client import seen
from synapse.client.seen import seen_until
from synapse.config.process import SystemClock
from synapse.core.driver import Answered, Progress
from synapse.core.events import Recorded, TaskEvent
from synapse.core.message import TextPart
from synapse.core.store import TaskPage, TaskQuery
from synapse.core.task import Task
from synapse.store.codec import encode_events, from_json
from synapse.store.sqlite import SqliteStore
from synapse.tasks import stopped
from synapse.tasks.journal import Journal
from tests.fakes.facts import message, numbered
from tests.fakes.leased_store import LeasedStore
from tests.fakes.leases import ANY_LEASE
from tests.fakes.task_log import TaskLog
from tests.unit.cli.conftest import Cli, HostFactory

VERIFIED = {"sender": {"sender_id": "synapse-claude-8100", "sender_type": "claude"}, "sender_verified": True}


def answered(number: int, text: str = "", **fields: Any) -> TaskLog:
    """A task of `ada`, unless the fields say otherwise, that began after so many seconds."""
    fields = {"inbox": "ada", "message": message(text or f"message {number}", f"m-{number}"), **fields}
    log = TaskLog(numbered(number), at=number, **fields).taken(at=number + 0.3)
    answer = Answered(parts=(TextPart(text=f"answer {number}"),), source="transcript")
    return log.turn(answer, at=number + 0.5)


def fill(home: Path, logs: Iterable[TaskLog], *, ago: timedelta | None = None) -> None:
    """Stores the logs; with `ago`, as if they had begun so long ago."""
    shift = SystemClock().now() - ago if ago is not None else None

    async def save() -> None:
        store = await LeasedStore.open(home / "store.db")
        journal = Journal(store, ANY_LEASE)
        for log in logs:
            await journal.record(*(moved_to(event, shift) for event in log.events))
        await store.close()

    asyncio.run(save())


def moved_to(event: TaskEvent, at: datetime | None) -> TaskEvent:
    return event if at is None else replace(event, at=at)


def ids(exported: dict[str, Any]) -> list[str]:
    return [task["id"] for task in exported["tasks"]]


def test_a_task_is_shown_with_both_sides_and_its_receipts(home: Path, synapse: Cli) -> None:
    fill(home, [answered(1, "fix the parser")])

    shown = synapse("show", "00000001")

    assert shown.code == 0
    head, sender, text, _, agent, answer, receipts = shown.out.splitlines()
    assert head.startswith("── 00000001 · 2026-01-15 ")
    assert " · completed ─" in head
    assert [sender, text, agent, answer] == [
        "unverified.user → ada",
        "  fix the parser",
        "ada → unverified.user  +0.5s",
        "  answer 1",
    ]
    assert receipts.endswith(" · submitted (hook) +0.3s · answered (transcript) +0.5s")


@pytest.mark.parametrize("target", ["ada", "@ada", "synapse-codex-8120", "codex-8120", "codex"])
def test_the_thread_of_a_stopped_agent_is_found_by_its_name_id_and_profile(
    home: Path, synapse: Cli, target: str
) -> None:
    fill(home, [answered(1), answered(2)])
    fill(home, [answered(3, inbox="bob", agent_id="synapse-gemini-8110")])

    assert ids(synapse("show", target, "--json").json) == [numbered(1), numbered(2)]


def test_an_agent_without_a_name_is_found_by_its_profile(home: Path, synapse: Cli) -> None:
    fill(home, [answered(1, inbox="codex@/proj")])

    exported = synapse("show", "codex", "--json").json

    assert (exported["agent"], ids(exported)) == ("codex-8120", [numbered(1)])


def test_a_running_agent_is_shown_by_its_inbox(home: Path, synapse: Cli, start: HostFactory) -> None:
    start(name="ada")
    fill(home, [answered(1, agent_id="synapse-codex-8999")])

    assert ids(synapse("show", "ada", "--json").json) == [numbered(1)]


def test_the_last_tasks_of_an_agent_come_oldest_first_and_say_that_there_are_more(home: Path, synapse: Cli) -> None:
    fill(home, [answered(number) for number in range(1, 15)])

    assert ids(synapse("show", "ada", "--json").json) == [numbered(number) for number in range(5, 15)]
    shown = synapse("show", "ada", "--last", "3").out.splitlines()
    assert shown[0] == "(earlier tasks are not shown:  synapse show ada --last 6)"
    assert [line[3:11] for line in shown if line.startswith("──")] == ["00000012", "00000013", "00000014"]
    assert "earlier" not in synapse("show", "ada", "--last", "14").out


def test_since_shows_what_changed_then(home: Path, synapse: Cli) -> None:
    fill(home, [answered(1)], ago=timedelta(hours=3))
    fill(home, [answered(2)], ago=timedelta(minutes=5))

    assert ids(synapse("show", "ada", "--since", "2h", "--json").json) == [numbered(2)]
    nothing = synapse("show", "ada", "--since", "1m")
    assert (nothing.code, nothing.out) == (0, "")
    assert nothing.err == "There are no tasks of 'ada' in that time.  (synapse tasks)\n"


def test_a_thread_has_what_the_agent_sent_to_others(home: Path, synapse: Cli) -> None:
    sent = answered(2, inbox="bob", agent_id="synapse-gemini-8110", metadata=VERIFIED)
    claimed = {**VERIFIED, "sender_verified": False}
    forged = answered(3, inbox="bob", agent_id="synapse-gemini-8110", metadata=claimed)
    fill(home, [answered(1, inbox="claude@/proj", agent_id="synapse-claude-8100"), sent, forged])

    shown = synapse("show", "claude-8100")

    assert "claude-8100 → bob\n  message 2\n" in shown.out
    assert "message 3" not in shown.out
    assert ids(synapse("show", "claude-8100", "--json").json) == [numbered(1), numbered(2)]


def test_what_a_named_agent_sent_has_its_name(home: Path, synapse: Cli) -> None:
    sent = answered(2, inbox="bob", agent_id="synapse-gemini-8110", metadata=VERIFIED)
    fill(home, [answered(1, inbox="lead", agent_id="synapse-claude-8100"), sent])

    assert "lead → bob\n  message 2\n" in synapse("show", "lead").out
    assert "claude-8100 → bob\n" in synapse("show", "bob").out


def test_instructions_and_waits_are_left_out(home: Path, synapse: Cli) -> None:
    told = answered(1, metadata={"sender": {"sender_id": "synapse-system"}, "sender_verified": True})
    waits = {"waits_for": "synapse-gemini-8110", "waits_for_inbox": "bob"}
    waiting = TaskLog(numbered(2), at=2, inbox="ada", queued=False, metadata=waits, message=message("m", "m-2"))
    fill(home, [told, waiting, answered(3)])

    assert ids(synapse("show", "ada", "--json").json) == [numbered(3)]


def test_the_tasks_of_a_context_belong_together(home: Path, synapse: Cli) -> None:
    fill(home, [answered(1, context_id="c"), answered(2, context_id="c", inbox="bob"), answered(3)])

    alone = synapse("show", "00000001")

    assert alone.out.splitlines()[-1] == "(1 more task of the same context:  synapse show 00000001 --context)"
    assert ids(synapse("show", "00000001", "--context", "--json").json) == [numbered(1), numbered(2)]
    refused = synapse("show", "ada", "--context")
    assert refused.code == USAGE
    assert "'ada' is an agent" in refused.err
    assert ids(synapse("show", "00000001", "--context", "--last", "1", "--json").json) == [numbered(2)]
    assert synapse("show", "00000001", "--context", "--last", "1").out.splitlines()[0] == (
        "(earlier tasks are not shown:  synapse show 00000001 --context --last 2)"
    )
    assert synapse("show", "00000001", "--last", "1").code == USAGE
    for form in ((), ("--markdown",), ("--raw",)):
        nothing = synapse("show", "00000001", "--context", "--since", "1m", *form)
        assert (nothing.code, nothing.out) == (0, "")
    assert ids(synapse("show", "00000001", "--context", "--since", "1m", "--json").json) == []


def test_only_lines_of_ours_have_colours_on_a_terminal(
    home: Path, synapse: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(home, [answered(1, "! not ours\n· nor this")])
    plain = synapse("show", "ada").out
    monkeypatch.setattr(show, "in_colour", lambda: True)
    monkeypatch.setattr(tables, "in_colour", lambda: True)

    coloured = synapse("show", "ada").out

    assert coloured.replace("\x1b[0m", "").replace("\x1b[2m", "").replace("\x1b[36m", "") == plain
    lines = coloured.splitlines()
    assert [line[:5] for line in lines if line.startswith("\x1b[2m")] == ["\x1b[2m─", "\x1b[2m·"]
    assert lines[1] == "\x1b[36munverified.user → ada\x1b[0m"
    assert lines[2:4] == ["  ! not ours", "  · nor this"]
    assert "\x1b" not in synapse("show", "ada", "--markdown").out


@pytest.mark.parametrize("target", ["nobody", "deadbeef-0000", "d1"])
def test_what_is_not_there_is_not_found(home: Path, synapse: Cli, target: str) -> None:
    before = synapse("show", target)
    fill(home, [answered(1)])

    assert before.code == synapse("show", target).code == NOT_FOUND


def test_an_ambiguous_beginning_of_an_id_names_the_tasks(home: Path, synapse: Cli) -> None:
    fill(home, [answered(1), answered(2)])

    refused = synapse("show", "0000000")

    assert refused.code != 0
    assert numbered(2) in refused.err


def test_the_export_to_a_file_never_replaces_one(home: Path, synapse: Cli) -> None:
    fill(home, [answered(1)])

    wrote = synapse("show", "ada", "--output", "ada.md")

    assert (wrote.code, wrote.out, wrote.err) == (0, "", "Wrote 1 task to ada.md\n")
    written = (home / "ada.md").read_text(encoding="utf-8")
    assert written.startswith("# `ada`\n")
    refused = synapse("show", "ada", "--json", "--output", "ada.md")
    assert refused.code == USAGE
    assert refused.json["error"]["message"] == "ada.md exists already"
    assert (home / "ada.md").read_text(encoding="utf-8") == written
    (home / "link.json").symlink_to(home / "elsewhere.json")
    assert synapse("show", "ada", "--output", "link.json").code == USAGE
    assert not (home / "elsewhere.json").exists()


def test_the_name_of_the_file_chooses_the_form(home: Path, synapse: Cli) -> None:
    fill(home, [answered(1)])
    for name in ("a.json", "a.txt"):
        assert synapse("show", "ada", "--output", name).code == 0
    synapse("show", "ada", "--json", "--output", "b.md")

    assert ids(json.loads((home / "a.json").read_text(encoding="utf-8"))) == [numbered(1)]
    assert ids(json.loads((home / "b.md").read_text(encoding="utf-8"))) == [numbered(1)]
    assert (home / "a.txt").read_text(encoding="utf-8").startswith("── 00000001")


def test_an_export_that_cannot_be_written_leaves_nothing(home: Path, synapse: Cli) -> None:
    fill(home, [answered(1)])

    assert synapse("show", "ada", "--output", "nowhere/ada.md").code != 0
    assert not (home / "nowhere").exists()


def test_raw_has_the_events_as_they_are_stored(home: Path, synapse: Cli) -> None:
    log = answered(1)
    fill(home, [log])

    lines = [json.loads(line) for line in synapse("show", "00000001", "--raw").out.splitlines()]

    assert [line["seq"] for line in lines] == [*range(1, len(log.events) + 1)]
    assert [[line["event"], line["fields"]] for line in lines] == [
        [kind, fields] for kind, _, fields in from_json(encode_events(log.events))
    ]
    assert synapse("show", "00000001", "--raw", "--json").json == lines


def test_markdown_and_json_exclude_each_other(synapse: Cli) -> None:
    assert synapse("show", "ada", "--markdown", "--json").code == USAGE


def test_a_task_with_many_events_is_shown_whole(home: Path, synapse: Cli) -> None:
    log = answered(1)
    end = log.events[-3:]
    log.events[-3:] = []
    for number in range(1200):
        log.turn(Progress(f"step {number}"), at=1.4)
    fill(home, [log.add(*end)])

    assert "  answer 1\n" in synapse("show", "00000001").out


def test_a_person_has_seen_what_was_shown_but_not_what_was_exported(
    home: Path, synapse: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def controlling_terminal(_pid: int) -> int:
        return 34816

    monkeypatch.setattr(seen, "controlling_terminal", controlling_terminal)
    log = answered(1)
    fill(home, [log])

    synapse("show", "ada", "--json")
    synapse("show", "ada", "--output", "ada.md")
    assert seen_until(home, "synapse-codex-8120") is None
    synapse("show", "00000001")
    assert seen_until(home, "synapse-codex-8120") == log.events[-1].at
    synapse("show", "ada")
    until = seen_until(home, "synapse-codex-8120")
    assert until is not None
    assert until > log.events[-1].at


@pytest.mark.parametrize("target", ["ada", "codex-8120", "00000250 --context"])
def test_the_reads_do_not_grow_with_what_is_stored(
    home: Path, synapse: Cli, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    fill(home, [answered(number, inbox="bob", agent_id="synapse-gemini-8110") for number in range(101, 201)])
    fill(home, [answered(number) for number in range(201, 301)])
    monkeypatch.setattr(show, "MOST", 20)
    monkeypatch.setattr(stopped, "_PAGE", 10)
    read_list, read_after = SqliteStore.list, SqliteStore.read_after
    tasks, logs = list[Task](), list[object]()

    async def counted_list(store: SqliteStore, query: TaskQuery) -> TaskPage:
        page = await read_list(store, query)
        tasks.extend(page.tasks)
        return page

    async def counted_read(store: SqliteStore, seq: int, **options: Any) -> Sequence[Recorded]:
        logs.append(options["task_id"])
        return await read_after(store, seq, **options)

    monkeypatch.setattr(SqliteStore, "list", counted_list)
    monkeypatch.setattr(SqliteStore, "read_after", counted_read)

    assert synapse("show", *target.split(), "--last", "3").code == 0
    assert 0 < len(tasks) <= 1 + 10 + 4
    assert 0 < len(logs) <= 3 * 2
