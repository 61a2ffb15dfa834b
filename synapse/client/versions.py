"""Names processes of another version than this command: an upgrade leaves them running with the code they have loaded.

`synapse list` imports this module, so it imports nothing heavy.
"""

from synapse.core.address import short_name
from synapse.core.agent import AgentEntry
from synapse.registry.files import GATEWAY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

GATEWAY_UNIT = "synapse-gateway.service"


def of_other_versions(entries: "Iterable[AgentEntry]", own: str) -> "Iterator[tuple[str, str, str]]":
    """Yields the name of each process of another version, what to say of it, and the command that renews it."""
    for entry in entries:
        # An in-process agent is of the version of its gateway.
        if entry.version == own or entry.gateway:
            continue
        yield short_name(entry), f"runs {entry.version or 'an earlier version'}, this is {own}", _renewal(entry)


def _renewal(entry: AgentEntry) -> str:
    if entry.agent_type != GATEWAY:
        return f"synapse restart {short_name(entry)}"
    if is_gateway_service(entry.pid):
        return f"systemctl --user restart {GATEWAY_UNIT}"
    return f"synapse stop {short_name(entry)} && synapse start {GATEWAY}"


def is_gateway_service(pid: int) -> bool:
    """Returns whether the process is the gateway's service: systemd gives each unit a cgroup of its name."""
    try:
        with open(f"/proc/{pid}/cgroup", encoding="utf-8") as file:
            return any(line.rstrip("\n").endswith(f"/{GATEWAY_UNIT}") for line in file)
    except OSError:
        return False
