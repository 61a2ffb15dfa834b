"""The peer: the official SDK's server for MCP with a tool that does nothing, on uvicorn, at a Unix socket.

Run as `python -P mcp_sdk_app.py SOCKET` by a Python that has the SDK. Loaded by name, because it is not installed here.
"""

from __future__ import annotations

import importlib
import socket
import sys
from typing import Any

uvicorn: Any = importlib.import_module("uvicorn")
mcp: Any = importlib.import_module("mcp.server.mcpserver")
security: Any = importlib.import_module("mcp.server.transport_security")


def send(to: str, text: str, idempotency_key: str) -> str:
    """Sends nothing."""
    return f"task {idempotency_key}, sent to {to} ({len(text)})"


def main(path: str) -> None:
    server = mcp.MCPServer("peer", log_level="ERROR")
    server.add_tool(send, structured_output=False)
    # No sessions and plain JSON, as our gateway answers: the SDK at its best.
    unchecked = security.TransportSecuritySettings(enable_dns_rebinding_protection=False)
    app = server.streamable_http_app(stateless_http=True, json_response=True, transport_security=unchecked)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen()
    uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False)).run(sockets=[listener])


if __name__ == "__main__":
    main(*sys.argv[1:])
