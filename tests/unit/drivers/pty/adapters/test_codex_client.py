"""A second client of Codex's app-server reports turns, answers questions and sends messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from synapse.core.question import Choice
from synapse.drivers.pty.adapters import codex_client
from synapse.drivers.pty.adapters.adapter import NotTaken
from synapse.drivers.pty.adapters.codex_client import CodexClient
from synapse.terminal.signals.report import SignalKind
from tests.unit.drivers.pty.adapters.fake_app_server import THREAD, FakeAppServer
from tests.unit.drivers.pty.adapters.launches import until
from tests.unit.drivers.pty.adapters.listeners import KeepingListener

Kept = TypeVar("Kept")


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
        evidence = await client.send("hello\n  there\x1b[2J")
        await until(lambda: any(report.kind is SignalKind.ANSWERED for report in listener.reports))
        assert [report.text for report in listener.reports] == ["", "hello\n  there[2J", "ECHO hello\n  there[2J"]
        return evidence

    assert await with_client(tmp_path, server, work) == "its server began the turn turn-1"
    params = {"threadId": THREAD, "input": [{"type": "text", "text": "hello\n  there[2J"}]}
    assert server.calls("turn/start") == [params]


async def test_a_refusal_means_that_nothing_was_taken(tmp_path: Path) -> None:
    async def work(client: CodexClient, _listener: KeepingListener) -> None:
        await client.send("hello")

    with pytest.raises(NotTaken, match=r"refused the message: the model is\[2J gone"):
        await with_client(tmp_path, FakeAppServer(refuses_turns=True), work)


async def test_a_server_that_goes_away_over_a_message_leaves_doubt(tmp_path: Path) -> None:
    async def work(client: CodexClient, _listener: KeepingListener) -> None:
        with pytest.raises(ConnectionResetError):
            await client.send("hello")
        await until(lambda: client.is_ready)

    server = FakeAppServer(hangs_up=True)
    await with_client(tmp_path, server, work)

    assert len(server.calls("turn/start")) == 1


async def test_before_the_terminal_has_a_conversation_nothing_is_sent(tmp_path: Path) -> None:
    server = FakeAppServer(threads=[])
    async with connected(tmp_path, server) as (client, _):
        await until(lambda: bool(server.calls("thread/loaded/list")))
        assert not client.is_ready
        with pytest.raises(NotTaken):
            await client.send("hello")
        await server.notify("thread/started", thread={"id": "new", "ephemeral": False})
        await until(lambda: client.is_ready)
        await client.send("hello")
        assert server.calls("turn/start")[0]["threadId"] == "new"


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
