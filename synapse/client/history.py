"""The history of a task: what was said, by whom and when, made from the task's events. Pure.

A history has an entry for each thing that people care about, oldest first:

    Said         a message or an answer, with its parts
    Asked        a question to a person, and who answered it
    InDoubt      a person had to decide what became of the message
    Delivered    the receipts of one message, folded into one entry
    Ended        the task ended without an answer, or by a request

What only shows progress (states, partial text that a later answer replaced, metadata) is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final, assert_never

from synapse.core.address import on_machine, split_inbox
from synapse.core.events import (
    ArtifactAdded,
    AttentionChanged,
    MessageAdded,
    MetadataChanged,
    ReceiptChanged,
    StateChanged,
    TaskEvent,
    TaskOpened,
)
from synapse.core.message import DataPart, FilePart, Message, Part, Role, TextPart
from synapse.core.question import Question
from synapse.core.task import Receipt, ReceiptStep, Task, TaskState
from synapse.core.task_metadata import is_about_question, noted_answer, noted_question
from synapse.dialects.proto_json import instant
from synapse.tasks.admission import TYPED_FROM
from synapse.tasks.journal import rebuild
from synapse.tasks.outcomes import PARTIAL, PERSON
from synapse.tasks.recovery import ANSWERS

SHAPE_VERSION: Final = 1
"""The version of the JSON that `export_fields` returns; it grows when a key changes its meaning or goes."""
_NO_NAMES: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A message to the agent, or something that the agent answered."""

    at: datetime
    sender: str
    receiver: str
    parts: tuple[Part, ...]
    is_answer: bool = False
    name: str = ""
    """What the agent calls the artifact; empty for messages and for the answer itself."""
    source: str = ""
    """Where the text of an answer was taken from (`reply`, `transcript`, `screen`, …)."""
    is_partial: bool = False
    """The answer had come so far when the turn ended or was interrupted, or comes right now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question of the agent to a person."""

    at: datetime
    sender: str
    question: Question
    closed_at: datetime | None = None
    """When the question was answered or went away; None while it is open."""
    choice: str = ""
    by: str = ""
    """Who answered; empty when that is not recorded, as for an answer in the agent's own terminal."""
    how: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class InDoubt:
    """It was not certain that the agent took the message."""

    at: datetime
    why: str
    settled_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """The receipts of one message, in order."""

    at: datetime
    receipts: tuple[Receipt, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The end of a task that has no answer, or has only a part of one."""

    at: datetime
    state: TaskState
    reason: str = ""
    note: str = ""


Entry = Said | Asked | InDoubt | Delivered | Ended


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskHistory:
    """A task with the entries of its history; `agent` and `sender` are the names that people use."""

    task: Task
    agent: str
    sender: str
    entries: tuple[Entry, ...]


def sender_label(task: Task, names: Mapping[str, str] = _NO_NAMES) -> str:
    """Returns the sender as people know it: a proven agent by its given name (its inbox), or without `synapse-`.

    `names` has given names by agent ids: only a sender that waits for a reply has its inbox in the task.
    """
    shown, inbox = task.sender_name, task.sender.inbox
    if shown != task.sender.sender_id:
        return shown
    given, machine = split_inbox(inbox)
    if given and "@" not in given:
        return on_machine(given, machine)
    return names.get(shown) or shown.removeprefix("synapse-")


def history_of(events: Sequence[TaskEvent], agent: str, names: Mapping[str, str] = _NO_NAMES) -> TaskHistory:
    """Returns the history that the events of one task describe; they begin with TaskOpened.

    `agent` is the name of the task's agent for people, and `names` has those of senders by their ids.
    """
    task = rebuild(None, events)
    sender = sender_label(task, names)
    if not task.queued and task.waits_for is not None:
        # The task is at the agent that asked; the other one has a task of its own for the request.
        asked = task.waits_for
        sender, agent = agent, asked.inbox if "@" not in asked.inbox else asked.agent_id.removeprefix("synapse-")
    reader = _Reader(task, agent, sender)
    for event in events:
        reader.read(event)
    return TaskHistory(task=task, agent=agent, sender=sender, entries=reader.entries())


class _Reader:
    """Collects the entries of one task, event by event."""

    def __init__(self, task: Task, agent: str, sender: str) -> None:
        self._task = task
        self._agent = agent
        self._sender = sender
        self._entries: list[Entry] = []
        self._receipts: list[Receipt] = []
        self._artifacts: dict[str, Said] = {}
        self._last_step: ReceiptStep | None = None

    def read(self, event: TaskEvent) -> None:  # noqa: C901, PLR0912 - one case per event
        """Takes the next event of the task."""
        match event:
            case TaskOpened():
                # A question of the agent's own is an entry of its own.
                if not self._task.asks_person:
                    self._add_message(event.at, event.message)
                if event.queued:
                    self._add_receipt(Receipt(step=ReceiptStep.QUEUED, at=event.at, source="journal"))
            case MessageAdded(message=message):
                self._add_message(event.at, message)
            case ArtifactAdded():
                self._add_artifact(event)
            case ReceiptChanged(step=step, at=at, source=source, evidence=evidence):
                self._add_receipt(Receipt(step=step, at=at, source=source, evidence=evidence))
            case MetadataChanged():
                self._add_question(event)
            case AttentionChanged(attention=why):
                self._settle_doubt(event.at)
                if why:
                    self._entries.append(InDoubt(at=event.at, why=why))
            case StateChanged():
                if event.state.is_terminal:
                    self._settle_doubt(event.at)
                    self._add_end(event)
            case _:
                return

    def entries(self) -> tuple[Entry, ...]:
        """Returns all entries; the receipts of a message that is still on its way come last."""
        self._fold_receipts()
        return tuple(self._entries)

    def _add_message(self, at: datetime, message: Message) -> None:
        if ANSWERS in message.metadata:
            return  # the entry of the question has the answer
        is_answer = message.role is Role.AGENT
        writer = str(message.metadata.get(TYPED_FROM) or self._sender)
        sender, receiver = (self._agent, self._sender) if is_answer else (writer, self._agent)
        self._entries.append(
            Said(at=at, sender=sender, receiver=receiver, parts=message.parts, is_answer=is_answer),
        )

    def _add_artifact(self, event: ArtifactAdded) -> None:
        """Adds the artifact as it is in the end, in the place of its last piece."""
        artifact_id = event.artifact.artifact_id
        earlier = self._artifacts.pop(artifact_id, None)
        self._entries = [entry for entry in self._entries if entry is not earlier]
        known = next(one for one in self._task.artifacts if one.artifact_id == artifact_id)
        source = str(known.metadata.get("source") or "")
        if source == PERSON and self._task.asks_person:
            return  # the entry of the question has the answer
        is_answer = artifact_id == f"{self._task.short_id}-answer"
        said = Said(
            at=event.at,
            sender=self._agent,
            receiver=self._sender,
            parts=_joined(known.parts),
            is_answer=True,
            name="" if is_answer else known.name or artifact_id,
            source=source,
            is_partial=known.metadata.get(PARTIAL) is True,
        )
        self._artifacts[artifact_id] = said
        self._entries.append(said)

    def _add_receipt(self, receipt: Receipt) -> None:
        self._receipts.append(receipt)
        self._last_step = receipt.step
        if receipt.step.is_final:
            self._fold_receipts()

    def _fold_receipts(self) -> None:
        # A question of the agent's own is not delivered to it; the entry of the question has its answer.
        if self._receipts and not self._task.asks_person:
            self._entries.append(Delivered(at=self._receipts[-1].at, receipts=tuple(self._receipts)))
            self._receipts = []

    def _add_question(self, event: MetadataChanged) -> None:
        question = noted_question(event)
        if question is not None:
            last = self._last_question()
            if last is not None and last.question.id == question.id and last.closed_at is None:
                self._replace(last, replace(last, question=question))
            else:
                self._close_question(event.at)
                self._entries.append(Asked(at=event.at, sender=self._agent, question=question))
        elif is_about_question(event):
            self._close_question(event.at)
        elif answered := noted_answer(event):
            # Recorded after the question has gone from the task.
            asked = self._last_question(answered.get("id", ""))
            if asked is not None:
                choice, by, how = (answered.get(key, "") for key in ("choice", "by", "how"))
                closed = asked.closed_at or event.at
                self._replace(asked, replace(asked, closed_at=closed, choice=choice, by=by, how=how))

    def _last_question(self, question_id: str = "") -> Asked | None:
        asked = [one for one in self._entries if isinstance(one, Asked) and question_id in ("", one.question.id)]
        return asked[-1] if asked else None

    def _close_question(self, at: datetime) -> None:
        last = self._last_question()
        if last is not None and last.closed_at is None:
            self._replace(last, replace(last, closed_at=at))

    def _settle_doubt(self, at: datetime) -> None:
        doubts = [one for one in self._entries if isinstance(one, InDoubt) and one.settled_at is None]
        for doubt in doubts:
            self._replace(doubt, replace(doubt, settled_at=at))

    def _replace(self, old: Entry, new: Entry) -> None:
        self._entries[self._entries.index(old)] = new

    def _add_end(self, event: StateChanged) -> None:
        self._fold_receipts()
        # Of a task that its agent has completed, the answer is the end.
        if event.state is not TaskState.COMPLETED or self._last_step is not ReceiptStep.ANSWERED:
            self._entries.append(Ended(at=event.at, state=event.state, reason=event.reason, note=event.note))


def _joined(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Returns the parts of an artifact with its chunks joined: texts, and the bytes of one file."""
    joined: list[Part] = []
    for part in parts:
        last = joined[-1] if joined else None
        if isinstance(part, TextPart) and isinstance(last, TextPart):
            joined[-1] = replace(last, text=last.text + part.text)
        elif (
            isinstance(part, FilePart)
            and isinstance(last, FilePart)
            and part.content is not None
            and last.content is not None
            and part.name == last.name
        ):
            joined[-1] = replace(last, content=last.content + part.content)
        else:
            joined.append(part)
    return tuple(joined)


def export_fields(histories: Iterable[TaskHistory], *, agent: str, at: datetime) -> dict[str, Any]:
    """Returns the JSON of `synapse show --json`: the histories, oldest first; `agent` is empty for one task."""
    return {
        "version": SHAPE_VERSION,
        "agent": agent or None,
        "exported_at": instant(at),
        "tasks": [_task_fields(history) for history in histories],
    }


def _task_fields(history: TaskHistory) -> dict[str, Any]:
    task = history.task
    return {
        "id": task.id,
        "context_id": task.context_id,
        "agent": history.agent,
        "agent_id": task.agent_id,
        "from": history.sender,
        "state": task.state.value,
        "reason": task.reason,
        "note": task.note,
        "priority": task.priority,
        "created_at": instant(task.created_at),
        "updated_at": instant(task.updated_at),
        "entries": [_entry_fields(entry) for entry in history.entries],
    }


def _entry_fields(entry: Entry) -> dict[str, Any]:
    at = instant(entry.at)
    match entry:
        case Said():
            kind = "answer" if entry.is_answer else "message"
            answer = (
                {"name": entry.name, "source": entry.source, "partial": entry.is_partial} if entry.is_answer else {}
            )
            parts = [_part_fields(part) for part in entry.parts]
            return {"kind": kind, "at": at, "from": entry.sender, "to": entry.receiver, **answer, "parts": parts}
        case Asked():
            question = entry.question
            options = [{"key": option.key, "label": option.label} for option in question.options]
            return {
                "kind": "question",
                "at": at,
                "from": entry.sender,
                "question": question.kind.value,
                "title": question.title,
                "detail": question.detail,
                "options": options,
                "closed_at": instant(entry.closed_at) if entry.closed_at else None,
                "choice": entry.choice,
                "by": entry.by,
                "how": entry.how,
            }
        case InDoubt():
            settled = instant(entry.settled_at) if entry.settled_at else None
            return {"kind": "doubt", "at": at, "why": entry.why, "settled_at": settled}
        case Delivered():
            steps = [
                {"step": one.step.value, "at": instant(one.at), "source": one.source, "evidence": one.evidence}
                for one in entry.receipts
            ]
            return {"kind": "receipts", "at": at, "receipts": steps}
        case Ended():
            state = entry.state.value
            return {"kind": "end", "at": at, "state": state, "reason": entry.reason, "note": entry.note}
        case _:
            assert_never(entry)


def _part_fields(part: Part) -> dict[str, Any]:
    """Returns a part; of a file its name, type and size, or its address, but not its bytes."""
    label = {"name": part.name, "media_type": part.media_type}
    label = {key: value for key, value in label.items() if value}
    match part:
        case TextPart(text=text):
            return {"type": "text", "text": text, **label}
        case DataPart(data=data):
            return {"type": "data", "data": data, **label}
        case FilePart(content=content, url=url):
            where: dict[str, Any] = {"url": url} if content is None else {"size": len(content)}
            return {"type": "file", **label, **where}
        case _:
            assert_never(part)
