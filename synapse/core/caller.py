"""Who asks: proven by the connection, not claimed in the request.

How callers can prove who they are at a gateway: the facts that cards and challenges are made of.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

LOCAL_SCOPE: Final = "local"
ANONYMOUS_SCOPE: Final = "anonymous"
"""Of those who brought no credentials, where none are needed."""
READ: Final = "read"
SEND: Final = "send"
CANCEL: Final = "cancel"
APPROVE: Final = "approve"
REGISTER: Final = "register"
ACTIONS: Final = (READ, SEND, CANCEL, APPROVE, REGISTER)
"""What a caller at the gateway can be allowed to do."""
ORDINARY: Final = (READ, SEND, CANCEL)
"""What a new key may do unless more is asked for: neither speak for a person nor make the gateway call addresses."""


def for_good() -> bool:
    """For callers whom nobody puts out."""
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The one on whose behalf a request runs.

    `agent_id` is set when the ancestors of the connecting process prove an agent. `scope` says whose tasks it sees.
    """

    scope: str = LOCAL_SCOPE
    agent_id: str = ""
    pid: int = 0
    via_socket: bool = False
    is_owner: bool = False
    """The user whose gateway it is, proven by the connection, where no credentials are asked for."""
    doubt: str = ""
    """Why its process does not count as a person's, though it proves no agent: it has exited, for example."""
    named_agent: str = ""
    """The agent that its environment names, though its ancestors prove none: an agent may have left it behind."""
    terminal_doubt: str = ""
    """Why it is not at a terminal of a person's, where a setting demands one for what only people decide."""
    sees_all: bool = False
    """Tasks of every scope are visible: an operator's key."""
    actions: frozenset[str] | None = None
    """What it may do, of ACTIONS; None is everything."""
    agents: frozenset[str] | None = None
    """The agents that it may use, by the names that the gateway shows; None is all."""
    name: str = ""
    """For logs and for `userId`: the name of its key, or its token's subject."""
    key_id: str = ""
    """The API key that let it in; empty when it came in another way."""
    holds: Callable[[], bool] = field(default=for_good, repr=False, compare=False)
    """Tells whether what let it in still counts: keys are revoked, and tokens expire, while streams run."""

    def sees(self, scope: str) -> bool:
        """Whether tasks of that scope are visible to it; a foreign one looks like a missing one."""
        return self.sees_all or scope == self.scope

    @property
    def is_anonymous(self) -> bool:
        """Nothing is known of it."""
        return self.scope == ANONYMOUS_SCOPE

    @property
    def is_agent(self) -> bool:
        return bool(self.agent_id)

    @property
    def is_person(self) -> bool:
        """Nothing speaks for an agent. Only the socket tells whose process calls, so nobody is a person elsewhere."""
        return self.via_socket and not self.agent_id and not self.doubt

    @property
    def is_own_user(self) -> bool:
        """This machine's own user, and not somebody with credentials."""
        return self.via_socket or self.is_owner

    @property
    def may_decide(self) -> bool:
        """What only people decide is taken from it."""
        return self.is_person and not self.terminal_doubt

    @property
    def objection(self) -> str:
        """Why it may not decide what only people decide; empty when it may."""
        if self.agent_id:
            return f"the calling process belongs to the agent {self.agent_id}"
        if self.doubt:
            return f"the calling process does not count as a person's: {self.doubt}"
        if not self.via_socket:
            return "only the Unix socket tells whose process calls"
        if self.terminal_doubt:
            return f"{self.terminal_doubt}, and the setting person_proof demands a terminal of a person's"
        return ""


API_KEY_HEADER: Final = "X-API-Key"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthMethods:
    """The methods in force; all of them may be used side by side."""

    api_keys: bool = False
    jwt_issuer: str = ""
    """Who issues the tokens that are taken; empty when none are."""
    jwt_scopes: tuple[str, ...] = ()
    """The scopes that mean something here."""
    custom: str = ""
    """What an authenticator of the owner's own asks for, in words; empty when there is none."""

    @property
    def bearer(self) -> bool:
        """Whether `Authorization: Bearer …` is understood."""
        return self.api_keys or bool(self.jwt_issuer)

    def challenge(self, error: str = "") -> str:
        """What a refused caller is told to bring (RFC 9110 §11.6.1); `error` is a code of RFC 6750 §3.1."""
        offers: list[str] = []
        if self.bearer:
            offers.append(_REALM.format("Bearer") + (f', error="{error}"' if error else ""))
        if self.api_keys:
            offers.append(_REALM.format("ApiKey") + f', header="{API_KEY_HEADER}"')
        if self.custom:
            offers.append(_REALM.format("Custom"))
        return ", ".join(offers) or _REALM.format("Bearer")


_REALM: Final = '{} realm="synapse"'
