"""Follows one task at its host until it is answered: over broken streams and restarts of the host.

A task on another machine is followed at the proxy of its agent. While the link or the machine is away the wait goes on,
until its deadline: the task goes on too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

from synapse.client.events import EventStream, ServerEvent, open_stream
from synapse.client.hosts import address_of, ask, not_responding, refusal_of
from synapse.client.http import Answer, NoAnswer
from synapse.client.views import FINISHED, has_left, status_of
from synapse.core.address import is_remote, split_inbox
from synapse.core.agent import AgentEntry
from synapse.core.errors import AgentNotFound, AgentNotResponding, LinkDown, MachineAway, SynapseError
from synapse.core.json_text import decode_object, object_in
from synapse.registry.files import FileRegistry, is_alive

MOST_BROKEN_STREAMS: Final = 5
ERROR_EVENT: Final = "error"
"""The last event of a stream that its server had to abort."""
PULSE_SECONDS: Final = 2.0
MOST_MISSED_PULSES: Final = 2
"""A host that restarts is missing for a moment."""
LEAVE_SECONDS: Final = 2.0
RETRY_SECONDS: Final = 0.5
"""How long a wait pauses before it asks again for a task on another machine."""
TaskFields = dict[str, Any]


class WaitLeft(Exception):
    """Another thread ended the wait (`TaskWatch.interrupt`)."""


def open_waiting(own: AgentEntry, receiver: AgentEntry, body: dict[str, Any]) -> str:
    """Opens the task on our own host that waits for the receiver's reply, and adds its id to the message in `body`.

    Raises SynapseError.
    """
    metadata = {
        "sender": body["metadata"]["sender"],
        "waits_for": receiver.agent_id,
        "waits_for_inbox": receiver.inbox,
    }
    # Without the message id: it belongs to the receiver's task, and the receiver may be this agent. Without the files:
    # nobody reads them here.
    message = {"role": body["message"]["role"], "parts": body["message"]["parts"][:1]}
    created = ask(own, "POST", "/tasks/create", {"message": message, "metadata": metadata})
    task_id = str(object_in(created, "task").get("id", ""))
    body["metadata"]["sender_task_id"] = task_id
    return task_id


def leave(own: AgentEntry | None, task_id: str) -> TaskFields:
    """Stops waiting on our own host; returns the task if it has ended meanwhile and its answer is ours to report.

    An answer that comes later is delivered to the agent as a message.
    """
    if own is None or not task_id:
        return {}
    try:
        left = ask(own, "POST", f"/tasks/{task_id}/leave", {}, timeout=LEAVE_SECONDS)
    except SynapseError:
        # Its host is of an earlier version, or gone; it notices that our stream ends.
        return {}
    task = object_in(left, "task")
    return task if status_of(task) in FINISHED and not has_left(task) else {}


class TaskWatch:
    """Follows one task on `host`, over broken streams, until its deadline.

    The answer comes from `receiver`, which may be another agent than `host`, and may be killed meanwhile.
    """

    def __init__(
        self,
        host: AgentEntry,
        receiver: AgentEntry,
        registry: FileRegistry,
        monotonic: Callable[[], float],
        deadline: float,
        pulse: Callable[[AgentEntry], None] = lambda _receiver: None,
    ) -> None:
        """Calls `pulse` with the receiver when the wait begins, and after each PULSE_SECONDS without an event."""
        self._host = host
        self._receiver = receiver
        self._registry = registry
        self._monotonic = monotonic
        self._deadline = deadline
        self._pulse = pulse
        self._stream: EventStream | None = None
        self._last_seen = ""
        self._missed = 0
        self._interrupted = threading.Event()

    @property
    def receiver(self) -> AgentEntry:
        """The receiver as last seen: after a restart it may have another port."""
        return self._receiver

    def follow(self, task_id: str) -> None:
        """Opens the stream after the last event that was received.

        Raises:
            AgentNotResponding: the host is gone.
            TimeoutError: the deadline passed.
            WaitLeft: the wait was interrupted.
        """
        self.close()
        self._raise_if_interrupted()
        try:
            opened = open_stream(
                address_of(self._host),
                f"/tasks/{task_id}/subscribe",
                after=self._last_seen,
                deadline=self._deadline,
                monotonic=self._monotonic,
            )
        except NoAnswer as silence:
            current = self._current(self._host)
            if current.socket == self._host.socket:
                raise not_responding(self._host, silence) from silence
            # It was restarted on another port and has taken over its tasks.
            self._host, self._receiver = current, self._current(self._receiver)
            self.follow(task_id)
            return
        if isinstance(opened, Answer):
            raise refusal_of(opened)
        self._stream = opened
        # Again: an interrupt that came meanwhile had no stream to end.
        self._raise_if_interrupted()

    def wait(self, task_id: str, until: Callable[[TaskFields], bool], seen: Callable[[TaskFields], None]) -> TaskFields:
        """Returns the task once `until` is true of it; calls `seen` with each of its states.

        Raises:
            AgentNotResponding: the host, or the receiver, is gone.
            TimeoutError: the deadline passed.
            WaitLeft: the wait was interrupted.
            SynapseError: the host refuses.
        """
        broken, is_first = 0, True
        while broken < MOST_BROKEN_STREAMS or is_remote(self._host):
            event = self._next(task_id)
            if event is None or event.name == ERROR_EVENT:
                # Opening the stream again continues after the last event, or raises what is wrong.
                broken += 1
                self._open(task_id, pauses=broken > 1)
                continue
            # A stream that only repeats the last event has made no progress.
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

    def interrupt(self) -> None:
        """Ends the wait in another thread at once; its stream stays open until that thread closes it."""
        self._interrupted.set()
        if self._stream is not None:
            self._stream.interrupt()

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _raise_if_interrupted(self) -> None:
        if self._interrupted.is_set():
            raise WaitLeft

    def _open(self, task_id: str, *, pauses: bool) -> None:
        """Opens the stream as `follow` does; that of a remote task as soon as its machine can be reached.

        Raises what `follow` raises; with `pauses` it waits a moment first, for a remote task.
        """
        if not is_remote(self._host):
            self.follow(task_id)
            return
        while True:
            if pauses:
                self._interrupted.wait(RETRY_SECONDS)
                if self._monotonic() >= self._deadline:
                    raise TimeoutError
                self._pulse(self._receiver)
            try:
                self.follow(task_id)
                return
            except (AgentNotResponding, LinkDown, MachineAway):
                pauses = True

    def _next(self, task_id: str) -> ServerEvent | None:
        """Returns the next event, or None when the stream is broken."""
        while True:
            if self._stream is None:
                self._open(task_id, pauses=False)
            pulse = min(self._deadline, self._monotonic() + PULSE_SECONDS)
            try:
                return self._stream.next(pulse) if self._stream else None
            except NoAnswer:
                return None
            except TimeoutError:
                if self._monotonic() >= self._deadline:
                    raise
                self._check_receiver()
                self._pulse(self._receiver)

    def _check_receiver(self) -> None:
        """Raises AgentNotResponding if the receiver was killed: our own host would not notice."""
        if is_remote(self._receiver):
            self._check_remote_receiver()
            return
        self._receiver = self._current(self._receiver)
        self._missed = 0 if is_alive(self._receiver) else self._missed + 1
        if self._missed >= MOST_MISSED_PULSES:
            raise not_responding(self._receiver)

    def _check_remote_receiver(self) -> None:
        """Raises AgentNotResponding if the receiver's machine says that the agent does not run there any more."""
        from synapse.client.link import find_again

        try:
            self._receiver = find_again(self._receiver, self._registry)
        except AgentNotFound as missing:
            self._missed += 1
            if self._missed >= MOST_MISSED_PULSES:
                machine = split_inbox(self._receiver.inbox)[1]
                error = not_responding(self._receiver).reworded(f"{self._receiver.name} does not run any more")
                error.hint = f"`synapse list --machine {machine}` shows who does"
                raise error from missing
        except SynapseError:
            return  # nobody can tell: the link does not run, or the machine is away
        else:
            self._missed = 0

    def _current(self, agent: AgentEntry) -> AgentEntry:
        """Returns the agent's present entry, perhaps with another port or proxy, or `agent` if there is none."""
        if is_remote(agent):
            from synapse.client.link import find_again

            try:
                return find_again(agent, self._registry)
            except SynapseError:
                return agent
        known = [entry for entry in self._registry.written() if entry.is_agent_of(agent.inbox, agent.agent_id)]
        return max(known, key=is_alive, default=agent)
