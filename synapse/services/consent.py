"""Remembers in the state folder which services a person has installed.

A service has no terminal. Where only a person at a terminal may start something (`person_proof`), systemd may start
what that person has installed, as they installed it.
"""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import Final

from synapse.client.versions import GATEWAY_UNIT, is_gateway_service
from synapse.config.private_files import make_private, write_private

_FOLDER: Final = "services"


def record_installed(home: Path, unit: str, now: datetime) -> None:
    """Remembers that a person who may decide has installed the unit. Raises OSError."""
    make_private(home / _FOLDER)
    write_private(home / _FOLDER / unit, f"{now.isoformat(timespec='seconds')}\n")


def forget_installed(home: Path, unit: str) -> None:
    """Forgets it. Raises OSError."""
    (home / _FOLDER / unit).unlink(missing_ok=True)


def is_installed_gateway(home: Path, arguments: list[str]) -> bool:
    """Returns whether systemd runs this process as the gateway that a person has installed, which has no arguments."""
    return not arguments and is_gateway_service(os.getpid()) and (home / _FOLDER / GATEWAY_UNIT).is_file()
