"""What real CLIs reported, recorded once; paths and names are made up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[3] / "golden"


def recorded(cli: str, name: str) -> list[dict[str, Any]]:
    lines = (FOLDER / cli / name).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]
