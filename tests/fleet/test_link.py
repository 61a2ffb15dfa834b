"""Links of several machines with a real nats-server and real hosts: messages, answers, absences, kills, rights."""

from __future__ import annotations

import asyncio
import http.client
import itertools
import socket
from collections.abc import Generator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

import pytest

from synapse.config.fleet import FleetConfig, load_fleet, save_fleet
from synapse.link.nats_bus import NatsBus
from synapse.link.nats_connection import Access
from tests.fleet.nats_server import NatsServer, nats_server
from tests.fleet.waiting import until
from tests.fleet.world import Machine, World, open_world

NUMBERS = itertools.count(1)
SCRIPT = """
[[rule]]
text = "/^slow/"
steps = [{ wait = 2.5 }, { answer = "slowly: {text}" }]

[[rule]]
text = "/^ask me/"
steps = [{ question = "May I?" }, { answer = "thank you" }]

[default]
steps = [{ answer = "you said: {text}" }]
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[NatsServer]:
    with nats_server(tmp_path_factory.mktemp("nats")) as running:
        make_streams(running)
        yield running


def make_streams(server: NatsServer) -> None:
    """Makes what the engine keeps, as the machine that runs a fleet's server does."""

    async def make() -> None:
        access = Access(machine="maker", servers=(server.url,), makes_streams=True)
        async with NatsBus(access) as bus:
            await bus.wait_connected(10)
            await bus.make_missing()

    asyncio.run(make())


@contextmanager
def enrolled(server: NatsServer, *names: str) -> Generator[World]:
    """Machines of one user, which are members of a fleet already; their links do not run yet."""
    with open_world(*names, namespaces=False) as world:
        for machine in world:
            # All machines of one user share the folder for sockets.
            machine.environment["SYNAPSE_UDS_DIR"] = world.hub.environment["SYNAPSE_UDS_DIR"]
            save_fleet(machine.home, FleetConfig(fleet="test", machine=machine.name, servers=(server.url,)))
        yield world


@pytest.fixture
def pair(server: NatsServer) -> Generator[tuple[Machine, Machine]]:
    """Two machines that are not linked yet; names of their own, because all tests share the server."""
    number = next(NUMBERS)
    with enrolled(server, f"laptop{number}", f"box{number}") as (laptop, box):
        yield laptop, box


@pytest.fixture
def linked(pair: tuple[Machine, Machine]) -> tuple[Machine, Machine]:
    """Two linked machines; the agent `bob` runs on the second."""
    laptop, box = pair
    start_scripted(box, "bob")
    for machine in pair:
        start_link(machine)
    wait_present(laptop, box)
    return pair


def test_a_message_reaches_an_agent_on_another_machine_and_its_answer_returns(linked: tuple[Machine, Machine]) -> None:
    laptop, box = linked

    ran = laptop.synapse("send", f"bob@{box.name}", "hello", "--response", "--json")

    assert ran.code == 0, ran
    assert ran.json["reply"] == "you said: hello"
    [task] = tasks(box)
    assert (task["id"], task["status"]) == (ran.json["task"]["id"], "completed")
    assert task["metadata"]["sender"]["sender_id"] == f"user@{laptop.name}"
    until(lambda: outbox(laptop)[0]["state"] == "settled", "the outbox to know the end", lambda: outbox(laptop))


def test_an_agent_gets_the_answer_of_an_agent_on_another_machine(linked: tuple[Machine, Machine]) -> None:
    laptop, box = linked
    laptop.start_dummy("alice")

    ran = laptop.synapse("send", "alice", f"ask bob@{box.name} how are you", "--response")

    assert ran.code == 0, ran
    assert "you said: how are you" in ran.out
    [task] = tasks(box)
    assert task["metadata"]["sender"]["sender_id"].endswith(f"@{laptop.name}")
    assert task["metadata"]["sender_verified"] is True


def test_a_machine_that_is_away_gets_only_messages_that_are_to_be_kept(linked: tuple[Machine, Machine]) -> None:
    laptop, box = linked
    box.stop_link()
    wait_away(laptop, box)

    refused = laptop.synapse("send", f"bob@{box.name}", "plain", "--json")
    kept = laptop.synapse("send", f"bob@{box.name}", "kept", "--queue", "--json")

    assert refused.json["error"]["code"] == "machine_away"
    assert f"the machine {box.name} is away, last seen " in refused.json["error"]["message"]
    assert kept.code == 0, kept
    assert (kept.json["task"]["status"], kept.json["task"]["metadata"]["outbox"]) == ("submitted", "open")
    start_link(box)
    task = until(lambda: next(iter(tasks(box)), None), "the message to arrive", lambda: outbox(laptop))
    assert task["id"] == kept.json["task"]["id"]
    until(lambda: outbox(laptop)[0]["state"] == "settled", "its end to come back", lambda: outbox(laptop))
    assert [one["message"]["parts"][0]["text"] for one in tasks(box)] == ["kept"]


def test_a_kept_message_that_is_canceled_reaches_nobody(linked: tuple[Machine, Machine]) -> None:
    laptop, box = linked
    box.stop_link()
    wait_away(laptop, box)
    kept = laptop.read("send", f"bob@{box.name}", "never", "--queue")["task"]["id"]

    answer = laptop.request_link("POST", "/fleet/outbox/cancel", {"task_id": kept})

    assert answer.status == 200, answer
    assert answer.body["task"]["state"] == "submitted", "box has yet to confirm it"
    start_link(box)
    until(lambda: outbox(laptop)[0]["state"] == "void", "the cancel to be confirmed", lambda: outbox(laptop))
    [task] = tasks(box)
    assert (task["id"], task["status"]) == (kept, "canceled")


def test_a_message_in_the_outbox_survives_the_kill_of_its_link(linked: tuple[Machine, Machine]) -> None:
    laptop, box = linked
    box.stop_link()
    wait_away(laptop, box)
    kept = laptop.read("send", f"bob@{box.name}", "kept", "--queue")["task"]["id"]

    laptop.kill_link()
    start_link(laptop)
    start_link(box)

    until(lambda: outbox(laptop)[0]["state"] == "settled", "the end", lambda: outbox(laptop))
    assert [task["id"] for task in tasks(box)] == [kept]


def test_an_end_while_the_link_is_down_is_told_when_it_is_back(linked: tuple[Machine, Machine]) -> None:
    laptop, box = linked
    sent = laptop.read("send", f"bob@{box.name}", "slow work")["task"]["id"]
    box.kill_link()
    until(lambda: tasks(box)[0]["status"] == "completed", "the agent to answer without a link", lambda: tasks(box))

    start_link(box)

    until(lambda: outbox(laptop)[0]["state"] == "settled", "the end", lambda: outbox(laptop))
    found = laptop.ask_link(f"/fleet/tasks/{sent}")
    assert (found["task"]["status"], found["agent"]["name"]) == ("completed", f"bob@{box.name}")


def test_a_waiting_command_outlives_a_restart_of_either_link(linked: tuple[Machine, Machine]) -> None:
    laptop, box = linked
    waiting = laptop.begin("send", f"bob@{box.name}", "slow answer", "--response")
    until(
        lambda: outbox(laptop)[0]["state"] in ("accepted", "settled"),
        "the message to be taken",
        lambda: outbox(laptop),
    )

    box.kill_link()
    start_link(box)

    out, err = waiting.communicate(timeout=30)
    assert waiting.returncode == 0, err
    assert "slowly: slow answer" in out


def test_messages_arrive_once_though_links_are_killed_all_the_time(linked: tuple[Machine, Machine]) -> None:
    laptop, box = linked
    sent = list[str]()
    for number in range(12):
        if number % 3 == 1:
            box.kill_link()
        ran = laptop.synapse("send", f"bob@{box.name}", f"number {number}", "--queue", "--json")
        assert ran.code == 0, ran
        sent.append(ran.json["task"]["id"])
        if number % 3 == 1:
            start_link(box)
        if number % 4 == 3:
            laptop.kill_link()
            start_link(laptop)

    until(lambda: {one["state"] for one in outbox(laptop)} == {"settled"}, "all ends", lambda: outbox(laptop))
    found = sorted(tasks(box), key=lambda task: str(task["created_at"]))
    assert [task["id"] for task in found] == sent
    assert {task["status"] for task in found} == {"completed"}


def test_a_machine_sees_only_tasks_that_it_sent_until_it_is_allowed_more(linked: tuple[Machine, Machine]) -> None:
    laptop, box = linked
    mine = laptop.read("send", f"bob@{box.name}", "mine")["task"]["id"]
    theirs = box.read("send", "bob", "theirs", "--response")["task"]["id"]

    before = {_status(laptop, mine), _status(laptop, theirs)}
    _allow(box, laptop, "read")
    until(lambda: _status(laptop, theirs) == 200, "the right to count", box.link_log)

    assert before == {200, 404}


def test_only_a_machine_that_may_approve_sees_and_answers_questions(linked: tuple[Machine, Machine]) -> None:
    laptop, box = linked
    asked = laptop.read("send", f"bob@{box.name}", "ask me something")["task"]["id"]
    until(lambda: tasks(box)[0]["status"] == "input_required", "the question", lambda: tasks(box))

    refused = laptop.synapse("approve", asked, "--json")
    _allow(box, laptop, "approve")
    until(lambda: laptop.ask_link("/fleet/approvals")["questions"], "the question to be seen", box.link_log)
    approved = laptop.synapse("approve", asked, "--json")

    assert refused.json["error"]["code"] == "forbidden", refused
    assert approved.code == 0, approved
    until(lambda: tasks(box)[0]["status"] == "completed", "the agent to go on", lambda: tasks(box))


def test_two_machines_of_one_user_reach_the_same_agent(pair: tuple[Machine, Machine], server: NatsServer) -> None:
    laptop, box = pair
    start_scripted(box, "bob")
    start_link(box)
    with enrolled(server, f"third{next(NUMBERS)}") as (third,):
        third.environment["SYNAPSE_UDS_DIR"] = laptop.environment["SYNAPSE_UDS_DIR"]
        for machine in (laptop, third):
            start_link(machine)
            wait_present(machine, box)

        answers = [
            machine.synapse("send", f"bob@{box.name}", machine.name, "--response").out for machine in (laptop, third)
        ]

    assert [answer.strip() for answer in answers] == [f"you said: {laptop.name}", f"you said: {third.name}"]


def test_agents_of_other_machines_are_listed_with_their_states(linked: tuple[Machine, Machine]) -> None:
    laptop, box = linked

    def bob() -> dict[str, Any] | None:
        agents: list[dict[str, Any]] = laptop.ask_link("/fleet/agents")["agents"]
        return next((one for one in agents if one["machine"] == box.name and one["state"] == "ready"), None)

    found = until(bob, "bob to be ready")

    assert (found["name"], found["agent_type"]) == ("bob", "scripted")
    assert {"pid", "socket", "launch_key"}.isdisjoint(found)


def test_a_second_link_of_one_home_does_not_start(linked: tuple[Machine, Machine]) -> None:
    laptop, _ = linked

    ran = laptop.synapse("link")

    assert ran.code != 0
    assert "runs already" in ran.err


def test_a_copied_machine_does_not_run_beside_the_first(linked: tuple[Machine, Machine], server: NatsServer) -> None:
    laptop, _ = linked
    with enrolled(server, laptop.name) as (copy,):
        refused = copy.synapse("link")

    assert refused.code != 0
    assert "another link (version" in refused.err
    assert laptop.name in refused.err
    assert laptop.is_connected()


def test_the_link_that_ends_in_order_is_away_at_once(linked: tuple[Machine, Machine]) -> None:
    laptop, box = linked

    box.stop_link()

    wait_away(laptop, box)
    assert not (box.home / "links" / "synapse-link.json").exists()


def test_metrics_tell_of_the_outbox(linked: tuple[Machine, Machine]) -> None:
    laptop, box = linked
    ran = laptop.synapse("send", f"bob@{box.name}", "hello", "--response")
    assert ran.code == 0, ran
    until(lambda: outbox(laptop)[0]["state"] == "settled", "the end", lambda: outbox(laptop))

    text = metrics(laptop)

    assert "synapse_link_connected 1" in text
    assert 'synapse_link_relayed_total{kind="send",state="accepted"} 1' in text
    assert "synapse_link_outbox_open 0" in text
    assert "synapse_link_outbox_most 0" in text
    assert "synapse_link_outbox_limit 1000" in text
    assert "synapse_link_outbox_bytes 0" in text
    assert f"synapse_link_outbox_quota_bytes {256 * 1024 * 1024}" in text
    assert "synapse_link_proxies 1" in text


def test_probes_tell_whether_the_link_runs_and_whether_it_is_connected(
    linked: tuple[Machine, Machine], server: NatsServer
) -> None:
    laptop, _ = linked

    def probes() -> list[int]:
        return [laptop.request_link("GET", path).status for path in ("/healthz", "/readyz")]

    assert probes() == [200, 200]
    server.kill()
    until(lambda: probes() == [200, 503], "the link to notice the loss of its server", probes)
    server.start_again()
    until(lambda: probes() == [200, 200], "the link to connect again", probes)


def start_scripted(machine: Machine, name: str) -> None:
    """Starts an agent that answers at once, unless the message begins with `slow` or `ask me`."""
    script = machine.folder / "agent.toml"
    script.write_text(SCRIPT, encoding="utf-8")
    machine.run("start", "scripted", str(script), "--name", name)


def start_link(machine: Machine) -> None:
    """Starts the link, and waits until it is connected."""
    machine.start_link()
    machine.wait_connected()


def wait_present(machine: Machine, other: Machine) -> None:
    until(lambda: _presence(machine, other) is True, f"{other.name} to be present at {machine.name}", machine.status)


def wait_away(machine: Machine, other: Machine) -> None:
    until(lambda: _presence(machine, other) is False, f"{other.name} to be away at {machine.name}", machine.status)


def _presence(machine: Machine, other: Machine) -> bool | None:
    """Whether a machine knows the other as present; None if it does not know it."""
    return next((one["present"] for one in machine.status().get("machines", ()) if one["name"] == other.name), None)


def outbox(machine: Machine) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = machine.ask_link("/fleet/outbox")["messages"]
    return messages


def tasks(machine: Machine) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = machine.read("tasks")
    return found


def metrics(machine: Machine) -> str:
    link = machine.link
    assert link is not None
    connection = http.client.HTTPConnection("localhost")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(link.socket)
    with closing(connection):
        connection.request("GET", "/fleet/metrics")
        return connection.getresponse().read().decode()


def _status(machine: Machine, task_id: str) -> int:
    return machine.request_link("GET", f"/fleet/tasks/{task_id}").status


def _allow(machine: Machine, other: Machine, *actions: str) -> None:
    config = load_fleet(machine.home)
    assert config is not None
    save_fleet(machine.home, replace(config, allow={other.name: frozenset(actions)}))
