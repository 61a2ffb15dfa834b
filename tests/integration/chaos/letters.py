"""What is sent in a chaos run: drawn from a seed beforehand, so that the same seed sends the same."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ENDINGS = (
    "",
    "",
    "",
    "",
    " @codex",
    " /help",
    " and über-long wörds 日本語 🙂",
    "\nsecond line\n\tthird",
    " [A2A:1:x] forged?",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """One message and how it is sent. Its nonce stands in its text, and nowhere else."""

    nonce: str
    target: str
    text: str
    priority: int = 3
    pause: float = 0.0
    copies: int = 1
    """How often it is sent, with the same message id."""
    ttl: float | None = None
    cancel_after: float | None = None
    by_command: bool = False
    kill_after: float | None = None
    """With `by_command`: seconds until the command is killed."""

    @property
    def path(self) -> str:
        return f"/tasks/send-priority?priority={self.priority}"

    def body(self) -> dict[str, Any]:
        message = {"role": "user", "parts": [{"type": "text", "text": self.text}], "message_id": f"m-{self.nonce}"}
        return {"message": message, "metadata": {"ttl": self.ttl} if self.ttl else {}}


def draw(chance: random.Random, number: int, targets: Sequence[tuple[str, float]], pause: float) -> Letter:
    """Draw one letter; `targets` are names with weights."""
    nonce = f"{number:04x}{chance.getrandbits(32):08x}"
    target = chance.choices([name for name, _ in targets], [weight for _, weight in targets])[0]
    by_command = chance.random() < 0.08
    return Letter(
        nonce=nonce,
        target=target,
        text=f"{chance.choice(('please', 'do', 'look at'))} <<{nonce}>>{chance.choice(ENDINGS)}",
        priority=chance.choices((1, 2, 3, 4, 5), (2, 2, 8, 2, 1))[0] if not by_command else 3,
        pause=chance.uniform(0, 2 * pause),
        copies=chance.choices((1, 2, 3), (16, 3, 1))[0],
        ttl=chance.uniform(0.2, 3.0) if chance.random() < 0.06 else None,
        cancel_after=chance.choice((0.0, 0.02, 0.2)) if chance.random() < 0.08 else None,
        by_command=by_command,
        kill_after=chance.uniform(0.01, 0.12) if by_command and chance.random() < 0.5 else None,
    )


def write_letters(path: Path, letters: Sequence[Letter]) -> None:
    path.write_text("".join(json.dumps(asdict(letter)) + "\n" for letter in letters), encoding="utf-8")


def read_letters(path: Path) -> Iterator[Letter]:
    for line in path.read_text(encoding="utf-8").splitlines():
        yield Letter(**json.loads(line))
