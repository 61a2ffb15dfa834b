"""Push configurations and the deliveries of their notifications, in the SQLite file of the tasks."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from synapse.core.push import Delivery, DeliveryState, Push, PushConfig
from synapse.core.task import TaskId
from synapse.store.codec import micros, moment
from synapse.store.queries import query

T = TypeVar("T")
Connection = sqlite3.Connection


class RunWithConnection(Protocol):
    """Runs a function with a connection, in a thread."""

    def __call__(self, run: Callable[[Connection], T], /) -> Awaitable[T]: ...


class SqlitePushes:
    """Implements `core.push.PushStore` with the connections of a SqliteStore."""

    def __init__(self, read: RunWithConnection, read_many: RunWithConnection, write: RunWithConnection) -> None:
        self._read = read
        self._read_many = read_many
        self._write = write

    async def save(self, task_id: TaskId, inbox: str, config: PushConfig, told: int) -> Push:
        def save(connection: Connection) -> Push:
            row = (task_id, config.id, inbox, told, _encode(config))
            connection.execute(query("save_push"), row)
            rows = connection.execute(query("push_of_task"), (task_id, config.id)).fetchall()
            return _push(rows[0])

        return await self._write(save)

    async def of_task(self, task_id: TaskId) -> Sequence[Push]:
        return await self._read(lambda connection: _pushes(connection, "pushes_of_task", (task_id,)))

    async def open_after(self, inbox: str, number: int) -> Sequence[Push]:
        return await self._read(lambda connection: _pushes(connection, "open_pushes", (inbox, number)))

    async def load(self, number: int) -> Push | None:
        found = await self._read(lambda connection: _pushes(connection, "load_push", (number,)))
        return found[0] if found else None

    async def delete(self, task_id: TaskId, config_id: str) -> None:
        def delete(connection: Connection) -> None:
            connection.execute(query("delete_deliveries_of"), (task_id, config_id))
            connection.execute(query("delete_push"), (task_id, config_id))

        await self._write(delete)

    async def record(self, delivery: Delivery) -> bool:
        def record(connection: Connection) -> bool:
            settled = delivery.state is not DeliveryState.PENDING
            told = delivery.seq if settled else 0
            # Write no delivery for a push that was deleted meanwhile.
            if not connection.execute(query("move_told"), (told, delivery.number)).rowcount:
                return False
            connection.execute(query("write_delivery"), _delivery_row(delivery))
            return True

        return await self._write(record)

    async def finish(self, number: int, told: int) -> None:
        await self._write(lambda connection: connection.execute(query("finish_push"), (told, number)))

    async def deliveries(self, limit: int) -> Sequence[tuple[Push, Delivery | None]]:
        def read(connection: Connection) -> list[tuple[Push, Delivery | None]]:
            rows = connection.execute(query("latest_deliveries"), (limit,)).fetchall()
            tried = [(_push((*row[:6], *[None] * 7)), _delivery(row[0], row[6:])) for row in rows]
            untried = connection.execute(query("pushes_without_delivery"), (limit,)).fetchall()
            return [*((_push((*row, *[None] * 7)), None) for row in untried), *tried][:limit]

        return await self._read_many(read)

    async def counts(self) -> Mapping[DeliveryState, int]:
        rows = await self._read_many(lambda connection: connection.execute(query("count_deliveries")).fetchall())
        return {DeliveryState(state): count for state, count in rows}


def _pushes(connection: Connection, name: str, values: tuple[object, ...]) -> list[Push]:
    return [_push(row) for row in connection.execute(query(name), values).fetchall()]


def _push(row: Sequence[Any]) -> Push:
    """Returns the push of a row: six columns of the push, then seven of its pending delivery or None."""
    number, task_id, config_id, inbox, told, body = row[:6]
    return Push(
        number=number,
        task_id=TaskId(task_id),
        inbox=inbox,
        config=PushConfig(id=config_id, **json.loads(body)),
        told=told,
        pending=_delivery(number, row[6:]),
    )


def _delivery(number: int, row: Sequence[Any]) -> Delivery | None:
    seq, state, attempts, at, status, error, next_try = row
    if seq is None:
        return None
    return Delivery(
        number=number,
        seq=seq,
        state=DeliveryState(state),
        attempts=attempts,
        at=moment(at),
        status=status,
        error=error,
        next_try=None if next_try is None else moment(next_try),
    )


def _delivery_row(delivery: Delivery) -> tuple[object, ...]:
    return (
        delivery.number,
        delivery.seq,
        delivery.state.value,
        delivery.attempts,
        micros(delivery.at),
        delivery.status,
        delivery.error,
        None if delivery.next_try is None else micros(delivery.next_try),
    )


def _encode(config: PushConfig) -> str:
    fields = {
        "url": config.url,
        "token": config.token,
        "scheme": config.scheme,
        "credentials": config.credentials,
        "dialect": config.dialect,
        "set_by": config.set_by,
    }
    return json.dumps(fields, separators=(",", ":"))
