"""The close frame of a WebSocket arrives: at a client that stopped reading, and at one that sends too much."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import AsyncGenerator, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from synapse.core.agent import AgentEntry
from synapse.core.caller import Caller
from synapse.core.events import Update
from synapse.core.requests import Request
from synapse.gateway.hub_socket import TRY_AGAIN_LATER, HubSocket
from synapse.server.websocket import ForEveryCaller, WebSocketChannel
from tests.conformance.served_host import served
from tests.unit.dialects.hub.samples import agent_name, said

pytestmark = pytest.mark.integration

BOUND = 20.0


class Flood:
    """A service whose streams never end, with large updates."""

    def __init__(self, _entry: AgentEntry) -> None:
        self._task = said("x" * 60_000)

    async def handle(self, request: Request[object], caller: Caller) -> Any:
        return self._updates()

    async def _updates(self) -> AsyncGenerator[Update, None]:
        for seq in count(1):
            yield Update(seq, None, self._task)


class Noticed:
    """The hub's handler; `done` is set when it has finished with a client."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self._handler = HubSocket(Flood(AgentEntry("a", "dummy")), agent_name, slow_seconds=0.3)

    async def __call__(self, channel: WebSocketChannel, caller: Caller) -> None:
        try:
            await self._handler(channel, caller)
        finally:
            self.done.set()


def frames_of(socket: Any) -> Iterator[dict[str, Any]]:
    while True:
        yield json.loads(socket.recv(timeout=BOUND))


def test_a_slow_reader_gets_the_frames_of_a_task_without_a_gap_and_is_told_how_to_resume(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    handler = Noticed()
    caplog.set_level(logging.INFO)
    with (
        served(tmp_path, Flood, websockets={"/ws": ForEveryCaller(handler)}) as host,
        connect(f"ws://localhost:{host.port}/ws?ticket=s3cret", max_queue=1, open_timeout=BOUND) as socket,
    ):
        socket.send('{"type": "subscribe", "taskId": "task-123"}')
        assert handler.done.wait(BOUND), "it reads nothing, so it is closed"
        seqs: list[int] = []
        with pytest.raises(ConnectionClosed) as closed:
            seqs.extend(frame["seq"] for frame in frames_of(socket))

    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == TRY_AGAIN_LATER
    assert closed.value.rcvd.reason == "too slow; resume each task after its last seq"
    assert seqs, "so it has a seq after which to resume"
    assert seqs == list(range(1, len(seqs) + 1))
    assert "s3cret" not in caplog.text


def test_a_frame_that_is_too_large_is_answered_with_a_close_that_arrives(tmp_path: Path) -> None:
    handler = Noticed()
    with (
        served(tmp_path, Flood, websockets={"/ws": ForEveryCaller(handler)}) as host,
        connect(f"ws://localhost:{host.port}/ws", open_timeout=BOUND) as socket,
    ):
        with pytest.raises(ConnectionClosed) as closed:
            overwhelm(socket)
        assert handler.done.wait(BOUND)

    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1009


def overwhelm(socket: Any) -> None:
    socket.send("x" * 50_000_000)
    socket.recv(timeout=BOUND)
