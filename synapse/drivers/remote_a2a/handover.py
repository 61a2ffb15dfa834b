"""What an agent elsewhere has said and what of it was passed on already: from a report to a turn's events. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from synapse.core.driver import Answered, Asked, Failed, Handed, Progress, Refused, TurnEvent
from synapse.core.message import Artifact, Part, TextPart, text_of
from synapse.core.task import TaskState
from synapse.transports.external_report import Report

SOURCE: Final = "a2a"


class Handover:
    """Tells what is new. After a break the agent tells a whole task again; nothing of it is passed on twice."""

    def __init__(self) -> None:
        self._handed: dict[str, Artifact] = {}
        self._note = ""

    def news(self, report: Report) -> list[TurnEvent]:
        """The events that bring whoever follows up to date."""
        events: list[TurnEvent] = []
        for artifact in report.artifacts:
            known = self._handed.get(artifact.artifact_id)
            if known == artifact:
                continue
            self._handed[artifact.artifact_id] = artifact
            is_last = report.is_whole(artifact.artifact_id)
            more = _rest(known, artifact) if known is not None else ()
            if more:
                events.append(Handed(artifact=replace(artifact, parts=more), append=True, last_chunk=is_last))
            else:
                events.append(Handed(artifact=artifact, last_chunk=is_last))
        if report.note != self._note and not report.is_settled:
            self._note = report.note
            events.append(Progress(report.note))
        return events

    def outcome(self, report: Report) -> TurnEvent:
        """How the turn ended, of a report that is settled."""
        words = report.words
        match report.state:
            case TaskState.COMPLETED:
                # What was handed over is the answer; only an agent that handed over nothing answers with its words.
                return Answered(parts=() if self._handed else words, source=SOURCE)
            case TaskState.INPUT_REQUIRED:
                return Asked(words or (TextPart(text="it waits for input"),))
            case TaskState.AUTH_REQUIRED:
                return Asked(words or (TextPart(text="it waits for an authorization"),), authorization=True)
            case TaskState.REJECTED:
                return Refused(text_of(words) or "the agent refused")
            case TaskState.CANCELED:
                return Failed("external_task_canceled", text_of(words) or "its task was canceled there")
            case _:
                return Failed("external_agent_failed", text_of(words) or f"its task ended as {report.state}")


def _rest(known: Artifact, new: Artifact) -> tuple[Part, ...]:
    """What `new` has more than `known`; nothing when it is not the same with more behind it."""
    last = len(known.parts) - 1
    if new.parts[:last] != known.parts[:last] or len(new.parts) <= last:
        return ()
    before, now = known.parts[last], new.parts[last]
    following = new.parts[last + 1 :]
    if before == now:
        return following
    if isinstance(before, TextPart) and isinstance(now, TextPart) and now.text.startswith(before.text):
        return (replace(now, text=now.text.removeprefix(before.text)), *following)
    return ()
