"""In-process agents of a gateway, and external agents, for this user's commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli.conftest import Cli, HostFactory
from tests.unit.cli.fake_host import FakeHost

GATEWAY = "synapse-gateway-8000"


def move_into_the_gateway(host: FakeHost, agent_type: str = "scripted") -> None:
    host.registry.remove(host.entry.agent_id)
    entry = host.entry
    entry.agent_id, entry.agent_type, entry.port, entry.gateway = entry.name, agent_type, 0, GATEWAY
    host.registry.write(entry)


@pytest.fixture
def tck(start: HostFactory) -> FakeHost:
    host = start("scripted", 8180, name="tck")
    move_into_the_gateway(host)
    return host


def test_it_is_sent_to_by_its_name_and_never_by_its_kind(synapse: Cli, tck: FakeHost) -> None:
    assert synapse("send", "tck", "hello").code == 0
    assert synapse("send", "scripted", "hello").code == 3
    assert len(tck.tasks) == 1


def test_it_is_listed_without_a_port(synapse: Cli, tck: FakeHost) -> None:
    _titles, row = synapse("list").out.splitlines()

    assert row.split()[:4] == ["tck", "(scripted)", "ready", str(tck.entry.pid)]
    assert f"in {GATEWAY}" in synapse("status", "tck").out


@pytest.mark.parametrize("verb", ["stop", "restart"])
def test_its_process_is_the_gateway_s_and_is_not_ended(synapse: Cli, tck: FakeHost, verb: str) -> None:
    # The process is this one: it would not live to tell.
    ran = synapse(verb, "tck")

    assert ran.code == 7
    assert f"tck runs in {GATEWAY}" in ran.err
    assert "gateway.toml" in ran.err
    assert tck.registry.find("tck") is not None


def test_an_agent_from_elsewhere_is_forgotten_and_not_stopped(synapse: Cli, tck: FakeHost) -> None:
    move_into_the_gateway(tck, "a2a")

    assert "synapse external remove tck" in synapse("stop", "tck").err


def test_stop_all_and_broadcast_pass_it_by(synapse: Cli, tck: FakeHost) -> None:
    assert "No agent is running." in synapse("stop", "--all").err
    assert synapse("broadcast", "hello", "--all").code == 3
    assert tck.tasks == {}


def test_its_log_is_the_gateway_s(synapse: Cli, tck: FakeHost, home: Path) -> None:
    (home / "logs").mkdir()
    (home / "logs" / f"{GATEWAY}.log").write_text("gateway_started\n", encoding="utf-8")

    assert synapse("logs", tck.entry.name).out == "gateway_started\n"


def test_the_error_says_where_an_agent_from_elsewhere_is_reached(synapse: Cli, home: Path) -> None:
    (home / "external").mkdir()
    (home / "external" / "far.json").write_text("{}", encoding="utf-8")

    ran = synapse("send", "far", "hello")

    assert ran.code == 3
    assert "No agent found matching 'far'" in ran.err
    assert 'synapse external send far "…"' in ran.err
    assert "synapse external" not in synapse("send", "../external/far", "hello").err


def test_the_error_of_one_whose_gateway_is_gone_says_what_to_start(synapse: Cli, tck: FakeHost) -> None:
    tck.entry.pid, tck.entry.socket = 2**22 + 1, ""
    tck.registry.write(tck.entry)

    ran = synapse("send", "tck", "hello")

    assert ran.code == 8
    assert "synapse start gateway" in ran.err
