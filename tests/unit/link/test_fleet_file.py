"""What the link reads of `fleet.json` while it runs."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from synapse.config.fleet import FleetConfig, fleet_file, save_fleet
from synapse.link import link
from synapse.link.link import FleetFile

CONFIG = FleetConfig(fleet="home", machine="box2", servers=("nats://127.0.0.1:4222",))


def test_a_right_counts_and_ends_as_soon_as_its_command_has_ended(tmp_path: Path) -> None:
    save_fleet(tmp_path, CONFIG)
    file = FleetFile(tmp_path)
    before = file.allowed("laptop")

    save_fleet(tmp_path, replace(CONFIG, allow={"laptop": frozenset({"attach"})}))
    given = file.allowed("laptop")
    save_fleet(tmp_path, CONFIG)

    assert [sorted(allowed) for allowed in (before, given, file.allowed("laptop"))] == [[], ["attach"], []]


def test_nothing_is_allowed_while_the_file_is_damaged_and_the_machine_stays_in_its_fleet(tmp_path: Path) -> None:
    given = replace(CONFIG, allow={"laptop": frozenset({"attach"})})
    save_fleet(tmp_path, given)
    file = FleetFile(tmp_path)
    before = file.allowed("laptop")

    fleet_file(tmp_path).write_text("{", encoding="utf-8")
    damaged = file.allowed("laptop")

    assert file.config == CONFIG
    save_fleet(tmp_path, given)
    assert [sorted(allowed) for allowed in (before, damaged, file.allowed("laptop"))] == [["attach"], [], ["attach"]]


async def test_a_machine_that_has_left_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "CONFIG_SECONDS", 0.01)
    save_fleet(tmp_path, CONFIG)
    following = asyncio.create_task(FleetFile(tmp_path).follow())

    fleet_file(tmp_path).unlink()

    async with asyncio.timeout(20):
        await following
