"""Messages and answers go to OpenCode by its server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from synapse.core.errors import QuestionGone
from synapse.core.question import Choice
from synapse.drivers.pty.adapters import opencode
from synapse.drivers.pty.adapters.adapter import ApiSender, NotTaken
from synapse.drivers.pty.adapters.opencode import OpenCodeSignals
from synapse.net.http_types import HttpFailed
from synapse.terminal.picture import Picture
from synapse.terminal.signals.report import SignalKind
from tests.unit.drivers.pty.adapters.fake_opencode import Asked, FakeOpenCode
from tests.unit.drivers.pty.adapters.launches import launch_in, until
from tests.unit.drivers.pty.adapters.listeners import KeepingListener
from tests.unit.terminal.golden_screens import picture

Kept = TypeVar("Kept")


@asynccontextmanager
async def running(
    folder: Path, server: FakeOpenCode, *arguments: str
) -> AsyncGenerator[tuple[OpenCodeSignals, KeepingListener], None]:
    """An OpenCode whose events are followed."""
    signals, listener = OpenCodeSignals(launch_in(folder)), KeepingListener()
    prepared = signals.prepare(arguments)
    await server.open(int(prepared.arguments[-1]))
    signals.start(listener, 0)
    try:
        await until(lambda: signals.sender() is not None)
        yield signals, listener
    finally:
        signals.stop()
        await server.close()


def sending(
    folder: Path, server: FakeOpenCode, work: Callable[[ApiSender, KeepingListener], Awaitable[Kept]], *arguments: str
) -> Kept:
    async def story() -> Kept:
        async with running(folder, server, *arguments) as (signals, listener):
            sender = signals.sender()
            assert sender is not None
            return await work(sender, listener)

    return asyncio.run(story())


async def send_hello(sender: ApiSender, _listener: KeepingListener) -> str:
    return await sender.send("hello\n  there\x1b[2J", "")


def test_the_first_message_begins_a_conversation_that_the_terminal_shows(tmp_path: Path) -> None:
    server = FakeOpenCode()

    evidence = sending(tmp_path, server, send_hello)

    assert evidence == "its server took the message, and tells of it"
    assert server.posts() == [
        Asked("POST", "/session", {}),
        Asked("POST", "/tui/select-session", {"sessionID": "ses_new"}),
        Asked("POST", "/session/ses_new/prompt_async", {"parts": [{"type": "text", "text": "hello\n  there[2J"}]}),
    ]


def test_the_agent_and_the_model_of_the_command_line_are_used(tmp_path: Path) -> None:
    server = FakeOpenCode()

    sending(tmp_path, server, send_hello, "--agent", "plan", "-m", "fake/some/model")

    body = server.posts()[-1].body
    assert (body["agent"], body["model"]) == ("plan", {"providerID": "fake", "modelID": "some/model"})


def test_a_later_message_uses_the_persons_last_conversation_agent_and_model(tmp_path: Path) -> None:
    server = FakeOpenCode()

    async def work(sender: ApiSender, listener: KeepingListener) -> None:
        await sender.send("ours", "")
        server.emit_prompt("ses_theirs", "what the person typed", "msg_2")
        await until(lambda: len([report for report in listener.reports if report.kind is SignalKind.SUBMITTED]) == 2)
        await sender.send("ours again", "")

    sending(tmp_path, server, work)

    last = server.posts()[-1]
    assert last.path == "/session/ses_theirs/prompt_async"
    assert last.body["agent"] == "plan"


HOME = picture("opencode/ready_empty")
PAGE = picture("opencode/ready_after_answer")
OURS = {"id": "ses_ours", "title": "Our work"}


def sent_after(folder: Path, server: FakeOpenCode, shown: Picture) -> list[str]:
    """Returns where a message goes when this is on the screen; `ses_ours` had a message before."""

    async def work(sender: ApiSender, listener: KeepingListener) -> None:
        server.emit_prompt("ses_ours", "what the person typed")
        await until(lambda: any(report.kind is SignalKind.SUBMITTED for report in listener.reports))
        listener.shown = shown
        await sender.send("ours", "")

    sending(folder, server, work)
    return [asked.path for asked in server.posts()]


def test_after_new_a_message_begins_the_conversation_that_is_on_the_screen(tmp_path: Path) -> None:
    server = FakeOpenCode(sessions=[OURS])

    paths = sent_after(tmp_path, server, replace(HOME, title="OpenCode"))

    assert paths == ["/session", "/tui/select-session", "/session/ses_new/prompt_async"]
    assert server.posts()[-1].body["agent"] == "plan"


@pytest.mark.parametrize(
    ("title", "sessions"),
    [
        ("OC | Our work", [OURS, {"id": "ses_old", "title": "Other work"}]),
        (
            "OC | Our work",
            [{"id": "ses_ours", "title": "Our work"}, {"id": "c", "title": "Our work", "parentID": "ses_ours"}],
        ),
        (
            "OC | A title that is much too long for...",
            [{"id": "ses_ours", "title": "A title that is much too long for it"}],
        ),
        ("OpenCode", [{"id": "ses_ours", "title": "New session - 2026-01-31T10:30:00.000Z"}]),
        ("OpenCode", []),
        ("", [OURS]),
    ],
)
def test_a_message_goes_into_the_conversation_that_is_still_shown(
    tmp_path: Path, title: str, sessions: list[dict[str, str]]
) -> None:
    paths = sent_after(tmp_path, FakeOpenCode(sessions=sessions), replace(PAGE, title=title))

    assert paths[-1] == "/session/ses_ours/prompt_async"


@pytest.mark.parametrize(
    ("title", "sessions"),
    [
        ("OC | Other work", [OURS, {"id": "ses_old", "title": "Other work"}]),
        ("OC | Our work", [OURS, {"id": "ses_old", "title": "Our work"}]),
        ("OC | Our work", []),
        ("OpenCode", [OURS]),
    ],
)
def test_a_message_is_typed_if_another_conversation_may_be_shown(
    tmp_path: Path, title: str, sessions: list[dict[str, str]]
) -> None:
    server = FakeOpenCode(sessions=sessions)

    with pytest.raises(NotTaken, match="another conversation"):
        sent_after(tmp_path, server, replace(PAGE, title=title))
    assert server.posts() == []


def test_a_message_that_was_taken_without_an_answer_is_known_by_the_event(tmp_path: Path) -> None:
    evidence = sending(tmp_path, FakeOpenCode(loses_answers=True), send_hello)

    assert evidence == "its server has the message, though it did not answer"


def test_without_answer_and_event_there_is_doubt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opencode, "_SEEN_SECONDS", 0.05)

    with pytest.raises(HttpFailed):
        sending(tmp_path, FakeOpenCode(loses_answers=True, is_mute=True), send_hello)


def test_an_answer_is_enough_where_the_events_are_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opencode, "_SEEN_SECONDS", 0.05)

    assert sending(tmp_path, FakeOpenCode(is_mute=True), send_hello) == "its server took the message"


@pytest.mark.parametrize("path", ["/session/ses_new/prompt_async", "/session", "/tui/select-session"])
@pytest.mark.parametrize("status", [400, 404, 500])
def test_a_refusal_means_that_nothing_was_taken(tmp_path: Path, path: str, status: int) -> None:
    with pytest.raises(NotTaken, match=rf"refused the message \({status}\): not like this"):
        sending(tmp_path, FakeOpenCode(statuses={path: status}), send_hello)


def test_a_server_that_is_gone_has_taken_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        server = FakeOpenCode()
        async with running(tmp_path, server) as (signals, _):
            sender = signals.sender()
            assert sender is not None
            await server.close()
            with pytest.raises(NotTaken):
                await sender.send("hello", "")
            await until(lambda: signals.sender() is None)

    asyncio.run(story())


@pytest.mark.parametrize("arguments", [("-c",), ("--session=ses_old",)])
def test_an_old_conversation_is_known_after_its_first_message(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    server = FakeOpenCode()

    with pytest.raises(NotTaken, match="after the first message"):
        sending(tmp_path, server, send_hello, *arguments)
    assert server.posts() == []


def answering(folder: Path, server: FakeOpenCode, choice: Choice, question: str = "per_1") -> bool:
    async def story() -> bool:
        async with running(folder, server) as (signals, listener):
            server.emit("permission.asked", id="per_1", sessionID="ses_1", permission="bash", always=["touch *"])
            await until(lambda: any(report.question for report in listener.reports))
            return await signals.answer(question, choice)

    return asyncio.run(story())


def test_a_permission_is_answered_by_its_server(tmp_path: Path) -> None:
    server = FakeOpenCode()

    assert answering(tmp_path, server, Choice(option="1"))
    assert server.posts() == [Asked("POST", "/permission/per_1/reply", {"reply": "once"})]


def test_an_answer_after_that_of_the_person_is_refused(tmp_path: Path) -> None:
    with pytest.raises(QuestionGone):
        answering(tmp_path, FakeOpenCode(statuses={"/permission/per_1/reply": 404}), Choice(option="1"))


@pytest.mark.parametrize(("question", "choice"), [("per_2", Choice(option="1")), ("per_1", Choice(text="why?"))])
def test_an_answer_that_the_server_cannot_express_is_left_to_keys(
    tmp_path: Path, question: str, choice: Choice
) -> None:
    server = FakeOpenCode()

    assert not answering(tmp_path, server, choice, question)
    assert server.posts() == []


def test_before_the_server_is_up_nothing_is_sent_or_answered(tmp_path: Path) -> None:
    signals = OpenCodeSignals(launch_in(tmp_path))
    signals.prepare(())

    assert signals.sender() is None
    assert not asyncio.run(signals.answer("per_1", Choice(option="1")))
