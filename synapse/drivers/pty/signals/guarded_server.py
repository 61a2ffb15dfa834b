"""A server of a CLI's own that runs beside it, and never longer than we do; see `server_guard`."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_GUARD: Final = Path(__file__).with_name("server_guard.py")
_LOOK_SECONDS: Final = 0.005
_MOST_LOOKS: Final = 2000


class GuardedServer:
    """Started in a thread that may wait; ended from anywhere."""

    def __init__(self, command: tuple[str, ...], env: Mapping[str, str], working_dir: Path) -> None:
        """Start it.

        Raises:
            OSError: it cannot be.
        """
        self._guard = subprocess.Popen(  # noqa: S603  # the CLI that is about to be started anyway
            (sys.executable, "-I", "-S", str(_GUARD), *command),
            env=dict(env),
            cwd=working_dir,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def wait_for(self, socket: Path) -> bool:
        """Wait until it listens there; False if it has ended, or takes too long."""
        for _ in range(_MOST_LOOKS):
            if socket.exists():
                return True
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._guard.wait(_LOOK_SECONDS)
                return False
        return False

    def has_ended(self) -> bool:
        """True once it runs no more."""
        return self._guard.poll() is not None

    def stop(self) -> None:
        """Let it end; it takes a moment, which is waited for in a thread."""
        if self._guard.stdin is not None:
            self._guard.stdin.close()
        # Not a daemon: this process does not leave before the server has.
        threading.Thread(target=self._guard.wait, name="server-guard").start()
