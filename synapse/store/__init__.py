"""Tasks and their events in SQLite."""
