"""A sender that goes on and on: it fills neither the outbox nor the files of its machine; what was taken arrives."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from synapse.client.http import Answer, HostAddress, request
from synapse.client.link import KEEP, find_remote
from synapse.link.proxies import MOST_OPEN
from tests.fleet.careful_client import closed_rows, send, tasks_of, typed
from tests.fleet.waiting import until
from tests.fleet.world import World, open_world
from tests.integration.chaos.house import LINE_RULES

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

LIMIT = 3


@pytest.fixture(name="world", scope="module")
def _world() -> Generator[World]:
    with open_world("hub", "box2", namespaces=False) as world:
        world.hub.environment["SYNAPSE_OUTBOX_LIMIT"] = str(LIMIT)
        world.form()
        world["box2"].add_profile("bob", LINE_RULES, "line_recorder")
        world["box2"].start("bob", name="bob")
        yield world


def test_a_full_outbox_refuses_in_every_dialect_and_what_it_has_taken_arrives_once(world: World) -> None:
    hub, box2 = world.hub, world["box2"]
    box2.stop_link()
    nonces = [uuid4().hex[:12] for _ in range(LIMIT)]
    for nonce in nonces:
        kept = send(hub, "bob@box2", f"do <<{nonce}>>", f"m-{nonce}")
        assert kept is not None
        assert kept.status < 300, kept.body

    refused = send(hub, "bob@box2", "one too many", "m-refused")
    by_command = hub.synapse("send", "bob@box2", "one too many", "--queue")
    by_a2a = rpc(world, "SendMessage", {"role": "ROLE_USER", "parts": [{"text": "more"}]})
    by_former_a2a = rpc(world, "message/send", {"role": "user", "parts": [{"kind": "text", "text": "more"}]})
    repeated = send(hub, "bob@box2", f"do <<{nonces[0]}>>", f"m-{nonces[0]}")
    status, doctor = hub.run("fleet", "status"), hub.synapse("fleet", "doctor")

    assert refused is not None
    assert (refused.status, refused.body["error"]["code"]) == (429, "queue_full")
    assert "synapse fleet outbox" in refused.body["error"]["hint"]
    assert by_command.code != 0
    assert f"{LIMIT} messages to box2 wait on this machine already" in by_command.err
    assert "synapse fleet outbox" in by_command.err
    for answer in (by_a2a, by_former_a2a):
        assert f"{LIMIT} messages to box2 wait" in answer.body["error"]["message"], answer
    assert repeated is not None
    assert repeated.status < 300
    full = f"100 % full: {LIMIT} of {LIMIT} messages to box2"
    assert full in status
    assert full in doctor.out

    box2.start_link()
    rows = closed_rows(hub, [f"m-{nonce}" for nonce in nonces], bound=60)
    assert {row["state"] for row in rows} == {"settled"}
    assert sorted(typed(box2, "bob")) == sorted(nonces)
    assert [len(tasks_of(box2, f"m-{nonce}")) for nonce in nonces] == [1] * LIMIT
    hub.run("send", "bob@box2", "there is room again")


@pytest.mark.timeout(240)
def test_a_proxy_for_any_number_of_names_takes_no_more_files_than_the_most_that_stay_open(world: World) -> None:
    hub = world.hub
    world["box2"].stop_link()
    socket = Path(find_remote("bob@box2", hub.registry, keeps=True).socket)
    for number in range(MOST_OPEN + 20):
        find_remote(f"agent{number}@box2", hub.registry, keeps=True)

    def number_open() -> int:
        return int(hub.ask_link("/fleet/status")["proxies"])

    until(lambda: number_open() <= MOST_OPEN, "the proxies that nobody uses to close", number_open, bound=90)
    assert not socket.exists()

    link = hub.link
    assert link is not None
    # A socket closes a moment after its file is gone.
    files = Path(f"/proc/{link.pid}/fd")
    until(lambda: len(list(files.iterdir())) < MOST_OPEN + 100, "their files to close", bound=30)
    nonce = uuid4().hex[:12]
    hub.run("send", "bob@box2", f"do <<{nonce}>>", "--queue", "--message-id", f"m-{nonce}")
    world["box2"].start_link()
    closed_rows(hub, [f"m-{nonce}"], bound=60)
    assert typed(world["box2"], "bob").count(nonce) == 1


def rpc(world: World, method: str, message: dict[str, Any]) -> Answer:
    """Sends a message that is to be kept by A2A."""
    entry = find_remote("bob@box2", world.hub.registry, keeps=True)
    params = {"message": {**message, "messageId": uuid4().hex}, "metadata": {KEEP: True}}
    call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return request(HostAddress(entry.socket), "POST", "/", call, timeout=10)
