"""The rows of a store's log as machines ship them to each other; see `fleet.log`.

    appends ─read_rows─► LogRow: the seq of the append, and its content as bytes ─read_append─► StoredAppend

A row has all that a replica needs to keep the same append: the task's id and version, the claim of a message id, and
the text of the events, unchanged.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Final

import msgspec

from synapse.fleet.log import LogRow
from synapse.store.queries import query

_LARGEST: Final = 2**63 - 1


class StoredAppend(msgspec.Struct, frozen=True, array_like=True):
    """One append of a store: what several events changed in one task."""

    task_id: str
    version: int
    """Of the task after it."""
    body: str
    """The text of its events; see `store.codec`."""
    message_id: str | None = None
    """The message id that it claims, if it claims one, and the digest of the message."""
    digest: str | None = None


def read_rows(
    connection: sqlite3.Connection, after: int, *, up_to: int = 0, most_rows: int, most_bytes: int
) -> tuple[list[LogRow], bool]:
    """Reads the log after the seq `after`, at least one row if there is any; see `fleet.log.ReadRows`.

    Returns the rows, and whether none was left out because of a limit. `up_to` 0 means no end.
    """
    rows: list[LogRow] = []
    size = 0
    # Closed at once: a statement that is not read to its end would block the checkpoint of the WAL.
    with closing(connection.execute(query("appends_to_ship"), (after, up_to or _LARGEST))) as found:
        for seq, *fields in found:
            row = LogRow(seq, encode_append(StoredAppend(*fields)))
            if rows and (len(rows) >= most_rows or size + len(row.data) > most_bytes):
                return rows, False
            rows.append(row)
            size += len(row.data)
    return rows, True


def encode_append(append: StoredAppend) -> bytes:
    return _encoder.encode(append)


def read_append(row: LogRow) -> StoredAppend:
    """Returns the content of a row. Raises msgspec.MsgspecError for what no store has written."""
    return _decoder.decode(row.data)


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(StoredAppend)
