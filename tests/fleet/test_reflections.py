"""A stolen key makes the engine write where its machine may not: the engine sends its answer wherever a request says.

Each test sends one kind of request with the subjects of others for its reply, with real nats-server, and looks whether
anybody believes what comes there, or anything has changed.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from synapse.core.waiting import pause
from synapse.fleet import names
from synapse.fleet.bus import Arrival, BusError
from synapse.link.nats_bus import NatsBus
from synapse.link.nats_connection import MARK
from tests.fleet.bus_conformance import BOUND, first
from tests.fleet.own_fleet import NUMBERS, Fleet, connected

API = names.ENGINE_API
LOG = names.log_subject("evil")
LOG_READ = f"{API}.DIRECT.GET.{names.LOG_STREAM}.{LOG}"
KEPT = f"$KV.{names.KEYS}.gate.r-stolen"
"""An entry of another machine that must stay: the revocation of a key."""

ANOTHERS = [
    names.relay_subject("box2", "laptop"),
    names.ask_subject("box2", "laptop"),
    names.command_subject("box2", "gate"),
    names.mail_subject("box2", "laptop"),
    names.log_subject("laptop"),
    f"$KV.{names.PRESENCE}.laptop",
    f"$KV.{names.INCARNATIONS}.laptop",
    f"$KV.{names.KEYS}.gate.k-evil",
    KEPT,
]
"""The subjects of others that the requests name for their replies."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A request of a machine whose key was stolen."""

    subject: str
    body: bytes = b""
    stored: bytes = b""
    """The block of headers with which the last batch of its log was stored; empty for headers as they must be."""


NOW = b'{"batch":1,"no_wait":true}'
CONSUMER = f"{API}.CONSUMER.CREATE.KV_{names.PRESENCE}.empty.$KV.{names.PRESENCE}.>"
EMPTY: dict[str, Any] = {
    "stream_name": f"KV_{names.PRESENCE}",
    "config": {
        "name": "empty",
        "filter_subject": f"$KV.{names.PRESENCE}.>",
        "deliver_policy": "new",
        "ack_policy": "none",
        "mem_storage": True,
    },
}
GOOD = b"NATS/1.0\r\nSynapse-Wire: 1\r\nNats-Msg-Id: "
ASKS = {
    "a stored batch": Ask(LOG_READ),
    "a stored batch whose headers have no end": Ask(LOG_READ, stored=b"NATS/1.0\r\nSynapse-Wire: 1\r\nX: yzz"),
    "a stored batch whose id has no end": Ask(LOG_READ, stored=b"NATS/1.0\r\nSynapse-Wire: 1\r\nNats-Msg-Id: %dzz"),
    "a stored batch with an empty line": Ask(LOG_READ, stored=b"NATS/1.0\r\nSynapse-Wire: 1\r\n\r\nab"),
    "a stored batch with lines after the last": Ask(
        LOG_READ, stored=b"NATS/1.0\r\nSynapse-Wire: 1\r\nX: y\r\n\r\nZ: bb\r\n"
    ),
    "an acknowledgement of the engine": Ask(LOG, b"another batch"),
    "a description of a stream": Ask(f"{API}.STREAM.INFO.KV_{names.PRESENCE}"),
    "an entry": Ask(
        f"{API}.STREAM.MSG.GET.KV_{names.PRESENCE}",
        json.dumps({"last_by_subj": f"$KV.{names.PRESENCE}.evil"}).encode(),
    ),
    "a mail": Ask(f"{API}.CONSUMER.MSG.NEXT.SYN_MAIL.m_evil", NOW),
    "a status without a body": Ask(f"{API}.CONSUMER.MSG.NEXT.KV_{names.PRESENCE}.empty", NOW),
    "a new consumer": Ask(CONSUMER, json.dumps(EMPTY).encode()),
}


INTERFACE: dict[str, object] = {
    "STREAM.PURGE.SYN_MAIL": {},
    "STREAM.DELETE.SYN_MAIL": "",
    "STREAM.DELETE.KV_SYN_KEYS": "",
    "STREAM.UPDATE.SYN_MAIL": {"name": "SYN_MAIL", "subjects": ["synapse.v1.mail.*.*"], "max_msgs": 1},
    "STREAM.CREATE.EVIL": {
        "name": "EVIL",
        "subjects": ["synapse.v1.relay.>"],
        "republish": {"src": ">", "dest": f"{names.inbox_prefix('evil')}.>"},
    },
    "CONSUMER.DELETE.SYN_MAIL.m_box2": "",
    "CONSUMER.CREATE.SYN_LOG.spy": {
        "stream_name": "SYN_LOG",
        "config": {"name": "spy", "deliver_subject": f"{names.inbox_prefix('evil')}.spy", "ack_policy": "none"},
    },
    "CONSUMER.CREATE.SYN_MAIL.m_laptop.synapse.v1.mail.laptop.*": {
        "stream_name": "SYN_MAIL",
        "config": {
            "name": "m_laptop",
            "durable_name": "m_laptop",
            "filter_subject": "synapse.v1.mail.laptop.*",
            "ack_policy": "explicit",
        },
    },
}
"""What JetStream's interface would do for anybody who may ask it, with the body of the request."""


@dataclass(slots=True)
class Believed:
    """What machines have taken for true, and what the engine has."""

    heard: set[tuple[str, bytes]] = field(default_factory=set[tuple[str, bytes]])
    """Subjects and bodies."""
    entries: dict[str, bytes | None] = field(default_factory=dict[str, bytes | None])
    """The changes of the bucket of keys, as the hub has seen them."""


@asynccontextmanager
async def listening(box2: NatsBus, hub: NatsBus) -> AsyncGenerator[Believed]:
    believed = Believed()

    async def hear(arrivals: AsyncGenerator[Arrival, None]) -> None:
        async for arrival in arrivals:
            believed.heard.add((arrival.subject, arrival.body))

    async def watch() -> None:
        async for key, value in hub.watch(names.KEYS):
            believed.entries[key] = value

    subjects = [f"{names.ROOT}.{kind}.box2.*" for kind in ("relay", "ask", "command")]
    tasks = [
        *(asyncio.create_task(hear(box2.arrivals(subject))) for subject in subjects),
        asyncio.create_task(hear(box2.mails("box2"))),
        asyncio.create_task(hear(hub.arrivals(names.LOGS))),
        asyncio.create_task(watch()),
    ]
    try:
        yield believed
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def store(client: Any, block: bytes, body: bytes) -> None:
    """Stores a batch with any block of headers, as nats-py would not."""
    await client._send_command(
        b"HPUB %s %d %d\r\n%s%s\r\n" % (LOG.encode(), len(block), len(block + body), block, body)
    )
    await client.flush()


async def send_what_is_true(evil: NatsBus, believed: Believed) -> None:
    """Sends messages until they have arrived everywhere: by then, what was sent before them has arrived too."""
    body = b"true %d" % next(NUMBERS)
    sent = [names.relay_subject("box2", "evil"), names.ask_subject("box2", "evil")]
    kept = [names.mail_subject("box2", "evil"), names.log_subject("evil")]
    async with asyncio.timeout(BOUND):
        while not {(subject, body) for subject in (*sent, *kept)} <= believed.heard:
            for subject in sent:
                await evil.publish(subject, body)
            for subject in kept:
                await evil.keep(subject, body, once=f"{next(NUMBERS)}")
            await pause(0.01)


@pytest.mark.parametrize("ask", ASKS.values(), ids=ASKS)
async def test_what_the_engine_is_made_to_say_in_anothers_name_is_not_believed(fleet: Fleet, ask: Ask) -> None:
    box2, evil, gate, hub = (fleet.bus(name) for name in ("box2", "evil", "gate", "hub"))
    async with connected(box2, evil, gate, hub), listening(box2, hub) as believed:
        await gate.put(names.KEYS, "gate.r-stolen", b"revoked")
        await evil.put(names.PRESENCE, "evil", b"forged")
        await box2.keep(names.mail_subject("evil", "box2"), b"for evil", once=f"{next(NUMBERS)}")
        await evil.postpone(await first(evil.mails("evil")), 0)
        await send_what_is_true(evil, believed)
        client = await fleet.raw("evil")
        told = json.loads((await client.request(CONSUMER, json.dumps(EMPTY).encode(), timeout=BOUND)).data)
        assert "error" not in told
        await store(client, ask.stored or GOOD + b"%d\r\n\r\n" % next(NUMBERS), b"forged")
        for reply in ANOTHERS:
            await client.publish(ask.subject, ask.body, reply=reply, headers=dict(MARK))
        await client.flush()

        await send_what_is_true(evil, believed)

        assert {names.sender_machine(subject) for subject, _ in believed.heard} == {"evil"}
        assert believed.entries["gate.r-stolen"] == b"revoked"
        assert "gate.k-evil" not in believed.entries
        assert await gate.get(names.KEYS, "gate.r-stolen") == b"revoked"
        assert "gate.k-evil" not in await gate.keys(names.KEYS)
        for bucket in (names.PRESENCE, names.INCARNATIONS):
            assert await box2.get(bucket, "laptop") is None
        await client.close()


async def state_of_engine(hub: NatsBus) -> dict[str, Any]:
    """Returns what must not change: the streams, their consumers, and the mail of a machine that is away."""
    state: dict[str, Any] = {}
    for stream in ("SYN_MAIL", "SYN_LOG", "KV_SYN_KEYS", "EVIL"):
        try:
            told = await hub.ask_engine(f"STREAM.INFO.{stream}", {"subjects_filter": names.mail_subject("laptop", "*")})
        except BusError as error:
            state[stream] = str(error)
            continue
        count = told["state"]["consumer_count"] if stream != "KV_SYN_KEYS" else "changes with each who watches"
        state[stream] = (told["created"], told["config"], told["state"].get("subjects"), count)
    return state


@pytest.mark.parametrize("api", [names.JETSTREAM_API, names.ENGINE_API])
@pytest.mark.parametrize("asked", INTERFACE)
async def test_the_engine_does_not_do_what_it_is_made_to_ask_itself(fleet: Fleet, asked: str, api: str) -> None:
    box2, evil, hub = (fleet.bus(name) for name in ("box2", "evil", "hub"))
    async with connected(box2, evil, hub), listening(box2, hub) as believed:
        await box2.keep(names.mail_subject("laptop", "box2"), b"for laptop", once=f"{next(NUMBERS)}")
        await send_what_is_true(evil, believed)
        client = await fleet.raw("evil")
        await client.request(CONSUMER, json.dumps(EMPTY).encode(), timeout=BOUND)
        before = await state_of_engine(hub)
        body = json.dumps(INTERFACE[asked]).encode() if INTERFACE[asked] else b""
        await evil.keep(LOG, body, once=f"{next(NUMBERS)}")
        for ask in ASKS.values():
            await client.publish(ask.subject, ask.body, reply=f"{api}.{asked}", headers=dict(MARK))
        await client.flush()

        await send_what_is_true(evil, believed)

        assert await state_of_engine(hub) == before
        await client.close()


async def test_a_consumer_that_pushes_writes_nothing_in_anothers_name(fleet: Fleet) -> None:
    box2, evil, gate, hub = (fleet.bus(name) for name in ("box2", "evil", "gate", "hub"))
    async with connected(box2, evil, gate, hub), listening(box2, hub) as believed:
        await gate.put(names.KEYS, "gate.r-stolen", b"revoked")
        await send_what_is_true(evil, believed)
        before = await state_of_engine(hub)
        client = await fleet.raw("evil")
        asked = [f"{api}.{asked}" for api in (names.JETSTREAM_API, names.ENGINE_API) for asked in INTERFACE]
        for number, subject in enumerate((*ANOTHERS, *asked)):
            config = {
                **EMPTY["config"],
                "name": f"push{number}",
                "deliver_subject": subject,
                "idle_heartbeat": 100_000_000,
            }
            wanted = {**EMPTY, "config": config}
            await client.request(CONSUMER.replace("empty", f"push{number}"), json.dumps(wanted).encode(), timeout=BOUND)

        for _ in range(3):
            await evil.put(names.PRESENCE, "evil", b"forged")
            await send_what_is_true(evil, believed)

        assert {names.sender_machine(subject) for subject, _ in believed.heard} == {"evil"}
        assert believed.entries["gate.r-stolen"] == b"revoked"
        assert await gate.get(names.KEYS, "gate.r-stolen") == b"revoked"
        assert await state_of_engine(hub) == before
        await client.close()
