"""Team files at the command line: the example, and the question whether a person trusts one."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import replace
from pathlib import Path

from synapse.cli.exit_codes import DONE
from synapse.cli.output import print_json, print_notice
from synapse.cli.person import objection_to_deciding
from synapse.cli.trust import confirm, contents_lines
from synapse.client.hosts import current_folder
from synapse.client.lines import plain, short_path
from synapse.config.paths import PROJECT_FOLDER, find_project
from synapse.config.private_files import make_folders
from synapse.config.process import SystemClock
from synapse.config.settings import load_profile, load_settings, project_of
from synapse.config.trust import Trust, TrustStore
from synapse.core.errors import Conflict, PersonRequired, SynapseError
from synapse.teams.file import EXAMPLE, FILE, Member, Team
from synapse.teams.source import TeamSource, read_source, team_file


def is_team_file(word: str) -> bool:
    """Returns whether a word names a team file, rather than an agent or a team."""
    return word.endswith(".toml") or "/" in word or Path(word).is_file()


def write_example(file: str, *, as_json: bool) -> int:
    """Writes a commented team file, for the project or at a path, and returns the exit code."""
    here = current_folder()
    path = team_file(file, here) if file else Path(find_project(os.path.realpath(here)) or here) / PROJECT_FOLDER / FILE
    make_folders(path.parent)
    try:
        # Exclusive: an example must never replace a file, nor follow a link.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except FileExistsError:
        raise Conflict(f"{path} exists already", hint="`synapse up --example FILE` writes another file") from None
    with os.fdopen(descriptor, "w", encoding="utf-8") as output:
        output.write(EXAMPLE)
    if as_json:
        print_json({"file": str(path)})
    else:
        up = "synapse up" if not file else f"synapse up {shlex.quote(short_path(str(path)))}"
        print_notice(f"Wrote {short_path(str(path))}. Edit it, then: {up}")
    return DONE


def trusted_source(file: Path, *, asks: bool) -> TeamSource:
    """Returns a team file that the person trusts, with the bytes that they trust; asks them at a terminal.

    Raises:
        PersonRequired: it is not trusted, and nobody can be asked, or they said no.
        NotFound, InvalidSettings: as `read_source`, and for a file with mistakes.
    """
    home = load_settings().home
    source = read_source(file, home)
    if source.trust is Trust.TRUSTED:
        return source
    why = "has changed since you trusted it" if source.trust is Trust.CHANGED else "is not trusted"
    place = source.project.folder
    hint = f"review it, then type in a terminal of your own: synapse trust {shlex.quote(str(place))}"
    if not asks or objection_to_deciding() or not _is_person_there():
        raise PersonRequired(f"{file} {why}, and runs programs", hint=hint)
    # Mistakes are told before the question.
    team = source.team()
    print_notice(f"{plain(short_path(str(file)))} {why}. It would run:")
    for line in _program_lines(team):
        print_notice(f"  {line}")
    if source.is_in_project:
        project = project_of(place, home)
        if project is None or project.project.digest != source.project.digest:
            raise Conflict(f"{source.project.place} changes while it is read", hint="try again")
        others = contents_lines(project, without=os.path.relpath(file, source.project.place))
        also = f"With it, all of {plain(short_path(str(source.project.place)))} would be trusted:"
        print_notice("\n  ".join((also, *others)) if others else "Nothing else is in that folder.")
    what = "folder" if source.is_in_project else "file"
    print_notice("Its authors could run programs as you. You will be asked again when it changes.")
    if not confirm(f"Do you trust this {what}? [y/N] "):
        raise PersonRequired(f"{file} is not trusted", hint=hint)
    TrustStore(home).decide(source.project, SystemClock().now(), trusted=True)
    return replace(source, trust=Trust.TRUSTED)


def _is_person_there() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr is not None and sys.stderr.isatty()


def _program_lines(team: Team) -> list[str]:
    longest = max(len(name) for name in team.names)
    return [
        f"{plain(member.name):<{longest}}  {plain(_program(member))}  in {plain(short_path(member.folder))}"
        for member in team.members
    ]


def _program(member: Member) -> str:
    """Returns the command line of a member's program, as its profile has it."""
    if member.script:
        return f"the script {short_path(member.script)}"
    try:
        profile = load_profile(member.profile, load_settings(folder=member.folder).profile_sources)
    except (SynapseError, OSError):
        return shlex.join([member.profile, *member.arguments])
    words = shlex.join([*profile.command, *profile.args, *member.arguments])
    return f"{words}{' (in a git worktree)' if member.worktree else ''}"
