"""The words of the hub dialect for states, as tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from synapse.core.task import TaskState

STATE_NAMES: Final[Mapping[TaskState, str]] = {
    TaskState.SUBMITTED: "pending",
    TaskState.WORKING: "in_progress",
    TaskState.INPUT_REQUIRED: "in_progress",
    TaskState.AUTH_REQUIRED: "in_progress",
    TaskState.COMPLETED: "completed",
    TaskState.FAILED: "failed",
    TaskState.CANCELED: "failed",
    TaskState.REJECTED: "failed",
}

ASKED_STATES: Final[Mapping[str, TaskState]] = {
    "pending": TaskState.SUBMITTED,
    "in_progress": TaskState.WORKING,
    "completed": TaskState.COMPLETED,
    "failed": TaskState.FAILED,
}
"""The state that a caller means who wants to change one."""

FAILURE_CODES: Final[Mapping[TaskState, str]] = {
    TaskState.FAILED: "AGENT_EXECUTION_ERROR",
    TaskState.REJECTED: "AGENT_EXECUTION_ERROR",
    TaskState.CANCELED: "TASK_CANCELLED",
}

REQUEST_METADATA: Final = "request"
"""Some keys of a task's metadata mean something to the agent's host. A stranger's stay apart from them, below this."""
USER: Final = "user"
"""Where a task's metadata has the name of the caller that made it."""
