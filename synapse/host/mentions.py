"""Sends the `@agent text` lines that a person types at an agent's prompt, and shows the person what comes back.

    sent ─► "[→ codex] sent" ─► the receiver's task is followed ─► "[← codex] its first line  (synapse show 54241e7e)"

The person waits, not the agent at whose prompt the line was typed: so no task waits on this host, and nothing is ever
typed into its prompt. The receiver's task keeps the answer, also when this host ends meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from synapse.client.attention import (
    messages_in,
    overdue_in,
    question_in,
    release_step,
    title_of,
    why_held,
)
from synapse.client.hosts import ask, is_suspended, post_message
from synapse.client.http import NoAnswer
from synapse.client.lines import first_line, plain
from synapse.client.link import find_remote, is_in_fleet, without_own_machine
from synapse.client.views import (
    ASKS,
    FINISHED,
    attention_of,
    note_of,
    question_of,
    reason_of,
    receipt_of,
    reply_of,
    short_id,
    status_of,
)
from synapse.client.watch import TaskFields, TaskWatch, WaitLeft
from synapse.core.address import resolve, short_name, split_machine
from synapse.core.agent import AgentEntry
from synapse.core.errors import AgentNotFound, AgentNotResponding, SynapseError
from synapse.core.types import Clock
from synapse.registry.files import FileRegistry, is_alive

log = logging.getLogger(__name__)

MOST_AWAITED: Final = 16
"""Each awaited answer has a thread of its own; the answers to further lines are only kept with their tasks."""
LONGEST_WAIT_SECONDS: Final = 24 * 3600.0
RETURN_SECONDS: Final = 15.0
"""How long an agent may be missing, to restart."""
_LOOK_SECONDS: Final = 0.25
_STATUS_SECONDS: Final = 1.0

Notify = Callable[[str, str], None]
"""Shows a person a text, and a command that they can type about it (or an empty string)."""


class MentionSender:
    """Sends `@agent text` lines that a person types at this agent's prompt, from this agent to the other.

    The pump's thread calls it. Sending runs in the loop's thread pool, so that neither the pump nor the loop waits.
    """

    def __init__(self, me: AgentEntry, registry: FileRegistry, clock: Clock, *, shows_answers: bool) -> None:
        self._me = me
        self._registry = registry
        self._clock = clock
        self._shows_answers = shows_answers
        self.notify: Notify = lambda _text, _command: None
        """Tells the person about a line; set once there is a terminal to show it on."""
        self._loop = asyncio.get_running_loop()
        self._sending: set[asyncio.Task[None]] = set()
        self._awaited: set[AwaitedAnswer] = set()

    def resolve(self, name: str) -> str:
        """Returns the id of the agent that `name` means, or an empty string: then the line goes to the program.

        Tells the person of a line that was probably meant for an agent that has stopped. An agent on another machine
        is looked up when the line is sent: the person's keys must not wait for the network.
        """
        if split_machine(name)[1]:
            return self._remote_target(name)
        try:
            return resolve(
                name, [one for one in self._registry.entries() if one.agent_id != self._me.agent_id]
            ).agent_id
        except AgentNotFound:
            if self._was_here(name):
                text = f"[{name}] has stopped, so this line went to {short_name(self._me)}"
                with suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(self.notify, text, f"synapse restart {name}")
            return ""
        except (SynapseError, OSError):
            return ""

    def _remote_target(self, name: str) -> str:
        """Returns `name`, without this machine's own; empty for a machine that is in no fleet."""
        if not is_in_fleet(str(Path(self._registry.folder).parent)):
            return ""
        target = without_own_machine(name, self._registry)
        return target if split_machine(target)[1] else self.resolve(target)

    def _was_here(self, name: str) -> bool:
        """Returns whether an agent had that name or id: it leaves a log. Other words after an @ are often files."""
        if "/" in name or name in (self._me.name, short_name(self._me), self._me.agent_id):
            return False
        logs = Path(self._registry.folder).parent / "logs"
        return any((logs / f"{begin}{name}.log").exists() for begin in ("", "synapse-"))

    def send(self, agent_id: str, text: str) -> None:
        """Sends from any thread, and notifies the person of the result."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._begin, agent_id, text)

    def stop(self) -> None:
        """Ends all waits; the answers stay with their tasks."""
        for awaited in tuple(self._awaited):
            awaited.stop()

    def _begin(self, agent_id: str, text: str) -> None:
        sending = asyncio.ensure_future(self._send(agent_id, text))
        self._sending.add(sending)
        sending.add_done_callback(self._sending.discard)

    async def _send(self, agent_id: str, text: str) -> None:
        try:
            notice, awaited = await asyncio.to_thread(self._deliver, agent_id, text)
        except (SynapseError, OSError) as error:
            notice, awaited = f"[→ {agent_id}] not sent: {error}  Your text: {text}", None
        except Exception as error:
            # The line is cleared by now: whatever went wrong, the person must not lose the text.
            log.exception("mention_failed", extra={"agent": agent_id})
            notice, awaited = f"[→ {agent_id}] not confirmed: {error}; it may have arrived  Your text: {text}", None
        self.notify(notice, "")
        if awaited is not None and len(self._awaited) < MOST_AWAITED:
            self._awaited.add(awaited)
            awaited.start(lambda: self._forget(awaited))

    def _forget(self, awaited: AwaitedAnswer) -> None:
        with suppress(RuntimeError):  # the loop has ended, and with it the host
            self._loop.call_soon_threadsafe(self._awaited.discard, awaited)

    def _deliver(self, agent_id: str, text: str) -> tuple[str, AwaitedAnswer | None]:
        """Sends the text; returns the notice for the person, and the answer to wait for. Blocks."""
        entry = self._find(agent_id)
        name = short_name(entry)
        try:
            task = post_message(entry, self._body(text), self._registry, warn=log.info)
        except AgentNotResponding as error:
            silence = error.__cause__
            if isinstance(silence, NoAnswer) and silence.sent:
                why = f"not confirmed: {silence}; it may still arrive (synapse queue {name})"
            elif is_suspended(entry):
                why = f"not sent: its process (pid {entry.pid}) is stopped; `kill -CONT {entry.pid}` lets it go on"
            else:
                why = f"not sent: {silence or error}"
            return f"[→ {name}] {why}  Your text: {text}", None
        except SynapseError as refusal:
            return f"[→ {name}] not sent: {refusal}  Your text: {text}", None
        if not task.get("id"):
            return f"[→ {name}] sent", None
        awaited = AwaitedAnswer(entry, task, self._registry, self._clock, self.notify) if self._shows_answers else None
        return f"[→ {name}] sent  (task {short_id(task)})", awaited

    def _find(self, target: str) -> AgentEntry:
        if split_machine(target)[1]:
            return find_remote(target, self._registry)
        return resolve(target, self._registry.entries())

    def _body(self, text: str) -> dict[str, Any]:
        sender = {
            "sender_id": self._me.agent_id,
            "sender_type": self._me.agent_type,
            "sender_endpoint": self._me.endpoint,
        }
        # Not `new_id`, which belongs to the event loop's thread. The id makes a second try safe.
        message_id = os.urandom(16).hex()
        message = {"role": "user", "parts": [{"type": "text", "text": text}], "message_id": message_id}
        # Without a `sender_task_id`: the reply ends the receiver's task, which is followed, and goes nowhere else.
        expected = {"response_expected": True} if self._shows_answers else {}
        return {"message": message, "metadata": {"sender": sender, **expected}}


class AwaitedAnswer:
    """Follows the task of one line in a thread of its own, and notifies the person of what comes of it."""

    def __init__(
        self, receiver: AgentEntry, task: TaskFields, registry: FileRegistry, clock: Clock, notify: Notify
    ) -> None:
        self._receiver = receiver
        self._task = task
        self._registry = registry
        self._clock = clock
        self._notify = notify
        self._told = ("", "")
        self._stopped = threading.Event()
        self._watch: TaskWatch | None = None

    def start(self, ended: Callable[[], None]) -> None:
        """Begins to follow; calls `ended`, in that thread, when there is nothing more to wait for."""

        def follow() -> None:
            try:
                self._follow()
            except Exception:
                log.exception("mention_answer_failed", extra={"task": self._task.get("id")})
            finally:
                ended()

        threading.Thread(target=follow, name="mention-answer", daemon=True).start()

    def stop(self) -> None:
        """Ends the wait without a notice. Call it in any thread."""
        self._stopped.set()
        if self._watch is not None:
            self._watch.interrupt()

    def _follow(self) -> None:
        deadline = self._clock.monotonic() + LONGEST_WAIT_SECONDS
        task_id, name = str(self._task["id"]), short_name(self._receiver)
        while True:
            self._watch = TaskWatch(
                self._receiver, self._receiver, self._registry, self._clock.monotonic, deadline, self._look
            )
            if self._stopped.is_set():
                return  # an interrupt that came meanwhile had nothing to end
            try:
                self._watch.wait(task_id, lambda task: status_of(task) in FINISHED, self._take)
                return
            except (WaitLeft, TimeoutError):
                return
            except AgentNotResponding:
                if not self._has_returned():
                    self._tell(f"[← {name}] has ended before it answered", f"synapse show {short_id(self._task)}")
                    return
            except SynapseError as error:
                self._tell(f"[← {name}] cannot be followed: {error}", f"synapse show {short_id(self._task)}")
                return
            finally:
                self._watch.close()

    def _take(self, task: TaskFields) -> None:
        self._task = task
        self._tell(*notice_of(short_name(self._receiver), task))

    def _look(self, receiver: AgentEntry) -> None:
        """Notifies the person of what keeps the agent from taking the message: it is no event of the task."""
        self._receiver = receiver
        if receipt_of(self._task) == "queued":
            with suppress(SynapseError):  # the watch notices a host that is gone
                status = ask(receiver, "GET", "/status", timeout=_STATUS_SECONDS)
                self._tell(*_obstacle_in(status, short_name(receiver)))

    def _tell(self, text: str, command: str) -> None:
        if text and (text, command) != self._told and not self._stopped.is_set():
            self._told = text, command
            self._notify(text, command)

    def _has_returned(self) -> bool:
        """Waits for an agent that restarts; returns whether it runs again."""
        end = self._clock.monotonic() + RETURN_SECONDS
        while self._clock.monotonic() < end and not self._stopped.wait(_LOOK_SECONDS):
            known = (
                one
                for one in self._registry.written()
                if one.is_agent_of(self._receiver.inbox, self._receiver.agent_id) and is_alive(one)
            )
            if (entry := next(known, None)) is not None:
                self._receiver = entry
                return True
        return False


def notice_of(name: str, task: TaskFields) -> tuple[str, str]:
    """Returns what a person is told about a task that they wait for, and the command for more; empty for nothing."""
    status, show = status_of(task), f"synapse show {short_id(task)}"
    if status == "completed":
        return f"[← {name}] {plain(first_line(reply_of(task))) or 'done, without a text'}", show
    if status in FINISHED:
        word = "refused" if reason_of(task) == "rejected" else status
        why = plain(first_line(note_of(task) or reply_of(task)))
        return f"[← {name}] {word}" + (f": {why}" if why else ""), show
    if question := question_of(task):
        return _question_notice(question, name)
    if status == ASKS:
        asks = plain(first_line(reply_of(task) or note_of(task))) or "it needs more input"
        return f"[← {name}] asks: {asks}", f'synapse send {name} "…" --task {short_id(task)}'
    if attention := attention_of(task):
        return f"[← {name}] needs a person: {plain(attention)}", show
    return "", ""


def _obstacle_in(status: dict[str, Any], name: str) -> tuple[str, str]:
    """Returns what blocks an agent, by its host's status, as `notice_of` does."""
    if question := question_in(status):
        return _question_notice(question, name)
    if held := overdue_in(status):
        return f"[← {name}] holds {messages_in(held)}: {why_held(held)}", release_step(held, name)
    return "", ""


def _question_notice(question: dict[str, Any], name: str) -> tuple[str, str]:
    # Not the commands that answer it: a person should see all of a question first, and one line has no room for it.
    where = " --all" if "@" in name else ""  # on another machine
    return f"[← {name}] asks a person: {title_of(question)}", f"synapse approvals{where}"
