"""Following a task on its host until something holds for it: over broken streams, but not for ever."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from synapse.cli.hosts import address_of, not_responding, refusal_of
from synapse.core.agent import AgentEntry
from synapse.core.json_text import decode_object, object_in
from synapse.registries.files import FileRegistry, is_alive
from synapse.transports.client import Answer, NoAnswer
from synapse.transports.events import EventStream, ServerEvent, open_stream

MOST_BROKEN_STREAMS: Final = 5
ERROR_EVENT: Final = "error"
"""The last event of a stream that its server could not bring to its end."""
PULSE_SECONDS: Final = 2.0
MOST_MISSED_PULSES: Final = 2
"""A host that is restarted is away for a moment."""
TaskFields = dict[str, Any]


class Watch:
    """Follows one task on `host`. Its answer comes from `receiver`, which may be another, and may be killed."""

    def __init__(
        self,
        host: AgentEntry,
        receiver: AgentEntry,
        registry: FileRegistry,
        monotonic: Callable[[], float],
        deadline: float,
        pulse: Callable[[AgentEntry], None] = lambda _receiver: None,
    ) -> None:
        """`pulse` is given the receiver when the wait begins, and whenever the task has been silent for a while."""
        self._host = host
        self._receiver = receiver
        self._registry = registry
        self._monotonic = monotonic
        self._deadline = deadline
        self._pulse = pulse
        self._stream: EventStream | None = None
        self._last_seen = ""
        self._missed = 0

    @property
    def receiver(self) -> AgentEntry:
        """As it was seen last: one that was started again may have another port."""
        return self._receiver

    def follow(self, task_id: str) -> None:
        """Open the stream, after the last event that was seen.

        Raises:
            AgentNotResponding: the host is gone.
            TimeoutError: the deadline passed.
        """
        self.close()
        try:
            opened = open_stream(
                address_of(self._host),
                f"/tasks/{task_id}/subscribe",
                after=self._last_seen,
                deadline=self._deadline,
                monotonic=self._monotonic,
            )
        except NoAnswer as silence:
            now = self._as_registered(self._host)
            if now.socket == self._host.socket:
                raise not_responding(self._host, silence) from silence
            # It was started again at another port, and has taken its tasks over.
            self._host, self._receiver = now, self._as_registered(self._receiver)
            self.follow(task_id)
            return
        if isinstance(opened, Answer):
            raise refusal_of(opened)
        self._stream = opened

    def wait(self, task_id: str, until: Callable[[TaskFields], bool], seen: Callable[[TaskFields], None]) -> TaskFields:
        """Return the task once `until` holds for it; `seen` is told of each of its states.

        Raises:
            AgentNotResponding: the host, or the receiver, is gone.
            TimeoutError: the deadline passed.
            SynapseError: the host refuses.
        """
        broken, is_first = 0, True
        while broken < MOST_BROKEN_STREAMS:
            event = self._next(task_id)
            if event is None or event.name == ERROR_EVENT:
                # Whatever cut the stream off: opening it again goes on behind it, or tells what is wrong.
                broken += 1
                self.follow(task_id)
                continue
            # A stream that begins with the same event again and again has not gone on.
            broken = broken if event.id == self._last_seen else 0
            self._last_seen = event.id or self._last_seen
            task = object_in(decode_object(event.data.encode()), "task")
            seen(task)
            if until(task):
                return task
            if is_first:
                self._pulse(self._receiver)
            is_first = False
        raise not_responding(self._host)

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _next(self, task_id: str) -> ServerEvent | None:
        """The next event, or None when the stream is broken."""
        while True:
            if self._stream is None:
                self.follow(task_id)
            pulse = min(self._deadline, self._monotonic() + PULSE_SECONDS)
            try:
                return self._stream.next(pulse) if self._stream else None
            except NoAnswer:
                return None
            except TimeoutError:
                if self._monotonic() >= self._deadline:
                    raise
                self._look_after_receiver()
                self._pulse(self._receiver)

    def _look_after_receiver(self) -> None:
        """A receiver that was killed answers nobody, and our own host would not know."""
        self._receiver = self._as_registered(self._receiver)
        self._missed = 0 if is_alive(self._receiver) else self._missed + 1
        if self._missed >= MOST_MISSED_PULSES:
            raise not_responding(self._receiver)

    def _as_registered(self, agent: AgentEntry) -> AgentEntry:
        """The agent as it is here now, also at another port, else as it was."""
        known = [entry for entry in self._registry.written() if entry.is_agent_of(agent.inbox, agent.agent_id)]
        return max(known, key=is_alive, default=agent)
