"""A real gateway keeps the search index of the shared store current, without being asked to."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.conformance.real_gateway import IN_PROCESS, RunningGateway, gateway, new_key
from tests.integration.waiting import until

pytestmark = pytest.mark.integration


def test_what_agents_are_told_is_indexed_in_the_background(tmp_path: Path) -> None:
    home = tmp_path / "g"
    with gateway(home, IN_PROCESS) as running:
        _send(running, new_key(home, "laptop"), "write the parser")

        (index,) = until(lambda: list(home.rglob("search.db")), "an index")
        until(lambda: any("write the parser" in body for body in _indexed(index)), "the text", lambda: _indexed(index))


def _send(running: RunningGateway, key: str, text: str) -> None:
    body = {"message": {"content": text, "role": "user"}}
    assert running.ask("POST", "/agents/tck/v1/message:send", body, key=key).status == 200


def _indexed(index: Path) -> list[str]:
    with closing(sqlite3.connect(index)) as connection:
        try:
            return [body for (body,) in connection.execute("SELECT body FROM texts")]
        except sqlite3.OperationalError:
            return []  # it is being made
