"""Asks the user's systemd for services, by `systemctl --user` and `loginctl`."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from synapse.core.errors import SynapseError

ACTIVE: Final = "active"
INACTIVE: Final = "inactive"
"""It was never started, or ended as it should."""
FAILED: Final = "failed"
ENABLED: Final = "enabled"
_LOG_LINES: Final = "15"
_SHORT_SECONDS: Final = 30.0
# Longer than the unit itself may take: systemd decides when it has failed.
_START_SECONDS: Final = 900.0
_NO_TIME: Final = ("", "n/a")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceState:
    """What systemd says of a unit."""

    active: str
    """`active`, `activating`, `failed`, `inactive` …"""
    detail: str
    """More exactly, as `running` or `auto-restart`."""
    since: datetime | None
    restarts: int
    enabled: str
    """`enabled` if it starts with the machine or the login."""
    result: str
    """Why it failed; `success` otherwise."""
    pid: int


def unit_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Returns the folder of the user's own units, which may not exist."""
    return Path(environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "systemd" / "user"


def objection_to_units() -> str:
    """Returns why this user has no systemd that could run units; empty if there is one."""
    if shutil.which("systemctl") is None:
        return "systemd is not installed (there is no `systemctl`)"
    ran = _run(["systemctl", "--user", "show", "--property=Version"])
    if ran.returncode == 0:
        return ""
    return f"systemd does not run for this user ({_first_line(ran)})"


def reload_units() -> None:
    """Makes systemd read the unit files again. Raises SynapseError."""
    _demand(["systemctl", "--user", "daemon-reload"])


def start_always(name: str, *, again: bool) -> None:
    """Starts a unit now and with each login or boot; starts it `again` if it runs already.

    Raises:
        SynapseError: it did not start; the hint has the last lines of its log.
    """
    _demand(["systemctl", "--user", "enable", name])
    ran = _run(["systemctl", "--user", "restart" if again else "start", name], _START_SECONDS)
    if ran.returncode != 0:
        raise SynapseError(f"{name} did not start: {_first_line(ran)}", hint=_log_of(name))


def stop_always(name: str) -> None:
    """Stops a unit, and starts it no more. Raises SynapseError."""
    _demand(["systemctl", "--user", "disable", "--now", name], _START_SECONDS)
    # Else systemd would remember a failed unit whose file is gone.
    _run(["systemctl", "--user", "reset-failed", name])


def state_of(name: str) -> ServiceState:
    """Returns what systemd says of a unit. Raises SynapseError."""
    wanted = "ActiveState,SubState,ActiveEnterTimestamp,InactiveEnterTimestamp,NRestarts,UnitFileState,Result,MainPID"
    ran = _demand(["systemctl", "--user", "show", f"--property={wanted}", name])
    told = dict(line.split("=", 1) for line in ran.stdout.splitlines() if "=" in line)
    entered = "ActiveEnterTimestamp" if told.get("ActiveState") == ACTIVE else "InactiveEnterTimestamp"
    return ServiceState(
        active=told.get("ActiveState", ""),
        detail=told.get("SubState", ""),
        since=_time(told.get(entered, "")),
        restarts=_number(told.get("NRestarts", "")),
        enabled=told.get("UnitFileState", ""),
        result=told.get("Result", ""),
        pid=_number(told.get("MainPID", "")),
    )


def lingers() -> bool | None:
    """Returns whether this user's services run without a login; None if the system does not say."""
    user = user_name()
    if not user or shutil.which("loginctl") is None:
        return None
    ran = _run(["loginctl", "show-user", user, "--property=Linger"])
    answer = ran.stdout.strip()
    if ran.returncode == 0 and answer in ("Linger=yes", "Linger=no"):
        return answer == "Linger=yes"
    return None


def user_name() -> str:
    """Returns this user's name; empty if the user database has none."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return ""


def _log_of(name: str) -> str:
    command = ["journalctl", "--user", "--unit", name, "--lines", _LOG_LINES, "--no-pager", "--output", "cat"]
    shown = f"journalctl --user --unit {name}"
    if shutil.which("journalctl") is None:
        return shown
    lines = [line for line in _run(command).stdout.splitlines() if line.strip() and not line.startswith("-- ")]
    return "\n".join([*lines, shown])


def _demand(command: list[str], seconds: float = _SHORT_SECONDS) -> subprocess.CompletedProcess[str]:
    ran = _run(command, seconds)
    if ran.returncode != 0:
        raise SynapseError(f"`{' '.join(command)}` failed: {_first_line(ran)}")
    return ran


def _run(command: list[str], seconds: float = _SHORT_SECONDS) -> subprocess.CompletedProcess[str]:
    # In one language and time zone, because the answers are read.
    environ = {**os.environ, "LC_ALL": "C", "TZ": "UTC", "SYSTEMD_PAGER": "", "SYSTEMD_COLORS": "0"}
    try:
        return subprocess.run(  # noqa: S603 - systemd's own commands, without a shell
            command,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=seconds,
            check=False,
        )
    except OSError as error:
        raise SynapseError(f"{command[0]} cannot be run: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise SynapseError(f"`{' '.join(command)}` took longer than {seconds:.0f} s") from error


def _first_line(ran: subprocess.CompletedProcess[str]) -> str:
    lines = [line for line in (ran.stderr or ran.stdout).splitlines() if line.strip()]
    return lines[0].rstrip(".") if lines else f"exit status {ran.returncode}"


def _time(text: str) -> datetime | None:
    if text in _NO_TIME:
        return None
    try:
        return datetime.strptime(text, "%a %Y-%m-%d %H:%M:%S UTC").replace(tzinfo=UTC)
    except ValueError:
        return None


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0
