"""Sending and waiting: `synapse send --response`, `--wait` and `--receipt`.

    from an agent     a task on its own host waits for the reply; the receiver is told its id (`sender_task_id`)
    from a shell      there is no host of its own, so it follows the receiver's task

Nothing polls: the task is followed on its host's stream of events, and resumed where a broken stream left off.

Following a task on its host until something holds for it: over broken streams, but not for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from synapse.cli import exit_codes
from synapse.cli.attention import (
    messages_in,
    next_step,
    overdue_in,
    question_in,
    question_lines,
    question_of,
    target_of,
    title_of,
    way_out,
    why_held,
)
from synapse.cli.options import Options
from synapse.cli.output import give_json, print_error, print_notice, print_result
from synapse.cli.tables import plain, safe
from synapse.cli.views import (
    FINISHED,
    attention_of,
    is_inferred,
    note_of,
    reason_of,
    receipt_lines,
    receipt_of,
    reply_of,
    short_id,
    status_of,
)
from synapse.client.events import EventStream, ServerEvent, open_stream
from synapse.client.hosts import (
    address_of,
    ask,
    current_folder,
    not_responding,
    own_agent,
    post_message,
    refusal_of,
    stands_still,
    standstill,
)
from synapse.client.http import Answer, NoAnswer
from synapse.config.process import SystemClock
from synapse.config.settings import load_settings
from synapse.core.address import short_name
from synapse.core.agent import READY, WAITING, AgentEntry
from synapse.core.errors import AgentNotResponding, SynapseError, WaitingForPerson, WaitTimedOut
from synapse.core.json_text import decode_object, object_in
from synapse.registry.files import FileRegistry, is_alive

ASKS = "input_required"
LOOK_SECONDS = 1.0
SUBMITTED_STEPS = ("submitted", "turn_started", "answered")


def send_and_wait(entry: AgentEntry, body: dict[str, Any], options: Options, registry: FileRegistry) -> int:
    """Send the message, wait for what the options ask for, print it, and return the exit code."""
    clock = SystemClock()
    deadline = clock.monotonic() + (options.seconds("--timeout") or _response_timeout())
    own = own_agent(registry) if options.has("--response") and not options.has("--from") else None
    until = is_submitted if _level(options) == "submitted" else is_answered
    if options.has("--response"):
        body["metadata"]["response_expected"] = True
    narrator = ProgressPrinter(entry, options)
    watch = TaskWatch(own or entry, entry, registry, clock.monotonic, deadline, narrator.look)
    task_id = _create(own, entry, body) if own else ""
    sent: TaskFields = {}
    try:
        if own:
            # Followed before it is sent: a reply that finds nobody waiting is typed into our own prompt as well.
            watch.follow(task_id)
        sent = _deliver(entry, body, options, registry, own, task_id)
        task_id = task_id or str(sent.get("id", ""))
        print_notice(f"[→ {short_name(entry)}] sent  (task {short_id(sent)}), waiting for {_wanted(options)}")
        task = watch.wait(task_id, until, narrator)
    except TargetWaits as waits:
        return report_waiting(watch.receiver, waits, options, task_id=task_id)
    except KeyboardInterrupt:
        look = task_id[:8] or short_name(entry)
        print_notice(f"\nno longer waiting; what was sent goes on  (synapse status {look})")
        return exit_codes.INTERRUPTED
    except TimeoutError:
        return print_error(_too_late(watch.receiver, task_id), as_json=options.has("--json"), task_id=task_id)
    except AgentNotResponding as error:
        if not task_id:
            raise
        error.hint += f"\n`synapse status {task_id[:8]}` shows what became of the task"
        return print_error(error, as_json=options.has("--json"), task_id=task_id)
    finally:
        watch.close()
    return report(watch.receiver, task, options, asked=short_id(sent))


def _response_timeout() -> float:
    settings = load_settings(folder=current_folder())
    if settings.project and (note := settings.project.note(uses=("response_timeout",))):
        print_notice(f"Warning: {plain(note)}")
    return settings.response_timeout


def is_answered(task: TaskFields) -> bool:
    """It has ended, or asks its sender. What its program asks a person meanwhile does not end the wait."""
    return status_of(task) in FINISHED or (status_of(task) == ASKS and not question_of(task))


def is_submitted(task: TaskFields) -> bool:
    return is_answered(task) or receipt_of(task) in SUBMITTED_STEPS


class TargetWaits(Exception):
    """The target waits for a person, and the wait is to end there."""

    def __init__(self, question: dict[str, Any], why: str) -> None:
        super().__init__(why)
        self.question = question


def report_waiting(entry: AgentEntry, waits: TargetWaits, options: Options, *, task_id: str) -> int:
    """Print what is asked and return the exit code; the task goes on."""
    name, question = short_name(entry), waits.question
    if options.has("--json"):
        waiting = {"agent_id": entry.agent_id, "why": str(waits), "question": question or None}
        give_json({"task_id": task_id, "waiting": waiting})
    else:
        print_result("\n".join(question_lines(question)) if question else str(waits))
        print_notice(
            f"{name} waits for a person; a person types: {next_step(question, target_of(question, name), name)}"
        )
    return exit_codes.WAITING_FOR_PERSON


def report(entry: AgentEntry, task: TaskFields, options: Options, *, asked: str) -> int:
    """Print what came of the wait and return the exit code; `asked` is the task at the receiver."""
    name, status, reply = short_name(entry), status_of(task), reply_of(task)
    if options.has("--json"):
        give_json({"task": task, "reply": reply or None, "receipt": receipt_of(task)})
    elif status in _EXITS:
        why = plain(note_of(task) or reply) or f"the task is {status}"
        print_notice(f"Error: {name}: {why}\n(synapse status {short_id(task)})")
    elif _level(options) == "answered":
        print_result(safe(reply))
        if is_inferred(task):
            print_notice(f"({name} sent no reply; this is what its turn ended with)")
    if status == ASKS:
        print_notice(f'{name} asks; answer with: synapse send {name} "…" --task {asked}')
        return exit_codes.WAITING_FOR_PERSON
    if reason_of(task) == "rejected":
        return exit_codes.REFUSED
    return _EXITS.get(status, exit_codes.DONE)


_EXITS = {"failed": exit_codes.FAILED, "canceled": exit_codes.FAILED}


class ProgressPrinter:
    """Tells on stderr what a waiting person should know: receipts if asked for, and that a decision is needed."""

    def __init__(self, entry: AgentEntry, options: Options) -> None:
        self._name = short_name(entry)
        self._hindrance = self._told_hindrance = ""
        self._tells_receipts = options.has("--receipt") and not options.has("--json")
        self._told = 0
        self._attention = ""
        self._leaves = options.has("--exit-on-wait")
        self._told_question = ""

    def __call__(self, task: TaskFields) -> None:
        if self._tells_receipts:
            lines = receipt_lines(task)
            for line in lines[self._told :]:
                print_notice(f"  {plain(line)}")
            self._told = max(self._told, len(lines))
        question = question_of(task)
        if question:
            self._meet({**question, "task_id": task.get("id")})
        attention = attention_of(task)
        if attention and attention != self._attention:
            print_notice(f"{self._name} needs a person: {plain(attention)}  (synapse attach {self._name})")
        self._attention = attention

    def look(self, entry: AgentEntry) -> None:
        """Ask the agent's host what keeps it: no event of the task tells that a dialog is open."""
        self._name = short_name(entry)
        try:
            state = ask(entry, "GET", "/status", timeout=LOOK_SECONDS)
        except SynapseError:
            # Whoever waits finds out by itself that the host is gone; one that is stopped may yet go on.
            if stands_still(entry):
                self._tell(f"{self._name} does not respond: {standstill(entry)}")
            return
        question = question_in(state)
        if question:
            self._meet(question)
            return
        held = overdue_in(state)
        if held and state.get("state") != WAITING:
            if why_held(held) in self._told_hindrance:
                return  # it was said when it began
            self._tell(f"{self._name} holds {messages_in(held)}: {why_held(held)}  ({way_out(held, self._name)})")
            return
        before, self._hindrance = self._hindrance, self._hindrance_in(state)
        is_lasting = state.get("state") == WAITING or self._hindrance == before
        if self._leaves and state.get("state") == WAITING:
            raise TargetWaits({}, self._hindrance)
        if self._hindrance and is_lasting:
            self._tell(f"{self._hindrance}  (synapse attach {self._name})")

    def _tell(self, hindrance: str) -> None:
        """Say what keeps the agent, once."""
        if hindrance != self._told_hindrance:
            print_notice(hindrance)
            self._told_hindrance = hindrance

    def _meet(self, question: dict[str, Any]) -> None:
        """The target asks a person: leave if that was wanted, else say so once."""
        asks = f"{self._name} waits for a person: {title_of(question)}"
        if self._leaves:
            raise TargetWaits(question, asks)
        if str(question.get("id")) != self._told_question:
            self._told_question = str(question.get("id"))
            print_notice(f"{asks}  ({next_step(question, target_of(question, self._name), self._name)})")

    def _hindrance_in(self, state: dict[str, Any]) -> str:
        if state.get("state") == WAITING:
            return f"{self._name} waits for a person: {plain(str(state.get('why') or 'a dialog is open'))}"
        if state.get("state") == READY and state.get("gate"):
            return f"nothing is typed at {self._name}: {plain(str(state['gate']))}"
        return ""


def _create(own: AgentEntry, entry: AgentEntry, body: dict[str, Any]) -> str:
    """Open the task on our own host that waits for the reply, and tell the receiver of it."""
    metadata = {
        "sender": body["metadata"]["sender"],
        "waits_for": entry.agent_id,
        "waits_for_inbox": entry.inbox,
    }
    # Without the message id: it is the receiver's, who may be ourselves.
    message = {"role": body["message"]["role"], "parts": body["message"]["parts"]}
    created = ask(own, "POST", "/tasks/create", {"message": message, "metadata": metadata})
    task_id = str(created["task"]["id"])
    body["metadata"]["sender_task_id"] = task_id
    return task_id


def _deliver(
    entry: AgentEntry,
    body: dict[str, Any],
    options: Options,
    registry: FileRegistry,
    own: AgentEntry | None,
    waiting_task: str,
) -> TaskFields:
    try:
        return post_message(entry, body, registry, warn=print_notice, priority=options.text("--priority"))
    except SynapseError:
        if own is not None:
            _withdraw(own, waiting_task)
        raise


def _withdraw(own: AgentEntry, task_id: str) -> None:
    """Nobody will answer the task that was to wait."""
    try:
        ask(own, "POST", f"/tasks/{task_id}/cancel", {})
    except SynapseError as error:
        print_notice(f"the waiting task {task_id[:8]} could not be withdrawn: {error}")


def _too_late(entry: AgentEntry, task_id: str) -> SynapseError:
    name = short_name(entry)
    look = f"`synapse status {task_id[:8]}` shows the task, `synapse status {name} --explain` what {name} is doing"
    try:
        state = ask(entry, "GET", "/status", timeout=2.0)
    except SynapseError as error:
        return error
    if state.get("state") == WAITING:
        question = question_in(state)
        why = title_of(question) or state.get("why") or "a dialog is open"
        todo = next_step(question, target_of(question, name), name)
        return WaitingForPerson(f"{name} waits for a person: {why}", hint=f"`{todo}`; {look}")
    return WaitTimedOut(f"{name} has not answered in time; the task goes on", hint=look)


def _level(options: Options) -> str:
    if options.has("--response"):
        return "answered"
    return options.text("--wait") or "submitted"


def _wanted(options: Options) -> str:
    return "the answer" if _level(options) == "answered" else "proof that it was taken"


MOST_BROKEN_STREAMS: Final = 5
ERROR_EVENT: Final = "error"
"""The last event of a stream that its server could not bring to its end."""
PULSE_SECONDS: Final = 2.0
MOST_MISSED_PULSES: Final = 2
"""A host that is restarted is away for a moment."""
TaskFields = dict[str, Any]


class TaskWatch:
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
