"""`synapse doctor` and `synapse config`: checks everything that agents need on this machine, and shows the settings.

Each subject of `doctor` has a function that yields findings and does not stop at the first problem.
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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from synapse import __version__
from synapse.cli.completion_scripts import outdated_scripts
from synapse.cli.exit_codes import DONE, FAILED
from synapse.cli.main import VERBS, way_to_profile
from synapse.cli.output import print_json, print_notice, print_result
from synapse.cli.parser import VerbParser
from synapse.cli.service import service_reports
from synapse.cli.tables import table
from synapse.client.fan_out import HostReply, ask_all
from synapse.client.hosts import is_suspended, suspended_hint
from synapse.client.lines import plain
from synapse.client.link import ask_link, is_in_fleet, waiting_text
from synapse.client.versions import of_other_versions
from synapse.client.views import tools_of
from synapse.config import process
from synapse.config.fleet import load_fleet
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
from synapse.core.json_text import object_in, objects_in
from synapse.core.requests import McpState, ToolsWay
from synapse.drivers.pty.process import locate
from synapse.host.agent_command import AgentCommand
from synapse.host.identity import usual_socket_folders
from synapse.host.open_store import open_store, require_no_lost_store
from synapse.registry.files import FileRegistry, gateways
from synapse.server.lineage import own_lineage, standing_of, terminal_doubt
from synapse.server.listener import fault_of
from synapse.store.file import file_lock
from synapse.store.lost_files import SAVED
from synapse.tasks.senders import SenderRule

OK: Final = "ok"
NOTE: Final = "note"
PROBLEM: Final = "problem"
LEAST_PYTHON: Final = (3, 11)
LOCK_SECONDS: Final = 2.0
SHELL_SECONDS: Final = 10.0
"""How long a shell may take for one command; a login profile may be slow."""
LEAST_FREE_BYTES: Final = 50 * 1024 * 1024
LONGEST_SOCKET_NAME: Final = "synapse-opencode-65535.sock"
"""The longest name among the built-in profiles."""
DOCTOR_EXAMPLES = """
synapse doctor
synapse doctor --json
"""
_INSTALLABLE: Final = "gemini"
"""The CLI that can be given the MCP server only by an extension, which its user installs."""
MARKS = {OK: "✓", NOTE: "·", PROBLEM: "✗"}
CONFIG_EXAMPLES = """
synapse config
SYNAPSE_QUEUE_LIMIT=50 synapse config --json
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check, and what to do about it."""

    level: str
    subject: str
    text: str
    advice: str = ""


def examine() -> list[Finding]:
    """Runs all checks."""
    findings = list(_versions())
    try:
        settings = load_settings()
    except InvalidSettings as error:
        return [*findings, Finding(PROBLEM, "settings", str(error), error.hint or "correct the file or variable")]
    checks: tuple[Callable[[Settings], Iterator[Finding]], ...] = (
        _search_paths,
        _project,
        _person,
        _connections,
        _programs,
        _home,
        _sockets,
        _stale_sockets,
        _store,
        _agents,
        _services,
        _fleet,
        _completion,
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
        advice = f"add {Path(sys.executable).parent} to your PATH"
        yield Finding(NOTE, "command", "`synapse` is not on this shell's PATH", advice)


def _person(settings: Settings) -> Iterator[Finding]:
    """Checks whether commands run here count as a person's. Inside an agent they do not, which is no problem."""
    lineage, entries = own_lineage(), FileRegistry(settings.registry).entries()
    standing = standing_of(lineage, entries)
    if standing.agent_id:
        yield Finding(NOTE, "person", f"commands run here count as those of the agent {standing.agent_id}")
    elif standing.doubt:
        advice = "run approve, resolve and attach in a terminal of your own"
        yield Finding(NOTE, "person", f"commands run here do not count as a person's: {standing.doubt}", advice)
    elif settings.terminal_decides and (doubt := terminal_doubt(lineage, entries)):
        advice = "run approve, resolve and attach in a terminal that was opened before all agents"
        yield Finding(NOTE, "person", f"commands run here may not decide anything (person_proof): {doubt}", advice)
    else:
        yield Finding(OK, "person", "commands run here count as a person's")


def _connections(settings: Settings) -> Iterator[Finding]:
    """Checks whether this process may connect to Unix sockets; sandboxes of coding agents forbid it."""
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.connect(str(settings.home / "nobody.sock"))
    except PermissionError as error:
        advice = "run it outside the sandbox, or allow the sandbox to open connections"
        text = f"this process may not open connections ({error.strerror}), probably because of a sandbox"
        yield Finding(PROBLEM, "sockets", text, advice)
    except OSError:
        return  # expected: nothing listens there


def _search_paths(_settings: Settings) -> Iterator[Finding]:
    """Checks for relative entries: they name a folder inside the current one, even of a freshly cloned repository."""
    for variable in ("PATH", "PYTHONPATH"):
        value = os.environ.get(variable, "")
        relative = [entry or "(empty)" for entry in value.split(os.pathsep) if value and not entry.startswith("/")]
        if relative:
            text = f"{variable} has relative entries, which run programs of any current folder: "
            yield Finding(PROBLEM, variable, text + ", ".join(relative), f"use only absolute paths in {variable}")


def _project(settings: Settings) -> Iterator[Finding]:
    project = settings.project
    if project is None:
        return
    place, folder = project.project.place, project.project.folder
    if project.project.problem:
        yield Finding(NOTE, "project", f"{place} is ignored: {project.project.problem}", "keep only plain files there")
    elif project.is_trusted:
        yield Finding(OK, "project", f"{place} is trusted")
    else:
        yield Finding(
            NOTE, "project", f"{place} is ignored: {project.trust.value}", f"synapse trust {shlex.quote(str(folder))}"
        )
    if project.refused:
        keys = ", ".join(project.refused)
        yield Finding(NOTE, "project", f"{project.file}: a project may not set {keys}", "set it in your own settings")


def _programs(settings: Settings) -> Iterator[Finding]:
    """Checks the programs of all profiles. A missing one is only a note: few people install all of them."""
    finds_command = cache(_finds_command)
    for name in profile_names(settings.profile_sources):
        try:
            profile = load_profile(name, settings.profile_sources)
        except InvalidProfile as error:
            yield Finding(PROBLEM, name, str(error), error.hint)
            continue
        if name in VERBS:
            text = f"a profile with the name of a verb: `synapse {name}` runs the verb"
            yield Finding(NOTE, name, text, way_to_profile(name))
        path = locate(profile.command[0])
        if not path:
            yield Finding(NOTE, name, f"'{profile.command[0]}' is not installed", profile.install_hint)
            continue
        yield Finding(OK, name, path)
        if profile.shell:
            yield _shell(name, profile.shell, finds_command(profile.shell))


def _shell(name: str, shell: tuple[str, ...], trouble: str) -> Finding:
    """Checks whether an agent of this profile can call `synapse`."""
    shell_note = f"its commands run in `{shlex.join(_shell_words(shell))}`"
    if not trouble:
        return Finding(OK, name, f"{shell_note}, which finds `synapse`")
    link = shlex.join(["ln", "-s", str(Path(sys.executable).parent / "synapse"), "/usr/local/bin/"])
    advice = (
        f"link it into a folder on that shell's PATH, for example `sudo {link}`; until then agents need its full path"
    )
    return Finding(PROBLEM, name, f"{shell_note}, which does not find `synapse`: {trouble}", advice)


def _finds_command(shell: tuple[str, ...]) -> str:
    """Runs `synapse` as a CLI runs its model's commands; returns what is wrong, or an empty string."""
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
    # A login profile may print text before it.
    if ran.stdout.strip().endswith(f"synapse {__version__}"):
        return ""
    lines = [line for line in (ran.stderr or ran.stdout).splitlines() if line.strip()]
    return plain(lines[-1]) if lines else f"it exited with status {ran.returncode}"


def _shell_words(shell: tuple[str, ...]) -> list[str]:
    """Returns the shell's command line, with $SHELL and $LOGIN_SHELL replaced by the person's own shells."""
    try:
        login_shell = pwd.getpwuid(os.getuid()).pw_shell or "/bin/sh"
    except KeyError:
        login_shell = "/bin/sh"
    shells = {"$SHELL": os.environ.get("SHELL") or login_shell, "$LOGIN_SHELL": login_shell}
    return [shells.get(word, word) for word in shell]


def _home(settings: Settings) -> Iterator[Finding]:
    home = settings.home
    if not home.exists():
        yield Finding(OK, "home", f"{home} will be created at the first start")
        return
    yield _private_folder("home", home)
    for folder in (home, settings.registry, settings.logs, settings.files):
        if folder.exists() and (why := _not_writable(folder)):
            advice = "make it writable, or set SYNAPSE_HOME to a writable folder"
            yield Finding(PROBLEM, "home", f"{folder} is not writable: {why}", advice)
    free = shutil.disk_usage(home).free
    if free < LEAST_FREE_BYTES:
        yield Finding(PROBLEM, "disk", f"only {free // 1024**2} MB are free at {home}", "free some disk space")


def _sockets(settings: Settings) -> Iterator[Finding]:
    """Finds the folder of the sockets, and says why earlier candidates are not used."""
    if settings.sources.get("uds_dir"):
        yield _configured_sockets(settings.uds_dir)
        return
    faults: list[str] = []
    for folder in usual_socket_folders(settings):
        fault = fault_of(folder, LONGEST_SOCKET_NAME, uid=os.getuid())
        if fault:
            faults.append(f"not {folder}: {fault}")
            continue
        used = f"{folder} is used" if folder.exists() else f"{folder} will be created at the first start"
        yield Finding(NOTE if faults else OK, "sockets", "; ".join([used, *faults]))
        return
    advice = "set SYNAPSE_UDS_DIR to a folder of your own, with a short path"
    yield Finding(PROBLEM, "sockets", f"no usable folder for the agents' sockets: {'; '.join(faults)}", advice)


def _configured_sockets(folder: Path) -> Finding:
    fault = fault_of(folder, LONGEST_SOCKET_NAME, uid=os.getuid()) if folder.parent.exists() else ""
    if fault and not folder.is_symlink():
        return Finding(PROBLEM, "sockets", f"{folder}: {fault}", "set SYNAPSE_UDS_DIR to another folder")
    if not folder.exists():
        return Finding(OK, "sockets", f"{folder} will be created at the first start")
    return _private_folder("sockets", folder)


def _not_writable(folder: Path) -> str:
    """Returns why no file can be created in `folder`, or an empty string. Modes do not tell: root, mounts, quotas."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return ""
    except OSError as error:
        return error.strerror or str(error)


def _stale_sockets(settings: Settings) -> Iterator[Finding]:
    """Finds sockets that nothing listens on: their agents were killed. They do no harm."""
    folders = {settings.uds_dir} if settings.sources.get("uds_dir") else {*usual_socket_folders(settings)}
    folders |= {Path(entry.socket).parent for entry in FileRegistry(settings.registry).written() if entry.socket}
    for folder in sorted(folders):
        left = [path.name for path in sorted(folder.glob("*.sock")) if _is_stale(path)]
        if left:
            text = f"{len(left)} left by killed agents in {folder}: {', '.join(left[:3])}"
            advice = f"cd {folder} && rm {' '.join(left[:3])}{' …' if len(left) > 3 else ''}"
            yield Finding(NOTE, "sockets", text, advice)


def _is_stale(path: Path) -> bool:
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
            f"keep it, or use it instead of the present one: `synapse stop --all`, then "
            f"`mv {settings.store} {settings.store}.before && mv {saved} {settings.store}`"
        )
        yield Finding(
            NOTE, "store", f"{saved} has the tasks that running agents had when their store was replaced", advice
        )
    try:
        require_no_lost_store(settings)
        if not settings.store.exists():
            yield Finding(OK, "store", f"{settings.store} will be created at the first start")
            return
        process.run(_open_and_check(settings))
    except StoreFailed as error:
        yield Finding(PROBLEM, "store", str(error), error.hint)
    else:
        yield Finding(OK, "store", f"{settings.store} opens and is intact")


async def _open_and_check(settings: Settings) -> None:
    store = await open_store(settings)
    try:
        await store.check()
        with file_lock(settings.store, LOCK_SECONDS):
            pass  # a writer holds it for a moment; a process that keeps it blocks all others
    finally:
        await store.close()


def _agents(settings: Settings) -> Iterator[Finding]:
    registry = FileRegistry(settings.registry)
    replies = ask_all(registry.entries(), "GET", "/status")
    for note in registry.notes:
        yield Finding(NOTE, "registry", note)
    running = [*registry.entries(), *gateways(settings.home).entries()]
    for name, text, command in of_other_versions(running, __version__):
        yield Finding(NOTE, name, text, command)
    for reply in replies:
        if reply.error is not None:
            yield _unanswered(reply, reply.error)
        if reply.body.get("store_fault"):
            advice = f"synapse restart {short_name(reply.entry)}"
            yield Finding(PROBLEM, short_name(reply.entry), f"refuses messages: {reply.body['store_fault']}", advice)
        for observation in objects_in(reply.body, "sightings"):
            detail = str(observation.get("detail", ""))
            if detail.startswith(DEGRADED):
                advice = f"synapse status {short_name(reply.entry)} --explain"
                yield Finding(NOTE, short_name(reply.entry), detail, advice)
        yield from _tools(reply)
        yield from _accepted_senders(reply.entry, replies)
    answered = f"{sum(reply.error is None for reply in replies)} running"
    unknown = sum(isinstance(reply.error, ConnectionForbidden) for reply in replies)
    yield Finding(NOTE, "agents", f"{answered}, {unknown} unknown") if unknown else Finding(OK, "agents", answered)


def _accepted_senders(entry: AgentEntry, replies: Sequence[HostReply]) -> Iterator[Finding]:
    """Tells who may send messages to an agent that does not accept all, and who only seems to be one of them."""
    rule = SenderRule.of(entry)
    if rule.is_open:
        return
    yield Finding(OK, short_name(entry), f"accepts messages from {plain(rule.in_words())}")
    for other in (reply.entry for reply in replies):
        if other.launched_by and rule.names(other):
            name, starter = short_name(other), plain(other.launched_by)
            why = f"does not accept {name}, which {starter} started: only agents that a person started count"
            yield Finding(NOTE, short_name(entry), why, f"`synapse restart {name}` in your own shell, if it may count")


def _services(_settings: Settings) -> Iterator[Finding]:
    """Checks the services that are installed. A stopped one, or another unit from this shell, is only a note."""
    try:
        reports = service_reports()
    except SynapseError as error:
        yield Finding(NOTE, "service", str(error), error.hint)
        return
    for report in reports:
        problems = list(report.problems())
        if not problems:
            yield Finding(OK, "service", f"{report.unit}: {report.summary(process.SystemClock().now())}")
        for text, command in problems:
            yield Finding(
                PROBLEM if report.has_failed else NOTE, "service", f"{report.unit}: {plain(text)}", plain(command)
            )


def _completion(_settings: Settings) -> Iterator[Finding]:
    for shell, path in outdated_scripts():
        advice = f"synapse completion --install {shell}"
        yield Finding(NOTE, "completion", f"{path} does not know all verbs and profiles of this version", advice)


def _tools(reply: HostReply) -> Iterator[Finding]:
    """Tells how the model of an agent reaches others. A better way than it has is only a note: it works without."""
    name, tools = short_name(reply.entry), object_in(reply.body, "tools")
    text = f"its tools: {plain(tools_of(reply.body))}"
    if not tools_of(reply.body):
        return  # it has no CLI, or does not say
    if tools.get("way") == ToolsWay.MCP:
        yield Finding(OK, name, text)
        return
    advice = ""
    if tools.get("mcp") == McpState.MISSING:
        advice = f"look for errors of the MCP server `synapse` in the CLI, and try `synapse restart {name}`"
    elif tools.get("mcp") == McpState.OFF and reply.entry.agent_type == _INSTALLABLE:
        advice = f"synapse mcp install {_INSTALLABLE} && synapse restart {name}"
    yield Finding(NOTE, name, text, advice)


def _fleet(settings: Settings) -> Iterator[Finding]:
    """Checks this machine's link. `synapse fleet doctor` checks more; without a fleet there is nothing to say."""
    if not is_in_fleet(str(settings.home)):
        return
    try:
        load_fleet(settings.home)  # a damaged file is why no link runs
        status = ask_link(str(settings.home), "GET", "/fleet/status")
    except SynapseError as error:
        yield Finding(PROBLEM, "fleet", str(error), error.hint)
        return
    known, machines = f"{status.get('machine')} in the fleet '{status.get('fleet')}'", objects_in(status, "machines")
    away = [str(one.get("name")) for one in machines if one.get("present") is False]
    others = f"{len(machines)} other machine{'' if len(machines) == 1 else 's'}"
    if status.get("connected") is not True:
        text = f"{known}: the link has no connection to the server"
        yield Finding(PROBLEM, "fleet", plain(text), "synapse fleet doctor")
    else:
        text = f"{known}, with {others}" + (f" (away: {', '.join(away)})" if away else "")
        yield Finding(OK, "fleet", plain(text))
    if (outbox := object_in(status, "outbox")).get("open"):
        yield Finding(NOTE, "fleet", f"{waiting_text(outbox)} in the outbox", "synapse fleet outbox")


def _unanswered(reply: HostReply, error: SynapseError) -> Finding:
    """Returns the finding for an agent whose host did not answer or could not be reached."""
    advice = f"synapse stop {reply.entry.agent_id} --force"
    if isinstance(error, ConnectionForbidden):
        advice = error.hint
    elif is_suspended(reply.entry):
        advice = suspended_hint(reply.entry)
    return Finding(PROBLEM, short_name(reply.entry), str(error), advice)


def run_doctor(arguments: list[str]) -> int:
    """Checks this machine and returns the exit code: 1 if there is a problem."""
    options = VerbParser("doctor", examples=DOCTOR_EXAMPLES).parse_args(arguments)
    findings = examine()
    problems = [finding for finding in findings if finding.level == PROBLEM]
    if options.json:
        print_json({"ok": not problems, "findings": [asdict(finding) for finding in findings]})
        return FAILED if problems else DONE
    for finding in findings:
        print_result(f"{MARKS[finding.level]} {finding.subject:<10} {finding.text}")
        if finding.advice:
            print_result(f"  {'':<10} → {finding.advice}")
    print_notice(
        f"\n{len(problems)} problem{'' if len(problems) == 1 else 's'} found." if problems else "\nNo problems found."
    )
    return FAILED if problems else DONE


def run_config(arguments: list[str]) -> int:
    """Shows the settings and returns the exit code."""
    options = VerbParser("config", examples=CONFIG_EXAMPLES).parse_args(arguments)
    settings = load_settings()
    rows, project = settings.as_rows(), settings.project
    if options.json:
        values = {
            name: {"value": str(value) if isinstance(value, Path | TerminalSize) else value, "source": source}
            for name, value, source, _ in rows
        }
        print_json({**values, "project": _project_fields(project)} if project else values)
        return 0
    lines = [
        # As TOML and environment variables are written.
        (name, str(value).lower() if isinstance(value, bool) else str(value), source, meaning)
        for name, value, source, meaning in rows
    ]
    print_result(table(("SETTING", "VALUE", "SOURCE", "MEANING"), lines, elastic=3))
    user_file = os.path.join(user_folder(os.environ), USER_FILE)
    if project:
        print_result(f"\nproject: {plain(str(project.project.folder))} ({project.trust.value})")
        if note := project.note(*project.profiles[:1]):
            print_notice(f"Warning: {plain(note)}")
    print_notice(
        f"\nSet them with {PREFIX}<SETTING> in the environment, in {user_file}, "
        "or in .synapse/config.toml of a project that you trust."
    )
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
