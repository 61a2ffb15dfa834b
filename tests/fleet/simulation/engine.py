"""The engine of a simulated fleet: what a NATS server keeps, and how it loses that."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from synapse.fleet.wire import Incarnation


@dataclass(slots=True)
class Mail:
    to: str
    sender: str
    body: bytes
    until: float
    """When the engine deletes it."""
    not_before: float = 0.0


@dataclass(slots=True)
class Engine:
    """Streams and buckets. It may lose what it has acknowledged."""

    mails: dict[int, Mail] = field(default_factory=dict[int, Mail])
    once: set[str] = field(default_factory=set[str])
    incarnations: dict[str, Incarnation] = field(default_factory=dict[str, Incarnation])
    logs: dict[str, list[bytes]] = field(default_factory=dict[str, list[bytes]])
    last: int = 0
    history: list[Mail] = field(default_factory=list[Mail])
    """All mails there ever were: an engine whose own disk is restored delivers old ones again."""

    def keep(self, mail: Mail, once: str) -> None:
        if once in self.once:
            return  # swallowed, and acknowledged all the same
        self.once.add(once)
        self.last += 1
        self.mails[self.last] = mail
        self.history.append(mail)

    def wipe(self) -> None:
        self.mails.clear()
        self.once.clear()
        self.incarnations.clear()
        self.logs.clear()

    def restore(self, random: Random) -> None:
        for mail in random.sample(self.history, len(self.history) // 2):
            self.last += 1
            self.mails[self.last] = Mail(mail.to, mail.sender, mail.body, mail.until)

    def lose_tail(self, random: Random) -> int:
        lost = list(self.mails)[random.randrange(len(self.mails)) :] if self.mails else []
        for number in lost:
            del self.mails[number]
        for log in self.logs.values():
            del log[random.randint(0, len(log)) :]
        for name in list(self.incarnations):
            if random.random() < 0.3:
                del self.incarnations[name]
        return len(lost)
