"""The secret of one launch, which proves an agent to every host where the system hides its process.

A sandbox or a container may have its own pids, so that a host cannot read who connects. The MCP server of a launch then
shows the secret (`core.agent.LAUNCH_HEADER`), which only this user can read. Hosts compare it with the `launch_key` of
the registry entries, from which nobody can tell the secret.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

from synapse.config.private_files import make_private, write_private
from synapse.core.agent import SECRET_FILE, AgentEntry

_SECRET_BYTES: Final = 32
_LONGEST: Final = 128
"""Bytes of a header that are worth hashing; a secret has 43."""


class LaunchSecret:
    """The file with the secret of one launch, in the launch's private folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self) -> str:
        """Writes a new secret, and returns the key that recognises it. Raises OSError."""
        for folder in (self._folder.parent, self._folder):
            make_private(folder)
        secret = secrets.token_urlsafe(_SECRET_BYTES)
        write_private(self._folder / SECRET_FILE, secret + "\n")
        return launch_key(secret.encode("ascii"))

    def remove(self) -> None:
        """Removes the secret. Without its file it is worth nothing more, because its agent leaves the registry."""
        with suppress(OSError):
            (self._folder / SECRET_FILE).unlink(missing_ok=True)


def launch_key(secret: bytes) -> str:
    """Returns what a registry entry has of a secret: its SHA-256, in hexadecimal digits."""
    return sha256(secret).hexdigest()


def agent_with(secret: bytes, entries: Iterable[AgentEntry]) -> AgentEntry | None:
    """Returns the agent whose launch has this secret, or None. Compares in constant time."""
    if len(secret) > _LONGEST:
        return None
    key = launch_key(secret).encode("ascii")
    found = None
    for entry in entries:
        if hmac.compare_digest(entry.launch_key.encode("utf-8"), key):
            found = entry
    return found
