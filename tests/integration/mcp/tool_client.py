"""A small MCP client over stdio: starts `synapse mcp`, sends lines, and keeps every line that comes back."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from tests.integration.cli.session import COMMAND, PATIENCE, Session
from tests.integration.waiting import until

Fields = dict[str, Any]


class ToolClient:
    """Talks to one server process, in the era that begins with `initialize`."""

    def __init__(self, here: Session, agent: Fields | None = None, *, reads: bool = True, **environ: str) -> None:
        if agent is not None:
            environ |= {"SYNAPSE_AGENT_ID": agent["agent_id"], "SYNAPSE_SOCKET": agent["socket"]}
        self.process = subprocess.Popen(
            [*COMMAND, "mcp"],
            cwd=here.folder,
            env=here.environ | environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.messages: list[Fields] = []
        self._ids = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        if reads:
            self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.messages.append(json.loads(line))

    def write(self, message: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def request(self, method: str, params: Fields | None = None) -> int:
        """Send a request and return its id."""
        self._ids += 1
        fields: Fields = {"jsonrpc": "2.0", "id": self._ids, "method": method}
        self.write(fields if params is None else {**fields, "params": params})
        return self._ids

    def notify(self, method: str, params: Fields) -> None:
        self.write({"jsonrpc": "2.0", "method": method, "params": params})

    def replies_to(self, request_id: int) -> list[Fields]:
        return [message for message in self.messages if message.get("id") == request_id]

    def result(self, request_id: int, bound: float = PATIENCE) -> Fields:
        """Wait for the result of a request."""
        reply = until(lambda: self.replies_to(request_id), "the reply", lambda: self.messages, bound)[0]
        assert "error" not in reply, reply
        result: Fields = reply["result"]
        return result

    def begin(self, tool: str, *, meta: Fields | None = None, **arguments: Any) -> int:
        params: Fields = {"name": tool, "arguments": arguments}
        return self.request("tools/call", {**params, "_meta": meta} if meta else params)

    def call(self, tool: str, **arguments: Any) -> list[str]:
        """Call a tool that works, and return its text blocks."""
        result = self.result(self.begin(tool, **arguments))
        assert result["isError"] is False, result
        return blocks(result)

    def fail(self, tool: str, **arguments: Any) -> str:
        """Call a tool that refuses, and return its words."""
        result = self.result(self.begin(tool, **arguments))
        assert result["isError"] is True, result
        return "\n".join(blocks(result))

    def end(self) -> int:
        """Close the server's input, as a client does that has finished, and return the exit code."""
        assert self.process.stdin is not None
        if not self.process.stdin.closed:
            self.process.stdin.close()
        code = self.process.wait(PATIENCE)
        if self._reader.ident is not None:
            self._reader.join(PATIENCE)
        return code


def blocks(result: Fields) -> list[str]:
    assert {block["type"] for block in result["content"]} == {"text"}
    return [block["text"] for block in result["content"]]


def short_id(block: str) -> str:
    """Return the task id at the beginning of a result."""
    return block.removeprefix("task ")[:8]


@contextmanager
def tool_client(
    here: Session, agent: Fields | None = None, *, reads: bool = True, **environ: str
) -> Generator[ToolClient]:
    client = ToolClient(here, agent, reads=reads, **environ)
    try:
        yield client
    finally:
        if client.process.poll() is None:
            client.process.kill()
        client.end()
        for stream in (client.process.stdout, client.process.stderr):
            assert stream is not None
            stream.close()
