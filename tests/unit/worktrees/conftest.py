"""Gives each test a git without the configuration of whoever runs it, and a repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.samples.repositories import configure_git, new_repository


@pytest.fixture(autouse=True)
def clean_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    home.mkdir()
    for name, value in configure_git(home).items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with one commit."""
    return new_repository(tmp_path / "shop")
