"""Power-like loss: the store's files as they are at some instant, opened elsewhere, hold every accepted message."""

from __future__ import annotations

import os
import random
import shutil
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.chaos.house import LINE_RULES, House, RunningHost, open_house, steps_of
from tests.integration.recovery.journal_file import all_tasks, is_whole
from tests.integration.waiting import until

pytestmark = pytest.mark.integration

INSTANTS = 12
SENDERS = 2


class Correspondence:
    """Several senders that never stop, and what was accepted from them so far."""

    def __init__(self, hosts: list[RunningHost]) -> None:
        self.accepted: list[str] = []
        self._hosts = hosts
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._send, args=(host,)) for host in hosts for _ in range(SENDERS)]

    def _send(self, host: RunningHost) -> None:
        number = 0
        while not self._over.is_set():
            number += 1
            self.accepted.append(host.accepted(f"message {number} to {host.name}"))

    def __enter__(self) -> Correspondence:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()


@contextmanager
def frozen(hosts: list[RunningHost]) -> Generator[None]:
    """Stop the hosts in the middle of whatever they do."""
    for host in hosts:
        os.kill(host.process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for host in hosts:
            os.kill(host.process.pid, signal.SIGCONT)


def copied(house: House, number: int, *, with_index: bool) -> Path:
    """Copy the database and its log; the shared index of the log is lost with the memory that it lies in."""
    folder = house.folder / f"copy-{number}"
    folder.mkdir()
    for suffix in ("", "-wal", "-shm") if with_index else ("", "-wal"):
        if (house.home / f"store.db{suffix}").exists():
            shutil.copy(house.home / f"store.db{suffix}", folder / f"store.db{suffix}")
    return folder / "store.db"


def two_hosts(house: House) -> list[RunningHost]:
    house.environment["SYNAPSE_QUEUE_LIMIT"] = "100000"
    house.add_profile("recorder", LINE_RULES, "line_recorder")
    return [house.start("recorder", name=name) for name in ("one", "two")]


@pytest.mark.parametrize("with_index", [True, False])
def test_every_accepted_message_is_in_a_copy_of_any_instant(with_index: bool) -> None:
    with open_house() as house:
        hosts = two_hosts(house)
        instants: list[tuple[Path, list[str]]] = []
        with Correspondence(hosts) as correspondence:
            for number in range(INSTANTS):
                known = len(correspondence.accepted)
                until(lambda known=known: len(correspondence.accepted) > known + 10, "more messages")  # type: ignore[misc] # bound now
                with frozen(hosts):
                    accepted = list(correspondence.accepted)
                    instants.append((copied(house, number, with_index=with_index), accepted))
        for copy, accepted in instants:
            assert set(accepted) <= {task.id for task in all_tasks(copy)}
            is_whole(copy)


def test_a_log_that_is_torn_anywhere_behind_an_accepted_message_still_holds_it() -> None:
    """What was not synced yet may be missing, in part, or rubbish."""
    chance = random.Random(20261115)
    with open_house() as house:
        hosts = two_hosts(house)
        log = house.home / "store.db-wal"
        with Correspondence(hosts) as correspondence:
            until(lambda: len(correspondence.accepted) > 20, "some messages")
            with frozen(hosts):
                accepted = list(correspondence.accepted)
                synced = log.stat().st_size
            until(lambda: log.stat().st_size > synced + 200_000, "the log to grow")
            with frozen(hosts):
                copy = copied(house, 0, with_index=False)
        written = Path(f"{copy}-wal").read_bytes()
        for number in range(INSTANTS):
            torn = house.folder / f"torn-{number}" / "store.db"
            torn.parent.mkdir()
            shutil.copy(copy, torn)
            end = chance.randrange(synced, len(written))
            rubbish = chance.randbytes(chance.choice((0, 1, 5000)))
            Path(f"{torn}-wal").write_bytes(written[:end] + rubbish)

            assert set(accepted) <= {task.id for task in all_tasks(torn)}
            is_whole(torn)


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_no_message_is_accepted_before_the_disk_has_it() -> None:
    """A copy of the files cannot tell what the disk has; the order of the system calls can."""
    with open_house() as house:
        house.add_profile("busy", LINE_RULES, "line_recorder", "--works", "60")
        trace = house.folder / "trace"
        calls = "trace=fdatasync,fsync,write,writev,sendto,sendmsg"
        host = house.start("busy", name="one", tracer=("strace", "-D", "-f", "-o", str(trace), "-e", calls))
        busy = host.accepted("long work")
        host.wait_for(busy, lambda task: "turn_started" in steps_of(task), "the work to begin")
        begin = len(trace.read_text(encoding="utf-8", errors="replace"))
        for number in range(10):
            host.accepted(f"message {number}")
        traced = trace.read_text(encoding="utf-8", errors="replace")[begin:].splitlines()

    # D: the disk has it. A: an answer of ours.
    story = "".join("D" if "sync" in line and line.endswith("= 0") else "A" for line in traced if is_telling(line))
    assert story.count("A") >= 10
    assert "AA" not in story, story


def is_telling(line: str) -> bool:
    return ("sync" in line and line.endswith("= 0")) or "HTTP/1.1 2" in line
