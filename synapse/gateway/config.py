"""The gateway's settings, read strictly from `gateway.toml`, and the port and socket it listens on.

A flag on the command line overrides the file.

port = 8000
public_url = "https://agents.example.com"

[[agents]]
id = "reviewer"
profile = "claude"

A gateway is not an agent: it is registered in a folder of its own beside the agents' registry.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import urlsplit

from synapse.auth.local import loopback_hosts
from synapse.auth.settings import NOT_IN_FILES, AccessSettings, unknown_setting
from synapse.config.settings import Settings
from synapse.core.errors import InvalidSettings, PortTaken
from synapse.core.extension import Extensions, read_extensions
from synapse.core.loopback import is_loopback
from synapse.core.requests import lacking
from synapse.core.types import Clock
from synapse.host.identity import NAME_RULE, SCRIPTED, HostIdentity, is_name, listen_at_socket, new_entry
from synapse.registry.files import GATEWAY, gateways
from synapse.server.listener import LOOPBACK, bind_port
from synapse.server.middleware import Addresses

FILE: Final = "gateway.toml"
PORT: Final = 8000
GRPC_PORT: Final = 8001
_EXTENSIONS: Final = "extensions"
_ALL_INTERFACES: Final = ("0.0.0.0", "::")  # noqa: S104 - only compared

Table = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """One table under [[agents]]: what the agent's card shows, and whether and how the gateway runs it."""

    id: str
    """Its name at the gateway, which is also its given name."""
    profile: str = ""
    """The profile to start in the background, and again when it ends; without one the gateway starts nothing."""
    driver: str = ""
    """`scripted`: the gateway runs it in its own process."""
    script: str = ""
    arguments: tuple[str, ...] = ()
    working_dir: str = ""
    start: bool = True
    instructions: bool = True
    advertise_grpc: bool = True
    advertise_0_3: bool = True
    advertise_supervisor: bool = True
    extensions: Extensions = ()
    """The A2A extensions that it declares at the gateway."""
    streaming: bool = True
    push_notifications: bool = True
    """Whether it has this A2A capability at the gateway; so does `streaming`."""

    @property
    def lacks(self) -> tuple[str, ...]:
        return lacking(streaming=self.streaming, push_notifications=self.push_notifications)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayConfig:
    """The settings of a gateway."""

    host: str = LOOPBACK
    port: int = PORT
    grpc_port: int = GRPC_PORT
    public_url: str = ""
    """The address under which clients reach the gateway; its own address when empty."""
    default_agent: str = ""
    """The agent for requests that name none, such as gRPC without a tenant."""
    public_discovery: bool = False
    """Whether cards and the list of agents need no credentials."""
    public_metrics: bool = False
    """Whether /metrics needs no credentials."""
    allow_private_webhooks: bool = False
    no_auth: bool = False
    behind_proxy: bool = False
    mcp_wait: int = 50
    """How many seconds a tool call over MCP waits for an answer. The shortest limit of a known client is 60."""
    agents: tuple[AgentConfig, ...] = ()
    auth: Table = field(default_factory=dict[str, Any], repr=False)
    rate_limit: Table = field(default_factory=dict[str, Any])
    tls: Table = field(default_factory=dict[str, Any])
    cors: Table = field(default_factory=dict[str, Any])

    def agent(self, name: str) -> AgentConfig:
        """Returns the settings of an agent; the defaults for one that the file does not name."""
        return next((agent for agent in self.agents if agent.id == name), AgentConfig(id=name))

    @property
    def secret_variables(self) -> frozenset[str]:
        """The names of environment variables that hold secrets of the gateway."""
        jwt = self.auth.get("jwt")
        variable = cast("Table", jwt).get("secret_env") if isinstance(jwt, dict) else None
        return frozenset({variable}) if isinstance(variable, str) else frozenset()


def load_config(path: Path, flags: Mapping[str, object] | None = None) -> GatewayConfig:
    """Reads the file, if it exists, and applies the `flags` that are not None. Raises InvalidSettings."""
    values = _from_file(path)
    values |= {name: value for name, value in (flags or {}).items() if value is not None}
    return _checked(GatewayConfig(**values), path)


def require_file(path: Path) -> None:
    """Raises InvalidSettings unless the file exists."""
    if not path.is_file():
        raise InvalidSettings(f"{path} does not exist", hint="docs/howto/run-the-gateway.md shows an example")


def _from_file(path: Path) -> dict[str, Any]:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise InvalidSettings(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise InvalidSettings(f"{path} is not TOML: {error}") from error
    agents = table.pop("agents", [])
    if not isinstance(agents, list):
        raise InvalidSettings(f"{path}: 'agents' must be tables, each under [[agents]]")
    values = _values(GatewayConfig, table, str(path), without=frozenset({"agents"}))
    values["agents"] = tuple(_agent(agent, path) for agent in cast("list[object]", agents))
    return values


def _agent(table: object, path: Path) -> AgentConfig:
    if not isinstance(table, dict) or not cast("dict[str, Any]", table).get("id"):
        raise InvalidSettings(f"{path}: an agent has no id", hint='id = "reviewer" is its name at the gateway')
    known = cast("dict[str, Any]", table)
    where = f"{path}: agent '{known['id']}'"
    extensions = read_extensions(known.pop(_EXTENSIONS, []), where, InvalidSettings)
    agent = AgentConfig(**_values(AgentConfig, known, where, without=frozenset({_EXTENSIONS})), extensions=extensions)
    if not is_name(agent.id):
        raise InvalidSettings(f"{path}: '{agent.id}' cannot be an agent's id", hint=NAME_RULE)
    if agent.driver not in ("", SCRIPTED):
        raise InvalidSettings(f"{path}: agent '{agent.id}': there is no driver '{agent.driver}'", hint="use 'scripted'")
    if bool(agent.driver) != bool(agent.script):
        raise InvalidSettings(f"{path}: agent '{agent.id}': driver = \"scripted\" and script = FILE go together")
    if agent.driver and agent.profile:
        raise InvalidSettings(f"{path}: agent '{agent.id}' has a profile and a driver; choose one of them")
    folder = path.parent
    return replace(
        agent,
        script=str(folder / agent.script) if agent.script else "",
        working_dir=str(folder / Path(agent.working_dir).expanduser()) if agent.working_dir else "",
    )


def _values(kind: type[Any], table: Table, where: str, without: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Returns the values of a table, each checked against the type of the field of its name."""
    known = {one.name: str(one.type) for one in fields(kind) if one.name not in NOT_IN_FILES}
    kinds = {name: type_name for name, type_name in known.items() if name not in without}
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in kinds:
            raise unknown_setting(key, where, known)
        title, is_right = _TYPES[kinds[key]]
        if not is_right(value):
            raise InvalidSettings(f"{where}: '{key}' must be {title}, not {value!r}")
        values[key] = tuple(cast("list[object]", value)) if isinstance(value, list) else value
    return values


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in cast("list[object]", value))


_TYPES: Final[Mapping[str, tuple[str, Callable[[object], bool]]]] = {
    "str": ("text", lambda value: isinstance(value, str)),
    "bool": ("true or false", lambda value: isinstance(value, bool)),
    "int": ("a whole number", lambda value: isinstance(value, int) and not isinstance(value, bool)),
    "tuple[str, ...]": ("a list of texts", _is_texts),
    "Table": ("a table", lambda value: isinstance(value, dict)),
}


def _checked(config: GatewayConfig, path: Path) -> GatewayConfig:
    for name in ("port", "grpc_port"):
        if not 0 <= getattr(config, name) <= 65535:
            raise InvalidSettings(f"{getattr(config, name)} is not a port", hint="choose one from 1024 to 65535")
    if config.mcp_wait < 1:
        raise InvalidSettings(f"{path}: 'mcp_wait' must be at least 1 second, not {config.mcp_wait}")
    names = [agent.id for agent in config.agents]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise InvalidSettings(f"{path}: two agents have the id '{twice}'")
    if config.public_url:
        address = urlsplit(config.public_url)
        if address.scheme not in ("http", "https") or not address.netloc or address.query or address.fragment:
            raise InvalidSettings(
                f"the public URL '{config.public_url}' is not an address", hint="such as https://agents.example.com"
            )
    return replace(config, public_url=config.public_url.rstrip("/"))


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayPlan:
    """Everything that a gateway is started with."""

    config: GatewayConfig
    access: AccessSettings
    settings: Settings
    identity: HostIdentity


def reserve_gateway(config: GatewayConfig, settings: Settings, clock: Clock, *, tls: bool) -> HostIdentity:
    """Listens on the port, and on a Unix socket for this user's commands. Raises PortTaken or InvalidSettings."""
    try:
        tcp = bind_port(config.port, "127.0.0.1" if config.host == "localhost" else config.host)
    except PortTaken as error:
        if any(entry.port == config.port for entry in gateways(settings.home).entries()):
            raise PortTaken(
                f"port {config.port} is taken by a running gateway",
                hint="`synapse stop gateway` stops it; a second one needs another --port and --grpc-port",
            ) from error
        raise PortTaken(
            f"port {config.port} is taken by another program", hint="choose another one with --port"
        ) from error
    try:
        port = tcp.getsockname()[1]
        agent_id = f"synapse-{GATEWAY}-{port}"
        unix = listen_at_socket(agent_id, settings)
    except BaseException:
        tcp.close()
        raise
    entry = new_entry(agent_id, GATEWAY, clock, endpoint=config.public_url or own_url(config.host, port, tls=tls))
    entry.port, entry.socket = port, str(unix.path)
    return HostIdentity(entry=entry, tcp=tcp, unix=unix)


def own_url(host: str, port: int, *, tls: bool) -> str:
    """Returns the address of a gateway without `public_url`."""
    return f"{'https' if tls else 'http'}://{'localhost' if is_loopback(host) else host}:{port}"


def page_url(config: GatewayConfig, url: str, port: int) -> str:
    """Returns the address of a gateway's page for a browser of this machine; `url` is the gateway's own address.

    Without TLS it is a number: another program could listen at `localhost` on the other version of IP, and a browser
    that tries that first would hand it the one-time code.
    """
    if config.public_url or not (config.host in _ALL_INTERFACES or is_loopback(config.host)):
        return url
    scheme = urlsplit(url).scheme
    number = "[::1]" if config.host == "::1" else LOOPBACK
    return f"{scheme}://{'localhost' if scheme == 'https' else number}:{port}"


def gateway_addresses(config: GatewayConfig, url: str, port: int) -> Addresses:
    """Returns the addresses for a gateway's cards; `public_url` alone when it is set."""
    if config.public_url:
        return Addresses(url)
    is_everywhere = config.host in _ALL_INTERFACES
    own = loopback_hosts(port) if is_everywhere or is_loopback(config.host) else frozenset({f"{config.host}:{port}"})
    return Addresses(url, own, behind_proxy=config.behind_proxy)
