"""Codex: its rollout file, followed while it grows. Nothing is switched on, so nobody's hooks need to be trusted.

A shared background server would live on after the agent and write the rollout in Codex's place: it is left out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from synapse.core.question import Choice
from synapse.drivers.pty.signals.adapter import Listener, Prepared, Sender, Surroundings
from synapse.drivers.pty.signals.flags import knows_flag
from synapse.drivers.pty.signals.follower import Follower
from synapse.drivers.pty.signals.open_files import can_tell, open_files
from synapse.drivers.pty.signals.tail import first_record
from synapse.terminal.evidence import Source
from synapse.terminal.signals import codex
from synapse.terminal.signals.report import Record, word

NO_DAEMON: Final = "--no-daemon"


class CodexSignals:
    """Implements Adapter."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._listener: Listener | None = None
        self._pid = 0
        self._follower: Follower | None = None

    def prepare(self, arguments: tuple[str, ...]) -> Prepared:
        if NO_DAEMON in arguments or not knows_flag(NO_DAEMON, self._around):
            return Prepared(arguments=arguments)
        return Prepared(arguments=(NO_DAEMON, *arguments))

    def start(self, listener: Listener, pid: int, /) -> None:
        self._listener, self._pid = listener, pid
        listener.expect(Source.TRANSCRIPT, "its rollout has said nothing yet")
        self._follower = Follower(self._find, self._take, listener.quiet_for)
        self._follower.start()

    def look(self) -> None:
        if self._follower is not None:
            self._follower.look()

    def receive(self, payload: Record) -> None:
        """It has no hooks of ours."""

    async def answer(self, _question_id: str, _choice: Choice) -> bool:
        """Its rollout is read only."""
        return False

    def sender(self) -> Sender | None:
        """Its messages are typed."""
        return None

    def correction(self, _shown: str, /) -> str:
        return ""

    def stop(self) -> None:
        if self._follower is not None:
            self._follower.stop()

    def _find(self) -> Path | None:
        """The rollout that this Codex writes; where open files cannot be told, the newest of this folder."""
        if can_tell():
            rollouts = [path for path in open_files(self._pid) if _is_rollout(path)]
            return next((path for path in rollouts if codex.is_conversation(first_record(path))), None)
        return next((path for path in self._new_rollouts() if self._is_here(first_record(path))), None)

    def _new_rollouts(self) -> list[Path]:
        sessions = Path(self._around.env.get("CODEX_HOME") or self._around.home / ".codex") / "sessions"
        day = self._around.started[:10].replace("-", "/")
        return sorted((sessions / day).glob("rollout-*.jsonl"), reverse=True)

    def _is_here(self, first: Record) -> bool:
        is_new = word(first, "timestamp") >= self._around.started
        return codex.is_conversation(first) and is_new and codex.working_dir(first) == str(self._around.working_dir)

    def _take(self, record: Record) -> None:
        # A conversation that is resumed begins with what was said before.
        if self._listener is None or word(record, "timestamp") < self._around.started:
            return
        report = codex.read_record(record)
        if report is not None:
            self._listener.report(report)


def _is_rollout(path: Path) -> bool:
    return path.name.startswith("rollout-") and path.suffix == ".jsonl"
