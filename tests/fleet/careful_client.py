"""A careful client of a link: sends a message again, under its id, until somebody takes it; reads what came of it."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing, suppress
from typing import Any

import msgspec

from synapse.client.http import Answer, HostAddress, NoAnswer, request
from synapse.client.link import KEEP, find_remote
from synapse.core.errors import SynapseError
from synapse.core.task import Task
from synapse.fleet.wire import End
from tests.fleet.waiting import until
from tests.fleet.world import Machine
from tests.integration.chaos.house import RunningHost, nonces
from tests.integration.recovery.journal_file import all_tasks

UNAVAILABLE = 500
"""This status and those above: the link cannot do it now."""


def send(machine: Machine, target: str, text: str, message_id: str, **metadata: object) -> Answer | None:
    """Sends a message once; returns None if no link answered, or it could not do it now."""
    body = {
        "message": {"role": "user", "parts": [{"type": "text", "text": text}], "message_id": message_id},
        "metadata": {KEEP: True, **metadata},
    }
    with suppress(NoAnswer, SynapseError):
        entry = find_remote(target, machine.registry, keeps=True)
        answer = request(HostAddress(entry.socket), "POST", "/tasks/send", body, timeout=10)
        return answer if answer.status < UNAVAILABLE else None
    return None


def insist(machine: Machine, target: str, text: str, message_id: str, **metadata: object) -> str:
    """Sends a message until it is taken; returns the id of its task."""
    answer = until(lambda: send(machine, target, text, message_id, **metadata), f"{message_id} to be taken")
    assert answer.status < 300, answer.body
    return str(answer.body["task"]["id"])


def open_waiting(host: RunningHost, target: str, inbox: str) -> str:
    """Opens a task at an agent that waits for the reply of an agent on another machine; returns its id."""
    message = {"role": "user", "parts": [{"type": "text", "text": "wait"}]}
    metadata = {"sender": {"sender_id": host.entry.agent_id}, "waits_for": target, "waits_for_inbox": inbox}
    answer = host.post("/tasks/create", {"message": message, "metadata": metadata})
    assert answer.status < 300, answer.body
    return str(answer.body["task"]["id"])


def outbox_rows(machine: Machine, where: str = "kind != 'ended'") -> list[dict[str, Any]]:
    """Returns what the outbox of a machine says of the messages that were sent there, or of others."""
    with closing(sqlite3.connect(f"file:{machine.home}/fleet/link.db?mode=ro", uri=True, timeout=10)) as connection:
        connection.row_factory = sqlite3.Row
        found = connection.execute(f"SELECT * FROM outbox WHERE {where}")
        return [{key: row[key] for key in row.keys()} for row in found]  # noqa: SIM118 - a Row iterates its values


def row_of(machine: Machine, message_id: str) -> dict[str, Any]:
    """Returns the outbox row of a message; empty if there is none."""
    found = [row for row in outbox_rows(machine) if row["message_id"] == message_id]
    return found[0] if found else {}


def closed_rows(machine: Machine, message_ids: Sequence[str], bound: float = 30.0) -> list[dict[str, Any]]:
    """Waits until all these messages have an end that their sender has been told; returns their outbox rows."""

    def unfinished() -> list[object]:
        rows = [row_of(machine, one) for one in message_ids]
        return [row or "no row" for row in rows if not row or row["state"] in ("open", "accepted") or not row["told"]]

    until(lambda: not unfinished(), f"the ends of {len(message_ids)} messages of {machine.name}", unfinished, bound)
    return [row_of(machine, one) for one in message_ids]


def end_in(row: dict[str, Any]) -> str:
    """Returns the final state of the message's task that the sender's machine was told; empty for none."""
    return "" if row["ended"] is None else msgspec.msgpack.decode(row["ended"], type=End).state


def tasks_of(machine: Machine, message_id: str) -> list[Task]:
    """Returns the tasks of a machine that a message has opened, or its cancel."""
    return [task for task in all_tasks(machine.home / "store.db") if task.message.message_id == message_id]


def typed(machine: Machine, agent: str) -> list[str]:
    """Returns the nonces that the program of an agent has got, in order."""
    return [nonce for one in machine.received(agent) for nonce in nonces(one.text)]
