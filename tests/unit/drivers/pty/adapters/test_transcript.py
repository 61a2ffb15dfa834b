"""A tail gives each whole line once."""

from __future__ import annotations

from pathlib import Path

from synapse.drivers.pty.adapters.transcript import Tail, tail_from_now


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
