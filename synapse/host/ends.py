"""How hosts ended, and how long to wait before one is started again.

A host writes a record when it ends by itself or by a signal. A host that was killed, or whose machine lost its power,
leaves none: a process that has gone without a record has crashed.

    stopped     a person, or a command of theirs, stopped it: SIGTERM, SIGINT or SIGHUP
    ended       its program ended, with a status
    replaced    another process took over its inbox
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from synapse.config.private_files import make_private, write_private
from synapse.core.agent import AgentEntry
from synapse.core.json_text import decode_object, encode

FOLDER: Final = "ends"
"""The folder inside the state folder with a record for each agent id."""
LONGEST_PAUSE: Final = 60.0
STEADY_SECONDS: Final = 60.0
"""An agent that ran for this long did not fail at its start."""


class EndReason(StrEnum):
    """Why a host ended."""

    STOPPED = "stopped"
    ENDED = "ended"
    REPLACED = "replaced"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostEnd:
    """How one process of a host ended. `status` is the exit status of the agent's program."""

    reason: EndReason
    status: int = 0
    at: str = ""


def write_end(home: Path, entry: AgentEntry, end: HostEnd) -> None:
    """Writes the record of a host's end atomically, over that of an earlier host with this agent id. Raises OSError."""
    folder = home / FOLDER
    make_private(folder)
    draft = folder / f".{entry.agent_id}.{os.getpid()}"
    process = {"pid": entry.pid, "pid_started": entry.pid_started}
    write_private(draft, encode({**process, "reason": end.reason.value, "status": end.status, "at": end.at}) + "\n")
    draft.replace(folder / f"{entry.agent_id}.json")


def read_end(home: Path, agent_id: str, pid: int, pid_started: int) -> HostEnd | None:
    """Returns how that process of a host ended; None if it left no record."""
    try:
        fields = decode_object((home / FOLDER / f"{agent_id}.json").read_bytes())
        if (fields.get("pid"), fields.get("pid_started")) != (pid, pid_started):
            return None
        return HostEnd(
            reason=EndReason(str(fields.get("reason"))),
            status=int(str(fields.get("status"))),
            at=str(fields.get("at")),
        )
    except (OSError, ValueError):
        return None


def pause_after(quick_ends: int) -> float:
    """Returns the seconds to wait before the next start, after so many quick ends in a row."""
    return float(min(2.0 ** max(quick_ends - 1, 0), LONGEST_PAUSE))
