"""A gateway restarts its configured agents, with longer pauses for those that end quickly."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from synapse.config.process import SystemClock
from synapse.config.trust import TrustStore, read_project
from synapse.core.agent import AgentEntry
from synapse.core.errors import InvalidSettings, RegistryFailed
from synapse.gateway import autostart
from synapse.gateway.autostart import AgentAutostart, check_startable, host_command
from synapse.gateway.config import AgentConfig
from synapse.host.ends import pause_after

BOUND = 20.0
ADA = AgentConfig(id="ada", profile="dummy", instructions=False, arguments=("--fast",))


class Here:
    """A registry with these agents."""

    def __init__(self, *names: str) -> None:
        self._names = names
        self.failures = 0
        """How many of the next looks fail."""
        self.looks = 0
        self.looked = asyncio.Event()

    async def agents(self) -> Sequence[AgentEntry]:
        self.looks += 1
        self.looked.set()
        if self.failures:
            self.failures -= 1
            raise RegistryFailed
        return [AgentEntry(f"synapse-dummy-{name}", "dummy", name=name) for name in self._names]

    async def find(self, agent_id: str) -> AgentEntry | None:
        raise AssertionError(agent_id)

    async def publish(self, entry: AgentEntry) -> None:
        raise AssertionError(entry)

    async def withdraw(self, agent_id: str) -> None:
        raise AssertionError(agent_id)


@pytest.mark.parametrize(
    ("ends", "seconds"), [(0, 1.0), (1, 1.0), (2, 2.0), (3, 4.0), (6, 32.0), (7, 60.0), (99, 60.0)]
)
def test_each_quick_end_doubles_the_pause_up_to_a_minute(ends: int, seconds: float) -> None:
    assert pause_after(ends) == seconds


def test_the_host_is_started_with_the_agents_name_and_arguments() -> None:
    command = host_command(ADA)

    assert command[command.index("synapse.cli.main") + 1] == "dummy"
    assert command[command.index("--name") + 1] == "ada"
    assert "--no-instructions" in command
    assert command[-2:] == ["--", "--fast"]


def test_a_profile_of_an_untrusted_project_is_reported_before_the_gateway_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path.resolve() / "project"
    (folder / ".synapse" / "profiles").mkdir(parents=True)
    (folder / ".synapse" / "profiles" / "tool.toml").write_text("command = ['tool']", encoding="utf-8")
    monkeypatch.setenv("SYNAPSE_HOME", str(tmp_path / "state"))
    tool = AgentConfig(id="ada", profile="tool", working_dir=str(folder))

    with pytest.raises(InvalidSettings, match=f"agent 'ada': .* synapse trust {folder}"):
        check_startable([tool], tmp_path / "gateway.toml")
    TrustStore(tmp_path / "state").decide(read_project(folder), SystemClock().now(), trusted=True)

    check_startable([tool], tmp_path / "gateway.toml")


async def test_an_agent_that_runs_already_is_only_watched(tmp_path: Path) -> None:
    registry = Here("ada")
    keeper = AgentAutostart(ADA, registry, tmp_path, SystemClock())
    keeping = asyncio.ensure_future(keeper.keep())
    async with asyncio.timeout(BOUND):
        await registry.looked.wait()
    keeping.cancel()
    await asyncio.wait({keeping}, timeout=BOUND)

    assert keeper.starts == 0


async def test_a_registry_that_fails_for_a_while_starts_nothing_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(autostart, "WATCH_SECONDS", 0.01)
    registry = Here("ada")
    registry.failures = 2
    keeper = AgentAutostart(ADA, registry, tmp_path, SystemClock())
    keeping = asyncio.ensure_future(keeper.keep())
    async with asyncio.timeout(BOUND):
        while registry.looks < 4 and not keeping.done():
            await asyncio.wait({keeping}, timeout=0.01)
    assert not keeping.done()
    keeping.cancel()
    await asyncio.wait({keeping}, timeout=BOUND)

    assert keeper.starts == 0


@pytest.mark.parametrize("command", [[sys.executable, "-c", ""], ["no-such-program-at-all"]])
async def test_an_agent_that_ends_at_once_or_cannot_be_started_is_tried_again(
    tmp_path: Path, command: list[str]
) -> None:
    registry = Here()
    keeper = AgentAutostart(ADA, registry, tmp_path, SystemClock(), command=lambda _: command)
    keeping = asyncio.ensure_future(keeper.keep())
    async with asyncio.timeout(BOUND):
        while keeper.starts < 2:
            registry.looked.clear()
            await registry.looked.wait()
            await asyncio.wait({keeping}, timeout=0.01)
    keeping.cancel()
    await asyncio.wait({keeping}, timeout=BOUND)


async def test_an_agent_gets_no_secret_of_the_gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JWT_SECRET", "s")
    monkeypatch.setenv("OTHER", "o")
    told = tmp_path / "told"
    draft = tmp_path / "draft"
    program = (
        "import os, pathlib; "
        f"pathlib.Path({str(draft)!r}).write_text(str([os.environ.get('JWT_SECRET'), os.environ.get('OTHER')]), "
        f"encoding='utf-8'); os.rename({str(draft)!r}, {str(told)!r})"
    )

    keeper = AgentAutostart(
        ADA,
        Here(),
        tmp_path,
        SystemClock(),
        secrets=frozenset({"JWT_SECRET"}),
        command=lambda _: [sys.executable, "-c", program],
    )
    keeping = asyncio.ensure_future(keeper.keep())
    async with asyncio.timeout(BOUND):
        while not told.exists():
            await asyncio.wait({keeping}, timeout=0.01)
    keeping.cancel()
    await asyncio.wait({keeping}, timeout=BOUND)
    assert told.read_text(encoding="utf-8") == "[None, 'o']"


async def test_an_agent_that_was_started_stops_with_its_gateway(tmp_path: Path) -> None:
    told = tmp_path / "told"
    program = f"import time, pathlib; pathlib.Path({str(told)!r}).write_text('here', encoding='utf-8'); time.sleep(60)"

    keeper = AgentAutostart(ADA, Here(), tmp_path, SystemClock(), command=lambda _: [sys.executable, "-c", program])
    keeping = asyncio.ensure_future(keeper.keep())
    async with asyncio.timeout(BOUND):
        while not told.exists():
            await asyncio.wait({keeping}, timeout=0.01)
        keeping.cancel()
        await asyncio.wait({keeping})
    assert keeping.cancelled()
