"""A JSON-RPC client over WebSocket on a Unix socket, for CLIs whose server Synapse shares with their own TUI."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

_OPEN_SECONDS: Final = 5.0
_ANSWER_SECONDS: Final = 10.0
_CLOSE_SECONDS: Final = 1.0
_GONE: Final = "the server closed the connection"

JsonObject = Mapping[str, Any]


class RpcRefused(Exception):
    """The server answered a call with an error; the text is the server's reason."""


async def open_rpc(socket: Path, take: Callable[[JsonObject], None]) -> RpcClient:
    """Connects to the server on a Unix socket.

    Raises:
        OSError: nothing listens there, or the server does not speak WebSocket.
    """
    # Every host imports this module, and few connect; the library takes 2 MB.
    from websockets.asyncio.client import unix_connect  # noqa: PLC0415 - see above
    from websockets.exceptions import WebSocketException  # noqa: PLC0415 - see above

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


class RpcClient:
    """One connection. `take` gets every notification and every request of the server, in order."""

    def __init__(self, connection: ClientConnection, take: Callable[[JsonObject], None]) -> None:
        self._connection = connection
        self._take = take
        self._calls: dict[int, asyncio.Future[JsonObject]] = {}
        self._number = 0

    async def follow(self) -> None:
        """Reads until the connection ends; then fails all open calls with ConnectionResetError."""
        from websockets.exceptions import WebSocketException  # noqa: PLC0415 - the connection has loaded it already

        try:
            async for text in self._connection:
                self._receive(text)
        except WebSocketException:
            return  # closed without a closing handshake
        finally:
            for waiting in self._calls.values():
                if not waiting.done():
                    waiting.set_exception(ConnectionResetError(_GONE))
            self._calls.clear()

    async def call(self, method: str, params: Mapping[str, Any]) -> JsonObject:
        """Calls a method of the server and returns its result; an empty object if the result is not an object.

        Raises:
            RpcRefused: the server answers with an error.
            OSError: the connection is closed, or there is no answer in time (TimeoutError is an OSError). The server
                may have received the call.
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
            reason = _object_at(answer, "error").get("message")
            raise RpcRefused(reason if reason and isinstance(reason, str) else "it gives no reason")
        return _object_at(answer, "result")

    async def notify(self, method: str) -> None:
        """Sends a notification to the server. Raises OSError when the connection is closed."""
        await self._send({"method": method})

    async def answer(self, request_id: object, result: object) -> None:
        """Answers a request of the server. Raises OSError when the connection is closed."""
        await self._send({"id": request_id, "result": result})

    async def close(self) -> None:
        await self._connection.close()

    async def _send(self, message: Mapping[str, Any]) -> None:
        from websockets.exceptions import WebSocketException  # noqa: PLC0415 - the connection has loaded it already

        try:
            await self._connection.send(json.dumps(message))
        except WebSocketException as error:
            raise ConnectionResetError(_GONE) from error

    def _receive(self, text: str | bytes) -> None:
        try:
            value: object = json.loads(text)
        except ValueError:
            return
        if not isinstance(value, dict):
            return
        message = cast("JsonObject", value)
        if "method" in message:
            self._take(message)
            return
        number: object = message.get("id")
        waiting = self._calls.get(number) if isinstance(number, int) else None
        if waiting is not None and not waiting.done():
            waiting.set_result(message)


def _object_at(message: JsonObject, key: str) -> JsonObject:
    value = message.get(key)
    return cast("JsonObject", value) if isinstance(value, dict) else {}
