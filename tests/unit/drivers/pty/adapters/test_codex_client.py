"""A second client of Codex's app-server reports turns, answers questions and sends messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from synapse.core.driver import SendOutcome
from synapse.core.question import Choice
from synapse.drivers.pty.adapters import codex_client
from synapse.drivers.pty.adapters.adapter import Busy, NotTaken
from synapse.drivers.pty.adapters.codex_client import CodexClient
from synapse.terminal.signals.report import SignalKind
from tests.unit.drivers.pty.adapters.fake_app_server import THREAD, UNREADABLE, FakeAppServer
from tests.unit.drivers.pty.adapters.launches import until
from tests.unit.drivers.pty.adapters.listeners import KeepingListener

Kept = TypeVar("Kept")
KEY = "synapse:task:message"
TAKEN = "its server took the message from its queue into a turn of its own"


def is_there(_socket: Path) -> bool:
    return True


@pytest.fixture(autouse=True)
def _the_terminal_is_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codex_client, "_has_client", is_there)
    monkeypatch.setattr(codex_client, "_BLIND_SECONDS", 0.0)


@asynccontextmanager
async def connected(folder: Path, server: FakeAppServer) -> AsyncGenerator[tuple[CodexClient, KeepingListener], None]:
    listener = KeepingListener()
    await server.open(folder / "s")
    client = CodexClient(folder / "s", listener.report, lambda: False)
    client.start()
    try:
        yield client, listener
    finally:
        client.stop()
        await server.close()


async def with_client(
    folder: Path, server: FakeAppServer, work: Callable[[CodexClient, KeepingListener], Awaitable[Kept]]
) -> Kept:
    async with connected(folder, server) as (client, listener):
        await until(lambda: client.is_ready)
        return await work(client, listener)


async def test_the_first_turn_is_reported_though_it_was_over_before_we_subscribed(tmp_path: Path) -> None:
    server = FakeAppServer(resumes_after=3)

    async def work(client: CodexClient, listener: KeepingListener) -> str:
        evidence = await client.send("hello\n  there\x1b[2J", KEY)
        await until(lambda: any(report.kind is SignalKind.ANSWERED for report in listener.reports))
        assert [report.text for report in listener.reports] == ["", "hello\n  there[2J", "ECHO hello\n  there[2J"]
        assert [report.key for report in listener.reports] == ["", KEY, ""]
        return evidence

    assert await with_client(tmp_path, server, work) == TAKEN
    params = {"threadId": THREAD, "input": [{"type": "text", "text": "hello\n  there[2J"}], "clientUserMessageId": KEY}
    assert server.calls("thread/queue/add") == [params]
    assert server.calls("turn/start") == []


async def test_a_conversation_that_its_terminal_resumes_later_is_found_and_noted(tmp_path: Path) -> None:
    server, noted = FakeAppServer(threads=[]), list[str]()
    listener = KeepingListener()
    await server.open(tmp_path / "s")
    client = CodexClient(tmp_path / "s", listener.report, lambda: False, converse=noted.append)
    client.start()
    try:
        await until(lambda: bool(server.calls("thread/loaded/list")))
        server.threads.append(THREAD)
        await until(lambda: client.is_ready)
        before = list(noted)
        await client.send("hello", KEY)
        await until(lambda: any(report.kind is SignalKind.ANSWERED for report in listener.reports))
        await server.notify("thread/started", thread={"id": "another"})
        await until(lambda: noted[-1:] == [""])
    finally:
        client.stop()
        await server.close()

    assert (before, noted) == ([], [THREAD, ""])


async def send_hello(client: CodexClient, _listener: KeepingListener) -> str:
    return await client.send("hello", KEY)


async def test_an_older_server_without_a_queue_is_given_a_turn(tmp_path: Path) -> None:
    server = FakeAppServer(has_queue=False)

    assert await with_client(tmp_path, server, send_hello) == "its server began the turn turn-1"
    assert server.calls("turn/start") == [{"threadId": THREAD, "input": [{"type": "text", "text": "hello"}]}]
    assert server.calls("thread/queue/add") == []


async def test_a_message_in_a_queue_that_rests_is_started(tmp_path: Path) -> None:
    server = FakeAppServer(rests=True)
    # A person's own message that waits there stays there.
    server.queue.append({"id": "theirs", "input": [], "clientUserMessageId": "another"})

    assert await with_client(tmp_path, server, send_hello) == "its server began the turn turn-1"
    assert [entry["id"] for entry in server.queue] == ["theirs"]


async def test_behind_a_turn_that_began_first_a_message_is_withdrawn(tmp_path: Path) -> None:
    server = FakeAppServer(is_busy=True)

    with pytest.raises(Busy, match="already has an active or pending turn"):
        await with_client(tmp_path, server, send_hello)

    assert (server.queue, server.turns) == ([], [])


async def test_a_message_whose_turn_begins_before_it_can_be_withdrawn_was_taken(tmp_path: Path) -> None:
    server = FakeAppServer(is_busy=True, begins_late=True)

    assert await with_client(tmp_path, server, send_hello) == TAKEN
    assert len(server.turns) == 1


@pytest.mark.parametrize("has_queue", [True, False])
@pytest.mark.parametrize("keeps_refused", [True, False])
async def test_a_refusal_means_that_nothing_was_taken(tmp_path: Path, *, has_queue: bool, keeps_refused: bool) -> None:
    server = FakeAppServer(refuses_turns=True, has_queue=has_queue, keeps_refused=keeps_refused and has_queue)

    with pytest.raises(NotTaken, match=r"refused the message: the model is\[2J gone") as refused:
        await with_client(tmp_path, server, send_hello)

    assert not isinstance(refused.value, Busy)
    assert server.queue == []


@pytest.mark.parametrize(("has_queue", "method"), [(True, "thread/queue/add"), (False, "turn/start")])
async def test_a_server_that_goes_away_over_a_message_leaves_doubt(
    tmp_path: Path, *, has_queue: bool, method: str
) -> None:
    async def work(client: CodexClient, _listener: KeepingListener) -> None:
        with pytest.raises(ConnectionResetError):
            await client.send("hello", KEY)
        await until(lambda: client.is_ready)

    server = FakeAppServer(hangs_up=True, has_queue=has_queue)
    await with_client(tmp_path, server, work)

    assert len(server.calls(method)) == 1


async def test_a_message_is_found_by_its_key_after_the_connection_broke(tmp_path: Path) -> None:
    server = FakeAppServer(hangs_up_after=True)

    assert await with_client(tmp_path, server, send_hello) == TAKEN
    assert len(server.turns) == 1


async def test_a_message_that_is_still_queued_after_the_connection_broke_is_withdrawn(tmp_path: Path) -> None:
    server = FakeAppServer(hangs_up_after=True, rests=True)

    with pytest.raises(Busy, match="withdrawn from its queue"):
        await with_client(tmp_path, server, send_hello)

    assert (server.queue, server.turns) == ([], [])


async def reconciled(client: CodexClient, _listener: KeepingListener) -> SendOutcome:
    return await client.reconcile(KEY)


async def test_a_message_that_an_earlier_host_left_in_the_queue_is_withdrawn(tmp_path: Path) -> None:
    server = FakeAppServer(threads=[UNREADABLE, THREAD])
    server.queue = [{"id": f"q-{key}", "input": [], "clientUserMessageId": key} for key in ("another", KEY)]

    assert await with_client(tmp_path, server, reconciled) is SendOutcome.WITHDRAWN
    assert [entry["clientUserMessageId"] for entry in server.queue] == ["another"]


async def test_a_message_that_an_earlier_host_had_sent_is_found_in_its_turn(tmp_path: Path) -> None:
    server = FakeAppServer(threads=[UNREADABLE, THREAD])
    said: dict[str, Any] = {"type": "userMessage", "clientId": KEY, "content": []}
    server.turns = [{"id": "turn-1", "status": "interrupted", "items": [said]}]

    assert await with_client(tmp_path, server, reconciled) is SendOutcome.TAKEN


@pytest.mark.parametrize("has_queue", [True, False])
async def test_a_message_that_is_nowhere_stays_in_doubt(tmp_path: Path, *, has_queue: bool) -> None:
    server = FakeAppServer(has_queue=has_queue)

    assert await with_client(tmp_path, server, reconciled) is SendOutcome.UNKNOWN


async def test_before_the_terminal_has_a_conversation_nothing_is_sent(tmp_path: Path) -> None:
    server = FakeAppServer(threads=[])
    async with connected(tmp_path, server) as (client, _):
        await until(lambda: bool(server.calls("thread/loaded/list")))
        assert not client.is_ready
        with pytest.raises(NotTaken):
            await client.send("hello", KEY)
        await server.notify("thread/started", thread={"id": "new", "ephemeral": False})
        await until(lambda: client.is_ready)
        await client.send("hello", KEY)
        assert server.calls("thread/queue/add")[0]["threadId"] == "new"


APPROVAL = {"threadId": THREAD, "turnId": "t", "itemId": "i", "command": "touch x"}


async def asked(server: FakeAppServer, listener: KeepingListener) -> str:
    await server.ask(5, "item/commandExecution/requestApproval", **APPROVAL)
    await until(lambda: any(report.question for report in listener.reports))
    question = listener.reports[-1].question
    assert question is not None
    return question.id


async def test_an_approval_is_answered_with_the_decision(tmp_path: Path) -> None:
    server = FakeAppServer()

    async def work(client: CodexClient, listener: KeepingListener) -> bool:
        answering = asyncio.create_task(client.answer(await asked(server, listener), Choice(option="1")))
        await until(lambda: bool(server.answers()))
        await server.notify("serverRequest/resolved", threadId=THREAD, requestId=5)
        return await answering

    assert await with_client(tmp_path, server, work)
    assert server.answers() == [{"id": 5, "result": {"decision": "accept"}}]


async def test_a_question_that_the_person_answered_first_is_not_answered_again(tmp_path: Path) -> None:
    server = FakeAppServer()

    async def work(client: CodexClient, listener: KeepingListener) -> bool:
        question = await asked(server, listener)
        await server.notify("serverRequest/resolved", threadId=THREAD, requestId=5)
        await until(lambda: listener.reports[-1].kind is SignalKind.WORKING)
        return await client.answer(question, Choice(option="1"))

    assert not await with_client(tmp_path, server, work)
    assert server.answers() == []


@pytest.mark.skipif(not Path("/proc/net/unix").exists(), reason="this system does not show connections")
async def test_the_client_waits_for_the_tui_because_the_first_client_names_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[Path] = []

    def has_client(socket: Path) -> bool:
        looks.append(socket)
        return len(looks) > 2

    monkeypatch.setattr(codex_client, "_has_client", has_client)
    server = FakeAppServer()

    async def work(_client: CodexClient, _listener: KeepingListener) -> list[str]:
        return [str(message.get("method")) for message in server.said[:2]]

    assert await with_client(tmp_path, server, work) == ["initialize", "initialized"]
    assert len(looks) == 3
