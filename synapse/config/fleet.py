"""What this machine knows of its fleet: `fleet.json` in the folder `fleet` of the state folder.

`synapse fleet create` and `join` write it, `allow` changes it, `leave` removes it. The link reads it again when it
changes, so that a change counts at once.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, cast

from synapse.config.private_files import make_private
from synapse.core.errors import InvalidRequest, InvalidSettings
from synapse.fleet.names import is_machine_name

log = logging.getLogger(__name__)

FOLDER: Final = "fleet"
FILE: Final = "fleet.json"
SEED_FILE: Final = "machine.nk"
"""The seed of this machine's nkey, which never leaves the machine."""
INVITATION_FILE: Final = "invitation"
"""The public key of the invitation with which this machine has joined, or tries to, with the seed beside it."""
CA_FILE: Final = "ca.pem"
REPLICA_FILE: Final = "replica.db"
"""The logs of the other machines, where the link keeps a replica."""
LOCK_FILE: Final = "link.lock"
"""The link holds an exclusive lock on it while it runs."""
SERVER_FOLDER: Final = "server"
CERTIFICATE_FILE: Final = "server.pem"
KEY_FILE: Final = "server.key"
CERTIFICATE_DAYS: Final = 365
"""For how long a new certificate of the fleet's server is valid."""
EXTRA_ACTIONS: Final = ("approve", "attach", "read")
"""What a machine may be allowed beyond sending, and reading and canceling what it has sent."""
_VERSION: Final = 1
_NOTHING: Final[Mapping[str, frozenset[str]]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetConfig:
    """This machine's membership of a fleet, and what it allows other machines."""

    fleet: str
    """The name of the fleet."""
    machine: str
    """The name of this machine in it."""
    servers: tuple[str, ...]
    """The addresses of the NATS servers, as `tls://host:port` or `nats://host:port`."""
    ca: str = ""
    """The path of the certificate that the servers' must be signed by; empty for the system's own, or without TLS."""
    creds: str = ""
    """The path of a NATS credentials file; empty where this machine's own nkey is its proof."""
    insecure: bool = False
    """Whether a server on another machine may be used without TLS."""
    is_gateway: bool = False
    """Whether the fleet lets this machine command agents on behalf of a gateway's callers."""
    replica: bool = False
    """Whether the link keeps a replica of the other machines' logs."""
    ship_log: bool = True
    """Whether the link sends this machine's log to the replicas."""
    runs_server: bool = False
    """Whether the link runs the fleet's NATS server."""
    allow: Mapping[str, frozenset[str]] = field(default_factory=lambda: _NOTHING)
    """The EXTRA_ACTIONS of each machine that has some."""

    def allowed(self, machine: str) -> frozenset[str]:
        """Returns which of EXTRA_ACTIONS the people of `machine` may do on this one."""
        return self.allow.get(machine, frozenset())


def fleet_folder(home: Path) -> Path:
    """Returns the folder of all files about the fleet, which may not exist."""
    return home / FOLDER


def fleet_file(home: Path) -> Path:
    return fleet_folder(home) / FILE


def load_fleet(home: Path) -> FleetConfig | None:
    """Returns this machine's membership; None if it is in no fleet.

    Raises:
        InvalidSettings: the file cannot be read, or is none of ours.
    """
    path = fleet_file(home)
    try:
        return _decode(json.loads(path.read_bytes()))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InvalidSettings(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise InvalidSettings(
            f"{path} is not valid: {error}",
            hint="restore it from a backup; or `synapse fleet leave`, and join the fleet again",
        ) from error


class FleetRules:
    """What `fleet.json` says now, and with it what other machines may do here. Read again when it has changed."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._read: tuple[_FileState, FleetConfig] | None = None
        """The file that was read last, and what it says."""
        self._unreadable: _FileState | None = None
        """The file of which the log says that it cannot be read."""

    def current(self) -> FleetConfig | None:
        """Returns what the file says; None if there is none, and while it cannot be read."""
        try:
            status = fleet_file(self._home).stat()
        except OSError:
            return None
        # Times are coarser than two commands in a row.
        found = (status.st_ino, status.st_mtime_ns, status.st_size)
        if self._read is not None and self._read[0] == found:
            return self._read[1]
        try:
            config = load_fleet(self._home)
        except InvalidSettings as error:
            # It is tried each time: perhaps too many files are open just now.
            if found != self._unreadable:
                log.warning("fleet_file_not_read", extra={"error": str(error)})
            self._unreadable = found
            return None
        self._read = (found, config) if config is not None else None
        return config

    def allowed(self, machine: str) -> frozenset[str]:
        """Returns what a machine may do here beyond the ordinary; nothing while the file cannot be read."""
        config = self.current()
        return config.allowed(machine) if config is not None else frozenset()


_FileState = tuple[int, int, int]
"""The inode, time and size of a file."""


def save_fleet(home: Path, config: FleetConfig) -> None:
    """Replaces the file of this machine's membership, in one step. Raises OSError."""
    make_private(fleet_folder(home))
    write_atomically(fleet_file(home), json.dumps(_encode(config), indent=2) + "\n")


def write_atomically(path: Path, text: str) -> None:
    """Replaces a private file in one step that survives a power cut. Raises OSError."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def checked_extra_actions(words: list[str]) -> frozenset[str]:
    """Returns the words as EXTRA_ACTIONS. Raises InvalidRequest, also for no words."""
    if not words:
        raise InvalidRequest(
            "no action is named", hint=f"choose from {', '.join(EXTRA_ACTIONS)}; `none` takes all rights back"
        )
    for word in words:
        if word not in EXTRA_ACTIONS:
            raise InvalidRequest(
                f"'{word}' cannot be allowed to a machine",
                hint=f"choose from {', '.join(EXTRA_ACTIONS)}; every machine may send, and cancel what it has sent",
            )
    return frozenset(words)


def _encode(config: FleetConfig) -> dict[str, Any]:
    return {
        "version": _VERSION,
        "fleet": config.fleet,
        "machine": config.machine,
        "servers": list(config.servers),
        "ca": config.ca,
        "creds": config.creds,
        "insecure": config.insecure,
        "is_gateway": config.is_gateway,
        "replica": config.replica,
        "ship_log": config.ship_log,
        "runs_server": config.runs_server,
        "allow": {machine: sorted(actions) for machine, actions in sorted(config.allow.items())},
    }


def _decode(document: Any) -> FleetConfig:
    if document["version"] != _VERSION:
        raise ValueError("it was written by another version of Synapse")
    machine = _text(document["machine"])
    if not is_machine_name(machine):
        raise ValueError(f"'{machine}' is no name of a machine")
    return FleetConfig(
        fleet=_text(document["fleet"]),
        machine=machine,
        servers=tuple(_texts(document["servers"])),
        ca=_text(document["ca"]),
        creds=_text(document["creds"]),
        insecure=document.get("insecure") is True,
        is_gateway=document["is_gateway"] is True,
        replica=document["replica"] is True,
        ship_log=document["ship_log"] is not False,
        runs_server=document["runs_server"] is True,
        allow=_allow(document["allow"]),
    )


def _allow(value: object) -> dict[str, frozenset[str]]:
    if not isinstance(value, dict):
        raise TypeError(f"{value!r} is not an object")
    rules = cast("dict[str, object]", value)
    # A newer version may know more actions.
    return {name: frozenset(_texts(actions)) & frozenset(EXTRA_ACTIONS) for name, actions in rules.items()}


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    return value


def _texts(value: object) -> list[str]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is not a list")
    return [_text(item) for item in cast("list[object]", value)]


def without_password(server: str) -> str:
    """Returns the address of a server without the user and the password that may stand in it."""
    scheme, separator, rest = server.rpartition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"
