"""`synapse scripted FILE`: an agent whose behaviour is a file."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from synapse.config import process
from synapse.config.process import SystemClock, log_to
from synapse.config.settings import Settings
from synapse.core.agent import AgentEntry
from synapse.core.types import Clock
from synapse.drivers.scripted.driver import ScriptedDriver
from synapse.drivers.scripted.script import Script, read_script
from synapse.host.agent import RunningAgent
from synapse.host.conversations import RunRecord
from synapse.host.host import run_host
from synapse.host.identity import SCRIPTED, reserve
from synapse.host.membership import Membership
from synapse.tasks.admission import MODES, Acceptance

PORTS: Final = range(8180, 8190)


def run_script(
    path: Path,
    *,
    name: str,
    port: int | None,
    settings: Settings,
    membership: Membership,
    introduce: Callable[[AgentEntry], None],
) -> int:
    """Runs a script as an agent until it exits or a signal stops this process; returns its exit status.

    `introduce` is called once the agent serves requests.

    Raises InvalidRequest for an invalid script, and what `reserve` and `run_host` raise.
    """
    script = read_script(path)
    clock = SystemClock()
    identity = reserve(SCRIPTED, PORTS, name=name, port=port, settings=settings, clock=clock, membership=membership)
    log_to(settings.logs, identity.entry.agent_id, name)

    async def start(me: AgentEntry) -> RunningAgent:
        RunRecord(settings.home, me, sys.orig_argv, clock).begin(None)
        return replace(play(script, clock), on_served=lambda: introduce(me))

    return process.run(run_host(identity, start, settings, instructions=False))


def play(script: Script, clock: Clock) -> RunningAgent:
    """Returns an agent that runs the script."""
    driver = ScriptedDriver(script, clock)

    async def stop() -> None:
        driver.stop()

    return RunningAgent(
        driver=driver,
        stop=stop,
        exit_status=lambda: driver.exit_status,
        title="Script",
        pty_wrapped=False,
        answers_directly=script.answers_directly,
        answer_at_once=driver.answer_at_once,
        acceptance=Acceptance(media_types=MODES if script.strict_types else (), repeatable_ids=script.repeatable_ids),
        extensions=script.extensions,
        lacks=script.lacks,
    )
