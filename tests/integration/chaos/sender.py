"""One sender of a chaos run, a process of its own: sends, repeats, cancels, and writes down what it was told.

    python sender.py PLAN LOG          with SYNAPSE_HOME set

PLAN has one message in a line (see `letters.Letter`). Each is sent until somebody has accepted it, with the same
message id, as a careful client does: a host may be killed before it can answer. LOG gets a line for every answer.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from synapse.client.http import Answer, HostAddress, NoAnswer, request
from synapse.core.agent import AgentEntry
from synapse.registry.files import FileRegistry, is_alive
from tests.integration.chaos.letters import Letter, read_letters

PATIENCE = 60.0
"""Seconds that a message is tried for; an agent is away for a moment when it was killed."""


class Sender:
    """Sends letters, one after the other."""

    later: ClassVar[tuple[int, ...]] = ()
    """Statuses of an answer after which a message is sent again."""

    def __init__(self, log: Path) -> None:
        self._registry = FileRegistry(Path(os.environ["SYNAPSE_HOME"]) / "registry")
        self._log = log.open("a", encoding="utf-8", buffering=1)

    def send_all(self, plan: Path) -> None:
        for letter in read_letters(plan):
            select.select((), (), (), letter.pause)
            self.send(letter)

    def send(self, letter: Letter) -> None:
        if letter.by_command:
            self._send_by_command(letter)
            return
        task_id = ""
        for _ in range(letter.copies):
            answer = self._insist(letter)
            if answer is None or answer.status >= 300:
                self._note(letter, "refused", json.dumps(answer.body if answer else "nobody answered"))
                return
            task_id = str(answer.body["task"]["id"])
            self._note(letter, "accepted", task_id)
        if letter.cancel_after is not None:
            self._cancel(letter, task_id)

    def _send_by_command(self, letter: Letter) -> None:
        """`synapse send`, killed in the middle if the letter says so; nobody knows then whether it was accepted."""
        command = [sys.executable, "-P", "-m", "synapse.cli.main", "send", letter.target, letter.text, "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as sending:
            try:
                said, _ = sending.communicate(timeout=letter.kill_after)
            except subprocess.TimeoutExpired:
                sending.kill()
                self._note(letter, "killed", "")
                return
        with suppress(ValueError, KeyError, TypeError):
            self._note(letter, "accepted", str(json.loads(said)["task"]["id"]))

    def _insist(self, letter: Letter) -> Answer | None:
        body = self._body(letter)
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            with suppress(NoAnswer):
                entry = self._find(letter.target)
                if entry is not None:
                    answer = request(address(entry), "POST", letter.path, body, timeout=10)
                    if answer.status not in self.later:
                        return answer
            select.select((), (), (), 0.05)
        return None

    def _cancel(self, letter: Letter, task_id: str) -> None:
        select.select((), (), (), letter.cancel_after)
        with suppress(NoAnswer):
            entry = self._find(letter.target)
            if entry is not None:
                answer = request(address(entry), "POST", f"/tasks/{task_id}/cancel", {}, timeout=10)
                self._note(letter, "cancel", str(answer.status))

    def _body(self, letter: Letter) -> dict[str, Any]:
        return letter.body()

    def _find(self, name: str) -> AgentEntry | None:
        return next((entry for entry in self._registry.written() if entry.name == name and is_alive(entry)), None)

    def _note(self, letter: Letter, what: str, detail: str) -> None:
        entry: dict[str, Any] = {"nonce": letter.nonce, "what": what, "detail": detail}
        self._log.write(json.dumps(entry) + "\n")


def address(entry: AgentEntry) -> HostAddress:
    return HostAddress(entry.socket, port=entry.port)


if __name__ == "__main__":
    Sender(Path(sys.argv[2])).send_all(Path(sys.argv[1]))
