"""An external agent as an in-process agent: its client, its card, and its open questions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from synapse.config.settings import Settings
from synapse.core.agent import READY
from synapse.core.errors import AgentExited
from synapse.core.requests import ExternalAgent
from synapse.gateway.external import external_agent
from synapse.gateway.in_process import InProcessAgent, in_process_entry
from synapse.net.hosts import open_host_client
from synapse.registry.local import open_local_registry
from tests.fakes.clock import FakeClock
from tests.fakes.leased_store import LeasedStore

FAR = ExternalAgent(alias="far", url="https://far.example", name="Far")


async def test_an_external_agent_is_ready_until_it_is_stopped(tmp_path: Path) -> None:
    agent = await external_agent(FAR, tmp_path, FakeClock())
    await agent.driver.wait_ready()
    assert (agent.title, agent.exit_status(), agent.pty_wrapped) == ("Far", None, False)
    assert agent.driver.view().state == READY
    assert not await agent.driver.interrupt()

    await agent.stop()

    with pytest.raises(AgentExited):
        await agent.driver.wait_ready()


async def test_the_gateway_describes_an_external_agent_as_its_card_does(tmp_path: Path) -> None:
    store = await LeasedStore.open(tmp_path / "store.db")
    try:
        card = {"defaultInputModes": ["text"], "defaultOutputModes": ["image/png"], "skills": []}
        far = replace(FAR, description="knows the weather", card=card)
        registry = open_local_registry(tmp_path / "registry", FakeClock().monotonic)
        in_process = InProcessAgent(
            in_process_entry("far", "a2a", FakeClock()),
            await external_agent(far, tmp_path, FakeClock()),
            store=store,
            registry=registry,
            hosts=open_host_client(registry, FakeClock(), registry.recheck),
            settings=Settings(home=tmp_path),
        )
        shown = in_process.as_agent()
        assert shown.description == "knows the weather"
        assert (shown.input_modes, shown.output_modes) == (("text",), ("image/png",))
    finally:
        await store.close()


async def test_an_external_agent_without_a_name_is_called_by_its_alias(tmp_path: Path) -> None:
    nameless = ExternalAgent(alias="far", url="https://far.example", name="")

    assert (await external_agent(nameless, tmp_path, FakeClock())).title == "far"
