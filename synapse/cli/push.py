"""`synapse push`: lists the webhooks of tasks and the delivery of each notification."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from synapse.cli.output import print_json, print_notice, print_result
from synapse.cli.parser import ActionParser, VerbParser, whole_number
from synapse.cli.tables import table
from synapse.client.hosts import current_folder
from synapse.client.lines import plain
from synapse.client.times import ago
from synapse.config import process
from synapse.config.process import SystemClock
from synapse.config.settings import load_settings
from synapse.core.push import Delivery, Push, shown_url
from synapse.core.task import SHORT_ID_LENGTH
from synapse.host.open_store import open_store, require_no_lost_store

EXAMPLES = """
synapse push list
synapse push list --limit 500 --json
"""
TITLES = ("TASK", "EVENT", "STATE", "TRIES", "HTTP", "TRIED", "NEXT", "WEBHOOK", "ERROR")
WAITING = "waiting"


def run_push(arguments: list[str]) -> int:
    """Lists push notifications and returns the exit code."""
    parser = VerbParser("push", examples=EXAMPLES, json=False)
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION", parser_class=ActionParser)
    summary = "list the deliveries to webhooks, latest first"
    listing = actions.add_parser("list", help=summary, examples=EXAMPLES, summary=summary)
    listing.add_argument("--limit", type=whole_number(1), default=100, metavar="N", help="how many to show (100)")
    options = parser.parse_args(arguments)
    known = process.run(_deliveries(options.limit))
    if options.json:
        print_json([_fields(push, delivery) for push, delivery in known])
    elif known:
        now = SystemClock().now()
        print_result(table(TITLES, [_row(push, delivery, now) for push, delivery in known], elastic=8))
    else:
        print_notice("There are no push notifications.  (docs/howto/push-notifications.md)")
    return 0


async def _deliveries(limit: int) -> list[tuple[Push, Delivery | None]]:
    settings = load_settings(folder=current_folder())
    require_no_lost_store(settings)
    if not settings.store.exists():
        return []
    store = await open_store(settings)
    try:
        return list(await store.pushes.deliveries(limit))
    finally:
        await store.close()


def _fields(push: Push, delivery: Delivery | None) -> dict[str, Any]:
    """Returns the `--json` object, without token and credentials and with the secret parts of the URL removed."""
    about = {"task": push.task_id, "config": push.config.id, "url": shown_url(push.config.url)}
    if delivery is None:
        return {**about, "state": WAITING, "attempts": 0}
    return {
        **about,
        "event": delivery.seq,
        "state": delivery.state.value,
        "attempts": delivery.attempts,
        "status": delivery.status or None,
        "error": delivery.error,
        "last_try": delivery.at.isoformat(),
        "next_try": delivery.next_try.isoformat() if delivery.next_try else None,
    }


def _row(push: Push, delivery: Delivery | None, now: datetime) -> tuple[str, ...]:
    task, url = push.task_id[:SHORT_ID_LENGTH], plain(shown_url(push.config.url))
    if delivery is None:
        return (task, "", WAITING, "0", "", "", "", url, "")
    return (
        task,
        str(delivery.seq),
        delivery.state.value,
        str(delivery.attempts),
        str(delivery.status or ""),
        ago(delivery.at, now),
        ago(delivery.next_try, now),
        url,
        plain(delivery.error),
    )
