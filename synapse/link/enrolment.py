"""Lets a new machine into the fleet by an invitation: one line of text that a person carries to it.

    the fleet's server machine                              the new machine
    `fleet invite box2`: a one-time key, a user for it
                                 ── the invitation ──►      `fleet join`: makes its own key
                                 ◄── its public key ──      connects with the one-time key, TLS checked by the pin
    adds the machine, reloads    ── fleet, CA ──────►       connects with its own key

The invitation has the addresses, the public key of the fleet's certificate authority (the pin), and the seed of a key
that may do nothing but ask on `synapse.v1.enrol.KEY`. It is valid once and for ten minutes, by the server's clock. The
key of the new machine is made there, and its seed never leaves it.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import secrets
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from nats import errors as nats_errors
from nats.aio.msg import Msg

from synapse import __version__
from synapse.config.process import SystemClock
from synapse.core.errors import (
    InvalidRequest,
    InvitationRefused,
    LinkDown,
    SynapseError,
    from_wire,
    to_wire,
)
from synapse.core.override import override
from synapse.core.waiting import pause
from synapse.fleet import names
from synapse.fleet.bus import Arrival, Bus, BusError
from synapse.link.machine_keys import is_public_key, public_key
from synapse.link.members import Members
from synapse.link.nats_connection import MARK, NatsClient, explain, run_within
from synapse.link.presence import forget_removed
from synapse.link.server import FleetServer

log = logging.getLogger(__name__)

PREFIX: Final = "synapse-fleet-1:"
ENROL_SECONDS: Final = 10.0
CONNECT_SECONDS: Final = 5
LOOK_SECONDS: Final = 0.1
"""How often it is looked whether the server has ended the connection; nats-py does not always call back."""
LOOKS_UNTIL_AGAIN: Final = 20
"""After so many the server's machine is asked again: its link may have lost the request with its own connection."""
TRIES: Final = 6
AGAIN_SECONDS: Final = 0.3
FORGET_AGAIN_SECONDS: Final = 10.0
"""When it is tried again to delete what removed machines have left."""
_CUT_OFF: Final = (ConnectionResetError, BrokenPipeError)
CLOCK_SECONDS: Final = 300.0
"""A larger difference between two machines' clocks is told to the person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Invitation:
    """What a new machine needs to join."""

    fleet: str
    machine: str
    servers: tuple[str, ...]
    pin: bytes
    """The public key of the fleet's certificate authority; empty where the server listens on loopback without TLS."""
    seed: str = field(repr=False)
    """The seed of the one-time key."""
    is_gateway: bool
    expires_at: float

    def text(self) -> str:
        """Returns the line that a person carries over."""
        fields = {
            "f": self.fleet,
            "n": self.machine,
            "a": list(self.servers),
            "p": base64.b64encode(self.pin).decode(),
            "k": self.seed,
            "g": int(self.is_gateway),
            "x": int(self.expires_at),
        }
        packed = base64.urlsafe_b64encode(json.dumps(fields, separators=(",", ":")).encode()).decode()
        return PREFIX + packed.rstrip("=")


@dataclass(frozen=True, slots=True, kw_only=True)
class Enrolled:
    """What the fleet's server machine answers to a machine that it has let in."""

    fleet: str
    machine: str
    servers: tuple[str, ...]
    is_gateway: bool
    ca: str
    """The certificate authority (PEM); empty without TLS."""
    server_time: float


def read_invitation(text: str) -> Invitation:
    """Reads an invitation, also one that was wrapped over several lines. Raises InvalidRequest."""
    packed = "".join(text.split())
    if not packed.startswith(PREFIX):
        raise _unreadable(f"it does not begin with '{PREFIX}'")
    packed = packed.removeprefix(PREFIX)
    try:
        fields: Any = json.loads(base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4)))
        invitation = Invitation(
            fleet=str(fields["f"]),
            machine=str(fields["n"]),
            servers=tuple(str(server) for server in fields["a"]),
            pin=base64.b64decode(fields["p"]),
            seed=str(fields["k"]),
            is_gateway=bool(fields["g"]),
            expires_at=float(fields["x"]),
        )
        public_key(invitation.seed)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _unreadable("a part of it is missing or changed") from error
    needs_pin = any(server.startswith("tls:") for server in invitation.servers)
    if not invitation.servers or not names.is_machine_name(invitation.machine) or needs_pin != bool(invitation.pin):
        raise _unreadable("a part of it is missing or changed")
    return invitation


async def enrol(invitation: Invitation, machine_key: str) -> Enrolled:
    """Asks the fleet's server to let the machine with this public key in.

    Raises:
        InvitationRefused: the invitation was used, has expired or was withdrawn.
        NameTaken: another machine has the name by now.
        LinkDown: no server of the invitation can be reached, another one answers there, or nobody admits machines.
    """
    problems: dict[str, None] = {}
    refusal: Exception | None = None
    unadmitted: _NobodyAdmits | None = None
    ends_at = asyncio.get_running_loop().time() + ENROL_SECONDS
    # More than once: while the server reads its users again, it ends connections, leaves others without an answer, and
    # refuses keys that are valid.
    for number, server in enumerate(invitation.servers * TRIES):
        if number >= len(invitation.servers):
            await pause(AGAIN_SECONDS)
        try:
            return await run_within(ENROL_SECONDS, _enrol_at(server, invitation, machine_key))
        except _NobodyAdmits as error:
            unadmitted = error  # its link may connect again right now
        except (OSError, TimeoutError, nats_errors.Error) as error:
            problems[explain(error, server)] = None
            refusal = error if _is_refusal(error) else refusal
            has_expired = SystemClock().now().timestamp() >= invitation.expires_at
            is_passing = isinstance(error, (*_CUT_OFF, TimeoutError, nats_errors.Error))
            are_all_asked = number + 1 >= len(invitation.servers)
            is_late = are_all_asked and asyncio.get_running_loop().time() >= ends_at
            is_hopeless = not is_passing and len(invitation.servers) == 1
            if is_late or is_hopeless or (refusal is not None and has_expired):
                break
    if refusal is not None:
        raise _refused(invitation) from refusal
    raise unadmitted or LinkDown(
        "; ".join(problems), hint="check that this machine reaches the address, and that the fleet's server runs"
    )


async def wait_until_accepted(server: str, seed: str, pin: bytes, seconds: float = ENROL_SECONDS) -> None:
    """Waits until the fleet's server, at this address, lets the holder of a new key in. Raises LinkDown."""
    try:
        await run_within(seconds, _connect_once_accepted(server, seed, pin))
    except (OSError, TimeoutError, nats_errors.Error) as error:
        raise LinkDown(
            f"the fleet's server has not read its new configuration: {explain(error, server)}",
            hint="`synapse fleet doctor` looks for the reason",
        ) from error


async def _connect_once_accepted(server: str, seed: str, pin: bytes) -> None:
    while True:
        try:
            async with _connected(server, seed, pin):
                pass
        except TimeoutError:
            pass  # it is busy
        except (nats_errors.Error, ConnectionError) as error:
            # It has not read its users again yet. A refusal may be lost when the server ends the connection.
            if not _is_refusal(error) and not isinstance(error, _CUT_OFF):
                raise
        else:
            return
        await pause(0.02)


class EnrolmentService:
    """Answers machines that join, on the machine that runs the fleet's server."""

    def __init__(self, bus: Bus, server: FleetServer) -> None:
        self._bus = bus
        self._server = server

    async def serve(self) -> None:
        """Answers requests for ever."""
        async for arrival in self._bus.arrivals(names.enrol_subject("*")):
            answer = await self._answer(arrival)
            try:
                await self._bus.publish(arrival.reply_to, json.dumps(answer).encode())
            except BusError as error:
                log.warning("enrolment_not_answered", extra={"why": str(error)})

    async def _answer(self, arrival: Arrival) -> dict[str, Any]:
        invitation_key = arrival.subject.rpartition(".")[2]
        try:
            key = _asked_key(arrival.body)
            await self._forget_removed()
            members = await asyncio.to_thread(self._enrol, invitation_key, key)
        except SynapseError as error:
            log.warning("enrolment_refused", extra={"why": str(error)})
            return {"error": to_wire(error)}
        except OSError as error:
            log.exception("enrolment_failed")
            return {"error": to_wire(SynapseError(f"the fleet's server cannot write its files: {error.strerror}"))}
        invited = members.invited[invitation_key]
        log.info("machine_enrolled", extra={"machine": invited.name, "gateway": invited.is_gateway})
        return {
            "fleet": members.fleet,
            "machine": invited.name,
            "gateway": invited.is_gateway,
            "servers": list(members.servers),
            "ca": self._server.ca_file.read_text(encoding="ascii") if members.uses_tls else "",
            "time": SystemClock().now().timestamp(),
        }

    async def _forget_removed(self) -> None:
        """Deletes what removed machines have left: the one that joins may have the name of one. Raises LinkDown."""
        try:
            await forget_removed(self._bus, self._server.members, self._server.home)
        except BusError as error:
            raise LinkDown(f"the fleet's server cannot be asked now: {error}", hint="try again in a moment") from error

    def _enrol(self, invitation_key: str, key: str) -> Members:
        now = SystemClock().now().timestamp()
        return self._server.change(lambda members: members.enrol(invitation_key, key, now))


async def serve_fleet(home: Path, logs: Path, bus: Bus) -> None:
    """Runs the fleet's server and lets machines in, for ever: for the link of the machine that runs the server."""
    server = FleetServer(home, logs)
    async with asyncio.TaskGroup() as group:
        group.create_task(server.keep_running())
        group.create_task(EnrolmentService(bus, server).serve())
        group.create_task(_forget_removed(bus, server))


async def _forget_removed(bus: Bus, server: FleetServer) -> None:
    """Deletes what removed machines have left after each connection: `fleet remove` may not have reached the server."""
    async for _ in bus.changes():
        while bus.connected and not await _try_to_forget_removed(bus, server):
            await pause(FORGET_AGAIN_SECONDS)


async def _try_to_forget_removed(bus: Bus, server: FleetServer) -> bool:
    try:
        await forget_removed(bus, server.members, server.home)
    except (BusError, SynapseError) as error:
        log.warning("removed_machines_not_forgotten", extra={"why": str(error)})
        return False
    return True


class _PinnedClient(NatsClient):
    """Connects only to a server whose certificate the invitation's authority has signed."""

    pin = b""

    @override
    def check_peer(self) -> None:
        from synapse.link.certificates import is_signed_by  # noqa: PLC0415 - only a machine that joins needs it

        # Before the one-time key is proven: else one in between could use the proof to join in this machine's place.
        if self.pin and not is_signed_by(self.peer_certificate(), self.pin):
            raise ssl.SSLCertVerificationError("the certificate is not signed by the authority of the invitation")


async def _enrol_at(server: str, invitation: Invitation, machine_key: str) -> Enrolled:
    answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def take(message: Msg) -> None:
        if not answer.done():
            answer.set_result(message.data)

    async with _connected(server, invitation.seed, invitation.pin) as client:
        key = public_key(invitation.seed)
        inbox = f"{names.enrol_inbox(key)}.{secrets.token_hex(16)}"
        await client.listen(inbox, take)
        body = json.dumps({"key": machine_key, "version": __version__}).encode()
        looks = 0
        while not answer.done():
            if client.is_closed:
                raise ConnectionResetError("the server has ended the connection")
            if looks % LOOKS_UNTIL_AGAIN == 0:
                await client.publish(names.enrol_subject(key), body, inbox, dict(MARK))
            looks += 1
            await asyncio.wait({answer}, timeout=LOOK_SECONDS)
    return _enrolled(answer.result(), invitation)


@asynccontextmanager
async def _connected(server: str, seed: str, pin: bytes) -> AsyncGenerator[_PinnedClient, None]:
    """Connects with a key that is no machine's yet, as that of an invitation. Raises OSError, nats.errors.Error."""
    client = _PinnedClient()
    client.pin = pin
    client.demands_tls = server.startswith("tls:")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # `check_peer` checks it
    reasons: list[Exception] = []

    async def note(error: Exception) -> None:
        reasons.append(error)

    try:
        try:
            await client.connect(
                servers=[server],
                name="synapse fleet",
                connect_timeout=CONNECT_SECONDS,
                tls=context if client.demands_tls else None,
                allow_reconnect=False,
                max_reconnect_attempts=1,
                reconnect_time_wait=0,
                nkeys_seed_str=seed,
                error_cb=note,
            )
        except nats_errors.NoServersError as error:
            raise (reasons[-1] if reasons else error) from error
        yield client
    finally:
        await client.close()


class _NobodyAdmits(LinkDown):
    """The server runs, and no link there listens for machines that join."""


def _enrolled(content: bytes, invitation: Invitation) -> Enrolled:
    if not content:
        raise _NobodyAdmits(
            "the fleet's server runs, but nobody there lets machines in now",
            hint="`synapse fleet status` on that machine shows its link; `synapse fleet start` starts it",
        )
    told: Any = json.loads(content)
    if "error" in told:
        raise from_wire(told["error"])
    from synapse.link.certificates import pin_of  # noqa: PLC0415 - only a machine that joins needs it

    ca = str(told["ca"])
    if invitation.pin and pin_of(ca) != invitation.pin:
        raise InvitationRefused("the fleet's server sent another certificate authority than the invitation names")
    return Enrolled(
        fleet=str(told["fleet"]),
        machine=str(told["machine"]),
        servers=tuple(str(server) for server in told["servers"]),
        is_gateway=bool(told["gateway"]),
        ca=ca,
        server_time=float(told["time"]),
    )


def clock_warning(enrolled: Enrolled, now: float) -> str:
    """Returns a sentence if this machine's clock and the server's are far apart; empty otherwise."""
    apart = now - enrolled.server_time
    if abs(apart) < CLOCK_SECONDS:
        return ""
    minutes = round(abs(apart) / 60)
    amount = f"{round(minutes / 60)} hours" if minutes >= 120 else f"{minutes} minutes"
    where = "ahead of" if apart > 0 else "behind"
    return (
        f"The clock of this machine is {amount} {where} that of the fleet's server. Messages are not affected; "
        "times that are shown are."
    )


def _is_refusal(error: Exception) -> bool:
    return isinstance(error, nats_errors.Error) and "authorization" in str(error).lower()


def _refused(invitation: Invitation) -> InvitationRefused:
    expired = SystemClock().now().timestamp() >= invitation.expires_at
    return InvitationRefused(
        f"the invitation for '{invitation.machine}' is not valid any more: "
        + ("it has expired" if expired else "it was used, withdrawn or replaced, or has expired"),
    )


def _asked_key(body: bytes) -> str:
    try:
        key: object = json.loads(body)["key"]
    except (ValueError, KeyError, TypeError, RecursionError):
        key = None
    if not isinstance(key, str) or not is_public_key(key):
        raise InvalidRequest("the request to join has no public key of a machine")
    return key


def _unreadable(why: str) -> InvalidRequest:
    return InvalidRequest(
        f"this is not a whole invitation: {why}",
        hint="copy the whole line that `synapse fleet invite NAME` has printed; "
        "the address of a NATS server begins with nats:// or tls://",
    )
