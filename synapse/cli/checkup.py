"""What `synapse doctor` examines, one function for each subject. Each gives findings; none stops at the first."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from synapse import __version__
from synapse.cli.hosts import stands_still, standstill
from synapse.cli.survey import ask_all
from synapse.core.address import short_name
from synapse.core.driver import DEGRADED
from synapse.core.errors import InvalidProfile, InvalidSettings, StoreFailed
from synapse.core.json_text import objects_in
from synapse.registries.files import FileRegistry
from synapse.runtime.open_store import require_no_lost_store
from synapse.runtime.place import usual_socket_folders
from synapse.runtime.profiles import load_profile, profile_names
from synapse.runtime.settings import Settings, load_settings
from synapse.stores.sqlite import SqliteStore
from synapse.stores.sqlite_file import file_lock
from synapse.stores.sqlite_loss import SAVED
from synapse.transports.listener import fault_of

OK: Final = "ok"
NOTE: Final = "note"
PROBLEM: Final = "problem"
LEAST_PYTHON: Final = (3, 11)
LOCK_SECONDS: Final = 2.0
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
        advice = f"add {Path(sys.executable).parent} to the PATH, so that agents can call it"
        yield Finding(PROBLEM, "command", "`synapse` is not on the PATH", advice)


def _programs(settings: Settings) -> Iterator[Finding]:
    """The programs of all profiles. One that is missing is no fault: nobody has all of them."""
    for name in profile_names(settings.profile_folders):
        try:
            profile = load_profile(name, settings.profile_folders)
        except InvalidProfile as error:
            yield Finding(PROBLEM, name, str(error), error.hint)
            continue
        path = shutil.which(profile.command[0])
        if path:
            yield Finding(OK, name, path)
        else:
            yield Finding(NOTE, name, f"'{profile.command[0]}' is not installed", profile.install_hint)


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
        if one.body.get("store_fault"):
            advice = f"synapse restart {short_name(one.entry)}"
            yield Finding(PROBLEM, short_name(one.entry), f"refuses messages: {one.body['store_fault']}", advice)
        for sighting in objects_in(one.body, "sightings"):
            detail = str(sighting.get("detail", ""))
            if detail.startswith(DEGRADED):
                advice = f"synapse status {short_name(one.entry)} --explain"
                yield Finding(NOTE, short_name(one.entry), detail, advice)
    yield Finding(OK, "agents", f"{sum(one.error is None for one in asked)} running")
