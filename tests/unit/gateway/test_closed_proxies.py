"""A gateway whose link has closed a proxy socket that it used before: its callers notice nothing."""

from __future__ import annotations

import json
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


def agent_called(name: str) -> AgentEntry:
    return AgentEntry("synapse-codex-8120", "codex", name=name, inbox=f"box2!{name.removesuffix('@box2')}")


CODEX = agent_called("codex@box2")


class ClosingLink(RemoteAgents):
    """A link that opens proxy sockets, and the client that connects to them: at one that is closed nobody answers."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "gate", self, FakeClock())  # type: ignore[arg-type]  # what these tests need of it
        self.opened = 0
        self.live: set[str] = set()
        self.is_deaf = False

    def close(self) -> None:
        self.live.clear()

    @override
    async def ask_link(self, method: str, path: str, body: bytes = b"") -> dict[str, Any]:
        assert path == "/fleet/proxies"
        self.opened += 1
        opened = f"/run/proxy-{self.opened}.sock"
        self.live.add(opened)
        return {"agent": {**agent_called(json.loads(body)["target"]).shown(), "socket": opened}}

    async def screen(self, agent: AgentEntry, *, lines: int, known: str) -> dict[str, Any]:
        return {"lines": [self._reached(agent)], "asked": (lines, known)}

    async def follow_terminal(self, agent: AgentEntry) -> str:
        return self._reached(agent)

    async def watch_status(self, agent: AgentEntry) -> AsyncGenerator[dict[str, Any], None]:
        yield {"state": "ready" if agent.socket in self.live else "exited"}

    def _reached(self, agent: AgentEntry) -> str:
        if self.is_deaf or agent.socket not in self.live:
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


async def test_of_too_many_proxies_the_least_recently_used_are_forgotten(
    link: ClosingLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("synapse.gateway.remote.MOST_PROXIES", 2)
    ada, bob = agent_called("ada@box2"), agent_called("bob@box2")
    opened: list[int] = []
    for agent in (ada, CODEX, bob, CODEX, ada):
        await link.hosts.screen(agent, lines=1, known="")
        opened.append(link.opened)

    assert opened == [2, 2, 3, 3, 4]


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
