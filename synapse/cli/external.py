"""`synapse external`: adds, lists and removes external agents, and sends them messages over A2A."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Callable, Coroutine, Mapping
from contextlib import aclosing
from dataclasses import asdict
from pathlib import Path

from synapse.cli.exit_codes import DONE, FAILED, INTERRUPTED, REFUSED, TIMED_OUT, WAITING_FOR_PERSON
from synapse.cli.live_line import LiveLine
from synapse.cli.output import print_json, print_notice, print_part, print_result
from synapse.cli.parser import ActionParser, VerbParser, seconds
from synapse.cli.person import require_deciding_person
from synapse.cli.tables import safe, table
from synapse.client.lines import plain
from synapse.config import process
from synapse.config.settings import load_settings
from synapse.core.errors import ExternalAgentFailed, InvalidRequest
from synapse.core.message import Message, MessageId, Role, TextPart
from synapse.core.requests import AddExternal, ExternalAgent, ExternalAnswer, RemoveExternal, SendExternal
from synapse.external.agents import Externals
from synapse.external.client import open_externals

EXAMPLES = """
synapse external add http://other-agent:9000 --alias other
synapse external add https://agents.example.com --alias team --bearer-env TEAM_TOKEN
synapse external list
synapse external send other "process this task" --stream
synapse external send other "yes, continue" --task 4f1c…
synapse external cancel other 4f1c…
synapse external remove other
"""
STOPS = "stops waiting"
EXITS = {
    "failed": FAILED,
    "canceled": FAILED,
    "rejected": REFUSED,
    "input_required": WAITING_FOR_PERSON,
    "auth_required": WAITING_FOR_PERSON,
    "submitted": TIMED_OUT,
    "working": TIMED_OUT,
}


def run_external(arguments: list[str]) -> int:
    """Runs an action on external agents and returns the exit code."""
    options = _parser().parse_args(arguments)
    settings = load_settings()
    externals = open_externals(settings.home, allow_private=settings.allow_private_agents)
    try:
        return process.run(_ACTIONS[options.action](externals, options))
    except KeyboardInterrupt:
        if options.action != "send":
            raise
        print_notice(f"\nStopped waiting. {options.alias} may continue the task.  (synapse external list)")
        return INTERRUPTED


def _parser() -> VerbParser:
    parser = VerbParser("external", examples=EXAMPLES, json=False)
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION", parser_class=ActionParser)
    summaries = {
        "add": "find an agent by its card and save it",
        "list": "list the external agents",
        "send": "send a message and print the answer",
        "cancel": "cancel one of its tasks",
        "remove": "remove an external agent and its credentials",
    }
    add, _, send, cancel, remove = (
        actions.add_parser(name, help=text, examples=EXAMPLES, summary=text) for name, text in summaries.items()
    )
    add.add_argument("url", metavar="URL")
    add.add_argument("--alias", default="", help="its name here; taken from its card if not given")
    add.add_argument("--bearer-env", metavar="VARIABLE", help="the environment variable with its bearer token")
    add.add_argument("--api-key-env", metavar="VARIABLE", help="the environment variable with its key (X-API-Key)")
    add.add_argument(
        "--header", action="append", default=[], metavar="'NAME: @FILE'", help="send a header whose value is in a file"
    )
    send.add_argument("alias", metavar="ALIAS")
    send.add_argument("message", nargs="+", metavar="MESSAGE")
    send.add_argument("--timeout", type=seconds, default=60.0, metavar="SECONDS", help="how long to wait (60)")
    send.add_argument("--stream", action="store_true", help="print the answer as it arrives")
    send.add_argument("--task", default="", metavar="ID", help="continue this task of the agent")
    cancel.add_argument("alias", metavar="ALIAS")
    cancel.add_argument("task", metavar="TASK", help="the task's id at the agent")
    remove.add_argument("alias", metavar="ALIAS")
    return parser


async def _add(externals: Externals, options: Namespace) -> int:
    require_deciding_person("add or remove external agents")
    agent = await externals.add(AddExternal(url=options.url, alias=options.alias, credentials=_credentials(options)))
    if options.json:
        print_json(_fields(agent))
    else:
        print_notice(
            f'Added {agent.alias}: {plain(agent.name)} at {agent.url}  (synapse external send {agent.alias} "…")'
        )
    return DONE


async def _list(externals: Externals, options: Namespace) -> int:
    agents = await externals.list()
    if options.json:
        print_json([_fields(agent) for agent in agents])
    elif agents:
        rows = [(agent.alias, agent.name, agent.protocol, agent.url, agent.description) for agent in agents]
        print_result(table(("ALIAS", "NAME", "PROTOCOL", "URL", "DESCRIPTION"), rows, elastic=4))
    else:
        print_notice("There are no external agents.  (synapse external add URL)")
    return DONE


async def _send(externals: Externals, options: Namespace) -> int:
    text = TextPart(text=" ".join(options.message))
    message = Message(message_id=MessageId(""), role=Role.USER, parts=(text,))
    request = SendExternal(alias=options.alias, message=message, task_id=options.task)
    if options.stream:
        answer = await _streamed(externals, request, options)
    else:
        with LiveLine(f"waiting for {options.alias}", STOPS, as_json=options.json):
            answer = await externals.send(request, seconds=options.timeout)
        if options.json:
            print_json(asdict(answer))
        elif answer.text:
            print_result(safe(answer.text))
    if not answer.text and not options.json:
        print_notice(f"[→ {answer.alias}] {answer.state}  (its task {plain(answer.task_id)})")
    if EXITS.get(answer.state) == WAITING_FOR_PERSON:
        its_task = plain(answer.task_id)
        print_notice(
            f'{answer.alias} waits for an answer  (synapse external send {answer.alias} "…" --task {its_task})'
        )
    if EXITS.get(answer.state) == TIMED_OUT:
        print_notice(
            f"{answer.alias} did not finish within {options.timeout:g} s; the task continues  (--timeout waits longer)"
        )
    return EXITS.get(answer.state, DONE)


async def _streamed(externals: Externals, request: SendExternal, options: Namespace) -> ExternalAnswer:
    """Prints each part of the answer as it arrives (as JSON, one line each) and returns the last answer."""
    answer: ExternalAnswer | None = None
    shown = ""
    line = LiveLine(f"waiting for {options.alias}", STOPS, as_json=options.json)
    async with aclosing(externals.stream(request, seconds=options.timeout)) as answers:
        with line:
            async for answer in answers:
                if options.json:
                    print_json(asdict(answer))
                elif answer.text != shown:
                    line.end()  # from now on there is an answer to look at
                    # A rewritten answer is printed again, on a new line.
                    more = answer.text.removeprefix(shown) if answer.text.startswith(shown) else f"\n{answer.text}"
                    print_part(safe(more))
                    shown = answer.text
    if shown:
        print_result("")
    if answer is None:
        raise ExternalAgentFailed(f"'{request.alias}' sent no answer")
    return answer


async def _cancel(externals: Externals, options: Namespace) -> int:
    answer = await externals.cancel(options.alias, options.task)
    if options.json:
        print_json(asdict(answer))
    else:
        print_notice(f"[→ {answer.alias}] {answer.state}  (its task {plain(answer.task_id)})")
    return DONE


async def _remove(externals: Externals, options: Namespace) -> int:
    require_deciding_person("add or remove external agents")
    agent = await externals.remove(RemoveExternal(options.alias))
    if options.json:
        print_json(_fields(agent))
    else:
        print_notice(f"Removed {agent.alias}.")
    return DONE


_ACTIONS: Mapping[str, Callable[[Externals, Namespace], Coroutine[None, None, int]]] = {
    "add": _add,
    "list": _list,
    "send": _send,
    "cancel": _cancel,
    "remove": _remove,
}


def _credentials(options: Namespace) -> dict[str, str]:
    """Returns the headers that the options name. Secrets are never arguments: every user here could read them."""
    headers: dict[str, str] = {}
    if options.bearer_env:
        headers["Authorization"] = f"Bearer {_from_environment(options.bearer_env)}"
    if options.api_key_env:
        headers["X-API-Key"] = _from_environment(options.api_key_env)
    for header in options.header:
        name, _, file = (piece.strip() for piece in header.partition(":"))
        if not file.startswith("@"):
            raise InvalidRequest(
                "a header must be given as 'NAME: @FILE'", hint="every user of this machine can read command lines"
            )
        headers[name] = _from_file(Path(file[1:]))
    return headers


def _from_environment(name: str) -> str:
    value = os.environ.get(name, "").strip()
    if not value:
        raise InvalidRequest(f"the environment variable {name} is not set", hint=f"export {name}=… first")
    return value


def _from_file(path: Path) -> str:
    try:
        return path.expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"cannot read {path}: {getattr(error, 'strerror', 'it is not text')}") from error


def _fields(agent: ExternalAgent) -> dict[str, object]:
    """Returns the agent as `--json` shows it."""
    fields = asdict(agent)
    # Scripts know the key by the field's earlier name.
    fields["guarded"] = fields.pop("address_checked")
    return fields
