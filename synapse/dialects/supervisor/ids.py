"""Task ids that are unique across agents: `agentId:taskId` goes out, both that and the plain id come in."""

from __future__ import annotations


def global_id(task_id: str, agent: str) -> str:
    return f"{agent}:{task_id}"


def plain_id(given: str, agent: str) -> str:
    """The id that the agent itself knows. One of another agent stays whole, and so is no task of this one."""
    return given.removeprefix(f"{agent}:")
