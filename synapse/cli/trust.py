"""`synapse trust`: trusts the `.synapse/` of projects, and asks about a project that is new or has changed."""

from __future__ import annotations

import os
import shlex
import sys
import tomllib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final, cast

from synapse.cli.exit_codes import DONE
from synapse.cli.main import VERBS, way_to_profile
from synapse.cli.output import print_json, print_notice, print_result
from synapse.cli.parser import VerbParser
from synapse.cli.person import objection_to_deciding, require_deciding_person
from synapse.cli.tables import table
from synapse.client.hosts import current_folder
from synapse.client.lines import plain, short_path
from synapse.client.times import ago
from synapse.config.paths import PROJECT_FOLDER, find_project
from synapse.config.process import SystemClock
from synapse.config.settings import (
    FOR_PROJECTS,
    ProjectSettings,
    Settings,
    load_home,
    load_settings,
    profile_in,
    profile_names,
    project_of,
)
from synapse.config.trust import Decision, Trust, TrustStore, read_project, read_single_file
from synapse.core.errors import InvalidRequest, NotFound, UnknownProfile

EXAMPLES = """
synapse trust                    trust the current project, as it is now
synapse trust ~/src/shop         trust another project
synapse trust night.toml         trust a team file that is in no project
synapse trust --list             list decisions, and what has changed since
synapse trust --revoke           stop trusting the current project
"""
MAX_INERT_FILES: Final = 10
"""How many files without effect are named before the question."""
_YES: Final = ("y", "yes")
_TOML: Final = ".toml"


def run_trust(arguments: list[str]) -> int:
    """Trusts a project, lists the decisions or revokes one; returns the exit code."""
    parser = VerbParser("trust", examples=EXAMPLES)
    parser.add_argument(
        "folder", nargs="?", default="", metavar="FOLDER", help="the project, a folder in it, or a team file"
    )
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--list", action="store_true", help="list the decisions about folders")
    action.add_argument("--revoke", action="store_true", help="ignore the project's `.synapse/` from now on")
    options = parser.parse_args(arguments)
    # Loads only the home: the settings of a project that was trusted by mistake may be invalid.
    home = load_home(os.environ, current_folder())
    store = TrustStore(home)
    if options.list:
        if options.folder:
            parser.refuse(options.folder)
        return _list(store.decisions(), as_json=options.json)
    # No setting lets an agent pass, because a project can run anything.
    require_deciding_person("decide which folders are trusted")
    if options.revoke:
        return _revoke(store, options.folder, as_json=options.json)
    return _trust(_wanted(options.folder, home), store, as_json=options.json)


def settings_here(
    profile: str = "",
    *,
    uses: Collection[str] = FOR_PROJECTS,
    load: Callable[[], Settings] = load_settings,
    asks: bool = True,
) -> Settings:
    """Loads the settings for a command that uses the settings `uses` and the profile of a project.

    Asks a person at a terminal once about a project that is not trusted; else prints that the project is ignored.

    Raises:
        InvalidSettings: a file or variable is invalid.
        UnknownProfile: only the project has the profile, and it is not trusted.
    """
    settings = load()
    project = settings.project
    if project is None:
        return settings
    # A project cannot replace a profile: its own one of that name is not used.
    own = profile_names([source for source in settings.profile_sources if isinstance(source, Path)])
    profile = "" if profile in own else profile
    if asks and not project.is_trusted and project.matters(profile, uses) and _may_ask(project):
        TrustStore(settings.home).decide(project.project, SystemClock().now(), trusted=_ask(project))
        settings = load()
        project = settings.project or project
    if note := project.note(profile, uses):
        if profile in project.profiles and not project.is_trusted:
            raise UnknownProfile(f"the profile '{profile}' is not used: {plain(note)}")
        print_notice(f"Warning: {plain(note)}")
    return settings


def _may_ask(project: ProjectSettings) -> bool:
    """Returns whether a person who may decide is at the terminal, and was not asked about this content before."""
    if project.trust not in (Trust.UNKNOWN, Trust.CHANGED) or objection_to_deciding():
        return False
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr is not None and sys.stderr.isatty()


def _ask(project: ProjectSettings) -> bool:
    status = "has changed since you trusted it" if project.trust is Trust.CHANGED else "is not trusted"
    print_notice(f"{plain(str(project.project.place))} {status}. It would set or run:")
    for line in contents_lines(project):
        print_notice(f"  {line}")
    print_notice("The authors of these files could run programs as you. You will be asked again when a file changes.")
    return confirm("Do you trust this folder? [y/N] ")


def confirm(question: str) -> bool:
    """Asks the person at the terminal; returns whether they said yes."""
    sys.stderr.write(question)
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in _YES


def contents_lines(project: ProjectSettings, *, without: str = "") -> list[str]:
    """Returns a line for each file; only a few without effect, and those first, so that they hide nothing.

    `without` names a file that the person was shown already.
    """
    files = {name: what for name, what in contents(project).items() if name != without}
    inert = [plain(name) for name, what in files.items() if not what]
    more = [f"and {len(inert) - MAX_INERT_FILES} more files"] if len(inert) > MAX_INERT_FILES else []
    effects = [f"{plain(name):<24} {plain(what)}" for name, what in files.items() if what]
    return [*inert[:MAX_INERT_FILES], *more, *effects]


def contents(project: ProjectSettings) -> dict[str, str]:
    """Returns each file of a project with what it would run or set."""
    return {name: _effect(name, content, project) for name, content in sorted(project.project.files.items())}


def _effect(name: str, content: bytes, project: ProjectSettings) -> str:
    if name == project.file.name:
        if project.is_broken:
            return "is not TOML"
        wishes = [f"{key} = {value!r}" for key, value in project.wishes.items() if key in FOR_PROJECTS]
        return f"sets {', '.join(wishes)}" if wishes else "sets nothing that a project may set"
    profile = profile_in(name)
    if not profile and not name.endswith(_TOML):
        return ""
    try:
        fields: Mapping[str, Any] = tomllib.loads(content.decode("utf-8"))
    except (ValueError, RecursionError):
        return "is not TOML"
    if not profile:
        return _team_effect(fields)
    env = fields.get("env")
    environment = cast("dict[str, object]", env) if isinstance(env, dict) else {}
    variables = [f"{name}={value}" for name, value in environment.items()]
    words = [word for key in ("command", "args") for word in _words(fields.get(key))]
    start = f"  ({profile} is a verb too: {way_to_profile(profile)})" if profile in VERBS else ""
    return f"runs: {shlex.join([*variables, *words])}{start}"


def _team_effect(fields: Mapping[str, Any]) -> str:
    """Returns what a team file starts; empty for another file, such as a script."""
    agents = fields.get("agents")
    if not isinstance(agents, dict):
        return ""
    starts: list[str] = []
    for name, agent in cast("dict[str, object]", agents).items():
        table = cast("dict[str, object]", agent) if isinstance(agent, dict) else {}
        words = [str(table.get("profile") or table.get("script") or "?"), *_words(table.get("arguments"))]
        folder = f" in {table['folder']}" if "folder" in table else ""
        starts.append(f"{name} ({shlex.join(words)}{folder})")
    return f"starts: {', '.join(starts)}"


def _words(value: object) -> list[str]:
    return [str(word) for word in cast("list[object]", value)] if isinstance(value, list) else []


def _wanted(path: str, home: Path) -> ProjectSettings:
    """Returns the project of a folder, or a file that is trusted alone.

    Raises:
        NotFound: there is no such folder or file, or the folder is in no project.
    """
    given = Path(path or current_folder())
    if given.is_symlink() or given.is_file():
        file = read_single_file(Path(os.path.abspath(given)))
        if PROJECT_FOLDER not in file.folder.parts:
            return ProjectSettings(project=file, trust=TrustStore(home).trust_in(file))
        given = file.folder.parent
    wanted = given.resolve()
    if not wanted.is_dir():
        raise NotFound(f"there is no folder {wanted}")
    project = project_of(wanted, home)
    if project is None:
        raise NotFound(
            f"neither {wanted} nor a folder above it has a {PROJECT_FOLDER}/ that you own",
            hint="there is nothing to trust: a project is a folder with a `.synapse/`",
        )
    return project


def _trust(project: ProjectSettings, store: TrustStore, *, as_json: bool) -> int:
    if project.project.problem:
        raise InvalidRequest(
            f"{project.project.folder} cannot be trusted: {project.project.problem}",
            hint="keep only plain files of your own there",
        )
    decision = store.decide(project.project, SystemClock().now(), trusted=True)
    if as_json:
        print_json({**_fields(decision), "files": contents(project), "ignored": project.refused})
        return DONE
    for line in contents_lines(project):
        print_result(line)
    if project.refused:
        print_notice(f"Ignored, because a project may not set them: {', '.join(project.refused)}")
    print_notice(
        f"Trusted {plain(str(decision.folder))} as it is now.  (synapse trust --revoke {plain(str(decision.folder))})"
    )
    return DONE


def _revoke(store: TrustStore, folder: str, *, as_json: bool) -> int:
    # A project that no longer exists can be revoked too, by its path.
    given = Path(os.path.abspath(folder or current_folder()))
    # A file is known by its own path, not by the target of a link.
    wanted = given if given.is_symlink() and given.is_file() else given.resolve()
    known = {decision.folder for decision in store.decisions()}
    place = wanted if wanted in known else Path(find_project(str(wanted)) or wanted)
    store.revoke(place)
    if as_json:
        print_json({"folder": str(place), "state": "not trusted"})
    else:
        print_notice(f"{plain(str(place))} is no longer trusted.")
    return DONE


def _list(decisions: list[Decision], *, as_json: bool) -> int:
    if as_json:
        print_json([_fields(decision) for decision in decisions])
    elif decisions:
        now = SystemClock().now()
        rows = [(short_path(str(one.folder)), _state(one), ago(one.at, now)) for one in decisions]
        print_result(table(("FOLDER", "STATE", "DECIDED"), rows, elastic=0))
    else:
        print_notice("There are no decisions yet.  (synapse trust FOLDER)")
    return DONE


def _fields(decision: Decision) -> dict[str, str]:
    return {
        "folder": str(decision.folder),
        "state": _state(decision),
        "sha256": decision.digest,
        "at": decision.at,
    }


def _state(decision: Decision) -> str:
    if decision.folder.is_file() or decision.folder.is_symlink():
        project = read_single_file(decision.folder)
    elif (decision.folder / PROJECT_FOLDER).is_dir():
        project = read_project(decision.folder)
    else:
        return "gone"
    return "cannot be trusted" if project.problem else decision.about(project).value
