"""A machine with a newer Synapse: what an older one does not know is ignored, or refused in words."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

import msgspec
import pytest

from synapse.core.message import TextPart
from synapse.core.waiting import pause
from synapse.fleet import names
from synapse.fleet.asks import AgentResolved, SendBody, encode_send_body, part_bodies
from synapse.fleet.bus import NobodyThere
from synapse.fleet.wire import Incarnation, Outcome, Receipt, RelayedMessage
from synapse.link.nats_bus import NatsBus
from synapse.link.nats_connection import Access
from tests.fleet.careful_client import closed_rows, end_in, insist, row_of, tasks_of, typed
from tests.fleet.nats_server import nats_server
from tests.fleet.waiting import until
from tests.fleet.world import Machine, open_world
from tests.integration.chaos.house import LINE_RULES

pytestmark = pytest.mark.integration
ME: Final = Incarnation(1, "future")
NEWER: Final = {"colour": "blue", "deeper": {"lists": [1, 2, [3]]}}
"""Fields that this version does not know."""


@dataclass(slots=True)
class FutureLink:
    """A link of a newer version, with the machine name `future`: writes what it likes on the real bus."""

    bus: NatsBus
    n: int = 0

    async def relay(self, nonce: str, *, kind: str = "send", target: str = "bob", **more: object) -> dict[str, Any]:
        """Relays a message with fields that box2 does not know; returns the answer."""
        self.n += 1
        text = TextPart(text=f"do <<{nonce}>>")
        body = {**msgspec.json.decode(encode_send_body(SendBody(parts=part_bodies((text,))))), **NEWER}
        message = RelayedMessage(
            incarnation=ME,
            n=self.n,
            kind=kind,
            message_id=f"m-{nonce}",
            floor=self.n,
            target=target,
            task_id=str(uuid4()),
            body=msgspec.json.encode(body),
        )
        fields = {**plain(message), **NEWER, **more}
        moved = await self.ask("relay", fields)
        # As every link does: the first answer names the incarnation to which the message is sent.
        return await self.ask("relay", {**fields, "peer": moved["by"]}) if moved.get("outcome") == "moved" else moved

    async def ask(self, kind: str, fields: dict[str, Any]) -> dict[str, Any]:
        """Sends a request to box2; returns the fields of its answer."""
        subject = f"{names.ROOT}.{kind}.box2.future"
        async with asyncio.timeout(20):
            while True:
                try:
                    answer = await self.bus.request(subject, msgspec.msgpack.encode(fields), 5.0)
                    return msgspec.msgpack.decode(answer, type=dict[str, Any])
                except NobodyThere:
                    await pause(0.05)

    @asynccontextmanager
    async def answering(self, kind: str, answer: Callable[[dict[str, Any]], object]) -> AsyncGenerator[None]:
        """Answers what box2 asks of this machine, for the length of a block."""

        async def hear() -> None:
            async for arrival in self.bus.arrivals(f"{names.ROOT}.{kind}.future.box2"):
                asked = msgspec.msgpack.decode(arrival.body, type=dict[str, Any])
                await self.bus.publish(arrival.reply_to, msgspec.msgpack.encode(answer(asked)))

        hearing = asyncio.create_task(hear())
        try:
            yield
        finally:
            hearing.cancel()
            await asyncio.gather(hearing, return_exceptions=True)


def plain(value: msgspec.Struct) -> dict[str, Any]:
    """Returns the fields of a message as they go over the wire, with its tag."""
    fields: dict[str, Any] = msgspec.to_builtins(value, builtin_types=(bytes,))
    return fields


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    with nats_server(tmp_path_factory.mktemp("nats")) as running:
        yield running.url


@pytest.fixture(scope="module")
def box2(server: str) -> Generator[Machine]:
    with open_world("box2", namespaces=False) as world:
        world.join(server)
        world["box2"].add_profile("bob", LINE_RULES, "line_recorder")
        world["box2"].start("bob", name="bob")
        yield world["box2"]


@pytest.fixture(scope="module")
def numbers() -> list[int]:
    """The number of the last message of the machine `future`, which all tests share."""
    return [0]


@pytest.fixture
async def future(server: str, numbers: list[int]) -> AsyncGenerator[FutureLink]:
    async with NatsBus(Access(machine="future", servers=(server,))) as bus:
        await bus.wait_connected(20)
        link = FutureLink(bus, numbers[0])
        yield link
        numbers[0] = link.n


async def test_fields_that_are_not_known_are_ignored_and_the_message_is_delivered(
    box2: Machine, future: FutureLink
) -> None:
    nonce = uuid4().hex[:12]

    receipt = await future.relay(nonce)

    assert receipt["outcome"] == "accepted"
    await wait_for(lambda: typed(box2, "bob").count(nonce) == 1)
    [task] = await asyncio.to_thread(tasks_of, box2, f"m-{nonce}")
    assert task.id == receipt["task_id"]


async def test_a_kind_of_message_that_is_not_known_is_refused_in_words(box2: Machine, future: FutureLink) -> None:
    nonce = uuid4().hex[:12]

    receipt = await future.relay(nonce, kind="hologram")

    assert receipt["outcome"] == "refused"
    assert b"does not know messages of the kind hologram" in receipt["error"]
    assert not await asyncio.to_thread(tasks_of, box2, f"m-{nonce}")


async def test_a_type_that_is_not_known_is_refused_in_words_and_noted(box2: Machine, future: FutureLink) -> None:
    relayed = await future.ask("relay", {"type": "hologram", **NEWER})
    asked = await future.ask("ask", {"type": "hologram", **NEWER})
    damaged = msgspec.msgpack.encode({"type": "hologram"})
    await future.bus.keep(names.mail_subject("box2", "future"), damaged, once=uuid4().hex)

    assert (relayed["type"], relayed["code"]) == ("problem", "unreadable")
    assert "hologram" in relayed["text"]
    assert "hologram" in str(asked["error"]), asked
    await wait_for(lambda: notes(box2).count("a message of future cannot be read") >= 2)
    # What follows it is not held up.
    assert (await future.relay(uuid4().hex[:12]))["outcome"] == "accepted"


async def test_a_presence_with_more_fields_is_read_and_one_that_cannot_be_read_is_away(
    box2: Machine, future: FutureLink
) -> None:
    agent = {"agent_id": "synapse-zed-1", "agent_type": "zed", "name": "zed", "inbox": "zed", "state": "dreaming"}
    shown = {
        "instance": "x",
        "since": "2030-01-01T00:00:00Z",
        "version": "9.0",
        "agents": [{**agent, **NEWER}],
        **NEWER,
    }
    await future.bus.put(names.PRESENCE, "future", msgspec.json.encode(shown))

    listed = await asyncio.to_thread(until, lambda: agents_of(box2, "future"), "zed to be listed")
    await future.bus.put(names.PRESENCE, "future", msgspec.json.encode({"instance": ["of", "a", "new", "shape"]}))
    lasting = {"incarnation": ME, "seen": "2030-01-01T00:00:00Z", **NEWER}
    await future.bus.put(names.INCARNATIONS, "future", msgspec.json.encode(lasting))
    await wait_for(lambda: not agents_of(box2, "future"))
    machines = await asyncio.to_thread(box2.read, "fleet", "status")

    assert [one["name"] for one in listed] == ["zed"]
    assert [(one["name"], one["present"]) for one in machines["machines"]] == [("future", False)]


async def test_a_receipt_that_cannot_be_read_closes_nothing_and_one_with_more_fields_does(
    box2: Machine, future: FutureLink
) -> None:
    nonce = uuid4().hex[:12]
    knows_outcome = asyncio.Event()

    def resolve(_asked: dict[str, Any]) -> object:
        agent = {"agent_id": "synapse-zed-1", "agent_type": "zed", "name": "zed", "inbox": "zed", **NEWER}
        return {**plain(AgentResolved(agent=agent)), **NEWER}

    def take(asked: dict[str, Any]) -> object:
        receipt = Receipt(
            incarnation=Incarnation(*asked["incarnation"]),
            n=asked["n"],
            message_id=asked["message_id"],
            outcome=Outcome.ACCEPTED,
            by=ME,
            peer=Incarnation(*asked.get("peer", (0, ""))),
            task_id=asked["task_id"],
        )
        return {**plain(receipt), **NEWER, **({} if knows_outcome.is_set() else {"outcome": "teleported"})}

    async with future.answering("ask", resolve), future.answering("relay", take):
        await asyncio.to_thread(insist, box2, "zed@future", f"do <<{nonce}>>", f"m-{nonce}")
        assert row_of(box2, f"m-{nonce}")["state"] == "open"
        knows_outcome.set()
        await wait_for(lambda: row_of(box2, f"m-{nonce}")["state"] == "accepted")
    end = {"state": "completed", **NEWER}
    row = row_of(box2, f"m-{nonce}")
    ended = await future.relay("end", kind="ended", end=end, ends=f"m-{nonce}", task_id=row["task_id"], target="")

    assert ended["outcome"] == "done"
    [row] = await asyncio.to_thread(closed_rows, box2, [f"m-{nonce}"])
    assert (row["state"], end_in(row)) == ("settled", "completed")


async def wait_for(condition: Callable[[], object]) -> None:
    """Waits until a condition holds, while this process goes on."""
    async with asyncio.timeout(30):
        while not await asyncio.to_thread(condition):
            await pause(0.02)


def notes(machine: Machine) -> str:
    return "\n".join(str(note) for note in machine.ask_link("/fleet/status")["notes"])


def agents_of(machine: Machine, name: str) -> list[dict[str, Any]]:
    agents: list[dict[str, Any]] = machine.ask_link("/fleet/agents")["agents"]
    return [agent for agent in agents if agent["machine"] == name]
