"""What the architecture tests look at: the files of the checkout, without what tools leave behind."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "synapse"

# Walked by name and not asked of git, so that the tests also run in an unpacked source distribution.
FOLDERS = ("synapse", "tests", "docs", "scripts", "bin", "benchmarks", ".ci")
LEFT_BEHIND = {"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", "node_modules"}


def python_files(*folders: str) -> list[Path]:
    """Every Python file of these folders of the checkout, of all that hold code unless told otherwise."""
    chosen = folders or ("synapse", "tests", "benchmarks")
    return [path for folder in chosen for path in walk(ROOT / folder) if path.suffix == ".py"]


def text_files() -> Iterator[Path]:
    """Every file of the checkout that a person may read; recordings of terminals are data, not text."""
    # In a git worktree `.git` is a file with the path of the repository.
    yield from (path for path in ROOT.iterdir() if path.is_file() and path.name != ".git")
    for folder in FOLDERS:
        yield from (path for path in walk(ROOT / folder) if "golden" not in path.parts)


def walk(folder: Path) -> Iterator[Path]:
    """Every file under `folder`, in a stable order; nothing if there is no such folder."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and LEFT_BEHIND.isdisjoint(path.parts):
            yield path


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()
