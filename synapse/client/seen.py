"""Remembers until when a person has seen an agent's answers: `<home>/seen/<agent id>`, an empty file with that time.

All processes of the user share it: what was seen in `synapse top` needs nobody on the page. Light: `synapse status`
imports it.
"""

import os

from synapse.client.hosts import AGENT_VARIABLE
from synapse.client.views import FINISHED, ended_at, status_of
from synapse.registry.files import FileRegistry, controlling_terminal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import datetime
    from typing import Any

FOLDER = "seen"


def seen_until(home: "str | os.PathLike[str]", agent_id: str) -> "datetime | None":
    """Returns the time until which a person has seen the agent's answers; None if they have seen none."""
    from datetime import UTC, datetime, timedelta

    try:
        nanoseconds = os.stat(_path(home, agent_id)).st_mtime_ns
    except (OSError, ValueError):
        return None
    # Not `fromtimestamp`, which rounds: an answer that was seen must not look newer than its mark.
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=nanoseconds // 1000)


def mark_seen(home: "str | os.PathLike[str]", agent_id: str, at: "datetime") -> None:
    """Notes that a person has seen the agent's answers until `at`. Never moves the time back.

    Does nothing where the file cannot be written: then the answers stay unseen, and whoever shows them goes on.
    """
    from datetime import UTC, datetime

    known = seen_until(home, agent_id)
    if known is not None and known >= at:
        return
    passed = at - datetime(1970, 1, 1, tzinfo=UTC)
    nanoseconds = ((passed.days * 86_400 + passed.seconds) * 1_000_000 + passed.microseconds) * 1000
    try:
        path = _path(home, agent_id)
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
        os.utime(path, ns=(nanoseconds, nanoseconds), follow_symlinks=False)
    except (OSError, ValueError):
        return


def person_saw(registry: FileRegistry, agent_id: str, at: "datetime") -> None:
    """Marks the agent's answers until `at` as seen, if a person runs this process, at a terminal that is no agent's.

    A script without a terminal reads for somebody who may look later, or never.
    """
    terminal = controlling_terminal(os.getpid())
    # Not every system tells it.
    has_terminal = terminal or any(os.isatty(stream) for stream in range(3))
    of_agents = {entry.terminal for entry in registry.written()} - {0}
    if has_terminal and not os.environ.get(AGENT_VARIABLE) and terminal not in of_agents:
        mark_seen(os.path.dirname(registry.folder), agent_id, at)


def person_saw_end(registry: FileRegistry, agent_id: str, task: "dict[str, Any]") -> None:
    """Marks what the agent had answered when the task ended as seen, as `person_saw` does; nothing for an open task."""
    from datetime import datetime

    if status_of(task) in FINISHED:
        try:
            at = datetime.fromisoformat(ended_at(task))
        except ValueError:
            return  # no host of ours says it so
        person_saw(registry, agent_id, at)


def _path(home: "str | os.PathLike[str]", agent_id: str) -> str:
    """Raises ValueError for an id that is no file name."""
    if agent_id in ("", ".", "..") or os.path.basename(agent_id) != agent_id or "\0" in agent_id:
        raise ValueError(f"{agent_id!r} cannot be an agent id")
    return os.path.join(home, FOLDER, agent_id)
