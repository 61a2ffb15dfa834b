"""An app-server that speaks as Codex's does (recorded on 0.166.0), on a real socket, with the faults a test wants."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from websockets.asyncio.server import Server, ServerConnection, unix_serve
from websockets.exceptions import ConnectionClosed

THREAD = "thread-1"


@dataclass
class FakeAppServer:
    """Keeps what clients say. `resumes_after` refusals a thread can be resumed; a turn that begins ends at once."""

    threads: list[str] = field(default_factory=lambda: [THREAD])
    resumes_after: int = 0
    refuses_turns: bool = False
    hangs_up: bool = False
    """It goes away when it is given a turn, without a word."""
    said: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    turns: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    _server: Server | None = None
    _clients: set[ServerConnection] = field(default_factory=set[ServerConnection])

    async def open(self, path: Path) -> None:
        self._server = await unix_serve(self._serve, str(path))

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    def calls(self, method: str) -> list[dict[str, Any]]:
        return [message["params"] for message in self.said if message.get("method") == method]

    def answers(self) -> list[dict[str, Any]]:
        return [message for message in self.said if "result" in message]

    async def notify(self, method: str, **params: Any) -> None:
        await self._broadcast({"method": method, "params": params})

    async def ask(self, number: int, method: str, **params: Any) -> None:
        await self._broadcast({"id": number, "method": method, "params": params})

    async def _broadcast(self, message: dict[str, Any]) -> None:
        for client in self._clients:
            await client.send(json.dumps(message))

    async def _serve(self, client: ServerConnection) -> None:
        self._clients.add(client)
        try:
            async for text in client:
                message = json.loads(text)
                self.said.append(message)
                if "method" in message and "id" in message:
                    await self._reply(client, message)
        except ConnectionClosed:
            return
        finally:
            self._clients.discard(client)

    async def _reply(self, client: ServerConnection, message: dict[str, Any]) -> None:
        if message["method"] == "turn/start" and self.hangs_up:
            client.transport.abort()
            return
        answer = self._answer(message["method"], message["params"])
        await client.send(json.dumps({"id": message["id"], **answer}))
        if message["method"] == "turn/start" and "result" in answer:
            status = {"type": "active"}
            await self.notify("thread/status/changed", threadId=message["params"]["threadId"], status=status)

    def _answer(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        match method:
            case "thread/loaded/list":
                return {"result": {"data": self.threads}}
            case "thread/read":
                return {"result": {"thread": {"id": params["threadId"], "ephemeral": False}}}
            case "thread/resume" if self.resumes_after > 0 or not self.turns:
                self.resumes_after -= 1
                return {"error": {"code": -32600, "message": "no rollout found"}}
            case "thread/turns/list":
                return {"result": {"data": self.turns[-1:]}}
            case "turn/start":
                return self._begin(params["input"][0]["text"])
            case _:
                return {"result": {}}

    def _begin(self, text: str) -> dict[str, Any]:
        if self.refuses_turns:
            return {"error": {"code": -32600, "message": "the model is\x1b[2J gone"}}
        number = len(self.turns) + 1
        said = {"type": "userMessage", "id": f"u{number}", "content": [{"type": "text", "text": text}]}
        answer = {"type": "agentMessage", "id": f"a{number}", "text": f"ECHO {text}"}
        self.turns.append({"id": f"turn-{number}", "status": "completed", "items": [said, answer]})
        return {"result": {"turn": {"id": f"turn-{number}", "status": "inProgress", "items": []}}}
