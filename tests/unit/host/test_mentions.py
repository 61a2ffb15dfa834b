"""`@agent text` at a prompt: the person sees whether it was sent, was not sent, or may have been."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from synapse.core.agent import AgentEntry
from synapse.core.override import override
from synapse.host.mentions import MentionSender
from synapse.registry.files import FileRegistry
from tests.fakes.processes import bystander
from tests.unit.cli.fake_host import FakeHost

ME = AgentEntry("synapse-claude-8100", "claude", port=8100)


async def told(home: Path, text: str) -> str:
    """Returns the notice for a person who typed `@codex text`."""
    mentions = MentionSender(ME, FileRegistry(home / "registry"))
    said: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    mentions.notify = said.set_result
    mentions.send(mentions.resolve("codex") or "codex", text)
    return await asyncio.wait_for(said, 30)


async def test_a_line_is_sent_from_the_agent_at_whose_prompt_it_was_typed(tmp_path: Path) -> None:
    with FakeHost(tmp_path).serving() as host:
        assert (await told(tmp_path, "hi")).startswith("[→ codex-8120] sent  (task ")

    _, path, body = host.requests[0]
    assert (path, body["metadata"]["sender"]["sender_id"]) == ("/tasks/send", ME.agent_id)


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
    first, second = (body["message"]["message_id"] for _, _, body in host.requests)
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
    mentions = MentionSender(ME, DefectiveRegistry(tmp_path / "registry"))
    said: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    mentions.notify = said.set_result
    mentions.send("codex", "a secret line")

    notice = await asyncio.wait_for(said, 30)
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
