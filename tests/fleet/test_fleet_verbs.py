"""`synapse fleet …` for real: two machines on one computer, their links, and the server between them."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.js.errors import NotFoundError

from synapse.config.fleet import load_fleet
from synapse.fleet import names
from synapse.link.certificates import make_authority, make_server_certificate
from synapse.link.members import FleetMember, permissions
from synapse.link.server import DEFAULT_PORT, FleetServer
from tests.fakes.certificates import self_made
from tests.fleet.nats_jwt import Operator
from tests.fleet.nats_server import NatsServer, nats_server
from tests.fleet.waiting import until
from tests.fleet.world import Machine, World, open_world
from tests.samples.commands import Ran

pytestmark = pytest.mark.integration
LISTEN = ("--listen", "0.0.0.0:0", "--address", "127.0.0.1")


@pytest.fixture(name="pair")
def _pair() -> Iterator[World]:
    with open_world("hub", "box2", namespaces=False) as made:
        hub, box2 = made
        hub.read("fleet", "create", "--name", "hub", *LISTEN)
        box2.read("fleet", "join", hub.read("fleet", "invite", "box2")["invitation"])
        made.wait_connected()
        yield made


def present_at(machine: Machine) -> list[str]:
    """Returns the other machines that are present, as one machine sees it."""
    return [other["name"] for other in machine.read("fleet", "status")["machines"] if other["present"]]


def problem_of(machine: Machine) -> str:
    """Returns why a machine is cut off; empty while it is connected."""
    status = machine.read("fleet", "status")
    return "" if status["connected"] else str(status["problem"])


def findings(machine: Machine) -> dict[str, str]:
    told = machine.read("fleet", "doctor")
    assert told["ok"] is True, told
    return {finding["subject"]: finding["level"] for finding in told["findings"]}


def test_a_fleet_from_its_creation_to_its_end(pair: World) -> None:
    hub, box2 = pair
    assert until(lambda: present_at(hub), "box2 to be present") == ["box2"]

    # All checks pass on both, and each has tried to write as another machine.
    everywhere = {"link", "outbox", "versions", "connection", "rights", "forgery", "clock", "certificate"}
    assert {subject for subject, level in findings(hub).items() if level == "ok"} >= everywhere | {"disk", "server"}
    assert {subject for subject, level in findings(box2).items() if level == "ok"} >= everywhere

    # A name is used once, and an agent of either is found by nobody else.
    assert hub.synapse("fleet", "invite", "box2").code == 7

    # The server comes back when it is killed.
    pair.kill_server()
    until(pair.server_pid, "another server")
    pair.wait_connected()

    # A machine that is removed is cut off, and cannot come back. Another one with its name is allowed nothing more.
    hub.read("fleet", "allow", "box2", "attach")
    assert hub.read("fleet", "remove", "box2") == {"removed": "box2", "cut_off": True, "waiting": 0}
    until(lambda: hub.read("fleet", "status")["machines"] == [], "the hub to know it no more")
    config = load_fleet(hub.home)
    assert config is not None
    assert config.allow == {}
    until(lambda: "removed from the fleet" in problem_of(box2), "the reason", lambda: problem_of(box2))
    assert "`synapse fleet leave`, then join again" in box2.synapse("send", "codex@hub", "hello").err
    assert "`synapse fleet leave`, then join again" in box2.synapse("fleet", "doctor").out
    box2.read("fleet", "stop")
    box2.read("fleet", "start")
    assert box2.read("fleet", "status")["connected"] is False

    assert box2.read("fleet", "leave")["machine"] == "box2"
    assert box2.synapse("fleet", "status").code == 7
    assert hub.read("fleet", "leave")["machine"] == "hub"
    assert hub.synapse("fleet", "status").code == 7


def test_a_server_that_takes_another_port_than_the_usual_one_says_so() -> None:
    create = ("fleet", "create", "--name", "hub", "--address", "127.0.0.1")
    with open_world("hub", namespaces=False) as (hub,), socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections that were closed just now
        while True:
            with suppress(OSError):  # another program has it: all the same
                other.bind(("0.0.0.0", DEFAULT_PORT))
                other.listen()
            created = hub.synapse(*create)
            listen = FleetServer(hub.home, hub.home / "logs").members().listen
            hub.read("fleet", "leave")
            again = hub.read(*create)
            is_mine = other.getsockname()[1] == DEFAULT_PORT
            if is_mine or (not listen.endswith(f":{DEFAULT_PORT}") and "warning" in again):
                break
            hub.read("fleet", "leave")  # the other program has let it go meanwhile

    assert f"\nPort 4222 is taken, so the server listens on {listen}; --listen chooses another.\n" in created.err
    assert again["warning"].startswith("Port 4222 is taken, ")


def test_a_new_fleet_says_who_can_reach_it_and_a_new_gateway_what_to_start() -> None:
    with open_world("hub", "box2", "box3", namespaces=False) as (hub, box2, box3):
        created = hub.synapse("fleet", "create", "--name", "hub", "--listen", "127.0.0.1:0")
        listen = FleetServer(hub.home, hub.home / "logs").members().listen
        invited = [hub.read("fleet", "invite", *who)["invitation"] for who in (("box2", "--gateway"), ("box3",))]
        gateway, other = box2.synapse("fleet", "join", invited[0]), box3.synapse("fleet", "join", invited[1])

    said = f"Its server listens on {listen}: only machines on this computer reach it, at nats://{listen} without TLS."
    assert created.err.splitlines()[1] == said
    assert gateway.err.splitlines()[:2] == [
        "This machine is 'box2' in the fleet 'fleet', with the role of a gateway.",
        "Next:  synapse start gateway           serves the agents of all machines",
    ]
    assert other.err.splitlines()[0] == "This machine is 'box3' in the fleet 'fleet'."
    assert "start gateway" not in other.err


def test_a_gateway_that_has_to_be_restarted_is_named() -> None:
    with open_world("hub", namespaces=False) as (hub,):
        before = hub.read("start", "gateway", "--port", "0", "--grpc-port", "0", "--no-auth")
        created = hub.synapse("fleet", "create", "--name", "hub", *LISTEN)
        left = hub.synapse("fleet", "leave")
        hub.read("stop", "gateway")
        again = hub.synapse("fleet", "create", "--name", "hub", *LISTEN)

        for ran in (created, left):
            assert ran.code == 0, ran
            assert f"Restart the gateway at {before['endpoint']}" in ran.err, ran
        assert again.code == 0, again
        assert "Restart the gateway" not in again.err


def test_a_server_goes_on_while_its_link_is_restarted(pair: World) -> None:
    hub, box2 = pair
    server, link = pair.server_pid(), hub.link
    assert server
    assert link is not None

    hub.kill_link()
    started = hub.read("fleet", "start")

    assert started["link"] != link.pid
    hub.wait_connected()
    assert pair.server_pid() == server
    assert box2.read("fleet", "status")["connected"] is True


def test_who_runs_the_server_ends_the_fleet_only_on_purpose(pair: World) -> None:
    hub = pair.hub
    refused = hub.synapse("fleet", "leave")

    assert refused.code == 7
    assert "the fleet's server: without it box2 reaches no other machine\n" in refused.err
    assert "--end-fleet" in refused.err
    assert "`synapse fleet allow box2 none` there takes it back" in hub.synapse("fleet", "remove", "box2").err
    hub.read("fleet", "invite", "box3")
    invited = hub.synapse("fleet", "leave")
    assert (invited.code, "the invitation of box3 is open" in invited.err) == (7, True), invited
    assert hub.read("fleet", "leave", "--end-fleet") == {
        "left": "fleet",
        "machine": "hub",
        "kept_in": str(hub.home / "fleet-left"),
        "unsent": 0,
        "unanswered": 0,
    }


def test_the_end_of_a_fleet_says_what_the_others_have_to_do(pair: World) -> None:
    hub = pair.hub
    hub.read("fleet", "invite", "box3")

    ended = hub.synapse("fleet", "leave", "--end-fleet")

    assert ended.err.splitlines()[1:] == [
        "The fleet has ended: its server is stopped, and the invitation of box3 is void.",
        "`synapse fleet leave` ends the membership of box2, there.",
    ]


def test_messages_that_wait_for_a_machine_are_told_when_it_is_removed(pair: World) -> None:
    hub, box2 = pair
    box2.read("fleet", "stop")
    for _ in range(2):
        hub.read("send", "d@box2", "hello", "--queue")

    removed = hub.synapse("fleet", "remove", "box2")

    assert removed.code == 0, removed
    assert "2 messages wait for box2 in the outbox of this machine, and are tried until they expire." in removed.err
    assert "\nThey become `uncertain` if a machine joins under that name.\n" in removed.err
    gone = "box2 is not in the fleet"
    until(lambda: hub.synapse("fleet", "outbox").out.count(gone) == 2, "the reason why they wait")
    assert "`synapse fleet outbox` lists what waits, and --cancel TASK takes it back." in removed.err

    def states() -> list[str]:
        return [message["state"] for message in hub.read("fleet", "outbox")["messages"]]

    assert states() == ["open", "open"]
    box2.read("fleet", "leave")
    box2.read("fleet", "join", hub.read("fleet", "invite", "box2")["invitation"])
    until(lambda: states() == ["uncertain", "uncertain"], "the messages to be in doubt", lambda: str(states()))


def test_an_invitation_starts_what_was_stopped_and_says_so(pair: World) -> None:
    hub = pair.hub
    running = hub.synapse("fleet", "invite", "box3")
    hub.read("fleet", "stop")
    stopped = hub.synapse("fleet", "invite", "box4")
    hub.stop_link()
    without_link = hub.synapse("fleet", "invite", "box5")

    assert "started" not in running.err
    assert "The fleet's server and this machine's link did not run, and were started.\n" in stopped.err
    assert "This machine's link did not run, and was started.\n" in without_link.err


def test_an_invitation_is_printed_as_the_command_to_type(pair: World) -> None:
    hub = pair.hub
    with open_world("third", namespaces=False) as (third,):
        told = hub.read("fleet", "invite", "fourth")
        assert re.fullmatch(r"[0-9-]{10}T[0-9:]{8}Z", told["expires_at"])
        printed = hub.synapse("fleet", "invite", "third").out
        assert printed.startswith("synapse fleet join synapse-fleet-1:")
        assert printed.count("\n") == 1

        # Copied whole, or carried in a file.
        assert third.synapse("fleet", "join", "-", given=printed).code == 0
        third.wait_connected()
        assert third.read("fleet", "status")["machine"] == "third"


def test_machines_meet_on_a_nats_that_others_run(tmp_path: Path) -> None:
    folder = tmp_path / "nats"
    folder.mkdir()
    with nats_server(folder) as server, open_world("hub", "box2", namespaces=False) as (hub, box2):
        for machine in (hub, box2):
            machine.read("fleet", "join", server.url, "--as", machine.name)
        for machine in (hub, box2):
            machine.wait_connected()

        assert until(lambda: present_at(hub), "box2 to be present") == ["box2"]
        assert findings(box2)["forgery"] == "note", "this server lets every machine write as any other"
        invited = hub.synapse("fleet", "invite", "third")
        assert invited.code == 7
        assert "--creds" in invited.err


def test_machines_meet_on_a_hosted_nats_with_a_file_of_credentials_each(tmp_path: Path) -> None:
    """TLS, and for each machine the rights of the how-to and no more."""
    folder = tmp_path / "nats"
    folder.mkdir()
    certificate, key = self_made(tmp_path)
    operator = Operator.new()
    tls = f'tls {{ cert_file: "{certificate}", key_file: "{key}" }}'
    rights = {
        name: permissions(FleetMember(name=name, key="", is_gateway=name == "hub"), names.JETSTREAM_API)
        for name in ("hub", "box2")
    }
    rights["hub"]["publish"]["allow"] += [f"$JS.API.{one}" for one in ("INFO", "STREAM.INFO.*", "STREAM.CREATE.*")]
    creds = {name: str(operator.creds(tmp_path, name, allowed)) for name, allowed in rights.items()}
    with (
        nats_server(folder, f"{operator.configuration()}\n{tls}") as server,
        open_world("hub", "box2", namespaces=False) as world,
    ):
        hub, box2 = world
        url = f"tls://127.0.0.1:{server.port}"

        def join(machine: Machine, credentials: str, *more: str) -> Ran:
            way = ("--as", machine.name, "--creds", credentials, "--ca", str(certificate))
            return machine.synapse("fleet", "join", url, *way, *more)

        # Of another machine, and of nobody.
        foreign, missing = join(box2, creds["hub"]), join(box2, str(tmp_path / "none.creds"))
        assert join(hub, creds["hub"], "--gateway").code == 0
        assert join(box2, creds["box2"]).code == 0
        world.wait_connected()
        box2.start_dummy("d")

        answer = until(lambda: hub.synapse("send", "d@box2", "hello", "--response", "--timeout", "30"), "an answer")
        assert answer.code == 0, answer
        assert "hello" in answer.out
        for machine in world:
            told = machine.run("fleet", "doctor")
            assert "acting as another machine was refused, but a stolen key can use all of JetStream" in told
        assert (foreign.code, "give it the credentials of box2" in foreign.err) == (8, True), foreign
        assert (missing.code, "none.creds" in missing.err) == (2, True), missing


def test_a_nats_without_jetstream_is_refused_in_words(tmp_path: Path) -> None:
    folder = tmp_path / "nats"
    folder.mkdir()
    with nats_server(folder, jetstream=False) as server, open_world("box2", namespaces=False) as (box2,):
        refused = box2.synapse("fleet", "join", server.url, "--as", "box2")

        assert refused.code == 8
        assert "no JetStream" in refused.err
        assert box2.synapse("fleet", "status").code == 7


def test_a_nats_without_rights_is_refused_in_words(tmp_path: Path) -> None:
    folder = tmp_path / "nats"
    folder.mkdir()
    rights = 'authorization { users = [{ user: a, password: b, permissions: { publish: "nothing", subscribe: ">" } }] }'
    with nats_server(folder, rights) as server, open_world("box2", namespaces=False) as (box2,):
        refused = box2.synapse("fleet", "join", f"nats://a:b@127.0.0.1:{server.port}", "--as", "box2")

        assert refused.code == 8
        assert "lets this machine connect, but not do what a fleet needs" in refused.err


def test_a_nats_that_refuses_the_credentials_is_told_in_words(tmp_path: Path) -> None:
    folder = tmp_path / "nats"
    folder.mkdir()
    rights = "authorization { users = [{ user: a, password: b }] }"
    creds = Operator.new().creds(tmp_path, "box2", permissions(FleetMember(name="box2", key="")))
    with nats_server(folder, rights) as server, open_world("box2", namespaces=False) as (box2,):
        address = f"127.0.0.1:{server.port}"
        without = box2.synapse("fleet", "join", f"nats://{address}", "--as", "box2")
        others = [
            box2.synapse("fleet", "join", f"nats://{address}", "--as", "box2", "--creds", str(creds)),
            box2.synapse("fleet", "join", f"nats://a:wrong@{address}", "--as", "box2"),
        ]

    assert without.err.splitlines() == [
        f"Error: {address} lets no machine in without credentials",
        "--creds FILE gives them; a server that Synapse runs takes invitations: `synapse fleet join INVITATION`",
    ]
    for refused in others:
        assert (refused.code, refused.err.splitlines()) == (
            8,
            [
                f"Error: {address} refuses these credentials",
                "a server that Synapse runs takes invitations: `synapse fleet join INVITATION`",
            ],
        )


async def is_present(server: NatsServer, machine: str) -> bool:
    engine: Any = nats  # whose options have no types
    client = await engine.connect(server.url)
    try:
        await (await client.jetstream().key_value(names.PRESENCE)).get(machine)
    except NotFoundError:
        return False
    else:
        return True
    finally:
        await client.close()


def test_a_name_that_is_connected_already_is_refused_in_words(tmp_path: Path) -> None:
    folder = tmp_path / "nats"
    folder.mkdir()
    with nats_server(folder) as server, open_world("box2", "other", namespaces=False) as (box2, other):
        box2.read("fleet", "join", server.url, "--as", "box2")
        # Its presence is there a moment after its connection.
        until(lambda: asyncio.run(is_present(server, "box2")), "box2 to be present")

        refused = other.synapse("fleet", "join", server.url, "--as", "box2")

        assert refused.code == 7
        assert "a machine named 'box2' is connected already" in refused.err
        assert box2.read("fleet", "status")["connected"] is True


def test_a_server_with_a_certificate_of_another_authority_is_refused_in_words(tmp_path: Path) -> None:
    for name in ("nats", "others"):
        (tmp_path / name).mkdir()
        make_authority(tmp_path / name, "home", datetime.now(UTC))
        make_server_certificate(tmp_path / name, datetime.now(UTC))
    folder = tmp_path / "nats"
    tls = f'tls {{ cert_file: "{folder}/server.pem", key_file: "{folder}/server.key" }}'
    with nats_server(folder, tls) as server, open_world("box2", namespaces=False) as (box2,):
        url = f"tls://127.0.0.1:{server.port}"
        refused = box2.synapse("fleet", "join", url, "--as", "box2", "--ca", str(tmp_path / "others" / "ca.pem"))

        assert refused.code == 8
        assert refused.err.startswith("Error: ")
        assert "not one of this fleet: another server answers" in refused.err
        assert box2.synapse("fleet", "status").code == 7
