"""Implements `fleet.bus.Bus` with nats-py: one connection to one of the NATS servers of the fleet, made again for ever.

The only module that loads nats-py, with `link.enrolment`. It asks JetStream by its JSON interface, so that each right
that a machine needs stands in a subject (`link.members` lists them).

Who wrote a message is decided by its subject, on which the server lets one machine publish. The server itself publishes
too, though: it sends the answers of its JetStream interface to whatever subject a request names for its reply, and so
any machine can make it send something on the subject of another. Such a message is recognised and dropped:
 - an answer as JSON lacks our header MARK, which all our own messages have;
 - a stored message that is fetched directly has headers of the server's beside those with which it was stored, and ours
   have exactly those that we set (`_is_genuine`): what a later version has to add goes into the body;
 - a stored message that a consumer delivers keeps the subject under which it was stored, not that of the subscription.
An answer goes only to the inbox of the machine that asked, for an answer of ours: else a request could make us write
something on any other of our subjects.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import random
import re
import secrets
from collections import deque
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Any, Final, Self, cast

from nats.aio.msg import Msg

from synapse.config.fleet import SEED_FILE, FleetConfig, fleet_folder
from synapse.core.waiting import pause
from synapse.fleet import names
from synapse.fleet.bus import (
    NO_CONNECTION,
    Arrival,
    BusError,
    MailboxFull,
    NobodyThere,
    NoReply,
    NoStream,
    NotAllowed,
    NotConnected,
    NotLast,
    TooLarge,
)
from synapse.link.nats_connection import (
    MARK,
    SECOND,
    Access,
    Connection,
    cancel_until_done,
    read_headers,
    shown_address,
    status_of,
)

log = logging.getLogger(__name__)

PRESENCE_SECONDS: Final = 30.0
MAIL_DAYS: Final = 7
LOG_DAYS: Final = 3
MAILS_PER_PAIR: Final = 1000
LOG_BYTES: Final = (2_900_000_000, 700_000_000, 180_000_000, 45_000_000)
"""Limits of all shipped logs: the first counts that the server has space for. What a replica lacks is shipped again."""
API_SECONDS: Final = 5.0
LONGEST_POSTPONED: Final = 60.0
LEAST_WAIT: Final = 0.2
LONGEST_WAIT: Final = 2.0
_DAY: Final = 86_400 * SECOND
_ONCE: Final = "Nats-Msg-Id"
_EXPECTED: Final = "Nats-Expected-Last-Subject-Sequence"
_TTL: Final = "Nats-TTL"
_ID: Final = re.compile(r"[\w.-]+")
_OPERATION: Final = "KV-Operation"
_DELETED: Final = {**MARK, _OPERATION: "DEL"}
_MARKER: Final = "Nats-Marker-Reason"
_WITH_MARKER: Final = frozenset({_MARKER, _TTL, "Nats-Rollup"})
"""The headers with which the server itself marks an entry that has expired."""
_FULL: Final = {
    10077: f"{MAILS_PER_PAIR} messages wait there already, and no more are kept",
    10047: "the fleet's server has no space left",
    10023: "the fleet's server has no space left",
    10072: "the account at the fleet's server has no space left",
}
"""What JetStream's codes mean for somebody whose message was not kept."""
_TOO_LARGE: Final = 10054
_NOT_LAST: Final = frozenset({10071, 10164})
_NO_JETSTREAM: Final = frozenset({10039, 10076, 10035})
_NOTHING_FOUND: Final = 10037
_STREAM_MISSING: Final = 10059
_NO_TTL: Final = 10166
_NO_LEADER: Final = 10008


def access_of(home: Path, config: FleetConfig) -> Access:
    """Returns how this machine reaches its fleet. Raises OSError if the machine's key cannot be read."""
    seed_file = fleet_folder(home) / SEED_FILE
    # A NATS of others may know this machine by a user in the address, or not at all.
    seed = (
        seed_file.read_text(encoding="ascii", errors="replace").strip()
        if not config.creds and seed_file.exists()
        else ""
    )
    return Access(
        machine=config.machine,
        servers=config.servers,
        seed=seed,
        creds=config.creds,
        ca=config.ca,
        insecure=config.insecure,
        makes_streams=config.runs_server or not seed,
        api=names.ENGINE_API if seed else names.JETSTREAM_API,
    )


class NatsBus:
    """Implements `Bus`. Use it as `async with NatsBus(access) as bus`: it connects in the background."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._connection: Connection | None = None
        self._problem = "it has not connected yet"
        self._listeners: set[asyncio.Queue[bool]] = set()
        self._is_connected = asyncio.Event()
        self._tries = 0
        self._has_tried_all = asyncio.Event()
        """One server could be used, or each was tried once."""
        self._mails: dict[int, str] = {}
        """The subject on which each mail that was yielded is acknowledged."""
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._stay_connected())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            await cancel_until_done(self._task)

    @property
    def connected(self) -> bool:
        return self._connection is not None

    @property
    def problem(self) -> str:
        return self._problem

    @property
    def max_payload(self) -> int:
        return self._connection.client.max_payload if self._connection else 1024 * 1024

    @property
    def server(self) -> Mapping[str, Any]:
        """What the server says of itself (NATS INFO): server_name, version, max_payload …; empty when not connected."""
        return self._connection.client.info if self._connection else {}

    async def wait_connected(self, seconds: float) -> None:
        """Waits for a connection. Raises NotConnected with the reason if there is none after `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                await self._is_connected.wait()
        except TimeoutError:
            raise NotConnected(self._problem) from None

    async def require_connected(self, seconds: float) -> None:
        """Waits until each server was tried once. Raises NotConnected with the reason if none can be used."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._has_tried_all.wait()
        if not self.connected:
            raise NotConnected(self._problem)

    async def changes(self) -> AsyncGenerator[bool, None]:
        queue = asyncio.Queue[bool]()
        queue.put_nowait(self.connected)
        self._listeners.add(queue)
        try:
            while True:
                yield await queue.get()
        finally:
            self._listeners.discard(queue)

    # Messages

    async def request(self, subject: str, body: bytes, seconds: float) -> bytes:
        answer = await self._require().call(subject, body, MARK, seconds)
        if status_of(answer) == 503:
            raise NobodyThere(f"nobody listens on {subject}")
        return answer.data

    async def publish(self, subject: str, body: bytes) -> None:
        await self._require().publish(subject, body, MARK)

    async def arrivals(self, subject: str) -> AsyncGenerator[Arrival, None]:
        while True:
            connection = await self._wait_for_connection()
            try:
                async with aclosing(connection.messages(subject)) as messages:
                    async for message in messages:
                        if _is_genuine(message.headers) and matches(subject, message.subject):
                            yield Arrival(
                                message.subject, message.data, self._safe_reply(message), headers=message.headers or {}
                            )
                        else:
                            _log_forged(message, subject)
            except NotAllowed:
                raise
            except BusError:
                await pause(LEAST_WAIT)

    # Streams

    async def keep(
        self, subject: str, body: bytes, *, once: str, expected_last: int | None = None, ttl: float | None = None
    ) -> int:
        headers = {**MARK, _ONCE: once}
        if expected_last is not None:
            headers[_EXPECTED] = str(expected_last)
        if ttl is not None:
            try:
                return await self._store(subject, body, {**headers, _TTL: str(max(1, int(ttl)))})
            except _ApiError as error:
                if error.number != _NO_TTL:
                    raise
                # A stream that an older version has made: it keeps all mails equally long.
        return await self._store(subject, body, headers)

    async def acknowledge(self, arrival: Arrival) -> None:
        await self._end_mail(arrival, b"+ACK")

    async def postpone(self, arrival: Arrival, seconds: float) -> None:
        # Each time the engine sends all of the mail again, and an agent may hang for hours.
        if reply := self._mails.get(arrival.mail):
            times = _delivery(reply).times
            seconds = max(seconds, min(seconds * 2.0 ** min(times - 1, 20), LONGEST_POSTPONED))
            await self._end_mail(arrival, b'-NAK {"delay": %d}' % int(seconds * SECOND))

    async def mails(self, machine: str) -> AsyncGenerator[Arrival, None]:
        subject = names.mail_subject(machine, "*")
        consumer = {
            "name": names.mail_consumer(machine),
            "durable_name": names.mail_consumer(machine),
            "filter_subject": subject,
            "ack_policy": "explicit",
            "ack_wait": 30 * SECOND,
            "max_deliver": -1,
            # Without a limit: mail that is postponed counts too, and one machine's must not keep the others' away. What
            # is in work is bounded by the relay, and what one machine may have here by the stream.
            "max_ack_pending": -1,
            # In as many servers as the stream, else it would be stuck while its only one is away.
            "mem_storage": True,
        }
        async for message in self._consume(names.MAIL_STREAM, consumer):
            if not _is_genuine(message.headers) or not matches(subject, message.subject):
                _log_forged(message, subject)
                with suppress(BusError):
                    await self._require().publish(message.reply, b"+TERM")
                continue
            number = _delivery(message.reply).stream_number
            self._mails[number] = message.reply
            yield Arrival(message.subject, message.data, mail=number, headers=message.headers or {})

    async def discard_mails(self, members: Callable[[], Collection[str]]) -> None:
        try:
            found = await self._subjects(names.MAIL_STREAM, names.mail_subject("*", "*"))
        except _ApiError as error:
            if error.number == _STREAM_MISSING:
                return  # it was lost, with all mails
            raise
        # The members are read last: what a machine that joins meanwhile has sent stays.
        now = set(members())
        for subject in found:
            if not {*subject.split(".")[-2:]} <= now:
                await self._api(f"STREAM.PURGE.{names.MAIL_STREAM}", {"filter": subject})

    async def last_kept(self, subject: str) -> tuple[int, bytes] | None:
        asked = f"{self._access.api}.DIRECT.GET.{names.LOG_STREAM}.{subject}"
        answer = await self._require().call(asked, b"", None, API_SECONDS)
        status = status_of(answer)
        if status == 404:
            return None
        if status:
            raise NoStream(
                f"the engine keeps nothing of {subject} ({(answer.headers or {}).get('Description', status)})"
            )
        return int((answer.headers or {}).get("Nats-Sequence", "0")), answer.data

    # Buckets

    async def put(self, bucket: str, key: str, value: bytes) -> None:
        await self._store(f"$KV.{bucket}.{key}", value, MARK)

    async def get(self, bucket: str, key: str) -> bytes | None:
        found = await self._last_entry(bucket, key)
        return found[1] if found is not None and found[0] is _Entry.VALUE else None

    async def is_deleted(self, bucket: str, key: str) -> bool:
        found = await self._last_entry(bucket, key)
        return found is not None and found[0] is _Entry.DELETED

    async def _last_entry(self, bucket: str, key: str) -> tuple[_Entry, bytes] | None:
        """Returns what the last message of a key says, and its content; None if there is none."""
        try:
            found = await self._api(f"STREAM.MSG.GET.KV_{bucket}", {"last_by_subj": f"$KV.{bucket}.{key}"})
        except _ApiError as error:
            if error.number == _NOTHING_FOUND:
                return None
            raise
        message = found["message"]
        entry = _entry(read_headers(base64.b64decode(message.get("hdrs", ""))))
        return entry, base64.b64decode(message.get("data", ""))

    async def delete(self, bucket: str, key: str) -> None:
        await self._store(f"$KV.{bucket}.{key}", b"", _DELETED)

    async def keys(self, bucket: str) -> list[str]:
        prefix = f"$KV.{bucket}."
        return [subject.removeprefix(prefix) for subject in await self._subjects(f"KV_{bucket}", f"{prefix}>")]

    async def watch(self, bucket: str) -> AsyncGenerator[tuple[str, bytes | None], None]:
        prefix = f"$KV.{bucket}."
        view = _BucketView()
        while True:
            view.begin()
            consumer = {
                "name": f"w_{secrets.token_hex(16)}",
                "filter_subject": f"{prefix}>",
                "deliver_policy": "last_per_subject",
                "ack_policy": "none",
                "mem_storage": True,
                "num_replicas": 1,
                "inactive_threshold": 60 * SECOND,
            }
            async with aclosing(self._consume_once(f"KV_{bucket}", consumer)) as messages:
                async for message in messages:
                    if message is not None and matches(f"{prefix}>", message.subject):
                        for change in self._changes_of(message, message.subject.removeprefix(prefix), view):
                            yield change
                    if message is None or not _delivery(message.reply).pending:
                        for change in view.end_of_start():
                            yield change

    # What this machine may do, and what is there

    async def make_missing(self) -> None:
        """Makes the streams and buckets that are missing. Raises NotAllowed if this machine may not."""
        for wanted in STREAMS:
            config = await self._config_of(wanted["name"])
            if config is None:
                await self._make_stream(wanted)
            elif wanted["name"] == names.MAIL_STREAM and not config.get("allow_msg_ttl"):
                # An older version has made it. Where it stays so, `keep` does without a TTL.
                with suppress(NotAllowed, _ApiError):
                    await self._api(f"STREAM.UPDATE.{names.MAIL_STREAM}", {**config, "allow_msg_ttl": True})

    async def _config_of(self, name: str) -> dict[str, Any] | None:
        """Returns what a stream is; None if there is none."""
        try:
            config: dict[str, Any] = (await self._api(f"STREAM.INFO.{name}", {}))["config"]
        except _ApiError as error:
            if error.number != _STREAM_MISSING:
                raise
            return None
        return config

    async def check(self) -> None:
        """Tries what a machine needs. Raises BusError if the engine lacks or refuses something."""
        if not self.server.get("jetstream"):
            raise NoStream(f"the NATS server at {self.server_address} has no JetStream")
        machine = self._access.machine
        if self._access.makes_streams:
            with suppress(NotAllowed):  # then another machine makes them
                await self.make_missing()
        await self.try_to_keep(f"$KV.{names.PRESENCE}.{machine}")
        await self.get(names.PRESENCE, machine)
        await self.last_kept(names.log_subject(machine))

    async def try_to_keep(self, subject: str) -> None:
        """Tries whether this machine may store on a subject, and stores nothing. Raises NotAllowed or BusError."""
        # A condition that is never true; the rights are checked before it.
        never = {**MARK, _EXPECTED: str(2**62)}
        with suppress(NotLast):
            await self._store(subject, b"", never)

    @property
    def is_engine_apart(self) -> bool:
        """Whether JetStream is in another account than the machines, so that they cannot make it ask itself.

        See `link.members`.
        """
        return self._access.api != names.JETSTREAM_API

    @property
    def peer_certificate(self) -> bytes:
        """The server's certificate (DER); empty without TLS or connection."""
        return self._connection.client.peer_certificate() if self._connection else b""

    @property
    def server_address(self) -> str:
        connection = self._connection
        return connection.address if connection else ", ".join(shown_address(server) for server in self._access.servers)

    async def ask_engine(self, name: str, body: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        """Asks JetStream's interface, as `STREAM.INFO.SYN_MAIL`. Raises BusError."""
        return await self._api(name, body or {})

    async def _subjects(self, stream: str, pattern: str) -> list[str]:
        """Returns the subjects of the messages in a stream."""
        found: list[str] = []
        while True:
            asked = {"subjects_filter": pattern, "offset": len(found)}
            state: Any = (await self._api(f"STREAM.INFO.{stream}", asked))["state"]
            page: Mapping[str, int] = state.get("subjects") or {}
            found += page
            if not page or len(found) >= int(state.get("num_subjects", 0)):
                return sorted(found)

    def _changes_of(self, message: Msg, key: str, view: _BucketView) -> list[tuple[str, bytes | None]]:
        """Returns the changes that a delivered entry of a bucket means for the one who watches it."""
        entry = _entry(message.headers or {})
        if entry is _Entry.FORGED:
            _log_forged(message, f"the entry {key}")
            # It has replaced the true one. The machine whose entry it is must know, to write it again.
            if key.partition(".")[0] != self._access.machine:
                view.skip(key)
                return []
        return view.take(key, message.data if entry is _Entry.VALUE else None)

    async def _make_stream(self, wanted: Mapping[str, Any]) -> None:
        """Makes a stream with as much of what is wanted as the server has; another machine may make it meanwhile."""
        name = wanted["name"]
        failure: _ApiError | None = None
        for replicas in (3, 1) if self.server.get("cluster") else (1,):
            for options in _variants(wanted):
                try:
                    await self._api(f"STREAM.CREATE.{name}", {**options, "num_replicas": replicas})
                except _ApiError as error:
                    failure = error
                    if await self._config_of(name) is not None:
                        return
                else:
                    log.info("stream_made", extra={"stream": name, "replicas": replicas})
                    return
        if failure is not None:
            raise failure

    async def _store(self, subject: str, body: bytes, headers: Mapping[str, str]) -> int:
        """Publishes to a stream and returns the number of the message."""
        answer = await self._require().call(subject, body, headers, API_SECONDS)
        if status_of(answer) == 503:
            raise NoStream(f"the engine has no stream that keeps {subject}")
        told = _decode(answer.data)
        if "error" in told:
            raise _ApiError.of(told["error"], f"keep {subject}").kind()
        return int(told.get("seq", 0))

    async def _api(self, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        content = json.dumps(body).encode() if body else b""
        answer = await self._require().call(f"{self._access.api}.{name}", content, None, API_SECONDS)
        if status_of(answer) == 503:
            raise NoStream(f"the NATS server at {self.server_address} has no JetStream for this machine")
        told = _decode(answer.data)
        if "error" in told:
            error = _ApiError.of(told["error"], name)
            if error.number == _NO_LEADER:
                # Not a refusal: who asks again for three replicas gets them, and must not be content with one.
                raise NoReply(str(error))
            raise error
        return told

    def _safe_reply(self, message: Msg) -> str:
        """Returns where to answer; empty unless that is an inbox of the machine that asks, for an answer of ours."""
        if message.subject.startswith(f"{names.ENROL}."):
            prefix = names.enrol_inbox(message.subject.rpartition(".")[2])
        else:
            asker = names.sender_machine(message.subject)
            prefix = names.inbox_subject(asker, self._access.machine, "").removesuffix(".")
        return message.reply if message.reply.startswith(f"{prefix}.") else ""

    async def _end_mail(self, arrival: Arrival, how: bytes) -> None:
        subject = self._mails.pop(arrival.mail, "")
        if subject:
            await self._require().publish(subject, how)

    async def _consume(self, stream: str, consumer: Mapping[str, Any]) -> AsyncGenerator[Msg, None]:
        """Yields what a consumer delivers, over reconnections."""
        while True:
            async with aclosing(self._consume_once(stream, consumer)) as messages:
                async for message in messages:
                    if message is not None:
                        yield message

    async def _consume_once(self, stream: str, consumer: Mapping[str, Any]) -> AsyncGenerator[Msg | None, None]:
        """Makes a consumer and yields what it delivers, until it or the connection is lost.

        Yields None first if there is nothing yet.
        """
        connection = await self._wait_for_connection()
        name = consumer["name"]
        try:
            made = await self._make_consumer(stream, consumer)
            if not made.get("num_pending", 0):
                yield None
            request = f"{self._access.api}.CONSUMER.MSG.NEXT.{stream}.{name}"
            async with aclosing(connection.pulled(request)) as messages:
                async for message in messages:
                    yield message
        except NotAllowed:
            raise
        except BusError as error:
            if connection is self._connection:
                log.info("consumer_lost", extra={"stream": stream, "consumer": name, "why": str(error)})
                await pause(random.uniform(LEAST_WAIT, 2 * LEAST_WAIT))  # noqa: S311 - jitter, no secret

    async def _make_consumer(self, stream: str, consumer: Mapping[str, Any]) -> dict[str, Any]:
        subject = f"CONSUMER.CREATE.{stream}.{consumer['name']}.{consumer['filter_subject']}"
        wanted = {"stream_name": stream, "config": consumer}
        try:
            return await self._api(subject, wanted)
        except _ApiError as error:
            if error.number != _STREAM_MISSING or not self._access.makes_streams:
                raise
            missing = error
        try:
            await self.make_missing()
        except NotAllowed:
            raise missing from None  # another machine makes them
        return await self._api(subject, wanted)

    # The connection

    def _require(self) -> Connection:
        if self._connection is None:
            raise NotConnected(NO_CONNECTION + self._problem)
        return self._connection

    async def _wait_for_connection(self) -> Connection:
        while self._connection is None:
            await self._is_connected.wait()
        return self._connection

    async def _stay_connected(self) -> None:
        servers = deque(self._access.servers)
        random.shuffle(servers)
        wait = LEAST_WAIT
        while True:
            connection = await self._connect(servers[0])
            servers.rotate(-1)
            self._tries += 1
            if connection is None:
                if self._tries >= len(servers):
                    self._has_tried_all.set()
                # With jitter: a server that comes back is not met by all machines at once.
                await pause(random.uniform(wait / 2, wait))  # noqa: S311 - jitter, no secret
                wait = min(wait * 2, LONGEST_WAIT)
                continue
            wait = LEAST_WAIT
            try:
                await self._use(connection)
            except Exception as error:
                # Nobody would connect again after this task.
                log.exception("bus_failed")
                self._problem = f"{connection.address} cannot be used: {error!r}"
            finally:
                self._set_connection(None)
                await connection.close()

    async def _connect(self, server: str) -> Connection | None:
        try:
            return await Connection.open(self._access, server)
        except Exception as error:
            why = str(error) if isinstance(error, BusError) else f"this machine cannot connect: {error!r}"
            if self._problem != why:
                log.warning("bus_not_connected", extra={"why": why}, exc_info=not isinstance(error, BusError))
            self._problem = why
            return None

    async def _use(self, connection: Connection) -> None:
        """Serves a connection until it is lost."""
        making = asyncio.create_task(self._make_missing_quietly(connection)) if self._access.makes_streams else None
        self._problem = ""
        self._set_connection(connection)
        log.info("bus_connected", extra={"server": connection.address})
        try:
            self._problem = await connection.wait_lost()
        finally:
            if making is not None:
                making.cancel()
        log.warning("bus_disconnected", extra={"server": connection.address, "why": self._problem})

    async def _make_missing_quietly(self, connection: Connection) -> None:
        while connection is self._connection or self._connection is None:
            try:
                await self._wait_for_connection()
                await self.make_missing()
                break
            except NotAllowed:
                break  # another machine makes them
            except BusError as error:
                log.warning("streams_not_made", extra={"why": str(error)})
                await pause(1.0)

    def _set_connection(self, connection: Connection | None) -> None:
        changed = (connection is None) != (self._connection is None)
        self._connection = connection
        (self._is_connected.clear if connection is None else self._is_connected.set)()
        if connection is not None:
            self._has_tried_all.set()
        if connection is None:
            self._mails.clear()
        if changed:
            for queue in self._listeners:
                queue.put_nowait(connection is not None)


class _BucketView:
    """Finds the changes of a bucket in what consumers deliver: after each reconnection all entries come again."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._seen: set[str] | None = set()
        """The keys that this consumer has delivered; None once it has delivered all."""
        self._has_told_start = False

    def begin(self) -> None:
        """Begins with a new consumer."""
        self._seen = set()

    def take(self, key: str, value: bytes | None) -> list[tuple[str, bytes | None]]:
        """Returns the changes for a delivered entry."""
        if value is None:
            is_known = key in self._known
            self._known.discard(key)
            return [(key, None)] if is_known else []
        if self._seen is not None:
            self._seen.add(key)
        self._known.add(key)
        return [(key, value)]

    def skip(self, key: str) -> None:
        """Takes an entry that says nothing: what was known of the key stays."""
        if self._seen is not None:
            self._seen.add(key)

    def end_of_start(self) -> list[tuple[str, bytes | None]]:
        """Returns the changes when the consumer has delivered all entries that were there; later none."""
        if self._seen is None:
            return []
        # They were deleted while there was no connection.
        changes: list[tuple[str, bytes | None]] = [(key, None) for key in sorted(self._known - self._seen)]
        self._known, self._seen = self._known & self._seen, None
        if not self._has_told_start:
            self._has_told_start = True
            changes.append(("", None))
        return changes


class _ApiError(BusError):
    """JetStream refused what it was asked."""

    def __init__(self, number: int, text: str) -> None:
        super().__init__(text)
        self.number = number

    @classmethod
    def of(cls, told: Mapping[str, Any], what: str) -> _ApiError:
        number = int(told.get("err_code", 0))
        if number in _NO_JETSTREAM:
            return cls(number, f"the NATS account of this machine has no JetStream ({told.get('description', '')})")
        return cls(number, f"the engine refuses {what}: {told.get('description', told)}")

    def kind(self) -> BusError:
        """Returns the kind of error that a caller of `keep` or `put` expects."""
        if self.number in _FULL:
            return MailboxFull(_FULL[self.number])
        if self.number in _NOT_LAST:
            return NotLast(str(self))
        return TooLarge(str(self)) if self.number == _TOO_LARGE else self


@dataclass(frozen=True, slots=True)
class _Delivery:
    """What the reply subject of a delivered message says of it."""

    times: int
    """How often the message was delivered, this time included."""
    stream_number: int
    pending: int


def _delivery(reply: str) -> _Delivery:
    # $JS.ACK.STREAM.CONSUMER.DELIVERED.STREAM_SEQ.CONSUMER_SEQ.TIME.PENDING, or with DOMAIN.ACCOUNT after ACK.
    tokens = reply.split(".")
    shift = 0 if len(tokens) == 9 else 2
    times, stream_number, pending = (int(tokens[at + shift]) for at in (4, 5, 8))
    return _Delivery(times=times, stream_number=stream_number, pending=pending)


def matches(pattern: str, subject: str) -> bool:
    """Decides whether a subject is one of those of a pattern with `*` for a token and `>` for all further ones."""
    wanted, given = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        wanted = wanted[:-1]
        if len(given) <= len(wanted):
            return False
        given = given[: len(wanted)]
    return len(wanted) == len(given) and all(one in ("*", two) for one, two in zip(wanted, given, strict=True))


def _is_genuine(headers: Mapping[str, str] | None) -> bool:
    """Decides whether a machine has published this message itself; see the head of this module."""
    rest = dict(headers or {})
    once, expected, ttl = rest.pop(_ONCE, "0"), rest.pop(_EXPECTED, "0"), rest.pop(_TTL, "0")
    # A line of the server's that is glued to one of these has a colon and a space.
    return rest == MARK and _ID.fullmatch(once) is not None and expected.isdecimal() and ttl.isdecimal()


def _log_forged(message: Msg, pattern: str) -> None:
    log.warning("message_forged", extra={"subject": message.subject, "on": pattern})


class _Entry(Enum):
    """What the last message of an entry of a bucket says of it."""

    VALUE = auto()
    DELETED = auto()
    """Its machine has deleted it, or it has expired."""
    FORGED = auto()
    """Somebody has made the server write it. What the entry was before is unknown, and not that it is no more."""


def _entry(headers: Mapping[str, str]) -> _Entry:
    if headers == MARK:
        return _Entry.VALUE
    is_marker = _MARKER in headers and headers.keys() <= _WITH_MARKER
    return _Entry.DELETED if headers == _DELETED or is_marker else _Entry.FORGED


def _decode(content: bytes) -> dict[str, Any]:
    try:
        told: object = json.loads(content)
    except ValueError as error:
        raise BusError("the engine answered something that is no JSON") from error
    return cast("dict[str, Any]", told) if isinstance(told, dict) else {}


_MARKER_OPTIONS: Final = ("subject_delete_marker_ttl", "allow_msg_ttl")


def _variants(wanted: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Returns what a stream may be, the best first."""
    if wanted["name"] == names.LOG_STREAM:
        # The server reserves a limit in bytes, so it may have no space for a large one. It makes no stream at all when
        # nothing is left, so none of these is a round number of bytes.
        return [*({**wanted, "max_bytes": size} for size in LOG_BYTES), wanted]
    if "allow_msg_ttl" in wanted:
        # NATS before 2.11 has neither markers nor TTLs: an entry expires without a notice.
        return [wanted, {key: value for key, value in wanted.items() if key not in _MARKER_OPTIONS}]
    return [wanted]


def _bucket(name: str, **options: object) -> dict[str, Any]:
    return {
        "name": f"KV_{name}",
        "subjects": [f"$KV.{name}.>"],
        "retention": "limits",
        "storage": "file",
        "max_msgs_per_subject": 1,
        "discard": "new",
        "deny_delete": True,
        "duplicate_window": 120 * SECOND,
        **options,
    }


STREAMS: Final[tuple[Mapping[str, Any], ...]] = (
    {
        "name": names.MAIL_STREAM,
        "subjects": [f"{names.ROOT}.mail.*.*"],
        "retention": "workqueue",
        "storage": "file",
        "max_age": MAIL_DAYS * _DAY,
        "max_msgs_per_subject": MAILS_PER_PAIR,
        "allow_msg_ttl": True,
        "discard": "new",
        "discard_new_per_subject": True,
        "duplicate_window": 120 * SECOND,
    },
    {
        "name": names.LOG_STREAM,
        "subjects": [names.LOGS],
        "retention": "limits",
        "storage": "file",
        "max_age": LOG_DAYS * _DAY,
        "discard": "old",
        "allow_direct": True,
        "duplicate_window": 120 * SECOND,
    },
    _bucket(
        names.PRESENCE,
        storage="memory",
        max_age=int(PRESENCE_SECONDS) * SECOND,
        duplicate_window=int(PRESENCE_SECONDS) * SECOND,
        subject_delete_marker_ttl=int(PRESENCE_SECONDS) * SECOND,
        allow_msg_ttl=True,
    ),
    _bucket(names.INCARNATIONS),
    _bucket(names.KEYS),
)
"""What the engine keeps, in the words of JetStream's interface."""
