"""A gateway outside of a fleet: the same objects as before, and nothing of a fleet is read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from synapse.auth.api_keys import Grant, KeyFile
from synapse.core.message import Message, MessageId, Role, TextPart
from synapse.core.requests import ForAgent, GetTask, SendMessage
from synapse.core.trace import traced
from synapse.gateway.directory import GatewayDirectory
from synapse.gateway.fleet_store import logs_of
from tests.fakes.clock import FakeClock
from tests.fakes.facts import numbered, opened
from tests.fakes.memory_store import MemoryStore
from tests.unit.store.stories import keep


def test_names_with_an_at_sign_are_left_alone() -> None:
    request = ForAgent("codex@box2", GetTask("1"))

    assert GatewayDirectory().with_own_name(request) is request


def test_a_request_without_the_header_is_the_same_object() -> None:
    message = Message(message_id=MessageId("m"), role=Role.USER, parts=(TextPart(text="hi"),))
    request = ForAgent("codex", SendMessage(message=message, dialect="synapse"))

    assert traced(request, [(b"host", b"localhost"), (b"synapse-queue", b"false")]) is request
    assert traced(request, [(b"synapse-queue", b"true")]).queue


async def test_the_log_is_that_of_the_one_store_and_its_cursors_are_seqs() -> None:
    store = MemoryStore()
    await keep(store, opened(numbered(1)))

    assert logs_of(store) == (store,)
    assert [(one.seq, one.cursor, one.position) for one in await store.read_after(0)] == [(1, 1, 0)]


def test_keys_are_those_of_this_machine(tmp_path: Path) -> None:
    keys = KeyFile(tmp_path, FakeClock())
    key, _ = keys.create("laptop", Grant())

    assert keys.find(key.key_id) == key
    assert keys.mirrored() == ()
    keys.revoke("laptop")
    assert not (tmp_path / "fleet").exists()


def test_a_gateway_loads_nothing_of_the_replica_or_the_engine() -> None:
    code = "import synapse.gateway.gateway, sys; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, encoding="utf-8"
    ).stdout.split()

    assert not {"nats", "synapse.store.replica", "synapse.store.replica_store", "synapse.link.link"} & set(loaded)
