"""One agent under trial: what the rows do with it, and how a turn's truth is compared with what Synapse concluded."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Final

from synapse.calibration.findings import Finding, compared, delay_between
from synapse.calibration.following import FINISHED, Following, Seen
from synapse.calibration.ledger import Fact, Ledger
from synapse.calibration.model_server import ModelServer
from synapse.calibration.workbench import AGENT, Workbench
from synapse.core.clock import Clock
from synapse.core.errors import AgentFailed
from synapse.core.json_text import object_in, objects_in

TAKEN_SECONDS: Final = 25.0
ANSWER_SECONDS: Final = 25.0
_TICK_SECONDS: Final = 0.05
_SHOWN: Final = 60


@dataclass(frozen=True, slots=True)
class Turn:
    """One message that was sent: its name at the model, its text, and its task."""

    row: str
    name: str
    text: str
    following: Following

    @property
    def task_id(self) -> str:
        return self.following.task_id


class Trial:
    """The agent, the scripted model that it talks to, and the truth."""

    def __init__(self, bench: Workbench, model: ModelServer, clock: Clock) -> None:
        self.bench = bench
        self.model = model
        self.clock = clock
        self._numbers = count(1)
        self._sent: list[Turn] = []

    @property
    def truth(self) -> Ledger:
        return self.model.ledger

    def send(self, row: str, scene: str, rest: str = "please", *options: str) -> Turn:
        """Send the agent a message that makes the model play a scene.

        Raises:
            AgentFailed: it was not accepted.
        """
        name = f"{scene}:{next(self._numbers)}"
        text = f"calibrate:{name} {rest}"
        ran = self.bench.synapse("send", AGENT, text, "--json", *options)
        task_id = str(object_in(ran.fields, "task").get("id", ""))
        address = self.bench.address()
        if not task_id or address is None:
            raise AgentFailed(f"the message was not accepted: {(ran.output or ran.talk).strip()}")
        turn = Turn(row, name, text, Following(address, task_id, self.clock))
        self._sent.append(turn)
        return turn

    def unfinished(self) -> list[Turn]:
        """What was sent and has not come to an end; all followers are let go, and it is forgotten here."""
        sent, self._sent = self._sent, []
        for turn in sent:
            turn.following.close()
        return [turn for turn in sent if turn.following.status not in FINISHED]

    def wait_until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """True as soon as the condition holds: for what no stream tells."""
        deadline, pause = self.clock.monotonic() + seconds, threading.Event()
        while not condition():
            if self.clock.monotonic() > deadline:
                return False
            pause.wait(_TICK_SECONDS)
        return True

    def taken(self, turn: Turn) -> Finding:
        """Was the message submitted once, with its text whole?"""
        truth = self.truth.wait_for(turn.name, Fact.ASKED, seconds=TAKEN_SECONDS)
        seen = turn.following.until(
            lambda seen: seen.says("receipt_changed", "step", "submitted"), ANSWER_SECONDS if truth else 1.0
        )
        said = f"submitted, {self._arrived(turn)}" if seen else self._standing(turn)
        return compared(
            turn.row,
            "submitted",
            "submitted, text whole",
            said,
            source=str(seen.fields.get("source", "")) if seen else "",
            delay=delay_between(truth.at if truth else None, seen.at if seen else None),
        )

    def answered(self, turn: Turn) -> Finding:
        """Is the task completed, with exactly the text that the model said?"""
        end = turn.following.until_finished(ANSWER_SECONDS)
        truth = self.truth.last(turn.name, Fact.SAID)
        reply = "".join(texts(end)) if end else ""
        expected = f"completed, {size(truth.text)}" if truth else "the model answers"
        seen = f"{end.status}, {size(reply)}" if end else self._standing(turn)
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

    def failed(self, turn: Turn, expected: str, *facts: Fact) -> Finding:
        """Has the turn failed for this reason? The truth is the last of these facts."""
        end = turn.following.until_finished(ANSWER_SECONDS)
        # What the status says now is where the verdict came from; the receipt of a failure names the journal.
        source = str(self.bench.ask("/status").get("source", ""))
        truth = self.truth.last(turn.name, *facts)
        seen = f"{end.status}: {reason(end)}" if end else self._standing(turn)
        return compared(
            turn.row,
            "failed",
            expected,
            seen,
            source=source,
            delay=delay_between(truth.at if truth else None, end.at if end else None),
        )

    def _arrived(self, turn: Turn) -> str:
        asked = [entry for entry in self.truth.of(turn.name) if entry.fact is Fact.ASKED]
        if not asked:
            return "but the model has not got it"
        return "text whole" if turn.text in asked[0].text else f"text changed: {asked[0].text[-_SHOWN:]!r}"

    def _standing(self, turn: Turn) -> str:
        """What is known when what was expected did not come."""
        status = self.bench.ask("/status")
        return f"task {turn.following.status}; agent {status.get('state', 'gone')}: {status.get('why', '')}"


def texts(seen: Seen) -> list[str]:
    """The text of the task's artifacts, part by part."""
    parts = [part for artifact in objects_in(seen.task, "artifacts") for part in objects_in(artifact, "parts")]
    return [str(part.get("text", "")) for part in parts]


def answer_source(seen: Seen | None) -> str:
    artifacts = objects_in(seen.task, "artifacts") if seen else []
    return str(object_in(artifacts[-1], "metadata").get("source", "")) if artifacts else ""


def reason(seen: Seen) -> str:
    return str(object_in(seen.task, "metadata").get("reason", ""))


def size(text: str) -> str:
    return f"{len(text.encode())} bytes"
