"""Sending and waiting: `synapse send --response`, `--wait` and `--receipt`.

    from an agent     a task on its own host waits for the reply; the receiver is told its id (`sender_task_id`)
    from a shell      there is no host of its own, so it follows the receiver's task

Nothing polls: the task is followed on its host's stream of events, and resumed where a broken stream left off.
"""

from __future__ import annotations

from typing import Any

from synapse.cli import exit_codes
from synapse.cli.hold_view import messages_in, overdue_in, way_out, why_held
from synapse.cli.hosts import ask, current_folder, own_agent, post_message, stands_still, standstill
from synapse.cli.options import Options
from synapse.cli.question_view import next_step, question_in, question_lines, question_of, target_of, title_of
from synapse.cli.render import plain, safe
from synapse.cli.speech import complain, give, give_json, say
from synapse.cli.task_view import (
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
from synapse.cli.watch import TaskFields, Watch
from synapse.core.address import short_name
from synapse.core.agent import READY, WAITING, AgentEntry
from synapse.core.errors import AgentNotResponding, SynapseError, WaitingForPerson, WaitTimedOut
from synapse.registries.files import FileRegistry
from synapse.runtime.settings import load_settings
from synapse.runtime.system_clock import SystemClock

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
    narrator = Narrator(entry, options)
    watch = Watch(own or entry, entry, registry, clock.monotonic, deadline, narrator.look)
    task_id = _create(own, entry, body) if own else ""
    sent: TaskFields = {}
    try:
        if own:
            # Followed before it is sent: a reply that finds nobody waiting is typed into our own prompt as well.
            watch.follow(task_id)
        sent = _deliver(entry, body, options, registry, own, task_id)
        task_id = task_id or str(sent.get("id", ""))
        say(f"[→ {short_name(entry)}] sent  (task {short_id(sent)}), waiting for {_wanted(options)}")
        task = watch.wait(task_id, until, narrator)
    except TargetWaits as waits:
        return report_waiting(watch.receiver, waits, options, task_id=task_id)
    except KeyboardInterrupt:
        look = task_id[:8] or short_name(entry)
        say(f"\nno longer waiting; what was sent goes on  (synapse status {look})")
        return exit_codes.INTERRUPTED
    except TimeoutError:
        return complain(_too_late(watch.receiver, task_id), as_json=options.has("--json"), task_id=task_id)
    except AgentNotResponding as error:
        if not task_id:
            raise
        error.hint += f"\n`synapse status {task_id[:8]}` shows what became of the task"
        return complain(error, as_json=options.has("--json"), task_id=task_id)
    finally:
        watch.close()
    return report(watch.receiver, task, options, asked=short_id(sent))


def _response_timeout() -> float:
    settings = load_settings(folder=current_folder())
    if settings.project and (note := settings.project.note(uses=("response_timeout",))):
        say(f"Warning: {plain(note)}")
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
        give("\n".join(question_lines(question)) if question else str(waits))
        say(f"{name} waits for a person; a person types: {next_step(question, target_of(question, name), name)}")
    return exit_codes.WAITING_FOR_PERSON


def report(entry: AgentEntry, task: TaskFields, options: Options, *, asked: str) -> int:
    """Print what came of the wait and return the exit code; `asked` is the task at the receiver."""
    name, status, reply = short_name(entry), status_of(task), reply_of(task)
    if options.has("--json"):
        give_json({"task": task, "reply": reply or None, "receipt": receipt_of(task)})
    elif status in _EXITS:
        why = plain(note_of(task) or reply) or f"the task is {status}"
        say(f"Error: {name}: {why}\n(synapse status {short_id(task)})")
    elif _level(options) == "answered":
        give(safe(reply))
        if is_inferred(task):
            say(f"({name} sent no reply; this is what its turn ended with)")
    if status == ASKS:
        say(f'{name} asks; answer with: synapse send {name} "…" --task {asked}')
        return exit_codes.WAITING_FOR_PERSON
    if reason_of(task) == "rejected":
        return exit_codes.REFUSED
    return _EXITS.get(status, exit_codes.DONE)


_EXITS = {"failed": exit_codes.FAILED, "canceled": exit_codes.FAILED}


class Narrator:
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
                say(f"  {plain(line)}")
            self._told = max(self._told, len(lines))
        question = question_of(task)
        if question:
            self._meet({**question, "task_id": task.get("id")})
        attention = attention_of(task)
        if attention and attention != self._attention:
            say(f"{self._name} needs a person: {plain(attention)}  (synapse attach {self._name})")
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
            say(hindrance)
            self._told_hindrance = hindrance

    def _meet(self, question: dict[str, Any]) -> None:
        """The target asks a person: leave if that was wanted, else say so once."""
        asks = f"{self._name} waits for a person: {title_of(question)}"
        if self._leaves:
            raise TargetWaits(question, asks)
        if str(question.get("id")) != self._told_question:
            self._told_question = str(question.get("id"))
            say(f"{asks}  ({next_step(question, target_of(question, self._name), self._name)})")

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
        return post_message(entry, body, registry, priority=options.text("--priority"))
    except SynapseError:
        if own is not None:
            _withdraw(own, waiting_task)
        raise


def _withdraw(own: AgentEntry, task_id: str) -> None:
    """Nobody will answer the task that was to wait."""
    try:
        ask(own, "POST", f"/tasks/{task_id}/cancel", {})
    except SynapseError as error:
        say(f"the waiting task {task_id[:8]} could not be withdrawn: {error}")


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
