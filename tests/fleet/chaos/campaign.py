"""A chaos run over three machines: real links, a real server, real hosts and programs, and somebody who kills and cuts.

    python -m tests.fleet.chaos.campaign --messages 2000 [--seed N]       (scripts/chaos --fleet)

Every message goes to an agent on another machine.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Final

from synapse.core.override import override
from synapse.core.task import Task
from tests.fleet.careful_client import end_in, outbox_rows
from tests.fleet.world import Machine, World, open_world
from tests.integration.chaos.campaign import Campaign, Plan, run_from_command_line
from tests.integration.chaos.house import LINE_RULES, PAGE_RULES, House, nonces
from tests.integration.chaos.letters import Letter, draw
from tests.integration.chaos.verdict import Verdict, judge
from tests.integration.recovery.journal_file import all_events, all_tasks

MACHINES: Final = ("hub", "box2", "box3")
AGENTS: Final = {
    "hub": (("plain", LINE_RULES, ("line_recorder",)),),
    "box2": (("plain", LINE_RULES, ("line_recorder",)), ("page", PAGE_RULES, ("page_recorder", "--dialogs", "9"))),
    "box3": (("slow", LINE_RULES, ("line_recorder", "--slow", "0.1", "--dialogs", "11")),),
}
"""Name, profile rules and program of the agents of each machine."""
ACCIDENTS: Final = ("link", "frozen link", "cut", "host", "server")
FIRST: Final = {"hub": ("server", "link"), "box2": ("cut", "frozen link"), "box3": ("host", "cut")}
"""The first accidents of each machine, so that even a short run has all of them."""


class FleetCampaign(Campaign):
    """A run in which links, hosts, the network and the server fail, and what came of it."""

    sender: ClassVar = "tests.fleet.chaos.sender"
    look_again: ClassVar = 3.0
    messages_per_second: ClassVar = 10

    def __init__(self, seed: int, messages: int, every: float, world: World) -> None:
        super().__init__(seed, messages, every)
        self.world = world
        self.unsent = 0
        """Messages that their machine never gave to an agent: taken back in time, or refused."""
        self.evidence: list[str] = []
        """What is known of the messages that are complained about."""
        self._origins: dict[str, str] = {}
        """The machine that sends a letter, by its nonce."""

    @override
    def _start_agents(self) -> None:
        self.world.form()
        for machine, agents in AGENTS.items():
            for name, rules, (program, *arguments) in agents:
                self.world[machine].add_profile(name, rules, program, *arguments)
                self._start(f"{name}@{machine}")

    @override
    def _place(self, target: str) -> tuple[House, str]:
        name, _, machine = target.rpartition("@")
        return self.world[machine], name

    @override
    def _plans(self, chance: random.Random) -> list[Plan]:
        drawn: dict[str, list[Letter]] = {name: [] for name in MACHINES}
        for number in range(self.messages):
            origin = MACHINES[number % len(MACHINES)]
            targets = [(target, 1.0) for target in self.hosts if not target.endswith(f"@{origin}")]
            # The command is tried by the other tests; here it would only be slow.
            letter = replace(draw(chance, number, targets, pause=0.1), by_command=False, kill_after=None)
            drawn[origin].append(letter)
            self._origins[letter.nonce] = origin
        return [Plan(self.world[origin], letters) for origin, letters in drawn.items()]

    @override
    def _causes(self) -> Sequence[Callable[[threading.Event], None]]:
        return [partial(self._cause_accidents_of, name) for name in MACHINES]

    def _cause_accidents_of(self, machine: str, over: threading.Event) -> None:
        chance = random.Random(f"{self.seed} {machine}")
        first = list(FIRST[machine])
        while not over.wait(chance.uniform(0.2, 1.8) * self.every):
            accident = first.pop(0) if first else chance.choices(ACCIDENTS, (6, 3, 4, 3, 1))[0]
            if accident == "server" and machine != MACHINES[0]:
                continue
            self.accidents[accident] += 1
            self._accidents()[accident](self.world[machine], chance, over)

    def _accidents(self) -> dict[str, Callable[[Machine, random.Random, threading.Event], None]]:
        return {
            "link": self._kill_link,
            "frozen link": self._freeze_link,
            "cut": self._cut,
            "host": self._kill_host,
            "server": self._kill_server,
        }

    def _kill_link(self, machine: Machine, chance: random.Random, over: threading.Event) -> None:
        machine.kill_link()
        over.wait(chance.choice((0.0, 0.0, 1.0)))
        machine.start_link()

    def _freeze_link(self, machine: Machine, chance: random.Random, over: threading.Event) -> None:
        entry = machine.link
        if entry is not None:
            with suppress(ProcessLookupError):
                os.kill(entry.pid, signal.SIGSTOP)
                over.wait(chance.uniform(0.2, 3.0))
                os.kill(entry.pid, signal.SIGCONT)

    def _cut(self, machine: Machine, chance: random.Random, over: threading.Event) -> None:
        machine.cut_off()
        over.wait(chance.uniform(0.2, 6.0))
        machine.mend()

    def _kill_host(self, machine: Machine, chance: random.Random, over: threading.Event) -> None:
        name, _, _ = chance.choice(AGENTS[machine.name])
        target = f"{name}@{machine.name}"
        self.hosts[target].kill()
        over.wait(chance.choice((0.0, 0.5)))
        self._start(target)

    def _kill_server(self, _machine: Machine, _chance: random.Random, _over: threading.Event) -> None:
        self.world.kill_server()

    @override
    def _let_everything_end(self) -> None:
        """Waits until every message has come to its end, and its sender is told."""
        self.world.wait_connected(60)
        super()._let_everything_end()

    @override
    def _open(self) -> list[object]:
        found: list[object] = []
        for machine in self.world:
            found += [(task.id, task.state.value) for task in self._tasks(machine) if not task.state.is_terminal]
            found += [row for row in outbox_rows(machine) if row["state"] in ("open", "accepted") or not row["told"]]
        return found

    def _tasks(self, machine: Machine) -> list[Task]:
        return all_tasks(machine.home / "store.db")

    @override
    def _verdict(self) -> Verdict:
        accepted = self._accepted()
        tasks = [task for machine in self.world for task in self._tasks(machine)]
        events = [one for machine in self.world for one in all_events(machine.home / "store.db")]
        received = {target: self._received(target) for target in self.hosts}

        def sender_of(task: Task) -> str:
            return f"user@{self._origins[nonces(task.message.text)[0]]}"

        ends = {task.id: task for task in tasks}
        rows = [(machine.name, row) for machine in self.world for row in outbox_rows(machine)]
        for _, row in rows:
            # The other machine never had its text: refused, or taken back before it came. `told_wrong` judges these.
            task = ends.get(row["task_id"])
            if row["state"] == "refused" or (task is not None and not nonces(task.message.text)):
                accepted.pop(row["message_id"].removeprefix("m-"), None)
                self.unsent += 1
        delivered = [task for task in tasks if nonces(task.message.text)]
        verdict = judge(delivered, events, received, accepted, self.letters, sender_of)
        for name, row in rows:
            if why := told_wrong(row, ends.get(row["task_id"])):
                verdict.told_wrong.append(f"{name}: {row['message_id']} {row['state']}: {why}")
        self.evidence = [
            line
            for nonce in sorted({nonce for one in verdict.complaints for nonce in re.findall(r"[0-9a-f]{12}", one)})
            for line in self._evidence(nonce, tasks)
        ]
        return verdict

    def _evidence(self, nonce: str, tasks: list[Task]) -> list[str]:
        """Returns what is known of a message: its tasks, its place in the outbox, what programs got."""
        lines = [f"{nonce}:"]
        for task in tasks:
            if nonce in nonces(task.message.text):
                steps = [f"{one.step.value} {one.at.time()} {one.source} {one.evidence}" for one in task.receipts]
                lines.append(f"  task {task.id} in {task.inbox} {task.scope}: {task.state.value} {task.note} {steps}")
        for machine in self.world:
            lines += [
                f"  outbox of {machine.name}: {row}" for row in outbox_rows(machine) if nonce in row["message_id"]
            ]
        lines += [f"  told at {self._origins[nonce]}: {entry}" for entry in self._told() if entry["nonce"] == nonce]
        for target in self.hosts:
            lines += [f"  {target} got {one}" for one in self._received(target) if nonce in one.text]
        return lines

    @override
    def report(self, verdict: Verdict) -> str:
        rows = [
            ("seed", self.seed),
            ("messages sent", self.messages),
            ("accepted", verdict.accepted),
            ("received by programs", verdict.received),
            ("taken back or refused", self.unsent),
            ("ends", dict(verdict.ends)),
            ("accidents", dict(self.accidents)),
            ("decided by a person", dict(self.resolved)),
            ("seconds", round(self.seconds)),
            ("complaints", len(verdict.complaints)),
        ]
        return "\n".join([*(f"{name:22} {value}" for name, value in rows), *self.evidence])


def told_wrong(row: dict[str, Any], task: Task | None) -> str:
    """Says in what the sender's machine differs from the receiver's store; empty if it does not."""
    if row["state"] == "uncertain":
        return "no file was lost, so nothing can be uncertain"
    if row["state"] == "refused":
        return "" if task is None else f"its task is {task.state.value}"
    if task is None:
        return "there is no such task"
    if end_in(row) != task.state.value:
        return f"told {end_in(row)!r}, and it is {task.state.value}"
    return ""


@contextmanager
def open_campaign(seed: int, messages: int, every: float) -> Generator[FleetCampaign]:
    with open_world(*MACHINES) as world:
        yield FleetCampaign(seed, messages, every, world)


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill links and cut machines off while messages are sent, then count.")
    parser.add_argument("--every", type=float, default=6.0, metavar="SECONDS", help="between accidents of a machine")
    return run_from_command_line(parser, open_campaign)


if __name__ == "__main__":
    sys.exit(main())
