"""The log: a line of JSON for each event, in a private file that does not grow for ever."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from synapse.config import process
from synapse.config.process import log_to

log = logging.getLogger("synapse.host.test")


@pytest.fixture(autouse=True)
def own_root() -> Iterator[None]:
    """Restores the root logger after each test."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    give_back(handlers)
    root.setLevel(level)


def give_back(handlers: list[logging.Handler]) -> None:
    root = logging.getLogger()
    for ours in set(root.handlers) - set(handlers):
        ours.close()
    root.handlers[:] = handlers


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_an_event_is_a_line_with_its_name_its_time_and_its_fields(tmp_path: Path) -> None:
    path = log_to(tmp_path / "logs", "synapse-gateway-8000")
    log.info("turn_started", extra={"task": "t-1"})
    log.debug("not told")

    (line,) = lines(path)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("at"))
    assert line == {
        "level": "info",
        "event": "turn_started",
        "logger": "host.test",
        "room": "host.test",
        "task": "t-1",
    }
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_level_is_set_by_name_and_a_wrong_name_is_the_usual_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = logging.getLogger().handlers[:]
    for name, level in (("debug", logging.DEBUG), ("Warning", logging.WARNING), ("loud", logging.INFO)):
        monkeypatch.setenv("SYNAPSE_LOG_LEVEL", name)
        log_to(tmp_path / "logs", "a")
        assert logging.getLogger().level == level
        give_back(before)


def test_a_large_log_is_rotated_while_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "MAX_LOG_BYTES", 1000)
    path = log_to(tmp_path / "logs", "a")
    for number in range(50):
        log.info("told", extra={"number": number})

    aside = path.with_suffix(".log.1")
    kept = [line["number"] for line in (*lines(aside), *lines(path))]
    assert kept == list(range(kept[0], 50)), "the newest are all there, in their order"
    assert path.stat().st_size <= 1200
    assert aside.stat().st_size <= 1200


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_prints_nothing_in_the_terminal(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.log").symlink_to("/dev/full")
    log_to(tmp_path, "a")
    for number in range(3):
        log.warning("store_failed", extra={"number": number})

    assert capfd.readouterr() == ("", "")


def test_a_log_that_cannot_be_rotated_is_still_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "MAX_LOG_BYTES", 300)
    path = log_to(tmp_path / "logs", "a")
    aside = path.with_suffix(".log.1")
    aside.mkdir()  # no file can replace a folder
    for number in range(10):
        log.info("told", extra={"number": number})
    aside.rmdir()
    log.info("told", extra={"number": 10})
    log.info("told", extra={"number": 11})

    assert [line["number"] for line in (*lines(aside), *lines(path))] == list(range(12))


def test_a_log_line_has_no_control_characters(tmp_path: Path) -> None:
    path = log_to(tmp_path / "logs", "synapse-codex-8120")
    hostile = "a\x1b[2J\x7f\x9b1m\u202e\u2028\nb 日本"

    log.info("external_not_shown", extra={"agent": hostile})

    assert not set(path.read_text(encoding="utf-8")) & set("\x1b\x7f\x9b\u202e\u2028")
    assert "日本" in path.read_text(encoding="utf-8")
    assert [line["agent"] for line in lines(path)] == [hostile]
