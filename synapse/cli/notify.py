"""`synapse notify`: tries the notices that agents send outside of the terminal, and lists those that were sent."""

from __future__ import annotations

import asyncio
import os
from argparse import Namespace
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from synapse.cli.exit_codes import DONE, FAILED
from synapse.cli.output import print_json, print_notice, print_result
from synapse.cli.parser import ActionParser, VerbParser, whole_number
from synapse.cli.tables import table
from synapse.client.lines import plain
from synapse.client.times import ago
from synapse.config import process
from synapse.config.process import SystemClock, new_id
from synapse.config.settings import load_settings
from synapse.core.push import shown_url
from synapse.notices.log import Result
from synapse.notices.outlets import Outlet, OutletFailed, desktop_program
from synapse.notices.rules import Kind, Notice
from synapse.notices.sender import Notices, open_notices

EXAMPLES = """
synapse notify test                  send one notice everywhere, and say what became of it
synapse notify rules                 what is sent, where to, and when it is quiet
synapse notify log --limit 20        the last notices: sent, suppressed, failed, withdrawn
"""
TITLES = ("AT", "AGENT", "KIND", "OUTLET", "RESULT", "WHY")
NO_OUTLET = (
    "No notice would be sent: there is no notify-send with a desktop here, and neither notify_webhook nor notify_ntfy "
    "is set.  (docs/howto/notices.md)"
)


def run_notify(arguments: list[str]) -> int:
    """Runs an action on notices and returns the exit code."""
    parser = VerbParser("notify", examples=EXAMPLES, json=False)
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION", parser_class=ActionParser)
    summaries = {
        "test": "send one notice to every outlet, and withdraw it",
        "rules": "show the rules and the outlets",
        "log": "list the last notices and what became of them",
    }
    *_, log = (actions.add_parser(name, help=text, examples=EXAMPLES, summary=text) for name, text in summaries.items())
    log.add_argument("--limit", type=whole_number(1), default=50, metavar="N", help="how many to show (50)")
    options = parser.parse_args(arguments)
    return _ACTIONS[options.action](open_notices(load_settings(), os.environ), options)


def _test(notices: Notices, options: Namespace) -> int:
    results = process.run(_try_all(notices)) if notices.outlets else []
    if options.json:
        print_json(results)
    elif not results:
        print_notice(NO_OUTLET)
    for result in () if options.json else results:
        print_result(plain(f"{result['outlet']}: {result['result']}" + (f", {result['why']}" if result["why"] else "")))
    return DONE if results and all(result["result"] == Result.SENT for result in results) else FAILED


async def _try_all(notices: Notices) -> list[dict[str, str]]:
    notice = Notice(
        id=f"test:{new_id()}", kind=Kind.ASKS, agent_id="synapse-test", agent="synapse", text="This is only a test."
    )
    return list(await asyncio.gather(*(_try(outlet, notice, notices) for outlet in notices.outlets)))


async def _try(outlet: Outlet, notice: Notice, notices: Notices) -> dict[str, str]:
    """Sends the notice and withdraws it; returns what became of it, and records both."""
    clock = SystemClock()
    try:
        await outlet.show(notice)
    except OutletFailed as failure:
        notices.log.append(notice, outlet.name, Result.FAILED, clock.now(), str(failure))
        return {"outlet": outlet.name, "result": Result.FAILED.value, "why": str(failure)}
    notices.log.append(notice, outlet.name, Result.SENT, clock.now())
    why = ""
    try:
        await outlet.withdraw(notice.id)
    except OutletFailed as failure:
        why = f"but it cannot be withdrawn there: {failure}"
    notices.log.append(notice, outlet.name, Result.WITHDRAWN, clock.now(), why)
    return {"outlet": outlet.name, "result": Result.SENT.value, "why": why}


def _rules(_notices: Notices, options: Namespace) -> int:
    settings = load_settings()
    addresses = {"webhook": settings.notify_webhook, "ntfy": settings.notify_ntfy}
    desktop = desktop_program(os.environ) if settings.notify_desktop else ""
    fields = {
        "on": settings.notify_on,
        "agents": settings.notify_agents,
        "quiet": settings.notify_quiet,
        "desktop": desktop or ("no notify-send, or no desktop" if settings.notify_desktop else "off"),
        **{name: shown_url(url) if "://" in url else url for name, url in addresses.items()},
        "text": "sent to webhook and ntfy" if settings.notify_text else "kept on this machine",
    }
    if options.json:
        print_json(fields)
        return DONE
    for name, value in fields.items():
        print_result(f"{name:<8} {plain(value)}")
    return DONE


def _log(notices: Notices, options: Namespace) -> int:
    records = list(notices.log.records())[-options.limit :]
    if options.json:
        print_json(records)
    elif records:
        now = SystemClock().now()
        print_result(table(TITLES, [_row(record, now) for record in records], elastic=5))
    else:
        print_notice("No notice was sent yet.  (synapse notify test)")
    return DONE


def _row(record: Mapping[str, Any], now: datetime) -> tuple[str, ...]:
    keys = ("agent", "kind", "outlet", "result", "why")
    return (ago(record.get("at"), now), *(str(record.get(key, "")) for key in keys))


_ACTIONS: Mapping[str, Callable[[Notices, Namespace], int]] = {"test": _test, "rules": _rules, "log": _log}
