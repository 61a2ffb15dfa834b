"""The durable record of an agent's last run: how it was launched, and which conversation its CLI had.

    HOME/conversations/<hash of the inbox>.json      private, replaced as a whole

A run writes it at its start, with the conversation that it goes on with or with none, and again whenever its CLI has a
turn in another conversation. Only a session that this very launch has seen gets into it: never "the latest".
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from synapse.config.private_files import make_private, write_private
from synapse.core.agent import AgentEntry, entry_from
from synapse.core.json_text import decode_object, object_in
from synapse.core.types import Clock

log = logging.getLogger(__name__)

RESUME: Final = "--resume"
"""The option of a host that goes on with the conversation of its agent's last run."""
_FOLDER: Final = "conversations"
_SUFFIX: Final = ".json"
_SESSION: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")
"""What a session's id may look like: it becomes a word of a command line, and a part of a file's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRun:
    """What is known of an agent's last run."""

    entry: AgentEntry
    """Its registry entry; its host is probably gone."""
    command: tuple[str, ...]
    """The command line of its host."""
    session: str = ""
    """The id that its CLI gives its conversation; empty if it had no turn that was seen."""
    told: str = ""
    """The digest of the instructions that this conversation was given; empty if none."""
    seen_at: str = ""
    """When the record was last written, in ISO 8601."""


class RunRecord:
    """Keeps the record of one run. A record that cannot be written must not harm the agent: that is logged."""

    def __init__(self, home: Path, me: AgentEntry, command: Sequence[str], clock: Clock) -> None:
        self._folder = home / _FOLDER
        self._path = _path_of(self._folder, me.inbox)
        self._clock = clock
        self._run = LastRun(entry=me, command=tuple(command))

    @property
    def session(self) -> str:
        """The conversation that is recorded."""
        return self._run.session

    def last(self) -> LastRun | None:
        """Returns the run before this one, if it was the same CLI in the same folder."""
        run, me = _read(self._path), self._run.entry
        if run is None or (run.entry.agent_type, run.entry.working_dir) != (me.agent_type, me.working_dir):
            return None
        return run

    def begin(self, last: LastRun | None) -> None:
        """Records the start of this run, which goes on with the conversation of `last`, or with none."""
        if last is not None:
            self._run = replace(self._run, session=last.session, told=last.told)
        self._write()

    def converse(self, session: str) -> None:
        """Records that the CLI had a turn in this conversation, or, if it is empty, left the one that was recorded."""
        if session and not _SESSION.fullmatch(session):
            log.warning("conversation_not_recorded", extra={"error": "the id of the session is unusual"})
            return
        if session != self._run.session:
            # Instructions were told in the conversation before, except those that began the first one of this run.
            told = self._run.told if not self._run.session else ""
            self._run = replace(self._run, session=session, told=told)
            self._write()

    def tell(self, digest: str) -> None:
        """Records that the CLI's conversation was given the instructions with this digest."""
        if digest != self._run.told:
            self._run = replace(self._run, told=digest)
            self._write()

    def _write(self) -> None:
        now = self._clock.now().isoformat(timespec="seconds").replace("+00:00", "Z")
        self._run = replace(self._run, seen_at=now)
        fields = {
            "inbox": self._run.entry.inbox,
            "session": self._run.session,
            "told": self._run.told,
            "seen_at": now,
            "command": list(self._run.command),
            "entry": self._run.entry.shown(),
        }
        draft = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            make_private(self._folder)
            write_private(draft, json.dumps(fields) + "\n")
            draft.replace(self._path)
        except OSError as error:
            log.warning("conversation_not_recorded", extra={"error": str(error)})


def last_runs(home: Path) -> list[LastRun]:
    """Returns the last run of every agent that is known, the latest first."""
    read = (_read(path) for path in (home / _FOLDER).glob(f"*{_SUFFIX}"))
    return sorted((run for run in read if run is not None), key=lambda run: run.seen_at, reverse=True)


def _path_of(folder: Path, inbox: str) -> Path:
    digest = hashlib.sha256(inbox.encode("utf-8", "surrogateescape")).hexdigest()
    return folder / f"{digest[:32]}{_SUFFIX}"


def _read(path: Path) -> LastRun | None:
    try:
        fields = decode_object(path.read_bytes())
    except (OSError, ValueError):
        return None
    entry = entry_from(object_in(fields, "entry"))
    if entry is None or entry.inbox != fields.get("inbox") or path.name != _path_of(path.parent, entry.inbox).name:
        return None
    words: object = fields.get("command")
    session, told, seen_at = (str(fields.get(key) or "") for key in ("session", "told", "seen_at"))
    return LastRun(
        entry=entry,
        command=tuple(map(str, words)) if isinstance(words, list) else (),  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]  # each becomes text
        session=session if _SESSION.fullmatch(session) else "",
        told=told,
        seen_at=seen_at,
    )
