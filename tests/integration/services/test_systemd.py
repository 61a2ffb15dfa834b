"""Services with a real systemd: a user manager of the test's own."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Generator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from synapse.cli.main import main
from synapse.link.server import FleetServer
from synapse.services.unit import Unit
from tests.fakes.user_systemd import UserSystemd, user_systemd
from tests.integration.cli.session import ROOT
from tests.integration.waiting import until
from tests.samples.commands import Ran
from tests.samples.ports import own_port

GATEWAY = "synapse-gateway.service"
TEAM = "synapse-team-shop.service"
LINK = "synapse-link.service"
TEAM_FILE = """
[team]
name = "shop"
[agents.db]
profile = "dummy"
instructions = false
[agents.lead]
profile = "dummy"
instructions = false
after = ["db"]
"""
ODD = [
    "a b",
    "%h %% %",
    "$HOME ${PATH} $$ $",
    "back\\slash\\",
    "quo\"te's",
    "tab\tand\nline",
    "日本 é",
    "",
    "-",
    ";",
    "#x",
    "\\x41 \\n",
    "~",
    "*",
    " outer ",
]
TELLER = """#!/bin/sh
for word; do printf '%s\\0' "$word"; done > "$TOLD"
printf '%s\\0%s\\0' "$ODD" "$FROM_FILE" >> "$TOLD"
"""


@pytest.fixture
def folder() -> Generator[Path]:
    # Short, because sockets are in it.
    with TemporaryDirectory(prefix="sy-") as name:
        yield Path(name)


@pytest.fixture
def manager(folder: Path) -> Generator[UserSystemd]:
    with user_systemd(folder) as running:
        yield running


def test_systemd_gives_a_program_exactly_what_the_unit_was_made_from(manager: UserSystemd, folder: Path) -> None:
    program, told, more = folder / "100% my prográm", folder / "told %h", folder / "more 100% $x.env"
    program.write_text(TELLER, encoding="utf-8")
    program.chmod(0o755)
    more.write_text("FROM_FILE=yes\n", encoding="utf-8")
    unit = Unit(
        name="synapse-team-odd.service",
        description="100% odd \\",
        command=[str(program), *ODD],
        variables={"TOLD": str(told), "ODD": "".join(ODD)},
        variable_file=str(more),
        team="odd",
    )
    units = manager.home / ".config" / "systemd" / "user"
    units.mkdir(parents=True)
    # It ends at once, and says nothing to systemd.
    text = unit.text().replace("Type=notify", "Type=oneshot").replace("Restart=on-failure", "Restart=no")
    (units / unit.name).write_text(text, encoding="utf-8")

    manager.run("systemctl", "--user", "daemon-reload")
    ran = manager.run("systemctl", "--user", "start", unit.name)

    assert ran.returncode == 0, ran.stderr
    words = told.read_bytes().decode().split("\0")
    assert words[:-1] == [*ODD, "".join(ODD), "yes"]


class Services:
    """`synapse service …` beside the user manager."""

    def __init__(
        self, manager: UserSystemd, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.manager, self._capsys = manager, capsys
        home = manager.home / "state"
        ours = {"SYNAPSE_HOME": str(home), "SYNAPSE_UDS_DIR": str(manager.home / "s")}
        for name in [name for name in os.environ if name.startswith(("SYNAPSE_", "XDG_"))]:
            monkeypatch.delenv(name)
        for name, value in {**manager.environ, **ours}.items():
            monkeypatch.setenv(name, value)
        home.mkdir()
        grpc = own_port()
        (home / "gateway.toml").write_text(f"port = {own_port()}\ngrpc_port = {grpc}\n", encoding="utf-8")
        # A person's own additions to the unit, which spare the test five seconds.
        for unit in (GATEWAY, TEAM):
            additions = manager.home / ".config" / "systemd" / "user" / f"{unit}.d"
            additions.mkdir(parents=True)
            (additions / "quick.conf").write_text("[Service]\nRestartSec=100ms\n", encoding="utf-8")
        command = manager.home / "synapse"
        command.write_text(f"#!{sys.executable}\n{(ROOT / 'bin' / 'synapse').read_text(encoding='utf-8')}", "utf-8")
        command.chmod(0o755)
        # The checkout may be in a temporary folder.
        monkeypatch.setattr("synapse.cli.service.lasting_command", lambda: str(command))

    def run(self, *arguments: str) -> Ran:
        self._capsys.readouterr()
        code = main(["synapse", *arguments])
        said = self._capsys.readouterr()
        return Ran(code, said.out, said.err)

    def state(self) -> dict[str, object]:
        shown: list[dict[str, object]] = self.run("service", "status", "--json").json
        (state,) = shown
        return state


@pytest.fixture
def services(
    manager: UserSystemd, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Generator[Services]:
    opened = Services(manager, monkeypatch, capsys)
    yield opened
    manager.run("systemctl", "--user", "stop", GATEWAY, TEAM)


@pytest.fixture
def server(services: Services) -> Generator[FleetServer]:
    """The server of a new fleet, stopped, and so is the link."""
    home = services.manager.home / "state"
    found = FleetServer(home, home / "logs")
    assert services.run("fleet", "create", "--name", "box1", "--listen", f"127.0.0.1:{own_port()}").code == 0
    assert services.run("fleet", "stop").code == 0
    assert found.process() is None
    yield found
    services.manager.run("systemctl", "--user", "stop", LINK)
    found.stop()


def test_the_gateway_runs_as_a_service_until_it_is_uninstalled(services: Services) -> None:
    installed = services.run("service", "install", "gateway", "--json")

    assert installed.code == 0, installed
    # systemd called it active because the gateway said that it is ready.
    first = installed.json
    assert (first["active"], first["detail"], first["enabled"], first["differs"]) == ("active", "running", True, [])
    status = services.manager.run("systemctl", "--user", "show", "--property=StatusText", GATEWAY).stdout
    assert status.startswith("StatusText=Listening on http://localhost:")
    environ = Path(f"/proc/{first['pid']}/environ").read_bytes().split(b"\0")
    assert any(one.startswith((b"LC_ALL=", b"LANG=")) and one.lower().endswith(b"utf-8") for one in environ)

    os.kill(int(first["pid"]), signal.SIGKILL)
    again = until(lambda: _runs_anew(services, first["pid"]), "systemd to start it again", services.state)
    assert again["restarts"] == 1

    assert services.run("stop", "gateway").code == 0
    until(lambda: services.state()["active"] == "inactive", "systemd to see that it has ended", services.state)
    assert f"it was stopped\n    (systemctl --user start {GATEWAY})" in services.run("service", "status").out
    assert services.run("service", "install", "gateway").code == 0
    again = services.state()

    removed = services.run("service", "uninstall", "gateway")
    assert removed.code == 0, removed
    assert not Path(f"/proc/{again['pid']}").exists()
    assert services.run("service", "status", "--json").json == []
    loaded = services.manager.run("systemctl", "--user", "show", "--property=LoadState", GATEWAY).stdout
    assert loaded.strip() == "LoadState=not-found"


def test_a_gateway_that_a_person_installed_starts_where_a_terminal_is_demanded(services: Services) -> None:
    assert services.run("service", "install", "gateway").code == 0
    settings = services.manager.home / ".config" / "synapse" / "config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text('person_proof = "terminal"\n', encoding="utf-8")

    assert services.manager.run("systemctl", "--user", "restart", GATEWAY).returncode == 0
    assert services.state()["active"] == "active"

    # A unit that no person has installed may not start one.
    (services.manager.home / "state" / "services" / GATEWAY).unlink()
    assert services.manager.run("systemctl", "--user", "restart", GATEWAY).returncode != 0
    assert services.state()["active"] == "failed"


def _runs_anew(services: Services, pid: object) -> dict[str, object] | None:
    state = services.state()
    return state if state["active"] == "active" and state["pid"] != pid else None


def test_a_team_runs_as_a_service_and_stops_in_order(services: Services, folder: Path) -> None:
    file = folder / "100% shop" / ".synapse" / "team.toml"
    file.parent.mkdir(parents=True)
    file.write_text(TEAM_FILE, encoding="utf-8")
    assert services.run("trust", str(file.parent.parent)).code == 0

    installed = services.run("service", "install", "team", str(file), "--json")

    assert installed.code == 0, installed
    # It is active because all agents accept messages.
    assert (installed.json["active"], installed.json["team"]) == ("active", "shop")
    assert services.run("send", "lead", "hello", "--response", "--timeout", "20").out == "echo: hello\n"
    os.kill(int(installed.json["pid"]), signal.SIGKILL)
    until(lambda: _runs_anew(services, installed.json["pid"]), "systemd to start the team again", services.state)
    assert services.run("send", "lead", "again", "--response", "--timeout", "20").out == "echo: again\n"
    # What a person takes down stays down.
    assert services.run("down", "shop").code == 0
    until(lambda: services.state()["active"] == "inactive", "systemd to see that it has ended", services.state)
    assert services.run("list", "--json").json == []
    assert services.run("service", "install", "team", str(file)).code == 0
    agents = {one["name"]: one for one in services.run("list", "--json").json}
    assert agents.keys() == {"db", "lead"}

    stopped = services.run("service", "uninstall", "team", "shop")

    assert stopped.code == 0, stopped
    assert services.run("list", "--json").json == []
    assert not any(Path(f"/proc/{one['pid']}").exists() for one in agents.values())


def test_a_team_file_that_has_changed_is_not_run_at_the_next_boot(services: Services, folder: Path) -> None:
    file = folder / "shop" / ".synapse" / "team.toml"
    file.parent.mkdir(parents=True)
    file.write_text(TEAM_FILE, encoding="utf-8")
    services.run("trust", str(file.parent.parent))
    assert services.run("service", "install", "team", str(file)).code == 0
    file.write_text(f"{TEAM_FILE}# pulled\n", encoding="utf-8")

    started = services.manager.run("systemctl", "--user", "restart", TEAM)

    assert started.returncode != 0
    state = services.state()
    # A refusal needs a person, so it is not tried again and again.
    assert (state["active"], state["restarts"]) == ("failed", 0)
    assert services.run("list", "--json").json == []


def test_the_server_of_a_fleet_outlives_its_link_and_is_ended_by_a_person(
    services: Services, server: FleetServer
) -> None:
    def connected() -> bool:
        status = services.run("fleet", "status", "--json")
        return status.code == 0 and bool(status.json["connected"])

    assert services.run("fleet", "start").code == 0
    until(connected, "the first link to connect")
    first = server.process()
    assert first is not None

    installed = services.run("service", "install", "link", "--json")

    assert installed.code == 0, installed
    until(connected, "the link of the service to connect", services.state)
    assert (services.state()["active"], server.process()) == ("active", first)

    os.kill(int(installed.json["pid"]), signal.SIGKILL)
    again = until(lambda: _runs_anew(services, installed.json["pid"]), "systemd to start the link again")
    until(connected, "the next link to connect", services.state)
    assert (again["restarts"], server.process()) == (1, first)

    # An orderly stop, as for an upgrade: no other machine notices the server's link.
    assert services.manager.run("systemctl", "--user", "stop", LINK).returncode == 0
    assert services.state()["active"] == "inactive"
    assert server.process() == first
    assert services.manager.run("systemctl", "--user", "start", LINK).returncode == 0
    until(connected, "the started link to connect", services.state)
    assert server.process() == first

    assert services.run("fleet", "stop").code == 0
    until(lambda: services.state()["active"] == "inactive", "systemd to see that it has ended", services.state)
    assert server.process() is None

    assert services.run("service", "install", "link").code == 0
    until(connected, "the link to start the server and connect", services.state)
    assert server.process() not in (None, first)
    removed = services.run("service", "uninstall", "link")
    assert removed.code == 0, removed
    assert "The fleet's server is stopped too.  (synapse fleet start)" in removed.err
    assert server.process() is None
