"""A need of an agent, as an overview has it."""

from __future__ import annotations

from synapse.client.overview import Need


def need(key: str = "q1", kind: str = "permission", title: str = "run `rm -rf build`") -> Need:
    """Returns a need of the agent codex."""
    return {
        "id": key,
        "kind": kind,
        "agent": "codex",
        "agent_id": "synapse-codex-8120",
        "name": "codex",
        "task_id": None,
        "title": title,
        "detail": "",
        "options": [],
        "takes_text": False,
        "hint": "",
        "asked_at": "",
        "from": "",
        "folder": "",
        "source": "hook",
        "next": "",
        "question_id": key,
        "can": [],
    }
