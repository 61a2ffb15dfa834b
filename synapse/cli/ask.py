"""`synapse ask`: an agent asks a person a question, waits for the answer and prints it."""

from __future__ import annotations

from synapse.cli import exit_codes
from synapse.cli.live_line import LiveLine
from synapse.cli.output import print_error, print_json, print_notice, print_result
from synapse.cli.parser import VerbParser, seconds
from synapse.cli.tables import safe
from synapse.cli.wait import COMES_AS_MESSAGE
from synapse.client.hosts import AGENT_VARIABLE, ask, current_folder, open_registry, own_agent
from synapse.client.views import has_left, note_of, reply_of, short_id, status_of
from synapse.client.watch import TaskFields, TaskWatch, leave
from synapse.config.process import SystemClock
from synapse.config.settings import load_settings
from synapse.core.errors import InvalidRequest, WaitTimedOut
from synapse.core.json_text import object_in

EXAMPLES = """
synapse ask "May I delete the old branch?" --option yes --option no
synapse ask "Which region?" --timeout 60
"""
_LEFT = ("canceled", "failed")


def run_ask(arguments: list[str]) -> int:
    """Asks a person and returns the exit code."""
    parser = VerbParser("ask", examples=EXAMPLES)
    parser.add_argument("question", nargs="+", metavar="QUESTION")
    parser.add_argument("--option", action="append", default=[], metavar="TEXT", help="an answer to choose; repeat it")
    parser.add_argument("--timeout", type=seconds, metavar="S", help="the longest wait in seconds")
    options = parser.parse_args(arguments)
    registry, clock = open_registry(), SystemClock()
    own = own_agent(registry)
    if own is None:
        raise InvalidRequest(
            f"this shell does not run inside an agent ({AGENT_VARIABLE} is not set): only an agent asks a person",
            hint='to ask an agent: `synapse send TARGET "…" --response`',
        )
    wait = options.timeout or load_settings(folder=current_folder()).response_timeout
    message = {"role": "agent", "parts": [{"type": "text", "text": " ".join(options.question)}]}
    task = object_in(ask(own, "POST", "/questions", {"message": message, "options": options.option}), "task")
    task_id = str(task.get("id", ""))
    print_notice(f"[→ a person] asked  (task {short_id(task)}), waiting for the answer")
    watch = TaskWatch(own, own, registry, clock.monotonic, clock.monotonic() + wait)
    try:
        with LiveLine("waiting for a person", "leaves the question open", as_json=options.json):
            task = watch.wait(task_id, lambda now: status_of(now) in ("completed", *_LEFT), lambda _now: None)
    except (KeyboardInterrupt, TimeoutError) as stop:
        task = leave(own, task_id)
        if not task:
            return _report_left(task_id, as_json=options.json, is_late=isinstance(stop, TimeoutError))
    finally:
        watch.close()
    return _report(task, as_json=options.json)


def _report(task: TaskFields, *, as_json: bool) -> int:
    answer = "" if has_left(task) else reply_of(task)
    if as_json:
        print_json({"task": task, "answer": answer or None})
    elif has_left(task):
        print_notice(f"Answered; {COMES_AS_MESSAGE}")
    elif status_of(task) in _LEFT:
        print_notice(f"Error: the question was not answered: {note_of(task)}")
    else:
        print_result(safe(answer))
    return exit_codes.FAILED if status_of(task) in _LEFT else exit_codes.DONE


def _report_left(task_id: str, *, as_json: bool, is_late: bool) -> int:
    hint = f"{COMES_AS_MESSAGE}; `synapse cancel {task_id[:8]}` withdraws the question"
    if is_late:
        return print_error(WaitTimedOut("no person has answered in time", hint=hint), as_json=as_json, task_id=task_id)
    print_notice(f"\nStopped waiting; the question stays open.  ({hint})")
    return exit_codes.INTERRUPTED
