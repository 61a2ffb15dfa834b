"""The files of others in the dashboard are those that the manifest names, unchanged, each with its licence."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import synapse

VENDOR = Path(synapse.__file__).parent / "dashboard" / "vendor"
MANIFEST: list[dict[str, Any]] = json.loads((VENDOR / "manifest.json").read_text(encoding="utf-8"))


def test_each_file_is_the_one_that_was_published() -> None:
    for entry in MANIFEST:
        content = (VENDOR / entry["file"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == entry["sha256"], entry["file"]


def test_each_file_has_a_name_a_version_and_its_licence() -> None:
    for entry in MANIFEST:
        assert entry["name"]
        assert entry["version"][0].isdigit()
        licence = (VENDOR / entry["licence_file"]).read_text(encoding="utf-8")
        assert entry["licence"] == "MIT"
        assert "Permission is hereby granted, free of charge" in licence


def test_there_are_no_other_files() -> None:
    named = {entry[field] for entry in MANIFEST for field in ("file", "licence_file")}

    assert {path.name for path in VENDOR.iterdir()} == {"manifest.json", *named}
