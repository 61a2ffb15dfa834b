"""A tail gives each whole line once; a follower scans for its file in a thread, and reads in the event loop."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator
from pathlib import Path

import pytest

from synapse.drivers.pty.adapters.transcript import Tail, TranscriptFollower, one_file, tail_from_now
from synapse.terminal.signals.report import Record
from tests.unit.drivers.pty.adapters.launches import BOUND, until


def test_half_a_line_is_read_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    tail = Tail(path)
    assert tail.read() == []

    path.write_bytes(b'{"a": 1}\n{"b"')
    assert tail.read() == [{"a": 1}]
    assert tail.read() == []
    with path.open("ab") as file:
        file.write(b": 2}\n[3]\nno JSON\n")

    assert tail.read() == [{"b": 2}]


def test_lines_that_are_there_already_can_be_skipped(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    assert tail_from_now(path).read() == []
    path.write_bytes(b'{"a": 1}\n')
    tail = tail_from_now(path)
    with path.open("ab") as file:
        file.write(b'{"b": 2}\n')

    assert tail.read() == [{"b": 2}]


def test_a_file_that_was_written_anew_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b'{"a": 1}\n{"b": 2}\n')
    tail = tail_from_now(path)
    path.write_bytes(b'{"c": 3}\n')

    assert tail.read() == [{"c": 3}]


class HeldScan:
    """Finds `file`. A scan in a thread waits until it may end, and then finds what was there when it began."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.began = 0
        self.may_end = threading.Event()

    def __call__(self) -> Path | None:
        found = self.file
        if threading.current_thread() is not threading.main_thread():
            self.began += 1
            self.may_end.wait(BOUND)
        return found


@pytest.fixture
def scan(tmp_path: Path) -> Generator[HeldScan]:
    held = HeldScan(tmp_path / "first.jsonl")
    yield held
    held.may_end.set()


def append(file: Path, number: int) -> None:
    with file.open("a", encoding="utf-8") as opened:
        opened.write(json.dumps({"number": number}) + "\n")


async def test_a_slow_scan_does_not_delay_the_reading_and_runs_once_at_a_time(scan: HeldScan) -> None:
    records: list[Record] = []
    follower = TranscriptFollower(scan, one_file, records.append, lambda: 0.0)
    follower.look()
    await until(lambda: scan.began == 1)

    for number in range(30):
        append(scan.file, number)
        await until(lambda: len(records) > number)  # noqa: B023 - awaited before the next number
    follower.stop()
    scan.may_end.set()  # the loop closes before the fixture ends, and waits for its threads

    assert scan.began == 1
    assert [record["number"] for record in records] == list(range(30))


async def test_what_a_look_finds_is_not_undone_by_an_older_scan(scan: HeldScan, tmp_path: Path) -> None:
    records: list[Record] = []
    append(scan.file, 1)
    follower = TranscriptFollower(scan, one_file, records.append, lambda: 0.0)
    follower.start()
    await until(lambda: scan.began == 1)
    scan.file = tmp_path / "second.jsonl"
    append(scan.file, 2)

    follower.look()
    scan.may_end.set()
    await until(lambda: scan.began > 1)
    follower.stop()

    assert [record["number"] for record in records] == [2]
