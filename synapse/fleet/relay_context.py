"""What both halves of the relay share: this machine's identity, the other machines, and the effects of one step."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from synapse.fleet.relay_io import (
    Effect,
    ForgetHandled,
    HostAnswered,
    Identity,
    MailKept,
    PeerAnswered,
    PeerRow,
    Store,
    Write,
)
from synapse.fleet.wire import Incarnation

Asked = PeerAnswered | MailKept | HostAnswered
AskedT = TypeVar("AskedT", PeerAnswered, MailKept, HostAnswered)
Continuation = Callable[[Asked], None]


class RelayContext:
    """Collects the writes and effects of a step, and holds back what must not happen before a commit.

    Effects wait for every earlier Store, not only for that of their own step: what the relay says may follow from
    anything that it has decided before.
    """

    def __init__(self, machine: str, identity: Identity, peers: Iterable[PeerRow], session: str) -> None:
        self.machine: Final = machine
        self.session: Final = session
        """Random for each start of the link: makes the engine's message ids unique, which it remembers for a while."""
        self.identity = identity
        self.now = 0.0
        self._peers = {peer.machine: peer for peer in peers}
        self._token = 0
        self._writes: list[Write] = []
        self._at_once: list[Effect] = []
        self._after: list[Effect] = []
        self._pending: dict[int, list[Effect]] = {}
        """The effects that wait for each Store that is not committed yet, oldest first."""
        self._asked: dict[int, Continuation] = {}

    @property
    def incarnation(self) -> Incarnation:
        """This machine's own."""
        return self.identity.incarnation

    def peer(self, machine: str) -> PeerRow:
        """Returns what is known about another machine."""
        return self._peers.get(machine) or PeerRow(machine=machine)

    def peers(self) -> list[PeerRow]:
        """Returns all machines that are known."""
        return list(self._peers.values())

    def write_peer(self, peer: PeerRow) -> None:
        """Changes what is known about a machine."""
        self._peers[peer.machine] = peer
        self.write(peer)

    def write(self, *writes: Write) -> None:
        """Adds writes to the Store of this step."""
        self._writes.extend(writes)

    def then(self, *effects: Effect) -> None:
        """Adds effects that wait until everything decided so far is durable."""
        self._after.extend(effects)

    def at_once(self, effect: Effect) -> None:
        """Adds an effect that reveals nothing and may be repeated, so it need not wait."""
        self._at_once.append(effect)

    def token(self, continuation: Callable[[AskedT], None]) -> int:
        """Returns a new token; the event that answers it is given to `continuation`."""
        self._token += 1
        self._asked[self._token] = continuation  # type: ignore[assignment]  # the shell answers each effect by its kind
        return self._token

    def answered(self, event: Asked) -> None:
        """Passes the answer to a token on. Ignores answers to tokens of before a restart."""
        continuation = self._asked.pop(event.token, None)
        if continuation is not None:
            continuation(event)

    def stored(self, token: int) -> None:
        """Releases the effects that waited for a commit."""
        self._at_once += self._pending.pop(token, [])

    def flush(self) -> list[Effect]:
        """Returns the effects of this step that may happen now."""
        effects, self._at_once = self._at_once, []
        after, self._after = self._after, []
        if self._writes:
            self._token += 1
            effects.append(Store(token=self._token, writes=tuple(self._writes)))
            self._writes = []
            self._pending[self._token] = after
        elif self._pending:
            self._pending[next(reversed(self._pending))] += after
        else:
            effects += after
        return effects


def forget_below(peer: PeerRow) -> ForgetHandled:
    """Returns the write that deletes the handled messages which the machine will not send again."""
    return ForgetHandled(machine=peer.machine, incarnation=peer.incarnation, n=peer.floor)
