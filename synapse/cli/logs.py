"""`synapse logs`: shows an agent's log: its host's log file and the events of its tasks, also after it has stopped.

Neither contains the text of messages. The file has starts, states and refusals; deliveries with their receipts are in
the store already, so the host does not log them again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
from collections import deque
from collections.abc import Iterable
from contextlib import AsyncExitStack, aclosing, closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, cast

from synapse.cli.output import print_json, print_notice, print_result
from synapse.cli.parser import VerbParser, whole_number
from synapse.cli.tables import line_width
from synapse.cli.watch import logged, updates_of
from synapse.client.hosts import open_gateways, open_registry, require_local
from synapse.client.lines import cut, plain
from synapse.config import process
from synapse.config.process import SystemClock
from synapse.config.settings import Settings, load_settings
from synapse.core.address import matching
from synapse.core.errors import AmbiguousTarget, NotFound
from synapse.core.events import TaskEvent
from synapse.core.store import TaskQuery, TaskStore
from synapse.core.waiting import pause
from synapse.host.open_store import open_store
from synapse.registry.files import FileRegistry
from synapse.tasks.feed import Feed, LogFollower
from synapse.tasks.journal import Journal

EXAMPLES = """
synapse logs codex                  starts, states, deliveries and refusals
synapse logs codex --since 1h       the last hour
synapse logs codex -n 200
synapse logs codex -f               follow until Ctrl-C
"""
SHORT_ID: Final = 8
_WORD_COLUMNS: Final = 14
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_NOT_SHOWN: Final = frozenset({"at", "level", "event", "room", "logger", "traceback"})
_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)
_FOLLOW_SECONDS: Final = 0.25


@dataclass(frozen=True, slots=True)
class LoggedAgent:
    """An agent with log files, and the inbox of its tasks."""

    agent_id: str
    files: tuple[Path, ...]
    inbox: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the log."""

    at: datetime
    event: str
    detail: str = ""
    task_id: str = ""
    fields: dict[str, Any] = field(default_factory=dict[str, Any])

    def as_json(self) -> dict[str, Any]:
        """Returns what the host logged, or an object for the event of a task."""
        at = self.at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return self.fields or {"at": at, "event": self.event, "task": self.task_id, "detail": self.detail}

    def as_line(self) -> str:
        """Returns a line for people; an entry without a time is shown as it is."""
        if self.at == _LONG_AGO:
            return plain(self.detail)
        task = self.task_id[:SHORT_ID]
        at = self.at.astimezone().isoformat(" ", "milliseconds")[5:-6]
        line = f"{at}  {task:{SHORT_ID}}  {self.event:{_WORD_COLUMNS}}  {self.detail}"
        return plain(line).rstrip()


def run_logs(arguments: list[str]) -> int:
    """Shows a log and returns the exit code."""
    parser = VerbParser("logs", examples=EXAMPLES)
    parser.add_argument("agent", metavar="AGENT")
    parser.add_argument("-f", "--follow", action="store_true", help="keep printing new entries")
    parser.add_argument("-n", "--lines", type=whole_number(0), default=50, help="how many entries to show (50)")
    parser.add_argument("--since", type=duration, metavar="TIME", help="show only the last 30s, 15m, 2h or 1d")
    options = parser.parse_args(arguments)
    settings = load_settings()
    registry = open_registry()
    agent = find_logs(require_local(options.agent, registry, "logs"), (registry, open_gateways()), settings.logs)
    after = SystemClock().now() - options.since if options.since else _LONG_AGO
    return process.run(_show(agent, settings, options, after))


async def _show(agent: LoggedAgent, settings: Settings, options: argparse.Namespace, after: datetime) -> int:
    async with AsyncExitStack() as stack:
        files = [stack.enter_context(closing(_GrowingFile(path))) for path in agent.files]
        store = await open_store(settings) if settings.store.exists() else None
        if store is not None:
            stack.push_async_callback(store.close)
        # Events up to `seq` are shown now and later ones are followed, so that none is lost in between.
        seq = await store.last_seq() if store else 0
        task_entries = await _task_entries(store, agent, options.lines, after, seq) if store else []
        lines = [line for file in files for line in file.last_lines(options.lines)]
        entries = sorted((*map(file_entry, lines), *task_entries), key=lambda entry: entry.at)
        entries = [entry for entry in entries if entry.at >= after][-options.lines :] if options.lines else []
        if options.json and not options.follow:
            print_json(
                {"files": [*map(str, agent.files)], "lines": lines, "entries": [one.as_json() for one in entries]}
            )
            return 0
        if not entries and not options.follow:
            when = "in that time" if options.since else "yet"
            print_notice(f"Nothing was logged {when}.  ({', '.join(map(str, agent.files))})")
        _print(entries, as_json=options.json)
        if options.follow:
            async with asyncio.TaskGroup() as group:
                for file in files:
                    group.create_task(_follow_file(file, as_json=options.json))
                if store is not None:
                    group.create_task(_follow_tasks(agent, store, seq, as_json=options.json))
    return 0


def _print(entries: Iterable[Entry], *, as_json: bool) -> None:
    for entry in entries:
        if as_json:
            print_json(entry.as_json())
        else:
            print_result(cut(entry.as_line(), line_width()))


def find_logs(target: str, registries: Iterable[FileRegistry], folder: Path) -> LoggedAgent:
    """Returns the logs of the agent that `target` names: a running one, else one that has left its log.

    Raises:
        NotFound: no agent of that name has a log.
        AmbiguousTarget: several match.
    """
    written = [entry for registry in registries for entry in registry.written()]
    # An in-process agent logs to its gateway's file.
    running = {entry.agent_id: (entry.gateway or entry.agent_id, entry.inbox) for entry in matching(target, written)}
    agents = running or {agent_id: (agent_id, "") for agent_id in _past_agents(target, folder)}
    if len(agents) > 1:
        raise AmbiguousTarget(target, sorted(agents))
    for agent_id, (writer, inbox) in agents.items():
        files = tuple(path for suffix in ("out", "log") if (path := folder / f"{writer}.{suffix}").exists())
        if files:
            return LoggedAgent(agent_id, files, inbox)
    raise NotFound(f"there is no log of '{target}'", hint=f"logs are in {folder}")


def file_entry(line: str) -> Entry:
    """Parses one line of a host's log; a line that is not an event is output of its program."""
    try:
        fields: Any = json.loads(line)
        at = datetime.fromisoformat(fields["at"])
    except (ValueError, TypeError, KeyError):
        return Entry(_LONG_AGO, "", line, fields={"text": line})
    level, event = fields.get("level", ""), str(fields.get("event", ""))
    logged_fields = dict(cast("dict[str, Any]", fields))
    if event == "agent_state":
        state, source, why = (str(logged_fields.get(name, "")) for name in ("state", "source", "why"))
        return Entry(at, state, f"{source}: {why}", fields=logged_fields)
    details = [f"{name}={_value(value)}" for name, value in logged_fields.items() if name not in _NOT_SHOWN]
    if "traceback" in logged_fields:
        details.append(
            f"{str(logged_fields['traceback']).rstrip().rpartition(chr(10))[2]}  (--json shows the traceback)"
        )
    word = event.replace("_", " ")
    return Entry(
        at,
        f"{level}: {word}" if level in ("warning", "error", "critical") else word,
        " ".join(details),
        fields=logged_fields,
    )


def _value(value: object) -> str:
    return value if isinstance(value, str) and " " not in value else json.dumps(value, ensure_ascii=False, default=str)


async def _task_entries(store: TaskStore, agent: LoggedAgent, count: int, after: datetime, seq: int) -> list[Entry]:
    """Returns the last events of the agent's tasks, up to `seq`."""
    since = None if after == _LONG_AGO else after
    agent_id = "" if agent.inbox else agent.agent_id
    query = TaskQuery(inbox=agent.inbox, agent_id=agent_id, limit=max(count, 1), updated_after=since)
    page = await store.list(query)
    found: list[Entry] = []
    for task in page.tasks:
        events = [one.event for one in await store.read_after(0, task_id=task.id) if one.seq <= seq]
        found += [entry for event in events if (entry := task_entry(event)) is not None]
        if len(found) >= count:
            break
    return found


def task_entry(event: TaskEvent) -> Entry | None:
    """Returns the log entry of an event, or None if a log leaves it out."""
    entry = logged(event)
    return Entry(event.at, entry[0], entry[1], event.task_id) if entry else None


async def _follow_tasks(agent: LoggedAgent, store: TaskStore, seq: int, *, as_json: bool) -> None:
    journal = Journal(store)
    tail = LogFollower(store, journal)
    feed = Feed(journal, store, source=tail)
    async with tail.running(), aclosing(updates_of(feed, None, agent.inbox, seq)) as updates:
        async for update in updates:
            is_ours = agent.inbox or update.task.agent_id == agent.agent_id
            entry = task_entry(update.event) if update.event and is_ours else None
            _print((entry,) if entry else (), as_json=as_json)


async def _follow_file(file: _GrowingFile, *, as_json: bool) -> None:
    while True:
        _print(map(file_entry, file.new_lines()), as_json=as_json)
        await pause(_FOLLOW_SECONDS)


class _GrowingFile:
    """Reads a log file and what is appended to it, also across log rotation."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open(encoding="utf-8", errors="replace")
        self._rest = ""

    def last_lines(self, count: int) -> list[str]:
        """Returns the last `count` lines of the file."""
        return [line.rstrip("\n") for line in deque(self._file, maxlen=count)]

    def new_lines(self) -> list[str]:
        """Returns the complete lines since the last call."""
        *lines, self._rest = (self._rest + self._file.read()).split("\n")
        if self._path.exists() and not self._path.samefile(f"/dev/fd/{self._file.fileno()}"):
            self._file.close()
            self._file = self._path.open(encoding="utf-8", errors="replace")
        return lines

    def close(self) -> None:
        self._file.close()


def duration(text: str) -> timedelta:
    """The `type` of an option that takes a time such as 30s, 15m, 2h or 1d."""
    found = re.fullmatch(r"(\d{1,6})([smhd])", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"must be a time such as 30s, 15m, 2h or 1d, not '{text}'")
    return timedelta(seconds=int(found[1]) * _UNITS[found[2]])


def _past_agents(target: str, folder: Path) -> set[str]:
    wanted = target.removeprefix("@")
    named = folder / f"{wanted}.log"
    if named.is_symlink():
        # A link to the log of the last agent with that name.
        return {named.readlink().stem}
    stems = {path.stem for suffix in ("log", "out") for path in folder.glob(f"*.{suffix}") if not path.is_symlink()}
    return {stem for stem in stems if wanted in (stem, stem.removeprefix("synapse-"), _profile_in(stem))}


def _profile_in(agent_id: str) -> str:
    return agent_id.removeprefix("synapse-").rpartition("-")[0]
