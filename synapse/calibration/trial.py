"""Compares what Synapse concludes about an agent with what the scripted model knows.

A Trial sends messages to the agent, a TaskFollower reads the events of their tasks from the agent's host, and a Finding
holds one conclusion beside the truth.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import count
from statistics import median
from typing import Any, Final

from synapse.calibration.model_server import Fact, Ledger, ModelServer
from synapse.calibration.sandbox import AGENT, Sandbox
from synapse.client.events import EventStream, open_stream
from synapse.client.http import Answer, HostAddress, NoAnswer
from synapse.core.errors import AgentFailed
from synapse.core.json_text import object_in, objects_in
from synapse.core.types import Clock
from synapse.core.usage import TOKEN_KINDS

SUBMIT_SECONDS: Final = 25.0
ANSWER_SECONDS: Final = 25.0
USAGE_SECONDS: Final = 5.0
"""How long after its end a turn may take to be told what it cost."""
_TICK_SECONDS: Final = 0.05
_SHOWN_CHARACTERS: Final = 60
FINISHED = ("completed", "failed", "canceled")


@dataclass(frozen=True, slots=True)
class TrialTurn:
    """One message that was sent: its name at the model, its text and its task."""

    row: str
    name: str
    text: str
    follower: TaskFollower

    @property
    def task_id(self) -> str:
        return self.follower.task_id


class Trial:
    """The agent, the scripted model that it talks to, and the truth."""

    def __init__(self, sandbox: Sandbox, model: ModelServer, clock: Clock) -> None:
        self.sandbox = sandbox
        self.model = model
        self.clock = clock
        self._numbers = count(1)
        self._sent: list[TrialTurn] = []

    @property
    def truth(self) -> Ledger:
        return self.model.ledger

    def send(self, row: str, scene: str, rest: str = "please", *options: str) -> TrialTurn:
        """Sends the agent a message that makes the model play a scene.

        Raises:
            AgentFailed: the message was not accepted.
        """
        name = f"{scene}:{next(self._numbers)}"
        text = f"calibrate:{name} {rest}"
        ran = self.sandbox.synapse("send", AGENT, text, "--json", *options)
        task_id = str(object_in(ran.fields, "task").get("id", ""))
        address = self.sandbox.address()
        if not task_id or address is None:
            raise AgentFailed(f"the message was not accepted: {(ran.output or ran.notices).strip()}")
        turn = TrialTurn(row, name, text, TaskFollower(address, task_id, self.clock))
        self._sent.append(turn)
        return turn

    def unfinished(self) -> list[TrialTurn]:
        """Returns the turns that have not ended; closes all followers and clears the list of turns."""
        sent, self._sent = self._sent, []
        for turn in sent:
            turn.follower.close()
        return [turn for turn in sent if turn.follower.status not in FINISHED]

    def wait_until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Polls the condition, for what no stream reports; returns whether it became true in time."""
        deadline, pause = self.clock.monotonic() + seconds, threading.Event()
        while not condition():
            if self.clock.monotonic() > deadline:
                return False
            pause.wait(_TICK_SECONDS)
        return True

    def taken(self, turn: TrialTurn) -> Finding:
        """Checks that the message was submitted with its whole text."""
        truth = self.truth.wait_for(turn.name, Fact.ASKED, seconds=SUBMIT_SECONDS)
        seen = turn.follower.until(
            lambda seen: seen.says("receipt_changed", "step", "submitted"), ANSWER_SECONDS if truth else 1.0
        )
        conclusion = f"submitted, {self._arrived(turn)}" if seen else self._present_state(turn)
        return compared(
            turn.row,
            "submitted",
            "submitted, text whole",
            conclusion,
            source=str(seen.fields.get("source", "")) if seen else "",
            delay=delay_between(truth.at if truth else None, seen.at if seen else None),
        )

    def answered(self, turn: TrialTurn) -> Finding:
        """Checks that the task is completed with exactly the text that the model sent."""
        end = turn.follower.until_finished(ANSWER_SECONDS)
        truth = self.truth.last(turn.name, Fact.SAID)
        reply = "".join(texts(end)) if end else ""
        expected = f"completed, {size(truth.text)}" if truth else "the model answers"
        seen = f"{end.status}, {size(reply)}" if end else self._present_state(turn)
        if truth and end and reply != truth.text and seen == expected:
            seen += ", but another text"
        return compared(
            turn.row,
            "answered",
            expected,
            seen,
            source=answer_source(end),
            delay=delay_between(truth.at if truth else None, end.at if end else None),
        )

    def failed(self, turn: TrialTurn, expected: str, *facts: Fact) -> Finding:
        """Checks that the turn failed for this reason; the truth is the last of these facts."""
        end = turn.follower.until_finished(ANSWER_SECONDS)
        # The source of the verdict is in the status; the receipt of a failure names the journal.
        source = str(self.sandbox.ask("/status").get("source", ""))
        truth = self.truth.last(turn.name, *facts)
        seen = f"{end.status}: {reason(end)}" if end else self._present_state(turn)
        return compared(
            turn.row,
            "failed",
            expected,
            seen,
            source=source,
            delay=delay_between(truth.at if truth else None, end.at if end else None),
        )

    def counted(self, turn: TrialTurn) -> Finding:
        """Checks that the turn is told to have cost the tokens that the model sent, no more and no less."""
        expected = _tokens(asdict(self.model.usage_of(turn.name)))
        seen = ""

        def is_counted() -> bool:
            nonlocal seen
            ran = self.sandbox.synapse("usage", "--task", turn.task_id, "--json")
            seen = _tokens(object_in(object_in(ran.fields, "total"), "tokens"))
            return seen == expected

        self.wait_until(is_counted, USAGE_SECONDS)
        return compared(turn.row, "tokens", expected, seen)

    def _arrived(self, turn: TrialTurn) -> str:
        asked = self.truth.first(turn.name, Fact.ASKED)
        if asked is None:
            return "but the model did not get it"
        return "text whole" if turn.text in asked.text else f"text changed: {asked.text[-_SHOWN_CHARACTERS:]!r}"

    def _present_state(self, turn: TrialTurn) -> str:
        """Returns the state of task and agent, for an expected event that did not come."""
        status = self.sandbox.ask("/status")
        return f"task {turn.follower.status}; agent {status.get('state', 'gone')}: {status.get('why', '')}"


def texts(seen: SeenEvent) -> list[str]:
    """Returns the text of the task's artifacts, part by part."""
    parts = [part for artifact in objects_in(seen.task, "artifacts") for part in objects_in(artifact, "parts")]
    return [str(part.get("text", "")) for part in parts]


def answer_source(seen: SeenEvent | None) -> str:
    artifacts = objects_in(seen.task, "artifacts") if seen else []
    return str(object_in(artifacts[-1], "metadata").get("source", "")) if artifacts else ""


def reason(seen: SeenEvent) -> str:
    return str(object_in(seen.task, "metadata").get("reason", ""))


def _tokens(counts: Mapping[str, object]) -> str:
    """Returns token counts in one line, without those that are zero."""
    return ", ".join(f"{kind} {counts[kind]}" for kind in TOKEN_KINDS if counts.get(kind)) or "none"


def size(text: str) -> str:
    return f"{len(text.encode())} bytes"


@dataclass(frozen=True, slots=True)
class SeenEvent:
    """One event of a task, and the task after it."""

    name: str
    fields: dict[str, Any]
    task: dict[str, Any]

    @property
    def at(self) -> datetime | None:
        text = str(self.fields.get("at", ""))
        return datetime.fromisoformat(text) if text else None

    @property
    def status(self) -> str:
        return str(self.task.get("status", ""))

    def says(self, name: str, key: str, value: str) -> bool:
        return self.name == name and self.fields.get(key) == value


class TaskFollower:
    """Follows the events of one task, from the first one on."""

    def __init__(self, address: HostAddress, task_id: str, clock: Clock) -> None:
        self._address = address
        self._path = f"/tasks/{task_id}/subscribe"
        self._clock = clock
        self._stream: EventStream | None = None
        self._last_id = "0"
        self.task_id = task_id
        self.seen: list[SeenEvent] = []

    @property
    def status(self) -> str:
        """The task's last seen state."""
        return self.seen[-1].status if self.seen else "unknown"

    def until(self, condition: Callable[[SeenEvent], bool], seconds: float) -> SeenEvent | None:
        """Returns the first event, also a past one, that fulfils the condition; None if none came in time."""
        deadline = self._clock.monotonic() + seconds
        checked = 0
        while True:
            for event in self.seen[checked:]:
                if condition(event):
                    return event
            checked = len(self.seen)
            if not self._read(deadline):
                return None

    def until_finished(self, seconds: float) -> SeenEvent | None:
        return self.until(lambda seen: seen.status in FINISHED, seconds)

    def first(self, name: str, key: str, value: str) -> SeenEvent | None:
        """Returns the first past event with that name and field."""
        return next((seen for seen in self.seen if seen.says(name, key, value)), None)

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _read(self, deadline: float) -> bool:
        """Reads one more event; returns False if no more can come."""
        try:
            event = self._open(deadline).next(deadline)
        except (TimeoutError, NoAnswer):
            return False
        if event is None:
            # A stream also ends when the task waits for a person; later events are on the next stream.
            self.close()
            return self.status not in FINISHED
        data: dict[str, Any] = json.loads(event.data)
        self._last_id = event.id or self._last_id
        self.seen.append(SeenEvent(event.name, object_in(data, "event"), object_in(data, "task")))
        return True

    def _open(self, deadline: float) -> EventStream:
        if self._stream is None:
            monotonic = self._clock.monotonic
            opened = open_stream(self._address, self._path, after=self._last_id, deadline=deadline, monotonic=monotonic)
            if isinstance(opened, Answer):
                raise NoAnswer(f"the host refuses: {opened.body}", sent=True)
            self._stream = opened
        return self._stream


class FindingVerdict(StrEnum):
    """Whether a conclusion was right."""

    RIGHT = "ok"
    WRONG = "WRONG"
    NOT_OFFERED = "not offered"
    """The CLI lacks the feature."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One conclusion. `delay` is the time from the fact at the model to the event; it may be negative."""

    row: str
    event: str
    expected: str
    seen: str
    source: str = ""
    delay: timedelta | None = None
    verdict: FindingVerdict = FindingVerdict.RIGHT

    @property
    def milliseconds(self) -> int | None:
        return None if self.delay is None else round(self.delay.total_seconds() * 1000)

    def as_fields(self) -> dict[str, Any]:
        return {
            "row": self.row,
            "event": self.event,
            "expected": self.expected,
            "seen": self.seen,
            "source": self.source,
            "delay_ms": self.milliseconds,
            "verdict": self.verdict.value,
        }


def compared(row: str, event: str, expected: str, seen: str, **more: Any) -> Finding:
    """Returns a finding that is right if `seen` equals `expected`."""
    verdict = FindingVerdict.RIGHT if seen == expected else FindingVerdict.WRONG
    return Finding(row=row, event=event, expected=expected, seen=seen, verdict=verdict, **more)


def delay_between(truth: datetime | None, seen: datetime | None) -> timedelta | None:
    return None if truth is None or seen is None else seen - truth


def wrong(findings: Sequence[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.verdict is FindingVerdict.WRONG]


def median_delay(findings: Sequence[Finding]) -> int | None:
    """Returns the median delay in milliseconds; a negative delay counts as none."""
    delays = [max(0, finding.milliseconds) for finding in findings if finding.milliseconds is not None]
    return round(median(delays)) if delays else None
