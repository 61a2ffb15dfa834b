"""A gateway whose link has closed a proxy socket that it used before: its callers notice nothing."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from synapse.core.agent import AgentEntry
from synapse.core.errors import AgentNotResponding
from synapse.core.override import override
from synapse.gateway.remote import RemoteAgents
from tests.fakes.clock import FakeClock

CODEX = AgentEntry("synapse-codex-8120", "codex", name="codex@box2", inbox="box2!codex")


class ClosingLink(RemoteAgents):
    """A link that opens proxy sockets, and the client that connects to them: at one that is closed nobody answers."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "gate", self, FakeClock())  # type: ignore[arg-type]  # what these tests need of it
        self.opened = 0
        self.current = ""
        self.is_deaf = False

    def close(self) -> None:
        self.current = ""

    @override
    async def ask_link(self, method: str, path: str, body: bytes = b"") -> dict[str, Any]:
        assert path == "/fleet/proxies"
        self.opened += 1
        self.current = f"/run/proxy-{self.opened}.sock"
        return {"agent": {**CODEX.shown(), "socket": self.current}}

    async def screen(self, agent: AgentEntry, *, lines: int, known: str) -> dict[str, Any]:
        return {"lines": [self._reached(agent)], "asked": (lines, known)}

    async def follow_terminal(self, agent: AgentEntry) -> str:
        return self._reached(agent)

    async def watch_status(self, agent: AgentEntry) -> AsyncGenerator[dict[str, Any], None]:
        yield {"state": "ready" if agent.socket == self.current else "exited"}

    def _reached(self, agent: AgentEntry) -> str:
        if self.is_deaf or agent.socket != self.current:
            raise AgentNotResponding(agent.agent_id, agent.port, agent.agent_type)
        return agent.socket


@pytest.fixture(name="link")
async def _link(tmp_path: Path) -> ClosingLink:
    link = ClosingLink(tmp_path)
    await link.hosts.screen(CODEX, lines=1, known="")
    return link


async def test_a_known_proxy_is_used_again(link: ClosingLink) -> None:
    await link.hosts.screen(CODEX, lines=1, known="")

    assert link.opened == 1


async def test_a_screen_is_read_through_a_new_proxy(link: ClosingLink) -> None:
    link.close()

    assert await link.hosts.screen(CODEX, lines=1, known="") is not None
    assert link.opened == 2


async def test_a_status_is_followed_through_a_new_proxy(link: ClosingLink) -> None:
    link.close()

    async with aclosing(link.hosts.watch_status(CODEX)) as statuses:
        assert await anext(statuses) == {"state": "ready"}


async def test_a_terminal_is_followed_through_a_new_proxy(link: ClosingLink) -> None:
    link.close()

    await link.hosts.follow_terminal(CODEX)

    assert link.opened == 2


async def test_a_proxy_that_was_opened_just_now_and_does_not_answer_is_told(tmp_path: Path) -> None:
    link = ClosingLink(tmp_path)
    link.is_deaf = True

    with pytest.raises(AgentNotResponding):
        await link.hosts.screen(CODEX, lines=1, known="")
    assert link.opened == 1
