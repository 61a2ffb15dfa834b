"""`synapse list` and `synapse status`: all agents, or one agent or task in detail.

`synapse list` must stay quick, so this module does not import typing.
"""

from __future__ import annotations

import os

from synapse import __version__
from synapse.cli.output import print_error, print_failed, print_json, print_notice, print_result
from synapse.cli.parser import VerbParser
from synapse.cli.tables import painted, table
from synapse.cli.task_lookup import find_task, is_task_id
from synapse.client.attention import (
    DIALOG,
    IN_DOUBT,
    QUEUED,
    UNKNOWN,
    agent_state_of,
    attach_step,
    held_in,
    how_long,
    messages_in,
    next_step,
    overdue_in,
    own_questions_in,
    question_in,
    question_lines,
    release_step,
    resolving_command,
    short_task_id,
    target_of,
    title_of,
    why_held,
)
from synapse.client.fan_out import HostReply, ask_all
from synapse.client.hosts import (
    AGENT_VARIABLE,
    ask,
    find_agent,
    is_suspended,
    open_gateways,
    open_registry,
    suspended_hint,
)
from synapse.client.lines import cut, plain, short_number, short_path
from synapse.client.times import ago, lasting
from synapse.client.versions import of_other_versions
from synapse.client.views import (
    FINISHED,
    attention_of,
    conversation_of,
    message_of,
    note_of,
    question_of,
    receipt_lines,
    receipt_of,
    reply_of,
    sender_of,
    short_id,
    status_of,
    tools_of,
)
from synapse.core.address import is_marked, short_name, split_inbox
from synapse.core.agent import WAITING, AgentEntry
from synapse.core.errors import AgentNotFound, AmbiguousTask, NotInFleet, SynapseError, TaskNotFound
from synapse.core.json_text import object_in, objects_in
from synapse.registry.files import FileRegistry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import datetime
    from typing import Any

LIST_EXAMPLES = """
synapse list
synapse list --all                 with the agents of all machines of the fleet
synapse list --machine box2        of one machine
synapse list --json | jq -r '.[].agent_id'
"""
TITLES = ("AGENT", "STATE", "PORT", "PID", "WORKING ON", "FOLDER")
ROLE_COLUMNS = 40
"""How wide the column of roles is at most; `synapse status` shows a role as a whole."""
_OF_HOST = ("pid", "pid_started", "pid_namespace", "port", "socket", "endpoint")
"""Fields of an entry that mean something on the agent's own machine only."""
SHORTEST_PREFIX = 4
STATUS_EXAMPLES = """
synapse status codex               its state, and since when
synapse status codex --explain     the evidence for its state
synapse status 54241e7e            a task: its progress and its answer
synapse status codex@box2          an agent on another machine
"""


def run_list(arguments: list[str]) -> int:
    """Lists the agents and returns the exit code."""
    parser = VerbParser("list", examples=LIST_EXAMPLES)
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--all", action="store_true", help="also the agents of the other machines of the fleet")
    place.add_argument("--machine", metavar="NAME", help="only the agents of this machine of the fleet")
    options = parser.parse_args(arguments)
    registry = open_registry()
    if options.all or options.machine:
        return _list_fleet(options.machine or "", registry, as_json=options.json)
    replies = ask_all([*registry.entries(), *open_gateways().entries()], "GET", "/status")
    for note in registry.notes:
        print_notice(note)
    if options.json:
        print_json([as_fields(reply) for reply in replies])
    elif replies:
        print_result(
            _table(
                [_row(reply, reply.entry.port, reply.entry.pid) for reply in replies],
                [reply.entry.role for reply in replies],
            )
        )
        for line in (*attention_lines(replies), *held_lines(replies)):
            print_notice(line)
        for name, text, command in of_other_versions((reply.entry for reply in replies), __version__):
            print_notice(f"· {name} {plain(text)}  ({command})")
    else:
        print_notice("No agent is running. Start one with `synapse claude` or `synapse start codex`.")
    if not options.json:
        print_failed(os.path.dirname(registry.folder))
    return 0


class _Listed:
    """The agents and the absent machines to list. `error`: why other machines are missing."""

    def __init__(self, own: str) -> None:
        self.own = own
        self.replies: list[HostReply] = []
        self.machines: list[str] = []
        """The machine of each reply."""
        self.away: list[dict[str, Any]] = []
        self.error: SynapseError | None = None

    def add_own(self, registry: FileRegistry) -> None:
        found = ask_all([*registry.entries(), *open_gateways().entries()], "GET", "/status")
        self.replies += found
        self.machines += [self.own] * len(found)

    def add_others(self, home: str, machine: str) -> None:
        """Raises NotInFleet, LinkDown or MachineNotFound."""
        from synapse.client.link import fleet_agents

        agents, machines = fleet_agents(home, machine, fresh=True)
        for entry, fields in agents:
            self.replies.append(HostReply(entry, fields))
            self.machines.append(str(fields.get("machine", "")))
        self.away = [one for one in machines if one.get("present") is False and machine in ("", one.get("name"))]


def _list_fleet(machine: str, registry: FileRegistry, *, as_json: bool) -> int:
    """Lists the agents of one machine, or of all; returns the exit code.

    Without a fleet, or while the link does not run, `--all` lists the agents of this machine.
    """
    from synapse.client.link import is_in_fleet, own_machine

    home = os.path.dirname(registry.folder)
    listed = _Listed(own_machine(home))
    if machine in ("", listed.own):
        listed.add_own(registry)
    if machine != listed.own if machine else is_in_fleet(home):  # also with a file that does not tell our own name
        try:
            listed.add_others(home, machine)
        except SynapseError as error:
            if machine:
                raise
            listed.error = error
    if not is_in_fleet(home):
        print_notice(f"This machine is in no fleet: the list has its own agents only.  ({plain(NotInFleet.hint)})")
    if as_json:
        print_json(_listed_fields(listed))
    else:
        _print_listed(listed, machine)
        print_failed(home)
    if listed.error is None:
        return 0
    return print_error(listed.error, as_json=False)


def _listed_fields(listed: _Listed) -> list[dict[str, Any]]:
    """Returns an object for each agent, and one without `agent_id` for each machine that is away."""
    agents: list[dict[str, Any]] = []
    for reply, machine in zip(listed.replies, listed.machines, strict=True):
        agents.append(_fields_on(machine, reply, is_own=machine == listed.own))
    away = [
        {"agent_id": None, "machine": one.get("name"), "status": "away", "since": one.get("since")}
        for one in listed.away
    ]
    return [*agents, *away]


def _fields_on(machine: str, reply: HostReply, *, is_own: bool) -> dict[str, Any]:
    """Returns the `--json` object of an agent with its machine. Of another one, the entry has the pid of our link."""
    fields = {**as_fields(reply), "machine": machine}
    return fields if is_own else {**fields, **{key: reply.body.get(key) for key in _OF_HOST}}


def _print_listed(listed: _Listed, machine: str) -> None:
    rows: list[tuple[str, ...]] = []
    roles: list[str] = []
    machines = [*listed.machines]
    for reply, where in zip(listed.replies, listed.machines, strict=True):
        is_own = where == listed.own
        shown: Any = reply.entry.shown() if is_own else reply.body
        rows.append(_row(reply, shown.get("port"), shown.get("pid")))
        roles.append(reply.entry.role)
    now = _now()
    for one in listed.away:
        rows.append(("-", f"away {lasting(one.get('since'), now)}".rstrip(), "", "", "", ""))
        roles.append("")
        machines.append(str(one.get("name")))
    if not rows:
        everywhere = "in the fleet" if listed.own and listed.error is None else "on this machine"
        print_notice(f"No agent is running {f'on {machine}' if machine else everywhere}.")
        return
    print_result(_table(rows, roles, machines if any(machines) else None))
    for line in (*attention_lines(listed.replies), *held_lines(listed.replies)):
        print_notice(line)


def as_fields(reply: HostReply) -> dict[str, Any]:
    """Returns the `--json` object of an agent: its registry entry and its host's status."""
    fields = reply.entry.shown()
    fields["status"] = state_of(reply)
    for key in (
        "why",
        "source",
        "since",
        "gate",
        "queue_depth",
        "current_task",
        "held",
        "attention",
        "question",
        "store_fault",
        "tools",
        "conversation",
        "owes",
        "usage",
    ):
        fields[key] = reply.body.get(key)
    if reply.error is not None:
        fields["why"] = f"{reply.error} {reply.error.hint}".strip()
    return fields


def state_of(reply: HostReply) -> str:
    """Returns the agent's state; NOT_RESPONDING or UNKNOWN if its host did not answer."""
    return agent_state_of(reply.body, reply.error)


def attention_lines(replies: list[HostReply]) -> list[str]:
    """Returns a line for each thing that needs a person, with the command to type."""
    lines: list[str] = []
    for reply in replies:
        name = short_name(reply.entry)
        question = question_in(reply.body)
        if state_of(reply) == UNKNOWN:
            lines.append(f"! {name}: {plain(str(reply.error))} {plain(reply.error.hint if reply.error else '')}")
        elif reply.error is not None:
            lines.append(f"! {name} does not respond: {plain(reply.error.hint or str(reply.error))}")
        elif question:
            command = next_step(question, target_of(question, name), name)
            lines.append(f"! {name} asks a person: {title_of(question)}  ({command})")
        elif state_of(reply) == WAITING:
            why = plain(str(reply.body.get("why", "")))
            lines.append(f"! {name} waits for a person: {why}  ({attach_step(reply.body, name)})")
        if reply.body.get("store_fault"):
            fault = plain(str(reply.body["store_fault"]))
            lines.append(f"! {name} refuses messages: {fault}  (synapse restart {name})")
        lines += [
            f"! {name} asks a person: {title_of(asked)}  ({next_step(asked, target_of(asked, name), name)})"
            for asked in own_questions_in(reply.body)
        ]
        lines += _task_lines(name, objects_in(reply.body, "attention"))
    return lines


def held_lines(replies: list[HostReply]) -> list[str]:
    """Returns a line for each agent whose messages have been held for too long, with the command to type."""
    lines: list[str] = []
    for reply in replies:
        name, held = short_name(reply.entry), overdue_in(reply.body)
        # `attention_lines` has messages in doubt and questions.
        if held and held.get("reason") not in (IN_DOUBT, DIALOG):
            lines.append(f"! {name} holds {messages_in(held)}: {why_held(held)}  ({release_step(held, name)})")
    return lines


def _task_lines(name: str, items: list[dict[str, Any]]) -> list[str]:
    """Returns a line for each task that needs a person; tasks held for one reason share a line."""
    lines: list[str] = []
    held: dict[str, list[str]] = {}
    for item in items:
        if item.get("question_id") or item.get("held"):
            continue  # reported with the agent
        task_id, receipt = short_task_id(item), str(item.get("receipt", "typed"))
        text = plain(str(item.get("text", "")))
        if receipt == QUEUED:
            held.setdefault(text, []).append(task_id)
        else:
            lines.append(f"! {name}, task {task_id}: {text}{decision(task_id, receipt)}")
    return lines + [_held_line(name, text, task_ids) for text, task_ids in held.items()]


def _held_line(name: str, text: str, task_ids: list[str]) -> str:
    first, *more = task_ids
    if not more:
        return f"! {name}, task {first}: {text}{decision(first, QUEUED)}"
    return f"! {name}, {len(task_ids)} messages: {text}  (`synapse cancel --queue {name}` cancels them)"


def decision(task_id: str, receipt: str) -> str:
    """Returns `resolving_command` in brackets, for the end of a line; empty if there is none."""
    command = resolving_command(task_id, receipt)
    return f"  ({command})" if command else ""


def _table(rows: list[tuple[str, ...]], roles: list[str], machines: list[str] | None = None) -> str:
    """Returns a row for each agent, with a column for machines if they are given, and for roles if an agent has one."""
    columns = list(zip(TITLES, *rows, strict=True))
    if any(roles):
        columns.insert(2, ("ROLE", *(cut(plain(role), ROLE_COLUMNS) for role in roles)))
    if machines is not None:
        columns.insert(1, ("MACHINE", *machines))
    titles, *lines = zip(*columns, strict=True)
    return table(titles, lines, elastic=titles.index("WORKING ON"))


def _row(reply: HostReply, port: object, pid: object) -> tuple[str, ...]:
    """Returns the cells of TITLES for an agent."""
    entry = reply.entry
    # A remote agent without a given name has its profile and port as its name.
    has_name = entry.name and not entry.name.startswith(f"{entry.agent_type}-")
    name = f"{entry.name} ({entry.agent_type})" if has_name else short_name(entry)
    folder = short_path(entry.working_dir)
    return (name, state_of(reply).replace("_", " "), str(port or ""), str(pid or ""), _work(reply), folder)


def _work(reply: HostReply) -> str:
    task = object_in(reply.body, "current_task")
    text = message_of(task).strip().partition("\n")[0] if task else ""
    if text and is_marked(sender_of(task)):
        text = f"{text} [from {sender_of(task)}]"
    waiting, held = reply.body.get("queue_depth") or 0, held_in(reply.body)
    queued = f"+{waiting} queued" if waiting else ""
    notes = ", ".join(note for note in (queued, f"held: {why_held(held)}" if held else "") if note)
    return f"{text} ({notes})".strip() if notes else text


def run_status(arguments: list[str]) -> int:
    """Shows an agent or a task and returns the exit code."""
    parser = VerbParser("status", examples=STATUS_EXAMPLES)
    parser.add_argument("target", nargs="?", metavar="AGENT|TASK", default=os.environ.get(AGENT_VARIABLE, ""))
    parser.add_argument("--explain", action="store_true", help="show the evidence for the state, source by source")
    options = parser.parse_args(arguments)
    if not options.target:
        return run_list(["--json"] if options.json else [])
    registry = open_registry()
    asked_at = _now()
    found = _agent_or_task(options.target, registry)
    if isinstance(found, HostReply):
        _show_agent(found, explain=options.explain, as_json=options.json)
    else:
        _show_task(*found, as_json=options.json)
    if not options.json:  # which is for programs
        from synapse.client.seen import person_saw, person_saw_end

        if isinstance(found, HostReply):
            person_saw(registry, found.entry.agent_id, asked_at)
        else:
            person_saw_end(registry, found[0].agent_id, found[1])
    return 0


def _now() -> datetime:
    from synapse.config.process import SystemClock

    return SystemClock().now()


def _agent_or_task(target: str, registry: FileRegistry) -> HostReply | tuple[AgentEntry, dict[str, Any]]:
    try:
        entry = find_agent(target, registry)
    except AgentNotFound as error:
        try:
            return find_task(target, registry)
        except TaskNotFound as missing:
            raise (missing if is_task_id(target) else error) from None
        except AmbiguousTask as several:
            # A short name such as `d1` is a prefix of many ids, but not meant as one.
            raise (error if len(target) < SHORTEST_PREFIX else several) from None
    return HostReply(entry, ask(entry, "GET", "/status"))


def _show_agent(reply: HostReply, *, explain: bool, as_json: bool) -> None:
    if as_json:
        evidence = {"sightings": objects_in(reply.body, "sightings")} if explain else {}
        machine = split_inbox(reply.entry.inbox)[1]
        fields = _fields_on(machine, reply, is_own=False) if machine else as_fields(reply)
        print_json({**fields, **evidence})
        return
    state, body, entry = state_of(reply), reply.body, reply.entry
    print_result(f"{short_name(entry)}  {painted(state, state)}  {how_long(body.get('since'), _now())}".rstrip())
    print_result(f"  why      {plain(str(body.get('why', '')))}  ({plain(str(body.get('source', '')))})")
    if body.get("gate"):
        print_result(f"  gate     closed: {plain(str(body['gate']))}")
    print_result(f"  where    {_place(reply)}, {plain(short_path(entry.working_dir))}")
    _show_membership(entry, explain=explain)
    task = object_in(body, "current_task")
    if task:
        print_result(
            f"  task     {short_id(task)} from {sender_of(task)}, {receipt_of(task)}: {plain(message_of(task))[:200]}"
        )
    _show_launch(body)
    _show_usage(object_in(body, "usage"), entry)
    print_result(f"  queue    {body.get('queue_depth', 0)} queued")
    _show_owed(body)
    _show_held(held_in(body), entry)
    for line in attention_lines([reply]):
        print_result(f"  {line}")
    for line in question_lines(question_in(body))[1:]:
        print_result(f"    {line}")
    if explain:
        _explain(reply)


def _place(reply: HostReply) -> str:
    entry, machine = reply.entry, split_inbox(reply.entry.inbox)[1]
    if machine:
        # The entry has the pid of the link; the host tells its own.
        pid = reply.body.get("pid")
        return f"on {machine}" + (f", pid {pid}" if pid else "")
    return (f"in {entry.gateway}" if entry.gateway else f"port {entry.port}") + f", pid {entry.pid}"


def _show_usage(usage: dict[str, Any], entry: AgentEntry) -> None:
    totals = [object_in(object_in(usage, key), "tokens").get("total") for key in ("today", "total")]
    today, overall = (total if isinstance(total, int) else 0 for total in totals)
    if overall:
        counts = f"{short_number(today)} tokens today, {short_number(overall)} in all"
        print_result(f"  usage    {counts}  (synapse usage {short_name(entry)})")


def _show_launch(body: dict[str, Any]) -> None:
    for label, value in (("tools", tools_of(body)), ("talk", conversation_of(body))):
        if value:
            print_result(f"  {label:<8} {plain(value)}")


def _show_membership(entry: AgentEntry, *, explain: bool) -> None:
    """Shows what the agent is for, and who may send messages to it."""
    if entry.role:
        print_result(f"  role     {plain(entry.role)}")
    if entry.team:
        print_result(f"  team     {plain(entry.team)}")
    if entry.accepts or explain:
        from synapse.tasks.senders import SenderRule

        print_result(f"  accepts  messages from {plain(SenderRule.of(entry).in_words())}")
    if entry.launched_by and explain:
        print_result(f"  started  by {plain(entry.launched_by)}: agents that accept some senders only refuse it")


def _show_owed(body: dict[str, Any]) -> None:
    for owed in objects_in(body, "owes"):
        about = f"task {plain(str(owed.get('task_id', ''))[:8])} of {plain(str(owed.get('to', '')))}"
        print_result(f"  owes     the answer to {about}: {plain(str(owed.get('text', '')))[:200]}")


def _explain(reply: HostReply) -> None:
    now = _now()
    tools = object_in(reply.body, "tools")
    if tools.get("since"):
        state = plain(str(tools.get("mcp", "")))
        print_result(f"  MCP server of its launch: {state} {how_long(tools['since'], now)}".rstrip())
    machine = split_inbox(reply.entry.inbox)[1]
    if machine and not objects_in(reply.body, "sightings"):
        from synapse.client.link import allow_step

        step = allow_step(os.path.dirname(open_registry().folder), machine, "read")
        print_result(f"  evidence {machine} does not let this machine read it  ({step})")
        return
    print_result("  evidence, most trusted source first:")
    for observation in objects_in(reply.body, "sightings"):
        mark = "→" if observation.get("source") == reply.body.get("source") else " "
        source, state = (plain(str(observation.get(key, ""))) for key in ("source", "state"))
        at = ago(observation.get("at"), now)
        print_result(f"  {mark} {source:<12} {state:<9} {at:<8}  {plain(str(observation.get('detail', '')))}")


def _show_task(entry: AgentEntry, task: dict[str, Any], *, as_json: bool) -> None:
    held = _held_with(entry, task)
    if as_json:
        print_json({"task": task, "reply": reply_of(task) or None, "receipt": receipt_of(task), "held": held or None})
        return
    print_result(f"task {task.get('id')}  {status_of(task)}  {_task_place(entry, task)}, from {sender_of(task)}")
    print_result(f"  message  {plain(message_of(task))[:500]}")
    if is_suspended(entry):
        print_result(f"  ! {short_name(entry)} does not respond: {suspended_hint(entry)}")
    now = _now()
    for line in receipt_lines(task, lambda at: f"{ago(at, now):<10}"):
        print_result(f"  {plain(line)}")
    _show_held(held, entry)
    if attention_of(task):
        print_result(f"  ! {plain(attention_of(task))}{decision(short_id(task), receipt_of(task))}")
    question = question_of(task)
    if question:
        name = short_name(entry)
        _show_question(question, target_of({"task_id": task.get("id")}, name), name)
    elif note_of(task):
        print_result(f"  note     {plain(note_of(task))}")
    if reply_of(task):
        title = "answer" if status_of(task) in FINISHED else "answer so far"
        print_result("\n".join([f"  {title}", *(plain(line) for line in reply_of(task).splitlines())]))


def _task_place(entry: AgentEntry, task: dict[str, Any]) -> str:
    if object_in(task, "metadata").get("outbox") == "open":
        return f"for {short_name(entry)}, in the outbox of this machine"
    return f"at {short_name(entry)}" + ("" if entry.pid else " (not running)")


def _show_held(held: dict[str, Any], entry: AgentEntry) -> None:
    if held:
        lasting = how_long(held.get("since"), _now())
        print_result(
            f"  held     {messages_in(held)} {lasting}: {why_held(held)}  ({release_step(held, short_name(entry))})"
        )


def _held_with(entry: AgentEntry, task: dict[str, Any]) -> dict[str, Any]:
    """Returns why a queued task is held, or an empty object if it is not, or its host does not answer."""
    if receipt_of(task) != QUEUED or status_of(task) in FINISHED or not entry.pid or is_suspended(entry):
        return {}
    try:
        return held_in(ask(entry, "GET", "/status"))
    except SynapseError:
        return {}


def _show_question(question: dict[str, Any], target: str, agent: str) -> None:
    title, *rest = question_lines(question)
    print_result(f"  asks     {title}  ({next_step(question, target, agent)})")
    for line in rest:
        print_result(f"    {line}")
