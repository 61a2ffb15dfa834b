"""`synapse service`: what it writes, and what it asks of systemd."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from synapse.config.fleet import FleetConfig, save_fleet
from synapse.core.agent import AgentEntry
from synapse.registry.files import links, start_time
from synapse.services.installation import lasting_command
from tests.fakes.systemctl import FakeSystemd
from tests.unit.cli.conftest import Cli, HostFactory, become

GATEWAY = "synapse-gateway.service"
LINK = "synapse-link.service"
COMMAND = "/opt/synapse/bin/synapse"


@pytest.fixture
def systemd(home: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSystemd:
    fake = FakeSystemd(home / "fake")
    monkeypatch.setenv("PATH", f"{fake.programs}:/usr/bin:/bin")
    monkeypatch.setattr("synapse.cli.service.lasting_command", lambda: COMMAND)
    return fake


@pytest.fixture
def units(home: Path) -> Path:
    return home / "config" / "systemd" / "user"


def test_installing_the_gateway_writes_its_unit_and_starts_it(synapse: Cli, systemd: FakeSystemd, units: Path) -> None:
    ran = synapse("service", "install", "gateway")

    assert ran.code == 0, ran
    assert f'ExecStart="{COMMAND}" "gateway"\n' in (units / GATEWAY).read_text(encoding="utf-8")
    assert (units / GATEWAY).stat().st_mode & 0o777 == 0o600
    assert systemd.changes() == ["daemon-reload", f"enable {GATEWAY}", f"restart {GATEWAY}"]
    assert f"{GATEWAY} runs, and starts with each login" in ran.err
    assert "loginctl enable-linger" in ran.err


def test_a_machine_of_a_fleet_installs_its_link(synapse: Cli, systemd: FakeSystemd, units: Path, home: Path) -> None:
    save_fleet(home, FleetConfig(fleet="shop", machine="box2", servers=("nats://127.0.0.1:4222",)))

    ran = synapse("service", "install", "link")

    assert ran.code == 0, ran
    unit = (units / LINK).read_text(encoding="utf-8")
    assert f'ExecStart="{COMMAND}" "link"\n' in unit
    # The fleet's server, which the link starts, must not end with it, nor wait long for the next one.
    assert "\nKillMode=process\n" in unit
    assert "\nRestartSec=1\n" in unit
    assert systemd.changes() == ["daemon-reload", f"enable {LINK}", f"restart {LINK}"]
    assert synapse("service", "status", "link", "--json").json[0]["differs"] == []
    assert synapse("service", "status", "gateway").code == 3
    removed = synapse("service", "uninstall", "link")
    assert (removed.code, removed.err) == (0, f"{LINK} is stopped and removed.\n")
    assert not (units / LINK).exists()


def test_the_service_of_a_link_goes_without_the_packages_of_a_fleet(
    synapse: Cli, systemd: FakeSystemd, units: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ("nats://127.0.0.1:4222",)
    save_fleet(home, FleetConfig(fleet="shop", machine="box1", servers=server, runs_server=True))
    synapse("service", "install", "link")
    # As after `uv tool install` without the extra.
    monkeypatch.setitem(sys.modules, "nats", None)

    ran = synapse("service", "uninstall", "link")

    assert ran.code == 0
    assert "The fleet's server goes on: a fleet needs the package nats, which is not installed" in ran.err
    assert "then: synapse fleet stop" in ran.err
    assert not (units / LINK).exists()


def test_a_machine_without_a_fleet_needs_no_link(synapse: Cli, systemd: FakeSystemd, units: Path) -> None:
    ran = synapse("service", "install", "link")

    assert ran.code == 7
    assert "belongs to no fleet" in ran.err
    assert "synapse fleet create" in ran.err
    assert not units.exists()


def test_the_service_takes_over_from_a_link_that_runs_by_itself(synapse: Cli, systemd: FakeSystemd, home: Path) -> None:
    save_fleet(home, FleetConfig(fleet="shop", machine="box2", servers=("nats://127.0.0.1:4222",)))
    with subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"]) as link:
        started = start_time(link.pid)
        assert started is not None
        links(home).write(AgentEntry("synapse-link", "link", pid=link.pid, pid_started=started))

        ran = synapse("service", "install", "link")

    assert (ran.code, link.returncode) == (0, -signal.SIGTERM), ran
    assert systemd.changes() == ["daemon-reload", f"enable {LINK}", f"restart {LINK}"]


def test_installing_again_changes_nothing(synapse: Cli, systemd: FakeSystemd, units: Path) -> None:
    synapse("service", "install", "gateway")
    systemd.changes()
    written = (units / GATEWAY).stat().st_ino

    ran = synapse("service", "install", "gateway")

    assert (ran.code, systemd.changes()) == (0, [f"enable {GATEWAY}", f"start {GATEWAY}"])
    assert (units / GATEWAY).stat().st_ino == written
    assert "runs already" in ran.err


def test_installing_from_another_shell_replaces_the_unit_and_restarts_it(
    synapse: Cli, systemd: FakeSystemd, monkeypatch: pytest.MonkeyPatch
) -> None:
    synapse("service", "install", "gateway")
    systemd.changes()
    monkeypatch.setenv("SYNAPSE_QUEUE_LIMIT", "7")

    (shown,) = synapse("service", "status", "--json").json
    assert shown["differs"] == ["SYNAPSE_QUEUE_LIMIT"]
    assert "differs: SYNAPSE_QUEUE_LIMIT" in synapse("service", "status").out
    ran = synapse("service", "install", "gateway")

    assert "replaced and restarted" in ran.err
    assert systemd.changes() == ["daemon-reload", f"enable {GATEWAY}", f"restart {GATEWAY}"]
    assert synapse("service", "status", "--json").json[0]["differs"] == []


def test_printing_a_unit_changes_nothing(synapse: Cli, systemd: FakeSystemd, units: Path) -> None:
    ran = synapse("service", "install", "gateway", "--print")

    assert ran.code == 0
    assert "Type=notify\n" in ran.out
    assert not units.exists()
    assert systemd.changes() == []


def test_the_status_is_what_systemd_says(synapse: Cli, systemd: FakeSystemd, units: Path) -> None:
    synapse("service", "install", "gateway")

    (shown,) = synapse("service", "status", "--json").json

    assert shown == {
        "unit": GATEWAY,
        "path": str(units / GATEWAY),
        "team": None,
        "file": None,
        "differs": [],
        "problem": None,
        "linger": False,
        "active": "active",
        "detail": "running",
        "since": "2026-11-16T10:00:00Z",
        "restarts": 2,
        "enabled": True,
        "result": "success",
        "pid": 4711,
    }
    ran = synapse("service", "status")
    assert ran.out.startswith(f"{GATEWAY}  active (running) for ")
    assert ", 2 restarts\n" in ran.out
    (systemd.state / "linger").write_text("Linger=yes\n", encoding="utf-8")
    assert "enable-linger" not in synapse("service", "status").err


def test_the_status_names_a_failed_service_and_how_to_read_why(synapse: Cli, systemd: FakeSystemd) -> None:
    synapse("service", "install", "gateway")
    (systemd.state / f"started-{GATEWAY}").unlink()

    shown = synapse("service", "status").out

    assert f"! it does not run: exit-code\n    (journalctl --user --unit {GATEWAY})" in shown
    assert "10 restarts" in shown
    examined = synapse("doctor")
    assert examined.code == 1
    assert f"✗ service    {GATEWAY}: it does not run: exit-code" in examined.out
    assert f"→ journalctl --user --unit {GATEWAY}" in examined.out


def test_doctor_names_a_service_that_runs(synapse: Cli, systemd: FakeSystemd) -> None:
    synapse("service", "install", "gateway")

    assert f"✓ service    {GATEWAY}: active (running)" in synapse("doctor").out


def test_uninstalling_stops_and_removes_the_unit(synapse: Cli, systemd: FakeSystemd, units: Path) -> None:
    synapse("service", "install", "gateway")
    systemd.changes()

    ran = synapse("service", "uninstall", "gateway")

    assert ran.code == 0
    assert not (units / GATEWAY).exists()
    assert systemd.changes() == [f"disable --now {GATEWAY}", f"reset-failed {GATEWAY}", "daemon-reload"]
    assert "No service is installed." in synapse("service", "status").err
    assert synapse("service", "uninstall", "gateway").code == 3


def test_a_unit_that_we_did_not_write_is_left_alone(synapse: Cli, systemd: FakeSystemd, units: Path) -> None:
    units.mkdir(parents=True)
    (units / GATEWAY).write_text("[Service]\nExecStart=/bin/mine\n", encoding="utf-8")

    for action in ("install", "uninstall"):
        ran = synapse("service", action, "gateway")
        assert (ran.code, "was not written by Synapse" in ran.err) == (7, True)

    assert (units / GATEWAY).read_text(encoding="utf-8") == "[Service]\nExecStart=/bin/mine\n"
    assert systemd.changes() == []
    assert synapse("service", "status", "--json").json == []


def test_without_systemd_the_error_names_the_file(
    synapse: Cli, systemd: FakeSystemd, units: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    systemd.mark("offline")
    ran = synapse("service", "install", "gateway")
    assert (ran.code, str(units / GATEWAY) in ran.err, "No medium found" in ran.err) == (7, True, True)

    monkeypatch.setenv("PATH", "/nowhere")
    ran = synapse("service", "install", "gateway")
    assert (ran.code, "no `systemctl`" in ran.err, "--print" in ran.err) == (7, True, True)
    assert not units.exists()


def test_a_service_that_does_not_start_is_reported_with_its_log(synapse: Cli, systemd: FakeSystemd) -> None:
    systemd.mark("broken")

    ran = synapse("service", "install", "gateway")

    assert ran.code == 1
    assert f"{GATEWAY} did not start: Job for {GATEWAY} failed" in ran.err
    assert "port 8000 is taken" in ran.err


def test_an_agent_installs_and_uninstalls_nothing(
    synapse: Cli, systemd: FakeSystemd, units: Path, start: HostFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    synapse("service", "install", "gateway")
    systemd.changes()
    become(start(), monkeypatch)

    for action in ("install", "uninstall"):
        ran = synapse("service", action, "gateway")
        assert (ran.code, "only a person may install or uninstall services" in ran.err) == (7, True)

    assert (units / GATEWAY).exists()
    assert systemd.changes() == []


def test_a_throw_away_environment_installs_nothing(
    synapse: Cli, systemd: FakeSystemd, units: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    command = home / "v" / "synapse"
    command.parent.mkdir()
    command.write_text("#!/bin/sh\n", encoding="utf-8")
    command.chmod(0o755)
    monkeypatch.setattr("synapse.cli.service.lasting_command", lasting_command)
    monkeypatch.setattr("sys.argv", [str(command)])
    monkeypatch.setattr("tempfile.tempdir", str(home))

    ran = synapse("service", "install", "gateway")

    assert (ran.code, "uv tool install" in ran.err) == (7, True)
    assert not units.exists()
    assert systemd.changes() == []


@pytest.mark.parametrize("arguments", [(), ("install",), ("install", "team"), ("install", "gateway", "x"), ("start",)])
def test_wrong_usage_is_explained(synapse: Cli, systemd: FakeSystemd, arguments: tuple[str, ...]) -> None:
    assert synapse("service", *arguments).code == 2
    assert systemd.changes() == []


TEAM_FILE = """
[team]
name = "shop"
[agents.db]
profile = "dummy"
[agents.lead]
profile = "dummy"
after = ["db"]
"""
TEAM = "synapse-team-shop.service"


@pytest.fixture
def team(home: Path) -> Path:
    """A team file in a project, which is not trusted yet."""
    file = home.resolve() / "100% shop" / ".synapse" / "team.toml"
    file.parent.mkdir(parents=True)
    file.write_text(TEAM_FILE, encoding="utf-8")
    return file


def test_a_team_must_be_trusted_to_be_installed(synapse: Cli, systemd: FakeSystemd, units: Path, team: Path) -> None:
    ran = synapse("service", "install", "team", str(team))

    assert (ran.code, "is not trusted, and runs programs" in ran.err) == (7, True)
    assert systemd.changes() == []
    assert not units.exists()


def test_a_team_is_installed_and_found_by_its_file_and_its_name(
    synapse: Cli, systemd: FakeSystemd, units: Path, team: Path
) -> None:
    synapse("trust", str(team.parent.parent))
    ran = synapse("service", "install", "team", str(team))

    assert ran.code == 0, ran
    text = (units / TEAM).read_text(encoding="utf-8")
    escaped = str(team).replace("%", "%%")
    assert f'ExecStart="{COMMAND}" "up" "--foreground" "{escaped}"\n' in text
    assert "TimeoutStartSec=180\n" in text
    assert systemd.changes() == ["daemon-reload", f"enable {TEAM}", f"restart {TEAM}"]
    (by_name,), (by_file,) = (synapse("service", "status", "team", one, "--json").json for one in ("shop", str(team)))
    assert by_name == by_file
    assert (by_name["team"], by_name["file"], by_name["differs"]) == ("shop", str(team), [])
    assert synapse("service", "status", "gateway").code == 3

    assert synapse("service", "uninstall", "team", "shop").code == 0
    assert not (units / TEAM).exists()


def test_a_team_whose_file_is_gone_can_be_uninstalled(
    synapse: Cli, systemd: FakeSystemd, units: Path, team: Path
) -> None:
    synapse("trust", str(team.parent.parent))
    synapse("service", "install", "team", str(team))
    team.unlink()

    (shown,) = synapse("service", "status", "--json").json

    assert (shown["active"], "there is no file" in shown["problem"]) == ("active", True)
    assert synapse("service", "uninstall", "team", str(team)).code == 0
    assert not (units / TEAM).exists()
    assert systemd.changes()[-1] == "daemon-reload"


def test_the_status_names_a_team_file_that_is_no_longer_trusted(synapse: Cli, systemd: FakeSystemd, team: Path) -> None:
    synapse("trust", str(team.parent.parent))
    synapse("service", "install", "team", str(team))
    team.write_text(f"{TEAM_FILE}# pulled\n", encoding="utf-8")

    shown = synapse("service", "status").out

    assert f"changed since it was trusted, so it will not start  (synapse trust {team.parent.parent})" in shown
    synapse("trust", str(team.parent.parent))
    assert "will not start" not in synapse("service", "status").out


def test_two_team_files_do_not_share_a_unit(
    synapse: Cli, systemd: FakeSystemd, units: Path, team: Path, home: Path
) -> None:
    other = home.resolve() / "other" / ".synapse" / "team.toml"
    other.parent.mkdir(parents=True)
    other.write_text(TEAM_FILE, encoding="utf-8")
    for file in (team, other):
        synapse("trust", str(file.parent.parent))
    synapse("service", "install", "team", str(team))
    systemd.changes()

    ran = synapse("service", "install", "team", str(other))

    assert (ran.code, str(team) in ran.err, "another name" in ran.err) == (7, True, True)
    assert systemd.changes() == []
    assert str(team) in (units / TEAM).read_text(encoding="utf-8").replace("%%", "%")
