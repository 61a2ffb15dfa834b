"""Listening to what a CLI says of itself: the adapter of its profile, with what one launch gives it."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from synapse.core.agent import AgentEntry
from synapse.core.question import Choice
from synapse.core.requests import SECRET_HEADER
from synapse.drivers.pty.signals.adapter import Adapter, Listener, Sender, Surroundings
from synapse.drivers.pty.signals.table import adapter_for
from synapse.drivers.pty.spawn import Launch
from synapse.runtime.agent_command import launch_folder
from synapse.runtime.ids import new_id
from synapse.runtime.last_words import start_command
from synapse.runtime.settings import Settings
from synapse.service.hook_reports import HookDoor
from synapse.terminal.profile import Profile


class CliSignals:
    """The signals of one launch; an agent whose profile names no adapter has none, and all of this does nothing."""

    def __init__(self, me: AgentEntry, profile: Profile, settings: Settings, env: Mapping[str, str]) -> None:
        self._secret = secrets.token_urlsafe(24)
        around = Surroundings(
            folder=launch_folder(settings.home, me.agent_id),
            # Not by the name `localhost`: it may mean ::1 first, where nobody listens.
            url=f"http://127.0.0.1:{me.port}/signals",
            secret_header=SECRET_HEADER,
            secret=self._secret,
            command=profile.command[0],
            env=env,
            working_dir=Path(me.working_dir),
            flags_file=settings.home / "cli_flags.json",
            new_session=new_id(),
            start_command=start_command(me),
            started=me.started_at,
        )
        self._adapter: Adapter | None = adapter_for(profile, around)

    @property
    def door(self) -> HookDoor | None:
        """Where its hooks report to."""
        return HookDoor(secret=self._secret, receive=self._adapter.receive) if self._adapter else None

    def prepare(self, launch: Launch, arguments: tuple[str, ...]) -> Launch:
        """Return the launch with what switches the signals on; `arguments` are the last of its command."""
        if self._adapter is None:
            return launch
        prepared = self._adapter.prepare(arguments)
        command = launch.command[: len(launch.command) - len(arguments)]
        return replace(launch, command=(*command, *prepared.arguments), env={**launch.env, **prepared.env})

    def start(self, listener: Listener, pid: int) -> None:
        if self._adapter is not None:
            self._adapter.start(listener, pid)

    def look(self) -> None:
        if self._adapter is not None:
            self._adapter.look()

    async def answer(self, question_id: str, choice: Choice) -> bool:
        """Answer a question its own way; False when it has none."""
        return self._adapter is not None and await self._adapter.answer(question_id, choice)

    def sender(self) -> Sender | None:
        """What hands messages over without typing, if there is something now."""
        return self._adapter.sender() if self._adapter else None

    def correction(self, shown: str) -> str:
        """What a person has to know whom its last words mislead; empty when they do not."""
        return self._adapter.correction(shown) if self._adapter else ""

    def stop(self) -> None:
        if self._adapter is not None:
            self._adapter.stop()
