"""The hub's WebSocket: updates arrive in order and once, over broken connections and to slow readers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, MutableMapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any

import pytest

from synapse.core.caller import Caller
from synapse.core.driver import Answered, ArtifactProduced, InputRequested, Submitted, Turn, TurnEvent
from synapse.core.errors import LinkDown, RateLimited
from synapse.core.events import Update
from synapse.core.message import Artifact, TextPart
from synapse.core.requests import ForAgent, Request, SubscribeTask
from synapse.core.service import Handler
from synapse.core.task import Task, TaskState
from synapse.gateway import hub_socket
from synapse.gateway.hub_socket import HubSocket
from synapse.server.websocket import ChannelClosed, WebSocketChannel
from synapse.tasks.feed import Feed
from synapse.tasks.journal import rebuild
from tests.fakes.driver import FakeDriver
from tests.fakes.facts import moved, numbered, opened
from tests.fakes.harness import ME, AgentHarness, working

BOUND = 5.0
LAPTOP = Caller(scope="key:laptop", name="laptop")
Frame = dict[str, Any]


def agent_name(_task: Task) -> str:
    return "ada"


class OneAgent:
    """One agent, served as a gateway serves it."""

    def __init__(self, harness: AgentHarness) -> None:
        self._desk = harness

    async def handle(self, request: Request[object], caller: Caller) -> Any:
        return await self._desk.service.handle(request.request if isinstance(request, ForAgent) else request, caller)


class Client:
    """The other end of a WebSocket; `takes` is cleared while it reads nothing."""

    def __init__(self) -> None:
        self.incoming: asyncio.Queue[MutableMapping[str, Any]] = asyncio.Queue()
        self.frames: list[Frame] = []
        self.closed: tuple[int, str] | None = None
        self.takes = asyncio.Event()
        self.takes.set()
        self._changed = asyncio.Event()

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "websocket.send":
            await self.takes.wait()
            self.frames.append(json.loads(message["text"]))
        elif message["type"] == "websocket.close":
            self.closed = (message["code"], message["reason"])
        self._changed.set()

    def say(self, frame: object) -> None:
        text = frame if isinstance(frame, str | bytes) else json.dumps(frame)
        self.incoming.put_nowait({"type": "websocket.receive", "bytes" if isinstance(text, bytes) else "text": text})

    def ask(self, text: str, **more: Any) -> None:
        self.say({"type": "message", "agentId": "ada", "message": [{"type": "text", "content": text}], **more})

    def leave(self) -> None:
        self.incoming.put_nowait({"type": "websocket.disconnect", "code": 1001})

    async def until(self, condition: Callable[[list[Frame]], object]) -> list[Frame]:
        async with asyncio.timeout(BOUND):
            while not condition(self.frames):
                self._changed.clear()
                await self._changed.wait()
        return self.frames

    async def done(self, count: int = 1) -> list[Frame]:
        return await self.until(lambda frames: types(frames).count("task.completed") >= count)


def types(frames: list[Frame]) -> list[str]:
    return [str(frame["type"]) for frame in frames]


def connected(
    harness: AgentHarness, *, caller: Caller = LAPTOP, **more: Any
) -> AbstractAsyncContextManager[Client, bool | None]:
    return connected_to(OneAgent(harness), caller, **more)


@asynccontextmanager
async def connected_to(service: Handler, caller: Caller = LAPTOP, **more: Any) -> AsyncGenerator[Client]:
    client = Client()
    socket = HubSocket(service, agent_name, **more)
    serving = asyncio.ensure_future(socket(WebSocketChannel(client.incoming.get, client.send), caller))
    try:
        yield client
    finally:
        client.leave()
        client.takes.set()
        async with asyncio.timeout(BOUND):
            with suppress(ChannelClosed):
                await serving


async def test_a_message_is_created_then_updated_then_completed_with_growing_seqs() -> None:
    async with working(AgentHarness()) as harness:
        async with connected(harness) as client:
            client.ask("hello", messageId="m-1")
            frames = await client.done()

        assert types(frames) == ["task.created", "task.updated", "task.updated", "task.completed"]
        assert frames[0]["messageId"] == "m-1"
        seqs = [frame["seq"] for frame in frames]
        assert seqs == sorted(set(seqs))
        assert frames[-1]["task"]["artifacts"][0]["content"] == [{"type": "text", "content": "echo: hello"}]
        assert (frames[-1]["task"]["agentId"], frames[-1]["task"]["userId"]) == ("ada", "laptop")


async def test_each_of_several_tasks_on_one_socket_is_sent_once() -> None:
    async with working(AgentHarness()) as harness:
        async with connected(harness) as client:
            for number in range(5):
                client.ask(f"hello {number}")
            frames = await client.done(5)

        assert types(frames).count("task.created") == 5
        for created in (frame for frame in frames if frame["type"] == "task.created"):
            own = [frame for frame in frames if frame.get("task", {}).get("id") == created["taskId"]]
            assert types(own) == ["task.updated", "task.updated", "task.completed"]
        assert len({frame["seq"] for frame in frames}) == len(frames)


async def test_a_client_that_reconnects_resumes_after_the_last_seq() -> None:
    async with working(AgentHarness()) as harness:
        async with connected(harness) as client:
            client.ask("hello")
            whole = list(await client.done())
        for cut in range(len(whole)):
            async with connected(harness) as again:
                after = whole[cut]["seq"]
                again.say({"type": "subscribe", "taskId": f"ada:{whole[0]['taskId']}", "after": after})
                again.say({"type": "ping"})
                rest = await again.until(lambda frames: "pong" in types(frames))
                if cut < len(whole) - 1:
                    rest = await again.done()
            assert [frame for frame in rest if frame["type"] != "pong"] == whole[cut + 1 :]


async def test_a_task_that_is_subscribed_again_is_sent_again_from_that_seq() -> None:
    async with working(AgentHarness()) as harness:
        harness.driver.go_on.clear()
        async with connected(harness) as client:
            client.ask("hello")
            await client.until(lambda frames: len(frames) >= 2)
            task_id = client.frames[0]["taskId"]
            client.say({"type": "subscribe", "taskId": task_id, "after": 0})
            await client.until(lambda frames: types(frames).count("task.created") == 2)
            harness.driver.go_on.set()
            frames = await client.done()

        assert types(frames).count("task.completed") == 1


def questions() -> AgentHarness:
    def plot(turn: Turn) -> list[TurnEvent]:
        end = InputRequested((TextPart(text="which?"),)) if turn.first else Answered(parts=(), source="script")
        return [Submitted("script", "taken"), end]

    return AgentHarness(FakeDriver(plot))


async def test_a_follow_up_goes_on_with_its_task_on_the_same_socket_and_on_another() -> None:
    def is_asked(frame: Frame, task_id: str) -> bool:
        task = frame.get("task", {})
        return task.get("id") == task_id and bool(task["artifacts"])

    async with working(questions()) as harness, connected(harness) as client:
        client.ask("hello")
        await client.until(lambda frames: any(frame.get("task", {}).get("artifacts") for frame in frames))
        task_id = client.frames[0]["taskId"]
        client.ask("this one", taskId=task_id)
        frames = await client.done()
        assert types(frames).count("task.created") == 1

        client.ask("hello again")
        await client.until(lambda frames: types(frames).count("task.created") == 2)
        other = next(frame["taskId"] for frame in reversed(client.frames) if frame["type"] == "task.created")
        await client.until(lambda frames: any(is_asked(frame, other) for frame in frames))
        async with connected(harness) as second:
            second.ask("that one", taskId=other)
            seen = await second.done()
        assert {frame["task"]["id"] for frame in seen} == {other}


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ("not JSON", "INVALID_REQUEST"),
        (b"binary", "INVALID_REQUEST"),
        ("", "INVALID_REQUEST"),
        ("[]", "INVALID_REQUEST"),
        ({"type": "dance"}, "INVALID_REQUEST"),
        ({"type": "message", "agentId": "ada", "message": "hello"}, "INVALID_REQUEST"),
        ({"type": "subscribe", "taskId": "no-such"}, "TASK_NOT_FOUND"),
        ({"type": "message", "agentId": "ada", "message": [{"type": "text", "content": ""}], "taskId": "none"},
         "TASK_NOT_FOUND"),
    ],
)  # fmt: skip
async def test_an_invalid_frame_is_answered_with_an_error_and_the_session_goes_on(frame: object, code: str) -> None:
    async with working(AgentHarness()) as harness:
        async with connected(harness) as client:
            client.say(frame)
            client.say({"type": "ping"})
            error, pong = await client.until(lambda frames: len(frames) == 2)

        assert (error["type"], error["error"]["code"], error["seq"]) == ("error", code, 0)
        assert pong == {"type": "pong", "seq": 0}


async def test_an_error_names_what_it_is_about() -> None:
    async with working(AgentHarness()) as harness:
        async with connected(harness) as client:
            client.say({"type": "subscribe", "taskId": "no-such"})
            client.ask("hello", messageId="m-1", taskId="none")
            errors = await client.until(lambda frames: len(frames) == 2)

        assert (errors[0]["taskId"], errors[1]["messageId"]) == ("no-such", "m-1")


async def test_each_frame_counts_as_a_request() -> None:
    def too_many(caller: Caller) -> None:
        assert caller is LAPTOP
        raise RateLimited("too many requests", seconds=1)

    async with working(AgentHarness()) as harness:
        async with connected(harness, count=too_many) as client:
            client.ask("hello")
            (error,) = await client.until(len)

        assert error["error"]["code"] == "RATE_LIMITED"
        assert harness.driver.turns == []


async def test_a_reader_that_takes_nothing_is_asked_to_come_back_after_the_last_seqs() -> None:
    async with working(AgentHarness()) as harness:
        async with connected(harness, slow_seconds=0.05) as client:
            client.ask("hello")
            await client.done()
            client.takes.clear()
            client.ask("more")
            await client.until(lambda _: client.closed)

        assert client.closed == (hub_socket.TRY_AGAIN_LATER, "too slow; resume each task after its last seq")


async def test_a_client_that_only_listens_has_to_authenticate_again() -> None:
    async with working(AgentHarness()) as harness:
        async with connected(harness, longest_seconds=0.05) as client:
            await client.until(lambda _: client.closed)

        reason = "show your credentials again; resume each task after its last seq"
        assert client.closed == (hub_socket.TRY_AGAIN_LATER, reason)


async def test_no_task_is_followed_for_a_client_that_has_left() -> None:
    async with working(AgentHarness()) as harness:
        harness.driver.go_on.clear()
        async with connected(harness) as client:
            client.ask("hello")
            await client.until(len)
            task_id = client.frames[0]["taskId"]
            assert harness.feed.is_followed(task_id)

        assert not harness.feed.is_followed(task_id)


OWN, FAR = numbered(1), numbered(2)


class TwoMachines:
    """Two tasks, one of another machine. Each machine counts its own events: this one's log is long."""

    def __init__(self) -> None:
        self.own = Update(51, None, rebuild(None, (opened(OWN),)))
        event = opened(FAR)
        first = rebuild(None, (event,))
        self.far = (Update(1, event, first), Update(2, None, rebuild(first, (moved(TaskState.WORKING, FAR),))))
        self.breaks = asyncio.Event()
        """Set once the other machine cannot be read any more."""

    async def handle(self, request: Request[object], caller: Caller) -> Any:
        assert caller is LAPTOP
        if isinstance(request, SubscribeTask):
            return self._updates(request)
        return self.far[-1].task

    async def _updates(self, request: SubscribeTask) -> AsyncGenerator[Update, None]:
        for update in (self.own,) if request.task_id == OWN else self.far:
            yield update
        await self.breaks.wait()
        if request.task_id == FAR:
            raise LinkDown("the link does not run")


async def test_what_is_told_of_a_task_has_a_seq_of_that_task() -> None:
    """A client resumes each task after its last seq; after one of another machine it would miss the end of the task."""
    machines = TwoMachines()
    async with connected_to(machines) as client:
        client.say({"type": "subscribe", "taskId": FAR, "after": 0})
        await client.until(lambda frames: len(frames) == 2)
        client.say({"type": "subscribe", "taskId": OWN, "after": 0})
        await client.until(lambda frames: len(frames) == 3)
        client.ask("and this", taskId=FAR)
        client.say({"type": "ping"})
        await client.until(lambda frames: len(frames) == 5)
        machines.breaks.set()
        frames = await client.until(lambda frames: len(frames) == 6)

    assert [(frame["type"], frame["seq"]) for frame in frames[2:]] == [
        ("task.updated", 51),
        ("task.updated", 2),
        ("pong", 0),
        ("error", 2),
    ]
    assert frames[5]["taskId"] == FAR


def chatty() -> AgentHarness:
    def plot(_turn: Turn) -> list[TurnEvent]:
        chunk = Artifact(artifact_id="a", parts=(TextPart(text="x"),))
        chunks: list[TurnEvent] = [ArtifactProduced(artifact=chunk, append=True) for _ in range(200)]
        return [Submitted("script", "taken"), *chunks, Answered(parts=(), source="script")]

    harness = AgentHarness(FakeDriver(plot))
    harness.feed = Feed(harness.journal, harness.store, buffer=2)
    harness.service = harness._service(ME)  # pyright: ignore[reportPrivateUsage]  # again, over that feed
    return harness


async def test_a_reader_that_is_too_slow_for_the_feed_loses_and_repeats_nothing() -> None:
    def artifacts(frame: Frame) -> bool:
        return bool(frame.get("task", {}).get("artifacts"))

    async with working(chatty()) as harness:
        async with connected(harness) as client:
            client.ask("hello")
            await client.until(len)
            client.takes.clear()
            ended = False
            async with asyncio.timeout(BOUND):
                async for update in Feed(harness.journal, harness.store).follow(client.frames[0]["taskId"]):
                    ended = update.task.state.is_terminal
            assert ended
            client.takes.set()
            frames = await client.done()

        grown = [len(frame["task"]["artifacts"][0]["content"][0]["content"]) for frame in frames if artifacts(frame)]
        assert grown == sorted(grown)
        assert set(range(1, 201)) == set(grown)
        assert len({frame["seq"] for frame in frames}) == len(frames)


async def test_one_socket_follows_only_so_many_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_socket, "MAX_TASKS", 2)

    async with working(AgentHarness()) as harness:
        harness.driver.go_on.clear()
        async with connected(harness) as client:
            for number in range(3):
                client.ask(f"hello {number}")
            frames = await client.until(lambda frames: "error" in types(frames))
            error = next(frame for frame in frames if frame["type"] == "error")
            assert error["error"]["code"] == "RATE_LIMITED"
            first = frames[0]["taskId"]
            # A task that is followed already does not count again.
            client.say({"type": "subscribe", "taskId": first, "after": 0})
            await client.until(lambda frames: types(frames).count("task.created") == 3)
            harness.driver.go_on.set()
            await client.done(2)
