"""An agent that was started, as its host sees it, whatever runs it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from synapse.core.agent import AgentEntry
from synapse.core.driver import Driver
from synapse.core.extension import Extensions
from synapse.core.message import Message
from synapse.core.task import Task
from synapse.service.acceptance import ANYTHING, Acceptance
from synapse.service.hook_reports import HookDoor
from synapse.service.recovery import ends_with_us
from synapse.service.settling import never
from synapse.service.worker import AnswerAtOnce, never_at_once

if TYPE_CHECKING:
    from synapse.transports.websocket import WebSocketHandler


async def _nothing() -> None:
    """Most agents end all of their work when they are stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningAgent:
    """An agent that was started: its driver, when it ends, and how to end it."""

    driver: Driver
    stop: Callable[[], Awaitable[None]]
    exit_status: Callable[[], int | None]
    retire: Callable[[], Awaitable[None]] = _nothing
    """Ends work that no later process will follow; called before `stop` when the agent is removed for good."""
    title: str
    description: str = ""
    """What it says of itself, if anything."""
    ends_with: asyncio.Future[int] | None = None
    """Done when the agent has ended by itself; without it, its end is only seen by the worker."""
    pty_wrapped: bool = True
    cli_pid: int = 0
    say_goodbye: Callable[[Sequence[Task]], None] = lambda _: None
    """Called when all has ended, with the tasks whose messages wait for the next start."""
    on_served: Callable[[], None] = lambda: None
    """Called once the host answers: what is slow to load is loaded then."""
    answers_directly: Callable[[Message], bool] = never
    """Whether it will answer a message with a plain message and no task."""
    answer_at_once: AnswerAtOnce = never_at_once
    """What it answers a message that it needs nothing else for."""
    can_resume: Callable[[Task], bool] = ends_with_us
    """Whether the agent has a task's last message, and can be asked again what came of it after a restart."""
    acceptance: Acceptance = ANYTHING
    input_modes: tuple[str, ...] = ()
    """What its own card says that it takes, if it has one: then it is not us who refuses. Empty is `acceptance`."""
    output_modes: tuple[str, ...] = ()
    extensions: Extensions = ()
    """The extensions of A2A that it declares."""
    lacks: tuple[str, ...] = ()
    """The capabilities of A2A that are switched off."""
    hook_door: HookDoor | None = None
    """Where hooks of its CLI report to, if it has any."""
    websockets: Mapping[str, WebSocketHandler] = field(default_factory=dict[str, Any])


StartAgent = Callable[[AgentEntry], Awaitable[RunningAgent]]
"""Starts the agent once its identity is known."""
