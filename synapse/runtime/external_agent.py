"""An agent elsewhere, run like any other: its driver, and what it needs of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from synapse.core.clock import Clock
from synapse.core.status import ExternalAgent
from synapse.drivers.remote_a2a.driver import RemoteDriver
from synapse.drivers.remote_a2a.threads import FileThreads
from synapse.runtime.externals import FOLDER, credentials_under
from synapse.runtime.running_agent import RunningAgent
from synapse.service.recovery import last_prompt
from synapse.transports.a2a_client import A2AClient
from synapse.transports.external_card import modes_in
from synapse.transports.external_dialing import GuardedDial

AGENT_TYPE: Final = "a2a"
THREADS: Final = "threads"


def external_agent(agent: ExternalAgent, home: Path, clock: Clock, *, allow_private: bool = False) -> RunningAgent:
    """The agent, as those around its driver see it. It has a client of its own: a slow one delays no other."""
    guarded = GuardedDial(allow_private=allow_private)
    client = A2AClient(clock, credentials=credentials_under(home).find, guarded=guarded)
    threads = FileThreads(home / FOLDER / THREADS / f"{agent.alias}.json")
    driver = RemoteDriver(agent, client, threads, clock)
    return RunningAgent(
        driver=driver,
        stop=driver.leave,
        retire=driver.give_up,
        exit_status=lambda: None,
        title=agent.name or agent.alias,
        description=agent.description,
        pty_wrapped=False,
        can_resume=lambda task: threads.has(task.id, last_prompt(task).message_id),
        input_modes=modes_in(agent.card, "Input"),
        output_modes=modes_in(agent.card, "Output"),
    )
