"""Rows of tasks, tasks and figures as the gateway's API writes them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

Json = dict[str, Any]

START = datetime(2026, 1, 31, 10, 30, tzinfo=UTC)
STEPS = ("queued", "typed", "submitted", "turn_started", "answered")


def at(seconds: float) -> str:
    """Returns the instant so many seconds after the start."""
    return (START + timedelta(seconds=seconds)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def receipts(*steps: tuple[str, float]) -> list[Json]:
    return [{"step": step, "at": at(seconds), "source": "hook"} for step, seconds in steps]


def task_row(task_id: str, agent: str, sent: float, *steps: tuple[str, float], **fields: Any) -> Json:
    """Returns the row of a task whose message was sent so many seconds after the start, with the steps after it."""
    taken = receipts(("queued", sent), *steps)
    last = taken[-1]
    state = {"queued": "submitted", "typed": "submitted", "answered": "completed", "failed": "failed"}
    return {
        "id": task_id,
        "agent": agent,
        "agent_id": f"synapse-{agent}",
        "from": "user",
        "from_agent": "",
        "text": f"message {task_id}",
        "answer": f"answer {task_id}" if last["step"] == "answered" else "",
        "state": state.get(last["step"], "working"),
        "receipt": last["step"],
        "receipts": taken,
        "priority": 3,
        "created_at": at(sent),
        "updated_at": last["at"],
        "reply_expected": False,
        "waits_for": "",
        "parent_id": "",
        "context_id": "",
        "asks": False,
        "reason": "",
        "note": "",
        "attention": "",
        "files": 0,
        **fields,
    }


def agent_row(agent: str, **fields: Any) -> Json:
    """Returns what the views read of an agent's row."""
    return {
        "id": agent,
        "agent_id": f"synapse-{agent}",
        "name": agent,
        "state": "ready",
        "needs": [],
        "started_at": at(-60),
        **fields,
    }


def task_of(row: Json, *artifacts: Json, **fields: Any) -> Json:
    """Returns the task of a row."""
    named = ("receipt", "receipts", "reason", "note", "attention", "priority")
    return {
        "id": row["id"],
        "context_id": row["context_id"] or None,
        "status": row["state"],
        "message": {"role": "user", "parts": [{"type": "text", "text": row["text"]}]},
        "artifacts": list(artifacts),
        "metadata": {key: row[key] for key in named if row[key]},
        "created_at": row["created_at"],
        "updated_at": row["updated_at"],
        **fields,
    }
