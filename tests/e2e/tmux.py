"""A real terminal for tests: a tmux with one shell in it, whose screen is read and whose keys are pressed."""

from __future__ import annotations

import re
import shlex
import subprocess

import pytest

from synapse.registry.files import UNKNOWN, is_running
from tests.integration.attach.seat import children
from tests.integration.cli.session import COMMAND, Session
from tests.integration.waiting import until

PROMPTS = ("$", ">", ">>>")


class Terminal:
    """A tmux of its own with one shell in it."""

    def __init__(self, here: Session, columns: int = 90, rows: int = 24) -> None:
        self._socket = here.home / "tmux"
        environ = here.environ | {"PS1": "$ ", "TERM": "xterm-256color", "HISTFILE": "/dev/null"}
        size = ["-x", str(columns), "-y", str(rows)]
        shell = ["env", *(f"{name}={value}" for name, value in environ.items()), "bash", "--norc", "--noprofile"]
        subprocess.run(
            ["tmux", "-S", str(self._socket), "-f", "/dev/null", "new-session", "-d", *size, *shell],
            cwd=here.folder,
            check=True,
        )
        self.wait("$")

    def type(self, text: str) -> None:
        self._tmux("send-keys", "-l", text)
        self.press("Enter")

    def press(self, key: str) -> None:
        self._tmux("send-keys", key)

    def run(self, *arguments: str) -> None:
        self.type(shlex.join([*COMMAND, *arguments]))

    def screen(self) -> str:
        return self._tmux("capture-pane", "-p").rstrip()

    def wait(self, words: str) -> str:
        """Returns the screen once a line of it begins with `words`, and with nothing more for a prompt."""
        pattern = f"^{re.escape(words)}" + ("$" if words in PROMPTS else "")
        return self._repeat_until(pattern, "")

    def press_until(self, key: str, words: str) -> str:
        """Presses a key, again and again if it does nothing yet; returns as `wait` does."""
        return self._repeat_until(f"^{re.escape(words)}", f'tmux -S "$0" send-keys {shlex.quote(key)}')

    def close(self) -> None:
        """Ends the terminal, and returns when what ran in it has ended too: it may still write into its folder."""
        asked = ["tmux", "-S", str(self._socket), "list-panes", "-F", "#{pane_pid}"]
        shells = subprocess.run(asked, check=False, capture_output=True, encoding="utf-8").stdout.split()
        ran = [pid for shell in shells for pid in (int(shell), *children(int(shell)))]
        subprocess.run(["tmux", "-S", str(self._socket), "kill-server"], check=False, capture_output=True)
        until(lambda: not any(is_running(pid, UNKNOWN) for pid in ran), "the programs in the terminal to end")

    def _repeat_until(self, pattern: str, act: str) -> str:
        script = (
            f'{act or ":"}; until tmux -S "$0" capture-pane -p | grep -qP -- "$1"; do sleep 0.05; {act or ":"}; done'
        )
        try:
            subprocess.run(["bash", "-c", script, str(self._socket), pattern], timeout=20, check=True)
        except subprocess.TimeoutExpired:
            pytest.fail(f"{pattern!r} was not seen on:\n{self.screen()}")
        return self.screen()

    def _tmux(self, *arguments: str) -> str:
        ran = subprocess.run(
            ["tmux", "-S", str(self._socket), *arguments], check=True, capture_output=True, encoding="utf-8"
        )
        return ran.stdout
