"""When things were said. Messages have no time of their own in the core; the receipts of a task tell their turns.

history    user      agent      user      agent      (answer)
receipts   queued … answered    queued … answered
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from synapse.core.message import Role
from synapse.core.receipt import ReceiptStep
from synapse.core.task import Task


def said_at(task: Task) -> list[datetime]:
    """The time of each message in the history, as near as it is known."""
    turns = list(_turns(task))
    times: list[datetime] = []
    turn = 0
    for message in task.history:
        begun, ended = turns[turn] if turn < len(turns) else (task.updated_at, task.updated_at)
        if message.role is Role.AGENT:
            times.append(ended)
            turn += 1
        else:
            times.append(begun if times else task.created_at)
    return times


def answered_at(task: Task) -> datetime:
    """When the last turn ended, or the last change as long as it has not."""
    ends = [receipt.at for receipt in task.receipts if receipt.step is ReceiptStep.ANSWERED]
    return ends[-1] if ends and task.state.is_terminal else task.updated_at


def _turns(task: Task) -> Iterator[tuple[datetime, datetime]]:
    """Begin and end of each turn; one that has not ended lasts until now."""
    begun: datetime | None = None
    for receipt in task.receipts:
        begun = begun or receipt.at
        if receipt.step is ReceiptStep.ANSWERED:
            yield begun, receipt.at
            begun = None
    if begun is not None:
        yield begun, task.updated_at
