"""An app-server that speaks as Codex's does (recorded on 0.166.0), on a real socket, with the faults a test wants."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from websockets.asyncio.server import Server, ServerConnection, unix_serve
from websockets.exceptions import ConnectionClosed

THREAD = "thread-1"
UNREADABLE = "thread-0"
"""A conversation that the server lists, and cannot read."""


@dataclass
class FakeAppServer:
    """Keeps what clients say. `resumes_after` refusals a thread can be resumed; a turn that begins ends at once."""

    threads: list[str] = field(default_factory=lambda: [THREAD])
    resumes_after: int = 0
    refuses_turns: bool = False
    hangs_up: bool = False
    """It goes away when it is given a message, without a word."""
    hangs_up_after: bool = False
    """It goes away when it has taken a message, without a word."""
    has_queue: bool = True
    rests: bool = False
    """Its queue rests, as after Esc: what is added stays there until it is started."""
    is_busy: bool = False
    """Another turn runs: what is added stays in the queue, and cannot be started."""
    begins_late: bool = False
    """What is in the queue is taken into a turn before it can be deleted."""
    keeps_refused: bool = False
    """It adds a message to its queue, and refuses it nevertheless."""
    queue: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
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
        method, turns = message["method"], len(self.turns)
        is_given = method in ("turn/start", "thread/queue/add")
        if is_given and self.hangs_up:
            client.transport.abort()
            return
        answer = self._answer(method, message["params"])
        if is_given and self.hangs_up_after:
            client.transport.abort()
            return
        await client.send(json.dumps({"id": message["id"], **answer}))
        if len(self.turns) > turns:
            status = {"type": "active"}
            await self.notify("thread/status/changed", threadId=message["params"]["threadId"], status=status)

    def _answer(self, method: str, params: dict[str, Any]) -> dict[str, Any]:  # noqa: C901, PLR0911 - one case per method
        if method in ("turn/start", "thread/queue/add") and self.refuses_turns:
            if self.keeps_refused:
                self._queue_up(params)
            return {"error": {"code": -32600, "message": "the model is\x1b[2J gone"}}
        if method.startswith("thread/queue/"):
            return self._answer_queue(method, params)
        match method:
            case "thread/loaded/list":
                return {"result": {"data": self.threads}}
            case "thread/list":
                return {"result": {"data": [{"id": thread} for thread in self.threads]}}
            case "thread/read":
                return {"result": {"thread": {"id": params["threadId"], "ephemeral": False}}}
            case "thread/resume" if self.resumes_after > 0 or not self.turns:
                self.resumes_after -= 1
                return {"error": {"code": -32600, "message": "no rollout found"}}
            case "thread/turns/list":
                return {"result": {"data": self.turns[-1:]}}
            case "turn/start":
                return self._begin(params)
            case _:
                return {"result": {}}

    def _answer_queue(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if not self.has_queue or params["threadId"] == UNREADABLE:
            return {"error": {"code": -32600, "message": f"Invalid request: unknown variant `{method}`"}}
        entries = [entry for entry in self.queue if entry["id"] == params.get("queuedSubmissionId")]
        match method:
            case "thread/queue/list":
                at = int(params.get("cursor") or 0)
                rest = self.queue[at + 1 :]
                return {"result": {"data": self.queue[at : at + 1], "nextCursor": str(at + 1) if rest else None}}
            case "thread/queue/add":
                entry = self._queue_up(params)
                if not (self.rests or self.is_busy):
                    self._begin(self.queue.pop())
                return {"result": {"queuedSubmission": entry}}
            case "thread/queue/start" if self.is_busy or not entries:
                if self.begins_late:
                    self._begin(self.queue.pop())
                return {"error": {"code": -32600, "message": "thread already has an active or pending turn"}}
            case "thread/queue/start":
                self.queue.remove(entries[0])
                return self._begin(entries[0])
            case _:
                self.queue = [entry for entry in self.queue if entry not in entries]
                return {"result": {"deleted": bool(entries)}}

    def _queue_up(self, params: dict[str, Any]) -> dict[str, Any]:
        entry = {"id": f"q{len(self.said)}", **{key: params[key] for key in ("input", "clientUserMessageId")}}
        self.queue.append(entry)
        return entry

    def _begin(self, params: dict[str, Any]) -> dict[str, Any]:
        number, text = len(self.turns) + 1, params["input"][0]["text"]
        said: dict[str, Any] = {"type": "userMessage", "id": f"u{number}", "content": [{"type": "text", "text": text}]}
        said["clientId"] = params.get("clientUserMessageId")
        answer = {"type": "agentMessage", "id": f"a{number}", "text": f"ECHO {text}"}
        self.turns.append({"id": f"turn-{number}", "status": "completed", "items": [said, answer]})
        return {"result": {"turn": {"id": f"turn-{number}", "status": "inProgress", "items": []}}}
