"""The events of one task, from its first one on, read from the agent's host as any follower would."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from synapse.core.clock import Clock
from synapse.core.json_text import object_in
from synapse.transports.client import Answer, HostAddress, NoAnswer
from synapse.transports.events import EventStream, ServerEvent, open_stream

FINISHED = ("completed", "failed", "canceled")


@dataclass(frozen=True, slots=True)
class Seen:
    """One thing that Synapse concluded, and the task as it then was."""

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


class Following:
    """All that was seen of a task so far."""

    def __init__(self, address: HostAddress, task_id: str, clock: Clock) -> None:
        self._address = address
        self._path = f"/tasks/{task_id}/subscribe"
        self._clock = clock
        self._stream: EventStream | None = None
        self._last_id = "0"
        self.task_id = task_id
        self.seen: list[Seen] = []

    @property
    def status(self) -> str:
        """The task's state as it was last seen."""
        return self.seen[-1].status if self.seen else "unknown"

    def until(self, condition: Callable[[Seen], bool], seconds: float) -> Seen | None:
        """The first event that fulfils the condition, also one of the past; None when none came in time."""
        deadline = self._clock.monotonic() + seconds
        checked = 0
        while True:
            for event in self.seen[checked:]:
                if condition(event):
                    return event
            checked = len(self.seen)
            if not self._read(deadline):
                return None

    def until_finished(self, seconds: float) -> Seen | None:
        return self.until(lambda seen: seen.status in FINISHED, seconds)

    def first(self, name: str, key: str, value: str) -> Seen | None:
        """The first event of the past that says so."""
        return next((seen for seen in self.seen if seen.says(name, key, value)), None)

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _read(self, deadline: float) -> bool:
        """Take one more event; False when none can come any more."""
        try:
            event = self._opened(deadline).next(deadline)
        except (TimeoutError, NoAnswer):
            return False
        if event is None:
            # A stream also ends where the task waits for a person; what follows is on the next one.
            self.close()
            return self.status not in FINISHED
        self._take(event)
        return True

    def _opened(self, deadline: float) -> EventStream:
        if self._stream is None:
            monotonic = self._clock.monotonic
            opened = open_stream(self._address, self._path, after=self._last_id, deadline=deadline, monotonic=monotonic)
            if isinstance(opened, Answer):
                raise NoAnswer(f"the host refuses: {opened.body}", sent=True)
            self._stream = opened
        return self._stream

    def _take(self, event: ServerEvent) -> None:
        data: dict[str, Any] = json.loads(event.data)
        self._last_id = event.id or self._last_id
        self.seen.append(Seen(event.name, object_in(data, "event"), object_in(data, "task")))
