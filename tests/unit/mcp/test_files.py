"""A tool server reads only regular files inside the working folder, whatever a model names."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from synapse.client.files import NotReadable
from synapse.mcp.files import MOST_BYTES, file_parts


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "outside.txt").write_text("secret", encoding="utf-8")
    inside = tmp_path / "work"
    (inside / "src").mkdir(parents=True)
    (inside / "src" / "a.py").write_bytes(b"\x00\xff text")
    return inside


@pytest.mark.parametrize("path", ["src/a.py", "./src/../src/a.py", "{folder}/src/a.py", "alias/a.py"])
def test_a_file_inside_is_attached_with_its_bytes(folder: Path, path: str) -> None:
    (folder / "alias").symlink_to(folder / "src")

    (part,) = file_parts([path.format(folder=folder)], str(folder))

    assert part["type"] == "file"
    assert part["file"]["name"] == "a.py"
    assert base64.b64decode(part["file"]["bytes"]) == b"\x00\xff text"


OUTSIDE = ["../outside.txt", "src/../../outside.txt", "link", "folder-link/outside.txt", "..", "/etc/passwd"]
NO_FILES = ["src", ".", "missing", "src/a.py/x", "pipe", "a\x00b", "x" * 5000, "~/.ssh/id_rsa", ""]


@pytest.mark.parametrize("path", [*OUTSIDE, *NO_FILES])
def test_anything_else_is_refused(folder: Path, path: str) -> None:
    (folder / "link").symlink_to(folder.parent / "outside.txt")
    (folder / "folder-link").symlink_to(folder.parent)
    os.mkfifo(folder / "pipe")

    with pytest.raises(NotReadable):
        file_parts([path], str(folder))


def test_a_working_folder_behind_a_link_is_the_folder_it_leads_to(folder: Path) -> None:
    (folder.parent / "alias").symlink_to(folder)

    assert len(file_parts(["src/a.py"], str(folder.parent / "alias"))) == 1


@pytest.mark.parametrize("swapped", ["src", "src/a.py"])
def test_a_path_that_is_exchanged_after_the_check_is_not_followed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, swapped: str
) -> None:
    real = os.path.realpath

    def exchange_afterwards(path: str) -> str:
        resolved = real(path)
        if path.endswith("a.py"):
            (folder / swapped).rename(folder / "moved")
            (folder / swapped).symlink_to(folder / "moved")
        return resolved

    monkeypatch.setattr("synapse.client.files.os.path.realpath", exchange_afterwards)

    with pytest.raises(NotReadable, match="cannot be read"):
        file_parts(["src/a.py"], str(folder))


def test_all_files_together_are_bounded(folder: Path) -> None:
    for name in ("one", "two"):
        (folder / name).write_bytes(b"x" * (MOST_BYTES // 2))
    (folder / "three").write_bytes(b"y")

    assert len(file_parts(["one", "two"], str(folder))) == 2
    with pytest.raises(NotReadable, match="2 MiB"):
        file_parts(["one", "two", "three"], str(folder))
