"""RemoteDriver sends a message once and follows its remote task to the end, also after a broken connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from synapse.core.driver import (
    Answered,
    ArtifactProduced,
    Failed,
    HoldReason,
    InputRequested,
    Progress,
    Refused,
    Submitted,
    Turn,
    TurnEvent,
    TurnStarted,
    Typing,
)
from synapse.core.errors import AgentExited, ExternalAgentFailed, ExternalAgentUnreachable, QuestionGone
from synapse.core.message import Message, MessageId, Role, TextPart
from synapse.core.override import override
from synapse.core.question import Choice
from synapse.core.requests import ExternalAgent
from synapse.core.task import TaskId
from synapse.external.client import RemoteUpdate, Unanswered
from synapse.external.conversation import Timeouts
from synapse.external.driver import FileTaskRefs, RemoteDriver
from synapse.external.encode import NEW, RemoteTaskRef
from tests.fakes.clock import FakeClock

TASK = TaskId("11111111-0000-4000-8000-000000000000")
AGENT = ExternalAgent(alias="other", url="http://other", name="Other", card={"capabilities": {"streaming": True}})
TIMEOUTS = Timeouts(first_pause=0.001, longest_pause=0.001, lost=0.0, answer=5.0)
BOUND = 10.0

Script = Sequence[RemoteUpdate | Exception]
"""The updates of one stream; an error ends it."""


@dataclass
class FakeRemote:
    """A remote agent with scripted updates; `told` are the messages that it was sent."""

    tells: list[Script] = field(default_factory=list[Script])
    follows: list[Script] = field(default_factory=list[Script])
    looks: list[RemoteUpdate | Exception] = field(default_factory=list[Any])
    streams: bool = True
    refuses_cancel: bool = False
    told: list[tuple[Message, RemoteTaskRef]] = field(default_factory=list[Any])
    canceled: list[str] = field(default_factory=list[str])
    silent: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when all updates are sent and the stream stays open."""
    stays: bool = False

    async def send_and_follow(
        self, _agent: ExternalAgent, message: Message, ref: RemoteTaskRef, _seconds: float
    ) -> AsyncGenerator[RemoteUpdate, None]:
        self.told.append((message, ref))
        async for said in self._played(self.tells.pop(0)):
            yield said

    async def follow(self, _agent: ExternalAgent, _task_id: str, _seconds: float) -> AsyncGenerator[RemoteUpdate, None]:
        async for said in self._played(self.follows.pop(0)):
            yield said

    async def get_task(self, _agent: ExternalAgent, _task_id: str, _seconds: float) -> RemoteUpdate:
        said = self.looks.pop(0)
        if isinstance(said, Exception):
            raise said
        return said

    async def cancel(self, _agent: ExternalAgent, task_id: str, _seconds: float) -> None:
        self.canceled.append(task_id)
        if self.refuses_cancel:
            raise ExternalAgentFailed("it refused")

    def has_streams(self, _agent: ExternalAgent) -> bool:
        return self.streams

    async def _played(self, script: Script) -> AsyncGenerator[RemoteUpdate, None]:
        for one in script:
            if isinstance(one, Exception):
                raise one
            yield one
        if self.stays:
            self.silent.set()
            await asyncio.Event().wait()


def task(state: str, *texts: str, says: str = "") -> RemoteUpdate:
    artifacts = [{"artifactId": f"a-{number}", "parts": [{"text": text}]} for number, text in enumerate(texts)]
    status: dict[str, Any] = {"state": f"TASK_STATE_{state}"}
    if says:
        status["message"] = {"role": "ROLE_AGENT", "parts": [{"text": says}]}
    return {"task": {"id": "r-1", "contextId": "c-1", "status": status, "artifacts": artifacts}}


def status(state: str, says: str = "") -> RemoteUpdate:
    return {"statusUpdate": {"taskId": "r-1", "contextId": "c-1", "status": task(state, says=says)["task"]["status"]}}


def chunk(text: str, *, append: bool = False, last: bool = False) -> RemoteUpdate:
    artifact = {"artifactId": "a-0", "parts": [{"text": text}]}
    return {"artifactUpdate": {"taskId": "r-1", "artifact": artifact, "append": append, "lastChunk": last}}


def a_turn(text: str = "hi", *, first: bool = True) -> Turn:
    message = Message(message_id=MessageId(f"m-{text}"), role=Role.USER, parts=(TextPart(text=text),))
    return Turn(task_id=TASK, message=message, text=text, first=first)


@pytest.fixture
def refs(tmp_path: Path) -> FileTaskRefs:
    return FileTaskRefs(tmp_path / "threads" / "other.json")


def driver_of(remote: FakeRemote, refs: FileTaskRefs, agent: ExternalAgent = AGENT) -> RemoteDriver:
    return RemoteDriver(agent, remote, refs, FakeClock(), TIMEOUTS)


async def events_of(driver: RemoteDriver, turn: Turn) -> list[TurnEvent]:
    async with asyncio.timeout(BOUND):
        return [event async for event in driver.take_turn(turn)]


async def test_the_updates_of_a_stream_become_events_as_they_arrive(refs: FileTaskRefs) -> None:
    remote = FakeRemote(
        tells=[[task("SUBMITTED"), status("WORKING", "thinking"), chunk("hel"), chunk("lo", append=True, last=True)]]
    )
    remote.tells[0] = [*remote.tells[0], status("COMPLETED")]

    events = await events_of(driver_of(remote, refs), a_turn())

    assert [type(event) for event in events[:3]] == [Typing, Submitted, TurnStarted]
    assert events[3] == Progress("thinking")
    first, more = events[4], events[5]
    assert isinstance(first, ArtifactProduced)
    assert isinstance(more, ArtifactProduced)
    assert (first.artifact.text, first.append, first.last_chunk) == ("hel", False, False)
    assert (more.artifact.text, more.append, more.last_chunk) == ("lo", True, True)
    assert events[6:] == [Answered(parts=(), source="a2a")]


@pytest.mark.parametrize(
    ("said", "outcome"),
    [
        (
            {"message": {"messageId": "x", "parts": [{"text": "directly"}]}},
            Answered(parts=(TextPart(text="directly"),), source="a2a"),
        ),
        (task("COMPLETED", says="done"), Answered(parts=(TextPart(text="done"),), source="a2a")),
        (task("COMPLETED", "handed over", says="done"), Answered(parts=(), source="a2a")),
        (task("INPUT_REQUIRED", says="which one?"), InputRequested((TextPart(text="which one?"),))),
        (task("AUTH_REQUIRED", says="log in"), InputRequested((TextPart(text="log in"),), authorization=True)),
        (task("REJECTED", says="not me"), Refused("not me")),
        (task("FAILED", says="broken"), Failed("external_agent_failed", "broken")),
        (task("CANCELED"), Failed("external_task_canceled", "its task was canceled there")),
    ],
)
async def test_each_final_state_of_the_remote_task_ends_the_turn(
    refs: FileTaskRefs, said: RemoteUpdate, outcome: TurnEvent
) -> None:
    assert (await events_of(driver_of(FakeRemote(tells=[[said]]), refs), a_turn()))[-1] == outcome


async def test_an_answer_continues_the_remote_task_also_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    remote = FakeRemote(tells=[[task("INPUT_REQUIRED", says="which one?")], [task("COMPLETED", "this one")]])
    await events_of(driver_of(remote, FileTaskRefs(path)), a_turn("first"))

    answered = await events_of(driver_of(remote, FileTaskRefs(path)), a_turn("second", first=False))

    assert [ref for _, ref in remote.told] == [NEW, RemoteTaskRef(task_id="r-1", context_id="c-1")]
    assert isinstance(answered[-1], Answered)
    assert FileTaskRefs(path).find(TASK) is None
    assert path.stat().st_mode & 0o777 == 0o600


async def test_a_continued_task_may_first_come_back_in_its_old_state(refs: FileTaskRefs) -> None:
    await refs.keep(TASK, RemoteTaskRef(task_id="r-1", context_id="c-1"), "m-0")
    remote = FakeRemote(tells=[[task("INPUT_REQUIRED", says="which one?"), status("WORKING"), status("COMPLETED")]])

    assert isinstance((await events_of(driver_of(remote, refs), a_turn(first=False)))[-1], Answered)


async def test_an_answer_to_a_forgotten_question_fails(refs: FileTaskRefs) -> None:
    remote = FakeRemote()

    (_, outcome) = await events_of(driver_of(remote, refs), a_turn(first=False))

    assert isinstance(outcome, Failed)
    assert outcome.reason == "conversation_lost"
    assert remote.told == []


async def test_a_broken_stream_is_resumed_and_nothing_is_sent_or_reported_twice(refs: FileTaskRefs) -> None:
    remote = FakeRemote(
        tells=[[task("WORKING"), chunk("hel"), ExternalAgentUnreachable("it broke off")]],
        looks=[
            task("WORKING", "hel")["task"],
            ExternalAgentUnreachable("still away"),
            task("WORKING", "hello")["task"],
        ],
        follows=[[task("WORKING", "hel"), TimeoutError()], [task("WORKING", "hello"), status("COMPLETED")]],
    )
    driver = RemoteDriver(AGENT, remote, refs, FakeClock(), Timeouts(first_pause=0.001, lost=100.0))

    events = await events_of(driver, a_turn())

    assert [event.artifact.text for event in events if isinstance(event, ArtifactProduced)] == ["hel", "lo"]
    assert len(remote.told) == 1
    assert isinstance(events[-1], Answered)


async def test_an_unreachable_agent_is_reported_as_such_until_it_answers(refs: FileTaskRefs) -> None:
    reasons: list[HoldReason | None] = []

    class Watched(FakeRemote):
        @override
        async def get_task(self, _agent: ExternalAgent, _task_id: str, _seconds: float) -> RemoteUpdate:
            reasons.append(driver.view().gate_reason)
            return await super().get_task(_agent, _task_id, _seconds)

    away, working, done = ExternalAgentUnreachable("away"), task("WORKING")["task"], task("COMPLETED", "done")["task"]
    remote = Watched(streams=False, tells=[[task("SUBMITTED")]], looks=[away, working, done])
    driver = RemoteDriver(AGENT, remote, refs, FakeClock(), Timeouts(first_pause=0.001, lost=100.0))

    assert isinstance((await events_of(driver, a_turn()))[-1], Answered)

    assert reasons == [None, HoldReason.UNREACHABLE, None]
    assert driver.view().gate_reason is None


async def test_the_task_of_an_agent_without_streams_is_polled_to_its_end(refs: FileTaskRefs) -> None:
    remote = FakeRemote(
        streams=False, tells=[[task("SUBMITTED")]], looks=[task("WORKING")["task"], task("COMPLETED", "done")["task"]]
    )

    events = await events_of(driver_of(remote, refs), a_turn())

    assert [event.artifact.text for event in events if isinstance(event, ArtifactProduced)] == ["done"]
    assert isinstance(events[-1], Answered)


async def test_the_task_of_an_agent_that_refuses_streams_is_polled(refs: FileTaskRefs) -> None:
    remote = FakeRemote(
        tells=[[task("WORKING")]],
        looks=[task("WORKING")["task"], task("WORKING")["task"], task("COMPLETED", "done")["task"]],
        follows=[[ExternalAgentFailed("it has no such method")]],
    )

    assert isinstance((await events_of(driver_of(remote, refs), a_turn()))[-1], Answered)


async def test_the_task_of_an_agent_that_stays_unreachable_fails(refs: FileTaskRefs) -> None:
    remote = FakeRemote(tells=[[task("WORKING")]], looks=[ExternalAgentUnreachable("nothing listens")])

    outcome = (await events_of(driver_of(remote, refs), a_turn()))[-1]

    assert outcome == Failed("external_agent_unreachable", "other: nothing listens")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ExternalAgentUnreachable("nothing listens"), "external_agent_unreachable"),
        (ExternalAgentFailed("it refused"), "external_agent_failed"),
        (TimeoutError(), "external_agent_unreachable"),
        (Unanswered("it hung up"), "delivery_uncertain"),
    ],
)
async def test_a_message_that_was_not_taken_fails_without_being_sent_again(
    refs: FileTaskRefs, error: Exception, reason: str
) -> None:
    remote = FakeRemote(tells=[[error]])

    typing, outcome = await events_of(driver_of(remote, refs), a_turn())

    assert typing == Typing()
    assert isinstance(outcome, Failed)
    assert outcome.reason == reason
    assert len(remote.told) == 1


async def test_a_message_is_sent_again_to_an_agent_that_recognises_ids(refs: FileTaskRefs) -> None:
    ours = ExternalAgent(alias="other", url="http://other", name="Other", card={"extensions": {"synapse": {}}})
    remote = FakeRemote(tells=[[Unanswered("it hung up")], [Unanswered("again")], [task("COMPLETED", "done")]])

    events = await events_of(driver_of(remote, refs, ours), a_turn())

    assert isinstance(events[-1], Answered)
    assert len(remote.told) == 3
    assert len({message.message_id for message, _ in remote.told}) == 1


async def test_an_unconfirmed_answer_counts_as_taken_once_the_task_goes_on(refs: FileTaskRefs) -> None:
    await refs.keep(TASK, RemoteTaskRef(task_id="r-1"), "m-0")
    remote = FakeRemote(
        streams=False,
        tells=[[Unanswered("nothing in time")]],
        looks=[task("WORKING")["task"], task("COMPLETED", "done")["task"]],
    )

    assert isinstance((await events_of(driver_of(remote, refs), a_turn(first=False)))[-1], Answered)
    assert len(remote.told) == 1


async def test_a_nonsensical_answer_fails_the_turn(refs: FileTaskRefs) -> None:
    events = await events_of(driver_of(FakeRemote(tells=[[{"hello": "world"}]]), refs), a_turn())

    assert events == [
        Typing(),
        Failed("external_agent_failed", "other: its answer is neither a task nor a message"),
    ]


async def test_one_message_id_of_two_callers_makes_two_messages(refs: FileTaskRefs) -> None:
    remote = FakeRemote(tells=[[task("COMPLETED")], [task("COMPLETED")]])
    driver = driver_of(remote, refs)
    await events_of(driver, a_turn())
    other = Turn(task_id=TaskId("another"), message=a_turn().message, text="hi", first=True)

    await events_of(driver, other)

    assert len({message.message_id for message, _ in remote.told}) == 2


@pytest.mark.parametrize(
    ("refuses", "note"), [(False, "it was canceled there"), (True, "it may go on there: it refused")]
)
async def test_an_interrupt_cancels_the_remote_task(refs: FileTaskRefs, refuses: bool, note: str) -> None:
    async with asyncio.timeout(BOUND):
        remote = FakeRemote(tells=[[task("WORKING")]], stays=True, refuses_cancel=refuses)
        driver = driver_of(remote, refs)
        assert not await driver.interrupt()
        events: list[TurnEvent] = []
        async for event in driver.take_turn(a_turn()):
            events.append(event)
            if isinstance(event, TurnStarted):
                assert driver.view().state == "working"
                assert await driver.interrupt()

        assert remote.canceled == ["r-1"]
        assert events[-1] == Failed("interrupted", note)
        assert driver.view().state == "ready"


async def test_removing_an_agent_cancels_its_remote_task(refs: FileTaskRefs) -> None:
    async with asyncio.timeout(BOUND):
        remote = FakeRemote(tells=[[task("WORKING")]], stays=True)
        driver = driver_of(remote, refs)
        await driver.wait_ready()
        events: list[TurnEvent] = []
        async for event in driver.take_turn(a_turn()):
            events.append(event)
            if isinstance(event, TurnStarted):
                await driver.give_up()
                await driver.give_up()

        note = "other was removed; it was canceled there"
        assert events[-1] == Failed("agent_exited", note)
        assert remote.canceled == ["r-1"]
        with pytest.raises(AgentExited):
            await driver.wait_ready()


async def test_a_remote_task_goes_on_when_this_process_stops_and_the_next_one_follows_it(tmp_path: Path) -> None:
    path = tmp_path / "other.json"

    async def stop_in_the_middle() -> None:
        remote = FakeRemote(tells=[[task("WORKING"), chunk("hel")]], stays=True)
        driver = driver_of(remote, FileTaskRefs(path))
        events: list[TurnEvent] = []
        async for event in driver.take_turn(a_turn()):
            events.append(event)
            if isinstance(event, ArtifactProduced):
                await driver.leave()

        assert isinstance(events[-1], ArtifactProduced)
        assert remote.canceled == []

    await asyncio.wait_for(stop_in_the_middle(), BOUND)
    refs = FileTaskRefs(path)
    assert refs.has(TASK, a_turn().message.message_id)
    remote = FakeRemote(looks=[task("COMPLETED", "hello")["task"]])

    events = await events_of(driver_of(remote, refs), replace(a_turn(), resumed=True))

    assert remote.told == []
    assert [type(event) for event in events] == [Submitted, ArtifactProduced, Answered]
    assert FileTaskRefs(path).find(TASK) is None


async def test_the_remote_task_is_stored_before_the_message_counts_as_taken(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    driver = driver_of(FakeRemote(tells=[[task("COMPLETED")]]), FileTaskRefs(path))
    async with asyncio.timeout(BOUND):
        async for event in driver.take_turn(a_turn()):
            if not isinstance(event, Typing):
                assert FileTaskRefs(path).has(TASK, a_turn().message.message_id)

    assert FileTaskRefs(path).find(TASK) is None


async def test_a_resumed_task_that_the_agent_no_longer_knows_fails(refs: FileTaskRefs) -> None:
    await refs.keep(TASK, RemoteTaskRef(task_id="r-1"), a_turn().message.message_id)
    remote = FakeRemote(looks=[ExternalAgentFailed("it has no such task")])

    events = await events_of(driver_of(remote, refs), replace(a_turn(), resumed=True))

    assert events == [Failed("external_agent_failed", "other: it has no such task")]


async def test_a_follow_up_that_may_not_have_been_taken_is_not_taken_for_the_message_before_it(
    refs: FileTaskRefs,
) -> None:
    await refs.keep(TASK, RemoteTaskRef(task_id="r-1"), "m-first")

    assert refs.has(TASK, "m-first")
    assert not refs.has(TASK, "m-second")


def test_files_of_earlier_versions_name_no_message(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text(f'{{"{TASK}": ["r-1", "c-1"]}}', encoding="utf-8")

    assert FileTaskRefs(path).find(TASK) == RemoteTaskRef(task_id="r-1", context_id="c-1")
    assert not FileTaskRefs(path).has(TASK, "")


async def test_a_message_has_the_trace_headers_of_its_task(refs: FileTaskRefs) -> None:
    remote = FakeRemote(tells=[[task("COMPLETED")]])

    await events_of(driver_of(remote, refs), replace(a_turn(), trace=(("traceparent", "00-a-b-01"),)))

    assert remote.told[0][1].trace == (("traceparent", "00-a-b-01"),)


async def test_an_external_agent_has_no_questions_for_persons(refs: FileTaskRefs) -> None:
    driver = driver_of(FakeRemote(), refs)
    driver.confirm()

    assert not driver.drop()
    with pytest.raises(QuestionGone):
        await driver.answer("q", Choice(option="1"))
