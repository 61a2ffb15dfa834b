"""How a target is named: `claude`, `codex-8120`, `@codex-8120`, `synapse-codex-8120`, or a given name.

`synapse send` imports this file, so it imports next to nothing; the error tree is loaded when there is an error.
"""

from synapse.core.agent import AgentEntry

SYSTEM = "synapse-system"
"""The sender of initial instructions."""
PERSON = "user"
"""The sender that stands for a person at a plain shell."""
UNVERIFIED = "unverified."
"""Stands before the name of a sender whom nothing proves, where a message is typed or listed."""
KEY = "key."
"""Stands before the name of a caller of the gateway: of its API key, its token's subject, or its own authenticator."""


def is_marked(name: str) -> bool:
    """Whether `name` begins like a sender that is no agent here; no agent can be called that."""
    return name.lower().startswith((UNVERIFIED, KEY))


def resolve(target: str, entries: "list[AgentEntry]") -> AgentEntry:
    """Return the one agent that `target` names.

    Raises:
        AgentNotFound: none fits; the hint names a likely one.
        AmbiguousTarget: several fit; the hint lists them.
    """
    found = matching(target, entries)
    if len(found) == 1:
        return found[0]
    from synapse.core.errors import AgentNotFound, AmbiguousTarget  # noqa: PLC0415 - most sends end above

    if found:
        raise AmbiguousTarget(target, sorted(short_name(entry) for entry in found))
    raise AgentNotFound(target, hint=_hint(target.removeprefix("@"), entries))


def matching(target: str, entries: "list[AgentEntry]") -> "list[AgentEntry]":
    """The agents that `target` may mean: those with exactly that id or name, else those of that profile (and port).

    An agent inside a gateway is meant by its name only.
    """
    wanted = target.removeprefix("@")
    exact = [entry for entry in entries if wanted == entry.agent_id or (entry.name and wanted == entry.name)]
    if exact:
        return exact
    hosts = [entry for entry in entries if not entry.gateway]
    return [entry for entry in hosts if wanted in (entry.agent_type, f"{entry.agent_type}-{entry.port}")]


def short_name(entry: AgentEntry) -> str:
    """The shortest name that always means this agent."""
    return entry.name or f"{entry.agent_type}-{entry.port}"


def nearest(word: str, known: "list[str]") -> str:
    """Return the known word that `word` was probably meant to be, or an empty string."""
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
        return "here are: " + ", ".join(sorted(short_name(entry) for entry in entries)) + "  (synapse list)"
    return "no agent is running; start one with `synapse claude` or `synapse start codex`"


def _distance(left: str, right: str, limit: int) -> int:
    """Edit distance, or `limit` when it is at least that."""
    if abs(len(left) - len(right)) >= limit:
        return limit
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        previous, row[0] = row[0], i
        for j, b in enumerate(right, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (a != b))
    return min(row[-1], limit)
