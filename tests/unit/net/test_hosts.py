"""Delivering replies: the agent that asked is found by its inbox, also after a restart at another port."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from synapse.core.agent import AgentEntry
from synapse.core.errors import (
    AccessDenied,
    AgentNotFound,
    LinkDown,
    MachineAway,
    PersonRequired,
    RouteNotFound,
    SynapseError,
    TaskNotFound,
    UnsupportedOperation,
    to_wire,
)
from synapse.core.message import Sender, TextPart
from synapse.core.registry import AgentReply
from synapse.net.hosts import open_host_client, terminal_refusal
from synapse.registry.local import open_local_registry
from tests.fakes.clock import FakeClock
from tests.unit.cli.fake_host import FakeHost, Fields

ME = AgentEntry("synapse-codex-8120", "codex", port=8120, endpoint="http://localhost:8120", inbox="bert")
QUESTION: Fields = {"message": {"role": "user", "parts": [{"type": "text", "text": "review this"}]}}


@pytest.fixture
def ada(tmp_path: Path) -> Iterator[FakeHost]:
    """An agent that had port 8100 when it asked."""
    with ExitStack() as hosts:
        hosts.enter_context(FakeHost(tmp_path, "claude", 8100, "eve").serving())
        yield hosts.enter_context(FakeHost(tmp_path, "claude", 8101, "ada").serving())


async def carry(ada: FakeHost, to: Sender, task_id: str) -> None:
    clock = FakeClock()
    registry = open_local_registry(Path(ada.registry.folder), clock.monotonic)
    hosts = open_host_client(registry, clock, registry.recheck)
    me = Sender(sender_id=ME.agent_id, sender_type=ME.agent_type, sender_endpoint=ME.endpoint)
    reply = AgentReply(sender=me, in_reply_to=task_id, parts=(TextPart(text="looks good"),), inferred=True)
    await hosts.deliver_reply(to, reply)


@pytest.mark.parametrize(
    "asker",
    [
        Sender(sender_id="synapse-claude-8100", inbox="ada"),
        Sender(sender_id="synapse-claude-8101"),
        Sender(sender_id="ada"),
    ],
    ids=["its inbox, at another port", "its id", "its name"],
)
async def test_a_reply_goes_to_the_agent_that_asked(ada: FakeHost, asker: Sender) -> None:
    waiting = ada.open(QUESTION)

    await carry(ada, asker, waiting["id"])

    assert waiting["status"] == "completed"
    (told,) = [body["metadata"] for _, path, body in ada.requests if path == "/tasks/send"]
    assert (told["sender"]["sender_id"], told["in_reply_to"]) == (ME.agent_id, waiting["id"])


async def test_a_reply_does_not_go_to_another_agent_that_has_the_port_now(ada: FakeHost) -> None:
    with pytest.raises(AgentNotFound, match="synapse-claude-8100"):
        await carry(ada, Sender(sender_id="synapse-claude-8100", inbox="carl"), "t-1")


async def test_a_reply_to_an_agent_that_no_longer_waits_is_refused(ada: FakeHost) -> None:
    with pytest.raises(TaskNotFound):
        await carry(ada, Sender(sender_id="synapse-claude-8100", inbox="ada"), "t-1")


@pytest.mark.parametrize(
    ("status", "refusal", "raised"),
    [
        (404, RouteNotFound("no WebSocket is served there"), UnsupportedOperation),
        (400, UnsupportedOperation("this agent has no terminal"), UnsupportedOperation),
        (403, PersonRequired("only a person may attach"), AccessDenied),
        (404, AgentNotFound("codex@box2"), AgentNotFound),
        (503, MachineAway("box2", "10:02"), MachineAway),
        (503, LinkDown("the link does not run"), LinkDown),
    ],
)
def test_a_refused_terminal_is_told_by_what_refused_it(
    status: int, refusal: SynapseError, raised: type[SynapseError]
) -> None:
    error = terminal_refusal(status, json.dumps({"error": to_wire(refusal)}).encode())

    assert isinstance(error, raised)
