"""The history of a task: what was said, asked and answered, made from its events."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

from synapse.client.history import (
    Asked,
    Delivered,
    Ended,
    Entry,
    InDoubt,
    Said,
    TaskHistory,
    export_fields,
    history_of,
    sender_label,
)
from synapse.core.driver import (
    Answered,
    ArtifactProduced,
    DeliveryUncertain,
    Failed,
    InputRequested,
    PartialAnswer,
    Progress,
    QuestionRaised,
    Resumed,
    Typing,
)
from synapse.core.message import Artifact, FilePart, Message, MessageId, Role, Sender, TextPart, text_of
from synapse.core.task import ReceiptStep, TaskState
from synapse.core.task_metadata import answer_noted, asking_person
from synapse.tasks import outcomes
from synapse.tasks.recovery import ANSWERS
from tests.architecture.source_tree import ROOT
from tests.fakes.facts import START, TASK, after, message, moved, noted, raised, said, stepped
from tests.fakes.questions import PERMISSION
from tests.fakes.task_log import TaskLog

CODE = re.compile(r"`(\w+)`")
ANSWERED_BY_ADA = {"question": "Run the command?", "id": "q-1", "choice": "Yes", "by": "ada", "how": "keys"}


def answer(text: str, source: str = "transcript") -> Answered:
    return Answered(parts=(TextPart(text=text),), source=source)


def read(log: TaskLog) -> TaskHistory:
    return history_of(log.events, "codex")


def told(history: TaskHistory) -> list[tuple[str, str, str]]:
    return [
        (entry.sender, entry.receiver, text_of(entry.parts)) for entry in history.entries if isinstance(entry, Said)
    ]


def kinds(history: TaskHistory) -> list[type[Entry]]:
    return [type(entry) for entry in history.entries]


def test_a_request_and_its_answer_are_both_sides_of_a_conversation() -> None:
    history = read(TaskLog().taken().turn(Progress("half way")).turn(answer("done"), at=12))

    assert told(history) == [("unverified.user", "codex", "hello"), ("codex", "unverified.user", "done")]
    assert kinds(history) == [Said, Said, Delivered]
    assert [entry.at for entry in history.entries] == [after(0), after(12), after(12)]


def test_the_receipts_of_a_message_are_one_entry() -> None:
    delivered = read(TaskLog().taken().turn(answer("done"), at=12)).entries[-1]

    assert isinstance(delivered, Delivered)
    assert [(one.step, one.source) for one in delivered.receipts] == [
        (ReceiptStep.QUEUED, "journal"),
        (ReceiptStep.TYPED, "journal"),
        (ReceiptStep.SUBMITTED, "hook"),
        (ReceiptStep.TURN_STARTED, "hook"),
        (ReceiptStep.ANSWERED, "transcript"),
    ]


def test_a_follow_up_has_receipts_of_its_own_after_its_answer() -> None:
    log = TaskLog().taken().turn(InputRequested(parts=(TextPart(text="Which colour?"),)), at=2)
    log.add(said("blue", at=5), stepped(ReceiptStep.QUEUED, at=5), moved(TaskState.SUBMITTED, at=5))

    history = read(log.taken(at=6).turn(answer("painted"), at=9))

    assert kinds(history) == [Said, Said, Delivered, Said, Said, Delivered]
    assert [text for _, _, text in told(history)] == ["hello", "Which colour?", "blue", "painted"]


def test_a_follow_up_of_somebody_else_names_them() -> None:
    log = TaskLog().taken().turn(InputRequested(parts=(TextPart(text="Which?"),)))
    other = Message(
        message_id=MessageId("m-2"), role=Role.USER, parts=(TextPart(text="blue"),), metadata={"typed_from": "gemini"}
    )
    event = said("blue", at=5)

    history = read(log.add(type(event)(task_id=event.task_id, at=event.at, message=other)))

    assert told(history)[-1] == ("gemini", "codex", "blue")


def test_an_answer_takes_the_place_of_the_text_that_grew_before_it() -> None:
    log = TaskLog().taken()
    for text in ("do", "done", "done so"):
        log.turn(PartialAnswer(text=text, source="screen"))

    history = read(log.turn(answer("done, all of it"), at=3))

    assert [text for _, _, text in told(history)] == ["hello", "done, all of it"]


def test_the_text_of_an_interrupted_turn_is_the_answer_so_far() -> None:
    log = TaskLog().taken().turn(PartialAnswer(text="half a sen", source="screen"))
    log.end(lambda task, now: outcomes.interrupted(task, now, Failed(reason="interrupted", note="")), at=4)

    _, partial, _, ended = read(log).entries

    assert isinstance(partial, Said)
    assert (text_of(partial.parts), partial.is_partial) == ("half a sen", True)
    assert ended == Ended(
        at=after(4),
        state=TaskState.CANCELED,
        reason="interrupted",
        note="a message of priority 5 interrupted the turn",
    )


def test_a_failure_ends_with_its_reason() -> None:
    history = read(TaskLog().taken().turn(Failed(reason="quota", note="used up"), at=2))

    assert history.entries[-1] == Ended(at=after(2), state=TaskState.FAILED, reason="quota", note="used up")


def test_a_task_that_was_completed_by_request_says_so() -> None:
    log = TaskLog().end(lambda task, now: outcomes.ended(task, now, TaskState.COMPLETED, "", "done by hand"))

    assert isinstance(read(log).entries[-1], Ended)


def test_a_question_has_who_answered_it_and_how() -> None:
    log = TaskLog().taken().turn(QuestionRaised(PERMISSION), at=2).turn(Resumed("keys"), at=6)
    log.add(answer_noted(log.task, after(6.5), ANSWERED_BY_ADA))

    asked = read(log.turn(answer("done"), at=9)).entries[1]

    assert isinstance(asked, Asked)
    assert (asked.question.title, asked.at, asked.closed_at) == ("Run the command?", after(2), after(6))
    assert (asked.choice, asked.by, asked.how) == ("Yes", "ada", "keys")


def test_a_question_that_was_answered_in_the_terminal_names_nobody() -> None:
    log = TaskLog().taken().turn(QuestionRaised(PERMISSION), at=2).turn(Resumed("person"), at=6)

    asked = read(log).entries[1]

    assert isinstance(asked, Asked)
    assert (asked.closed_at, asked.by, asked.choice) == (after(6), "", "")


def test_the_answer_to_an_earlier_question_stays_with_it() -> None:
    log = TaskLog().taken().turn(QuestionRaised(PERMISSION), at=2).turn(Resumed("keys"), at=3)
    second = type(PERMISSION)(id="q-2", kind=PERMISSION.kind, title="And this?")
    log.turn(QuestionRaised(second), at=4).add(answer_noted(log.task, after(5), ANSWERED_BY_ADA))

    first, open_one = (entry for entry in read(log).entries if isinstance(entry, Asked))

    assert (first.by, first.closed_at) == ("ada", after(3))
    assert (open_one.question.title, open_one.by, open_one.closed_at) == ("And this?", "", None)


def test_a_question_ends_with_its_task() -> None:
    log = TaskLog().taken().turn(QuestionRaised(PERMISSION), at=2).turn(Failed(reason="gone", note="it left"), at=7)

    asked = next(entry for entry in read(log).entries if isinstance(entry, Asked))

    assert asked.closed_at == after(7)


def test_a_question_of_the_agents_own_is_one_entry_with_its_answer() -> None:
    log = TaskLog(queued=False, metadata=asking_person(), message=message("Run the command?"))
    log.turn(QuestionRaised(PERMISSION), at=0)
    by_message = Message(
        message_id=MessageId("m-2"), role=Role.USER, parts=(TextPart(text="yes"),), metadata={ANSWERS: "q-1"}
    )
    event = said("yes", at=4)
    log.add(type(event)(task_id=event.task_id, at=event.at, message=by_message))
    log.add(answer_noted(log.task, after(4), ANSWERED_BY_ADA)).turn(answer("Yes", outcomes.PERSON), at=4)

    history = read(log)

    assert kinds(history) == [Asked]
    asked = history.entries[0]
    assert isinstance(asked, Asked)
    assert (asked.by, asked.choice) == ("ada", "Yes")


def test_a_wait_is_between_the_agent_that_asked_and_the_one_that_was_asked() -> None:
    for inbox, name in (("bob", "bob"), ("gemini@/proj", "gemini-8110")):
        waits = {"waits_for": "synapse-gemini-8110", "waits_for_inbox": inbox}
        log = TaskLog(queued=False, metadata=waits).turn(answer("done", "reply"), at=4)

        assert told(read(log)) == [("codex", name, "hello"), (name, "codex", "done")]


def test_a_doubt_is_kept_with_the_time_when_it_was_settled() -> None:
    log = TaskLog().turn(Typing()).turn(DeliveryUncertain("no proof"), at=5)

    assert read(log).entries[1] == InDoubt(at=after(5), why="no proof")
    assert read(log.add(raised("", at=8))).entries[1] == InDoubt(at=after(5), why="no proof", settled_at=after(8))


def test_the_chunks_of_a_file_are_one_file() -> None:
    log = TaskLog().taken()
    for number, content in enumerate((b"a,b\n", b"1,2\n")):
        part = FilePart(content=content, name="table.csv", media_type="text/csv")
        log.turn(ArtifactProduced(artifact=Artifact(artifact_id="t", name="table", parts=(part,)), append=number > 0))

    table = read(log).entries[1]

    assert isinstance(table, Said)
    assert (table.name, table.parts) == (
        "table",
        (FilePart(content=b"a,b\n1,2\n", name="table.csv", media_type="text/csv"),),
    )


def test_progress_and_metadata_are_left_out() -> None:
    assert kinds(read(TaskLog().add(noted({"colour": "red"}), moved(TaskState.WORKING, note="on it")))) == [
        Said,
        Delivered,
    ]


def test_the_export_has_every_entry_with_iso_times() -> None:
    log = TaskLog().taken().turn(QuestionRaised(PERMISSION), at=2).turn(Resumed("keys"), at=6)
    log.add(answer_noted(log.task, after(6.5), ANSWERED_BY_ADA)).turn(DeliveryUncertain("why"), at=7)
    log.turn(Failed(reason="quota", note="used up"), at=8)

    exported = export_fields([read(log)], agent="codex", at=START + timedelta(hours=1))

    assert (exported["version"], exported["agent"], exported["exported_at"]) == (1, "codex", "2026-01-15T11:30:00.000Z")
    task: dict[str, Any] = exported["tasks"][0]
    assert {key: task[key] for key in ("id", "agent", "from", "state", "reason", "note", "priority")} == {
        "id": TASK,
        "agent": "codex",
        "from": "unverified.user",
        "state": "failed",
        "reason": "quota",
        "note": "used up",
        "priority": 3,
    }
    assert [entry["kind"] for entry in task["entries"]] == ["message", "question", "doubt", "receipts", "end"]
    asked = task["entries"][1]
    assert (asked["at"], asked["closed_at"]) == ("2026-01-15T10:30:02.000Z", "2026-01-15T10:30:06.000Z")
    assert (asked["title"], asked["choice"], asked["by"]) == ("Run the command?", "Yes", "ada")


def test_the_export_has_the_size_of_a_file_but_not_its_bytes() -> None:
    part = FilePart(content=b"12345", name="n.txt", media_type="text/plain")
    link = FilePart(url="https://example.com/m.pdf", name="m.pdf")
    sent = Message(message_id=MessageId("m"), role=Role.USER, parts=(TextPart(text="look"), part, link))

    task = export_fields([read(TaskLog(message=sent))], agent="", at=START)["tasks"][0]

    assert task["entries"][0]["parts"] == [
        {"type": "text", "text": "look"},
        {"type": "file", "name": "n.txt", "media_type": "text/plain", "size": 5},
        {"type": "file", "name": "m.pdf", "url": "https://example.com/m.pdf"},
    ]


def test_the_page_about_histories_names_every_key_of_the_export() -> None:
    page = (ROOT / "docs" / "howto" / "history.md").read_text(encoding="utf-8")
    documented = {
        found[1]: set(CODE.findall(found[2])) for found in re.finditer(r"^\| `(\w+)` \| (.*) \|$", page, re.M)
    }
    of_task = re.search(r"^A task has (.*?)\. Each entry", page, re.M | re.S)
    log = TaskLog().taken().turn(QuestionRaised(PERMISSION), at=2).turn(DeliveryUncertain("why"), at=3)
    log.turn(PartialAnswer(text="so far", source="screen"), at=4).turn(Failed(reason="quota", note="used up"), at=8)

    exported = export_fields([read(log)], agent="codex", at=START)

    assert exported.keys() <= documented.keys()
    assert of_task is not None
    task = exported["tasks"][0]
    assert set(CODE.findall(of_task[1])) == task.keys()
    kinds_shown = {entry["kind"]: entry.keys() - {"kind", "at"} for entry in task["entries"]}
    assert kinds_shown.keys() == {"message", "answer", "question", "doubt", "receipts", "end"}
    for kind, keys in kinds_shown.items():
        inner = set[str]() if kind != "receipts" else {"step", "at", "source", "evidence"}
        assert documented[kind] == keys | inner


def test_a_sender_on_another_machine_is_named_with_its_machine() -> None:
    task = read(TaskLog()).task

    def label(sender_id: str, inbox: str) -> str:
        return sender_label(replace(task, sender=Sender(sender_id=sender_id, inbox=inbox), sender_verified=True))

    assert label("synapse-claude-8100@laptop", "laptop!reviewer") == "reviewer@laptop"
    assert label("synapse-claude-8100@laptop", "laptop!claude@/proj") == "claude-8100@laptop"
    assert label("synapse-claude-8100", "reviewer") == "reviewer"
