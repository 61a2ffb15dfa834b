"""Makes this machine a member of a fleet, and ends that: what `synapse fleet create`, `join`, `leave` … do."""

from __future__ import annotations

import asyncio
import re
import shutil
import socket
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

from synapse.config.fleet import (
    CA_FILE,
    INVITATION_FILE,
    SEED_FILE,
    SERVER_FOLDER,
    FleetConfig,
    fleet_file,
    fleet_folder,
    load_fleet,
    save_fleet,
    write_atomically,
)
from synapse.config.private_files import make_private
from synapse.config.process import SystemClock, run
from synapse.core.errors import (
    Conflict,
    InvalidRequest,
    InvalidSettings,
    LinkDown,
    NameTaken,
    NotFound,
    NotInFleet,
    SynapseError,
)
from synapse.core.waiting import pause
from synapse.fleet import names
from synapse.fleet.bus import KEY_REFUSED, BusError, NoReply, NoStream, NotAllowed, NotConnected
from synapse.link.certificates import pin_of
from synapse.link.database import FILE as DATABASE_FILE
from synapse.link.database import count_unfinished
from synapse.link.enrolment import (
    Invitation,
    clock_warning,
    enrol,
    read_invitation,
    wait_until_accepted,
)
from synapse.link.machine_keys import new_seed, public_key
from synapse.link.members import INVITATION_SECONDS, FleetMember, Invited, Members
from synapse.link.nats_bus import NatsBus, access_of
from synapse.link.nats_connection import Access, is_address
from synapse.link.presence import forget_removed
from synapse.link.server import FleetServer, checked_binary, choose_listen, choose_servers, split_address

CONNECT_SECONDS: Final = 8.0
CUT_OFF_SECONDS: Final = 8.0
READ_SECONDS: Final = 3.0
"""How long the server may take to read its configuration again, before it is restarted."""
DEFAULT_FLEET: Final = "fleet"
_ENGINE_TRIES: Final = 20
_ENGINE_PAUSE: Final = 0.1
_MAKING_TRIES: Final = 5
_LEFT: Final = "left"
_NO_TLS_HINT: Final = (
    "messages to a server on another machine need TLS; if it has none and the network is yours alone, add --insecure"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFleet:
    """How a fleet is created."""

    machine: str
    fleet: str = DEFAULT_FLEET
    listen: str = ""
    """Where the server listens; empty for all addresses of this machine."""
    address: str = ""
    """Where other machines reach it; empty to find that."""


def default_machine_name() -> str:
    """Returns a name for this machine made from its host name; empty if that has no usable letter."""
    short = socket.gethostname().partition(".")[0].lower()
    return re.sub(r"[^a-z0-9-]+", "-", short)[:32].strip("-")


def checked_machine_name(name: str) -> str:
    """Returns the name. Raises InvalidRequest if it cannot name a machine."""
    if not names.is_machine_name(name):
        raise InvalidRequest(
            f"'{name}' cannot name a machine",
            hint="use up to 32 letters a to z, digits and hyphens, as in `box2`",
        )
    return name


def require_member(home: Path) -> FleetConfig:
    """Returns this machine's membership. Raises NotInFleet, InvalidSettings."""
    config = load_fleet(home)
    if config is None:
        raise NotInFleet
    return config


def require_server(home: Path) -> FleetConfig:
    """Returns the membership of a machine that runs the fleet's server. Raises NotInFleet, Conflict."""
    config = require_member(home)
    if config.runs_server:
        return config
    if not (fleet_folder(home) / SEED_FILE).exists():
        raise Conflict(
            "the NATS server of this fleet is not run by Synapse, so others decide who may connect",
            hint="make credentials there, and `synapse fleet join nats://HOST --creds FILE --as NAME` on the machine",
        )
    raise Conflict(
        "only the machine that runs the fleet's server decides who may connect",
        hint="run the command on the machine where `synapse fleet create` was run",
    )


def create_fleet(home: Path, logs: Path, wanted: NewFleet) -> FleetConfig:
    """Makes a fleet with this machine as its first member, and starts its server.

    Raises:
        Conflict: this machine is in a fleet, or the port is taken.
        CommandMissing: the server's binary is missing or not the known one.
        SynapseError: the server did not start.
    """
    _require_no_member(home)
    checked_binary()
    checked_machine_name(wanted.machine)
    checked_fleet_name(wanted.fleet)
    listen = choose_listen(wanted.listen)
    servers = choose_servers(listen, wanted.address)
    folder = fleet_folder(home)
    _clear_for_membership(folder)
    make_private(folder)
    server = FleetServer(home, logs)
    seed = new_seed()
    me = FleetMember(name=wanted.machine, key=public_key(seed), is_gateway=True, runs_server=True)
    members = Members(fleet=wanted.fleet, listen=listen, servers=servers, machines={me.name: me})
    config = FleetConfig(
        fleet=wanted.fleet,
        machine=wanted.machine,
        servers=(_own_server(members),),
        ca=str(folder / CA_FILE) if members.uses_tls else "",
        is_gateway=True,
        replica=True,
        runs_server=True,
    )
    try:
        write_atomically(folder / SEED_FILE, f"{seed}\n")
        server.create(members)
        if members.uses_tls:
            write_atomically(folder / CA_FILE, server.ca_file.read_text(encoding="ascii"))
        server.start()
        _try_out(access_of(home, config))
        save_fleet(home, config)
    except BaseException:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return config


def invite(home: Path, logs: Path, machine: str, *, is_gateway: bool) -> Invitation:
    """Makes an invitation, valid once and for ten minutes. Raises NameTaken, Conflict, LinkDown."""
    config = require_server(home)
    checked_machine_name(machine)
    server = FleetServer(home, logs)
    seed = new_seed()
    expires_at = SystemClock().now().timestamp() + INVITATION_SECONDS
    invited = Invited(name=machine, key=public_key(seed), is_gateway=is_gateway, expires_at=expires_at)
    members = server.change(lambda members: members.invite(invited))
    server.start()
    invitation = Invitation(
        fleet=config.fleet,
        machine=machine,
        servers=members.servers,
        pin=_pin(server, members),
        seed=seed,
        is_gateway=is_gateway,
        expires_at=expires_at,
    )
    run(wait_until_accepted(_own_server(members), seed, invitation.pin))
    return invitation


def join_by_invitation(home: Path, text: str) -> tuple[FleetConfig, str]:
    """Joins the fleet of an invitation; returns the membership, and a warning or an empty string.

    Raises InvalidRequest, InvitationRefused, NameTaken, Conflict or LinkDown.
    """
    _require_no_member(home)
    invitation = read_invitation(text)
    folder = fleet_folder(home)
    make_private(folder)
    seed = _seed_for(invitation, folder)
    enrolled = run(enrol(invitation, public_key(seed)))
    if enrolled.ca:
        write_atomically(folder / CA_FILE, enrolled.ca)
    config = FleetConfig(
        fleet=enrolled.fleet,
        machine=enrolled.machine,
        # The address over which it was reached comes first: it is known to work from here.
        servers=tuple(dict.fromkeys((*invitation.servers, *enrolled.servers))),
        ca=str(folder / CA_FILE) if enrolled.ca else "",
        is_gateway=enrolled.is_gateway,
        replica=enrolled.is_gateway,
    )
    _try_out(access_of(home, config))
    save_fleet(home, config)
    return config, clock_warning(enrolled, SystemClock().now().timestamp())


def _seed_for(invitation: Invitation, folder: Path) -> str:
    """Returns the seed with which this machine joins.

    It is kept from a try whose answer was lost: the invitation is good for that key only, then. Another invitation gets
    another key, because the server may have let this machine in with the one before.
    """
    seed_file, invitation_file = folder / SEED_FILE, folder / INVITATION_FILE
    key = public_key(invitation.seed)
    with suppress(OSError, ValueError):
        if invitation_file.read_text(encoding="ascii").strip() == key:
            seed = seed_file.read_text(encoding="ascii").strip()
            public_key(seed)
            return seed
    seed = new_seed()
    write_atomically(seed_file, f"{seed}\n")
    write_atomically(invitation_file, f"{key}\n")
    return seed


def join_nats(  # noqa: PLR0913 - what a person says of the server
    home: Path,
    server: str,
    machine: str,
    *,
    creds: str = "",
    ca: str = "",
    insecure: bool = False,
    is_gateway: bool = False,
) -> FleetConfig:
    """Joins a fleet on a NATS server that others run, with their credentials.

    Raises InvalidRequest, NameTaken, Conflict or LinkDown.
    """
    _require_no_member(home)
    checked_machine_name(machine)
    config = FleetConfig(
        fleet=DEFAULT_FLEET,
        machine=machine,
        servers=tuple(_checked_server(one) for one in server.split(",")),
        ca=_checked_file(ca, "--ca"),
        creds=_checked_file(creds, "--creds"),
        insecure=insecure,
        is_gateway=is_gateway,
        replica=is_gateway,
    )
    _clear_for_membership(fleet_folder(home))
    make_private(fleet_folder(home))
    _try_out(access_of(home, config), is_new_name=True)
    save_fleet(home, config)
    return config


def remove(home: Path, logs: Path, machine: str) -> bool:
    """Removes a machine from the fleet, and what the others know of it.

    Returns whether it is cut off; else the server could not be asked, or has not read the change yet. Raises NotFound,
    Conflict.
    """
    config = require_server(home)
    server = FleetServer(home, logs)
    try:
        members = server.change(lambda members: members.remove(machine))
    except NotFound:
        # It may have been removed by a command that was killed before the server was told.
        server.reload()
        raise
    # What it was allowed counts by its name, and another machine may get that.
    if machine in config.allow:
        allow = {name: actions for name, actions in config.allow.items() if name != machine}
        save_fleet(home, replace(config, allow=allow))
    return run(_cut_off(server, members, access_of(home, config)))


async def _cut_off(server: FleetServer, members: Members, access: Access) -> bool:
    """Waits until the server runs without the machines that were removed, and deletes what is known of them.

    Returns whether that is done. The server ends the connections of users that its configuration has no more.
    """
    try:
        await _wait_until_read(server, members)
        async with NatsBus(access) as bus, asyncio.timeout(CUT_OFF_SECONDS):
            await bus.wait_connected(CUT_OFF_SECONDS)
            await forget_removed(bus, server.members, server.home)
    except (TimeoutError, BusError, SynapseError):
        return False
    return True


async def _wait_until_read(server: FleetServer, members: Members) -> None:
    """Waits until the server that runs has the configuration for these members. Raises SynapseError."""
    address, seed, pin = _own_server(members), server.witness_seed(members), _pin(server, members)
    try:
        await wait_until_accepted(address, seed, pin, READ_SECONDS)
    except LinkDown:
        # It refuses to read it again, or does not hear: a server that has ended lets nobody in.
        await asyncio.to_thread(server.stop)
        await asyncio.to_thread(server.start)
        await wait_until_accepted(address, seed, pin)


class Left(NamedTuple):
    """What is left of a membership that has ended."""

    kept_in: Path
    """The folder with its files."""
    unsent: int
    """How many messages of this machine no other one has accepted yet."""
    unanswered: int
    """How many were accepted, and their tasks have not ended."""


def leave(home: Path, logs: Path) -> Left:
    """Ends this machine's membership, and with it the fleet if its server runs here. Its files are set aside.

    The link must have ended. The file of the membership need not be readable. Raises NotInFleet.
    """
    if not fleet_file(home).exists():
        raise NotInFleet
    FleetServer(home, logs).stop()
    folder = fleet_folder(home)
    unsent, unanswered = count_unfinished(folder / DATABASE_FILE)
    return Left(_set_aside(folder), unsent, unanswered)


def checked_fleet_name(name: str) -> str:
    """Returns the name. Raises InvalidRequest if it cannot name a fleet."""
    if not names.is_machine_name(name):
        raise InvalidRequest(
            f"'{name}' cannot name a fleet", hint="use up to 32 letters a to z, digits and hyphens, as in `home`"
        )
    return name


def _require_no_member(home: Path) -> None:
    config = load_fleet(home)
    if config is not None:
        raise Conflict(
            f"this machine is '{config.machine}' in the fleet '{config.fleet}' already",
            hint="`synapse fleet leave` ends that",
        )


def _set_aside(folder: Path) -> Path:
    """Renames the folder of a fleet that has ended, and returns its new path.

    Folders that were set aside before stay: they may hold messages that were not delivered.
    """
    name = f"{folder.name}-{_LEFT}"
    kept = next(path for n in count(1) if not (path := folder.with_name(name if n == 1 else f"{name}-{n}")).exists())
    folder.rename(kept)
    return kept


def _clear_for_membership(folder: Path) -> None:
    """Sets aside what another membership has left in the folder; the key of a try to join is deleted."""
    if (folder / DATABASE_FILE).exists() or (folder / SERVER_FOLDER).exists():
        _set_aside(folder)
    else:
        shutil.rmtree(folder, ignore_errors=True)


def _pin(server: FleetServer, members: Members) -> bytes:
    """Returns the public key of the authority that has signed the server's certificate; empty without TLS."""
    return pin_of(server.ca_file.read_text(encoding="ascii")) if members.uses_tls else b""


def _own_server(members: Members) -> str:
    """Returns the address of the server for its own machine, which does not depend on the network."""
    scheme = "tls" if members.uses_tls else "nats"
    host, port = split_address(members.listen)
    reached = "127.0.0.1" if host == "0.0.0.0" else "[::1]" if host == "::" else f"[{host}]" if ":" in host else host  # noqa: S104 - compared, not listened on
    return f"{scheme}://{reached}:{port}"


def _try_out(access: Access, *, is_new_name: bool = False) -> None:
    """Connects once and does what a link will do. Raises LinkDown with the reason, NameTaken."""
    run(_check(access, is_new_name=is_new_name))


async def _check(access: Access, *, is_new_name: bool) -> None:
    async with NatsBus(access) as bus:
        try:
            if is_new_name:
                # Others run this server, so it runs already, or a person has to do something.
                await bus.require_connected(CONNECT_SECONDS)
                await _make_streams(bus)
                if await bus.get(names.PRESENCE, access.machine) is not None:
                    raise NameTaken(
                        f"a machine named '{access.machine}' is connected already",
                        hint="choose another name with --as; or wait half a minute if it was this one",
                    )
            else:
                await bus.wait_connected(CONNECT_SECONDS)
            await _check_rights(bus)
        except NotConnected as error:
            if is_new_name and KEY_REFUSED in str(error):
                raise _refused_credentials(access, str(error)) from error
            hint = "check the address, the network and the credentials"
            if is_new_name and not access.ca:
                hint += "; --ca FILE names the authority of a server that has its own"
            raise LinkDown(str(error), hint=hint) from error
        except NotAllowed as error:
            raise LinkDown(
                f"the NATS server lets this machine connect, but not do what a fleet needs: {error}",
                hint="docs/howto/fleet.md lists the rights that a machine needs",
            ) from error
        except BusError as error:
            raise LinkDown(
                f"the NATS server cannot be used for a fleet: {error}", hint="a fleet needs NATS 2.11 with JetStream"
            ) from error


async def _make_streams(bus: NatsBus) -> None:
    """Makes the streams that are missing, unless this machine may not: then another one makes them. Raises BusError."""
    for tries_left in reversed(range(_MAKING_TRIES)):
        try:
            return await bus.make_missing()
        except NotAllowed:
            return None
        except NoReply:
            # The servers of a cluster elect a leader for each new stream, which may take several seconds.
            if not tries_left:
                raise
    return None


def _refused_credentials(access: Access, problem: str) -> LinkDown:
    """Returns the error for a machine that was never in the fleet, and so has no key that a server could know."""
    takes_invitations = "a server that Synapse runs takes invitations: `synapse fleet join INVITATION`"
    if access.creds or any("@" in server for server in access.servers):
        return LinkDown(re.sub(f"{KEY_REFUSED}[^;]*", "refuses these credentials", problem), hint=takes_invitations)
    return LinkDown(
        re.sub(f"{KEY_REFUSED}[^;]*", "lets no machine in without credentials", problem),
        hint=f"--creds FILE gives them; {takes_invitations}",
    )


async def _check_rights(bus: NatsBus) -> None:
    """Tries what a machine needs, again while a server of ours knows no stream: for a moment after each change."""
    for _ in range(_ENGINE_TRIES):
        try:
            await bus.check()
        except NoStream:
            if not bus.is_engine_apart:
                raise
            await pause(_ENGINE_PAUSE)
        else:
            return
    await bus.check()


def _checked_server(text: str) -> str:
    if not is_address(text.strip()):
        # Not the text itself: a password may stand in it.
        raise InvalidRequest(
            "this is no address of a NATS server",
            hint="write nats://HOST:PORT, or tls://HOST:PORT; a password with / ? or # needs --creds FILE",
        )
    return text.strip()


def _checked_file(path: str, option: str) -> str:
    if not path:
        return ""
    file = Path(path).expanduser().resolve()
    if not file.is_file():
        raise InvalidSettings(f"{option}: there is no file {file}")
    return str(file)
