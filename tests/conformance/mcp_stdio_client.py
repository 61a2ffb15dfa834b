"""The tools of an agent's launch, used by the official MCP SDK for Python, unmodified, in an environment of its own.

    python mcp_stdio_client.py legacy|modern COMMAND…

It starts COMMAND with its own environment and prints what it saw as JSON. Version 1 of the SDK speaks the older
protocol only. The SDK is loaded by name, because it is not installed here.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

mcp: Any = importlib.import_module("mcp")
stdio: Any = importlib.import_module("mcp.client.stdio")
is_second = hasattr(mcp, "Client")


@asynccontextmanager
async def connected(mode: str, command: list[str]) -> AsyncGenerator[tuple[Any, dict[str, Any]]]:
    """Starts the server; yields the client, and what the server says of itself."""
    started = stdio.StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ))
    if is_second:
        async with mcp.Client(stdio.stdio_client(started), mode="auto" if mode == "modern" else "legacy") as client:
            yield client, {"protocol": client.protocol_version, "instructions": client.instructions}
        return
    async with stdio.stdio_client(started) as (reading, writing), mcp.ClientSession(reading, writing) as session:
        begun = await session.initialize()
        yield session, {"protocol": begun.protocolVersion, "instructions": begun.instructions}


def shown(result: Any) -> dict[str, Any]:
    is_error = result.is_error if is_second else result.isError
    return {"error": bool(is_error), "blocks": [block.text for block in result.content]}


async def conversation(mode: str, *command: str) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    async with connected(mode, list(command)) as (client, server):
        seen |= server
        seen["tools"] = [tool.name for tool in (await client.list_tools()).tools]

        async def call(name: str, progress: Any = None, **arguments: object) -> dict[str, Any]:
            return shown(await client.call_tool(name, arguments, progress_callback=progress))

        seen["agents"] = await call("agents")
        seen["sent"] = await call("send", to="tck", text="only told")
        told: list[float] = []

        async def progress(done: float, _total: float | None, _message: str | None) -> None:
            told.append(done)

        slow = asyncio.create_task(call("send", progress, to="tck", text="slow one", wait="answer"))
        seen["answered"] = await call("send", to="tck", text="asked", wait="answer", timeout=30)
        seen["slow"] = await slow
        seen["progress"] = told
        seen["late"] = await call("send", to="tck", text="never", wait="answer", timeout=1)
        task = seen["late"]["blocks"][0].split()[1].strip(":,")
        seen["status"] = await call("status", of=task)
        seen["canceled"] = await call("cancel", task=task)
        seen["nothing open"] = await call("reply", text="no")
        seen["wrong"] = await call("send", to="tck", text=7)
        seen["nobody"] = await call("send", to="nobody", text="hello")
        seen["unknown"] = await refused(call("approve", task=task))
    return seen


async def refused(act: Any) -> str:
    """Returns the error of an act that must fail; which class it is depends on the version."""
    try:
        await act
    except Exception as error:  # noqa: BLE001 - as said
        return f"{type(error).__name__}: {error}"
    return ""


sys.stdout.write(json.dumps(asyncio.run(conversation(*sys.argv[1:]))))
