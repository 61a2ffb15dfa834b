"""Resolves the name of a target: `claude`, `codex-8120`, `@codex-8120`, `synapse-codex-8120`, or a given name.

`synapse send` loads this module, so it imports only `core.agent`, and the error tree only when there is an error.
"""

from synapse.core.agent import AgentEntry

SYSTEM = "synapse-system"
"""The sender of initial instructions."""
PERSON = "user"
"""The sender of messages that a person sends from a shell."""
UNVERIFIED = "unverified."
"""Prefix of an unproven sender's name, in typed messages and in lists."""
KEY = "key."
"""Prefix of the name of a gateway's caller: its API key, its token's subject, or what a custom authenticator says."""
NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
"""The characters of agents' names. None of them means anything to a shell."""
MACHINE_SEPARATOR = "!"
"""Between the machine and the inbox of a remote agent: `box2!codex`. A local inbox has it only in its folder."""


def split_machine(target: str) -> "tuple[str, str]":
    """Returns the agent and the machine that `target` names: `codex@box2`. The machine is empty for a local agent."""
    name, _, machine = target.removeprefix("@").rpartition("@")
    return (name, machine) if name else (target, "")


def on_machine(name: str, machine: str) -> str:
    """Returns the name of a remote agent or sender: `codex@box2`; `name` itself without a machine."""
    return f"{name}@{machine}" if machine else name


def remote_inbox(inbox: str, machine: str) -> str:
    """Returns how other machines know an inbox of `machine`."""
    return f"{machine}{MACHINE_SEPARATOR}{inbox}"


def split_inbox(inbox: str) -> "tuple[str, str]":
    """Returns the inbox on its own machine, and that machine; the machine is empty for a local inbox.

    The inbox of an agent without a name has its folder, `claude@/proj/a!b`, where the separator means nothing.
    """
    machine, separator, own = inbox.partition(MACHINE_SEPARATOR)
    is_machine = machine and "@" not in machine and "/" not in machine
    return (own, machine) if separator and is_machine else (inbox, "")


def is_remote(entry: AgentEntry) -> bool:
    """Decides whether the agent is on another machine; its socket is then a proxy of this machine's link."""
    return bool(split_inbox(entry.inbox)[1])


def is_marked(name: str) -> bool:
    """Decides whether `name` has a prefix of senders that are not agents; no agent may have such a name."""
    return name.lower().startswith((UNVERIFIED, KEY))


def can_be_typed(name: str) -> bool:
    """Decides whether a name that another machine tells may stand in the commands that people are told to type."""
    return bool(name) and NAME_CHARACTERS.issuperset(name) and not name.startswith("-")


def resolve(target: str, entries: "list[AgentEntry]") -> AgentEntry:
    """Returns the agent that `target` names.

    Raises:
        AgentNotFound: no agent matches; the hint names the most similar one.
        AmbiguousTarget: several agents match; the hint lists them.
    """
    found = matching(target, entries)
    if len(found) == 1:
        return found[0]
    from synapse.core.errors import AgentNotFound, AmbiguousTarget  # noqa: PLC0415 - most sends end above

    if found:
        raise AmbiguousTarget(target, sorted(short_name(entry) for entry in found))
    raise AgentNotFound(target, hint=_hint(target.removeprefix("@"), entries))


def matching(target: str, entries: "list[AgentEntry]") -> "list[AgentEntry]":
    """Returns the agents that `target` may mean: by exact id or name, else by profile, or profile and port.

    An in-process agent of a gateway matches by its id or name only.
    """
    wanted = target.removeprefix("@")
    exact = [entry for entry in entries if wanted == entry.agent_id or (entry.name and wanted == entry.name)]
    if exact:
        return exact
    hosts = [entry for entry in entries if not entry.gateway]
    return [entry for entry in hosts if wanted in (entry.agent_type, f"{entry.agent_type}-{entry.port}")]


def short_name(entry: AgentEntry) -> str:
    """Returns the shortest unambiguous name of the agent."""
    return entry.name or f"{entry.agent_type}-{entry.port}"


def nearest(word: str, known: "list[str]") -> str:
    """Returns the known word that is most similar to `word`, or an empty string if none is similar enough."""
    best, best_distance = "", max(2, len(word) // 3) + 1
    for candidate in known:
        distance = _distance(word.lower(), candidate.lower(), best_distance)
        if distance < best_distance:
            best, best_distance = candidate, distance
    return best


def _hint(wanted: str, entries: "list[AgentEntry]") -> str:
    names = sorted({name for entry in entries for name in (short_name(entry), entry.agent_type)})
    meant = nearest(wanted, names)
    if meant:
        return f"Did you mean '{meant}'?  (synapse list)"
    if names:
        return "running agents: " + ", ".join(sorted(short_name(entry) for entry in entries)) + "  (synapse list)"
    return "no agent is running; start one with `synapse claude` or `synapse start codex`"


def _distance(left: str, right: str, limit: int) -> int:
    """Returns the edit distance of two words, at most `limit`."""
    if abs(len(left) - len(right)) >= limit:
        return limit
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        previous, row[0] = row[0], i
        for j, b in enumerate(right, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (a != b))
    return min(row[-1], limit)
