"""Where an agent lives: its port, its socket, its name and its inbox, each taken so that no other agent can have it."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from synapse import __version__
from synapse.config.settings import Settings, profile_names
from synapse.core.address import KEY, PERSON, UNVERIFIED, is_marked
from synapse.core.agent import AgentEntry
from synapse.core.errors import InvalidRequest, NameTaken, PortTaken, StoreFailed
from synapse.core.store import IsAlive, Lease, TaskStore
from synapse.core.types import Clock
from synapse.registry.files import FileRegistry, is_alive, is_running, own_namespace, own_start_time
from synapse.registry.local import LocalRegistry
from synapse.server.listener import UnixListener, bind_first_free, bind_port, listen_in, listen_in_first, socket_folders

_MOST_SAME: Final = 100
_LEASE_TRIES: Final = 20
_LEASE_PAUSE: Final = 0.05
_NAME_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
_LONGEST_NAME: Final = 40
NAME_RULE: Final = (
    f"up to {_LONGEST_NAME} letters (a to z), digits, '.', '-' and '_', neither '-' nor '.' first, nor '.json' last, "
    f"and neither '{UNVERIFIED}' nor '{KEY}' first: those mark senders that are not proven"
)
_ID_BEGIN: Final = "synapse-"
_SCRIPTED: Final = "scripted"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostIdentity:
    """The sockets of a host, listening already, and its entry for the registry."""

    entry: AgentEntry
    tcp: socket.socket
    unix: UnixListener

    def leave(self) -> None:
        self.tcp.close()
        self.unix.close()


def reserve(
    agent_type: str, ports: Sequence[int], *, name: str, port: int | None, settings: Settings, clock: Clock
) -> HostIdentity:
    """Take a port and a socket for a new agent.

    Raises:
        PortTaken, InvalidSettings: they cannot be had.
        InvalidRequest: the name cannot be one.
    """
    # An agent may be named like its own profile: that name then means it among all of its kind.
    if name not in ("", agent_type):
        check_name(name, settings)
    tcp = _wished_port(port, settings) if port is not None else bind_first_free(ports, settings.host)
    try:
        number = tcp.getsockname()[1]
        agent_id = f"synapse-{agent_type}-{number}"
        unix = take_socket(agent_id, settings)
    except BaseException:
        tcp.close()
        raise
    entry = AgentEntry(
        agent_id,
        agent_type,
        name=name,
        port=number,
        pid=os.getpid(),
        pid_started=own_start_time(),
        pid_namespace=own_namespace(),
        socket=str(unix.path),
        endpoint=f"http://localhost:{number}",
        working_dir=str(Path.cwd()),
        started_at=clock.now().isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        version=__version__,
    )
    return HostIdentity(entry=entry, tcp=tcp, unix=unix)


def take_socket(name: str, settings: Settings) -> UnixListener:
    """Listen at a Unix socket called `name`, in the folder that was wished for, or the first usual one that can be had.

    Raises PortTaken or InvalidSettings.
    """
    file = f"{name}.sock"
    if settings.sources.get("uds_dir"):
        return listen_in(settings.uds_dir, file, uid=os.getuid())
    return listen_in_first(usual_socket_folders(settings), file, uid=os.getuid())


def usual_socket_folders(settings: Settings) -> tuple[Path, ...]:
    """Where sockets may lie when no folder was wished for, in the order of preference."""
    return socket_folders(os.environ.get("XDG_RUNTIME_DIR", ""), uid=os.getuid(), preferred=settings.uds_dir)


def _wished_port(port: int, settings: Settings) -> socket.socket:
    try:
        return bind_port(port, settings.host)
    except PortTaken as error:
        holder = next((one.agent_id for one in FileRegistry(settings.registry).entries() if one.port == port), "")
        raise (PortTaken(f"port {port} is taken by {holder}", hint=error.hint) if holder else error) from None


async def take_inbox(entry: AgentEntry, store: TaskStore, registry: LocalRegistry) -> Lease:
    """Acquire the lease of the agent's inbox: its given name, or its profile in its folder.

    A second agent of the same profile in the same folder gets an inbox of its own; a name is had by one at a time.

    Raises:
        NameTaken: another running agent has the name.
    """
    holder = f"{entry.pid}:{entry.pid_started}"
    holds = holders_of(registry.files)
    first, *others = _inboxes(entry)
    lease = await _acquire_patiently(first, holder, store, registry)
    for wished in others:
        lease = lease or await store.acquire(wished, holder, holds)
    if lease is not None:
        entry.inbox = lease.inbox
        return lease
    # The first agent of a profile in a folder goes by the profile's name without being given it.
    holders = (one for one in await registry.agents() if one.name == entry.name or one.inbox == first)
    other = next((one.agent_id for one in holders), "another agent")
    raise NameTaken(f"{other} goes by '{entry.name}' already", hint="choose another --name  (synapse list)")


async def _acquire_patiently(inbox: str, holder: str, store: TaskStore, registry: LocalRegistry) -> Lease | None:
    """Acquire an inbox; a command that leaves a message there (`send --queue`) holds it for a moment only."""
    holds = holders_of(registry.files)
    for _ in range(_LEASE_TRIES):
        lease = await store.acquire(inbox, holder, holds)
        if lease is not None or any(one.inbox == inbox for one in await registry.agents()):
            return lease
        await asyncio.wait((asyncio.get_running_loop().create_future(),), timeout=_LEASE_PAUSE)
    return None


async def leave_inbox(lease: Lease, store: TaskStore) -> None:
    """Give the lease back, so that the next agent of this name need not ask whether we live."""
    # The lease of a process that has ended is free anyway: a store that fails must not change how an agent ends.
    with suppress(StoreFailed):
        await store.release(lease)


def inbox_of(agent_type: str, name: str, folder: str) -> str:
    """The inbox that an agent of this profile, name and folder takes first; the profile's own name is no name."""
    return f"{agent_type}@{folder}" if name in ("", agent_type) else name


def _inboxes(entry: AgentEntry) -> list[str]:
    first = inbox_of(entry.agent_type, entry.name, entry.working_dir)
    return [first] if entry.name else [first, *(f"{first}#{number}" for number in range(2, _MOST_SAME))]


def holders_of(registry: FileRegistry) -> IsAlive:
    """Tells of holders, written as `pid:start time` and perhaps `:purpose`, whether they live. The store asks in its
    own thread.

    A process that cannot be seen from here, as in a sandbox with pids of its own, lives if its entry says so.
    """

    def lives(holder: str) -> bool:
        pid, started = [*holder.split(":"), ""][:2]
        if not (pid.isdigit() and started.isdigit()):
            return False
        if is_running(int(pid), int(started)):
            return True
        return any(
            (pid, started) == (str(one.pid), str(one.pid_started)) and is_alive(one) for one in registry.written()
        )

    return lives


def is_name(name: str) -> bool:
    """Whether an agent can be called that, on a command line and in the addresses of a gateway."""
    return (
        0 < len(name) <= _LONGEST_NAME
        and _NAME_CHARACTERS.issuperset(name)
        and not name.startswith(("-", "."))
        and not is_marked(name)
        and not name.endswith(".json")
    )


def check_name(name: str, settings: Settings) -> None:
    """Raises InvalidRequest unless `name` can be an agent's name, and means nobody else."""
    if not is_name(name):
        raise InvalidRequest(f"'{name}' cannot be an agent's name", hint=NAME_RULE)
    if _means_others(name.lower(), settings):
        raise InvalidRequest(
            f"'{name}' cannot be an agent's name: messages for others would go to it",
            hint=f"not '{PERSON}', no profile, no profile and port, nothing that begins with '{_ID_BEGIN}'",
        )


def _means_others(name: str, settings: Settings) -> bool:
    """Whether a target of that name has a meaning already; `core.address` says which there are."""
    if name == PERSON or name.startswith(_ID_BEGIN):
        return True
    kind, _, port = name.rpartition("-")
    types = {*profile_names(settings.profile_sources), _SCRIPTED}
    return name in types or (kind in types and port.isdigit())
