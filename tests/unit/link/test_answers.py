"""What other machines may ask of this one: who may see, cancel, approve and attach, and who may not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from synapse.config.settings import load_settings
from synapse.core.agent import AgentEntry
from synapse.core.caller import GATEWAY_MACHINE, GATEWAY_SCOPE, LOCAL_SCOPE, MACHINE_SCOPE, ORDINARY, Caller
from synapse.core.errors import (
    AgentNotFound,
    AgentNotResponding,
    Forbidden,
    InvalidRequest,
    OutcomeUnknown,
    PersonRequired,
    SynapseError,
    TaskNotFound,
)
from synapse.core.message import DataPart, FilePart, MessageId, Part, TextPart
from synapse.core.override import override
from synapse.core.push import PushConfig
from synapse.core.requests import (
    AnswerQuestion,
    CancelTask,
    CommandResult,
    HostCommand,
    ListPushConfigs,
    SendMessage,
    SetPushConfig,
    VoidMessage,
)
from synapse.core.task import Task, TaskId, TaskState
from synapse.core.waiting import pause
from synapse.dialects.synapse import commands
from synapse.fleet import asks
from synapse.fleet.bus import Arrival, NobodyThere
from synapse.fleet.log import PieceRequest, RangeAnswer, RangeRequest, decode_log, encode_log
from synapse.fleet.names import ask_subject, inbox_prefix
from synapse.fleet.wire import NO_INCARNATION
from synapse.host.stopped import stopped_tasks
from synapse.link import answers
from synapse.link.answers import LARGEST_UPDATE, LEFT_OUT, MOST_LONG_POLLS, Answers
from synapse.link.asking import events_in, task_in, task_of_text
from synapse.link.deliveries import AgentFinder
from synapse.store.codec import from_json
from synapse.tasks.journal import Journal, rebuild
from synapse.tasks.rules import cancellation
from tests.fakes.facts import handed, hidden, message, moved, noted, numbered, opened, said
from tests.fakes.leased_store import LeasedStore
from tests.fakes.leases import ANY_LEASE
from tests.fakes.listed_agents import ListedAgents
from tests.fakes.memory_engine import MemoryBus, MemoryEngine

CODEX = AgentEntry(
    "synapse-codex-8120", "codex", name="codex", port=8120, inbox="codex", socket="/run/codex.sock", pid=7
)
STATUS = {"state": "ready", "why": "the prompt is visible", "since": "2026-01-15T10:30:00Z", "queue_depth": 2}
SECRETS = {"current_task": {"message": "secret"}, "sightings": ["the screen"], "working_dir": "/proj"}
MAX_PAYLOAD = 1024 * 1024
"""What a server carries by default."""
BOUND = 40.0
MINE, LOCAL = MACHINE_SCOPE + "laptop", LOCAL_SCOPE


class FakeHosts:
    """The host of `codex`."""

    def __init__(self, store: LeasedStore) -> None:
        self._store = store
        self.commands: list[tuple[HostCommand, Caller]] = []
        self.statuses: list[dict[str, Any]] = [{**STATUS, **SECRETS}]
        self.screens = 0
        self.url_letters = 0

    async def command(self, agent: AgentEntry, request: HostCommand, caller: Caller) -> CommandResult:
        assert agent is CODEX
        self.commands.append((request, caller))
        if isinstance(request, CancelTask):
            task = await self._store.load(TaskId(request.task_id))
            await Journal(self._store, ANY_LEASE).record(*cancellation(task, task.updated_at))
        task_id = request.task_id if isinstance(request, CancelTask | AnswerQuestion) else ""
        hook = PushConfig(id="hook", url="https://example.com/" + "x" * self.url_letters)
        result = (
            hook if isinstance(request, SetPushConfig) else (hook,) if isinstance(request, ListPushConfigs) else None
        )
        return CommandResult(task_id=task_id, version=1, result=result)

    async def watch_status(self, _agent: AgentEntry, *, finished: int) -> AsyncGenerator[dict[str, Any], None]:
        assert finished >= 0
        for status in self.statuses:
            yield status
        await asyncio.Event().wait()

    async def screen(self, _agent: AgentEntry, *, lines: int, known: str) -> dict[str, Any] | None:
        self.screens += 1
        return {"lines": lines, "known": known}


@dataclass
class World:
    """A machine with the agent `codex` and two tasks: one that the machine `laptop` sent, and one of its own user."""

    answers: Answers
    hosts: FakeHosts
    store: LeasedStore
    mine: Task
    local: Task
    allow: dict[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    terminals: list[str] = field(default_factory=list[str])

    async def ask(
        self,
        ask: asks.Ask | asks.Command,
        machine: str = "laptop",
        *,
        is_command: bool = False,
        max_payload: int = MAX_PAYLOAD,
    ) -> Any:
        """Return the answer; raises the error that answers it."""
        encoded = await self.answers.answer(
            machine, asks.encode_ask(ask), max_payload=max_payload, is_command=is_command
        )
        assert len(encoded) <= max_payload
        answer = asks.decode_answer(encoded)
        if isinstance(answer, asks.AskFailed):
            raise answer.as_error
        return answer


@asynccontextmanager
async def world(
    home: Path, entries: tuple[AgentEntry, ...] = (CODEX,), *, ships_log: bool = True
) -> AsyncGenerator[World]:
    store = await LeasedStore.open(home / "store.db")
    registry = ListedAgents(*entries)
    hosts = FakeHosts(store)
    allow: dict[str, frozenset[str]] = {}
    terminals: list[str] = []

    async def serve_terminal(agent: AgentEntry, machine: str, ask: asks.OpenTerminal) -> None:
        terminals.append(f"{machine} {agent.agent_id} {ask.stream_id}")

    async def answer_log(_request: RangeRequest | PieceRequest) -> bytes:
        return encode_log(RangeAnswer(more=True))

    answers = Answers(
        machine="box2",
        instance=asks.Greeted(instance="i"),
        finder=AgentFinder(registry, store),
        registry=registry,
        store=store,
        hosts=hosts,
        tasks=stopped_tasks(store, load_settings(environ={"SYNAPSE_HOME": str(home)})),
        allowed=lambda machine: allow.get(machine, frozenset()),
        answer_log=answer_log,
        serve_terminal=serve_terminal,
        ships_log=ships_log,
    )
    try:
        mine, local = [
            await Journal(store, ANY_LEASE).record(opened(numbered(number), scope=scope, inbox="codex"), digest="d")
            for number, scope in enumerate((MINE, LOCAL), 1)
        ]
        yield World(answers, hosts, store, mine, local, allow, terminals)
    finally:
        await store.close()


async def test_a_machine_reads_its_own_tasks_and_no_others(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        read = await here.ask(asks.ReadTask(task_id=here.mine.id, exact=True))

        assert task_in(read) == here.mine
        with pytest.raises(TaskNotFound):
            await here.ask(asks.ReadTask(task_id=here.local.id, exact=True))
        with pytest.raises(TaskNotFound):
            await here.ask(asks.ReadTask(task_id=here.mine.id, exact=True), machine="box3")


async def test_a_machine_that_may_read_reads_all(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        before = await here.ask(asks.ReadTasks(target="codex"))
        here.allow["laptop"] = frozenset({"read"})
        after = await here.ask(asks.ReadTasks(target="codex"))

        assert (len(before.tasks), len(after.tasks)) == (1, 2)


async def test_a_message_is_found_only_by_the_machine_that_sent_it(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        ask = asks.ReadMessage(message_id=here.mine.message.message_id)

        assert task_in(await here.ask(ask)).id == here.mine.id
        with pytest.raises(SynapseError, match="no message"):
            await here.ask(ask, machine="box3")


async def test_a_machine_cancels_its_own_task_and_again_without_harm(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        states = [task_in(await here.ask(asks.CancelRemoteTask(task_id=here.mine.id))).state for _ in range(2)]

        assert states == [TaskState.CANCELED, TaskState.CANCELED]
        [(request, caller)] = here.hosts.commands
        assert isinstance(request, CancelTask)
        assert (caller.scope, caller.machine) == (MINE, "laptop")


async def test_the_right_to_read_is_no_right_to_cancel(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        here.allow["laptop"] = frozenset({"read"})

        with pytest.raises(TaskNotFound):
            await here.ask(asks.CancelRemoteTask(task_id=here.local.id))


async def test_a_task_of_an_agent_that_does_not_run_is_canceled_in_the_store(tmp_path: Path) -> None:
    async with world(tmp_path, entries=()) as here:
        read = await here.ask(asks.CancelRemoteTask(task_id=here.mine.id))

        assert task_in(read).state is TaskState.CANCELED
        assert here.hosts.commands == []


async def test_every_machine_sees_the_state_of_an_agent_and_nothing_of_its_work(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        read = await here.ask(asks.ReadStatus(target="codex"))

        assert {key: read.status[key] for key in STATUS} == STATUS
        assert "secret" not in str(read.status)
        assert read.status["sightings"] == []


async def test_a_machine_that_may_read_sees_the_whole_status(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        here.allow["laptop"] = frozenset({"read", "attach"})

        assert (await here.ask(asks.ReadStatus(target="codex"))).status == {**STATUS, **SECRETS}


async def test_a_person_on_a_machine_that_may_approve_sees_what_the_agent_asks(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        here.allow["laptop"] = frozenset({"approve"})
        here.hosts.statuses = [{**STATUS, **SECRETS, "question": {"id": "q"}}]

        person = await here.ask(asks.ReadStatus(target="codex"))
        agent = await here.ask(asks.ReadStatus(target="codex", sender="synapse-claude-8100"))

        assert (person.status["question"], agent.status["question"]) == ({"id": "q"}, None)
        assert "secret" not in str(person.status)


async def test_a_status_says_whether_its_reader_may_attach(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        before = await here.ask(asks.ReadStatus(target="codex"))
        here.allow["laptop"] = frozenset({"attach"})
        after = await here.ask(asks.ReadStatus(target="codex", known=before.version, seconds=0.05))

        assert (before.may_attach, after.may_attach) == (False, True)
        assert after.status == before.status


async def test_a_known_status_is_answered_only_when_it_changes_or_the_time_is_over(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        first = await here.ask(asks.ReadStatus(target="codex"))
        same = await here.ask(asks.ReadStatus(target="codex", known=first.version, seconds=0.05))
        here.hosts.statuses.append({**STATUS, "state": "working"})
        changed = await here.ask(asks.ReadStatus(target="codex", known=first.version, seconds=5))

        assert (same.status, same.version) == (None, first.version)
        assert changed.status["state"] == "working"


async def test_other_machines_see_neither_processes_nor_sockets_of_agents(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        resolved = await here.ask(asks.ResolveAgent(target="codex"))
        listed = await here.ask(asks.ListRemoteAgents())

        for agent in (resolved.agent, *listed.agents):
            assert agent["agent_id"] == CODEX.agent_id
            assert {"pid", "socket", "endpoint", "launch_key", "cli_pid"}.isdisjoint(agent)


async def test_a_gateway_finds_a_stopped_agent_though_another_one_has_its_name_as_profile(tmp_path: Path) -> None:
    bob = AgentEntry("synapse-codex-8121", "codex", name="bob", port=8121, inbox="bob")
    async with world(tmp_path, entries=(bob,)) as here:
        by_profile = await here.ask(asks.ResolveAgent(target="codex", queue=True))
        exactly = await here.ask(asks.ResolveAgent(target="codex", queue=True, exact=True))

        assert (by_profile.agent["inbox"], by_profile.running) == ("bob", True)
        assert (exactly.agent["inbox"], exactly.running) == ("codex", False)
        with pytest.raises(AgentNotFound):
            await here.ask(asks.ResolveAgent(target="codex", exact=True))


async def test_an_unknown_agent_is_said_to_be_unknown(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        with pytest.raises(AgentNotFound):
            await here.ask(asks.ResolveAgent(target="nobody", queue=True))


@pytest.mark.parametrize(
    ("ask", "right"),
    [
        (asks.AnswerRemoteQuestion(task_id=numbered(2), verdict="allow"), "approve"),
        (asks.ResolveRemoteTask(task_id=numbered(2), verdict="retry"), "approve"),
        (asks.ReadQuestions(), "approve"),
        (asks.ReadScreen(target="codex"), "attach"),
        (asks.OpenTerminal(target="codex", kind="attach", stream_id="s1"), "attach"),
    ],
    ids=lambda one: type(one).__name__,
)
async def test_only_a_person_on_a_machine_that_is_allowed_it_decides_and_looks(
    tmp_path: Path, ask: Any, right: str
) -> None:
    async with world(tmp_path) as here:
        here.allow["laptop"] = frozenset({"approve", "attach", "read"}) - {right}
        with pytest.raises(Forbidden, match="laptop may not") as refused:
            await here.ask(ask)
        assert f"synapse fleet allow laptop {right}" in refused.value.hint

        here.allow["laptop"] = frozenset({right})
        with pytest.raises(PersonRequired):
            await here.ask(msgspec.structs.replace(ask, sender="synapse-claude-8100"))
        with pytest.raises(Forbidden):
            await here.ask(ask, machine="box3")
        await here.ask(ask)


async def test_a_decision_reaches_the_host_with_the_rights_of_its_machine(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        here.allow["laptop"] = frozenset({"approve"})

        await here.ask(asks.AnswerRemoteQuestion(task_id=here.local.id[:8], verdict="allow", question_id="q"))

        [(request, caller)] = here.hosts.commands
        assert request == AnswerQuestion(task_id=here.local.id, verdict="allow", question_id="q")
        assert (caller.machine, caller.remote_sender) == ("laptop", "user")
        assert caller.actions == frozenset({*ORDINARY, "approve"})


async def test_a_command_of_a_gateway_has_no_more_rights_than_its_machine(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        owner = Caller(
            scope="local", name="dashboard", sees_all=True, actions=frozenset({*ORDINARY, "approve", "attach"})
        )
        body = commands.encode_command(CancelTask(here.local.id, exact=True), owner)

        await here.ask(asks.RunCommand(body=body, inbox="codex"), is_command=True)

        [(_, caller)] = here.hosts.commands
        assert (caller.machine, caller.remote_sender, caller.scope) == ("laptop", "", "local")
        assert caller.actions == frozenset(ORDINARY)


async def test_credentials_without_limits_at_a_gateway_grant_nothing_that_is_a_persons(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        here.allow["laptop"] = frozenset({"approve", "attach"})
        # As everybody on loopback has them at a gateway without authentication, agents included.
        body = commands.encode_command(CancelTask(here.local.id, exact=True), Caller(scope="local", is_owner=True))

        await here.ask(asks.RunCommand(body=body, inbox="codex"), is_command=True)

        [(_, caller)] = here.hosts.commands
        assert caller.actions == frozenset(ORDINARY)


async def test_a_gateway_cannot_act_as_another_machine(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        body = commands.encode_command(CancelTask(here.mine.id, exact=True), Caller(scope=MINE))

        with pytest.raises(Forbidden):
            await here.ask(asks.RunCommand(body=body, inbox="codex"), machine="gate", is_command=True)

        assert here.hosts.commands == []


ADA = AgentEntry("synapse-codex-8120", "codex", name="ada", port=8120, inbox="ada")


@pytest.mark.parametrize("target", ["codex", "codex-8120", "@ada"])
async def test_a_gateways_command_reaches_no_agent_by_its_profile(tmp_path: Path, target: str) -> None:
    async with world(tmp_path, entries=(ADA,)) as here:
        body = commands.encode_command(SendMessage(message=message("hello"), dialect="a2a_v1"), Caller(scope="key:1"))

        with pytest.raises(AgentNotFound) as raised:
            await here.ask(asks.RunCommand(body=body, target=target), machine="gate", is_command=True)

        assert here.hosts.commands == []
        assert "running agents" not in raised.value.hint


@pytest.mark.parametrize(
    ("entries", "target"),
    [((), "codex"), ((), "synapse-codex-8120"), ((ADA,), "ada")],
    ids=["by name", "by id", "another agent is meant now"],
)
async def test_a_gateway_cancels_a_task_of_an_agent_that_has_stopped(
    tmp_path: Path, entries: tuple[AgentEntry, ...], target: str
) -> None:
    async with world(tmp_path, entries=entries) as here:
        body = commands.encode_command(CancelTask(here.local.id, exact=True), Caller(scope=LOCAL))

        await here.ask(asks.RunCommand(body=body, target=target), machine="gate", is_command=True)

        assert (await here.store.load(here.local.id)).state is TaskState.CANCELED
        assert here.hosts.commands == []


async def test_a_task_is_canceled_by_the_agent_of_its_inbox_on_whatever_port_that_runs_now(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        body = commands.encode_command(CancelTask(here.local.id, exact=True), Caller(scope=LOCAL))

        await here.ask(asks.RunCommand(body=body, target="synapse-codex-8100"), machine="gate", is_command=True)

        assert [request for request, _ in here.hosts.commands] == [CancelTask(here.local.id, exact=True)]


async def test_a_gateway_cannot_withdraw_messages(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        body = commands.encode_command(VoidMessage(message_id="m", opens=here.local.id), Caller(scope="key:1"))

        with pytest.raises(InvalidRequest):
            await here.ask(asks.RunCommand(body=body, inbox="codex"), machine="gate", is_command=True)

        assert here.hosts.commands == []


async def test_a_command_is_taken_only_on_the_subject_of_gateways(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        body = commands.encode_command(CancelTask(here.local.id, exact=True), Caller(sees_all=True))

        with pytest.raises(InvalidRequest, match="wrong subject"):
            await here.ask(asks.RunCommand(body=body, inbox="codex"))

        assert here.hosts.commands == []


@pytest.mark.parametrize(
    ("scope", "metadata", "caller", "rights", "sees"),
    [
        ("key:1", {}, Caller(scope="key:1"), (), True),
        ("key:1", {}, Caller(scope="key:2"), (), False),
        ("key:1", {}, Caller(scope="key:2", sees_all=True), (), False),
        ("key:1", {GATEWAY_MACHINE: "gate"}, Caller(scope="key:2", sees_all=True), (), True),
        ("key:1", {GATEWAY_MACHINE: "gate"}, Caller(scope="key:2"), (), False),
        ("key:1", {}, Caller(scope="key:2", sees_all=True), ("read",), True),
        (LOCAL, {}, Caller(scope=LOCAL, sees_all=True), (), False),
        (LOCAL, {GATEWAY_MACHINE: "box3"}, Caller(scope=LOCAL), (), False),
        (LOCAL, {GATEWAY_MACHINE: "gate"}, Caller(scope=LOCAL), (), True),
        ("machine:gate", {GATEWAY_SCOPE: "key:1"}, Caller(scope="key:1"), (), True),
        ("machine:gate", {GATEWAY_SCOPE: "key:1"}, Caller(scope="key:2"), (), False),
        ("machine:gate", {}, Caller(scope=LOCAL), (), True),
        ("machine:box3", {GATEWAY_SCOPE: "key:1"}, Caller(scope="key:1"), (), False),
    ],
)
async def test_a_gateway_reads_for_a_caller_what_was_sent_through_it_or_by_the_same_key(
    tmp_path: Path, scope: str, metadata: dict[str, str], caller: Caller, rights: tuple[str, ...], sees: bool
) -> None:
    async with world(tmp_path) as here:
        here.allow["gate"] = frozenset(rights)
        one = opened(numbered(3), scope=scope, inbox="codex", metadata=metadata)
        await Journal(here.store, ANY_LEASE).record(one)
        ask = asks.FollowForCaller(task_id=one.task_id, caller=commands.encode_caller(caller), seconds=0)

        if sees:
            assert len((await here.ask(ask, machine="gate", is_command=True)).events) == 1
        else:
            with pytest.raises(TaskNotFound):
                await here.ask(ask, machine="gate", is_command=True)
        with pytest.raises(InvalidRequest, match="wrong subject"):
            await here.ask(ask, machine="gate")


async def test_a_gateway_follows_nothing_as_a_machine(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        ask = asks.FollowForCaller(task_id=here.mine.id, caller=commands.encode_caller(Caller(scope=MINE)))

        with pytest.raises(Forbidden):
            await here.ask(ask, machine="gate", is_command=True)


@pytest.mark.parametrize("ships_log", [True, False])
async def test_a_machine_that_ships_no_log_marks_what_a_gateway_sends(tmp_path: Path, ships_log: bool) -> None:
    async with world(tmp_path, ships_log=ships_log) as here:
        sent = SendMessage(message=message("hello"), dialect="a2a_v1", metadata={"k": "v", GATEWAY_MACHINE: "box3"})
        body = commands.encode_command(sent, Caller(scope="key:1"))

        await here.ask(asks.RunCommand(body=body, inbox="codex"), machine="gate", is_command=True)

        [(request, _)] = here.hosts.commands
        assert isinstance(request, SendMessage)
        assert request.metadata == {"k": "v", GATEWAY_MACHINE: "box3" if ships_log else "gate"}


async def test_events_are_followed_by_their_seq(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        first = await here.ask(asks.FollowRemoteTask(task_id=here.mine.id, after=0, seconds=5))
        waiting = asyncio.create_task(
            here.ask(asks.FollowRemoteTask(task_id=here.mine.id, after=first.events[-1].seq, seconds=20))
        )
        await Journal(here.store, ANY_LEASE).record(said("more", here.mine.id))
        later = await waiting

        assert [len(first.events), len(later.events)] == [1, 1]
        assert later.events[0].seq > first.events[0].seq


async def test_a_follower_without_news_is_answered_when_its_time_is_over(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        read = await here.ask(asks.FollowRemoteTask(task_id=here.mine.id, after=10**6, seconds=0.05))

        assert read == asks.EventsRead()


async def test_a_machine_follows_the_events_of_its_own_tasks_from_now_on(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        journal = Journal(here.store, ANY_LEASE)
        now = await here.ask(asks.FollowRemoteTasks())
        waiting = asyncio.create_task(here.ask(asks.FollowRemoteTasks(after=now.seq, seconds=20)))
        await journal.record(said("private", here.local.id))
        await journal.record(said("blue", here.mine.id))
        read = await waiting
        later = await here.ask(asks.FollowRemoteTasks(after=read.seq, seconds=0))

        assert (now.updates, later.updates) == ((), ())
        [update] = read.updates
        assert update.task_id == here.mine.id
        assert task_of_text(update.task).history[-1].text == "blue"


async def test_a_machine_that_may_read_follows_all_agents_or_one(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        here.allow["laptop"] = frozenset({"read"})
        journal = Journal(here.store, ANY_LEASE)
        other = await journal.record(opened(numbered(3), inbox="claude", agent_id="synapse-claude-8100"))

        of_all = await here.ask(asks.FollowRemoteTasks(after=0, seconds=0))
        of_codex = await here.ask(asks.FollowRemoteTasks(target="codex", after=0, seconds=0))

        assert {update.task_id for update in of_all.updates} == {here.mine.id, here.local.id, other.id}
        assert {update.task_id for update in of_codex.updates} == {here.mine.id, here.local.id}


async def test_a_follower_of_all_does_not_see_what_was_deleted(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await Journal(here.store, ANY_LEASE).record(hidden(here.mine.id))

        read = await here.ask(asks.FollowRemoteTasks(after=0, seconds=0))

        assert [kind for update in read.updates for kind, *_ in from_json(update.event)] == ["task_hidden"]


async def test_many_events_come_in_several_answers_and_too_large_ones_are_counted(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        journal = Journal(here.store, ANY_LEASE)
        sizes = {3: 150_000, 4: LARGEST_UPDATE, 5: 150_000, 6: 150_000}
        for number, size in sizes.items():
            large = message("x" * size, f"m{number}")
            await journal.record(opened(numbered(number), scope=MINE, inbox="codex", message=large))
        pages = [await here.ask(asks.FollowRemoteTasks(after=0, seconds=0))]
        while pages[-1].more:
            pages.append(await here.ask(asks.FollowRemoteTasks(after=pages[-1].seq, seconds=0)))

        found = [update.task_id for page in pages for update in page.updates]
        assert found == [here.mine.id, *(numbered(number) for number in (3, 5, 6))]
        assert sum(page.left_out for page in pages) == 1
        assert len(pages) > 2


async def test_a_reader_of_all_tasks_gets_no_more_bytes_than_fit_however_many_letters_they_are(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        large = message("\N{GRINNING FACE}" * (LARGEST_UPDATE // 3), "m3")
        await Journal(here.store, ANY_LEASE).record(opened(numbered(3), scope=MINE, inbox="codex", message=large))

        read = await here.ask(asks.FollowRemoteTasks(after=0, seconds=0))

        assert ([update.task_id for update in read.updates], read.left_out) == ([here.mine.id], 1)


async def test_a_page_of_large_tasks_is_cut_and_goes_on(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        for number in range(3, 7):
            large = opened(numbered(number), scope=MINE, inbox="codex", message=message("x" * 100_000, f"m{number}"))
            await Journal(here.store, ANY_LEASE).record(large)
        found, cursor = list[str](), ""
        for _ in range(10):
            page = await here.ask(asks.ReadTasks(target="codex", cursor=cursor))
            found += [task_of_text(text).id for text in page.tasks]
            cursor = page.next_cursor
            if not cursor:
                break

        assert sorted(found) == sorted([here.mine.id, *(numbered(number) for number in range(3, 7))])


async def grown(here: World, task: Task, *, messages: int = 2) -> Task:
    """The task with long messages and an answer, larger than an answer may be."""
    journal = Journal(here.store, ANY_LEASE)
    for number in range(messages):
        await journal.record(replace(said("", task.id), message=message(f"{number} " + "x" * 600_000, f"m{number}")))
    return await journal.record(moved(TaskState.WORKING, task.id), handed("answer " + "y" * 600_000, task.id))


async def test_a_change_of_a_large_task_is_answered_as_done(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await grown(here, here.mine)
        await grown(here, here.local)
        here.allow["laptop"] = frozenset({"approve"})
        answer = asks.AnswerRemoteQuestion(task_id=here.local.id, verdict="allow")
        body = commands.encode_command(CancelTask(here.local.id, exact=True), Caller())

        answered = task_in(await here.ask(answer))
        canceled = task_in(await here.ask(asks.CancelRemoteTask(task_id=here.mine.id, exact=True)))
        done = await here.ask(asks.RunCommand(body=body, target="codex"), is_command=True)

        assert (answered.id, answered.state) == (here.local.id, TaskState.WORKING)
        assert (canceled.id, canceled.state) == (here.mine.id, TaskState.CANCELED)
        assert commands.decode_result(done.body).task_id == here.local.id


async def test_a_large_task_is_read_with_the_beginnings_of_its_texts(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        whole = await grown(here, here.mine, messages=40)

        read = task_in(await here.ask(asks.ReadTask(task_id=here.mine.id, exact=True)))

        assert (read.id, read.state, read.version) == (whole.id, whole.state, whole.version)
        assert read.message == whole.message
        assert [one.text[:2] for one in read.history[1:]] == [str(number) for number in range(32, 40)]
        assert read.artifacts[0].text.startswith("answer yyy")
        texts = [*(one.text for one in read.history[1:]), *(one.text for one in read.artifacts)]
        assert all(text.endswith(f"… ({LEFT_OUT})") for text in texts)


async def test_a_command_that_only_reads_is_not_told_as_done_when_its_answer_cannot_be_sent(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        here.hosts.url_letters = MAX_PAYLOAD
        task_id = here.local.id

        async def run(command: HostCommand) -> Any:
            body = commands.encode_command(command, Caller())
            return await here.ask(asks.RunCommand(body=body, target="codex"), is_command=True)

        with pytest.raises(InvalidRequest, match="larger than the fleet's server carries"):
            await run(ListPushConfigs(task_id=task_id))
        with pytest.raises(OutcomeUnknown, match="it was done"):
            await run(SetPushConfig(task_id=task_id, config=PushConfig(url="https://example.com/")))


LARGE = 3 * MAX_PAYLOAD // 2


@pytest.mark.parametrize(
    "part",
    [
        TextPart(text="begins " + "y" * LARGE),
        TextPart(text="begins " + "\N{GRINNING FACE}" * (LARGEST_UPDATE - 1000)),
        TextPart(text="begins ", metadata={"own": "z" * LARGE}),
        DataPart(data={"rows": ["z" * 1000] * (LARGE // 1000)}),
        FilePart(content=b"z" * LARGE, name="core"),
    ],
    ids=["text", "letters of four bytes", "metadata of a part", "data", "file"],
)
async def test_events_with_large_parts_are_followed_to_the_end(tmp_path: Path, part: Part) -> None:
    async with world(tmp_path) as here:
        journal, task_id = Journal(here.store, ANY_LEASE), numbered(3)
        large = replace(message("", "m3"), parts=(part,))
        await journal.record(replace(opened(task_id, scope=MINE, inbox="codex"), message=large))
        added = replace(said("", task_id), message=replace(large, message_id=MessageId("m4")))
        answer = handed("", task_id)
        answer = replace(answer, artifact=replace(answer.artifact, parts=(part,)))
        await journal.record(moved(TaskState.WORKING, task_id), added, answer)
        whole = await journal.record(moved(TaskState.COMPLETED, task_id))

        task = await followed(here, task_id)

        assert (task.id, task.state, task.version) == (whole.id, whole.state, whole.version)
        begins = "begins " if isinstance(part, TextPart) else ""
        for text in (*(one.text for one in task.history), *(one.text for one in task.artifacts)):
            assert text.startswith(begins)
            assert text.endswith(f"… ({LEFT_OUT})")


async def test_events_with_large_metadata_are_followed_to_the_end(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        journal, task_id = Journal(here.store, ANY_LEASE), numbered(3)
        metadata = {"own": "z" * LARGE, "a": 1, **{f"k{number}": number for number in range(100_000)}}
        large = replace(message("hello", "m3"), metadata=metadata)
        await journal.record(replace(opened(task_id, scope=MINE, inbox="codex", metadata=metadata), message=large))
        answer = handed("blue", task_id)
        answer = replace(answer, artifact=replace(answer.artifact, metadata=metadata))
        await journal.record(moved(TaskState.WORKING, task_id), answer, noted({**metadata, "later": 1}, task_id))
        whole = await journal.record(moved(TaskState.FAILED, task_id, note="begins " + "n" * LARGE))

        task = await followed(here, task_id)
        read = task_in(await here.ask(asks.ReadTask(task_id=task_id, exact=True)))

        for one in (task, read):
            assert (one.state, one.version, one.message.text, one.artifacts[0].text) == (
                *(whole.state, whole.version),
                *("hello", "blue"),
            )
            assert (one.metadata["a"], "own" in one.metadata) == (1, False)
            assert one.note.startswith("begins nnn")


async def followed(here: World, task_id: TaskId) -> Task:
    """The task as a follower has it after all its events."""
    task, seen, more = None, 0, True
    while more:
        read = await here.ask(asks.FollowRemoteTask(task_id=task_id, after=seen, seconds=0))
        more = read.more
        for one in read.events:
            task, seen = rebuild(task, events_in(task_id, one.event)), one.seq
    assert task is not None
    return task


async def test_a_task_that_fits_is_read_whole(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        large = replace(said("", here.mine.id), message=message("x" * 900_000))
        whole = await Journal(here.store, ANY_LEASE).record(large)

        assert task_in(await here.ask(asks.ReadTask(task_id=here.mine.id, exact=True))) == whole


async def test_a_list_shows_a_large_task_too(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await grown(here, here.mine)

        page = await here.ask(asks.ReadTasks(target="codex"))

        assert [task_of_text(text).id for text in page.tasks] == [here.mine.id]


async def test_a_change_whose_answer_cannot_be_sent_is_not_told_as_refused(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await grown(here, here.mine)
        small = 1000

        with pytest.raises(OutcomeUnknown, match="it was done") as told:
            await here.ask(asks.CancelRemoteTask(task_id=here.mine.id, exact=True), max_payload=small)

        assert "`synapse tasks --machine box2`" in told.value.hint
        assert (await here.store.load(here.mine.id)).state is TaskState.CANCELED
        with pytest.raises(InvalidRequest):
            await here.ask(asks.ReadTask(task_id=here.mine.id, exact=True), max_payload=small)


async def test_one_machine_cannot_keep_this_one_busy(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        engine = MemoryEngine()
        mine, theirs = engine.bus("box2"), engine.bus("laptop")
        hearing = asyncio.create_task(here.answers.hear(mine, "synapse.v1.ask.box2.*"))
        poll = asks.encode_ask(asks.FollowRemoteTask(task_id=here.mine.id, after=10**6, seconds=2))
        read = asks.encode_ask(asks.ReadTask(task_id=here.mine.id))
        async with asyncio.timeout(20):
            while not engine.readers:
                await pause(0.01)
            *polled, last = await asyncio.gather(
                *(
                    theirs.request("synapse.v1.ask.box2.laptop", one, 15)
                    for one in (*(poll for _ in range(MOST_LONG_POLLS + 1)), read)
                )
            )
        hearing.cancel()

        failed = [one for one in map(asks.decode_answer, polled) if isinstance(one, asks.AskFailed)]
        assert [one.error["code"] for one in failed] == ["rate_limited"]
        assert isinstance(asks.decode_answer(last), asks.TaskRead)  # not refused because of those that wait


class StuckBus(MemoryBus):
    """A bus over a line that takes nothing until the test says so."""

    def __init__(self, engine: MemoryEngine, machine: str) -> None:
        super().__init__(engine, machine)
        self.takes = asyncio.Event()
        self.waiting: list[tuple[str, asks.AskAnswer]] = []
        """The answers that wait to be sent, with their inboxes."""

    @override
    async def publish(self, subject: str, body: bytes) -> None:
        one = (subject, asks.decode_answer(body))
        self.waiting.append(one)
        await self.takes.wait()
        self.waiting.remove(one)


@asynccontextmanager
async def stuck(here: World) -> AsyncGenerator[tuple[StuckBus, Callable[[asks.Ask, str], None]]]:
    """A machine whose line is stuck, and a function by which another machine asks it."""
    engine = MemoryEngine()
    bus = StuckBus(engine, "box2")
    engine.buses.append(bus)
    hearing = asyncio.create_task(here.answers.hear(bus, ask_subject("box2", "*")))

    def ask(one: asks.Ask, machine: str) -> None:
        assert engine.deliver(Arrival(ask_subject("box2", machine), asks.encode_ask(one), inbox_prefix(machine)))

    async with asyncio.timeout(BOUND):
        await until(lambda: bool(engine.readers))
        yield bus, ask
    hearing.cancel()


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        await pause(0.01)


async def test_answers_that_wait_to_be_sent_count_as_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "MOST_ASKS", 3)
    async with world(tmp_path) as here, stuck(here) as (bus, ask):
        for _ in range(20):
            ask(asks.Greet(instance="one"), "laptop")
        ask(asks.Greet(instance="one"), "box3")
        await until(lambda: any(subject == inbox_prefix("box3") for subject, _ in bus.waiting))

        *of_laptop, (_, of_box3) = bus.waiting
        assert [type(answer) for _, answer in of_laptop] == [*[asks.Greeted] * 3, *[asks.AskFailed] * 3]
        assert isinstance(of_box3, asks.Greeted)

        bus.takes.set()
        await until(lambda: not bus.waiting)
        bus.takes.clear()
        ask(asks.Greet(instance="one"), "laptop")
        await until(lambda: bool(bus.waiting))
        assert isinstance(bus.waiting[0][1], asks.Greeted)


async def test_answers_that_wait_to_be_sent_have_a_limit_in_bytes_but_changes_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "MOST_UNSENT", 100_000)
    async with world(tmp_path) as here, stuck(here) as (bus, ask):
        large = replace(said("", here.mine.id), message=message("x" * 60_000, "large"))
        await Journal(here.store, ANY_LEASE).record(large)
        read, cancel = asks.ReadTask(task_id=here.mine.id), asks.CancelRemoteTask(task_id=here.mine.id)

        told: list[str] = []
        for one in (read, read, cancel):
            ask(one, "laptop")
            await until(lambda: len(bus.waiting) > len(told))
            answer = bus.waiting[-1][1]
            told.append(answer.error["code"] if isinstance(answer, asks.AskFailed) else type(answer).__name__)

        assert told == ["TaskRead", "rate_limited", "TaskRead"]

        bus.takes.set()
        await until(lambda: not bus.waiting)
        bus.takes.clear()
        ask(read, "laptop")
        await until(lambda: bool(bus.waiting))
        assert isinstance(bus.waiting[0][1], asks.TaskRead)


async def test_an_unreadable_request_is_answered(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        answer = asks.decode_answer(await here.answers.answer("laptop", b"\xc1", max_payload=MAX_PAYLOAD))

        assert isinstance(answer, asks.AskFailed)


@pytest.mark.parametrize(
    ("rights", "sender", "sees"),
    [((), "user", False), (("approve",), "synapse-claude-8100", False), (("approve",), "user", True)],
)
async def test_a_person_who_may_approve_sees_what_is_asked(
    tmp_path: Path, rights: tuple[str, ...], sender: str, sees: bool
) -> None:
    async with world(tmp_path) as here:
        here.allow["laptop"] = frozenset(rights)
        here.hosts.statuses = [{**STATUS, **SECRETS, "question": {"text": "Deploy?"}}]
        read = await here.ask(asks.ReadStatus(target="codex", sender=sender))

        assert (read.status["question"] is not None, read.status["current_task"]) == (sees, None)


@pytest.mark.parametrize(
    "request_",
    [RangeRequest(machine="box2"), PieceRequest(machine="box2", incarnation=NO_INCARNATION, seq=1, offset=0)],
)
async def test_a_log_is_given_only_on_the_subject_of_gateways(
    request_: RangeRequest | PieceRequest, tmp_path: Path
) -> None:
    async with world(tmp_path) as here:
        refused = asks.decode_answer(await here.answers.answer("laptop", encode_log(request_), max_payload=MAX_PAYLOAD))
        given = decode_log(
            await here.answers.answer("gate", encode_log(request_), max_payload=MAX_PAYLOAD, is_command=True)
        )

        assert isinstance(refused, asks.AskFailed)
        assert given == RangeAnswer(more=True)


async def test_a_machine_that_is_named_command_hears_asks_as_asks(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        engine = MemoryEngine()
        subject = ask_subject("command", "*")
        hearing = asyncio.create_task(here.answers.hear(engine.bus("command"), subject))
        try:
            answer = await request_when_heard(engine, ask_subject("command", "laptop"), RangeRequest(machine="command"))
        finally:
            hearing.cancel()
            await asyncio.gather(hearing, return_exceptions=True)

        assert isinstance(asks.decode_answer(answer), asks.AskFailed)


async def request_when_heard(engine: MemoryEngine, subject: str, request: RangeRequest) -> bytes:
    bus = engine.bus("laptop")
    async with asyncio.timeout(10):
        while True:
            try:
                return await bus.request(subject, encode_log(request), 5)
            except NobodyThere:
                await pause(0.01)


async def test_a_state_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        with pytest.raises(InvalidRequest, match="dreaming"):
            await here.ask(asks.ReadTasks(target="codex", states=("dreaming",)))


async def test_a_host_that_says_no_status_does_not_hold_the_answer_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "HOST_SECONDS", 0.05)
    async with world(tmp_path) as here, asyncio.timeout(10):
        here.hosts.statuses = []

        with pytest.raises(AgentNotResponding):
            await here.ask(asks.ReadStatus(target="codex"))
        (row,) = (await here.ask(asks.ListRemoteAgents())).agents
        assert row["state"] == ""
