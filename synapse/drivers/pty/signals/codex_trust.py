"""Whether Codex would ask if a folder's own settings are trusted: a TUI with a server leaves them out unasked."""

from __future__ import annotations

import tomllib
from pathlib import Path

from synapse.terminal.signals.report import Record, part


def would_ask(working_dir: Path, codex_home: Path) -> bool:
    """True if the folder, or one around it, has settings for Codex, and nobody has said yet whether they count."""
    folders = (working_dir, *working_dir.parents)
    own = (folder / ".codex" for folder in folders)
    if not any(settings.is_dir() and settings != codex_home for settings in own):
        return False
    projects = part(_config(codex_home), "projects")
    return not any(part(projects, str(folder)) for folder in folders)


def _config(codex_home: Path) -> Record:
    try:
        return tomllib.loads((codex_home / "config.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
