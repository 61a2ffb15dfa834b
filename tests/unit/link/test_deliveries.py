"""Messages of other machines at the hosts of this one: opened once, taken back, found, and their ends told."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from synapse.config.settings import load_settings
from synapse.core.agent import AgentEntry
from synapse.core.caller import GATEWAY_SCOPE, MACHINE_SCOPE, Caller
from synapse.core.errors import (
    AgentNotFound,
    AgentNotResponding,
    BodyTooLarge,
    InternalFailure,
    QueueFull,
    StoreFailed,
    SynapseError,
    TaskNotFound,
    from_wire,
    to_wire,
)
from synapse.core.message import Message, MessageId, Role, TextPart
from synapse.core.registry import HostClient
from synapse.core.requests import CommandResult, HostCommand, SendMessage, VoidMessage
from synapse.core.task import TaskId, TaskState
from synapse.fleet import asks
from synapse.fleet.relay_io import (
    FindTask,
    HostAbsent,
    HostAccepted,
    HostRefused,
    HostTold,
    HostUnknown,
    HostVoided,
    OpenTask,
    OutboxRow,
    OutboxState,
    TellEnd,
    VoidTask,
)
from synapse.fleet.wire import End, Incarnation
from synapse.host.stopped import stopped_tasks
from synapse.link.deliveries import LEAST_TTL, AgentFinder, Deliveries, end_of
from synapse.tasks.admission import message_digest
from synapse.tasks.journal import Journal
from tests.fakes.facts import handed, moved, numbered, opened
from tests.fakes.leased_store import LeasedStore
from tests.fakes.leases import ANY_LEASE
from tests.fakes.listed_agents import ListedAgents

CODEX = AgentEntry("synapse-codex-8120", "codex", name="ada", port=8120, inbox="ada")
TASK_ID = "0198c0de-0000-7000-8000-000000000001"
BODY = asks.SendBody(
    parts=asks.part_bodies((TextPart(text="hello"),)), sender="synapse-claude-8100", sender_inbox="claude", ttl=60.0
)
OPEN = OpenTask(
    machine="laptop", message_id="m-1", target="ada", task_id=TASK_ID, queue=False, body=asks.encode_send_body(BODY)
)


class FakeHosts:
    """The host of `ada`: it opens a task for each message, or fails as the test says."""

    def __init__(self) -> None:
        self.commands: list[tuple[HostCommand, Caller]] = []
        self.error: SynapseError | None = None

    async def command(self, agent: AgentEntry, request: HostCommand, caller: Caller) -> CommandResult:
        assert agent is CODEX
        self.commands.append((request, caller))
        if self.error is not None:
            raise self.error
        return CommandResult(task_id=request.opens if isinstance(request, SendMessage) else "", version=1)


@dataclass
class World:
    deliveries: Deliveries
    hosts: FakeHosts
    store: LeasedStore
    registry: ListedAgents

    async def record(self, *events: Any) -> None:
        await Journal(self.store, ANY_LEASE).record(*events, digest="d")


@asynccontextmanager
async def world(home: Path, *entries: AgentEntry, past: Sequence[AgentEntry] = ()) -> AsyncGenerator[World]:
    store = await LeasedStore.open(home / "store.db")
    hosts, registry = FakeHosts(), ListedAgents(*entries)
    client: HostClient = hosts  # type: ignore[assignment]  # a fake of the one method that deliveries use
    stopped = stopped_tasks(store, load_settings(environ={"SYNAPSE_HOME": str(home)}))
    finder = AgentFinder(registry, store, lambda: past)
    deliveries = Deliveries("box2", finder, store=store, hosts=client, stopped=stopped)
    try:
        yield World(deliveries, hosts, store, registry)
    finally:
        await store.close()


async def test_a_message_goes_to_its_host_for_a_caller_of_its_machine(tmp_path: Path) -> None:
    async with world(tmp_path, CODEX) as here:
        outcome = await here.deliveries.ask(OPEN)

        assert outcome == HostAccepted(task_id=TASK_ID)
        [(request, caller)] = here.hosts.commands
        assert isinstance(request, SendMessage)
        assert (request.message.text, request.message.message_id, request.opens) == ("hello", "m-1", TASK_ID)
        assert request.metadata == {"ttl": 60.0}
        assert (caller.scope, caller.machine, caller.remote_sender) == (
            "machine:laptop",
            "laptop",
            "synapse-claude-8100",
        )
        assert not caller.sees_all


async def test_a_message_that_has_waited_in_the_outbox_expires_no_later_for_that(tmp_path: Path) -> None:
    async with world(tmp_path, CODEX) as here:
        for expires_in in (5.0, 0.0, 3600.0):
            call = replace(OPEN, message_id=f"m-{expires_in}", expires_in=expires_in)
            assert isinstance(await here.deliveries.ask(call), HostAccepted)

        ttls = [request.metadata["ttl"] for request, _ in here.hosts.commands if isinstance(request, SendMessage)]
        assert ttls == [5.0, LEAST_TTL, 60.0]


async def test_a_message_that_any_inbox_has_is_not_sent_again(tmp_path: Path) -> None:
    async with world(tmp_path, CODEX) as here:
        known = opened(numbered(1), scope=MACHINE_SCOPE + "laptop", inbox="another")
        await here.record(replace(known, message=replace(known.message, message_id=MessageId(OPEN.message_id))))

        assert await here.deliveries.ask(OPEN) == HostAccepted(task_id=numbered(1))
        assert here.hosts.commands == []


async def test_the_same_id_of_another_machine_is_another_message(tmp_path: Path) -> None:
    async with world(tmp_path, CODEX) as here:
        known = opened(numbered(1), scope=MACHINE_SCOPE + "box3")
        await here.record(replace(known, message=replace(known.message, message_id=MessageId(OPEN.message_id))))

        assert await here.deliveries.ask(OPEN) == HostAccepted(task_id=TASK_ID)


async def record_command(here: World, text: str, inbox: str = "ada") -> None:
    """Record the task of a gateway's command with the id of OPEN."""
    message = Message(message_id=MessageId(OPEN.message_id), role=Role.USER, parts=(TextPart(text=text),))
    fact = opened(numbered(1), scope="key:ci", inbox=inbox, message=message)
    await Journal(here.store, ANY_LEASE).record(fact, digest=message_digest(message))


KEPT = replace(
    OPEN, body=asks.encode_send_body(msgspec.structs.replace(BODY, metadata={GATEWAY_SCOPE: "key:ci"})), queue=True
)


@pytest.mark.parametrize("entries", [(CODEX,), ()], ids=["running", "stopped"])
async def test_a_kept_message_that_came_as_a_command_before_is_not_sent_again(
    tmp_path: Path, entries: tuple[AgentEntry, ...]
) -> None:
    async with world(tmp_path, *entries) as here:
        await record_command(here, "hello")

        # With an end, the sender does not ask for the task again under its own machine's scope, and so not in vain.
        assert await here.deliveries.ask(KEPT) == HostAccepted(task_id=numbered(1), end=End(state="submitted"))
        assert here.hosts.commands == []


async def test_a_kept_message_with_the_id_of_another_command_is_refused(tmp_path: Path) -> None:
    async with world(tmp_path, CODEX) as here:
        await record_command(here, "something else")

        outcome = await here.deliveries.ask(KEPT)

        assert isinstance(outcome, HostRefused)
        assert from_wire(msgspec.json.decode(outcome.error)).code == "message_id_reused"
        assert here.hosts.commands == []


async def test_a_kept_message_is_sent_though_another_agent_had_a_command_with_its_id(tmp_path: Path) -> None:
    async with world(tmp_path, CODEX) as here:
        await record_command(here, "hello", inbox="bob")

        assert await here.deliveries.ask(KEPT) == HostAccepted(task_id=TASK_ID)


@pytest.mark.parametrize("entries", [(CODEX,), ()], ids=["running", "stopped"])
@pytest.mark.parametrize("target", ["codex", "codex-8120"])
async def test_a_message_that_a_gateway_kept_for_a_name_reaches_no_agent_of_that_profile(
    tmp_path: Path, entries: tuple[AgentEntry, ...], target: str
) -> None:
    async with world(tmp_path, *entries, past=[CODEX]) as here:
        outcome = await here.deliveries.ask(replace(KEPT, target=target))

        assert isinstance(outcome, HostRefused)
        assert from_wire(msgspec.json.decode(outcome.error)).code == "agent_not_found"
        assert here.hosts.commands == []


@pytest.mark.parametrize("entries", [(CODEX,), ()], ids=["running", "stopped"])
@pytest.mark.parametrize("target", ["ada", "synapse-codex-8120"])
async def test_a_message_that_a_gateway_kept_reaches_the_agent_of_that_name_or_id(
    tmp_path: Path, entries: tuple[AgentEntry, ...], target: str
) -> None:
    async with world(tmp_path, *entries, past=[CODEX]) as here:
        assert await here.deliveries.ask(replace(KEPT, target=target)) == HostAccepted(task_id=TASK_ID)


REPLY = replace(
    OPEN, body=asks.encode_send_body(msgspec.structs.replace(BODY, in_reply_to=numbered(9), ttl=None)), queue=True
)
ARRIVED = End(state="completed", answer=asks.encode_answer_body(asks.AnswerBody(parts=())))
WAITS_FOR_LAPTOP = {"waits_for": "synapse-claude-8100@laptop", "waits_for_inbox": "laptop!claude"}


async def test_a_reply_is_settled_when_a_running_host_has_taken_it(tmp_path: Path) -> None:
    async with world(tmp_path, CODEX) as here:
        assert await here.deliveries.ask(REPLY) == HostAccepted(task_id=TASK_ID, end=ARRIVED)


async def test_a_reply_that_has_ended_a_wait_is_found(tmp_path: Path) -> None:
    find = FindTask(machine="laptop", message_id=REPLY.message_id)
    async with world(tmp_path, past=[CODEX]) as here:
        await here.record(opened(numbered(9), inbox="ada", queued=False, metadata=WAITS_FOR_LAPTOP))
        assert await here.deliveries.ask(find) == HostAbsent()

        taken = [await here.deliveries.ask(REPLY) for _ in range(2)]

        settled = HostAccepted(task_id=numbered(9), end=ARRIVED)
        assert taken == [settled, settled]
        assert (await here.store.load(numbered(9))).state is TaskState.COMPLETED
        assert await here.deliveries.ask(find) == settled
        assert await here.deliveries.ask(replace(find, machine="box3")) == HostAbsent()


async def test_a_name_that_nobody_has_is_refused(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        for queue in (False, True):
            outcome = await here.deliveries.ask(replace(OPEN, queue=queue))

            assert isinstance(outcome, HostRefused)
            assert from_wire(msgspec.json.decode(outcome.error)).code == "agent_not_found"


async def test_a_message_is_kept_for_an_agent_that_does_not_run(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await here.record(opened(numbered(1), inbox="ada"), moved(TaskState.FAILED, numbered(1)))

        outcome = await here.deliveries.ask(replace(OPEN, queue=True))

        assert outcome == HostAccepted(task_id=TASK_ID)
        [task] = await here.store.open_tasks("ada")
        assert (task.id, task.scope, task.sender.sender_id) == (
            TASK_ID,
            "machine:laptop",
            "synapse-claude-8100@laptop",
        )


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (QueueFull("full"), HostRefused),
        (AgentNotResponding("a", 1, "codex"), HostUnknown),
        (InternalFailure(), HostUnknown),
        (from_wire({"code": "of_tomorrow", "message": "no"}), HostUnknown),
    ],
    ids=["refused", "not answered", "a defect", "another version"],
)
async def test_only_a_host_that_has_answered_refuses(tmp_path: Path, error: SynapseError, outcome: type) -> None:
    async with world(tmp_path, CODEX) as here:
        here.hosts.error = error

        assert isinstance(await here.deliveries.ask(OPEN), outcome)


async def test_a_message_that_a_host_has_recorded_before_it_failed_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path, CODEX) as here:

        async def fail_late(_agent: AgentEntry, request: SendMessage, _caller: Caller) -> CommandResult:
            await here.record(opened(numbered(1), scope="machine:laptop", inbox="ada", message=request.message))
            raise QueueFull("full")

        monkeypatch.setattr(here.hosts, "command", fail_late)

        assert await here.deliveries.ask(OPEN) == HostAccepted(task_id=numbered(1))


async def test_a_body_of_another_version_is_refused_with_what_to_do(tmp_path: Path) -> None:
    async with world(tmp_path, CODEX) as here:
        outcome = await here.deliveries.ask(replace(OPEN, body=b"\xff"))

        assert isinstance(outcome, HostRefused)
        assert "update Synapse" in from_wire(msgspec.json.decode(outcome.error)).hint


async def test_a_message_that_has_not_arrived_is_taken_back_for_good(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        void = VoidTask(machine="laptop", message_id="m-1", target="ada", task_id=TASK_ID)

        outcome = await here.deliveries.ask(void)

        assert isinstance(outcome, HostVoided)
        assert (outcome.known, outcome.end.state) == (False, "canceled")
        late = await here.deliveries.ask(replace(OPEN, queue=True))
        assert isinstance(late, HostAccepted)
        assert late.end is not None
        assert late.end.state == "canceled"


async def test_a_repeated_cancel_does_not_take_its_own_claim_for_a_message(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        void = VoidTask(machine="laptop", message_id="m-1", target="ada", task_id=TASK_ID)

        outcomes = [await here.deliveries.ask(void) for _ in range(2)]

        assert [isinstance(one, HostVoided) and one.known for one in outcomes] == [False, False]


async def test_a_cancel_knows_the_message_that_has_arrived(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await here.record(opened(numbered(1), inbox="ada"), moved(TaskState.FAILED, numbered(1)))
        await here.deliveries.ask(replace(OPEN, queue=True))

        outcome = await here.deliveries.ask(VoidTask(machine="laptop", message_id="m-1", target="ada", task_id=TASK_ID))

        assert isinstance(outcome, HostVoided)
        assert (outcome.known, outcome.task_id, outcome.end.state) == (True, TASK_ID, "canceled")


async def test_a_message_for_a_name_that_several_agents_had_is_taken_back(tmp_path: Path) -> None:
    past = [
        AgentEntry(f"synapse-codex-812{number}", "codex", inbox=f"codex@/p/{folder}")
        for number, folder in enumerate(("one", "two"))
    ]
    async with world(tmp_path, past=past) as here:
        void = VoidTask(machine="laptop", message_id="m-1", target="codex", task_id=TASK_ID)

        outcome = await here.deliveries.ask(void)

        assert isinstance(outcome, HostVoided)
        assert (outcome.known, outcome.end.state) == (False, "canceled")
        late = await here.deliveries.ask(replace(OPEN, target="codex@/p/one", queue=True))
        assert isinstance(late, HostAccepted)
        assert late.end is not None
        assert late.end.state == "canceled"


OF_KEY = asks.SendBody(
    parts=(), sender="key.k4", context_id="c-1", metadata={GATEWAY_SCOPE: "key:4", "answered": True, "user": "root"}
)
VOID = VoidTask(machine="laptop", message_id="m-1", target="ada", task_id=TASK_ID, body=asks.encode_send_body(OF_KEY))


async def test_a_message_of_a_gateway_s_caller_that_is_taken_back_stays_the_caller_s(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await here.deliveries.ask(VOID)

        task = await here.store.load(TaskId(TASK_ID))
        assert (task.scope, task.metadata[GATEWAY_SCOPE]) == ("machine:laptop", "key:4")
        assert (task.sender_name, task.context_id, task.state) == ("key.k4@laptop", "c-1", TaskState.CANCELED)
        assert (task.message.text, task.user) == ("(taken back before it arrived)", "")


async def test_a_message_that_expired_on_its_way_says_so(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await here.deliveries.ask(replace(VOID, expired=True))

        task = await here.store.load(TaskId(TASK_ID))
        assert (task.message.text, task.state, task.reason) == (
            "(expired before it arrived)",
            TaskState.FAILED,
            "expired",
        )


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff",
        asks.encode_send_body(asks.SendBody(parts=(), sender="synapse-system")),
        b'{"parts":[],"sender":""}',
    ],
)
async def test_a_cancel_that_names_no_sender_takes_the_message_back_too(body: bytes, tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        outcome = await here.deliveries.ask(replace(VOID, body=body))

        assert isinstance(outcome, HostVoided)
        assert (await here.store.load(TaskId(TASK_ID))).sender_name == "user@laptop"


async def test_a_cancel_gives_its_machine_no_more_rights_than_a_message(tmp_path: Path) -> None:
    async with world(tmp_path, CODEX) as here:
        forged = msgspec.structs.replace(OF_KEY, sender="user", metadata={GATEWAY_SCOPE: ["key:4"]})
        await here.deliveries.ask(replace(VOID, body=asks.encode_send_body(forged)))
        await here.deliveries.ask(replace(OPEN, body=asks.encode_send_body(forged)))

        [(void, caller), (_, sending)] = here.hosts.commands
        assert isinstance(void, VoidMessage)
        assert (void.gateway_scope, caller) == ("", sending)


async def test_the_cancel_of_a_gateway_s_message_claims_nothing_at_an_agent_of_that_profile(tmp_path: Path) -> None:
    async with world(tmp_path, CODEX) as here:
        await here.deliveries.ask(replace(VOID, target="codex"))

        assert here.hosts.commands == []
        assert (await here.store.load(TaskId(TASK_ID))).inbox == "codex"


async def test_a_host_takes_its_message_back_itself(tmp_path: Path) -> None:
    async with world(tmp_path, CODEX) as here:
        outcome = await here.deliveries.ask(VoidTask(machine="laptop", message_id="m-1", target="ada", task_id=TASK_ID))

        [(request, _)] = here.hosts.commands
        assert request == VoidMessage(message_id="m-1", opens=TASK_ID)
        assert outcome == HostUnknown()  # the fake has not recorded anything


async def test_a_task_that_has_ended_is_found_with_its_end(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        first = opened(numbered(1), scope=MACHINE_SCOPE + "laptop")
        await here.record(first, handed("42", numbered(1)), moved(TaskState.COMPLETED, numbered(1)))

        found = await here.deliveries.ask(FindTask(machine="laptop", message_id=first.message.message_id))
        absent = await here.deliveries.ask(FindTask(machine="box3", message_id=first.message.message_id))

        assert isinstance(found, HostAccepted)
        assert found.end is not None
        assert asks.parts_of(asks.decode_answer_body(found.end.answer).parts) == (TextPart(text="42"),)
        assert absent == HostAbsent()


def closed(state: OutboxState, end: End | None = None, body: asks.SendBody = BODY) -> OutboxRow:
    return OutboxRow(
        message_id="m-1",
        to="box3",
        incarnation=Incarnation(1, "a"),
        n=1,
        kind="send",
        target="codex",
        task_id=TASK_ID,
        body=asks.encode_send_body(body),
        queue=False,
        state=state,
        created_at=0,
        expires_at=0,
        changed_at=0,
        end=end,
    )


WAITING = msgspec.structs.replace(BODY, sender_inbox="ada", sender_task_id=numbered(9), response_expected=True)

WAITS = {"waits_for": "synapse-codex-8120@box3", "waits_for_inbox": "box3!codex"}


async def test_the_agent_that_waits_gets_the_answer_as_a_reply(tmp_path: Path) -> None:
    async with world(tmp_path, CODEX) as here:
        answer = asks.AnswerBody(parts=asks.part_bodies((TextPart(text="done"),)), inferred=True)
        end = End(state="completed", answer=asks.encode_answer_body(answer))

        outcome = await here.deliveries.ask(TellEnd(row=closed(OutboxState.SETTLED, end, WAITING)))

        assert outcome == HostTold()
        [(request, caller)] = here.hosts.commands
        assert isinstance(request, SendMessage)
        assert (request.in_reply_to, request.message.text) == (numbered(9), "done")
        assert request.metadata == {"inferred": True}
        assert (caller.machine, caller.remote_sender) == ("box3", "codex")


@pytest.mark.parametrize("inbox", ["box3!codex", "box3!codex@/proj"])
async def test_an_answer_whose_message_the_outbox_has_lost_comes_from_the_agent_that_was_asked(
    tmp_path: Path, inbox: str
) -> None:
    async with world(tmp_path, CODEX) as here:
        waits = {"waits_for": "synapse-codex-8120@box3", "waits_for_inbox": inbox}
        await here.record(opened(numbered(9), inbox="ada", queued=False, metadata=waits))
        row = replace(closed(OutboxState.SETTLED, End(state="completed"), WAITING), target="")

        assert await here.deliveries.ask(TellEnd(row=row)) == HostTold()

        [(request, caller)] = here.hosts.commands
        assert isinstance(request, SendMessage)
        assert request.sender is not None
        assert (request.sender.sender_id, caller.machine, caller.remote_sender) == ("codex", "box3", "codex")


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (OutboxState.REFUSED, "agent_not_found"),
        (OutboxState.UNCERTAIN, "uncertain"),
        (OutboxState.VOID, "canceled"),
    ],
)
async def test_the_agent_that_waits_learns_that_no_answer_comes(
    tmp_path: Path, state: OutboxState, reason: str
) -> None:
    async with world(tmp_path, CODEX) as here:
        row = replace(closed(state, body=WAITING), error=msgspec.json.encode(to_wire(AgentNotFound("codex"))))
        for _ in range(2):
            await here.deliveries.ask(TellEnd(row=row))

        [(request, _), (copy, _)] = here.hosts.commands
        assert isinstance(request, SendMessage)
        assert request.metadata == {"failed": True, "inferred": True, "end_reason": reason}
        assert request.message.text
        # By its id the host knows a copy.
        assert request == copy
        assert request.message.message_id


async def test_nobody_is_told_where_nobody_waits(tmp_path: Path) -> None:
    async with world(tmp_path, CODEX) as here:
        here.hosts.error = TaskNotFound(numbered(9))

        assert await here.deliveries.ask(TellEnd(row=closed(OutboxState.SETTLED))) == HostTold()
        assert await here.deliveries.ask(TellEnd(row=closed(OutboxState.SETTLED, body=WAITING))) == HostTold()


async def test_the_wait_of_an_agent_that_does_not_run_ends_in_the_store(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await here.record(opened(numbered(9), inbox="ada", queued=False, metadata=WAITS))
        answer = asks.AnswerBody(parts=asks.part_bodies((TextPart(text="done"),)))
        end = End(state="completed", answer=asks.encode_answer_body(answer))

        told = [await here.deliveries.ask(TellEnd(row=closed(OutboxState.SETTLED, end, WAITING))) for _ in range(2)]

        ended = await here.store.load(numbered(9))
        assert told == [HostTold(), HostTold()]
        assert (ended.state, ended.artifacts[-1].text) == (TaskState.COMPLETED, "done")


async def test_a_wait_ends_though_the_answer_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(tmp_path, CODEX) as here:
        taken: list[SendMessage] = []

        async def take_short(_agent: AgentEntry, request: SendMessage, _caller: Caller) -> CommandResult:
            if len(request.message.text) > 1000:
                raise BodyTooLarge(1000)
            taken.append(request)
            return CommandResult(task_id=numbered(9), version=2)

        monkeypatch.setattr(here.hosts, "command", take_short)
        answer = asks.AnswerBody(parts=asks.part_bodies((TextPart(text="x" * 2000),)))
        row = closed(OutboxState.SETTLED, End(state="completed", answer=asks.encode_answer_body(answer)), WAITING)

        assert await here.deliveries.ask(TellEnd(row=row)) == HostTold()

        [request] = taken
        assert (request.in_reply_to, request.message.message_id) == (numbered(9), "end-m-1")
        assert request.metadata == {"failed": True, "inferred": True, "end_reason": "answer_not_delivered"}
        assert "codex@box3 cannot be delivered: the body is larger" in request.message.text


async def test_a_wait_for_a_name_that_no_agent_can_have_ends(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await here.record(opened(numbered(9), inbox="ada", queued=False, metadata=WAITS))
        refused = msgspec.json.encode(to_wire(AgentNotFound("co dex")))
        row = replace(closed(OutboxState.REFUSED, body=WAITING), target="co dex", error=refused)

        told = [await here.deliveries.ask(TellEnd(row=row)) for _ in range(2)]

        ended = await here.store.load(numbered(9))
        assert told == [HostTold(), HostTold()]
        assert (ended.state, ended.reason) == (TaskState.FAILED, "agent_not_found")


async def test_an_answer_for_a_task_that_waits_for_another_machine_ends_nothing(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        elsewhere = {"waits_for": "synapse-codex-8120@box4", "waits_for_inbox": "box4!codex"}
        await here.record(opened(numbered(9), inbox="ada", queued=False, metadata=elsewhere))

        told = await here.deliveries.ask(TellEnd(row=closed(OutboxState.SETTLED, body=WAITING)))

        assert told == HostTold()
        assert not (await here.store.load(numbered(9))).state.is_terminal


async def test_a_waiter_whose_host_is_busy_is_told_later(tmp_path: Path) -> None:
    async with world(tmp_path, CODEX) as here:
        here.hosts.error = StoreFailed("the disk is full")

        assert await here.deliveries.ask(TellEnd(row=closed(OutboxState.SETTLED, body=WAITING))) == HostUnknown()


async def test_an_explicit_reply_is_not_called_inferred(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await here.record(
            opened(numbered(1), metadata={"replied": "explicit"}), moved(TaskState.COMPLETED, numbered(1))
        )

        end = end_of(await here.store.load(numbered(1)))

        assert not asks.decode_answer_body(end.answer).inferred


@pytest.mark.parametrize("letter", ["x", "\x01", "\U0001f642"])
async def test_an_answer_that_no_server_carries_is_cut_and_says_so(tmp_path: Path, letter: str) -> None:
    async with world(tmp_path) as here:
        await here.record(
            opened(numbered(1)), handed(letter * 3_000_000, numbered(1)), moved(TaskState.COMPLETED, numbered(1))
        )
        task = await here.store.load(numbered(1))

        end = end_of(task)

        beginning, why = asks.parts_of(asks.decode_answer_body(end.answer).parts)
        assert len(msgspec.msgpack.encode(end)) < 700 * 1024
        assert isinstance(beginning, TextPart)
        assert isinstance(why, TextPart)
        assert beginning.text == letter * 64 * 1024
        assert f"`synapse show {task.short_id}`" in why.text
        assert end.note in why.text
        assert end.state == "completed"
