"""What each outlet sends."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from synapse.core.errors import InvalidSettings
from synapse.notices.outlets import (
    DesktopOutlet,
    NtfyOutlet,
    OutletFailed,
    OutletSettings,
    WebhookOutlet,
    desktop_program,
    open_outlets,
)
from synapse.notices.rules import Kind, Notice
from synapse.push.outbox import PostResult

ASKS = Notice(
    id="q1", kind=Kind.ASKS, agent_id="synapse-codex-8120", agent="codex", text="run\n<b>rm</b> -rf \x1b[31mbuild"
)


class FakePosts:
    """Remembers requests, and answers with a status."""

    def __init__(self, status: int = 200) -> None:
        self.status = status
        self.sent: list[tuple[str, str, bytes]] = []

    async def post(self, url: str, headers: Sequence[tuple[str, str]], body: bytes) -> PostResult:
        return self._answer("POST", url, body)

    async def delete(self, url: str) -> PostResult:
        return self._answer("DELETE", url, b"")

    def _answer(self, method: str, url: str, body: bytes) -> PostResult:
        self.sent.append((method, url, body))
        return PostResult(status=self.status, error="" if self.status < 300 else f"it answered {self.status}")


@pytest.fixture
def notify_send(tmp_path: Path) -> Path:
    """A desktop: a program that writes its arguments to a file, and prints an id."""
    program = tmp_path / "notify-send"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$*" >>{tmp_path}/shown\necho 42\n', "utf-8")
    program.chmod(0o755)
    return program


async def test_the_desktop_shows_plain_text_and_replaces_it_when_withdrawn(notify_send: Path) -> None:
    desktop = DesktopOutlet(str(notify_send))

    await desktop.show(ASKS)
    await desktop.withdraw("q1")

    shown = (notify_send.parent / "shown").read_text("utf-8").splitlines()
    text = "run &lt;b&gt;rm&lt;/b&gt; -rf &lt;U+001B&gt;[31mbuild"
    assert shown == [
        f"--app-name=Synapse --urgency=critical --print-id -- codex asks you {text}",
        "--replace-id=42 --expire-time=1 -- codex asks you no longer needed",
    ]


async def test_a_notice_of_an_earlier_process_cannot_be_removed_from_the_desktop(notify_send: Path) -> None:
    with pytest.raises(OutletFailed, match="earlier process"):
        await DesktopOutlet(str(notify_send)).withdraw("q1")


async def test_the_last_line_of_a_failed_program_is_the_reason(tmp_path: Path) -> None:
    program = tmp_path / "notify-send"
    program.write_text("#!/bin/sh\necho no daemon here >&2\nexit 1\n", "utf-8")
    program.chmod(0o755)

    with pytest.raises(OutletFailed, match="no daemon here"):
        await DesktopOutlet(str(program)).show(ASKS)
    with pytest.raises(OutletFailed, match="cannot be run"):
        await DesktopOutlet(str(tmp_path / "missing")).show(ASKS)


async def test_a_webhook_gets_no_text_unless_it_is_allowed() -> None:
    silent, full = FakePosts(), FakePosts()

    await WebhookOutlet("https://example.com/hook", silent, with_text=False).show(ASKS)
    await WebhookOutlet("https://example.com/hook", full, with_text=True).show(ASKS)

    fields = {
        "type": "notice",
        "id": "q1",
        "kind": "asks",
        "agent": "codex",
        "agent_id": "synapse-codex-8120",
        "task_id": None,
        "title": "codex asks you",
    }
    assert json.loads(silent.sent[0][2]) == fields
    assert json.loads(full.sent[0][2]) == {**fields, "text": "run <b>rm</b> -rf <U+001B>[31mbuild"}


async def test_a_webhook_is_told_that_a_notice_is_withdrawn() -> None:
    posts = FakePosts()

    await WebhookOutlet("https://example.com/hook", posts, with_text=False).withdraw("q1")

    assert [(method, json.loads(body)) for method, _, body in posts.sent] == [
        ("POST", {"type": "withdrawn", "id": "q1"})
    ]


async def test_ntfy_gets_the_topic_and_deletes_by_the_same_sequence_id() -> None:
    posts = FakePosts()
    ntfy = NtfyOutlet("https://ntfy.example.com/my-topic/", posts, with_text=False)

    await ntfy.show(ASKS)
    await ntfy.withdraw("q1")

    (_, url, body), (method, deleted, _) = posts.sent
    published = json.loads(body)
    assert url == "https://ntfy.example.com/"
    assert (published["topic"], published["title"], published["priority"]) == ("my-topic", "codex asks you", 4)
    assert "rm" not in published["message"]
    assert (method, deleted) == ("DELETE", f"https://ntfy.example.com/my-topic/{published['sequence_id']}")


async def test_ntfy_gets_the_text_if_it_is_allowed() -> None:
    posts = FakePosts()

    await NtfyOutlet("https://ntfy.example.com/my-topic", posts, with_text=True).show(ASKS)

    assert json.loads(posts.sent[0][2])["message"] == "run <b>rm</b> -rf <U+001B>[31mbuild"


async def test_a_refusal_is_a_failure_with_its_status() -> None:
    with pytest.raises(OutletFailed, match="it answered 404"):
        await WebhookOutlet("https://example.com/hook", FakePosts(404), with_text=False).show(ASKS)


def test_outlets_are_those_that_are_set_and_usable(notify_send: Path) -> None:
    desktop = {"PATH": str(notify_send.parent), "DISPLAY": ":0"}
    everything = OutletSettings(webhook="https://example.com/hook", ntfy="https://ntfy.example.com/t")

    def names(settings: OutletSettings, environ: dict[str, str]) -> list[str]:
        return [outlet.name for outlet in open_outlets(settings, FakePosts(), environ)]

    assert names(everything, desktop) == ["desktop", "webhook", "ntfy"]
    assert names(OutletSettings(desktop=False), desktop) == []
    assert names(OutletSettings(), {"PATH": "/nowhere", "DISPLAY": ":0"}) == []


def test_without_a_desktop_session_there_is_no_desktop(notify_send: Path) -> None:
    has_bus = Path(f"/run/user/{os.getuid()}/bus").exists()

    assert bool(desktop_program({"PATH": str(notify_send.parent)})) == has_bus


@pytest.mark.parametrize(
    "settings",
    [
        OutletSettings(webhook="example.com"),
        OutletSettings(webhook="https://[::1/x"),
        OutletSettings(ntfy="ftp://x/y"),
        OutletSettings(ntfy="https://ntfy.sh/"),
    ],
)
def test_an_address_that_cannot_be_used_is_named(settings: OutletSettings) -> None:
    with pytest.raises(InvalidSettings, match="notify_"):
        open_outlets(settings, FakePosts(), {})
