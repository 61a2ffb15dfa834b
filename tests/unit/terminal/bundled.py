"""The profiles that come with Synapse, as tests read them."""

from __future__ import annotations

import tomllib
from pathlib import Path

from synapse.terminal.profile import Profile, parse_profile

FOLDER = Path(__file__).resolve().parents[3] / "synapse" / "terminal" / "profiles"


def bundled_names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def bundled(name: str) -> Profile:
    return parse_profile(tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8")), name)
