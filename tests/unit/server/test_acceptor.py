"""Which connections a TCP port accepts, and what it does without open files."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import socket
import ssl
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, cast

import pytest
import uvloop

from synapse.core.override import override
from synapse.server.acceptor import SLOT, Acceptor, ConnectionLimits, Slots, limits_within
from synapse.server.acceptor import log as acceptor_log
from tests.fakes.certificates import self_made

LIMITS = ConnectionLimits(total=6, unproven=3, unproven_per_source=2)


def test_unproven_connections_are_limited_in_total_and_for_each_source() -> None:
    slots = Slots(LIMITS)

    assert slots.take("uid 1", is_own=False)
    assert slots.take("uid 1", is_own=False)
    assert slots.take("uid 1", is_own=False) is None
    assert slots.take("uid 2", is_own=False)
    assert slots.take("uid 3", is_own=False) is None


def test_own_connections_are_accepted_beside_any_number_of_unproven_ones() -> None:
    slots = Slots(LIMITS)
    while slots.take(f"uid {slots.taken}", is_own=False):
        pass

    assert all(slots.take("uid 0", is_own=True) for _ in range(3))
    assert slots.take("uid 0", is_own=True) is None


def test_releasing_a_slot_twice_frees_it_once() -> None:
    slots = Slots(LIMITS)
    first = slots.take("uid 1", is_own=False)
    second = slots.take("uid 1", is_own=False)
    assert first is not None
    assert second is not None

    first.release()
    first.release()

    assert slots.taken == 1
    assert slots.take("uid 1", is_own=False)
    assert slots.take("uid 1", is_own=False) is None


def test_an_admitted_caller_no_longer_counts_as_unproven() -> None:
    slots = Slots(LIMITS)
    admitted = slots.take("uid 1", is_own=False)
    assert admitted is not None
    admitted.prove()
    admitted.prove()

    assert slots.take("uid 1", is_own=False)
    assert slots.take("uid 1", is_own=False)
    admitted.release()
    assert slots.take("uid 1", is_own=False) is None
    assert slots.taken == 2


def test_half_of_the_open_files_is_left_for_everything_else() -> None:
    assert limits_within(1024, unproven=64, per_source=32) == ConnectionLimits(
        total=512, unproven=64, unproven_per_source=32
    )
    assert limits_within(64, unproven=64, per_source=32) == ConnectionLimits(
        total=32, unproven=16, unproven_per_source=8
    )


class Greeter(asyncio.Protocol):
    def __init__(self, state: dict[str, Any]) -> None:
        self._slot = state[SLOT]

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        wire = cast("asyncio.Transport", transport)
        wire.write(b"hello")
        wire.close()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._slot.release()


def read_from(port: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        return connection.recv(100)


class Warned(logging.Handler):
    """Counts warnings, and signals the first one."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.first = asyncio.Event()

    @override
    def emit(self, record: logging.LogRecord) -> None:
        self.count += record.getMessage() == "out_of_open_files"
        self.first.set()


async def test_a_port_serves_again_once_its_process_can_open_files_again() -> None:
    warned = Warned()
    acceptor_log.addHandler(warned)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    filled: list[int] = []
    with closing(socket.create_server(("127.0.0.1", 0))) as listener, closing(socket.socket()) as client:
        acceptor = Acceptor(listener, Greeter, LIMITS, refusal=b"no")
        acceptor.start()
        resource.setrlimit(resource.RLIMIT_NOFILE, (client.fileno() + 8, hard))
        try:
            with suppress(OSError):
                while True:
                    filled.append(os.open(os.devnull, os.O_RDONLY))
            client.connect(listener.getsockname())
            await asyncio.wait_for(warned.first.wait(), 10)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for number in filled:
                os.close(number)
            acceptor_log.removeHandler(warned)
        client.settimeout(10)
        heard = await asyncio.to_thread(client.recv, 100)
        acceptor.close()

    assert heard == b"hello"
    assert warned.count == 1


async def test_a_connection_beyond_the_limit_gets_an_answer() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        limits = ConnectionLimits(total=0, unproven=0, unproven_per_source=0)
        acceptor = Acceptor(listener, Greeter, limits, refusal=b"no room")
        acceptor.start()
        heard = await asyncio.to_thread(read_from, listener.getsockname()[1])
        acceptor.close()

    assert heard == b"no room"


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_an_unfinished_tls_handshake_holds_its_slot_until_the_caller_disconnects(
    tmp_path: Path, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    certificate, key = self_made(tmp_path)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate, key)
    trusting = ssl.create_default_context(cafile=str(certificate))

    def greeted(port: int) -> bytes:
        """Returns the greeting of the server over TLS, or nothing while it is full."""
        try:
            with (
                socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
                trusting.wrap_socket(plain, server_hostname="localhost") as secured,
            ):
                return secured.recv(100)
        except OSError:
            return b""

    async def scenario() -> tuple[bytes, bytes]:
        with closing(socket.create_server(("127.0.0.1", 0))) as listener:
            port = listener.getsockname()[1]
            limits = ConnectionLimits(total=1, unproven=1, unproven_per_source=1)
            acceptor = Acceptor(listener, Greeter, limits, refusal=b"in plain words", tls=tls)
            acceptor.start()
            silent = await asyncio.to_thread(socket.create_connection, ("127.0.0.1", port), 10)
            refused = await asyncio.to_thread(greeted, port)
            silent.close()
            async with asyncio.timeout(20):
                while not (heard := await asyncio.to_thread(greeted, port)):
                    pass
            acceptor.close()
            return refused, heard

    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(scenario()) == (b"", b"hello")
