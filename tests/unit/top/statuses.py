"""Statuses of hosts as `synapse top` gets them: an agent that asks, works, has answered, is in doubt."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
Fields = dict[str, Any]
YES_NO = (("1", "Yes", "allow"), ("2", "Yes, and don't ask again", "allow_always"), ("3", "No", "deny"))


def ago(seconds: float) -> str:
    return (NOW - timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def task_id(number: int) -> str:
    return f"{number:08x}-1111-4111-8111-111111111111"


def task(number: int, text: str, *, status: str = "working", sender: str = "synapse-claude-8101") -> Fields:
    return {
        "id": task_id(number),
        "status": status,
        "message": {"role": "user", "parts": [{"type": "text", "text": text}]},
        "artifacts": [],
        "metadata": {"receipt": "turn_started", "sender": {"sender_id": sender}, "sender_verified": True},
    }


def ready(since: float = 3600) -> Fields:
    return {
        "state": "ready",
        "why": "the prompt is empty",
        "source": "screen",
        "since": ago(since),
        "queue_depth": 0,
        "current_task": None,
        "question": None,
        "attention": [],
        "finished": [],
    }


def working(number: int, text: str, *, since: float = 540, queued: int = 0) -> Fields:
    return {**ready(since), "state": "working", "queue_depth": queued, "current_task": task(number, text)}


def asking(
    number: int,
    detail: str = "rm -rf build",
    *,
    title: str = "Run this command?",
    options: tuple[tuple[str, str, str], ...] = YES_NO,
    takes_text: bool = False,
    question_id: str = "",
) -> Fields:
    question = {
        "id": question_id or f"question-{number}",
        "kind": "permission",
        "title": title,
        "detail": detail,
        "options": [{"key": key, "label": label, "leaning": leaning} for key, label, leaning in options],
        "takes_text": takes_text,
        "task_id": task_id(number),
        "asked_at": ago(120),
        "source": "screen",
    }
    return {**working(number, "clean up", since=120), "state": "waiting", "question": question}


def in_doubt(number: int, message: str = "review src/app.py") -> Fields:
    item = {
        "task_id": task_id(number),
        "text": "no proof that the agent took it",
        "receipt": "typed",
        "message": message,
        "since": ago(300),
    }
    return {**ready(), "attention": [item]}


def answered(number: int, answer: str, *, status: str = "completed", since: float = 240) -> Fields:
    ended = task(number, "review it", status=status, sender="user")
    step = "answered" if status == "completed" else "failed"
    ended["metadata"] |= {"receipt": step, "receipts": [{"step": step, "at": ago(since)}]}
    if status == "completed":
        ended["artifacts"] = [{"parts": [{"type": "text", "text": answer}]}]
    else:
        ended["metadata"]["note"] = answer
    return {**ready(), "finished": [ended]}
