"""What can be set, and where each value comes from: flag > environment > project file > user file > default."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final, Literal

from synapse.core.address import nearest
from synapse.core.errors import InvalidSettings
from synapse.runtime.home import PROJECT_FILE, USER_FILE, find_above, user_folder

PREFIX: Final = "SYNAPSE_"
PROJECT_PROFILES: Final = ".synapse/profiles"
BUNDLED_PROFILES: Final = Path(__file__).parent.parent / "terminal" / "profiles"
# Agents write into the project that they work on; what protects people from agents is not theirs to change.
NOT_FOR_PROJECTS: Final = frozenset(
    {"agents_may_approve", "person_proof", "host", "allow_private_webhooks", "allow_private_agents"}
)
# The variables that count in an agent's environment, which the agent sets as it likes. None of them protects anybody;
# a setting that is not named here is taken from files alone then.
FOR_AGENTS: Final = frozenset(
    {"home", "uds_dir", "detach_key", "response_timeout", "message_ttl", "instructions", "advertise_0_3"}
)
PersonProof = Literal["process", "terminal"]
PROCESS: Final = "process"
TERMINAL: Final = "terminal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The values in force; `sources` says for each where it was found."""

    home: Path = Path("~/.a2a")
    uds_dir: Path = Path("/tmp/synapse-a2a")  # noqa: S108 - the contract names this folder; the host checks whose it is
    host: str = "127.0.0.1"
    max_body_bytes: int = 4 * 1024 * 1024
    detach_key: str = "ctrl-]"
    response_timeout: float = 600.0
    message_ttl: float = 0.0
    queue_limit: int = 1000
    keep_days: int = 30
    loop_limit_per_minute: int = 30
    instructions: bool = True
    agents_may_approve: bool = False
    person_proof: PersonProof = PROCESS
    allow_private_webhooks: bool = False
    allow_private_agents: bool = False
    push_attempts: int = 12
    advertise_0_3: bool = True
    profile_folders: tuple[Path, ...] = ()
    """Where profiles are looked for, first come first. A project adds profiles but replaces none: whoever clones a
    repository and types `synapse claude` gets their own claude."""
    sources: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def registry(self) -> Path:
        return self.home / "registry"

    @property
    def store(self) -> Path:
        return self.home / "store.db"

    @property
    def logs(self) -> Path:
        return self.home / "logs"

    @property
    def files(self) -> Path:
        """What came with messages, a folder for each task."""
        return self.home / "files"

    @property
    def terminal_decides(self) -> bool:
        """Whether what only people decide is taken only from processes at a terminal that no agent opened."""
        return self.person_proof == TERMINAL

    def without_grants(self) -> Settings:
        """The settings of a host that an agent starts: the defaults for all that grants something."""
        granted = ("agents_may_approve", "host", "allow_private_webhooks", "allow_private_agents")
        return replace(self, **{name: getattr(Settings(), name) for name in granted})

    def as_rows(self) -> list[tuple[str, object, str, str]]:
        """Name, value, source and meaning of each setting, in their order."""
        return [(name, getattr(self, name), self.sources.get(name, "default"), MEANINGS[name]) for name in MEANINGS]


MEANINGS: Final[Mapping[str, str]] = {
    "home": "folder of the registry, the store and the logs",
    "uds_dir": "folder of the Unix sockets",
    "host": "address that the TCP port is bound to",
    "max_body_bytes": "largest request body that an agent takes",
    "detach_key": "key that leaves `synapse attach`",
    "response_timeout": "seconds that `synapse send --response` waits",
    "message_ttl": "seconds until an undelivered message expires; 0 is never",
    "queue_limit": "messages that may wait for one agent",
    "keep_days": "days that finished tasks are kept",
    "loop_limit_per_minute": "messages between two agents in a minute before they are held; 0 is no limit",
    "instructions": "whether agents are told at their start how to send and reply",
    "agents_may_approve": "whether agents may do what only a person may (approve, resolve, attach)",
    "person_proof": "what proves a person: process (none of an agent's), or terminal (also one that no agent opened)",
    "allow_private_webhooks": "whether push notifications may go to private and loopback addresses",
    "allow_private_agents": "whether agents that a key registers may have private and loopback addresses",
    "push_attempts": "how often a push notification is tried before it is given up",
    "advertise_0_3": "whether the card of an agent speaks of A2A 0.3 too; strict readers know only their own version",
}


def load_settings(
    flags: Mapping[str, object] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    folder: str | Path | None = None,
    by_agent: bool = False,
) -> Settings:
    """Read the settings for a process that works in `folder`; `flags` that are None do not count.

    In a process that belongs to an agent (`by_agent`) only the variables of FOR_AGENTS count.

    Raises:
        InvalidSettings: a file or variable has an unknown key or a value of the wrong type.
    """
    environ = os.environ if environ is None else environ
    place = Path(folder or Path.cwd())
    project, user = find_above(str(place), PROJECT_FILE), Path(user_folder(environ))
    layers = [
        _from_file(user / USER_FILE, "user"),
        _from_file(Path(project), "project") if project else {},
        _from_environment(variables_of_agents(environ) if by_agent else environ),
        {name: (value, "flag") for name, value in (flags or {}).items() if value is not None},
    ]
    found: dict[str, tuple[Any, str]] = {}
    for layer in layers:
        found |= layer
    values = {name: value for name, (value, _) in found.items()}
    sources = {name: source for name, (_, source) in found.items()}
    for name in ("home", "uds_dir"):
        values[name] = place / Path(values.get(name, getattr(Settings(), name))).expanduser()
    profiles = [Path(found) for found in [find_above(str(place), PROJECT_PROFILES)] if found]
    return Settings(**values, profile_folders=(user / "profiles", BUNDLED_PROFILES, *profiles), sources=sources)


def variables_of_agents(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without the settings that an agent's environment may not change."""
    dropped = {PREFIX + name.upper() for name in KINDS if name not in FOR_AGENTS}
    return {name: value for name, value in environ.items() if name not in dropped}


def _from_file(path: Path, kind: str) -> dict[str, tuple[Any, str]]:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise InvalidSettings(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise InvalidSettings(f"{path} is not TOML: {error}") from error
    return {key: (_checked(key, value, path, kind), f"{kind} file {path}") for key, value in table.items()}


def _from_environment(environ: Mapping[str, str]) -> dict[str, tuple[Any, str]]:
    found: dict[str, tuple[Any, str]] = {}
    for name, kind in KINDS.items():
        variable = PREFIX + name.upper()
        if text := environ.get(variable):
            try:
                found[name] = (kind.parse(text), f"environment {variable}")
            except ValueError as error:
                raise InvalidSettings(f"{variable} must be {kind.title}, not '{text}'") from error
    return found


def _checked(key: str, value: object, path: Path, layer: str) -> Any:
    """Return the value of a file's key as its type."""
    kind = KINDS.get(key)
    if kind is None:
        meant = nearest(key, list(KINDS))
        hint = f"did you mean '{meant}'?" if meant else "`synapse config` lists the settings"
        raise InvalidSettings(f"{path}: unknown setting '{key}'", hint=hint)
    if layer == "project" and key in NOT_FOR_PROJECTS:
        raise InvalidSettings(
            f"{path}: '{key}' cannot be set by a project, because agents can write there",
            hint="set it in your own settings file or in the environment",
        )
    try:
        checked = kind.check(value)
    except ValueError as error:
        raise InvalidSettings(f"{path}: '{key}' must be {kind.title}, not {value!r}") from error
    # A relative folder in a project's file means a folder of that project.
    return path.parent.parent / checked if isinstance(checked, Path) else checked


@dataclass(frozen=True, slots=True)
class _Kind:
    """A type that a setting can have: its name for people, and how a value from a file or a variable becomes one."""

    title: str
    check: Callable[[object], Any]
    parse: Callable[[str], Any]


def _whole_number(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise ValueError


def _number(value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf"):
        return float(value)
    raise ValueError


def _switch(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError


def _text(value: object) -> str:
    if isinstance(value, str) and value:
        return value
    raise ValueError


def _folder(value: object) -> Path:
    return Path(_text(value)).expanduser()


def _proof(value: object) -> PersonProof:
    if value == PROCESS:
        return PROCESS
    if value == TERMINAL:
        return TERMINAL
    raise ValueError


def _parse_switch(text: str) -> bool:
    word = text.strip().lower()
    if word in ("1", "true", "yes", "on"):
        return True
    if word in ("0", "false", "no", "off"):
        return False
    raise ValueError


_KINDS_BY_TYPE: Final[Mapping[str, _Kind]] = {
    "Path": _Kind("a path", _folder, _folder),
    "str": _Kind("text", _text, _text),
    "int": _Kind("a whole number of at least 0", _whole_number, lambda text: _whole_number(int(text))),
    "float": _Kind("a number of at least 0", _number, lambda text: _number(float(text))),
    "PersonProof": _Kind(f"{PROCESS} or {TERMINAL}", _proof, _proof),
    "bool": _Kind("true or false", _switch, _parse_switch),
}
KINDS: Final = {field.name: _KINDS_BY_TYPE[str(field.type)] for field in fields(Settings) if field.name in MEANINGS}
