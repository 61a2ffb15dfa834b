"""Who is connected, and may they act: proven by the kernel, not claimed in the request.

    Unix socket   SO_PEERCRED gives uid and pid; the process and its ancestors are read when the connection is
                  accepted (see lineage), and tell an agent from a person
    TCP           the uid of the peer's socket (see tcp_owner); neither an agent nor a person is proven
    otherwise     a bearer token

On systems that do not tell whose connection it is, only the token counts.

The bearer token that opens an agent's TCP port to other users: a secret in a private file, made at first start.
"""

from __future__ import annotations

import hmac
import os
import secrets
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Final

from synapse.config.private_files import make_folders
from synapse.core.agent import AgentEntry
from synapse.core.caller import Caller
from synapse.core.errors import ForeignOrigin, Unauthenticated
from synapse.dialects.dialect import Headers
from synapse.server.asgi import Scope
from synapse.server.lineage import standing_of, terminal_doubt
from synapse.server.peer import NOBODY, PEER, Peer, read_in_thread


def loopback_hosts(port: int) -> frozenset[str]:
    """The names that a request to this machine's `port` may have in its Host header."""
    return frozenset({f"localhost:{port}", f"127.0.0.1:{port}", f"[::1]:{port}"})


class LocalAuth:
    """Admits callers: those of `uid`, and those who bring the token. `entries` gives the agents that are here.

    With `terminal_decides`, what only people decide is taken only from processes at a terminal that no agent opened.
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
        """Whether `admit` looks at processes, so that it does not belong into an event loop."""
        return self._terminal_decides

    def admit(self, scope: Scope) -> Caller:
        """Return on whose behalf the request runs.

        Raises:
            ForeignOrigin: it comes from a web page, or was sent to a name that is not ours.
            Unauthenticated: it is another user's, without the token.
        """
        peer: Peer = scope["state"].get(PEER, NOBODY)
        self._check_origin(scope["headers"], peer)
        if peer.caller is not None:
            return peer.caller
        if peer.uid != self._uid:
            return self._by_token(scope["headers"], peer)
        peer.caller = self._of_process(peer) if peer.via_socket else Caller()
        return peer.caller

    def _of_process(self, peer: Peer) -> Caller:
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
        """Web pages reach loopback ports, also under a name that they made point here; they never reach a socket."""
        hosts = 0
        for name, value in headers:
            if name == b"origin" and value.lower() not in self._origins:
                raise ForeignOrigin("requests from web pages are not taken", hint="leave the Origin header out")
            if name == b"host" and value.lower() in self._hosts:
                hosts += 1
            elif name == b"host":
                hosts += 2
        # A page that made its own name point here has no token, so whoever has it may use any name of this machine.
        if hosts != 1 and not peer.via_socket and not self._brings_token(headers):
            raise self._foreign_host()

    def _foreign_host(self) -> ForeignOrigin:
        names = " or ".join(sorted(host.decode("ascii") for host in self._hosts))
        return ForeignOrigin("the Host header does not name this agent", hint=f"send it to {names}")

    def _brings_token(self, headers: Headers) -> bool:
        given = next((value for name, value in headers if name == b"authorization"), b"")
        scheme, _, token = given.partition(b" ")
        return bool(self._token) and scheme.lower() == b"bearer" and hmac.compare_digest(token.strip(), self._token)

    def _by_token(self, headers: Headers, peer: Peer) -> Caller:
        if self._brings_token(headers):
            return Caller(via_socket=peer.via_socket, doubt="a token does not tell whose process it is")
        why = (
            "it cannot be told which user this connection belongs to"
            if peer.uid is None
            else f"this connection belongs to another user (uid {peer.uid})"
        )
        raise Unauthenticated(why, hint="send the agent's token as `Authorization: Bearer …`")


class LocalAdmission:
    """Lets `gate` judge a process once it knows the agents that run.

    They are not read in the event loop; `read_agents` brings `entries` of the gate up to date.
    """

    def __init__(self, gate: LocalAuth, read_agents: Callable[[], Awaitable[object]]) -> None:
        self._gate = gate
        self._read_agents = read_agents

    def __call__(self, scope: Scope) -> Caller | Awaitable[Caller]:
        """Return on whose behalf a request runs; see `LocalAuth.admit`."""
        peer: Peer = scope["state"].get(PEER, NOBODY)
        if peer.caller is not None or not peer.via_socket:
            return self._gate.admit(scope)
        return self._admit_process(scope)

    async def _admit_process(self, scope: Scope) -> Caller:
        await self._read_agents()
        if self._gate.reads_processes:
            return await read_in_thread(partial(self._gate.admit, scope))
        return self._gate.admit(scope)


FILE: Final = "token"
_BYTES: Final = 32


def own_token(home: Path) -> str:
    """Return the user's token, made if there is none; several processes may ask at once.

    Raises OSError.
    """
    make_folders(home)
    path = home / FILE
    draft = home / f".{FILE}.{os.getpid()}"
    try:
        return path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        pass  # nobody has made it yet
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as file:
        file.write(secrets.token_urlsafe(_BYTES) + "\n")
    try:
        # Unlike a rename, a link does not replace what another process has made meanwhile.
        path.hardlink_to(draft)
    except FileExistsError:
        pass  # then that one counts
    finally:
        draft.unlink()
    return path.read_text(encoding="ascii").strip()
