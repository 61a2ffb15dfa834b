"""Authenticates the callers of a host on this machine by what the kernel says of their connection.

    Unix socket   SO_PEERCRED gives uid and pid. The process and its ancestors, read when the connection is accepted
                  (see server.lineage), tell an agent from a person
                  A launch secret (see auth.launch) proves an agent there whose process is hidden
    TCP           the uid that owns the peer's socket (see server.peer); proves neither an agent nor a person
    otherwise     the bearer token: a secret in a private file, created at the first start

Where the system does not tell which user owns a connection, only the token counts.
"""

from __future__ import annotations

import hmac
import os
import secrets
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Final

from synapse.auth.launch import agent_with
from synapse.config.private_files import make_folders, write_private
from synapse.core.agent import LAUNCH_HEADER, AgentEntry
from synapse.core.caller import Caller
from synapse.core.errors import ForeignOrigin, SenderMismatch, Unauthenticated
from synapse.dialects.dialect import Headers
from synapse.server.asgi import Scope
from synapse.server.lineage import standing_of, terminal_doubt
from synapse.server.peer import PEER, UNKNOWN_PEER, Peer, read_in_thread

TOKEN_FILE: Final = "token"  # noqa: S105 - the name of a file
_TOKEN_BYTES: Final = 32
_LAUNCH_HEADER: Final = LAUNCH_HEADER.lower().encode("ascii")


def loopback_hosts(port: int) -> frozenset[str]:
    """Returns the Host headers that a request to this machine's `port` may have."""
    return frozenset({f"localhost:{port}", f"127.0.0.1:{port}", f"[::1]:{port}"})


class LocalAuth:
    """Admits processes of the user `uid`, and callers with the token. `entries` returns the agents that run here.

    With `terminal_decides`, only processes at a terminal that no agent opened may decide what people decide.
    """

    def __init__(
        self,
        *,
        uid: int,
        hosts: Iterable[str],
        entries: Callable[[], Iterable[AgentEntry]],
        token: str = "",
        terminal_decides: bool = False,
    ) -> None:
        self._uid = uid
        self._hosts = frozenset(host.encode("ascii") for host in hosts)
        self._origins = frozenset(b"http://" + host for host in self._hosts)
        self._entries = entries
        self._token = token.encode("utf-8")
        self._terminal_decides = terminal_decides

    @property
    def reads_processes(self) -> bool:
        """Whether `admit` reads /proc, so that it must not run in the event loop."""
        return self._terminal_decides

    def admit(self, scope: Scope) -> Caller:
        """Returns the caller of a request.

        Raises:
            ForeignOrigin: a web page sent it, or its Host header names another server.
            Unauthenticated: another user sent it, without the token; or its launch secret is not valid.
            SenderMismatch: it has the launch secret of another agent.
        """
        peer: Peer = scope["state"].get(PEER, UNKNOWN_PEER)
        headers: Headers = scope["headers"]
        self._check_origin(headers, peer)
        caller = peer.caller
        if caller is None and peer.uid != self._uid:
            caller = self._caller_by_token(headers, peer)
        elif caller is None:
            caller = peer.caller = self._caller_by_process(peer) if peer.via_socket else Caller()
        # Not remembered with the connection: each request shows the secret, or goes without it.
        return self._caller_by_secret(headers, caller) if has_launch_secret(headers) else caller

    def _caller_by_process(self, peer: Peer) -> Caller:
        entries = tuple(self._entries())
        agent_id, doubt = standing_of(peer.lineage, entries)
        return Caller(
            agent_id=agent_id,
            pid=peer.pid,
            via_socket=True,
            doubt=doubt,
            named_agent="" if agent_id else peer.lineage.named_agent,
            terminal_doubt=terminal_doubt(peer.lineage, entries) if self._terminal_decides else "",
        )

    def _check_origin(self, headers: Headers, peer: Peer) -> None:
        """Refuses web pages: they reach loopback ports, also by a name that they let point here, but no Unix socket."""
        hosts = 0
        for name, value in headers:
            if name == b"origin" and value.lower() not in self._origins:
                raise ForeignOrigin("requests from web pages are not accepted", hint="omit the Origin header")
            if name == b"host" and value.lower() in self._hosts:
                hosts += 1
            elif name == b"host":
                hosts += 2
        # A page that lets its own name point here has no token, so a caller with the token may use any host name.
        if hosts != 1 and not peer.via_socket and not self._has_token(headers):
            names = " or ".join(sorted(host.decode("ascii") for host in self._hosts))
            raise ForeignOrigin("the Host header does not name this agent", hint=f"send the request to {names}")

    def _has_token(self, headers: Headers) -> bool:
        given = next((value for name, value in headers if name == b"authorization"), b"")
        scheme, _, token = given.partition(b" ")
        return bool(self._token) and scheme.lower() == b"bearer" and hmac.compare_digest(token.strip(), self._token)

    def _caller_by_token(self, headers: Headers, peer: Peer) -> Caller:
        if self._has_token(headers):
            return Caller(via_socket=peer.via_socket, doubt="a token does not identify the process")
        why = (
            "the system does not tell which user owns this connection"
            if peer.uid is None
            else f"this connection belongs to another user (uid {peer.uid})"
        )
        raise Unauthenticated(why, hint="send the agent's token as `Authorization: Bearer …`")

    def _caller_by_secret(self, headers: Headers, caller: Caller) -> Caller:
        """Returns the agent of the request's launch secret; it never has more rights than an agent proven by its pid.

        Over TCP the secret is refused rather than ignored: its sender relies on being proven, and its messages must not
        go out as those of an unverified sender instead.
        """
        given = [value for name, value in headers if name == _LAUNCH_HEADER]
        if not caller.via_socket:
            raise Unauthenticated(
                f"{LAUNCH_HEADER} is valid on an agent's Unix socket only", hint="connect to the socket, or omit it"
            )
        agent = agent_with(given[0], self._entries()) if len(given) == 1 else None
        if agent is None:
            why = "belongs to no running agent" if len(given) == 1 else "was given more than once"
            raise Unauthenticated(
                f"the launch secret {why}", hint="read it again: each launch of an agent has its own, in `secret`"
            )
        # The nearest launch variables name the agent, or its socket where a CLI passes on nothing else.
        proven = caller.agent_id or caller.named_agent
        if proven not in ("", agent.agent_id, agent.socket):
            raise SenderMismatch(
                f"the launch secret is that of {agent.agent_id}, but the calling process belongs to {proven}",
                hint="use the secret of its own launch, or none",
            )
        return Caller(agent_id=agent.agent_id, pid=caller.pid, via_socket=True)


def has_launch_secret(headers: Headers) -> bool:
    """Decides whether a request shows a launch secret, valid or not."""
    return any(name == _LAUNCH_HEADER for name, _ in headers)


class LocalAdmission:
    """Calls `auth` once the running agents are known.

    Does not read them in the event loop: `read_agents` refreshes the `entries` of `auth`.
    """

    def __init__(self, auth: LocalAuth, read_agents: Callable[[], Awaitable[object]]) -> None:
        self._auth = auth
        self._read_agents = read_agents

    def __call__(self, scope: Scope) -> Caller | Awaitable[Caller]:
        """Returns the caller of a request; see `LocalAuth.admit`."""
        peer: Peer = scope["state"].get(PEER, UNKNOWN_PEER)
        if not peer.via_socket or (peer.caller is not None and not has_launch_secret(scope["headers"])):
            return self._auth.admit(scope)
        return self._admit_process(scope)

    async def _admit_process(self, scope: Scope) -> Caller:
        await self._read_agents()
        if self._auth.reads_processes:
            return await read_in_thread(partial(self._auth.admit, scope))
        return self._auth.admit(scope)


def own_token(home: Path) -> str:
    """Returns the user's token, and creates it if there is none. Safe when several processes call it at once.

    Raises OSError.
    """
    make_folders(home)
    path = home / TOKEN_FILE
    draft = home / f".{TOKEN_FILE}.{os.getpid()}"
    try:
        return path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        pass  # this is the first start
    write_private(draft, secrets.token_urlsafe(_TOKEN_BYTES) + "\n")
    try:
        # Unlike a rename, a link does not replace a token that another process has created meanwhile.
        path.hardlink_to(draft)
    except FileExistsError:
        pass  # the other process's token counts
    finally:
        draft.unlink()
    return path.read_text(encoding="ascii").strip()
