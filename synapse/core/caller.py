"""The caller of a request, as the connection proves it, and the ways in which callers authenticate at a gateway."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from synapse.core.address import PERSON

LOCAL_SCOPE: Final = "local"
ANONYMOUS_SCOPE: Final = "anonymous"
"""The scope of callers without credentials, where none are required."""
READ: Final = "read"
SEND: Final = "send"
CANCEL: Final = "cancel"
APPROVE: Final = "approve"
ATTACH: Final = "attach"
REGISTER: Final = "register"
ACTIONS: Final = (READ, SEND, CANCEL, APPROVE, ATTACH, REGISTER)
"""The actions that a caller of the gateway may be allowed."""
ORDINARY: Final = (READ, SEND, CANCEL)
"""The default actions of a new key: it may neither act as a person does nor make the gateway call addresses."""
GATEWAY_SCOPE: Final = "gateway_scope"
"""In the metadata of a message that a gateway's machine kept for one of its callers: the caller's scope there. The task
itself is of the gateway's machine, which alone the receiver can prove."""
GATEWAY_MACHINE: Final = "gateway_machine"
"""In the metadata of a task on a machine that ships no log: the machine of the gateway whose caller opened it. That
gateway may read the task for its callers."""
MACHINE_SCOPE: Final = "machine:"
"""Prefix of the scope of callers on another machine of the fleet: `machine:laptop`."""
SESSION_NAME: Final = "dashboard"
"""The name of the caller of every browser's session, in logs, tasks and answers."""
API_KEY_HEADER: Final = "X-API-Key"
_REALM: Final = '{} realm="synapse"'


def for_good() -> bool:
    """Returns True, as the default of `Caller.holds`: nothing ends the caller's access."""
    return True


def covers(wanted: str, scope: str) -> bool:
    """Decides whether `scope` is the wanted one; the user of a machine also sees what other machines sent to it."""
    return scope == wanted or (wanted == LOCAL_SCOPE and scope.startswith(MACHINE_SCOPE))


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The caller on whose behalf a request runs.

    `agent_id` is set if the ancestors of the connecting process prove an agent. `scope` decides which tasks it sees.
    """

    scope: str = LOCAL_SCOPE
    agent_id: str = ""
    pid: int = 0
    via_socket: bool = False
    is_owner: bool = False
    """The owner of a gateway that requires no credentials, proven by the connection."""
    doubt: str = ""
    """Why the calling process does not count as a person's although it proves no agent; it has exited, for example."""
    named_agent: str = ""
    """The agent that the process's environment names although its ancestors prove none: an agent may have left it."""
    terminal_doubt: str = ""
    """Why the process is not at a person's terminal, if a setting requires one for decisions that only people make."""
    sees_all: bool = False
    """Tasks of every scope are visible, as for an operator's key."""
    only_from: str = ""
    """Of the tasks on other machines, only those are visible that this machine sent, its own one; empty: all are."""
    actions: frozenset[str] | None = None
    """The allowed ones of ACTIONS; None allows all."""
    agents: frozenset[str] | None = None
    """The allowed agents, by their names at the gateway; None allows all."""
    name: str = ""
    """The name of the API key or the subject of the token, for logs and `userId`."""
    machine: str = ""
    """The machine of the fleet that the caller is on, proven by this machine's link; empty for callers here."""
    remote_sender: str = ""
    """The agent on that machine that sends, by its id there; `user` for a person there. The machine vouches for it.

    A name that begins with `unverified.` is one that the machine does not vouch for. Empty for a caller of a gateway on
    that machine, which has a `name` and a scope as at a gateway here.
    """
    key_id: str = ""
    """The API key that authenticated the caller; empty for other ways."""
    session_id: str = ""
    """The browser's session that authenticated the caller; empty for other ways."""
    holds: Callable[[], bool] = field(default=for_good, repr=False, compare=False)
    """Decides whether the credentials are still valid: keys are revoked and tokens expire while streams run."""

    def is_granted(self, action: str) -> bool:
        """Decides whether the credentials name the action.

        Credentials without limits (`actions` is None) grant nothing that belongs to people, such as APPROVE and ATTACH:
        on a gateway without authentication every process of the user has such credentials, agents included.
        """
        return self.actions is not None and action in self.actions

    def sees(self, scope: str) -> bool:
        """Decides whether tasks of `scope` are visible to the caller; invisible ones look missing."""
        return self.sees_all or covers(self.scope, scope)

    @property
    def limited_as(self) -> str:
        """Names those whose requests and streams are limited together: one key, one subject, one session."""
        return f"{self.scope} {self.name} {self.session_id}"

    @property
    def is_anonymous(self) -> bool:
        """The caller brought no credentials."""
        return self.scope == ANONYMOUS_SCOPE

    @property
    def is_agent(self) -> bool:
        return bool(self.agent_id)

    @property
    def is_person(self) -> bool:
        """A person's process calls. Only the Unix socket identifies processes, so other connections prove no person."""
        return self.via_socket and not self.agent_id and not self.doubt

    @property
    def is_dashboard(self) -> bool:
        """A person calls from a browser's session, which nobody else can open. Also known in the host of an agent.

        No key and no token has all of this: the scope is the user's own, and all tasks are visible. The session of a
        machine that may not read and approve here has that machine in its name.
        """
        is_sessions = self.name == SESSION_NAME and self.scope == LOCAL_SCOPE
        return is_sessions and self.sees_all and self.actions is not None and not self.via_socket

    @property
    def is_own_user(self) -> bool:
        """The user who runs Synapse calls, rather than a caller with credentials."""
        return self.via_socket or self.is_owner

    @property
    def may_decide(self) -> bool:
        """The caller may make decisions that only people make."""
        return self.is_person and not self.terminal_doubt

    @property
    def is_person_elsewhere(self) -> bool:
        """A person on another machine calls, or a caller of a gateway there, whose credentials count; no agent does."""
        return bool(self.machine) and self.remote_sender in ("", PERSON)

    @property
    def objection(self) -> str:
        """Why the caller may not make decisions that only people make; empty if it may."""
        if self.agent_id:
            return f"the calling process belongs to the agent {self.agent_id}"
        if self.machine:
            return self._objection_elsewhere()
        if self.doubt:
            return f"the calling process does not count as a person's: {self.doubt}"
        if not self.via_socket:
            return "only the Unix socket tells whose process calls"
        if self.terminal_doubt:
            return f"{self.terminal_doubt}, and the setting person_proof demands a terminal of a person's"
        return ""

    def _objection_elsewhere(self) -> str:
        if not self.is_person_elsewhere:
            return f"the caller is {self.remote_sender} on the machine {self.machine}"
        allow = f"`synapse fleet allow {self.machine} approve`"
        return f"the caller is on the machine {self.machine}, whose people may decide after {allow} here"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthMethods:
    """The authentication methods of a gateway, for its cards and challenges. A caller may use any of them."""

    api_keys: bool = False
    jwt_issuer: str = ""
    """The issuer of accepted tokens; empty if no tokens are accepted."""
    jwt_scopes: tuple[str, ...] = ()
    """The token scopes that the gateway knows."""
    custom: str = ""
    """What a custom authenticator requires, in words; empty without one."""

    @property
    def bearer(self) -> bool:
        """Whether the gateway accepts `Authorization: Bearer …`."""
        return self.api_keys or bool(self.jwt_issuer)

    def challenge(self, error: str = "") -> str:
        """Returns the challenge for a refused caller (RFC 9110 §11.6.1); `error` is a code of RFC 6750 §3.1."""
        offers: list[str] = []
        if self.bearer:
            offers.append(_REALM.format("Bearer") + (f', error="{error}"' if error else ""))
        if self.api_keys:
            offers.append(_REALM.format("ApiKey") + f', header="{API_KEY_HEADER}"')
        if self.custom:
            offers.append(_REALM.format("Custom"))
        return ", ".join(offers) or _REALM.format("Bearer")
