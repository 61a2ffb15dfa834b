"""A chaos run: real hosts and programs, several senders, and somebody who kills at random.

    python -m tests.integration.chaos.campaign --messages 2000 [--seed N]       (scripts/chaos)

The seed draws the messages and the kills; what the kernel does in between is its own.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from synapse.client.http import NoAnswer
from tests.integration.chaos.house import LINE_RULES, PAGE_RULES, ROOT, House, RunningHost, nonces, open_house
from tests.integration.chaos.letters import Letter, draw, write_letters
from tests.integration.chaos.verdict import WHOLE_MESSAGES, Verdict, judge
from tests.integration.recovery.journal_file import all_events, all_tasks
from tests.integration.waiting import until

SENDERS: Final = 4
AGENTS: Final = (
    ("plain", LINE_RULES, ("line_recorder",), 6.0),
    ("slow", LINE_RULES, ("line_recorder", "--slow", "0.25", "--dialogs", "7", "--trust"), 3.0),
    ("flood", LINE_RULES, ("line_recorder", "--flood", "60", "--dialogs", "11"), 4.0),
    ("page", PAGE_RULES, ("page_recorder", "--slow", "0.15", "--dialogs", "9", "--trust"), 4.0),
    ("echoless", LINE_RULES, ("line_recorder", "--echoless"), 0.4),
)
"""Name, profile rules, program and its arguments, and the share of the messages that it gets."""
VICTIMS: Final = ("host", "program", "both", "stopped", "frozen")
LOOK_AGAIN: Final = 1.0
"""Seconds after which a person who saw nothing of a message believes that it is not there."""


@dataclass(slots=True)
class Campaign:
    """One run and what came of it."""

    seed: int
    messages: int
    kill_every: float
    house: House
    hosts: dict[str, RunningHost] = field(default_factory=dict[str, RunningHost])
    kills: Counter[str] = field(default_factory=Counter[str])
    resolved: Counter[str] = field(default_factory=Counter[str])
    doubts: dict[str, float] = field(default_factory=dict[str, float])
    seconds: float = 0.0

    def run(self) -> Verdict:
        begun = time.monotonic()
        chance = random.Random(self.seed)
        letters = self._letters(chance)
        for name, rules, (program, *arguments), _ in AGENTS:
            self.house.add_profile(name, rules, program, *arguments)
            self.hosts[name] = self.house.start(name, name=name)
        senders = self._start_senders(letters)
        over = threading.Event()
        with ThreadPoolExecutor(len(AGENTS)) as killers:
            killing = [
                killers.submit(self._kill_at_random, name, first, over)
                for name, first in zip(self.hosts, VICTIMS, strict=True)
            ]
            try:
                while any(sender.poll() is None for sender in senders):
                    self._decide(chance)
                    over.wait(0.2)
            finally:
                over.set()
        for killer in killing:
            killer.result()
        assert all(sender.returncode == 0 for sender in senders)
        self._let_everything_end()
        self.seconds = time.monotonic() - begun
        return self._verdict(letters)

    def _letters(self, chance: random.Random) -> list[list[Letter]]:
        targets = [(name, weight) for name, _, _, weight in AGENTS]
        drawn = [draw(chance, number, targets, pause=0.2) for number in range(self.messages)]
        return [drawn[number::SENDERS] for number in range(SENDERS)]

    def _start_senders(self, letters: list[list[Letter]]) -> list[subprocess.Popen[bytes]]:
        senders: list[subprocess.Popen[bytes]] = []
        for number, plan in enumerate(letters):
            path = self.house.folder / f"letters-{number}"
            write_letters(path, plan)
            command = [sys.executable, "-m", "tests.integration.chaos.sender", str(path), f"{path}.log"]
            senders.append(subprocess.Popen(command, cwd=ROOT, env=self.house.environment))
        return senders

    def _kill_at_random(self, name: str, first: str, over: threading.Event) -> None:
        """Kill one agent, or what it runs, every now and then, and start it again.

        Each agent begins with another victim, so that every run has at least one of each.
        """
        chance = random.Random(f"{self.seed} {name}")
        over.wait(chance.uniform(0.1, 1.0) * self.kill_every)
        self._strike(name, first, chance, over)
        while not over.wait(chance.uniform(0.1, 1.9) * self.kill_every):
            self._strike(name, chance.choices(VICTIMS, (10, 5, 2, 2, 3))[0], chance, over)

    def _strike(self, name: str, victim: str, chance: random.Random, over: threading.Event) -> None:
        self.kills[victim] += 1
        if victim == "frozen":
            self._freeze(self.hosts[name], chance.uniform(0.2, 1.2), over)
            return
        self._kill(self.hosts[name], victim)
        over.wait(chance.choice((0.0, 0.0, 0.5)))
        self.hosts[name] = self.house.start(name, name=name)

    def _freeze(self, host: RunningHost, seconds: float, over: threading.Event) -> None:
        """The host stands still for a while, perhaps in the middle of a write, and its program goes on."""
        os.kill(host.process.pid, signal.SIGSTOP)
        over.wait(seconds)
        os.kill(host.process.pid, signal.SIGCONT)

    def _kill(self, host: RunningHost, victim: str) -> None:
        if victim in ("program", "both"):
            host.kill_program()
        if victim in ("host", "both"):
            host.process.kill()
        if victim == "stopped":
            host.process.terminate()
        host.wait_until_gone()

    def _decide(self, chance: random.Random) -> None:
        """Do what a person does about messages in doubt: look whether the program has it, then say so."""
        for name, host in self.hosts.items():
            with suppress(NoAnswer):
                for item in host.get("/status").body["attention"]:
                    # What a dialog asks is for the program's own person; only doubt is decided here.
                    if "question_id" not in item:
                        self._decide_one(name, host, str(item["task_id"]), chance)

    def _decide_one(self, name: str, host: RunningHost, task_id: str, chance: random.Random) -> None:
        (nonce,) = nonces(host.task(task_id)["message"]["parts"][0]["text"])
        # What only stands in a prompt was not taken.
        taken = (one for one in self.house.received(name) if one.kind in WHOLE_MESSAGES)
        has_it = any(nonce in nonces(one.text) for one in taken)
        first_seen = self.doubts.setdefault(task_id, time.monotonic())
        if not has_it and time.monotonic() < first_seen + LOOK_AGAIN:
            return
        verdict = "delivered" if has_it else chance.choice(("retry", "retry", "fail"))
        answer = host.post(f"/tasks/{task_id}/resolve", {"verdict": verdict})
        # Proof may have come just now, and then there is nothing to decide.
        if answer.status < 300:
            self.resolved[verdict] += 1
            self.doubts.pop(task_id, None)

    def _let_everything_end(self) -> None:
        """Nobody is killed any more: every message comes to its end."""
        chance = random.Random(self.seed)

        def is_over() -> bool:
            for name, host in self.hosts.items():
                if host.process.poll() is not None:
                    self.hosts[name] = self.house.start(name, name=name)
            self._decide(chance)
            return not [task for task in all_tasks(self.house.home / "store.db") if not task.state.is_terminal]

        until(is_over, "every message to come to its end", self._open, bound=60 + self.messages / 20)

    def _open(self) -> object:
        tasks = [task for task in all_tasks(self.house.home / "store.db") if not task.state.is_terminal]
        return [
            (task.id, task.inbox, task.receipts, task.attention, self.hosts[task.inbox].get("/status").body)
            for task in tasks
        ]

    def _verdict(self, letters: list[list[Letter]]) -> Verdict:
        accepted: defaultdict[str, set[str]] = defaultdict(set)
        for number in range(SENDERS):
            log = self.house.folder / f"letters-{number}.log"
            for line in log.read_text(encoding="utf-8").splitlines():
                entry = json.loads(line)
                self.kills["command"] += entry["what"] == "killed"
                if entry["what"] == "accepted":
                    accepted[entry["nonce"]].add(entry["detail"])
        store = self.house.home / "store.db"
        received = {name: self.house.received(name) for name in self.hosts}
        by_nonce = {letter.nonce: letter for plan in letters for letter in plan}
        return judge(all_tasks(store), all_events(store), received, accepted, by_nonce)

    def report(self, verdict: Verdict) -> str:
        """The figures, for people."""
        rows = [
            ("seed", self.seed),
            ("messages sent", self.messages),
            ("accepted", verdict.accepted),
            ("tasks in the journal", verdict.tasks),
            ("received by the programs", verdict.received),
            ("killed, stopped, frozen", ", ".join(f"{count} x {who}" for who, count in sorted(self.kills.items()))),
            ("doubts decided by a person", ", ".join(f"{n} x {how}" for how, n in sorted(self.resolved.items())) or 0),
            ("final states", ", ".join(f"{n} x {end}" for end, n in verdict.ends.most_common())),
            ("lost", len(verdict.lost)),
            ("received twice", len(verdict.twice)),
            ("typed into a dialog", len(verdict.into_dialogs)),
            ("changed, or to the wrong agent", len(verdict.changed)),
            ("without exactly one final state", len(verdict.unended)),
            ("seconds", round(self.seconds)),
        ]
        return "\n".join(f"{title:<34} {value}" for title, value in rows)


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill agents at random while messages are sent, then count.")
    parser.add_argument("--messages", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--kill-every", type=float, default=5.0, metavar="SECONDS", help="of each agent, on average")
    options = parser.parse_args()
    sys.stdout.write(f"seed {options.seed}\n")
    sys.stdout.flush()
    with open_house() as house:
        campaign = Campaign(options.seed, options.messages, options.kill_every, house)
        verdict = campaign.run()
    sys.stdout.write(campaign.report(verdict) + "\n" + "".join(f"! {one}\n" for one in verdict.complaints))
    return 1 if verdict.complaints else 0


if __name__ == "__main__":
    sys.exit(main())
