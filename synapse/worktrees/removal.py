"""Removes a worktree that nobody can lose anything with, and refuses every other one.

There is no way to force it: a refusal names the git command, which a person can type who has looked.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Final

from synapse.client.lines import short_path
from synapse.core.agent import AgentEntry
from synapse.core.errors import Conflict
from synapse.worktrees.ensure import locked
from synapse.worktrees.git import CHECKOUT_SECONDS, git, linked_worktrees, try_git
from synapse.worktrees.inventory import Facts, inspect

SHOWN_FILES: Final = 3


def obstacles(facts: Facts) -> list[str]:
    """Returns each reason why a worktree must not be removed."""
    few = ", ".join(facts.ignored[:SHOWN_FILES]) + (", …" if len(facts.ignored) > SHOWN_FILES else "")
    commits = "1 commit" if facts.unsaved == 1 else f"{facts.unsaved} commits"
    reasons = (
        (facts.problem, facts.problem),
        (facts.record is None, "Synapse did not make it"),
        (facts.worktree.is_locked, "it is locked"),
        *((True, f"{one} is in it") for one in (*facts.agents, *facts.processes)),
        (facts.changed, f"{_files(facts.changed)} with changes that are not committed"),
        (facts.untracked, f"{_files(facts.untracked)} that git does not know"),
        (facts.ignored, f"ignored files that may exist nowhere else: {few}"),
        (facts.hidden, f"{_files(facts.hidden)} whose changes git was told not to show"),
        (facts.unfinished, f"{facts.unfinished} is not finished"),
        (facts.unsaved, f"{commits} neither pushed nor in {facts.default_branch or 'another branch'}"),
    )
    return [reason for holds, reason in reasons if holds]


def remove_worktree(facts: Facts, running: Sequence[AgentEntry]) -> bool:
    """Removes a worktree, and the branch that Synapse made for it if that is merged; returns whether the branch went.

    Looks again under the lock, so `facts` may be old. What changes after that look is left to git, which refuses to
    remove a worktree with changes.

    Raises:
        Conflict: somebody could lose something, or git refuses.
    """
    repository, path = facts.repository, facts.worktree.path
    with locked(repository):
        known = next((one for one in linked_worktrees(repository) if one.path == path), None)
        if known is None:
            raise Conflict(f"{path} is no longer a worktree of {repository.main}")
        facts = inspect(repository, known, running)
        if reasons := obstacles(facts):
            raise Conflict(f"{short_path(str(path))} is not removed: {'; '.join(reasons)}", hint=_way_out(facts))
        git(repository.common, "worktree", "remove", str(path), seconds=CHECKOUT_SECONDS)
        record, branch = facts.record, facts.worktree.branch
        if record is None or not (record.made_branch and branch == record.branch and facts.is_merged):
            return False
        # Git looks again whether it is merged.
        return try_git(repository.common, "branch", "--quiet", "--delete", branch)[0] == 0


def _way_out(facts: Facts) -> str:
    path, main = shlex.quote(str(facts.worktree.path)), shlex.quote(str(facts.repository.main))
    if facts.worktree.is_missing:
        return f"git -C {main} worktree prune"
    if facts.agents:
        return f"synapse stop {facts.agents[0]}"
    if facts.processes:
        return "leave the folder in those processes first"
    if facts.worktree.is_locked:
        return f"git -C {main} worktree unlock {path}"
    force = "--force " if facts.dirty or facts.unfinished else ""
    return f"to look at it:      git -C {path} status\nif nobody needs it: git -C {main} worktree remove {force}{path}"


def _files(number: int) -> str:
    return "1 file" if number == 1 else f"{number} files"
