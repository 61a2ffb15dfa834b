"""`synapse usage`: what turns cost, in tokens, and in money where a CLI tells it."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Final

from synapse.cli.output import print_json, print_notice, print_result
from synapse.cli.parser import VerbParser
from synapse.cli.tables import table
from synapse.cli.task_lookup import SHORT_ID, find_task
from synapse.client.hosts import find_local_agent, open_registry
from synapse.client.lines import short_number
from synapse.client.times import ago
from synapse.config.process import SystemClock
from synapse.config.settings import load_settings
from synapse.core.address import matching
from synapse.core.errors import AmbiguousTask
from synapse.core.usage import UsageGroup, UsageRow, UsageTotal, usage_object
from synapse.dialects.proto_json import instant
from synapse.store.usage import UsageQuery, known_agents, read_usage, tasks_beginning, usage_path

EXAMPLES = """
synapse usage                      each agent, since counting began
synapse usage codex                codex, day by day
synapse usage --since 7d --by day  the last seven days of all agents
synapse usage --task 54241e7e      one task, turn by turn
synapse usage --by model --json
"""
_UNITS: Final = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_COUNT_TITLES: Final = ("CALLS", "INPUT", "CACHED", "WRITTEN", "OUTPUT", "COST")
_KEY_TITLES: Final = {
    UsageGroup.TURN: ("AGENT", "TASK", "WHEN"),
    UsageGroup.TASK: ("AGENT", "TASK"),
    UsageGroup.AGENT: ("AGENT",),
    UsageGroup.DAY: ("DAY",),
    UsageGroup.MODEL: ("MODEL",),
}
_BY_SESSION: Final = "claude"
"""The CLI that tells the cost of whole sessions only."""
_NOTHING: Final = (
    "No usage is known{of}{since}. Synapse counts what Claude Code, Codex, Gemini, OpenCode and Copilot tell."
)


def run_usage(arguments: list[str]) -> int:
    """Shows what turns cost and returns the exit code."""
    parser = VerbParser("usage", examples=EXAMPLES)
    parser.add_argument("agent", nargs="?", metavar="AGENT", default="")
    parser.add_argument("--task", metavar="ID", default="", help="only the turns of this task")
    parser.add_argument(
        "--by",
        choices=[group.value for group in UsageGroup],
        help="what to add up (agent; with AGENT: day; with --task: turn)",
    )
    parser.add_argument(
        "--since", type=_moment, metavar="TIME", help="only the last 12h, 7d or 4w, or since 2026-11-01"
    )
    options = parser.parse_args(arguments)
    path = usage_path(load_settings().home)
    by = UsageGroup(options.by or ("turn" if options.task else "day" if options.agent else "agent"))
    inboxes = _inboxes_of(options.agent, path) if options.agent else None
    task = _task_of(options.task, path) if options.task else ""
    wanted = UsageQuery(by=by, inboxes=inboxes, task=task, since=options.since)
    rows = read_usage(path, wanted)
    total = sum((row.total for row in rows), UsageTotal())
    if options.json:
        print_json(
            {
                "by": by.value,
                "since": instant(options.since) if options.since else None,
                "rows": [{**row.key, "last": instant(row.last), **usage_object(row.total)} for row in rows],
                "total": usage_object(total),
            }
        )
        return 0
    if not rows:
        of = f" of {options.agent or 'task ' + task[:SHORT_ID]}" if options.agent or task else ""
        print_notice(_NOTHING.format(of=of, since=" in that time" if options.since else " yet"))
        return 0
    print_result(_as_table(by, rows, total))
    of_agents = read_usage(path, UsageQuery(by=UsageGroup.AGENT, inboxes=inboxes, task=task, since=options.since))
    for line in cost_notes(by, of_agents):
        print_notice(line)
    return 0


def cost_notes(by: UsageGroup, of_agents: Sequence[UsageRow]) -> list[str]:
    """Returns which costs are missing, and why; `of_agents` is the usage by agent."""
    silent = {row.key["agent_type"] for row in of_agents if row.total.unpriced}
    lines: list[str] = []
    if others := sorted(silent - {_BY_SESSION}):
        lines.append(f"cost: not told by {', '.join(others)}")
    is_split = by not in (UsageGroup.AGENT, UsageGroup.DAY)
    if _BY_SESSION in silent or (is_split and any(row.key["agent_type"] == _BY_SESSION for row in of_agents)):
        where = " (--by agent, --by day)" if is_split else ""
        lines.append(f"cost: {_BY_SESSION} tells it for a whole session, at its end{where}")
    return lines


def _as_table(by: UsageGroup, rows: Sequence[UsageRow], total: UsageTotal) -> str:
    now = SystemClock().now()
    keys = [_key_cells(by, row, now) for row in rows]
    counts = [_count_cells(row.total) for row in rows]
    if len(rows) > 1:
        keys.append(("in all", *[""] * (len(_KEY_TITLES[by]) - 1)))
        counts.append(_count_cells(total))
    columns = [max(map(len, column)) for column in zip(_COUNT_TITLES, *counts, strict=True)]

    def aligned(cells: Sequence[str]) -> list[str]:
        return [cell.rjust(width) for cell, width in zip(cells, columns, strict=True)]

    body = [(*key, *aligned(cells)) for key, cells in zip(keys, counts, strict=True)]
    return table((*_KEY_TITLES[by], *aligned(_COUNT_TITLES)), body, elastic=0)


def _key_cells(by: UsageGroup, row: UsageRow, now: datetime) -> tuple[str, ...]:
    key = row.key
    match by:
        case UsageGroup.AGENT:
            return (key["agent"],)
        case UsageGroup.DAY:
            return (key["day"],)
        case UsageGroup.MODEL:
            return (key["model"] or "unknown",)
        case UsageGroup.TASK:
            return (key["agent"], key["task"][:SHORT_ID] or "none")
        case UsageGroup.TURN:
            return (key["agent"], key["task"][:SHORT_ID] or "none", ago(row.last, now))


def _count_cells(total: UsageTotal) -> tuple[str, ...]:
    tokens = total.tokens
    counts = (tokens.input, tokens.cache_read, tokens.cache_write, tokens.output)
    return (str(total.requests), *map(short_number, counts), dollars(total.cost))


def dollars(cost: Decimal | None) -> str:
    """Returns an amount for people; `-` if it is not known."""
    if cost is None:
        return "-"
    return f"${cost:.2f}" if cost >= 1 or not cost else f"${cost:.4f}"


def _inboxes_of(target: str, path: Path) -> tuple[str, ...]:
    """Returns the inboxes of all agents that `target` may mean, running or not. Raises AgentNotFound."""
    found = matching(target, known_agents(path))
    if found:
        return tuple(entry.inbox for entry in found)
    return (find_local_agent(target, open_registry(), "usage").inbox,)


def _task_of(prefix: str, path: Path) -> str:
    """Returns the id of the task that `prefix` names. Raises TaskNotFound or AmbiguousTask."""
    found = tasks_beginning(path, prefix)
    if len(found) > 1:
        raise AmbiguousTask(prefix, list(map(str, found)))
    return found[0] if found else str(find_task(prefix, open_registry())[1].get("id", ""))


def _moment(text: str) -> datetime:
    """Reads 12h, 7d, 4w, or a date, on which the day begins where this machine is."""
    now = SystemClock().now()
    if found := re.fullmatch(r"(\d{1,6})([mhdw])", text):
        try:
            return now - timedelta(seconds=int(found[1]) * _UNITS[found[2]])
        except OverflowError:
            pass
    try:
        return datetime.combine(date.fromisoformat(text), time.min).astimezone()
    except (ValueError, OverflowError) as error:
        example = f"{now:%Y}-01-31"
        raise ArgumentTypeError(
            f"must be a time such as 12h, 7d or 4w, or a date such as {example}, not '{text}'"
        ) from error
