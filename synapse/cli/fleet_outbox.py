"""`synapse fleet outbox`: lists the messages of this machine to others that need a person, and takes one back."""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Final

from synapse.cli.exit_codes import DONE
from synapse.cli.output import print_json, print_notice, print_result
from synapse.cli.tables import table_with_notes
from synapse.client.lines import plain
from synapse.client.link import OPEN, SETTLED, UNCERTAIN, VOID, ask_link, knows_machines
from synapse.client.times import ago
from synapse.config.process import SystemClock
from synapse.core.errors import SynapseError, TaskNotCancelable
from synapse.core.json_text import object_in, objects_in

CANCELED: Final = "canceled"
EXPIRED: Final = "expired"
"""Why a message in the outbox is void (`fleet.outgoing`)."""
LISTED_FOR: Final = timedelta(days=1)
"""How long a message that came to nothing is listed without `--all`."""
_ORDER: Final = {OPEN: 0, UNCERTAIN: 1, "refused": 2, VOID: 2, "accepted": 3, SETTLED: 4}
"""Where messages of each state stand in the list: those that a person may have to act on are the first."""


def run_outbox(home: str, options: Namespace) -> int:
    """Lists the messages of this machine to others, or takes one back; returns the exit code."""
    if options.cancel:
        return _take_back(home, options)
    told = ask_link(home, "GET", "/fleet/outbox")
    messages = objects_in(told, "messages")
    _add_reasons(messages, home)
    if options.json:
        print_json(told)
        return DONE
    for row in messages:
        if _is_cancel(row) and _text(row, "state") == OPEN:
            row["why"] = ""  # which tells why the message was canceled, not why the cancel waits
    _add_reasons(messages, home)
    now = SystemClock().now()
    listed = [row for row in messages if options.all or _is_listed(row, now)]
    listed.sort(key=lambda row: _ORDER.get(_text(row, "state"), len(_ORDER)))
    if listed:
        titles = ("TASK", "TO", "KIND", "STATE", "SENT", "EXPIRES", "TRIES", "WHY")
        print_result(table_with_notes(titles, [_outbox_row(row, now) for row in listed], elastic=1, whole=0))
    elif options.all:
        print_notice("No message was sent to another machine in the last eight days.")
    else:
        print_notice("No message to another machine waits.  (--all lists those of eight days)")
    left_out = [row for row in messages if row not in listed and _text(row, "state") != SETTLED]
    if left_out:
        counts = sorted(Counter(_shown_state(row) for row in left_out).items())
        print_notice(f"Not listed: {', '.join(f'{count} {state}' for state, count in counts)}.  (--all)")
    return DONE


def _is_listed(row: Mapping[str, Any], now: datetime) -> bool:
    """Decides whether a person needs to see a message: it is open, or came to nothing less than a day ago."""
    state = _text(row, "state")
    if state in {"accepted", SETTLED}:
        return False
    try:
        return state == OPEN or now - datetime.fromisoformat(_text(row, "changed_at")) < LISTED_FOR
    except (ValueError, TypeError):
        return True


def _outbox_row(row: Mapping[str, Any], now: datetime) -> tuple[str, ...]:
    state, why = _shown_state(row), _text(row, "why")
    return (
        _text(row, "task_id")[:8],
        _text(row, "target"),
        "cancel" if _is_cancel(row) else _text(row, "kind"),
        state,
        ago(row.get("created_at"), now),
        # Only a message that no machine has accepted can expire.
        ago(row.get("expires_at"), now) if state == OPEN and not _is_cancel(row) else "-",
        str(row.get("attempts", "")),
        "" if why in {state, CANCELED} else why,
    )


def _is_cancel(row: Mapping[str, Any]) -> bool:
    return _text(row, "kind") == VOID


def _shown_state(row: Mapping[str, Any]) -> str:
    """Returns the state in words for people: a message that is void was taken back, or has expired."""
    state = _text(row, "state")
    if state != VOID:
        return state
    return EXPIRED if _text(row, "why") == EXPIRED else "taken back"


def _take_back(home: str, options: Namespace) -> int:
    """Takes a message back. Raises TaskNotCancelable if that is not possible any more."""
    row = object_in(ask_link(home, "POST", "/fleet/outbox/cancel", {"task_id": options.cancel}), "message")
    state = _text(row, "state")
    if state not in (OPEN, VOID):
        raise _cannot_be_taken_back(row)
    if options.json:
        print_json(row)
        return DONE
    state = _shown_state(row) if state == VOID else f"taken back; {_text(row, 'to')} has yet to confirm it"
    print_notice(f"{_text(row, 'task_id')[:8]} to {_text(row, 'target')}: {state}")
    return DONE


def _cannot_be_taken_back(row: Mapping[str, Any]) -> TaskNotCancelable:
    task, to, target, state, why = (_text(row, name) for name in ("task_id", "to", "target", "state", "why"))
    short = task[:8]
    meaning, hint = {
        "accepted": (f"{to} has taken it", f"`synapse cancel {short}` cancels its task"),
        SETTLED: ("its task has ended", f"`synapse status {short}` shows how"),
        "refused": ("no agent has got it", "send it again if it is still wanted"),
        "uncertain": ("it may have arrived", f"look at {target}; nothing is sent again by itself"),
    }.get(state, ("it cannot be taken back", "`synapse fleet outbox` lists it"))
    reason = f" ({why})" if why else ""
    return TaskNotCancelable(f"message {short} to {target} is {state}: {meaning}{reason}", hint=hint)


def _add_reasons(messages: list[dict[str, Any]], home: str) -> None:
    """Adds why messages wait, as far as the link can tell."""
    waiting = [row for row in messages if row.get("state") == OPEN and not row.get("why")]
    if not waiting:
        return
    with suppress(SynapseError):
        told = ask_link(home, "GET", "/fleet/status")
        machines = {_text(machine, "name"): machine for machine in objects_in(told, "machines")}
        for row in waiting:
            to = _text(row, "to")
            row["why"] = f"{to} has not taken it yet" if machines.get(to, {}).get("present") else f"{to} is away"
            if not told.get("connected"):
                row["why"] = "this machine has no connection"
            elif to not in machines and knows_machines(told):
                row["why"] = f"{to} is not in the fleet"


def _text(fields: Mapping[str, Any], name: str) -> str:
    return plain(str(fields.get(name) or ""))
