"""Two machines with real links, a real server, and a gateway each: all of it as its users have it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from http.client import HTTPException, HTTPResponse
from typing import Any, NamedTuple

import grpc  # type: ignore[import-untyped]  # it has no types of its own
import pytest
from a2a.types import a2a_pb2 as a2a

from synapse.config.fleet import load_fleet, save_fleet
from synapse.core.agent import AgentEntry, entry_from
from synapse.core.events import ArtifactAdded
from tests.conformance.a2a_grpc_speakers import NEW_STUB_1_0
from tests.conformance.real_hosts import CONFORMANCE
from tests.conformance.wire_client import Reply, WireClient
from tests.fleet.careful_client import tasks_of
from tests.fleet.waiting import RELAYED, until
from tests.fleet.world import Machine, World, open_world
from tests.integration.gateway.terminal_client import terminal_page
from tests.integration.recovery.journal_file import all_events, all_tasks

# The first test of each fixture starts two machines, a server and a gateway, which takes a busy machine a minute.
pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]


@dataclass(frozen=True)
class Gateway:
    """The gateway of a machine."""

    machine: Machine
    entry: AgentEntry

    def ask(self, method: str, path: str, body: object = None, *, key: str, **headers: str) -> Reply:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return WireClient(self.entry.port).request(method, path, body, {**named, "Authorization": f"Bearer {key}"})

    def rpc(self, agent: str, method: str, params: object, *, key: str, **headers: str) -> Any:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return self.ask("POST", f"/agents/{agent}/v1", body, key=key, A2A_Version="1.0", **headers).json

    def send(self, agent: str, cue: str, *, key: str, **headers: str) -> Any:
        message = {"messageId": cue, "role": "ROLE_USER", "parts": [{"text": "hello"}]}
        return self.rpc(agent, "SendMessage", {"message": message}, key=key, **headers)

    def names(self, key: str) -> list[str]:
        return sorted(agent["id"] for agent in self.ask("GET", "/agents/list.json", key=key).json["agents"])

    def knows(self, name: str) -> bool:
        """Whether a key of this name counts here. Not by trying it: wrong keys are counted, and refused for a while."""
        return name in [key["name"] for key in self.machine.read("keys", "list")]

    def new_key(self, name: str, *flags: str) -> str:
        return str(self.machine.read("keys", "create", name, *flags)["key"])


@dataclass(frozen=True)
class Pair:
    world: World
    hub: Gateway
    box2: Gateway


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with ExitStack() as stack:
        world = stack.enter_context(open_world("hub", "box2", namespaces=False))
        world.form(gateways=["box2"])
        for machine, name in ((world["hub"], "ada"), (world["box2"], "bob")):
            _run(stack, machine, "scripted", str(CONFORMANCE), "--name", name)
        gateways = [_gateway(stack, world[name]) for name in ("hub", "box2")]
        yield Pair(world, *gateways)


@dataclass(frozen=True)
class Quiet:
    """A gateway on hub, and box2, whose log stays at home: its agent is `bob`."""

    world: World
    hub: Gateway
    key: str

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> Reply:
        return self.hub.ask(method, path, body, key=self.key, **headers)

    def task(self, task_id: str, *, key: str = "", gateway: Gateway | None = None) -> Any:
        """Returns the answer to GetTask."""
        return (gateway or self.hub).rpc("bob@box2", "GetTask", {"id": task_id}, key=key or self.key)


@pytest.fixture(scope="module")
def quiet() -> Iterator[Quiet]:
    with ExitStack() as stack:
        world = stack.enter_context(open_world("hub", "box2", namespaces=False))
        world.form()
        box2 = world["box2"]
        config = load_fleet(box2.home)
        assert config is not None
        save_fleet(box2.home, replace(config, ship_log=False))
        box2.stop_link()
        box2.start_link()
        box2.wait_connected()
        _run(stack, box2, "scripted", str(CONFORMANCE), "--name", "bob")
        hub = _gateway(stack, world["hub"])
        key = hub.new_key("laptop")
        until(lambda: "bob@box2" in hub.names(key), "the agent of box2")
        yield Quiet(world, hub, key)


def _run(stack: ExitStack, machine: Machine, *arguments: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        machine.command(*arguments),
        env=machine.environment,
        cwd=machine.home,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    stack.callback(process.wait)
    stack.callback(process.terminate)
    return process


def _gateway(stack: ExitStack, machine: Machine) -> Gateway:
    process = _run(stack, machine, "gateway", "--port", "0", "--grpc-port", "0")

    def written() -> AgentEntry | None:
        assert process.poll() is None
        for file in (machine.home / "gateways").glob("[!.]*.json"):
            entry = entry_from(json.loads(file.read_text(encoding="utf-8")))
            if entry is not None and entry.pid == process.pid:
                return entry
        return None

    entry = until(written, f"the gateway of {machine.name}")
    assert isinstance(entry, AgentEntry)
    return Gateway(machine, entry)


def _result(gateway: Gateway, task_id: str, key: str) -> dict[str, Any]:
    """Returns a task of bob@box2, once a gateway that was just started knows of that agent."""

    def told() -> Any:
        return gateway.rpc("bob@box2", "GetTask", {"id": task_id}, key=key)

    result: dict[str, Any] = until(lambda: told().get("result"), "the task", told)
    return result


def _is_done(gateway: Gateway, agent: str, task_id: str, key: str) -> Any:
    task = gateway.rpc(agent, "GetTask", {"id": task_id}, key=key).get("result")
    return task if task and task["status"]["state"] == "TASK_STATE_COMPLETED" else None


def _send_by_grpc(gateway: Gateway, agent: str, cue: str, key: str, more: list[tuple[str, str]]) -> a2a.Task:
    card = gateway.ask("GET", f"/agents/{agent}/.well-known/agent-card.json", key=key, A2A_Version="1.0").json
    (target,) = [one["url"] for one in card["supportedInterfaces"] if one["protocolBinding"] == "GRPC"]
    spoken = a2a.Message(message_id=cue, role=a2a.ROLE_USER, parts=[a2a.Part(text="hi")])
    with grpc.insecure_channel(target) as channel:
        metadata = [("a2a-version", "1.0"), ("authorization", f"Bearer {key}"), *more]
        request = a2a.SendMessageRequest(message=spoken, tenant=agent)
        answer: Any = NEW_STUB_1_0(channel).SendMessage(request, timeout=20, metadata=metadata)
    task: a2a.Task = answer.task
    return task


def test_grpc_reaches_an_agent_on_another_machine_by_its_tenant(pair: Pair) -> None:
    key = pair.hub.new_key("grpc")
    until(lambda: "bob@box2" in pair.hub.names(key), "the agent")

    task = _send_by_grpc(pair.hub, "bob@box2", "tck-complete-task-tenant", key, [])

    assert task.status.state == a2a.TASK_STATE_COMPLETED
    assert task.artifacts[0].parts[0].text == "Hello from TCK"


def test_each_gateway_shows_and_reaches_the_agents_of_both_machines(pair: Pair) -> None:
    key = pair.hub.new_key("both")
    until(lambda: pair.hub.names(key) == ["ada", "bob@box2"], "the hub to list both", lambda: pair.hub.names(key))
    until(lambda: pair.box2.knows("both@hub"), "box2 to know the key")
    until(lambda: pair.box2.names(key) == ["ada@hub", "bob"], "box2 to list both", lambda: pair.box2.names(key))

    there = pair.hub.send("bob@box2", "tck-complete-task-1", key=key)["result"]["task"]
    back = pair.box2.send("ada@hub", "tck-complete-task-2", key=key)["result"]["task"]

    done = until(lambda: _is_done(pair.hub, "bob@box2", there["id"], key), "the answer at the hub")
    assert done["artifacts"][0]["parts"][0]["text"] == "Hello from TCK"
    until(lambda: _is_done(pair.box2, "ada@hub", back["id"], key), "the answer at box2")
    # The key has one scope on both, so the same task is read at the agent's own gateway.
    assert _is_done(pair.box2, "bob", there["id"], key)
    assert _is_done(pair.box2, "bob@box2", there["id"], key)


def test_the_overviews_show_agents_with_their_machine(pair: Pair) -> None:
    hub = pair.world["hub"]
    wanted = {"ada": "", "bob@box2": "box2"}

    def rows() -> dict[str, str]:
        return {row["name"]: row["machine"] for row in hub.read("top", "--once")}

    until(lambda: rows() == wanted, "the agents of both machines", rows)
    key = pair.hub.new_key("viewer")
    shown = pair.hub.ask("GET", "/dashboard/overview", key=key).json["agents"]
    assert {row["id"]: row["machine"] for row in shown} == wanted


def test_a_stream_begun_at_one_gateway_goes_on_at_the_other(pair: Pair) -> None:
    key = pair.hub.new_key("streams")
    until(lambda: "bob@box2" in pair.hub.names(key), "the agent")
    until(lambda: pair.box2.knows("streams@hub"), "box2 to know the key")
    task = pair.hub.send("bob@box2", "tck-stream-001-z", key=key)["result"]["task"]
    until(lambda: _is_done(pair.hub, "bob@box2", task["id"], key), "the end")

    def numbers(gateway: Gateway, agent: str, after: str) -> list[str]:
        path = f"/agents/{agent}/v1/tasks/{task['id']}:subscribe"
        body = gateway.ask("POST", path, {}, key=key, Last_Event_ID=after, Accept="text/event-stream").body.decode()
        return [line.partition(":")[2].strip() for line in body.splitlines() if line.startswith("id:")]

    whole = numbers(pair.hub, "bob@box2", "0")

    assert len(whole) > 2
    assert numbers(pair.box2, "bob@box2", whole[1]) == whole[2:]
    assert numbers(pair.hub, "bob@box2", whole[1]) == whole[2:]


FIRST, SECOND = [str(number) for number in range(40)], [str(number) for number in range(40, 60)]
COUNTING = f"""
[[rule]]
text = "count"
steps = [
    {{ artifact = "first", chunks = {json.dumps(FIRST)}, every = 0.05 }},
    {{ question = "May I go on?" }},
    {{ artifact = "second", chunks = {json.dumps(SECOND)}, every = 0.05 }},
    {{ answer = "counted" }},
]

[default]
steps = [{{ answer = "I have waited" }}]
"""
"""An agent whose task cannot end before a person has answered."""


class Event(NamedTuple):
    """One server-sent event of a task's stream."""

    id: str
    result: Any

    @property
    def chunk(self) -> str:
        """The text that the event adds to an artifact; empty for other events."""
        update = self.result.get("artifactUpdate")
        return str(update["artifact"]["parts"][0]["text"]) if update else ""


@contextmanager
def _stream(gateway: Gateway, agent: str, task_id: str, key: str, after: str) -> Generator[Iterator[Event]]:
    """Follows a task; the events end with the stream, and also when its gateway is killed."""
    headers = {"A2A-Version": "1.0", "Authorization": f"Bearer {key}", "Last-Event-ID": after}
    with closing(WireClient(gateway.entry.port).connection()) as connection:
        connection.request("GET", f"/agents/{agent}/v1/tasks/{task_id}:subscribe", headers=headers)
        response = connection.getresponse()
        assert response.status == 200, response.read()
        yield _events(response)


def _events(response: HTTPResponse) -> Iterator[Event]:
    fields: dict[str, str] = {}
    with suppress(OSError, HTTPException):
        while line := response.readline().decode():
            if line != "\n":
                name, _, value = line.partition(":")
                fields[name] = value.strip()
            elif fields:
                if "id" in fields:
                    yield Event(fields["id"], json.loads(fields["data"]))
                fields = {}


def _wait_for_answer(gateway: Gateway, agent: str, cue: str, key: str) -> Any:
    """Sends a message and waits as long as its task takes; returns the task."""
    message = {"messageId": cue, "role": "ROLE_USER", "parts": [{"text": "hello"}]}
    headers = {"A2A-Version": "1.0", "Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    with closing(WireClient(gateway.entry.port).connection()) as connection:
        connection.sock.settimeout(RELAYED)
        connection.request("POST", f"/agents/{agent}/v1/message:send", json.dumps({"message": message}), headers)
        return json.loads(connection.getresponse().read())["task"]


@pytest.mark.parametrize(("killed", "other"), [("hub", "box2"), ("box2", "hub")])
def test_a_stream_of_a_running_task_goes_on_at_the_other_gateway_when_its_own_is_killed(
    pair: Pair, killed: str, other: str
) -> None:
    box2, second = pair.world["box2"], {"hub": pair.hub, "box2": pair.box2}[other]
    name = f"counts-{killed}"
    agent, script = f"{name}@box2", box2.folder / f"{name}.toml"
    script.write_text(COUNTING, encoding="utf-8")
    with ExitStack() as stack:
        _run(stack, box2, "scripted", str(script), "--name", name)
        first = _gateway(stack, pair.world[killed])
        key = first.new_key(name, "--actions", "all")
        until(lambda: second.knows(f"{name}@{killed}"), "the other gateway to know the key")
        until(lambda: all({name, agent} & set(one.names(key)) for one in (first, second)), "both to list the agent")
        message = {"messageId": f"m-{name}", "role": "ROLE_USER", "parts": [{"text": "count"}]}
        params = {"message": message, "configuration": {"returnImmediately": True}}
        task_id = first.rpc(agent, "SendMessage", params, key=key)["result"]["task"]["id"]
        # Queued behind the first one, so it is answered only after the kill.
        waiting = stack.enter_context(ThreadPoolExecutor()).submit(_wait_for_answer, second, agent, f"w-{name}", key)
        until(lambda: tasks_of(box2, f"w-{name}"), "the message of the call that waits")

        with _stream(first, agent, task_id, key, "0") as events:
            seen = [next(events)]
            while seen[-1].chunk != FIRST[2]:
                seen.append(next(events))
            os.kill(first.entry.pid, signal.SIGKILL)
            seen += events  # what the gateway had sent before
        with _stream(second, agent, task_id, key, seen[-1].id) as events:
            while seen[-1].chunk != FIRST[-1]:
                seen.append(next(events))
            asked = until(lambda: [one for one in box2.read("approvals") if one["task_id"] == task_id], "the question")
            answer = {"question_id": asked[0]["question"]["id"], "verdict": "allow"}
            if killed == "hub":
                # A key of the hub approves nothing at box2, which does not allow the hub to.
                refused = pair.box2.ask("POST", f"/dashboard/tasks/{task_id}/answer", answer, key=key)
                assert refused.status == 403, refused.body
            person = pair.box2.new_key(f"answers-{killed}", "--actions", "all", "--all-tasks")
            answered = pair.box2.ask("POST", f"/dashboard/tasks/{task_id}/answer", answer, key=person)
            assert answered.status == 200, answered.body
            seen += events

        log = [one for one in all_events(box2.home / "store.db") if one.event.task_id == task_id]
        added = [str(one.seq) for one in log if isinstance(one.event, ArtifactAdded)]
        assert [one.id for one in seen if one.chunk] == added
        assert [one.chunk for one in seen if one.chunk] == [*FIRST, *SECOND, "counted"]
        assert waiting.result()["artifacts"][0]["parts"][0]["text"] == "I have waited"
        with _stream(second, agent, task_id, key, "0") as events:
            assert seen == list(events)


def test_a_key_revoked_at_one_gateway_is_refused_at_the_other(pair: Pair) -> None:
    key = pair.hub.new_key("short")
    until(lambda: pair.box2.knows("short@hub"), "box2 to know the key")

    pair.box2.machine.run("keys", "revoke", "short@hub")

    # Refused for good: 401, or 429 after several tries.
    assert pair.box2.ask("GET", "/agents/list.json", key=key).status in (401, 429)
    until(lambda: pair.hub.ask("GET", "/agents/list.json", key=key).status in (401, 429), "the hub to refuse it")


def test_a_key_for_one_agent_means_that_agent_everywhere(pair: Pair) -> None:
    key = pair.hub.new_key("narrow", "--agents", "ada")

    until(lambda: pair.box2.knows("narrow@hub"), "box2 to know the key")

    until(lambda: pair.box2.names(key) == ["ada@hub"], "the agent of the hub", lambda: pair.box2.names(key))
    assert pair.hub.names(key) == ["ada"]


def test_a_machine_that_goes_away_is_told_and_its_tasks_stay(pair: Pair) -> None:
    key = pair.hub.new_key("absence")
    until(lambda: "bob@box2" in pair.hub.names(key), "the agent")
    task = pair.hub.send("bob@box2", "tck-complete-task-3", key=key)["result"]["task"]
    until(lambda: _is_done(pair.hub, "bob@box2", task["id"], key), "the end")
    pair.world["box2"].stop_fleet()
    try:
        error = until(lambda: pair.hub.send("bob@box2", "tck-x", key=key).get("error"), "the machine to be away")

        assert "box2" in error["message"], error
        assert _is_done(pair.hub, "bob@box2", task["id"], key)
        kept = pair.hub.send("bob@box2", "tck-complete-task-kept", key=key, Synapse_Queue="true")["result"]["task"]
        assert kept["status"]["state"] == "TASK_STATE_SUBMITTED"
        again = pair.hub.rpc("bob@box2", "GetTask", {"id": kept["id"]}, key=key)["result"]
        assert again["id"] == kept["id"]
        by_grpc = _send_by_grpc(pair.hub, "bob@box2", "tck-complete-task-grpc", key, [("synapse-queue", "true")])
        assert by_grpc.status.state == a2a.TASK_STATE_SUBMITTED
        with pytest.raises(grpc.RpcError, match="box2 is away"):
            _send_by_grpc(pair.hub, "bob@box2", "tck-complete-task-grpc-2", key, [])
        # Slow, because a copy of it may reach the agent before it is taken back.
        other = pair.hub.send("bob@box2", "tck-cancel-taken-back", key=key, Synapse_Queue="true")["result"]
        taken_back = {"id": other["task"]["id"]}
        recalled = pair.hub.rpc("bob@box2", "CancelTask", taken_back, key=key)
        assert recalled["result"]["status"]["state"] == "TASK_STATE_SUBMITTED", "box2 has yet to confirm it"
    finally:
        pair.world["box2"].start_link()
        pair.world["box2"].wait_connected()
    until(lambda: "result" in pair.hub.send("bob@box2", "tck-complete-task-4", key=key), "the machine to be back")
    done = until(
        lambda: _is_done(pair.hub, "bob@box2", kept["id"], key),
        "the kept message to be answered",
        lambda: (
            pair.hub.rpc("bob@box2", "GetTask", {"id": kept["id"]}, key=key),
            pair.world["hub"].read("fleet", "outbox"),
        ),
        bound=RELAYED,
    )
    assert done["artifacts"][0]["parts"][0]["text"] == "Hello from TCK"

    def state() -> str:
        return str(pair.hub.rpc("bob@box2", "GetTask", taken_back, key=key)["result"]["status"]["state"])

    until(lambda: state() == "TASK_STATE_CANCELED", "box2 to confirm that it was taken back", state, RELAYED)


def test_a_kept_message_of_another_machines_key_reaches_its_agent(pair: Pair) -> None:
    key = pair.box2.new_key("visitor")
    until(lambda: pair.hub.knows("visitor@box2"), "the hub to know the key")
    until(lambda: "bob@box2" in pair.hub.names(key), "the agent")
    pair.world["box2"].stop_fleet()
    try:
        until(lambda: pair.hub.send("bob@box2", "tck-z", key=key).get("error"), "the machine to be away")
        kept = pair.hub.send("bob@box2", "tck-complete-task-visitor", key=key, Synapse_Queue="true")["result"]["task"]
    finally:
        pair.world["box2"].start_link()
        pair.world["box2"].wait_connected()

    def told() -> Any:
        return pair.hub.rpc("bob@box2", "GetTask", {"id": kept["id"]}, key=key)

    until(lambda: "TASK_STATE_SUBMITTED" not in json.dumps(told()), "the kept message to arrive", told, RELAYED)
    until(lambda: _is_done(pair.hub, "bob@box2", kept["id"], key), "its answer", told)
    [there] = [one for one in all_tasks(pair.world["box2"].home / "store.db") if one.id == kept["id"]]
    assert there.sender_name == "key.visitor.box2@hub"


def test_a_kept_message_is_known_to_a_gateway_that_was_started_later(pair: Pair) -> None:
    key, other = pair.hub.new_key("keeper"), pair.hub.new_key("stranger")
    until(lambda: "bob@box2" in pair.hub.names(key), "the agent")
    pair.world["box2"].stop_fleet()
    try:
        until(lambda: pair.hub.send("bob@box2", "tck-y", key=key).get("error"), "the machine to be away")
        sent = [
            pair.hub.send("bob@box2", cue, key=key, Synapse_Queue="true")["result"]["task"]
            for cue in ("tck-complete-task-found", "tck-cancel-found")
        ]
        with ExitStack() as stack:
            later = _gateway(stack, pair.world["hub"])
            for task in sent:
                found = _result(later, task["id"], key)
                assert (found["contextId"], found["status"]["state"]) == (task["contextId"], "TASK_STATE_SUBMITTED")
                refused = later.rpc("bob@box2", "GetTask", {"id": task["id"]}, key=other)
                assert "error" in refused, refused
            recalled = later.rpc("bob@box2", "CancelTask", {"id": sent[1]["id"]}, key=key)
            assert "taken back" in json.dumps(pair.world["hub"].ask_link(f"/fleet/tasks/{sent[1]['id']}")), recalled
            pair.world["box2"].start_link()
            pair.world["box2"].wait_connected()
            until(lambda: _is_done(later, "bob@box2", sent[0]["id"], key), "the kept message", bound=RELAYED)

            def state() -> str:
                told = later.rpc("bob@box2", "GetTask", {"id": sent[1]["id"]}, key=key)
                return str(told.get("result", told).get("status", told))

            until(lambda: "TASK_STATE_CANCELED" in state(), "the other one to be canceled", state, RELAYED)
        with ExitStack() as stack:
            # Also when the replica has it, as a task of the machine that took it back.
            last = _gateway(stack, pair.world["hub"])
            told = _result(last, sent[1]["id"], key)
            assert told["status"]["state"] == "TASK_STATE_CANCELED", told
            assert told["contextId"] == sent[1]["contextId"]
        [there] = [one for one in all_tasks(pair.world["box2"].home / "store.db") if one.id == sent[1]["id"]]
        assert (there.sender_name, there.context_id) == ("key.keeper@hub", sent[1]["contextId"])
    finally:
        pair.world["box2"].start_link()
        pair.world["box2"].wait_connected()


def test_a_key_for_a_name_that_no_agent_has_reaches_none_of_that_profile(pair: Pair) -> None:
    everyone, key = pair.hub.new_key("everyone"), pair.hub.new_key("profile", "--agents", "scripted@box2")
    until(lambda: "bob@box2" in pair.hub.names(everyone), "the agent")

    def send(cue: str, **headers: str) -> Any:
        return pair.hub.send("scripted@box2", f"tck-complete-task-{cue}", key=key, **headers)

    present = send("present", Synapse_Queue="true")
    assert "No agent found" in present.get("error", {}).get("message", ""), present
    pair.world["box2"].stop_fleet()
    try:
        until(lambda: "away" in send("unkept")["error"]["message"], "the machine to be away")
        kept = send("away", Synapse_Queue="true")["result"]["task"]
    finally:
        pair.world["box2"].start_link()
        pair.world["box2"].wait_connected()

    def told() -> Any:
        return pair.hub.rpc("scripted@box2", "GetTask", {"id": kept["id"]}, key=key)

    until(lambda: told().get("result", kept)["status"]["state"] == "TASK_STATE_FAILED", "its refusal", told, RELAYED)
    until(lambda: "away" not in send("back")["error"]["message"], "the machine to be back")
    # The gateway knows a socket from before, which the link has opened for the name.
    back = send("later", Synapse_Queue="true")
    assert "No agent found" in back.get("error", {}).get("message", ""), back


def test_the_tasks_of_an_agent_that_has_stopped_are_canceled_on_its_machine(pair: Pair) -> None:
    key = pair.hub.new_key("cleaner")
    with ExitStack() as stack:
        _run(stack, pair.world["box2"], "scripted", str(CONFORMANCE), "--name", "zoe")
        until(lambda: "zoe@box2" in pair.hub.names(key), "the agent")
        asked = pair.hub.send("zoe@box2", "tck-input-required-zoe", key=key)["result"]["task"]
    until(lambda: "zoe@box2" not in pair.hub.names(key), "its end")

    canceled = pair.hub.rpc("zoe@box2", "CancelTask", {"id": asked["id"]}, key=key)

    assert canceled.get("result", {}).get("status", {}).get("state") == "TASK_STATE_CANCELED", canceled


async def test_a_terminal_on_another_machine_is_shown_where_that_machine_allows_it(pair: Pair) -> None:
    key = pair.hub.new_key("page", "--actions", "all")
    box2 = pair.world["box2"]
    await asyncio.to_thread(box2.start_dummy, "tim")
    try:
        await asyncio.to_thread(until, lambda: "tim@box2" in pair.hub.names(key), "the agent")
        async with terminal_page(pair.hub.entry.port, key) as page:
            refused = page.terminal(1)
            await refused.open("tim@box2")
            await refused.until(lambda: bool(refused.errors), "a refusal")
            assert "fleet allow hub attach" in json.dumps(refused.errors), refused.errors

        await asyncio.to_thread(box2.run, "fleet", "allow", "hub", "attach")

        async with terminal_page(pair.hub.entry.port, key) as page:
            shown = page.terminal(1)
            async with asyncio.timeout(20):
                while shown.types is not True:
                    await shown.open("tim@box2")
                    await shown.until(lambda: shown.types is True or bool(shown.errors), "the terminal")
                    shown.errors.clear()
            await shown.type("good morning\r")
            await shown.shows("echo: good morning")
    finally:
        await asyncio.to_thread(box2.run, "stop", "tim", "--force")


ANSWER = "Done after delay"


def test_a_blocking_send_returns_the_answer_of_a_machine_that_ships_no_log(quiet: Quiet) -> None:
    by_rpc = quiet.hub.send("bob@box2", "tck-delayed-complete-rpc", key=quiet.key)["result"]["task"]
    message = {"messageId": "tck-delayed-complete-rest", "role": "ROLE_USER", "parts": [{"text": "hello"}]}
    by_rest = quiet.ask("POST", "/agents/bob@box2/v1/message:send", {"message": message}, A2A_Version="1.0").json[
        "task"
    ]
    by_grpc = _send_by_grpc(quiet.hub, "bob@box2", "tck-delayed-complete-grpc", quiet.key, [])
    supervisor = {"message": {"content": "hello", "role": "user"}, "configuration": {"blocking": True}}
    by_supervisor = quiet.ask("POST", "/agents/bob@box2/v1/message:send", supervisor).json

    for task in (by_rpc, by_rest):
        assert task["status"]["state"] == "TASK_STATE_COMPLETED"
        assert task["artifacts"][0]["parts"][0]["text"] == ANSWER
    assert by_grpc.status.state == a2a.TASK_STATE_COMPLETED
    assert by_grpc.artifacts[0].parts[0].text == ANSWER
    assert by_supervisor["status"] == "succeeded"


def test_a_task_of_a_machine_that_ships_no_log_is_read_there(quiet: Quiet) -> None:
    message = {"messageId": "tck-delayed-complete-read", "role": "ROLE_USER", "parts": [{"text": "hello"}]}
    params = {"message": message, "configuration": {"returnImmediately": True}}
    sent = quiet.hub.rpc("bob@box2", "SendMessage", params, key=quiet.key)["result"]["task"]

    assert sent["status"]["state"] in ("TASK_STATE_SUBMITTED", "TASK_STATE_WORKING")
    done = until(lambda: _is_done(quiet.hub, "bob@box2", sent["id"], quiet.key), "the answer")
    assert done["artifacts"][0]["parts"][0]["text"] == ANSWER
    with ExitStack() as stack:
        # A gateway that has not sent the message finds the task as well, by the name of the agent or without.
        other = _gateway(stack, quiet.world["hub"])
        until(lambda: "bob@box2" in other.names(quiet.key), "the agent")
        assert quiet.task(sent["id"], gateway=other)["result"]["status"]["state"] == "TASK_STATE_COMPLETED"
        found = other.ask("GET", f"/tasks/{sent['id']}", key=quiet.key)
        assert sent["id"] in json.dumps(found.json), found.body


def test_a_repeated_message_to_a_machine_that_ships_no_log_has_its_first_answer(quiet: Quiet) -> None:
    first = quiet.hub.send("bob@box2", "once-only", key=quiet.key)["result"]["task"]
    again = quiet.hub.send("bob@box2", "once-only", key=quiet.key)["result"]["task"]

    assert again["id"] == first["id"]
    assert again["artifacts"] == first["artifacts"]


def test_a_machine_that_ships_no_log_shows_tasks_to_their_callers_only(quiet: Quiet) -> None:
    task = quiet.hub.send("bob@box2", "tck-complete-task-secret", key=quiet.key)["result"]["task"]
    operator = quiet.hub.new_key("operator", "--all-tasks")
    other = quiet.hub.new_key("other")
    own = quiet.world["box2"].read("send", "bob", "of box2 itself")["task"]["id"]

    assert quiet.task(task["id"], key=operator)["result"]["id"] == task["id"]
    assert "no task" in quiet.task(task["id"], key=other)["error"]["message"]
    for key in (operator, quiet.key):
        assert "no task" in quiet.task(own, key=key)["error"]["message"]


def test_a_task_is_followed_on_a_machine_that_ships_no_log(quiet: Quiet) -> None:
    spoken = {"messageId": "tck-delayed-complete-stream", "role": "ROLE_USER", "parts": [{"text": "go"}]}
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": {"message": spoken}}
    stream = quiet.ask("POST", "/agents/bob@box2/v1", body, A2A_Version="1.0").body.decode()
    events = [json.loads(line[5:])["result"] for line in stream.splitlines() if line.startswith("data:")]
    task_id = events[0]["task"]["id"]

    assert ANSWER in stream
    assert "TASK_STATE_COMPLETED" in json.dumps(events[-1])

    def numbers(after: str) -> list[str]:
        path = f"/agents/bob@box2/v1/tasks/{task_id}:subscribe"
        read = quiet.ask("POST", path, {}, Last_Event_ID=after, Accept="text/event-stream").body.decode()
        return [line.partition(":")[2].strip() for line in read.splitlines() if line.startswith("id:")]

    whole = numbers("0")
    assert len(whole) > 2
    assert numbers(whole[1]) == whole[2:]


def test_a_plain_answer_comes_from_a_machine_that_ships_no_log(quiet: Quiet) -> None:
    spoken = {"messageId": "tck-message-response-quiet", "role": "ROLE_USER", "parts": [{"text": "go"}]}
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": {"message": spoken}}

    stream = quiet.ask("POST", "/agents/bob@box2/v1", body, A2A_Version="1.0").body.decode()

    assert "Direct message response" in stream
    answer = quiet.hub.send("bob@box2", "tck-message-response-quiet-2", key=quiet.key)["result"]
    assert answer["message"]["parts"][0]["text"] == "Direct message response"


def test_a_task_that_a_machine_without_a_shipped_log_asks_about_goes_on_and_is_canceled(quiet: Quiet) -> None:
    task = quiet.hub.send("bob@box2", "tck-multi-turn-quiet", key=quiet.key)["result"]["task"]
    assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    message = {"messageId": "more-1", "role": "ROLE_USER", "parts": [{"text": "more"}], "taskId": task["id"]}
    done = quiet.hub.rpc("bob@box2", "SendMessage", {"message": message}, key=quiet.key)["result"]["task"]
    assert (done["id"], done["status"]["state"]) == (task["id"], "TASK_STATE_COMPLETED")

    asking = quiet.hub.send("bob@box2", "tck-input-required-quiet", key=quiet.key)["result"]["task"]
    canceled = quiet.hub.rpc("bob@box2", "CancelTask", {"id": asking["id"]}, key=quiet.key)["result"]
    assert canceled["status"]["state"] == "TASK_STATE_CANCELED"
    assert quiet.task(asking["id"])["result"]["status"]["state"] == "TASK_STATE_CANCELED"
