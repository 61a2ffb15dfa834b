"""The texts of our systemd units, and what can be read back from one. Pure.

Quoting follows systemd.syntax(7) and systemd.service(5): `%` begins a specifier, `$` a variable (in commands only), and
inside of double quotes a backslash begins an escape.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from synapse.core.errors import InvalidRequest

PREFIX: Final = "synapse-"
SUFFIX: Final = ".service"
MARKER: Final = "# Written by `synapse service install`, which also replaces it: your own changes belong into"
"""The beginning of the first line of each of our units. A unit without it is never changed or removed."""
OUR_SECTION: Final = "[X-Synapse]"
"""systemd ignores sections whose names begin with X-."""
_RETRY_SECONDS: Final = 50
"""The pauses between the starts of a service that ends again and again amount to this; then systemd gives up."""
_LANGUAGE: Final = ("LC_ALL", "LC_CTYPE", "LANG")
_FOLDERS: Final = ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME")
_OURS: Final = "SYNAPSE_"
_OF_AN_AGENT: Final = frozenset({"SYNAPSE_AGENT_ID", "SYNAPSE_SOCKET", "SYNAPSE_LAUNCHED_BY"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A service of ours: the gateway, the link, or a team."""

    name: str
    """The name of the unit, as `synapse-gateway.service`."""
    description: str
    command: Sequence[str]
    """The absolute path of the program, and its arguments."""
    variables: Mapping[str, str]
    variable_file: str
    """A file of the person's with more variables, which may be missing."""
    team: str = ""
    file: str = ""
    """The name and the file of the team; empty for others."""
    start_seconds: int = 90
    stop_seconds: int = 60
    restart_delay_seconds: int = 5
    children_survive: bool = False
    """Whether the processes that it has started run on when it ends, however it ends."""

    def text(self) -> str:
        """Returns the unit file.

        Raises:
            InvalidRequest: a path or a variable cannot be written in a unit file.
        """
        return "\n".join(
            [
                f"{MARKER} {self.name}.d/",
                "[Unit]",
                f"Description={_line(self.description)}",
                "# A user unit cannot wait for the network or for other units of the system, so it tries again.",
                "StartLimitIntervalSec=300",
                f"StartLimitBurst={_RETRY_SECONDS // self.restart_delay_seconds}",
                "",
                "[Service]",
                "Type=notify",
                f"ExecStart={_command(self.command)}",
                "Restart=on-failure",
                f"RestartSec={self.restart_delay_seconds}",
                "# Wrong settings and refusals need a person.",
                "RestartPreventExitStatus=2 7",
                f"TimeoutStartSec={self.start_seconds}",
                *self._kill_mode(),
                f"TimeoutStopSec={self.stop_seconds}",
                "# Without this, a test run that uses up the memory would stop all agents.",
                "OOMPolicy=continue",
                *(f"Environment={_quoted(f'{name}={value}')}" for name, value in sorted(self.variables.items())),
                f"EnvironmentFile=-{_path(self.variable_file)}",
                "# Limits that you may want, in a file of your own (systemctl --user edit):",
                "# MemoryHigh=8G",
                "# TasksMax=2000",
                "# Agents could no longer use sudo:",
                "# NoNewPrivileges=yes",
                "",
                "[Install]",
                "WantedBy=default.target",
                "",
                OUR_SECTION,
                f"Team={json.dumps(self.team)}",
                f"File={json.dumps(self.file)}",
                "",
            ]
        )

    def _kill_mode(self) -> list[str]:
        if self.children_survive:
            return ["# What Synapse has started as a process of its own runs on.", "KillMode=process"]
        return [
            "# SIGTERM goes to Synapse alone, which stops its agents in order; what is left then is killed.",
            "KillMode=mixed",
        ]


@dataclass(frozen=True, slots=True)
class Installed:
    """What a unit file of ours says of itself."""

    team: str
    file: str


def read_installed(text: str) -> Installed | None:
    """Returns what a unit file says of itself; None if we did not write it."""
    if not text.startswith(MARKER):
        return None
    values = {"Team": "", "File": ""}
    for line in text.partition(OUR_SECTION)[2].splitlines():
        key, _, value = line.partition("=")
        try:
            found: object = json.loads(value) if key in values else ""
        except ValueError:
            continue
        if isinstance(found, str) and key in values:
            values[key] = found
    return Installed(team=values["Team"], file=values["File"])


def differences(installed: str, wanted: str) -> list[str]:
    """Returns the settings and variables in which two units differ, in the order of the wanted one."""
    before, after = installed.splitlines(), wanted.splitlines()
    lines = [line for line in after if line not in before] + [line for line in before if line not in after]
    named = (_subject(line) for line in lines if not line.startswith("#") and "=" in line)
    return list(dict.fromkeys(named)) or (["comments"] if installed != wanted else [])


def _subject(line: str) -> str:
    key, _, value = line.partition("=")
    return value.strip('"').partition("=")[0] if key == "Environment" else key


def team_unit_name(team: str) -> str:
    """Returns the name of a team's unit. The names of teams hold only characters that those of units may hold."""
    return f"{PREFIX}team-{team}{SUFFIX}"


def service_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables that a service needs from the shell that installs it.

    systemd starts services with a short PATH, where CLIs of npm, nvm and pipx are not found, and often without a
    language, where every letter beyond ASCII is damaged.
    """
    found = {
        name: value
        for name, value in environ.items()
        if value and (name in _FOLDERS or (name.startswith(_OURS) and name not in _OF_AN_AGENT))
    }
    # A relative entry would mean another folder there.
    path = [entry for entry in environ.get("PATH", "").split(":") if entry.startswith("/")]
    if path:
        found["PATH"] = ":".join(dict.fromkeys(path))
    language = {name: environ[name] for name in _LANGUAGE if environ.get(name)}
    decisive = next(iter(language.values()), "")
    if decisive.lower().replace("-", "").endswith("utf8"):
        return found | language
    return found | {"LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "PYTHONUTF8": "1"}


def _command(words: Sequence[str]) -> str:
    program, *arguments = words
    # systemd refuses quotes and backslashes there. It replaces variables in arguments only, so `$$` would stay `$$`.
    if not program.isprintable() or set(program) & set("$\"'\\"):
        raise InvalidRequest(
            f"systemd cannot run a program with this path: {program!r}",
            hint="install Synapse in a folder without quotes, backslashes and $",
        )
    return " ".join([_quoted(program), *(_quoted(word).replace("$", "$$") for word in arguments)])


def _quoted(word: str) -> str:
    _require_text(word)
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return '"' + "".join(f"\\x{ord(letter):02x}" if ord(letter) < 32 else letter for letter in escaped) + '"'


def _path(path: str) -> str:
    """Returns the path for a setting that takes one path, which systemd does not unquote."""
    _require_text(path)
    if path != path.strip() or path.endswith("\\") or not path.isprintable():
        raise InvalidRequest(f"systemd cannot read a file with this name: {path!r}")
    return path.replace("%", "%%")


def _line(text: str) -> str:
    _require_text(text)
    return "".join(letter if letter.isprintable() else " " for letter in text).rstrip("\\").replace("%", "%%")


def _require_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidRequest(f"systemd reads UTF-8 only, and this is none: {text!a}") from None
    if "\0" in text:
        raise InvalidRequest(f"a NUL cannot be part of a unit: {text!a}")
