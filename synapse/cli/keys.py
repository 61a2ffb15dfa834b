"""`synapse keys`: creates, lists and revokes the API keys of the gateway."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from synapse.auth.api_keys import PREFIX, ApiKey, Grant, KeyFile, checked_actions, read_expiry
from synapse.cli.exit_codes import DONE
from synapse.cli.output import print_json, print_notice, print_result
from synapse.cli.parser import ActionParser, VerbParser
from synapse.cli.person import require_deciding_person
from synapse.cli.tables import table
from synapse.client.lines import plain
from synapse.client.times import ago
from synapse.config.process import SystemClock
from synapse.config.settings import load_settings
from synapse.core.address import on_machine
from synapse.core.caller import ACTIONS, ATTACH, LOCAL_SCOPE, ORDINARY

EXAMPLES = """
synapse keys create ci
synapse keys create reader --agents claude,codex --actions read --expires 30d
synapse keys create operator --actions all --all-tasks
synapse keys list
synapse keys revoke ci
"""
ALL = "all"


def run_keys(arguments: list[str]) -> int:
    """Runs an action on API keys and returns the exit code."""
    options = _parser().parse_args(arguments)
    return _ACTIONS[options.action](KeyFile(load_settings().home, SystemClock()), options)


def _parser() -> VerbParser:
    parser = VerbParser("keys", examples=EXAMPLES, json=False)
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION", parser_class=ActionParser)
    summaries = {
        "create": "create a key and print it once",
        "list": "list the keys, without their secrets",
        "revoke": "revoke a key; a running gateway refuses it at once",
    }
    create, _, revoke = (
        actions.add_parser(name, help=text, examples=EXAMPLES, summary=text) for name, text in summaries.items()
    )
    create.add_argument("name", metavar="NAME")
    create.add_argument(
        "--agents", default="", metavar="A,B", help="allow only these agents, by their names at the gateway"
    )
    allowed = f"`all`, or some of {', '.join(ACTIONS)} (default {','.join(ORDINARY)})"
    create.add_argument("--actions", default=",".join(ORDINARY), metavar="X,Y", help=allowed)
    create.add_argument("--expires", default="", metavar="WHEN", help="30d, 12h, or a date such as 2030-01-01")
    sees = create.add_mutually_exclusive_group()
    sees.add_argument("--scope", choices=[LOCAL_SCOPE], default="", help="share the tasks of this machine's user")
    sees.add_argument("--all-tasks", action="store_true", help="see the tasks of all callers, not only its own")
    revoke.add_argument("name", metavar="NAME")
    return parser


def _create(keys: KeyFile, options: Namespace) -> int:
    # An agent must not give itself or others access to the gateway.
    require_deciding_person("create or revoke API keys")
    grant = Grant(
        actions=checked_actions(ACTIONS if options.actions == ALL else _words(options.actions)),
        agents=frozenset(_words(options.agents)) if options.agents else None,
        expires_at=read_expiry(options.expires, SystemClock().now()) if options.expires else None,
        scope=options.scope,
        all_tasks=options.all_tasks,
    )
    key, text = keys.create(options.name, grant)
    if options.json:
        print_json({**_fields(key, None), "key": text})
    else:
        print_result(text)
        print_notice(f"Key '{key.name}' created. It is shown only once.  (synapse keys revoke {key.name})")
    return DONE


def _list(keys: KeyFile, options: Namespace) -> int:
    known = [(key, keys.last_used(key.key_id)) for key in keys.all()]
    # Those of the other gateways of the fleet count here, too.
    for machine, key in keys.mirrored():
        known.append((replace(key, name=on_machine(key.name, machine)), keys.last_used(key.key_id)))
    if options.json:
        print_json([_fields(key, used) for key, used in known])
    elif known:
        titles = ("NAME", "KEY", "ACTIONS", "AGENTS", "TASKS", "CREATED", "EXPIRES", "LAST USED")
        now = SystemClock().now()
        print_result(table(titles, [_row(key, used, now) for key, used in known], elastic=3))
    else:
        print_notice("There are no API keys.  (synapse keys create NAME)")
    return DONE


def _revoke(keys: KeyFile, options: Namespace) -> int:
    # An agent must not give itself or others access to the gateway.
    require_deciding_person("create or revoke API keys")
    # The key of another machine by the name that `list` shows, NAME@MACHINE: here, another key may have its name.
    key = replace(keys.revoke(options.name), name=options.name)
    if options.json:
        print_json(_fields(key, None))
    else:
        print_notice(f"Key '{key.name}' revoked.")
    return DONE


_ACTIONS: Mapping[str, Callable[[KeyFile, Namespace], int]] = {
    "create": _create,
    "list": _list,
    "revoke": _revoke,
}


def _words(text: str) -> list[str]:
    return [word for piece in text.split(",") if (word := piece.strip())]


def _fields(key: ApiKey, used: datetime | None) -> dict[str, Any]:
    return {
        "name": key.name,
        "prefix": f"{PREFIX}{key.key_id}",
        # A key without limits gets no terminal; see `Caller.is_granted`.
        "actions": sorted(key.actions) if key.actions is not None else [one for one in ACTIONS if one != ATTACH],
        "agents": sorted(key.agents) if key.agents is not None else None,
        "scope": key.caller().scope,
        "all_tasks": key.all_tasks,
        "created": _time(key.created_at),
        "expires": _time(key.expires_at) or None,
        "last_used": _time(used) or None,
    }


def _row(key: ApiKey, used: datetime | None, now: datetime) -> tuple[str, ...]:
    return (
        key.name,
        f"{PREFIX}{key.key_id}…",
        ALL if key.actions is None or key.actions == frozenset(ACTIONS) else ",".join(sorted(key.actions)),
        "all" if key.agents is None else plain(",".join(sorted(key.agents))),
        "all" if key.all_tasks else key.scope or "own",
        ago(key.created_at, now),
        ago(key.expires_at, now) or "never",
        ago(used, now) or "never",
    )


def _time(moment: datetime | None) -> str:
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z") if moment else ""
