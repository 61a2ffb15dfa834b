"""Real git repositories for tests, in a temporary folder, without the configuration of whoever runs them."""

from __future__ import annotations

import subprocess
from pathlib import Path


def git(folder: Path, *arguments: str) -> str:
    """Runs git as a person would, and returns its output."""
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, encoding="utf-8", check=True)
    return done.stdout.strip()


def commit(folder: Path, name: str, text: str = "text\n", message: str = "a change") -> str:
    """Commits a file and returns the commit's hash."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    git(folder, "add", "--force", "--", name)
    git(folder, "commit", "--quiet", "-m", message)
    return git(folder, "rev-parse", "HEAD")


def new_repository(folder: Path) -> Path:
    """Makes a repository with one commit on `main`."""
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet", "--initial-branch=main")
    commit(folder, "README", "hello\n", "begin")
    return folder


def configure_git(home: Path) -> dict[str, str]:
    """Writes a configuration with an author, and returns the environment in which git reads that one only."""
    text = '[user]\n\tname = Test\n\temail = test@example.com\n[protocol "file"]\n\tallow = always\n'
    (home / ".gitconfig").write_text(text, encoding="utf-8")
    return {"HOME": str(home), "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": str(home / ".gitconfig")}
