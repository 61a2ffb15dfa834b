"""Asks this machine's link for agents on other machines, as `codex@box2`. Loaded only where somebody names a machine.

The link answers with a proxy socket, which serves what the agent's own host serves. So all that asks hosts works for a
remote agent too, with the entry that `find_remote` returns:

    name `codex@box2` · inbox `box2!codex` · socket: the proxy's · pid: the link's · no port
"""

import os

from synapse.client.http import HostAddress, NoAnswer, request
from synapse.client.lines import plain
from synapse.client.times import ago
from synapse.core.address import can_be_typed, on_machine, remote_inbox, split_inbox, split_machine
from synapse.core.agent import OPEN_FIELDS, AgentEntry, entry_from
from synapse.core.errors import (
    AgentNotFound,
    AmbiguousTarget,
    ConnectionForbidden,
    LinkDown,
    MachineAway,
    MachineNotFound,
    NotInFleet,
    SynapseError,
    TaskNotFound,
    from_wire,
)
from synapse.core.json_text import decode_object, object_in, objects_in
from synapse.registry.files import FileRegistry, is_alive, is_stopped, links

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from typing import Any

    RemoteAgent = tuple[AgentEntry, dict[str, Any]]

LINK_SECONDS = 12.0
"""How long the link may take to answer; it may have to ask another machine first, and wait for that one for 8 s."""
LOOK_SECONDS = 1.0
"""How long it may take for what a command only adds to its result."""
KEEP = "queue"
"""In the metadata of a message: keep it in the outbox while the machine is away or the agent does not run."""
OUTBOX = "outbox"
"""In the metadata of a remote task: where its message is in the outbox of this machine."""
OPEN = "open"
"""The message is in the outbox: the other machine has not accepted it yet."""
UNCERTAIN = "uncertain"
"""Nobody can find out whether the other machine has accepted it."""
SETTLED = "settled"
"""The task of the message has ended."""
VOID = "void"
"""The message was taken back, or has expired."""
NEARLY_FULL = 80
"""How much of its limits the outbox uses, in percent, when people should look at it."""
_ROW_FIELDS = (*OPEN_FIELDS, "has_terminal", "machine", "state", "why", "since", "queue_depth")
"""What is taken from another machine about its agents in a list. With other fields of a status it could name commands,
or tasks of this machine."""
_ODD_ANSWER = "the answer of the link was not understood; are both of one version?  (synapse fleet doctor)"
START_HINT = "`synapse fleet start` starts it, `synapse service install link` starts it with the machine"


def is_in_fleet(home: str) -> bool:
    """Decides whether this machine has joined a fleet. Does not ask the link, so it costs nothing."""
    return os.path.exists(_membership(home))


def own_machine(home: str) -> str:
    """Returns the name of this machine in its fleet; empty if it is in none.

    `config.fleet` reads the whole file; this is for commands that must be quick.
    """
    try:
        with open(_membership(home), "rb") as file:
            return str(decode_object(file.read()).get("machine") or "")
    except (OSError, ValueError):
        return ""


def without_own_machine(target: str, registry: FileRegistry) -> str:
    """Returns `target` without the name of this machine: `codex@laptop` on the laptop is the local agent `codex`."""
    name, machine = split_machine(target)
    return name if machine and machine == own_machine(os.path.dirname(registry.folder)) else target


def find_remote(target: str, registry: FileRegistry, *, keeps: bool = False) -> AgentEntry:
    """Returns an agent on another machine as `look_up_remote` does."""
    return look_up_remote(target, registry, keeps=keeps)[0]


def look_up_remote(target: str, registry: FileRegistry, *, keeps: bool) -> "tuple[AgentEntry, bool]":
    """Returns the agent that `target` names on another machine, with its proxy socket, and whether it has stopped.

    With `keeps` the agent need not be running, and its machine may be away: the link keeps messages for it.

    Raises:
        NotInFleet, LinkDown: this machine is in no fleet, or its link does not answer.
        MachineNotFound, MachineAway: the fleet has no such machine, or it is not connected.
        AgentNotFound, AmbiguousTarget: no agent of that machine matches, or several do.
    """
    name, machine = split_machine(target)
    home = os.path.dirname(registry.folder)
    try:
        found = ask_link(home, "POST", "/fleet/proxies", {"target": on_machine(name, machine), "queue": keeps})
    except NotInFleet:
        raise NotInFleet(
            f"'{target}' is an agent on another machine, and this machine is in no fleet", hint=NotInFleet.hint
        ) from None
    except (AgentNotFound, AmbiguousTarget) as error:
        raise not_found_there(error, target) from None
    entry = _entry(object_in(found, "agent"), machine, running_link(home))
    if entry is None:
        raise AgentNotFound(target, hint=_ODD_ANSWER)
    return entry, found.get("stopped") is True


def not_found_there(error: "AgentNotFound | AmbiguousTarget", target: str) -> "AgentNotFound | AmbiguousTarget":
    """Returns what another machine says of a name, for people of this one, who type `target`."""
    machine = split_machine(target)[1]
    if isinstance(error, AmbiguousTarget):
        return AmbiguousTarget(target, [on_machine(one, machine) for one in error.candidates])
    return AgentNotFound(target, hint=_hint(error.hint, machine))


def find_again(entry: AgentEntry, registry: FileRegistry) -> AgentEntry:
    """Returns the entry of a remote agent as it is now, perhaps with another port or proxy. Raises as `find_remote`."""
    # By its inbox: the name of an agent without a given one has its port.
    inbox, machine = split_inbox(entry.inbox)
    return find_remote(on_machine(inbox, machine) if inbox else entry.name, registry)


def fleet_agents(
    home: str, machine: str = "", *, fresh: bool = False, timeout: float = LINK_SECONDS
) -> "tuple[list[RemoteAgent], list[dict[str, Any]]]":
    """Returns the agents of all present machines but this one, or of one of them, and the machines.

    An agent is its entry, without a proxy socket, and what its machine tells of _ROW_FIELDS; one with a name that no
    agent can have is left out. A machine has `name`, `present` and `since`. What the link knows may be a second old;
    with `fresh` it asks the machines.

    Raises:
        NotInFleet, LinkDown, MachineNotFound
    """
    query = "&".join((*([f"machine={machine}"] if machine else []), *(["fresh=1"] if fresh else [])))
    answer = ask_link(home, "GET", f"/fleet/agents?{query}".rstrip("?"), timeout=timeout)
    machines = objects_in(answer, "machines")
    if machine and not any(one.get("name") == machine for one in machines):
        known = ", ".join(str(one.get("name")) for one in machines)
        raise MachineNotFound(
            f"the fleet has no machine '{machine}'",
            hint=f"machines: {known}  (synapse fleet status)" if known else "`synapse fleet status` shows the machines",
        )
    agents: list[RemoteAgent] = []
    link = running_link(home)
    for told in objects_in(answer, "agents"):
        fields = {name: told[name] for name in _ROW_FIELDS if name in told}
        entry = _entry(fields, str(fields.get("machine") or ""), link)
        if entry is not None:
            agents.append((entry, fields))
    return agents, machines


def fleet_needs(home: str) -> "tuple[list[dict[str, Any]], list[str], list[dict[str, Any]]]":
    """Returns what agents on other machines need a person for, and the machines that do not let this one approve.

    Each need is an object of `attention.needs_of` on its own machine, with `machine`; those of agents with names that
    no agent can have are left out. The third list has the machines that could not be asked, with `name` and `since`.

    Raises:
        NotInFleet, LinkDown, PersonRequired
    """
    told = ask_link(home, "GET", "/fleet/approvals")
    refusing = [str(machine) for machine in told.get("refusing") or ()]
    needs = [
        need
        for need in objects_in(told, "questions")
        if can_be_typed(str(need.get("name"))) and can_be_typed(str(need.get("agent_id")))
    ]
    return needs, refusing, objects_in(told, "away")


def failed_lines(home: str) -> "list[str]":
    """Returns a line if messages of this machine to others have failed in the last day; none while nobody can tell."""
    if not is_in_fleet(home):
        return []
    try:
        failed = ask_link(home, "GET", "/fleet/failures", timeout=LOOK_SECONDS).get("failed") or 0
    except SynapseError:
        return []
    if not failed:
        return []
    which = "1 message to another machine has" if failed == 1 else f"{failed} messages to other machines have"
    return [f"! {which} failed in the last day  (synapse fleet outbox)"]


def not_asked(away: "list[dict[str, Any]]", now: "datetime") -> "list[str]":
    """Returns a line for each machine that could not be asked."""
    since = [(plain(str(one.get("name"))), ago(one.get("since"), now)) for one in away]
    return [
        f"{name} is away, last seen {when}: not asked" if when else f"{name} is away: not asked" for name, when in since
    ]


def allow_step(home: str, machine: str, action: str) -> str:
    """Returns the command that lets this machine do more on another one, and where to type it."""
    return f"`synapse fleet allow {own_machine(home)} {action}` on {machine}"


def find_remote_task(prefix: str, registry: FileRegistry) -> "tuple[AgentEntry, dict[str, Any]]":
    """Returns a task on another machine that this machine may see, or a message in the outbox, and its agent.

    Raises:
        TaskNotFound: no machine that could be asked has it.
        AmbiguousTask: several tasks match.
    """
    home = os.path.dirname(registry.folder)
    if not is_in_fleet(home):
        raise TaskNotFound(prefix)
    try:
        found = ask_link(home, "GET", f"/fleet/tasks/{prefix}")
    except (LinkDown, MachineAway) as error:
        missing = TaskNotFound(prefix)
        missing.hint = f"it is not on this machine, and others could not be asked: {error}\n{error.hint}"
        raise missing from error
    agent, task = object_in(found, "agent"), object_in(found, "task")
    entry = _entry(agent, split_machine(str(agent.get("name") or ""))[1], running_link(home))
    if entry is None or not task.get("id"):
        raise TaskNotFound(prefix)
    return entry, task


def ask_link(
    home: str, method: str, path: str, body: "dict[str, Any] | None" = None, *, timeout: float = LINK_SECONDS
) -> "dict[str, Any]":
    """Sends a request to the link of this machine and returns the body of its answer.

    Raises:
        NotInFleet, LinkDown: this machine is in no fleet, or its link does not answer.
        SynapseError: the link refuses; the error has its code.
    """
    link = running_link(home)
    if is_stopped(link.pid, link.pid_started):
        raise LinkDown(_suspended(link), hint=_continues(link))
    try:
        answer = request(HostAddress(link.socket), method, path, body, timeout=timeout)
    except NoAnswer as silence:
        if silence.forbidden:
            why = f"it may not open connections ({silence})"
            raise ConnectionForbidden(link.agent_id, why, has_tools=True) from silence
        raise LinkDown(f"the link of this machine does not answer: {silence}", hint=START_HINT) from silence
    if answer.status >= 400:
        raise with_age(from_wire(object_in(answer.body, "error"), f"the link answered with status {answer.status}"))
    return answer.body


def waiting_text(counts: "Mapping[str, Any]") -> str:
    """Returns how many messages wait, as `4 messages and 1 cancel wait`. The `open` of a link counts cancels too."""
    cancels = counts.get("cancels") or 0
    messages = (counts.get("open") or 0) - cancels
    words = [f"{messages} message{'' if messages == 1 else 's'}"] if messages or not cancels else []
    words += [f"{cancels} cancel{'' if cancels == 1 else 's'}"] if cancels else []
    return f"{' and '.join(words)} wait{'s' if messages + cancels == 1 else ''}"


def knows_machines(status: "Mapping[str, Any]") -> bool:
    """Decides whether the machines in a link's status are those that the fleet has now."""
    return bool(status.get("connected")) and not status.get("machines_unknown")


def with_age(error: SynapseError) -> SynapseError:
    """Returns an error for people, who want to know for how long a machine has been away, and not since when."""
    if not isinstance(error, MachineAway) or not error.since:
        return error
    from synapse.config.process import SystemClock

    when = ago(error.since, SystemClock().now())
    return error.reworded(f"the machine {error.machine} is away, last seen {when}") if when else error


def running_link(home: str) -> AgentEntry:
    """Returns the entry of this machine's link. Raises NotInFleet or LinkDown."""
    running = links(home).entries()
    if running:
        return running[0]
    if not is_in_fleet(home):
        raise NotInFleet
    raise LinkDown("the link of this machine does not run, so no other machine can be reached", hint=START_HINT)


def _entry(fields: "dict[str, Any]", machine: str, link: AgentEntry) -> "AgentEntry | None":
    """Returns the entry that commands use for a remote agent, or None if the fields are not understood."""
    entry = entry_from(fields)
    if entry is None or not machine:
        return None
    # Whatever machine it names itself: only the one that was proven counts. An agent that could not be asked may be
    # known by its inbox only, which has its folder.
    name = entry.name.partition("@")[0] or f"{entry.agent_type}-{entry.port}"
    agent_id = entry.agent_id.partition("@")[0]
    if not (can_be_typed(name) and can_be_typed(agent_id)):
        return None
    entry.agent_id = on_machine(agent_id, machine)
    entry.name = on_machine(name, machine)
    entry.inbox = remote_inbox(split_inbox(entry.inbox)[0], machine)
    # Its own pid means another process here, and its port another program.
    entry.pid, entry.pid_started, entry.pid_namespace = link.pid, link.pid_started, link.pid_namespace
    entry.port = 0
    # Its device is another one here; that it has one is what people see.
    entry.terminal = -1 if fields.get("has_terminal") is True else 0
    return entry


def _hint(told: str, machine: str) -> str:
    """Returns the hint of another machine about an agent, with the command that shows its agents here."""
    who = f"`synapse list --machine {machine}` shows who is there"
    if told.endswith("  (synapse list)"):
        return f"on {machine}: {told.removesuffix('  (synapse list)')}  (synapse list --machine {machine})"
    if told.startswith("no agent is running"):
        return f"no agent is running on {machine}; `synapse send --queue` keeps a message for one that has stopped"
    return who


def link_silent(entry: AgentEntry) -> "tuple[str, str]":
    """Returns the sentence and the hint for a remote agent whose proxy does not answer."""
    machine = split_inbox(entry.inbox)[1]
    if is_stopped(entry.pid, entry.pid_started):
        return f"{_suspended(entry)}, so {entry.name} cannot be reached", _continues(entry)
    if not is_alive(entry):
        return f"the link of this machine has stopped, so {entry.name} cannot be reached", START_HINT
    return (
        f"the link of this machine does not answer for {entry.name}",
        f"`synapse fleet status` shows whether the link runs and {machine} is there",
    )


def _suspended(link: AgentEntry) -> str:
    return f"the link of this machine (pid {link.pid}) is suspended"


def _continues(link: AgentEntry) -> str:
    return f"`kill -CONT {link.pid}` continues it"


def _membership(home: str) -> str:
    return os.path.join(home, "fleet", "fleet.json")
