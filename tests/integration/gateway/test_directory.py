"""The directory of a gateway with real hosts, called over real sockets."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from synapse.config.process import SystemClock
from synapse.config.settings import Settings
from synapse.core.agent import EXITED, READY, AgentEntry
from synapse.core.caller import Caller
from synapse.core.errors import AgentNotResponding, InvalidSettings, OutcomeUnknown, PortTaken, TaskNotCancelable
from synapse.core.message import Message, MessageId, Role, TextPart
from synapse.core.override import override
from synapse.core.requests import CancelTask, CommandResult, OnBehalfOf, Request, SendMessage
from synapse.dialects.a2a_v0_3 import routes as errors_0_3
from synapse.dialects.a2a_v1 import routes as errors_1_0
from synapse.dialects.supervisor import routes as errors_supervisor
from synapse.gateway.config import GatewayConfig, own_url, reserve_gateway
from synapse.gateway.directory import GatewayAgent, LocalAgents
from synapse.net.hosts import open_host_client
from synapse.registry.files import gateways
from synapse.registry.local import FRESH_SECONDS, open_local_registry
from tests.conformance.in_memory_service import InMemoryService
from tests.conformance.served_host import served
from tests.fakes.clock import FakeClock

pytestmark = pytest.mark.integration

LAPTOP = Caller(scope="key:laptop", actions=frozenset({"cancel"}), name="laptop")


class CommandedService(InMemoryService):
    """A host that does what a gateway asks, unless it is told to refuse."""

    def __init__(self, entry: AgentEntry) -> None:
        super().__init__(entry)
        self.asked: list[Request[object]] = []

    @override
    async def handle(self, request: Request[object], caller: Caller) -> Any:
        if not isinstance(request, OnBehalfOf):
            return await super().handle(request, caller)
        self.asked.append(request)
        if isinstance(request.request, CancelTask) and request.request.task_id == "done":
            raise TaskNotCancelable("it is done", hint="look")
        return CommandResult(task_id="t", version=3)


class Hosts:
    """The hosts in a registry, as a gateway sees them."""

    def __init__(self, home: Path) -> None:
        clock = FakeClock()
        self.registry = open_local_registry(home / "registry", clock.monotonic)
        self.client = open_host_client(self.registry, clock, self.registry.recheck)
        self._agents = LocalAgents(self.registry, self.client, me="synapse-gateway-8000")

    async def seen(self) -> tuple[GatewayAgent, ...]:
        await self._agents.refresh()
        return self._agents()


async def test_a_command_returns_the_result_or_the_error_of_the_host(tmp_path: Path) -> None:
    async def story(services: list[CommandedService], entry: AgentEntry) -> None:
        hosts = Hosts(tmp_path)
        assert await hosts.seen() == ()
        await hosts.registry.publish(entry)
        (agent,) = await hosts.seen()

        assert (agent.name, await agent.state()) == (entry.agent_id, READY)
        assert await agent.command(CancelTask("t"), LAPTOP) == CommandResult(task_id="t", version=3)
        assert services[0].asked == [OnBehalfOf(LAPTOP, CancelTask("t"))]
        with pytest.raises(TaskNotCancelable, match="it is done") as refused:
            await agent.command(CancelTask("done"), LAPTOP)
        assert refused.value.hint == "look"
        hosts.client.close()

    services: list[CommandedService] = []

    def make(entry: AgentEntry) -> CommandedService:
        services.append(CommandedService(entry))
        return services[0]

    with served(tmp_path, make) as host:
        await story(services, host.entry)


async def test_a_host_that_does_not_answer_has_exited_and_is_looked_up_again(tmp_path: Path) -> None:
    # It seems to run, because its process does; but nothing listens on its socket.
    entry = AgentEntry("synapse-dummy-1", "dummy", name="ada", pid=1, socket=str(tmp_path / "none"))

    hosts = Hosts(tmp_path)
    await hosts.registry.publish(entry)
    (agent,) = await hosts.seen()
    assert await agent.state() == EXITED
    with pytest.raises(AgentNotResponding) as refused:
        await agent.command(CancelTask("t"), LAPTOP)
    assert not isinstance(refused.value, OutcomeUnknown), "nothing was sent"
    await hosts.registry.withdraw(entry.agent_id)
    assert await hosts.seen() == ()
    assert FRESH_SECONDS <= 1


async def test_a_request_that_a_host_read_without_answering_has_an_unknown_outcome(tmp_path: Path) -> None:
    entry = AgentEntry("synapse-dummy-1", "dummy", name="ada", pid=1, socket=str(tmp_path / "silent"))
    said = Message(message_id=MessageId("my-id"), role=Role.USER, parts=(TextPart(text="hi"),))

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    hosts = Hosts(tmp_path)
    await hosts.registry.publish(entry)
    async with await asyncio.start_unix_server(hang_up, entry.socket):
        (agent,) = await hosts.seen()
        with pytest.raises(OutcomeUnknown, match=r"is not responding\. It is not known whether it took") as sent:
            await agent.command(SendMessage(message=said, dialect="a2a_v1"), LAPTOP)
        with pytest.raises(OutcomeUnknown) as canceled:
            await agent.command(CancelTask("t"), LAPTOP)
    assert "with the message id 'my-id': a message is never taken twice" in sent.value.hint
    assert "with the same message id" in canceled.value.hint
    for told in (errors_1_0.encode_error, errors_0_3.encode_error, errors_supervisor.encode_error):
        assert b"It is not known whether it took the request" in told(sent.value).body
    assert errors_1_0.encode_error(sent.value).status == errors_0_3.encode_error(sent.value).status == 503


def test_a_gateway_listens_and_has_an_entry_of_its_own(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, uds_dir=tmp_path / "s", sources={"uds_dir": "test"})
    identity = reserve_gateway(GatewayConfig(port=0), settings, SystemClock(), tls=False)
    try:
        entry = identity.entry
        assert (entry.agent_type, entry.endpoint) == ("gateway", f"http://localhost:{entry.port}")
        with pytest.raises(PortTaken, match="is taken by another program"):
            reserve_gateway(GatewayConfig(port=entry.port), settings, SystemClock(), tls=False)
        gateways(tmp_path).write(entry)
        with pytest.raises(PortTaken, match="is taken by a running gateway"):
            reserve_gateway(GatewayConfig(port=entry.port), settings, SystemClock(), tls=False)
        assert [one.agent_id for one in gateways(tmp_path).entries()] == [entry.agent_id]
    finally:
        identity.release()


def test_a_gateway_needs_a_socket(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, uds_dir=tmp_path / ("x" * 120), sources={"uds_dir": "test"})
    with pytest.raises(InvalidSettings):
        reserve_gateway(GatewayConfig(port=0), settings, SystemClock(), tls=False)
    identity = reserve_gateway(
        GatewayConfig(port=0),
        Settings(home=tmp_path, uds_dir=tmp_path / "s", sources={"uds_dir": "t"}),
        SystemClock(),
        tls=True,
    )
    assert identity.entry.endpoint.startswith("https://localhost:")
    identity.release()


def test_a_gateway_that_is_open_to_others_is_called_by_its_address() -> None:
    assert own_url("192.0.2.1", 8000, tls=True) == "https://192.0.2.1:8000"
