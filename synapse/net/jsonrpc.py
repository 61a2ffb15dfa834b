"""JSON-RPC over WebSocket on a Unix socket, as a client among others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, cast

from websockets.asyncio.client import ClientConnection, unix_connect
from websockets.exceptions import WebSocketException

from synapse.terminal.signals.report import Record, table_at, text_at

_OPEN_SECONDS: Final = 5.0
_ANSWER_SECONDS: Final = 10.0
_CLOSE_SECONDS: Final = 1.0


class Refused(Exception):
    """The server understood the call, and says no; the text says why."""


class RpcClient:
    """One connection. `take` gets every notification and every request of the server, in their order."""

    def __init__(self, connection: ClientConnection, take: Callable[[Record], None]) -> None:
        self._connection = connection
        self._take = take
        self._calls: dict[int, asyncio.Future[Record]] = {}
        self._number = 0

    async def follow(self) -> None:
        """Read until the connection ends; calls that wait then fail."""
        try:
            async for text in self._connection:
                self._receive(text)
        except WebSocketException:
            # It went away without saying goodbye.
            return
        finally:
            for waiting in self._calls.values():
                if not waiting.done():
                    waiting.set_exception(ConnectionResetError("its server went away"))
            self._calls.clear()

    async def call(self, method: str, params: Mapping[str, Any]) -> Record:
        """Ask the server, and return the result.

        Raises:
            Refused: it says no.
            OSError: it is gone, or takes too long; it may have been asked (TimeoutError is an OSError).
        """
        self._number += 1
        number = self._number
        waiting = self._calls[number] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                await self._send({"id": number, "method": method, "params": params})
                answer = await waiting
        finally:
            self._calls.pop(number, None)
        if "error" in answer:
            raise Refused(text_at(answer, "error", "message") or "it gives no reason")
        return table_at(answer, "result")

    async def notify(self, method: str) -> None:
        """Tell the server; raises OSError when it is gone."""
        await self._send({"method": method})

    async def answer(self, request_id: object, result: object) -> None:
        """Answer a request of the server; raises OSError when it is gone."""
        await self._send({"id": request_id, "result": result})

    async def close(self) -> None:
        await self._connection.close()

    async def _send(self, message: Mapping[str, Any]) -> None:
        try:
            await self._connection.send(json.dumps(message))
        except WebSocketException as error:
            raise ConnectionResetError("its server went away") from error

    def _receive(self, text: str | bytes) -> None:
        try:
            value: object = json.loads(text)
        except ValueError:
            return
        if not isinstance(value, Mapping):
            return
        message = cast("Record", value)
        if "method" in message:
            self._take(message)
            return
        number: object = message.get("id")
        waiting = self._calls.get(number) if isinstance(number, int) else None
        if waiting is not None and not waiting.done():
            waiting.set_result(message)


async def open_rpc(socket: Path, take: Callable[[Record], None]) -> RpcClient:
    """Connect to the server on a Unix socket.

    Raises:
        OSError: nobody listens, or it does not speak WebSocket.
    """
    try:
        connection = await unix_connect(
            str(socket),
            uri="ws://localhost/",
            open_timeout=_OPEN_SECONDS,
            close_timeout=_CLOSE_SECONDS,
            ping_interval=None,
            max_size=None,
            compression=None,
        )
    except WebSocketException as error:
        raise ConnectionRefusedError(str(error)) from error
    return RpcClient(connection, take)
