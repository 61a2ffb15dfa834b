"""The file that says which fleet this machine belongs to."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from synapse.config.fleet import (
    FleetConfig,
    FleetRules,
    checked_extra_actions,
    fleet_file,
    fleet_folder,
    load_fleet,
    save_fleet,
    without_password,
)
from synapse.core.errors import InvalidRequest, InvalidSettings

LAPTOP = FleetConfig(
    fleet="home",
    machine="laptop",
    servers=("tls://box2:4222",),
    ca="/ca.pem",
    creds="/fleet.creds",
    is_gateway=True,
    replica=True,
    ship_log=False,
    runs_server=True,
    allow={"box2": frozenset({"approve", "attach"})},
)


def test_a_machine_in_no_fleet_has_no_membership(tmp_path: Path) -> None:
    assert load_fleet(tmp_path) is None


def test_a_membership_is_read_as_it_was_saved(tmp_path: Path) -> None:
    save_fleet(tmp_path, LAPTOP)

    assert load_fleet(tmp_path) == LAPTOP


def test_what_was_not_given_has_its_default(tmp_path: Path) -> None:
    plain = FleetConfig(fleet="home", machine="laptop", servers=("nats://127.0.0.1:4222",))
    save_fleet(tmp_path, plain)

    assert load_fleet(tmp_path) == plain
    assert plain.ship_log


def test_a_machine_without_a_rule_has_no_extra_action() -> None:
    assert LAPTOP.allowed("box2") == {"approve", "attach"}
    assert LAPTOP.allowed("box3") == frozenset()


def test_only_its_user_can_read_the_files_of_a_fleet(tmp_path: Path) -> None:
    save_fleet(tmp_path, LAPTOP)

    assert stat.S_IMODE(fleet_folder(tmp_path).stat().st_mode) == 0o700
    assert stat.S_IMODE(fleet_file(tmp_path).stat().st_mode) == 0o600
    assert [path.name for path in fleet_folder(tmp_path).iterdir()] == ["fleet.json"]


def test_saving_replaces_the_file_in_one_step(tmp_path: Path) -> None:
    save_fleet(tmp_path, LAPTOP)
    before = fleet_file(tmp_path).open("rb")

    save_fleet(tmp_path, replace(LAPTOP, machine="laptop2"))

    with before:
        assert json.load(before)["machine"] == "laptop"
    assert load_fleet(tmp_path) == replace(LAPTOP, machine="laptop2")


@pytest.mark.parametrize(
    "change",
    [
        {"machine": "Not A Name"},
        {"machine": 3},
        {"servers": "tls://box2"},
        {"servers": [3]},
        {"version": 2},
        {"allow": []},
    ],
)
def test_a_file_with_wrong_values_is_refused_with_a_way_out(tmp_path: Path, change: dict[str, object]) -> None:
    save_fleet(tmp_path, LAPTOP)
    document = json.loads(fleet_file(tmp_path).read_bytes())
    fleet_file(tmp_path).write_text(json.dumps({**document, **change}), encoding="utf-8")

    with pytest.raises(InvalidSettings, match="is not valid") as refused:
        load_fleet(tmp_path)

    assert "fleet leave" in refused.value.hint


def test_a_file_that_is_no_json_is_refused(tmp_path: Path) -> None:
    save_fleet(tmp_path, LAPTOP)
    fleet_file(tmp_path).write_text("[", encoding="utf-8")

    with pytest.raises(InvalidSettings):
        load_fleet(tmp_path)


def test_an_action_of_a_newer_version_is_ignored(tmp_path: Path) -> None:
    save_fleet(tmp_path, LAPTOP)
    document = json.loads(fleet_file(tmp_path).read_bytes())
    document["allow"]["box2"] = ["approve", "fly"]
    fleet_file(tmp_path).write_text(json.dumps(document), encoding="utf-8")

    read = load_fleet(tmp_path)

    assert read is not None
    assert read.allowed("box2") == {"approve"}


def test_only_known_actions_can_be_allowed() -> None:
    assert checked_extra_actions(["approve", "read"]) == {"approve", "read"}
    with pytest.raises(InvalidRequest, match="'send' cannot be allowed"):
        checked_extra_actions(["send"])


@pytest.mark.parametrize(
    ("server", "shown"),
    [
        ("nats://ada:secret@box1:4222", "nats://box1:4222"),
        ("tls://token@box1:4222", "tls://box1:4222"),
        ("tls://[::1]:4222", "tls://[::1]:4222"),
        ("ada:p@ss@box1", "box1"),
        ("", ""),
    ],
)
def test_the_password_in_an_address_is_not_shown(server: str, shown: str) -> None:
    assert without_password(server) == shown


def test_nothing_is_allowed_while_the_file_cannot_be_read_and_it_is_tried_each_time(tmp_path: Path) -> None:
    save_fleet(tmp_path, LAPTOP)
    path = fleet_file(tmp_path)
    content, modified = path.read_bytes(), path.stat().st_mtime_ns
    rules = FleetRules(tmp_path)

    # Too many open files leave a file as it is, too.
    path.write_bytes(b"{" * len(content))
    os.utime(path, ns=(modified, modified))
    damaged = rules.allowed("box2")
    path.write_bytes(content)
    os.utime(path, ns=(modified, modified))

    assert damaged == frozenset()
    assert rules.allowed("box2") == {"approve", "attach"}


def test_a_machine_that_has_left_its_fleet_allows_nothing(tmp_path: Path) -> None:
    save_fleet(tmp_path, LAPTOP)
    rules = FleetRules(tmp_path)
    assert rules.current() == LAPTOP

    fleet_file(tmp_path).unlink()

    assert (rules.current(), rules.allowed("box2")) == (None, frozenset())
