"""`synapse dashboard`: the link of a gateway, and the sessions of browsers."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from synapse.auth.sessions import SESSION_ACTIONS, SessionFile
from synapse.config.process import SystemClock
from synapse.registry.files import FileRegistry
from tests.unit.cli.conftest import Cli, HostFactory, become
from tests.unit.cli.fake_host import FakeHost

LINK = {"url": "http://127.0.0.1:8000/#code=c0de", "expires_at": "2026-01-01T00:02:00Z"}


@pytest.fixture(autouse=True)
def no_display(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER", "SSH_CONNECTION"):
        monkeypatch.delenv(variable, raising=False)


def a_gateway(start: HostFactory, home: Path, port: int = 8000) -> FakeHost:
    """Starts a host that stands for a gateway: it answers requests for links."""
    gateway = start("gateway", port)
    gateway.registry.remove(gateway.entry.agent_id)
    FileRegistry(home / "gateways").write(gateway.entry)
    gateway.refusals["/dashboard/links"] = (200, dict(LINK))
    return gateway


@pytest.fixture
def sessions(home: Path) -> SessionFile:
    return SessionFile(home, SystemClock())


def asked(gateway: FakeHost) -> list[object]:
    return [body for _, path, body in gateway.requests if path == "/dashboard/links"]


def test_a_link_is_printed_where_there_is_no_display(synapse: Cli, start: HostFactory, home: Path) -> None:
    gateway = a_gateway(start, home)

    ran = synapse("dashboard")

    assert (ran.code, ran.out) == (0, LINK["url"] + "\n")
    assert "works once, for two minutes" in ran.err
    assert asked(gateway) == [{"actions": list(SESSION_ACTIONS)}]


def test_a_browser_may_get_fewer_rights(synapse: Cli, start: HostFactory, home: Path) -> None:
    gateway = a_gateway(start, home)

    ran = synapse("dashboard", "--read-only", "--json")

    assert ran.json == {**LINK, "gateway": "synapse-gateway-8000"}
    assert asked(gateway) == [{"actions": ["read"]}]


def test_over_ssh_the_way_from_the_other_machine_is_named(
    synapse: Cli, start: HostFactory, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_gateway(start, home)
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.1 1 10.0.0.2 22")

    assert "ssh -L 8000:127.0.0.1:8000" in synapse("dashboard").err


def test_of_several_gateways_one_is_chosen_by_its_port(synapse: Cli, start: HostFactory, home: Path) -> None:
    first, second = a_gateway(start, home), a_gateway(start, home, 9000)

    unclear = synapse("dashboard", "--json")
    chosen = synapse("dashboard", "--json", "--port", "9000")

    assert (unclear.code, unclear.json["error"]["hint"]) == (4, "choose one with --port")
    assert chosen.json["gateway"] == "synapse-gateway-9000"
    assert (len(asked(first)), len(asked(second))) == (0, 1)


def test_a_gateway_of_an_earlier_version_is_named(synapse: Cli, start: HostFactory, home: Path) -> None:
    gateway = a_gateway(start, home)
    missing = {"code": "route_not_found", "message": "nothing is served at /dashboard/links", "hint": ""}
    gateway.refusals["/dashboard/links"] = (404, {"error": missing})

    ran = synapse("dashboard")

    assert ran.code == 3
    assert "earlier version" in ran.err
    assert "synapse stop gateway" in ran.err


@pytest.mark.parametrize("arguments", [[], ["--no-open"], ["revoke", "--all"]])
def test_an_agent_is_refused(
    synapse: Cli, start: HostFactory, home: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    gateway = a_gateway(start, home)
    become(start("claude", 8100), monkeypatch)

    ran = synapse("dashboard", *arguments)

    assert ran.code == 7
    assert "only a person may" in ran.err
    assert asked(gateway) == []


def test_sessions_are_listed(synapse: Cli, sessions: SessionFile) -> None:
    assert "No browser is signed in" in synapse("dashboard", "sessions").err
    assert synapse("dashboard", "sessions", "--json").json == []
    whole = sessions.create(frozenset(SESSION_ACTIONS), timedelta(hours=12)).session
    reader = sessions.create(frozenset({"read"}), timedelta(hours=12)).session

    shown = synapse("dashboard", "sessions").out
    listed = {one["id"]: one for one in synapse("dashboard", "sessions", "--json").json}

    assert [line.split()[1] for line in shown.splitlines()] in (["ACTIONS", "all", "read"], ["ACTIONS", "read", "all"])
    assert listed[reader.session_id]["actions"] == ["read"]
    assert listed[whole.session_id]["last_used"] is None
    assert set(listed[whole.session_id]) == {"id", "actions", "created", "last_used", "expires"}


def test_sessions_are_revoked_by_id_or_all(synapse: Cli, sessions: SessionFile) -> None:
    first, second, third = (
        sessions.create(frozenset(SESSION_ACTIONS), timedelta(hours=12)).session.session_id for _ in range(3)
    )

    assert synapse("dashboard", "revoke", first).err == "1 session revoked.\n"
    assert synapse("dashboard", "revoke", first).code == 3
    assert sorted(synapse("dashboard", "revoke", "--all", "--json").json) == sorted([second, third])
    assert sessions.all() == ()


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["revoke"], "name the session"),
        (["revoke", "a", "--all"], "name the session"),
        (["sessions", "a"], "goes with `revoke`"),
        (["--all"], "goes with `revoke`"),
        (["close"], "must be one of open, sessions, revoke"),
        (["--prot=1"], "unknown option --prot"),
    ],
)
def test_mistakes_are_named(synapse: Cli, arguments: list[str], why: str) -> None:
    ran = synapse("dashboard", *arguments)

    assert ran.code == 2
    assert why in ran.err
