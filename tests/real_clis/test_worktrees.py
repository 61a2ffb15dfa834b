"""A CLI asks whether it may trust the new folder of a worktree: the question is listed, and answered from elsewhere.

Claude Code and Codex ask about the repository, so a worktree of a trusted one starts without a question. Gemini asks
about each folder.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from synapse.calibration.sandbox import AGENT
from tests.real_clis.benches import Bench, bench_for, eventually
from tests.samples.repositories import commit, configure_git, git

WORKTREE = f"project.worktrees/{AGENT}"


def forget_claude(home: Path) -> None:
    file = home / ".claude.json"
    settings = json.loads(file.read_text(encoding="utf-8"))
    del settings["projects"]
    file.write_text(json.dumps(settings), encoding="utf-8")


def forget_codex(home: Path) -> None:
    file = home / ".codex" / "config.toml"
    before, _, rest = file.read_text(encoding="utf-8").partition("[projects.")
    file.write_text(f"{before}{rest[rest.index('[') :]}", encoding="utf-8")
    assert "projects" not in tomllib.loads(file.read_text(encoding="utf-8"))


def forget_nothing(_home: Path) -> None:
    """Gemini was told to trust the repository only."""


@contextmanager
def in_worktree(profile: str, monkeypatch: pytest.MonkeyPatch, forget: Callable[[Path], None]) -> Generator[Bench]:
    """Starts the CLI in a worktree of a repository that has settings for Codex, about which it asks."""
    with bench_for(profile, os.environ, {}) as bench:
        project, home = bench.workbench.project, bench.workbench.home
        forget(home)
        with monkeypatch.context() as git_only:
            for name, value in configure_git(home).items():
                git_only.setenv(name, value)
            git(project, "init", "--quiet", "--initial-branch=main")
            git(project, "add", ".")
            commit(project, ".codex/config.toml", 'model_verbosity = "low"\n')
        words = ("--name", AGENT, "--no-instructions", "--worktree", "--", *bench.workbench.recipe.args)
        started = bench.synapse("start", profile, *words)
        assert started.code == 0, started.notices
        entry = bench.workbench.entry()
        assert entry is not None
        assert entry.working_dir == str(project.parent / WORKTREE)
        yield bench


def is_answered(bench: Bench) -> bool:
    sent = bench.synapse("send", AGENT, "calibrate:one-line:1 please", "--response", "--timeout", "45")
    assert sent.code == 0, sent.notices
    return "The answer to one line." in sent.output


@pytest.mark.parametrize(
    ("profile", "forget", "title", "about"),
    [
        ("claude", forget_claude, "Is this a project you created or one you trust?", WORKTREE),
        ("codex", forget_codex, "Trust this folder?", "Trusting will apply to the repository root"),
        ("gemini", forget_nothing, "Do you trust the files in this folder?", f"Trust folder ({AGENT})"),
    ],
)
@pytest.mark.timeout(240)
def test_the_question_about_the_new_folder_is_answered_from_elsewhere(
    profile: str, forget: Callable[[Path], None], title: str, about: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with in_worktree(profile, monkeypatch, forget) as bench:
        eventually(bench.asks)
        (question,) = json.loads(bench.synapse("approvals", "--json").output)
        assert (question["kind"], question["title"]) == ("startup", title)
        assert about in bench.synapse("approvals").output

        approved = bench.synapse("approve", AGENT)

        assert approved.code == 0, approved.notices
        eventually(bench.is_ready)
        assert is_answered(bench)


@pytest.mark.parametrize("profile", ["claude", "codex"])
@pytest.mark.timeout(240)
def test_a_worktree_of_a_trusted_repository_starts_without_a_question(
    profile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with in_worktree(profile, monkeypatch, forget_nothing) as bench:
        eventually(bench.is_ready)

        assert is_answered(bench)
        # Codex is followed by its own server, although the repository has settings for it.
        assert "degraded" not in bench.synapse("status", AGENT, "--explain").output
