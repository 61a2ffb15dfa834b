"""Which flags a CLI's version knows: asked once for each version, because a flag that it does not know ends it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final, cast

from synapse.drivers.pty.signals.adapter import Surroundings
from synapse.drivers.pty.spawn import locate
from synapse.registries.private_folders import make_folders, write_private

_HELP_SECONDS: Final = 15.0
_MOST_REMEMBERED: Final = 50


def knows_flag(flag: str, around: Surroundings) -> bool:
    """True if the CLI's help names the flag; what it said is remembered until the program changes."""
    path = locate(around.command, around.env.get("PATH"))
    if path is None:
        return False
    key = _version_key(Path(path), flag)
    remembered = _read(around.flags_file)
    if key not in remembered:
        remembered[key] = flag in _help(path, around)
        _write(around.flags_file, dict(list(remembered.items())[-_MOST_REMEMBERED:]))
    return remembered[key]


def _version_key(path: Path, flag: str) -> str:
    program = path.resolve()
    facts = program.stat()
    return f"{program} {facts.st_mtime_ns} {facts.st_size} {flag}"


def _help(path: str, around: Surroundings) -> str:
    try:
        done = subprocess.run(  # noqa: S603  # the program that is about to be started anyway
            (path, "--help"),
            env=dict(around.env),
            cwd=around.working_dir,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_HELP_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode(errors="replace")


def _read(file: Path) -> dict[str, bool]:
    try:
        value: object = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(value, Mapping):
        return {}
    return {str(key): known is True for key, known in cast("Mapping[object, object]", value).items()}


def _write(file: Path, known: Mapping[str, bool]) -> None:
    try:
        make_folders(file.parent)
        write_private(file, json.dumps(known, indent=1))
    except OSError:
        # It is asked again the next time.
        return
