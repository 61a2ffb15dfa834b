"""What a host says of itself and of the agents it knows elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from synapse.core.agent import AgentEntry
from synapse.core.driver import AgentView
from synapse.core.hold import Hold
from synapse.core.message import Json
from synapse.core.task import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class HostStatus:
    """The answer to GetStatus."""

    entry: AgentEntry
    view: AgentView
    current: Task | None
    queue: tuple[Task, ...]
    attention: tuple[Task, ...]
    held: Hold | None = None
    """Why messages wait, if they do and the agent is not at work on one."""
    asking: Task | None = None
    """The task in whose turn the agent asks a person; it may ask without one too (see `view.question`)."""
    store_fault: str = ""
    """Why nothing can be stored now, so that every message is refused; empty while it can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalAgent:
    """An agent elsewhere that was discovered by its card."""

    alias: str
    url: str
    name: str
    description: str = ""
    protocol: str = "synapse"
    """How it is spoken to: `synapse`, `a2a-0.3` or `a2a-1.0`."""
    added_at: str = ""
    card: Json = field(default_factory=dict[str, Any])
    guarded: bool = False
    """Registered by somebody with a key: it is never called at an address that only this machine or network reaches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalAnswer:
    """What an external agent gave back: its task's id and state, and the text if it has answered."""

    alias: str
    task_id: str
    state: str
    """In our words; in the agent's own where we have none."""
    text: str
    raw: Json = field(default_factory=dict[str, Any])
