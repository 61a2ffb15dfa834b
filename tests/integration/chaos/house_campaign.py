"""A chaos run over the agents of one home: real hosts and programs, several senders, and somebody who kills at random.

python -m tests.integration.chaos.house_campaign --messages 2000 [--seed N]       (scripts/chaos)
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import ClassVar, Final

from synapse.core.override import override
from tests.integration.chaos.campaign import Campaign, Plan, run_from_command_line
from tests.integration.chaos.house import LINE_RULES, PAGE_RULES, House, RunningHost, open_house
from tests.integration.chaos.letters import draw
from tests.integration.chaos.verdict import Verdict, judge
from tests.integration.recovery.journal_file import all_events, all_tasks

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


class HouseCampaign(Campaign):
    """A run in which agents of one house die, and what came of it."""

    sender: ClassVar = "tests.integration.chaos.sender"
    look_again: ClassVar = 1.0
    messages_per_second: ClassVar = 20

    def __init__(self, seed: int, messages: int, every: float, house: House) -> None:
        super().__init__(seed, messages, every)
        self.house = house

    @override
    def _start_agents(self) -> None:
        for name, rules, (program, *arguments), _ in AGENTS:
            self.house.add_profile(name, rules, program, *arguments)
            self._start(name)

    @override
    def _place(self, target: str) -> tuple[House, str]:
        return self.house, target

    @override
    def _plans(self, chance: random.Random) -> list[Plan]:
        targets = [(name, weight) for name, _, _, weight in AGENTS]
        drawn = [draw(chance, number, targets, pause=0.2) for number in range(self.messages)]
        return [Plan(self.house, drawn[number::SENDERS]) for number in range(SENDERS)]

    @override
    def _causes(self) -> Sequence[Callable[[threading.Event], None]]:
        return [partial(self._kill_at_random, name, first) for name, first in zip(self.hosts, VICTIMS, strict=True)]

    def _kill_at_random(self, name: str, first: str, over: threading.Event) -> None:
        """Kills one agent, or what it runs, every now and then, and starts it again.

        Each agent begins with another victim, so that every run has at least one of each.
        """
        chance = random.Random(f"{self.seed} {name}")
        over.wait(chance.uniform(0.1, 1.0) * self.every)
        self._strike(name, first, chance, over)
        while not over.wait(chance.uniform(0.1, 1.9) * self.every):
            self._strike(name, chance.choices(VICTIMS, (10, 5, 2, 2, 3))[0], chance, over)

    def _strike(self, name: str, victim: str, chance: random.Random, over: threading.Event) -> None:
        self.accidents[victim] += 1
        if victim == "frozen":
            self._freeze(self.hosts[name], chance.uniform(0.2, 1.2), over)
            return
        self._kill(self.hosts[name], victim)
        over.wait(chance.choice((0.0, 0.0, 0.5)))
        self._start(name)

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

    @override
    def _open(self) -> list[object]:
        return [
            (task.id, task.inbox, task.receipts, task.attention)
            for task in all_tasks(self.house.home / "store.db")
            if not task.state.is_terminal
        ]

    @override
    def _verdict(self) -> Verdict:
        self.accidents["command"] += sum(entry["what"] == "killed" for entry in self._told())
        store = self.house.home / "store.db"
        received = {name: self._received(name) for name in self.hosts}
        return judge(all_tasks(store), all_events(store), received, self._accepted(), self.letters)

    @override
    def report(self, verdict: Verdict) -> str:
        rows = [
            ("seed", self.seed),
            ("messages sent", self.messages),
            ("accepted", verdict.accepted),
            ("tasks in the journal", verdict.tasks),
            ("received by the programs", verdict.received),
            ("killed, stopped, frozen", ", ".join(f"{count} x {who}" for who, count in sorted(self.accidents.items()))),
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


@contextmanager
def open_campaign(seed: int, messages: int, every: float) -> Generator[HouseCampaign]:
    with open_house() as house:
        yield HouseCampaign(seed, messages, every, house)


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill agents at random while messages are sent, then count.")
    every = "of each agent, on average"
    parser.add_argument("--kill-every", dest="every", type=float, default=5.0, metavar="SECONDS", help=every)
    return run_from_command_line(parser, open_campaign)


if __name__ == "__main__":
    sys.exit(main())
