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


def test_an_in_process_agent_is_addressed_by_its_name_and_not_by_its_type(synapse: Cli, tck: FakeHost) -> None:
    assert synapse("send", "tck", "hello").code == 0
    assert synapse("send", "scripted", "hello").code == 3
    assert len(tck.tasks) == 1


def test_an_in_process_agent_is_listed_without_a_port(synapse: Cli, tck: FakeHost) -> None:
    _titles, row = synapse("list").out.splitlines()

    assert row.split()[:4] == ["tck", "(scripted)", "ready", str(tck.entry.pid)]
    assert f"in {GATEWAY}" in synapse("status", "tck").out


@pytest.mark.parametrize("verb", ["stop", "restart"])
def test_an_in_process_agent_is_neither_stopped_nor_restarted(synapse: Cli, tck: FakeHost, verb: str) -> None:
    # The process is this one: ending it would end the test.
    ran = synapse(verb, "tck")

    assert ran.code == 7
    assert f"tck runs in {GATEWAY}" in ran.err
    assert "gateway.toml" in ran.err
    assert tck.registry.find("tck") is not None


def test_the_error_for_stopping_an_external_agent_says_how_to_remove_it(synapse: Cli, tck: FakeHost) -> None:
    move_into_the_gateway(tck, "a2a")

    assert "synapse external remove tck" in synapse("stop", "tck").err


def test_stop_all_and_broadcast_skip_in_process_agents(synapse: Cli, tck: FakeHost) -> None:
    assert "No agent is running." in synapse("stop", "--all").err
    assert synapse("broadcast", "hello", "--all").code == 3
    assert tck.tasks == {}


def test_the_log_of_an_in_process_agent_is_its_gateways(synapse: Cli, tck: FakeHost, home: Path) -> None:
    (home / "logs").mkdir()
    (home / "logs" / f"{GATEWAY}.log").write_text("gateway_started\n", encoding="utf-8")

    assert synapse("logs", tck.entry.name).out == "gateway_started\n"


def test_the_error_for_an_external_agent_says_how_to_reach_it(synapse: Cli, home: Path) -> None:
    (home / "external").mkdir()
    (home / "external" / "far.json").write_text("{}", encoding="utf-8")

    ran = synapse("send", "far", "hello")

    assert ran.code == 3
    assert "No agent found matching 'far'" in ran.err
    assert 'synapse external send far "…"' in ran.err
    assert "synapse external" not in synapse("send", "../external/far", "hello").err


def test_the_error_for_an_in_process_agent_without_its_gateway_says_what_to_start(synapse: Cli, tck: FakeHost) -> None:
    tck.entry.pid, tck.entry.socket = 2**22 + 1, ""
    tck.registry.write(tck.entry)

    ran = synapse("send", "tck", "hello")

    assert ran.code == 8
    assert "synapse start gateway" in ran.err
