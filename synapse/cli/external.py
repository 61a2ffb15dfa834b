"""`synapse external`: agents elsewhere, found by their card and spoken to over A2A."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict

from synapse.cli.exit_codes import DONE, FAILED, INTERRUPTED, REFUSED, TIMED_OUT, WAITING_FOR_PERSON
from synapse.cli.render import plain, safe, table
from synapse.cli.speech import give, give_json, say
from synapse.cli.verb_parser import VerbParser
from synapse.core.message import Message, MessageId, Role, TextPart
from synapse.core.requests import AddExternal, RemoveExternal, SendExternal
from synapse.core.status import ExternalAgent
from synapse.runtime.externals import open_externals
from synapse.runtime.settings import load_settings
from synapse.service.externals import Externals

EXAMPLES = """
synapse external add http://other-agent:9000 --alias other
synapse external list
synapse external send other "process this task"
synapse external remove other
"""
EXITS = {
    "failed": FAILED,
    "canceled": FAILED,
    "rejected": REFUSED,
    "input_required": WAITING_FOR_PERSON,
    "auth_required": WAITING_FOR_PERSON,
    "submitted": TIMED_OUT,
    "working": TIMED_OUT,
}


def run(arguments: list[str]) -> int:
    """Do what is asked about external agents and return the exit code."""
    options = _parser().parse_args(arguments)
    externals = open_externals(load_settings().home)
    try:
        return asyncio.run(_act(externals, options))
    except KeyboardInterrupt:
        if options.action != "send":
            raise
        say(f"\nno longer waiting; {options.alias} may go on with what was sent  (synapse external list)")
        return INTERRUPTED


def _parser() -> VerbParser:
    parser = VerbParser("external", examples=EXAMPLES, json=False)
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION", parser_class=_ActionParser)
    summaries = {
        "add": "find an agent by its card and remember it",
        "list": "the known external agents",
        "send": "send a message and print the answer",
        "remove": "forget an external agent",
    }
    add, _, send, remove = (actions.add_parser(name, help=text, summary=text) for name, text in summaries.items())
    add.add_argument("url", metavar="URL")
    add.add_argument("--alias", default="", help="the name to call it by; from its card if not given")
    send.add_argument("alias", metavar="ALIAS")
    send.add_argument("message", nargs="+", metavar="MESSAGE")
    send.add_argument("--timeout", type=float, default=60.0, metavar="SECONDS", help="how long to wait (60)")
    remove.add_argument("alias", metavar="ALIAS")
    return parser


class _ActionParser(VerbParser):
    """The parser of one action; argparse names it by itself."""

    def __init__(self, prog: str, summary: str) -> None:
        super().__init__(prog.removeprefix("synapse "), examples=EXAMPLES, summary=summary)


async def _act(externals: Externals, options: Namespace) -> int:
    return await _ACTIONS[options.action](externals, options)


async def _add(externals: Externals, options: Namespace) -> int:
    agent = await externals.add(AddExternal(url=options.url, alias=options.alias))
    if options.json:
        give_json(asdict(agent))
    else:
        say(f'{agent.alias}: {plain(agent.name)} at {agent.url}  (synapse external send {agent.alias} "…")')
    return DONE


async def _list(externals: Externals, options: Namespace) -> int:
    agents = await externals.list()
    if options.json:
        give_json([asdict(agent) for agent in agents])
    elif agents:
        give(table(("ALIAS", "NAME", "PROTOCOL", "URL", "DESCRIPTION"), [_row(agent) for agent in agents], elastic=4))
    else:
        say("no external agent is known  (synapse external add URL)")
    return DONE


async def _send(externals: Externals, options: Namespace) -> int:
    text = TextPart(text=" ".join(options.message))
    message = Message(message_id=MessageId(""), role=Role.USER, parts=(text,))
    answer = await externals.send(SendExternal(alias=options.alias, message=message), seconds=options.timeout)
    if options.json:
        give_json(asdict(answer))
    elif answer.text:
        give(safe(answer.text))
    else:
        say(f"[→ {answer.alias}] {answer.state}  (its task {answer.task_id})")
    if EXITS.get(answer.state) == TIMED_OUT:
        say(f"{answer.alias} has not finished within {options.timeout:g} s; it goes on  (--timeout waits longer)")
    return EXITS.get(answer.state, DONE)


async def _remove(externals: Externals, options: Namespace) -> int:
    agent = await externals.remove(RemoveExternal(options.alias))
    if options.json:
        give_json(asdict(agent))
    else:
        say(f"{agent.alias} is forgotten")
    return DONE


_ACTIONS: Mapping[str, Callable[[Externals, Namespace], Awaitable[int]]] = {
    "add": _add,
    "list": _list,
    "send": _send,
    "remove": _remove,
}


def _row(agent: ExternalAgent) -> tuple[str, ...]:
    return (agent.alias, agent.name, agent.protocol, agent.url, agent.description)
