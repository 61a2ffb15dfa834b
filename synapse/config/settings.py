"""Loads settings and profiles for a process.

A setting comes from, in this order: flag > environment > project file > user file > default. A project file counts only
if the person trusts the project, and only for the settings of FOR_PROJECTS. If the user file demands a person's
terminal (`person_proof`), no other source overrides that.

Profiles come from the user's folder, from Synapse itself, and from a trusted project.
"""

from __future__ import annotations

import os
import pwd
import re
import shlex
import sys
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from synapse.config.paths import USER_FILE, check_content, check_place, find_project, user_folder
from synapse.config.trust import Project, Trust, TrustStore, read_project
from synapse.core.address import KEY, UNVERIFIED, is_marked, nearest
from synapse.core.errors import InvalidProfile, InvalidSettings, UnknownProfile
from synapse.core.override import override
from synapse.terminal.theme import Theme

if TYPE_CHECKING:
    from synapse.terminal.profile import Profile

PREFIX: Final = "SYNAPSE_"
PROJECT_SETTINGS: Final = "config.toml"
PROJECT_PROFILES: Final = "profiles/"
_PROFILE_SUFFIX: Final = ".toml"
PROFILE_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
"""Profile names appear in command lines, file names and shell scripts."""
BUNDLED_PROFILES: Final = Path(__file__).parent.parent / "terminal" / "profiles"
# The settings that an agent's environment may set. None of them protects anything; all other settings then come from
# files only.
FOR_AGENTS: Final = frozenset(
    {
        "home",
        "uds_dir",
        "detach_key",
        "response_timeout",
        "message_ttl",
        "instructions",
        "terminal_size",
        "terminal_theme",
        "advertise_0_3",
    }
)
PersonProof = Literal["process", "terminal"]
PROCESS: Final = "process"
TERMINAL: Final = "terminal"
FOR_PROJECTS: Final = frozenset(
    {
        "max_body_bytes",
        "detach_key",
        "response_timeout",
        "message_ttl",
        "queue_limit",
        "instructions",
        "mcp_wait",
        "attention_after",
        "terminal_size",
        "terminal_theme",
        "push_attempts",
        "advertise_0_3",
    }
)
"""What a trusted project may set. Never: folders, addresses, rights, protections of people from agents, and how long
tasks are kept."""

ProfileSource = Path | Project
"""Where profiles come from: a folder, or the files of a project as they were read."""
_LARGEST_SIDE: Final = 1000
MEANINGS: Final[Mapping[str, str]] = {
    "home": "folder of the registry, the store and the logs",
    "uds_dir": "folder of the Unix sockets; by default the first usable one (see `synapse doctor`)",
    "host": "address that the TCP port is bound to",
    "max_body_bytes": "largest request body that an agent accepts",
    "detach_key": "key that detaches from `synapse attach`",
    "terminal_size": "terminal size of a background agent until someone attaches",
    "terminal_theme": "terminal colours that a background agent sees: dark, light or none",
    "response_timeout": "seconds that `synapse send --response` waits",
    "message_ttl": "seconds until an undelivered message expires; 0 means never",
    "queue_limit": "messages that may be queued for one agent",
    "agent_quota_bytes": "bytes of messages, files and answers kept for one agent; 0 means no limit",
    "outbox_limit": "messages to one other machine that may wait until it takes them",
    "outbox_quota_bytes": "bytes of messages to other machines whose tasks have not ended; 0 means no limit",
    "keep_days": "days that finished tasks are kept; those that other machines sent at least 15",
    "loop_limit_per_minute": "messages per minute between two agents before they are held; 0 means no limit",
    "attention_after": "seconds that messages may be held while the agent is idle before a person is notified",
    "instructions": "whether agents get instructions at their start on how to send and reply",
    "mcp": "whether the model of a CLI gets tools to send and reply (MCP), allowed for this launch only",
    "mcp_wait": "seconds that one call of such a tool may wait for an answer; 0 means what the CLI's profile says",
    "allow_commands": "whether a CLI may run `synapse send`, `reply`, `list`, `status` and `guide` without asking",
    "agents_may_approve": "whether agents may approve, resolve and attach; otherwise only a person may",
    "person_proof": "what proves a person: process (not an agent's), or terminal (also one that no agent opened)",
    "allow_private_webhooks": "whether push notifications may go to private and loopback addresses",
    "allow_private_agents": "whether agents that a key registers may have private and loopback addresses",
    "notify_on": "what notices tell a person about: asks, in_doubt, failed, answered; all, or none",
    "notify_agents": "the agents that notices are about, by name; all for every one",
    "notify_quiet": "a daily time without notices, as 22:00-07:00; or none",
    "notify_desktop": "whether notices appear on the desktop, where there is notify-send",
    "notify_webhook": "address that notices are posted to as JSON; none for no webhook",
    "notify_ntfy": "topic of ntfy that notices are published to, as https://ntfy.example.com/my-topic; or none",
    "mention_answers": "whether the answer to an `@agent` line is shown at the prompt where it was typed",
    "notify_text": "whether webhook and ntfy get the text of questions and answers, which may hold commands",
    "session_hours": "hours without use after which a session of the dashboard ends; 0 means only after 7 days",
    "push_attempts": "attempts to deliver a push notification before giving up",
    "search": "whether texts of tasks are indexed for `synapse tasks --search` and the dashboard",
    "advertise_0_3": "whether agent cards also list A2A 0.3; strict clients accept only their own version",
}
_LONGEST_NAME: Final = 40
# Replaced by the Python that runs Synapse, so that a bundled program needs no PATH.
_PYTHON: Final = "{python}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectSettings:
    """The project of a command, the person's decision about it, and the settings that it asks for."""

    project: Project
    trust: Trust
    wishes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The keys and values of its settings file."""
    is_broken: bool = False
    """Its settings file is not TOML."""

    @property
    def is_trusted(self) -> bool:
        return self.trust is Trust.TRUSTED

    @property
    def file(self) -> Path:
        return self.project.place / PROJECT_SETTINGS

    @property
    def profiles(self) -> list[str]:
        """The names of its profiles, sorted."""
        return sorted(name for path in self.project.files if (name := profile_in(path)))

    @property
    def refused(self) -> list[str]:
        """The settings in its file that a project may not set."""
        return [key for key in self.wishes if key in KINDS and key not in FOR_PROJECTS]

    def matters(self, profile: str = "", uses: Collection[str] = FOR_PROJECTS) -> bool:
        """Returns whether trust would change a command that uses these settings and that profile."""
        if self.project.problem:
            return True
        # An unknown key would be an error in a trusted project.
        wants = self.is_broken or any(key in uses or key not in KINDS for key in self.wishes)
        return wants or profile in self.profiles

    def note(self, profile: str = "", uses: Collection[str] = FOR_PROJECTS) -> str:
        """Returns a line that says what such a command ignores and what to do, or an empty string."""
        place, folder = self.project.place, self.project.folder
        if self.trust is Trust.UNUSABLE:
            return f"{place} is ignored: {self.project.problem}"
        if not self.is_trusted and self.matters(profile, uses):
            why = "it has changed since you trusted it" if self.trust is Trust.CHANGED else "you have not trusted it"
            return f"{place} is ignored, because {why}; review it, then: synapse trust {shlex.quote(str(folder))}"
        # Only for commands that use all settings, as the start of an agent; not with each message.
        if self.refused and set(uses) >= FOR_PROJECTS:
            keys = ", ".join(self.refused)
            return f"{self.file}: ignored, because a project may not set it: {keys}  (synapse config)"
        return ""


def profile_in(path: str) -> str:
    """Returns the name of the profile in that file of a project, or an empty string if it is none."""
    name = path.removeprefix(PROJECT_PROFILES).removesuffix(_PROFILE_SUFFIX)
    is_profile = path == f"{PROJECT_PROFILES}{name}{_PROFILE_SUFFIX}"
    return name if is_profile and PROFILE_NAME.fullmatch(name) else ""


class TerminalSize(NamedTuple):
    """The size of a terminal, written as 120x40."""

    columns: int
    rows: int

    @override
    def __str__(self) -> str:
        return f"{self.columns}x{self.rows}"


DEFAULT_SIZE: Final = TerminalSize(120, 40)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a process; `sources` says where each value comes from."""

    home: Path = Path("~/.a2a")
    uds_dir: Path = Path("/tmp/synapse-a2a")  # noqa: S108 - the contract names this folder; the host checks whose it is
    host: str = "127.0.0.1"
    max_body_bytes: int = 4 * 1024 * 1024
    detach_key: str = "ctrl-]"
    terminal_size: TerminalSize = DEFAULT_SIZE
    terminal_theme: Theme = Theme.DARK
    response_timeout: float = 600.0
    message_ttl: float = 0.0
    queue_limit: int = 1000
    agent_quota_bytes: int = 1024**3
    outbox_limit: int = 1000
    outbox_quota_bytes: int = 256 * 1024**2
    keep_days: int = 30
    loop_limit_per_minute: int = 30
    attention_after: float = 30.0
    instructions: bool = True
    mcp: bool = True
    mcp_wait: float = 0.0
    allow_commands: bool = True
    agents_may_approve: bool = False
    person_proof: PersonProof = PROCESS
    allow_private_webhooks: bool = False
    allow_private_agents: bool = False
    notify_on: str = "all"
    notify_agents: str = "all"
    notify_quiet: str = "none"
    notify_desktop: bool = True
    notify_webhook: str = "none"
    notify_ntfy: str = "none"
    mention_answers: bool = True
    notify_text: bool = False
    session_hours: float = 12.0
    push_attempts: int = 12
    search: bool = True
    advertise_0_3: bool = True
    profile_sources: tuple[ProfileSource, ...] = ()
    """Where profiles come from; the first source that has a name wins. A project adds profiles but replaces none: after
    cloning a repository, `synapse claude` still runs the user's own claude."""
    project: ProjectSettings | None = None
    """The project of the process's folder, trusted or not."""
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
        """The files that came with messages, in a folder for each task."""
        return self.home / "files"

    @property
    def terminal_decides(self) -> bool:
        """Whether a person's decisions are accepted only from a terminal that no agent opened."""
        return self.person_proof == TERMINAL

    def without_grants(self) -> Settings:
        """Returns the settings for a host that an agent starts: defaults for all settings that grant something.

        A limit that protects others may be tighter than its default, but not looser.
        """
        defaults = Settings()
        granted = ("agents_may_approve", "host", "allow_private_webhooks", "allow_private_agents")
        # 0 means no limit.
        loose = [
            name
            for name in ("loop_limit_per_minute", "agent_quota_bytes")
            if not 0 < getattr(self, name) <= getattr(defaults, name)
        ]
        return replace(self, **{name: getattr(defaults, name) for name in (*granted, *loose)})

    def as_rows(self) -> list[tuple[str, object, str, str]]:
        """Returns name, value, source and meaning of each setting."""
        return [(name, getattr(self, name), self.sources.get(name, "default"), MEANINGS[name]) for name in MEANINGS]


def load_settings(
    flags: Mapping[str, object] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    folder: str | Path | None = None,
    by_agent: bool = False,
) -> Settings:
    """Loads the settings for a process that works in `folder`; ignores `flags` that are None.

    In a process of an agent (`by_agent`) only the variables of FOR_AGENTS count.

    Raises:
        InvalidSettings: a file or variable has an unknown key or a value of the wrong type.
    """
    environ = os.environ if environ is None else environ
    place = Path(folder or Path.cwd())
    user, own = _from_user(environ, place)
    flagged = {name: (value, "flag") for name, value in (flags or {}).items() if value is not None}
    stronger = {**_from_environment(variables_of_agents(environ) if by_agent else environ), **flagged}
    if own.get("person_proof", ("",))[0] == TERMINAL:
        # A process sets its own variables, so they may demand more proof than the user file, but not less.
        stronger.pop("person_proof", None)
    home = _safe_home({**own, **stronger}, place)
    project = project_of(place, home)
    from_project = _from_project(project) if project and project.is_trusted else {}
    found: dict[str, tuple[Any, str]] = {**own, **from_project, **stronger}
    values = {name: value for name, (value, _) in found.items()}
    sources = {name: source for name, (_, source) in found.items()}
    values["home"] = home
    values["uds_dir"] = _folder_of("uds_dir", found, place)
    trusted = [project.project] if project and project.is_trusted else []
    profiles: tuple[ProfileSource, ...] = (user / "profiles", BUNDLED_PROFILES, *trusted)
    return Settings(**values, profile_sources=profiles, project=project, sources=sources)


def account_demands_terminal() -> bool:
    """Returns whether the settings file in the account's home folder demands a person's terminal.

    The user database names the home folder: `load_settings` finds its file by variables, which a process sets itself.

    Raises:
        InvalidSettings: the file is invalid.
    """
    try:
        folder = Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        return False  # unknown to the user database, as in some containers
    file = folder / ".config" / "synapse" / USER_FILE
    # Some accounts have /dev/null as their home.
    own = _from_file(file) if os.access(file, os.F_OK) else {}
    return bool(own.get("person_proof", ("",))[0] == TERMINAL)


def variables_of_agents(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment without the settings that an agent's environment may not change."""
    dropped = {PREFIX + name.upper() for name in KINDS if name not in FOR_AGENTS}
    return {name: value for name, value in environ.items() if name not in dropped}


def load_home(environ: Mapping[str, str], folder: str) -> Path:
    """Returns only the setting `home`, for a process that works in `folder`; no project can set it.

    Raises:
        InvalidSettings: as `load_settings`.
    """
    _, own = _from_user(environ, Path(folder))
    return _safe_home({**own, **_from_environment(environ)}, Path(folder))


def _from_user(environ: Mapping[str, str], place: Path) -> tuple[Path, dict[str, tuple[Any, str]]]:
    """Returns the folder of the user's settings and profiles, and the settings in its file."""
    user = Path(user_folder(environ))
    if not user.exists():
        return user, {}
    check_place(str(user), os.path.realpath(place), what="the settings folder", variable="XDG_CONFIG_HOME")
    for folder in (user, user / "profiles"):
        check_content(str(folder), what="the settings folder", variable="XDG_CONFIG_HOME")
    return user, _from_file(user / USER_FILE)


def _safe_home(found: Mapping[str, tuple[Any, str]], place: Path) -> Path:
    home = _folder_of("home", found, place)
    check_place(str(home), os.path.realpath(place), what="the state folder", variable="SYNAPSE_HOME")
    check_content(str(home), what="the state folder", variable="SYNAPSE_HOME")
    return home


def _folder_of(name: str, found: Mapping[str, tuple[Any, str]], place: Path) -> Path:
    value = found[name][0] if name in found else getattr(Settings(), name)
    return place / Path(value).expanduser()


def project_of(place: Path, home: Path) -> ProjectSettings | None:
    """Returns the project of a folder, or None, with the person's decision from the state folder `home`."""
    folder = find_project(os.path.realpath(place))
    if not folder:
        return None
    project = read_project(Path(folder))
    trust = TrustStore(home).trust_in(project)
    try:
        wishes = tomllib.loads(project.files.get(PROJECT_SETTINGS, b"").decode("utf-8"))
    except (ValueError, RecursionError):
        return ProjectSettings(project=project, trust=trust, is_broken=True)
    return ProjectSettings(project=project, trust=trust, wishes=wishes)


def _from_project(project: ProjectSettings) -> dict[str, tuple[Any, str]]:
    table = _table(project.project.files.get(PROJECT_SETTINGS, b""), project.file)
    counting = {key: value for key, value in table.items() if key not in project.refused}
    source = f"project file {project.file}"
    return {key: (_checked(key, value, project.file), source) for key, value in counting.items()}


def _from_file(path: Path) -> dict[str, tuple[Any, str]]:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise InvalidSettings(f"{path} cannot be read: {error.strerror}") from error
    return {key: (_checked(key, value, path), f"user file {path}") for key, value in _table(content, path).items()}


def _table(content: bytes, path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InvalidSettings(f"{path} is not TOML: {error}") from error


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


def _checked(key: str, value: object, path: Path) -> Any:
    """Returns the value of a file's key, converted to its type. Raises InvalidSettings."""
    kind = KINDS.get(key)
    if kind is None:
        meant = nearest(key, list(KINDS))
        hint = f"did you mean '{meant}'?" if meant else "`synapse config` lists the settings"
        raise InvalidSettings(f"{path}: unknown setting '{key}'", hint=hint)
    try:
        checked = kind.check(value)
    except ValueError as error:
        raise InvalidSettings(f"{path}: '{key}' must be {kind.title}, not {value!r}") from error
    # A relative folder is relative to the parent of the settings folder.
    return path.parent.parent / checked if isinstance(checked, Path) else checked


@dataclass(frozen=True, slots=True)
class _Kind:
    """The type of a setting: its name for people, and how to convert a value from a file or a variable."""

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


def _size(value: object) -> TerminalSize:
    columns, _, rows = _text(value).partition("x")
    size = TerminalSize(int(columns), int(rows))
    if all(1 <= side <= _LARGEST_SIDE for side in size):
        return size
    raise ValueError


def _theme(value: object) -> Theme:
    return Theme(_text(value))


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
    "TerminalSize": _Kind("a size as 120x40", _size, _size),
    "Theme": _Kind("dark, light or none", _theme, _theme),
    "PersonProof": _Kind(f"{PROCESS} or {TERMINAL}", _proof, _proof),
    "bool": _Kind("true or false", _switch, _parse_switch),
}
KINDS: Final = {field.name: _KINDS_BY_TYPE[str(field.type)] for field in fields(Settings) if field.name in MEANINGS}


def load_profile(name: str, sources: Sequence[ProfileSource] = (BUNDLED_PROFILES,)) -> Profile:
    """Returns the profile `name` from the first source that has it.

    Raises:
        UnknownProfile: no source has it; the hint names a similar one.
        InvalidProfile: its file is invalid; the message names the key.
    """
    from synapse.terminal.profile import parse_profile  # noqa: PLC0415 - a link and most commands read no profile

    for source in sources:
        if name not in _names(source):
            continue
        path = _path(source, name)
        # It becomes part of an agent id, which is typed, listed and a file name.
        if len(name) > _LONGEST_NAME or is_marked(name):
            limits = f"at most {_LONGEST_NAME} characters, and not beginning with '{UNVERIFIED}' or '{KEY}'"
            raise InvalidProfile(f"'{name}' cannot be the name of a profile", hint=f"rename {path}: {limits}")
        try:
            # Of a project, the bytes that the person trusts.
            content = path.read_bytes() if isinstance(source, Path) else source.files[f"{PROJECT_PROFILES}{path.name}"]
            profile = parse_profile(tomllib.loads(content.decode("utf-8")), name)
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
            raise InvalidProfile(f"profile '{name}' cannot be read: {error}", hint=f"look at {path}") from error
        return _with_absolute_program(profile, source)
    known = profile_names(sources)
    meant = nearest(name, known)
    raise UnknownProfile(
        f"there is no profile '{name}'",
        hint=f"Did you mean '{meant}'?" if meant else f"the profiles are: {', '.join(known)}",
    )


def profile_names(sources: Sequence[ProfileSource] = (BUNDLED_PROFILES,)) -> list[str]:
    """Returns the names of all profiles, sorted."""
    return sorted({name for source in sources for name in _names(source)})


def _names(source: ProfileSource) -> Iterator[str]:
    if isinstance(source, Path):
        names = (path.stem for path in source.glob("*" + _PROFILE_SUFFIX) if path.is_file())
        return (name for name in names if PROFILE_NAME.fullmatch(name))
    return (name for path in source.files if (name := profile_in(path)))


def _path(source: ProfileSource, name: str) -> Path:
    folder = source if isinstance(source, Path) else source.place / PROJECT_PROFILES
    return folder / (name + _PROFILE_SUFFIX)


def _with_absolute_program(profile: Profile, source: ProfileSource) -> Profile:
    """Returns the profile with a program that does not depend on the current folder. Raises InvalidProfile."""
    program, *rest = (word.replace(_PYTHON, sys.executable) for word in profile.command)
    if "/" in program and not program.startswith("/"):
        if isinstance(source, Path):
            raise InvalidProfile(
                f"profile '{profile.name}': the command '{program}' is relative to the current folder",
                hint=f"write its full path in {_path(source, profile.name)}",
            )
        program = str(source.folder / program)
    return replace(profile, command=(program, *rest))
