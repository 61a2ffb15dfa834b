"""Messages to external agents over real sockets, in each protocol."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from synapse.core.errors import ExternalAgentFailed, ExternalAgentUnreachable, WaitTimedOut
from synapse.core.message import Message, MessageId, Role, TextPart
from synapse.core.requests import AddExternal, ExternalAgent, ExternalAnswer, SendExternal
from synapse.external.agents import Externals
from tests.fakes.strangers import (
    Heard,
    Object,
    Said,
    Stranger,
    card_0_3,
    card_1_0,
    card_synapse,
    rpc,
    stranger_at_home,
)

CARD_PATH = "/.well-known/agent-card.json"
OLD_CARD_PATH = "/.well-known/agent.json"


async def add(externals: Externals, url: str) -> ExternalAgent:
    return await externals.add(AddExternal(url=url, alias="other"))


async def send(externals: Externals, text: str = "hi", seconds: float = 10) -> ExternalAnswer:
    message = Message(message_id=MessageId("m-1"), role=Role.USER, parts=(TextPart(text=text),))
    return await externals.send(SendExternal(alias="other", message=message), seconds=seconds)


def task(state: str, *texts: str) -> Object:
    artifacts = [{"artifactId": f"a-{number}", "parts": [{"text": text}]} for number, text in enumerate(texts)]
    return {"id": "t-1", "contextId": "c", "status": {"state": state}, "artifacts": artifacts}


async def test_a_2a_1_0_agent_answers_over_json_rpc(stranger: Stranger, externals: Externals) -> None:
    stranger.serves(CARD_PATH, card_1_0(f"{stranger.url}/rpc"))
    stranger.routes["/rpc"] = lambda heard: Said(rpc(heard, {"task": task("TASK_STATE_COMPLETED", "hello")}))
    await add(externals, stranger.url)

    answer = await send(externals, "hi")

    assert (answer.task_id, answer.state, answer.text) == ("t-1", "completed", "hello")
    heard = stranger.heard[-1]
    assert heard.headers["A2A-Version"] == "1.0"
    assert heard.body["method"] == "SendMessage"
    assert heard.body["params"]["message"]["parts"] == [{"text": "hi"}]


async def test_a_2a_1_0_agent_answers_over_rest(stranger: Stranger, externals: Externals) -> None:
    stranger.serves(CARD_PATH, card_1_0(f"{stranger.url}/v1", binding="HTTP+JSON"))
    stranger.serves("/v1/message:send", {"message": {"messageId": "x", "parts": [{"text": "directly"}]}})
    await add(externals, stranger.url)

    assert (await send(externals)).text == "directly"


async def test_a_2a_0_3_agent_answers(stranger: Stranger, externals: Externals) -> None:
    stranger.serves(OLD_CARD_PATH, card_0_3(f"{stranger.url}/"))
    stranger.routes["/"] = lambda heard: Said(rpc(heard, {"kind": "task", **task("completed", "hello")}))
    await add(externals, stranger.url)

    assert ((await send(externals)).state, (await send(externals)).text) == ("completed", "hello")
    assert stranger.heard[-1].body["method"] == "message/send"


@pytest.mark.parametrize(
    ("card", "words"),
    [(card_1_0, ("task", "artifactUpdate", "statusUpdate")), (card_0_3, ("task", "artifact-update", "status-update"))],
)
async def test_an_agent_with_streams_is_followed_to_the_end(
    stranger: Stranger, externals: Externals, card: Callable[..., Object], words: tuple[str, str, str]
) -> None:
    def event(word: str, fields: Object) -> Object:
        return {"kind": word, **fields} if card is card_0_3 else {word: fields}

    def stream(heard: Heard) -> Said:
        chunk = {"taskId": "t-1", "artifact": {"artifactId": "a", "parts": [{"text": "hel"}]}}
        more = {"taskId": "t-1", "artifact": {"artifactId": "a", "parts": [{"text": "lo"}]}, "append": True}
        events = [
            event(words[0], task("working")),
            event(words[1], chunk),
            event(words[1], more),
            event(words[2], {"taskId": "t-1", "status": {"state": "completed"}}),
        ]
        return Said(events=[rpc(heard, result) for result in events])

    stranger.serves(CARD_PATH, card(f"{stranger.url}/rpc", streaming=True))
    stranger.routes["/rpc"] = stream
    await add(externals, stranger.url)

    answer = await send(externals)

    assert (answer.task_id, answer.state, answer.text) == ("t-1", "completed", "hello")


async def test_a_synapse_agent_is_followed_to_its_answer(stranger: Stranger, externals: Externals) -> None:
    def said(status: str, *texts: str) -> Object:
        artifacts = [{"artifact_id": "a", "parts": [{"type": "text", "text": text}]} for text in texts]
        return {"task": {"id": "t/1", "status": status, "artifacts": artifacts}}

    stranger.serves(OLD_CARD_PATH, card_synapse("http://localhost:1"))
    stranger.serves("/tasks/send", said("submitted"))
    stranger.routes["/tasks/t%2F1/subscribe"] = lambda _heard: Said(
        events=[said("submitted"), said("working"), said("completed", "hello")]
    )
    await add(externals, stranger.url)

    answer = await send(externals, "hi")

    assert (answer.task_id, answer.state, answer.text) == ("t/1", "completed", "hello")
    sent = next(heard for heard in stranger.heard if heard.path == "/tasks/send")
    assert sent.body == {
        "message": {"role": "user", "parts": [{"type": "text", "text": "hi"}], "message_id": "m-1"},
    }


async def test_a_synapse_agent_without_streams_has_at_least_taken_the_message(
    stranger: Stranger, externals: Externals
) -> None:
    stranger.serves(OLD_CARD_PATH, card_synapse(stranger.url))
    stranger.serves("/tasks/send", {"task": {"id": "t-1", "status": "working"}})
    await add(externals, stranger.url)

    answer = await send(externals)

    assert (answer.task_id, answer.state, answer.text) == ("t-1", "working", "")


def slow_stream(stranger: Stranger, heard: Heard) -> Said:
    def events() -> Iterator[Any]:
        yield rpc(heard, {"task": task("TASK_STATE_WORKING")})
        stranger.until_released()

    return Said(events=events())


async def test_a_slow_answer_leaves_the_task_working(stranger: Stranger, externals: Externals) -> None:
    stranger.serves(CARD_PATH, card_1_0(f"{stranger.url}/rpc", streaming=True))
    stranger.routes["/rpc"] = lambda heard: slow_stream(stranger, heard)
    await add(externals, stranger.url)

    answer = await send(externals, seconds=0.3)

    assert (answer.task_id, answer.state) == ("t-1", "working")


async def test_a_silent_agent_is_a_timeout(stranger: Stranger, externals: Externals) -> None:
    def silent(_heard: Heard) -> Said:
        stranger.until_released()
        return Said({})

    stranger.serves(CARD_PATH, card_1_0(f"{stranger.url}/rpc"))
    stranger.routes["/rpc"] = silent
    await add(externals, stranger.url)

    with pytest.raises(WaitTimedOut, match=r"'other' has not answered within 0\.2 seconds"):
        await send(externals, seconds=0.2)


async def test_a_broken_stream_leaves_the_task_working(stranger: Stranger, externals: Externals) -> None:
    stranger.serves(CARD_PATH, card_1_0(f"{stranger.url}/rpc", streaming=True))
    stranger.routes["/rpc"] = lambda heard: Said(events=[rpc(heard, {"task": task("working")}), "nonsense"])
    await add(externals, stranger.url)

    assert (await send(externals)).state == "working"


async def test_cancelling_the_caller_closes_the_connection_at_once(stranger: Stranger, externals: Externals) -> None:
    arrived = threading.Event()

    def endless(heard: Heard) -> Iterator[Object]:
        while not stranger.released.wait(0.01):
            arrived.set()
            yield rpc(heard, {"task": task("TASK_STATE_WORKING")})

    stranger.serves(CARD_PATH, card_1_0(f"{stranger.url}/rpc", streaming=True))
    stranger.routes["/rpc"] = lambda heard: Said(events=endless(heard))
    await add(externals, stranger.url)

    sending = asyncio.ensure_future(send(externals, seconds=600))
    assert await asyncio.to_thread(arrived.wait, 10)
    sending.cancel()

    with pytest.raises(asyncio.CancelledError):
        await sending
    assert await asyncio.to_thread(stranger.hung_up.wait, 10)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (Said({"jsonrpc": "2.0", "id": 1, "error": {"code": -32601, "message": "no such method"}}), "no such method"),
        (Said({"error": {"message": "broken inside"}}, 500), r"it refused \(status 500\): broken inside"),
        (Said({}, 403), "it wants credentials"),
        (Said(raw=b"ok", headers={"Content-Type": "text/plain"}), "its answer is not JSON"),
        (Said({"jsonrpc": "2.0", "result": None}), "neither a task nor a message"),
        (Said(status=308, headers={"Location": "http://elsewhere/"}), "it redirects to http://elsewhere/"),
        (Said(events=[]), "neither a task nor a message"),
    ],
)
@pytest.mark.parametrize("streaming", [True, False])
async def test_an_agent_that_refuses_or_sends_nonsense_is_an_error(
    stranger: Stranger, externals: Externals, said: Said, expected: str, streaming: bool
) -> None:
    stranger.serves(CARD_PATH, card_1_0(f"{stranger.url}/rpc", streaming=streaming))
    stranger.routes["/rpc"] = lambda _heard: said
    await add(externals, stranger.url)
    if said.events is not None and not streaming:
        expected = "its answer is not JSON"

    with pytest.raises(ExternalAgentFailed, match=expected) as caught:
        await send(externals)

    assert str(caught.value).startswith("'other': ")


@pytest.mark.parametrize(
    ("lines", "said"), [(5000, "its stream is longer than 10000 bytes"), (1, "neither a task nor a message")]
)
async def test_a_stream_without_end_is_cut_off(
    monkeypatch: pytest.MonkeyPatch, stranger: Stranger, externals: Externals, lines: int, said: str
) -> None:
    monkeypatch.setattr("synapse.external.requests.LARGEST_ANSWER", 10_000)
    stranger.serves(CARD_PATH, card_1_0(f"{stranger.url}/rpc", streaming=True))
    stranger.routes["/rpc"] = lambda heard: Said(events=[rpc(heard, {}) for _ in range(lines)])
    await add(externals, stranger.url)

    with pytest.raises(ExternalAgentFailed, match=said):
        await send(externals)


async def test_an_agent_that_has_stopped_is_unreachable(tmp_path: Path, externals: Externals) -> None:
    with stranger_at_home() as stranger:
        stranger.serves(CARD_PATH, card_1_0(f"{stranger.url}/rpc"))
        await add(externals, stranger.url)

    with pytest.raises(ExternalAgentUnreachable, match="'other': nothing listens at"):
        await send(externals)
