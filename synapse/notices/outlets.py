"""The ways out of the terminal: the desktop (`notify-send`), a webhook, and a topic of ntfy.

An outlet shows a notice and withdraws it later. Webhook and ntfy get the text of a question only if the setting
`notify_text` allows it, because it may hold a command or a path; their addresses are checked as those of push
notifications are.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import SplitResult, urlsplit

from synapse.core.errors import InvalidSettings
from synapse.core.text import safe_line
from synapse.notices.rules import Kind, Notice
from synapse.push.outbox import PostResult

COMMAND_SECONDS: Final = 10.0
_JSON: Final = (("Content-Type", "application/json"),)
_URGENT: Final = frozenset({Kind.ASKS, Kind.IN_DOUBT})
_TAGS: Final[Mapping[Kind, str]] = {
    Kind.ASKS: "question",
    Kind.IN_DOUBT: "warning",
    Kind.FAILED: "x",
    Kind.ANSWERED: "white_check_mark",
}


class OutletFailed(Exception):
    """A notice was not shown, or not withdrawn; the message says why."""


class Outlet(Protocol):
    """One way to tell a person."""

    @property
    def name(self) -> str: ...

    async def show(self, notice: Notice) -> None:
        """Raises OutletFailed."""
        ...

    async def withdraw(self, notice_id: str) -> None:
        """Removes the notice where it was shown, as far as the outlet can. Raises OutletFailed."""
        ...


class Posts(Protocol):
    """The part of `push.webhook.WebhookSender` that outlets use."""

    async def post(self, url: str, headers: Sequence[tuple[str, str]], body: bytes) -> PostResult: ...

    async def delete(self, url: str) -> PostResult: ...


class DesktopOutlet:
    """Shows notices on the desktop of this machine."""

    name = "desktop"

    def __init__(self, program: str) -> None:
        """`program` is the path of `notify-send`."""
        self._program = program
        self._shown: dict[str, tuple[str, str]] = {}
        """The desktop's id and the title of each notice that is shown."""

    async def show(self, notice: Notice) -> None:
        # It comes with a table of all named characters of HTML, which every host would load.
        from html import escape  # noqa: PLC0415 - see above

        urgency = "critical" if notice.kind in _URGENT else "normal"
        # Daemons read markup in the body, but not in the title.
        body = escape(safe_line(notice.text), quote=False)
        title = safe_line(notice.title)
        shown = await _run(self._program, "--app-name=Synapse", f"--urgency={urgency}", "--print-id", "--", title, body)
        self._shown[notice.id] = shown.strip(), title

    async def withdraw(self, notice_id: str) -> None:
        desktop_id, title = self._shown.pop(notice_id, ("", ""))
        if not desktop_id.isdigit():
            raise OutletFailed("an earlier process showed it, and its desktop id is not known")
        # There is no command that closes a notification: it is replaced by one that ends at once.
        await _run(self._program, f"--replace-id={desktop_id}", "--expire-time=1", "--", title, "no longer needed")


class WebhookOutlet:
    """Posts notices as JSON."""

    name = "webhook"

    def __init__(self, url: str, posts: Posts, *, with_text: bool) -> None:
        self._url = url
        self._posts = posts
        self._with_text = with_text

    async def show(self, notice: Notice) -> None:
        await self._post({"type": "notice", **_fields(notice, with_text=self._with_text)})

    async def withdraw(self, notice_id: str) -> None:
        await self._post({"type": "withdrawn", "id": notice_id})

    async def _post(self, body: dict[str, Any]) -> None:
        _check(await self._posts.post(self._url, _JSON, json.dumps(body).encode()))


class NtfyOutlet:
    """Publishes notices to a topic of ntfy; a server of version 2.16 or later withdraws them, too."""

    name = "ntfy"

    def __init__(self, url: str, posts: Posts, *, with_text: bool) -> None:
        """`url` is that of the topic, as https://ntfy.example.com/my-topic."""
        self._url = url.rstrip("/")
        self._posts = posts
        self._with_text = with_text

    async def show(self, notice: Notice) -> None:
        server, _, topic = self._url.rpartition("/")
        body = {
            "topic": topic,
            "title": notice.title,
            "message": safe_line(notice.text) if self._with_text else "Run `synapse top`, or open the dashboard.",
            "tags": [_TAGS[notice.kind]],
            "priority": 4 if notice.kind in _URGENT else 3,
            "sequence_id": _sequence_id(notice.id),
        }
        _check(await self._posts.post(f"{server}/", _JSON, json.dumps(body).encode()))

    async def withdraw(self, notice_id: str) -> None:
        _check(await self._posts.delete(f"{self._url}/{_sequence_id(notice_id)}"))


@dataclass(frozen=True, slots=True, kw_only=True)
class OutletSettings:
    """The settings of the outlets; an empty address leaves an outlet out."""

    desktop: bool = True
    webhook: str = ""
    ntfy: str = ""
    with_text: bool = False


def open_outlets(settings: OutletSettings, posts: Posts, environ: Mapping[str, str]) -> tuple[Outlet, ...]:
    """Returns the outlets that are set and usable here.

    Raises:
        InvalidSettings: an address cannot be used.
    """
    outlets: list[Outlet] = []
    if settings.desktop and (program := desktop_program(environ)):
        outlets.append(DesktopOutlet(program))
    if settings.webhook:
        _check_address("notify_webhook", settings.webhook)
        outlets.append(WebhookOutlet(settings.webhook, posts, with_text=settings.with_text))
    if settings.ntfy:
        if not _check_address("notify_ntfy", settings.ntfy).path.strip("/"):
            raise InvalidSettings("notify_ntfy names no topic", hint="write it as https://ntfy.example.com/my-topic")
        outlets.append(NtfyOutlet(settings.ntfy, posts, with_text=settings.with_text))
    return tuple(outlets)


def desktop_program(environ: Mapping[str, str]) -> str:
    """Returns the path of `notify-send`, or an empty string where it or a desktop session is missing."""
    session = environ.get("DBUS_SESSION_BUS_ADDRESS") or environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY")
    if not session and not Path(f"/run/user/{os.getuid()}/bus").exists():
        return ""
    return shutil.which("notify-send", path=environ.get("PATH", os.defpath)) or ""


def _check_address(setting: str, url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.hostname:
            return parts
    except ValueError:
        pass  # such as a bracket that is not closed
    raise InvalidSettings(f"{setting} is not an address", hint="write it as https://example.com/path")


def _fields(notice: Notice, *, with_text: bool) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "id": notice.id,
        "kind": notice.kind.value,
        "agent": notice.agent,
        "agent_id": notice.agent_id,
        "task_id": notice.task_id or None,
        "title": notice.title,
    }
    return {**fields, "text": safe_line(notice.text)} if with_text else fields


def _sequence_id(notice_id: str) -> str:
    return hashlib.sha256(notice_id.encode()).hexdigest()[:24]


def _check(result: PostResult) -> None:
    if result.error:
        raise OutletFailed(result.error)


async def _run(*command: str) -> str:
    """Runs a program and returns its output. Raises OutletFailed."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        raise OutletFailed(f"{command[0]} cannot be run: {error.strerror}") from error
    try:
        async with asyncio.timeout(COMMAND_SECONDS):
            output, errors = await process.communicate()
    except TimeoutError as error:
        raise OutletFailed(f"{command[0]} did not end within {COMMAND_SECONDS:g} seconds") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        lines = errors.decode(errors="replace").strip().splitlines()
        raise OutletFailed(lines[-1] if lines else f"it ended with status {process.returncode}")
    return output.decode(errors="replace")
