"""Sends a message and waits: `synapse send --response`, `--wait` and `--receipt`.

    from an agent     a task on its own host waits for the reply; the receiver gets its id (`sender_task_id`)
    from a shell      it has no host of its own, so it follows the receiver's task

Nothing polls the task: it follows the host's event stream, and resumes a broken stream after the last event.
"""

from __future__ import annotations

from typing import Any, Final

from synapse.cli import exit_codes
from synapse.cli.live_line import LiveLine
from synapse.cli.options import Options
from synapse.cli.output import print_error, print_json, print_notice, print_result
from synapse.cli.tables import safe
from synapse.client.attention import (
    QUEUED,
    messages_in,
    next_step,
    overdue_in,
    question_in,
    question_lines,
    release_step,
    target_of,
    title_of,
    why_held,
)
from synapse.client.hosts import (
    ask,
    current_folder,
    is_suspended,
    own_agent,
    post_message,
    suspended_hint,
)
from synapse.client.lines import plain
from synapse.client.seen import person_saw_end
from synapse.client.views import (
    ASKS,
    attention_of,
    has_left,
    is_answered,
    is_inferred,
    note_of,
    proof_of,
    question_of,
    reason_of,
    receipt_lines,
    receipt_of,
    reply_of,
    short_id,
    status_of,
)
from synapse.client.watch import TaskFields, TaskWatch, leave, open_waiting
from synapse.config.process import SystemClock
from synapse.config.settings import load_settings
from synapse.core.address import is_remote, short_name
from synapse.core.agent import READY, WAITING, WORKING, AgentEntry
from synapse.core.errors import AgentNotResponding, SynapseError, TaskNotCancelable, WaitingForPerson, WaitTimedOut
from synapse.core.json_text import object_in, objects_in
from synapse.registry.files import FileRegistry

STATUS_SECONDS: Final = 1.0
COMES_AS_MESSAGE: Final = "the answer arrives as a message; there is no need to wait for it"
SUBMITTED_STEPS = ("submitted", "turn_started", "answered")
_EXITS = {"failed": exit_codes.FAILED, "canceled": exit_codes.FAILED}


def send_and_wait(entry: AgentEntry, body: dict[str, Any], options: Options, registry: FileRegistry) -> int:
    """Sends the message, waits as the options ask, prints the result, and returns the exit code."""
    clock = SystemClock()
    deadline = clock.monotonic() + (options.seconds("--timeout") or _response_timeout())
    own = own_agent(registry) if options.has("--response") and not options.has("--from") else None
    is_for_answer = _level(options) == "answered"
    until = is_answered if is_for_answer else is_submitted
    if options.has("--response"):
        body["metadata"]["response_expected"] = True
    line = LiveLine(short_name(entry), "leaves it running", as_json=options.has("--json"))
    progress = ProgressPrinter(entry, options, line)
    watch = TaskWatch(own or entry, entry, registry, clock.monotonic, deadline, progress.look)
    task_id = open_waiting(own, entry, body) if own else ""
    sent: TaskFields = {}
    try:
        if own:
            # Followed before it is sent: a reply without a waiter would be typed into our own prompt as well.
            watch.follow(task_id)
        sent = _deliver(entry, body, options, registry, own, task_id)
        task_id = task_id or str(sent.get("id", ""))
        awaited = "the answer" if is_for_answer else "proof of delivery"
        print_notice(f"[→ {short_name(entry)}] sent  (task {short_id(sent)}), waiting for {awaited}")
        with line:
            task = watch.wait(task_id, until, progress)
    except TargetWaits as waits:
        return report_waiting(watch.receiver, waits, options, task_id=task_id)
    except (KeyboardInterrupt, TimeoutError) as stop:
        task = leave(own, task_id)
        if not task:
            is_late = isinstance(stop, TimeoutError)
            return _report_left(watch.receiver, options, task_id, is_late=is_late, is_agent=own is not None)
    except AgentNotResponding as error:
        if not task_id:
            raise
        error.hint += f"\n`synapse status {task_id[:8]}` shows the task"
        return print_error(error, as_json=options.has("--json"), task_id=task_id)
    finally:
        watch.close()
    code = report(watch.receiver, task, options, sent_id=short_id(sent))
    person_saw_end(registry, watch.receiver.agent_id, task)
    return code


def _response_timeout() -> float:
    settings = load_settings(folder=current_folder())
    if settings.project and (note := settings.project.note(uses=("response_timeout",))):
        print_notice(f"Warning: {plain(note)}")
    return settings.response_timeout


def is_submitted(task: TaskFields) -> bool:
    """Returns whether there is proof that the agent took the message."""
    return is_answered(task) or receipt_of(task) in SUBMITTED_STEPS


class TargetWaits(Exception):
    """Raised to end the wait when the target waits for a person (`--exit-on-wait`)."""

    def __init__(self, question: dict[str, Any], why: str) -> None:
        super().__init__(why)
        self.question = question


def report_waiting(entry: AgentEntry, waits: TargetWaits, options: Options, *, task_id: str) -> int:
    """Prints the question and returns the exit code; the task continues."""
    name, question = short_name(entry), waits.question
    if options.has("--json"):
        waiting = {"agent_id": entry.agent_id, "why": str(waits), "question": question or None}
        print_json({"task_id": task_id, "waiting": waiting})
    else:
        print_result("\n".join(question_lines(question)) if question else str(waits))
        print_notice(f"{name} waits for a person, who can type: {next_step(question, target_of(question, name), name)}")
    return exit_codes.WAITING_FOR_PERSON


def _report_left(entry: AgentEntry, options: Options, task_id: str, *, is_late: bool, is_agent: bool) -> int:
    """Prints that the wait has ended without an answer, and returns the exit code; the task continues."""
    comes = f"\n{COMES_AS_MESSAGE}" if is_agent else ""
    if is_late:
        error = _timed_out(entry, task_id)
        error.hint += comes
        return print_error(error, as_json=options.has("--json"), task_id=task_id)
    look = task_id[:8] or short_name(entry)
    print_notice(f"\nStopped waiting; the task continues.  (synapse status {look}){comes}")
    return exit_codes.INTERRUPTED


def _report_message(name: str, task: TaskFields, options: Options) -> int:
    """Prints that the answer arrives as a message: the stream had broken when it came."""
    if options.has("--json"):
        print_json({"task": task, "reply": None, "receipt": receipt_of(task)})
    print_notice(f"{name} has answered; {COMES_AS_MESSAGE}")
    return exit_codes.DONE


def report(entry: AgentEntry, task: TaskFields, options: Options, *, sent_id: str) -> int:
    """Prints the result of the wait and returns the exit code; `sent_id` is the task at the receiver."""
    name, status, reply = short_name(entry), status_of(task), reply_of(task)
    if has_left(task):
        return _report_message(name, task, options)
    if options.has("--json"):
        print_json({"task": task, "reply": reply or None, "receipt": receipt_of(task)})
    elif status in _EXITS:
        why = plain(note_of(task) or reply) or f"the task is {status}"
        print_notice(f"Error: {name}: {why}\n(synapse status {short_id(task)})")
    else:
        _print_outcome(name, task, options)
    if status == ASKS:
        print_notice(f'{name} asks for input; answer with: synapse send {name} "…" --task {sent_id}')
        return exit_codes.WAITING_FOR_PERSON
    if reason_of(task) == "rejected":
        return exit_codes.REFUSED
    return _EXITS.get(status, exit_codes.DONE)


def _print_outcome(name: str, task: TaskFields, options: Options) -> None:
    """Prints the answer, or what proves that the agent took the message, as the options ask."""
    if _level(options) == "answered":
        print_result(safe(reply_of(task)))
        if is_inferred(task):
            print_notice(f"({name} sent no reply; this is the end of its turn)")
    elif not options.has("--receipt"):  # which has printed it
        print_notice(f"[→ {name}] {_proof_in(task)}  (synapse status {short_id(task)})")


def _proof_in(task: TaskFields) -> str:
    """Returns the first step that proves that the agent took the message, with its source and evidence."""
    steps = (
        step for step in objects_in(object_in(task, "metadata"), "receipts") if step.get("step") in SUBMITTED_STEPS
    )
    step = next(steps, None)
    if step is None:
        return f"{receipt_of(task)}; its host says no more"
    return f"{step['step'].replace('_', ' ')}, proven by {plain(proof_of(step))}"


class ProgressPrinter:
    """Prints progress on stderr while `send` waits: receipts if asked for, questions, and what blocks the agent."""

    def __init__(self, entry: AgentEntry, options: Options, line: LiveLine) -> None:
        self._name = short_name(entry)
        self._line = line
        self._is_queued = True
        self._obstacle = self._printed_obstacle = ""
        self._prints_receipts = options.has("--receipt") and not options.has("--json")
        self._printed = 0
        self._attention = ""
        self._link_error = ""
        self._exits_on_wait = options.has("--exit-on-wait")
        self._printed_question = ""

    def __call__(self, task: TaskFields) -> None:
        self._is_queued = receipt_of(task) == QUEUED
        if status_of(task) == WORKING:
            self._line.state = WORKING
        if self._prints_receipts:
            lines = receipt_lines(task)
            for line in lines[self._printed :]:
                self._line.say(f"  {plain(line)}")
            self._printed = max(self._printed, len(lines))
        question = question_of(task)
        if question:
            self._handle_question({**question, "task_id": task.get("id")})
        attention = attention_of(task)
        if attention and attention != self._attention:
            self._line.say(f"{self._name} needs a person: {plain(attention)}  (synapse attach {self._name})")
        self._attention = attention

    def look(self, entry: AgentEntry) -> None:
        """Asks the agent's host what blocks it: a dialog is no event of the task."""
        self._name = self._line.target = short_name(entry)
        try:
            state = ask(entry, "GET", "/status", timeout=STATUS_SECONDS)
        except SynapseError as error:
            self._look_at_silence(entry, error)
            return
        if self._printed_obstacle == self._link_error:
            self._printed_obstacle = ""  # it is over, and said again the next time
        self._link_error = ""
        self._line.state = _state_in(state, is_queued=self._is_queued)
        question = question_in(state)
        if question:
            self._handle_question(question)
            return
        held = overdue_in(state)
        if held and state.get("state") != WAITING:
            if why_held(held) in self._printed_obstacle:
                return  # printed when it began
            self._print_once(
                f"{self._name} holds {messages_in(held)}: {why_held(held)}  ({release_step(held, self._name)})"
            )
            return
        before, self._obstacle = self._obstacle, self._obstacle_in(state)
        is_lasting = state.get("state") == WAITING or self._obstacle == before
        if self._exits_on_wait and state.get("state") == WAITING:
            raise TargetWaits({}, self._obstacle)
        if self._obstacle and is_lasting:
            self._print_once(f"{self._obstacle}  (synapse attach {self._name})")

    def _look_at_silence(self, entry: AgentEntry, error: SynapseError) -> None:
        """Says why the agent cannot be asked, if that may last and nobody else says it."""
        if is_remote(entry):
            self._line.state = "cannot be asked now"
            # The sentence says for how long a machine is away, and so is another one each time.
            before, self._link_error = self._link_error, f"{error.code}: {error.hint}"
            # A link that restarts does not answer for a moment.
            if self._link_error == before:
                said = f"{plain(str(error))}; the task continues  ({plain(error.hint)})"
                self._print_once(said, same=self._link_error)
            return
        self._line.state = "does not respond"
        # TaskWatch notices a host that is gone; one that is suspended may continue.
        if is_suspended(entry):
            self._print_once(f"{self._name} does not respond: {suspended_hint(entry)}")

    def _print_once(self, obstacle: str, *, same: str = "") -> None:
        """Prints what blocks the agent, unless it was the last thing printed; `same` is what tells that, if given."""
        if (same or obstacle) != self._printed_obstacle:
            self._line.say(obstacle)
            self._printed_obstacle = same or obstacle

    def _handle_question(self, question: dict[str, Any]) -> None:
        """Raises TargetWaits if `--exit-on-wait` was given, else prints the question once."""
        asks = f"{self._name} waits for a person: {title_of(question)}"
        if self._exits_on_wait:
            raise TargetWaits(question, asks)
        if str(question.get("id")) != self._printed_question:
            self._printed_question = str(question.get("id"))
            self._line.say(f"{asks}  ({next_step(question, target_of(question, self._name), self._name)})")

    def _obstacle_in(self, state: dict[str, Any]) -> str:
        if state.get("state") == WAITING:
            return f"{self._name} waits for a person: {plain(str(state.get('why') or 'a dialog is open'))}"
        if state.get("state") == READY and state.get("gate"):
            return f"{self._name} cannot be typed into: {plain(str(state['gate']))}"
        return ""


def _state_in(status: TaskFields, *, is_queued: bool) -> str:
    """Returns what the agent does, in a few words."""
    match status.get("state"):
        case "working" if is_queued:
            return "working on something else"
        case "waiting":
            return "waits for a person"
        case state:
            return str(state or "")


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
            _cancel_waiting(own, waiting_task)
        raise


def _cancel_waiting(own: AgentEntry, task_id: str) -> None:
    """Cancels the waiting task: nothing will answer it."""
    try:
        ask(own, "POST", f"/tasks/{task_id}/cancel", {})
    except TaskNotCancelable:
        return  # the link has ended it: it knows too that the message was refused
    except SynapseError as error:
        print_notice(f"Could not cancel the waiting task {task_id[:8]}: {error}")


def _timed_out(entry: AgentEntry, task_id: str) -> SynapseError:
    name = short_name(entry)
    look = f"`synapse status {task_id[:8]}` shows the task, `synapse status {name} --explain` the agent"
    try:
        state = ask(entry, "GET", "/status", timeout=2.0)
    except SynapseError as error:
        error.hint = f"{error.hint}\n`synapse status {task_id[:8]}` shows the task, which continues"
        return error
    if state.get("state") == WAITING:
        question = question_in(state)
        why = title_of(question) or state.get("why") or "a dialog is open"
        command = next_step(question, target_of(question, name), name)
        return WaitingForPerson(f"{name} waits for a person: {why}", hint=f"`{command}`; {look}")
    return WaitTimedOut(f"{name} did not answer in time; the task continues", hint=look)


def _level(options: Options) -> str:
    if options.has("--response"):
        return "answered"
    return options.text("--wait") or "submitted"
