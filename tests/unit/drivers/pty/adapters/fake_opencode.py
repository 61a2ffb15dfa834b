"""A server that speaks as OpenCode's does (recorded on 1.18.33), on a real port, with the faults that a test wants."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

OK = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
CREATED = {"id": "ses_new"}


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    body: Any


@dataclass
class FakeOpenCode:
    """Keeps the requests that it gets; emits an event for each message that it takes, unless it is silent."""

    statuses: Mapping[str, int] = field(default_factory=dict[str, int])
    """What it answers to these paths, instead of success."""
    loses_answers: bool = False
    """It takes a message and hangs up without a word."""
    is_mute: bool = False
    """It emits no events."""
    sessions: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    """The conversations that it lists."""
    asked: list[Asked] = field(default_factory=list[Asked])
    _server: asyncio.Server | None = None
    _streams: list[asyncio.StreamWriter] = field(default_factory=list[asyncio.StreamWriter])

    async def open(self, port: int) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        for stream in self._streams:
            stream.close()
        await self._server.wait_closed()

    def posts(self) -> list[Asked]:
        return [asked for asked in self.asked if asked.method == "POST"]

    def emit(self, name: str, **properties: Any) -> None:
        data = f"data: {json.dumps({'type': name, 'properties': properties})}\n\n".encode()
        for stream in self._streams:
            stream.write(b"%x\r\n%s\r\n" % (len(data), data))

    def emit_prompt(self, session: str, text: str, message: str = "msg_1") -> None:
        model = {"providerID": "fake", "modelID": "fake-model"}
        info = {"id": message, "role": "user", "agent": "plan", "model": model}
        self.emit("message.updated", sessionID=session, info=info)
        part = {"type": "text", "text": text, "messageID": message, "id": "prt_1"}
        self.emit("message.part.updated", sessionID=session, part=part)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = int(head.partition("Content-Length: ")[2].partition("\r\n")[0] or 0)
        method, path = head.split(" ")[:2]
        body = json.loads(await reader.readexactly(length)) if length else None
        self.asked.append(Asked(method, path, body))
        if path == "/event":
            writer.write(OK)
            self._streams.append(writer)
            return
        self._answer(method, path, body, writer)
        await writer.drain()
        writer.close()

    def _answer(self, method: str, path: str, body: Any, writer: asyncio.StreamWriter) -> None:
        status = self.statuses.get(path, 200)
        if status >= 400:
            error = json.dumps({"name": "BadRequest", "data": {"message": "not like this"}}).encode()
            writer.write(b"HTTP/1.1 %d No\r\nContent-Length: %d\r\n\r\n%s" % (status, len(error), error))
            return
        if path.endswith("/prompt_async"):
            if not self.is_mute:
                self.emit_prompt(path.split("/")[2], body["parts"][0]["text"])
            if not self.loses_answers:
                writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
            return
        created_or_all = CREATED if method == "POST" else self.sessions
        content = json.dumps(created_or_all if path == "/session" else True).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(content), content))
