"""`synapse cancel`: stop a task, or take back a message that still waits.

`synapse resolve`: a person decides about a message of which it is not certain that the agent took it.
"""

from __future__ import annotations

from typing import Any

from synapse.cli.exit_codes import DONE, exit_code
from synapse.cli.output import described, give_json, print_error, print_notice
from synapse.cli.parser import VerbParser
from synapse.cli.task_lookup import find_task
from synapse.cli.tasks import Waiting, take_back_each, waiting_for_one
from synapse.cli.views import short_id, status_of
from synapse.client.hosts import ask, open_registry
from synapse.core.address import short_name
from synapse.core.agent import AgentEntry
from synapse.core.errors import Conflict, SynapseError
from synapse.core.json_text import object_in

Canceled = dict[str, Any] | SynapseError
"""The task as it is now, or why it could not be canceled."""

CANCEL_EXAMPLES = """
synapse queue                      shows what waits
synapse cancel 54241e7e            the short id is enough
synapse cancel 54241e7e 9e20dd1e   several
synapse cancel --queue codex       all that waits for codex; what it works on goes on
"""


def run_cancel(arguments: list[str]) -> int:
    """Cancel tasks and return the exit code: of the first failure, if any."""
    parser = VerbParser("cancel", examples=CANCEL_EXAMPLES)
    parser.add_argument("tasks", nargs="*", metavar="TASK")
    parser.add_argument("--queue", metavar="AGENT", help="take back every message that waits for this agent")
    options = parser.parse_args(arguments)
    if bool(options.tasks) == bool(options.queue):
        parser.error("name the tasks to cancel, or say --queue AGENT")
    registry = open_registry()
    if options.queue:
        # The last one first: while one is taken back, its agent may take the next.
        found = list(reversed(waiting_for_one(options.queue, registry)))
    else:
        # All are found before the first is canceled: a wrong id cancels nothing.
        found = [find_task(task, registry) for task in options.tasks]
    canceled = _canceled(found)
    if options.json:
        told = [_as_fields(task) for _, task in canceled]
        give_json(told[0] if len(options.tasks) == 1 else told)
    elif not found:
        print_notice("nothing waits")
    else:
        for entry, task in canceled:
            _tell(entry, task)
    return next((exit_code(task.code) for _, task in canceled if isinstance(task, SynapseError)), DONE)


def _canceled(found: list[Waiting]) -> list[tuple[AgentEntry, Canceled]]:
    """Cancel each, whatever becomes of another: it may have ended meanwhile."""
    left = [(entry, str(task["id"])) for entry, task in found if not entry.pid]
    taken_back = zip((entry for entry, _ in left), take_back_each([task_id for _, task_id in left]), strict=True)
    return [*((entry, _asked(entry, task)) for entry, task in found if entry.pid), *taken_back]


def _asked(entry: AgentEntry, task: dict[str, Any]) -> Canceled:
    try:
        return object_in(ask(entry, "POST", f"/tasks/{task['id']}/cancel", {}), "task")
    except SynapseError as error:
        return error


def _as_fields(task: Canceled) -> dict[str, Any]:
    return {"error": described(task)} if isinstance(task, SynapseError) else {"task": task}


def _tell(entry: AgentEntry, task: Canceled) -> None:
    if isinstance(task, SynapseError):
        print_error(task, as_json=False)
    else:
        print_notice(f"[{short_name(entry)}] task {short_id(task)} is {status_of(task)}")


RESOLVE_EXAMPLES = """
synapse attach codex                      look whether the message is there
synapse resolve 54241e7e --delivered      it was taken
synapse resolve 54241e7e --retry          it was not; type it again
synapse resolve 54241e7e --fail           give it up
"""


def run_resolve(arguments: list[str]) -> int:
    """Tell the host what was decided and return the exit code."""
    parser = VerbParser("resolve", examples=RESOLVE_EXAMPLES)
    parser.add_argument("task", metavar="TASK")
    verdict = parser.add_mutually_exclusive_group(required=True)
    for word, meaning in (("delivered", "the agent took it"), ("retry", "type it again"), ("fail", "give it up")):
        verdict.add_argument(f"--{word}", dest="verdict", action="store_const", const=word, help=meaning)
    options = parser.parse_args(arguments)
    entry, found = find_task(options.task, open_registry())
    if not entry.pid:
        raise Conflict(
            f"{entry.agent_id} does not run, so nothing can be decided about task {short_id(found)} now",
            hint="start the agent first; it asks again",
        )
    task = object_in(ask(entry, "POST", f"/tasks/{found['id']}/resolve", {"verdict": options.verdict}), "task")
    if options.json:
        give_json({"task": task})
    else:
        print_notice(f"[{short_name(entry)}] task {short_id(task)} is {status_of(task)}")
    return 0
