"""What every chaos run does: letters are sent while accidents happen, a person decides doubts, and a judge counts.

`house_campaign` runs it over the agents of one home, `tests.fleet.chaos.campaign` over those of three machines. The
seed draws the messages and the accidents; what the kernel does in between is its own.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from synapse.client.http import NoAnswer
from tests.integration.chaos.house import ROOT, House, Received, RunningHost, nonces
from tests.integration.chaos.letters import Letter, write_letters
from tests.integration.chaos.verdict import WHOLE_MESSAGES, Verdict
from tests.integration.waiting import until


@dataclass(frozen=True, slots=True)
class Plan:
    """What one sender sends, and whose home it sends from."""

    house: House
    letters: Sequence[Letter]


class Campaign(ABC):
    """One run and what came of it."""

    sender: ClassVar[str]
    """The module that is run to send a plan."""
    look_again: ClassVar[float]
    """Seconds after which a person who saw nothing of a message believes that it is not there."""
    messages_per_second: ClassVar[int]
    """How many messages come to their end in a second at the least, when nothing happens any more."""

    def __init__(self, seed: int, messages: int, every: float) -> None:
        """`every`: seconds between two accidents of the same agent or machine, on average."""
        self.seed = seed
        self.messages = messages
        self.every = every
        self.hosts: dict[str, RunningHost] = {}
        """By the name that messages are sent to."""
        self.letters: dict[str, Letter] = {}
        """By their nonces."""
        self.accidents: Counter[str] = Counter()
        self.resolved: Counter[str] = Counter()
        self.seconds = 0.0
        self._doubts: dict[str, float] = {}
        self._logs: list[Path] = []

    def run(self) -> Verdict:
        begun = time.monotonic()
        chance = random.Random(self.seed)
        self._start_agents()
        senders = [self._start_sender(number, plan) for number, plan in enumerate(self._plans(chance))]
        self._cause_accidents(senders, chance)
        assert all(sender.returncode == 0 for sender in senders)
        self._let_everything_end()
        self.seconds = time.monotonic() - begun
        return self._verdict()

    @abstractmethod
    def report(self, verdict: Verdict) -> str:
        """Returns the figures, for people."""

    @abstractmethod
    def _start_agents(self) -> None:
        """Adds the profiles of all agents, and starts each with `_start`."""

    @abstractmethod
    def _place(self, target: str) -> tuple[House, str]:
        """Returns the home of an agent, and its name and profile there."""

    @abstractmethod
    def _plans(self, chance: random.Random) -> list[Plan]:
        """Draws what the senders send."""

    @abstractmethod
    def _causes(self) -> Sequence[Callable[[threading.Event], None]]:
        """Returns functions that cause accidents until the event is set; each runs in a thread of its own."""

    @abstractmethod
    def _open(self) -> list[object]:
        """Returns what has not come to its end."""

    @abstractmethod
    def _verdict(self) -> Verdict:
        """Compares what programs got with what stores and senders say."""

    def _start(self, target: str) -> None:
        house, name = self._place(target)
        self.hosts[target] = house.start(name, name=name)

    def _received(self, target: str) -> list[Received]:
        house, name = self._place(target)
        return house.received(name)

    def _start_sender(self, number: int, plan: Plan) -> subprocess.Popen[bytes]:
        path = plan.house.folder / f"letters-{number}"
        log = path.with_suffix(".log")
        write_letters(path, plan.letters)
        self.letters |= {letter.nonce: letter for letter in plan.letters}
        self._logs.append(log)
        command = [sys.executable, "-m", self.sender, str(path), str(log)]
        return subprocess.Popen(command, cwd=ROOT, env=plan.house.environment)

    def _cause_accidents(self, senders: Sequence[subprocess.Popen[bytes]], chance: random.Random) -> None:
        """Lets accidents happen for as long as somebody sends."""
        causes = self._causes()
        over = threading.Event()
        with ThreadPoolExecutor(len(causes)) as threads:
            causing = [threads.submit(cause, over) for cause in causes]
            try:
                while any(sender.poll() is None for sender in senders):
                    self._decide(chance)
                    over.wait(0.2)
            finally:
                over.set()
        for cause in causing:
            cause.result()

    def _decide(self, chance: random.Random) -> None:
        """Does what a person does about messages in doubt: looks whether the program has it, then says so."""
        for target, host in tuple(self.hosts.items()):
            with suppress(NoAnswer):
                for item in host.get("/status").body.get("attention", ()):
                    # What a dialog asks is for the program's own person; only doubt is decided here.
                    if "question_id" not in item:
                        self._decide_one(target, host, str(item["task_id"]), chance)

    def _decide_one(self, target: str, host: RunningHost, task_id: str, chance: random.Random) -> None:
        (nonce,) = nonces(host.task(task_id)["message"]["parts"][0]["text"])
        # What only stands in a prompt was not taken.
        taken = (one for one in self._received(target) if one.kind in WHOLE_MESSAGES)
        has_it = any(nonce in nonces(one.text) for one in taken)
        first_seen = self._doubts.setdefault(task_id, time.monotonic())
        if not has_it and time.monotonic() < first_seen + self.look_again:
            return
        verdict = "delivered" if has_it else chance.choice(("retry", "retry", "fail"))
        answer = host.post(f"/tasks/{task_id}/resolve", {"verdict": verdict})
        # Proof may have come just now, and then there is nothing to decide.
        if answer.status < 300:
            self.resolved[verdict] += 1
            self._doubts.pop(task_id, None)

    def _let_everything_end(self) -> None:
        """Waits, when there are no accidents any more, until every message has come to its end."""
        chance = random.Random(self.seed)

        def is_over() -> bool:
            for target, host in tuple(self.hosts.items()):
                if host.process.poll() is not None:
                    self._start(target)
            self._decide(chance)
            return not self._open()

        bound = 60 + self.messages / self.messages_per_second
        until(is_over, "every message to come to its end", self._seen, bound)

    def _seen(self) -> object:
        return self._open(), {target: host.get("/status").body for target, host in self.hosts.items()}

    def _told(self) -> list[dict[str, Any]]:
        """Returns the answers that senders got."""
        return [json.loads(line) for log in self._logs for line in log.read_text(encoding="utf-8").splitlines()]

    def _accepted(self) -> dict[str, set[str]]:
        """Returns the task ids that senders were told, by nonce."""
        accepted: defaultdict[str, set[str]] = defaultdict(set)
        for entry in self._told():
            if entry["what"] == "accepted":
                accepted[entry["nonce"]].add(entry["detail"])
        return accepted


def run_from_command_line(
    parser: argparse.ArgumentParser, campaign: Callable[[int, int, float], AbstractContextManager[Campaign]]
) -> int:
    """Runs a campaign as the arguments say, and prints its report. The parser has the option that sets `every`."""
    parser.add_argument("--messages", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    options = parser.parse_args()
    sys.stdout.write(f"seed {options.seed}\n")
    sys.stdout.flush()
    with campaign(options.seed, options.messages, options.every) as opened:
        verdict = opened.run()
    sys.stdout.write(opened.report(verdict) + "\n" + "".join(f"! {one}\n" for one in verdict.complaints))
    return 1 if verdict.complaints else 0
