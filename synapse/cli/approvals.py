"""`synapse approvals`, `approve`, `deny` and `answer`: what agents need a person for, and a person's answers.

`approvals` asks all hosts for questions, messages in doubt and held messages. The others find one open question and
send its answer to the agent's host.
"""

from __future__ import annotations

import os
import threading
from datetime import datetime
from typing import Any, Final

from synapse.cli.live_line import LiveLine
from synapse.cli.output import print_error, print_failed, print_json, print_notice, print_result, warn_unanswered
from synapse.cli.parser import VerbParser
from synapse.cli.tables import line_width, painted
from synapse.cli.task_lookup import find_task, is_task_id
from synapse.client.attention import (
    find_option,
    how_long,
    needs_of,
    next_step,
    own_questions_in,
    question_in,
    question_lines,
    step_elsewhere,
    target_of,
    title_of,
)
from synapse.client.fan_out import HostReply, ask_all
from synapse.client.hosts import ask, find_agent, open_registry
from synapse.client.lines import plain, width
from synapse.client.link import is_in_fleet
from synapse.client.views import FINISHED, WAITING_FOR_PERSON, question_of, reason_of, short_id, status_of
from synapse.config.process import SystemClock
from synapse.core.address import is_remote, on_machine, short_name, split_inbox
from synapse.core.agent import WAITING, AgentEntry
from synapse.core.errors import AgentNotFound, AmbiguousTask, NothingAsked, NotInFleet, SynapseError, TaskNotFound
from synapse.core.json_text import object_in
from synapse.registry.files import FileRegistry

APPROVALS_EXAMPLES = """
synapse approvals
synapse approvals --json | jq -r '.[].task_id'
synapse approvals --all                          also of other machines that allow it
synapse approve 54241e7e                         allow it once
"""
APPROVE_EXAMPLES = """
synapse approvals                 list what agents are waiting for
synapse approve 54241e7e          allow it once
synapse approve 54241e7e 2        choose an option by its number or its text
synapse approve codex             the question that codex asks now, also at startup
synapse approve codex@box2        on another machine, if it allows this one to approve
"""
DENY_EXAMPLES = """
synapse approvals                 list what agents are waiting for
synapse deny 54241e7e
synapse deny codex                the question that codex asks now
"""
ANSWER_EXAMPLES = """
synapse approvals                            list what agents are waiting for
synapse answer 54241e7e 2                    an option by its number
synapse answer 54241e7e "main, of course"    an option by its text, or a text of your own
"""
ANSWER_SECONDS: Final = 30.0
"""How long a host may take: it answers once it sees the program continue."""
READ_SECONDS: Final = 1.5
"""How long a host may take to read a dialog that has just opened."""
POLL_SECONDS: Final = 0.1
_NO_NEED: Final = {"task_id": None, "kind": "", "title": "", "asked_at": None}
WANTS_MESSAGE: Final = ("input_required", "auth_required")


def run_approvals(arguments: list[str]) -> int:
    """Lists open questions, messages in doubt and held messages; returns the exit code."""
    parser = VerbParser("approvals", examples=APPROVALS_EXAMPLES)
    parser.add_argument(
        "--all", action="store_true", help="also of the machines of the fleet that let this one approve"
    )
    options = parser.parse_args(arguments)
    registry = open_registry()
    home = os.path.dirname(registry.folder)
    replies = _with_read_dialogs(ask_all(registry.entries(), "GET", "/status"))
    warn_unanswered(replies)
    needs = _Needs([item for reply in replies for item in needs_of(reply.entry, reply.body)])
    if options.all:
        needs.add_others(home)
    if options.json:
        print_json(needs.items)
    else:
        _print_needs(needs, home, asked_all=options.all)
    for line in (*needs.hidden, *needs.away):
        print_notice(line)
    if options.all and not options.json:
        print_failed(home)
    return print_error(needs.error, as_json=False) if needs.error else 0


class _Needs:
    """What agents need a person for, as objects of `--json`. `error`: why other machines were not asked."""

    def __init__(self, items: list[dict[str, Any]]) -> None:
        self.items = items
        self.hidden: list[str] = []
        """A line for each agent that waits on a machine where this one may not approve."""
        self.away: list[str] = []
        """A line for each machine that could not be asked."""
        self.error: SynapseError | None = None

    def add_others(self, home: str) -> None:
        """Adds those of other machines, with `machine`; says so if this machine is in no fleet."""
        if not is_in_fleet(home):
            print_notice(f"This machine is in no fleet: only its own agents were asked.  ({NotInFleet.hint})")
            return
        try:
            needs, self.hidden, self.away = _remote_needs(home)
        except SynapseError as error:
            self.error = error
        else:
            self.items += needs


def _print_needs(needs: _Needs, home: str, *, asked_all: bool) -> None:
    if not needs.items and not needs.hidden:
        print_notice(_nobody_waits(home, needs, asked_all=asked_all))
    now = SystemClock().now()
    for item in needs.items:
        print_result("\n".join(_block(item, now)))


def _nobody_waits(home: str, needs: _Needs, *, asked_all: bool) -> str:
    """Returns the sentence for an empty list, which says no more than is known."""
    if not asked_all and is_in_fleet(home):
        return "No agent here waits for a person.  (synapse approvals --all asks the other machines too)"
    where = " here" if needs.error is not None else " that could be asked" if needs.away else ""
    return f"No agent{where} waits for a person."


def _remote_needs(home: str) -> tuple[list[dict[str, Any]], list[str], list[str]]:
    """Returns what other machines need a person for, as objects of `--json` with `machine`.

    The second list has a line for each agent that waits on a machine where this one may not approve, the third one for
    each machine that is away.

    Raises LinkDown or PersonRequired.
    """
    from synapse.client.link import fleet_agents, fleet_needs, not_asked

    needs, refusing, away = fleet_needs(home)
    # Asked now: by what the machines told last, an agent that has just asked would not wait.
    waiting = [
        (entry.name, str(fields.get("machine")))
        for entry, fields in (fleet_agents(home, fresh=True)[0] if refusing else ())
        if fields.get("state") == WAITING and fields.get("machine") in refusing
    ]
    lines = [f"{name} waits for a person; {_how_to_allow(machine, home)}" for name, machine in waiting]
    return [_on_its_machine(item) for item in needs], lines, not_asked(away, SystemClock().now())


def _how_to_allow(machine: str, home: str) -> str:
    """Returns the sentence for a machine that does not let this one approve."""
    from synapse.client.link import allow_step

    return f"{machine} does not let this machine approve  ({allow_step(home, machine, 'approve')})"


def _on_its_machine(item: dict[str, Any]) -> dict[str, Any]:
    """Returns an object of another machine with names and commands that mean its agent here."""
    machine, name, question = (str(item.get("machine")), str(item.get("name")), object_in(item, "question"))
    remote = on_machine(name, machine)
    step = next_step(question, target_of(question, remote), remote) if question else step_elsewhere(item, remote)
    agent_id = on_machine(str(item.get("agent_id")), machine)
    return {**_NO_NEED, **item, "agent_id": agent_id, "name": remote, "next": step, "question": question or None}


def _with_read_dialogs(replies: list[HostReply]) -> list[HostReply]:
    """Asks hosts again, for READ_SECONDS at most, whose dialog has just opened and is not read yet.

    A dialog that has been open for longer and is not read will not be read.
    """
    clock, never = SystemClock(), threading.Event()
    end = clock.monotonic() + READ_SECONDS
    while clock.monotonic() < end:
        unread = [index for index, reply in enumerate(replies) if _is_just_open(reply, clock.now())]
        if not unread:
            break
        never.wait(POLL_SECONDS)
        again = ask_all([replies[index].entry for index in unread], "GET", "/status")
        for index, reply in zip(unread, again, strict=True):
            replies[index] = reply
    return replies


def _is_just_open(reply: HostReply, now: datetime) -> bool:
    if reply.error is not None or question_in(reply.body) or reply.body.get("state") != WAITING:
        return False
    try:
        since = datetime.fromisoformat(str(reply.body.get("since")))
        return (now - since).total_seconds() < READ_SECONDS
    except (ValueError, TypeError):
        return False


def _block(item: dict[str, Any], now: datetime) -> list[str]:
    question: dict[str, Any] = item["question"] or {}
    task = f"task {plain(str(item['task_id'])[:8])}" if item["task_id"] else "no task"
    lasting = how_long(item["asked_at"], now)
    head = f"{painted(item['name'], WAITING)}  {task}  {plain(str(item['kind']))}  {lasting}".rstrip()
    lines = question_lines(question) if question else [plain(str(item["title"]))]
    step = f"  → {plain(str(item['next']))}"
    # Each command on a line of its own, where they would break in the middle of a word.
    steps = [step] if width(step) <= line_width() else step.replace(" | ", "\n  → ").split("\n")
    return [head, *(f"  {line}" for line in lines), *steps]


def run_approve(arguments: list[str]) -> int:
    """Allows it and returns the exit code."""
    parser = VerbParser("approve", examples=APPROVE_EXAMPLES)
    parser.add_argument("target", metavar="TASK|AGENT")
    parser.add_argument("option", nargs="?", metavar="OPTION", help="the option to choose, by number or text")
    options = parser.parse_args(arguments)
    answer = {"verdict": "allow"} if options.option is None else {"option": options.option}
    return find_question(options.target).answer("approved", answer, as_json=options.json)


def run_deny(arguments: list[str]) -> int:
    """Denies it and returns the exit code."""
    parser = VerbParser("deny", examples=DENY_EXAMPLES)
    parser.add_argument("target", metavar="TASK|AGENT")
    options = parser.parse_args(arguments)
    return find_question(options.target).answer("denied", {"verdict": "deny"}, as_json=options.json)


def run_answer(arguments: list[str]) -> int:
    """Answers it and returns the exit code."""
    parser = VerbParser("answer", examples=ANSWER_EXAMPLES)
    parser.add_argument("target", metavar="TASK|AGENT")
    parser.add_argument("text", nargs="+", metavar="TEXT")
    options = parser.parse_args(arguments)
    found = find_question(options.target)
    text = " ".join(options.text)
    option = find_option(found.question, text)
    return found.answer("answered", {"option": option} if option else {"text": text}, as_json=options.json)


class AgentQuestion:
    """An open question of an agent; `task_id` is empty if it belongs to no task."""

    def __init__(self, entry: AgentEntry, question: dict[str, Any], task_id: str) -> None:
        self.entry = entry
        self.question = question
        self.task_id = task_id

    def answer(self, done: str, answer: dict[str, str], *, as_json: bool) -> int:
        """Sends the answer to the host, prints that the question was `done`, and returns the exit code.

        Raises QuestionGone, InvalidChoice or PersonRequired, by their codes.
        """
        path = f"/tasks/{self.task_id}/answer" if self.task_id else "/answer"
        # With the question's id: if it was answered meanwhile, this answer must not go to the next question.
        body = {**answer, "question_id": str(self.question.get("id", ""))}
        name = short_name(self.entry)
        with LiveLine(name, "stops waiting", state="takes the answer", as_json=as_json):
            task = object_in(ask(self.entry, "POST", path, body, timeout=ANSWER_SECONDS), "task")
        if as_json:
            print_json({"task": task or None, "question": self.question})
            return 0
        state = f"  (task {short_id(task)} is {status_of(task)})" if task else ""
        print_notice(f"[{name}] {done}: {title_of(self.question)}{state}")
        return 0


def find_question(target: str) -> AgentQuestion:
    """Returns the open question of the agent or task that `target` names.

    Raises:
        AgentNotFound, TaskNotFound, AmbiguousTarget, AmbiguousTask: it names none, or several.
        NothingAsked: there is no open question.
    """
    registry = open_registry()
    try:
        entry = find_agent(target, registry)
    except AgentNotFound as error:
        try:
            return _find_question_by_task(target, registry)
        except TaskNotFound as missing:
            raise (missing if is_task_id(target) else error) from None
    status = _status_with_read_dialog(entry)
    question = question_in(status)
    own = own_questions_in(status)
    if not question and status.get("state") != WAITING and own:
        if len(own) > 1:
            raise AmbiguousTask(target, [str(one.get("task_id", ""))[:8] for one in own])
        question = own[0]
    if not question and status.get("state") == WAITING:
        why = plain(str(status.get("why") or "a dialog is open"))
        raise NothingAsked(
            f"{short_name(entry)} waits for a person, but cannot be answered from here: {why}",
            hint=_refusal(entry, registry) or f"answer it in its terminal: `synapse attach {short_name(entry)}`",
        )
    if not question:
        hint = "`synapse approvals --all` shows what agents wait for" if is_remote(entry) else NothingAsked.hint
        raise NothingAsked(f"{short_name(entry)} has no open question", hint=hint)
    return AgentQuestion(entry, question, str(question.get("task_id") or ""))


def _refusal(entry: AgentEntry, registry: FileRegistry) -> str:
    """Returns why the question of an agent on another machine is not shown, and how to change that; else nothing."""
    if not is_remote(entry):
        return ""
    from synapse.client.link import fleet_needs

    home, machine = os.path.dirname(registry.folder), split_inbox(entry.inbox)[1]
    return _how_to_allow(machine, home) if machine in fleet_needs(home)[1] else ""


def _status_with_read_dialog(entry: AgentEntry) -> dict[str, Any]:
    """Returns the host's status; waits up to READ_SECONDS for a dialog that has just opened to be read."""
    clock, never = SystemClock(), threading.Event()
    end = clock.monotonic() + READ_SECONDS
    while True:
        status = ask(entry, "GET", "/status")
        if question_in(status) or status.get("state") != WAITING or clock.monotonic() >= end:
            return status
        never.wait(POLL_SECONDS)


def _find_question_by_task(target: str, registry: FileRegistry) -> AgentQuestion:
    """Raises TaskNotFound, AmbiguousTask or NothingAsked."""
    try:
        return _find_task_question(target, registry)
    except TaskNotFound:
        # In a task that only its sender may read, such as that of an API key, the person sees the question alone.
        for reply in ask_all(registry.entries(), "GET", "/status") if is_task_id(target) else ():
            question = question_in(reply.body) if reply.error is None else {}
            if str(question.get("task_id") or "").startswith(target):
                return AgentQuestion(reply.entry, question, str(question["task_id"]))
        raise


def _find_task_question(target: str, registry: FileRegistry) -> AgentQuestion:
    entry, task = find_task(target, registry)
    question = question_of(task)
    if not question and entry.pid and status_of(task) not in FINISHED:
        # The question may not have reached the task yet.
        seen = question_in(_status_with_read_dialog(entry))
        question = seen if seen.get("task_id") == task["id"] else {}
    if entry.pid and status_of(task) in WANTS_MESSAGE and not question and reason_of(task) != WAITING_FOR_PERSON:
        raise NothingAsked(
            f"task {short_id(task)} waits for a message, not for a decision",
            hint=f'synapse send {short_name(entry)} "…" --task {short_id(task)}',
        )
    if not question or status_of(task) in FINISHED:
        raise NothingAsked(f"task {short_id(task)} is {status_of(task)} and has no open question")
    if not entry.pid:
        raise NothingAsked(
            f"{short_name(entry)} is not running; its question can be answered after its next start",
            hint=f"`synapse cancel {short_id(task)}` withdraws the question",
        )
    return AgentQuestion(entry, question, str(task["id"]))
