"""`@agent text` at a prompt: the person sees whether it was sent, was not sent, or may have been."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from synapse.client import watch
from synapse.config.process import SystemClock
from synapse.core.agent import AgentEntry
from synapse.core.override import override
from synapse.host import mentions
from synapse.host.mentions import MentionSender, notice_of
from synapse.registry.files import FileRegistry, own_namespace
from tests.fakes.link import FakeLink
from tests.fakes.processes import bystander
from tests.unit.cli.fake_host import FakeHost

ME = AgentEntry("synapse-claude-8100", "claude", port=8100)


class Prompt:
    """The prompt of an agent, at which a person types `@codex` lines; keeps the notices that they are shown."""

    def __init__(self, registry: FileRegistry, *, shows_answers: bool = True) -> None:
        self.mentions = MentionSender(ME, registry, SystemClock(), shows_answers=shows_answers)
        self._notices: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def keep(text: str, command: str) -> None:
            loop.call_soon_threadsafe(self._notices.put_nowait, (text, command))

        self.mentions.notify = keep

    def types(self, text: str, target: str = "codex") -> None:
        self.mentions.send(self.mentions.resolve(target) or target, text)

    async def next(self) -> tuple[str, str]:
        return await asyncio.wait_for(self._notices.get(), 30)


async def told(home: Path, text: str) -> str:
    """Returns the first notice for a person who typed `@codex text`."""
    prompt = Prompt(FileRegistry(home / "registry"))
    prompt.types(text)
    try:
        return (await prompt.next())[0]
    finally:
        prompt.mentions.stop()


async def test_a_line_is_sent_from_the_agent_at_whose_prompt_it_was_typed(tmp_path: Path) -> None:
    with FakeHost(tmp_path).serving() as host:
        assert (await told(tmp_path, "hi")).startswith("[→ codex-8120] sent  (task ")

    _, path, body = host.requests[0]
    assert (path, body["metadata"]["sender"]["sender_id"]) == ("/tasks/send", ME.agent_id)


async def test_a_line_for_an_agent_that_has_stopped_goes_to_the_program_and_the_person_is_told(tmp_path: Path) -> None:
    prompt = Prompt(FileRegistry(tmp_path / "registry"))
    (tmp_path / "logs").mkdir()
    for name in ("synapse-claude-8100", "coder", "synapse-codex-8120"):
        (tmp_path / "logs" / f"{name}.log").touch()

    # A file of the program, and the agent at whose prompt it was typed.
    assert [prompt.mentions.resolve(name) for name in ("README.md", "src/coder", "claude-8100")] == ["", "", ""]
    assert [prompt.mentions.resolve(name) for name in ("coder", "codex-8120")] == ["", ""]

    told = [await prompt.next(), await prompt.next()]
    assert told == [
        ("[coder] has stopped, so this line went to claude-8100", "synapse restart coder"),
        ("[codex-8120] has stopped, so this line went to claude-8100", "synapse restart codex-8120"),
    ]


async def test_a_line_for_an_agent_on_another_machine_is_sent_and_its_answer_shown(tmp_path: Path) -> None:
    with FakeLink(tmp_path).serving() as link:
        host = link.start("box2")
        host.on_send = lambda task: host.answer(task, "all green")
        prompt = Prompt(FileRegistry(tmp_path / "registry"))

        prompt.types("run the tests", "codex@box2")
        told = [await prompt.next(), await prompt.next()]
        prompt.types("hi", "codex@box9")
        refused = await prompt.next()
        prompt.mentions.stop()

    assert told[0][0].startswith("[→ codex-8120@box2] sent  (task ")
    assert told[1][0] == "[← codex-8120@box2] all green"
    assert refused[0] == "[→ codex@box9] not sent: the fleet has no machine 'box9'  Your text: hi"


async def test_a_line_that_names_a_machine_is_the_programs_without_a_fleet(tmp_path: Path) -> None:
    prompt = Prompt(FileRegistry(tmp_path / "registry"))

    assert prompt.mentions.resolve("codex@box2") == ""


async def test_a_suspended_host_gets_nothing(tmp_path: Path) -> None:
    with bystander() as process, FakeHost(tmp_path).serving() as host:
        host.entry.pid, host.entry.pid_started = process.pid, process.started
        host.registry.write(host.entry)
        process.stop()

        said = await told(tmp_path, "hi")

    assert said.startswith(f"[→ codex-8120] not sent: its process (pid {process.pid}) is stopped; `kill -CONT ")
    assert said.endswith("  Your text: hi")
    assert host.requests == []


async def test_a_line_is_sent_again_with_its_id_when_the_connection_breaks(tmp_path: Path) -> None:
    with FakeHost(tmp_path).serving() as host:
        host.dropped_connections = 1

        said = await told(tmp_path, "hi")

    assert said.startswith("[→ codex-8120] sent  (task ")
    first, second = (body["message"]["message_id"] for method, _, body in host.requests if method == "POST")
    assert first == second != ""


async def test_a_line_that_was_perhaps_read_may_still_arrive(tmp_path: Path) -> None:
    with FakeHost(tmp_path).serving() as host:
        host.dropped_connections = 2

        said = await told(tmp_path, "hi")

    assert said.startswith("[→ codex-8120] not confirmed: ")
    assert "it may still arrive (synapse queue codex-8120)" in said
    assert said.endswith("  Your text: hi")


async def test_a_line_is_shown_again_when_the_registry_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "registry").write_text("not a folder", encoding="utf-8")

    said = await told(tmp_path, "hi")

    assert said.startswith("[→ codex] not sent: ")
    assert said.endswith("  Your text: hi")


class DefectiveRegistry(FileRegistry):
    @override
    def entries(self) -> list[AgentEntry]:
        raise RuntimeError("a defect")


async def test_a_defect_is_logged_and_the_line_is_shown_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    prompt = Prompt(DefectiveRegistry(tmp_path / "registry"))
    prompt.mentions.send("codex", "a secret line")

    notice, _ = await prompt.next()
    assert notice.startswith("[→ codex] not confirmed: a defect; ")
    assert notice.endswith("  Your text: a secret line")
    assert "mention_failed" in caplog.messages
    assert "secret" not in caplog.text


async def test_an_answer_without_a_task_says_that_the_line_was_sent(tmp_path: Path) -> None:
    with FakeHost(tmp_path).serving() as host:
        host.refusals["/tasks/send"] = (200, {})

        assert await told(tmp_path, "hi") == "[→ codex-8120] sent"


@pytest.mark.parametrize("listens", [True, False])
async def test_a_line_that_cannot_be_sent_is_shown_again(tmp_path: Path, *, listens: bool) -> None:
    with FakeHost(tmp_path).serving() as host:
        if listens:
            host.refusals["/tasks/send"] = (429, {"error": {"code": "queue_full", "message": "1000 messages wait"}})
        else:
            host.registry.remove(host.entry.agent_id)

        said = await told(tmp_path, "hi")

    assert "not sent: " in said
    assert said.endswith("  Your text: hi")


Task = dict[str, Any]
QUESTION = {
    "id": "q1",
    "title": "Run `make`?",
    "options": [{"key": "1", "label": "Yes", "leaning": "allow"}, {"key": "2", "label": "No", "leaning": "deny"}],
}


@asynccontextmanager
async def asked(
    home: Path, *, shows_answers: bool = True
) -> AsyncGenerator[tuple[FakeHost, Prompt, Callable[[], Task]], None]:
    """A person has typed `@codex how are you` and was shown that it was sent."""
    with FakeHost(home).serving() as host:
        prompt = Prompt(host.registry, shows_answers=shows_answers)
        prompt.types("how are you")
        assert (await prompt.next())[0] == "[→ codex-8120] sent  (task 00000abc)"
        try:
            yield host, prompt, lambda: next(iter(host.tasks.values()))
        finally:
            prompt.mentions.stop()


async def test_the_answer_is_shown_with_the_command_that_shows_all_of_it(tmp_path: Path) -> None:
    async with asked(tmp_path) as (host, prompt, task):
        host.change(task(), receipt="submitted", status="working")
        host.answer(task(), "\n  The tests \x1b[31mpass.\nAll of them.")

        assert await prompt.next() == ("[← codex-8120] The tests [31mpass.", "synapse show 00000abc")


async def test_the_message_expects_a_reply_that_ends_the_receivers_task_and_no_task_waits_at_the_own_host(
    tmp_path: Path,
) -> None:
    async with asked(tmp_path) as (host, _, task):
        assert task()["metadata"]["response_expected"] is True
        assert "sender_task_id" not in task()["metadata"]
        assert [path for _, path, _ in host.requests if path == "/tasks/create"] == []


async def test_with_the_setting_off_nothing_is_expected_and_nothing_awaited(tmp_path: Path) -> None:
    async with asked(tmp_path, shows_answers=False) as (_, __, task):
        assert "response_expected" not in task()["metadata"]
        assert not [one for one in threading.enumerate() if one.name == "mention-answer"]


@pytest.mark.parametrize(
    ("end", "shown"),
    [
        ({"status": "failed", "metadata": {"note": "the model is\noverloaded"}}, "failed: the model is"),
        ({"status": "failed", "metadata": {"reason": "rejected", "note": "not for me"}}, "refused: not for me"),
        ({"status": "canceled", "metadata": {}}, "canceled"),
        ({"status": "completed", "metadata": {}}, "done, without a text"),
    ],
)
async def test_an_end_without_an_answer_is_shown_too(tmp_path: Path, end: Task, shown: str) -> None:
    async with asked(tmp_path) as (host, prompt, task):
        host.change(task(), **end)

        assert await prompt.next() == (f"[← codex-8120] {shown}", "synapse show 00000abc")


def test_a_question_on_another_machine_names_the_command_that_lists_it() -> None:
    asking: Task = {"status": "input_required", "metadata": {"reason": "waiting_for_person", "question": QUESTION}}

    assert notice_of("asker@box2", asking)[1] == "synapse approvals --all"


async def test_a_question_on_the_way_is_shown_once_and_then_the_answer(tmp_path: Path) -> None:
    async with asked(tmp_path) as (host, prompt, task):
        asking = {**task()["metadata"], "reason": "waiting_for_person", "question": QUESTION}
        host.change(task(), status="input_required", metadata=asking)
        host.change(task(), status="input_required", metadata=asking)
        host.answer(task(), "done")

        assert await prompt.next() == ("[← codex-8120] asks a person: Run `make`?", "synapse approvals")
        assert (await prompt.next())[0] == "[← codex-8120] done"


async def test_an_agent_that_asks_back_is_shown_and_still_awaited(tmp_path: Path) -> None:
    async with asked(tmp_path) as (host, prompt, task):
        host.change(task(), status="input_required", metadata={"note": "which branch?"})
        asks = await prompt.next()
        host.answer(task(), "done")

        assert asks == ("[← codex-8120] asks: which branch?", 'synapse send codex-8120 "…" --task 00000abc')
        assert (await prompt.next())[0] == "[← codex-8120] done"


async def test_what_keeps_the_agent_from_taking_the_message_is_shown(tmp_path: Path) -> None:
    with FakeHost(tmp_path).serving() as host:
        host.tell(held={"overdue": True, "messages": 1, "why": "a dialog is open", "reason": "dialog"})
        prompt = Prompt(host.registry)
        prompt.types("hi")
        await prompt.next()

        assert await prompt.next() == ("[← codex-8120] holds 1 message: a dialog is open", "synapse attach codex-8120")
        prompt.mentions.stop()


async def test_an_agent_that_ends_before_it_answers_is_named_with_where_its_answer_would_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mentions, "RETURN_SECONDS", 0.0)
    monkeypatch.setattr(watch, "PULSE_SECONDS", 0.05)
    with bystander() as process:
        async with asked(tmp_path) as (host, prompt, _):
            host.entry.pid, host.entry.pid_started = process.pid, process.started
            host.entry.pid_namespace = own_namespace()
            host.registry.write(host.entry)
            process.end()

            assert await prompt.next() == ("[← codex-8120] has ended before it answered", "synapse show 00000abc")


async def test_a_broken_stream_is_resumed_and_the_answer_still_comes(tmp_path: Path) -> None:
    with FakeHost(tmp_path).serving() as host:
        host.break_streams_after = 1
        prompt = Prompt(host.registry)
        prompt.types("hi")
        await prompt.next()
        (task,) = host.tasks.values()
        host.answer(task, "here")

        assert (await prompt.next())[0] == "[← codex-8120] here"


async def test_no_more_answers_are_awaited_than_there_are_threads_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mentions, "MOST_AWAITED", 1)
    async with asked(tmp_path) as (host, prompt, task):
        prompt.types("and you?")
        await prompt.next()
        host.answer(list(host.tasks.values())[1], "not shown")
        host.answer(task(), "shown")

        assert (await prompt.next())[0] == "[← codex-8120] shown"
