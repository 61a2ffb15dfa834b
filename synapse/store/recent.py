"""Reads a few facts of recent tasks for people who type: quickly, without opening the store for writing.

A shell asks for them while a person waits for the Tab key, so this module imports nothing but SQLite.
"""

import sqlite3

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

WAIT_SECONDS = 0.5
_OPEN_STATES = "('submitted', 'working', 'input_required', 'auth_required')"
_RECENT = """
SELECT id, inbox, state, (
    SELECT substr(json_extract(body, '$[0][2].message.parts[0].text'), 1, 200)
    FROM appends WHERE task = tasks.number AND json_extract(body, '$[0][2].queued') IS NOT 0
        AND json_extract(body, '$[0][2].metadata.sender.sender_id') IS NOT ?
    ORDER BY version LIMIT 1
) AS text FROM tasks WHERE hidden = 0 AND (scope = ? OR scope GLOB 'machine:*') AND {condition}
ORDER BY updated_at DESC LIMIT ?
"""


def recent_tasks(path: str, limit: int, *, only_open: bool, system: str, scope: str) -> "Iterator[tuple[str, ...]]":
    """Yields id, inbox, state and beginning of the message of the tasks that changed last, latest first.

    Tasks that other machines sent belong to every scope. Leaves out instructions, which `system` sends, and tasks in
    which an agent only waits. Yields nothing if the store cannot be read: nobody who presses Tab wants to know why.
    """
    statement = _RECENT.format(condition=f"state IN {_OPEN_STATES}" if only_open else "true")
    # Not urllib.parse, which loads regular expressions.
    place = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    try:
        connection = sqlite3.connect(f"file:{place}?mode=ro", uri=True, timeout=WAIT_SECONDS)
    except sqlite3.Error:
        return
    try:
        for task_id, inbox, state, text in connection.execute(statement, (system, scope, limit)):
            if text is not None:
                yield task_id, inbox, state, text
    except sqlite3.Error:
        return
    finally:
        connection.close()
