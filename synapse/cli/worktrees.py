"""`synapse worktrees` and `synapse diff`: the git worktrees of agents, and what agents have changed in them."""

from __future__ import annotations

import shlex
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from synapse.cli.exit_codes import DONE
from synapse.cli.output import print_json, print_notice, print_result
from synapse.cli.parser import VerbParser
from synapse.cli.tables import table
from synapse.client.hosts import current_folder, find_local_agent, open_registry
from synapse.client.lines import plain, short_path
from synapse.core.address import matching, nearest, short_name
from synapse.core.agent import AgentEntry
from synapse.core.errors import Ambiguous, Conflict, InvalidRequest, NotFound, UnsupportedOperation
from synapse.worktrees.changes import Changes, open_changes
from synapse.worktrees.git import Repository, open_repository
from synapse.worktrees.inventory import Facts, inventory
from synapse.worktrees.removal import obstacles, remove_worktree

EXAMPLES = """
synapse worktrees                   those of this repository, and of running agents
synapse worktrees remove codex      only if nothing would be lost with it
synapse start codex --worktree      start an agent in one
"""
DIFF_EXAMPLES = """
synapse diff codex                  its commits, changes and new files, as one diff
synapse diff codex --stat           only how much changed in which files
synapse diff codex | git apply      the same changes here
"""
TITLES = ("PATH", "BRANCH", "AGENT", "DIRTY", "AHEAD", "MERGED", "IN USE")
SHOWN_COMMITS = 10


def run_worktrees(arguments: list[str]) -> int:
    """Lists worktrees or removes one, and returns the exit code."""
    parser = VerbParser("worktrees", examples=EXAMPLES)
    parser.add_argument("action", nargs="?", choices=["remove"], metavar="remove", help="remove the worktree NAME")
    parser.add_argument("name", nargs="?", metavar="NAME", help="its name, its path, or its branch")
    options = parser.parse_args(arguments)
    running = open_registry().entries()
    if options.action is None:
        return _list(running, options)
    if not options.name:
        parser.error("name the worktree to remove  (synapse worktrees)")
    return _remove(options.name, running, options)


def run_diff(arguments: list[str]) -> int:
    """Shows what an agent has changed and returns the exit code."""
    parser = VerbParser("diff", examples=DIFF_EXAMPLES)
    parser.add_argument("agent", metavar="AGENT", help="an agent, or the name of its worktree")
    parser.add_argument("--stat", action="store_true", help="show only how much changed in which files")
    options = parser.parse_args(arguments)
    name, folder = _place_of(options.agent)
    try:
        with open_changes(folder) as changes:
            if options.json:
                print_json(_as_json(name, changes))
                return DONE
            _print_summary(name, changes)
            return changes.show(stat=options.stat)
    except (InvalidRequest, UnsupportedOperation) as error:
        raise error.reworded(f"{name} has no diff: {error}") from None


def _list(running: Sequence[AgentEntry], options: Namespace) -> int:
    everything = [facts for one in _repositories(running) for facts in inventory(one, running)]
    if options.json:
        print_json([_fields(facts) for facts in everything])
        return DONE
    if everything:
        print_result(table(TITLES, [_row(facts) for facts in everything], elastic=0))
    else:
        print_notice(
            "There are no worktrees of this repository or of running agents.  (synapse start PROFILE --worktree)"
        )
    return DONE


def _remove(name: str, running: Sequence[AgentEntry], options: Namespace) -> int:
    facts = _find(name, running)
    is_branch_gone = remove_worktree(facts, running)
    path, branch = facts.worktree.path, facts.worktree.branch
    if options.json:
        print_json({"path": str(path), "branch": branch, "branch_removed": is_branch_gone})
        return DONE
    kept = f"; the branch {branch} stays" if branch and not is_branch_gone else ""
    gone = f", with its merged branch {branch}" if is_branch_gone else ""
    print_notice(f"Removed {short_path(str(path))}{gone}{kept}.")
    return DONE


def _repositories(running: Sequence[AgentEntry], *folders: str) -> list[Repository]:
    """Returns the repositories of the current folder, of `folders` and of running agents, without doubles."""
    wanted = (current_folder(), *folders, *(entry.working_dir for entry in running))
    found: dict[Path, Repository] = {}
    for folder in dict.fromkeys(wanted):
        try:
            repository = open_repository(Path(folder))
        except (InvalidRequest, NotFound, UnsupportedOperation):
            continue  # it is in no repository, or gone
        except Conflict as error:
            print_notice(f"Warning: {error}")
            continue
        found.setdefault(repository.common, repository)
    return list(found.values())


def _find(name: str, running: Sequence[AgentEntry]) -> Facts:
    """Returns the worktree that a person means.

    Raises:
        NotFound, Ambiguous: none matches, or several do.
    """
    path = Path(current_folder(), name)
    folders = [name] if path.is_dir() else []
    known = [facts for one in _repositories(running, *folders) for facts in inventory(one, running)]
    # A path is exact; a name may be one of several things.
    found = [facts for facts in known if facts.worktree.path == path.resolve()] or [
        facts for facts in known if name in (facts.name, facts.agent, facts.worktree.branch)
    ]
    if len(found) > 1:
        paths = ", ".join(shlex.quote(str(facts.worktree.path)) for facts in found)
        raise Ambiguous(f"'{name}' means several worktrees", hint=f"name the path: {paths}")
    if not found:
        meant = nearest(name, [facts.name for facts in known])
        guess = f"Did you mean '{meant}'?  " if meant else ""
        raise NotFound(f"there is no worktree '{name}'", hint=f"{guess}(synapse worktrees)")
    return found[0]


def _place_of(target: str) -> tuple[str, Path]:
    """Returns the name and folder of a running agent, or of a worktree whose agent has stopped.

    Raises as `find_local_agent`.
    """
    registry = open_registry()
    running = registry.entries()
    if not matching(target, running):
        try:
            facts = _find(target, running)
        except NotFound:
            pass  # the error about the agent says more
        else:
            return facts.name, facts.worktree.path
    entry = find_local_agent(target, registry, "diff")
    return short_name(entry), Path(entry.working_dir)


def _print_summary(name: str, changes: Changes) -> None:
    commits = "1 commit" if len(changes.commits) == 1 else f"{len(changes.commits)} commits"
    branch = f" on {changes.branch}" if changes.branch else ""
    print_notice(plain(f"{name}: {commits}{branch} since {changes.base[:8]}, and what is not committed"))
    for commit in changes.commits[:SHOWN_COMMITS]:
        print_notice(plain(f"  {commit.hash[:8]} {commit.subject}"))
    if len(changes.commits) > SHOWN_COMMITS:
        print_notice(f"  and {len(changes.commits) - SHOWN_COMMITS} more")
    for folder in changes.skipped:
        print_notice(plain(f"Note: {folder} is a repository of its own, and not compared"))


def _as_json(name: str, changes: Changes) -> dict[str, Any]:
    return {
        "agent": name,
        "path": str(changes.path),
        "branch": changes.branch,
        "base": changes.base,
        "commits": [asdict(commit) for commit in changes.commits],
        "files": [
            {"path": one.path, "added": one.added, "removed": one.removed, "untracked": one.is_untracked}
            for one in changes.files()
        ],
        "not_compared": list(changes.skipped),
    }


def _fields(facts: Facts) -> dict[str, Any]:
    return {
        "name": facts.name,
        "path": str(facts.worktree.path),
        "repository": str(facts.repository.main),
        "branch": facts.worktree.branch,
        "head": facts.worktree.head,
        "made_by_synapse": facts.record is not None,
        "agent": facts.agent,
        "changed": facts.changed,
        "untracked": facts.untracked,
        "ignored": list(facts.ignored),
        "hidden": facts.hidden,
        "unfinished": facts.unfinished,
        "default_branch": facts.default_branch,
        "ahead": facts.ahead,
        "behind": facts.behind,
        "unpushed": facts.unpushed,
        "unsaved": facts.unsaved,
        "merged": facts.is_merged,
        "locked": facts.worktree.is_locked,
        "agents": list(facts.agents),
        "processes": list(facts.processes),
        "problem": facts.problem,
        "kept_because": obstacles(facts),
    }


def _row(facts: Facts) -> tuple[str, ...]:
    where = (short_path(str(facts.worktree.path)), facts.worktree.branch or "(detached)", facts.agent or "-")
    if facts.problem:
        return (*where, "?", "?", "?", facts.problem)
    return (
        *where,
        str(facts.dirty or "no"),
        str(facts.ahead) + (f", {facts.unpushed} unpushed" if facts.unpushed else ""),
        "yes" if facts.is_merged else "no",
        # Most processes beside an agent are its own.
        ", ".join(facts.agents or facts.processes) or "no",
    )
