"""`synapse doctor`: looks at everything that agents need on this machine, and says what to do.

What `synapse doctor` examines, one function for each subject. Each gives findings; none stops at the first.

`synapse config`: the settings in force, and where each value comes from.
"""

from __future__ import annotations

import errno
import os
import platform
import pwd
import shlex
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from synapse import __version__
from synapse.cli.exit_codes import DONE, FAILED
from synapse.cli.output import give_json, print_notice, print_result
from synapse.cli.parser import VerbParser
from synapse.cli.tables import plain, table
from synapse.client.fan_out import HostReply, ask_all
from synapse.client.hosts import stands_still, standstill
from synapse.config import process
from synapse.config.paths import USER_FILE, user_folder
from synapse.config.settings import (
    FOR_PROJECTS,
    PREFIX,
    ProjectSettings,
    Settings,
    TerminalSize,
    load_profile,
    load_settings,
    profile_names,
)
from synapse.core.address import short_name
from synapse.core.agent import AgentEntry
from synapse.core.driver import DEGRADED
from synapse.core.errors import ConnectionForbidden, InvalidProfile, InvalidSettings, StoreFailed, SynapseError
from synapse.core.json_text import objects_in
from synapse.drivers.pty.process import locate
from synapse.host.agent_command import AgentCommand
from synapse.host.identity import usual_socket_folders
from synapse.host.open_store import open_store, require_no_lost_store
from synapse.registry.files import FileRegistry, gateways
from synapse.server.lineage import own_lineage, standing_of, terminal_doubt
from synapse.server.listener import fault_of
from synapse.store.file import file_lock
from synapse.store.loss import SAVED

OK: Final = "ok"
NOTE: Final = "note"
PROBLEM: Final = "problem"
LEAST_PYTHON: Final = (3, 11)
LOCK_SECONDS: Final = 2.0
SHELL_SECONDS: Final = 10.0
"""How long a shell may take for one command; a login profile may be slow."""
LEAST_FREE_BYTES: Final = 50 * 1024 * 1024
LONGEST_SOCKET_NAME: Final = "synapse-opencode-65535.sock"
"""Of the agents that come with us."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: how it is, and what to do about it."""

    level: str
    subject: str
    text: str
    advice: str = ""


def examine() -> list[Finding]:
    """Look at everything."""
    findings = list(_versions())
    try:
        settings = load_settings()
    except InvalidSettings as error:
        return [*findings, Finding(PROBLEM, "settings", str(error), error.hint or "correct the file or the variable")]
    checks: tuple[Callable[[Settings], Iterator[Finding]], ...] = (
        _search_paths,
        _project,
        _person,
        _connections,
        _programs,
        _home,
        _sockets,
        _left_sockets,
        _store,
        _agents,
    )
    return [*findings, *(finding for check in checks for finding in check(settings))]


def _versions() -> Iterator[Finding]:
    python = platform.python_version()
    if sys.version_info[:2] >= LEAST_PYTHON:
        yield Finding(OK, "version", f"synapse {__version__}, Python {python}")
    else:
        yield Finding(PROBLEM, "version", f"Python {python} is too old", "install Python 3.11 or newer")
    path = shutil.which("synapse")
    if path:
        yield Finding(OK, "command", path)
    else:
        advice = f"add {Path(sys.executable).parent} to the PATH, so that you can type it"
        yield Finding(NOTE, "command", "`synapse` is not on the PATH of this shell", advice)


def _person(settings: Settings) -> Iterator[Finding]:
    """Whether commands typed here count as a person's. In an agent they do not, and that is no fault."""
    lineage, entries = own_lineage(), FileRegistry(settings.registry).entries()
    standing = standing_of(lineage, entries)
    if standing.agent_id:
        yield Finding(NOTE, "person", f"commands typed here are those of the agent {standing.agent_id}")
    elif standing.doubt:
        advice = "approve, resolve and attach in a terminal of your own"
        yield Finding(NOTE, "person", f"commands typed here do not count as a person's: {standing.doubt}", advice)
    elif settings.terminal_decides and (doubt := terminal_doubt(lineage, entries)):
        advice = "approve, resolve and attach in a terminal whose program is older than all agents"
        yield Finding(NOTE, "person", f"commands typed here decide nothing (person_proof): {doubt}", advice)
    else:
        yield Finding(OK, "person", "commands typed here count as a person's")


def _connections(settings: Settings) -> Iterator[Finding]:
    """Whether this process may connect to Unix sockets at all; sandboxes of coding agents forbid it."""
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.connect(str(settings.home / "nobody.sock"))
    except PermissionError as error:
        advice = "run it outside of the sandbox, or let the sandbox open connections"
        text = f"this process may not open connections: {error.strerror}; a sandbox does that"
        yield Finding(PROBLEM, "sockets", text, advice)
    except OSError:
        return  # nobody is there, and that was to be expected


def _search_paths(_settings: Settings) -> Iterator[Finding]:
    """Relative entries: they mean another folder wherever a command is typed, also a freshly cloned one."""
    for variable in ("PATH", "PYTHONPATH"):
        value = os.environ.get(variable, "")
        relative = [entry or "(empty)" for entry in value.split(os.pathsep) if value and not entry.startswith("/")]
        if relative:
            text = f"{variable} has entries that mean the current folder, whoever wrote what is there: "
            yield Finding(PROBLEM, variable, text + ", ".join(relative), f"have only whole paths in {variable}")


def _project(settings: Settings) -> Iterator[Finding]:
    project = settings.project
    if project is None:
        return
    place, folder = project.project.place, project.project.folder
    if project.project.problem:
        yield Finding(NOTE, "project", f"{place} is ignored: {project.project.problem}", "put plain files there")
    elif project.is_trusted:
        yield Finding(OK, "project", f"{place} is trusted")
    else:
        yield Finding(
            NOTE, "project", f"{place} is ignored: {project.trust.value}", f"synapse trust {shlex.quote(str(folder))}"
        )
    if project.refused:
        keys = ", ".join(project.refused)
        yield Finding(NOTE, "project", f"{project.file}: no project may set {keys}", "set it in your own settings")


def _programs(settings: Settings) -> Iterator[Finding]:
    """The programs of all profiles. One that is missing is no fault: nobody has all of them."""
    finds_command = cache(_finds_command)
    for name in profile_names(settings.profile_sources):
        try:
            profile = load_profile(name, settings.profile_sources)
        except InvalidProfile as error:
            yield Finding(PROBLEM, name, str(error), error.hint)
            continue
        path = locate(profile.command[0])
        if not path:
            yield Finding(NOTE, name, f"'{profile.command[0]}' is not installed", profile.install_hint)
            continue
        yield Finding(OK, name, path)
        if profile.shell:
            yield _shell(name, profile.shell, finds_command(profile.shell))


def _shell(name: str, shell: tuple[str, ...], trouble: str) -> Finding:
    """Whether an agent of this profile can call `synapse`."""
    said = f"its commands run in `{shlex.join(_shell_words(shell))}`"
    if not trouble:
        return Finding(OK, name, f"{said}, which finds `synapse`")
    link = shlex.join(["ln", "-s", str(Path(sys.executable).parent / "synapse"), "/usr/local/bin/"])
    advice = f"link it into a folder on that shell's PATH, as `sudo {link}`; until then agents must type its whole path"
    return Finding(PROBLEM, name, f"{said}, which does not find `synapse`: {trouble}", advice)


def _finds_command(shell: tuple[str, ...]) -> str:
    """Run `synapse` as a CLI runs a command of its model, with what a launch gives it; return what is wrong."""
    words = _shell_words(shell)
    with TemporaryDirectory(prefix="synapse-doctor-") as folder:
        env = AgentCommand(Path(folder) / "doctor").environment(os.environ)
        try:
            ran = subprocess.run(  # noqa: S603  # the person's own shell
                [*words, "synapse --version"],
                env=env,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=SHELL_SECONDS,
                start_new_session=True,
                check=False,
            )
        except OSError as error:
            return f"{words[0]}: {error.strerror}"
        except subprocess.TimeoutExpired:
            return f"it took longer than {SHELL_SECONDS:.0f} s"
    # A login profile may print something of its own before it.
    if ran.stdout.strip().endswith(f"synapse {__version__}"):
        return ""
    told = [line for line in (ran.stderr or ran.stdout).splitlines() if line.strip()]
    return plain(told[-1]) if told else f"it ended with status {ran.returncode}"


def _shell_words(shell: tuple[str, ...]) -> list[str]:
    """The shell's command line with the person's own shell in it: that of the environment, or of the user database."""
    try:
        login_shell = pwd.getpwuid(os.getuid()).pw_shell or "/bin/sh"
    except KeyError:
        login_shell = "/bin/sh"
    meant = {"$SHELL": os.environ.get("SHELL") or login_shell, "$LOGIN_SHELL": login_shell}
    return [meant.get(word, word) for word in shell]


def _home(settings: Settings) -> Iterator[Finding]:
    home = settings.home
    if not home.exists():
        yield Finding(OK, "home", f"{home} will be made at the first start")
        return
    yield _private_folder("home", home)
    for folder in (home, settings.registry, settings.logs, settings.files):
        if folder.exists() and (why := _not_writable(folder)):
            advice = "make it writable for you, or set SYNAPSE_HOME to a folder that is"
            yield Finding(PROBLEM, "home", f"{folder} cannot be written: {why}", advice)
    free = shutil.disk_usage(home).free
    if free < LEAST_FREE_BYTES:
        yield Finding(PROBLEM, "disk", f"only {free // 1024**2} MB are free at {home}", "make room on the disk")


def _sockets(settings: Settings) -> Iterator[Finding]:
    """Which folder holds the sockets, and why none that comes before it does."""
    if settings.sources.get("uds_dir"):
        yield _wished_sockets(settings.uds_dir)
        return
    faults: list[str] = []
    for folder in usual_socket_folders(settings):
        fault = fault_of(folder, LONGEST_SOCKET_NAME, uid=os.getuid())
        if fault:
            faults.append(f"not {folder}: {fault}")
            continue
        used = f"{folder} is used" if folder.exists() else f"{folder} will be made at the first start"
        yield Finding(NOTE if faults else OK, "sockets", "; ".join([used, *faults]))
        return
    advice = "set SYNAPSE_UDS_DIR to a folder of your own, with a short path"
    yield Finding(PROBLEM, "sockets", f"no folder can hold the agents' sockets: {'; '.join(faults)}", advice)


def _wished_sockets(folder: Path) -> Finding:
    fault = fault_of(folder, LONGEST_SOCKET_NAME, uid=os.getuid()) if folder.parent.exists() else ""
    if fault and not folder.is_symlink():
        return Finding(PROBLEM, "sockets", f"{folder}: {fault}", "set SYNAPSE_UDS_DIR to another folder")
    if not folder.exists():
        return Finding(OK, "sockets", f"{folder} will be made at the first start")
    return _private_folder("sockets", folder)


def _not_writable(folder: Path) -> str:
    """Return why no file can be made in `folder`, or nothing. Modes do not tell: root, mounts, quotas."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return ""
    except OSError as error:
        return error.strerror or str(error)


def _left_sockets(settings: Settings) -> Iterator[Finding]:
    """Find sockets that nobody listens on: their agents were killed. They are in nobody's way."""
    folders = {settings.uds_dir} if settings.sources.get("uds_dir") else {*usual_socket_folders(settings)}
    folders |= {Path(entry.socket).parent for entry in FileRegistry(settings.registry).written() if entry.socket}
    for folder in sorted(folders):
        left = [path.name for path in sorted(folder.glob("*.sock")) if _is_deaf(path)]
        if left:
            text = f"{len(left)} left by agents that are gone, in {folder}: {', '.join(left[:3])}"
            advice = f"cd {folder} && rm {' '.join(left[:3])}{' …' if len(left) > 3 else ''}"
            yield Finding(NOTE, "sockets", text, advice)


def _is_deaf(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as connection:
        return connection.connect_ex(str(path)) == errno.ECONNREFUSED


def _private_folder(subject: str, folder: Path) -> Finding:
    mode = stat.S_IMODE(folder.stat().st_mode)
    if mode & 0o077:
        return Finding(PROBLEM, subject, f"{folder} is open to other users ({mode:04o})", f"chmod 700 {folder}")
    return Finding(OK, subject, f"{folder} (private)")


def _store(settings: Settings) -> Iterator[Finding]:
    for saved in sorted(settings.store.parent.glob(f"{settings.store.name}{SAVED}*")):
        advice = (
            f"keep it, or use it in the place of the present one: `synapse stop --all`, then "
            f"`mv {settings.store} {settings.store}.before && mv {saved} {settings.store}`"
        )
        yield Finding(NOTE, "store", f"{saved} has what agents had stored when it was replaced under them", advice)
    try:
        require_no_lost_store(settings)
        if not settings.store.exists():
            yield Finding(OK, "store", f"{settings.store} will be made at the first start")
            return
        process.run(_open_and_check(settings))
    except StoreFailed as error:
        yield Finding(PROBLEM, "store", str(error), error.hint)
    else:
        yield Finding(OK, "store", f"{settings.store} opens and is sound")


async def _open_and_check(settings: Settings) -> None:
    store = await open_store(settings)
    try:
        await store.check()
        with file_lock(settings.store, LOCK_SECONDS):
            pass  # whoever writes takes it for a moment; one that keeps it stops all the others
    finally:
        await store.close()


def _other_versions(running: list[AgentEntry]) -> Iterator[Finding]:
    """Running processes of another version than this command: they go on with the code that they have loaded."""
    for entry in running:
        if entry.version != __version__ and not entry.gateway:
            version = entry.version or "an earlier version"
            advice = (
                "end it and start it again" if entry.agent_type == "gateway" else f"synapse restart {short_name(entry)}"
            )
            yield Finding(NOTE, short_name(entry), f"runs {version}; this command is {__version__}", advice)


def _agents(settings: Settings) -> Iterator[Finding]:
    registry = FileRegistry(settings.registry)
    asked = ask_all(registry.entries(), "GET", "/status")
    for note in registry.notes:
        yield Finding(NOTE, "registry", note)
    yield from _other_versions([*registry.entries(), *gateways(settings.home).entries()])
    for one in asked:
        if one.error is not None:
            yield _silent(one, one.error)
        if one.body.get("store_fault"):
            advice = f"synapse restart {short_name(one.entry)}"
            yield Finding(PROBLEM, short_name(one.entry), f"refuses messages: {one.body['store_fault']}", advice)
        for sighting in objects_in(one.body, "sightings"):
            detail = str(sighting.get("detail", ""))
            if detail.startswith(DEGRADED):
                advice = f"synapse status {short_name(one.entry)} --explain"
                yield Finding(NOTE, short_name(one.entry), detail, advice)
    running = f"{sum(one.error is None for one in asked)} running"
    unknown = sum(isinstance(one.error, ConnectionForbidden) for one in asked)
    yield Finding(NOTE, "agents", f"{running}, {unknown} unknown") if unknown else Finding(OK, "agents", running)


def _silent(one: HostReply, error: SynapseError) -> Finding:
    """An agent whose host did not answer, or could not be asked."""
    advice = f"synapse stop {one.entry.agent_id} --force"
    if isinstance(error, ConnectionForbidden):
        advice = error.hint
    elif stands_still(one.entry):
        advice = standstill(one.entry)
    return Finding(PROBLEM, short_name(one.entry), str(error), advice)


DOCTOR_EXAMPLES = """
synapse doctor
synapse doctor --json
"""
MARKS = {"ok": "✓", "note": "·", PROBLEM: "✗"}


def run_doctor(arguments: list[str]) -> int:
    """Examine this machine and return the exit code: 1 when something is wrong."""
    options = VerbParser("doctor", examples=DOCTOR_EXAMPLES).parse_args(arguments)
    findings = examine()
    wrong = [finding for finding in findings if finding.level == PROBLEM]
    if options.json:
        give_json({"ok": not wrong, "findings": [_fields(finding) for finding in findings]})
        return FAILED if wrong else DONE
    for finding in findings:
        print_result(f"{MARKS[finding.level]} {finding.subject:<10} {finding.text}")
        if finding.advice:
            print_result(f"  {'':<10} → {finding.advice}")
    print_notice("\nall is well" if not wrong else f"\n{len(wrong)} to put right")
    return FAILED if wrong else DONE


def _fields(finding: Finding) -> dict[str, str]:
    return {
        "level": finding.level,
        "subject": finding.subject,
        "text": finding.text,
        "advice": finding.advice,
    }


CONFIG_EXAMPLES = """
synapse config
SYNAPSE_QUEUE_LIMIT=50 synapse config --json
"""


def run_config(arguments: list[str]) -> int:
    """Show the settings and return the exit code."""
    options = VerbParser("config", examples=CONFIG_EXAMPLES).parse_args(arguments)
    settings = load_settings()
    rows, project = settings.as_rows(), settings.project
    if options.json:
        shown = {name: {"value": _shown(value), "source": source} for name, value, source, _ in rows}
        give_json({**shown, "project": _project_fields(project)} if project else shown)
        return 0
    lines = [(name, _written(value), source, meaning) for name, value, source, meaning in rows]
    print_result(table(("SETTING", "VALUE", "SOURCE", "MEANING"), lines, elastic=3))
    mine = os.path.join(user_folder(os.environ), USER_FILE)
    if project:
        print_result(f"\nproject: {plain(str(project.project.folder))} ({project.trust.value})")
        if note := project.note(*project.profiles[:1]):
            print_notice(f"Warning: {plain(note)}")
    places = f"in the environment, in {mine}, or in .synapse/config.toml of a project that you trust"
    print_notice(f"\nset them by {PREFIX}<SETTING> {places}")
    return 0


def _project_fields(project: ProjectSettings) -> dict[str, object]:
    return {
        "folder": str(project.project.folder),
        "trust": project.trust.value,
        "problem": project.project.problem,
        "profiles": project.profiles,
        "settings": [name for name in project.wishes if name in FOR_PROJECTS],
        "refused": project.refused,
    }


def _written(value: object) -> str:
    # As TOML and the environment take it.
    return str(value).lower() if isinstance(value, bool) else str(value)


def _shown(value: object) -> object:
    return str(value) if isinstance(value, Path | TerminalSize) else value
