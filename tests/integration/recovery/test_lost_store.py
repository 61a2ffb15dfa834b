"""A store that is deleted, replaced or moved under running agents: refused at once, put back by a restart."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.conformance import real_gateway
from tests.integration.cli.session import Session, session
from tests.integration.waiting import until
from tests.samples.commands import Ran

pytestmark = pytest.mark.integration

PATIENCE = 30.0


def send(home: Session, target: str, text: str) -> Ran:
    return home.run("send", target, text, "--no-response", "--json")


def stored(home: Session) -> list[Path]:
    return sorted(home.home.glob("store.db*"))


def queue_behind_a_wait(home: Session, name: str) -> None:
    """Give an agent something to do, and a message that waits for its end."""
    assert send(home, name, "wait 60").code == 0
    until(lambda: home.run("status", name, "--json").json["status"] == "working", "it works")
    assert send(home, name, "the queued one").code == 0


def texts_completed(home: Session) -> list[str]:
    """The texts of the messages that were answered."""
    rows: list[dict[str, Any]] = home.run("tasks", "--json").json
    return [str(row) for row in rows if row.get("status") == "completed"]


def test_a_deleted_store_is_refused_and_a_restart_brings_back_what_was_queued(tmp_path: Path) -> None:
    with session(tmp_path / "home") as home:
        home.start("alone")
        queue_behind_a_wait(home, "alone")
        for path in stored(home):
            path.unlink()

        refused = send(home, "alone", "a lost one")
        status = home.run("status", "alone")
        examined = home.run("doctor")

        assert refused.code != 0
        assert "was deleted" in refused.out + refused.err
        assert "synapse restart" in refused.out + refused.err
        assert "was deleted" in status.out
        assert examined.code == 1
        assert "was deleted" in examined.out
        assert stored(home) == []

        assert home.run("restart", "alone").code == 0
        until(lambda: any("the queued one" in text for text in texts_completed(home)), "the queued one is answered")
        assert sum("the queued one" in text for text in texts_completed(home)) == 1
        assert not any("a lost one" in str(row) for row in home.run("tasks", "--json").json)
        assert send(home, "alone", "hello again").code == 0
        assert home.run("doctor").out.count("was deleted") == 0


def test_an_answer_that_came_while_the_store_was_gone_is_kept(tmp_path: Path) -> None:
    with session(tmp_path / "home") as home:
        home.start("alone")
        assert send(home, "alone", "wait 2").code == 0
        until(lambda: home.run("status", "alone", "--json").json["status"] == "working", "it works")
        for path in stored(home):
            path.unlink()
        until(lambda: home.run("status", "alone", "--json").json["status"] == "ready", "it has answered")

        assert home.run("stop", "alone").code == 0
        (text,) = texts_completed(home)
        assert "waited 2 s" in text


def test_a_replaced_store_is_refused_and_the_old_one_is_saved_beside_it(tmp_path: Path) -> None:
    with session(tmp_path / "other") as other:
        other.start("elsewhere")
        assert send(other, "elsewhere", "of another store").code == 0
    with session(tmp_path / "home") as home:
        home.start("alone")
        queue_behind_a_wait(home, "alone")
        for path in stored(home):
            path.unlink()
        shutil.copy(tmp_path / "other" / "store.db", home.home / "store.db")

        refused = send(home, "alone", "a lost one")

        assert refused.code != 0
        assert "was replaced" in refused.out + refused.err
        assert "was replaced" in home.run("doctor").out

        assert home.run("stop", "alone").code == 0
        (saved,) = home.home.glob("store.db.saved-*[0-9]")
        assert str(saved) in home.run("doctor").out
        # As the advice of `doctor` says it.
        for path in home.home.glob("store.db"):
            path.unlink()
        saved.rename(home.home / "store.db")
        home.start("alone")
        until(lambda: any("the queued one" in text for text in texts_completed(home)), "the queued one is answered")


def test_a_store_that_is_moved_away_and_back_goes_on(tmp_path: Path) -> None:
    with session(tmp_path / "home") as home:
        home.start("alone")
        away = tmp_path / "away"
        away.mkdir()
        for path in stored(home):
            path.rename(away / path.name)

        refused = send(home, "alone", "not now")
        assert refused.code != 0
        assert "was moved" in refused.out + refused.err

        for path in away.iterdir():
            path.rename(home.home / path.name)
        assert send(home, "alone", "now").code == 0


def test_nobody_makes_a_new_store_while_agents_have_a_deleted_one(tmp_path: Path) -> None:
    with session(tmp_path / "home") as home:
        home.start("first")
        home.start("second")
        queue_behind_a_wait(home, "first")
        for path in stored(home):
            path.unlink()

        third = home.run("start", "dummy", "--name", "third", "--no-instructions")
        left = home.run("send", "absent", "hello", "--queue")

        assert third.code != 0
        assert "is missing" in third.err
        assert left.code != 0
        assert "is missing" in left.err
        assert stored(home) == []

        assert home.run("restart", "second").code == 0
        assert home.run("restart", "first").code == 0
        until(lambda: any("the queued one" in text for text in texts_completed(home)), "the queued one is answered")
        assert list(home.home.glob("store.db.saved-*")) == []


def test_a_gateway_whose_store_is_gone_says_that_it_cannot(tmp_path: Path) -> None:
    with real_gateway.gateway(tmp_path / "home") as served:
        key = real_gateway.new_key(served.home, "caller")
        body = {"message": {"content": "hello"}}
        assert served.ask("POST", "/agents/tck/v1/message:send", body, key=key).status == 200
        for path in served.home.glob("store.db*"):
            path.unlink()

        refused = served.ask("POST", "/agents/tck/v1/message:send", body, key=key)
        listed = served.ask("GET", "/agents/tck/v1/tasks", key=key)

    assert refused.status >= 500
    assert listed.status >= 500
    assert (tmp_path / "home" / "store.db").exists()
    assert (tmp_path / "home" / "store.db").stat().st_mode & 0o077 == 0
