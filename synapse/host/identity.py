"""The identity of a host: its port, socket, name and inbox, each reserved so that no other agent can have it."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from synapse import __version__
from synapse.config.settings import Settings, profile_names
from synapse.core.address import KEY, NAME_CHARACTERS, PERSON, UNVERIFIED, is_marked
from synapse.core.agent import AgentEntry
from synapse.core.errors import InvalidRequest, NameTaken, PortTaken, StoreFailed
from synapse.core.registry import Registry
from synapse.core.store import IsAlive, Lease, TaskStore
from synapse.core.types import Clock
from synapse.core.waiting import pause
from synapse.host.background import LAUNCHED_BY
from synapse.host.membership import NO_MEMBERSHIP, Membership
from synapse.registry.files import FileRegistry, is_alive, is_running, own_namespace, own_start_time
from synapse.server.listener import UnixListener, bind_first_free, bind_port, listen_in, listen_in_first, socket_folders

_MAX_ANONYMOUS: Final = 100
"""How many agents of one profile may run without a name in one folder."""
_LEASE_TRIES: Final = 20
_LEASE_PAUSE: Final = 0.05
_LONGEST_NAME: Final = 40
NAME_RULE: Final = (
    f"up to {_LONGEST_NAME} letters (a to z), digits, '.', '-' and '_', neither '-' nor '.' first, nor '.json' last, "
    f"and neither '{UNVERIFIED}' nor '{KEY}' first: those mark senders that are not proven"
)
_ID_PREFIX: Final = "synapse-"
SCRIPTED: Final = "scripted"
"""The type of agents that run a script."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostIdentity:
    """The listening sockets of a host, and its registry entry."""

    entry: AgentEntry
    tcp: socket.socket
    unix: UnixListener

    def release(self) -> None:
        """Closes the sockets."""
        self.tcp.close()
        self.unix.close()


def reserve(  # noqa: PLR0913 - what a person chooses for an agent
    agent_type: str,
    ports: Sequence[int],
    *,
    name: str,
    port: int | None,
    settings: Settings,
    clock: Clock,
    membership: Membership = NO_MEMBERSHIP,
) -> HostIdentity:
    """Reserves a port and a socket for a new agent.

    Raises:
        PortTaken, InvalidSettings: the port or the socket is not available.
        InvalidRequest: the name is not allowed.
    """
    # An agent may have the name of its own profile, which then means it among all agents of that profile.
    if name not in ("", agent_type):
        check_name(name, settings)
    tcp = _bind_wanted_port(port, settings) if port is not None else bind_first_free(ports, settings.host)
    try:
        number = tcp.getsockname()[1]
        agent_id = f"synapse-{agent_type}-{number}"
        unix = listen_at_socket(agent_id, settings)
    except BaseException:
        tcp.close()
        raise
    entry = new_entry(agent_id, agent_type, clock, name=name, endpoint=f"http://localhost:{number}")
    entry.port, entry.socket = number, str(unix.path)
    membership.write_to(entry)
    return HostIdentity(entry=entry, tcp=tcp, unix=unix)


def new_entry(agent_id: str, agent_type: str, clock: Clock, *, name: str = "", endpoint: str = "") -> AgentEntry:
    """Returns a registry entry that names this process."""
    return AgentEntry(
        agent_id,
        agent_type,
        name=name,
        pid=os.getpid(),
        pid_started=own_start_time(),
        pid_namespace=own_namespace(),
        endpoint=endpoint,
        working_dir=str(Path.cwd()),
        started_at=clock.now().isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        version=__version__,
        launched_by=os.environ.get(LAUNCHED_BY, ""),
    )


def listen_at_socket(name: str, settings: Settings) -> UnixListener:
    """Listens on a Unix socket called `name`, in `uds_dir` if that is set, else in the first usable default folder.

    Raises PortTaken or InvalidSettings.
    """
    file = f"{name}.sock"
    if settings.sources.get("uds_dir"):
        return listen_in(settings.uds_dir, file, uid=os.getuid())
    return listen_in_first(usual_socket_folders(settings), file, uid=os.getuid())


def usual_socket_folders(settings: Settings) -> tuple[Path, ...]:
    """Returns the default folders for sockets, the preferred first."""
    return socket_folders(os.environ.get("XDG_RUNTIME_DIR", ""), uid=os.getuid(), preferred=settings.uds_dir)


def _bind_wanted_port(port: int, settings: Settings) -> socket.socket:
    try:
        return bind_port(port, settings.host)
    except PortTaken as error:
        holder = next((one.agent_id for one in FileRegistry(settings.registry).entries() if one.port == port), "")
        raise (PortTaken(f"port {port} is taken by {holder}", hint=error.hint) if holder else error) from None


async def acquire_inbox(entry: AgentEntry, store: TaskStore, registry: Registry, holds: IsAlive) -> Lease:
    """Acquires the lease of the agent's inbox: its given name, or its profile in its folder.

    A second agent of that profile in that folder gets another inbox. Only one agent at a time can have a name.
    `holds` tells whether the holder of a lease still runs; see `holders_of`.

    Raises:
        NameTaken: another running agent has the name.
    """
    holder = f"{entry.pid}:{entry.pid_started}"
    first = inbox_of(entry.agent_type, entry.name, entry.working_dir)
    others = () if entry.name else (f"{first}#{number}" for number in range(2, _MAX_ANONYMOUS))
    lease = await _acquire_with_retries(first, holder, store, registry, holds)
    for inbox in others:
        lease = lease or await store.acquire(inbox, holder, holds)
    if lease is not None:
        entry.inbox = lease.inbox
        return lease
    # The first agent of a profile in a folder goes by the profile's name without being given it.
    holders = (one for one in await registry.agents() if one.name == entry.name or one.inbox == first)
    other = next((one.agent_id for one in holders), "another agent")
    raise NameTaken(f"{other} goes by '{entry.name}' already", hint="choose another --name  (synapse list)")


async def _acquire_with_retries(
    inbox: str, holder: str, store: TaskStore, registry: Registry, holds: IsAlive
) -> Lease | None:
    """Acquires an inbox; retries, because a command that queues a message there (`send --queue`) holds it briefly."""
    for _ in range(_LEASE_TRIES):
        lease = await store.acquire(inbox, holder, holds)
        if lease is not None or any(one.inbox == inbox for one in await registry.agents()):
            return lease
        await pause(_LEASE_PAUSE)
    return None


async def release_inbox(lease: Lease, store: TaskStore) -> None:
    """Releases the lease, so that the next agent of this name need not check whether this process is alive."""
    # The lease of an ended process is free anyway, so a store that fails must not change how an agent ends.
    with suppress(StoreFailed):
        await store.release(lease)


def inbox_of(agent_type: str, name: str, folder: str) -> str:
    """Returns the first choice of inbox for an agent; the name of the profile counts as no name."""
    return f"{agent_type}@{folder}" if name in ("", agent_type) else name


def holders_of(registry: FileRegistry) -> IsAlive:
    """Returns the check whether a lease holder, `pid:start time` and perhaps `:purpose`, is alive.

    The store calls it in its own thread. A process that cannot be seen from here, as in a sandbox with its own pids, is
    alive if its registry entry says so.
    """

    def is_holder_alive(holder: str) -> bool:
        pid, started = [*holder.split(":"), ""][:2]
        if not (pid.isdigit() and started.isdigit()):
            return False
        if is_running(int(pid), int(started)):
            return True
        return any(
            (pid, started) == (str(one.pid), str(one.pid_started)) and is_alive(one) for one in registry.written()
        )

    return is_holder_alive


def is_name(name: str) -> bool:
    """Returns whether an agent can have that name, on a command line and in the URLs of a gateway."""
    return (
        0 < len(name) <= _LONGEST_NAME
        and NAME_CHARACTERS.issuperset(name)
        and not name.startswith(("-", "."))
        and not is_marked(name)
        and not name.endswith(".json")
    )


def check_name(name: str, settings: Settings) -> None:
    """Raises InvalidRequest unless `name` is valid and does not mean other agents."""
    if not is_name(name):
        raise InvalidRequest(f"'{name}' cannot be an agent's name", hint=NAME_RULE)
    if _means_others(name.lower(), settings):
        raise InvalidRequest(
            f"'{name}' cannot be an agent's name: messages for others would go to it",
            hint=f"not '{PERSON}', no profile, no profile and port, nothing that begins with '{_ID_PREFIX}'",
        )


def _means_others(name: str, settings: Settings) -> bool:
    """Returns whether that name has a meaning as an address already; see `core.address`."""
    if name == PERSON or name.startswith(_ID_PREFIX):
        return True
    kind, _, port = name.rpartition("-")
    types = {*profile_names(settings.profile_sources), SCRIPTED}
    return name in types or (kind in types and port.isdigit())
