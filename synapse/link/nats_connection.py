"""One connection of this machine to one NATS server, by nats-py: from its start to its loss.

nats-py can reconnect by itself, and is not used for that: it ends for good once the server has refused a key, keeps
messages whose sender believes them unsent, and waits for ever for a connection that is dead. `nats_bus` opens a new
connection instead.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import secrets
import socket
import ssl
import struct
import sys
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar, cast
from urllib.parse import urlsplit

from nats import errors as nats_errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from synapse.config.fleet import SEED_FILE
from synapse.core.loopback import is_loopback
from synapse.core.override import override
from synapse.fleet import names
from synapse.fleet.bus import KEY_REFUSED, BusError, NoReply, NoStream, NotAllowed, NotConnected, TooLarge
from synapse.link.machine_keys import public_key

log = logging.getLogger(__name__)
# With each TLS connection that ends, asyncio warns of its own streams. Nobody can act on that.
logging.getLogger("asyncio").addFilter(lambda record: "eof_received()" not in record.getMessage())

MARK: Final = {"Synapse-Wire": "1"}
"""The header of every message that a machine publishes."""
PING_SECONDS: Final = 2.0
SILENCE_SECONDS: Final = 2.0
"""A connection on which a ping is not answered, and nothing else moves, for so long is given up.

With PING_SECONDS a dead one shows in 4 s.
"""
LOOK_SECONDS: Final = 0.25
"""How often it is looked whether anything moves while a ping waits, and whether it was answered."""
SLOWEST_LINE: Final = 32 * 1024
"""Bytes per second: on a slower line than this, large messages are given up."""
_SLOWEST_TUNNEL: Final = 128 * 1024
"""The same behind a tunnel or proxy, which takes many bytes at once, so that none seem to move for a while."""
_LONGEST_TUNNEL: Final = 10.0
CONNECT_SECONDS: Final = 5.0
SECOND: Final = 1_000_000_000
BATCH: Final = 64
_CANCEL_SECONDS: Final = 0.2
_CLOSE_SECONDS: Final = 1.0
_PULL_SECONDS: Final = 30
_HEARTBEAT_SECONDS: Final = 2
_MISSED_SECONDS: Final = 5.0
_LONGEST_PING: Final = 3600
_IGNORED_PINGS: Final = 3600
"""nats-py's own pings are not used: when the network is gone, it may wait for ever while it closes."""
_TCP_INFO: Final = struct.Struct("=24xI92xQQ")
"""Of Linux' `struct tcp_info`: `tcpi_unacked`, `tcpi_bytes_acked` and `tcpi_bytes_received`."""
_PENDING_MESSAGES: Final = 10_000
_PENDING_BYTES: Final = 64 * 1024 * 1024
STATUS: Final = "Status"
DESCRIPTION: Final = "Description"
_FIRST_LINE: Final = re.compile(rb"NATS/1\.0(?: (\d{3})(?: ([ -~]*))?)?")
_HEADER: Final = re.compile(rb"([!-9;-~]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)")


T = TypeVar("T")


async def run_within(seconds: float, job: Coroutine[Any, Any, T]) -> T:
    """Returns the result of a job that uses nats-py. Raises TimeoutError if it takes longer, and what the job raises.

    `asyncio.timeout` cancels once, and the job would go on for ever after a cancellation that is lost.
    """
    task = asyncio.create_task(job)
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
    finally:
        await cancel_until_done(task)
    if not done:
        raise TimeoutError
    return task.result()


async def cancel_until_done(task: asyncio.Task[Any]) -> None:
    """Ends a task that uses nats-py.

    nats-py, and `asyncio.wait_for` before Python 3.12, lose a cancellation that comes at the wrong moment.
    """
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=_CANCEL_SECONDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Where the servers are, and how this machine proves who it is."""

    machine: str
    servers: tuple[str, ...]
    seed: str = field(default="", repr=False)
    """The seed of the machine's nkey; empty with `creds`, or a user and password in the address."""
    creds: str = ""
    """The path of a NATS credentials file."""
    ca: str = ""
    """The path of the certificate that must have signed the server's; empty for those that the system trusts."""
    insecure: bool = False
    """Whether a server on another machine may be used without TLS."""
    makes_streams: bool = False
    """Whether it makes the streams and buckets that are missing."""
    api: str = names.JETSTREAM_API
    """The first tokens of the subjects on which JetStream is asked."""

    def demands_tls(self, server: str) -> bool:
        """Decides whether nothing may be sent to a server over a connection without TLS."""
        return server.startswith("tls:") or not (self.insecure or is_loopback(urlsplit(server).hostname or ""))

    @property
    def is_own_server(self) -> bool:
        """Whether the fleet runs its own server: then its certificate authority signs nothing but that."""
        return bool(self.seed and self.ca)


class Connection:
    """One connection to one server, from its start to its loss."""

    def __init__(self, machine: str, address: str) -> None:
        self.address = address
        self.client = NatsClient()
        self._lost = asyncio.get_running_loop().create_future()
        self._machine = machine
        self._secret = secrets.token_hex(16)
        """Part of the subjects on which answers come, so that nobody can guess them."""
        self._calls: dict[str, tuple[str, asyncio.Future[Msg]]] = {}
        """The subject and the answer of each request that waits, by its token."""
        self._subscribed: dict[str, list[_Inbox]] = {}
        self._last_error: Exception | None = None
        self._hears_answers = True
        self._sent_before_ping = 0
        """Bytes of messages that were sent before the last ping that was answered."""
        self._answered_ping_at = 0.0
        """When that ping was sent, in the time of the event loop."""

    @classmethod
    async def open(cls, access: Access, server: str) -> Connection:
        """Connects and proves who this machine is. Raises NotConnected, with a sentence for people."""
        _require_usable(access, server)
        connection = cls(access.machine, shown_address(server))
        client = connection.client
        client.demands_tls = access.demands_tls(server)
        try:
            context = tls_context(access) if client.demands_tls else None
            async with asyncio.timeout(CONNECT_SECONDS):
                await client.connect(
                    # nats-py begins TLS for this scheme only.
                    servers=[server.replace("nats://", "tls://", 1) if client.demands_tls else server],
                    name=f"synapse {access.machine}",
                    tls=context,
                    # Everything about a lost connection is decided here, and a refused one is tried again as well.
                    allow_reconnect=False,
                    max_reconnect_attempts=1,
                    reconnect_time_wait=0,
                    connect_timeout=int(CONNECT_SECONDS),
                    ping_interval=_IGNORED_PINGS,
                    inbox_prefix=names.inbox_prefix(access.machine),
                    nkeys_seed_str=access.seed or None,
                    user_credentials=access.creds or None,
                    error_cb=connection._on_error,
                    closed_cb=connection._on_closed,
                )
                inbox = names.inbox_subject(access.machine, "*", f"{connection._secret}.*")
                await client.listen(inbox, connection._on_answer)
                # Twice: the first PING overtakes the subscription, which nats-py writes a moment later. When the second
                # one is answered, the server has refused the subscription or will not.
                await client.flush()
                await client.flush()
        except (OSError, ValueError, nats_errors.Error, TimeoutError) as error:
            reason = connection._last_error if isinstance(error, nats_errors.NoServersError) else error
            await connection.close()
            raise NotConnected(explain(reason or error, server)) from error
        except Exception as error:
            # nats-py raises anything for a file of credentials that is damaged.
            await connection.close()
            proof = f"the credentials in {access.creds}" if access.creds else connection.address
            raise NotConnected(f"{proof} cannot be used: {str(error) or type(error).__name__}") from error
        except BaseException:
            await connection.close()
            raise
        if not connection._hears_answers:
            await connection.close()
            raise NotConnected(
                f"{connection.address} does not let this machine hear the answers for {access.machine}: give it the"
                f" credentials of {access.machine}, with the rights that docs/howto/fleet.md lists"
            )
        return connection

    async def wait_lost(self) -> str:
        """Waits until the connection is lost, and returns why."""
        while True:
            done, _ = await asyncio.wait({self._lost}, timeout=PING_SECONDS)
            if done:
                return cast("str", self._lost.result())
            if not await self._is_alive():
                self._lose(f"{self.address} does not answer any more")

    async def _is_alive(self) -> bool:
        """Pings the server. Returns False if it does not answer, and no byte moves either way, for SILENCE_SECONDS.

        On a slow line the ping and its answer wait behind messages, perhaps for long. Where the other end of the
        connection has taken all of them, it may be a tunnel, and gets time to send them on.
        """
        loop = asyncio.get_running_loop()
        sent, sent_at = self.client.stats["out_bytes"], loop.time()
        in_tunnel = min((sent - self._sent_before_ping) / _SLOWEST_TUNNEL, _LONGEST_TUNNEL)
        ping = asyncio.create_task(self.client.flush(timeout=_LONGEST_PING))
        try:
            line, moved_at = self.client.line(), loop.time()
            while not self._lost.done():
                done, _ = await asyncio.wait(
                    {ping, self._lost}, timeout=LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
                if ping in done:
                    self._sent_before_ping, self._answered_ping_at = sent, sent_at
                    return ping.exception() is None
                before, line = line, self.client.line()
                if (line.taken, line.received) != (before.taken, before.received):
                    moved_at = loop.time()
                elif loop.time() - moved_at >= SILENCE_SECONDS + (0.0 if line.has_untaken else in_tunnel):
                    return False
            return True
        finally:
            await cancel_until_done(ping)

    async def close(self) -> None:
        """Closes the connection, or breaks it if that takes long."""
        self._lose("the connection was closed")
        # On a line that is dead, nats-py would wait for ever for what it has written.
        breaking = asyncio.get_running_loop().call_later(_CLOSE_SECONDS, self.client.abort)
        try:
            # One that was never made raises anything.
            with suppress(Exception):
                async with asyncio.timeout(2 * _CLOSE_SECONDS):
                    await self.client.close()
        finally:
            breaking.cancel()
            self.client.abort()

    async def call(self, subject: str, body: bytes, headers: Mapping[str, str] | None, seconds: float) -> Msg:
        """Sends a request and returns the answer. Raises NoReply, NotAllowed, TooLarge, NotConnected.

        A large request gets more time than `seconds`: at either end the line may be slow.
        """
        seconds += len(body) / SLOWEST_LINE
        token = secrets.token_hex(8)
        answer: asyncio.Future[Msg] = asyncio.get_running_loop().create_future()
        self._calls[token] = subject, answer
        asked = names.receiver_machine(subject)
        try:
            reply = names.inbox_subject(self._machine, asked, f"{self._secret}.{token}")
            await self.publish(subject, body, headers, reply)
            async with asyncio.timeout(seconds):
                return await answer
        except TimeoutError:
            # Which machine is silent, its asker knows.
            about = f" on {subject}" if asked == names.ENGINE else ""
            raise NoReply(f"no answer{about} within {seconds:g} s") from None
        finally:
            del self._calls[token]
            if answer.done() and not answer.cancelled():
                answer.exception()  # what was not sent has told its own; asyncio would log that nobody has read this

    async def publish(
        self, subject: str, body: bytes, headers: Mapping[str, str] | None = None, reply: str = ""
    ) -> None:
        """Sends a message. Raises TooLarge, NotConnected, or NoReply when the connection is lost meanwhile."""
        if self._lost.done():
            raise NotConnected(f"the message was not sent: {self._lost.result()}")
        try:
            is_sent = await self._ends_before_loss(
                self.client.publish(subject, body, reply, dict(headers) if headers else None)
            )
        except nats_errors.MaxPayloadError:
            limit = self.client.max_payload
            raise TooLarge(f"the message has {len(body)} bytes, and the server takes {limit}") from None
        except (nats_errors.Error, OSError) as error:
            raise NotConnected(f"the message was not sent: {error}") from error
        if not is_sent:
            # nats-py waits until others' messages are sent too, so all of this one may have arrived.
            raise NoReply(f"the connection was lost while the message was sent: {self._lost.result()}")

    async def _ends_before_loss(self, job: Coroutine[Any, Any, None]) -> bool:
        """Runs a job that uses nats-py; returns whether it ended before the connection was lost. Raises what it raises.

        nats-py waits for a slow line without an end, also when the connection is lost meanwhile, and keeps a
        cancellation to itself then.
        """
        task = asyncio.create_task(job)
        try:
            done, _ = await asyncio.wait({task, self._lost}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancel_until_done(task)
        if task in done:
            task.result()
        return task in done

    async def messages(self, subject: str) -> AsyncGenerator[Msg, None]:
        """Yields the messages on a subject. Raises NotAllowed, or NotConnected when the connection is lost."""
        async with self._inbox(subject) as inbox:
            while True:
                yield await inbox.get()

    @asynccontextmanager
    async def _inbox(self, subject: str) -> AsyncGenerator[_Inbox, None]:
        """Listens on a subject for the length of a block. Raises NotConnected."""
        inbox = _Inbox()
        inboxes = self._subscribed.setdefault(subject.lower(), [])
        inboxes.append(inbox)
        try:
            try:
                await self._ends_before_loss(inbox.subscribe(self.client, subject))
            except (nats_errors.Error, OSError) as error:
                raise NotConnected(str(error)) from error
            if self._lost.done():
                raise NotConnected(self._lost.result())
            yield inbox
        finally:
            inboxes.remove(inbox)
            if not inboxes:
                del self._subscribed[subject.lower()]
            if not self._lost.done():
                with suppress(nats_errors.Error, OSError):
                    # It is on its way at once, and nobody needs to wait for the line.
                    await run_within(_CANCEL_SECONDS, inbox.unsubscribe())

    async def pulled(self, request: str) -> AsyncGenerator[Msg, None]:
        """Yields what a pull consumer delivers; `request` is the subject that asks it. Raises BusError."""
        reply = names.inbox_subject(self._machine, names.ENGINE, secrets.token_hex(16))
        wanted = {"batch": BATCH, "expires": _PULL_SECONDS * SECOND, "idle_heartbeat": _HEARTBEAT_SECONDS * SECOND}
        async with self._inbox(reply) as inbox:
            left = 0
            while True:
                if not left:
                    await self.publish(request, json.dumps(wanted).encode(), None, reply)
                    left = BATCH
                message = await self._next_pulled(inbox)
                status = status_of(message)
                if not status:
                    left -= 1
                    yield message
                elif status in (404, 408):
                    left = 0
                elif status != 100:
                    raise NoStream(f"the consumer is gone ({(message.headers or {}).get(DESCRIPTION, status)})")

    async def _next_pulled(self, inbox: _Inbox) -> Msg:
        """Returns the next message of a consumer. Raises NoReply if not even its heartbeat comes.

        While other messages come, it may be behind them, or the consumer may be gone. A ping tells: its answer comes
        after all that the server has sent before, and so after a heartbeat that was due when the ping was sent.
        """
        loop, wait = asyncio.get_running_loop(), _MISSED_SECONDS
        due_at = loop.time() + _MISSED_SECONDS
        while True:
            try:
                async with asyncio.timeout(wait):
                    return await inbox.get()
            except TimeoutError:
                if self._answered_ping_at >= due_at:
                    raise NoReply("the consumer is silent") from None
                wait = LOOK_SECONDS

    async def _on_answer(self, message: Msg) -> None:
        _, answer = self._calls.get(message.subject.rpartition(".")[2], ("", None))
        if answer is not None and not answer.done():
            answer.set_result(message)

    async def _on_error(self, error: Exception) -> None:
        self._last_error = error
        text = str(error).lower()
        if "permissions violation" in text:
            self._refuse(text)
        elif isinstance(error, nats_errors.UnexpectedEOF | OSError):
            self._lose(f"{self.address} has closed the connection")
        elif self.client.is_connected:
            # What prevents a connection is told by `open`.
            log.warning("bus_error", extra={"why": str(error)})

    async def _on_closed(self) -> None:
        error = self.client.last_error
        self._lose(explain(error, self.address) if error else f"{self.address} has closed the connection")

    def _refuse(self, text: str) -> None:
        """Fails what the server has refused: it names the subject, in small letters as nats-py gives it to us."""
        subject = text.partition('"')[2].partition('"')[0]
        error = NotAllowed(f"the server does not let this machine use {subject}")
        if "subscription" in text:
            self._hears_answers &= not subject.startswith(names.inbox_subject(self._machine, "*", self._secret).lower())
            for inbox in self._subscribed.get(subject, []):
                inbox.end(error)
            return
        found = [answer for asked, answer in self._calls.values() if asked.lower() == subject and not answer.done()]
        for answer in found:
            answer.set_exception(error)
        if not found:
            log.warning("publish_refused", extra={"subject": subject})

    def _lose(self, why: str) -> None:
        if self._lost.done():
            return
        self._lost.set_result(why)
        for _, answer in self._calls.values():
            if not answer.done():
                answer.set_exception(NoReply(f"the connection was lost before the answer came: {why}"))
        for inboxes in self._subscribed.values():
            for inbox in inboxes:
                inbox.end(NotConnected(why))


class LineState(NamedTuple):
    """What the kernel knows of a TCP connection."""

    taken: int = 0
    """Bytes that the other end has acknowledged."""
    received: int = 0
    has_untaken: bool = False
    """Whether the other end has yet to acknowledge something."""


class NatsClient(Client):
    """nats-py's client, which sends no credentials over a connection without TLS where TLS was asked for."""

    demands_tls = False

    @property
    def info(self) -> Mapping[str, Any]:
        """What the server says of itself."""
        return cast("Mapping[str, Any]", self._server_info)

    @override
    def _connect_command(self) -> bytes:
        # nats-py trusts the server's own word about TLS, and so one between us and the server could turn it off. This
        # is called when the handshake is done, and before anything about this machine is sent.
        if self.demands_tls and not self.peer_certificate():
            raise nats_errors.SecureConnWantedError
        self.check_peer()
        return super()._connect_command()

    @override
    async def _process_headers(self, headers: bytes | None) -> dict[str, str]:
        return read_headers(headers or b"")

    async def listen(self, subject: str, take: Callable[[Msg], Awaitable[None]]) -> Subscription:
        """Calls `take` with each message on a subject. Raises nats.errors.Error."""
        return await self.subscribe(subject, cb=take)  # pyright: ignore[reportUnknownMemberType]  # another parameter has no type

    def check_peer(self) -> None:
        """Checks the server further; a subclass raises nats.errors.Error."""

    def peer_certificate(self) -> bytes:
        """Returns the server's certificate (DER); empty without TLS."""
        secured = self._extra("ssl_object")
        return (secured.getpeercert(binary_form=True) if secured is not None else None) or b""

    def line(self) -> LineState:
        """Returns how far the bytes of the connection are. Only Linux tells."""
        connected: socket.socket | None = self._extra("socket")
        if connected is None or sys.platform != "linux":
            return LineState()
        try:
            told = connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
        except OSError:
            return LineState()
        if len(told) < _TCP_INFO.size:
            return LineState()
        untaken, taken, received = _TCP_INFO.unpack(told)
        return LineState(taken, received, bool(untaken))

    def abort(self) -> None:
        """Breaks the connection, if it is still there, and drops what it has not sent."""
        writer = self._writer()
        # asyncio raises it for one that has closed itself after it had sent the rest.
        with suppress(AttributeError):
            if writer is not None:
                writer.transport.abort()

    def _extra(self, name: str) -> Any:
        """Returns what asyncio knows of the connection by that name; None without one."""
        writer = self._writer()
        return writer.get_extra_info(name) if writer is not None else None

    def _writer(self) -> asyncio.StreamWriter | None:
        """Returns the end of the connection that asyncio writes to; None without one."""
        writer: asyncio.StreamWriter | None = getattr(self._transport, "_io_writer", None)
        return writer


class _Inbox:
    """The messages of one subscription that nobody has taken yet; bounded."""

    def __init__(self) -> None:
        self._messages: deque[Msg] = deque()
        self._bytes = 0
        self._changed = asyncio.Event()
        self._end: BusError | None = None
        self._subscription: Subscription | None = None

    async def subscribe(self, client: NatsClient, subject: str) -> None:
        """Begins to take the messages on a subject. Raises nats.errors.Error.

        When it is cancelled while it waits for the line, the subscription is made nevertheless: `unsubscribe` ends it.
        """
        self._subscription = await client.listen(subject, self.put)

    async def unsubscribe(self) -> None:
        """Ends the subscription, if it was made. Raises nats.errors.Error."""
        if self._subscription is not None:
            await self._subscription.unsubscribe()

    async def put(self, message: Msg) -> None:
        if len(self._messages) >= _PENDING_MESSAGES or self._bytes > _PENDING_BYTES:
            log.warning("message_dropped", extra={"subject": message.subject, "why": "too many are waiting"})
            return
        self._messages.append(message)
        self._bytes += len(message.data)
        self._changed.set()

    def end(self, error: BusError) -> None:
        self._end = error
        self._changed.set()

    async def get(self) -> Msg:
        """Returns the next message. Raises the BusError with which the subscription has ended."""
        while not self._messages:
            if self._end is not None:
                raise self._end
            self._changed.clear()
            await self._changed.wait()
        message = self._messages.popleft()
        self._bytes -= len(message.data)
        return message


def tls_context(access: Access) -> ssl.SSLContext:
    """Returns what the server's certificate is checked against. Raises OSError, ValueError (ssl.SSLError is both)."""
    context = ssl.create_default_context(cafile=access.ca or None)
    if access.is_own_server:
        # The fleet's own authority has signed the certificate of this server and no other, and its address may change.
        context.check_hostname = False
    return context


def explain(error: Exception, server: str) -> str:
    """Returns why a connection could not be made or was ended, as a sentence with what to do."""
    text = str(error).lower()
    for kind, words, sentence in _EXPLANATIONS:
        if isinstance(error, kind) and (not words or any(word in text for word in words)):
            return sentence.format(address=shown_address(server))
    return f"{shown_address(server)} cannot be used: {str(error).removeprefix('nats: ') or type(error).__name__}"


_EXPLANATIONS: Final[tuple[tuple[type[Exception], tuple[str, ...], str], ...]] = (
    (
        ssl.SSLCertVerificationError,
        ("not yet valid", "expired"),
        "the certificate of {address} is not valid at this machine's time: check the clock here and there",
    ),
    (ssl.SSLCertVerificationError, (), "the certificate of {address} is not one of this fleet: another server answers"),
    (ssl.SSLError, (), "{address} speaks no TLS that this machine understands"),
    (nats_errors.SecureConnWantedError, (), "{address} does not offer TLS, so nothing was sent to it"),
    (socket.gaierror, (), "the name in {address} is not known here: check it and the network"),
    (ConnectionRefusedError, (), "nothing listens at {address}: is the fleet's server running?"),
    (TimeoutError, (), "{address} does not answer"),
    (
        nats_errors.Error,
        ("authorization", "authentication"),
        f"{{address}} {KEY_REFUSED}: it was removed from the fleet, or never was in it",
    ),
)
"""The sentence for each kind of error whose text has one of the words, if there are any."""


def read_headers(block: bytes) -> dict[str, str]:
    """Returns the headers of a message; none at all if one line of the block is not as it must be.

    The server checks no block that a client sends, and appends its own lines to it. A lenient reader, as in nats-py,
    can be made to overlook those: after an empty line, or glued to a line that has no end.
    """
    if not block.endswith(b"\r\n\r\n"):
        return {}
    first, *lines = block[:-4].split(b"\r\n")
    began = _FIRST_LINE.fullmatch(first)
    found: dict[str, str] = {}
    if began is None:
        return {}
    if began[1]:
        found = {STATUS: began[1].decode(), DESCRIPTION: (began[2] or b"").decode()}
    for line in lines:
        header = _HEADER.fullmatch(line)
        name = header[1].decode() if header is not None else ""
        # The server finds names in small letters too.
        if header is None or name.lower() in map(str.lower, found):
            return {}
        found[name] = header[2].decode("utf-8", "replace").strip()
    return found


def status_of(message: Msg) -> int:
    text = (message.headers or {}).get(STATUS, "")
    return int(text) if text.isdecimal() and not message.data else 0


def shown_address(server: str) -> str:
    """Returns an address without the password that may stand in it."""
    try:
        parts = urlsplit(server if "://" in server else f"//{server}")
        return f"{parts.hostname}:{parts.port or 4222}"
    except ValueError:
        return "the fleet's server"


def is_address(server: str) -> bool:
    """Decides whether a text is the address of a NATS server: scheme, host and port, perhaps a user and a password."""
    try:
        parts = urlsplit(server)
        # A password with one of these characters would end the host too early.
        extra = parts.path.strip("/") or parts.query or parts.fragment
        return parts.scheme in ("nats", "tls") and bool(parts.hostname) and parts.port != 0 and not extra
    except ValueError:
        return False


def _require_usable(access: Access, server: str) -> None:
    """Raises NotConnected if a file of this machine is damaged; nats-py's own errors may have a part of a secret."""
    if not is_address(server):
        raise NotConnected("the address of the fleet's server in fleet.json cannot be read")
    if access.seed:
        try:
            public_key(access.seed)
        except ValueError:
            raise NotConnected(f"the key of this machine is damaged: {SEED_FILE} in the folder of the fleet") from None
    if access.creds:
        try:
            content = Path(access.creds).read_bytes()
        except OSError as error:
            raise NotConnected(f"{access.creds} cannot be read: {error.strerror}") from error
        # nats-py would look for the first of them for ever.
        if b"BEGIN NATS USER JWT" not in content or b"BEGIN USER NKEY SEED" not in content:
            raise NotConnected(f"{access.creds} is damaged: a file of credentials has a JWT and a seed")
