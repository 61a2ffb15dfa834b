"""`synapse cancel` and `synapse resolve`: cancels tasks, and records a person's decision about a message in doubt."""

from __future__ import annotations

from typing import Any

from synapse.cli.exit_codes import DONE, exit_code
from synapse.cli.output import error_fields, print_error, print_json, print_notice
from synapse.cli.parser import VerbParser
from synapse.cli.task_lookup import find_task
from synapse.cli.tasks import OwnedTask, cancel_stored, queued_for_one
from synapse.client.hosts import ask, open_registry
from synapse.client.lines import plain
from synapse.client.link import OPEN, OUTBOX, UNCERTAIN
from synapse.client.views import FINISHED, note_of, short_id, status_of
from synapse.core.address import short_name
from synapse.core.agent import AgentEntry
from synapse.core.errors import Conflict, SynapseError
from synapse.core.json_text import object_in

Canceled = dict[str, Any] | SynapseError
"""The canceled task, or why it could not be canceled."""

CANCEL_EXAMPLES = """
synapse queue                      list queued messages
synapse cancel 54241e7e            the short id is enough
synapse cancel 54241e7e 9e20dd1e   several
synapse cancel --queue codex       all messages queued for codex; not the one it is working on
"""
RESOLVE_EXAMPLES = """
synapse attach codex                      check whether the message arrived
synapse resolve 54241e7e --delivered      it arrived
synapse resolve 54241e7e --retry          it did not; type it again
synapse resolve 54241e7e --fail           it did not; fail the task
"""


def run_cancel(arguments: list[str]) -> int:
    """Cancels tasks and returns the exit code of the first failure, if any."""
    parser = VerbParser("cancel", examples=CANCEL_EXAMPLES)
    parser.add_argument("tasks", nargs="*", metavar="TASK")
    parser.add_argument("--queue", metavar="AGENT", help="cancel every message that is queued for this agent")
    options = parser.parse_args(arguments)
    if bool(options.tasks) == bool(options.queue):
        parser.error("name the tasks to cancel, or use --queue AGENT")
    registry = open_registry()
    if options.queue:
        # Last one first: while one is canceled, its agent may take the next.
        found = list(reversed(queued_for_one(options.queue, registry)))
    else:
        # Finds all before it cancels the first: a wrong id cancels nothing.
        found = [find_task(task, registry) for task in options.tasks]
    canceled = _cancel_each(found)
    if options.json:
        results = [
            {"error": error_fields(task)} if isinstance(task, SynapseError) else {"task": task} for _, task in canceled
        ]
        print_json(results[0] if len(options.tasks) == 1 else results)
    elif not found:
        print_notice("No messages are queued.")
    else:
        for entry, task in canceled:
            if isinstance(task, SynapseError):
                print_error(task, as_json=False)
            else:
                print_notice(f"[{short_name(entry)}] task {short_id(task)} {_outcome(task)}")
    return next((exit_code(task.code) for _, task in canceled if isinstance(task, SynapseError)), DONE)


def _outcome(task: dict[str, Any]) -> str:
    """Returns what became of a task that was canceled; another machine may have yet to confirm it."""
    if object_in(task, "metadata").get(OUTBOX) == OPEN and status_of(task) not in FINISHED:
        return f"is in the outbox: {plain(note_of(task))}"
    return f"is {status_of(task)}"


def _cancel_each(found: list[OwnedTask]) -> list[tuple[AgentEntry, Canceled]]:
    """Cancels each task; one that has ended meanwhile does not stop the others."""
    left = [(entry, str(task["id"])) for entry, task in found if not entry.pid]
    stored = zip((entry for entry, _ in left), cancel_stored([task_id for _, task_id in left]), strict=True)
    return [*((entry, _cancel_at_host(entry, task)) for entry, task in found if entry.pid), *stored]


def _cancel_at_host(entry: AgentEntry, task: dict[str, Any]) -> Canceled:
    try:
        return object_in(ask(entry, "POST", f"/tasks/{task['id']}/cancel", {}), "task")
    except SynapseError as error:
        return error


def run_resolve(arguments: list[str]) -> int:
    """Sends the decision to the host and returns the exit code."""
    parser = VerbParser("resolve", examples=RESOLVE_EXAMPLES)
    parser.add_argument("task", metavar="TASK")
    verdict = parser.add_mutually_exclusive_group(required=True)
    for word, meaning in (("delivered", "the message arrived"), ("retry", "type it again"), ("fail", "fail the task")):
        verdict.add_argument(f"--{word}", dest="verdict", action="store_const", const=word, help=meaning)
    options = parser.parse_args(arguments)
    entry, found = find_task(options.task, open_registry())
    if kept := object_in(found, "metadata").get(OUTBOX):
        raise _in_outbox(found, kept, entry)
    if not entry.pid:
        raise Conflict(
            f"{entry.agent_id} is not running, so task {short_id(found)} cannot be resolved now",
            hint="start the agent first; it then asks again",
        )
    task = object_in(ask(entry, "POST", f"/tasks/{found['id']}/resolve", {"verdict": options.verdict}), "task")
    if options.json:
        print_json({"task": task})
    else:
        print_notice(f"[{short_name(entry)}] task {short_id(task)} is {status_of(task)}")
    return 0


def _in_outbox(task: dict[str, Any], state: object, entry: AgentEntry) -> Conflict:
    """Returns why nobody can decide about a message that no machine is known to have."""
    number, name = short_id(task), short_name(entry)
    if state == UNCERTAIN:
        # The agent's machine has lost the files that knew, so it could not find the task either.
        return Conflict(
            f"nobody can find out whether {name} got the message of task {number}, so it stays as it is",
            hint=f"look at {name}, and send the message again if it did not arrive",
        )
    if state == OPEN:
        hint = f"`synapse fleet outbox` shows it; `synapse cancel {number}` takes it back"
        return Conflict(f"the message of task {number} waits in the outbox, and nothing is in doubt", hint=hint)
    return Conflict(f"task {number} is {status_of(task)}, and nothing is in doubt", hint=f"synapse show {number}")
