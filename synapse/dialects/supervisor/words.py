"""The words of the supervisor dialect for states and roles, as tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from synapse.core.message import Message, Role
from synapse.core.task import Task, TaskState

EXPIRED: Final = "expired"
"""The reason of a task that ended by its deadline, and the state that it has here."""
FAILED: Final = "failed"

STATE_NAMES: Final[Mapping[TaskState, str]] = {
    TaskState.SUBMITTED: "created",
    TaskState.WORKING: "running",
    TaskState.INPUT_REQUIRED: "running",
    TaskState.AUTH_REQUIRED: "running",
    TaskState.COMPLETED: "succeeded",
    TaskState.FAILED: FAILED,
    TaskState.CANCELED: "cancelled",
    TaskState.REJECTED: FAILED,
}
STATE_WORDS: Final = ("created", "running", "succeeded", FAILED, "cancelled", EXPIRED)

ROLE_NAMES: Final[Mapping[Role, str]] = {Role.USER: "user", Role.AGENT: "assistant"}
ROLES: Final[Mapping[str, Role]] = {"user": Role.USER, "assistant": Role.AGENT, "system": Role.USER}
SYSTEM: Final = "system"
ROLE: Final = "role"
"""Where a message's metadata keeps a role that the core has no word for."""
TIMESTAMP: Final = "timestamp"
"""Where a message's metadata keeps the time that its sender gave it."""


def state_name(task: Task) -> str:
    """The state, for which the reason counts, too."""
    if task.state is TaskState.FAILED and task.reason == EXPIRED:
        return EXPIRED
    return STATE_NAMES[task.state]


def role_name(message: Message) -> str:
    if message.metadata.get(ROLE) == SYSTEM:
        return SYSTEM
    return ROLE_NAMES[message.role]
