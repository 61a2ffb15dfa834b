"""Runs the link of a machine, lets it die at a named point, and starts it again, as a service manager would.

    python dying_link.py FOLDER            with SYNAPSE_HOME set

    FOLDER/die-at      the link kills itself, as by `kill -9`, when it next comes to the point that the file names;
                       the file is gone then
    FOLDER/stay-away   while this file exists, the link is not started again
    FOLDER/points      the points that all of these links have passed, one in a line

A point is before or after something durable or visible: a commit of link.db, a request to another machine, a mail, a
call of a host, an answer, a batch of the log, a commit of the replica. The product has no code for this: `RelayShell`,
`LogShipping` and `ReplicaKeeper` are wrapped here, in these processes only.
Every link is a fork of one process that has loaded everything, so that it starts fast.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Callable, Coroutine, Iterable
from functools import wraps
from pathlib import Path
from typing import Any

from synapse.cli.link import run_link
from synapse.fleet.relay_io import HandledRow, OutboxRow, Store, Write
from synapse.fleet.wire import MessageKind, Receipt, RelayedMessage, decode_relay
from synapse.link import asking, link, nats_bus
from synapse.link.replicas import ReplicaKeeper
from synapse.link.shell import RelayShell
from synapse.link.shipping import LogShipping

DIE_AT, STAY_AWAY, POINTS = "die-at", "stay-away", "points"
SILENCE_SECONDS = 2.0
"""How long a machine whose link has died with a request is waited for; the product waits longer."""
Job = Callable[..., Coroutine[Any, Any, Any]]


class Points:
    """Notes the points that the link passes, and ends the process at the one that is asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def at(self, names: Iterable[str]) -> None:
        for name in names:
            _append(self._folder / POINTS, name)
            if _read(self._folder / DIE_AT) == name:
                (self._folder / DIE_AT).unlink()
                os.kill(os.getpid(), signal.SIGKILL)

    def around(self, job: Job, names: Callable[[Any], list[str]]) -> Job:
        """Returns the job with a point before and one after it for each name of its first argument."""

        @wraps(job)
        async def watched(part: object, first: Any, *more: Any) -> Any:
            told = names(first if not more else (first, *more))
            self.at(f"before {name}" for name in told)
            done = await job(part, first, *more)
            self.at(f"after {name}" for name in told)
            return done

        return watched


def watch(points: Points) -> None:
    """Puts points around every effect of the relay, of the shipping and of the replica, for this process."""
    shell: Any = RelayShell
    commit, committed = shell._commit, shell._committed

    def commit_watched(shell: RelayShell, effect: Store) -> None:
        points.at(f"before {name}" for name in _commits(effect))
        commit(shell, effect)

    async def committed_watched(shell: RelayShell, effect: Store, done: Any) -> None:
        await committed(shell, effect, done)
        points.at(f"after {name}" for name in _commits(effect))

    shell._commit, shell._committed = commit_watched, committed_watched
    shell._request = points.around(shell._request, lambda effect: [f"request {_name(effect.body)}"])
    shell._keep = points.around(shell._keep, lambda effect: [f"mail {_name(effect.body)}"])
    shell._ask_host = points.around(shell._ask_host, lambda effect: [type(effect.call).__name__])
    shell._answer = points.around(shell._answer, lambda told: [f"answer {_name(told[1])}"])
    shell._acknowledge = points.around(shell._acknowledge, lambda _: ["acknowledge"])
    shipping: Any = LogShipping
    shipping._store = points.around(shipping._store, lambda _: ["commit chain"])
    shipping._keep = points.around(shipping._keep, lambda _: ["ship batch"])
    keeper: Any = ReplicaKeeper
    keeper._write = points.around(keeper._write, lambda _: ["commit replica"])
    shell.__init__.__kwdefaults__["relay_seconds"] = SILENCE_SECONDS
    asking_module: Any = asking
    asking_module.ANSWER_SECONDS = SILENCE_SECONDS


def _commits(effect: Store) -> list[str]:
    return [f"commit {name}" for write in effect.writes if (name := _row(write))]


def _row(write: Write) -> str:
    match write:
        case OutboxRow(kind=kind, state=state, told=told):
            return f"{kind} {state.value}{' told' if told and kind != MessageKind.ENDED else ''}"
        case HandledRow(kind=kind):
            return f"handled {kind}"
        case _:
            return ""


def _name(body: bytes) -> str:
    match decode_relay(body):
        case RelayedMessage(kind=kind):
            return kind
        case Receipt():
            return "receipt"
        case other:
            return type(other).__name__


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""


def _append(path: Path, line: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")


def main(folder: Path) -> int:
    # Loaded here, for all forks.
    sys.stdout.write(f"{link.__name__}, {nats_bus.__name__}\n")
    sys.stdout.flush()
    while True:
        while (folder / STAY_AWAY).exists():
            select.select((), (), (), 0.02)
        child = os.fork()
        if child == 0:
            watch(Points(folder))
            os._exit(run_link(["--json", "--headless"]))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code != -signal.SIGKILL:
            return code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
