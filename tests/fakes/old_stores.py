"""Stores as older versions left them."""

from __future__ import annotations

import sqlite3

from synapse.store.file import migrations
from synapse.store.queries import id_key, text_key


def bring_up_to(connection: sqlite3.Connection, schema: int) -> None:
    """Migrate a store to an older schema, as the Synapse of that schema did."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    for name, function in {"context_key": id_key, "id_key": id_key, "text_key": text_key}.items():
        connection.create_function(name, 1, function, deterministic=True)
    for number, script in migrations()[version:schema]:
        connection.executescript(f"{script}; PRAGMA user_version = {number};")
