"""Task ids: the hub shows them plain, and also takes those that name their agent, `agentId:taskId`."""

from __future__ import annotations

from collections.abc import Callable

from synapse.core.requests import Request, ToAgent


def plain_id(given: str) -> str:
    return given.rpartition(":")[2]


def about_task(given: str, request: Callable[[str], Request]) -> Request:
    """The request about that task; one whose agent is named is for that agent only."""
    agent, _, task_id = given.rpartition(":")
    return ToAgent(agent, request(task_id)) if agent else request(task_id)
