"""RemoteDriver over real sockets: connections break, servers disconnect, and nothing is sent twice."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from pathlib import Path

import pytest

from synapse.config.process import SystemClock
from synapse.core.driver import Answered, ArtifactProduced, Failed, Turn, TurnEvent, TurnStarted
from synapse.core.errors import ExternalAgentFailed
from synapse.core.message import Message, MessageId, Role, TextPart
from synapse.core.requests import ExternalAgent
from synapse.core.task import TaskId
from synapse.external.client import MOST_AT_ONCE, A2AClient
from synapse.external.conversation import Timeouts
from synapse.external.driver import FileTaskRefs, RemoteDriver
from tests.fakes.strangers import Heard, Object, Said, Stranger, card_0_3, card_1_0, rpc, rude_server

BOUND = 30.0
TIMEOUTS = Timeouts(first_pause=0.01, answer=10.0, lost=10.0)


def task(state: str, text: str = "") -> Object:
    artifacts = [{"artifactId": "a", "parts": [{"text": text}]}] if text else []
    return {"id": "r-1", "contextId": "c", "status": {"state": state}, "artifacts": artifacts}


async def events_of(card: Object, url: str, folder: Path, *, interrupts: bool = False) -> list[TurnEvent]:
    agent = ExternalAgent(alias="other", url=url, name="Other", card=card)
    client = A2AClient(credentials=lambda _alias: {"X-Key": "k"})
    driver = RemoteDriver(agent, client, FileTaskRefs(folder / "t.json"), SystemClock(), TIMEOUTS)
    message = Message(message_id=MessageId("m-1"), role=Role.USER, parts=(TextPart(text="hi"),))
    events: list[TurnEvent] = []
    async with asyncio.timeout(BOUND):
        async for event in driver.take_turn(Turn(task_id=TaskId("t"), message=message, text="hi", first=True)):
            events.append(event)
            if interrupts and isinstance(event, TurnStarted):
                assert await driver.interrupt()
    return events


def methods(stranger: Stranger) -> list[str]:
    return [heard.body["method"] for heard in stranger.heard]


async def test_a_task_is_followed_again_after_its_server_died_within_a_stream(
    stranger: Stranger, tmp_path: Path
) -> None:
    looks = iter([Said({}, 503), None])

    def reply(heard: Heard) -> Said:
        match heard.body["method"]:
            case "SendStreamingMessage":
                # Then it closes the connection.
                return Said(events=[rpc(heard, {"task": task("TASK_STATE_WORKING", "hel")})])
            case "GetTask":
                return next(looks) or Said(rpc(heard, task("TASK_STATE_WORKING", "hel")))
            case _:
                done = {"taskId": "r-1", "status": {"state": "TASK_STATE_COMPLETED"}}
                return Said(
                    events=[
                        rpc(heard, {"task": task("TASK_STATE_WORKING", "hello")}),
                        rpc(heard, {"statusUpdate": done}),
                    ]
                )

    stranger.routes["/rpc"] = reply

    events = await events_of(card_1_0(f"{stranger.url}/rpc", streaming=True), stranger.url, tmp_path)

    assert methods(stranger) == ["SendStreamingMessage", "GetTask", "GetTask", "SubscribeToTask"]
    assert {heard.headers["X-Key"] for heard in stranger.heard} == {"k"}
    assert [event.artifact.text for event in events if isinstance(event, ArtifactProduced)] == ["hel", "lo"]
    assert isinstance(events[-1], Answered)


async def test_a_server_that_closes_the_connection_leaves_the_delivery_uncertain(tmp_path: Path) -> None:
    with rude_server(b"") as url:
        outcome = (await events_of(card_0_3(url, streaming=True), url, tmp_path))[-1]

    assert isinstance(outcome, Failed)
    assert outcome.reason == "delivery_uncertain"


async def test_a_cancel_is_sent_while_the_stream_is_open(stranger: Stranger, tmp_path: Path) -> None:
    def working(heard: Heard) -> Generator[Object]:
        yield rpc(heard, {"kind": "task", **task("working")})
        stranger.until_released()

    def reply(heard: Heard) -> Said:
        if heard.body["method"] == "message/stream":
            return Said(events=working(heard))
        return Said(rpc(heard, {"kind": "task", **task("canceled")}))

    stranger.routes["/rpc"] = reply

    events = await events_of(card_0_3(f"{stranger.url}/rpc", streaming=True), stranger.url, tmp_path, interrupts=True)

    assert methods(stranger) == ["message/stream", "tasks/cancel"]
    assert events[-1] == Failed("interrupted", "it was canceled there")


async def test_open_requests_are_limited_and_the_next_one_keeps_its_deadline(stranger: Stranger) -> None:
    def working(heard: Heard) -> Generator[Object]:
        yield rpc(heard, {"task": task("TASK_STATE_WORKING")})
        stranger.until_released()

    stranger.routes["/rpc"] = lambda heard: Said(events=working(heard))
    agent = ExternalAgent(
        alias="other", url=stranger.url, name="O", card=card_1_0(f"{stranger.url}/rpc", streaming=True)
    )

    client = A2AClient()
    streams = [client.follow(agent, "r-1", 60.0) for _ in range(MOST_AT_ONCE)]
    async with asyncio.timeout(BOUND):
        await asyncio.gather(*(anext(stream) for stream in streams))
        with pytest.raises(TimeoutError):
            await client.get_task(agent, "r-1", 0.1)
        assert len(stranger.heard) == MOST_AT_ONCE
        await streams.pop().aclose()
        following = client.follow(agent, "r-1", 60.0)
        await anext(following)
        await asyncio.gather(*(stream.aclose() for stream in (*streams, following)))


async def test_credentials_are_not_sent_where_others_could_read_them() -> None:
    card = card_1_0("http://agents.example.com/rpc")
    agent = ExternalAgent(alias="other", url="https://agents.example.com", name="Other", card=card)

    with pytest.raises(ExternalAgentFailed, match="where others could read its credentials"):
        await A2AClient(credentials=lambda _alias: {"X-Key": "k"}).get_task(agent, "t", 1.0)
