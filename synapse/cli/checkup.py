"""What `synapse doctor` examines, one function for each subject. Each gives findings; none stops at the first."""

from __future__ import annotations

import asyncio
import os
import platform
import pwd
import shlex
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from synapse import __version__
from synapse.cli.hosts import stands_still, standstill
from synapse.cli.render import plain
from synapse.cli.survey import ask_all
from synapse.core.address import short_name
from synapse.core.driver import DEGRADED
from synapse.core.errors import InvalidProfile, InvalidSettings, StoreFailed
from synapse.core.json_text import objects_in
from synapse.registries.files import FileRegistry
from synapse.runtime.agent_command import AgentCommand
from synapse.runtime.profiles import load_profile, profile_names
from synapse.runtime.settings import Settings, load_settings
from synapse.stores.sqlite import SqliteStore
from synapse.stores.sqlite_file import file_lock

OK: Final = "ok"
NOTE: Final = "note"
PROBLEM: Final = "problem"
LEAST_PYTHON: Final = (3, 11)
LOCK_SECONDS: Final = 2.0
SHELL_SECONDS: Final = 10.0
"""How long a shell may take for one command; a login profile may be slow."""
LEAST_FREE_BYTES: Final = 50 * 1024 * 1024


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
        _programs,
        _home,
        _sockets,
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


def _programs(settings: Settings) -> Iterator[Finding]:
    """The programs of all profiles. One that is missing is no fault: nobody has all of them."""
    finds_command = cache(_finds_command)
    for name in profile_names(settings.profile_folders):
        try:
            profile = load_profile(name, settings.profile_folders)
        except InvalidProfile as error:
            yield Finding(PROBLEM, name, str(error), error.hint)
            continue
        path = shutil.which(profile.command[0])
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
    if not os.access(home, os.W_OK):
        yield Finding(PROBLEM, "home", f"{home} cannot be written", "set SYNAPSE_HOME to a folder of yours")
    free = shutil.disk_usage(home).free
    if free < LEAST_FREE_BYTES:
        yield Finding(PROBLEM, "disk", f"only {free // 1024**2} MB are free at {home}", "make room on the disk")


def _sockets(settings: Settings) -> Iterator[Finding]:
    folder = settings.uds_dir
    if not folder.exists():
        yield Finding(OK, "sockets", f"{folder} will be made at the first start")
    elif folder.stat().st_uid != os.getuid():
        yield Finding(NOTE, "sockets", f"{folder} belongs to another user; {folder}-{os.getuid()} is used instead")
    else:
        yield _private_folder("sockets", folder)


def _private_folder(subject: str, folder: Path) -> Finding:
    mode = stat.S_IMODE(folder.stat().st_mode)
    if mode & 0o077:
        return Finding(PROBLEM, subject, f"{folder} is open to other users ({mode:04o})", f"chmod 700 {folder}")
    return Finding(OK, subject, f"{folder} (private)")


def _store(settings: Settings) -> Iterator[Finding]:
    if not settings.store.exists():
        yield Finding(OK, "store", f"{settings.store} will be made at the first start")
        return
    try:
        asyncio.run(_open_and_check(settings.store))
    except StoreFailed as error:
        yield Finding(PROBLEM, "store", str(error), error.hint)
    else:
        yield Finding(OK, "store", f"{settings.store} opens and is sound")


async def _open_and_check(path: Path) -> None:
    store = await SqliteStore.open(path)
    try:
        await store.check()
        with file_lock(path, LOCK_SECONDS):
            pass  # whoever writes takes it for a moment; one that keeps it stops all the others
    finally:
        await store.close()


def _agents(settings: Settings) -> Iterator[Finding]:
    registry = FileRegistry(settings.registry)
    asked = ask_all(registry.entries(), "GET", "/status")
    for note in registry.notes:
        yield Finding(NOTE, "registry", note)
    for one in asked:
        if one.error is not None:
            advice = f"synapse stop {one.entry.agent_id} --force"
            if stands_still(one.entry):
                advice = standstill(one.entry)
            yield Finding(PROBLEM, short_name(one.entry), str(one.error), advice)
        for sighting in objects_in(one.body, "sightings"):
            detail = str(sighting.get("detail", ""))
            if detail.startswith(DEGRADED):
                advice = f"synapse status {short_name(one.entry)} --explain"
                yield Finding(NOTE, short_name(one.entry), detail, advice)
    yield Finding(OK, "agents", f"{sum(one.error is None for one in asked)} running")
